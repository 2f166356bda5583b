"""The router query from end to end, and the Spark session it runs in.

    Kafka (subscribe, unsubscribe, links, control)  ┐
    Kafka (publish)                                 ┴─▶ sort_records    stateless: validate; a row per region, channel
      ─▶ group by region, applyInPandasWithState or transformWithStateInPandas (shim)
      ─▶ Kafka (links, deliveries, notices, records): one sink; topic and partition are columns

There are two sources, so that records that change the state do not wait behind publications: each source has its own
limit of records in a batch.

With one sink nothing is computed twice and nothing has to be cached between actions. The sink may write records again
after a crash; their readers recognise them by their numbers (see `state.protocol.channel`).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from access.connection import spark_options
from streaming.paths import is_local
from streaming.schemas import MOST_ARROW, MOST_ARROW_BYTES, OUTPUT, PARCELS, STATE
from streaming.settings import Settings
from streaming.shim import OnMap, on_row
from streaming.sources import sort_records

CHANGES = ("subscribe", "unsubscribe", "links", "control")
"""Topics that change the state."""
INPUTS = (*CHANGES, "publish")
CHECKPOINT_WRITER = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_WRITER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

STACK = "-Xss4m"
LOGGING = f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}"
SESSION: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.hadoop.fs.permissions.umask-mode": "077",  # Hadoop does not heed the umask of the process
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # A kill while batch 0 is planned leaves a draft behind, which must not keep the query from starting again.
    # `evidence` and `holder` make sure that the checkpoint is not another's.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A stopped query's Python threads unwind deep stacks. Under spark-submit this comes too late: see `stack_warning`.
    "spark.driver.extraJavaOptions": f"{STACK} {LOGGING}",
}
FIXED: Mapping[str, str] = {
    # The whole state of a region is sent again with every Arrow chunk, of which `step` counts the rows of its output.
    # Parcels are few, so one chunk is the rule.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(MOST_ARROW),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(MOST_ARROW_BYTES),
}
"""Settings on which the program relies: they cannot be changed with `--conf`."""


@dataclass(frozen=True)
class Engine:
    """The settings of the queries that an operator may tune. None of them changes any result.

    A batch reads at most `most_records` publications and `most_changes` records of the other topics.
    """

    master: str | None = "local[2,4]"
    jars: Sequence[str] = ()
    partitions: int = 2
    memory: str = "2g"
    most_records: int = 50_000
    most_changes: int = 200_000
    trigger: str = "0 seconds"
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def cores(self) -> int | None:
        """The cores that a local master uses; None if that is decided elsewhere.

        >>> Engine(master="local[3,4]").cores, Engine(master=None).cores
        (3, None)
        """
        found = re.match(r"local\[(\d+|\*)", self.master or "")
        if found is None:
            return 1 if self.master == "local" else None
        return os.cpu_count() or 1 if found[1] == "*" else int(found[1])


def session(engine: Engine) -> SparkSession:
    """Return the Spark session; under spark-submit (`master` None) the one that is given."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if engine.master is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("lacuna")
    for key, value in (*SESSION.items(), *engine.conf.items(), *FIXED.items()):
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.shuffle.partitions", str(engine.partitions))
    if engine.master is not None:
        builder = builder.master(engine.master).config("spark.driver.memory", engine.memory)
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    if engine.jars:
        builder = builder.config("spark.jars", ",".join(engine.jars))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def brief_session(engine: Engine) -> Iterator[SparkSession]:
    """A session for one piece of work. It is stopped afterwards, unless it was there before."""
    before = SparkSession.getActiveSession()
    spark = session(engine)
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


