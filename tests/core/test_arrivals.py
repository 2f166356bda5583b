"""The order in which a region takes arrivals: no channel is reordered, and nothing depends on how they were read."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lacuna.simulate import simulate
from state.config import parse
from state.protocol.arrivals import RANKS, Arrival, Channel, merge
from state.protocol.commands import Tick
from state.protocol.events import Context, Reject, Source, read
from state.protocol.messages import LOCAL
from state.routing.region import Region
from tests.core.histories import config_text

channels = st.builds(
    Channel, st.sampled_from(sorted(RANKS.values())), st.integers(0, 2), st.sampled_from("ab"), st.just("")
)
placed = st.tuples(channels, st.integers(0, 30))


def arrival(channel: Channel, offset: int, time: int) -> Arrival:
    return Arrival(channel, offset, time, "b0", LOCAL, Tick())


histories = st.dictionaries(placed, st.integers(0, 9), max_size=30).map(
    lambda some: [arrival(*place, time) for place, time in some.items()]
)


def running_maximum(some: list[Arrival]) -> dict[tuple[Channel, int], int]:
    """When each arrival counts as taken: by looking at all before it on its channel, one by one."""
    return {
        (one.channel, one.offset): max(
            other.time for other in some if other.channel == one.channel and other.offset <= one.offset
        )
        for one in some
    }


@given(histories)
def test_a_channel_is_never_reordered_and_loses_nothing(some: list[Arrival]) -> None:
    offsets: dict[Channel, list[int]] = defaultdict(list)
    for one in merge(some):
        offsets[one.channel].append(one.offset)
    assert all(those == sorted(those) for those in offsets.values())
    assert sorted((c, o) for c, those in offsets.items() for o in those) == sorted((a.channel, a.offset) for a in some)


@given(histories)
def test_time_is_the_running_maximum_of_its_channel_and_never_goes_back(some: list[Arrival]) -> None:
    merged = merge(some)
    assert {(one.channel, one.offset): one.time for one in merged} == running_maximum(some)
    times = [one.time for one in merged]
    assert times == sorted(times)


@given(histories)
def test_at_one_moment_the_rank_decides_then_partition_name_and_offset(some: list[Arrival]) -> None:
    merged = merge(some)
    assert merged == sorted(
        merged, key=lambda a: (a.time, a.channel.rank, a.channel.partition, a.channel.name, a.offset)
    )


@given(histories, st.randoms())
def test_the_order_of_reading_does_not_matter(some: list[Arrival], chance: Any) -> None:
    expected = merge(some)
    shuffled = list(some)
    chance.shuffle(shuffled)
    assert merge(shuffled) == expected
    assert merge(iter(shuffled)) == expected


def test_nothing_is_changed_but_the_time_of_a_late_arrival() -> None:
    topic = Channel(0, 0, "subscribe")
    early, late = arrival(topic, 1, 7), arrival(topic, 2, 3)
    assert merge([late, early]) == [early, late._replace(time=7)]
    assert merge([]) == []


def test_the_ranks_are_as_documented() -> None:
    assert sorted(RANKS, key=RANKS.__getitem__) == ["subscribe", "links", "publish", "unsubscribe", "control"]
    assert len(set(RANKS.values())) == len(RANKS)


def test_a_late_arrival_of_one_channel_does_not_wait_for_another() -> None:
    """Where Kafka's clock went back on one partition, those of others keep their own time."""
    one, other = Channel(0, 0, "a"), Channel(0, 1, "a")
    merged = merge([arrival(one, 0, 9), arrival(one, 1, 2), arrival(other, 0, 5), arrival(other, 1, 6)])
    assert [(a.channel.partition, a.offset, a.time) for a in merged] == [(1, 0, 5), (1, 1, 6), (0, 0, 9), (0, 1, 9)]


# Ties


CONFIG = parse(config_text([("b0", "b1")], '"union"'))
CONTEXT = Context(CONFIG.space, CONFIG.overlay.brokers)
NOON = "2026-05-01T12:00:00Z"
MOMENT = 1_777_636_800_000_000
SUBSCRIBE = {"id": "s", "client": "ann", "where": {}}
UNSUBSCRIBE = {"id": "s", "client": "ann"}
PUBLISH = {"id": "p", "at": {"x": 1, "y": 1, "colour": "red"}}
EVENTS: dict[str, dict[str, Any]] = {"subscribe": SUBSCRIBE, "unsubscribe": UNSUBSCRIBE, "publish": PUBLISH}
timed = pytest.mark.parametrize("said", [{}, {"time": NOON}], ids=["arrival", "time"])


def on_topic(kind: str, offset: int, time: int, said: dict[str, str]) -> Arrival:
    """An event as a topic has it."""
    source = Source(RANKS[kind], offset, f"0/{offset}", time)
    message = read(CONTEXT, kind, "b0", json.dumps(EVENTS[kind] | said).encode(), source)
    assert not isinstance(message, Reject), message
    return Arrival(Channel(RANKS[kind], 0, kind), offset, time, "b0", LOCAL, message)


def stands(region: Region) -> bool:
    return len(region.brokers["b0"].clients) == 1


@timed
@pytest.mark.parametrize("offsets", [(0, 0), (0, 9), (9, 0)])
def test_on_topics_an_unsubscribe_at_the_same_moment_is_later(offsets: tuple[int, int], said: dict[str, str]) -> None:
    """Whatever their offsets, in one step or in two, and whichever is read first."""
    both = [
        on_topic(kind, offset, MOMENT, said) for kind, offset in zip(("subscribe", "unsubscribe"), offsets, strict=True)
    ]
    for some in permutations(both):
        together, apart = Region("r", CONFIG.setups()), Region("r", CONFIG.setups())
        together.take(merge(some))
        for one in some:
            apart.take(merge([one]))
        assert not stands(together)
        assert not stands(apart)


@timed
def test_on_topics_a_publication_at_the_same_moment_is_delivered(said: dict[str, str]) -> None:
    for kinds in permutations(EVENTS):
        region = Region("r", CONFIG.setups())
        outcome = region.take(merge(on_topic(kind, 0, MOMENT, said) for kind in kinds))
        assert [publication.id for publication, *_ in outcome.deliveries_in_order()] == ["p"]


@pytest.mark.parametrize("seed", [None, 3])
@timed
def test_in_a_file_the_later_line_is_later(said: dict[str, str], seed: int | None) -> None:
    def lines(*kinds: str) -> list[bytes]:
        return [json.dumps({"kind": kind, "broker": "b0", **EVENTS[kind], **said}).encode() for kind in kinds]

    assert simulate(CONFIG, lines("subscribe", "unsubscribe", "publish"), seed=seed)["deliveries"] == 0
    assert simulate(CONFIG, lines("unsubscribe", "subscribe", "publish"), seed=seed)["deliveries"] == 1
    assert simulate(CONFIG, lines("publish", "subscribe"), seed=seed)["deliveries"] == 0
    again = lines("subscribe", "unsubscribe", "subscribe", "publish", "unsubscribe", "publish")
    assert simulate(CONFIG, again, seed=seed)["deliveries"] == 1
