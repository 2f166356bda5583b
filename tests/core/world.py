"""Lives without Kafka and Spark, and a storm over them: every step of a history is followed by a fault.

The world is a control log and topics as lists. A start claims the prefix, gathers the facts, and does what the verdict
says; a refusal's own remedy is followed. A router that was succeeded may wake up and write whatever it likes. All of it
is judged by the product's own functions (`fold`, `verdict`, `judge`, `letters_of`), and the deliveries that a client
would take are compared with brute force.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from access.offsets import Span
from state.config import Config, parse
from state.protocol import control
from state.protocol.control import CLAIM, TICK, Beat, Claim, Life, Offsets, Prefix, fold, life_key
from state.protocol.frame import Frame, Rows, read, rows_of
from streaming.apply import letters_of, life_to_leave, requests_ahead, starts_of
from streaming.evidence import WRITTEN, Begin, Continue, Facts, Held, Mark, Refusal, mark_of, verdict
from streaming.life import stored_of
from streaming.schemas import table_of
from streaming.stops import APPLY_TOPICS
from streaming.whole import NOT_AGAIN, Whole
from tests.core.histories import BOX_TABLES, COLOURS, RANGE_TABLES, SIDE, SOME_JSON, config_text, some_texts
from tests.core.oracle import Delivery, Oracle, matches
from tests.core.shell import INPUTS, Shell, forget, some_cut
from tests.core.test_whole import begin, taken

Folder = dict[int, Shell]
"""The lives in a checkpoint's folder."""
EVENTS = ("subscribe", "unsubscribe", "publish")


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
        self.oracle = Oracle(CATEGORIES)
        self.folder: Folder = {}
        self.copies: list[Folder] = []
        self.zombies: list[Shell] = []
        self.router: Shell | None = None
        self.term: int | None = None
        self.begins: list[int] = []  # of the running life: where each batch began to read publications
        self._marks, self._marked = set[Mark](), dict[str, int]()
        self._taken, self._numbers = 0, dict[tuple[int, str], int]()

    # clients

    def send(self, event: dict[str, Any]) -> list[Delivery]:
        """Send an event; what is owed for it."""
        self.client.send(event)
        return self.oracle.take(event)

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
        spans = {(t, 0): Span(0, len(self.client.topic(t))) for t in {*INPUTS, *WRITTEN}}
        for topic in WRITTEN:
            records = self.client.topic(topic)
            found = {mark_of(record.value) for record in records[self._marked.get(topic, 0) :]}
            self._marks |= {mark for mark in found if mark}
            self._marked[topic] = len(records)
        lives = {epoch: self.held(life) for epoch, life in sorted(self.folder.items())}
        return Facts("here", self.prefix(), lives, spans, {}, frozenset(self._marks))

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
        ahead = requests_ahead(facts, epoch, held, left.settings).items()
        whole.feed(record for (topic, _), span in ahead for record in self.records(topic)[span.first : span.next])
        self.announce(new, whole, starts_of(facts, epoch, held))

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

    def records(self, topic: str) -> list[Any]:
        """The records of a topic by its full name, as Kafka's client gives them."""
        return taken(self.client, topic.removeprefix(f"{self.config.kafka.prefix}."))

    def successor(self, facts: Facts) -> Shell:
        new = Shell(self.config, facts.highest + 1, some_cut(self.config, self._chance), paced=True)
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

    def new_deliveries(self) -> list[tuple[int, Delivery]]:
        """Epoch and content of each delivery that counts since this was asked last, without repeats by number."""
        lives, found = self.prefix().lives, list[tuple[int, Delivery]]()
        records = self.client.topic("deliveries")
        for offset in range(self._taken, len(records)):
            d = msgspec.json.decode(records[offset].value)
            place = (d["epoch"], d["channel"])
            if lives.judge(d["epoch"], "deliveries", 0, offset) == "valid" and d["seq"] > self._numbers.get(place, 0):
                assert d["seq"] == self._numbers.get(place, 0) + 1, "no gap"
                self._numbers[place] = d["seq"]
                found.append((d["epoch"], (d["broker"], d["client"], d["subscription"], d["publication"])))
        self._taken = len(records)
        return found

    def rows_of_deliveries(self) -> list[tuple[int, Delivery]]:
        """What the archive would have in the table of deliveries."""
        lives, marks = self.prefix().lives, dict[tuple[int, str], int]()
        found: list[tuple[int, Delivery]] = []
        for offset, record in enumerate(self.client.topic("records")):
            frame = read(record.value)
            assert isinstance(frame, Frame)
            content, place = frame.content, (frame.content.epoch, frame.content.channel)
            if lives.judge(content.epoch, "records", 0, offset) != "valid" or content.number <= marks.get(place, 0):
                continue
            assert content.number == marks.get(place, 0) + 1, "no gap"
            marks[place] = content.number
            rows = rows_of(frame)
            assert isinstance(rows, Rows)
            if rows.table == "deliveries":
                for row in table_of(rows.stream).to_pylist():
                    name = (row["broker"], row["client"], row["subscription"], row["publication"])
                    found.append((content.epoch, name))
        return found


