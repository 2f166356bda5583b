"""`lacuna simulate`: the core alone, on a file of events, deterministic and fast.

Between two events the overlay is run until quiet; with a seed, events and link messages are interleaved at random, each
channel in order, the same for the same seed.

After each event that leaves the overlay quiet, links may rest: a rebuild that is due is done in parts, there.

Time is the time of the events: the clock stands at the latest `time` seen so far, and an event without one happens at
that moment. A subscription's time to live passes as that clock moves on, and so does the time for which a cancellation
is remembered. Events before the first `time` happen at that first time: until it is read the clock stands at 1970,
which is what their rows show, and then all that was noted is dated anew. So the first `time` is no leap of half a
century, and lines need not be read ahead.
"""

from __future__ import annotations

import random
import time as wall
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import IO, Any, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from state.config import Config
from state.protocol.events import Context, Reject, read_line
from state.protocol.messages import Message, Name, Publish, Request, Subscribe
from state.routing.link import Link, Local
from state.routing.overlay import Batch, Network
from state.routing.told import Action, Decision
from state.storage.codec import encode
from state.storage.rows import (
    TABLES,
    Row,
    count_decisions,
    count_request,
    decision_row,
    delivery_row,
    metrics_row,
    reject_row,
    route_row,
)

ACTIONS = get_args(Action)
SAID = ("forward", "promote", "cancel")
"""Actions that the neighbour is told of."""
LONGEST_RUN = 8192
"""Publications carried as one batch: enough to make matching fast, few enough to keep memory small."""


class _Timed(msgspec.Struct):
    """Does an event say when it happened?"""

    time: Any = None


_time_in = msgspec.json.Decoder(_Timed).decode


class Tally:
    """Counts what happens; the cheapest journal."""

    def __init__(self) -> None:
        self.actions: Counter[str] = Counter()
        self.subscription_messages = self.publication_messages = 0
        self.false_forwards = self.deliveries = self.rejects = self.strays = 0
        self.moments: dict[int, int] = {}

    def took(self, state: Link | Local, message: Request, cause: int) -> None:
        """Counted where it has an effect."""

    def decided(self, link: Link, decisions: Sequence[Decision], cause: int) -> None:
        self.actions.update(decision.action for decision in decisions)
        if link.setup.spec.by_ranges:  # there a long one is several messages; elsewhere one each, not made twice
            self.subscription_messages += sum(len(decision.messages()) for decision in decisions)
        else:
            self.subscription_messages += sum(decision.action in SAID for decision in decisions)

    def routed(self, link: Link, origin: str, batch: Batch, forward: NDArray[np.bool_]) -> None:
        self.publication_messages += int(forward.sum())
        self.false_forwards += int(link.falsely(batch.points, forward).sum())

    def delivered(self, local: Local, batch: Batch, which: Sequence[int], names: Sequence[Name]) -> None:
        self.deliveries += len(names)

    def strayed(self, link: Link, batch: Batch, stray: NDArray[np.bool_]) -> None:
        self.strays += int(stray.sum())

    def refused(self, line: bytes, kind: object, reject: Reject, cause: int) -> None:
        self.rejects += 1

    def rebuilt(self, link: Link, cause: int) -> None:
        """A link finished a rebuild of its negative rectangles."""

    def stepped(self) -> None:
        """One thing happened, and others will before `turn`, because of other lines, in the same groups."""

    def turn(self, *, sort: bool) -> None:
        """Nothing more can happen because of the lines up to here. `sort`: they travelled in batches, so by line."""
        self.moments.clear()


Key = tuple[int, str, str]
"""A row of metrics: the line, the broker, the link."""


