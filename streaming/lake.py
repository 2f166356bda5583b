"""The lake: the Delta tables below one path, and the two writers that append to them.

    topic of frames  ──▶ Load: what one batch holds ──heads──▶ plan (see `streaming.archive`)
                           │                                     │ which records to skip
                           └──append(table, skipped, stamp)◀─────┘

Both writers append each table idempotently, by Delta's own means: a commit carries a stamp, an application id and a
version, and a writer that finds the stamp in the table's log, or a later version, writes nothing. The version is the
number of the batch; there is one id per table and life of the archive. Both writers read and write the same stamps, so
either may end what the other began; of two commits that race with one stamp, Delta refuses the second.

    RustWriter     the records pass through the driver; delta-rs writes: about 10 ms a table. One machine. Of a large
                   batch only the heads come at once; the rows follow in slices, so that memory does not limit a batch.
    SparkWriter    the records stay on the executors; Spark writes: about a second a table. A cluster.

A **head** is a record without its rows: all that the plan needs. A record that cannot be read has a head
too, with its fault, so that workers never raise. A record that Lacuna did not write is *foreign*: its head has the
beginning of its value, for a row in `rejects`. Any other fault stops the driver with one message.

Tables are made by delta-rs in either case, empty, before anything is written: reader version 1, writer version 2 and no
table feature, which every reader of Delta understands. A table that is already there must have just these columns, or
be one that an earlier version of Lacuna made, with fewer: then the others are added, and are null in the rows that it
has. Frames of an earlier version are completed in the same way, so that a topic outlives an upgrade.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from state.errors import LacunaError, StateError
from state.protocol.events import Reject
from state.protocol.frame import MAGIC, START, VERSION, Frame, read, rows_of
from state.space import Space
from state.storage.tables import TABLES, WRITTEN, skipped_by
from streaming.paths import absolute, is_local, refusals
from streaming.schemas import MOST_REFUSED, schemas_of, table_of
from streaming.stops import REBUILD_REST

Place = tuple[int, int]
"""Partition and offset of a record."""

APPEND_ONLY = "delta.appendOnly"
PROPERTIES = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 7 days",
    APPEND_ONLY: "true",
}
"""Spark's default, a checkpoint every 10 commits, costs more than the commits; kept a month, logs of a commit a second
are millions of files. Nobody but `maintenance` may delete or change rows."""
SKIPPED_BY = "delta.dataSkippingStatsColumns"
LEAST_FREE = 64 << 20
"""Bytes that a disk must have free when the archive starts."""
TRIES = 5
"""Attempts at a commit that conflicts with another one."""
CHUNK = 1 << 16
"""Rows that a writer holds decoded at a time."""
CHUNK_BYTES = 16 << 20
"""Bytes of packed rows that a writer decodes at a time, apart from the last frame."""
MOST_HANDED = 16 << 20
"""Bytes of packed rows that a task hands to the driver unasked; the driver asks for the others in slices."""
MOST_SLICE = 64 << 20
"""Bytes of packed rows that the driver asks for at a time, apart from the last frame."""


# Paths


def table_path(lake: str, table: str) -> str:
    """Return the path of a table."""
    return f"{absolute(lake)}/{table}"


# Tables


def check_folder(path: str, name: str = "lake.path", least_free: int = LEAST_FREE) -> None:
    """Make the folder if need be, and see that it can be written and its disk is not full. Nothing else is touched."""
    if not is_local(path):
        return
    with refusals(name, path):
        folder = Path(absolute(path))
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < least_free:
            raise OSError(errno.ENOSPC, f"only {free >> 20} MB of its disk are free, {least_free >> 20} MB are needed")
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0")


def create_tables(lake: str, space: Space) -> None:
    """Create the missing tables, and bring up those of an earlier version. Refuse whatever else lies in their place."""
    check_folder(lake)
    found = {table: _existing(lake, table) for table in TABLES}
    for table, there in found.items():
        if there is not None:
            _check_columns(lake, table, there, space)
    for table, there in found.items():
        if there is None:
            _create(lake, table, space)
        else:
            _add_columns(lake, table, there, space)
            _set_comments(lake, table, there)
            _set_properties(there, lake, _properties(table))


def _properties(table: str) -> dict[str, str]:
    return {**PROPERTIES, SKIPPED_BY: ",".join(skipped_by(table))}


def _create(lake: str, table: str, space: Space) -> None:
    with refusals("lake.path", lake):
        DeltaTable.create(
            table_path(lake, table),
            Schema.from_arrow(schemas_of(space)[table]),
            mode="ignore",
            name=table,
            description=TABLES[table].about,
            configuration=_properties(table),
        )


def _add_columns(lake: str, table: str, there: DeltaTable, space: Space) -> None:
    """Add the columns that an earlier version did not know, and the fields of attributes that are new."""
    known = {field.name: field.type for field in schema_of(there)}
    ours = schemas_of(space)[table]
    lacks = [f for f in ours if f.name not in known or not is_widened(f.type, known[f.name])]
    lacking = [
        Field(f.name, f.type, nullable=True, metadata=f.metadata) for f in Schema.from_arrow(pa.schema(lacks)).fields
    ]
    if lacking:
        with refusals("lake.path", lake):
            there.alter.add_columns(lacking)


def _set_comments(lake: str, table: str, there: DeltaTable) -> None:
    """Let columns say what they hold now: an earlier version may have said something else."""
    said = {field.name: field.metadata.get("comment") for field in there.schema().fields}
    for column in TABLES[table].columns:
        if said.get(column.name) != column.about:
            with refusals("lake.path", lake):
                there.alter.set_column_metadata(column.name, {"comment": column.about})


def allow_deletes(table: DeltaTable, lake: str, *, allowed: bool) -> None:
    """Let rows of a table be deleted, or not."""
    _set_properties(table, lake, {APPEND_ONLY: "false" if allowed else "true"})


def _set_properties(table: DeltaTable, lake: str, wanted: Mapping[str, str]) -> None:
    there = table.metadata().configuration
    other = {name: value for name, value in wanted.items() if there.get(name) != value}
    if other:
        with refusals("lake.path", lake):
            table.alter.set_table_properties(other)


def _existing(lake: str, table: str) -> DeltaTable | None:
    path = table_path(lake, table)
    if not DeltaTable.is_deltatable(path):
        if is_local(path) and not is_vacant(Path(path)):
            rule = f"{path} is in the place of the table {table}, and is no Delta table"
            raise _foreign(lake, rule)
        return None
    try:
        return DeltaTable(path)
    except (DeltaError, OSError, ValueError) as error:
        said = str(error).partition("\n")[0]  # a trace may follow
        rule = f"{path} cannot be read as a Delta table: its log is damaged, or it is not one ({said})"
        remedy = f"restore it from a copy, or set it aside and fill new tables from the topic: {REBUILD_REST}"
        raise LacunaError(f"lake.path = {lake!r}: {rule}. Remedy: {remedy}") from error


def is_vacant(path: Path) -> bool:
    """Return whether there is nothing, or only folders without files, as a killed start may leave."""
    if not os.path.lexists(path):
        return True
    return path.is_dir() and not any(files for _, _, files in os.walk(path))


def _check_columns(lake: str, table: str, there: DeltaTable, space: Space) -> None:
    ours = {field.name: field.type for field in schemas_of(space)[table]}
    theirs = {field.name: field.type for field in schema_of(there)}
    lacks = [name for name in ours if name not in theirs]
    more = [name for name in theirs if name not in ours]
    other = [name for name in ours if name in theirs and not _agree(ours[name], theirs[name])]
    about = there.metadata()
    earlier = not lacks or about.name == table  # Lacuna's own bear their name
    if earlier and not (more or other or about.partition_columns):
        return
    faults = (("it lacks", lacks), ("it also has", more), ("of another type:", other))
    told = "; ".join(f"{words} {', '.join(names)}" for words, names in faults if names) or "it is partitioned"
    raise _foreign(lake, f"the table {table} there has other columns than Lacuna's: {told}")


def _agree(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether no field that both have is of two types: attributes come and go with lives."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in other}
        return all(_agree(field.type, fields[field.name]) for field in one if field.name in fields)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _agree(one.value_type, other.value_type)
    return bool(one == other)


def other_kinds(lake: str, space: Space) -> list[str]:
    """Return which attributes of a space the tables hold as something else, in sentences."""
    if not DeltaTable.is_deltatable(table_path(lake, "publications")):
        return []
    theirs = schema_of(open_table(lake, "publications")).field("point").type
    known = {field.name: field.type for field in theirs}
    ours = schemas_of(space)["publications"].field("point").type
    return [
        f"space.{field.name} is {field.type}, and the tables hold it as {known[field.name]}. Remedy: give the "
        "attribute another name, or choose another lake.path"
        for field in ours
        if known.get(field.name, field.type) != field.type
    ]


def _foreign(lake: str, rule: str) -> LacunaError:
    remedy = f"choose another lake.path, or set aside what is there and fill new tables from the topic: {REBUILD_REST}"
    return LacunaError(f"lake.path = {lake!r}: {rule}. Remedy: {remedy}")


def open_table(lake: str, table: str) -> DeltaTable:
    """Open a table. Raises an error that says what is missing."""
    path = table_path(lake, table)
    if not DeltaTable.is_deltatable(path):
        raise LacunaError(f"lake.path = {lake!r}: there is no table {table}. Remedy: run the archive first.")
    return DeltaTable(path)


def schema_of(table: DeltaTable) -> pa.Schema:
    """Return the columns of a table, in its own order, which is that in which versions of Lacuna added them."""
    return pa.schema(table.schema().to_arrow()).remove_metadata()


def table_counts(lake: str) -> dict[str, int]:
    """Return the number of rows of each table, from the statistics in their logs."""
    return {table: open_table(lake, table).count() for table in TABLES}


# What a batch holds


class Stamp(NamedTuple):
    """The mark by which a commit is recognised: an application id and a version."""

    application: str
    version: int


class Head(NamedTuple):
    """A frame without its rows, and its position; `fault` says why it cannot be read, `foreign` that it is not ours.

    `previous` and `checksum` are those of the frame; `written` is when Kafka took the record (microseconds); `value` is
    the beginning of a foreign record, `key` its key.
    """

    partition: int
    offset: int
    epoch: int
    channel: str
    number: int
    table: str
    rows: int
    fault: str | None = None
    foreign: bool = False
    previous: bytes = START
    checksum: bytes = START
    value: bytes = b""
    key: str | None = None
    written: int = 0

    @property
    def place(self) -> Place:
        return self.partition, self.offset


class Stream(NamedTuple):
    """Rows of one table as an Arrow stream, and when Kafka took the record that brought them (microseconds), if any."""

    rows: bytes
    written: int | None


def unframe(
    partition: int, offset: int, value: bytes | None, key: bytes | None = None, written: int = 0
) -> tuple[Head, bytes]:
    """Return the head and the rows of a record."""
    record = value or b""
    frame = read(record)
    name = None if key is None else key.decode(errors="replace")
    if not isinstance(frame, Frame):
        later = record.startswith(MAGIC) and record[len(MAGIC) : len(MAGIC) + 1] > bytes([VERSION])
        fault = Head(partition, offset, 0, "", 0, "", 0, frame.message, not later, key=name, written=written)
        return fault._replace(value=record[:MOST_REFUSED]), b""
    content, rows = frame.content, rows_of(frame)
    head = Head(partition, offset, content.epoch, content.channel, content.number, "", 0, key=name, written=written)
    if isinstance(rows, Reject):
        return head._replace(fault=rows.message, foreign=True, value=record[:MOST_REFUSED]), b""
    unknown = None if rows.table in TABLES else f"it is for a table {rows.table!r}, which does not exist"
    head = head._replace(table=rows.table, rows=rows.rows, fault=unknown)
    return head._replace(previous=content.previous, checksum=frame.checksum), with_epoch(rows.stream, content.epoch)


def with_epoch(stream: bytes, epoch: int) -> bytes:
    """Return rows with the column `epoch`. A version that knew no lives wrote the epoch beside the rows alone."""
    try:
        with pa.ipc.open_stream(stream) as reader:
            if "epoch" in reader.schema.names:
                return stream
            rows = reader.read_all()
    except (pa.ArrowException, OSError):
        return stream  # it is damaged, which is said where it is read
    sink = pa.BufferOutputStream()
    wider = rows.append_column("epoch", pa.array([epoch] * len(rows), pa.int64()))
    with pa.ipc.new_stream(sink, wider.schema) as writer:
        writer.write_table(wider)
    return bytes(sink.getvalue())


def batches(table: str, schema: pa.Schema, streams: Iterable[Stream]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one table in its schema, decoded a chunk at a time."""
    held: list[pa.Table] = []
    count = size = 0
    for stream in streams:
        held.append(_rows(table, schema, stream))
        count, size = count + held[-1].num_rows, size + len(stream.rows)
        if count >= CHUNK or size >= CHUNK_BYTES:
            yield from pa.concat_tables(held).combine_chunks().to_batches()
            held, count, size = [], 0, 0
    if held:
        yield from pa.concat_tables(held).combine_chunks().to_batches()


