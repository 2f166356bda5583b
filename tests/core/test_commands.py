"""Commands on a running system: read strictly, kept by links, and deliveries do not depend on them."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import Config, parse
from state.filters.pruning import DIMENSIONS, Pruning
from state.protocol.arrivals import Arrival, Channel
from state.protocol.commands import CHOICES, MOST_SAID, Override, Prune, Rebuild, read_command, write_command
from state.protocol.events import RULES, Refused, Reject
from state.protocol.messages import LOCAL
from state.routing.link import Link
from state.storage.tables import REGION, TABLES
from state.strategies import Spec
from tests.core.histories import config_text, configs, events
from tests.core.oracle import Oracle
from tests.core.overlay import Overlay
from tests.core.shell import Shell, forget, some_cut
from tests.core.test_shell import facts, publish, subscribe, without_clock

LINKS = ("b0>b1", "b1>b0", "b1>b2", "b2>b1")
LINE = parse(config_text([("b0", "b1"), ("b1", "b2")], '"union"'))


@st.composite
def commands(draw: st.DrawFn, links: tuple[str, ...] = LINKS) -> Prune:
    prune = draw(st.sampled_from(CHOICES))
    stops = prune in DIMENSIONS and draw(st.booleans())
    prunings = draw(st.integers(0, 9)) if stops else None
    some = st.lists(st.sampled_from(links), min_size=1, unique=True).map(tuple) if links else st.none()
    return Prune(prune, prunings, draw(st.sampled_from([None, 0.5, 24.0])) if stops else None, draw(st.none() | some))


# Reading


def test_a_command_keeps_all_that_stops_its_pruning() -> None:
    assert Prune("memory", 5, 0.25).override == Override(Pruning("memory", 5, 0.25))
    assert Prune("network", links=("a>b", "b>a")).override == Override(Pruning("network"))
    assert [Prune("off", links=("a>b", "b>a")).concerns(link) for link in ("a>b", "b>a", "b>c")] == [True, True, False]


@given(commands() | st.just(Rebuild()))
def test_a_command_is_read_as_it_was_written(command: Rebuild | Prune) -> None:
    assert read_command(write_command(command), LINKS) == command


BAD = [
    ("json", b""),
    ("json", b"{"),
    ("json", b'{"command": "prune", "prune": "off", "prune": "network"}'),
    ("json", b"[" * 100_000),
    ("json", b'{"command": "prune", "prune": "network", "prunings": 1' + b"0" * 5000 + b"}"),
    ("json", b'{"command": "prune", "prune": "\\ud800"}'),
    ("utf8", b"\xff"),
    ("type", b"null"),
    ("type", b'{"prune": "off"}'),
    ("type", b'{"command": "tick"}'),
    ("type", b'{"command": "rebuild", "prune": "off"}'),
    ("type", b"{}"),
    ("type", b'{"command": "prune", "prune": "speed"}'),
    ("type", b'{"command": "prune", "prune": "off", "link": "b0>b1"}'),
    ("type", b'{"command": "prune", "prune": "off", "prunings": 3}'),
    ("type", b'{"command": "prune", "prune": "configured", "worst": 0.5}'),
    ("type", b'{"command": "prune", "prune": "off", "links": []}'),
    ("type", b'{"command": "prune", "prune": "off", "links": "b0>b1"}'),
    ("type", b'{"command": "prune", "prune": "network", "prunings": -1}'),
    ("type", b'{"command": "prune", "prune": "network", "prunings": true}'),
    ("type", b'{"command": "prune", "prune": "network", "prunings": 9223372036854775808}'),
    ("type", b'{"command": "prune", "prune": "network", "worst": NaN}'),
    ("type", b'{"command": "prune", "prune": "network", "worst": 1e400}'),
    ("type", b'{"command": "prune", "prune": "' + b"x" * 100_000 + b'"}'),
    ("broker", b'{"command": "prune", "prune": "off", "links": ["b0>b1", "b0>b2"]}'),
    ("broker", b'{"command": "prune", "prune": "off", "links": ["b0>local"]}'),
    ("broker", b'{"command": "prune", "prune": "off", "links": ["\\ud800"]}'),
]


@pytest.mark.parametrize(("rule", "value"), BAD, ids=[value[:40].decode(errors="replace") for _, value in BAD])
def test_what_is_no_command_is_a_reject(rule: str, value: bytes) -> None:
    refused = read_command(value, LINKS)
    assert isinstance(refused, Reject) and refused.rule == rule
    assert refused.message.startswith("a command: ") and len(refused.message) <= MOST_SAID


FIELDS = ["command", "prune", "prunings", "worst", "links"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["rebuild", *FIELDS, *CHOICES, *LINKS]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS), inner),
)


@settings(max_examples=300)
@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_reading_never_raises(value: bytes) -> None:
    found = read_command(value, LINKS)
    if isinstance(found, Reject):
        assert found.rule in RULES
        msgspec.msgpack.encode(Refused("control", 0, 0, value, found.rule, found.message))
    else:
        assert read_command(write_command(found), LINKS) == found


# Links


def links_of(overlay: Overlay) -> list[Link]:
    return [link for broker in overlay.region.brokers.values() for link in broker.links.values()]


def fed(config: Config, history: list[dict[str, Any]], override: Override | None = None) -> Overlay:
    overlay = Overlay(config)
    for link in links_of(overlay):
        link.prune(override)
    overlay.take(*history)
    return overlay


def shots(chance: random.Random, count: int) -> list[dict[str, Any]]:
    at = ({"x": chance.randrange(3), "y": chance.randrange(8), "colour": "red"} for _ in range(count))
    return [{"kind": "publish", "broker": "b2", "id": f"p{k}", "at": one} for k, one in enumerate(at)]


def same_learned(one: Link, other: Link) -> bool:
    if one.heard.learned is None or other.heard.learned is None:
        return one.heard.learned is other.heard.learned
    return all(np.array_equal(a, b) for a, b in zip(one.heard.learned, other.heard.learned, strict=True))


prunings = st.builds(Pruning, st.sampled_from(DIMENSIONS), st.none() | st.integers(0, 9), st.sampled_from([None, 0.5]))


@settings(max_examples=25)
@given(events(("b0", "b1", "b2"), most=15), prunings, st.none() | prunings, st.integers(0, 99))
def test_a_link_that_is_commanded_prunes_as_one_that_is_configured_so(
    history: list[dict[str, Any]], asked: Pruning, configured: Pruning | None, seed: int
) -> None:
    """Whatever else its own configuration says; and `off` is a link that never pruned."""
    history += shots(random.Random(seed), 70)
    for pruning in (asked, None):
        overridden = fed(LINE.with_strategy(Spec("union", pruning=configured)), history, Override(pruning))
        plain = fed(LINE.with_strategy(Spec("union", pruning=pruning)), history)
        assert overridden.routes == plain.routes
        assert overridden.deliveries == plain.deliveries
        for one, other in zip(links_of(overridden), links_of(plain), strict=True):
            one.check()
            assert same_learned(one, other) and one.sizes() == other.sizes()


@settings(max_examples=20)
@given(st.data())
def test_deliveries_do_not_depend_on_commands(data: st.DataObject) -> None:
    """Any strategy, ranges among them; links are switched and rebuilt at any time."""
    config = data.draw(configs())
    overlay, oracle = Overlay(config), Oracle({"colour"})
    for offset, event in enumerate(data.draw(events(config.overlay.brokers, most=20))):
        if data.draw(st.booleans()):
            command = data.draw(commands(()) | st.just(Rebuild()))
            overlay.region.take([Arrival(Channel(4, 0, "control"), offset, 0, "b0", LOCAL, command)])
            if isinstance(command, Prune):
                for link in links_of(overlay):
                    assert link.override == (None if link.setup.spec.by_ranges else command.override)
        overlay.take(event)
        overlay.region.check()
        assert sorted(overlay.deliveries) == sorted(oracle.take(event))
        overlay.deliveries.clear()


# The shell


def ask(shell: Shell, command: Rebuild | Prune | bytes) -> None:
    value = command if isinstance(command, bytes) else write_command(command)
    shell.put("control", f"command/{shell.clock}".encode(), value)


def overrides(shell: Shell) -> dict[str, Override | None]:
    directions = shell.settings.config.overlay.directions()
    return {f"{a}>{b}": shell.region(a).brokers[a].links[b].override for a, b in directions}


@settings(max_examples=7)
@given(st.data())
def test_commands_survive_crashes_and_orders(data: st.DataObject) -> None:
    """The same batches, repeated, shuffled and by new workers: the same rows, overrides and pruned tables."""
    table = data.draw(st.sampled_from(['"union"', '{name = "union", prune = "network", prunings = 5}', '"mics"']))
    config = parse(config_text([("b0", "b1"), ("b1", "b2")], table))
    chance = random.Random(data.draw(st.integers(0, 99)))
    regions = some_cut(config, chance)
    calm, stormy = Shell(config, regions=regions), Shell(config, regions=regions)
    bad = st.sampled_from([value for _, value in BAD[-3:]])
    for step, event in enumerate(data.draw(events(config.overlay.brokers, most=12))):
        asked = data.draw(st.lists(commands() | st.just(Rebuild()) | bad, max_size=2))
        some = [publish("b2", f"p{step}-{k}") for k in range(chance.choice([0, 1, 70]))]
        for shell in (calm, stormy):
            for one in (event, *some):
                shell.send(one)
            for command in asked:
                ask(shell, command)
        calm.run_batch()
        if chance.random() < 0.5:
            forget()
        stormy.run_batch(crashes=chance.choice([0, 1, 2]), shuffle=chance)
    forget()
    ours, theirs = calm.tables(), stormy.tables()
    for name in TABLES:
        assert without_clock(ours[name]) == without_clock(theirs[name]), name
    assert overrides(calm) == overrides(stormy)
    for name in calm.stored:
        assert facts(calm, name) == facts(stormy, name)


def standing(shell: Shell) -> None:
    """One subscription at b0 that has something to prune, known everywhere."""
    shell.send(subscribe("b0", "s1", where={"x": [0, 1], "y": [0, 3]}))
    shell.settle()


def last_metrics(shell: Shell) -> dict[str, int | None]:
    """The prunings of each link, by its last row of metrics."""
    rows = [row for row in shell.tables()["metrics"] if row["link"] not in (LOCAL, REGION)]
    return {f"{row['broker']}>{row['link']}": row["prunings"] for row in rows}


@pytest.mark.parametrize("regions", [None, 1])
def test_a_command_takes_effect_at_its_place_among_the_arrivals_and_shows_in_metrics(regions: int | None) -> None:
    """b0 does not want the publications: pruned, b1 forwards those after the command all the same."""
    shell = Shell(LINE, regions=regions)
    standing(shell)
    for id, command in (("p1", Prune("network", 1, links=("b1>b0",))), ("p2", Prune("off")), ("p3", None)):
        shell.send(publish("b1", id) | {"at": {"x": 0, "y": 7, "colour": "red"}})
        if command is not None:
            ask(shell, command)
    shell.run_batch()
    shell.settle()
    routes = [row for row in shell.tables()["routes"] if (row["broker"], row["link"]) == ("b1", "b0")]
    assert {r["publication"]: r["action"] for r in routes} == {"p1": "stop", "p2": "forward", "p3": "stop"}
    assert set(last_metrics(shell).values()) == {None}
    ask(shell, Prune("network", 1, links=("b1>b0",)))
    shell.settle()
    assert last_metrics(shell)["b1>b0"] == 1
    assert shell.deliveries() == []


def test_of_several_commands_the_last_counts_link_by_link() -> None:
    shell = Shell(LINE)
    for command in (Prune("network"), Prune("off", links=("b0>b1",)), Prune("memory", 3, links=("b1>b0", "b2>b1"))):
        ask(shell, command)
    shell.run_batch(shuffle=random.Random(3))
    memory = Override(Pruning("memory", 3))
    assert overrides(shell) == {
        "b0>b1": Override(None),
        "b1>b0": memory,
        "b1>b2": Override(Pruning("network")),
        "b2>b1": memory,
    }
    ask(shell, Prune("off"))
    ask(shell, Prune("configured"))
    shell.settle()
    assert set(overrides(shell).values()) == {None}


def test_a_record_that_is_no_command_is_a_row_in_rejects_and_nothing_else() -> None:
    shell = Shell(LINE, regions=1)
    standing(shell)
    before = facts(shell, "b0")[-2:]
    for _, value in BAD:
        ask(shell, value)
    shell.settle()
    rejects = shell.tables()["rejects"]
    assert [row["rule"] for row in rejects] == [rule for rule, _ in BAD]
    assert {row["topic"] for row in rejects} == {shell.settings.topics.control}
    assert facts(shell, "b0")[-2:] == before


def test_a_command_that_changes_nothing_writes_nothing() -> None:
    """It is so already; or links speak in ranges, which have nothing to prune."""
    mics = parse(config_text([("b0", "b1")], '"mics"'))
    for config, command in ((LINE, Prune("configured")), (mics, Prune("network"))):
        forget()
        shell = Shell(config)
        standing(shell)
        before = dict(shell.stored), len(shell.topic("records"))
        ask(shell, command)
        shell.settle()
        assert (shell.stored, len(shell.topic("records"))) == before
