"""The archive without a JVM: its batch function, marks and delta-rs writer on real tables, through every crash."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import parse
from state.errors import ConfigError, LacunaError, StateError
from state.storage.tables import TABLES
from streaming import lake
from streaming.archive import Archive, MarkFiles, StopArchive, claimed, places, prepare
from streaming.lake import (
    FRAMES,
    Head,
    Load,
    Packed,
    Place,
    RustLoad,
    RustWriter,
    Stamp,
    Stream,
    check_folder,
    create_tables,
    other_kinds,
    slices,
    table_counts,
    table_path,
    take_apart,
    unframe,
)
from streaming.maintenance import check_keep, maintain
from streaming.schemas import schemas_of, stream_of, table_of
from streaming.settings import Settings, settle
from tests.core.test_archive_plan import SPACE, TEXT, columns_of, frame_of, settings_at, value_of

SCHEMAS = schemas_of(SPACE)
RECORDS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("written", pa.int64()),
    ]
)


class Crash(Exception):
    """What a test raises in the place of a kill."""


class Direct:
    """The rust writer, fed without Spark; it crashes before the table of which `left` others were appended."""

    def __init__(self, lake: str, left: int | None = None, handed: int | None = None) -> None:
        self._writer, self.left, self._handed = RustWriter(lake), left, handed
        self.fetched: list[int] = []

    @contextmanager
    def load(self, records: Any) -> Iterator[Load]:
        values = {(row["partition"], row["offset"]): row["value"] for row in records.to_pylist()}

        def fetch(some: Sequence[Packed]) -> list[bytes]:
            self.fetched.append(sum(frame.size for frame in some))
            return [unframe(*frame.head.place, values[frame.head.place])[1] for frame in some]

        frames = pa.Table.from_batches(take_apart(self._handed)(iter(records.to_batches())), FRAMES)
        yield Fragile(self, RustLoad(self._writer, frames, fetch))
        self.step(last=True)

    def step(self, last: bool = False) -> None:
        if self.left == 0 or (last and self.left is not None):
            raise Crash
        self.left = None if self.left is None else self.left - 1


class Fragile:
    """A load that may crash between tables."""

    def __init__(self, writer: Direct, load: RustLoad) -> None:
        self._writer, self._load, self.heads = writer, load, load.heads

    def append(self, table: str, skipped: Collection[Place], stamp: Stamp, more: Sequence[bytes] = ()) -> None:
        self._writer.step()
        self._load.append(table, skipped, stamp, more)


Record = tuple[int, int, bytes]


def batch_of(log: list[Record]) -> Any:
    """A batch of records, each written a second after the one before it."""
    records = [(p, o, value, b"key", 1_000_000 * o) for p, o, value in log]
    return pa.table([pa.array(column) for column in zip(*records, strict=True)], schema=RECORDS)


def archive(folder: object, left: int | None = None, wished: bool = False) -> Archive:
    """An archive as after a start of the process."""
    where = places(settings_at(folder))
    prepare(settings_at(folder))
    return Archive(MarkFiles(where.marks), Direct(where.lake, left), SPACE, lambda: wished)


def run(start: Archive, log: list[Record], batch: int) -> Archive:
    start(batch_of(log), batch)
    return start


def rows_in(lake: str) -> dict[str, Counter[str]]:
    tables = {table: DeltaTable(table_path(lake, table)).to_pyarrow_table() for table in SCHEMAS}
    assert not any(rows["written"].null_count for rows in tables.values())
    return {table: counted(rows.drop_columns(["written"])) for table, rows in tables.items()}


def rows_of(stream: bytes, table: str, written: int | None) -> list[dict[str, Any]]:
    """The rows of a frame as the table has them; what an earlier version wrote has no moment."""
    [moment] = pa.array([written], pa.int64()).cast(SCHEMAS[table].field("written").type).to_pylist()
    rows = [row | {"written": moment} for row in table_of(stream).to_pylist()]
    return [{name: row[name] for name in SCHEMAS[table].names} for row in rows]


def counted(rows: Any) -> Counter[str]:
    return Counter(repr(row) for row in rows.to_pylist())


def expected(log: list[Record]) -> dict[str, Counter[str]]:
    """The rows of each frame, once."""
    seen, rows = set(), {table: Counter[str]() for table in SCHEMAS}
    for _, _, value in log:
        head, stream = unframe(0, 0, value)
        if (key := (head.epoch, head.channel, head.number)) not in seen:
            seen.add(key)
            rows[head.table] += counted(table_of(stream))
    return rows


def some_log(count: int, *, seed: int = 0, repeats: bool = True, most_rows: int = 4) -> list[Record]:
    """A topic of two partitions; some runs are told twice."""
    chance = random.Random(seed)
    log: list[Record] = []
    told: Counter[tuple[int, str]] = Counter()
    ends = [0, 0]
    while len(log) < count:
        partition = chance.randrange(2)
        epoch, channel = chance.choice([7, 8]), f"b{partition}>{chance.choice('xyz')}"
        begin = told[epoch, channel]
        if repeats and begin and chance.random() < 0.3:
            begin -= chance.randrange(1, begin + 1)
        for number in range(begin + 1, told[epoch, channel] + chance.randrange(1, 4)):
            tables = random.Random(f"{epoch} {channel} {number}")
            table, rows = tables.choice(list(SCHEMAS)), tables.randrange(1, most_rows + 1)
            log.append((partition, ends[partition], value_of(epoch, channel, number, table, rows)))
            ends[partition] += 1
            told[epoch, channel] = max(told[epoch, channel], number)
    return log


# Chunks


@pytest.mark.parametrize("writer", ["rust", "spark"])
def test_rows_are_decoded_a_chunk_at_a_time_and_none_is_lost_or_doubled(
    writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeat is known by partition and offset: the same offset elsewhere is another record."""
    monkeypatch.setattr(lake, "CHUNK", 5)
    log = [
        (partition, offset, value_of(7, f"b{partition}", offset + 1, "routes", 2))
        for partition in (0, 1)
        for offset in range(4)
    ]
    streams = [(partition, offset, unframe(partition, offset, value)[1]) for partition, offset, value in log]
    repeats, schema = frozenset([(1, 0)]), SCHEMAS["routes"].remove_metadata()
    if writer == "rust":
        kept = (Stream(stream, offset) for partition, offset, stream in streams if (partition, offset) not in repeats)
        found = list(lake.batches("routes", schema, kept))
    else:
        records = [{"partition": p, "offset": o, "stream": s, "written": o} for p, o, s in streams]
        chunks = [pa.RecordBatch.from_pylist([record]) for record in records]
        found = list(lake.unpack_rows("routes", schema, repeats)(iter(chunks)))
    assert [batch.num_rows for batch in found] == [6, 6, 2]
    wanted = [row for p, o, stream in streams if (p, o) not in repeats for row in rows_of(stream, "routes", o)]
    assert [row for batch in found for row in batch.to_pylist()] == wanted


