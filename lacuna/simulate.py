"""`lacuna simulate`: the core alone, on a file of events, deterministic and fast.

One region that is the whole overlay takes the lines of a file as arrivals on one channel. Between two of them it is run
until quiet; with a seed, arrivals and inner messages are interleaved at random, each channel in order, the same for the
same seed.

Time is the time of the events: the clock stands at the latest `time` seen so far, and an event without one happens at
that moment. A subscription's time to live passes as that clock moves on. Events before the first `time` happen at that
first time: until it is read the clock stands at 1970, which is what their rows show, and then all that was noted is
dated again. So the first `time` is no leap of half a century, and lines need not be read ahead.
"""

from __future__ import annotations

import gc
import random
import time as wall
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import IO, Any, get_args

import msgspec
import numpy as np

from state.config import Config
from state.protocol.arrivals import Arrival, Channel
from state.protocol.commands import Tick
from state.protocol.events import KINDS, Context, Refused, Reject, read_line
from state.protocol.messages import LOCAL, Publish
from state.protocol.topics import Topics
from state.routing.counters import Measure
from state.routing.decision import Action
from state.routing.outcome import Measured, Outcome
from state.routing.region import Region
from state.space import Space, timestamp_text
from state.storage.codec import encode
from state.storage.rows import Columns, Row, metrics_columns, row_count, tables
from state.storage.tables import TABLES, WRITTEN, Kind

ACTIONS = get_args(Action)
CHUNK = 8192
"""Lines that are taken in one step: enough to make matching fast, few enough to keep memory small."""
FILE = Channel(0, 0, "events")


class _Timed(msgspec.Struct):
    """The `time` of an event, if it has one."""

    time: Any = None


_time_in = msgspec.json.Decoder(_Timed).decode


def _has_time(line: bytes) -> bool:
    """Return whether an event has a `time`. Few have one where the first has none, so a line is not always decoded."""
    return (b'"time"' in line or b"\\" in line) and _time_in(line).time is not None


