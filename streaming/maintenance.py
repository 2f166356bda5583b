"""Upkeep of the lake: compaction and cleaning beside a running archive.

The archive commits every table about once a second, so tables grow by small files. `maintain` rewrites them into large
ones, which changes no row (`routes` and `deliveries` are sorted by `publication_key` as long as they are not large),
deletes files that no version within the retention needs, and shortens the logs. All of it is safe while the archive
runs: in Delta an append and a compaction never conflict, and what is deleted is what a log says was replaced. Files
that no log mentions are left by a writer that was killed, or belong to one that has not committed yet; so they are
deleted too, but only with a retention of a day or more, which no commit takes.

`[lake] keep` limits how long rows are kept. Rows carry the router's batch, not the moment at which they were written.
So each time `maintain` notes the last batch of every table and the date. Once a note is older than `keep` days, the
rows up to its batch are deleted. A row is thus kept for at least so many days, and at most until the second maintenance
after that. Deleting is the only moment at which a table is not append-only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from state.config import ALL_TABLES, Config
from state.errors import ConfigError, LacunaError
from state.storage.tables import TABLES
from streaming.dataset import dataset_of
from streaming.lake import TRIES, allow_deletes, open_table
from streaming.life import FILE
from streaming.paths import file_system, refusals
from streaming.settings import Settings

WEEK = 7 * 24
DAY = 24
MOST_SORTED = 1 << 30
"""Bytes up to which a table is sorted, which rewrites all of it. The files of a larger one are of different days, and
so of different offsets, and can be told apart by the key as they are."""
NOTE = ".maintained"
NOTES = ".batches.json"
"""The notes of when each table ended with which batch."""
Say = Callable[[str, str], None]
T = TypeVar("T")


def _silent(_table: str, _stage: str) -> None:
    """Tell nobody."""


# Compaction and cleaning


@dataclass(frozen=True)
class Size:
    """The files and bytes of a table."""

    files: int
    bytes: int


@dataclass(frozen=True)
class Upkeep:
    """The result of `maintain` for a table; `deleted` are files of earlier versions, `expired` rows that were old."""

    before: Size
    after: Size
    deleted: int
    expired: int = 0


def maintain(
    settings: Settings,
    retention_hours: int = WEEK,
    *,
    target_bytes: int | None = None,
    tell: Say = _silent,
    now: datetime | None = None,
) -> dict[str, Upkeep]:
    """Delete rows that are old, compact and clean the tables. `tell` hears the table and what begins.

    Time travel reaches back as far as `retention_hours`. A reader at work on an older version may lose its files.
    """
    if retention_hours < 0:
        raise LacunaError(f"retention = {retention_hours} hours: it cannot be negative. Remedy: give 0 or more.")
    lake = settings.config.lake.path
    check_keep(settings.config)
    expired = _expire(settings, now or datetime.now(UTC), tell)
    done = {table: _maintain(lake, table, retention_hours, target_bytes, tell) for table in TABLES}
    _note(settings)
    return {table: replace(upkeep, expired=expired[table]) for table, upkeep in done.items()}


# Rows that are old enough


class Ending(msgspec.Struct, frozen=True):
    """A note: at this moment (seconds since 1970), this was the last batch of each table in an epoch."""

    time: float
    epoch: int
    batches: dict[str, int]


_write_notes = msgspec.json.Encoder().encode
_read_notes = msgspec.json.Decoder(list[Ending]).decode


def check_keep(config: Config) -> None:
    """Refuse days for a table that does not exist."""
    for table in config.lake.keep:
        if table not in (*TABLES, ALL_TABLES):
            raise ConfigError("lake.keep", table, "there is no such table", f"use some of {', '.join(TABLES)}")


def _expire(settings: Settings, now: datetime, tell: Say) -> dict[str, int]:
    """Delete the rows that are older than `[lake] keep` days. Return how many, by table."""
    lake, moment = settings.config.lake, now.timestamp()
    expired = dict.fromkeys(TABLES, 0)
    if not lake.keep:
        return expired
    notes = [note for note in _notes(settings) if note.epoch == settings.epoch]
    for table in TABLES:
        days = lake.days_of(table)
        old = [note.batches[table] for note in notes if days and note.time <= moment - days * 86400]
        if old:
            tell(table, "expire")
            expired[table] = _delete(lake.path, table, settings.epoch, max(old))
    latest = {table: _last_batch(open_table(lake.path, table), settings.epoch) for table in TABLES}
    longest = max(lake.keep.values()) * 86400
    kept = [note for note in notes if note.time > moment - longest]
    oldest = [note for note in notes if note.time <= moment - longest][-1:]
    _keep_notes(settings, [*oldest, *kept, Ending(moment, settings.epoch, latest)])
    return expired


def _delete(lake: str, table: str, epoch: int, batch: int) -> int:
    """Delete the rows of earlier lives, and of this one up to a batch. The table is append-only again afterwards.

    Rows without an epoch were written by an earlier version of Lacuna.
    """
    old = f"epoch < {epoch} OR ((epoch = {epoch} OR epoch IS NULL) AND batch <= {batch})"
    with refusals("lake.path", lake):
        _patiently(lambda: allow_deletes(open_table(lake, table), lake, allowed=True))
        try:
            done = _patiently(lambda: open_table(lake, table).delete(old))
        finally:
            _patiently(lambda: allow_deletes(open_table(lake, table), lake, allowed=False))
    return int(done.get("num_deleted_rows") or 0)


def _last_batch(table: DeltaTable, epoch: int) -> int:
    """Return the last batch of a life of which a table has rows; -1 if there is none."""
    last, of_life = -1, pc.is_null(pc.field("epoch")) | (pc.field("epoch") == epoch)
    for part in dataset_of(table).to_batches(columns=["batch"], filter=of_life):
        found = pc.max(part.column("batch")).as_py()
        last = last if found is None else max(last, found)
    return last


def _notes(settings: Settings) -> list[Ending]:
    system, root = file_system(settings.config.lake.checkpoint)
    with suppress(OSError, msgspec.MsgspecError), system.open_input_stream(f"{root}/{NOTES}") as file:
        return list(_read_notes(file.read()))
    return []  # rows are then kept for longer


def _keep_notes(settings: Settings, notes: list[Ending]) -> None:
    system, root = file_system(settings.config.lake.checkpoint)
    with refusals("lake.checkpoint", settings.config.lake.checkpoint):
        with system.open_output_stream(f"{root}/{NOTES}.draft") as file:
            file.write(_write_notes(notes))
        system.move(f"{root}/{NOTES}.draft", f"{root}/{NOTES}")


def _note(settings: Settings) -> None:
    """Leave a note of when the tables were last maintained, for `next_due`."""
    system, root = file_system(settings.config.lake.checkpoint)
    with system.open_output_stream(f"{root}/{NOTE}") as file:
        file.write(b"")


def next_due(settings: Settings, every_hours: float) -> datetime:
    """When the tables are to be maintained next: counted from the last time, or from when the life was made.

    From the job's start it would never come for a job that is restarted every night.
    """
    system, root = file_system(settings.config.lake.checkpoint)
    noted = system.get_file_info(f"{root}/{NOTE}").mtime
    made = file_system(f"{settings.folder}/{FILE}")[1]
    last = noted or system.get_file_info(made).mtime or datetime.now(UTC)
    return last.astimezone(UTC) + timedelta(hours=every_hours)


def _maintain(lake: str, table: str, retention_hours: int, target_bytes: int | None, tell: Say) -> Upkeep:
    before = size_of(open_table(lake, table))
    with refusals("lake.path", lake):
        tell(table, "optimize")
        _patiently(lambda: _compact(open_table(lake, table), table, target_bytes))
        tell(table, "vacuum")
        deleted = _patiently(lambda: _vacuum(open_table(lake, table), retention_hours))
        tell(table, "log")
        opened = open_table(lake, table)
        opened.create_checkpoint()
        opened.cleanup_metadata()
    tell(table, "done")
    return Upkeep(before, size_of(opened), deleted)


def _compact(table: DeltaTable, name: str, target_bytes: int | None) -> None:
    """Rewrite small files into large ones, and small tables in the order of the key that people look for."""
    key = TABLES[name].sorted_by
    size = size_of(table)
    if key is not None and size.files > 1 and size.bytes <= MOST_SORTED:
        table.optimize.z_order([key], target_size=target_bytes)
    else:
        table.optimize.compact(target_size=target_bytes)


def _vacuum(table: DeltaTable, hours: int) -> int:
    gone = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=hours >= DAY)
    return len(gone)


def _patiently(action: Callable[[], T]) -> T:
    """Repeat it, from the table's newest version, if another commit made it fail."""
    for _ in range(TRIES - 1):
        with suppress(CommitFailedError):
            return action()
    return action()


def size_of(table: DeltaTable) -> Size:
    """Files and bytes of a table's newest version."""
    sizes = table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    return Size(len(sizes), sum(sizes))
