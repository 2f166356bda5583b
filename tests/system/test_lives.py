"""One life after another, on real Kafka and Spark: copies, losses, a second router, foreign records; remedies followed.

One system goes through all of it, because every start of Spark costs half a minute here. What each situation is, is
tested without Spark in `tests/core/test_evidence.py`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from access.control import ControlLog
from access.topics import ensure_topics
from producers.sender import Sender
from streaming.life import Folder
from tests.core.oracle import Oracle
from tests.system.live import PROGRAM, Job, infra, read_topic, text_at, wait_until

pytestmark = pytest.mark.system

AT = {"price": 1.0, "volume": 1, "symbol": "IBM"}
Delivered = tuple[str, str, str, str]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = str(tmp_path_factory.mktemp("kafka"))
    yield infra("infra.kafka", "start", "--home", home, "--port", "0")["bootstrap"]
    infra("infra.kafka", "stop", "--home", home)


@pytest.fixture
def job(tmp_path: Path, bootstrap: str) -> Iterator[Job]:
    made = Job(tmp_path, bootstrap, "lives")
    ensure_topics(bootstrap, "lives", delivery_partitions=1)
    yield made
    made.kill()


class History:
    """The events that clients sent, and the deliveries that they are owed."""

    def __init__(self, job: Job) -> None:
        self._job, self._oracle = job, Oracle({"symbol"})
        self.owed: list[Delivered] = []

    def subscribe(self, broker: str, id: str) -> None:
        self._send({"kind": "subscribe", "broker": broker, "client": f"at {broker}", "id": id, "where": {}})

    def publish(self, broker: str, *ids: str) -> None:
        for id in ids:
            self._send({"kind": "publish", "broker": broker, "id": id, "at": AT})

    def _send(self, event: dict[str, Any]) -> None:
        with Sender(self._job.config) as sender:
            sender.send(event["kind"], event["broker"], {k: v for k, v in event.items() if k not in ("kind", "broker")})
        self.owed += self._oracle.take(event)


def delivered(job: Job) -> dict[int, list[Delivered]]:
    """Deliveries by epoch, without repeats, as a client reads them."""
    marks: dict[tuple[int, str], int] = {}
    found: dict[int, list[Delivered]] = {}
    for record in read_topic(job.config.kafka.bootstrap, job.topic("deliveries")):
        d = json.loads(record.value)
        if d["seq"] > marks.get((d["epoch"], d["channel"]), 0):
            marks[d["epoch"], d["channel"]] = d["seq"]
            one = (d["broker"], d["client"], d["subscription"], d["publication"])
            found.setdefault(d["epoch"], []).append(one)
    return found


def refused(job: Job) -> str:
    """Start the job, which must be refused; what it says."""
    job.start("--tick", "1", wait=False)
    return job.ended()


def restore(job: Job, copy: Path) -> None:
    for name in ("checkpoint", "lake"):
        shutil.rmtree(job.home / name)
        shutil.copytree(copy / name, job.home / name)


def test_one_life_after_another(job: Job, tmp_path: Path) -> None:
    history = History(job)
    for k, broker in enumerate(("oslo", "rome", "praha", "wien")):
        history.subscribe(broker, f"s{k}")
    for broker in ("oslo", "praha", "rome"):
        history.publish(broker, f"early {broker}")
    job.start("--tick", "1")
    check_all_subscriptions_were_in_force(job, history)
    check_a_second_router_is_refused(job, tmp_path / "elsewhere")
    check_foreign_records_are_rejects(job, history)
    check_a_restored_copy_goes_on_by_the_remedy(job, history, tmp_path / "copy")
    check_a_lost_checkpoint_goes_on_by_the_remedy(job, history)
    check_a_running_system_begins_a_new_life(job, history)
    assert job.terminate() == 0


def check_all_subscriptions_were_in_force(job: Job, history: History) -> None:
    """Before the first publication was routed, although both were in the topics already, across two regions."""
    job.archive_settled()
    assert sorted(delivered(job)[1]) == sorted(history.owed)
    table = [(r["broker"], r["client"], r["subscription"], r["publication"]) for r in job.rows("deliveries")]
    assert sorted(table) == sorted(history.owed)
    assert {(row["epoch"], row["batch"]) for row in job.rows("decisions")} == {(1, -2)}, "fed, not routed"


def check_a_second_router_is_refused(job: Job, elsewhere: Path) -> None:
    """It has a checkpoint of its own, and touches nothing: neither the topics, nor its lake."""
    elsewhere.mkdir()
    file = elsewhere / "lacuna.toml"
    file.write_text(text_at(job.config.kafka.bootstrap, job.config.kafka.prefix, elsewhere))
    done = subprocess.run(
        [PROGRAM, "run", "--config", str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2 and done.stdout == ""
    message = done.stderr.strip().splitlines()[-1]
    assert "a router holds it since" in message and str(job.home / "checkpoint") in message and "Remedy" in message
    assert not (elsewhere / "lake").exists() and Folder(str(elsewhere / "checkpoint")).epochs() == []
    with ControlLog(job.config.kafka.bootstrap, job.config.kafka.prefix) as control:
        assert len(control.read().lives.announced) == 1


def check_foreign_records_are_rejects(job: Job, history: History) -> None:
    producer = KafkaProducer(bootstrap_servers=job.config.kafka.bootstrap)
    for topic, key in (("links", b"paris>wien"), ("records", b"paris"), ("control", b"gossip")):
        producer.send(job.topic(topic), b"not Lacuna's", key=key).get(timeout=30)
    producer.close()
    history.publish("rome", "after the garbage")
    job.archive_settled()
    assert sorted(delivered(job)[1]) == sorted(history.owed)
    rows = {(row["topic"], row["rule"]) for row in job.rows("rejects")}
    assert rows == {(job.topic(topic), "foreign") for topic in ("links", "records", "control")}
    assert job.terminate() == 0


def check_a_restored_copy_goes_on_by_the_remedy(job: Job, history: History, copy: Path) -> None:
    """After the copy was made, a client subscribed and a publication was delivered: the copy knows nothing of both."""
    for name in ("checkpoint", "lake"):
        shutil.copytree(job.home / name, copy / name)
    job.start("--tick", "1")
    history.subscribe("paris", "after the copy")
    job.settle()
    history.publish("praha", "after the copy")
    job.archive_settled()
    assert job.terminate() == 0
    before = sorted(history.owed)
    assert sorted(delivered(job)[1]) == before
    restore(job, copy)
    message = refused(job)
    assert "the checkpoint is an older copy" in message and "Remedy" in message and "lacuna apply" in message
    plan = job.apply("--dry-run")
    assert plan["epoch"] == 2 and "delivered again" in plan["changes"][1]
    assert job.apply()["epoch"] == 2
    job.start("--tick", "1")
    job.settle()
    history.publish("oslo", "after the remedy")
    job.archive_settled()
    now = delivered(job)
    assert sorted(now[1]) == before, "the first life is as it was"
    again = [delivery for delivery in before if delivery[3] == "after the copy"]
    late = [delivery for delivery in history.owed if delivery[3] == "after the remedy"]
    assert sorted({*again, *now[2]}) == sorted({*again, *late}) and set(late) <= set(now[2])
    check_rows(job, now)


def check_rows(job: Job, now: dict[int, list[Delivered]]) -> None:
    """The table holds the deliveries of every life, each once."""
    for epoch, deliveries in now.items():
        rows = [row for row in job.rows("deliveries") if row["epoch"] == epoch]
        table = [(r["broker"], r["client"], r["subscription"], r["publication"]) for r in rows]
        assert sorted(table) == sorted(deliveries), epoch


def check_a_lost_checkpoint_goes_on_by_the_remedy(job: Job, history: History) -> None:
    """The machine's folder is gone but for the lake; the topics and the last tick are enough."""
    with ControlLog(job.config.kafka.bootstrap, job.config.kafka.prefix) as control:
        wait_until(lambda: (beat := control.read().beat) is not None and beat.epoch == 2 and beat.batch > 0, "a tick")
    job.kill()
    before = {epoch: sorted(found) for epoch, found in delivered(job).items()}
    shutil.rmtree(job.home / "checkpoint" / "lives")
    message = refused(job)
    assert "the router's checkpoint is not here" in message and "apply --from topics" in message
    assert job.apply("--from", "topics")["epoch"] == 3
    job.start("--tick", "1")
    job.settle()
    history.publish("rome", "after the loss")
    job.archive_settled()
    now = delivered(job)
    assert {epoch: sorted(now[epoch]) for epoch in before} == before
    late = {delivery for delivery in history.owed if delivery[3] == "after the loss"}
    assert late <= set(now[3]) <= set(history.owed), "all that is owed now; the rest came again"
    check_rows(job, now)


def check_a_running_system_begins_a_new_life(job: Job, history: History) -> None:
    """Asked by a command, in the session that runs: nothing is lost, nothing comes twice."""
    before = delivered(job)
    assert job.apply()["epoch"] == 4
    history.publish("praha", "after the command")
    wait_until(lambda: len(job.committed("router")) > 0, "the new life has committed a batch")
    job.archive_settled()
    now = delivered(job)
    late = [delivery for delivery in history.owed if delivery[3] == "after the command"]
    assert now == before | {4: now[4]} and sorted(now[4]) == sorted(late)
    check_rows(job, now)
