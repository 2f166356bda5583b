"""The tables of each life are complete by themselves: what it begins with is recorded, whatever life came before."""

from __future__ import annotations

import random
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lacuna.analysis.decision_log import GONE, TOLD, active_after, joined, name_of, order_of, stands
from lacuna.analysis.duck import Duck
from state.config import Config
from state.protocol.control import TICK
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.routing.carry import Inherited
from state.storage.rows import Row
from state.strategies import Spec
from streaming.whole import NOT_AGAIN, Whole
from tests.core.histories import configs, events
from tests.core.lakes import write_lake
from tests.core.oracle import Oracle
from tests.core.shell import Shell, forget, some_cut
from tests.core.test_carry import EVENTS, changed, check_change, left, unread
from tests.core.test_shell import LINE, publish, subscribe, unsubscribe
from tests.core.test_whole import begin, drained, taken
from tests.core.test_whole import successor as after_it


@pytest.fixture(autouse=True)
def new_process() -> None:
    forget()


def kept(old: Shell, config: Config, chance: random.Random, folder: Path) -> Shell:
    """The next life, which keeps the brokers of this one, cut in another way."""
    new = after_it(old, config, chance)
    read_to = {topic: old.read[old.settings.topics.of(topic)] for topic in EVENTS}
    begin(new, drained(old, new), folder, read_to | {"links": len(old.topic("links"))})
    return new


def plain(row: Row) -> Row:
    return row | {"shape": [] if row["shape"] is None else row["shape"]}


def check_complete(shell: Shell) -> None:
    """The rows of the life alone say what stands, and what each link was told; those of all lives together do, too."""
    shell.put("control", TICK.encode(), b"")  # as the announcement of a life is: every region has a state then
    shell.settle()
    every = shell.tables()
    epoch = shell.settings.epoch
    mine = {table: sorted((r for r in every[table] if r["epoch"] == epoch), key=order_of) for table in every}
    there = {(r["broker"], r["client"], r["subscription"]): r for r in mine.get("subscriptions", [])}
    found = {Name(*key): row["expires"] for key, row in there.items() if row["change"] not in ("unsubscribe", "expire")}
    brokers = {b: shell.region(b).brokers[b] for b in shell.settings.config.overlay.brokers}
    standing = {name: one.expires for broker in brokers.values() for name, one in broker.ledger.standing.items()}
    assert {name: _micros(moment) for name, moment in found.items()} == standing
    begun = {
        r["epoch"]: any(o["reason"] != Reason.CARRIED for o in every["decisions"] if is_first(o, r["epoch"]))
        for r in every.get("decisions", [])
        if r["batch"] < -1
    }
    check_links(brokers, mine.get("decisions", []))
    check_links(brokers, joined(map(plain, sorted(every.get("decisions", []), key=order_of)), begun))


def is_first(row: Row, epoch: int) -> bool:
    return bool(row["epoch"] == epoch and row["batch"] < -1)


def _micros(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1e6)


def check_links(brokers: dict[str, Any], rows: list[Row]) -> None:
    for broker, link in ((b, link) for b in brokers.values() for link in b.links.values()):
        if link.setup.spec.by_ranges:
            continue  # what a neighbour has of others is not known by name
        here = [row for row in rows if (row["broker"], row["link"]) == (broker.name, link.setup.link)]
        last = {name_of(row): row for row in here if row["action"] in (*TOLD, *GONE, "withhold")}
        assert set(active_after(broker.setup.space, [row | {"shape": None} for row in here])) == set(link.told.active)
        assert {name for name, row in last.items() if row["action"] == "withhold"} == set(link.told.passive)
        for name, row in last.items():
            if stands(row) and row["action"] == "withhold" and row["covered_by"]:
                named = {(one["home"], one["client"], one["subscription"]) for one in row["covered_by"]}
                assert named == {tuple(coverer) for coverer in link.told.passive[name].coverers}


