"""The archive query: from the records topic into the tables, each row exactly once, whatever crashed.

The topic holds frames of rows (`state.protocol.frame`), each numbered on its channel: one channel per region and epoch.
The router may have written a frame twice: its number shows that. Spark may run a batch twice, and the process may die
between two tables. Three things make that harmless:

    Spark's checkpoint    batch N holds the same records whenever it is run
    marks-N               the number of the last frame taken on each channel, after batch N
    the stamp (N)         in each table's log: the batch is in this table already (see `lake`)

    batch N:  marks of N-1 ──plan──▶ repeats, marks of N ──write marks-N──▶ append to table 1, 2 ...

A plan is a function of the marks before and the heads of the batch, and of nothing else: run again, batch N finds the
same repeats, skips the tables that have its stamp and appends the same rows to the others. Marks are written *before*
the tables: if batch N is ever planned differently from what stands in marks-N, Spark's checkpoint is not the one that
the tables were written with, and the archive stops before a table could skip rows that it never had.

Frames of every life are taken, as far as that life was valid (`state.protocol.control`): the topic is history. A plan
judges by the announcements up to an offset of the control topic. Its marks keep that offset: a replay judges the same.

Numbers on a channel, as in `state.protocol.channel`: one at or below the mark is a repeat; the next is taken; a greater
one is a gap, rows are lost, and the archive stops. A new archive may find that a partition of the topic begins above 0,
because of its retention: then each channel there begins with the first frame that is found.

A record that is no frame, is of an epoch that was never announced, or uses a number again for other contents is
foreign. The archive writes a row in `rejects` for it and goes on: stopping at it would stop the archive for ever. If it
was a damaged frame, the next number shows the gap.

Not chosen: an application id per channel and its number as version would need no marks, but Spark's writer can put only
one stamp on a commit; a query with state would do the work of the marks, at several times the cost.

Stopping. A query that is stopped while Python runs its batch may lose its thread. So the batch function looks at its
beginning whether it is to stop, and ends the query with `StopArchive`; `ArchiveQuery.stop` lets a batch end first.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field

import msgspec
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from access.control import ControlLog
from access.offsets import first_times, topic_spans
from state.errors import StateError
from state.protocol.control import Lives, Prefix
from state.protocol.events import Refused, Reject
from state.space import Space
from state.storage.rows import from_rows, reject_row
from state.storage.tables import TABLES
from streaming.claims import claim, release, taken
from streaming.earlier import bring_up
from streaming.lake import (
    WRITERS,
    Head,
    Place,
    Stamp,
    Stream,
    Writer,
    check_folder,
    create_tables,
    open_table,
    table_counts,
)
from streaming.paths import absolute, file_system, refusals
from streaming.pipeline import choose_checkpoint_writer, reading
from streaming.schemas import stream_of
from streaming.settings import Settings
from streaming.stops import ARCHIVE, stopped
from streaming.swap import finish

MOST_RECORDS = 2_000
"""Frames in a batch: at most 4096 rows and 1 MB each, and with the rust writer all in the driver's memory, packed."""
KEPT = 100
"""Files of marks that are kept."""
NO_LIVES = Lives()


log = logging.getLogger(__name__)


class StopArchive(Exception):
    """The archive was asked to stop: not a failure."""


# Where things are


@dataclass(frozen=True)
class Places:
    """The paths of everything that the archive keeps, derived from the folder of its Spark checkpoint."""

    lake: str
    checkpoint: str

    @property
    def marks(self) -> str:
        return f"{self.checkpoint}-marks"

    @property
    def journal(self) -> str:
        """The renames of a rebuild under way: see `swap`."""
        return f"{self.checkpoint}-swap.json"

    @property
    def lock(self) -> str:
        folder, _, name = self.checkpoint.rpartition("/")
        return f"{folder}/.{name}.lock"


def places(settings: Settings, checkpoint: str | None = None) -> Places:
    """The places of a configuration; by default Spark's checkpoint is `archive` below `[lake].checkpoint`."""
    lake = settings.config.lake
    return Places(absolute(lake.path), absolute(checkpoint or f"{lake.checkpoint}/archive"))


