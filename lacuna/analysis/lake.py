"""The tables for readers without Spark: the lake by delta-rs, or the files that `lacuna simulate --out` wrote.

Rows come as a simulation writes them, whatever they are read from: a moment is ISO 8601 text, `witness` a filter,
`shape` a list of filters. Only the columns and rows that are asked for are read.

    rows    all rows whose columns have these values, in order
    last    the last so many rows
    tail    what was added since the last look: `Tail.poll`

**Order.** The rows of one broker are in the order of epoch, batch and `seq`, and are archived in it. Rows of two
brokers are not: one partition of the topic may be archived later than another. So a tail does not ask for what lies
beyond the last batch, which would miss the rows of the slower one. It reads the files that were added to the table, and
of these the rows beyond the last one of their broker: compaction writes old rows into new files. Where nothing was
added, a poll looks for one file of the table's log.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from state.config import Config
from state.errors import LacunaError
from state.protocol.reasons import Reason
from state.storage.rows import Row
from state.storage.tables import TABLES, Kind, made_columns

Order = tuple[int, int, int]
"""Epoch, batch and `seq` of a row."""
Places = NDArray[np.int64]
"""Positions of rows."""
ANEW = 64
"""Looks after which a table is opened anew."""
ORDER = ("epoch", "batch", "seq")
_READ = {
    table: {c.name: c.kind for c in about.columns if c.kind in ("json", "time", "point", "boxes")}
    for table, about in TABLES.items()
}
"""The columns whose values are not plain in the lake, with their kinds."""


class Lasting(NamedTuple):
    """The rows of a history that still count: the last one for each `key`, unless what it says is that it ended.

    A last row whose `column` has a value of `ended` does not count. Of each key that does, the last row whose `column`
    has a value of `began` is kept, too.
    """

    key: tuple[str, ...]
    column: str
    ended: tuple[str, ...]
    began: tuple[str, ...] = ()


class Tail(ABC):
    """The rows of one table that were added since the last look, those of each broker in order."""

    @abstractmethod
    def poll(self) -> list[Row]:
        """Return the rows that were added; at first all."""


class Tables(ABC):
    """The tables of a lake, or of a simulation."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @property
    @abstractmethod
    def where(self) -> str:
        """The path of the tables, for messages."""

    @abstractmethod
    def rows(
        self, table: str, columns: Sequence[str] = (), *, since: int = 0, **equal: str | Sequence[str]
    ) -> list[Row]:
        """Return the rows whose columns have these values (of several: one of them), in order; all columns, or these.

        `since` is the first epoch to read. Raises `LacunaError` if there is no such table.
        """

    @abstractmethod
    def between(
        self, table: str, columns: Sequence[str], what: Lasting, span: tuple[Order, Order], **equal: Sequence[str]
    ) -> list[Row]:
        """Return the rows that counted when a span of the order began, and all inside it (both ends included)."""

    @abstractmethod
    def has(self, table: str) -> bool:
        """Return whether there is such a table."""

    @abstractmethod
    def version(self, table: str) -> object:
        """Return a value that changes when the table does. Cheap."""

    @abstractmethod
    def begun(self, table: str) -> int:
        """Return the last epoch that recorded all that it began with, in batches below -1; 0 if none did.

        What earlier lives recorded does not count then.
        """

    @abstractmethod
    def lives(self) -> dict[int, bool]:
        """Return the epochs that recorded all that they began with, and whether each has decided again about it."""

    @abstractmethod
    def last(self, table: str, count: int, columns: Sequence[str] = ()) -> list[Row]:
        """Return the last rows of a table, in order. Only the newest files are read."""

    @abstractmethod
    def tail(self, table: str, columns: Sequence[str] = (), lasting: Lasting | None = None) -> Tail:
        """Return what follows the additions to a table. The first poll may give only the rows that still count."""


def open_tables(config: Config, folder: Path | None = None) -> Tables:
    """Open the lake of a configuration, or a folder that `simulate --out` wrote. Nothing is read yet."""
    return Lake(config) if folder is None else Files(config, folder)


def order_of(row: Row) -> Order:
    """Return the sort key of a row among those of its broker. Rows of an early version have no epoch, or no `seq`."""
    epoch, seq = row.get("epoch"), row.get("seq")
    return 0 if epoch is None else int(epoch), int(row["batch"]), -1 if seq is None else int(seq)


# The lake