# a storm


PUBLICATIONS = 5
"""How many more come between two faults where nothing else does."""
LIGHT = ("batch", "batch", "crash", "crash", "dies", "garbage", "wake", "restart", "tick")
"""What changes nothing but when something is done."""
HEAVY = (*LIGHT, "copy", "copy", "restore", "lose", "zombie")
"""What may also begin another life, in which publications come again."""


class Storm:
    """A world, and a history of changes and publications in rounds: every step is followed by a fault.

    In a round of `lives` what was asked for is in force everywhere before anything is published, and is let alone; then
    any fault may come, and each publication reaches exactly whom it matches, once in a life. In a `mixed` round
    requests and publications come together, with faults that begin no other life. There the deliveries are exact inside
    a region; between regions, a subscription that is changed meanwhile may get what any of its shapes matches.
    """

    def __init__(self, config: Config, chance: random.Random, path: Path) -> None:
        self.world, self._chance = World(config, chance, path), chance
        self.events, self.faults = 0, dict[str, int]()
        self._ids = chance.choice([2, 4, 8])
        self._shapes: dict[tuple[str, str, str], list[Any]] = {}
        self._published: dict[str, dict[str, Any]] = {}
        self._seen = set[tuple[int, Delivery]]()

    @classmethod
    def of(cls, seed: int, path: Path, sizes: Sequence[int] = (5, 50, 300)) -> Storm:
        """The storm of a seed, played to its end. Raises what it meets."""
        chance = random.Random(seed)
        forget()
        storm = cls(some_config(chance), chance, path)
        storm.go(rounds=6, most=chance.choice(sizes))
        return storm

    def go(self, rounds: int, most: int) -> None:
        """Play so many rounds, with at most so many events between two faults. Raises `AssertionError`."""
        self._send(self._request() for _ in range(self._chance.randint(1, most)))
        self.world.start()
        self.world.settle()
        for _ in range(rounds):
            self._chance.choice([self._lives, self._mixed])(self._chance.randint(1, 4), most)
        router = self.world.router
        assert router is not None
        router.check()
        rows = self.world.rows_of_deliveries()
        assert len(rows) == len(set(rows)) and set(rows) == self._seen, "a row for each delivery"

    def _lives(self, bursts: int, most: int) -> None:
        for _ in range(bursts):
            self._send(self._request() for _ in range(self._chance.randint(0, most)))
            self._fault(LIGHT)
        self.world.settle()
        self._check(set(), set())
        router = self.world.router
        assert router is not None
        self.world.tick(router)
        began, owed = router.settings.epoch, set[Delivery]()
        for _ in range(bursts):
            owed |= self._send(self._publication() for _ in range(self._chance.randint(1, PUBLICATIONS * most)))
            self._fault(HEAVY)
        self.world.settle()
        assert self.world.router is not None
        self._check(owed, owed, again=self.world.router.settings.epoch > began)

    def _mixed(self, bursts: int, most: int) -> None:
        router = self.world.router
        assert router is not None
        part_of, oracle = router.settings.part_of, self.world.oracle
        changed, shapes = set[tuple[str, str, str]](), {name: [where] for name, where in oracle.standing.items()}
        exact, published = list[tuple[str, set[Delivery]]](), list[dict[str, Any]]()
        for _ in range(bursts):
            for _ in range(self._chance.randint(1, most)):
                event = self._publication() if self._chance.random() < 0.6 else self._request()
                owed = self._send([event])
                if event["kind"] == "publish":
                    exact.append((event["broker"], owed))
                    published.append(event)
                else:
                    name = (event["broker"], event["client"], event["id"])
                    changed.add(name)
                    shapes.setdefault(name, []).extend([event["where"]] if "where" in event else [])
            self._fault(LIGHT)
        self.world.settle()
        must = {d for at, owed in exact for d in owed if d[:3] not in changed or part_of[d[0]] is part_of[at]}
        far = {
            (*name, event["id"])
            for event in published
            for name in changed
            if part_of[name[0]] is not part_of[event["broker"]] and _any(shapes[name], event["at"])
        }
        self._check(must, far.union(*(owed for _, owed in exact)))

    def _check(self, must: set[Delivery], may: set[Delivery], *, again: bool = False) -> None:
        """Compare what came since the last check with what was owed.

        If a life began anew, what was published before may have come again in it.
        """
        found = self.world.new_deliveries()
        new = {delivery for _, delivery in found}
        assert len(found) == len(set(found)) and self._seen.isdisjoint(found), "nothing twice in a life"
        self._seen |= set(found)
        earlier = {d for d in new - may if again and _any(self._shapes[d[:3]], self._published[d[3]]["at"])}
        assert must <= new, f"lost: {sorted(must - new)[:5]}"
        assert new - earlier <= may, f"false: {sorted(new - earlier - may)[:5]}"

    # events

    def _send(self, events: Any) -> set[Delivery]:
        owed: set[Delivery] = set()
        for event in events:
            self.events += 1
            owed |= set(self.world.send(event))
        return owed

    def _publication(self) -> dict[str, Any]:
        chance, id = self._chance, f"p{len(self._published)}"
        at = {"x": chance.randrange(SIDE), "y": chance.randrange(SIDE), "colour": chance.choice(COLOURS)}
        event = {"kind": "publish", "broker": self._broker(), "id": id, "at": at}
        self._published[id] = event
        return event

    def _request(self) -> dict[str, Any]:
        chance = self._chance
        name = (self._broker(), chance.choice(["ann", "bob"]), f"s{chance.randrange(self._ids)}")
        event: dict[str, Any] = dict(zip(("broker", "client", "id"), name, strict=True))
        if chance.random() < 0.35:
            return event | {"kind": "unsubscribe"}
        where = some_filter(chance)
        self._shapes.setdefault(name, []).append(where)
        return event | {"kind": "subscribe", "where": where}

    def _broker(self) -> str:
        return self._chance.choice(self.world.config.overlay.brokers)

    # faults

    def _fault(self, kinds: Sequence[str]) -> None:
        kind, world, chance = self._chance.choice(kinds), self.world, self._chance
        self.faults[kind] = self.faults.get(kind, 0) + 1
        if kind == "batch":
            # so few at a time only where requests stand: topics are read side by side
            world.run_batch(most=chance.choice([1, 10, 10**9]) if kinds is HEAVY else 10**9)
        elif kind in ("crash", "dies"):
            world.run_batch(crashes=chance.randint(1, 2), shuffle=chance if kind == "dies" else None)
        elif kind == "copy":
            world.copies.append(copied(world.folder))
        elif kind == "garbage":
            topic, key = chance.choice(["links", "control"]), chance.choice([b"b0>b1", b"b1>b0", b"nobody"])
            world.client.put(topic, key, b"not Lacuna's")
        elif kind == "wake":
            self._wake()
        elif kind == "tick":
            assert world.router is not None
            world.tick(world.router)
        else:
            self._begin_again(kind)

    def _wake(self) -> None:
        """A router that was succeeded goes on with what it believes; what it writes is void."""
        if self.world.zombies:
            self._chance.choice(self.world.zombies).run_batch()
            forget()

    def _begin_again(self, kind: str) -> None:
        """The running router is gone, or sleeps with its folder; another is started, with that folder or another."""
        world, left = self.world, self.world.router
        assert left is not None
        if kind == "lose" or (kind == "zombie" and not world.copies):
            world.folder = {}
        elif kind in ("restore", "zombie") and world.copies:
            world.folder = copied(world.copies[-1])
        if kind == "zombie":
            left = copied({0: left})[0]
        world.stop()
        world.start()
        if kind == "zombie" and world.router.settings.epoch > left.settings.epoch:  # else not defended, as documented
            world.zombies = [*world.zombies[-2:], left]