def _rows(table: str, schema: pa.Schema, stream: Stream) -> pa.Table:
    try:
        rows = table_of(stream.rows)
    except (pa.ArrowException, OSError) as error:
        raise StateError(f"a frame of {table} is damaged: {error}. {REREAD}") from error
    moment = pa.array([stream.written], pa.int64()).cast(schema.field(WRITTEN.name).type)
    written = pa.chunked_array([pa.repeat(moment[0], len(rows))])
    return _completed(table, schema, rows.append_column(WRITTEN.name, written))


def _completed(table: str, schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Return rows in the schema of the table: a column, or an attribute, that their version did not know is null."""
    lacks = [f for f in rows.schema if f.name not in schema.names or not is_widened(f.type, schema.field(f.name).type)]
    if lacks:
        raise Lacking(table, pa.schema(lacks))
    known = set(rows.column_names)
    columns = [rows.column(f.name).cast(f.type) if f.name in known else pa.nulls(len(rows), f.type) for f in schema]
    return pa.table(columns, schema=schema)


class Lacking(StateError):
    """Rows have `columns` that their table has not, or not with all attributes."""

    def __init__(self, table: str, columns: pa.Schema) -> None:
        self.columns = columns
        super().__init__(
            f"a frame of {table} has columns that the table lacks. Remedy: start the archive again with the router's "
            "configuration, which adds those of new attributes; or run the version of Lacuna that wrote it"
        )


def add_attributes(lake: str, table: str, lacking: Lacking) -> None:
    """Add the fields of attributes that a table lacks. Raises `lacking` if it lacks something else.

    An attribute may be gone from the space when rows of an earlier life are read again.
    """
    there = open_table(lake, table)
    known = {field.name: field.type for field in schema_of(there)}
    if any(f.name not in known or not _agree(f.type, known[f.name]) for f in lacking.columns):
        raise lacking
    with refusals("lake.path", lake):
        there.alter.add_columns([Field(f.name, f.type, nullable=True) for f in _fields(lacking.columns)])


def _fields(columns: pa.Schema) -> list[Field]:
    return list(Schema.from_arrow(columns).fields)


def is_widened(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether a type is the same as another, but for fields that the other has besides."""
    if pa.types.is_struct(narrow) and pa.types.is_struct(wide):
        fields = {field.name: field.type for field in wide}
        return all(field.name in fields and is_widened(field.type, fields[field.name]) for field in narrow)
    if pa.types.is_list(narrow) and pa.types.is_list(wide):
        return is_widened(narrow.value_type, wide.value_type)
    return bool(narrow == wide)


REREAD = "Remedy: run the version of Lacuna that wrote it; if the topic is damaged, restore it from a copy"


# Writers


class Load(Protocol):
    """The records of one batch."""

    @property
    def heads(self) -> list[Head]:
        """The header of each record."""

    def append(self, table: str, skipped: Collection[Place], stamp: Stamp, more: Sequence[Stream] = ()) -> None:
        """Add the rows for a table, unless the table has the stamp already.

        Rows of records that are `skipped` are left out; those of the streams `more` are added.
        """


class Writer(Protocol):
    """A writer of the tables."""

    def load(self, records: DataFrame) -> AbstractContextManager[Load]:
        """Read a batch with the columns partition, offset, key, value and written, once."""


class RustWriter:
    """Through the driver, with delta-rs. Tables stay open, so that a commit reads only the log's new end."""

    def __init__(self, lake: str) -> None:
        self._lake = lake
        self._open: dict[str, DeltaTable] = {}

    @contextmanager
    def load(self, records: DataFrame) -> Iterator[Load]:
        """Collect the heads, and the rows as far as they are not too large."""
        rest = Rest(records)
        try:
            yield RustLoad(self, _taken_apart(records, MOST_HANDED).toArrow(), rest.fetch)
        finally:
            rest.close()

    def append(self, table: str, streams: Callable[[], Iterable[Stream]], stamp: Stamp) -> None:
        """Make one commit, unless the table has it already. Attributes that the table lacks are added to it."""
        try:
            self._try_append(table, streams, stamp)
        except Lacking as error:
            add_attributes(self._lake, table, error)
            self.append(table, streams, stamp)

    def _try_append(self, table: str, streams: Callable[[], Iterable[Stream]], stamp: Stamp) -> None:
        for _ in range(TRIES - 1):
            with suppress(CommitFailedError):  # another commit changed the table's properties: see `maintenance`
                self._append(table, streams(), stamp)
                return
        self._append(table, streams(), stamp)

    def _append(self, table: str, streams: Iterable[Stream], stamp: Stamp) -> None:
        target = self._table(table)
        last = target.transaction_version(stamp.application)
        if last is not None and last >= stamp.version:
            return
        schema = schema_of(target)
        rows = Watched(batches(table, schema, streams))
        reader = pa.RecordBatchReader.from_batches(schema, rows)
        mark = CommitProperties(app_transactions=[Transaction(*stamp)])
        with refusals("lake.path", self._lake):
            try:
                write_deltalake(target, reader, mode="append", commit_properties=mark)
            except DeltaError as error:
                raise rows.failure or error from None

    def _table(self, table: str) -> DeltaTable:
        if table in self._open:
            self._open[table].update_incremental()
        else:
            self._open[table] = open_table(self._lake, table)
        return self._open[table]


class Watched:
    """Batches that remember why they broke off: through delta-rs only the text of it would come back."""

    def __init__(self, source: Iterator[pa.RecordBatch]) -> None:
        self._source = source
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._source
        except Exception as error:
            self.failure = error
            raise


class Packed(NamedTuple):
    """A record as the driver has it: its head, the size of its packed rows, and the rows if they came with it."""

    head: Head
    size: int
    stream: bytes | None


class RustLoad:
    """A batch in the driver's memory, still packed. `fetch` gives the rows of records that came without them."""

    def __init__(self, writer: RustWriter, frames: pa.Table, fetch: Callable[[Sequence[Packed]], list[bytes]]) -> None:
        self._writer, self._fetch = writer, fetch
        self._frames = sorted(map(_packed, frames.to_pylist()))

    @property
    def heads(self) -> list[Head]:
        """Return the header of each record without decoding its rows."""
        return [frame.head for frame in self._frames]

    def append(self, table: str, skipped: Collection[Place], stamp: Stamp, more: Sequence[Stream] = ()) -> None:
        """Append what is for the table and is not skipped."""
        chosen = [frame for frame in self._frames if frame.head.table == table and frame.head.place not in skipped]
        self._writer.append(table, lambda: chain(more, self._streams(chosen)), stamp)

    def _streams(self, frames: list[Packed]) -> Iterator[Stream]:
        yield from (Stream(frame.stream, frame.head.written) for frame in frames if frame.stream is not None)
        for some in slices(frame for frame in frames if frame.stream is None):
            for frame, rows in zip(some, self._fetch(some), strict=True):
                yield Stream(rows, frame.head.written)


class Rest:
    """The rows that the driver must ask for: kept on the executors from the first question on."""

    def __init__(self, records: DataFrame) -> None:
        self._records = records
        self._kept: DataFrame | None = None

    def fetch(self, some: Sequence[Packed]) -> list[bytes]:
        """Return the rows of some records of one partition, in order."""
        kept = self._kept
        if kept is None:
            kept = self._kept = _taken_apart(self._records).persist(StorageLevel.MEMORY_AND_DISK)
        offsets = [frame.head.offset for frame in some]
        wanted = kept.filter((kept["partition"] == some[0].head.partition) & kept["offset"].isin(offsets))
        found = wanted.select("offset", "stream").toArrow().to_pylist()
        return [row["stream"] for row in sorted(found, key=lambda row: int(row["offset"]))]

    def close(self) -> None:
        """Let the executors forget what they kept."""
        if self._kept is not None:
            self._kept.unpersist()


def slices(frames: Iterable[Packed], most: int | None = None) -> Iterator[list[Packed]]:
    """Cut records into lists of one partition and about `most` bytes."""
    limit = MOST_SLICE if most is None else most
    for _, those in groupby(frames, key=lambda frame: frame.head.partition):
        some: list[Packed] = []
        size = 0
        for frame in those:
            if some and size + frame.size > limit:
                yield some
                some, size = [], 0
            some.append(frame)
            size += frame.size
        yield some


def _packed(row: dict[str, Any]) -> Packed:
    size, stream = row.pop("size"), row.pop("stream")
    return Packed(Head(**row), size, stream)


FRAMES = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("epoch", pa.int64()),
        ("channel", pa.string()),
        ("number", pa.int64()),
        ("table", pa.string()),
        ("rows", pa.int64()),
        ("fault", pa.string()),
        ("foreign", pa.bool_()),
        ("previous", pa.binary()),
        ("checksum", pa.binary()),
        ("value", pa.binary()),
        ("key", pa.string()),
        ("written", pa.int64()),
        ("size", pa.int64()),
        ("stream", pa.binary()),
    ]
)

