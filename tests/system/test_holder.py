"""Who holds a prefix, and how a life begins, on a real Kafka and without Spark: two at once, the dead, the killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from access.control import ControlLog
from access.offsets import trim
from producers.sender import Sender
from state.config import Config
from state.errors import StateError
from state.protocol.commands import Apply
from state.protocol.frame import Frame, Rows, read, rows_of
from streaming import begin as module
from streaming.apply import apply, plan
from streaming.begin import Begun, begin
from streaming.holder import Holder, PrefixHeld
from streaming.life import Folder
from streaming.pipeline import Engine
from tests.system.live import read_topic, wait_until

pytestmark = pytest.mark.system


def silent(_text: str) -> None:
    """Tell nobody."""


def at(config: Config, folder: Path) -> Config:
    """The same system, started in another directory."""
    return replace(config, lake=replace(config.lake, path=str(folder / "lake"), checkpoint=str(folder / "checkpoint")))


def start(config: Config) -> Begun:
    return begin(config, Engine(), silent, archive=False)


def held(begun: Begun) -> Holder:
    assert begun.holder is not None
    return begun.holder


def subscribe(config: Config, count: int) -> None:
    with Sender(config) as sender:
        for k in range(count):
            sender.send("subscribe", "oslo", {"id": f"s{k}", "client": "ann", "where": {"price": [k, k + 10]}})


def epochs(config: Config) -> list[int]:
    with ControlLog(config.kafka.bootstrap, config.kafka.prefix) as control:
        return [life.epoch for life in control.read().lives.announced]


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a holder fails."""

    def fail(_seconds: float) -> None:
        raise AssertionError("it waited for a holder")

    monkeypatch.setattr("streaming.holder.pause", fail)


@pytest.mark.usefixtures("no_waiting")
def test_a_fresh_prefix_waits_for_nobody(config: Config, tmp_path: Path) -> None:
    begun = start(at(config, tmp_path))
    assert (begun.settings.epoch, begun.settings.seeded, epochs(config)) == (1, False, [1])
    held(begun).release(1, -1, {"publish": {"0": 3}})
    again = start(at(config, tmp_path))
    assert again.settings == begun.settings and epochs(config) == [1]
    held(again).close()


@pytest.mark.usefixtures("no_waiting")
def test_the_dead_are_succeeded_at_once_on_their_checkpoint(config: Config, tmp_path: Path) -> None:
    first = held(start(at(config, tmp_path)))
    first.close()  # as a kill: the lock is gone, the claim is not released
    second = held(start(at(config, tmp_path)))
    assert second.term is not None and first.term is not None and second.term > first.term
    with pytest.raises(PrefixHeld, match=r"holds it since 20.* UTC: .*, process \d+, with the checkpoint .*Remedy"):
        first.beat(1, 5, {})
    second.beat(1, 5, {})
    second.close()


def test_the_living_are_not_succeeded_from_elsewhere(config: Config, tmp_path: Path) -> None:
    first = held(start(at(config, tmp_path / "one")))
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(0.2):
            first.beat(1, -1, {})

    ticking = threading.Thread(target=tick)
    ticking.start()
    try:
        with pytest.raises(PrefixHeld, match=r"Nothing was touched\. Remedy: stop that one first"):
            start(at(config, tmp_path / "two"))
    finally:
        ended.set()
        ticking.join()
        first.close()
    assert Folder(str(tmp_path / "two" / "checkpoint")).epochs() == [] and not (tmp_path / "two" / "lake").exists()


