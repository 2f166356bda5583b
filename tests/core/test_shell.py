"""The streaming shell without Spark: any batches, any order of rows, any crashes, the same result."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import parse
from state.errors import InvariantError, StateError
from state.protocol.messages import LOCAL
from state.protocol.wire import write_letter
from state.routing.link import Link
from state.routing.overlay import EPOCH, Network
from state.storage.codec import encode
from state.storage.rows import TABLES
from state.strategies import negative_approx
from streaming import advance as stage
from streaming.schemas import SCHEMAS
from streaming.settings import group_parts
from tests.core.histories import config_text, configs, events, points
from tests.core.oracle import Oracle
from tests.core.shell import Shell
from tests.core.test_overlay import Diary, message_of

LINE = parse(config_text([("b0", "b1"), ("b1", "b2")], '"auto"'))


def subscribe(broker: str, id: str, **more: Any) -> dict[str, Any]:
    return {"kind": "subscribe", "broker": broker, "client": "ann", "id": id, "where": {}, **more}


def publish(broker: str, id: str) -> dict[str, Any]:
    return {"kind": "publish", "broker": broker, "id": id, "at": {"x": 1, "y": 1, "colour": "red"}}


@settings(max_examples=50)
@given(st.data())
def test_one_event_at_a_time_is_the_simulator(data: st.DataObject) -> None:
    """Run until quiet after each event: same deliveries as the oracle, same state of every group as the simulator."""
    config = data.draw(configs())
    shell, network, oracle = Shell(config, epoch=EPOCH), Network(config, Diary()), Oracle({"colour"})
    expected = []
    for event in data.draw(events(config.overlay.brokers, most=20)):
        shell.send(event)
        place = len(shell.topics[shell.settings.topic(event["kind"])]) - 1
        place += (1 << 62) * (event["kind"] == "unsubscribe")
        network.feed(event["broker"], message_of(config, event, place, shell.clock), shell.clock, 0)
        network.settle(shell.clock)
        shell.settle()
        expected += oracle.take(event)
    assert sorted(shell.deliveries()) == sorted(expected)
    for name in shell.group_names():
        broker, link = group_parts(name)
        ours, theirs = shell.memory(name).state, network.groups[broker][link]
        ours.check()
        assert encode(ours) == encode(theirs)


@settings(max_examples=50)
@given(st.data())
def test_crashes_and_orders_leave_no_trace(data: st.DataObject) -> None:
    """The same batches with repeats, rows shuffled and channels split over chunks: tables and states are identical."""
    config = data.draw(configs())
    history = data.draw(events(config.overlay.brokers, most=25))
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    seed = data.draw(st.integers(0, 1000))
    calm, stormy = Shell(config), Shell(config)
    for event in history:
        calm.send(event)
        stormy.send(event)
    chance = random.Random(seed)
    step = 0
    while calm.waiting():
        most = sizes[step % len(sizes)]
        stage.HELD.clear()
        calm.run_batch(most=most)
        step += 1
    stage.HELD.clear()
    while stormy.waiting():
        stormy.run_batch(crashes=chance.choice([0, 0, 1, 2]), shuffle=chance)
    assert sorted(quiet_deliveries(config, calm)) == sorted(quiet_deliveries(config, stormy))
    for name in stormy.group_names():
        stormy.memory(name).state.check()


@settings(max_examples=15)
@given(st.data())
def test_what_links_learn_and_prune_survives_crashes(data: st.DataObject) -> None:
    """Batches repeated after a crash, workers with and without held groups: the same state, the same pruned table."""
    table = '{name = "union", prune = "network", prunings = 5}'
    config = parse(config_text([("b0", "b1"), ("b1", "b2")], table))
    calm, stormy = Shell(config), Shell(config)
    chance = random.Random(data.draw(st.integers(0, 99)))
    for step, event in enumerate(data.draw(events(config.overlay.brokers, most=12))):
        shots = [publish("b2", f"p{step}-{k}") for k in range(chance.choice([1, 40, 90]))]
        for shell in (calm, stormy):
            for one in (event, *shots):
                shell.send(one)
        calm.settle()
        if chance.random() < 0.5:
            stage.HELD.clear()
        while stormy.waiting():
            stormy.run_batch(crashes=chance.choice([0, 1, 2]))
    stage.HELD.clear()
    for name in calm.group_names():
        one, other = calm.memory(name).state, stormy.memory(name).state
        assert encode(one) == encode(other)
        if isinstance(one, Link) and isinstance(other, Link):
            assert [one.pruned.tree(n) for n in one.heard] == [other.pruned.tree(n) for n in other.heard]
    assert without_clock(calm.tables()["routes"]) == without_clock(stormy.tables()["routes"])


def quiet_deliveries(config: Any, shell: Shell) -> list[Any]:
    """Publications sent after everything is quiet reach exactly whom they match."""
    before = len(shell.deliveries())
    for k, broker in enumerate(config.overlay.brokers):
        shell.send(publish(broker, f"late{k}"))
    shell.settle()
    return shell.deliveries()[before:]


@settings(max_examples=40)
@given(st.data())
def test_same_batches_same_bytes(data: st.DataObject) -> None:
    """Repeating batches after a crash changes no row of any table, no delivery and no byte of any state."""
    config = data.draw(configs())
    history = data.draw(events(config.overlay.brokers, most=25))
    cuts = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    chance = random.Random(data.draw(st.integers(0, 99)))
    calm, stormy = Shell(config), Shell(config)
    waiting = list(history)
    for cut in [*cuts, len(history)]:
        chunk, waiting = waiting[:cut], waiting[cut:]
        for event in chunk:
            calm.send(event)
            stormy.send(event)
        stage.HELD.clear()
        calm.run_batch()
        stage.HELD.clear()
        stormy.run_batch(crashes=chance.choice([0, 1, 2]), shuffle=chance)
        stormy.clock = calm.clock
    ours, theirs = calm.tables(), stormy.tables()
    for table in TABLES:
        assert without_clock(ours[table]) == without_clock(theirs[table]), table
    assert sorted(calm.deliveries()) == sorted(stormy.deliveries())


def without_clock(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr({k: v for k, v in row.items() if k not in ("millis", "state_bytes", "batch")}) for row in rows)


def test_rows_fit_their_tables() -> None:
    shell = Shell(LINE)
    for event in (subscribe("b0", "s1"), subscribe("b0", "s2", where={"x": [1, 2]}), publish("b2", "p1")):
        shell.send(event)
        shell.settle()
    shell.put("publish", b"b0", b"{")
    shell.put("publish", None, b"{}")
    shell.settle()
    tables = shell.tables()
    assert set(tables) == set(TABLES)
    assert [row["rule"] for row in tables["rejects"]] == ["json", "broker"]
    assert [(r["subscription"], r["publication"]) for r in tables["deliveries"]] == [("s1", "p1"), ("s2", "p1")]
    assert {r["action"] for r in tables["decisions"]} == {"forward", "withhold"}
    for table, rows in tables.items():
        assert list(rows[0]) == SCHEMAS[table].names


def test_expiry_needs_only_a_tick() -> None:
    shell = Shell(LINE)
    shell.send(subscribe("b0", "s1", ttl=10))
    shell.settle()
    shell.clock += 11_000_000
    shell.put("links", b"tick", b"")
    shell.settle()
    assert [r["action"] for r in shell.tables()["decisions"]] == ["forward", "forward", "cancel", "cancel"]
    assert len(shell.memory("b2>b1").state.heard) == 0


def test_a_tick_that_ends_nothing_writes_nothing() -> None:
    shell = Shell(LINE)
    shell.send(subscribe("b0", "s1"))
    shell.settle()
    before = {topic: len(records) for topic, records in shell.topics.items()}
    blobs = dict(shell.blobs)
    shell.put("links", b"tick", b"")
    shell.settle()
    before[shell.settings.topic("links")] += 1
    assert {topic: len(records) for topic, records in shell.topics.items()} == before
    assert shell.blobs == blobs


APPROXIMATE = parse(config_text([("b0", "b1")], '{name = "negative-approx", k = 0, drift = 0}'))


def test_a_rebuild_is_asked_for_by_a_record_and_done_in_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small ones come first and no split is allowed; anew, from the largest, the whole domain is covered."""
    monkeypatch.setattr(negative_approx, "STEP", 1)
    monkeypatch.setattr(stage, "IDLE_PARTS", 2)
    shell = Shell(APPROXIMATE)
    for id, where in (("s1", {"x": [2, 3], "y": [2, 3]}), ("s2", {"x": [4, 5], "y": [4, 5]}), ("s3", {})):
        shell.send(subscribe("b0", id, where=where))
    shell.settle()
    shell.put("links", b"rebuild", b"")
    shell.settle()
    shell.send(subscribe("b0", "s4", where={"x": [1, 1]}))
    for finished in (False, True):  # one part in the batch that also brings s4, two in the one that brings nothing
        shell.put("links", b"tick", b"")
        stage.HELD.clear()
        shell.run_batch(crashes=1)
        rebuilds = [row["rebuilds"] for row in shell.tables()["metrics"] if row["broker"] == "b0"]
        assert any(rebuilds) == finished
    metrics = shell.tables()["metrics"][-1]
    assert (metrics["broker"], metrics["link"], metrics["rebuilds"]) == ("b0", "b1", 1)
    assert (metrics["negative_rectangles"], metrics["negative_share"]) == (0, 0.0)
    shell.memory("b0>b1").state.check()
    before = dict(shell.blobs)
    shell.put("links", b"tick", b"")
    shell.run_batch()
    assert shell.blobs == before, "there is nothing more to do"


