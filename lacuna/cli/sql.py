"""`lacuna sql`: run a query over the Delta tables with Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.java_gateway import is_instance_of
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
    command.description = f"Run a query over the Delta tables: {', '.join(TABLES)}. Nothing can be changed."
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
        refuse_writing(spark, args.query)
        _print_frame(spark.sql(args.query), as_json=args.json)
    except Exception as error:
        if type(error).__module__.startswith("pyspark"):
            raise LacunaError(f"the query failed: {str(error).splitlines()[0]}. Remedy: correct the query") from None
        raise
    finally:
        spark.stop()
    return 0


# Read only

CATALYST = "org.apache.spark.sql.catalyst.plans.logical"
COMMANDS = (f"{CATALYST}.Command", f"{CATALYST}.ParsedStatement")
"""The classes of plans that do something rather than return rows."""
READING = ("DescribeRelation", "DescribeColumn", "DescribeQueryCommand", "ExplainCommand", "ShowColumns", "ShowTables")
"""Commands that only tell about tables and queries."""
EFFECTS = ("InsertInto", "Script", "Compound", "ExecuteImmediate")
"""Parts of the names of plans that do something and are no commands: programs of the shell are among them."""
JAVA = ("java_method", "reflect", "try_reflect")
"""Functions that call any static method of Java."""


def refuse_writing(spark: Any, query: str) -> None:
    """Refuse a statement that could change anything, before any part of it is run."""
    session = spark._jsparkSession.sessionState()
    java = spark._jvm
    identifier, some = java.org.apache.spark.sql.catalyst.FunctionIdentifier, java.scala.Option.apply
    for function in JAVA:
        session.functionRegistry().dropFunction(identifier(function, some("builtin"), some("system")))
    plan = session.sqlParser().parsePlan(query)
    if plan.getClass().getSimpleName() not in READING and _writes(spark, plan):
        raise LacunaError(
            "the statement does more than read, and `lacuna sql` only reads. Remedy: write a SELECT; tables are "
            "changed by the job and by `lacuna archive` alone"
        )


def _writes(spark: Any, plan: Any) -> bool:
    """Return whether a plan, or any part of it, has an effect. Its text shows the plans inside expressions, too."""
    name, gateway = plan.getClass().getSimpleName(), spark.sparkContext._gateway
    if any(is_instance_of(gateway, plan, command) for command in COMMANDS) or "ScriptTransformation" in plan.toString():
        return True
    children = plan.children()
    return any(part in name for part in EFFECTS) or any(
        _writes(spark, children.apply(k)) for k in range(children.size())
    )


def _print_frame(frame: Any, *, as_json: bool) -> None:
    if as_json:
        for row in frame.toJSON().toLocalIterator():
            print(row)
        return
    table = Table(*frame.columns)
    for row in frame.limit(1000).collect():
        table.add_row(*(str(value) for value in row))
    console().print(table)
