"""`lacuna bench apply`: the pause of a running system that changes to another strategy, on a real Kafka and Spark.

A chain of five brokers, subscriptions in three attributes spread over all of them. The strategy of all links changes,
so everything that stands is decided again: most of it before the pause. The pause is from the moment when the router is
stopped to its first committed batch under the new configuration.

* `pause_seconds_100k` (at most 20): with 100,000 subscriptions.
* `pause_growth_100k_vs_10k` (at most 12): over the pause with 10,000.
* `pause_over_start` (at most 3): over a plain restart of the same job in the same session, stop to first batch, with
  100,000 subscriptions.

Every time is a median of several changes, to and fro.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from access.topics import ensure_topics
from bench.report import Report, Step, median
from lacuna.local import local_kafka, spark_jars
from producers.sender import Sender
from producers.workloads import Workload
from state.config import Config, parse
from state.protocol.commands import Apply
from streaming.pipeline import Engine, session
from streaming.service import Service

TEXT = """
[space]
x = {kind = "int", low = 0, high = 1000}
y = {kind = "int", low = 0, high = 1000}
z = {kind = "int", low = 0, high = 1000}
[overlay]
links = [["n1", "n2"], ["n2", "n3"], ["n3", "n4"], ["n4", "n5"]]
"""
STRATEGIES = ("cover", "auto")


def run(step: Step, *, quick: bool) -> Report:
    """The figures of a change; `quick` takes a tenth of the subscriptions."""
    report = Report("apply", quick=quick)
    many = 10_000 if quick else 100_000
    step("starting Kafka")
    with tempfile.TemporaryDirectory() as folder, local_kafka(Path(folder) / "kafka", 0) as bootstrap:
        engine = Engine(jars=spark_jars(), memory="4g")
        times = {count: Changing(step, Path(folder), bootstrap, engine, count).times(3) for count in (many // 10, many)}
        session(engine).stop()
    few, large = times[many // 10], times[many]
    report.add("pause_seconds_100k", large.pause, "at most 20")
    report.add("pause_growth_100k_vs_10k", large.pause / few.pause, "at most 12")
    report.add("pause_over_start", large.pause / large.restart, "at most 3")
    report.details["seconds"] = {
        str(count): {"pause": round(found.pause, 2), "restart": round(found.restart, 2), "whole": round(found.whole, 2)}
        for count, found in times.items()
    }
    return report


@dataclass(frozen=True)
class Times:
    """Seconds: of the pause, of a plain restart, and of a whole change with what is done before the pause."""

    pause: float
    restart: float
    whole: float


@dataclass
class Changing:
    """A system with so many subscriptions."""

    step: Step
    folder: Path
    bootstrap: str
    engine: Engine
    count: int

    def times(self, repeats: int) -> Times:
        """Change to and fro, and restart as often."""
        config = self._system()
        self.step(f"{self.count:,} subscriptions: beginning")
        service = self._start(config)
        pauses, restarts, wholes = [], [], []
        for repeat in range(repeats):
            self.step(f"{self.count:,} subscriptions: change {repeat + 1} of {repeats}")
            began = time.monotonic()
            service._apply(Apply(toml=_text(STRATEGIES[repeat % 2])))
            _first_batch(service)
            pauses.append(time.monotonic() - service.paused)
            wholes.append(time.monotonic() - began)
            began = time.monotonic()
            service.stop_queries()
            service = self._start(service.settings.config)
            restarts.append(time.monotonic() - began)
        service.stop_queries()
        return Times(median(pauses), median(restarts), median(wholes))

    def _system(self) -> Config:
        """Topics with the subscriptions in them; the first life begins with all of them in force."""
        name, home = f"apply{self.count}", self.folder / f"{self.count}"
        lake = f'[lake]\npath = "{home}/lake"\ncheckpoint = "{home}/checkpoint"\n'
        config = parse(f'{_text("auto")}[kafka]\nbootstrap = "{self.bootstrap}"\nprefix = "{name}"\n{lake}')
        ensure_topics(self.bootstrap, name, delivery_partitions=1)
        with Sender(config, check=False) as sender:
            for event in Workload("zipf", self.count, 0, cancelled=0.0).events(config):
                fields = {key: value for key, value in event.items() if key not in ("kind", "broker")}
                sender.send(event["kind"], event["broker"], fields)
        return config

    def _start(self, config: Config) -> Service:
        service = Service.of(config, self.engine, archive=False, tick_seconds=1)
        service.start()
        _first_batch(service)
        return service


def _text(strategy: str) -> str:
    return f'{TEXT}[routing]\nstrategy = "{strategy}"\n'


def _first_batch(service: Service) -> None:
    """Wait for the first batch of the query as it is now."""
    service.wait(lambda: service.query("router").lastProgress is not None)
