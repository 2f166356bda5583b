"""What stands under one configuration stands under another: overlay, strategies and space change, nothing is lost."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import Config, parse
from state.routing.carry import Inherited
from streaming.apply import letters_of
from streaming.whole import LEFT, Whole
from tests.core.histories import config_text, configs, events, space_text
from tests.core.oracle import Oracle
from tests.core.overlay import spread_out
from tests.core.shell import Shell, forget, some_cut
from tests.core.test_shell import LINE, publish, subscribe, unsubscribe
from tests.core.test_whole import begin, taken

LINKS = [("b0", "b1"), ("b1", "b2")]
SHORTER = parse(config_text(LINKS[1:], '"auto"').replace('["b0"]', '["b1"]'))
EVENTS = ("subscribe", "unsubscribe", "publish")


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    spread_out(monkeypatch)


def left(old: Shell, epoch: int) -> Whole:
    """The whole of a life that has ended, with everything that was under way taken."""
    regions = [old.region(part.name) for part in old.settings.parts]
    sent = {sender.channel: sender.number for region in regions for sender in region.senders.values()}
    whole = Whole(replace(old.settings, epoch=epoch), regions, LEFT)
    unread = taken(old, "links")[old.read[old.settings.topics.links] :]
    whole.drain(letters_of(unread, old.settings, sent, whole.clock), old.batch, without=("decisions",))
    return whole


def changed(
    old: Shell, new: Config, folder: Path, moves: Mapping[str, str] = MappingProxyType({}), regions: Any = None
) -> Shell | list[str]:
    """The shell of the next life, under another configuration; or what is refused."""
    epoch = old.settings.epoch + 1
    after, whole = Shell(new, epoch=epoch, regions=regions), left(old, epoch)
    what = whole.inherited(new, moves)
    if what.refused:
        return what.refused
    after.settings = replace(after.settings, earlier=frozenset({old.settings.epoch}))
    after.topics, after.inputs, after.clock = old.topics, old.topics, old.clock
    fed = Whole(after.settings)
    fed.become(whole, Inherited(), what)
    fed.record(decisions=False)
    fed.sent += whole.sent
    ends = {topic: len(old.topic(topic)) for topic in (*EVENTS, "control", "links")}
    begin(after, fed, folder, ends)
    return after


def deliveries_of(shell: Shell, epoch: int, beginning: str) -> list[tuple[str, ...]]:
    """The deliveries of a life, without repeats, of publications whose ids begin so."""
    records = [msgspec.json.decode(record.value) for record in shell.topic("deliveries")]
    once = {(d["channel"], d["seq"]): d for d in records if d["epoch"] == epoch}
    found = [(d["broker"], d["client"], d["subscription"], d["publication"]) for d in once.values()]
    return sorted(one for one in found if one[3].startswith(beginning))


def unread(shell: Shell) -> bool:
    topics = [shell.settings.topics.of(topic) for topic in EVENTS]
    return any(shell.read[topic] < len(shell.topics[topic]) for topic in topics)


@settings(max_examples=40)
@given(st.data())
def test_whatever_the_overlay_and_the_strategies_become_the_same_stands(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """With letters under way when it changes; and back to the first configuration, a change like any other."""
    one, two = data.draw(configs()), data.draw(configs())
    chance, oracle = random.Random(data.draw(st.integers(0, 99))), Oracle({"colour"})
    shell = Shell(one, epoch=1, regions=some_cut(one, chance))
    for event in data.draw(events(one.overlay.brokers, most=15)):
        shell.send(event)
        oracle.take(event)
    while unread(shell):
        shell.run_batch(most=data.draw(st.integers(1, 9)))
    for config in (two, one):
        gone = [broker for broker in shell.settings.config.overlay.brokers if broker not in config.overlay.brokers]
        moves = {broker: data.draw(st.sampled_from(config.overlay.brokers)) for broker in gone}
        after = changed(shell, config, tmp_path_factory.mktemp("life"), moves, some_cut(config, chance))
        if isinstance(after, list):
            assert moves and all("would stand twice" in refusal for refusal in after)
            return
        oracle.standing = {(moves.get(b, b), c, i): where for (b, c, i), where in oracle.standing.items()}
        check_change(after, oracle)
        shell = after


def check_change(shell: Shell, oracle: Oracle) -> None:
    """The rules hold, and publications of every broker reach exactly whom they match."""
    shell.settle()
    shell.check()
    owed = []
    for k, broker in enumerate(shell.settings.config.overlay.brokers):
        event = publish(broker, f"late {k}")
        shell.send(event)
        owed += oracle.take(event)
    shell.settle()
    assert deliveries_of(shell, shell.settings.epoch, "late") == sorted(owed)


@pytest.mark.parametrize("ends", [("b0", "b2"), ("b2", "b0")], ids=["down", "up"])
def test_no_letter_under_way_overtakes_another(tmp_path: Path, ends: tuple[str, str]) -> None:
    """One end's cancellation and the middle's letter about the subscription are both under way."""
    shell = Shell(LINE, epoch=1, regions=(("b0",), ("b1",), ("b2",)))
    shell.send(subscribe(ends[0], "s"))
    shell.run_batch()
    shell.send(unsubscribe(ends[0], "s"))
    shell.run_batch()
    waiting = taken(shell, "links")[shell.read[shell.settings.topics.links] :]
    assert {record.key.decode() for record in waiting} == {f"{ends[0]}>b1", f"b1>{ends[1]}"}
    after = changed(shell, LINE, tmp_path)
    assert isinstance(after, Shell)
    check_change(after, Oracle({"colour"}))


def test_pending_work_waits_for_the_letters_under_way(tmp_path: Path) -> None:
    """A broker sends nothing of its own accord that its neighbour must hear after a letter that is under way."""
    shell = Shell(LINE, epoch=1, regions=(("b0",), ("b1",), ("b2",)))
    leaning = [subscribe("b0", f"s{k}", where={"x": [k, k]}) for k in range(4)]
    others = [subscribe("b1", f"s{k}", where={"y": [k, k]}) for k in range(4)]
    oracle = Oracle({"colour"})
    for event in (*others, subscribe("b0", "big"), *leaning, unsubscribe("b0", "big")):
        shell.send(event)
        oracle.take(event)
    shell.run_batch()
    assert shell.region("b0").working
    after = changed(shell, LINE, tmp_path)
    assert isinstance(after, Shell)
    check_change(after, oracle)


def test_what_is_due_waits_for_the_letters_under_way(tmp_path: Path) -> None:
    """A region that has heard nothing for long is joined with others, whose clock is later."""
    shell = Shell(LINE, epoch=1, regions=(("b0",), ("b1",), ("b2",)))
    shell.send(subscribe("b0", "ends", ttl=1))
    shell.send(subscribe("b1", "s"))
    shell.run_batch()
    shell.clock += 5_000_000
    shell.send(subscribe("b2", "s"))
    here = shell.settings.topics.links
    links, shell.topics[here] = shell.topics[here], shell.topics[here][: shell.read[here]]
    shell.run_batch()
    shell.topics[here] = links + shell.topics[here][shell.read[here] :]
    assert shell.region("b2").clock > shell.region("b0").clock + 1_000_000
    after = changed(shell, LINE, tmp_path)
    assert isinstance(after, Shell)
    after.put("control", b"tick", b"")  # as the announcement of a life is
    oracle = Oracle({"colour"})
    for broker in ("b1", "b2"):
        oracle.take(subscribe(broker, "s"))
    check_change(after, oracle)


# The space


def with_space(text: str) -> Config:
    return parse(config_text(LINKS, '"auto"').replace(space_text(), f"[space]\n{text}\n"))


X = 'x = {kind = "int", low = 0, high = 7}\n'
Y = 'y = {kind = "int", low = 0, high = 7}\n'
COLOUR = 'colour = {kind = "category", values = ["blue", "green", "red"]}'
OPEN = {"x": [5, None], "colour": ["red"]}


@pytest.mark.parametrize(
    ("space", "at", "reached"),
    [
        (X.replace("7", "99") + Y + COLOUR, {"x": 50, "y": 1, "colour": "red"}, ["all", "open"]),
        (X + Y + COLOUR.replace('"red"', '"grey", "red"'), {"x": 6, "y": 1, "colour": "red"}, ["all", "open"]),
        (X + Y + COLOUR.replace('"red"', '"grey", "red"'), {"x": 6, "y": 1, "colour": "grey"}, ["all"]),
        (COLOUR + "\n" + Y + X, {"x": 6, "y": 1, "colour": "red"}, ["all", "open"]),
        (
            X + Y + COLOUR.replace('"red"]', '"crimson"], renamed = {red = "crimson"}'),
            {"x": 6, "y": 1, "colour": "crimson"},
            ["all", "open"],
        ),
        (
            X + Y + COLOUR.replace('"red"]', '"crimson"], renamed = {red = "crimson"}'),
            {"x": 6, "y": 1, "colour": "red"},
            ["all", "open"],
        ),
        (
            X + Y + COLOUR + '\nz = {kind = "float", low = 0.0, high = 1.0, default = 0.5}',
            {"x": 6, "y": 1, "colour": "red"},
            ["all", "open"],
        ),
    ],
    ids=["widened", "added value", "the added value", "reordered", "renamed", "by its old name", "added attribute"],
)
def test_the_space_changes(tmp_path: Path, space: str, at: dict[str, Any], reached: list[str]) -> None:
    shell = Shell(LINE, epoch=1)
    for event in (subscribe("b0", "open", where=OPEN), subscribe("b2", "all"), subscribe("b1", "gone")):
        shell.send(event)
    shell.send(unsubscribe("b1", "gone"))
    shell.settle()
    after = changed(shell, with_space(space), tmp_path)
    assert isinstance(after, Shell)
    after.put("control", b"tick", b"")  # as the announcement of a life is
    after.send(publish("b1", "p") | {"at": at})
    after.settle()
    assert [one[2] for one in sorted(deliveries_of(after, 2, "p"), key=lambda one: one[2])] == reached
    ledgers = [each.region(b).brokers[b].ledger for b in ("b0", "b1") for each in (shell, after)]
    assert ledgers[0].standing == ledgers[1].standing and ledgers[2].ended == ledgers[3].ended != {}


@pytest.mark.parametrize(
    ("config", "moves", "says"),
    [
        (with_space(X.replace("7", "6") + Y + COLOUR), {}, r's of ann at b0 asks for {"x":\[5,7\]}: .*domain.*Remedy'),
        (with_space(Y + COLOUR), {}, r"'x' is not an attribute.*Remedy: keep what it asks for in the space"),
        (
            parse(config_text(LINKS[1:], '"auto"').replace('["b0"]', '["b1"]')),
            {},
            r"b0 has 1 subscriptions.*--move b0=",
        ),
        (parse(config_text(LINKS, '"auto"')), {"b0": "b9"}, r"--move b0=b9: b9 is not a broker of the new overlay"),
        (
            parse(config_text(LINKS, '"auto"')),
            {"b9": "b0"},
            r"--move b9=b0: b9 is not a broker of the overlay as it is",
        ),
        (parse(config_text(LINKS, '"auto"')), {"b0": "b1"}, r"--move b0=b1: b0 stays a broker.*Remedy: take b0 out"),
        (SHORTER, {"b0": "b1"}, r"s of ann would stand twice at b1"),
    ],
    ids=[
        "narrowed",
        "removed attribute",
        "removed broker",
        "moved nowhere",
        "moved from nowhere",
        "stays",
        "collision",
    ],
)
def test_what_cannot_be_carried_is_refused(tmp_path: Path, config: Config, moves: dict[str, str], says: str) -> None:
    shell = Shell(LINE, epoch=1)
    for broker in ("b0", "b1"):
        shell.send(subscribe(broker, "s", where={"x": [5, 7]}))
    shell.settle()
    refused = changed(shell, config, tmp_path, moves)
    assert isinstance(refused, list) and any(re.search(says, refusal) for refusal in refused), refused


def test_ends_are_kept_in_the_order_of_their_arrival(tmp_path: Path) -> None:
    """Of two brokers that become one; what expires does so under the new configuration."""
    shell = Shell(LINE, epoch=1)
    for event in (subscribe("b0", "a"), subscribe("b1", "b", ttl=60), unsubscribe("b1", "c"), unsubscribe("b0", "a")):
        shell.send(event)
    shell.settle()
    after = changed(shell, SHORTER, tmp_path, {"b0": "b1"})
    assert isinstance(after, Shell)
    after.put("control", b"tick", b"")  # as the announcement of a life is
    after.settle()
    after.check()
    assert [name.id for name in after.region("b1").brokers["b1"].ledger.ended] == ["c", "a"]
    after.clock += 61_000_000
    after.put("control", b"tick", b"")
    after.settle()
    assert list(after.region("b1").brokers["b1"].ledger.standing) == []
