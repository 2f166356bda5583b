"""`lacuna bench scale`: a million subscriptions at one broker, and what a system writes while nothing happens.

The broker has clients and four links, all in one region, with `[engine] state = "map"`. The core makes its state in a
process of its own (`bench.takeover`). A life on a real Kafka and Spark begins from it, as lives do that `lacuna apply`
has prepared. Where a figure is for each subscription and link, the clients' side counts as a link: five in all.

* `batch_growth_1m_vs_1k` (at most 2): seconds per batch of 1,000 events (900 publications, 100 subscribes) with a
  million and with a thousand subscriptions.
* `start_growth_1m_vs_1k`: seconds from the start of a router, in a session that runs, to the end of its first batch.
* `takeover_us_per_subscription` (at most 4): CPU of a worker that opens the region for the first time, for each
  subscription and link.
* `bytes_per_subscription` (at most 400): memory of the copy that this makes, for each subscription and link.
* `subscribe_vs_pass_through` (at least 0.5): a burst of 100,000 subscriptions at a broker without links; the events per
  second of its batch over those of a pass-through batch of the same events. The details have it with four links.
* `catch_up_growth_100k_vs_1k` (at most 2): CPU for each change by which a worker's copy is behind, where four workers
  take turns, with 100,000 and with 1,000 subscriptions.
* `idle_bytes_per_day`, `idle_files_per_day`: growth of checkpoint, Kafka and lake of a system that is left alone,
  between two looks, extended to a day. The details tell them apart.

The details also have a model of cost, fitted and checked (`bench.model`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import model
from bench.report import Report, Step, median
from bench.router import Bench, send, send_at_once, sparse, workers
from bench.takeover import ALONE, HUB, LINKS, elsewhere
from lacuna.local import local_kafka, spark_jars
from producers.workloads import Workload
from state.config import Config
from streaming.begin import ends_of, new_life
from streaming.evidence import gather
from streaming.holder import Holder
from streaming.life import Folder, stored_of
from streaming.pipeline import Engine, session
from streaming.service import Service

FEW, SOME = 1_000, 100_000
MAP = '[engine]\nstate = "map"\n'
DAY = 86_400
WARM = 3
"""Batches before those that count: each worker takes the region over, and loads its kernels."""


def run(step: Step, *, quick: bool) -> Report:
    """All figures; `quick` takes a tenth of the subscriptions."""
    report = Report("scale", quick=quick)
    scale = 10 if quick else 1
    with tempfile.TemporaryDirectory() as folder:
        count = 1_000_000 // scale
        few_there, some_there, many_there = _prepare(step, Path(folder), FEW, SOME // scale, count)
        _take_over(report, step, count, many_there)
        _take_turns(report, step, few_there, some_there)
        step("fitting a model of cost")
        report.details["model"] = model.measured()
        step("starting Kafka")
        with local_kafka(Path(folder) / "kafka", 0) as bootstrap:
            engine = Engine(jars=spark_jars(), most_records=200_000, memory="3g")
            bench = Scale(report, step, Path(folder), bootstrap, engine, 3 if quick else 5)
            few, many = bench.batches("few", few_there), bench.batches("many", many_there)
            report.add("batch_growth_1m_vs_1k", many["batch"] / few["batch"], "at most 2")
            report.add("start_growth_1m_vs_1k", many["start"] / few["start"])
            report.details["router"] = {"few": few, "many": many}
            session(engine).stop()  # with its workers, which hold what is of no use any more
            bench.burst(100_000 // scale)
            bench.idle(60, 30 if quick else 60)
            session(engine).stop()
    return report


def _prepare(step: Step, folder: Path, *counts: int) -> list[Path]:
    files = [folder / f"state-{count}" for count in counts]
    for count, file in zip(counts, files, strict=True):
        step(f"preparing {count:,} subscriptions")
        elsewhere("prepare", str(count), str(file))
    return files


def _take_over(report: Report, step: Step, count: int, many: Path) -> None:
    """Open a state as a worker does, in the core alone."""
    step(f"taking over {count:,} subscriptions")
    opened, entries = elsewhere("open", str(many)), count * (LINKS + 1)
    report.add("takeover_us_per_subscription", opened["seconds"] * 1e6 / entries, "at most 4")
    report.add("bytes_per_subscription", opened["bytes"] / entries, "at most 400")
    report.details["taken_over"] = {"subscriptions": count, "stored_bytes": many.stat().st_size, **opened}


def _take_turns(report: Report, step: Step, few: Path, some: Path) -> None:
    """Let four workers take turns, in the core alone."""
    step("four workers in turn")
    turns = {name: elsewhere("turns", str(file)) for name, file in (("few", few), ("some", some))}
    growth = turns["some"]["catch_up_us_per_change"] / turns["few"]["catch_up_us_per_change"]
    report.add("catch_up_growth_100k_vs_1k", growth, "at most 2")
    report.details["workers_in_turn"] = turns


class Scale(Bench):
    """The systems of this benchmark, one after another."""

    def batches(self, name: str, state: Path) -> dict[str, Any]:
        """Return the seconds of a batch of 1,000 events, of a start, and the memory of the workers."""
        self.step(f"measuring with {name} subscriptions")
        config = self.config(HUB + MAP, name)
        self._begin_from(config, state.read_bytes())
        with self.service(config) as service:
            service.wait(service.quiet)
            times = [self._largest_batch(config, service, changes(config, name, k)) for k in range(self.repeats + WARM)]
            sizes = sorted(workers().values())
        start = self._start(config)
        return {
            "batch": round(median(times[WARM:]), 3),
            "batches": [round(seconds, 3) for seconds in times],
            "start": round(start, 2),
            "worker_mb": [size >> 20 for size in sizes],
        }

    def _begin_from(self, config: Config, state: bytes) -> None:
        """Make and announce a life whose region begins from this state."""
        holder = Holder(config, self.step)
        try:
            facts = gather(config, holder.watch(), self.engine.partitions)
            settings = new_life(config, self.engine, facts)
            stored = stored_of(settings, self.engine.partitions, "prepared", facts.ids, seeded=True)
            holder.claim()
            Folder(config.lake.checkpoint).write(stored, {part.name: state for part in settings.parts}, ())
            holder.announce(settings.epoch, "prepared", ends_of(config))
            holder.release(settings.epoch, -1, {})
        finally:
            holder.close()

    def _start(self, config: Config) -> float:
        """Return the seconds from a start to the end of the first batch, where a publication waits."""
        send_at_once(config, sparse(1, "start", 0))
        began = time.monotonic()
        with self.service(config) as service:
            service.wait(service.quiet)
            return time.monotonic() - began

    def burst(self, count: int) -> None:
        """Very many subscriptions in one batch, in turns with the pass-through."""
        alone, linked = self._rate(ALONE, "alone", count), self._rate(HUB, "linked", count)
        self.report.add("subscribe_vs_pass_through", alone["ratio"], "at least 0.5")
        self.report.details["burst"] = {"events": count, "alone": alone, "four_links": linked}

    def _rate(self, text: str, name: str, count: int) -> dict[str, float]:
        self.step(f"subscribing {count:,} at once, {name}")
        config = self.config(text + MAP, f"burst-{name}")
        ours, plain = [], []
        with self.service(config) as service, self.plain(text, f"plain-{name}") as other:
            for repeat in range(3):
                events = burst(config, count, repeat)
                ours.append(self._largest_batch(config, service, events))
                plain.append(other.seconds(events))
        return {
            "ratio": round(median(p / o for p, o in zip(plain[1:], ours[1:], strict=True)), 4),
            "events_per_s": round(count / median(ours[1:])),
            "pass_through_events_per_s": round(count / median(plain[1:])),
        }

    def idle(self, settle: float, seconds: float) -> None:
        """Leave a system alone that has had a few events."""
        self.step("leaving a system alone")
        config = self.config(HUB + MAP, "idle")
        service = Service.of(config, self.engine)
        service.start()
        try:
            send(config, changes(config, "idle", 0))
            service.wait(service.archived)
            time.sleep(settle)
            before = self._look(config)
            time.sleep(seconds)
            grown = {place: after - before[place] for place, after in self._look(config).items()}
        finally:
            service.stop_queries()
        places = {
            place: {"files": n.files, "bytes": n.bytes, "files_per_day": round(grown[place].files * DAY / seconds)}
            | {"bytes_per_day": round(grown[place].bytes * DAY / seconds)}
            for place, n in before.items()
        }
        self.report.add("idle_files_per_day", sum(place["files_per_day"] for place in places.values()))
        self.report.add("idle_bytes_per_day", sum(place["bytes_per_day"] for place in places.values()))
        self.report.details["idle"] = places

    def _look(self, config: Config) -> dict[str, Taken]:
        log = self.folder / "kafka"
        topics = [path for path in log.rglob("*") if path.is_dir() and path.name.startswith("idle.")]
        return {
            "checkpoint": taken(Path(config.lake.checkpoint)),
            "lake": taken(Path(config.lake.path)),
            "topics": sum((taken(path) for path in topics), Taken(0, 0)),
            "kafka_itself": taken(log) - sum((taken(path) for path in topics), Taken(0, 0)),
        }


@dataclass(frozen=True)
class Taken:
    """Files, and the bytes in them."""

    files: int
    bytes: int

    def __add__(self, other: Taken) -> Taken:
        return Taken(self.files + other.files, self.bytes + other.bytes)

    def __sub__(self, other: Taken) -> Taken:
        return Taken(self.files - other.files, self.bytes - other.bytes)


def taken(folder: Path) -> Taken:
    """Return what a folder takes on disk. Files that Kafka makes ahead of time count by what is in them."""
    sizes = list(_sizes(folder))
    return Taken(len(sizes), sum(sizes))


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                there = path.stat()
                yield min(there.st_size, there.st_blocks * 512)
        except FileNotFoundError:
            continue


def changes(config: Config, tag: str, repeat: int) -> list[dict[str, Any]]:
    """Return 1,000 events at the hub: 100 subscribes, 900 publications."""
    workload = Workload("zipf", 100, 0, cancelled=0.0, seed=repeat + 100)
    asked = [{**e, "broker": "hub", "id": f"{tag}{repeat}{e['id']}"} for e in workload.events(config)]
    return [*asked, *sparse(900, f"{tag}{repeat}", repeat)]


def burst(config: Config, count: int, repeat: int) -> list[dict[str, Any]]:
    """Return so many subscriptions at the hub."""
    workload = Workload("zipf", count, 0, cancelled=0.0, seed=repeat)
    return [{**e, "broker": "hub", "id": f"{repeat}{e['id']}"} for e in workload.events(config)]