@settings(max_examples=40)
@given(st.data())
def test_a_life_that_keeps_its_brokers_records_them(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Also after a copy was restored: what was recorded beyond the copy is corrected. Letters are under way."""
    config, chance = data.draw(configs()), random.Random(data.draw(st.integers(0, 9)))
    shell = Shell(config, epoch=1, regions=some_cut(config, chance))
    for broker in config.overlay.brokers:
        shell.send(subscribe(broker, "kept"))  # so that each link has something to carry over
    shell.settle()
    older = None
    for event in data.draw(events(config.overlay.brokers, most=20)):
        shell.send(event)
        if data.draw(st.booleans()):
            shell.run_batch()
        if data.draw(st.integers(0, 9)) == 0:
            older = copy(shell)
            older.stored, older.read = dict(shell.stored), copy(shell.read)
    shell.run_batch()
    new = kept(older or shell, config, chance, tmp_path_factory.mktemp("life"))
    new.clock = shell.clock
    new.settle()
    check_complete(new)
    for event in data.draw(events(config.overlay.brokers, most=5)):
        new.send(event)
    new.finish()
    check_complete(new)


@settings(max_examples=25)
@given(st.data())
def test_a_life_with_another_configuration_records_what_stands(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    one, two = data.draw(configs()), data.draw(configs())
    chance = random.Random(data.draw(st.integers(0, 9)))
    shell = Shell(one, epoch=1, regions=some_cut(one, chance))
    for event in data.draw(events(one.overlay.brokers, most=15)):
        shell.send(event)
    shell.run_batch()
    moves = {broker: "b0" for broker in one.overlay.brokers if broker not in two.overlay.brokers}
    after = changed(shell, two, tmp_path_factory.mktemp("life"), moves, some_cut(two, chance))
    if isinstance(after, Shell):
        after.settle()
        check_complete(after)
        assert {row["change"] for row in after.tables()["decisions"] if is_first(row, 2)} <= {"carry", "unsubscribe"}


def test_a_life_from_the_topics_does_not_repeat_what_was_recorded(tmp_path: Path) -> None:
    """Neither subscriptions that ended, nor rejects; what stands is there, and every decision has its reason."""
    shell = Shell(LINE, epoch=1)
    for event in (subscribe("b0", "a", ttl=9), subscribe("b2", "b"), subscribe("b1", "c"), unsubscribe("b1", "c")):
        shell.send(event)
    shell.put("subscribe", b"b0", b"not JSON")
    shell.settle()
    new = replaced(shell, tmp_path)
    check_complete(new)
    mine = {table: [r for r in rows if r["epoch"] == 2] for table, rows in new.tables().items()}
    assert {(r["subscription"], r["change"]) for r in mine["subscriptions"]} == {("a", "carry"), ("b", "carry")}
    assert len(new.tables()["rejects"]) == 1
    assert Reason.CARRIED not in {r["reason"] for r in mine["decisions"]}


def replaced(shell: Shell, folder: Path) -> Shell:
    """A life from the topics after a shell whose state is lost."""
    new = Shell(shell.settings.config, epoch=shell.settings.epoch + 1)
    new.settings = replace(new.settings, earlier=frozenset(range(1, new.settings.epoch)))
    new.topics, new.inputs, new.clock = shell.topics, shell.topics, shell.clock
    whole = Whole(new.settings)
    whole.feed(taken(shell, "subscribe", "unsubscribe"), without=NOT_AGAIN)
    whole.record(decisions=False)
    begin(new, whole, folder, {topic: len(shell.topic(topic)) for topic in (*EVENTS, "links")})
    new.settle()
    return new


def test_views_count_nothing_twice(tmp_path: Path) -> None:
    """After a life that kept its brokers, one with another strategy, and one from the topics."""
    shell = Shell(LINE, epoch=1)
    for event in (subscribe("b0", "a", where={"x": [0, 5]}), subscribe("b0", "b", where={"x": [1, 2]})):
        shell.send(event)
    shell.send(subscribe("b2", "gone"))
    shell.settle()
    shell.send(unsubscribe("b2", "gone"))
    shell.settle()
    before = asked(shell, tmp_path / "lake")
    life = kept(shell, LINE, random.Random(1), tmp_path / "kept")
    assert asked(life, tmp_path / "lake 2") == before and all(before)
    made = changed(life, replace(LINE, spec=Spec("cover")), tmp_path / "changed")
    assert isinstance(made, Shell)
    for k, life in enumerate((made, replaced(made, tmp_path / "topics"))):
        life.send(publish("b1", f"p{k}") | {"at": {"x": 1, "y": 1, "colour": "red"}})
        life.settle()
        assert asked(life, tmp_path / f"lake {k + 3}") == before
        duck = Duck(write_lake(life, tmp_path / f"later {k}"))
        matched = f"SELECT subscription FROM why_not WHERE publication = 'p{k}' AND matches ORDER BY ALL"
        assert [row["subscription"] for row in duck.query(matched).read_all().to_pylist()] == ["a", "b"]


def asked(shell: Shell, folder: Path) -> list[Any]:
    """What stands, what flooding would have sent and what was sent, and the story of each withheld subscription."""
    duck = Duck(write_lake(shell, folder))
    found = []
    for statement in (
        "SELECT broker, client, subscription, filter, boxes FROM standing ORDER BY ALL",
        "SELECT broker, link, sum(flooded) AS all, sum(messages) AS told FROM savings GROUP BY ALL ORDER BY ALL",
        "SELECT DISTINCT broker, link, filter, coverer_filter FROM why WHERE action = 'withhold' ORDER BY ALL",
    ):
        found.append(duck.query(statement).read_all().to_pylist())
    return found


def of_its_own_client(event: dict[str, Any]) -> dict[str, Any]:
    """No two brokers have a client of the same name, so that all of them can move to one."""
    return event if event["kind"] == "publish" else event | {"client": f"{event['client']} at {event['broker']}"}


@settings(max_examples=25)
@given(st.data())
def test_what_changes_while_it_is_fed_is_caught_up_with(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The system goes on while what stands is fed to the new overlay: what is cancelled, replaced and new meanwhile."""
    config, chance, oracle = data.draw(configs()), random.Random(data.draw(st.integers(0, 9))), Oracle({"colour"})
    shell = Shell(LINE, epoch=1, regions=some_cut(LINE, chance))
    after = Shell(config, epoch=2, regions=some_cut(config, chance))
    moves = {broker: "b0" for broker in LINE.overlay.brokers if broker not in config.overlay.brokers}
    history = [of_its_own_client(event) for event in data.draw(events(LINE.overlay.brokers, most=20))]
    cut = data.draw(st.integers(0, len(history)))
    for event in history[:cut]:
        shell.send(event)
        oracle.take(event)
    shell.settle()
    early = left(shell, 2)
    before = early.inherited(config, moves)
    ahead = Whole(after.settings)
    ahead.become(early, Inherited(), before)
    ahead.record(decisions=False)
    for event in history[cut:]:
        shell.send(event)
        oracle.take(event)
    while unread(shell):
        shell.run_batch()
    whole = left(shell, 2)
    ahead.become(whole, before, whole.inherited(config, moves))
    ahead.record(decisions=False, known=before.standing)
    ahead.sent += whole.sent
    after.settings = replace(after.settings, earlier=frozenset({1}))
    after.topics, after.inputs, after.clock = shell.topics, shell.topics, shell.clock
    ends = {topic: len(shell.topic(topic)) for topic in (*EVENTS, "control", "links")}
    begin(after, ahead, tmp_path_factory.mktemp("life"), ends)
    oracle.standing = {(moves.get(b, b), c, i): where for (b, c, i), where in oracle.standing.items()}
    check_change(after, oracle)
    check_complete(after)