def test_a_wish_for_a_rebuild_leaves_others_alone() -> None:
    shell = Shell(LINE)
    shell.send(subscribe("b0", "s1"))
    shell.settle()
    blobs = dict(shell.blobs)
    shell.put("links", b"rebuild", b"")
    shell.settle()
    assert shell.blobs == blobs


def test_a_gap_on_a_link_stops() -> None:
    shell = Shell(LINE)
    shell.put("links", b"b0>b1", write_letter(shell.settings.epoch, 2, []))
    shell.run_batch()
    shell.send(publish("b0", "p"))
    message = shell.settings
    letter = write_letter(message.epoch, 5, [stage.pack_message(message_of(LINE, publish("b0", "p"), 0))])
    shell.put("links", b"b0>b1", letter)
    with pytest.raises(InvariantError, match="jumps from message 0 to 5"):
        shell.settle()


def test_letters_of_an_earlier_life_are_ignored() -> None:
    shell = Shell(LINE, epoch=7)
    old = write_letter(6, 1, [stage.pack_message(message_of(LINE, publish("b0", "p"), 0))])
    shell.put("links", b"b0>b1", old)
    shell.settle()
    assert shell.blobs == {}


def test_damaged_state_stops() -> None:
    shell = Shell(LINE)
    shell.send(subscribe("b0", "s1"))
    shell.settle()
    shell.blobs["b0>b1"] = shell.blobs["b0>b1"][:-3]
    stage.HELD.clear()
    shell.send(subscribe("b0", "s2"))
    with pytest.raises(StateError, match=r"damaged.*Remedy"):
        shell.settle()


