"""The archive query on real Spark, Kafka and Delta: the same rows, once, with either writer and through any crash."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampType

from access.offsets import trim
from state.errors import LacunaError, StateError
from state.storage.tables import TABLES
from streaming import lake
from streaming.archive import ArchiveQuery, archive_query, places, stopped_on_purpose
from streaming.lake import WRITERS, Head, Load, Place, Stamp, Stream, Writer, table_counts, table_path
from streaming.maintenance import maintain
from streaming.pipeline import Engine
from streaming.rebuild import fill_with, rebuild
from streaming.restarts import JobFailed
from streaming.service import Service
from streaming.settings import Settings
from tests.core.test_archive_plan import LATER, settings_at, value_of
from tests.core.test_archive_tables import Crash, Record, abouts, counted, expected, rows_in, some_log

pytestmark = pytest.mark.system

Put = Callable[..., None]
PATIENCE = 120.0


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


class Bench:
    """A lake, a checkpoint and a records topic of their own."""

    def __init__(self, spark: SparkSession, put: Put, settings: Settings) -> None:
        self.spark, self._put, self.settings = spark, put, settings
        self.where = places(settings)
        self.log: list[Record] = []

    def add(self, log: list[Record]) -> None:
        """Put records into the topic; they must be in order in each partition."""
        self._put(self.settings.topics.records, [(partition, None, value) for partition, _, value in log])
        self.log += log

    def start(self, writer: str | Writer, **options: Any) -> ArchiveQuery:
        return archive_query(self.spark, self.settings, writer=writer, **options)

    def run(self, writer: str | Writer, **options: Any) -> ArchiveQuery:
        """Archive what is in the topic; the query has ended when this returns."""
        query = self.start(writer, trigger=None, **options)
        wait_for(lambda: not query.isActive)
        query.stop()
        return query

    def done(self, writer: str | Writer, **options: Any) -> None:
        query = self.run(writer, **options)
        assert query.exception() is None

    def is_exact(self) -> bool:
        return rows_in(self.where.lake) == expected(self.log)


@pytest.fixture
def bench(spark: SparkSession, kafka: str, topics: Any, put: Put, tmp_path: Path) -> Iterator[Bench]:
    yield Bench(spark, put, settings_at(tmp_path, bootstrap=kafka, prefix=topics("records", partitions=2)))
    for query in spark.streams.active:
        query.stop()


# Crashes


class Fragile:
    """A writer that fails after some appends, in place of the process."""

    def __init__(self, writer: Writer, appends: int) -> None:
        self._writer, self._appends = writer, appends

    @contextmanager
    def load(self, records: DataFrame) -> Iterator[Load]:
        with self._writer.load(records) as load:
            yield FragileLoad(load, self._appends)
            raise Crash


class FragileLoad:
    def __init__(self, load: Load, appends: int) -> None:
        self._load, self._left = load, appends

    @property
    def heads(self) -> list[Head]:
        return self._load.heads

    def append(self, table: str, skipped: Collection[Place], stamp: Stamp, more: Sequence[Stream] = ()) -> None:
        if self._left == 0:
            raise Crash
        self._left -= 1
        self._load.append(table, skipped, stamp, more)


def all_tables(number: int) -> list[Record]:
    """A batch that adds to every table, with a repeat in it: a frame for each of them, and the first again."""
    each = len(TABLES)
    numbers = [*range(each * number + 1, each * number + each + 1), each * number + 1]
    tables = [list(TABLES)[n % each] for n in numbers]
    values = [value_of(7, "a>b", n, table, 3) for n, table in zip(numbers, tables, strict=True)]
    return [(0, (each + 1) * number + k, value) for k, value in enumerate(values)]


@pytest.mark.parametrize("names", [["rust"], ["spark"], ["rust", "spark"]], ids=" and ".join)
def test_exactly_once_whatever_is_left_when_it_dies(bench: Bench, names: list[str]) -> None:
    """Each batch dies once, with k of its tables appended, and is replayed, perhaps by the other writer."""
    batches = len(TABLES) + 1
    for appends in range(batches):
        dying, living = names[appends % len(names)], names[(appends + 1) % len(names)]
        bench.add(all_tables(appends))
        query = bench.run(Fragile(WRITERS[dying](bench.where.lake), appends))
        assert isinstance(query.failure, Crash)
        assert not stopped_on_purpose(query)
        bench.done(living)
        assert bench.is_exact()
    assert table_counts(bench.where.lake) == dict.fromkeys(TABLES, 3 * batches)


# Both writers, one result


def test_both_writers_write_the_same_and_may_take_turns(bench: Bench, tmp_path: Path) -> None:
    """Any log with repeats and two epochs, in batches that cut it anywhere; then what a reader in Spark sees."""
    log = some_log(75, seed=11)
    for writer, begin, end, most in (("rust", 0, 25, 10), ("spark", 25, 50, 100), ("rust", 50, 99, 10)):
        bench.add(log[begin:end])
        bench.done(writer, most_records=most)
    assert bench.is_exact()
    other = Bench(bench.spark, lambda *_: None, settings_like(bench.settings, tmp_path / "other"))
    other.done("spark")
    assert rows_in(other.where.lake) == rows_in(bench.where.lake)
    check_in_spark(bench)


def settings_like(settings: Settings, folder: Path) -> Settings:
    kafka = settings.config.kafka
    return settings_at(folder, bootstrap=kafka.bootstrap, prefix=kafka.prefix)


def check_in_spark(bench: Bench) -> None:
    """Comments, types and values as Spark SQL reads them, of files by both writers."""
    rows = rows_in(bench.where.lake)
    for table in TABLES:
        frame = bench.spark.sql(f"SELECT * FROM delta.`{table_path(bench.where.lake, table)}`")
        assert rows[table] == counted(frame.drop("written").toArrow())
        assert {field.name: field.metadata["comment"] for field in frame.schema} == abouts(table)
        assert "time" not in abouts(table) or isinstance(frame.schema["time"].dataType, TimestampType)
    described = bench.spark.sql(f"DESCRIBE TABLE delta.`{table_path(bench.where.lake, 'routes')}`").collect()
    assert {row["col_name"]: row["comment"] for row in described} == abouts("routes")


def test_a_batch_that_is_too_large_for_the_driver_comes_in_slices(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "MOST_HANDED", 3_000)
    monkeypatch.setattr(lake, "MOST_SLICE", 20_000)
    fetched: list[int] = []
    fetch = lake.Rest.fetch

    def counted_fetch(rest: lake.Rest, some: Sequence[lake.Packed]) -> list[bytes]:
        fetched.append(sum(frame.size for frame in some))
        return fetch(rest, some)

    monkeypatch.setattr(lake.Rest, "fetch", counted_fetch)
    bench.add(some_log(75, seed=4))
    bench.done("rust")
    assert bench.is_exact()
    assert len(fetched) > 3 and max(fetched) <= 20_000


# The field


def test_a_new_archive_begins_where_the_topic_begins(bench: Bench) -> None:
    """Retention has removed the beginning of the topic: what is left is archived, and it is said since when."""
    bench.add([(0, number, value_of(7, "a>b", number + 1, "routes", 2)) for number in range(10)])
    records = bench.settings.topics.records
    trim(bench.settings.config.kafka.bootstrap, {(records, 0): 4})
    bench.log = bench.log[4:]
    said: list[str] = []
    bench.done("rust", say=said.append)
    assert bench.is_exact()
    begins = rf"partition 0 of the topic {records} begins at offset 4: .* complete from 20\d\d-.* UTC on"
    assert len(said) == 1 and re.match(begins, said[0])
    bench.add([(0, 10, value_of(7, "a>b", 11, "routes", 2))])
    bench.done("spark", say=said.append)
    assert bench.is_exact() and len(said) == 1


def test_an_archive_is_started_again_after_a_passing_error_of_the_lake(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError("the lake is away"), OSError("the lake is still away")]
    append = lake.RustWriter.append

    def fragile(writer: lake.RustWriter, *args: Any) -> None:
        if failures:
            raise failures.pop(0)
        append(writer, *args)

    monkeypatch.setattr(lake.RustWriter, "append", fragile)
    bench.add(some_log(20, seed=6))
    said: list[str] = []
    service = Service(bench.settings, Engine(), say=said.append)
    service.start()
    try:
        service.wait(lambda: service.degraded)
        service.wait(lambda: not service.degraded)
        service.wait(service.archived)
    finally:
        service.stop_queries()
    assert bench.is_exact()
    told = [text for text in said if "archive" in text and "starting" not in text]
    assert [text.split(":")[0] for text in told] == ["degraded", "degraded", "the archive works again"]
    assert "the lake is away" in told[0] and "in 1 s" in told[0] and "in 2 s" in told[1]


def test_what_another_attempt_cannot_mend_stops_the_job(bench: Bench) -> None:
    bench.add([(0, 0, value_of(7, "a>b", 1, "routes", 1)), (0, 1, value_of(7, "a>b", 3, "routes", 1))])
    service = Service(bench.settings, Engine())
    service.start()
    with pytest.raises(JobFailed, match="the archive stopped: the channel a>b of epoch 7 jumps from frame 1 to 3"):
        service.wait(lambda: False)
    with pytest.raises(JobFailed, match="jumps from frame 1 to 3"):
        service.stop_queries()


# Stopping


@pytest.mark.parametrize("writer", ["rust", "spark"])
def test_stop_lets_the_batch_end(bench: Bench, writer: str) -> None:
    """Upkeep beside a busy query, then stop in the middle of a batch: the batch is whole, and nothing is lost."""
    bench.add([(0, number, value_of(7, "a>b", number, "routes", 2)) for number in range(1, 61)])
    seen = threading.Event()
    query = bench.start(writer, most_records=5, tell=lambda batch, _: batch == 1 and seen.set())
    assert seen.wait(PATIENCE)
    maintain(bench.settings, 0)
    query.stop()
    assert not query.isActive
    assert stopped_on_purpose(query)
    assert query.marks is not None
    total = {table: filled.rows for table, filled in query.marks.tables.items()}
    assert {table: count for table, count in table_counts(bench.where.lake).items() if count} == total
    bench.done(writer)
    assert bench.is_exact()


def test_the_wish_alone_ends_a_query_that_has_work(bench: Bench) -> None:
    bench.add(some_log(10))
    wish = threading.Event()
    wish.set()
    query = bench.run("rust", stop=wish)
    assert query.exception() is not None
    assert stopped_on_purpose(query)
    assert sum(table_counts(bench.where.lake).values()) == 0


def test_an_idle_query_stops(bench: Bench) -> None:
    query = bench.start("rust")
    assert not stopped_on_purpose(query)
    with pytest.raises(LacunaError, match="an archive runs on this checkpoint already"):
        bench.start("rust")
    query.stop()
    assert stopped_on_purpose(query)


# What must stop it


def test_a_gap_stops_with_its_message(bench: Bench) -> None:
    bench.add([(0, 0, value_of(7, "a>b", 1, "routes", 1)), (0, 1, value_of(7, "a>b", 3, "routes", 1))])
    for writer in ("rust", "spark"):
        query = bench.run(writer)
        assert isinstance(query.failure, StateError)
        assert "state.errors.StateError: the channel a>b of epoch 7 jumps from frame 1 to 3" in str(query.exception())
    assert sum(table_counts(bench.where.lake).values()) == 0


def test_a_newer_format_is_refused(bench: Bench) -> None:
    bench.add([(0, 0, bytes(LATER))])
    for writer in ("rust", "spark"):
        query = bench.run(writer)
        assert isinstance(query.failure, StateError)
        assert "the frame has version 2" in str(query.failure)


# Upkeep


def test_maintain_beside_a_running_archive_then_rebuild(bench: Bench) -> None:
    """Compact and clean while batches come in; then throw the tables away and have the same ones again."""
    query = bench.start("rust", most_records=4, trigger="0 seconds")
    log = some_log(160, seed=9)
    bench.add(log)
    wait_for(lambda: query.marks is not None and query.marks.batch >= 5)
    for _ in range(3):
        maintain(bench.settings, 0)
    assert query.isActive
    wait_for(lambda: query.marks is not None and sum(query.marks.offsets.values()) == len(log))
    report = maintain(bench.settings, 0)
    assert {done.after.files for done in report.values()} == {1}
    assert bench.is_exact()
    fill = fill_with(bench.spark, "spark")
    with pytest.raises(LacunaError, match="an archive runs"):
        rebuild(bench.settings, fill)
    query.stop()
    done = rebuild(bench.settings, fill)
    assert done.before == done.after == {table: sum(rows.values()) for table, rows in expected(log).items()}
    assert rows_in(done.aside) == expected(log)
    assert bench.is_exact()
    bench.add(some_log(200, seed=9)[160:])
    bench.done("rust")  # goes on where the rebuilt checkpoint ends
    assert bench.is_exact()


def test_rebuild_refuses_a_topic_that_lost_records(bench: Bench, topics: Any) -> None:
    bench.add(some_log(10))
    bench.done("rust")
    kafka = bench.settings.config.kafka.bootstrap
    moved = settings_at(Path(bench.where.lake).parent, bootstrap=kafka, prefix=topics("records"))
    with pytest.raises(LacunaError, match=r"does not hold all that is in the tables: it holds 0 records.*Remedy"):
        rebuild(moved, fill_with(bench.spark, "rust"))
    assert bench.is_exact()
    done = rebuild(moved, fill_with(bench.spark, "rust"), force=True)
    assert set(done.after.values()) == {0}
    assert rows_in(done.aside) == expected(bench.log)


def test_a_rebuild_that_cannot_read_the_topic_leaves_the_tables_alone(bench: Bench) -> None:
    bench.add(some_log(10))
    bench.done("rust")
    before = rows_in(bench.where.lake)
    bench.add([(0, len(bench.log), bytes(LATER))])
    with pytest.raises(StateError, match="the frame has version 2"):
        rebuild(bench.settings, fill_with(bench.spark, "rust"))
    assert rows_in(bench.where.lake) == before
