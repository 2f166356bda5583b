"""`lacuna bench days`: thirty days of a small system, compressed, and what is left behind at the end of each.

Each day brings publications, subscriptions that are made, replaced and cancelled so that as many stand as the day
before, a compaction of the tables, and letters that are trimmed; every ten days the job starts again. Time does not
pass: there are fewer batches and ticks than in thirty days, and old files are removed at once, not after a week of time
travel.

Figures are the last third of the days over the second: 1 is flat.

* `checkpoint_files`, `checkpoint_bytes`: all that is below `lake.checkpoint`.
* `links_records`: letters that Kafka still has.
* `lake_files`: files with rows of all tables.
* `memory_driver`, `memory_workers`: resident memory of the Java process, and of Spark's Python processes.
* `lake_bytes_a_day`, `records_bytes_a_day`: what was asked to be kept grows by as much each day.
* `log_files_a_day`, `control_bytes_a_day`: the tables' logs go after seven days, and Kafka compacts `control` after as
  many; as these do not pass here, both grow by as much each day, too.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from access.offsets import topic_spans
from access.topics import ensure_topics
from bench.faults.system import below, is_worker
from bench.report import Report, Step
from lacuna.local import local_kafka, spark_jars
from producers.sender import Sender
from state.config import Config, parse
from state.protocol.topics import Topic
from streaming.pipeline import Engine, session
from streaming.service import Service

TEXT = """
[space]
price = {kind = "float", low = 0.0, high = 1000.0}
volume = {kind = "int", low = 0, high = 100000}
symbol = {kind = "category", values = ["AAPL", "IBM", "MSFT"]}
[overlay]
links = [["n1", "n2"], ["n2", "n3"], ["n3", "n4"]]
regions = [["n1", "n2"], ["n3", "n4"]]
"""
STANDING = 300
"""Subscriptions."""
PORTIONS = 10
"""A day's events come in so many portions, each of which the router does before the next."""
GROWING = ("lake_bytes", "records_bytes", "log_files", "control_bytes")
"""What is kept for longer than the run takes."""


def run(step: Step, *, quick: bool) -> Report:
    """Measure; `quick` takes six short days."""
    report = Report("days", quick=quick)
    days, publications, changes = (6, 1_000, 60) if quick else (30, 10_000, 200)
    with tempfile.TemporaryDirectory(prefix="lacuna-days-") as folder, local_kafka(Path(folder) / "kafka", 0) as at:
        engine = Engine(jars=spark_jars(), memory="1g")
        system = Days(Path(folder), at, engine, publications, changes)
        seen = []
        for day in range(days):
            step(f"day {day + 1} of {days}")
            seen.append(system.live(day, again=day % 10 == 9))
        system.stop()
        session(engine).stop()
    for name in seen[0]:
        kept = name in GROWING
        report.add(f"{name}_a_day" if kept else name, growth([one[name] for one in seen], kept=kept), "at most 1.1")
    report.details = {
        "publications": days * publications,
        "changes": days * changes,
        "standing": STANDING,
        "batches": system.batches,
        "days": seen,
    }
    return report


def growth(values: list[float], *, kept: bool) -> float:
    """Return the last third over the second; of what is kept, by how much it grows in each.

    >>> growth([1, 1, 2, 2, 2, 2], kept=False), growth([1, 2, 3, 4, 5, 6], kept=True)
    (1.0, 1.0)
    """
    third = len(values) // 3
    second, last = values[third : 2 * third], values[-third:]
    if kept:
        begin = values[third - 1]
        return (last[-1] - second[-1]) / max(1, second[-1] - begin)
    return sum(last) / max(1, sum(second))