class Lake(Tables):
    """The Delta tables below `[lake] path`."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._opened: dict[str, Any] = {}
        self._looks: Counter[str] = Counter()

    @property
    def where(self) -> str:
        return self.config.lake.path

    def rows(
        self, table: str, columns: Sequence[str] = (), *, since: int = 0, **equal: str | Sequence[str]
    ) -> list[Row]:
        from pyarrow import compute

        rows = self.dataset(table)
        wanted = _wanted(equal)
        if since:
            recent = compute.field("epoch") >= since
            wanted = recent if wanted is None else wanted & recent
        with self.reading(table):
            found = self.plain(table, rows.to_table(columns=self.known(rows, columns), filter=wanted))
        missing = dict.fromkeys({c.name for c in made_columns(table)} - set(rows.schema.names)) if not columns else {}
        return [missing | row for row in found] if missing else found

    def between(
        self, table: str, columns: Sequence[str], what: Lasting, span: tuple[Order, Order], **equal: Sequence[str]
    ) -> list[Row]:
        rows = self.dataset(table)
        if not set(ORDER) <= set(rows.schema.names):
            return self.rows(table, columns, since=0, **equal)
        with self.reading(table):
            read = _Heads(list(rows.get_fragments()), rows.schema, what, _wanted(equal))
            return self.plain(table, read.at(places_between(read.every, what, span), self.known(rows, columns)))

    def begun(self, table: str) -> int:
        from pyarrow import compute

        rows = self.dataset(table)
        if "epoch" not in rows.schema.names:  # an early version had none
            return 0
        first = compute.max(rows.to_table(columns=["epoch"], filter=compute.field("batch") < -1)["epoch"]).as_py()
        return 0 if first is None else int(first)

    def lives(self) -> dict[int, bool]:
        from pyarrow import compute

        rows, found = self.dataset("decisions"), dict[int, bool]()
        if "epoch" not in rows.schema.names:  # an early version had none
            return found
        first = rows.to_table(columns=["epoch", "reason"], filter=compute.field("batch") < -1)
        for one in first.group_by(["epoch", "reason"]).aggregate([]).to_pylist():
            found[one["epoch"]] = found.get(one["epoch"], False) or one["reason"] != Reason.CARRIED
        return found

    def last(self, table: str, count: int, columns: Sequence[str] = ()) -> list[Row]:
        from pyarrow import dataset

        opened = self.opened(table)
        with self.reading(table):
            rows, newest = opened.to_pyarrow_dataset(), _newest_files(opened, count)
            some = [fragment for fragment in rows.get_fragments() if fragment.path in newest]
            if not some:
                return []
            files = dataset.FileSystemDataset(some, rows.schema, rows.format, rows.filesystem)
            return self.plain(table, files.to_table(columns=self.known(files, columns)))[-count:]

    def tail(self, table: str, columns: Sequence[str] = (), lasting: Lasting | None = None) -> Tail:
        return _LakeTail(self, table, columns, lasting)

    def has(self, table: str) -> bool:
        from deltalake import DeltaTable

        return table in self._opened or DeltaTable.is_deltatable(self._path(table))

    def _path(self, table: str) -> str:
        return f"{self.config.lake.path.rstrip('/')}/{table}"

    def opened(self, table: str) -> Any:
        """Return a table at its newest version, kept open. Raises `LacunaError` if it is not there or cannot be read.

        Sometimes it is opened anew: `lacuna archive rebuild` puts another table in its place.
        """
        from deltalake import DeltaTable  # here: reading files needs neither this nor pyarrow

        self._looks[table] += 1
        with self.reading(table):
            if table in self._opened and self._looks[table] % ANEW:
                self._opened[table].update_incremental()
                return self._opened[table]
            if not DeltaTable.is_deltatable(self._path(table)):
                remedy = "run the job first, name the right configuration, or read a simulation with --from"
                path = self.config.lake.path
                raise LacunaError(f"lake.path = {path!r}: there is no table {table}. Remedy: {remedy}")
            self._opened[table] = DeltaTable(self._path(table))
        return self._opened[table]

    @contextmanager
    def reading(self, table: str) -> Iterator[None]:
        """Raise what goes wrong while a table is read as a `LacunaError`."""
        from deltalake.exceptions import DeltaError
        from pyarrow import ArrowException

        try:
            yield
        except (DeltaError, ArrowException, OSError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            remedy = "try again: files may have been replaced meanwhile; if that does not help, run lacuna doctor"
            raise LacunaError(f"{self._path(table)}: it cannot be read ({why}). Remedy: {remedy}") from None

    def version(self, table: str) -> object:
        opened = self.opened(table)
        return opened.metadata().id, opened.version()

    def dataset(self, table: str) -> Any:
        """Return a table at its newest version for pyarrow."""
        from streaming.dataset import dataset_of

        return dataset_of(self.opened(table))

    @staticmethod
    def known(rows: Any, columns: Sequence[str]) -> list[str] | None:
        """Return the columns to read, with those that order rows, without those that an early version did not have."""
        return [name for name in dict.fromkeys((*ORDER, *columns)) if name in rows.schema.names] if columns else None

    @staticmethod
    def plain(table: str, rows: Any) -> list[Row]:
        """Return rows as a simulation writes them, in order."""
        return sorted((_plain(row, _READ[table]) for row in rows.to_pylist()), key=order_of)


class _LakeTail(Tail):
    """The files of a table that were read, and the last row of each broker."""

    def __init__(self, lake: Lake, table: str, columns: Sequence[str], lasting: Lasting | None) -> None:
        self._lake, self._table, self._columns = lake, table, ("broker", *columns) if columns else ()
        self._lasting = lasting
        self._version: tuple[str, int] | None = None
        self._files: set[str] = set()
        self._seen: dict[tuple[str, int, bool], Order] = {}

    def poll(self) -> list[Row]:
        opened = self._lake.opened(self._table)
        version = opened.metadata().id, opened.version()
        if version == self._version:
            return []
        with self._lake.reading(self._table):
            every = opened.to_pyarrow_dataset()
            fragments = list(every.get_fragments())
            rows = self._read(every, [fragment for fragment in fragments if fragment.path not in self._files])
        self._version, self._files = version, {fragment.path for fragment in fragments}
        return rows

    def _read(self, every: Any, new: list[Any]) -> list[Row]:
        """Return the rows of new files that were not seen."""
        from pyarrow import dataset

        if not new:
            return []
        known = self._lake.known(every, self._columns)
        if self._lasting is None or self._seen or not set(ORDER) <= set(every.schema.names):
            added = dataset.FileSystemDataset(new, every.schema, every.format, every.filesystem)
            return list(self._unseen(self._lake.plain(self._table, added.to_table(columns=known))))
        heads = _Heads(new, every.schema, self._lasting)
        rows = self._lake.plain(self._table, heads.at(places_that_count(heads.every, self._lasting), known))
        self._seen = {(row["broker"], row["epoch"], row["batch"] < 0): order_of(row) for row in heads.last_of_brokers()}
        return rows

    def _unseen(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows beyond the last one of their broker. A life begins with rows of a channel of its own."""
        for row in rows:
            order = order_of(row)
            place = row["broker"], order[0], order[1] < 0
            if order > self._seen.get(place, (-1, 0, 0)):
                yield row
                self._seen[place] = order


