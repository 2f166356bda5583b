"""`archive rebuild` without a JVM: new tables beside the old, swapped by renames, killed before and after each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import copytree, rmtree

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from access.errors import Unreachable
from access.offsets import Span, topic_spans
from state.errors import LacunaError, StateError
from state.storage.tables import TABLES
from streaming import swap
from streaming.archive import Archive, MarkFiles, claimed, places, prepare
from streaming.rebuild import Fill, Rebuilt, rebuild
from streaming.settings import Settings
from tests.core.test_archive_plan import SPACE, settings_at
from tests.core.test_archive_tables import Crash, Direct, Record, archive, expected, rows_in, run, some_log

LOG = some_log(30)


def fill(log: list[Record]) -> Fill:
    """Archive a log without Spark; a folder stands for Spark's checkpoint."""

    def fill(settings: Settings, checkpoint: str, over_gaps: bool) -> None:
        where = places(settings, checkpoint)
        prepare(settings, checkpoint)
        Path(checkpoint).mkdir()
        archive = Archive(MarkFiles(where.marks), Direct(where.lake), SPACE, lambda: False, over_gaps=over_gaps)
        run(archive, log, 0)

    return fill


def again(folder: Path, log: list[Record] = LOG) -> Rebuilt:
    """Rebuild; there is no topic to compare with."""
    return rebuild(settings_at(folder), fill(log), force=True)


def damaged(folder: Path) -> Path:
    """A lake that lacks rows which the topic holds."""
    run(archive(folder), LOG[:10], 0)
    (folder / "checkpoint" / "archive").mkdir()
    return folder / "lake"


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    """Let the process die before or after this rename."""
    left = step

    def rename(source: str, target: str) -> None:
        nonlocal left
        if left == 0 and not after:
            raise Crash
        Path(source).rename(target)
        if left == 0:
            raise Crash
        left -= 1

    monkeypatch.setattr(swap, "rename", rename)


def content(folder: Path) -> dict[str, bytes]:
    """The files below a folder, but for locks."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_killed_at_each_rename_and_run_again_it_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal holds full paths, so the folder is always the same one, put back as it was before the renames."""
    folder, before = tmp_path / "system", tmp_path / "before"
    damaged(folder)
    killed_at(0, monkeypatch, after=False)
    with pytest.raises(Crash):
        again(folder)
    monkeypatch.undo()
    folder.rename(before)
    journal, results, kills = places(settings_at(folder)).journal, [], 0
    for after in (False, True):
        for step in range(100):
            rmtree(folder, ignore_errors=True)
            copytree(before, folder)
            with monkeypatch.context() as patch, suppress(Crash):
                killed_at(step, patch, after=after)
                swap.finish(journal)
                break
            kills += 1
            assert swap.finish(journal)
            results.append(content(folder))
    assert kills == 2 * 2 * (len(TABLES) + 2), "each table, checkpoint and marks: one out, one in; before and after"
    assert all(result == content(folder) for result in results)
    prepare(settings_at(folder))  # marks and tables agree
    assert rows_in(f"{folder}/lake") == expected(LOG)
    assert rows_in(f"{folder}/lake/before-rebuild-1") == expected(LOG[:10])


