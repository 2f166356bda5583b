"""The stateful step: what `applyInPandasWithState` calls. Decode, step the core, encode, yield; it decides nothing.

    parcels of a group ──merge──▶ messages in order ──core──▶ decisions, routes, deliveries
    stored state ──Memory.open──▶ group                   │
                                                          ├─▶ letters to the neighbour      (links)
    stored state ◀──Memory.close── group                  ├─▶ a record for each delivery    (deliveries)
                                                          └─▶ sheaves for the tables        (records)

Order. Spark hands over the rows of a group in no particular order. Channels (a Kafka partition of an event topic, an
incoming link) are each put in the order of their offsets and then merged by time, where the time of a record counts as
no earlier than that of any record before it on its channel. So no channel is ever reordered, and a replay of the batch,
which holds the same records, merges them in the same way. What an operator asks for (a rebuild, another pruning) comes
after all of them: publications of a batch are routed as the link pruned before it.

A worker keeps the groups that it has seen (`HELD`). That saves decoding and nothing else: see `state.storage.memory`.
"""

from __future__ import annotations

import time as wall
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge as merge_sorted
from typing import Any

import msgspec
import pandas as pd

from state.protocol.messages import LOCAL, Message, Name, Publish
from state.protocol.wire import Packed, read_letter, unpack, write_letter
from state.protocol.wire import pack as pack_message
from state.routing.link import Link
from state.routing.told import Decision
from state.space import Keys, timestamp_text
from state.storage.memory import Memory
from state.storage.rows import COUNTS, count_decisions, count_request, decision_row, metrics_row, reject_row
from streaming.schemas import (
    FORMAT,
    SCHEMAS,
    Mail,
    Refused,
    Sheaf,
    pack,
    read_asked,
    read_events,
    read_mail,
    read_refused,
    stream_of,
)
from streaming.settings import REJECTS, Settings, group_name, group_parts

Parcel = tuple[str, int, bytes]
"""Channel, first offset, packed entries."""
Record = tuple[str, bytes, bytes]
"""Topic, key, value."""
Part = tuple[int, bytes]
"""How many rows, and an Arrow stream of them."""

MOST_LETTER = 400_000
"""Bytes of messages in one letter, well below Kafka's limit of 1 MiB a record."""
IDLE_PARTS = 8
"""Parts of a rebuild (20 to 50 ms each in four attributes) at a tick that finds a group idle."""
MOST_ROWS = 4096
"""Rows in one sheaf."""
MOST_SHEAF = 500_000
"""Bytes of a sheaf that may hold more than one row: a long certificate makes a long row."""

_json = msgspec.json.Encoder().encode

HELD: dict[tuple[int, str], Memory] = {}
"""Groups that this worker has seen, by epoch and name."""


@dataclass
class Outcome:
    """What a batch did to a group: its new state (None: unchanged) and the records to write."""

    blob: bytes | None
    records: list[Record]


def merged(parcels: Iterable[Parcel]) -> Iterator[tuple[str, Any]]:
    """The entries of all parcels in the order in which they are to be applied, each with its channel."""
    channels: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for channel, start, blob in parcels:
        if channel not in ("tick", "rebuild", "prune"):
            channels[channel].append((start, blob))
    runs = [_run(rank, channel, channels[channel]) for rank, channel in enumerate(sorted(channels))]
    return ((channel, entry) for _, _, _, channel, entry in merge_sorted(*runs, key=lambda item: item[:3]))


def _run(rank: int, channel: str, parts: list[tuple[int, bytes]]) -> list[tuple[int, int, int, str, Any]]:
    read = read_mail if channel.startswith("link:") else read_events
    entries = sorted((entry for _, blob in sorted(parts) for entry in read(blob)), key=lambda entry: entry.offset)
    latest, run = 0, []
    for entry in entries:
        latest = max(latest, entry.time)
        run.append((latest, rank, entry.offset, channel, entry))
    return run


