"""The job with its lake and its checkpoint on an S3 server on this machine; killed, and started again."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from producers.client import Client
from state.config import parse
from tests.core.buckets import served
from tests.system.clients import Broker
from tests.system.live import PATIENCE, Job, wait_until

pytestmark = pytest.mark.system


@pytest.fixture
def job(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.chdir(tmp_path)
    with served(tmp_path / "s3.log") as bucket:
        job = Job(tmp_path / "job", broker.bootstrap, f"t{uuid.uuid4().hex[:12]}")
        job.file.write_text(job.file.read_text().replace(f'"{job.home}/', f'"{bucket}/job/'))
        job.config = parse(job.file.read_text())
        yield job
        job.kill()


def test_nothing_is_lost_or_twice_when_the_job_is_killed(job: Job) -> None:
    store = (f"endpoint={os.environ['AWS_ENDPOINT_URL']}", "endpoint.region=us-east-1", "path.style.access=true")
    options = [word for each in store for word in ("--conf", f"spark.hadoop.fs.s3a.{each}")]
    at = {"price": 12.5, "volume": 150, "symbol": "IBM"}
    job.start(*options)
    with Client(job.config, broker="rome", name="ann") as client:
        client.subscribe("s1", {"price": [10, 20]}, ack=True).wait(PATIENCE)
        for number in range(200):
            client.publish(f"p{number}", at)
        client.publish("last of the first", at, ack=True).wait(PATIENCE)
        for number in range(200, 400):
            client.publish(f"p{number}", at)
    job.kill()
    job.start(*options)
    with Client(job.config, broker="rome", name="ann") as client:
        assert client.publish("last of all", at, ack=True).wait(PATIENCE).deliveries == 1
    wait_until(lambda: "last of all" in [row["publication"] for row in job.rows("deliveries")], "the archive is there")
    assert job.terminate() == 0
    found = Counter(row["publication"] for row in job.rows("deliveries"))
    names = ["last of the first", "last of all", *(f"p{number}" for number in range(400))]
    assert found == dict.fromkeys(names, 1)
    assert not (job.home / "checkpoint").exists() and not list(Path.cwd().glob("s3a*"))
