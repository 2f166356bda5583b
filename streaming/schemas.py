"""The shapes of what moves: parcels inside the router, columns of the tables, rows as Arrow streams.

A **parcel** is what one chunk of records of one channel holds for one region: many arrivals in one row. Spark then
handles a few rows a batch instead of many, and the work per message is done where it belongs, in the core.

Rows travel to the archive in frames (`state.protocol.frame`), numbered per region 1, 2, 3 ..., so that the archive
drops repeats without looking inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from state.protocol.arrivals import Channel
from state.protocol.commands import Command
from state.protocol.events import Refused
from state.protocol.frame import Frame
from state.protocol.wire import Packed
from state.storage.rows import MOST_VALUE, TABLES

PARCELS = "region string, parcel binary"
STATE = "version int, payload binary"
MOST_ARROW = 10_000
"""Rows in one exchange with a Python worker."""
MOST_ARROW_BYTES = 64 << 20
"""Bytes that Spark sends to a Python worker at once, apart from the last row; an Arrow column holds at most 2 GiB."""
MOST_REFUSED = 4 * MOST_VALUE
"""Bytes of a refused record that are kept: as many as its row may show, in UTF-8."""
OUTPUT = "topic string, partition int, key binary, value binary, headers array<struct<key: string, value: binary>>"

# Parcels


class Sent(msgspec.Struct, array_like=True):
    """A client's event: its offset, when Kafka took it (microseconds), its broker, the message."""

    offset: int
    time: int
    broker: str
    message: Packed


class Posted(msgspec.Struct, array_like=True):
    """A letter between two regions: its offset, when Kafka took it, receiver and sender, the frame around it."""

    offset: int
    time: int
    broker: str
    origin: str
    frame: Frame


class Rejected(msgspec.Struct, array_like=True):
    """A refused record, at the broker that it was for, or at the region's first."""

    offset: int
    time: int
    broker: str
    refused: Refused


class Ordered(msgspec.Struct, array_like=True):
    """A command, for every region."""

    offset: int
    time: int
    command: Command


class Parcel(msgspec.Struct, array_like=True):
    """Arrivals of one channel for one region."""

    channel: Channel
    events: list[Sent] = []
    letters: list[Posted] = []
    rejects: list[Rejected] = []
    commands: list[Ordered] = []


write_parcel = msgspec.msgpack.Encoder().encode
read_parcel = msgspec.msgpack.Decoder(Parcel).decode

# Tables

_NAME = pa.struct([(part, pa.string()) for part in ("home", "client", "subscription")])
_TYPES: dict[str, Any] = {
    "text": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "time": pa.timestamp("us", tz="UTC"),
    "json": pa.string(),
    "texts": pa.list_(pa.string()),
    "name": _NAME,
    "names": pa.list_(_NAME),
}
SCHEMAS: dict[str, pa.Schema] = {
    table: pa.schema([pa.field(c.name, _TYPES[c.kind], metadata={"comment": c.about}) for c in columns])
    for table, columns in TABLES.items()
}
"""The Arrow schema of each Delta table; types and comments are those of `state.storage.rows`."""
_JSON = {table: frozenset(c.name for c in columns if c.kind == "json") for table, columns in TABLES.items()}
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")
_json = msgspec.json.Encoder().encode


def stream_of(table: str, columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Return columns as an Arrow stream in the table's schema."""
    schema = SCHEMAS[table]
    arrays = [pa.array(_texts(columns[f.name]) if f.name in _JSON[table] else columns[f.name], f.type) for f in schema]
    batch = pa.record_batch(arrays, schema=schema.remove_metadata())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _texts(values: Sequence[Any]) -> list[str | None]:
    return [None if value is None else _json(value).decode() for value in values]


def table_of(stream: bytes) -> pa.Table:
    """Return the rows in an Arrow stream."""
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()
