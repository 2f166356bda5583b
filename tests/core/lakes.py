"""A lake of Delta tables that holds the rows of a router without Spark and Kafka."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from state.config import Config
from state.protocol.frame import Frame, Rows, read, rows_of
from state.storage.tables import TABLES
from streaming.lake import RustWriter, Stamp, Stream, create_tables
from tests.core.shell import Shell


def write_lake(shell: Shell, folder: Path) -> Config:
    """Archive the records of a router below a folder. Return the configuration of its lake."""
    archive = Archive(shell, folder)
    archive.append()
    return archive.config


class Archive:
    """The archive of a router, one batch at a time."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self._shell, config = shell, shell.settings.config
        self._lake, self._archived, self._batch = str(folder / "lake"), 0, 0
        create_tables(self._lake, config.space)
        self.config = replace(config, lake=replace(config.lake, path=self._lake))
        """The configuration of the lake."""

    def append(self) -> None:
        """Archive the records that have come since."""
        streams: dict[str, list[Stream]] = {table: [] for table in TABLES}
        for record in self._shell.topic("records")[self._archived :]:
            frame = read(record.value)
            assert isinstance(frame, Frame)
            rows = rows_of(frame)
            assert isinstance(rows, Rows)
            streams[rows.table].append(Stream(rows.stream, record.time))
        writer = RustWriter(self._lake)
        for table, parts in streams.items():
            if parts:
                writer.append(table, parts.copy, Stamp("test", self._batch))
        self._archived, self._batch = len(self._shell.topic("records")), self._batch + 1