def test_unknown_key_on_links_is_a_reject() -> None:
    shell = Shell(LINE)
    shell.put("links", b"nobody>b1", b"x")
    shell.settle()
    assert [row["rule"] for row in shell.tables()["rejects"]] == ["broker"]


def test_groups_are_what_routing_says() -> None:
    assert sorted(Shell(LINE).settings.groups("b1")) == ["b1>b0", "b1>b2", f"b1>{LOCAL}"]


@settings(max_examples=20)
@given(st.lists(points(), min_size=1, max_size=5))
def test_publications_keep_their_values(shots: list[dict[str, Any]]) -> None:
    shell = Shell(LINE)
    shell.send(subscribe("b0", "s1"))
    shell.settle()
    for k, at in enumerate(shots):
        shell.send({"kind": "publish", "broker": "b2", "id": f"p{k}", "at": at, "payload": {"k": [k, None]}})
    shell.settle()
    got = [json.loads(value) for _, _, value in shell.topics[shell.settings.topic("deliveries")]]
    assert [(d["at"], d["payload"]) for d in got] == [(at, {"k": [k, None]}) for k, at in enumerate(shots)]


def test_long_rows_travel_in_more_records_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka limits the size of a record: long rows are cut into more sheaves, down to one row each."""
    sheaves = []
    for most in (stage.MOST_SHEAF, 1):
        stage.HELD.clear()
        monkeypatch.setattr(stage, "MOST_SHEAF", most)
        shell = Shell(LINE)
        for k in range(40):
            shell.send(subscribe("b0", f"{k}-" + "".join(random.Random(k).choices("abcdefgh", k=200))))
        shell.settle()
        sheaves.append((len(shell.topics[shell.settings.topic("records")]), shell.tables()["decisions"]))
    assert sheaves[0][0] + 39 <= sheaves[1][0]
    assert sheaves[0][1] == sheaves[1][1]
    assert len(sheaves[0][1]) >= 40
