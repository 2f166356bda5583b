"""The whole overlay as one region: a life begins with all that was asked for, however it is cut."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.protocol.arrivals import RANKS, Arrival, Channel
from state.protocol.frame import Frame, Letter, letter_of, read
from streaming.life import Folder, stored_of
from streaming.whole import DRAINED, NEW, Whole
from tests.core.histories import configs, events
from tests.core.shell import Record, Shell, forget, some_cut
from tests.core.test_shell import LINE, expected, publish, subscribe


class Taken(NamedTuple):
    """A record as Kafka's client gives it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


def taken(shell: Shell, *topics: str) -> list[Taken]:
    """The records of topics; times in milliseconds, as Kafka has them."""
    return [
        Taken(shell.settings.topics.of(topic), 0, offset, record.time // 1000, record.key or b"", record.value)
        for topic in topics
        for offset, record in enumerate(shell.topic(topic))
    ]


def begin(shell: Shell, whole: Whole, folder: Path, starts: dict[str, int]) -> None:
    """Let a shell begin the life that was prepared."""
    config = replace(shell.settings.config, lake=replace(shell.settings.config.lake, checkpoint=str(folder)))
    stored = stored_of(replace(shell.settings, config=config), 16, "a test", {}, seeded=True)
    lives = Folder(str(folder))
    lives.write(stored, whole.seed(), whole.sent)
    shell.settings = lives.settings(config, shell.settings.epoch)
    for topic, start in starts.items():
        shell.read[shell.settings.topics.of(topic)] = start
    for sent in whole.sent:
        shell.topic(sent.topic).append(Record(shell.clock, sent.key, sent.value))
    forget()


@settings(max_examples=25)
@given(st.data())
def test_a_first_life_begins_with_all_subscriptions_in_force(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever the cut, and although every publication was in the topic before the router began."""
    config, chance = data.draw(configs()), random.Random(data.draw(st.integers(0, 9)))
    shell = Shell(config, epoch=1, regions=some_cut(config, chance))
    history = [event for event in data.draw(events(config.overlay.brokers, most=20)) if event["kind"] != "publish"]
    shots = [publish(broker, f"p{broker}") for broker in config.overlay.brokers]
    for event in [*history, *shots]:
        shell.send(event)
    whole = Whole(shell.settings)
    whole.feed(taken(shell, "subscribe", "unsubscribe"))
    ends = {topic: len(shell.topic(topic)) for topic in ("subscribe", "unsubscribe")}
    begin(shell, whole, tmp_path_factory.mktemp("life"), ends)
    shell.run_batch()
    shell.check()
    shell.settle()
    assert sorted(shell.deliveries()) == expected([*history, *shots])
    assert {row["batch"] for row in shell.tables()["decisions"]} <= {DRAINED - 1}


@settings(max_examples=25)
@given(st.data())
def test_a_life_goes_on_from_the_state_of_another(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Stopped after any batch, with letters under way: joined, drained, cut in another way. Nothing lost or twice.

    Clients that want to be told how their events fared are told, also by the new life of what the old one began.
    """
    config, chance = data.draw(configs()), random.Random(data.draw(st.integers(0, 9)))
    old = Shell(config, epoch=1, regions=some_cut(config, chance))
    history = data.draw(events(config.overlay.brokers, most=15))
    for number, event in enumerate(history):
        old.send(event | {"ack": f"a{number}"})
        if data.draw(st.booleans()):
            old.settle()
    for _ in range(data.draw(st.integers(0, 3))):
        old.run_batch()
    new = successor(old, config, chance)
    whole = drained(old, new)
    read_to = {topic: old.read[old.settings.topics.of(topic)] for topic in ("subscribe", "unsubscribe", "publish")}
    begin(new, whole, tmp_path_factory.mktemp("life"), read_to | {"links": len(old.topic("links"))})
    new.settle()
    late = [publish(broker, f"late{broker}") for broker in config.overlay.brokers]
    for event in late:
        new.send(event)
    new.settle()
    new.check()
    owed = [delivery for delivery in expected([*history, *late]) if delivery[3].startswith("late")]
    assert sorted(d[:4] for d in deliveries(new) if d[3].startswith("late")) == owed
    assert len(deliveries(new)) == len(set(deliveries(new))), "nothing twice"
    told = {notice["ack"]: notice for notice in map(json.loads, (record.value for record in new.topic("notices")))}
    assert told.keys() == {f"a{number}" for number in range(len(history))}
    made = Counter(publication for _, _, _, publication, _ in deliveries(new))
    routed = [notice for notice in told.values() if notice["state"] == "routed"]
    assert all(notice["deliveries"] == made[notice["id"]] for notice in routed)


def successor(old: Shell, config: Any, chance: random.Random) -> Shell:
    new = Shell(config, epoch=2, regions=some_cut(config, chance))
    new.settings = replace(new.settings, earlier=frozenset({1}))
    new.topics, new.inputs, new.clock = old.topics, old.topics, old.clock
    return new


def drained(old: Shell, new: Shell) -> Whole:
    """Join the regions of a shell, and let them take the letters under way."""
    regions = [old.region(part.name) for part in old.settings.parts]
    sent = {sender.channel: sender.number for region in regions for sender in region.senders.values()}
    whole = Whole(new.settings, regions)
    whole.record(decisions=True)
    whole.drain(letters(old), old.batch)
    assert all(sent[channel] == number for channel, number in whole.received.items())
    return whole


def letters(old: Shell) -> list[Arrival]:
    found = []
    for offset, record in enumerate(old.topic("links")[old.read[old.settings.topics.links] :]):
        frame = read(record.value)
        assert isinstance(frame, Frame)
        letter, channel = letter_of(frame), (record.key or b"").decode()
        assert isinstance(letter, Letter)
        origin, broker = channel.split(">")
        found.append(Arrival(Channel(RANKS["links"], 0, channel), offset, old.clock, broker, origin, letter))
    return found


def deliveries(shell: Shell) -> list[tuple[Any, ...]]:
    """Deliveries of all lives, without repeats."""
    seen, found = set(), []
    for record in shell.topic("deliveries"):
        d = json.loads(record.value)
        if (key := (d["epoch"], d["channel"], d["seq"])) not in seen:
            seen.add(key)
            found.append((d["broker"], d["client"], d["subscription"], d["publication"], d["publication_key"]))
    return found


def test_a_prologue_has_a_channel_of_its_own() -> None:
    shell = Shell(LINE, epoch=5)
    shell.send(subscribe("b0", "s1"))
    whole = Whole(shell.settings)
    whole.feed(taken(shell, "subscribe"))
    frames = [read(sent.value) for sent in whole.sent]
    assert [f.content.channel for f in frames if isinstance(f, Frame)] == [NEW] * len(frames)
    assert [f.content.number for f in frames if isinstance(f, Frame)] == list(range(1, len(frames) + 1))
    assert {f.content.epoch for f in frames if isinstance(f, Frame)} == {5}
    assert {sent.topic for sent in whole.sent} == {"records"}
