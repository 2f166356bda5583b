"""`lacuna sql` reads, whatever the statement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lacuna.analysis.duck import Duck
from lacuna.analysis.spark_lake import FILES, SparkLake, refuse_writing
from lacuna.cli.sql import _plain
from state.config import parse
from state.errors import LacunaError
from tests.core.lakes import write_lake
from tests.core.shell import Shell
from tests.core.test_views import CONFIG, EVENTS

pytestmark = pytest.mark.system

WRITING = (
    "DELETE FROM decisions",
    "DELETE FROM delta.`{path}` WHERE n = 1",
    "UPDATE decisions SET n = 2",
    "INSERT INTO decisions VALUES (7)",
    "INSERT OVERWRITE DIRECTORY '{path}/out' USING parquet SELECT 1",
    "WITH few AS (SELECT 1 AS n) INSERT INTO decisions SELECT n FROM few",
    "FROM decisions INSERT INTO decisions SELECT n",
    "MERGE INTO decisions USING (SELECT 1 AS n) AS s ON decisions.n = s.n WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE decisions",
    "DROP VIEW decisions",
    "CREATE TABLE more USING delta AS SELECT 1 AS n",
    "VACUUM delta.`{path}` RETAIN 0 HOURS",
    "OPTIMIZE delta.`{path}`",
    "EXECUTE IMMEDIATE 'DELETE FROM decisions'",
    "BEGIN DELETE FROM decisions; END",
    "SET spark.sql.shuffle.partitions = 1",
    "SELECT TRANSFORM(n) USING 'touch {path}/touched' AS (n) FROM decisions",
    "SELECT * FROM (SELECT TRANSFORM(n) USING 'touch {path}/touched' AS (n) FROM decisions)",
    "SELECT (SELECT count(*) FROM (SELECT TRANSFORM(n) USING 'touch {path}/touched' AS (n) FROM decisions))",
    "ADD JAR '{path}/any.jar'",
)
READING = (
    "SELECT n, count(*) FROM decisions WHERE n > 0 GROUP BY n HAVING count(*) > 0 ORDER BY n LIMIT 3",
    "WITH few AS (SELECT n FROM decisions) SELECT * FROM few WHERE n IN (SELECT n FROM decisions)",
    "SELECT 'DELETE FROM decisions' AS harmless UNION ALL SELECT 'INSERT'",
    "VALUES (1), (2)",
    "DESCRIBE decisions",
    "SHOW TABLES",
    "SHOW COLUMNS IN decisions",
    "EXPLAIN SELECT * FROM decisions",
)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake") / "decisions"
    spark.range(3).selectExpr("CAST(id AS INT) AS n").write.format("delta").save(str(path))
    spark.read.format("delta").load(str(path)).createOrReplaceTempView("decisions")
    return path


@pytest.mark.parametrize("statement", WRITING)
def test_a_statement_that_changes_anything_is_refused(spark: SparkSession, table: Path, statement: str) -> None:
    with pytest.raises(LacunaError, match=r"does more than read.*Remedy"):
        refuse_writing(spark, statement.format(path=table))


@pytest.mark.parametrize("statement", READING)
def test_a_statement_that_reads_is_run(spark: SparkSession, table: Path, statement: str) -> None:
    refuse_writing(spark, statement)
    assert spark.sql(statement).collect()


def test_no_method_of_java_can_be_called(spark: SparkSession, table: Path) -> None:
    call = "SELECT java_method('java.lang.System', 'setProperty', 'lacuna.called', 'yes')"
    refuse_writing(spark, call)
    with pytest.raises(Exception, match="UNRESOLVED_ROUTINE"):
        spark.sql(call)
    assert spark.read.format("delta").load(str(table)).count() == 3


# Both engines, one result

PLAIN = (
    *(f"SELECT * FROM {view}" for view in ("links", "standing", "savings", "latency", "why", "why_not")),
    "SELECT * FROM hot_links",
    "SELECT action, count(*) AS n FROM decisions GROUP BY action ORDER BY n DESC, action LIMIT 3",
    "SELECT broker, expires, CAST(arrived AS DATE) AS day FROM subscriptions ORDER BY expires, seq",
    "SELECT point.price / 3 AS third, round(point.price, 1) AS p, point.seen FROM publications WHERE payload_bytes > 1",
    "SELECT max_by(client, hop) AS far, avg(hop) AS hops, percentile_cont(0.5) WITHIN GROUP (ORDER BY hop) AS half "
    "FROM deliveries",
    "SELECT d.client, p.point.volume FROM deliveries d JOIN publications p ON d.publication_key = p.publication_key",
    "SELECT hop, lag(hop) OVER (PARTITION BY broker ORDER BY seq) AS before FROM routes VERSION AS OF 1",
    "SELECT count(*) AS n FROM routes VERSION AS OF 0",
    "SELECT client, expires - arrived AS span FROM subscriptions WHERE expires IS NOT NULL",
    "SELECT client, TIMESTAMP '1970-01-02 01:00:00' AS t FROM deliveries WHERE arrived < TIMESTAMP '1970-01-03'",
    "SELECT count(*) AS n FROM routes WHERE arrived > now() - INTERVAL 1 HOUR OR arrived < now() - INTERVAL '2' DAY",
    "SELECT arrived + INTERVAL 2 DAYS AS later, EXTRACT(HOUR FROM arrived) AS hour FROM publications",
    "SELECT bool_or(hop > 1) AS one, bool_and(hop > 1) AS each, replace(broker, 'o', '0') AS b FROM routes GROUP BY 3",
    "SELECT broker || '>' || link AS name, upper(action) AS a FROM routes WHERE link LIKE 'p%' ORDER BY ALL",
)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Duck, SparkLake]]:
    shell = Shell(parse(CONFIG), regions=(("oslo", "paris"), ("rome",)))
    for event in EVENTS:
        shell.send(event)
        shell.settle()
    config = write_lake(shell, tmp_path_factory.mktemp("both"))
    spark.catalog.dropTempView("decisions")  # of the tests above
    yield Duck(config), SparkLake(config, spark)
    spark.conf.unset(FILES)


@pytest.mark.parametrize("statement", PLAIN)
def test_a_plain_statement_means_the_same_in_both(lake: tuple[Duck, SparkLake], statement: str) -> None:
    duck, spark = lake
    found, expected = (said(rows.to_pylist()) for rows in (duck.query(statement).read_all(), spark.query(statement)))
    assert found and found == expected


@pytest.mark.parametrize("file", ["text.`/etc/passwd`", "binaryFile.`/etc/passwd`", "delta.`{}/routes`", "json.`/tmp`"])
def test_no_file_is_read_past_the_tables(lake: tuple[Duck, SparkLake], file: str) -> None:
    path = lake[0]._config.lake.path
    with pytest.raises(LacunaError, match=r"^the query failed: .*Remedy: correct the query$"):
        lake[1].query(f"SELECT * FROM {file.format(path)}")


def said(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as they are printed, in an order of their own: not every statement gives one."""
    return sorted(json.dumps(row, default=_plain) for row in rows)


def test_a_mistake_in_spark_is_one_line(lake: tuple[Duck, SparkLake]) -> None:
    with pytest.raises(LacunaError, match=r"^the query failed: .*UNRESOLVED_COLUMN.*Remedy: correct the query$"):
        lake[1].query("SELECT size(coverrs) FROM decisions")
