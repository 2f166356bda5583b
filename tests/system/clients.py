"""A real Kafka for the tests of the client library, and what is in it.

The router is played by the test (`Router`), which writes into the deliveries topic what a router would, repeats
included.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from producers.deliveries import Delivery
from state.config import Config, Kafka
from state.protocol.events import Context, EventKind, Reject, Source, read
from state.protocol.messages import Publish, Subscribe, Unsubscribe
from state.protocol.topics import Topics

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
[space]
price = {{kind = "float", low = 0.0, high = 1000.0}}
volume = {{kind = "int", low = 0, high = 100000}}
symbol = {{kind = "category", values = ["AAPL", "IBM", "MSFT"]}}
[overlay]
links = [["oslo", "paris"], ["paris", "rome"]]
[kafka]
bootstrap = "{bootstrap}"
prefix = "{prefix}"
"""
AT = {"price": 12.5, "volume": 150, "symbol": "IBM"}


def infra(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", *words, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@dataclass(frozen=True)
class Broker:
    """A running Kafka of the test's own."""

    home: str
    bootstrap: str
    pid: int

    @classmethod
    def start(cls, home: Path) -> Broker:
        infra("infra.fetch", "kafka")
        status = infra("infra.kafka", "start", "--home", str(home), "--port", "0")
        return cls(str(home), status["bootstrap"], status["pid"])

    def stop(self) -> None:
        infra("infra.kafka", "stop", "--home", self.home)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it answer nothing for a while; connections stay open. Not for longer than its session of 5 s."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            self.thaw()

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def log_of(kafka: Kafka, topic: str) -> list[Any]:
    """Everything in a topic."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, group_id=None, isolation_level="read_committed")
    try:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        records: list[Any] = []
        deadline = time.monotonic() + 60
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, "waited in vain"
            for batch in consumer.poll(timeout_ms=200).values():
                records += batch
        return records
    finally:
        consumer.close()


def events_of(config: Config, kind: EventKind) -> list[tuple[str, dict[str, Any]]]:
    """The events of a kind in order, each with its broker; the router would accept every one."""
    context = Context(config.space, config.overlay.brokers)
    found = []
    for record in log_of(config.kafka, Topics(config.kafka.prefix).of(kind)):
        broker = record.key.decode()
        outcome = read(context, kind, broker, record.value, Source(0, record.offset, "", 0))
        assert not isinstance(outcome, Reject), outcome
        assert isinstance(outcome, {"subscribe": Subscribe, "unsubscribe": Unsubscribe, "publish": Publish}[kind])
        found.append((broker, json.loads(record.value)))
    return found


class Router:
    """Writes deliveries as the router does."""

    def __init__(self, kafka: Kafka) -> None:
        self._topic = Topics(kafka.prefix).deliveries
        self._producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)

    def deliver(
        self,
        client: str,
        *seqs: int,
        channel: str = "oslo>local",
        epoch: int = 7,
        partition: int | None = None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        sent = []
        for seq in seqs:
            value = {"client": client, "subscription": "s1", "publication": f"p{seq}", "broker": "oslo", "at": AT}
            value |= {"payload": {"n": seq}, "time": "2026-05-01T00:00:00Z", "channel": channel, "seq": seq}
            content = json.dumps(value | {"epoch": epoch}).encode()
            sent.append(
                self._producer.send(self._topic, content, key=client.encode(), partition=partition, headers=headers)
            )
        for each in sent:
            each.get(timeout=30)

    def write(self, key: str, value: bytes) -> None:
        self._producer.send(self._topic, value, key=key.encode()).get(timeout=30)

    def close(self) -> None:
        self._producer.close()


def seqs(deliveries: Iterator[Delivery]) -> list[int]:
    return [delivery.seq for delivery in deliveries]


class Echo:
    """A router of one client that wants everything: each publication becomes a delivery, with its headers."""

    def __init__(self, kafka: Kafka, client: str) -> None:
        self._kafka, self._client, self._seq = kafka, client, 0
        self._producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)

    def run(self, ended: threading.Event) -> None:
        """Deliver until the end."""
        topics = Topics(self._kafka.prefix)
        consumer = KafkaConsumer(
            topics.publish,
            topics.subscribe,
            bootstrap_servers=self._kafka.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        while not ended.is_set():
            for records in consumer.poll(timeout_ms=100).values():
                for record in records:
                    event = json.loads(record.value)
                    if "at" in event:
                        self.deliver(event["id"], event["at"], event.get("payload"), record.headers)
                    if "ack" in event:
                        self.answer(event)
            self._producer.flush()
        consumer.close()
        self._producer.close()

    def answer(self, event: dict[str, Any]) -> None:
        """Say that an event has had its effect everywhere."""
        state = {"state": "routed", "deliveries": 1} if "at" in event else {"state": "in-force"}
        notice = json.dumps({**state, "id": event["id"], "ack": event["ack"]}).encode()
        self._producer.send(Topics(self._kafka.prefix).notices, notice, key=self._client.encode())

    def deliver(self, id: str, at: dict[str, Any], payload: Any, headers: list[tuple[str, bytes]]) -> None:
        self._seq += 1
        value = {"client": self._client, "subscription": "s1", "publication": id, "broker": "oslo", "at": at}
        value |= {"payload": payload, "channel": "oslo", "seq": self._seq, "epoch": 1}
        topic = Topics(self._kafka.prefix).deliveries
        self._producer.send(topic, json.dumps(value).encode(), key=self._client.encode(), headers=headers)
        self._producer.flush()