# Marks


class Filled(msgspec.Struct, frozen=True):
    """The content of a table: the last batch that added to it, and the rows of all batches."""

    batch: int
    rows: int


class Marks(msgspec.Struct, frozen=True):
    """The progress of the archive after a batch: the last frame of every channel, the next offset of every partition.

    `life` names the tables' stamps: it is drawn when the archive begins with empty tables, and kept. `foreign` counts
    foreign records. `begins` gives the first offset of each partition that had lost some by then. `checksums` are those
    of the last frames, `control` is the offset up to which announcements count.
    """

    life: str
    batch: int = -1
    channels: dict[str, dict[str, int]] = {}
    offsets: dict[str, int] = {}
    tables: dict[str, Filled] = {}
    format: int = 1
    foreign: int = 0
    begins: dict[str, int] = {}
    checksums: dict[str, dict[str, str]] = {}
    control: int = 0

    def stamp(self, table: str) -> Stamp:
        """Return the stamp that a commit of this batch to a table carries."""
        return Stamp(f"lacuna-{self.life}-{table}", self.batch)


_write = msgspec.json.Encoder(order="deterministic").encode
_read = msgspec.json.Decoder(Marks).decode


class MarkFiles:
    """Marks in a folder, a file per batch; a file appears whole or not at all."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._system, self._root = file_system(folder)

    def numbers(self) -> list[int]:
        """The batches of which there are marks, in order."""
        found = self._system.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        stems = [info.base_name.removesuffix(".json") for info in found]
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def has(self, batch: int) -> bool:
        """Return whether there are marks of a batch."""
        return bool(self._system.get_file_info(self._name(batch)).is_file)

    def get(self, batch: int) -> Marks:
        """The marks after a batch."""
        name = self._name(batch)
        try:
            with self._system.open_input_stream(name) as file:
                marks: Marks = _read(file.read())
        except (OSError, msgspec.MsgspecError) as error:
            found = f"{name}: marks of the archive are missing or damaged ({error})"
            raise stopped(ARCHIVE["archive's checkpoint mixed"], found) from None
        if marks.format > 1 or marks.batch != batch:
            what = f"format {marks.format}, batch {marks.batch}"
            raise StateError(f"{name}: marks that this version does not know ({what}). Remedy: run a later version")
        return marks

    def put(self, marks: Marks) -> None:
        """Keep the marks of a batch, and forget those of long ago."""
        with refusals("lake.checkpoint", self.folder):
            self._system.create_dir(self._root)
            draft = f"{self._root}/draft"
            with self._system.open_output_stream(draft) as file:
                file.write(_write(marks))
            self._system.move(draft, self._name(marks.batch))
            with suppress(FileNotFoundError):
                self._system.delete_file(self._name(marks.batch - KEPT))

    def _name(self, batch: int) -> str:
        return f"{self._root}/{batch:012}.json"


# The plan of a batch


@dataclass(frozen=True)
class Plan:
    """The plan of a batch: the records that are left out, its new rows by table, and the marks after it.

    `foreign` are the records that become rejects.
    """

    skipped: frozenset[Place]
    rows: Mapping[str, int]
    after: Marks
    foreign: tuple[Head, ...] = ()


def make_plan(
    before: Marks, heads: Iterable[Head], lives: Lives = NO_LIVES, control: int = 0, *, over_gaps: bool = False
) -> Plan:
    """Find what is left out, refuse a gap, and move the marks. The order in which the heads come does not matter.

    `lives` are those announced before the offset `control` of the control topic. `over_gaps` goes on behind a gap.
    """
    every = sorted(heads, key=lambda head: (head.epoch, head.channel, head.number, head.place))
    _refuse_faults(every)
    ends = _Ends(before, over_gaps=over_gaps)
    rows = dict.fromkeys(TABLES, 0)
    skipped, foreign = [], []
    for head in every:
        taken = ends.take(head, lives)
        if isinstance(taken, Reject):
            foreign.append(head._replace(fault=taken.message))
        if taken is True:
            rows[head.table] += head.rows
        else:
            skipped.append(head.place)
    rows["rejects"] += len(foreign)
    after = msgspec.structs.replace(
        before,
        batch=before.batch + 1,
        channels=ends.numbers,
        checksums=ends.checksums,
        offsets=_offsets(before.offsets, every),
        tables=_filled(before, rows),
        foreign=before.foreign + len(foreign),
        control=control,
    )
    return Plan(frozenset(skipped), rows, after, tuple(foreign))


class _Ends:
    """The last frame of every channel: its number, and its checksum where that is known."""

    def __init__(self, before: Marks, *, over_gaps: bool) -> None:
        self._begins, self._over_gaps = before.begins, over_gaps
        self.numbers = {epoch: dict(marks) for epoch, marks in before.channels.items()}
        self.checksums = {epoch: dict(known) for epoch, known in before.checksums.items()}

    def take(self, head: Head, lives: Lives) -> bool | Reject:
        """Return whether the rows of a frame are to be added (True), left out (False) or refused.

        Raises `StateError` at a gap that it may not go over.
        """
        if head.foreign:
            return Reject("foreign", head.fault or "")
        judgement = lives.judge(head.epoch, "records", head.partition, head.offset)
        if judgement == "foreign":
            return Reject("foreign", f"epoch {head.epoch} was not announced here")
        return judgement == "valid" and self._is_next(head)

    def _is_next(self, head: Head) -> bool | Reject:
        numbers = self.numbers.setdefault(str(head.epoch), {})
        checksums = self.checksums.setdefault(str(head.epoch), {})
        known = checksums.get(head.channel)
        last = numbers.get(head.channel, head.number - 1 if str(head.partition) in self._begins else 0)
        if head.number > last + 1 and not self._over_gaps:
            raise _gap(head, last)
        if head.number == last and known not in (None, head.checksum.hex()):
            return Reject("foreign", f"frame {head.number} of {head.channel} is not the one that was archived")
        if head.number <= last:
            return False
        if head.number == last + 1 and known not in (None, head.previous.hex()):
            return Reject("foreign", f"frame {head.number} of {head.channel} does not follow frame {last}")
        numbers[head.channel], checksums[head.channel] = head.number, head.checksum.hex()
        return True


def foreign_rows(foreign: Sequence[Head], topic: str, space: Space, batch: int) -> list[Stream]:
    """Return the rows of `rejects` for foreign records. They belong to no life: epoch 0, and the archive's batch."""
    made = []
    for seq, head in enumerate(sorted(foreign, key=lambda head: head.place)):
        why = "foreign", head.fault or "", head.key, head.written
        row = reject_row(Refused(topic, head.partition, head.offset, head.value, *why))
        columns = from_rows("rejects", [row | {"epoch": 0, "batch": batch, "seq": seq}])
        made.append(Stream(stream_of(space, "rejects", columns), head.written))
    return made


