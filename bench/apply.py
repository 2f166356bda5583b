"""`lacuna bench apply`: the pause of a running system that changes to another strategy, on a real Kafka and Spark.

A chain of five brokers, subscriptions in three attributes spread over all of them. The strategy of all links changes,
so everything that stands is decided again: most of it before the pause. The pause is from the moment when the router is
stopped to its first committed batch under the new configuration.

* `pause_seconds_100k` (at most 20): with 100,000 subscriptions, seconds of CPU time of all processes of the job.
* `pause_growth_100k_vs_10k` (at most 12): over the pause with 10,000.
* `pause_over_start` (at most 3): over a plain restart of the same job in the same session, stop to first batch, with
  100,000 subscriptions.

All three are of CPU time, which does not depend on what else the machine does; seconds by the clock are in the details.
Every time is a median of several changes, to and fro.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from access.topics import ensure_topics
from bench.report import Report, Step, median
from lacuna.local import local_kafka, spark_jars
from producers.sender import Sender
from producers.workloads import Workload
from state.config import Config, parse
from state.protocol.commands import Apply
from state.protocol.topics import Topic
from streaming.pipeline import Engine, session
from streaming.service import PAUSING, Service

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
    report.add("pause_seconds_100k", large.pause.cpu, "at most 20")
    report.add("pause_growth_100k_vs_10k", large.pause.cpu / few.pause.cpu, "at most 12")
    report.add("pause_over_start", large.pause.cpu / large.restart.cpu, "at most 3")
    for name in ("cpu", "clock"):
        report.details[f"seconds_{name}"] = {
            str(count): {what: round(getattr(getattr(found, what), name), 2) for what in ("pause", "restart", "whole")}
            for count, found in times.items()
        }
    return report


@dataclass(frozen=True)
class Moment:
    """A moment, or the time between two: by the clock, and as CPU time of this process and all below it."""

    clock: float
    cpu: float

    @classmethod
    def now(cls) -> Moment:
        """Return the present."""
        return cls(time.monotonic(), cpu_seconds())

    def since(self, earlier: Moment) -> Moment:
        """Return the time between."""
        return Moment(self.clock - earlier.clock, self.cpu - earlier.cpu)


@dataclass(frozen=True)
class Times:
    """Times of the pause, of a plain restart, and of a whole change with what is done before the pause."""

    pause: Moment
    restart: Moment
    whole: Moment


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
            began, paused = Moment.now(), _moment_of_pause(service)
            refused = service._apply(Apply(toml=_text(STRATEGIES[repeat % 2])))
            assert not refused, refused
            _first_batch(service)
            pauses.append(Moment.now().since(paused[-1]))
            wholes.append(Moment.now().since(began))
            began = Moment.now()
            service.stop_queries()
            service = self._start(service.settings.config)
            restarts.append(Moment.now().since(began))
        service.stop_queries()
        return Times(_median(pauses), _median(restarts), _median(wholes))

    def _system(self) -> Config:
        """Topics with the subscriptions in them; the first life begins with all of them in force."""
        name, home = f"apply{self.count}", self.folder / f"{self.count}"
        lake = f'[lake]\npath = "{home}/lake"\ncheckpoint = "{home}/checkpoint"\n'
        config = parse(f'{_text("auto")}[kafka]\nbootstrap = "{self.bootstrap}"\nprefix = "{name}"\n{lake}')
        ensure_topics(self.bootstrap, name, {"deliveries": Topic(partitions=1)})
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


def _median(times: list[Moment]) -> Moment:
    return Moment(median([one.clock for one in times]), median([one.cpu for one in times]))


def _moment_of_pause(service: Service) -> list[Moment]:
    """Return a list to which the moment is added at which the service pauses, which it says."""
    found: list[Moment] = []
    service.say = lambda text: found.append(Moment.now()) if text == PAUSING else None
    return found


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all that it has started, those that have ended included."""
    ticks, waiting = 0, deque([os.getpid()])
    while waiting:
        folder = Path(f"/proc/{waiting.popleft()}")
        with suppress(OSError):  # it has ended meanwhile, and is counted by its parent
            ticks += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15]))
            for children in folder.glob("task/*/children"):
                waiting += map(int, children.read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK")


def _first_batch(service: Service) -> None:
    """Wait for the first batch of the query as it is now."""
    service.wait(lambda: service.query("router").lastProgress is not None)
