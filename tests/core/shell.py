"""The router's two stages in one process, without Spark and Kafka: real functions, topics as lists.

A batch takes what the topics hold beyond the last one, sorts it into parcels, takes each region through `Step` and
appends what comes out to the topics, so that letters come back as input. Batches can be cut anywhere, and a batch can
die at any point and be repeated: after its output was written but before its state was kept, or between two regions.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import msgspec

from state.config import Config
from state.protocol.arrivals import RANKS
from state.protocol.control import TICK
from state.protocol.frame import Frame, Rows, read, rows_of
from state.routing.cut import Regions
from state.routing.region import Region
from state.storage.sliced import Sliced
from state.storage.store import Held, Pieces, Store, from_row, to_row
from streaming import step as stage
from streaming.schemas import table_of
from streaming.settings import Settings, settle
from streaming.sources import Sorter
from streaming.step import Step
from streaming.whole import LEFT, NEW

INPUTS = tuple(RANKS)
PARTITIONS = 16
SLICE = 100
"""Bytes of a slice in a map, so that pieces have many."""


def forget() -> None:
    """Be a new process, which holds no region."""
    stage.HELD = Held()


class Record(NamedTuple):
    """A record in a topic."""

    time: int
    key: bytes | None
    value: bytes
    headers: Any = None


class Shell:
    """A router whose topics are lists and whose state is a dictionary. By default every broker is a region.

    It writes metrics in every batch, unless it is to keep the pace of the configuration.
    """

    def __init__(
        self,
        config: Config,
        epoch: int = 7,
        regions: Regions | int | None = None,
        *,
        paced: bool = False,
        state: Literal["row", "map"] = "row",
    ) -> None:
        wanted = tuple((broker,) for broker in config.overlay.brokers) if regions is None else regions
        lake = config.lake if paced else replace(config.lake, metrics_every=0)
        cut = replace(config, overlay=replace(config.overlay, regions=wanted), lake=lake, state=state)
        self.settings: Settings = settle(cut, epoch, PARTITIONS)
        self.topics: dict[str, list[Record]] = defaultdict(list)
        self.stored: dict[str, Any] = {}  # of each region a row, or a map
        self.read: dict[str, int] = defaultdict(int)
        self.batch = 0
        self.clock = 1_000_000
        self.inputs = self.topics  # where input is read; a replay reads what a real run had read

    def send(self, event: dict[str, Any]) -> None:
        """Put an event into its topic."""
        value = {key: item for key, item in event.items() if key not in ("kind", "broker")}
        self.put(event["kind"], event["broker"].encode(), json.dumps(value).encode())

    def put(self, topic: str, key: bytes | None, value: bytes, headers: Any = None) -> None:
        self.clock += 1000
        self.topic(topic).append(Record(self.clock, key, value, headers))

    def topic(self, name: str) -> list[Record]:
        return self.topics[self.settings.topics.of(name)]

    def waiting(self) -> bool:
        return any(len(self.topics[t]) > self.read[t] for t in self._inputs())

    def run_batch(self, *, most: int = 10**9, crashes: int = 0, shuffle: random.Random | None = None) -> None:
        """One batch of at most `most` records a topic; it dies and is repeated `crashes` times.

        It dies after all regions have written, or, with `shuffle`, after some of them have.
        """
        end = {topic: min(len(self.topics[topic]), self.read[topic] + most) for topic in self._inputs()}
        now = self.clock
        for _ in range(crashes):
            self._attempt(end, now, shuffle, dies=True)
            forget()
        self.stored |= self._attempt(end, now, shuffle)
        self.read |= end
        self.batch += 1

    def run_planned(self, batch: int, end: dict[str, int], now: int) -> None:
        """A batch as it was planned elsewhere: its number, its end offsets, its moment."""
        self.batch = batch
        self.stored |= self._attempt(end, now, None)
        self.read |= end

    def begin(self, records: Sequence[Record]) -> None:
        """Begin where the life of the settings begins, with the rows of its prologue among these records."""
        for topic, starts in self.settings.starts.items():
            self.read[self.settings.topics.of(topic)] = max(0, starts.get("0", 0))
        self.topic("records").extend(record for record in records if record.key in (NEW.encode(), LEFT.encode()))

    def settle(self, **options: Any) -> None:
        while self.waiting():
            self.run_batch(**options)

    def finish(self) -> None:
        """Settle, and tick while a region has work left; no time passes, as none does at the end of a simulation."""
        self.settle()
        while any(self.region(part.name).working for part in self.settings.parts):
            self.topic("control").append(Record(self.clock, TICK.encode(), b""))
            self.settle()

    def _inputs(self) -> list[str]:
        return [self.settings.topics.of(name) for name in INPUTS]

    def _attempt(
        self, end: dict[str, int], now: int, shuffle: random.Random | None, *, dies: bool = False
    ) -> dict[str, Any]:
        regions: dict[str, list[bytes]] = defaultdict(list)
        for row in self._sorted(end, now, shuffle):
            regions[row["region"]].append(row["parcel"])
        keys = sorted(regions)
        if shuffle:
            shuffle.shuffle(keys)
            keys = keys[: shuffle.randint(0, len(keys))] if dies else keys
        stored: dict[str, Any] = {}
        for key in keys:
            name, parcels = self.settings.by_key[key].name, regions[key]
            if shuffle:
                shuffle.shuffle(parcels)
            pieces, kept = self.pieces(name, self.stored.get(name))
            step = Step(self.settings, name, pieces, parcels, self.batch)
            for record in step.records():
                self.topics[record.topic].append(Record(now, record.key, record.value, record.headers))
            if step.close():
                stored[name] = kept()
        return stored

    def _sorted(self, end: dict[str, int], now: int, shuffle: random.Random | None) -> list[dict[str, Any]]:
        """Parcels, made in one chunk or, with `shuffle`, in several that split the channels."""
        sorters = [Sorter(self.settings, now) for _ in range(3 if shuffle else 1)]
        for topic in self._inputs():
            for offset in range(self.read[topic], end[topic]):
                time, key, value, headers = self.inputs[topic][offset]
                sorter = shuffle.choice(sorters) if shuffle else sorters[0]
                sorter.add(topic, 0, offset, time, key, value, headers)
        return [row for sorter in sorters for row in sorter.rows()]

    # what a reader sees

    def deliveries(self) -> list[tuple[str, str, str, str]]:
        """Deliveries without repeats, as a client library reads them."""
        return [(d["broker"], d["client"], d["subscription"], d["publication"]) for d in self.delivery_records()]

    def delivery_records(self) -> list[dict[str, Any]]:
        """The records of deliveries without repeats; numbers must come without a gap."""
        marks: dict[str, int] = defaultdict(int)
        seen = []
        for record in self.topic("deliveries"):
            d = msgspec.json.decode(record.value)
            if d["seq"] > marks[d["channel"]]:
                assert d["seq"] == marks[d["channel"]] + 1
                marks[d["channel"]] = d["seq"]
                seen.append(d)
        return seen

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Rows without repeats, as the archive writes them; frames must come without a gap."""
        marks: dict[tuple[int, str], int] = defaultdict(int)
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for record in self.topic("records"):
            frame = read(record.value)
            assert isinstance(frame, Frame)
            content, channel = frame.content, (frame.content.epoch, frame.content.channel)
            if content.number > marks[channel]:
                assert content.number == marks[channel] + 1
                marks[channel] = content.number
                part = rows_of(frame)
                assert isinstance(part, Rows)
                rows[part.table] += table_of(part.stream).to_pylist()
        return rows

    # state

    def region(self, broker: str) -> Region:
        """The region of a broker, as it is stored."""
        part = self.settings.part_of[broker]
        return self.open(part.name, self.stored.get(part.name)).region

    def pieces(self, name: str, stored: Any) -> tuple[Pieces, Callable[[], Any]]:
        """A copy of the pieces of a region, and a function that returns them as they are stored."""
        if self.settings.state == "map":
            values = dict(stored or {})
            return Sliced(values, SLICE), lambda: values
        pieces = {} if stored is None else from_row(stored, name)
        return pieces, lambda: to_row(pieces)

    def open(self, name: str, stored: Any) -> Store:
        setups = self.settings.config.setups(self.settings.part_of[name].brokers)
        return Store.open(self.pieces(name, stored)[0], name, setups, self.settings.epoch, None)

    def check(self) -> None:
        """Every rule holds in every region, and rule (H) between regions that have nothing under way."""
        for part in self.settings.parts:
            self.region(part.name).check()
        if not self.waiting():
            for a, b in (channel.split(">") for channel in self.settings.links):
                told, heard = self.region(a).brokers[a].links[b].told, self.region(b).brokers[b].links[a].heard
                assert told.asks() == heard.asked(), f"{b} has heard from {a} what it was told"


def some_cut(config: Config, chance: random.Random) -> Regions:
    """Cut the overlay at links chosen by chance."""
    neighbours = config.overlay.neighbours
    home: dict[str, list[str]] = {}
    for broker in _from_root(config.overlay.brokers, neighbours):
        joined = [home[other] for other in neighbours[broker] if other in home]
        home[broker] = joined[0] if joined and chance.random() < 0.5 else []
        home[broker].append(broker)
    return tuple(tuple(region) for region in {id(region): region for region in home.values()}.values())


def _from_root(brokers: Sequence[str], neighbours: Any) -> list[str]:
    order, waiting = [brokers[0]], [brokers[0]]
    while waiting:
        for other in neighbours[waiting.pop(0)]:
            if other not in order:
                order.append(other)
                waiting.append(other)
    return order