def _refuse_faults(heads: list[Head]) -> None:
    faults = [head for head in heads if head.fault and not head.foreign]
    if faults:
        head = min(faults, key=lambda head: head.place)
        raise StateError(
            f"record {head.offset} in partition {head.partition} of the records topic cannot be archived: "
            f"{head.fault}. Remedy: run the version of Lacuna that wrote it, or a later one; if the record is damaged "
            "or not Lacuna's, restore the topic from a copy"
        )


def _gap(head: Head, last: int) -> StateError:
    where = f"partition {head.partition}, offset {head.offset} of the topic records"
    found = f"the channel {head.channel} of epoch {head.epoch} jumps from frame {last} to {head.number} ({where})"
    return stopped(ARCHIVE["records lost"], found)


def _offsets(before: Mapping[str, int], heads: Iterable[Head]) -> dict[str, int]:
    offsets = dict(before)
    for head in heads:
        partition = str(head.partition)
        offsets[partition] = max(offsets.get(partition, 0), head.offset + 1)
    return offsets


def _filled(before: Marks, rows: Mapping[str, int]) -> dict[str, Filled]:
    tables = dict(before.tables)
    for table, count in rows.items():
        if count:
            had = tables[table].rows if table in tables else 0
            tables[table] = Filled(before.batch + 1, had + count)
    return tables