class Tally:
    """Counts what happens; the cheapest record of a simulation."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.rejects: Counter[str] = Counter()
        self.changes = self.in_vain = 0

    def take(self, outcome: Outcome, lines: list[int] | None) -> None:
        """Count an outcome. `lines` are the numbers of the lines that its items are; None: items are such numbers."""
        for counts in outcome.counts.values():
            self.counts.update(counts)
        self.rejects.update(refused.rule for _, refused in outcome.rejects)
        self.changes += outcome.changes
        self.in_vain += sum(notice.state == "not-standing" for notice in outcome.notices)

    def turn(self) -> None:
        """Take note that the overlay is quiet: nothing more can happen because of the lines so far."""

    def note(self, line: int, moment: int) -> None:
        """Take note of the moment at which a line happens."""


class Writer(Tally):
    """Counts, and writes a row for everything that happens.

    A row of `metrics` says how large a link is after the last thing that happened there because of a line. So rows are
    merged, and written when the overlay is quiet.
    """

    def __init__(self, folder: Path, space: Space, stack: ExitStack) -> None:
        super().__init__()
        self._space = space
        folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[str, IO[bytes]] = {
            table: stack.enter_context((folder / f"{table}.jsonl").open("wb")) for table in TABLES
        }
        self._metrics: dict[tuple[int, str, str], Measured] = {}
        self._moments = array("q")
        self._rows = 0
        self._encode = msgspec.json.Encoder().encode

    def take(self, outcome: Outcome, lines: list[int] | None) -> None:
        super().take(outcome, lines)
        batches = None if lines is None else np.array(lines, np.int64)
        made = tables(outcome, self._space, batches, self._rows)
        self._rows += row_count(outcome)
        for measured in outcome.metrics:
            self._merge(measured, measured.item if lines is None else lines[measured.item])
        for table, columns in made.items():
            self._write(table, columns)

    def _merge(self, measured: Measured, line: int) -> None:
        key = (line, measured.broker, measured.link)
        before = self._metrics.get(key)
        if before is not None:
            measured.counts.update(before.counts)
        self._metrics[key] = measured

    def turn(self) -> None:
        """Write the rows of `metrics`: those of a line happen at its moment, and are numbered by themselves."""
        for line, rows in groupby(sorted(self._metrics), key=lambda place: place[0]):
            those = [replace(self._metrics[place], time=self._moments[line]) for place in rows]
            self._write("metrics", metrics_columns(those, [line] * len(those), 0))
        self._metrics.clear()

    def note(self, line: int, moment: int) -> None:
        self._moments.extend([moment] * (line + 1 - len(self._moments)))

    def _write(self, table: str, columns: Columns) -> None:
        """Write rows with all columns of the table, in their order."""
        count = len(columns["batch"])
        columns[WRITTEN.name] = [None] * count
        values = [self._values(column.kind, columns[column.name]) for column in TABLES[table].columns]
        names = [column.name for column in TABLES[table].columns]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))
        self._files[table].writelines(self._encode(row) + b"\n" for row in rows)

    def _values(self, kind: Kind, values: Any) -> Iterable[Any]:
        """Return the values of a column as JSON has them."""
        plain = values.tolist() if isinstance(values, np.ndarray) else values
        if kind == "time":
            return (None if moment is None else timestamp_text(moment) for moment in plain)
        return map(self._space.describe_point, plain) if kind == "point" else plain


class Simulation:
    """A region that is fed the lines of an events file."""

    def __init__(self, config: Config, record: Tally) -> None:
        self.record = record
        measure: Measure = "item" if isinstance(record, Writer) else "never"
        self.region = Region("simulation", config.setups(), measure=measure, logs=False)
        self._context = Context(config.space, config.overlay.brokers)
        self._topics = Topics(config.kafka.prefix)
        self._channels: dict[object, Channel] = {
            kind: FILE._replace(name=self._topics.of(kind))
            for kind in KINDS  # a reject names its topic
        }
        self._clock, self._knows_time = 0, False
        self._waiting: list[Arrival] = []
        self._lines: list[int] = []
        self.lines, self._last = 0, 0

    def quiet(self, lines: Iterable[bytes]) -> None:
        """Take the lines one by one, the overlay quiet in between."""
        for number, arrival in self._arrivals(lines):
            self._waiting.append(arrival)
            self._lines.append(number)
            if len(self._waiting) >= CHUNK:
                self._take()
        self._take()
        while self.region.working:
            self._waiting, self._lines = [self._tick()], [self._last]
            self._take()

    def _tick(self) -> Arrival:
        """Return the passing of no time, in which pending work is done."""
        return Arrival(FILE, self._last, self._clock, "", LOCAL, Tick())

    def _take(self) -> None:
        if self._waiting:
            waiting, lines = self._waiting, self._lines
            self._waiting, self._lines = [], []
            self.record.take(self.region.take(waiting), lines)
            self.record.turn()

    def interleaved(self, lines: Iterable[bytes], seed: int) -> None:
        """Take lines and inner messages in a random order that the seed decides; each channel keeps its own order."""
        chance = random.Random(seed)
        arrivals = self._arrivals(lines)
        arrival = next(arrivals, None)
        while arrival is not None or self.region.waiting or self.region.working:
            if arrival is None and not self.region.waiting:
                self.record.take(self.region.feed(self._tick(), self._last), None)
                continue
            waiting = list(self.region.waiting)
            pick = chance.randrange(len(waiting) + (arrival is not None))
            if pick < len(waiting):
                self.record.take(self.region.deliver(waiting[pick]), None)
            elif arrival is not None:
                number, event = arrival
                self.record.take(self.region.feed(event, number), None)
                arrival = next(arrivals, None)
            if not self.region.waiting:
                self.record.turn()
        self.record.turn()

    def _arrivals(self, lines: Iterable[bytes]) -> Iterator[tuple[int, Arrival]]:
        """Read the lines: the number and the arrival of each, the clock moved to it. A bad one is a refused record."""
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            self._last = number
            self.lines += 1
            kind, broker, message = read_line(self._context, line, self._clock, number - 1)
            if isinstance(message, Reject):
                topic = self._topics.of(kind) if isinstance(kind, str) else None
                value, key = line.rstrip(b"\r\n"), broker if isinstance(broker, str) else None
                refused = Refused(topic, 0, number - 1, value, message.rule, message.message, key, self._clock)
                self.record.note(number, self._clock)
                yield number, Arrival(FILE, number - 1, self._clock, "", LOCAL, refused)
                continue
            if not self._knows_time and _has_time(line):
                self._begin(message.time)
            self._clock = max(self._clock, message.time)
            if isinstance(message, Publish) and message.arrived != self._clock:
                message = msgspec.structs.replace(message, arrived=self._clock)
            self.record.note(number, self._clock)
            yield number, Arrival(self._channels[kind], number - 1, self._clock, str(broker), LOCAL, message)

    def _begin(self, moment: int) -> None:
        """Take the first time that is known: all before it happened at this moment."""
        self._take()
        self._clock, self._knows_time = moment, True
        self.region.redate(moment)


def simulate(config: Config, lines: Iterable[bytes], *, out: Path | None = None, seed: int | None = None) -> Row:
    """Run an events file through the overlay of a configuration. Return the summary that `--json` prints."""
    began = wall.perf_counter()
    with ExitStack() as stack:
        stack.enter_context(_few_collections())
        record = Writer(out, config.space, stack) if out else Tally()
        simulation = Simulation(config, record)
        if seed is None:
            simulation.quiet(lines)
        else:
            simulation.interleaved(lines, seed)
    seconds = wall.perf_counter() - began
    return _summary(config, simulation, seconds)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let the garbage collector look less often: a simulation keeps nearly all that it makes, in no cycles."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _summary(config: Config, simulation: Simulation, seconds: float) -> Row:
    counts = simulation.record.counts
    actions = {action: counts[action] for action in ACTIONS}
    brokers, rejects = simulation.region.brokers.values(), simulation.record.rejects
    sizes = [sum(len(part) for part in encode(broker).values()) for broker in brokers]
    return {
        "strategy": str(config.spec),
        "brokers": len(config.overlay.brokers),
        "events": simulation.lines - rejects.total(),
        "actions": actions,
        **actions,
        "subscription_messages": counts["messages"],
        "flooded_messages": simulation.record.changes * (len(brokers) - 1),
        "publication_messages": counts["forwarded"],
        "false_forwards": counts["false_forwards"],
        "deliveries": counts["delivered"],
        "false_positives": counts["false_positives"],
        "rejects": rejects.total(),
        "rejects_by_rule": dict(rejects.most_common()),
        "table_entries": sum(broker.sizes(link)["heard"] for broker in brokers for link in broker.links),
        "cancelled_in_vain": simulation.record.in_vain,
        "state_bytes": sum(sizes),
        "state_bytes_max": max(sizes),
        "seconds": round(seconds, 3),
    }
