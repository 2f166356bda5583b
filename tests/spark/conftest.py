"""What the tests with Spark share: one session, one Kafka, and topics of their own for each who asks.

The session is that of the product (`streaming.pipeline.session`) on two cores. Both are started by the first test that
needs them and stopped at the end of the run, however it went.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from pyspark.sql import SparkSession

from streaming.pipeline import Engine, session

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = itertools.count()
QUICK = "-XX:TieredStopAtLevel=1"
"""A JVM that lives for minutes spends more on its best compiler than it gains by it."""

Topics = Callable[..., str]
Put = Callable[[str, Iterable[tuple[int, bytes | None, bytes]]], None]


def program(*words: str) -> dict[str, Any]:
    """Run one of infra's programs and return its JSON."""
    command = [sys.executable, "-m", *words, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session of this run."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    jars = program("infra.fetch", "spark")["spark"]["jars"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", QUICK)
        spark = session(Engine(master="local[2,4]", jars=jars, partitions=2))
    yield spark
    for query in spark.streams.active:
        query.stop()
    spark.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Kafka."""
    home = tmp_path_factory.mktemp("kafka")
    yield program("infra.kafka", "start", "--home", str(home), "--port", "0")["bootstrap"]
    program("infra.kafka", "stop", "--home", str(home))


@pytest.fixture(scope="session")
def topics(kafka: str) -> Iterator[Topics]:
    """A function that makes topics under a new prefix and returns the prefix: `topics("records", partitions=2)`."""
    admin = KafkaAdminClient(bootstrap_servers=kafka)

    def make(*names: str, partitions: int = 1) -> str:
        prefix = f"t{next(NUMBERS)}"
        full = [f"{prefix}.{name}" for name in names]
        admin.create_topics([NewTopic(name, partitions, 1) for name in full])
        admin.wait_for_topics(full, timeout_ms=30_000)
        return prefix

    yield make
    admin.close()


@pytest.fixture(scope="session")
def put(kafka: str) -> Iterator[Put]:
    """A function that puts (partition, key, value) into a topic, in order, and returns when Kafka has them."""
    producer = KafkaProducer(bootstrap_servers=kafka, acks="all", max_request_size=1 << 22)

    def send(topic: str, records: Iterable[tuple[int, bytes | None, bytes]]) -> None:
        sent = [producer.send(topic, value, key=key, partition=partition) for partition, key, value in records]
        for result in sent:
            result.get(timeout=30)

    yield send
    producer.close()