# The batch function


def _nothing(_batch: int, _rows: Mapping[str, int]) -> None:
    """Report nothing."""


def _close_nothing() -> None:
    """Nothing is open."""


def _whole() -> dict[str, int]:
    """Return that no partition has lost records."""
    return {}


@dataclass
class Archive:
    """The function that Spark calls with every batch. `failure` is its exception, `marks` those of its last batch.

    `begins` is asked once, by a new archive: the first offset of each partition of the topic that has lost records.
    `control` reads the control topic to its end; `close` ends its connection.
    """

    files: MarkFiles
    writer: Writer
    space: Space
    wished: Callable[[], bool]
    tell: Callable[[int, Mapping[str, int]], None] = _nothing
    marks: Marks | None = None
    failure: Exception | None = None
    busy: threading.Lock = field(default_factory=threading.Lock)
    begins: Callable[[], dict[str, int]] = _whole
    control: Callable[[], Prefix] = Prefix
    close: Callable[[], None] = _close_nothing
    topic: str = "records"
    over_gaps: bool = False

    def __call__(self, records: DataFrame, batch: int) -> None:
        """Archive one batch."""
        with self.busy:
            try:
                self._run(records, batch)
            except Exception as error:
                self.failure = error
                self.close()
                raise

    def _run(self, records: DataFrame, batch: int) -> None:
        if self.wished():
            raise StopArchive(f"before batch {batch}, as wished")
        before = self._before(batch)
        with self.writer.load(records) as load:
            plan = make_plan(before, load.heads, *self._lives(batch), over_gaps=self.over_gaps)
            self._keep(plan.after)
            refused = {"rejects": foreign_rows(plan.foreign, self.topic, self.space, batch)}
            for table in TABLES:
                if plan.rows[table]:
                    load.append(table, plan.skipped, plan.after.stamp(table), refused.get(table, ()))
        self.marks = plan.after
        self.tell(batch, plan.rows)

    def _lives(self, batch: int) -> tuple[Lives, int]:
        """Return the lives to judge by, and the offset of control up to which they were announced.

        They are read after the records, so that no record is of a life that is not known here. A replay judges as the
        first run did.
        """
        prefix = self.control()
        offset = self.files.get(batch).control if self.files.has(batch) else prefix.next
        return prefix.lives.before(offset), offset

    def _before(self, batch: int) -> Marks:
        """The marks that a batch starts from: those of the batch before it, whether this is a replay or not."""
        if self.marks is not None and self.marks.batch == batch - 1:
            return self.marks
        latest = max(self.files.numbers(), default=-1)
        if latest not in (batch - 1, batch):
            found = f"{self.files.folder}: the last marks are those of batch {latest}, and Spark is at batch {batch}"
            raise stopped(ARCHIVE["archive's checkpoint mixed"], found)
        if batch == 0 and latest == 0:
            begun = self.files.get(0)
            return Marks(begun.life, begins=begun.begins)
        if batch == 0:
            return Marks(uuid.uuid4().hex[:16], begins=self.begins())
        return self.files.get(batch - 1)

    def _keep(self, after: Marks) -> None:
        """Write the marks ahead of the tables; a replay must come to the same ones."""
        if not self.files.has(after.batch):
            self.files.put(after)
        elif self.files.get(after.batch) != after:
            found = f"{self.files.folder}: batch {after.batch} holds other records than when it was first run"
            raise stopped(ARCHIVE["archive's checkpoint mixed"], found)


# The query


