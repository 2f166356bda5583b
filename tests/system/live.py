"""A real job as a process of its own, looked at from outside: its checkpoint, its topics, its tables.

Nothing here waits for seconds: it waits until the checkpoint says that everything in the topics has been committed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pytest
from kafka import KafkaConsumer, TopicPartition

from access.offsets import topic_spans
from state.config import Config, parse
from state.protocol.topics import Topics
from state.storage.tables import TABLES
from streaming.life import Folder, known
from tests.core.shell import INPUTS, Record, Shell

PATIENCE = 240.0
PROGRAM = str(Path(sys.executable).parent / "lacuna")
CONFIG = """
[space]
price = {{ kind = "float", low = 0.0, high = 1000.0 }}
volume = {{ kind = "int", low = 0, high = 100000 }}
symbol = {{ kind = "category", values = ["AAPL", "IBM", "MSFT"] }}
[overlay]
links = [["paris", "oslo"], ["paris", "rome"], ["paris", "wien"], ["wien", "praha"]]
regions = [["paris", "oslo", "rome"], ["wien", "praha"]]
[kafka]
bootstrap = "{bootstrap}"
prefix = "{prefix}"
[lake]
path = "{home}/lake"
checkpoint = "{home}/checkpoint"
metrics_every = 0
"""


def text_at(bootstrap: str, prefix: str, home: Path) -> str:
    """The configuration of a job."""
    return CONFIG.format(bootstrap=bootstrap, prefix=prefix, home=home)


def infra(*args: str) -> dict[str, Any]:
    """Call a program of `infra/`."""
    done = subprocess.run([sys.executable, "-m", *args, "--json"], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def wait_until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition, or fail saying which."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience:.0f} s: {what}"
        time.sleep(0.05)  # between two looks at a condition


@contextmanager
def disk_of(folder: Path, size: str) -> Iterator[Path]:
    """A folder on a file system of its own with this size; only the superuser can make one."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("a file system can be mounted only by the superuser")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


