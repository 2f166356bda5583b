"""The campaign's own parts, without a process: which fault a cycle has, what a remedy says, what brute force owes."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

import bench.faults as campaign
from bench.faults.campaign import Result
from bench.faults.catalogue import FAULTS, fault_of
from bench.faults.proxy import Proxy
from bench.faults.system import Failed, System
from streaming.causes import KNOWN
from streaming.stops import ARCHIVE, ROUTER


def test_a_round_of_cycles_has_each_fault_once_in_an_order_of_its_own() -> None:
    first, second = ([fault_of(k) for k in range(start, start + len(FAULTS))] for start in (0, len(FAULTS)))
    assert {fault.name for fault in first} == {fault.name for fault in second} and len(set(first)) == len(FAULTS)
    assert first != second
    assert fault_of(7) is fault_of(7)


class Asked(System):
    """A system whose commands are only noted."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.asked = folder, list[tuple[str, ...]]()

    def command(self, *words: str) -> tuple[int, str]:
        self.asked.append(words)
        return 0, ""


@pytest.mark.parametrize("stop", [stop for stop in (ROUTER | ARCHIVE).values() if "lacuna " in stop.remedy])
def test_a_remedy_that_names_a_command_is_followed_by_it(stop: Any, tmp_path: Path) -> None:
    system = Asked(tmp_path)
    system.follow(f"found: {stop.cause}. Remedy: {stop.remedy}")
    [words] = system.asked
    assert f"lacuna {' '.join(words)}" in stop.remedy and stop.remedy.endswith(words[-1])


@pytest.mark.parametrize("known", KNOWN)
def test_every_remedy_of_a_running_job_can_be_followed(known: Any, tmp_path: Path) -> None:
    assert Asked(tmp_path).follow(f"lacuna: the router stopped: {known.cause}. Remedy: {known.remedy}.")


@pytest.mark.parametrize("said", ["", "Killed", "it is broken. Remedy: think about it"])
def test_a_stop_that_says_nothing_to_do_is_unclear(said: str, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="unclear stop"):
        Asked(tmp_path).follow(said)


def test_results_of_several_runs_are_joined_by_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "WORK", tmp_path / "work" / "faults.json")
    campaign.write_down(Result(4, "kill", lost=2, failed="lost"))
    campaign.write_down(Result(3, "kill", hit="process 1 is gone", seconds=20))
    report = campaign.reported()
    assert report.figures == {"cycles": 2, "lost": 2, "repeated": 0, "false": 0, "unclear_stops": 0, "failed": 1}
    assert report.notes == ["lacuna bench faults --cycles 1 --seed 4"]
    campaign.write_down(Result(4, "kill"))
    assert campaign.reported().figures["failed"] == 0
    assert [row["seed"] for row in json.loads(campaign.WORK.read_text())] == [3, 4]


def test_the_way_can_be_cut_and_mended() -> None:
    def echo(server: socket.socket) -> None:
        while True:
            end, _ = server.accept()
            threading.Thread(target=lambda end=end: end.sendall(end.recv(10)), daemon=True).start()

    def ask(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as end:
            end.sendall(b"hello")
            return end.recv(10)

    with socket.create_server(("127.0.0.1", 0)) as server, Proxy() as proxy:
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        proxy.target = server.getsockname()[1]
        assert ask(proxy.port) == b"hello" and proxy.relayed == 10
        proxy.cut = True
        assert not _asked(ask, proxy.port)
        proxy.cut = False
        assert ask(proxy.port) == b"hello"


def _asked(ask: Any, port: int) -> bytes:
    """What comes back, if anything does."""
    try:
        return bytes(ask(port))
    except OSError:
        return b""