@pytest.mark.parametrize("finish", [again, lambda folder: prepare(settings_at(folder))], ids=["rebuild", "run"])
def test_a_swap_that_was_interrupted_is_finished_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finish: Callable[[Path], object]
) -> None:
    lake = damaged(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        killed_at(5, patch, after=False)
        again(tmp_path)
    finish(tmp_path)
    assert rows_in(str(lake)) == expected(LOG)
    assert rows_in(f"{lake}/before-rebuild-1") == expected(LOG[:10])


def test_killed_while_it_reads_it_has_changed_nothing(tmp_path: Path) -> None:
    lake = damaged(tmp_path)

    def fail(settings: Settings, checkpoint: str, over_gaps: bool) -> None:
        fill(LOG)(settings, checkpoint, over_gaps)
        raise Crash

    with pytest.raises(Crash):
        rebuild(settings_at(tmp_path), fail, force=True)
    assert rows_in(str(lake)) == expected(LOG[:10])
    done = again(tmp_path)
    assert rows_in(str(lake)) == expected(LOG)
    assert done.after == {table: sum(rows.values()) for table, rows in expected(LOG).items()}
    left = {path.name for path in (tmp_path / "checkpoint").iterdir()}
    assert left == {"archive", "archive-marks", ".archive.lock", "before-rebuild-1"}
    assert not (lake / ".rebuilt").exists()


def test_old_tables_are_never_overwritten(tmp_path: Path) -> None:
    lake = damaged(tmp_path)
    asides = [again(tmp_path).aside for _ in range(2)]
    assert [Path(aside).name for aside in asides] == ["before-rebuild-1", "before-rebuild-2"]
    assert rows_in(asides[0]) == expected(LOG[:10])
    assert rows_in(asides[1]) == rows_in(str(lake)) == expected(LOG)


def test_a_damaged_journal_stops_with_a_remedy(tmp_path: Path) -> None:
    damaged(tmp_path)
    Path(places(settings_at(tmp_path)).journal).write_text("[")
    with pytest.raises(StateError, match=r"archive-swap\.json: the list of renames is damaged.*Remedy: move it away"):
        prepare(settings_at(tmp_path))


def test_rebuild_refuses_a_running_archive(tmp_path: Path) -> None:
    config = settings_at(tmp_path)
    with claimed(places(config)), pytest.raises(LacunaError, match="an archive runs"):
        rebuild(config, fill(LOG), force=True)


def test_rebuild_needs_kafka() -> None:
    with pytest.raises(Unreachable, match=r"kafka\.bootstrap = 'localhost:1': no Kafka answered there within 0\.2 s"):
        topic_spans("localhost:1", ["lacuna.records"], deadline=0.2)


def test_rebuild_refuses_a_topic_that_lacks_what_was_archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(archive(tmp_path), LOG, 0)
    settings, topic = settings_at(tmp_path), settings_at(tmp_path).topics.records
    cases: tuple[tuple[dict[tuple[str, int], Span], str], ...] = (
        ({}, "it does not exist"),
        ({(topic, 0): Span(0, 99), (topic, 1): Span(3, 99)}, r"its first records are gone \(3 of partition 1\)"),
        ({(topic, 1): Span(0, 99)}, r"it holds 0 records in partition 0, the archive has read \d+"),
    )
    for spans, why in cases:
        monkeypatch.setattr("streaming.rebuild.topic_spans", lambda *_, spans=spans: spans)
        with pytest.raises(LacunaError, match=f"the topic {topic} does not hold all that is in the tables: {why}"):
            rebuild(settings, fill(LOG))


def test_rebuild_replaces_only_what_is_ours(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "lake" / "metrics"), pa.table({"mine": [1]}))
    with pytest.raises(LacunaError, match=r"/metrics is not a table that Lacuna made, and is not replaced\. Remedy"):
        rebuild(settings_at(tmp_path), fill(LOG))
    assert DeltaTable(str(tmp_path / "lake" / "metrics")).count() == 1


def test_rebuild_by_force_sets_damaged_tables_aside_too(tmp_path: Path) -> None:
    run(archive(tmp_path), LOG, 0)
    for log in (tmp_path / "lake" / "routes" / "_delta_log").glob("*.json"):
        log.write_text("{")
    with pytest.raises(LacunaError, match=r"its log is damaged.* lacuna archive rebuild --force$"):
        prepare(settings_at(tmp_path))
    with pytest.raises(LacunaError, match="/routes is not a table that Lacuna made"):
        rebuild(settings_at(tmp_path), fill(LOG))
    again(tmp_path)
    assert rows_in(f"{tmp_path}/lake") == expected(LOG)
