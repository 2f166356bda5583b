"""What a worker holds for output is bounded in bytes, whatever one batch delivers: on a real Spark, scaled down."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from streaming import step
from streaming.schemas import OUTPUT, STATE

pytestmark = pytest.mark.system

MB = 1 << 20
COUNT = 400
"""Records of a megabyte each."""


def test_a_batch_delivers_more_than_a_worker_holds(spark: SparkSession, tmp_path: Path) -> None:
    """The last record says by how much the worker grew while it made the others."""

    def held_mb() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def records() -> Iterator[step.Record]:
        before = held_mb()
        for k in range(COUNT):
            yield step.Record("deliveries", 0, b"%d" % k, bytes(MB))
        yield step.Record("grown", 0, b"", b"%d" % (held_mb() - before))

    def deliver(_key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        for _ in frames:
            pass
        yield from step.gathered(records(), 8 * MB)
        state.update((1, b""))

    spark.range(1).write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema("id LONG").parquet(str(tmp_path / "in"))
    stepped = source.groupBy("id").applyInPandasWithState(deliver, OUTPUT, STATE, "append", "NoTimeout")
    found: dict[str, Any] = {}

    def take(batch: DataFrame, _number: int) -> None:
        sums = (
            expr("count(DISTINCT key) AS n"),
            expr("sum(length(value)) AS bytes"),
            expr("max(left(value, 9)) AS last"),
        )
        for row in batch.where("topic IS NOT NULL").groupBy("topic").agg(*sums).collect():
            found[row["topic"]] = row

    query = stepped.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert (found["deliveries"]["n"], found["deliveries"]["bytes"]) == (COUNT, COUNT * MB)
    assert int(bytes(found["grown"]["last"])) < 150, "MB held for output"
