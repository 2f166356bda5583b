"""Strategy `mics` on the live router: ranges travel through real Kafka and Spark, clients notice nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from access.topics import ensure_topics
from producers.workloads import Workload
from state.config import parse
from state.protocol.topics import Topic
from tests.system.live import Job
from tests.system.test_live import bootstrap, check_everything, check_states, kafka_home, send, split

__all__ = ["bootstrap", "kafka_home"]
pytestmark = pytest.mark.system


def test_ranges_on_the_live_router(tmp_path: Path, bootstrap: str) -> None:
    """Coarse cells and bridged gaps; the job dies between subscriptions and publications and goes on."""
    job = Job(tmp_path, bootstrap, "ranges")
    job.file.write_text(
        job.file.read_text() + '[routing]\nstrategy = {name = "mics", bits = 5, gap = 4, max_ranges = 40}\n'
    )
    job.config = parse(job.file.read_text())
    ensure_topics(bootstrap, job.config.kafka.prefix, {"deliveries": Topic(partitions=1)})
    changes, publications = split(list(Workload("clustered", 200, 300).events(job.config)))
    try:
        job.start()
        send(job, changes)
        job.settle()
        job.kill()
        job.start()
        send(job, publications)
        job.settle()
        job.archive_settled()
        assert job.terminate() == 0
        shell = check_everything(job, changes + publications)
        check_states(job, shell)
        assert sum(row["false_positives"] for row in job.rows("metrics")) > 0
        assert {row["action"] for row in job.rows("decisions")} == {"forward", "withhold", "cancel", "drop"}
    finally:
        job.kill()
