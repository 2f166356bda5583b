"""How the job is: what the queries, Kafka and the tables show, as numbers and as one word.

    queries ──lastProgress──▶ ┌───────┐ ──▶ /metrics  numbers for Prometheus
    Kafka   ──ends, each 5 s─▶│ Watch │ ──▶ /status   one object for `lacuna status` and the console
    lake    ──new rows───────▶└───────┘ ──▶ /healthz, /readyz

    starting ──first batch──▶ healthy ◀──▶ degraded (each with its reasons)

A watch may be there before the life is known, while Kafka is waited for; then `begin_life` tells it. The main loop
reports progress (`see`), and shows by that that it moves. A thread of its own samples Kafka and the lake
(`sample`), so that a Kafka that does not answer holds up nothing. The HTTP threads only read.

Lag in seconds is the age of the oldest sample of topic ends that a query has not reached: a lower bound of the age of
the oldest record that waits, exact to the 5 seconds between two samples.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from access.ends import TopicEnds
from access.errors import KafkaFailed, Unreachable
from access.offsets import Partition
from access.security import expiries
from state.errors import ConfigError
from streaming.added import Added
from streaming.exposition import Histogram, Metric, Sample
from streaming.paths import absolute, is_local
from streaming.settings import Settings
from streaming.tally import COLUMNS, Tally

EVERY = 5.0
"""Seconds between two samples."""
STUCK = 30.0
"""Seconds without a turn of the main loop after which the job counts as stuck."""
LATE = {"router": 30.0, "archive": 300.0}
"""Seconds of lag after which the job counts as degraded."""
READS = {"router": ("subscribe", "unsubscribe", "publish", "links", "control"), "archive": ("records",)}
EVENTS = ("subscribe", "unsubscribe", "publish")
BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
BACK = 100
RATE_SAMPLES = 7
"""Samples over which rates are computed: half a minute."""
HOTTEST = 3


@dataclass
class QueryWatch:
    """One query: its last batch, how far it has read, and the samples of topic ends that it has not reached."""

    durations: Histogram = field(default_factory=lambda: Histogram(BOUNDS))
    phases: dict[str, float] = field(default_factory=dict)
    batch: int | None = None
    committed: float = 0.0
    seconds: float = 0.0
    active: bool = True
    restarts: int = 0
    done: dict[Partition, int] = field(default_factory=dict)
    waiting: deque[tuple[float, dict[Partition, int]]] = field(default_factory=deque)

    def lag_records(self, ends: Mapping[Partition, int]) -> dict[str, int]:
        """Return how many records wait, by topic."""
        waits: Counter[str] = Counter()
        for part, end in ends.items():
            waits[part[0]] += max(0, end - self.done.get(part, 0))
        return dict(waits)

    def lag_seconds(self, now: float) -> float:
        """Return for how long at least the oldest record has been waiting."""
        while self.waiting and self._reached(self.waiting[0][1]):
            self.waiting.popleft()
        return now - self.waiting[0][0] if self.waiting else 0.0

    def _reached(self, ends: Mapping[Partition, int]) -> bool:
        return all(self.done.get(part, 0) >= end for part, end in ends.items())


class Watch:
    """The numbers of one job."""

    def __init__(self, settings: Settings, queries: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        self._clock, self._lock = clock, threading.RLock()
        self.queries = {name: QueryWatch() for name in queries}
        self.settings = settings
        self.tally = Tally(settings)
        self.began = self.moved = clock()
        self.kafka_down: float | None = None
        self._refusal: str | None = None
        self.troubles: dict[str, str] = {}
        """What else keeps the job from doing all of its work, by the query concerned."""
        self.refused_secrets: str | None = None
        """Why rotated secrets of Kafka are not taken up."""
        self.expiries: dict[str, float] = {}
        """The moment until which each certificate is valid, by file."""
        self._told: set[str] = set()
        self._ends: dict[str, dict[Partition, int]] = {}
        self._events: Counter[str] = Counter()
        self._samples: deque[tuple[float, dict[str, float], dict[str, int]]] = deque(maxlen=RATE_SAMPLES)
        topics = settings.topics
        names = [topics.of(name) for query in queries for name in READS[query]]
        self._kafka = TopicEnds(settings.config.kafka, names)
        lake = settings.config.lake.path
        self._metrics, self._rejects = Added(lake, "metrics", COLUMNS), Added(lake, "rejects", ["rule"])
        self._reads_lake = "archive" in queries
        if self._reads_lake:
            with suppress(Exception):  # a lake that is away is the archive's trouble, and is told there
                self._metrics.begin()
                self._rejects.begin()

    def begin_life(self, settings: Settings) -> None:
        """Go on with the settings of a new life."""
        with self._lock:
            self.settings = settings
            self.tally.begin_life(settings)

    # what is seen

    def move(self, pause: float = 0.0) -> None:
        """Note that the main loop moves, and that it may pause now for so many seconds, with work that takes long."""
        self.moved = self._clock() + pause

    def see(self, name: str, progress: Any, *, active: bool = True, restarts: int = 0) -> None:
        """Take the last progress of a query, if it is a new one."""
        with self._lock:
            query = self.queries[name]
            query.active, query.restarts = active, restarts
            if progress is None or progress["batchId"] == query.batch:
                return
            query.batch = int(progress["batchId"])
            query.seconds = progress["batchDuration"] / 1000
            query.committed = _moment(progress["timestamp"]) + query.seconds
            query.durations.add(query.seconds)
            for phase, millis in dict(progress["durationMs"]).items():
                query.phases[phase] = query.phases.get(phase, 0.0) + millis / 1000
            before = query.done or _flat(offsets_of(progress, "startOffset"))
            query.done = _flat(offsets_of(progress, "endOffset"))
            if name == "router":
                self._count_events(before, query.done)

    def _count_events(self, before: Mapping[Partition, int], after: Mapping[Partition, int]) -> None:
        """Count the events of a batch, and of batches before it whose progress was missed."""
        for kind in EVENTS:
            topic, starts = self.settings.topics.of(kind), self.settings.starts.get(kind, {})
            for part, end in after.items():
                if part[0] == topic:
                    begin = before.get(part, max(0, starts.get(str(part[1]), 0)))
                    self._events[kind] += max(0, end - begin)

    def miss_kafka(self, error: KafkaFailed) -> None:
        """Note that Kafka does not answer, or does not accept this job, as whoever tried it has found."""
        self.kafka_down = self.kafka_down or self._clock()
        self._refusal = None if isinstance(error, Unreachable) else str(error)

    def sample(self) -> None:
        """Ask Kafka for the ends of the topics, and the lake for new rows. Never raises because of them."""
        now = self._clock()
        try:
            ends = self._kafka.read()
        except KafkaFailed as error:
            self.miss_kafka(error)
        else:
            self.kafka_down = None
            self._sampled(now, ends)
        if self._reads_lake:
            self._read_lake()
        with suppress(ConfigError):  # a file that is gone is told by whoever connects next
            self.expiries = expiries(self.settings.config.kafka.security)
        with self._lock:
            self._samples.append((now, self._totals(), self.tally.carried()))

    def _sampled(self, now: float, ends: Mapping[Partition, int]) -> None:
        with self._lock:
            for name, query in self.queries.items():
                topics = {self.settings.topics.of(topic) for topic in READS[name]}
                self._ends[name] = {part: end for part, end in ends.items() if part[0] in topics}
                query.waiting.append((now, self._ends[name]))
                query.lag_seconds(now)

    def _read_lake(self) -> None:
        """Take the new rows. A lake that is away is the archive's trouble, and is told there."""
        with suppress(Exception), self._lock:
            if not self._samples:
                for row in self._metrics.before(BACK):
                    self.tally.add(row, count=False)
            for row in self._metrics.rows():
                self.tally.add(row)
            self.tally.rejects.update(str(row["rule"]) for row in self._rejects.rows())

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._kafka.close()

    # what that means

    @property
    def alive(self) -> bool:
        """Whether the main loop has moved of late."""
        return self._clock() - self.moved < STUCK

    @property
    def begun(self) -> bool:
        """Whether the router has done its first batch, as far as there is a router."""
        return all(query.batch is not None for name, query in self.queries.items() if name == "router")

    @property
    def ready(self) -> bool:
        """Whether the job does its work now."""
        active = all(query.active for query in self.queries.values())
        return self.begun and active and self.kafka_down is None and self.alive

    @property
    def reasons(self) -> dict[str, str]:
        """Why the job does not do all of its work as it should, by what is concerned."""
        now, found = self._clock(), {}
        if self.kafka_down is not None:
            away = f"Kafka at {self.settings.config.kafka.bootstrap} does not answer"
            found["kafka"] = f"{away} since {_hour(self.kafka_down)}" if self._refusal is None else self._refusal
        if self.refused_secrets is not None:
            found["secrets"] = f"the new secrets of Kafka are not taken up: {self.refused_secrets}"
        if not self.alive:
            found["loop"] = f"the main loop has not moved since {_hour(self.moved)}"
        with self._lock:
            for name, query in self.queries.items():
                if name in self.troubles:
                    found[name] = f"the {name}: {self.troubles[name]}"
                elif not query.active:
                    found[name] = f"the {name} does not run"
                elif query.batch is not None and (lag := query.lag_seconds(now)) > LATE[name]:
                    found[f"{name}'s lag"] = f"the {name} is {lag:.0f} s behind"
        return found

    def news(self) -> list[str]:
        """Return what has changed since the last call, as far as nobody else tells it: see `restarts` for that."""
        now = {about: reason for about, reason in self.reasons.items() if about not in self.queries}
        said = [f"degraded: {reason}" for about, reason in now.items() if about not in self._told]
        said += ["all is well again"] if self._told and not now else []
        self._told = set(now)
        return said

    @property
    def state(self) -> str:
        """`starting`, `healthy` or `degraded`."""
        if self.reasons:
            return "degraded"
        return "healthy" if self.begun else "starting"

    def status(self) -> dict[str, Any]:
        """Return everything that a person wants to know at a glance."""
        now = self._clock()
        with self._lock:
            return {
                "state": self.state,
                "reasons": list(self.reasons.values()),
                "version": version("lacuna"),
                "prefix": self.settings.topics.prefix,
                "epoch": self.settings.epoch,
                "uptime_seconds": round(now - self.began, 1),
                "kafka": {"bootstrap": self.settings.config.kafka.bootstrap, "up": self.kafka_down is None},
                "queries": {name: self._query_status(name, now) for name in self.queries},
                "per_second": self._rates(),
                "standing": sum(self.tally.standing.values()),
                "hottest": self._hottest(),
            }

    def _query_status(self, name: str, now: float) -> dict[str, Any]:
        query = self.queries[name]
        return {
            "active": query.active,
            "batch": query.batch,
            "lag_records": sum(query.lag_records(self._ends.get(name, {})).values()),
            "lag_seconds": round(query.lag_seconds(now), 1),
            "commit_age_seconds": round(now - query.committed, 1) if query.committed else None,
            "batch_seconds": round(query.seconds, 3),
            "restarts": query.restarts,
        }

    def _totals(self) -> dict[str, float]:
        refused = sum(self.tally.rejects.values())
        return {"in": sum(self._events.values()), "delivered": self.tally.delivered, "rejected": refused}

    def _rates(self) -> dict[str, float]:
        if len(self._samples) < 2:
            return dict.fromkeys(self._totals(), 0.0)
        (began, before, _), (ended, after, _) = self._samples[0], self._samples[-1]
        span = max(ended - began, 0.001)
        return {name: round((after[name] - before[name]) / span, 1) for name in after}

    def _hottest(self) -> list[str]:
        """Return the links that carried most within the last samples."""
        if not self._samples:
            return []
        before, after = self._samples[0][2], self._samples[-1][2]
        grown = {link: count - before.get(link, 0) for link, count in after.items()}
        return [link for link, count in sorted(grown.items(), key=lambda pair: (-pair[1], pair[0])) if count][:HOTTEST]

    # as metrics

    def metrics(self) -> list[Metric]:
        """Return everything that there is to expose."""
        with self._lock:
            return [*self._job_metrics(), *self._query_metrics(), *self.tally.metrics()]

    def _job_metrics(self) -> Iterator[Metric]:
        build = {"version": version("lacuna"), "epoch": str(self.settings.epoch)}
        yield Metric("build_info", "gauge", "Version and life of the system.", (Sample(build, 1),))
        up = Sample({}, self.kafka_down is None)
        yield Metric("kafka_up", "gauge", "Whether Kafka answers.", (up,))
        events = tuple(Sample({"kind": kind}, self._events[kind]) for kind in EVENTS)
        yield Metric("events_total", "counter", "Events read by the router, refused ones included.", events)
        disks = [(path, shutil.disk_usage(path)) for path in self._folders()]
        free = tuple(Sample({"mount": path}, disk.free) for path, disk in disks)
        yield Metric("disk_free_bytes", "gauge", "Room left on the disk of a folder.", free)
        size = tuple(Sample({"mount": path}, disk.total) for path, disk in disks)
        yield Metric("disk_size_bytes", "gauge", "Size of the disk of a folder.", size)
        ends = tuple(Sample({"file": file}, moment) for file, moment in self.expiries.items())
        yield Metric("certificate_expiry_timestamp_seconds", "gauge", "When a certificate expires.", ends)

    def _folders(self) -> list[str]:
        lake = self.settings.config.lake
        here = (absolute(path) for path in (lake.path, lake.checkpoint) if is_local(path))
        return [path for path in here if Path(path).exists()]

    def _query_metrics(self) -> Iterator[Metric]:
        now, queries = self._clock(), self.queries.items()

        def each(value: Callable[[QueryWatch], float]) -> tuple[Sample, ...]:
            return tuple(Sample({"query": name}, value(query)) for name, query in queries)

        yield Metric("query_up", "gauge", "Whether a query runs.", each(lambda q: q.active))
        yield Metric(
            "query_lag_records",
            "gauge",
            "Records that wait to be read.",
            tuple(
                Sample({"query": name, "topic": topic}, count)
                for name, query in queries
                for topic, count in sorted(query.lag_records(self._ends.get(name, {})).items())
            ),
        )
        lag = each(lambda q: q.lag_seconds(now))
        yield Metric("query_lag_seconds", "gauge", "For how long the oldest record has waited.", lag)
        committed = tuple(Sample({"query": name}, q.committed) for name, q in queries if q.committed)
        yield Metric("query_last_commit_timestamp_seconds", "gauge", "When a batch was last committed.", committed)
        durations = tuple(sample for name, q in queries for sample in q.durations.samples({"query": name}))
        yield Metric("query_batch_duration_seconds", "histogram", "How long a batch takes.", durations)
        spent = tuple(Sample({"query": n, "phase": phase}, s) for n, q in queries for phase, s in q.phases.items())
        yield Metric("query_phase_seconds_total", "counter", "Time spent in each phase of batches.", spent)
        again = each(lambda q: q.restarts)
        yield Metric("query_restarts_total", "counter", "How often a query was started again.", again)


def offsets_of(progress: Any, which: str) -> dict[str, dict[str, int]]:
    """Return the offsets at which a batch begins or ends, by topic and partition, of all sources."""
    found: dict[str, dict[str, int]] = {}
    for source in progress["sources"]:
        offsets = source[which]
        found |= (json.loads(offsets) if isinstance(offsets, str) else offsets) or {}
    return found


def _flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    return {(topic, int(part)): at for topic, parts in offsets.items() for part, at in parts.items()}


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _hour(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%H:%M:%S} UTC"
