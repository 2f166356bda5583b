"""Lives without Kafka and Spark: copies taken and restored at any step, two routers at once, foreign records between.

The world is a control log and topics as lists. A start claims the prefix, gathers the facts, and does what the verdict
says; a refusal's own remedy is followed. A router that was succeeded may wake up and write whatever it likes. All of it
is judged by the product's own functions (`fold`, `verdict`, `judge`, `letters_of`), and the deliveries that a client
would take are compared with brute force.
"""

from __future__ import annotations

import random
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from access.offsets import Span
from state.config import Config
from state.protocol import control
from state.protocol.control import CLAIM, TICK, Beat, Claim, Life, Offsets, Prefix, fold, life_key
from state.protocol.topics import Topics
from streaming.apply import letters_of, life_to_leave, starts_of
from streaming.evidence import WRITTEN, Begin, Continue, Facts, Held, Refusal, mark_of, verdict
from streaming.life import stored_of
from streaming.stops import APPLY_TOPICS
from streaming.whole import NOT_AGAIN, Whole
from tests.core.histories import configs, points, ranges
from tests.core.oracle import Oracle
from tests.core.overlay import spread_out
from tests.core.shell import INPUTS, Shell, forget
from tests.core.test_shell import some_cut
from tests.core.test_whole import begin, taken

Folder = dict[int, Shell]
"""The lives in a checkpoint's folder."""
EVENTS = ("subscribe", "unsubscribe", "publish")


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    spread_out(monkeypatch)


def copied(folder: Folder) -> Folder:
    """A copy of the folder; topics are not in it."""
    lives = {}
    for epoch, life in folder.items():
        lives[epoch] = copy(life)
        lives[epoch].stored, lives[epoch].read = dict(life.stored), copy(life.read)
    return lives


