"""Pruning changed on a running system: wishes are read strictly, kept by links, and leave deliveries alone."""

from __future__ import annotations

import base64
import json
import random
import zlib
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state.routing.overlay import Network
from state.storage.memory import Memory
from tests.core.test_overlay import Diary, message_of

from state.config import Config, parse
from state.filters.pruning import DIMENSIONS, Pruning
from state.protocol.commands import MOST_SAID, WISHES, Override, Wish, read_wish, write_wish
from state.protocol.events import RULES, Reject
from state.protocol.messages import LOCAL
from state.protocol.topics import PRUNE
from state.routing.link import Link, Setup
from state.storage.codec import encode
from state.storage.rows import TABLES
from state.strategies import Spec
from streaming import advance as stage
from streaming.schemas import Refused, pack
from streaming.settings import group_parts
from tests.core.histories import config_text, configs, events
from tests.core.oracle import Oracle
from tests.core.shell import Shell
from tests.core.test_shell import publish, subscribe, without_clock

LINKS = ("b0>b1", "b1>b0", "b1>b2", "b2>b1")
LINE = parse(config_text([("b0", "b1"), ("b1", "b2")], '"union"'))


@st.composite
def wishes(draw: st.DrawFn, links: tuple[str, ...] = LINKS) -> Wish:
    prune = draw(st.sampled_from(WISHES))
    stops = prune in DIMENSIONS and draw(st.booleans())
    prunings = draw(st.integers(0, 9)) if stops else None
    some = st.lists(st.sampled_from(links), min_size=1, unique=True).map(tuple) if links else st.none()
    return Wish(prune, prunings, draw(st.sampled_from([None, 0.5, 24.0])) if stops else None, draw(st.none() | some))


# Reading


@given(wishes())
def test_a_wish_is_read_as_it_was_written(wish: Wish) -> None:
    assert read_wish(write_wish(wish), LINKS) == wish


BAD = [
    ("json", b""),
    ("json", b"{"),
    ("json", b'{"prune": "off", "prune": "network"}'),
    ("json", b"[" * 100_000),
    ("json", b'{"prune": "network", "prunings": 1' + b"0" * 5000 + b"}"),
    ("json", b'{"prune": "\\ud800"}'),
    ("utf8", b"\xff"),
    ("type", b"null"),
    ("type", b"{}"),
    ("type", b'{"prune": "speed"}'),
    ("type", b'{"prune": "off", "link": "b0>b1"}'),
    ("type", b'{"prune": "off", "prunings": 3}'),
    ("type", b'{"prune": "configured", "worst": 0.5}'),
    ("type", b'{"prune": "off", "links": []}'),
    ("type", b'{"prune": "off", "links": "b0>b1"}'),
    ("type", b'{"prune": "network", "prunings": -1}'),
    ("type", b'{"prune": "network", "prunings": true}'),
    ("type", b'{"prune": "network", "prunings": 9223372036854775808}'),
    ("type", b'{"prune": "network", "worst": NaN}'),
    ("type", b'{"prune": "network", "worst": 1e400}'),
    ("type", b'{"prune": "' + b"x" * 100_000 + b'"}'),
    ("broker", b'{"prune": "off", "links": ["b0>b1", "b0>b2"]}'),
    ("broker", b'{"prune": "off", "links": ["b0>local"]}'),
    ("broker", b'{"prune": "off", "links": ["\\ud800"]}'),
]


@pytest.mark.parametrize(("rule", "value"), BAD, ids=[value[:40].decode(errors="replace") for _, value in BAD])
def test_what_is_no_wish_is_a_reject(rule: str, value: bytes) -> None:
    refused = read_wish(value, LINKS)
    assert isinstance(refused, Reject) and refused.rule == rule
    assert refused.message.startswith("a wish about pruning: ") and len(refused.message) <= MOST_SAID


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*WISHES, *LINKS]) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["prune", "prunings", "worst", "links"]), inner),
)


@settings(max_examples=300)
@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_reading_never_raises(value: bytes) -> None:
    found = read_wish(value, LINKS)
    if isinstance(found, Reject):
        assert found.rule in RULES
        pack(Refused("links", 0, 0, value, found.rule, found.message))
    else:
        assert read_wish(write_wish(found), LINKS) == found


# Links


def link_of(network: Network, name: str) -> Link:
    broker, neighbour = group_parts(name)
    link = network.groups[broker][neighbour]
    assert isinstance(link, Link)
    return link


def fed(config: Config, history: list[dict[str, Any]], override: Override | None = None) -> tuple[Network, Diary]:
    diary = Diary()
    network = Network(config, diary)
    for link in LINKS:
        link_of(network, link).prune(override)
    for place, event in enumerate(history):
        network.feed(event["broker"], message_of(config, event, place), 0, place)
        network.settle(0)
    return network, diary


