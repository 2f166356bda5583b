"""Rows that were added to a Delta table since the last look, found in the table's log.

Each commit `N` is a file of the log, whose lines name the files that it added. A file that only compacts others is
marked (`dataChange` false), and is passed over. So every row is seen once, whoever wrote it, at the cost of the new
files alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from streaming.paths import absolute, file_system


class Added:
    """The rows that are added to a table, from the moment at which `begin` is called, or at the first look."""

    def __init__(self, lake: str, table: str, columns: Sequence[str]) -> None:
        self._path, self._columns = f"{absolute(lake)}/{table}", list(columns)
        self._system, self._root = file_system(self._path)
        self._next: int | None = None

    def begin(self) -> None:
        """Take the rows of the table as it is now for seen. A table that is not there yet has none."""
        try:
            self._next = DeltaTable(self._path).version() + 1
        except TableNotFoundError:
            self._next = 0

    def before(self, commits: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of the last commits before `begin`, as far as the log still has them."""
        for number in range(max(0, (self._next or 0) - commits), self._next or 0):
            yield from self._rows(self._commit(number) or ())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows that were added since the last look."""
        if self._next is None:
            self.begin()
        while (files := self._commit(self._next or 0)) is not None:
            found = list(self._rows(files))
            self._next = (self._next or 0) + 1
            yield from found

    def _commit(self, number: int) -> list[str] | None:
        """Return the files that a commit added; None if there is no such commit yet."""
        try:
            with self._system.open_input_stream(f"{self._root}/_delta_log/{number:020}.json") as file:
                lines = file.read().decode().splitlines()
        except FileNotFoundError:
            return None
        added = (json.loads(line).get("add") for line in lines)
        return [unquote(add["path"]) for add in added if add and add.get("dataChange", True)]

    def _rows(self, files: Iterable[str]) -> Iterator[dict[str, Any]]:
        for path in files:
            with self._system.open_input_file(f"{self._root}/{path}") as file:
                table = pq.ParquetFile(file)
                here = [column for column in self._columns if column in table.schema_arrow.names]
                yield from table.read(here).to_pylist()