def _any(shapes: list[Any], at: dict[str, Any]) -> bool:
    return any(matches(where, at, CATEGORIES) for where in shapes)


# by chance, without Hypothesis


def some_config(chance: random.Random) -> Config:
    """A tree of one to five brokers; any strategies."""
    links = [(f"b{chance.randrange(k)}", f"b{k}") for k in range(1, chance.randint(1, 5))]
    if chance.random() < 0.25:
        return parse(config_text(links, chance.choice(RANGE_TABLES)))
    directions = [f"{a}>{b}" for pair in links for a, b in (pair, pair[::-1])]
    some = chance.sample(directions, min(len(directions), chance.randrange(4)))
    return parse(config_text(links, chance.choice(BOX_TABLES), {link: chance.choice(BOX_TABLES) for link in some}))


def some_filter(chance: random.Random) -> Any:
    """A filter that holds somewhere; most are objects of ranges."""
    if chance.random() < 0.25:
        return chance.choice(FILTERS)
    where: dict[str, Any] = {}
    for side in "xy":
        if chance.random() < 0.7:
            low, high = sorted(chance.choices(range(SIDE), k=2))
            where[side] = chance.choice([[low, high]] * 3 + [[None, high], [low, None]])
    return where | ({"colour": chance.sample(COLOURS, chance.randint(1, 3))} if chance.random() < 0.5 else {})


CATEGORIES = {"colour"}
FILTERS = [*some_texts(), *SOME_JSON]