OWN = -1
"""The partition of rows that come from no record."""
SPARK_SETTINGS = {
    # INT96, the default, has no statistics and is no timestamp to some readers.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The default is 50 tasks, to read a log of a few files.
    "spark.databricks.delta.snapshotPartitions": "1",
    # delta-rs writes none either.
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}


class SparkWriter:
    """On the executors, with Spark. What is cached is the rows beside their head: a table's rows are then found by the
    JVM, and only they pass through Python."""

    def __init__(self, lake: str) -> None:
        self._lake = lake

    @contextmanager
    def load(self, records: DataFrame) -> Iterator[Load]:
        """Take the batch apart and keep it, on the executors, for as long as it is written."""
        for key, value in SPARK_SETTINGS.items():  # of this batch's session: the query's own copy
            records.sparkSession.conf.set(key, value)
        taken = _taken_apart(records).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield SparkLoad(self._lake, taken)
        finally:
            taken.unpersist()


@dataclass
class SparkLoad:
    """A batch on the executors."""

    lake: str
    frames: DataFrame

    @property
    def heads(self) -> list[Head]:
        """Return the header of each record without decoding its rows."""
        rows = self.frames.drop("size", "stream").toArrow().to_pylist()
        return sorted(Head(**row) for row in rows)

    def append(self, table: str, skipped: Collection[Place], stamp: Stamp, more: Sequence[Stream] = ()) -> None:
        """Append what is for the table and is not skipped."""
        frames = self.frames.filter(self.frames["table"] == table).select("partition", "offset", "stream", "written")
        if more:
            added = [(OWN, k, bytearray(stream.rows), stream.written) for k, stream in enumerate(more)]
            frames = frames.unionByName(frames.sparkSession.createDataFrame(added, frames.schema))
        schema = schema_of(open_table(self.lake, table))
        rows = frames.mapInArrow(unpack_rows(table, schema, frozenset(skipped)), from_arrow_schema(schema))
        with refusals("lake.path", self.lake):
            (
                rows.coalesce(1)
                .write.format("delta")
                .mode("append")
                .option("txnAppId", stamp.application)
                .option("txnVersion", stamp.version)
                .save(table_path(self.lake, table))
            )


