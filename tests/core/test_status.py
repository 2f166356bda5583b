"""`lacuna status`: what the job says, as one screen, one object and one exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from access.control import ControlLog
from access.errors import Unreachable
from lacuna.__main__ import main
from state.protocol.control import Claim, Prefix
from streaming.endpoint import Endpoint
from tests.core.test_watch import World

CONFIG = """
[space]
x = { kind = "int", low = 0, high = 9 }
[overlay]
brokers = ["hub"]
[kafka]
prefix = "PREFIX"
[engine]
metrics_port = PORT
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A job that answers, and the configuration of it in this folder."""
    world = World(tmp_path, monkeypatch)
    endpoint = Endpoint(world.watch, "127.0.0.1", 0)
    monkeypatch.chdir(tmp_path)
    write(world.settings.topics.prefix, endpoint.address.rpartition(":")[2])
    world.sample()
    yield world
    endpoint.close()


def write(prefix: str, port: str) -> None:
    Path("lacuna.toml").write_text(CONFIG.replace("PREFIX", prefix).replace("PORT", port))


def test_a_screen_and_an_exit_code_for_each_state(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 1
    assert "STARTING" in capsys.readouterr().out
    world.batch(4182, publish=0)
    world.end("publish", 40)
    world.sample()
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "HEALTHY" in shown and "Kafka up" in shown and "4,182" in shown and "40 (0 s)" in shown
    world.ends = None
    world.sample()
    assert main(["status"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "DEGRADED" in shown and "Kafka DOWN" in shown and "does not answer since" in shown


def test_json_is_what_the_job_says(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.batch(0, publish=0)
    assert main(["status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["state"] == "healthy" and status["queries"].keys() == {"router", "archive"}


def held(_: ControlLog) -> Prefix:
    return Prefix(Claim(None, "ann@host, process 7", "here"), 1, 1_700_000_000_000_000)


def away(_: ControlLog) -> Prefix:
    raise Unreachable("localhost:9092", 3)


@pytest.mark.parametrize(
    ("read", "said"),
    [(held, "is held by ann@host, process 7"), (lambda _: Prefix(), "no router has run"), (away, "no Kafka answered")],
)
def test_a_job_that_does_not_answer_is_down(
    read: object, said: str, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ControlLog, "read", read)
    assert main(["status", "--url", "http://127.0.0.1:1"]) == 2
    shown = " ".join(capsys.readouterr().out.split())
    assert "DOWN" in shown and "no job answers at http://127.0.0.1:1" in shown and "Remedy: start it" in shown
    assert said in shown


def test_the_job_of_another_system_is_not_taken_for_this_one(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ControlLog, "read", lambda _: Prefix())
    write("other", Path("lacuna.toml").read_text().split()[-1])
    assert main(["status", "--json"]) == 2
    assert "not 'other'" in json.loads(capsys.readouterr().out)["reasons"][0]


def test_only_addresses_of_the_web_are_asked(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--url", "file:///etc"]) == 2
    assert "--url = 'file:///etc': it is the address of a job. Remedy" in capsys.readouterr().err