def test_the_dead_are_succeeded_from_elsewhere_after_a_while(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder is gone, and so is its folder: the start that follows waits, and then says what is missing."""
    held(start(at(config, tmp_path / "one"))).close()
    monkeypatch.setattr(module, "Holder", lambda config, say: Holder(config, say, patience=1.0))
    with pytest.raises(StateError, match=r"the router's checkpoint is not here.*Remedy: .*lacuna apply --from topics"):
        start(at(config, tmp_path / "two"))


def test_of_two_at_once_one_wins(config: Config, tmp_path: Path) -> None:
    both = [Holder(at(config, tmp_path / name), silent) for name in ("one", "two")]
    for holder in both:
        holder.watch()
    both[1].claim()
    with pytest.raises(PrefixHeld):
        both[0].claim()
    both[1].beat(1, 0, {})
    for holder in both:
        holder.close()


class Killed(Exception):
    """The process dies here."""


def dies(*_: Any, **__: Any) -> Any:
    raise Killed


STEPS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "before the folder": lambda patch: patch.setattr(Folder, "write", dies),
    "before the announcement": lambda patch: patch.setattr(Holder, "announce", dies),
    "before the prologue": lambda patch: patch.setattr(module, "send_prologue", dies),
    "in the prologue": lambda patch: patch.setattr(Folder, "note_sent", dies),
}


@pytest.mark.parametrize("how", ["run", "apply"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, how: str
) -> None:
    """Begun again, the life has the same subscriptions, and the rows of its prologue once."""
    here = at(config, tmp_path)
    if how == "apply":
        held(start(here)).release(1, -1, {})
    subscribe(config, 3)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        STEPS[step](patch)
        apply(here, Engine(), silent, Apply("topics")) if how == "apply" else start(here)
    announced = epochs(config)
    if how == "apply" and len(announced) == 1:
        apply(here, Engine(), silent, Apply("topics"))
    begun = start(here)
    held(begun).close()
    assert epochs(config)[-1] == begun.settings.epoch and len(epochs(config)) == (2 if how == "apply" else 1)
    assert begun.settings.seeded and begun.settings.starts["subscribe"] == {"0": 3}
    assert Folder(here.lake.checkpoint).prologue(begun.settings.epoch) is None
    assert rows_of_prologue(config, begun.settings.epoch) == {(1, "subscriptions"), (2, "decisions"), (3, "metrics")}


def rows_of_prologue(config: Config, epoch: int) -> set[tuple[int, str]]:
    """The frames of a life that a reader would take: numbers and tables, repeats dropped."""
    found: dict[int, bytes] = {}
    for record in read_topic(config.kafka.bootstrap, f"{config.kafka.prefix}.records"):
        frame = read(record.value)
        assert isinstance(frame, Frame)
        if frame.content.epoch == epoch:
            assert found.setdefault(frame.content.number, record.value) == record.value, "byte for byte the same"
    frames = {number: read(value) for number, value in found.items()}
    parts = {number: rows_of(frame) for number, frame in frames.items() if isinstance(frame, Frame)}
    return {(number, rows.table) for number, rows in parts.items() if isinstance(rows, Rows)}


def test_requests_whose_beginning_is_gone_are_refused_without_force(config: Config, tmp_path: Path) -> None:
    here = at(config, tmp_path)
    held(start(here)).release(1, -1, {})
    subscribe(config, 3)
    trim(config.kafka.bootstrap, {(f"{config.kafka.prefix}.subscribe", 0): 2})
    with pytest.raises(StateError, match=r"subscribe, partition 0, begins at 2: .*Remedy: .*--force"):
        apply(here, Engine(), silent, Apply("topics"))
    assert plan(here, Engine(), Apply("topics"), silent).epoch == 2 and epochs(config) == [1]
    assert apply(here, Engine(), silent, Apply("topics", force=True)).epoch == 2
    assert epochs(config) == [1, 2]


def test_unsubscribe_events_after_the_first_publication_are_left_to_the_router(config: Config, tmp_path: Path) -> None:
    """So a publication between subscribe and unsubscribe is delivered, although all three wait for the first start."""
    subscribe(config, 2)
    with Sender(config) as sender:
        sender.send("unsubscribe", "oslo", {"id": "s0", "client": "ann"})
        sender.send("publish", "oslo", {"id": "p", "at": {"price": 1.0, "volume": 1, "symbol": "IBM"}})
    first = read_topic(config.kafka.bootstrap, f"{config.kafka.prefix}.publish")[0].time
    wait_until(lambda: _later_unsubscribe(config, first), "an unsubscribe event is later than the publication")
    begun = start(at(config, tmp_path))
    held(begun).close()
    starts = begun.settings.starts
    times = [record.time for record in read_topic(config.kafka.bootstrap, f"{config.kafka.prefix}.unsubscribe")]
    assert starts["unsubscribe"] == {"0": sum(moment <= first for moment in times)}
    assert starts["subscribe"] == {"0": 2} and starts["publish"] == {"0": -2}


def _later_unsubscribe(config: Config, moment: int) -> bool:
    with Sender(config) as sender:
        sender.send("unsubscribe", "oslo", {"id": "s1", "client": "ann"})
    return read_topic(config.kafka.bootstrap, f"{config.kafka.prefix}.unsubscribe")[-1].time > moment


def test_a_checkpoint_of_the_version_before_lives_is_announced(config: Config, tmp_path: Path) -> None:
    here = at(config, tmp_path)
    begun = start(here)
    held(begun).release(1, -1, {})
    folder = Path(begun.settings.folder)
    old = json.loads((folder / "life.json").read_text())
    kept = {key: value for key, value in old.items() if key not in ("why", "earlier", "starts", "seeded")}
    other = replace(here, kafka=replace(here.kafka, prefix=f"{here.kafka.prefix}old"))
    kept |= {"format": 2, "epoch": 1_763_000_000_000_000, "topics": {}}
    kept["identity"]["prefix"] = other.kafka.prefix
    there = tmp_path / "old" / "checkpoint"
    there.mkdir(parents=True)
    (there / "lacuna.json").write_text(json.dumps(kept))
    moved = start(at(other, tmp_path / "old"))
    held(moved).close()
    assert moved.settings.epoch == 1_763_000_000_000_000 and moved.settings.folder == str(there)
    assert epochs(other) == [1_763_000_000_000_000]