class Writer(Tally):
    """Counts, and writes a row for everything that happens.

    A row of metrics says how large a group is after the last thing that happened in it because of a line, so it is made
    when that has happened (`stepped`) and made again if there is more. Where one line is done before the next begins,
    that is once, in `turn`.
    """

    def __init__(self, config: Config, folder: Path, stack: ExitStack) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self._prefix = config.kafka.prefix
        self._files: dict[str, IO[bytes]] = {
            table: stack.enter_context((folder / f"{table}.jsonl").open("wb")) for table in TABLES
        }
        self._rows: dict[str, list[Row]] = {table: [] for table in TABLES}
        self._numbers: dict[tuple[str, str], Iterator[int]] = defaultdict(count)
        self._counts: dict[Key, Counter[str]] = {}
        self._touched: dict[Key, Link | Local] = {}  # in the last step
        self._metrics: dict[Key, Row] = {}  # in the order of the first touch
        self._encoder = msgspec.json.Encoder()

    def _touch(self, state: Link | Local, cause: int) -> Counter[str]:
        key = (cause, state.setup.broker, state.setup.link)
        self._touched[key] = state
        return self._counts.setdefault(key, Counter())

    def took(self, state: Link | Local, message: Request, cause: int) -> None:
        count_request(self._touch(state, cause), message)

    def decided(self, link: Link, decisions: Sequence[Decision], cause: int) -> None:
        super().decided(link, decisions, cause)
        count_decisions(self._touch(link, cause), decisions)
        numbers = self._numbers[link.setup.broker, link.setup.link]
        moment = self.moments[cause]
        self._rows["decisions"] += [decision_row(d, link, moment, cause, next(numbers)) for d in decisions]

    def routed(self, link: Link, origin: str, batch: Batch, forward: NDArray[np.bool_]) -> None:
        super().routed(link, origin, batch, forward)
        false = link.falsely(batch.points, forward).tolist()
        for publication, cause, goes, falsely in zip(
            batch.publications, batch.causes, forward.tolist(), false, strict=True
        ):
            self._rows["routes"].append(route_row(link.setup, publication.id, origin, goes, publication.moment, cause))
            counts = self._touch(link, cause)
            counts["publications"] += 1
            counts["forwarded" if goes else "stopped"] += 1
            counts["false_forwards"] += falsely

    def delivered(self, local: Local, batch: Batch, which: Sequence[int], names: Sequence[Name]) -> None:
        super().delivered(local, batch, which, names)
        for cause in batch.causes:
            self._touch(local, cause)["publications"] += 1
        for k, name in zip(which, names, strict=True):
            publication, cause = batch.publications[k], batch.causes[k]
            self._rows["deliveries"].append(delivery_row(name, publication.id, publication.moment, cause))
            self._touch(local, cause)["delivered"] += 1

    def strayed(self, link: Link, batch: Batch, stray: NDArray[np.bool_]) -> None:
        super().strayed(link, batch, stray)
        for cause in (cause for cause, lost in zip(batch.causes, stray.tolist(), strict=True) if lost):
            self._touch(link, cause)["false_positives"] += 1

    def refused(self, line: bytes, kind: object, reject: Reject, cause: int) -> None:
        super().refused(line, kind, reject, cause)
        topic = f"{self._prefix}.{kind}" if isinstance(kind, str) else None
        self._rows["rejects"].append(reject_row(topic, 0, cause - 1, line, reject.rule, reject.message, cause))

    def rebuilt(self, link: Link, cause: int) -> None:
        self._touch(link, cause)["rebuilds"] += 1

    def stepped(self) -> None:
        for key, state in self._touched.items():
            self._metrics[key] = metrics_row(state, self._counts[key], key[0], None, None)
        self._touched.clear()

    def turn(self, *, sort: bool) -> None:
        self.stepped()
        self._rows["metrics"] += self._metrics.values()
        self._metrics.clear()
        self._counts.clear()
        for table, rows in self._rows.items():
            if sort:
                rows.sort(key=lambda row: int(row["batch"]))
            self._files[table].writelines(self._encoder.encode(row) + b"\n" for row in rows)
            rows.clear()
        super().turn(sort=sort)