class ArchiveQuery(StreamingQuery):
    """The running archive: Spark's handle, which stops between batches and knows why it ended."""

    def __init__(self, query: StreamingQuery, archive: Archive, wish: threading.Event) -> None:
        super().__init__(query._jsq)
        self._archive, self._wish = archive, wish

    def stop(self) -> None:
        """Let the batch under way end, then stop. What is not archived yet is archived after the next start."""
        self._wish.set()
        with self._archive.busy:
            pass  # a batch that begins after this ends the query by itself
        super().stop()
        self._archive.close()

    def between_batches(self) -> AbstractContextManager[object]:
        """Return a context in which no batch is under way."""
        return self._archive.busy

    @property
    def failure(self) -> Exception | None:
        """The exception of the batch function, if it ended the query; a broken rule of ours is a `LacunaError`."""
        return self._archive.failure

    @property
    def marks(self) -> Marks | None:
        """The marks of the last batch that this run has completed."""
        return self._archive.marks


def stopped_on_purpose(query: StreamingQuery) -> bool:
    """Return whether a query has ended because it was asked to stop."""
    if query.isActive:
        return False
    return query.exception() is None or (isinstance(query, ArchiveQuery) and isinstance(query.failure, StopArchive))


def archive_query(
    spark: SparkSession,
    settings: Settings,
    *,
    writer: str | Writer,
    stop: threading.Event | Callable[[], bool] = lambda: False,
    checkpoint: str | None = None,
    trigger: str | None = "1 second",
    most_records: int = MOST_RECORDS,
    tell: Callable[[int, Mapping[str, int]], None] = _nothing,
    say: Callable[[str], None] = log.warning,
    over_gaps: bool = False,
) -> ArchiveQuery:
    """Start the archive. `writer` is "rust" or "spark"; `trigger` None archives what is there now and ends.

    `stop` is looked at when a batch begins; `tell` hears of each batch that ended and its new rows by table; `say`
    hears from when the tables are complete, if the topic has lost its beginning. `over_gaps` archives what is left of
    a topic that has lost records.
    """
    where = places(settings, checkpoint)
    wish = threading.Event()
    asked = stop.is_set if isinstance(stop, threading.Event) else stop
    lock = claim_archive(where)
    try:
        prepare(settings, checkpoint, say)
        refuse_lost_records(settings, checkpoint)
        chosen = WRITERS[writer](where.lake) if isinstance(writer, str) else writer
        space = settings.config.space
        archive = Archive(MarkFiles(where.marks), chosen, space, lambda: wish.is_set() or asked(), tell)
        archive.begins = lambda: lost_beginnings(settings, say)
        control = ControlLog(settings.config.kafka.bootstrap, settings.config.kafka.prefix)
        archive.control, archive.close = control.read, control.close
        archive.topic, archive.over_gaps = settings.topics.records, over_gaps
        sink = records(spark, settings, most_records).writeStream.queryName("archive").foreachBatch(archive)
        sink = sink.option("checkpointLocation", where.checkpoint)
        choose_checkpoint_writer(spark, where.checkpoint)
        query = ArchiveQuery(_start(spark, sink, trigger), archive, wish)
    except BaseException:
        release(lock)
        raise
    _CLAIMS[where.lock] = (lock, query)
    return query


def lost_beginnings(settings: Settings, say: Callable[[str], None]) -> dict[str, int]:
    """Return the first offset of each partition of the topic that has lost records, and say what that means."""
    kafka, topic = settings.config.kafka.bootstrap, settings.topics.records
    first = {number: span.first for (_, number), span in topic_spans(kafka, [topic]).items() if span.first > 0}
    times = first_times(kafka, topic, first) if first else {}
    for number, offset in sorted(first.items()):
        since = f"{times[number]:%Y-%m-%d %H:%M:%S} UTC" if number in times else "now"
        say(
            f"partition {number} of the topic {topic} begins at offset {offset}: the rows of its regions are complete "
            f"from {since} on; earlier ones are gone with the topic's retention"
        )
    return {str(number): offset for number, offset in first.items()}


def records(spark: SparkSession, settings: Settings, most_records: int) -> DataFrame:
    """Return the records that the archive reads."""
    source = spark.readStream.format("kafka").options(**reading(settings, ["records"], most_records))
    return source.load().selectExpr("partition", "offset", "key", "value", "unix_micros(timestamp) AS written")


