"""The streaming shell without Spark: any batches, any order of rows, any crashes, any cut, the same result."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lacuna.simulate import simulate
from state.config import Config, parse
from state.errors import InvariantError, StateError
from state.protocol.arrivals import merge
from state.protocol.channel import Sender
from state.protocol.commands import COMMAND, Prune, Rebuild, write_command
from state.protocol.events import Refused
from state.protocol.frame import START, Frame, bodies_of_letters, read
from state.protocol.messages import LOCAL, Publish
from state.protocol.wire import pack
from state.routing import region as machine
from state.space import timestamp_text
from state.storage.tables import REGION, TABLES, made_columns
from state.strategies import negative_approx
from streaming import shim, sources
from streaming import step as stage
from streaming.schemas import MOST_ARROW, read_parcel
from streaming.settings import Spread, settle
from streaming.sources import COLUMNS, Sorter, sort_records
from streaming.step import Step
from tests.core.histories import config_text, configs, events, points
from tests.core.oracle import Oracle, matches
from tests.core.overlay import spread_out
from tests.core.shell import Record, Shell, forget, some_cut

LINE = parse(config_text([("b0", "b1"), ("b1", "b2")], '"auto"'))


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    spread_out(monkeypatch)


def subscribe(broker: str, id: str, **more: Any) -> dict[str, Any]:
    return {"kind": "subscribe", "broker": broker, "client": "ann", "id": id, "where": {}, **more}


def unsubscribe(broker: str, id: str, **more: Any) -> dict[str, Any]:
    return {"kind": "unsubscribe", "broker": broker, "client": "ann", "id": id, **more}


def publish(broker: str, id: str) -> dict[str, Any]:
    return {"kind": "publish", "broker": broker, "id": id, "at": {"x": 1, "y": 1, "colour": "red"}}


def expected(history: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    oracle = Oracle({"colour"})
    return sorted(delivery for event in history for delivery in oracle.take(event))


# deliveries


@settings(max_examples=50)
@given(st.data())
def test_one_event_at_a_time_is_what_the_oracle_says_in_every_cut(data: st.DataObject) -> None:
    """Run until quiet after each event: whatever way the overlay is cut, the deliveries are those of brute force."""
    config = data.draw(configs())
    shell = Shell(config, regions=some_cut(config, data.draw(st.randoms(use_true_random=False))))
    history = data.draw(events(config.overlay.brokers, most=20))
    for event in history:
        shell.send(event)
        shell.settle()
    assert sorted(shell.deliveries()) == expected(history)
    shell.check()


@settings(max_examples=30)
@given(st.data())
def test_batches_that_mix_requests_and_publications_are_what_the_oracle_says(data: st.DataObject) -> None:
    """In one region a request is in force at once: any batches, and brute force agrees with every single delivery."""
    config = data.draw(configs())
    shell = Shell(config, regions=1)
    history = data.draw(events(config.overlay.brokers, most=40))
    for event in history:
        shell.send(event)
        if data.draw(st.integers(0, 3)) == 0:
            shell.run_batch()
    shell.settle()
    assert sorted(shell.deliveries()) == expected(history)
    shell.check()


@settings(max_examples=15)
@given(st.data())
def test_mixed_batches_across_regions_lose_nothing_and_invent_nothing(data: st.DataObject) -> None:
    """Brute force for any cut and any batches, crashes among them.

    A subscription that stands before and is let alone gets every publication that it matches; one that is changed while
    publications are under way may get those that any of its shapes matches; inside a region every delivery is exact.
    Nobody gets anything twice.
    """
    config = data.draw(configs())
    chance = random.Random(data.draw(st.integers(0, 999)))
    shell = Shell(config, regions=some_cut(config, chance))
    oracle, history = Oracle({"colour"}), data.draw(events(config.overlay.brokers, most=30))
    begin = len(history) // 2
    for event in history[:begin]:
        shell.send(event)
        oracle.take(event)
    shell.settle()
    before, later = len(shell.deliveries()), history[begin:]
    changed = {(e["broker"], e["client"], e["id"]) for e in later if e["kind"] != "publish"}
    shapes = [(name, where) for name, where in oracle.standing.items()]
    shapes += [((e["broker"], e["client"], e["id"]), e["where"]) for e in later if e["kind"] == "subscribe"]
    region_of = shell.settings.part_of
    must: set[tuple[str, ...]] = set()
    may: set[tuple[str, ...]] = set()
    for event in later:
        exact, local = set(oracle.take(event)), region_of[event["broker"]]
        must |= {d for d in exact if d[:3] not in changed or region_of[d[0]] is local}
        shell.send(event)
        if event["kind"] == "publish":
            possible = {(*name, event["id"]) for name, where in shapes if matches(where, event["at"], {"colour"})}
            may |= {d for d in possible if region_of[d[0]] is not local} | exact
        if chance.random() < 0.4:
            shell.run_batch(crashes=chance.choice([0, 0, 1]), shuffle=chance)
    shell.settle()
    got = Counter(shell.deliveries()[before:])
    assert must <= got.keys() <= may
    assert max(got.values(), default=1) == 1
    shell.check()


@settings(max_examples=20)
@given(st.data())
def test_any_cut_of_a_sequence_into_batches_gives_the_same_rows(data: st.DataObject) -> None:
    """In one region: what is decided, routed, delivered and rejected does not depend on where batches end."""
    config = data.draw(configs())
    history = data.draw(events(config.overlay.brokers, most=30))
    ends = data.draw(st.lists(st.integers(1, 8), min_size=1))
    once, often = Shell(config, regions=1), Shell(config, regions=1)
    for number, event in enumerate(history):
        for shell in (once, often):
            shell.send(event | ({"ttl": 0.004} if event["kind"] == "subscribe" and number % 5 == 0 else {}))
        if number % ends[number % len(ends)] == 0:
            often.run_batch()
    once.settle()
    often.settle()
    for table in ("decisions", "routes", "deliveries", "rejects"):
        assert in_order(once.tables()[table]) == in_order(often.tables()[table]), table


@settings(max_examples=30)
@given(st.data())
def test_one_region_is_the_simulator(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """The same events at the same moments: the same rows in the same order, whatever the batches."""
    config = data.draw(configs())
    shell, lines = Shell(config, regions=1), []
    for number, event in enumerate(data.draw(events(config.overlay.brokers, most=30))):
        short = {"ttl": 0.004} if event["kind"] == "subscribe" and number % 5 == 0 else {}
        timed = event | short | {"time": timestamp_text(shell.clock + 1000)}
        lines.append(json.dumps(timed).encode())
        shell.send(timed)
        if data.draw(st.booleans()):
            shell.run_batch()
    shell.finish()
    out = tmp_path_factory.mktemp("simulated")
    simulate(config, iter(lines), out=out)
    tables = shell.tables()
    for table in ("subscriptions", "publications", "decisions", "routes", "deliveries"):
        written = [json.loads(line) for line in (out / f"{table}.jsonl").read_text().splitlines()]
        assert in_order(map(plain, tables[table])) == in_order(written), table


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the simulator writes it."""
    texts = {name: None if row[name] is None else json.loads(row[name]) for name in ("witness", "shape") if name in row}
    moments = {name: moment for name, moment in row.items() if isinstance(moment, datetime)}
    return (
        row | texts | {name: timestamp_text(round(moment.timestamp() * 1_000_000)) for name, moment in moments.items()}
    )


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    places = ("epoch", "batch", "seq", "written", "publication_key")
    return [{k: v for k, v in row.items() if k not in places} for row in rows]