class World:
    """One prefix, whoever runs on it. `router` is the life that runs, None if nobody does."""

    def __init__(self, config: Config, chance: random.Random, path: Path) -> None:
        self.config, self._chance, self._path = config, chance, path
        self.client = Shell(config)
        self.oracle, self.owed = Oracle({"colour"}), set[tuple[str, ...]]()
        self.folder: Folder = {}
        self.copies: list[Folder] = []
        self.zombies: list[Shell] = []
        self.router: Shell | None = None
        self.term: int | None = None
        self.begins: list[int] = []  # of the running life: where each batch began to read publications

    # clients

    def send(self, event: dict[str, Any]) -> None:
        self.client.send(event)
        self.owed |= set(self.oracle.take(event))

    # the control topic

    def prefix(self) -> Prefix:
        records = self.client.topic("control")
        return fold(control.Record(k, record.time, record.key, record.value) for k, record in enumerate(records))

    def append(self, key: str, value: Claim | Life | Beat) -> int:
        self.client.put("control", key.encode(), control.write(value))
        return len(self.client.topic("control")) - 1

    def tick(self, router: Shell) -> None:
        """As the service does: publications so many batches before that none is under way between regions."""
        hops = len(router.settings.parts)
        before = self.begins[-hops - 1 :][0] if self.begins else router.settings.starts["publish"]["0"]
        offsets = {topic: {"0": router.read[router.settings.topics.of(topic)]} for topic in INPUTS}
        beat = Beat(self.term or 0, router.settings.epoch, router.batch - 1, offsets | {"publish": {"0": before}})
        self.append(TICK, beat)

    # a router

    def run_batch(self, **options: Any) -> None:
        if self.router is not None:
            self.begins.append(self.router.read[self.router.settings.topics.publish])
            self.router.clock = self.client.clock
            self.router.run_batch(**options)

    def settle(self) -> None:
        while self.router is not None and self.router.waiting():
            self.run_batch()

    def stop(self) -> None:
        """Stop without a word, as a kill does; the folder stays."""
        self.router, self.term, self.begins = None, None, []
        forget()

    def start(self) -> None:
        """Claim the prefix, look, and do what the verdict, or the remedy of a refusal, says."""
        self.term = self.append(f"{CLAIM}{len(self.client.topic('control'))}", Claim(self.prefix().term, "me", "here"))
        facts = self.facts()
        found = verdict(facts)
        if isinstance(found, Continue):
            for epoch in found.removes:
                del self.folder[epoch]
            self.router = self.folder[found.epoch]
        elif isinstance(found, Refusal) and not str(found.error).endswith(APPLY_TOPICS):
            self.from_state(facts)
        else:
            assert isinstance(found, Begin | Refusal)
            self.from_topics(facts)

    def facts(self) -> Facts:
        topics = Topics(self.config.kafka.prefix)
        spans = {(t, 0): Span(0, len(self.client.topic(t))) for t in {*INPUTS, *WRITTEN}}
        marks = [mark_of(record.value) for topic in WRITTEN for record in self.client.topics[topics.of(topic)]]
        lives = {epoch: self.held(life) for epoch, life in sorted(self.folder.items())}
        return Facts("here", self.prefix(), lives, spans, {}, frozenset(mark for mark in marks if mark))

    def held(self, life: Shell) -> Held:
        offsets: Offsets = {topic: {"0": life.read[life.settings.topics.of(topic)]} for topic in INPUTS}
        stored = stored_of(life.settings, 16, "a test", {}, seeded=life.settings.seeded)
        return Held(stored, life.batch - 1, life.batch - 1, offsets)

    # a new life

    def from_state(self, facts: Facts) -> None:
        epoch, held = life_to_leave(facts)
        left, new = self.folder[epoch], self.successor(facts)
        regions = [left.region(part.name) for part in left.settings.parts]
        sent = {sender.channel: sender.number for region in regions for sender in region.senders.values()}
        whole = Whole(new.settings, regions)
        whole.record(decisions=True)
        unread = taken(self.client, "links")[left.read[left.settings.topics.links] :]
        whole.drain(letters_of(unread, left.settings, sent, whole.clock), left.batch)
        assert all(sent[channel] == number for channel, number in whole.received.items())
        self.announce(new, whole, starts_of(facts, held))

    def from_topics(self, facts: Facts) -> None:
        new, beat = self.successor(facts), facts.prefix.beat
        starts: Offsets = {topic: {"0": facts.spans[topic, 0].next} for topic in INPUTS}
        starts["publish"] = starts["control"] = {"0": 0}
        if beat is not None:
            starts |= {topic: beat.offsets[topic] for topic in EVENTS}
        whole = Whole(new.settings)
        requests = [taken(self.client, topic)[: starts[topic]["0"]] for topic in ("subscribe", "unsubscribe")]
        recorded = beat is not None
        whole.feed([record for records in requests for record in records], without=NOT_AGAIN if recorded else ())
        if recorded:
            whole.record(decisions=False)
        self.announce(new, whole, starts)

    def successor(self, facts: Facts) -> Shell:
        new = Shell(self.config, epoch=facts.highest + 1, regions=some_cut(self.config, self._chance))
        earlier = frozenset({*self.folder, *(life.epoch for life in facts.prefix.lives.announced)})
        new.settings = replace(new.settings, earlier=earlier)
        new.topics, new.inputs = self.client.topics, self.client.topics
        new.clock = self.client.clock
        return new

    def announce(self, new: Shell, whole: Whole, starts: Offsets) -> None:
        assert self.term is not None
        epoch = new.settings.epoch
        ends: Offsets = {topic: {"0": len(self.client.topic(topic))} for topic in WRITTEN}
        self.append(f"{life_key(Life(self.term, epoch, '', {}))}", Life(self.term, epoch, "a test", ends))
        starts["links"] = ends["links"]
        new.settings = replace(new.settings, starts=starts)
        begin(new, whole, self._path / f"{epoch}", {topic: start["0"] for topic, start in starts.items()})
        self.folder[epoch] = self.router = new
        self.begins = []

    # what a client takes

    def deliveries(self) -> list[tuple[int, tuple[str, ...]]]:
        """Epoch and content of each delivery that counts, without repeats."""
        lives, marks = self.prefix().lives, dict[tuple[int, str], int]()
        found: list[tuple[int, tuple[str, ...]]] = []
        for offset, record in enumerate(self.client.topic("deliveries")):
            d = msgspec.json.decode(record.value)
            place = (d["epoch"], d["channel"])
            if lives.judge(d["epoch"], "deliveries", 0, offset) == "valid" and d["seq"] > marks.get(place, 0):
                assert d["seq"] == marks.get(place, 0) + 1, "no gap"
                marks[place] = d["seq"]
                found.append((d["epoch"], (d["broker"], d["client"], d["subscription"], d["publication"])))
        return found


