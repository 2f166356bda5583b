"""The table of situations: what is found before anything is started, and what that means. One test per row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from access.offsets import Span
from state.config import parse
from state.errors import StateError
from state.protocol.channel import Sender
from state.protocol.commands import Apply
from state.protocol.control import Beat, Claim, Life, Lives, Prefix
from streaming.apply import is_fed, life_to_leave, losses, moves_left, starts_of
from streaming.begin import EARLIEST
from streaming.evidence import Begin, Continue, Facts, Held, Mark, Refusal, mark_of, verdict
from streaming.life import FORMAT, Stored, stored_of
from streaming.settings import settle
from streaming.stops import ROUTER
from tests.core.histories import config_text

CONFIG = parse(config_text([("b0", "b1")], '"auto"'))
IDS = {"publish": "A", "subscribe": "B", "links": "C", "control": "D", "records": "E", "unsubscribe": "F"}
OFFSETS = {"publish": {"0": 10}, "subscribe": {"0": 4}}
SPANS = {("publish", 0): Span(0, 12), ("subscribe", 0): Span(0, 4), ("links", 0): Span(3, 9)}


def stored(epoch: int, format: int = FORMAT) -> Stored:
    made = stored_of(settle(CONFIG, epoch, 2), 2, "a test", IDS, seeded=False)
    return msgspec.structs.replace(made, format=format)


def held(epoch: int, committed: int = 5, planned: int = 5) -> Held:
    return Held(stored(epoch), committed, planned, OFFSETS if committed >= 0 else {})


def announced(*epochs: int, beat: Beat | None = None) -> Prefix:
    lives = Lives(tuple(Life(1, epoch, "a test") for epoch in epochs), tuple(range(2, 2 + len(epochs))))
    return Prefix(Claim(None, "ann", "here"), 1, beat=beat, lives=lives)


def facts(**given: Any) -> Facts:
    """A system that was stopped: life 3 is announced and in the folder, and Kafka has what it wrote."""
    usual = Facts("checkpoint", announced(3), {3: held(3)}, SPANS, IDS, frozenset({Mark(3, 5)}))
    return replace(usual, **given)


def refused(found: Facts) -> str:
    judged = verdict(found)
    assert isinstance(judged, Refusal), judged
    message = str(judged.error)
    assert "checkpoint" in message and "Remedy: " in message and "Nothing was started" in message
    return judged.situation


def test_fresh_prefix() -> None:
    assert verdict(facts(prefix=Prefix(), lives={}, marks=frozenset())) == Begin()


def test_fresh_prefix_whose_first_start_was_killed_before_the_announcement() -> None:
    assert verdict(facts(prefix=Prefix(), lives={1: held(1, -1, -1)}, marks=frozenset())) == Begin()


@pytest.mark.parametrize(("committed", "planned", "seen"), [(5, 5, 5), (5, 6, 6), (5, 6, 5), (-1, -1, -1), (-1, 0, 0)])
def test_restart_or_crash(committed: int, planned: int, seen: int) -> None:
    marks = frozenset({Mark(3, seen), Mark(2, 900)})
    assert verdict(facts(lives={3: held(3, committed, planned)}, marks=marks)) == Continue(3)


def test_a_checkpoint_of_an_earlier_version_is_announced() -> None:
    old = replace(held(1700), stored=stored(1700, FORMAT - 1))
    found = facts(prefix=Prefix(), lives={1700: old}, marks=frozenset({Mark(1700, 5)}))
    assert verdict(found) == Continue(1700, announces=True)


def test_killed_apply() -> None:
    assert verdict(facts(lives={3: held(3), 4: held(4, -1, -1)})) == Continue(3, removes=(4,))


def test_the_life_that_was_left_goes_when_the_new_one_works() -> None:
    assert verdict(facts(lives={2: held(2), 3: held(3)}, prefix=announced(2, 3))) == Continue(3, removes=(2,))
    begun = {2: held(2), 3: held(3, -1, 0)}
    assert verdict(facts(lives=begun, prefix=announced(2, 3), marks=frozenset())) == Continue(3)


@pytest.mark.parametrize("seen", [{"marks": frozenset({Mark(3, 6)})}, {"prefix": announced(3, beat=Beat(1, 3, 6))}])
def test_restored_copy(seen: dict[str, Any]) -> None:
    assert refused(facts(**seen)) == "restored copy"


def test_restored_copy_of_an_earlier_life() -> None:
    assert refused(facts(prefix=announced(3, 4))) == "restored copy"


def test_a_tick_of_another_life_says_nothing() -> None:
    assert verdict(facts(prefix=announced(3, beat=Beat(1, 2, 900)))) == Continue(3)


def test_lost_checkpoint_or_another_directory() -> None:
    assert refused(facts(lives={})) == "checkpoint lost"


def test_the_routers_part_of_the_checkpoint_is_lost() -> None:
    assert refused(facts(lives={3: held(3, -1, -1)})) == "checkpoint lost"


@pytest.mark.parametrize(("lives", "epoch"), [({}, 3), ({3: held(3)}, 4), ({2: held(2)}, 3)])
def test_damaged_checkpoint(lives: dict[int, Held], epoch: int) -> None:
    assert refused(facts(lives=lives, damaged={epoch: "checkpoint/lives/3/life.json (broken)"})) == "checkpoint damaged"


def test_a_damaged_life_that_was_left_is_removed() -> None:
    assert verdict(facts(prefix=announced(2, 3), damaged={2: "broken"})) == Continue(3, removes=(2,))


def test_kafka_rolled_back() -> None:
    assert refused(facts(spans=SPANS | {("publish", 0): Span(0, 9)})) == "Kafka rolled back"


@pytest.mark.parametrize("prefix", [Prefix(), announced(2)])
def test_kafka_rolled_back_before_the_announcement(prefix: Prefix) -> None:
    assert refused(facts(prefix=prefix)) == "Kafka rolled back"


def test_topic_made_again() -> None:
    assert refused(facts(ids=IDS | {"publish": "new"})) == "topic made again"
    assert verdict(facts(ids={})) == Continue(3), "a Kafka without ids"


def test_lost_range() -> None:
    assert refused(facts(spans=SPANS | {("publish", 0): Span(11, 12)})) == "lost range"
    assert verdict(facts(spans=SPANS | {("publish", 0): Span(10, 12), ("publish", 1): Span(5, 9)})) == Continue(3)


def test_changed_configuration() -> None:
    assert refused(facts(differs="partitions was 2 and is 4")) == "changed configuration"


def test_every_situation_is_caused_by_a_test() -> None:
    """The tests above are these; a new situation needs one too."""
    assert set(ROUTER) == {
        *("restored copy", "checkpoint lost", "Kafka rolled back", "topic made again", "lost range"),
        *("changed configuration", "checkpoint damaged"),
        "other topics",  # see test_life
    }


def test_the_next_epoch_is_above_everything_that_is_known() -> None:
    assert facts().highest == 3
    assert facts(marks=frozenset({Mark(9, 1)}), lives={12: held(12)}).highest == 12
    assert facts(prefix=Prefix(), lives={}, marks=frozenset()).highest == 0


def test_a_record_of_the_router_names_its_life_and_batch() -> None:
    assert mark_of(Sender("b0>b1", 7).frame("letter", b"", 3)) == Mark(7, 3)
    assert mark_of(b'{"client": "ann", "epoch": 7, "batch": 4}') == Mark(7, 4)
    assert [mark_of(value) for value in (None, b"", b"gossip", b'{"epoch": 7}', b"[1]")] == [None] * 5


# The life that `apply` leaves


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, 3),
        ({"lives": {2: held(2), 3: held(3)}}, 3),
        ({"lives": {3: held(3), 4: held(4, -1, -1)}}, 3),  # a killed `apply`
        ({"lives": {2: held(2), 3: held(3, -1, -1)}, "marks": frozenset()}, 3),  # announced, and nothing done yet
        ({"lives": {2: held(2), 3: held(3, -1, 0)}, "marks": frozenset({Mark(3, 0)})}, 3),  # killed in its first batch
        ({"lives": {2: held(2)}}, 2),  # a copy
        ({"prefix": announced(2), "lives": {2: held(2), 3: held(3)}}, 3),  # Kafka was rolled back
    ],
)
def test_the_life_that_is_left(given: dict[str, Any], left: int) -> None:
    assert life_to_leave(facts(**given))[0] == left


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lives": {}}, "life 3 was announced, is not whole in this folder, and was last run with here: the router's"),
        ({"lives": {2: held(2), 3: held(3, -1, -1)}, "marks": frozenset({Mark(3, 5)})}, "life 3 .* is not whole"),
        ({"prefix": Prefix(), "lives": {}}, "there is no life here"),
        ({"damaged": {3: "life.json (broken)"}, "lives": {2: held(2)}}, r"life.json \(broken\): a file .* is damaged"),
    ],
)
def test_a_life_that_cannot_be_left_is_no_reason_to_leave_an_older_one(given: dict[str, Any], says: str) -> None:
    with pytest.raises(StateError, match=f"{says}.*Remedy: .*lacuna apply --from topics"):
        life_to_leave(facts(**given))


def test_a_life_that_has_just_begun_is_left_where_it_begins() -> None:
    begun = replace(held(3, -1, -1), stored=msgspec.structs.replace(stored(3), starts={"publish": {"0": 7}}))
    assert starts_of(facts(lives={3: begun}), 3, begun)["publish"] == {"0": 7}
    assert losses(facts(lives={3: begun}, spans={("publish", 0): Span(9, 12)}), begun) == [
        "publish, partition 0, offsets 7 to 8"
    ]
    first = replace(begun, stored=msgspec.structs.replace(stored(3), starts={"publish": {"0": EARLIEST}}))
    assert starts_of(facts(lives={3: first}, spans={("publish", 0): Span(9, 12)}), 3, first)["publish"] == {"0": 9}
    assert losses(facts(lives={3: first}, spans={("publish", 0): Span(9, 12)}), first) == []


def test_a_move_that_was_done_is_not_done_again() -> None:
    lives = Lives((Life(1, 3, "apply", aliases={"b9": "b0"}),), (2,))
    done = facts(prefix=Prefix(Claim(None, "ann", "here"), 1, lives=lives))
    assert moves_left(done, Apply(moves={"b9": "b0", "b8": "b1"})) == {"b8": "b1"}
    assert not is_fed(done, CONFIG, Apply(moves={"b9": "b0"})) and is_fed(done, CONFIG, Apply(moves={"b9": "b1"}))