def _newest_files(table: Any, count: int) -> set[str]:
    """Return the newest files of a table that have at least so many rows, as its log says."""
    import pyarrow as pa

    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    files.sort(key=lambda file: (file.get("max.epoch") or 0, file.get("max.batch") or 0), reverse=True)
    found: set[str] = set()
    for file in files:
        if count <= 0:
            break
        found.add(file["path"])
        count -= file["num_records"] or 0
    return found


def _wanted(equal: Mapping[str, str | Sequence[str]]) -> Any:
    """Return the condition that columns have these values; None if there are none."""
    from pyarrow import compute

    wanted = None
    for column, value in equal.items():
        field = compute.field(column)
        matches = field == value if isinstance(value, str) else field.isin(list(value))
        wanted = matches if wanted is None else wanted & matches
    return wanted


class _Heads:
    """The rows of files in those columns by which it is found which of them count. Only these are then read in full."""

    def __init__(self, fragments: list[Any], schema: Any, what: Lasting, wanted: Any = None) -> None:
        import pyarrow as pa

        self._fragments, self._schema, self._wanted = fragments, schema, wanted
        needed = list(dict.fromkeys((*ORDER, "broker", *what.key, what.column)))
        heads = [self._read(fragment, needed) for fragment in fragments]
        self.every = pa.concat_tables([schema.empty_table().select(needed), *heads])
        self._begins = np.cumsum([0, *map(len, heads)])

    def _read(self, fragment: Any, columns: list[str] | None) -> Any:
        return fragment.to_table(schema=self._schema, columns=columns, filter=self._wanted)

    def at(self, places: Places, columns: list[str] | None) -> Any:
        """Return the rows at these places, in these columns."""
        import pyarrow as pa

        parts = [self._read(self._fragments[0], columns).slice(0, 0)] if self._fragments and not len(places) else []
        for fragment, begin, end in zip(self._fragments, self._begins[:-1], self._begins[1:], strict=True):
            here = places[(places >= begin) & (places < end)] - begin
            if len(here):
                parts.append(self._read(fragment, columns).take(here))
        return pa.concat_tables(parts) if parts else self.every

    def last_of_brokers(self) -> list[Row]:
        """Return the last row of each broker and life; a life begins with rows of a channel of its own."""
        codes = 2 * _codes(self.every, ("broker", "epoch")) + (self.every["batch"].to_numpy() < 0)
        last: list[Row] = self.every.select(["broker", *ORDER]).take(_last(codes, _in_order(self.every))).to_pylist()
        return last