def shots(chance: random.Random, count: int) -> list[dict[str, Any]]:
    at = ({"x": chance.randrange(3), "y": chance.randrange(8), "colour": "red"} for _ in range(count))
    return [{"kind": "publish", "broker": "b2", "id": f"p{k}", "at": one} for k, one in enumerate(at)]


def trees_of(link: Link) -> list[Any]:
    return [] if link.learned is None else [link.pruned.tree(name) for name in link.heard]


def same_learned(one: Link, other: Link) -> bool:
    if one.learned is None or other.learned is None:
        return one.learned is other.learned
    return all(np.array_equal(a, b) for a, b in zip(one.learned, other.learned, strict=True))


prunings = st.builds(Pruning, st.sampled_from(DIMENSIONS), st.none() | st.integers(0, 9), st.sampled_from([None, 0.5]))


@settings(max_examples=25)
@given(events(("b0", "b1", "b2"), most=15), prunings, st.none() | prunings, st.integers(0, 99))
def test_a_link_that_is_asked_prunes_as_one_that_is_configured_so(
    history: list[dict[str, Any]], asked: Pruning, configured: Pruning | None, seed: int
) -> None:
    """Whatever else its own configuration says; and `off` is a link that never pruned."""
    history += shots(random.Random(seed), 70)
    for pruning in (asked, None):
        overridden = fed(LINE.with_strategy(Spec("union", pruning=configured)), history, Override(pruning))
        plain = fed(LINE.with_strategy(Spec("union", pruning=pruning)), history)
        assert overridden[1].routes == plain[1].routes
        assert overridden[1].deliveries == plain[1].deliveries
        for name in LINKS:
            one, other = link_of(overridden[0], name), link_of(plain[0], name)
            one.check()
            assert same_learned(one, other) and trees_of(one) == trees_of(other)


@settings(max_examples=40)
@given(st.data())
def test_deliveries_do_not_depend_on_wishes(data: st.DataObject) -> None:
    """Any strategy, ranges among them; links are switched at any time."""
    config = data.draw(configs())
    diary, oracle = Diary(), Oracle({"colour"})
    network = Network(config, diary)
    links = [group for groups in network.groups.values() for group in groups.values() if isinstance(group, Link)]
    for place, event in enumerate(data.draw(events(config.overlay.brokers, most=20))):
        if links and data.draw(st.booleans()):
            link, override = data.draw(st.sampled_from(links)), data.draw(wishes(())).override
            assert not (link.prune(override) and link.setup.spec.by_ranges)
            assert link.setup.spec.by_ranges or link.override == override
        network.feed(event["broker"], message_of(config, event, place), 0, place)
        network.settle(0)
        network.check()
        assert sorted(diary.deliveries) == sorted(oracle.take(event))
        diary.deliveries.clear()


def test_what_was_learned_begins_with_pruning_and_ends_with_it() -> None:
    """Another dimension keeps it: it is about publications. `off` and on again begins anew."""
    where = {"x": [0, 1], "y": [0, 3]}
    history = [{"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s", "where": where}]
    network, _ = fed(LINE, history + shots(random.Random(1), 80))
    link = link_of(network, "b2>b1")
    seen = LINE.space.points([LINE.space.point(shot["at"]) for shot in shots(random.Random(2), 70)])

    def learned() -> int:
        link.wants(seen)
        return -1 if link.learned is None else int(link.learned[0][0].sum())

    assert learned() == -1
    assert link.prune(Override(Pruning("network"))) and learned() == 70
    assert link.prune(Override(Pruning("memory"))) and learned() == 140
    assert not link.prune(Override(Pruning("memory")))
    assert link.prune(Override(None)) and learned() == -1
    assert (link.wants(seen) == link.heard.holds_any(seen)).all()
    assert link.prune(Override(Pruning("network", 1))) and learned() == 70
    assert link.pruned.prunings == 1
    assert link.prune(None) and learned() == -1


# Stored state


