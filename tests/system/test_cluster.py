"""The job through `spark-submit` on a real cluster: a master, a worker, executors in processes of their own.

One machine plays all parts; what differs from `lacuna run` on it is what matters: the code travels to executors that
know nothing of the driver, and the tables are written by Spark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import deltalake
import pyspark
import pytest

from access.topics import ensure_topics
from producers.workloads import Workload
from state.protocol.topics import Topic
from tests.system.live import Job, infra, wait_until
from tests.system.test_live import check_everything, send, split
from tests.system.test_refusals import closed_port

pytestmark = pytest.mark.system

SPARK = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[2]
HERE = "127.0.0.1"
ENV = os.environ | {
    "SPARK_HOME": str(SPARK),
    "SPARK_LOCAL_IP": HERE,
    "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
}


@contextmanager
def process(log: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A process and its children, which end with the context."""
    with log.open("w") as file:
        started = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=ENV
        )
    try:
        yield started
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and a worker with two cores; the master's address."""
    address = f"spark://{HERE}:{(port := closed_port())}"
    daemon = (str(SPARK / "bin" / "spark-class"),)
    ports = ("--host", HERE, "--webui-port", "0")
    master = (*daemon, "org.apache.spark.deploy.master.Master", *ports, "--port", str(port))
    options = ("--cores", "2", "--memory", "1500m", "-d", str(folder / "work"))
    worker = (*daemon, "org.apache.spark.deploy.worker.Worker", *ports, *options, address)
    with ExitStack() as stack:
        stack.enter_context(process(folder / "master.log", *master))
        wait_until(lambda: "New state: ALIVE" in (folder / "master.log").read_text(), "the master is there")
        stack.enter_context(process(folder / "worker.log", *worker))
        wait_until(lambda: "registered with master" in (folder / "worker.log").read_text(), "the worker is there")
        yield address


def test_a_cluster_gives_the_same_as_one_machine(tmp_path: Path) -> None:
    kafka = str(tmp_path / "kafka")
    bootstrap = infra("infra.kafka", "start", "--home", kafka, "--port", "0")["bootstrap"]
    try:
        with cluster(tmp_path) as master:
            run(Job(tmp_path, bootstrap, "cluster"), master)
    finally:
        infra("infra.kafka", "stop", "--home", kafka)


def run(job: Job, master: str) -> None:
    ensure_topics(job.config.kafka.bootstrap, job.config.kafka.prefix, {"deliveries": Topic(partitions=1)})
    changes, publications = split(list(Workload("zipf", 60, 60).events(job.config)))
    jars = ",".join(infra("infra.fetch", "spark")["spark"]["jars"])
    submit = (str(SPARK / "bin" / "spark-submit"), "--master", master, "--jars", jars)
    memory = ("--conf", "spark.executor.memory=1g", "--conf", f"spark.driver.host={HERE}")
    keep = ("--conf", "spark.sql.streaming.minBatchesToRetain=10000", "--tick", "0")
    program = (str(ROOT / "infra" / "cluster" / "lacuna_job.py"), "run", "--config", str(job.file))
    log = job.home / "job.log"
    with process(log, *submit, *memory, *program, "--master", "submit", "--json", *keep) as submitted:
        wait_until(lambda: '"running": true' in log.read_text() or submitted.poll() is not None, "the job runs")
        assert submitted.poll() is None, log.read_text()[-3000:]
        assert "StackOverflowError" in log.read_text(), "small stacks are noticed"
        send(job, changes)
        job.settle()
        send(job, publications)
        job.archive_settled()
        os.kill(driver(log), signal.SIGTERM)
        assert submitted.wait(timeout=120) == 0
    check_everything(job, changes + publications)
    commits = deltalake.DeltaTable(f"{job.config.lake.path}/decisions").history()
    assert any("Spark" in str(commit.get("engineInfo")) for commit in commits)


def driver(log: Path) -> int:
    """The process that runs the job, by what it said when it was running."""
    line = next(line for line in log.read_text().splitlines() if line.startswith('{"running"'))
    return int(json.loads(line)["pid"])