@settings(max_examples=25)
@given(st.data())
def test_crashes_and_orders_leave_no_trace(data: st.DataObject) -> None:
    """Other batches, repeats, rows shuffled, channels split over chunks, other cuts: the same quiet deliveries."""
    config = data.draw(configs())
    history = data.draw(events(config.overlay.brokers, most=25))
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    chance = random.Random(data.draw(st.integers(0, 1000)))
    calm, stormy = (Shell(config, regions=some_cut(config, chance)) for _ in range(2))
    for event in history:
        calm.send(event)
        stormy.send(event)
    step = 0
    while calm.waiting():
        calm.run_batch(most=sizes[step % len(sizes)])
        step += 1
    forget()
    while stormy.waiting():
        stormy.run_batch(crashes=chance.choice([0, 0, 1, 2]), shuffle=chance)
    assert sorted(quiet_deliveries(config, calm)) == sorted(quiet_deliveries(config, stormy))
    calm.check()
    stormy.check()


@settings(max_examples=15)
@given(st.data())
def test_what_links_learn_and_prune_survives_crashes(data: st.DataObject) -> None:
    """Batches repeated after a crash, workers with and without held regions: the same state, the same pruned table."""
    table = '{name = "union", prune = "network", prunings = 5}'
    config = parse(config_text([("b0", "b1"), ("b1", "b2")], table))
    chance = random.Random(data.draw(st.integers(0, 99)))
    regions = some_cut(config, chance)
    calm, stormy = Shell(config, regions=regions), Shell(config, regions=regions)
    for step, event in enumerate(data.draw(events(config.overlay.brokers, most=12))):
        shots = [publish("b2", f"p{step}-{k}") for k in range(chance.choice([1, 40, 90]))]
        for shell in (calm, stormy):
            for one in (event, *shots):
                shell.send(one)
        calm.settle()
        if chance.random() < 0.5:
            forget()
        while stormy.waiting():
            stormy.run_batch(crashes=chance.choice([0, 1, 2]))
    same_state(calm, stormy)
    assert without_clock(calm.tables()["routes"]) == without_clock(stormy.tables()["routes"])


def same_state(one: Shell, other: Shell) -> None:
    """Both are stored as the same: byte for byte what a fresh copy of either would be stored as."""
    assert one.stored.keys() == other.stored.keys()
    for name in one.stored:
        assert facts(one, name) == facts(other, name), name


def facts(shell: Shell, name: str) -> Any:
    """Everything that a stored region knows, whatever snapshots and logs it was stored as."""
    region = shell.region(name)
    region.check()
    ends = [*region.senders.values(), *region.receivers.values()]
    numbers = [(end.channel, end.number, end.checksum) for end in ends]
    links = [link for broker in region.brokers.values() for link in broker.links.values()]
    asked = [(link.setup, link.told.asks(), link.heard.asked(), link.sizes(), link.override) for link in links]
    learned = [[part.tolist() for part in link.heard.learned or ()] for link in links]
    brokers = [(b.version, b.ledger.standing, b.ledger.ended, list(b.clients)) for b in region.brokers.values()]
    return region.clock, region.delivered, region.records.number, numbers, learned, asked, brokers


def quiet_deliveries(config: Config, shell: Shell) -> list[Any]:
    """Publications sent after everything is quiet reach exactly whom they match."""
    before = len(shell.deliveries())
    for k, broker in enumerate(config.overlay.brokers):
        shell.send(publish(broker, f"late{k}"))
    shell.settle()
    return shell.deliveries()[before:]