class Job:
    """`lacuna run` in a process of its own, on a home folder of its own."""

    def __init__(self, home: Path, bootstrap: str, prefix: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.file = home / "lacuna.toml"
        self.file.write_text(text_at(bootstrap, prefix, home))
        self.config: Config = parse(self.file.read_text())
        self.process: subprocess.Popen[str] | None = None

    def route(self, strategy: str) -> None:
        """Choose the strategy of all links, before the job is started."""
        self.file.write_text(f"{self.file.read_text()}[routing]\nstrategy = {strategy}\n")
        self.config = parse(self.file.read_text())

    def start(self, *options: str, wait: bool = True, tick: float = 0) -> None:
        """Start the job; with `wait`, until it says that it is running."""
        keep = "spark.sql.streaming.minBatchesToRetain=10000"
        always = ("--config", str(self.file), "--json", "--tick", str(tick), "--conf", keep)
        command = [PROGRAM, "run", *always, *options]
        with (self.home / "job.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        if wait:
            self._await_running()

    def _await_running(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the job ended at once: {self.log()[-2000:]}"
        assert json.loads(line)["running"]

    def apply(self, *options: str, code: int = 0) -> dict[str, Any]:
        """Begin a new life of the job; what `lacuna apply` says, which ends with this code."""
        command = [PROGRAM, "apply", "--config", str(self.file), "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == code, done.stderr[-3000:]
        return dict(json.loads(done.stdout))

    def ended(self) -> str:
        """Wait until the job has ended by itself, as a failure; what it said last."""
        assert self.process is not None
        assert self.process.wait(timeout=PATIENCE) == 2
        return self.log().strip().splitlines()[-1]

    def log(self) -> str:
        return (self.home / "job.log").read_text()

    def kill(self) -> None:
        """kill -9, with all its children: Java and the Python workers."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE)

    # what the checkpoint says

    def spark_folder(self, query: str) -> Path:
        """Spark's checkpoint of a query; that of the router belongs to the newest life."""
        folder, lives = self.home / "checkpoint", Folder(str(self.home / "checkpoint"))
        epochs = lives.epochs()
        return Path(lives.of(epochs[-1])) / query if query == "router" and epochs else folder / query

    def batches(self, query: str) -> list[int]:
        """The batches that were planned."""
        folder = self.spark_folder(query) / "offsets"
        return sorted(int(p.name) for p in folder.glob("*") if p.name.isdigit()) if folder.exists() else []

    def committed(self, query: str) -> list[int]:
        folder = self.spark_folder(query) / "commits"
        return sorted(int(p.name) for p in folder.glob("*") if p.name.isdigit()) if folder.exists() else []

    def plan(self, query: str, batch: int) -> tuple[int, dict[str, dict[str, int]]]:
        """The moment (milliseconds) and the end offsets of a planned batch."""
        lines = (self.spark_folder(query) / "offsets" / str(batch)).read_text().splitlines()
        ends: dict[str, dict[str, int]] = {}
        for source in lines[2:]:
            ends |= json.loads(source)
        return int(json.loads(lines[1])["batchTimestampMs"]), ends

    def topic(self, name: str) -> str:
        return Topics(self.config.kafka.prefix).of(name)

    def quiet(self) -> bool:
        """Everything in the router's topics is in a committed batch."""
        return self._caught_up("router", INPUTS)

    def archived(self) -> bool:
        return self._caught_up("archive", ("records",))

    def _caught_up(self, query: str, names: tuple[str, ...]) -> bool:
        assert self.process is None or self.process.poll() is None, f"the job died: {self.log()[-3000:]}"
        planned, committed = self.batches(query), self.committed(query)
        if not planned or not committed or planned[-1] != committed[-1]:
            return False
        spans = topic_spans(self.config.kafka.bootstrap, [self.topic(name) for name in names])
        done = self.plan(query, planned[-1])[1]
        reached = all(done.get(topic, {}).get(str(part), 0) >= span.next for (topic, part), span in spans.items())
        return reached and self.batches(query)[-1] == planned[-1]

    def settle(self) -> None:
        wait_until(self.quiet, "the overlay is quiet")

    def archive_settled(self) -> None:
        self.settle()
        wait_until(self.archived, "the archive has caught up")

    # what it wrote

    def rows(self, table: str) -> list[dict[str, Any]]:
        found = deltalake.DeltaTable(f"{self.config.lake.path}/{table}").to_pyarrow_table()
        return list(found.to_pylist())

    def replay(self) -> Shell:
        """The same batches through the same functions, without Spark, Kafka and crashes."""
        shell = Shell(self.config)
        shell.settings = known(self.config)
        inputs = {self.topic(name): read_topic(self.config.kafka.bootstrap, self.topic(name)) for name in INPUTS}
        shell.inputs = inputs
        shell.begin(read_topic(self.config.kafka.bootstrap, self.topic("records")))
        for batch in self.committed("router"):
            moment, ends = self.plan("router", batch)
            shell.run_planned(batch, {t: ends.get(t, {}).get("0", 0) for t in inputs}, moment * 1000)
        return shell


def read_topic(bootstrap: str, topic: str) -> list[Record]:
    """All records of all partitions."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        parts = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends = consumer.end_offsets(parts)
        found = []
        while any(consumer.position(part) < ends[part] for part in parts):
            for records in consumer.poll(timeout_ms=500).values():
                found += [Record(r.timestamp * 1000, r.key, r.value or b"", _headers(r.headers)) for r in records]
        return found
    finally:
        consumer.close()


def _headers(headers: Any) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in headers] or None


UNLIKE = ("millis", "state_bytes", "written")
"""Columns that a clock measured."""


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    """Rows without what a clock measured, sorted: the same for a run and its replay."""
    return sorted(repr({k: v for k, v in sorted(row.items()) if k not in UNLIKE}) for row in rows)


def check_tables(job: Job, shell: Shell) -> None:
    """Every table of the lake holds exactly the rows of the replay: none missing, none twice."""
    expected = shell.tables()
    for table in TABLES:
        assert comparable(job.rows(table)) == comparable(expected[table]), table
