"""The tables and views in DuckDB: a plain query is answered in a second, without a JVM.

Tables are read through delta-rs, so nothing but the files of the newest version is seen; `table_at` gives an earlier
one. DuckDB itself can touch no file and change no setting.

Both engines understand most of SQL, but not all of it alike: `coverers[0]` is the first in Spark and nothing in DuckDB;
`CAST(1.5 AS BIGINT)` is 1 in Spark and 2 in DuckDB. So a statement is answered here only if it is made of parts that
mean the same in both (`is_plain`), which is looked up in DuckDB's own syntax tree. Everything else is left to Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from lacuna.analysis.views import DUCKDB, MORE_THAN_READ, views
from state.config import Config
from state.errors import LacunaError
from state.storage.tables import TABLES
from streaming.dataset import dataset_of

CHUNK = 10_000
"""Rows that are handed over at a time."""
SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET default_null_order = 'nulls_first_on_asc_last_on_desc'",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""Spark's order of nulls; and no statement can reach a file, or change that."""
FUNCTIONS = frozenset(
    (
        *("count_star", "count", "sum", "avg", "min", "max", "max_by", "min_by", "median", "stddev", "variance"),
        *("percentile_cont", "quantile_cont", "row_number", "rank", "dense_rank", "lag", "lead"),
        *("abs", "round", "floor", "ceil", "greatest", "least", "nullif", "+", "-", "*", "/", "%"),
        *("lower", "upper", "length", "trim", "replace", "concat_ws", "starts_with", "||", "~~", "!~~"),
        *("bool_and", "bool_or", "now", "date_trunc", "year", "month", "day", "hour", "minute"),
        *("array_contains", "struct_extract"),
    )
)
"""Functions that give the same in both engines."""
WIDE, SPAN = pa.decimal128(38, 0), pa.month_day_nano_interval()
DAY = 86_400_000_000
CASTS = frozenset(("DATE", "DOUBLE"))
INTERVALS = frozenset(("to_days", "to_hours", "to_minutes", "to_seconds"))
"""Functions that DuckDB's parser makes of `INTERVAL 1 HOUR`, and of the like."""
FIELDS = frozenset(("YEAR", "MONTH", "DAY", "HOUR", "MINUTE"))
"""What `EXTRACT` gives alike in both engines."""
NAIVE = pa.timestamp("us")
OTHER = frozenset(
    ("ARRAY_EXTRACT", "ARRAY_SLICE", "LAMBDA", "TABLE_FUNCTION", "SHOW_REF", "PIVOT", "POSITIONAL_REFERENCE")
)
"""Types of nodes that mean something else in Spark, or nothing."""
READS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
"""Statements that only read. Only the first kind is answered here."""
CATALOGUES = ("duckdb_", "pg_", "sqlite_")
"""Beginnings of names that DuckDB has for its own tables."""
TRAVEL = re.compile(
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/)|\b(\w+)\s+(?:FOR\s+)?(?:SYSTEM_)?"""
    r"""(?:VERSION\s+AS\s+OF\s+(\d+)|(?:TIMESTAMP|TIME)\s+AS\s+OF\s+'([^']+)')""",
    re.I | re.S,
)
"""A text, name or comment to be left alone, or a table as of a version or a moment."""


class Mistake(LacunaError):
    """The statement is wrong, in whatever engine."""


class NotPlain(Exception):
    """The statement is for Spark."""


class Duck:
    """A connection to the tables of one lake."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._parser, self._connection = duckdb.connect(), duckdb.connect()
        self._open: pa.RecordBatchReader | None = None
        for table in TABLES:
            self._connection.register(table, dataset_of(_opened(config, table)))
        for name, text in views(config, DUCKDB).items():
            self._connection.execute(f"CREATE TEMP VIEW {name} AS {text}")
        for setting in SETTINGS:
            self._connection.execute(setting)

    def query(self, statement: str) -> pa.RecordBatchReader:
        """Run a statement; the rows of the one before are gone then.

        Raises `NotPlain` if it is for Spark, `Mistake` if it is wrong.
        """
        if self._open is not None:
            self._open.close()
        travelled = TRAVEL.sub(self._as_of, statement)
        self._refuse_writing(travelled)
        [(tree,)] = self._parser.execute("SELECT json_serialize_sql(?::VARCHAR)", [travelled]).fetchall()
        if not is_plain(json.loads(tree)):
            raise NotPlain
        try:
            self._open = self._connection.sql(travelled).to_arrow_reader(CHUNK)
            return _as_spark_has_them(self._open)
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.ConversionException) as error:
            raise Mistake(f"the query failed: {_line(error)}. Remedy: correct the query") from None
        except duckdb.Error:
            raise NotPlain from None

    def _refuse_writing(self, statement: str) -> None:
        """Refuse at once what DuckDB knows to do more than read. Spark refuses the rest of it."""
        try:
            kinds = [each.type for each in self._parser.extract_statements(statement)]
        except duckdb.Error:
            return
        if any(kind not in READS for kind in kinds):
            raise Mistake(MORE_THAN_READ)

    def _as_of(self, found: re.Match[str]) -> str:
        """Return the name of a table as it was, which is registered under that name."""
        text, table, version, moment = found.groups()
        if text is not None or table.lower() not in TABLES:
            return found[0]
        name = f"{table.lower()}@{version or moment}"
        earlier = table_at(self._config, table.lower(), int(version) if version else _moment(moment))
        self._connection.register(name, dataset_of(earlier))
        return f'"{name}" AS {table}'


def _as_spark_has_them(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return rows whose sums and spans of time are of the types that Spark gives them.

    DuckDB makes sums wider than int64, which Arrow has as decimals; and spans have months besides, which are 0 here.
    """
    types = {WIDE: pa.int64(), SPAN: pa.duration("us"), NAIVE: pa.timestamp("us", "UTC")}
    schema = pa.schema([field.with_type(types.get(field.type, field.type)) for field in rows.schema])
    return pa.RecordBatchReader.from_batches(schema, (_cast(batch, schema) for batch in rows))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            _spans(column) if column.type == SPAN else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ],
        schema=schema,
    )


