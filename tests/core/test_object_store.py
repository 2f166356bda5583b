"""The lake, the marks and the lives on an S3 server on this machine: that of moto.

delta-rs commits by a conditional put: two writers cannot both make a version. Arrow writes an object whole, or not at
all. Spark's own writers are not tried here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import fs

from streaming.life import Folder, seed_of, stored_of
from streaming.maintenance import maintain, next_due
from streaming.paths import file_system
from tests.core.buckets import served
from tests.core.test_archive_plan import settings_at
from tests.core.test_archive_tables import Crash, archive, expected, rows_in, run, some_log


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("s3") / "log") as address:
        yield address


def test_rows_are_there_once_through_crashes(bucket: str) -> None:
    """The archive dies before a table, and is started again: marks, tables and stamps are those of a disk."""
    log, place = some_log(20, seed=3), f"{bucket}/crashes"
    cuts = [log[:10], log[10:]]
    for batch, cut in enumerate(cuts):
        with pytest.raises(Crash):
            run(archive(place, 1), cut, batch)
        run(archive(place), cut, batch)
    assert rows_in(f"{place}/lake") == expected(log)
    maintain(settings_at(place))
    assert rows_in(f"{place}/lake") == expected(log)


def test_writers_that_meet_lose_nothing(bucket: str) -> None:
    """Each commit is a put that is refused if the version is there."""
    place, rows = f"{bucket}/meeting", pa.table({"x": [1, 2]})
    write_deltalake(place, rows)

    def append() -> None:
        for _ in range(5):
            write_deltalake(place, rows, mode="append")

    writers = [threading.Thread(target=append) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    table = DeltaTable(place)
    assert (table.version(), table.to_pyarrow_table().num_rows) == (20, 42)


def test_a_life_is_kept_where_spark_looks_for_it(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a life keeps its scheme, or Spark would write the checkpoint below the working directory."""
    monkeypatch.chdir(tmp_path)
    settings = settings_at(f"{bucket}/life", epoch=3)
    folder = Folder(settings.config.lake.checkpoint)
    folder.refuse_strangers()
    assert folder.epochs() == []
    folder.write(stored_of(settings, 2, "a test", {}, seeded=True), {"b": b"seed"}, [])
    there = Folder(settings.config.lake.checkpoint)
    assert there.epochs() == [3]
    found = there.settings(settings.config, 3)
    assert found.folder == f"{settings.config.lake.checkpoint}/lives/3" and found.folder.startswith("s3a://")
    assert seed_of(found.folder, "b") == b"seed"
    assert next_due(found, 1).tzinfo is not None
    there.note_sent(3)
    system, name = file_system(found.folder)
    assert {info.base_name for info in system.get_file_info(fs.FileSelector(name))} == {
        "life.json",
        "seed",
        "prologue.sent",
    }
    there.remove(3)
    assert there.epochs() == [] and not list(tmp_path.iterdir())
