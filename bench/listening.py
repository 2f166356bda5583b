"""How fast the client library reads deliveries, beside a bare consumer of kafka-python that decodes the same JSON.

Both read the same topic from the beginning to the end, in turns, in one process; what the library adds is the check of
the key, the recognition of repeats, typed deliveries and the count of what is taken. `listen_vs_consumer` is the median
of the ratios of their deliveries per second, and has to be at least 0.7.
"""

from __future__ import annotations

import json

from kafka import KafkaConsumer, TopicPartition

from access.connection import connect_producer
from access.topics import ensure_topics
from bench.report import Report, Step, median, seconds
from producers.deliveries import Deliveries
from state.config import Kafka
from state.protocol.topics import Topics

CLIENT = "ann"


def measure(report: Report, step: Step, bootstrap: str, repeats: int, count: int) -> None:
    """Add `listen_vs_consumer` to the report."""
    step("measuring the listener")
    kafka = Kafka(bootstrap, "listening")
    _deliver(kafka, count)
    pairs = [(seconds(lambda: _bare(kafka, count)), seconds(lambda: _listen(kafka, count))) for _ in range(repeats + 1)]
    report.add("listen_vs_consumer", median(bare / listened for bare, listened in pairs[1:]), "at least 0.7")
    report.details["deliveries_per_s"] = {
        "consumer": round(count / median(bare for bare, _ in pairs[1:])),
        "listener": round(count / median(listened for _, listened in pairs[1:])),
    }


def _deliver(kafka: Kafka, count: int) -> None:
    """Fill the topic as the router does."""
    ensure_topics(kafka.bootstrap, kafka.prefix)
    producer = connect_producer(kafka.bootstrap)
    delivery: dict[str, object] = {
        "client": CLIENT,
        "subscription": "s1",
        "broker": "n1",
        "at": {"x": 1, "y": 2, "z": 3},
        "payload": "hello",
    }
    delivery |= {"time": "2026-05-01T00:00:00Z", "channel": "n1", "epoch": 1, "batch": 1, "entry": "n5", "hop": 4}
    for number in range(1, count + 1):
        value = delivery | {"publication": f"p{number}", "publication_key": f"0/{number}", "entry": "n5", "hop": 4}
        value["seq"] = number
        producer.send(Topics(kafka.prefix).deliveries, json.dumps(value).encode(), key=CLIENT.encode())
    producer.flush()
    producer.close()


def _bare(kafka: Kafka, count: int) -> None:
    """Read as a program without the library does."""
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap, enable_auto_commit=False, isolation_level="read_committed"
    )
    topic = Topics(kafka.prefix).deliveries
    partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    for _, record in zip(range(count), consumer, strict=False):
        json.loads(record.value)
    consumer.close()


def _listen(kafka: Kafka, count: int) -> None:
    with Deliveries(kafka, CLIENT, from_beginning=True) as deliveries:
        for _ in zip(range(count), deliveries, strict=False):
            pass