@settings(max_examples=20)
@given(st.data())
def test_same_batches_same_bytes(data: st.DataObject) -> None:
    """Repeating batches after a crash changes no letter, no row, no delivery and nothing that is stored."""
    config = data.draw(configs())
    history = data.draw(events(config.overlay.brokers, most=25))
    ends = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    chance = random.Random(data.draw(st.integers(0, 99)))
    regions = some_cut(config, chance)
    calm, stormy = Shell(config, regions=regions), Shell(config, regions=regions)
    waiting = list(history)
    for end in [*ends, len(history)]:
        chunk, waiting = waiting[:end], waiting[end:]
        for event in chunk:
            calm.send(event)
            stormy.send(event)
        calm.run_batch()
        forget()
        stormy.run_batch(crashes=chance.choice([0, 1, 2]), shuffle=chance)
    ours, theirs = calm.tables(), stormy.tables()
    for table in TABLES:
        assert without_clock(ours[table]) == without_clock(theirs[table]), table
    assert sorted(calm.deliveries()) == sorted(stormy.deliveries())
    assert {r.value for r in calm.topic("links")} == {r.value for r in stormy.topic("links")}
    same_state(calm, stormy)


@settings(max_examples=20)
@given(st.data())
def test_a_repeated_batch_writes_the_same_records(data: st.DataObject) -> None:
    """Numbers alone would hide two different records under one number; so records are compared byte by byte."""
    config = data.draw(configs())
    shell, chance = Shell(config), random.Random(data.draw(st.integers(0, 99)))
    for event in data.draw(events(config.overlay.brokers, most=20)):
        shell.send(event)
        if chance.random() < 0.4:
            shell.run_batch(crashes=chance.choice([1, 2]), shuffle=chance)
    shell.settle(crashes=1)
    for topic in ("links", "records"):
        frames = [read(record.value) for record in shell.topic(topic)]
        numbered = {(f.content.channel, f.content.number, f.checksum) for f in frames if isinstance(f, Frame)}
        assert len(numbered) == len({(channel, number) for channel, number, _ in numbered})


def without_clock(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr({k: v for k, v in row.items() if k not in ("millis", "state_bytes")}) for row in rows)


def test_inside_a_region_a_path_takes_one_batch_and_outside_one_per_border() -> None:
    chain = parse(config_text([(f"b{k}", f"b{k + 1}") for k in range(4)], '"auto"'))
    for regions, batches in ((1, 1), (2, 2), (None, 5)):
        shell = Shell(chain, regions=regions)
        shell.send(subscribe("b0", "s1"))
        shell.settle()
        before = shell.batch
        shell.send(publish("b4", "p"))
        shell.settle()
        assert shell.batch - before == batches
        [delivery] = shell.delivery_records()
        assert (delivery["hop"], delivery["entry"], delivery["publication_key"]) == (4, "b4", "0:0")
        assert (delivery["batch"], delivery["channel"]) == (shell.batch - 1, "b0")


def test_a_publication_does_not_see_what_a_later_letter_asks_for_in_the_same_batch() -> None:
    """One moment decides: before the letter as it was, from the letter on as it says. A letter goes first in a tie."""
    shell = Shell(LINE)
    for k, event in enumerate((subscribe("b0", "s"), unsubscribe("b0", "s"))):
        shell.send(event)
        shell.run_batch()
        [letter] = shell.topic("links")[shell.read[shell.settings.topics.links] :]
        for late in (-1, 0, 1):
            value = json.dumps({"id": f"{k} {late}", "at": {"x": 1, "y": 1, "colour": "red"}}).encode()
            shell.topic("publish").append(letter._replace(time=letter.time + late, key=b"b1", value=value))
        shell.clock += 10
        shell.settle()
    rows = [row for row in shell.tables()["routes"] if (row["broker"], row["link"]) == ("b1", "b0")]
    went = [(row["publication"], row["action"]) for row in rows]
    assert went == [
        *(("0 -1", "stop"), ("0 0", "forward"), ("0 1", "forward")),
        *(("1 -1", "forward"), ("1 0", "stop"), ("1 1", "stop")),
    ]
    assert [d[3] for d in shell.deliveries()] == ["0 0", "0 1"]


def test_letters_that_come_again_and_late_change_nothing() -> None:
    """The sink repeats letters after a crash: also those of long ago, and in between those that are new."""
    shell = Shell(LINE)
    for k in range(4):
        shell.send(subscribe("b0", f"s{k}", where={"x": [k, k]}))
        shell.settle()
    before = facts(shell, "b1"), shell.tables()["decisions"]
    letters = [record for record in shell.topic("links") if record.key == b"b0>b1"]
    assert len(letters) == 4
    for record in [*letters[1:], *letters]:
        shell.put("links", record.key, record.value)
    shell.settle()
    assert facts(shell, "b1")[1:] == before[0][1:] and shell.tables()["decisions"] == before[1]
    shell.send(subscribe("b0", "s9", where={"x": [7, 7]}))
    shell.settle()
    assert len(shell.tables()["decisions"]) == len(before[1]) + 2


# rows


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
        assert list(rows[0]) == [column.name for column in made_columns(table)]


def test_a_withheld_subscription_names_what_covers_it_and_its_cause() -> None:
    shell = Shell(LINE, regions=1)
    shell.send(subscribe("b0", "s1"))
    shell.send(subscribe("b0", "s2", where={"x": [1, 2]}, client="bob"))
    shell.settle()
    [row] = [row for row in shell.tables()["decisions"] if row["action"] == "withhold"]
    assert row["coverers"] == ["s1"]
    assert row["covered_by"] == [{"home": "b0", "client": "ann", "subscription": "s1"}]
    assert row["cause"] == {"home": "b0", "client": "bob", "subscription": "s2"}
    assert json.loads(row["shape"]) == [{"x": [1, 2]}]


