"""One region in one batch: decode, let the region take its arrivals, encode.

    parcels of a region ──merge──▶ arrivals in order ──region.take──▶ outcome
    stored state ──Store.open──▶ region                                  ├─▶ letters to other regions       (links)
                                                                         ├─▶ a record for each delivery     (deliveries)
                                                                         ├─▶ what clients are to be told    (notices)
    stored state ◀──Store.save─── region                                 └─▶ frames of rows for the tables  (records)

The step decides nothing. Records are encoded as Spark asks for them. Only then are the numbers of deliveries and frames
known, so the state is closed last. A step that changed nothing and recorded nothing leaves the state alone.

Spark gathers everything that the step yields until it is more than `MOST_ARROW` rows, however long they are; an Arrow
column holds at most 2 GiB. So after `MOST_OUTPUT` bytes the step yields that many empty rows, which makes Spark write
what it has gathered; the JVM drops them (`pipeline.routed`).

A worker keeps the regions that it has seen (`HELD`). That saves decoding and nothing else: see `state.storage.store`.
"""

from __future__ import annotations

import time as wall
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import pandas as pd

from access.connection import partition_of
from state.config import SECOND
from state.protocol.arrivals import Arrival, Channel, merge
from state.protocol.events import Refused
from state.protocol.frame import Letter, body_of_rows, letter_of, write
from state.protocol.messages import LOCAL, Headers, Name, Publish
from state.protocol.wire import unpack
from state.routing.outcome import Outcome
from state.routing.region import Region
from state.space import Space, timestamp_text
from state.storage.codec import keys_of, uncollected
from state.storage.rows import Columns, metrics_columns, row_count, tables
from state.storage.store import HEAD, Held, Pieces, Store, from_row
from state.storage.tables import COUNTS, REGION
from streaming.life import seed_of
from streaming.schemas import MOST_ARROW, MOST_REFUSED, Parcel, Posted, read_parcel, stream_of
from streaming.settings import Settings

MOST_ROWS = 4096
"""Rows in one frame."""
MOST_FRAME = 500_000
"""Bytes of a frame that may hold more than one row: a long certificate makes a long row."""
MOST_OUTPUT = 32 << 20
"""Bytes of records that are handed to Spark at a time; a worker holds them twice, as Python's and as Arrow's."""

HELD = Held()
"""The regions that this worker has seen."""

_json = msgspec.json.Encoder().encode
_partition_of = lru_cache(maxsize=100_000)(partition_of)