@settings(max_examples=30)
@given(st.data())
def test_any_mixture_of_workers_keeps_the_wish(data: st.DataObject) -> None:
    """A worker may hold a group from before several wishes, or none: the same pruned table, the same counts."""
    table = data.draw(st.sampled_from(['"union"', '{name = "union", prune = "network", prunings = 4}']))
    setup = parse(config_text([("b0", "b1")], table)).setup("b0", "b1")
    blob = Memory.new(setup).close()
    plain = Memory.new(setup).state
    assert isinstance(plain, Link)
    held: dict[int, Memory | None] = {0: None, 1: None}
    for number, event in enumerate(data.draw(events(("b1",), most=15))):
        worker = data.draw(st.integers(0, 2))
        memory = Memory.open(blob, setup, held.get(worker))
        message = message_of(parse(config_text([("b0", "b1")], table)), event, number)
        state = memory.state
        assert isinstance(state, Link)
        known = event["kind"] != "publish" and message.name in state.heard  # type: ignore[union-attr]
        if event["kind"] == "subscribe" or known:
            memory.step("b1", message, number)  # type: ignore[arg-type]
            plain.step("b1", message, number)  # type: ignore[arg-type]
        if data.draw(st.booleans()):
            override = data.draw(wishes(())).override
            assert memory.prune(override) == plain.prune(override)
        count = data.draw(st.sampled_from([0, 1, 70]))
        seen = setup.space.points([setup.space.point({"x": k % 3, "y": k % 8, "colour": "red"}) for k in range(count)])
        assert (state.wants(seen) == plain.wants(seen)).all()
        blob = memory.close()
        if worker in held:
            held[worker] = memory
        state.check()
        assert state.override == plain.override
        assert same_learned(state, plain) and trees_of(state) == trees_of(plain)


BEFORE = """
[space]
x = {kind = "int", low = 0, high = 9}
y = {kind = "int", low = 0, high = 9}
[overlay]
links = [["a", "b"]]
[routing]
strategy = {name = "union", prune = "network", prunings = 1}
"""
STORED_BEFORE = zlib.decompress(
    base64.b85decode(
        r"c-ou6c%&>RF}XA^kx^r-{@;{&%)HDDTbO6vG)c5eQYg*K%+FIOO3h8pO-e1YwJ<X=P^hrV%qxjD(6NkFsGL0M2*VME$&;owFwC5M"
        r"gyF!Xqf88Z3=BLSTwfkf*|>)}-{B}@U`h<n6E+snfTc_=-J7_le>!_WLT=G)Wd=r|)`^pj=z;82FxO>dcrbDD!X$>-3=5MMC+6iX"
        r"EIy*Zz{J49aDai~z<~qI0u0Rj5#nr&QyUj1O=4tZU|;~*1_5picmO*p!r+gBAq?P2z=7B#z{UW^$Y>M{WdHzyuSIG"
    )
)
"""The state of a>b as a program without wishes stored it: one subscription heard, 70 publications considered."""


def test_state_stored_before_there_were_wishes_opens() -> None:
    setup = parse(BEFORE).setup("a", "b")
    assert len(msgspec.msgpack.decode(STORED_BEFORE)[-1]) == 5, "the ticker had five fields"
    memory = Memory.open(STORED_BEFORE, setup)
    link = memory.state
    assert isinstance(link, Link)
    link.check()
    assert link.override is None and link.pruned.prunings == 1
    assert link.learned is not None and [int(part[0].sum()) for part in link.learned] == [70, 64]
    assert memory.prune(Override(None))
    again = Memory.open(memory.close(), setup).state
    assert isinstance(again, Link) and again.override == Override(None) and again.learned is None


def test_a_wish_outlives_a_change_of_the_configuration() -> None:
    """It overrides whatever is configured, until a wish ends it."""
    setup = parse(BEFORE).setup("a", "b")
    memory = Memory.open(STORED_BEFORE, setup)
    memory.prune(Override(Pruning("memory", 0)))
    other = replace(setup, spec=replace(setup.spec, pruning=None))
    link = reopened(memory, other)
    assert link.pruning == Pruning("memory", 0) and link.pruned.prunings == 0
    memory.prune(None)
    assert reopened(memory, other).pruning is None
    assert reopened(memory, setup).pruning == setup.spec.pruning


def reopened(memory: Memory, setup: Setup) -> Link:
    state = Memory.open(memory.close(), setup).state
    assert isinstance(state, Link)
    return state


# The shell


def ask(shell: Shell, wish: Wish | bytes) -> None:
    shell.put("links", PRUNE, wish if isinstance(wish, bytes) else write_wish(wish))


def overrides(shell: Shell) -> dict[str, Override | None]:
    states = {name: shell.memory(name).state for name in shell.group_names()}
    return {name: state.override for name, state in states.items() if isinstance(state, Link)}


