"""The router's own hash functions are those of Spark and of Kafka, and every region has a partition of its own."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr, spark_partition_id

from streaming.hashing import murmur3, spark_partition
from streaming.settings import keyed

pytestmark = pytest.mark.system


def texts() -> list[str]:
    """Texts of every length up to 40 bytes, with characters of one to four bytes."""
    chance = random.Random(5)
    alphabet = "abcdefghijklmnopqrstuvwxyz#0123456789äöøÅ€\N{SNOWMAN}\N{GRINNING FACE}"
    return ["".join(chance.choices(alphabet, k=length)) for length in range(33) for _ in range(20)]


def test_murmur3_is_that_of_spark(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in texts()], "text string")
    found = frame.select("text", expr("hash(text)").alias("hash")).collect()
    assert len(found) == len(texts())
    for row in found:
        assert murmur3(row.text.encode()) == row.hash % 2**32, row.text


def test_a_key_is_in_the_partition_that_was_foretold(spark: SparkSession) -> None:
    for partitions in (2, 7):
        frame = spark.createDataFrame([(text,) for text in texts()], "text string").repartition(partitions, col("text"))
        for row in frame.select("text", spark_partition_id().alias("partition")).collect():
            assert spark_partition(row.text, partitions) == row.partition


def test_regions_that_shared_a_partition_no_longer_do(spark: SparkSession) -> None:
    parts = keyed((("paris",), ("rome",), ("wien",)), 3)
    frame = spark.createDataFrame([(part.key,) for part in parts], "key string").repartition(3, col("key"))
    found = frame.select(spark_partition_id().alias("partition")).collect()
    assert sorted(row.partition for row in found) == [0, 1, 2]