def _spans(column: pa.Array) -> pa.Array:
    micros = [v if v is None else v.days * DAY + v.nanoseconds // 1000 for v in column.to_pylist()]
    return pa.array(micros, pa.int64()).cast(pa.duration("us"))


def is_plain(tree: dict[str, Any]) -> bool:
    """Return whether a statement is one query whose parts mean the same in both engines."""
    statements = tree.get("statements", [])
    return not tree["error"] and len(statements) == 1 and all(map(_is_common, _nodes(statements[0])))


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a tree, those within a literal left out."""
    if isinstance(value, dict):
        yield value
        if _is_literal(value):
            return
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _nodes(inner)


def _is_literal(node: dict[str, Any]) -> bool:
    """Return whether a node is `TIMESTAMP '...'`, or `INTERVAL 1 HOUR` with a whole number."""
    if node.get("class") == "CAST" and node["type_expr"].get("type_name") == "TIMESTAMP":
        child = node["child"]
        return bool(child.get("class") == "CONSTANT" and child["literal"]["kind"] == "STRING")
    if node.get("function_name") not in INTERVALS:
        return False
    inner = node
    while inner.get("class") in ("FUNCTION", "CAST"):  # the parser puts casts and a `trunc` around the number
        inner = inner["child"] if inner["class"] == "CAST" else inner["arguments"][0]["expression"]
    return bool(inner.get("class") == "CONSTANT" and str(inner["literal"].get("text")).isdigit())


def _is_common(node: dict[str, Any]) -> bool:
    if _is_literal(node):
        return True
    if node.get("function_name", "").lower() == "date_part":
        field = node["arguments"][0]["expression"]
        return field.get("class") == "CONSTANT" and str(field["literal"].get("text")).upper() in FIELDS
    if "function_name" in node and node["function_name"].lower() not in FUNCTIONS:
        return False
    if node.get("schema_name") or str(node.get("table_name", "")).lower().startswith(CATALOGUES):
        return False  # a catalogue of DuckDB's own
    if node.get("class") == "CAST":
        return str(node["type_expr"].get("type_name", "")).upper() in CASTS
    chosen = node.get("class") == "STAR" and node.get("expr") is not None  # COLUMNS('...')
    return node.get("type") not in OTHER and not node.get("sample") and not chosen


def _line(error: Exception) -> str:
    """Return the first line of an error, which says what is wrong."""
    return str(error).splitlines()[0].partition("Error: ")[2] or str(error).splitlines()[0]


def table_at(config: Config, table: str, when: int | datetime) -> DeltaTable:
    """Open a table as it was at a version or a moment. Raises `Mistake` if it cannot be had."""
    opened = _opened(config, table)
    last = opened.version()
    try:
        opened.load_as_version(when)
    except Exception as error:
        rule = f"it has versions up to {last}, and the oldest may be cleaned away"
        raise Mistake(f"{table} as of {when}: {rule}. Remedy: name another version") from error
    if isinstance(when, datetime) and opened.history(1)[0]["timestamp"] > when.timestamp() * 1000:
        raise Mistake(f"{table} as of {when}: the table is younger. Remedy: name a later moment, or VERSION AS OF 0")
    return opened


def _moment(text: str) -> datetime:
    """Return a moment, in UTC if it does not say otherwise. Raises `NotPlain` for a form that only Spark knows."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise NotPlain from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _opened(config: Config, table: str) -> DeltaTable:
    path = f"{config.lake.path.rstrip('/')}/{table}"
    if not DeltaTable.is_deltatable(path):
        raise LacunaError(
            f"lake.path = {config.lake.path!r}: there is no table {table} below it. Remedy: run the job first (an "
            "earlier version of Lacuna did not have all tables), or name the right configuration"
        )
    return DeltaTable(path)
