"""The shapes of what moves: parcels inside the router, columns of the tables, rows as Arrow streams.

A **parcel** is what one chunk of records of one channel holds for one region: many arrivals in one row. Spark then
handles a few rows a batch instead of many, and the work per message is done where it belongs, in the core.

Rows travel to the archive in frames (`state.protocol.frame`), numbered per region 1, 2, 3 ..., so that the archive
drops repeats without looking inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from state.protocol.arrivals import Channel
from state.protocol.commands import Command
from state.protocol.events import Refused
from state.protocol.frame import Frame
from state.protocol.wire import Packed
from state.space import Attribute, Space, timestamp_key
from state.storage.rows import MOST_VALUE, point_columns
from state.storage.tables import TABLES, WRITTEN, Column, Kind, made_columns

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
_TIME = pa.timestamp("us", tz="UTC")
_TYPES: dict[str, Any] = {
    "text": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "time": _TIME,
    "json": pa.string(),
    "texts": pa.list_(pa.string()),
    "name": _NAME,
    "names": pa.list_(_NAME),
}
_VALUES = {"int": pa.int64(), "float": pa.float64(), "category": pa.string(), "timestamp": _TIME}
"""The type of an attribute's values, by its kind."""
Schemas = Mapping[str, pa.Schema]
_PLAIN, _COMPRESSED = pa.ipc.IpcWriteOptions(), pa.ipc.IpcWriteOptions(compression="zstd")
FEW_BYTES = 4096
"""Rows of fewer bytes are not compressed: Arrow compresses each column by itself, which takes a few short ones 0.4 ms
and makes them longer. Readers take both."""
_json = msgspec.json.Encoder().encode


@lru_cache(maxsize=64)
def schemas_of(space: Space) -> Schemas:
    """Return the Arrow schema of each Delta table; types and comments are those of `state.storage.tables`."""
    return {name: pa.schema([_field(space, column) for column in table.columns]) for name, table in TABLES.items()}


@lru_cache(maxsize=512)
def _made(space: Space, table: str) -> pa.Schema:
    """Return the schema of rows in a frame, which their reader completes."""
    schema = schemas_of(space)[table].remove_metadata()
    return schema.remove(schema.get_field_index(WRITTEN.name))


def _field(space: Space, column: Column) -> pa.Field:
    about = {"comment": column.about}
    return pa.field(column.name, _type_of(space, column.kind), nullable=not column.always, metadata=about)


def _type_of(space: Space, kind: Kind) -> pa.DataType:
    match kind:
        case "point":
            return pa.struct([(a.name, _VALUES[a.kind]) for a in space.attributes])
        case "boxes":
            return pa.list_(pa.struct([(a.name, _side_type(a)) for a in space.attributes]))
        case _:
            return _TYPES[kind]


def _side_type(attribute: Attribute) -> pa.DataType:
    value = _VALUES[attribute.kind]
    return pa.list_(value) if attribute.kind == "category" else pa.struct([("low", value), ("high", value)])


def stream_of(space: Space, table: str, columns: Mapping[str, Any]) -> bytes:
    """Return columns as an Arrow stream in the table's schema."""
    schema = _made(space, table)
    arrays = [_array(space, c.kind, columns[c.name], schema.field(c.name).type) for c in made_columns(table)]
    batch = pa.record_batch(arrays, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_PLAIN if batch.nbytes < FEW_BYTES else _COMPRESSED) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _array(space: Space, kind: Kind, values: Any, wanted: pa.DataType) -> pa.Array:
    match kind:
        case "json":
            return pa.array([None if value is None else _json(value).decode() for value in values], wanted)
        case "point":
            found = point_columns(space, values)
            return pa.StructArray.from_arrays([_plain(found[f.name], f.type) for f in wanted], fields=list(wanted))
        case "boxes":
            return pa.array([boxes and [_box(space, box) for box in boxes] for boxes in values], wanted)
        case _:
            return _plain(values, wanted)


def _plain(values: Any, wanted: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(wanted) if pa.types.is_timestamp(wanted) else pa.array(values, wanted)


def _box(space: Space, box: dict[str, Any]) -> dict[str, Any]:
    """Return a box whose timestamps are moments, not texts."""
    times = [a.name for a in space.attributes if a.kind == "timestamp" and box[a.name] is not None]
    if not times:
        return box
    return box | {name: {end: timestamp_key(text) for end, text in box[name].items()} for name in times}


def table_of(stream: bytes) -> pa.Table:
    """Return the rows in an Arrow stream."""
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()
