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
    config = shell.settings.config
    lake = str(folder / "lake")
    create_tables(lake, config.space)
    streams: dict[str, list[Stream]] = {table: [] for table in TABLES}
    for record in shell.topic("records"):
        frame = read(record.value)
        assert isinstance(frame, Frame)
        rows = rows_of(frame)
        assert isinstance(rows, Rows)
        streams[rows.table].append(Stream(rows.stream, record.time))
    writer = RustWriter(lake)
    for table, parts in streams.items():
        writer.append(table, parts.copy, Stamp("test", 0))
    return replace(config, lake=replace(config.lake, path=lake))