@settings(max_examples=15)
@given(st.data())
def test_wishes_survive_crashes_and_orders(data: st.DataObject) -> None:
    """The same batches, repeated, shuffled and by new workers: the same rows, the same wish, the same pruned table."""
    table = data.draw(st.sampled_from(['"union"', '{name = "union", prune = "network", prunings = 5}', '"mics"']))
    config = parse(config_text([("b0", "b1"), ("b1", "b2")], table))
    calm, stormy = Shell(config), Shell(config)
    chance = random.Random(data.draw(st.integers(0, 99)))
    for step, event in enumerate(data.draw(events(config.overlay.brokers, most=12))):
        asked = data.draw(st.lists(wishes() | st.sampled_from([value for _, value in BAD[-3:]]), max_size=2))
        some = [publish("b2", f"p{step}-{k}") for k in range(chance.choice([0, 1, 70]))]
        for shell in (calm, stormy):
            for one in (event, *some):
                shell.send(one)
            for wish in asked:
                ask(shell, wish)
        calm.run_batch()
        if chance.random() < 0.5:
            stage.HELD.clear()
        stormy.run_batch(crashes=chance.choice([0, 1, 2]), shuffle=chance)
        stormy.clock = calm.clock
    stage.HELD.clear()
    ours, theirs = calm.tables(), stormy.tables()
    for row in (*ours["rejects"], *theirs["rejects"]):
        del row["offset"]  # what is written again after a crash moves what comes later
    for name in TABLES:
        assert without_clock(ours[name]) == without_clock(theirs[name]), name
    assert overrides(calm) == overrides(stormy)
    for name in calm.group_names():
        one, other = calm.memory(name).state, stormy.memory(name).state
        one.check()
        assert encode(one) == encode(other)
        if isinstance(one, Link) and isinstance(other, Link):
            assert trees_of(one) == trees_of(other)
            assert not one.setup.spec.by_ranges or one.override is None


def standing(shell: Shell) -> None:
    """One subscription at b0 that has something to prune, known everywhere."""
    shell.send(subscribe("b0", "s1", where={"x": [0, 1], "y": [0, 3]}))
    shell.settle()


def last_metrics(shell: Shell) -> dict[str, int | None]:
    """The prunings of each link, by its last row of metrics."""
    rows = shell.tables()["metrics"]
    return {f"{row['broker']}>{row['link']}": row["prunings"] for row in rows if row["link"] != LOCAL}


def test_a_wish_takes_effect_after_the_batch_that_brings_it_and_shows_in_metrics() -> None:
    """b0 does not want p: pruned, b1 forwards it all the same, from the next batch on."""
    shell = Shell(LINE)
    standing(shell)
    ask(shell, Wish("network", 1, links=("b1>b0",)))
    shell.send(publish("b1", "p1") | {"at": {"x": 0, "y": 7, "colour": "red"}})
    shell.run_batch()
    assert last_metrics(shell) == {"b0>b1": None, "b1>b0": 1, "b1>b2": None, "b2>b1": None}
    shell.send(publish("b1", "p2") | {"at": {"x": 0, "y": 7, "colour": "red"}})
    shell.settle()
    ask(shell, Wish("off"))
    shell.settle()
    shell.send(publish("b1", "p3") | {"at": {"x": 0, "y": 7, "colour": "red"}})
    shell.settle()
    routes = {
        r["publication"]: r["action"] for r in shell.tables()["routes"] if (r["broker"], r["link"]) == ("b1", "b0")
    }
    assert routes == {"p1": "stop", "p2": "forward", "p3": "stop"}
    assert set(last_metrics(shell).values()) == {None}
    assert shell.deliveries() == []


def test_of_several_wishes_the_last_counts_link_by_link() -> None:
    shell = Shell(LINE)
    for wish in (Wish("network"), Wish("off", links=("b0>b1",)), Wish("memory", 3, links=("b1>b0", "b2>b1"))):
        ask(shell, wish)
    shell.run_batch(shuffle=random.Random(3))
    memory = Override(Pruning("memory", 3))
    assert overrides(shell) == {
        "b0>b1": Override(None),
        "b1>b0": memory,
        "b1>b2": Override(Pruning("network")),
        "b2>b1": memory,
    }
    ask(shell, Wish("off"))
    ask(shell, Wish("configured"))
    shell.settle()
    assert set(overrides(shell).values()) == {None}


def test_a_wish_that_is_none_is_a_row_in_rejects_and_nothing_else() -> None:
    shell = Shell(LINE)
    standing(shell)
    blobs = dict(shell.blobs)
    for _, value in BAD:
        ask(shell, value)
    shell.settle()
    rejects = shell.tables()["rejects"]
    assert [row["rule"] for row in rejects] == [rule for rule, _ in BAD]
    assert {row["topic"] for row in rejects} == {shell.settings.topic("links")}
    assert {name: blob for name, blob in shell.blobs.items() if name in blobs} == blobs


def test_a_wish_that_changes_nothing_writes_nothing() -> None:
    """It is so already; or it is not for this group: `local` and links that speak in ranges have nothing to prune."""
    for config, wish in ((LINE, Wish("configured")), (parse(config_text([("b0", "b1")], '"mics"')), Wish("network"))):
        stage.HELD.clear()
        shell = Shell(config)
        standing(shell)
        before = dict(shell.blobs), len(shell.topics[shell.settings.topic("records")])
        ask(shell, wish)
        shell.settle()
        assert (shell.blobs, len(shell.topics[shell.settings.topic("records")])) == before