# Exactly once


@settings(max_examples=4)
@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=4, max_size=8), st.integers(0, 99))
def test_exactly_once_through_crashes(tmp_path_factory: Any, crashes: list[int | None], seed: int) -> None:
    """Batches that die before any table, between any two, or after all; each is replayed by a new process."""
    folder, log = tmp_path_factory.mktemp("lake"), some_log(40, seed=seed)
    cuts = [log[k::1][:10] for k in range(0, len(log), 10)]
    batch = 0
    for left in [*crashes, *[None] * len(cuts)]:
        if batch == len(cuts):
            break
        try:
            run(archive(folder, left), cuts[batch], batch)
            batch += 1
        except Crash:
            pass
    assert rows_in(f"{folder}/lake") == expected(log)


def test_one_process_many_batches(tmp_path: Path) -> None:
    log = some_log(60, seed=5)
    running = archive(tmp_path)
    for batch in range(6):
        run(running, log[batch * 10 : batch * 10 + 10], batch)
    run(running, log[60:], 6) if log[60:] else None
    assert rows_in(f"{tmp_path}/lake") == expected(log)
    assert running.marks is not None
    assert {t: filled.rows for t, filled in running.marks.tables.items()} == table_counts(f"{tmp_path}/lake")


def test_a_batch_that_is_run_again_in_the_same_process_starts_from_the_marks_before_it(tmp_path: Path) -> None:
    log = some_log(30)
    start = archive(tmp_path)
    for batch, part in ((0, log[:10]), (1, log[10:20]), (1, log[10:20]), (2, log[20:])):
        run(start, part, batch)
    where = places(settings_at(tmp_path))
    assert rows_in(where.lake) == expected(log)
    assert MarkFiles(where.marks).numbers() == [0, 1, 2] and start.marks is not None and start.marks.batch == 2