def _taken_apart(records: DataFrame, most: int | None = None) -> DataFrame:
    frames = records.select("partition", "offset", "key", "value", "written")
    return frames.mapInArrow(take_apart(most), from_arrow_schema(FRAMES))


def take_apart(most: int | None = None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that turns records into heads and streams, for `mapInArrow`.

    With `most`, streams are left out (null) once a task has given out so many bytes of them.
    """

    def take(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = 0
        for chunk in chunks:
            rows = []
            for record in _records(chunk, "partition", "offset", "value", "key", "written"):
                head, stream = unframe(*record)
                given += len(stream)
                kept = stream if most is None or given <= most else None
                rows.append({**head._asdict(), "size": len(stream), "stream": kept})
            yield pa.RecordBatch.from_pylist(rows, schema=FRAMES)

    return take


def unpack_rows(
    table: str, schema: pa.Schema, skipped: frozenset[Place]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Streams into rows, for `mapInArrow`."""

    def unpack(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = (record for chunk in chunks for record in _records(chunk, "partition", "offset", "stream", "written"))
        return batches(table, schema, (Stream(stream, at) for p, o, stream, at in found if (p, o) not in skipped))

    return unpack


def _records(chunk: pa.RecordBatch, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(chunk.column(name).to_pylist() for name in columns), strict=True)


WRITERS: Mapping[str, Callable[[str], Writer]] = {"rust": RustWriter, "spark": SparkWriter}