def test_a_decision_names_where_its_subscription_came_from_and_when_its_client_spoke() -> None:
    """The home is where the client is, the origin the neighbour that told; the time is the client's, not Kafka's."""
    shell = Shell(parse(config_text([(f"b{k}", f"b{k + 1}") for k in range(3)], '"auto"')), regions=2)
    for k, event in enumerate((subscribe("b0", "s", ttl=1), unsubscribe("b0", "s"), subscribe("b0", "t", ttl=1))):
        shell.send(event | {"time": timestamp_text(10**9 + k)})
    shell.settle()
    shell.clock += 5_000_000
    tick(shell)
    shell.settle()
    expiry = shell.topic("subscribe")[1].time + 1_000_000
    rows = shell.tables()["decisions"]
    for broker, origin in (("b0", LOCAL), ("b1", "b0"), ("b2", "b1")):
        mine = [row for row in rows if row["broker"] == broker]
        assert [(row["action"], row["reason"]) for row in mine] == [
            *(("forward", "gap"), ("cancel", "unsubscribed")),
            *(("forward", "gap"), ("cancel", "expired")),
        ]
        assert {(row["home"], row["origin"]) for row in mine} == {("b0", origin)}
        times = [round(row["time"].timestamp() * 1_000_000) for row in mine]
        assert times == [10**9, 10**9 + 1, 10**9 + 2, expiry], broker
        assert [row["active"] for row in mine] == [1, 0, 1, 0] and {row["passive"] for row in mine} == {0}


def test_counters_wait_in_the_state_until_rows_are_due() -> None:
    """At a row every ten seconds the sums are those of a row in every batch, whatever process counts."""
    often, seldom = Shell(LINE, regions=1), Shell(LINE, regions=1, paced=True)
    for k in range(12):
        for shell in (often, seldom):
            shell.send(subscribe("b0", f"s{k}", where={"x": [k % 8, 7]}))
            shell.send(publish("b2", f"p{k}"))
            shell.clock += 3_000_000
            tick(shell)
            shell.settle()
            forget()
    tick(often)
    seldom.clock += 10_000_000
    tick(seldom)
    often.settle()
    seldom.settle()
    many, few = often.tables()["metrics"], seldom.tables()["metrics"]
    assert len(many) == 12 * 8 and len(few) == len(many) / 3
    counts = ("subscribes", "publications", "forward", "withhold", "messages", "forwarded", "delivered", "batches")
    for place in {(row["broker"], row["link"]) for row in many}:
        ours, theirs = ([r for r in rows if (r["broker"], r["link"]) == place] for rows in (few, many))
        assert [sum(r[c] for r in ours) for c in counts] == [sum(r[c] for r in theirs) for c in counts], place
        assert [ours[-1][size] for size in ("active", "heard")] == [theirs[-1][size] for size in ("active", "heard")]


def test_a_region_has_a_row_of_metrics_of_its_own() -> None:
    shell = Shell(LINE, regions=(("b1", "b0"), ("b2",)))
    shell.send(subscribe("b0", "s1"))
    shell.settle()
    rows = [row for row in shell.tables()["metrics"] if row["link"] == REGION]
    assert [(row["broker"], row["batch"]) for row in rows] == [("b1", 0), ("b2", 1)]
    assert all(row["forward"] == 0 for row in rows), "what is counted is counted by links"
    assert [row["millis"] for row in rows] == [None, None], "there was no batch before"
    shell.send(subscribe("b0", "s2"))
    shell.settle()
    sizes = {(row["broker"], row["link"]): row["state_bytes"] for row in shell.tables()["metrics"]}
    stored = {part.name: shell.open(part.name, shell.stored[part.name]).sizes for part in shell.settings.parts}
    assert sizes["b0", "b1"] == stored["b1"]["b0/b1"] > 0
    assert sizes["b1", REGION] > 0


