"""Make `earlier.tar.gz`: a small stopped system as an earlier version of Lacuna left it.

It was made once, by the version that had no lives and no `lacuna apply` (commit 92f953c), in a checkout of it:

    git worktree add /tmp/earlier 92f953c
    cp tests/data/make_earlier.py /tmp/earlier/make_earlier.py
    cd /tmp/earlier && PYTHONPATH=. python make_earlier.py earlier.tar.gz

In it are the router's checkpoint, the records of all topics, and the events of its clients in order. Two publications
wait unread. The folder of the archive and the tables are left out: they are filled again from the topic `records`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from access.topics import ensure_topics
from producers.sender import Sender
from tests.system.live import Job

PREFIX = "earlier"
TOPICS = ("subscribe", "unsubscribe", "publish", "links", "control", "records", "deliveries", "notices")
CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("subscribe", "oslo", {"id": "all", "client": "ann", "where": {}}),
    ("subscribe", "oslo", {"id": "cheap", "client": "ann", "where": {"price": [0, 10]}}),
    ("subscribe", "oslo", {"id": "cheaper", "client": "bob", "where": {"price": [0, 5]}}),
    ("subscribe", "praha", {"id": "ibm", "client": "eve", "where": {"symbol": ["IBM"]}, "ttl": 10**8}),
    (
        "subscribe",
        "praha",
        {"id": "text", "client": "eve", "where": "price < 500 AND (symbol IN ('IBM') OR volume > 5)"},
    ),
    ("subscribe", "wien", {"id": "gone", "client": "dan", "where": {}}),
    ("unsubscribe", "wien", {"id": "gone", "client": "dan"}),
    ("subscribe", "rome", {"id": "revised", "client": "kim", "where": {"volume": [0, 9]}, "rev": 7}),
]


def publication(number: int, broker: str) -> tuple[str, str, dict[str, Any]]:
    """A publication, as the others."""
    at = {"price": 3.0 * number, "volume": number, "symbol": ("IBM", "AAPL")[number % 2]}
    return "publish", broker, {"id": f"p{number}", "at": at}


def send(job: Job, events: list[tuple[str, str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Send events. Return them as `tests.core.oracle` takes them."""
    with Sender(job.config, check=False) as sender:
        for kind, broker, fields in events:
            sender.send(kind, broker, fields)
    return [{"kind": kind, "broker": broker, **fields} for kind, broker, fields in events]


def records(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """The records of a topic, by partition and offset."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    ends, found = consumer.end_offsets(parts), []
    while any(consumer.position(part) < ends[part] for part in parts):
        for polled in consumer.poll(timeout_ms=500).values():
            found += [
                {"partition": r.partition, "time": r.timestamp, "key": (r.key or b"").hex(), "value": r.value.hex()}
                for r in polled
            ]
    consumer.close()
    return found


def main(target: str) -> None:
    """Run the system, stop it, and pack it."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        kafka = [sys.executable, "-m", "infra.kafka"]
        start = [*kafka, "start", "--home", str(home / "kafka"), "--port", "0", "--json"]
        started = subprocess.run(start, capture_output=True, text=True, check=True)
        bootstrap = json.loads(started.stdout.strip().splitlines()[-1])["bootstrap"]
        try:
            job = Job(home / "home", bootstrap, PREFIX)
            ensure_topics(bootstrap, PREFIX, delivery_partitions=1)
            events = send(job, CHANGES[:4])
            job.start()
            job.settle()
            events += send(job, CHANGES[4:])
            job.settle()
            events += send(job, [publication(k, broker) for k, broker in enumerate(("oslo", "rome", "wien", "praha"))])
            job.settle()
            job.terminate()
            events += send(job, [publication(k, "paris") for k in (4, 5)])
            topics = {name: records(bootstrap, f"{PREFIX}.{name}") for name in TOPICS}
            (home / "topics.json").write_text(json.dumps(topics, indent=1))
            (home / "events.json").write_text(json.dumps(events, indent=1))
            with tarfile.open(target, "w:gz") as packed:
                for name in ("lacuna.json", "router"):
                    packed.add(home / "home" / "checkpoint" / name, f"checkpoint/{name}")
                for name in ("topics.json", "events.json"):
                    packed.add(home / name, name)
        finally:
            subprocess.run([*kafka, "stop", "--home", str(home / "kafka")], check=False)


if __name__ == "__main__":
    main(sys.argv[1])