def _start(spark: SparkSession, sink: DataStreamWriter, trigger: str | None) -> StreamingQuery:
    """In a pool of its own, so that a router beside it gets its share."""
    context = spark.sparkContext
    pool = context.getLocalProperty("spark.scheduler.pool")
    context.setLocalProperty("spark.scheduler.pool", "archive")
    try:
        return (sink.trigger(processingTime=trigger) if trigger else sink.trigger(availableNow=True)).start()
    finally:
        context.setLocalProperty("spark.scheduler.pool", pool)  # type: ignore[arg-type]


# Before it starts


def prepare(settings: Settings, checkpoint: str | None = None, say: Callable[[str], None] = log.warning) -> None:
    """Have the tables, and refuse what could not go well: see `lake.create_tables`, and that marks and tables agree.

    `say` hears what was done for a lake of an earlier version.
    """
    where = places(settings, checkpoint)
    check_folder(settings.config.lake.checkpoint, "lake.checkpoint")
    finish(where.journal)
    create_tables(where.lake, settings.config.space)
    files = MarkFiles(where.marks)
    numbers = files.numbers()
    if not numbers:
        _refuse_rows(where)
    else:
        _refuse_older_tables(where, files, numbers[-1])
    bring_up(where.lake, settings.config, say)


def _refuse_rows(where: Places) -> None:
    """A new archive begins with empty tables, or it would add again what is in them."""
    counts = {table: count for table, count in table_counts(where.lake).items() if count}
    if counts:
        held = ", ".join(f"{table} {count}" for table, count in counts.items())
        found = f"lake.path = {where.lake!r}, {held}, and {where.checkpoint} is empty"
        raise stopped(ARCHIVE["archive's checkpoint lost"], found)


def _refuse_older_tables(where: Places, files: MarkFiles, last: int) -> None:
    """Refuse tables whose logs lack what marks say was written: the last ones, if Spark has committed that batch."""
    batch = last if _is_committed(where, last) else last - 1
    if not files.has(batch):
        return
    complete = files.get(batch)
    for table, filled in complete.tables.items():
        stamp = open_table(where.lake, table).transaction_version(complete.stamp(table).application)
        if stamp is None or stamp < filled.batch:
            has = "none" if stamp is None else f"batch {stamp}"
            found = f"lake.path = {where.lake!r}: the table {table} should have batch {filled.batch}, and has {has}"
            raise stopped(ARCHIVE["older tables"], found)


def refuse_lost_records(settings: Settings, checkpoint: str | None = None) -> None:
    """Refuse a topic that holds less than was archived, or has lost what was not."""
    files, topic = MarkFiles(places(settings, checkpoint).marks), settings.topics.records
    numbers = files.numbers()
    if not numbers:
        return
    marks = files.get(numbers[-1])
    for (_, number), span in sorted(topic_spans(settings.config.kafka.bootstrap, [topic]).items()):
        read = marks.offsets.get(str(number), marks.begins.get(str(number), 0))
        if not span.first <= read <= span.next:
            found = f"the topic {topic}, partition {number}, holds {span.first} to {span.next}, and was read to {read}"
            raise stopped(ARCHIVE["records lost"], found)


def _is_committed(where: Places, batch: int) -> bool:
    """Return whether Spark's checkpoint says that a batch of the archive is complete."""
    system, root = file_system(f"{where.checkpoint}/commits/{batch}")
    return bool(system.get_file_info(root).is_file)


# One archive at a time

_CLAIMS: dict[str, tuple[int, ArchiveQuery]] = {}
"""Locks that this process holds, by their path, and the query that each is for."""


def claim_archive(where: Places) -> int:
    """Lock the archive's checkpoint, also where a query of this process that has ended still holds it."""
    held = _CLAIMS.pop(where.lock, None)
    if held is not None and held[1].isActive:
        _CLAIMS[where.lock] = held
        raise taken(where.checkpoint, "an archive")
    if held is not None:
        release(held[0])
    return claim(where.lock, where.checkpoint, "an archive")


@contextmanager
def claimed(where: Places) -> Iterator[None]:
    """Be sure, for a while, that no archive runs on this checkpoint."""
    lock = claim_archive(where)
    try:
        yield
    finally:
        release(lock)