def test_a_region_says_how_large_it_was_stored_and_how_long_its_last_batch_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are those of the batch before: a batch that is repeated must write the same rows."""
    moments = itertools.count(0, 0.25)
    monkeypatch.setattr(stage.wall, "perf_counter", lambda: next(moments))
    shell = Shell(LINE, regions=1)
    expected: list[Any] = [(0, None)]
    for k in range(3):
        shell.send(subscribe("b0", f"s{k}", where={"x": [k, k]}))
        forget()
        shell.settle()
        sizes = shell.open("b0", shell.stored["b0"]).sizes
        expected.append((sizes["head"] + sizes["log"], 250.0))
    rows = [row for row in shell.tables()["metrics"] if row["link"] == REGION]
    assert [(row["state_bytes"], row["millis"]) for row in rows] == expected[:-1]


def test_a_reject_belongs_to_the_region_of_its_broker_or_to_the_first() -> None:
    shell = Shell(LINE)
    for topic, key in (("publish", b"b2"), ("publish", b"nowhere"), ("links", b"b0>b1"), ("links", b"b2>b0")):
        shell.put(topic, key, b"x")
    shell.put("control", b"command/1", b"{}")
    shell.put("control", b"gossip", b"{}")
    shell.settle()
    numbers = Counter(record.key for record in shell.topic("records"))
    assert numbers == {b"b2": 1, b"b0": 1, b"b1": 1}, "a frame of rejects each; no link was touched"
    found = {(r["topic"].partition(".")[2], r["rule"]) for r in shell.tables()["rejects"]}
    assert found == {
        *(("publish", "json"), ("publish", "broker"), ("links", "foreign"), ("links", "broker")),
        *(("control", "type"), ("control", "foreign")),
    }


# time


def tick(shell: Shell) -> None:
    shell.put("control", b"tick", b"")


def test_a_command_for_the_holder_goes_to_no_region() -> None:
    shell = Shell(LINE)
    for value, regions in ((b'{"command": "rebuild"}', 3), (b'{"command": "apply", "source": "topics"}', 0)):
        sorter = Sorter(shell.settings, 0)
        sorter.add(shell.settings.topics.of("control"), 0, 0, 0, f"{COMMAND}1".encode(), value)
        assert len(list(sorter.rows())) == regions


def test_expiry_needs_only_a_tick() -> None:
    shell = Shell(LINE)
    shell.send(subscribe("b0", "s1", ttl=10))
    shell.settle()
    shell.clock += 11_000_000
    tick(shell)
    shell.settle()
    assert [r["action"] for r in shell.tables()["decisions"]] == ["forward", "forward", "cancel", "cancel"]
    assert len(shell.region("b2").brokers["b2"].links["b1"].heard) == 0


@pytest.mark.parametrize("regions", [1, None])
@pytest.mark.parametrize(("late", "delivered"), [(-1, True), (0, False), (1, False)])
def test_expiry_is_exactly_at_its_moment(regions: int | None, late: int, delivered: bool) -> None:
    """A publication one microsecond before the end is delivered, one at the end is not, in whichever batch it comes."""
    for together in (True, False):
        shell = Shell(LINE, regions=regions)
        shell.send(subscribe("b0", "s1", ttl=10))
        shell.send(subscribe("b0", "s2", ttl=100))
        if not together:
            shell.settle()
            forget()
        shell.clock += 10_000_000 - 2000 + late
        shell.send(publish("b0", "p"))
        shell.clock += 60_000_000
        shell.settle()
        assert [d[2] for d in shell.deliveries()] == ["s1", "s2"][not delivered :], together


def test_no_record_is_taken_later_than_its_batch_began() -> None:
    """A clock that is ahead must not end what stands."""
    shell = Shell(LINE, regions=1)
    shell.send(subscribe("b0", "s1", ttl=10))
    ahead = json.dumps({"id": "p0", "at": {"x": 1, "y": 1, "colour": "red"}}).encode()
    shell.topic("publish").append(shell.topic("subscribe")[0]._replace(time=10**15, value=ahead))
    shell.run_batch()
    shell.send(publish("b0", "p1"))
    shell.run_batch()
    assert [d[3] for d in shell.deliveries()] == ["p0", "p1"]
    assert shell.region("b0").clock < 10**7


def test_a_worker_holds_its_region_between_batches() -> None:
    shell = Shell(LINE, regions=1)
    for k in range(3):
        shell.send(subscribe("b0", f"s{k}"))
        shell.run_batch()
    assert stage.HELD.counts == {"new": 1, "hit": 2}


def test_a_tick_that_ends_nothing_writes_nothing_and_leaves_the_region_as_it_is_stored() -> None:
    shell = Shell(LINE)
    shell.send(subscribe("b0", "s1"))
    shell.settle()
    before, stored = {topic: len(records) for topic, records in shell.topics.items()}, dict(shell.stored)
    clock = shell.region("b0").clock
    assert clock == shell.topic("subscribe")[0].time
    tick(shell)
    shell.settle()
    before[shell.settings.topics.control] = 1
    assert {topic: len(records) for topic, records in shell.topics.items()} == before
    assert shell.stored == stored
    again = Step(shell.settings, "b0", shell.pieces("b0", shell.stored["b0"])[0], [], shell.batch)
    assert again._store.opened == "hit" and again._store.region.clock == clock


def test_a_tick_that_only_forgets_is_stored() -> None:
    """The end of a subscription is forgotten by an input like any other: it must not be missing in the log."""
    shell = Shell(replace(LINE, remember=5_000_000), regions=1)
    for event in (subscribe("b0", "s1"), unsubscribe("b0", "s1")):
        shell.send(event)
    shell.settle()
    rows = len(shell.topic("records"))
    assert len(shell.region("b0").brokers["b0"].ledger.ended) == 1
    shell.clock += 6_000_000
    tick(shell)
    shell.settle(crashes=1)
    assert len(shell.topic("records")) == rows, "nothing is decided, so nothing is recorded"
    assert not shell.region("b0").brokers["b0"].ledger.ended
    shell.send(subscribe("b0", "s2"))
    shell.settle()
    forget()
    shell.send(publish("b0", "p"))
    shell.settle()
    assert [d[2] for d in shell.deliveries()] == ["s2"]


# commands


APPROXIMATE = parse(config_text([("b0", "b1")], '{name = "negative-approx", k = 0, drift = 0}'))


@pytest.mark.parametrize("parts", [1, 100])
def test_a_rebuild_is_asked_for_by_a_record_and_done_in_ticks(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    """The small ones come first and no split is allowed; rebuilt from the largest, the whole domain is covered."""
    monkeypatch.setattr(negative_approx, "STEP", 1)
    monkeypatch.setattr(machine, "WORK_PER_TICK", parts)
    shell = Shell(APPROXIMATE)
    for id, where in (("s1", {"x": [2, 3], "y": [2, 3]}), ("s2", {"x": [4, 5], "y": [4, 5]}), ("s3", {})):
        shell.send(subscribe("b0", id, where=where))
    shell.settle()
    shell.put("control", b"command/1", write_command(Rebuild()))
    shell.settle()

    def rebuilds() -> int:
        return sum(row["rebuilds"] or 0 for row in shell.tables()["metrics"] if row["broker"] == "b0")

    ticks = 0
    while not rebuilds():
        tick(shell)
        forget()
        shell.run_batch(crashes=1)
        ticks += 1
    assert (ticks > 1) == (parts == 1)
    metrics = [row for row in shell.tables()["metrics"] if row["broker"] == "b0" and row["link"] == "b1"][-1]
    assert (metrics["negative_rectangles"], metrics["negative_share"], metrics["rebuilds"]) == (0, 0.0, 1)
    shell.check()
    before = dict(shell.stored)
    tick(shell)
    shell.run_batch()
    assert shell.stored == before, "there is nothing more to do"


def test_a_command_to_prune_is_kept_by_the_links_it_is_for() -> None:
    shell = Shell(parse(config_text([("b0", "b1"), ("b1", "b2")], '"union"')))
    shell.send(subscribe("b0", "s1", where="(x = 1 AND y = 3) OR (y = 2 AND x = 5)"))
    shell.settle()
    shell.put("control", b"command/1", write_command(Prune("network", 1, links=("b1>b0",))))
    shell.settle(crashes=1)
    forget()
    links = {(b, m): shell.region(b).brokers[b].links[m] for b, m in shell.settings.config.overlay.directions()}
    assert [direction for direction, link in links.items() if link.override is not None] == [("b1", "b0")]
    row = [row for row in shell.tables()["metrics"] if (row["broker"], row["link"]) == ("b1", "b0")][-1]
    assert row["prunings"] == 1


# damage


def letter(number: int, id: str, epoch: int = 7, previous: bytes = START) -> bytes:
    sender = Sender("b0>b1", epoch, number - 1, previous)
    body = next(bodies_of_letters([pack(Publish(id, (1, 1, 2)))]))
    return sender.frame("letter", body, 0)


def test_a_gap_on_a_link_stops() -> None:
    shell = Shell(LINE)
    shell.put("links", b"b0>b1", letter(5, "p"))
    shell.batch = 1
    with pytest.raises(InvariantError, match=r"b1 from b0, at b0>b1, partition 0, offset 0: .* from letter 0 to 5"):
        shell.settle()


def refused(shell: Shell) -> list[tuple[str, str]]:
    """The rejects: rule and message."""
    return [(row["rule"], row["message"]) for row in shell.tables()["rejects"]]


def test_a_fork_of_a_link_is_refused_at_its_first_new_number() -> None:
    shell = Shell(LINE)
    shell.batch = 1
    shell.put("links", b"b0>b1", letter(1, "p"))
    shell.settle()
    shell.put("links", b"b0>b1", letter(1, "other"))
    shell.put("links", b"b0>b1", letter(2, "q", previous=b"8 bytes!"))
    shell.settle()
    assert refused(shell) == [
        ("foreign", "letter 1 of the channel b0>b1 is not the one that was applied here"),
        ("foreign", "letter 2 of the channel b0>b1 does not follow the letter 1 that was applied here"),
    ]
    rows = shell.tables()["rejects"]
    assert {(row["topic"], row["partition"]) for row in rows} == {("lacuna.links", 0)}
    assert [row["offset"] for row in rows] == [1, 2]
    assert [row["publication"] for row in shell.tables()["routes"]] == ["p"]


def test_letters_of_an_earlier_life_are_ignored_and_of_an_unknown_one_refused() -> None:
    shell = Shell(LINE, epoch=7)
    shell.settings = replace(shell.settings, earlier=frozenset({6}))
    shell.batch = 1
    shell.put("links", b"b0>b1", letter(1, "p", epoch=6))
    shell.settle()
    assert shell.stored == {} and not shell.topic("records")
    shell.put("links", b"b0>b1", letter(1, "p", epoch=8))
    shell.put("links", b"b0>b1", letter(1, "p", epoch=5))
    shell.settle()
    assert refused(shell) == [("foreign", f"epoch {n} is not one that this system has had") for n in (8, 5)]


@settings(max_examples=15)
@given(st.data())
def test_foreign_records_between_any_two_are_rejects_and_change_nothing_else(data: st.DataObject) -> None:
    """Garbage, damaged frames, other epochs, a zombie of an earlier life, a copy that went on by itself."""
    config = data.draw(configs())
    calm, disturbed = Shell(config), Shell(config)
    disturbed.settings = replace(disturbed.settings, earlier=frozenset({3}))
    foreign = 0
    for event in data.draw(events(config.overlay.brokers, most=12)):
        calm.send(event)
        disturbed.send(event)
        calm.settle()
        while disturbed.waiting():
            disturbed.run_batch()
            if data.draw(st.booleans()):
                foreign += disturb(disturbed, data)
    disturbed.settle()
    assert sorted(disturbed.deliveries()) == sorted(calm.deliveries())
    assert len([rule for rule, _ in refused(disturbed) if rule == "foreign"]) == foreign
    disturbed.check()


def disturb(shell: Shell, data: st.DataObject) -> int:
    """Write something that is not the router's onto a link. Return how many rejects that makes."""
    links, ahead = shell.topic("links"), shell.batch + 5
    if not shell.settings.links:
        return 0
    channel = data.draw(st.sampled_from(sorted(shell.settings.links)))
    body = next(bodies_of_letters([pack(Publish("zombie", (1, 1, 2)))]))
    value = data.draw(
        st.sampled_from(
            [
                b"garbage",
                Sender(channel, 7).frame("letter", body, 0)[:-1],
                Sender(channel, 9).frame("letter", body, 0),
                Sender(channel, 3).frame("letter", body, 0),
                Sender(channel, 7, 40).frame("letter", body, ahead),
                Sender(channel, 7).frame("rows", body, 0),
            ]
        )
    )
    links.append(Record(shell.clock, channel.encode(), value))
    frame = read(value)
    return 0 if isinstance(frame, Frame) and frame.content.epoch == 3 else 1