class Record(NamedTuple):
    """A record for Kafka."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: list[dict[str, Any]] | None = None


class Output:
    """What a region has to write after a batch. Numbers of deliveries and frames are given as records are encoded."""

    def __init__(self, settings: Settings, store: Store, outcome: Outcome, batch: int) -> None:
        self._settings, self._store, self._outcome, self._batch = settings, store, outcome, batch
        self._region = store.region

    def records(self) -> Iterator[Record]:
        """Yield everything to be written."""
        topics = self._settings.topics
        for channel, frame in self._outcome.letters:
            yield Record(topics.links, self._settings.links[channel], channel.encode(), frame)
        yield from self._deliveries()
        yield from self._notices()
        if is_recorded(self._outcome):
            yield from self._frames()

    def _deliveries(self) -> Iterator[Record]:
        """Yield a record for each delivery, put together from two halves that most deliveries share with others."""
        settings, region, space = self._settings, self._region, self._settings.config.space
        life = b',"channel":%s,"epoch":%d,"batch":%d' % (_json(region.name), settings.epoch, self._batch)
        who: dict[Name, tuple[int, bytes, bytes]] = {}
        what: dict[int, tuple[bytes, list[dict[str, Any]] | None]] = {}
        for publication, name, hop, _ in self._outcome.deliveries_in_order():
            if name not in who:
                client = name.client.encode()
                who[name] = _partition_of(client, settings.deliveries), client, _who(name)
            if id(publication) not in what:
                what[id(publication)] = _what(publication, space) + life, _headers(publication.headers)
            region.delivered += 1
            (partition, client, begin), (middle, headers) = who[name], what[id(publication)]
            value = begin + middle + b',"hop":%d,"seq":%d}' % (hop, region.delivered)
            yield Record(settings.topics.deliveries, partition, client, value, headers)

    def _notices(self) -> Iterator[Record]:
        """Yield what clients are to be told. The topic has one partition."""
        life = b',"epoch":%d,"batch":%d}' % (self._settings.epoch, self._batch)
        for notice in self._outcome.notices:
            yield Record(self._settings.topics.notices, 0, notice.key, _json(notice)[:-1] + life)

    def _frames(self) -> Iterator[Record]:
        """Yield the rows of the tables in frames."""
        settings, region = self._settings, self._region
        key, partition = region.name.encode(), settings.records[region.name]
        for table, columns in self._tables().items():
            for rows, stream in _parts(settings.config.space, table, columns):
                frame = region.records.frame("rows", body_of_rows(table, rows, stream), self._batch)
                yield Record(settings.topics.records, partition, key, frame)

    def _tables(self) -> dict[str, Columns]:
        """Return the rows.

        Sizes and time taken are those of the batch before, as stored: those of this one are not known yet, and a batch
        that is repeated must write the same rows.
        """
        outcome, batch, epoch = self._outcome, self._batch, self._settings.epoch
        with uncollected():  # a row is many small objects
            made = tables(outcome, self._settings.config.space, batch, epoch=epoch)
        if not outcome.metrics:
            return made
        count = row_count(outcome)
        metrics = metrics_columns(outcome.metrics, [batch] * len(outcome.metrics), count, epoch)
        name = self._region.name
        metrics["state_bytes"] = list(map(self._bytes_of, metrics["broker"], metrics["link"]))
        row: dict[str, Any] = {"broker": name, "link": REGION, "batch": self._batch, **dict.fromkeys(COUNTS, 0)}
        row |= {"epoch": epoch, "seq": count + len(outcome.metrics)}
        row |= {"time": self._region.clock, "arrived": self._region.clock, "batches": outcome.batches}
        row |= {"state_bytes": self._bytes_of(name, REGION), "millis": self._store.millis}
        return made | {"metrics": {column: [*values, row.get(column)] for column, values in metrics.items()}}

    def _bytes_of(self, broker: str, link: str) -> int:
        """Return the size of what is stored of a link; `LOCAL`: of the broker itself; `REGION`: the rest."""
        keys = {LOCAL: keys_of(broker, ()), REGION: ["head", "log"]}.get(link, [f"{broker}/{link}"])
        return sum(self._store.sizes.get(key, 0) for key in keys)


class Step:
    """One region in one batch: take its `records` to their end, then `close`.

    A region without state begins from the prepared state of its life, if there is one; that is then stored in any case.
    """

    def __init__(self, settings: Settings, name: str, pieces: Pieces, parcels: Iterable[bytes], batch: int) -> None:
        self._batch, self._began = batch, wall.perf_counter()
        brokers, seeds = settings.part_of[name].brokers, settings.seeded and pieces.get(HEAD) is None
        if seeds:
            for key, piece in from_row(seed_of(settings.folder, name), name).items():
                pieces[key] = piece
        self._store = HELD.open(pieces, name, settings.config.setups(brokers), settings.epoch, batch)
        region = self._store.region
        region.pace = settings.config.lake.metrics_every * SECOND
        before = _received(region)
        arrivals = merge(arrivals_of(map(read_parcel, parcels), name, settings.config.space.dims))
        outcome = region.take(arrivals, batch)
        self._output = Output(settings, self._store, outcome, batch)
        self._measured = bool(outcome.metrics)
        counted = bool(outcome.counts)
        self._changed = seeds or is_recorded(outcome) or counted or bool(region.log) or before != _received(region)

    def records(self) -> Iterator[Record]:
        """Yield everything to be written."""
        return self._output.records()

    def close(self) -> bool:
        """Write the state into the pieces. Return False if it is as before, apart from the clock, which is not kept."""
        before = 0.0 if self._measured else self._store.millis or 0.0
        self._store.millis = before + (wall.perf_counter() - self._began) * 1000
        if self._changed:
            self._store.save()
        else:
            self._store.leave()
        HELD.keep(self._store, self._batch)
        return self._changed


def arrivals_of(parcels: Iterable[Parcel], region: str, dims: int) -> Iterator[Arrival]:
    """Yield the arrivals in parcels, in no particular order."""
    for parcel in parcels:
        channel = parcel.channel
        for e in parcel.events:
            yield Arrival(channel, e.offset, e.time, e.broker, LOCAL, unpack(e.message, dims), e.message)
        for p in parcel.letters:
            yield Arrival(channel, p.offset, p.time, p.broker, p.origin, _letter(channel, p))
        for r in parcel.rejects:
            yield Arrival(channel, r.offset, r.time, r.broker, LOCAL, r.refused)
        for c in parcel.commands:
            yield Arrival(channel, c.offset, c.time, region, LOCAL, c.command)


def _letter(channel: Channel, posted: Posted) -> Letter | Refused:
    letter = letter_of(posted.frame)
    if isinstance(letter, Letter):
        return letter
    value = write(posted.frame.content)[0][:MOST_REFUSED]
    place = channel.topic, channel.partition, posted.offset
    return Refused(*place, value, letter.rule, letter.message, channel.name, posted.time)


def _received(region: Region) -> list[int]:
    return [receiver.number for receiver in region.receivers.values()]


def is_recorded(outcome: Outcome) -> bool:
    """Return whether an outcome is to be written at all."""
    recorded = outcome.subscriptions, outcome.publications, outcome.decisions, outcome.routes, outcome.rejects
    return any(recorded) or bool(outcome.letters or outcome.deliveries or outcome.metrics)


def _who(name: Name) -> bytes:
    """Return the part of a delivery that says whose it is."""
    return b'{"client":%s,"subscription":%s,"broker":%s' % (_json(name.client), _json(name.id), _json(name.broker))


def _what(publication: Publish, space: Space) -> bytes:
    """Return the part of a delivery that says what was published."""
    return b',"publication":%s,"at":%s,"payload":%s,"time":%s,"publication_key":%s,"entry":%s' % (
        _json(publication.id),
        _json(space.describe_point(publication.point)),
        publication.payload or b"null",
        _json(timestamp_text(publication.time)),
        _json(publication.key),
        _json(publication.entry),
    )


def _headers(headers: Headers) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in headers] or None


def _parts(space: Space, table: str, columns: Columns, most: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Cut rows into parts of at most `most`, and of fewer where they are long: Kafka limits the size of a record."""
    size = MOST_ROWS if most is None else most
    for begin in range(0, len(columns["batch"]), size):
        some = {column: values[begin : begin + size] for column, values in columns.items()}
        rows, stream = len(some["batch"]), stream_of(space, table, some)
        if rows == 1 or len(stream) <= MOST_FRAME:
            yield rows, stream
        else:
            yield from _parts(space, table, some, (rows + 1) // 2)


def gathered(records: Iterable[Record], most: int | None = None) -> Iterator[pd.DataFrame]:
    """Yield records as frames for Spark, and empty rows after every `most` bytes of them."""
    limit = MOST_OUTPUT if most is None else most
    some: list[Record] = []
    size = 0
    for record in records:
        some.append(record)
        size += _bytes_of(record)
        if size >= limit:
            yield pd.DataFrame(some, columns=Record._fields)
            some, size = [], 0
            yield empty_rows()
    if some:
        yield pd.DataFrame(some, columns=Record._fields)


def empty_rows() -> pd.DataFrame:
    """Return so many rows without a topic that Spark writes what it has gathered."""
    columns = {"topic": None, "partition": 0, "key": b"", "value": b"", "headers": None}
    return pd.DataFrame(columns, index=range(MOST_ARROW + 1))


def _bytes_of(record: Record) -> int:
    headers = sum(len(header["key"]) + len(header["value"]) for header in record.headers or ())
    return len(record.key) + len(record.value) + headers