def places_between(rows: Any, what: Lasting, span: tuple[Order, Order]) -> Places:
    """Return the places of the rows that counted when a span began, and of all inside it."""
    order = _in_order(rows)
    epoch, batch, seq = (rows[name].to_numpy()[order] for name in ORDER)

    def is_before(end: Order) -> NDArray[np.bool_]:
        e, b, s = end
        found: NDArray[np.bool_] = (epoch < e) | ((epoch == e) & ((batch < b) | ((batch == b) & (seq < s))))
        return found

    first, (e, b, s) = is_before(span[0]), span[1]
    before = order[first]
    inside = order[is_before((e, b, s + 1)) & ~first]
    return np.union1d(before[places_that_count(rows.take(before), what)], inside)


def places_that_count(rows: Any, what: Lasting) -> Places:
    """Return the places of the rows of an Arrow table that still count."""
    order, codes = _in_order(rows), _codes(rows, what.key)
    says = rows[what.column].combine_chunks().to_numpy(zero_copy_only=False)
    last = _last(codes, order)
    last = last[~np.isin(says[last], what.ended)]
    began = order[np.isin(says[order], what.began) & np.isin(codes[order], codes[last])]
    return np.union1d(last, _last(codes, began))


def _in_order(rows: Any) -> Places:
    """Return the places of rows in their order."""
    return np.lexsort([rows[name].to_numpy() for name in reversed(ORDER)])


def _codes(rows: Any, columns: Sequence[str]) -> Places:
    """Return a number for each row, the same where these columns have the same values."""
    codes, count = np.zeros(len(rows), np.int64), 1
    for name in columns:
        distinct = rows[name].combine_chunks().dictionary_encode()
        if count * len(distinct.dictionary) >= 1 << 62:
            values, codes = np.unique(codes, return_inverse=True)
            count = len(values)
        codes = codes * len(distinct.dictionary) + distinct.indices.to_numpy()
        count *= len(distinct.dictionary)
    return codes


def _last(codes: Places, order: Places) -> Places:
    """Return the last place of each code, of these places in order."""
    backwards = order[::-1]
    return backwards[np.unique(codes[backwards], return_index=True)[1]]


def _plain(row: Row, kinds: Mapping[str, Kind]) -> Row:
    """Return a row as a simulation writes it."""
    for column, kind in kinds.items():
        value = row.get(column)
        if value is not None:
            row[column] = json.loads(value) if kind == "json" else _without_moments(value)
    return row


def _without_moments(value: Any) -> Any:
    """Return a value with ISO 8601 text for each moment in it."""
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case dict():
            return {key: _without_moments(inner) for key, inner in value.items()}
        case list():
            return [_without_moments(inner) for inner in value]
        case _:
            return value


# Files


class Files(Tables):
    """The files that `simulate --out` wrote. They are in the order in which everything happened."""

    def __init__(self, config: Config, folder: Path) -> None:
        super().__init__(config)
        self._folder = folder

    @property
    def where(self) -> str:
        return str(self._folder)

    def rows(
        self, table: str, columns: Sequence[str] = (), *, since: int = 0, **equal: str | Sequence[str]
    ) -> list[Row]:
        return [row for row in self._all(table) if all(_is(row[column], value) for column, value in equal.items())]

    def _all(self, table: str) -> Iterator[Row]:
        path = self._folder / f"{table}.jsonl"
        if not self.has(table):
            remedy = "name a folder that `lacuna simulate --out` wrote"
            raise LacunaError(f"{self._folder}: there is no {table}.jsonl in it. Remedy: {remedy}")
        with path.open("rb") as file:
            yield from map(json.loads, file)

    def has(self, table: str) -> bool:
        return (self._folder / f"{table}.jsonl").is_file()

    def between(
        self, table: str, columns: Sequence[str], what: Lasting, span: tuple[Order, Order], **equal: Sequence[str]
    ) -> list[Row]:
        return [row for row in self.rows(table, columns, since=0, **equal) if order_of(row) <= span[1]]

    def version(self, table: str) -> object:
        return 0

    def begun(self, table: str) -> int:
        return 0

    def lives(self) -> dict[int, bool]:
        return {}

    def last(self, table: str, count: int, columns: Sequence[str] = ()) -> list[Row]:
        return self.rows(table)[-count:]

    def tail(self, table: str, columns: Sequence[str] = (), lasting: Lasting | None = None) -> Tail:
        return _FilesTail(self, table)


class _FilesTail(Tail):
    """All rows, once: a simulation has come to its end."""

    def __init__(self, files: Files, table: str) -> None:
        self._files, self._table, self._read = files, table, False

    def poll(self) -> list[Row]:
        if self._read:
            return []
        self._read = True
        return self._files.rows(self._table)


def _is(value: object, wanted: str | Sequence[str]) -> bool:
    return value == wanted if isinstance(wanted, str) else value in wanted
