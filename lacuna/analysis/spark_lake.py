"""The tables and views in Spark SQL, for every statement that reads.

Tables are in the catalogue of the session, as external tables, so that `VERSION AS OF` and `TIMESTAMP AS OF` work.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.java_gateway import is_instance_of
from pyspark.sql import SparkSession

from lacuna.analysis.views import MORE_THAN_READ, SPARK, views
from lacuna.local import spark_jars
from state.config import Config
from state.errors import LacunaError
from state.storage.tables import TABLES
from streaming.pipeline import Engine, session

FILES = "spark.sql.runSQLOnFiles"
"""The setting that lets a statement read any file, such as text.`/etc/passwd`."""


class SparkLake:
    """A session with the tables of one lake."""

    def __init__(self, config: Config, spark: SparkSession | None = None) -> None:
        logging.getLogger("SQLQueryContextLogger").disabled = True  # it prints every mistake as a page of JSON
        self._own = spark is None
        self._spark = spark or session(Engine(jars=spark_jars(), partitions=2))
        open_lake(self._spark, config)
        self._spark.conf.set(FILES, "false")

    def query(self, statement: str) -> pa.Table:
        """Run a statement that reads. Raises `LacunaError` in one line if it does more, or is wrong."""
        try:
            refuse_writing(self._spark, statement)
            return self._spark.sql(statement).toArrow()
        except Exception as error:
            if type(error).__module__.startswith("pyspark"):
                line = str(error).splitlines()[0]
                raise LacunaError(f"the query failed: {line}. Remedy: correct the query") from None
            raise

    def close(self) -> None:
        """Stop the session if it is its own."""
        if self._own:
            self._spark.stop()


def open_lake(spark: SparkSession, config: Config) -> None:
    """Let a session know the tables and the views of a lake."""
    for table in TABLES:
        path = config.lake.path if "://" in config.lake.path else str(Path(config.lake.path).resolve())
        spark.sql(f"DROP TABLE IF EXISTS {table}")  # of another lake; its files stay
        spark.sql(f"CREATE TABLE {table} USING delta LOCATION '{path}/{table}'")
    for name, text in views(config, SPARK).items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {text}")


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
        raise LacunaError(MORE_THAN_READ)


def _writes(spark: Any, plan: Any) -> bool:
    """Return whether a plan, or any part of it, has an effect. Its text shows the plans inside expressions, too."""
    name, gateway = plan.getClass().getSimpleName(), spark.sparkContext._gateway
    if any(is_instance_of(gateway, plan, command) for command in COMMANDS) or "ScriptTransformation" in plan.toString():
        return True
    children = plan.children()
    return any(part in name for part in EFFECTS) or any(
        _writes(spark, children.apply(k)) for k in range(children.size())
    )
