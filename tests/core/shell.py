"""The router's two stages in one process, without Spark and Kafka: real functions, topics as lists.

A batch takes what the topics hold beyond the last one, sorts it into parcels, takes each group through `advance_group`
and appends what comes out to the topics, so that letters come back as input. Batches can be cut anywhere, and a batch
can be repeated after its output was written but before its state was kept, as after a crash.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from typing import Any

import msgspec

from state.config import Config
from state.storage.memory import Memory
from streaming import advance as stage
from streaming.advance import Parcel, advance_group
from streaming.schemas import Sheaf, read_sheaf, table_of
from streaming.settings import REJECTS, Settings, group_parts
from streaming.sources import Sorter

EVENTS = ("subscribe", "unsubscribe", "publish")
Record = tuple[int, bytes | None, bytes]


class Shell:
    """A router whose topics are lists and whose state is a dictionary."""

    def __init__(self, config: Config, epoch: int = 7) -> None:
        self.settings = Settings(config, epoch)
        self.topics: dict[str, list[Record]] = defaultdict(list)
        self.blobs: dict[str, bytes] = {}
        self.read: dict[str, int] = defaultdict(int)
        self.batch = 0
        self.clock = 1_000_000
        self.inputs = self.topics  # where input is read; a replay reads what a real run had read

    def send(self, event: dict[str, Any]) -> None:
        """Put an event into its topic."""
        value = {key: item for key, item in event.items() if key not in ("kind", "broker")}
        self.put(event["kind"], event["broker"].encode(), json.dumps(value).encode())

    def put(self, topic: str, key: bytes | None, value: bytes) -> None:
        self.clock += 1000
        self.topics[self.settings.topic(topic)].append((self.clock, key, value))

    def waiting(self) -> bool:
        return any(len(self.topics[t]) > self.read[t] for t in self._inputs())

    def run_batch(self, *, most: int = 10**9, crashes: int = 0, shuffle: random.Random | None = None) -> None:
        """One batch of at most `most` records a topic; it dies and is repeated `crashes` times after writing."""
        end = {topic: min(len(self.topics[topic]), self.read[topic] + most) for topic in self._inputs()}
        now = self.clock
        for attempt in range(crashes + 1):
            if attempt:
                stage.HELD.clear()  # a new process
            blobs = self._attempt(end, now, shuffle)
        self.blobs |= blobs
        self.read |= end
        self.batch += 1

    def run_planned(self, batch: int, end: dict[str, int], now: int) -> None:
        """A batch as it was planned elsewhere: its number, its end offsets, its moment."""
        self.batch = batch
        self.blobs |= self._attempt(end, now, None)
        self.read |= end

    def settle(self, **options: Any) -> None:
        while self.waiting():
            self.run_batch(**options)

    def _inputs(self) -> list[str]:
        return [self.settings.topic(name) for name in (*EVENTS, "links")]

    def _attempt(self, end: dict[str, int], now: int, shuffle: random.Random | None) -> dict[str, bytes]:
        groups: dict[str, list[Parcel]] = defaultdict(list)
        for row in self._sorted(end, now, shuffle):
            groups[row["group"]].append((row["channel"], row["start"], row["blob"]))
        blobs: dict[str, bytes] = {}
        names = sorted(groups)
        if shuffle:
            shuffle.shuffle(names)
        for name in names:
            parcels = groups[name]
            if shuffle:
                shuffle.shuffle(parcels)
            outcome = advance_group(self.settings, name, self.blobs.get(name), parcels, now, self.batch)
            if outcome.blob is not None:
                blobs[name] = outcome.blob
            for topic, key, value in outcome.records:
                self.topics[topic].append((now, key, value))
        return blobs

    def _sorted(self, end: dict[str, int], now: int, shuffle: random.Random | None) -> list[dict[str, Any]]:
        """Parcels, made in one chunk or, with `shuffle`, in several that split the channels."""
        sorters = [Sorter(self.settings) for _ in range(3 if shuffle else 1)]
        for topic in self._inputs():
            for offset in range(self.read[topic], end[topic]):
                time, key, value = self.inputs[topic][offset]
                sorter = shuffle.choice(sorters) if shuffle else sorters[0]
                sorter.add(topic, 0, offset, time, key, value)
        return [row for sorter in sorters for row in sorter.rows(now)]

    # what a reader sees

    def deliveries(self) -> list[tuple[str, str, str, str]]:
        """Deliveries without repeats, as a client library reads them."""
        marks: dict[str, int] = defaultdict(int)
        seen = []
        for _, _, value in self.topics[self.settings.topic("deliveries")]:
            d = msgspec.json.decode(value)
            if d["seq"] > marks[d["channel"]]:
                marks[d["channel"]] = d["seq"]
                seen.append((d["broker"], d["client"], d["subscription"], d["publication"]))
        return seen

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Rows without repeats, as the archive writes them; sheaves must come without a gap."""
        marks: dict[str, int] = defaultdict(int)
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for _, _, value in self.topics[self.settings.topic("records")]:
            sheaf: Sheaf = read_sheaf(value)
            if sheaf.number > marks[sheaf.channel]:
                assert sheaf.number == marks[sheaf.channel] + 1
                marks[sheaf.channel] = sheaf.number
                rows[sheaf.table] += table_of(sheaf.stream).to_pylist()
        return rows

    def memory(self, name: str) -> Memory:
        return Memory.open(self.blobs[name], self.settings.config.setup(*group_parts(name)))

    def group_names(self) -> list[str]:
        return [name for name in self.blobs if name != REJECTS]