def test_a_failed_batch_is_remembered(tmp_path: Path) -> None:
    start = archive(tmp_path)
    with pytest.raises(StateError):
        run(start, [(0, 0, value_of(7, "a>b", 2, "routes", 1))], 0)
    assert isinstance(start.failure, StateError)
    assert table_counts(f"{tmp_path}/lake") == dict.fromkeys(SCHEMAS, 0)


def test_the_wish_to_stop_is_noticed_before_anything_is_done(tmp_path: Path) -> None:
    start = archive(tmp_path, wished=True)
    with pytest.raises(StopArchive):
        run(start, some_log(5), 0)
    assert isinstance(start.failure, StopArchive)
    assert start.files.numbers() == []


def test_a_damaged_stream_stops(tmp_path: Path) -> None:
    _, stream = unframe(0, 0, value_of(7, "a>b", 1, "routes", 3))
    value = frame_of(7, "a>b", 1, "routes", 3, stream[: len(stream) // 2])
    with pytest.raises(LacunaError, match="damaged"):
        run(archive(tmp_path), [(0, 0, value)], 0)


def test_foreign_records_are_rejects_and_do_not_stop_the_archive(tmp_path: Path) -> None:
    log = some_log(10, repeats=False)
    foreign = [(0, 50, b"gossip"), (1, 51, b"")]
    running = run(archive(tmp_path), [*log, *foreign], 0)
    found, wanted = rows_in(f"{tmp_path}/lake"), expected(log)
    refused = sorted((found["rejects"] - wanted["rejects"]).elements())
    assert found | {"rejects": wanted["rejects"]} == wanted and len(refused) == 2
    for part in (
        "'epoch': 0, 'batch': 0, 'seq': 0,",
        "'offset': 50, 'key': 'key',",
        "'value': 'gossip', 'rule': 'foreign',",
    ):
        assert part in refused[0]
    assert running.marks is not None and running.marks.foreign == 2


# Large batches


def test_the_rows_of_a_large_batch_come_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a task may hand over at once, and however small a slice is, the tables are the same."""
    log = some_log(60, seed=3)
    most = max(len(value) for _, _, value in log)
    monkeypatch.setattr(lake, "MOST_SLICE", most)
    monkeypatch.setattr(lake, "CHUNK_BYTES", most)
    where = places(settings_at(tmp_path))
    prepare(settings_at(tmp_path))
    direct = Direct(where.lake, handed=2 * most)
    run(Archive(MarkFiles(where.marks), direct, SPACE, lambda: False), log, 0)
    assert rows_in(where.lake) == expected(log)
    assert len(direct.fetched) > 5 and max(direct.fetched) <= most


def test_a_slice_is_of_one_partition_and_holds_one_record_at_least() -> None:
    sizes = [(0, 5), (0, 5), (0, 30), (0, 1), (1, 1), (1, 10)]
    frames = [Packed(Head(p, k, 0, "", 0, "", 0), size, None) for k, (p, size) in enumerate(sizes)]
    assert [[frame.size for frame in some] for some in slices(frames, 10)] == [[5, 5], [30], [1], [1], [10]]
    assert list(slices([])) == []


# Checkpoint, marks and tables must belong together


def test_another_batch_under_the_same_number_stops(tmp_path: Path) -> None:
    log = some_log(20, repeats=False)
    run(archive(tmp_path), log[:10], 0)
    with pytest.raises(
        StateError, match=r"batch 0 .* other records than when it was first run.*Remedy: .*lacuna archive rebuild"
    ):
        run(archive(tmp_path), log[:12], 0)


def test_a_checkpoint_that_is_older_or_newer_stops(tmp_path: Path) -> None:
    log = some_log(40, repeats=False)
    for batch in range(3):
        run(archive(tmp_path), log[batch * 10 :][:10], batch)
    for batch in (1, 4):
        with pytest.raises(StateError, match=f"marks are those of batch 2, and Spark is at batch {batch}"):
            run(archive(tmp_path), log[30:], batch)


def test_full_tables_and_a_new_checkpoint_are_refused(tmp_path: Path) -> None:
    run(archive(tmp_path), some_log(10), 0)
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    with pytest.raises(StateError, match=r"the tables hold rows, and .*Remedy: .*lacuna archive rebuild"):
        prepare(settings_at(tmp_path))


def test_tables_older_than_the_checkpoint_are_refused(tmp_path: Path) -> None:
    log = some_log(30)
    for batch in range(2):
        run(archive(tmp_path), log[batch * 10 :][:10], batch)
    (tmp_path / "lake").rename(tmp_path / "lost")
    with pytest.raises(StateError, match=r"should have batch 0, and has none: .*: lacuna archive rebuild"):
        prepare(settings_at(tmp_path))


def test_one_archive_at_a_time(tmp_path: Path) -> None:
    where = places(settings_at(tmp_path))
    with claimed(where), pytest.raises(LacunaError, match="an archive runs on this checkpoint already"), claimed(where):
        pass
    with claimed(where):
        pass


# Tables


def test_tables_are_made_with_comments_and_a_second_time_left_alone(tmp_path: Path) -> None:
    create_tables(f"{tmp_path}/new/lake", SPACE)
    create_tables(f"{tmp_path}/new/lake", SPACE)
    for table in TABLES:
        made = DeltaTable(table_path(f"{tmp_path}/new/lake", table))
        assert {field.name: field.metadata.get("comment") for field in made.schema().fields} == abouts(table)
        assert made.version() == 0
        assert made.protocol()[:2] == (1, 2)
    assert table_counts(f"{tmp_path}/new/lake") == dict.fromkeys(TABLES, 0)


def test_foreign_tables_are_refused_and_nothing_is_made(tmp_path: Path) -> None:
    other = pa.table({"broker": ["x"], "batch": ["not a number"], "more": [1]})
    write_deltalake(str(tmp_path / "metrics"), other)
    with pytest.raises(
        LacunaError, match=r"metrics there has other columns.*lacks epoch, seq, .*has more.*type: batch.*Remedy"
    ):
        create_tables(str(tmp_path), SPACE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics"]


def abouts(table: str) -> dict[str, str]:
    return {column.name: column.about for column in TABLES[table].columns}


NEW = ("withheld_associations", "withheld_filter_bytes")


def of_earlier(value: bytes) -> bytes:
    """A frame as the version before these columns wrote it."""
    head, stream = unframe(0, 0, value)
    rows = table_of(stream).drop_columns(list(NEW))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return frame_of(head.epoch, head.channel, head.number, head.table, head.rows, bytes(sink.getvalue()))


def metrics_of_earlier(lake: str, name: str | None) -> DeltaTable:
    """The table of that version."""
    schema = pa.schema([field for field in SCHEMAS["metrics"] if field.name not in (*NEW, "written")])
    return DeltaTable.create(table_path(lake, "metrics"), Schema.from_arrow(schema), name=name)


def test_a_table_of_an_earlier_version_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    """And the frames of that version that are still in the topic are taken."""
    lake = f"{tmp_path}/lake"
    made = metrics_of_earlier(lake, "metrics")
    values = [value_of(7, "a>b", number, "metrics", 2) for number in (1, 2, 3)]
    old = table_of(unframe(0, 0, of_earlier(values[0]))[1])
    write_deltalake(made, old, mode="append")
    create_tables(lake, SPACE)
    create_tables(lake, SPACE)
    there = DeltaTable(table_path(lake, "metrics"))
    assert there.version() == 3, "made, filled, and once given its columns and made append-only"
    assert there.protocol()[:2] == (1, 2)
    comments = {field.name: field.metadata.get("comment") for field in there.schema().fields}
    assert comments == abouts("metrics")
    writer = RustWriter(lake)
    for version, value in enumerate([of_earlier(values[1]), values[2]]):
        writer.append("metrics", [Stream(unframe(0, 0, value)[1], 5)].copy, Stamp("test", version))
    rows = DeltaTable(table_path(lake, "metrics")).to_pyarrow_table().select(SCHEMAS["metrics"].names)
    whole = [rows_of(unframe(0, 0, v)[1], "metrics", at) for v, at in zip(values, (None, 5, 5), strict=True)]
    lacking = [{**row, **dict.fromkeys(NEW)} for part in whole[:2] for row in part]
    assert counted(rows) == Counter(map(repr, [*lacking, *whole[2]]))


def test_a_foreign_table_gets_no_columns(tmp_path: Path) -> None:
    metrics_of_earlier(str(tmp_path), None)
    with pytest.raises(LacunaError, match=r"it lacks written, withheld_associations, withheld_filter_bytes\. Remedy"):
        create_tables(str(tmp_path), SPACE)
    assert DeltaTable(table_path(str(tmp_path), "metrics")).version() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics"]


def test_a_frame_of_a_later_version_is_refused(tmp_path: Path) -> None:
    create_tables(str(tmp_path), SPACE)
    rows = table_of(unframe(0, 0, value_of(7, "a>b", 1, "routes", 2))[1])
    later = rows.append_column("more", pa.nulls(2, pa.int64()))
    other = rows.drop_columns(["batch"]).append_column("batch", pa.nulls(2, pa.string()))
    for strange in (later, other):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, strange.schema) as stream:
            stream.write_table(strange)
        with pytest.raises(StateError, match=r"routes has columns that the table lacks.*Remedy"):
            RustWriter(str(tmp_path)).append("routes", [Stream(bytes(sink.getvalue()), 5)].copy, Stamp("test", 1))


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "routes").mkdir()
    create_tables(str(tmp_path), SPACE)  # an empty folder is nothing
    (tmp_path / "other" / "rejects").mkdir(parents=True)
    (tmp_path / "other" / "rejects" / "notes.txt").write_text("mine")
    with pytest.raises(
        LacunaError, match=r"rejects is in the place of the table rejects, and is no Delta table.*Remedy"
    ):
        create_tables(str(tmp_path / "other"), SPACE)


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LacunaError, match=r"lake\.path = '.*/file/lake': it must be a folder .*Remedy"):
        create_tables(str(tmp_path / "file" / "lake"), SPACE)
    with pytest.raises(LacunaError, match=r"lake\.path = '/proc/lake': it must be a folder that .*Remedy"):
        create_tables("/proc/lake", SPACE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(LacunaError, match="this user may write to"):
        create_tables(str(tmp_path), SPACE)


def test_a_full_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LacunaError, match=r"its disk must have room \(only \d+ MB .* Remedy: free some space"):
        check_folder(str(tmp_path), least_free=1 << 60)


def test_no_tables_no_counts(tmp_path: Path) -> None:
    with pytest.raises(LacunaError, match=r"there is no table subscriptions.*Remedy: run the archive first"):
        table_counts(str(tmp_path))


# Upkeep


def test_maintain_keeps_every_row(tmp_path: Path) -> None:
    log = some_log(120, seed=3)
    running = archive(tmp_path)
    for batch in range(12):
        run(running, log[batch * 10 :][:10], batch)
    before, stages = rows_in(f"{tmp_path}/lake"), []
    report = maintain(settings_at(tmp_path), 0, tell=lambda table, stage: stages.append((table, stage)))
    assert rows_in(f"{tmp_path}/lake") == before
    assert stages == [(t, stage) for t in SCHEMAS for stage in ("optimize", "vacuum", "log", "done")]
    for table, done in report.items():
        assert (done.after.files, done.deleted) == (1, done.before.files)
        assert len(list((tmp_path / "lake" / table).glob("*.parquet"))) == 1
    rest = log[120:] or some_log(1, repeats=False)
    run(running, rest, 12)  # its tables are open at versions before the compaction
    assert sum(table_counts(f"{tmp_path}/lake").values()) >= sum(sum(c.values()) for c in before.values())


def rows_of_batch(batch: int, number: int, count: int) -> Record:
    """A frame of `routes` of one router's batch."""
    columns = columns_of("routes", count, random.Random(number)) | {"batch": [batch] * count, "epoch": [7] * count}
    return 0, number, frame_of(7, "oslo", number, "routes", count, stream_of(SPACE, "routes", columns))


def kept_for(folder: object, keep: str) -> Settings:
    config = parse((TEXT % ("localhost:1", "lacuna", folder, folder)) + f"keep = {keep}\n")
    return settle(config, 7, 2)


def test_rows_are_deleted_when_they_are_older_than_the_days_to_keep(tmp_path: Path) -> None:
    """Ten batches a day, maintained once a day, routes kept for three days; in between the tables are append-only."""
    settings, running, lake = kept_for(tmp_path, "{routes = 3}"), archive(tmp_path), f"{tmp_path}/lake"
    start, expired = datetime(2026, 5, 1, tzinfo=UTC), []
    for day in range(6):
        for k in range(10):
            number = 10 * day + k
            run(running, [rows_of_batch(number, number + 1, 2)], number)
        expired.append(maintain(settings, 0, now=start + timedelta(days=day))["routes"].expired)
        with pytest.raises(DeltaError, match=r"append[- ]only"):
            DeltaTable(table_path(lake, "routes")).delete("batch < 1000")
    assert expired == [0, 0, 0, 20, 20, 20]
    left = DeltaTable(table_path(lake, "routes")).to_pyarrow_table().column("batch").to_pylist()
    assert sorted(set(left)) == list(range(30, 60))
    assert prepare(settings) is None, "marks and tables still belong together"


def test_without_days_nothing_is_deleted_and_notes_of_another_life_do_not_count(tmp_path: Path) -> None:
    running = archive(tmp_path)
    run(running, [rows_of_batch(5, 1, 2)], 0)
    late = datetime(2030, 1, 1, tzinfo=UTC)
    assert maintain(settings_at(tmp_path), 0, now=late)["routes"].expired == 0
    maintain(replace(kept_for(tmp_path, "1"), epoch=6), 0, now=late - timedelta(days=9))
    assert maintain(kept_for(tmp_path, "1"), 0, now=late)["routes"].expired == 0
    assert maintain(kept_for(tmp_path, "1"), 0, now=late + timedelta(days=2))["routes"].expired == 2


def test_days_for_an_unknown_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"lake.keep = 'rows': there is no such table. Remedy: use some of subscriptions"
    ):
        check_keep(kept_for(tmp_path, "{rows = 3}").config)


def test_a_table_of_an_earlier_version_becomes_append_only(tmp_path: Path) -> None:
    run(archive(tmp_path), some_log(10), 0)
    table = DeltaTable(table_path(f"{tmp_path}/lake", "routes"))
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    prepare(settings_at(tmp_path))
    assert DeltaTable(table_path(f"{tmp_path}/lake", "routes")).metadata().configuration["delta.appendOnly"] == "true"


def test_an_append_goes_on_though_the_table_was_changed_meanwhile(tmp_path: Path) -> None:
    """Maintenance changes a table's properties, with which a commit that has begun conflicts."""
    lake = f"{tmp_path}/lake"
    create_tables(lake, SPACE)
    writer, attempts = RustWriter(lake), []
    stream = Stream(unframe(*rows_of_batch(1, 1, 2))[1], 5)

    def change() -> None:
        DeltaTable(table_path(lake, "routes")).alter.set_table_properties({"delta.appendOnly": "false"})

    def streams() -> Iterator[Stream]:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            maintainer = threading.Thread(target=change)
            maintainer.start()
            maintainer.join()
        yield stream

    writer.append("routes", streams, Stamp("life", 0))
    assert table_counts(lake)["routes"] == 2 and attempts == [0, 1]


def test_a_short_retention_spares_files_not_yet_committed(tmp_path: Path) -> None:
    run(archive(tmp_path), some_log(30), 0)
    coming = tmp_path / "lake" / "routes" / "part-of-a-writer-at-work.parquet"
    coming.write_bytes(b"...")
    maintain(settings_at(tmp_path), 0)
    assert coming.exists()


def test_a_negative_retention_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LacunaError, match="retention = -1 hours"):
        maintain(settings_at(tmp_path), -1)


