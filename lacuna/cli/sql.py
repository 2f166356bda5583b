"""`lacuna sql`: run a query over the Delta tables with Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from lacuna.cli.config_file import read_config
from lacuna.cli.console import console, say
from lacuna.cli.options import Args, Parser, add_config, add_json
from lacuna.local import spark_jars
from state.errors import LacunaError
from state.storage.rows import TABLES
from streaming.pipeline import Engine, session


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = f"Run a query over the Delta tables: {', '.join(TABLES)}."
    command.add_argument("query", help='for example "SELECT action, count(*) FROM decisions GROUP BY action"')
    add_config(command)
    add_json(command, "print one JSON object a row")


def run(args: Args) -> int:
    """Run the query and print its rows."""
    config = read_config(args.config)
    missing = [table for table in TABLES if not (Path(config.lake.path) / table / "_delta_log").is_dir()]
    if missing:
        raise LacunaError(
            f"lake.path = {config.lake.path!r}: there is no table {missing[0]} below it. "
            "Remedy: run the job first, or name the right configuration"
        )
    say("starting Spark")
    spark = session(Engine(jars=spark_jars(), partitions=2))
    try:
        for table in TABLES:
            path = str((Path(config.lake.path) / table).resolve())
            spark.read.format("delta").load(path).createOrReplaceTempView(table)
        _print_frame(spark.sql(args.query), as_json=args.json)
    except Exception as error:
        if type(error).__module__.startswith("pyspark"):
            raise LacunaError(f"the query failed: {str(error).splitlines()[0]}. Remedy: correct the query") from None
        raise
    finally:
        spark.stop()
    return 0


def _print_frame(frame: Any, *, as_json: bool) -> None:
    if as_json:
        for row in frame.toJSON().toLocalIterator():
            print(row)
        return
    table = Table(*frame.columns)
    for row in frame.limit(1000).collect():
        table.add_row(*(str(value) for value in row))
    console().print(table)