class Simulation:
    """A network that is fed the lines of an events file."""

    def __init__(self, config: Config, journal: Tally) -> None:
        self.journal, self.network = journal, Network(config, journal)
        self._context = Context(config.space, config.overlay.brokers)
        self._clock, self._knows_time = 0, False
        self._due: int | None = None
        self._run: dict[str, tuple[list[Publish], list[int]]] = {}
        self._run_length = 0
        self._settles = True
        self.events = 0

    def quiet(self, lines: Iterable[bytes]) -> None:
        """Take the lines one by one, the overlay quiet in between; runs of publications travel as batches."""
        for number, broker, message in self._events(lines):
            if isinstance(message, Publish):
                publications, causes = self._run.setdefault(broker, ([], []))
                publications.append(message)
                causes.append(number)
                self._run_length += 1
                if self._run_length >= LONGEST_RUN:
                    self._carry()
            else:
                self._carry()
                self._feed(number, broker, message)
                self.network.settle(self._clock)
                self._rest(number)
                self.journal.turn(sort=False)
        self._carry()
        self.journal.turn(sort=True)

    def interleaved(self, lines: Iterable[bytes], seed: int) -> None:
        """Take lines and link messages in a random order that the seed decides; each channel keeps its own order."""
        self._settles = False
        chance = random.Random(seed)
        events = self._events(lines)
        event = next(events, None)
        while event is not None or self.network.waiting:
            waiting = list(self.network.waiting)
            pick = chance.randrange(len(waiting) + (event is not None))
            if pick < len(waiting):
                self.network.receive(waiting[pick], self._clock)
            elif event is not None:
                self._feed(*event)
                if not self.network.waiting:
                    self._rest(event[0])
                    self.journal.turn(sort=False)
                self.journal.stepped()
                event = next(events, None)  # before which something may end
            self.journal.stepped()
        self.journal.turn(sort=False)

    def _events(self, lines: Iterable[bytes]) -> Iterator[tuple[int, str, Message]]:
        """The good events by line number, the clock moved to each; the bad ones go to the journal."""
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            kind, broker, message = read_line(self._context, line, self._clock, number - 1)
            if isinstance(message, Reject):
                self.journal.refused(line.rstrip(b"\r\n"), kind, message, number)
                continue
            if not self._knows_time and _time_in(line).time is not None:
                self._begin(message.moment)
            self._advance(message, number)
            self.events += 1
            yield number, str(broker), message

    def _rest(self, number: int) -> None:
        """The overlay is quiet after an event: what is better done now than in somebody's way."""
        for link in self.network.rest():
            self.journal.rebuilt(link, number)

    def _feed(self, number: int, broker: str, message: Message) -> None:
        self.journal.moments[number] = self._clock
        self.network.feed(broker, message, self._clock, number)

    def _begin(self, moment: int) -> None:
        """The first time that is known: all before it happened at this moment."""
        self._clock, self._knows_time = moment, True
        self.network.redate(moment)
        self._due = self.network.next_expiry

    def _advance(self, message: Message, number: int) -> None:
        """Move the clock to an event; what has expired by then ends before the event happens."""
        self._clock = max(self._clock, message.moment)
        if self._due is not None and self._due <= self._clock:
            self._expire(number)
        if isinstance(message, Subscribe) and message.expires is not None:
            self._due = message.expires if self._due is None else min(self._due, message.expires)

    def _expire(self, number: int) -> None:
        if self._settles:
            self._carry()
        self.journal.moments[number] = self._clock
        self.network.expire(self._clock, number)
        self._due = self.network.next_expiry
        if self._settles:
            self.network.settle(self._clock)

    def _carry(self) -> None:
        """Let the publications that have gathered travel."""
        if not self._run:
            return
        for broker, (publications, causes) in self._run.items():
            points = self.network.config.space.points([p.point for p in publications])
            self.network.publish(broker, Batch(publications, causes, points))
        self._run.clear()
        self._run_length = 0
        self.journal.turn(sort=True)


def simulate(config: Config, lines: Iterable[bytes], *, out: Path | None = None, seed: int | None = None) -> Row:
    """Run an events file through the overlay of a configuration; the summary that `--json` prints."""
    began = wall.perf_counter()
    with ExitStack() as stack:
        journal = Writer(config, out, stack) if out else Tally()
        simulation = Simulation(config, journal)
        if seed is None:
            simulation.quiet(lines)
        else:
            simulation.interleaved(lines, seed)
    seconds = wall.perf_counter() - began
    return _summary(config, simulation, seconds)


def _summary(config: Config, simulation: Simulation, seconds: float) -> Row:
    journal = simulation.journal
    actions = {action: journal.actions[action] for action in ACTIONS}
    sizes = [len(encode(state)) for groups in simulation.network.groups.values() for state in groups.values()]
    return {
        "strategy": str(config.spec),
        "brokers": len(config.overlay.brokers),
        "events": simulation.events,
        "actions": actions,
        **actions,
        "subscription_messages": journal.subscription_messages,
        "publication_messages": journal.publication_messages,
        "false_forwards": journal.false_forwards,
        "deliveries": journal.deliveries,
        "false_positives": journal.strays,
        "rejects": journal.rejects,
        "state_bytes": sum(sizes),
        "state_bytes_max": max(sizes),
        "seconds": round(seconds, 3),
    }
