"""The live router with a Kafka as it is in the field: a backlog, aborted transactions, partitions that are added."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from access.offsets import topic_spans
from access.topics import ensure_topics
from producers.sender import Sender
from tests.system.live import Job, infra, read_topic

pytestmark = pytest.mark.system

WAITING = 2_020
MOST = 2_000
PAYLOAD = "x" * 60_000
"""A batch of `MOST` publications is then more than Spark hands to a worker at once."""
CLIENTS = 20
READERS, READ = 1_100, 50
AT = {"price": 1.0, "volume": 1, "symbol": "IBM"}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    kafka = str(tmp_path / "kafka")
    bootstrap = infra("infra.kafka", "start", "--home", kafka, "--port", "0")["bootstrap"]
    made = Job(tmp_path / "job", bootstrap, "field")
    ensure_topics(bootstrap, "field")
    yield made
    made.kill()
    infra("infra.kafka", "stop", "--home", kafka)


def send(job: Job, kind: str, broker: str, events: list[dict[str, Any]]) -> None:
    with Sender(job.config) as sender:
        for event in events:
            sender.send(kind, broker, event)


def publish(job: Job, name: str, count: int) -> None:
    send(job, "publish", "rome", [{"id": f"{name}{k}", "at": AT, "payload": PAYLOAD} for k in range(count)])


def abort(job: Job, kind: str, event: dict[str, Any]) -> None:
    """Send an event in a transaction that is then aborted."""
    producer = KafkaProducer(bootstrap_servers=job.config.kafka.bootstrap, transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(job.topic(kind), json.dumps(event).encode(), key=b"praha").get(30)
    producer.abort_transaction()
    producer.close()


def delivered(job: Job) -> set[tuple[str, str]]:
    records = read_topic(job.config.kafka.bootstrap, job.topic("deliveries"))
    return {(d["client"], d["publication"]) for d in (json.loads(record.value) for record in records)}


def test_a_batch_that_delivers_three_gib(job: Job) -> None:
    """More than an Arrow column holds: what is written is bounded in bytes, whatever one batch reads."""
    send(job, "subscribe", "praha", [{"client": f"c{k}", "id": "s", "where": {}} for k in range(READERS)])
    send(job, "publish", "praha", [{"id": f"wide{k}", "at": AT, "payload": PAYLOAD} for k in range(READ)])
    job.start("--only", "router")
    job.settle()
    _, first = job.plan("router", 0)
    assert first[job.topic("publish")]["0"] == READ, "one batch"
    assert job.terminate() == 0
    spans = topic_spans(job.config.kafka.bootstrap, [job.topic("deliveries")])
    assert sum(span.next for span in spans.values()) == READERS * READ
    assert READERS * READ * len(PAYLOAD) > 3 * 2**30


def test_a_backlog_an_aborted_transaction_and_added_partitions(job: Job) -> None:
    publish(job, "old", WAITING)
    clients = [f"c{k}" for k in range(CLIENTS)]
    send(job, "subscribe", "praha", [{"client": client, "id": "s", "where": {}} for client in clients])
    abort(job, "subscribe", {"client": "nobody", "id": "s", "where": {}})
    abort(job, "publish", {"id": "never", "at": AT})
    job.start("--only", "router", "--max-records", str(MOST))
    job.settle()
    _, first = job.plan("router", 0)
    assert first[job.topic("subscribe")]["0"] >= CLIENTS, "changes do not wait behind publications"
    assert first[job.topic("publish")]["0"] <= MOST < WAITING
    publish(job, "new", 1)
    job.settle()
    assert {client for client, name in delivered(job) if name == "new0"} == set(clients)
    admin = KafkaAdminClient(bootstrap_servers=job.config.kafka.bootstrap)
    admin.create_partitions({job.topic(name): 5 for name in ("links", "records", "deliveries")})
    admin.close()
    send(job, "unsubscribe", "praha", [{"client": client, "id": "s"} for client in clients[1:]])
    job.settle()
    assert job.terminate() == 0
    job.start("--only", "router")
    publish(job, "later", 20)
    job.settle()
    assert job.terminate() == 0
    found = delivered(job)
    assert {pair for pair in found if pair[1].startswith("later")} == {("c0", f"later{k}") for k in range(20)}
    assert not {pair for pair in found if "nobody" in pair or "never" in pair}
