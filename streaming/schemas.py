"""The shapes of what moves: parcels inside the router, records to the archive, columns of the tables.

A **parcel** is what one chunk of one channel holds for one group: many messages in one row. Spark then handles a few
rows a batch instead of many, and the work per message is done where it belongs, in the core.

A **sheaf** is what one group adds to one table in one batch: an Arrow table in a record on the records topic,
numbered per group 1, 2, 3 ... (see `state.protocol.channel`), so that the archive drops repeats without looking inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from state.protocol.commands import Wish
from state.protocol.wire import Packed
from state.storage.rows import TABLES

PARCELS = "group string, channel string, start long, now long, blob binary"
STATE = "version int, payload binary"
OUTPUT = "topic string, key binary, value binary"

# Parcels


class ClientEvent(msgspec.Struct, array_like=True):
    """An accepted event: its offset, when the log took it (microseconds), and the message."""

    offset: int
    time: int
    message: Packed


class Mail(msgspec.Struct, array_like=True):
    """A record of the links topic: its offset, its time, and the letter in it, unread."""

    offset: int
    time: int
    letter: bytes


class Asked(msgspec.Struct, array_like=True):
    """A wish about pruning, and where in the links topic it is."""

    partition: int
    offset: int
    wish: Wish


class Refused(msgspec.Struct, array_like=True):
    """A refused record."""

    topic: str
    partition: int
    offset: int
    value: bytes
    rule: str
    message: str


pack = msgspec.msgpack.Encoder().encode
read_events = msgspec.msgpack.Decoder(list[ClientEvent]).decode
read_mail = msgspec.msgpack.Decoder(list[Mail]).decode
read_asked = msgspec.msgpack.Decoder(list[Asked]).decode
read_refused = msgspec.msgpack.Decoder(list[Refused]).decode

# Tables

_TIME = pa.timestamp("us", tz="UTC")
_TYPES: dict[str, Any] = {
    "coverers": pa.list_(pa.string()),
    "time": _TIME,
    **dict.fromkeys(
        (
            *(
                "boxes",
                "nodes",
                "ranges",
                "added",
                "removed",
                "active",
                "passive",
                "batch",
                "seq",
                "partition",
                "offset",
                "negative_rectangles",
                "ranges",
            ),
            *list(TABLES["metrics"])[2:-1],
        ),
        pa.int64(),
    ),
    **dict.fromkeys(("bound", "promised", "millis", "negative_share"), pa.float64()),
}


def _schema(table: str) -> pa.Schema:
    columns = TABLES[table].items()
    return pa.schema(
        [pa.field(name, _TYPES.get(name, pa.string()), metadata={"comment": about}) for name, about in columns]
    )


SCHEMAS: dict[str, pa.Schema] = {table: _schema(table) for table in TABLES}
"""The Arrow schema of each Delta table; the comments are those of `state.storage.rows`."""


# Sheaves


class Sheaf(msgspec.Struct, array_like=True):
    """What a group adds to a table: an Arrow stream, under the group's number for it."""

    format: int
    epoch: int
    channel: str
    number: int
    batch: int
    table: str
    rows: int
    stream: bytes


FORMAT = 1
read_sheaf = msgspec.msgpack.Decoder(Sheaf).decode
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def stream_of(table: str, columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Columns as an Arrow stream in the table's schema."""
    schema = SCHEMAS[table]
    batch = pa.record_batch([pa.array(columns[f.name], f.type) for f in schema], schema=schema.remove_metadata())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def table_of(stream: bytes) -> pa.Table:
    """The rows in an Arrow stream."""
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()