def test_damaged_state_stops() -> None:
    shell = Shell(LINE)
    shell.send(subscribe("b0", "s1"))
    shell.settle()
    shell.stored["b0"] = shell.stored["b0"][:-3]
    forget()
    shell.send(subscribe("b0", "s2"))
    with pytest.raises(StateError, match=r"damaged.*Remedy"):
        shell.settle()


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        (b"nobody>b1", b"x", "broker"),
        (None, letter(1, "p"), "broker"),
        (b"b1>b0", letter(1, "p"), "foreign"),
        (b"b0>b1", letter(1, "p")[:-1], "foreign"),
        (b"b0>b1", b"", "foreign"),
        (b"b0>b1", Sender("b0>b1", 7).frame("rows", b"", 0), "foreign"),
        (b"b0>b1", Sender("b0>b1", 7).frame("letter", b"{}", 0), "foreign"),
    ],
)
def test_a_foreign_record_on_links_is_a_reject(key: bytes | None, value: bytes, rule: str) -> None:
    shell = Shell(LINE)
    shell.batch = 1  # later than the letters, so that only what is foreign about them counts
    shell.put("links", key, value)
    shell.settle()
    assert [row["rule"] for row in shell.tables()["rejects"]] == [rule]


def test_a_letter_between_brokers_of_one_region_is_foreign() -> None:
    shell = Shell(LINE, regions=1)
    shell.put("links", b"b0>b1", letter(1, "p"))
    shell.settle()
    assert [row["rule"] for row in shell.tables()["rejects"]] == ["foreign"]


