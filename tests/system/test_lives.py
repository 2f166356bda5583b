"""One life after another, in processes of their own: a second router, foreign records, a kill, a change while it runs.

What stops a start, and its remedy, is tested in `tests/spark/test_remedies.py`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from access.control import ControlLog
from access.topics import ensure_topics
from state.config import parse
from state.protocol.topics import Topic
from streaming.life import Folder
from tests.system.live import PROGRAM, Job, text_at, wait_until
from tests.system.owed import History, archived, delivered

pytestmark = pytest.mark.system


@pytest.fixture
def job(tmp_path: Path, bootstrap: str) -> Iterator[Job]:
    made = Job(tmp_path, bootstrap, "lives")
    ensure_topics(bootstrap, "lives", {"deliveries": Topic(partitions=1)})
    yield made
    made.kill()


@pytest.fixture
def other(tmp_path: Path, bootstrap: str) -> Iterator[Job]:
    """A job of the same system on another machine."""
    made = Job(tmp_path / "other", bootstrap, "lives")
    yield made
    made.kill()


def test_one_life_after_another(job: Job, other: Job, tmp_path: Path) -> None:
    history = History(job.config)
    for k, broker in enumerate(("oslo", "rome", "praha", "wien")):
        history.subscribe(broker, f"s{k}")
    for broker in ("oslo", "praha", "rome"):
        history.publish(broker, f"early {broker}")
    job.start(tick=1)
    check_all_subscriptions_were_in_force(job, history)
    check_a_second_router_is_refused(job, tmp_path / "elsewhere")
    check_foreign_records_are_rejects(job, history)
    check_a_running_system_says_what_it_refuses(job)
    check_a_running_system_begins_a_new_life(job, history, tmp_path / "elsewhere")
    check_a_machine_that_hung_is_succeeded_by_the_remedy(job, history, other)
    assert other.terminate() == 0


def check_all_subscriptions_were_in_force(job: Job, history: History) -> None:
    """Before the first publication was routed, although both were in the topics already, across two regions."""
    job.archive_settled()
    assert sorted(delivered(job.config)[1]) == archived(job.config)[1] == sorted(history.owed)
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
    assert sorted(delivered(job.config)[1]) == sorted(history.owed)
    rows = {(row["topic"], row["rule"]) for row in job.rows("rejects")}
    assert rows == {(job.topic(topic), "foreign") for topic in ("links", "records", "control")}


def check_a_running_system_says_what_it_refuses(job: Job) -> None:
    """The job that runs answers in control; it goes on as before."""
    text = job.file.read_text()
    links, regions = '["paris", "wien"], ["wien", "praha"]', 'regions = [["paris", "oslo", "rome"], ["wien", "praha"]]'
    assert links in text and regions in text
    job.file.write_text(text.replace(links, '["paris", "wien"]').replace(regions, "regions = 1"))
    [refused] = job.apply(code=1)["refused"]
    assert "the broker praha has 1 subscriptions" in refused and "Remedy" in refused
    assert "no new life has begun, and life 1 goes on" in job.log()
    job.file.write_text(text)


def check_a_running_system_begins_a_new_life(job: Job, history: History, elsewhere: Path) -> None:
    """Asked from another directory, in the session that runs: a broker and a strategy are new, nothing comes twice."""
    before, text = delivered(job.config), job.file.read_text()
    overlay = '["wien", "praha"], ["praha", "brno"]]\nregions = 2\n[routing]\nstrategy = "cover"'
    old = '["wien", "praha"]]\nregions = [["paris", "oslo", "rome"], ["wien", "praha"]]'
    assert old in text
    job.file.write_text(text.replace(old, overlay))
    file = elsewhere / "lacuna.toml"
    file.write_text(job.file.read_text().replace(str(job.home), str(elsewhere)))
    command = [PROGRAM, "apply", "--config", str(file)]
    done = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and f"was last run with {socket.gethostname()}:{job.home}" in done.stderr
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120, check=False)
    changed = json.loads(done.stdout)
    assert changed["epoch"] == 2 and "4 subscriptions are decided again" in changed["changes"]
    job.config = parse(job.file.read_text())
    history.publish("brno", "after the command")
    wait_until(lambda: len(job.committed("router")) > 0, "the new life has committed a batch")
    job.archive_settled()
    now = delivered(job.config)
    late = [delivery for delivery in history.owed if delivery[3] == "after the command"]
    assert now == before | {2: now[2]} and sorted(now[2]) == sorted(late)
    check_rows(job)


def check_a_machine_that_hung_is_succeeded_by_the_remedy(job: Job, history: History, other: Job) -> None:
    """By one that has nothing of it: the topics are enough. When it wakes, it stops, and what it wrote is ignored."""
    with ControlLog(job.config.kafka.bootstrap, job.config.kafka.prefix) as control:
        wait_until(lambda: (beat := control.read().beat) is not None and beat.epoch == 2 and beat.batch > 0, "a tick")
    before = {epoch: sorted(found) for epoch, found in delivered(job.config).items()}
    assert job.process is not None
    os.killpg(job.process.pid, signal.SIGSTOP)
    history.publish("rome", "while it hung")
    other.file.write_text(job.file.read_text().replace(str(job.home), str(other.home)))
    other.config = parse(other.file.read_text())
    assert other.apply("--from", "topics")["epoch"] == 3
    other.start(tick=1)
    other.settle()
    history.publish("rome", "after the loss")
    os.killpg(job.process.pid, signal.SIGCONT)
    assert "this router was succeeded by another, and stops" in job.ended()
    other.archive_settled()
    now = delivered(other.config)
    assert {epoch: sorted(now[epoch]) for epoch in before} == before
    late = {delivery for delivery in history.owed if delivery[3] in ("while it hung", "after the loss")}
    assert late <= set(now[3]) <= set(history.owed), "all that is owed now; the rest came again"
    check_rows(other)


def check_rows(job: Job) -> None:
    """The table holds the deliveries of every life, each once."""
    assert archived(job.config) == {epoch: sorted(found) for epoch, found in delivered(job.config).items()}