class Days:
    """A system, and what its clients do."""

    def __init__(self, folder: Path, bootstrap: str, engine: Engine, publications: int, changes: int) -> None:
        self._folder, self._engine = folder, engine
        self._publications, self._changes = publications, changes
        lake = f'[lake]\npath = "{folder}/lake"\ncheckpoint = "{folder}/checkpoint"\n'
        self._file = folder / "lacuna.toml"
        self._file.write_text(f'{TEXT}[kafka]\nbootstrap = "{bootstrap}"\nprefix = "days"\n{lake}')
        self.config: Config = parse(self._file.read_text())
        ensure_topics(bootstrap, "days", {"deliveries": Topic(partitions=1)})
        self._chance = random.Random(30)
        self.batches = 0
        self._send(self._subscribe(k) for k in range(STANDING))
        self._service = self._start()

    def live(self, day: int, *, again: bool) -> dict[str, float]:
        """Live through a day; at its end the job may start `again`. Return what is left behind then."""
        for portion in range(PORTIONS):
            self._send(self._events(day, portion))
            self._service.wait(self._service.quiet)
        self._service.wait(self._service.archived)
        self._service.trim_links()
        self._maintain()
        if again:
            self.stop()
            self._service = self._start()
        return self._look()

    def stop(self) -> None:
        """Stop the job; Spark stays."""
        self.batches += self._service.reached()[0]
        self._service.stop_queries()

    def _start(self) -> Service:
        service = Service.of(self.config, self._engine, tick_seconds=1)
        service.start()
        service.wait(lambda: service.watch.begun)
        return service

    def _maintain(self) -> None:
        """Do what the job does by itself every day."""
        maintain = ("archive", "maintain", "--retention-hours", "0", "--config", str(self._file))
        subprocess.run([sys.executable, "-m", "lacuna", *maintain], capture_output=True, check=True)

    # clients

    def _send(self, events: Iterable[dict[str, Any]]) -> None:
        with Sender(self.config, check=False) as sender:
            for event in events:
                fields = {key: value for key, value in event.items() if key not in ("kind", "broker")}
                sender.send(event["kind"], event["broker"], fields)

    def _events(self, day: int, portion: int) -> Iterable[dict[str, Any]]:
        for _ in range(self._changes // PORTIONS):
            k = self._chance.randrange(STANDING)
            if self._chance.random() < 0.5:
                yield {"kind": "unsubscribe", **self._name(k)}
            yield self._subscribe(k)
        for k in range(self._publications // PORTIONS):
            broker, id = self._chance.choice(self.config.overlay.brokers), f"{day}-{portion}-{k}"
            symbol = self._chance.choice(["AAPL", "IBM", "MSFT"])
            at = {"price": self._chance.uniform(0, 1000), "volume": self._chance.randrange(100000), "symbol": symbol}
            yield {"kind": "publish", "broker": broker, "id": id, "at": at, "payload": "x" * 100}

    def _name(self, k: int) -> dict[str, Any]:
        return {"broker": self.config.overlay.brokers[k % 4], "client": f"c{k % 20}", "id": f"s{k}"}

    def _subscribe(self, k: int) -> dict[str, Any]:
        low = self._chance.uniform(0, 900)
        where = {"price": [low, low + self._chance.uniform(1, 30)], "volume": [0, self._chance.randrange(1, 100000)]}
        return {"kind": "subscribe", **self._name(k), "where": where, "ttl": 30 * 86400}

    # what is left behind

    def _look(self) -> dict[str, float]:
        checkpoint, lake = files_below(self._folder / "checkpoint"), self._folder / "lake"
        return {
            "checkpoint_files": len(checkpoint),
            "checkpoint_bytes": sum(checkpoint),
            "links_records": self._records("links"),
            "control_bytes": self._bytes("control"),
            "lake_files": len(files_below(lake, "*.parquet")) - len(files_below(lake, "_delta_log/*.parquet")),
            "log_files": len(files_below(lake, "_delta_log/*")),
            "lake_bytes": sum(files_below(lake)),
            "records_bytes": self._bytes("records"),
            "memory_driver": sum(memory_of(pid) for pid in below_this() if is_java(pid)),
            "memory_workers": sum(memory_of(pid) for pid in below_this() if is_worker(pid)),
        }

    def _records(self, topic: str) -> int:
        spans = topic_spans(self.config.kafka.bootstrap, [f"days.{topic}"])
        return sum(span.next - span.first for span in spans.values())

    def _bytes(self, topic: str) -> int:
        data = self._folder / "kafka" / "data"
        return sum(file.stat().st_size for file in data.glob(f"days.{topic}-*/*.log"))


def files_below(folder: Path, pattern: str = "*") -> list[int]:
    """Return the sizes of all files of a pattern; some may go meanwhile."""
    sizes = []
    for file in folder.rglob(pattern):
        with suppress(OSError):
            sizes += [file.stat().st_size] if file.is_file() else []
    return sizes


def below_this() -> list[int]:
    """Return the processes that this one has started, and those that they have."""
    return list(below(os.getpid()))


def is_java(pid: int) -> bool:
    """Tell whether a process is Spark's driver."""
    with suppress(OSError):
        return b"SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def memory_of(pid: int) -> int:
    """Return the resident memory of a process in bytes; shared pages count for each."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0