STEPS = (*("publish", "batch") * 2, "crash", "copy", "restore", "lose", "zombie", "wake", "kill", "garbage")


def do(step: str, world: World, number: int, data: st.DataObject) -> None:
    broker = data.draw(st.sampled_from(world.config.overlay.brokers))
    if step == "publish":
        world.send({"kind": "publish", "broker": broker, "id": f"p{number}", "at": data.draw(points())})
    elif step == "batch":
        world.run_batch()
    elif step == "crash":
        world.run_batch(crashes=1, shuffle=random.Random(number))
    elif step == "copy":
        world.copies.append(copied(world.folder))
    elif step == "garbage":
        channel = data.draw(st.sampled_from(["b0>b1", "b1>b0", "nobody"]))
        world.client.put(data.draw(st.sampled_from(["links", "control"])), channel.encode(), b"not Lacuna's")
    elif step == "wake" and world.zombies:
        data.draw(st.sampled_from(world.zombies)).run_batch()
        forget()
    elif step in ("restore", "lose", "zombie", "kill"):
        begin_again(step, world)
    if world.router is not None and data.draw(st.booleans()):
        world.tick(world.router)


def begin_again(step: str, world: World) -> None:
    """The running router is gone, or sleeps with its folder, and another is started: with that folder or another."""
    if step == "zombie" and world.router is not None:
        world.zombies.append(copied({0: world.router})[0])
        world.folder = copied(world.copies[-1]) if world.copies else {}
    elif step == "restore" and world.copies:
        world.folder = copied(world.copies[-1])
    elif step == "lose":
        world.folder = {}
    world.stop()
    world.start()


@settings(max_examples=40)
@given(st.data())
def test_whatever_happens_to_lives_nothing_is_lost_and_nothing_invented(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Subscriptions stand before and are let alone: every publication reaches all whom it matches, once in a life.

    At the end, in the life that is left, publications are delivered exactly once and nothing is lost for later.
    """
    config, chance = data.draw(configs()), random.Random(data.draw(st.integers(0, 99)))
    world = World(config, chance, tmp_path_factory.mktemp("lives"))
    for k in range(data.draw(st.integers(1, 6))):
        broker = data.draw(st.sampled_from(config.overlay.brokers))
        world.send(
            {"kind": "subscribe", "broker": broker, "client": "ann", "id": f"s{k}", "where": data.draw(ranges())}
        )
    world.start()
    world.settle()
    for number, step in enumerate(data.draw(st.lists(st.sampled_from(STEPS), max_size=14))):
        do(step, world, number, data)
    world.settle()
    assert {delivery for _, delivery in world.deliveries()} == world.owed
    assert len(world.deliveries()) == len(set(world.deliveries())), "nothing twice in a life"
    router = world.router
    assert router is not None
    router.check()
    before = len(world.deliveries())
    for broker in config.overlay.brokers:
        world.send({"kind": "publish", "broker": broker, "id": f"late {broker}", "at": data.draw(points())})
    world.settle()
    late = [delivery for _, delivery in world.deliveries()[before:]]
    assert sorted(late) == sorted(delivery for delivery in world.owed if delivery[3].startswith("late"))