def test_files_are_skipped_by_what_people_look_for_and_compaction_sorts_by_it(tmp_path: Path) -> None:
    """Statistics are of the columns that people filter by, also of a table that an earlier version made."""
    metrics_of_earlier(f"{tmp_path}/lake", "metrics")
    log, running = some_log(120, seed=3), archive(tmp_path)
    run(running, log[:60], 0)
    run(running, log[60:], 1)
    maintain(settings_at(tmp_path), 0)
    for table, filtered in (("deliveries", "publication_key"), ("metrics", "link"), ("decisions", "action")):
        there = DeltaTable(table_path(f"{tmp_path}/lake", table))
        assert filtered in there.metadata().configuration["delta.dataSkippingStatsColumns"].split(",")
        assert there.protocol()[:2] == (1, 2)
    there = DeltaTable(table_path(f"{tmp_path}/lake", "deliveries"))
    keys = [key[:8] for key in there.to_pyarrow_table()["publication_key"].drop_null().to_pylist()]
    assert len(keys) > 10 and keys == sorted(keys)
    assert {"min.publication_key", "max.written"} <= set(there.get_add_actions(flatten=True).schema.names)


@pytest.mark.parametrize("prepared", [True, False])
def test_attributes_come_and_go(tmp_path: Path, prepared: bool) -> None:
    """A later life has another space: rows of both are in one table, and what one did not have is null.

    The tables have its attributes when it begins, or, where they are filled again from the topic, by its rows.
    """
    run(archive(tmp_path), some_log(60, seed=3), 0)
    text = (TEXT % ("localhost:1", "lacuna", tmp_path, tmp_path)).replace("\nx =", "\ny =")
    other = parse(text).space
    if prepared:
        create_tables(f"{tmp_path}/lake", other)
    there = DeltaTable(table_path(f"{tmp_path}/lake", "publications"))
    columns = columns_of("publications", 2, random.Random(1))
    RustWriter(f"{tmp_path}/lake").append(
        "publications", [Stream(stream_of(other, "publications", columns), 5)].copy, Stamp("later", 1)
    )
    there.update_incremental()
    points = there.to_pyarrow_table()["point"].to_pylist()
    assert {(point["x"] is None, point["y"] is None) for point in points} == {(True, False), (False, True)}
    changed = parse(text.replace('"int", low = 0, high = 9', '"float", low = 0.0, high = 9.0')).space
    with pytest.raises(LacunaError, match=r"there has other columns .* of another type: \w+\. Remedy"):
        create_tables(f"{tmp_path}/lake", changed)
    assert other_kinds(f"{tmp_path}/lake", other) == other_kinds(f"{tmp_path}/none", changed) == []
    [refused] = other_kinds(f"{tmp_path}/lake", changed)
    assert refused.startswith("space.y is double, and the tables hold it as int64. Remedy: give the attribute another")
