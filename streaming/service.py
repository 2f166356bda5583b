"""The long-running job: starts the queries, lets time tick, notices failures, stops cleanly.

Stopping. A router batch that is interrupted is repeated at the next start with the same result, so stopping is always
safe; it is done between batches all the same, so that nothing has to be repeated. The archive stops at
the beginning of its next batch (see `archive`).

Failing. A query that dies takes the job with it: the other one is stopped, and the message is that of the core where
the core raised it, with cause and remedy, not a Java stack.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from access.topics import ensure_topics, partition_counts
from state.config import Config
from state.errors import LacunaError
from state.protocol.commands import TICK
from streaming.archive import archive_query, stopped_on_purpose
from streaming.causes import cause_in
from streaming.checkpoint import adopt
from streaming.claims import NOTHING, claim, release
from streaming.paths import absolute
from streaming.pipeline import INPUTS, Engine, router_query, session
from streaming.settings import Settings, Spread

BETWEEN_LOOKS = 0.2
PATIENCE = 60.0


class JobFailed(LacunaError):
    """A query died; the text says why and what to do."""


def settings_of(config: Config, engine: Engine) -> Settings:
    """Create the missing topics, and return the settings of the configured checkpoint, which is made if it is new."""
    kafka = config.kafka
    ensure_topics(kafka.bootstrap, kafka.prefix)
    counts = partition_counts(kafka.bootstrap, kafka.prefix)
    spread = Spread(counts["links"], counts["records"], counts["deliveries"])
    return adopt(config, engine.partitions, engine.cores, spread)


@dataclass
class Service:
    """The two queries of one configuration."""

    settings: Settings
    engine: Engine
    router: bool = True
    archive: bool = True
    writer: str = "rust"
    tick_seconds: float = 10.0
    say: Callable[[str], None] = lambda _: None
    _queries: dict[str, StreamingQuery] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _spark: SparkSession | None = None
    _lock: int = NOTHING

    def start(self) -> None:
        """Start the session and the queries."""
        checkpoint = absolute(self.settings.config.lake.checkpoint)
        if self.router:
            self._lock = claim(f"{checkpoint}/.router.lock", checkpoint, "a router")
        self.say("starting Spark")
        self._spark = session(self.engine)
        if self.router:
            self.say("starting the router")
            self._queries["router"] = router_query(self._spark, self.settings, self.engine, f"{checkpoint}/router")
        if self.archive:
            self.say("starting the archive")
            self._queries["archive"] = archive_query(
                self._spark, self.settings, writer=self.writer, stop=self._stop, checkpoint=f"{checkpoint}/archive"
            )
        if self.router and self.tick_seconds > 0:
            threading.Thread(target=self._tick, daemon=True, name="tick").start()

    def wait(self, until: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Run until `until` holds; raises `JobFailed` if a query dies before. `meanwhile` is done between two looks."""
        while not until():
            self.look()
            meanwhile()
            time.sleep(BETWEEN_LOOKS)

    def look(self) -> None:
        """Raise `JobFailed` if a query has died."""
        for name, query in self._queries.items():
            if not query.isActive and not self._stop.is_set():
                raise JobFailed(f"the {name} stopped: {cause_of(query)}")

    def query(self, name: str) -> StreamingQuery:
        """One of the running queries."""
        return self._queries[name]

    def stop(self) -> None:
        """Stop both queries between batches, then Spark."""
        try:
            self.stop_queries()
        finally:
            if self._spark is not None:
                self._spark.stop()

    def stop_queries(self) -> None:
        """Stop both queries between batches; the session stays."""
        self._stop.set()
        router, archive = self._queries.get("router"), self._queries.get("archive")
        try:
            if router is not None and router.isActive:
                _between_batches(router)
                router.stop()
            if archive is not None:
                archive.stop()
                if not stopped_on_purpose(archive):
                    raise JobFailed(f"the archive stopped: {cause_of(archive)}")
        finally:
            release(self._lock)
            self._lock = NOTHING

    def _tick(self) -> None:
        """Let time pass in regions that nothing else reaches, so that subscriptions expire there too."""
        producer = KafkaProducer(bootstrap_servers=self.settings.config.kafka.bootstrap)
        while not self._stop.wait(self.tick_seconds):
            with suppress(KafkaError):  # while Kafka is away nothing moves at all; the next tick does as well
                producer.send(self.settings.topics.control, b"", key=TICK)
        producer.close()

    # progress

    def progress(self) -> dict[str, Any]:
        """Return for each query the number of its last batch, and how many records it read."""
        reports = {name: query.lastProgress for name, query in self._queries.items()}
        return {name: {"batch": p["batchId"], "rows": p["numInputRows"]} for name, p in reports.items() if p}

    def quiet(self) -> bool:
        """Return whether the router has applied everything in its topics, its own letters included."""
        topics = [self.settings.topics.of(name) for name in INPUTS]
        return self._caught_up("router", topics)

    def archived(self) -> bool:
        """Return whether the archive has written everything in the records topic."""
        return self._caught_up("archive", [self.settings.topics.records])

    def _caught_up(self, name: str, topics: list[str]) -> bool:
        """Return whether the last committed batch reaches the ends of the topics, which are read after it."""
        done = _end_offsets(self._queries[name])
        ends = topic_ends(self.settings.config.kafka.bootstrap, topics)
        reached = all(done.get(topic, {}).get(str(p), 0) >= end for (topic, p), end in ends.items())
        return reached and _end_offsets(self._queries[name]) == done


def _end_offsets(query: StreamingQuery) -> dict[str, dict[str, int]]:
    """Return the offsets behind the last batch, by topic and partition, of all sources."""
    last = query.lastProgress
    found: dict[str, dict[str, int]] = {}
    for source in last["sources"] if last else ():
        ends = source["endOffset"]
        found |= json.loads(ends) if isinstance(ends, str) else ends or {}
    return found


def topic_ends(bootstrap: str, topics: list[str]) -> dict[tuple[str, int], int]:
    """Return the end offset of every partition of these topics."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        parts = [
            TopicPartition(topic, p) for topic in topics for p in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        return {(part.topic, part.partition): end for part, end in consumer.end_offsets(parts).items()}
    finally:
        consumer.close()


def _between_batches(query: StreamingQuery) -> None:
    """Wait for the end of the batch that is under way, if one is."""
    last = query.lastProgress
    before = last["batchId"] if last else -1

    def ended() -> bool:
        now = query.lastProgress
        return not query.isActive or not query.status["isTriggerActive"] or (now["batchId"] if now else -1) != before

    _await(ended, PATIENCE)


def _await(condition: Callable[[], bool], patience: float) -> None:
    deadline = time.monotonic() + patience
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def cause_of(query: StreamingQuery) -> str:
    """Return why a query died, in one message."""
    failure = query.exception()
    return "it was stopped from outside" if failure is None else cause_in(str(failure))