def stack_warning(spark: SparkSession) -> str | None:
    """Return a warning if the driver was started with small stacks, as spark-submit in client mode does by itself."""
    java: Any = spark.sparkContext._jvm
    given = list(java.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    if any(option.startswith("-Xss") for option in given):
        return None
    return (
        "the driver runs with Java's default stacks: a query that is stopped in the middle of a batch may end with a "
        f"StackOverflowError. Remedy: give spark-submit --driver-java-options {STACK}"
    )


def records(spark: SparkSession, settings: Settings, engine: Engine) -> DataFrame:
    """Return the records of the router's topics, with the moment at which the batch began."""
    changes = _source(spark, settings, CHANGES, engine.most_changes)
    return changes.unionByName(_source(spark, settings, ("publish",), engine.most_records))


def reading(settings: Settings, kinds: Sequence[str], most: int) -> dict[str, str]:
    """Return the options of a Kafka source that reads these topics, `most` records in a batch."""
    return {
        **spark_options(settings.config.kafka.bootstrap),
        "subscribe": ",".join(settings.topics.of(kind) for kind in kinds),
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": str(most),
        # A fetch that is still open at the broker must run out before a consumer can go back: 500 ms in every batch.
        "kafka.fetch.max.wait.ms": "10",
        "kafka.isolation.level": "read_committed",
        # Spark tries three times to learn the ends of topics. After a minute without Kafka the query dies, and is
        # started again by the job, which says so; with Kafka's defaults it would die silent for three minutes.
        "kafka.request.timeout.ms": "20000",
        "kafka.default.api.timeout.ms": "20000",
    }


def starts_of(settings: Settings, kinds: Sequence[str]) -> str:
    """Return where a life begins to read these topics, as Spark wants it; that counts only before its first batch."""
    if not settings.starts:
        return "earliest"
    return json.dumps({settings.topics.of(kind): settings.starts[kind] for kind in kinds})


def _source(spark: SparkSession, settings: Settings, kinds: Sequence[str], most: int) -> DataFrame:
    options = reading(settings, kinds, most) | {"startingOffsets": starts_of(settings, kinds)}
    source = spark.readStream.format("kafka").options(**options).option("includeHeaders", "true")
    return source.load().select(
        "topic",
        "partition",
        "offset",
        expr("unix_micros(timestamp)").alias("time"),
        "key",
        "value",
        "headers",
        expr("unix_micros(current_timestamp())").alias("now"),
    )


def routed(source: DataFrame, settings: Settings) -> DataFrame:
    """Return the two stages of the router: parcels for each region, then the stateful step."""
    regions = source.mapInArrow(sort_records(settings), PARCELS).groupBy("region")
    if settings.state == "map":
        stepped = regions.transformWithStateInPandas(OnMap(settings), OUTPUT, "append", "none")
    else:
        stepped = regions.applyInPandasWithState(on_row(settings), OUTPUT, STATE, "append", "NoTimeout")
    return stepped.where("topic IS NOT NULL")  # the rows without one are `step.empty_rows`


def choose_checkpoint_writer(spark: SparkSession, checkpoint: str) -> None:
    """Choose how Spark writes the checkpoint of the next query, by the path of the checkpoint.

    Spark's default starts two processes for every file on a local path. The other writer does not notice that two
    queries share a checkpoint; `claims` prevents that.
    """
    if is_local(checkpoint):
        spark.conf.set(CHECKPOINT_WRITER, LOCAL_WRITER)
    else:
        spark.conf.unset(CHECKPOINT_WRITER)


def router_query(spark: SparkSession, settings: Settings, engine: Engine, *, once: bool = False) -> StreamingQuery:
    """Start the router of a life; with `once`, for the one batch that is planned already."""
    checkpoint = f"{settings.folder}/router"
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "router")
    choose_checkpoint_writer(spark, checkpoint)
    sink = (
        routed(records(spark, settings, engine), settings)
        .writeStream.queryName("router")
        .format("kafka")
        .options(**spark_options(settings.config.kafka.bootstrap))
        .option("kafka.compression.type", "zstd")
        .option("kafka.linger.ms", "5")
        .option("kafka.max.request.size", str(1 << 23))
        # Never give a producer's batch up: written after the next one, it would be out of order for ever.
        .option("kafka.delivery.timeout.ms", str(2**31 - 1))
        .option("checkpointLocation", checkpoint)
    )
    return (sink.trigger(once=True) if once else sink.trigger(processingTime=engine.trigger)).start()
