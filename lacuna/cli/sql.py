"""`lacuna sql`: run queries over the Delta tables and the views, with DuckDB where it can, with Spark where it must.

Without a query it is a shell that stays: one connection, and one Spark session from the first statement that needs it.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO, Any

import pyarrow as pa
from pyarrow import csv, parquet
from rich.table import Table
from rich.text import Text

from lacuna.analysis.duck import Duck, NotPlain
from lacuna.analysis.views import DUCKDB, views
from lacuna.cli.config_file import read_config
from lacuna.cli.console import console, say
from lacuna.cli.options import Args, Parser, add_config, show_lines
from state.config import Config
from state.errors import LacunaError
from state.storage.tables import TABLES

MOST_SHOWN = 1000
"""Rows that a person is shown."""
FOLDED = 20
"""A longer value may be folded into lines of this length."""
PROMPT = "lacuna> "
Rows = Any
"""A table of Arrow's, or a reader of one."""


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        f"Run a query over the Delta tables ({', '.join(TABLES)}) and the views over them. Nothing can be changed. "
        "Without a query: a shell."
    )
    command.add_argument(
        "query", nargs="?", help='for example "SELECT action, count(*) AS n FROM decisions GROUP BY action"'
    )
    add_config(command)
    command.add_argument(
        "--engine",
        choices=("auto", "spark"),
        default="auto",
        help="auto: DuckDB where the statement means the same in both, otherwise Spark (default: %(default)s)",
    )
    output = command.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print one JSON object a row")
    output.add_argument("--csv", action="store_true", help="print all rows as CSV")
    output.add_argument("--parquet", metavar="F", help="write all rows into a Parquet file")
    show_lines(command, 'example: lacuna sql "SELECT * FROM hot_links LIMIT 5"')


def run(args: Args) -> int:
    """Run the query and print its rows, or be a shell."""
    engines = Engines(read_config(args.config), args.engine)
    try:
        if args.query is not None:
            show(engines.query(args.query), args)
        else:
            _shell(engines, args)
    finally:
        engines.close()
    return 0


class Engines:
    """DuckDB, and Spark once it is needed."""

    def __init__(self, config: Config, engine: str) -> None:
        self._config, self._engine = config, engine
        self._duck = Duck(config)
        self._spark: Any = None

    def query(self, statement: str) -> Rows:
        """Run a statement where it can be run."""
        if self._engine == "auto":
            try:
                return self._duck.query(statement)
            except NotPlain:
                pass
        return self._in_spark(statement)

    def _in_spark(self, statement: str) -> Rows:
        if self._spark is None:
            say("starting Spark")
            from lacuna.analysis.spark_lake import SparkLake  # here: it takes seconds to import

            self._spark = SparkLake(self._config)
        return self._spark.query(statement)

    def close(self) -> None:
        """Stop Spark, if it was started."""
        if self._spark is not None:
            self._spark.close()


# The shell


def _shell(engines: Engines, args: Args) -> None:
    if sys.stdin.isatty():
        say(f"tables: {', '.join(TABLES)}; views: {', '.join(views(engines._config, DUCKDB))}; an empty line ends")
    for statement in statements(sys.stdin):
        try:
            show(engines.query(statement), args)
        except LacunaError as error:
            say(str(error))


def statements(lines: IO[str]) -> Iterator[str]:
    """Yield statements, which end with a semicolon or the end of the input. An empty line between two ends it, too."""
    held = ""
    while line := _next_line(lines, held):
        held += line
        if held.rstrip().endswith(";"):
            yield held.strip().rstrip(";")
            held = ""
        elif not held.strip():
            break
    if held.strip():
        yield held.strip()


def _next_line(lines: IO[str], held: str) -> str:
    if lines.isatty():
        print(PROMPT if not held else "   ...> ", end="", flush=True)
    return lines.readline()


# Output


def show(rows: Rows, args: Args) -> None:
    """Print rows for a person, or as a program wants them."""
    if args.parquet:
        table = _whole(rows)
        parquet.write_table(table, args.parquet)
        say(f"{table.num_rows:,} rows in {args.parquet}")
    elif args.csv:
        csv.write_csv(_flat(_whole(rows)), sys.stdout.buffer)
    elif args.json:
        names = rows.schema.names
        for row in _each(rows):
            print(json.dumps(dict(zip(names, row, strict=True)), default=_plain))
    else:
        _show_table(rows)


def _whole(rows: Rows) -> pa.Table:
    return rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows


def _each(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Yield rows as values: two columns may have one name."""
    batches: Iterable[pa.RecordBatch] = rows if isinstance(rows, pa.RecordBatchReader) else rows.to_batches()
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _flat(table: pa.Table) -> pa.Table:
    """Return a table of which columns of structs and lists are JSON, because CSV has neither."""
    for k, field in enumerate(table.schema):
        if pa.types.is_nested(field.type) or pa.types.is_interval(field.type):
            values = [None if value is None else _text(value) for value in table.column(k).to_pylist()]
            table = table.set_column(k, field.name, pa.array(values, pa.string()))
    return table


def _show_table(rows: Rows) -> None:
    """Print at most `MOST_SHOWN` rows, and say what was left out. Where lines are too narrow, a row is a block."""
    found = list(islice(_each(rows), MOST_SHOWN + 1))
    names = [field.name for field in rows.schema]
    texts = [[_text(value) for value in row] for row in found[:MOST_SHOWN]]
    screen = console()
    if texts and _least_width(names, texts) > screen.width:
        _show_blocks(names, texts)
    else:
        screen.print(_as_table(rows.schema, texts))
    if len(found) > MOST_SHOWN:
        say(f"only the first {MOST_SHOWN:,} rows are shown: add a LIMIT, or have all with --csv, --json or --parquet")


def _least_width(names: list[str], texts: list[list[str]]) -> int:
    """Return the width that columns need at least: long values are folded, but names and short values are not."""
    columns = zip(names, zip(*texts, strict=True), strict=True)
    widths = (max(len(name), min(FOLDED, max(map(len, values)))) for name, values in columns)
    return sum(widths) + 2 * (len(names) - 1)


def _as_table(schema: pa.Schema, texts: list[list[str]]) -> Table:
    """Return rows as a table, numbers to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for field in schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        least = len(field.name)
        table.add_column(Text(field.name), justify="right" if number else "left", overflow="fold", min_width=least)
    for row in texts:
        table.add_row(*map(Text, row))
    return table


def _show_blocks(names: list[str], texts: list[list[str]]) -> None:
    """Print a line for each value, and an empty line between two rows."""
    screen = console()
    for k, row in enumerate(texts):
        block = Table.grid(padding=(0, 2))
        for name, value in zip(names, row, strict=True):
            block.add_row(Text(name, "bold"), Text(value, overflow="fold"))
        if k:
            screen.print()
        screen.print(block)


def _text(value: object) -> str:
    """Return a value as people read it."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=_plain).strip('"')


def _plain(value: Any) -> Any:
    """Return what JSON does not know in a form that it does: moments as in events, spans in seconds."""
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, pa.MonthDayNano):
        return (value.days * 86400) + value.nanoseconds / 1e9
    return str(value) if isinstance(value, dt.date) else float(value)
