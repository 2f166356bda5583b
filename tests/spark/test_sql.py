"""`lacuna sql` reads, whatever the statement."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lacuna.analysis.spark_lake import refuse_writing
from state.errors import LacunaError

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