# the stages


def test_a_record_is_one_row_to_one_region_however_many_chunks_there_are() -> None:
    """Three Arrow chunks of one channel: each record is in exactly one parcel, of the region of its broker."""
    shell = Shell(LINE)
    for k in range(6):
        shell.send(publish(f"b{k % 3}", f"p{k}"))
    tick(shell)
    records = [
        {"topic": t, "partition": 0, "offset": o, "now": shell.clock, **record._asdict()}
        for t, records in shell.topics.items()
        for o, record in enumerate(records)
    ]
    chunks = [pa.RecordBatch.from_pylist(part) for part in (records[:1], records[1:3], records[3:])]
    empty = chunks[0].slice(0, 0)
    rows = [row for out in sort_records(shell.settings)(iter([empty, *chunks])) for row in out.to_pylist()]
    found = [(row["region"].partition("#")[0], read_parcel(row["parcel"])) for row in rows]
    sent = [(region, event.broker, event.offset) for region, parcel in found for event in parcel.events]
    assert sorted(sent) == sorted((f"b{k % 3}", f"b{k % 3}", k) for k in range(6))
    assert sorted(region for region, parcel in found for _ in parcel.commands) == ["b0", "b1", "b2"]
    assert set(COLUMNS) <= set(records[0])


def test_a_sorter_starts_again_after_its_rows() -> None:
    shell = Shell(LINE)
    sorter = Sorter(shell.settings, shell.clock)
    topic = shell.settings.topics.publish
    sorter.add(topic, 0, 0, 1, b"b0", b"x")
    assert len(list(sorter.rows())) == 1
    assert list(sorter.rows()) == []
    sorter.add(topic, 0, 1, 1, b"b0", b"y")
    [row] = sorter.rows()
    assert [one.offset for one in read_parcel(row["parcel"]).rejects] == [1]


def test_a_refused_record_is_cut_and_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_REFUSED", 5)
    for turn in (False, True):
        shell = Shell(LINE, regions=1)
        for k in range(3):
            shell.put("publish", b"b0", b"%d nonsense" % k)
        sorters = [Sorter(shell.settings, shell.clock) for _ in range(3)]
        for offset, (sorter, record) in enumerate(zip(sorters, shell.topic("publish"), strict=True)):
            sorter.add(shell.settings.topics.publish, 4, offset, record.time, record.key, record.value)
        parcels = [row["parcel"] for sorter in sorters for row in sorter.rows()]
        arrivals = merge(stage.arrivals_of(map(read_parcel, parcels[::-1] if turn else parcels), "b0", 3))
        assert [arrival.offset for arrival in arrivals] == [0, 1, 2]
        found = [arrival.message for arrival in arrivals if isinstance(arrival.message, Refused)]
        assert [(one.partition, one.offset, one.value) for one in found] == [(4, k, b"%d non" % k) for k in range(3)], (
            turn
        )


class Kept:
    """The state of a group, as Spark gives it to the stateful step."""

    def __init__(self) -> None:
        self.value: tuple[int, bytes] | None = None

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[int, bytes]:
        assert self.value is not None
        return self.value

    def update(self, value: tuple[int, bytes]) -> None:
        self.value = value