class Advance:
    """One group in one batch."""

    def __init__(self, settings: Settings, memory: Memory, now: int, batch: int) -> None:
        self._settings, self._memory, self._now, self._batch = settings, memory, now, batch
        self._state = memory.state
        self._setup = memory.state.setup
        self._space = settings.config.space
        self._waiting: list[tuple[str, Publish]] = []
        self._came: list[Publish] = []
        self._letters: list[Packed] = []
        self._columns: dict[str, dict[str, list[Any]]] = {
            table: {column: [] for column in SCHEMAS[table].names} for table in ("decisions", "routes", "deliveries")
        }
        self._deliveries: list[Record] = []
        self._counts: Counter[str] = Counter()
        self._moved = self._repruned = False

    def take(self, parcels: Sequence[Parcel]) -> None:
        """Apply everything that arrived, in order; time passes first. At a tick the group may rest afterwards."""
        self._decided(self._memory.expire(self._now))
        for channel, entry in merged(parcels):
            if isinstance(entry, Mail):
                self._open(channel.removeprefix("link:"), entry.letter)
            else:
                self._apply(LOCAL, unpack(entry.message, self._space.dims))
        self._route()
        self._judge()
        self._prune(parcels)
        self._rest({channel for channel, _, _ in parcels})

    def _prune(self, parcels: Sequence[Parcel]) -> None:
        """Take the wishes about pruning in the order of their offsets: the last that concerns the link counts."""
        asked = [entry for channel, _, blob in parcels if channel == "prune" for entry in read_asked(blob)]
        name = group_name(self._setup.broker, self._setup.link)
        for entry in sorted(asked, key=lambda entry: (entry.partition, entry.offset)):
            if entry.wish.concerns(name):
                self._repruned |= self._memory.prune(entry.wish.override)

    def _rest(self, channels: set[str]) -> None:
        """A rebuild is only begun where it is asked for. Its parts are done at ticks: several while there is nothing
        else to do, one in a batch that also brings work, so that a busy group comes to its end as well.
        """
        if "rebuild" in channels:
            self._moved |= self._memory.rebuild()
        if "tick" in channels:
            for _ in range(IDLE_PARTS if channels == {"tick"} else 1):
                if self._memory.restless:
                    self._moved = True
                    self._counts["rebuilds"] += self._memory.rest()

    def _open(self, sender: str, record: bytes) -> None:
        letter = read_letter(record)
        for number, packed in enumerate(letter.messages, letter.first):
            if self._state.inbox.take(sender, letter.epoch, number, self._settings.epoch):
                self._moved = True
                self._apply(sender, unpack(packed, self._space.dims))

    def _apply(self, origin: str, message: Message) -> None:
        if isinstance(message, Publish):
            if origin == self._setup.link != LOCAL:
                self._came.append(message)
            else:
                self._waiting.append((origin, message))
            return
        if origin == self._setup.link:
            self._route()  # what was published before must not see what is heard now
        else:
            self._judge()  # nor what is told now
        count_request(self._counts, message)
        self._decided(self._memory.step(origin, message, self._now))

    def _decided(self, decisions: Sequence[Decision]) -> None:
        if not isinstance(self._state, Link):
            return
        count_decisions(self._counts, decisions)
        for decision in decisions:
            seq = len(self._columns["decisions"]["seq"])
            row = decision_row(decision, self._state, self._now, self._batch, seq)
            for column in ("witness", "shape"):
                row[column] = None if row[column] is None else _json(row[column]).decode()
            self._add("decisions", row | {"time": self._now})
            self._letters += [pack_message(message) for message in decision.messages()]

    def _add(self, table: str, row: dict[str, Any]) -> None:
        for column, values in self._columns[table].items():
            values.append(row[column])

    def _route(self) -> None:
        """Let the publications that wait be matched, all at once."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        self._counts["publications"] += len(waiting)
        points = self._points(publication for _, publication in waiting)
        if isinstance(self._state, Link):
            wanted = self._state.wants(points)
            self._counts["false_forwards"] += int(self._state.falsely(points, wanted).sum())
            self._forward(waiting, wanted.tolist())
        else:
            self._deliver(waiting, *self._state.deliver(points))

    def _judge(self) -> None:
        """Count what came from the neighbour for nothing."""
        came, self._came = self._came, []
        if came and isinstance(self._state, Link):
            stray = self._state.strays(self._points(came))
            self._counts["false_positives"] += 0 if stray is None else int(stray.sum())

    def _points(self, publications: Iterable[Publish]) -> Keys:
        return self._space.points([publication.point for publication in publications])

    def _forward(self, waiting: list[tuple[str, Publish]], wanted: list[bool]) -> None:
        columns, count = self._columns["routes"], len(waiting)
        columns["broker"] += [self._setup.broker] * count
        columns["link"] += [self._setup.link] * count
        columns["publication"] += [publication.id for _, publication in waiting]
        columns["origin"] += [origin for origin, _ in waiting]
        columns["action"] += ["forward" if goes else "stop" for goes in wanted]
        columns["time"] += [publication.moment for _, publication in waiting]
        columns["batch"] += [self._batch] * count
        going = [publication for (_, publication), goes in zip(waiting, wanted, strict=True) if goes]
        self._letters += [pack_message(publication) for publication in going]
        self._counts["forwarded"] += len(going)
        self._counts["stopped"] += count - len(going)

    def _deliver(self, waiting: list[tuple[str, Publish]], which: list[int], names: list[Name]) -> None:
        columns, count = self._columns["deliveries"], len(names)
        matched = [waiting[k][1] for k in which]
        columns["broker"] += [name.broker for name in names]
        columns["client"] += [name.client for name in names]
        columns["subscription"] += [name.id for name in names]
        columns["publication"] += [publication.id for publication in matched]
        columns["time"] += [publication.moment for publication in matched]
        columns["batch"] += [self._batch] * count
        self._counts["delivered"] += count
        self._write_deliveries(names, matched)

    def _write_deliveries(self, names: list[Name], matched: list[Publish]) -> None:
        """A record for each delivery, put together from parts: most deliveries share their halves with others."""
        topic = self._settings.topic("deliveries")
        channel = f"{self._setup.broker}>{self._setup.link}"
        end = b',"channel":' + _json(channel) + b',"epoch":%d,"seq":' % self._settings.epoch
        who: dict[Name, tuple[bytes, bytes]] = {}
        what: dict[int, bytes] = {}
        for name, publication in zip(names, matched, strict=True):
            if name not in who:
                who[name] = (name.client.encode(), _who(name))
            if id(publication) not in what:
                what[id(publication)] = self._what(publication) + end
            self._memory.deliveries += 1
            key, begin = who[name]
            value = begin + what[id(publication)] + b"%d}" % self._memory.deliveries
            self._deliveries.append((topic, key, value))

    def _what(self, publication: Publish) -> bytes:
        """The part of a delivery that says what was published."""
        at = _json(self._space.describe_point(publication.point))
        time = _json(timestamp_text(publication.moment))
        parts = (
            b',"publication":',
            _json(publication.id),
            b',"at":',
            at,
            b',"payload":',
            publication.payload or b"null",
        )
        return b"".join((*parts, b',"time":', time))

    def outcome(self, began: float) -> Outcome:
        """The new state and everything to be written."""
        if not self._repruned and not any(self._counts[count] for count in COUNTS):
            return Outcome(self._memory.close() if self._moved else None, [])
        letters = list(self._write_letters())
        sheaves = [(table, part) for table, columns in self._columns.items() for part in _parts(table, columns)]
        first = self._memory.records + 1
        self._memory.records += len(sheaves) + 1
        blob = self._memory.close()
        millis = (wall.perf_counter() - began) * 1000
        row = metrics_row(self._state, self._counts, self._batch, len(blob), millis)
        sheaves += [("metrics", part) for part in _parts("metrics", {column: [value] for column, value in row.items()})]
        records = [self._sheaf(first + k, table, part) for k, (table, part) in enumerate(sheaves)]
        return Outcome(blob, [*letters, *self._deliveries, *records])

    def _write_letters(self) -> Iterator[Record]:
        if not isinstance(self._state, Link) or not self._letters:
            return
        key = f"{self._setup.broker}>{self._setup.link}".encode()
        for run in _runs(self._letters, MOST_LETTER):
            first = self._state.number(len(run))
            yield self._settings.topic("links"), key, write_letter(self._settings.epoch, first, run)

    def _sheaf(self, number: int, table: str, part: Part) -> Record:
        channel = f"{self._setup.broker}>{self._setup.link}"
        return sheaf_record(self._settings, channel, number, self._batch, table, part)


def _who(name: Name) -> bytes:
    """The part of a delivery that says whose it is."""
    parts = (b'{"client":', _json(name.client), b',"subscription":', _json(name.id), b',"broker":', _json(name.broker))
    return b"".join(parts)


def sheaf_record(settings: Settings, channel: str, number: int, batch: int, table: str, part: Part) -> Record:
    """A sheaf as a record for the records topic."""
    sheaf = Sheaf(FORMAT, settings.epoch, channel, number, batch, table, *part)
    return settings.topic("records"), channel.encode(), pack(sheaf)


def _parts(table: str, columns: dict[str, list[Any]], most: int = MOST_ROWS) -> Iterator[Part]:
    """Rows in parts of at most `most`, and of fewer where they are long: Kafka limits the size of a record."""
    for begin in range(0, len(columns["batch"]), most):
        some = {column: values[begin : begin + most] for column, values in columns.items()}
        rows, stream = len(some["batch"]), stream_of(table, some)
        if rows == 1 or len(stream) <= MOST_SHEAF:
            yield rows, stream
        else:
            yield from _parts(table, some, (rows + 1) // 2)


def _runs(messages: list[Packed], most: int) -> Iterator[list[Packed]]:
    """Messages cut into runs of at most `most` bytes or a single message."""
    run: list[Packed] = []
    size = 0
    for message in messages:
        length = _length(message)
        if run and size + length > most:
            yield run
            run, size = [], 0
        run.append(message)
        size += length
    if run:
        yield run


def _length(message: Packed) -> int:
    """About how many bytes a packed message takes."""
    return 64 + sum(len(part) for part in msgspec.structs.astuple(message) if isinstance(part, str | bytes))


def advance_group(
    settings: Settings, name: str, blob: bytes | None, parcels: list[Parcel], now: int, batch: int
) -> Outcome:
    """Take one group through one batch: the whole step, without Spark."""
    began = wall.perf_counter()
    if name == REJECTS:
        return _reject(settings, blob, parcels, batch)
    setup = settings.config.setup(*group_parts(name))
    held = HELD.pop((settings.epoch, name), None)
    memory = Memory.new(setup) if blob is None else Memory.open(blob, setup, held)
    advance = Advance(settings, memory, now, batch)
    advance.take(parcels)
    outcome = advance.outcome(began)
    HELD[settings.epoch, name] = memory
    return outcome


def _reject(settings: Settings, blob: bytes | None, parcels: list[Parcel], batch: int) -> Outcome:
    """Number the rejects: all that there is to this group."""
    number = 0 if blob is None else msgspec.msgpack.decode(blob, type=int)
    records = []
    ordered = sorted(parcels)
    refused = [entry for _, _, part in ordered for entry in read_refused(part)]
    rows = [_reject_row(entry, batch) for entry in refused]
    columns = {column: [row[column] for row in rows] for column in SCHEMAS["rejects"].names}
    for part in _parts("rejects", columns):
        number += 1
        records.append(sheaf_record(settings, REJECTS, number, batch, "rejects", part))
    return Outcome(msgspec.msgpack.encode(number), records)


def _reject_row(r: Refused, batch: int) -> dict[str, Any]:
    return reject_row(r.topic, r.partition, r.offset, r.value, r.rule, r.message, batch)


def advance(settings: Settings) -> Callable[[Any, Iterator[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
    """The function for `applyInPandasWithState`."""

    def step(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        rows = [row for frame in frames for row in frame.itertuples(index=False)]
        parcels = [(row.channel, row.start, row.blob) for row in rows]
        blob = bytes(state.get[1]) if state.exists else None
        outcome = advance_group(settings, key[0], blob, parcels, rows[0].now, batch_number())
        if outcome.blob is not None:
            state.update((1, outcome.blob))
        columns = list(zip(*outcome.records, strict=True)) or [(), (), ()]
        yield pd.DataFrame({"topic": columns[0], "key": columns[1], "value": columns[2]})

    return step


def batch_number() -> int:
    """The number of the batch that this task belongs to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    return -1 if number is None else int(number)
