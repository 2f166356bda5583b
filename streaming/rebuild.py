"""Rebuilding the tables from the records topic: fill new ones beside the old, then swap.

The tables hold nothing that the records topic does not. `rebuild` reads the whole topic into new tables, with a
checkpoint and marks of their own, while the old ones stay as they are. Only then are the old ones set aside and the new
ones put in their place, by the renames of a journal (`swap`). A rebuild that is killed while it fills has changed
nothing, and begins again; one that is killed while it swaps is finished by the next rebuild or archive.

    lake/decisions ...                  ──▶ lake/before-rebuild-1/decisions ...
    lake/.rebuilt/decisions ...         ──▶ lake/decisions ...
    checkpoint/archive, -marks          ──▶ checkpoint/before-rebuild-1/archive, -marks
    checkpoint/archive-rebuilt, -marks  ──▶ checkpoint/archive, -marks

The next archive goes on where the new checkpoint ends. Folders are renamed on disks only; object stores have no such
step, so there a rebuild is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from access.offsets import topic_spans
from state.errors import LacunaError, StateError
from state.storage.tables import TABLES
from streaming import earlier
from streaming.archive import ArchiveQuery, MarkFiles, Places, archive_query, claimed, places
from streaming.causes import cause_in
from streaming.lake import is_vacant, open_table, table_path
from streaming.paths import is_local, refusals
from streaming.settings import Settings
from streaming.swap import Rename, finish, swap

BETWEEN_LOOKS = 0.05
Fill = Callable[[Settings, str, bool], None]
"""Archives the whole topic: is called with the settings, of which the lake is empty, the path of a checkpoint, and
whether to go on behind what the topic has lost."""


@dataclass(frozen=True)
class Rebuilt:
    """The result of `rebuild`: rows by table before and after, and where the old tables are."""

    before: Mapping[str, int]
    after: Mapping[str, int]
    aside: str


def _silent(_text: str) -> None:
    """Tell nobody."""


def rebuild(settings: Settings, fill: Fill, *, force: bool = False, tell: Callable[[str], None] = _silent) -> Rebuilt:
    """Replace the tables and the archive's state by what the topic holds.

    Refused while an archive runs, and if the topic no longer holds all that was archived; `force` goes on with what is
    left. `tell` hears what begins.
    """
    where = places(settings)
    _refuse_remote(where)
    with claimed(where):
        finish(where.journal)
        if not force:
            _refuse_foreign(where)
            check_topic(settings, where)
        new = Places(f"{where.lake}/.rebuilt", f"{where.checkpoint}-rebuilt")
        _remove(new)
        tell("reading the whole topic into new tables")
        lake = replace(settings.config.lake, path=new.lake)
        fill(replace(settings, config=replace(settings.config, lake=lake)), new.checkpoint, force)
        earlier.fill(new.lake, settings.config, tell)
        rebuilt = Rebuilt(_counts(where), _counts(new), aside := _aside(where))
        tell(f"setting the old tables aside in {aside}")
        swap(where.journal, _renames(where, new, Path(aside).name))
        _remove(new)
    return rebuilt


def fill_with(spark: SparkSession, writer: str) -> Fill:
    """Return a function that archives with Spark."""

    def fill(settings: Settings, checkpoint: str, over_gaps: bool) -> None:
        query = archive_query(spark, settings, writer=writer, checkpoint=checkpoint, trigger=None, over_gaps=over_gaps)
        while query.isActive:
            time.sleep(BETWEEN_LOOKS)
        query.stop()
        _raise_failure(query)

    return fill


def _raise_failure(query: ArchiveQuery) -> None:
    failed = query.failure or query.exception()
    if isinstance(failed, LacunaError):
        raise failed
    if failed is not None:
        raise LacunaError(f"the topic could not be archived: {cause_in(str(failed))}; the tables are as they were")


# The swap


def _renames(where: Places, new: Places, aside: str) -> list[Rename]:
    """Return the renames that set the old folders aside and put the new ones in their place."""
    tables = [(table_path(where.lake, table), table_path(new.lake, table)) for table in TABLES]
    pairs = [*tables, (where.checkpoint, new.checkpoint), (where.marks, new.marks)]
    return [rename for old, made in pairs for rename in _exchange(Path(old), Path(made), aside)]


def _exchange(old: Path, made: Path, aside: str) -> list[Rename]:
    away = [(str(old), str(old.parent / aside / old.name))] if old.exists() else []
    return [*away, *([(str(made), str(old))] if made.exists() else [])]


def _aside(where: Places) -> str:
    """Return a folder beside the tables that does not exist, neither there nor beside the checkpoint."""
    number = 1
    places = [Path(where.lake), Path(where.checkpoint).parent]
    while any((place / f"before-rebuild-{number}").exists() for place in places):
        number += 1
    return str(places[0] / f"before-rebuild-{number}")


def _remove(new: Places) -> None:
    """Remove what a rebuild that was killed has left."""
    with refusals("lake.path", new.lake):
        for folder in (new.lake, new.checkpoint, new.marks):
            rmtree(folder, ignore_errors=True)


# What may be replaced, and by what


def _is_table(where: Places, table: str) -> bool:
    return DeltaTable.is_deltatable(table_path(where.lake, table))


def _counts(where: Places) -> dict[str, int]:
    """Return the rows of each table; none if it is missing or damaged."""
    return {table: _count(where, table) for table in TABLES}


def _count(where: Places, table: str) -> int:
    with suppress(DeltaError, OSError, ValueError):
        return open_table(where.lake, table).count() if _is_table(where, table) else 0
    return 0


def _is_ours(where: Places, table: str) -> bool:
    with suppress(DeltaError, OSError, ValueError):
        return _is_table(where, table) and open_table(where.lake, table).metadata().name == table
    return False


def _refuse_remote(where: Places) -> None:
    for name, path in (("lake.path", where.lake), ("lake.checkpoint", where.checkpoint)):
        if not is_local(path):
            raise LacunaError(
                f"{name} = {path!r}: folders can be swapped on a disk only. Remedy: stop the archive; move the tables, "
                f"{where.checkpoint} and {where.marks} away yourself; the next run fills the tables again"
            )


def _refuse_foreign(where: Places) -> None:
    """Refuse a folder in the place of a table unless it is a table that Lacuna made, which bears its name."""
    for table in TABLES:
        path = table_path(where.lake, table)
        if not _is_ours(where, table) and not is_vacant(Path(path)):
            raise LacunaError(
                f"lake.path = {where.lake!r}: {path} is not a table that Lacuna made, and is not replaced. Remedy: "
                "choose another lake.path, or move it away, or set it aside with --force"
            )


def check_topic(settings: Settings, where: Places) -> None:
    """Refuse a records topic that lacks something of what the archive has read."""
    topic = settings.topics.records
    spans = {partition: span for (_, partition), span in topic_spans(settings.config.kafka.bootstrap, [topic]).items()}
    if not spans:
        raise _incomplete(topic, "it does not exist")
    gone = ", ".join(f"{span.first} of partition {number}" for number, span in sorted(spans.items()) if span.first > 0)
    if gone:
        raise _incomplete(topic, f"its first records are gone ({gone})")
    for partition, offset in _read_offsets(where).items():
        held = spans[int(partition)].next if int(partition) in spans else 0
        if held < offset:
            had = f"{held} records in partition {partition}, the archive has read {offset}"
            raise _incomplete(topic, f"it holds {had}")


def _read_offsets(where: Places) -> dict[str, int]:
    """Return the next offset of each partition by the archive's last marks; damaged marks are a reason to rebuild."""
    files = MarkFiles(where.marks)
    numbers = files.numbers()
    with suppress(StateError):
        return files.get(numbers[-1]).offsets if numbers else {}
    return {}


def _incomplete(topic: str, what: str) -> LacunaError:
    return LacunaError(
        f"the topic {topic} does not hold all that is in the tables: {what}; rebuilt tables would lack rows. Remedy: "
        "keep the tables as they are, or restore the topic from a copy; with --force the tables get what is left, and "
        "the old ones are set aside"
    )