def test_the_function_for_spark_takes_every_frame_and_keeps_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several frames of parcels in, several frames of records out, and the state of one batch is that of the next."""
    monkeypatch.setattr(stage, "MOST_OUTPUT", 1)
    shell, state = Shell(LINE, regions=1), Kept()
    take, key = shim.on_row(shell.settings), (shell.settings.parts[0].key,)
    written: list[dict[str, Any]] = []
    for batch, history in enumerate(
        ([subscribe("b0", "s1"), subscribe("b2", "s2", client="bob"), publish("b1", "p1")], [publish("b2", "p2")])
    ):
        monkeypatch.setattr(shim, "batch_number", lambda batch=batch: batch)
        parcels = []
        for event in history:
            shell.send(event)
            end = {topic: len(shell.topics[topic]) for topic in shell._inputs()}
            parcels += [pd.DataFrame({"parcel": [row["parcel"]]}) for row in shell._sorted(end, shell.clock, None)]
            shell.read |= end
        frames = [frame for frame in take(key, iter(parcels), state) if frame["topic"].notna().all()]
        assert all(list(frame.columns) == list(stage.Record._fields) and len(frame) == 1 for frame in frames)
        written += [row for frame in frames for row in frame.to_dict("records")]
        forget()
    got = [json.loads(row["value"]) for row in written if row["topic"] == shell.settings.topics.deliveries]
    assert [(d["publication"], d["subscription"], d["batch"], d["seq"]) for d in got] == [
        *(("p1", "s1", 0, 1), ("p1", "s2", 0, 2)),
        *(("p2", "s1", 1, 3), ("p2", "s2", 1, 4)),
    ]
    before = state.value
    assert list(take(key, iter([]), state)) == [] and state.value is before


@settings(max_examples=20)
@given(st.lists(points(), min_size=1, max_size=5))
def test_publications_keep_their_values(shots: list[dict[str, Any]]) -> None:
    shell = Shell(LINE)
    shell.send(subscribe("b0", "s1"))
    shell.settle()
    for k, at in enumerate(shots):
        event = {"kind": "publish", "broker": "b2", "id": f"p{k}", "at": at, "payload": {"k": [k, None]}}
        shell.send(event | {"time": timestamp_text(k)})
    shell.settle()
    got = [json.loads(record.value) for record in shell.topic("deliveries")]
    said = [(d["at"], d["payload"], d["time"]) for d in got]
    assert said == [(at, {"k": [k, None]}, timestamp_text(k)) for k, at in enumerate(shots)]


@pytest.mark.parametrize("regions", [1, None])
def test_headers_travel_from_the_publication_to_its_deliveries(regions: int | None) -> None:
    shell = Shell(LINE, regions=regions)
    shell.send(subscribe("b0", "s1"))
    shell.settle()
    event = json.dumps({"id": "p", "at": {"x": 1, "y": 1, "colour": "red"}}).encode()
    shell.put("publish", b"b2", event, [{"key": "trace", "value": b"\x00\xff"}, {"key": "trace", "value": None}])
    shell.put("publish", b"b2", event)
    shell.settle()
    headers = [record.headers for record in shell.topic("deliveries")]
    assert headers == [[{"key": "trace", "value": b"\x00\xff"}, {"key": "trace", "value": b""}], None]


def test_long_rows_travel_in_more_records_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka limits the size of a record: long rows are cut into more frames, down to one row each."""
    frames = []
    for most in (stage.MOST_FRAME, 1):
        forget()
        monkeypatch.setattr(stage, "MOST_FRAME", most)
        shell = Shell(LINE)
        for k in range(40):
            shell.send(subscribe("b0", f"{k}-" + "".join(random.Random(k).choices("abcdefgh", k=200))))
        shell.settle()
        frames.append((len(shell.topic("records")), shell.tables()["decisions"]))
    assert frames[0][0] + 39 <= frames[1][0]
    assert frames[0][1] == frames[1][1]
    assert len(frames[0][1]) >= 40


def test_many_rows_travel_in_frames_of_a_few_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "MOST_ROWS", 3)
    shell = Shell(LINE, regions=1)
    shell.send(subscribe("b0", "s1"))
    for k in range(8):
        shell.send(publish("b0", f"p{k}"))
    shell.settle()
    assert [row["publication"] for row in shell.tables()["deliveries"]] == [f"p{k}" for k in range(8)]


def test_output_is_handed_over_in_pieces_of_a_limited_size() -> None:
    """Spark writes when it has gathered more than `MOST_ARROW` rows: empty ones follow each piece that is full."""
    records = [stage.Record("t", 0, b"", bytes(size)) for size in (3, 3, 3, 10, 1)]
    pieces = list(stage.gathered(records, most=5))
    assert [len(piece) for piece in pieces] == [2, MOST_ARROW + 1, 2, MOST_ARROW + 1, 1]
    kept = [piece for piece in pieces if piece["topic"].notna().all()]
    assert [value for piece in kept for value in piece["value"]] == [record.value for record in records]
    assert list(stage.gathered([])) == []


def test_keys_and_headers_count_too() -> None:
    long = [{"key": "k", "value": bytes(9)}]
    records = [stage.Record("t", 0, bytes(9), b""), stage.Record("t", 0, b"", b"", long)] * 2
    assert [len(piece) for piece in stage.gathered(records, most=18)] == [2, MOST_ARROW + 1, 2, MOST_ARROW + 1]


def test_letters_go_to_the_partition_of_their_channel() -> None:
    shell = Shell(LINE)
    shell.settings = settle(shell.settings.config, 7, 16, spread=Spread(links=3))
    assert sorted(shell.settings.links.values()) == [0, 0, 1, 2]
    shell.send(subscribe("b1", "s"))
    [row] = shell._sorted({t: len(shell.topics[t]) for t in shell._inputs()}, shell.clock, None)
    letters = [r for r in Step(shell.settings, "b1", {}, [row["parcel"]], 0).records() if r.topic.endswith("links")]
    assert [(r.key.decode(), r.partition) for r in letters] == [
        (c, shell.settings.links[c]) for c in ("b1>b0", "b1>b2")
    ]


def test_deliveries_go_to_the_partition_of_their_client() -> None:
    """As Kafka's own partitioner would choose, whatever number of partitions the topic has later."""
    from kafka.partitioner.default import murmur2

    shell = Shell(LINE, regions=1)
    shell.settings = replace(shell.settings, deliveries=5, records={"b0": 3})
    for k in range(20):
        shell.send(subscribe("b0", "s", client=f"client {k}"))
    shell.send(publish("b0", "p"))
    found: list[stage.Record] = []
    parcels = [row["parcel"] for row in shell._sorted({t: len(shell.topics[t]) for t in shell._inputs()}, 10**9, None)]
    found += Step(shell.settings, "b0", {}, parcels, 0).records()
    for record in found:
        wanted = (murmur2(record.key) & 0x7FFFFFFF) % 5 if record.topic.endswith("deliveries") else 3
        assert record.partition == wanted
    assert len({record.partition for record in found if record.topic.endswith("deliveries")}) > 2
    assert LOCAL not in shell.settings.part_of
