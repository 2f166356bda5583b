"""The whole overlay as one region, outside of Spark: a new life is prepared with it.

    subscribe, unsubscribe   ──feed──▶ ┌──────────┐ ──seed──▶ the state that each region of the new life begins with
    state and letters of the           │  whole   │
    life before              ──join──▶ └──────────┘ ──sent──▶ rows and deliveries, for the prologue

Where the configuration changes, what stands in the whole of the old one is fed to an empty whole of the new one
(`become`): once while the system still runs, and in the pause again, for which only what has changed since
is to be fed.

Inside one region a request is in force everywhere before the next arrival. A life that begins so has all subscriptions
in force before its first publication. Rows and deliveries are numbered on channels of their own, in the new epoch: one
for the whole of the new life, one for a whole that was left. They belong to batches below 0: below -1 what the life
begins with, -1 what was under way when the life before ended. Each life records all that it begins with
(`state.routing.carry`), so that its rows are complete by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from access.tails import in_order
from state.config import Config
from state.protocol.arrivals import RANKS, Arrival, Channel, merge
from state.protocol.ledger import Standing
from state.protocol.messages import LOCAL, Name, Subscribe, Unsubscribe
from state.routing.carry import (
    NOTHING,
    PORTION,
    Inherited,
    carried,
    changes,
    cut,
    inherited,
    join,
    prune_as,
    settle_ledgers,
    under_way,
)
from state.routing.outcome import Outcome
from state.routing.region import Region
from state.storage.store import Store, prepared
from streaming.life import Sent
from streaming.schemas import read_parcel
from streaming.settings import Part, Settings
from streaming.sources import Sorter
from streaming.step import Output, arrivals_of

NEW, LEFT = ".life", ".left"
"""The channels of a prologue. No broker's name begins with a dot, so no region has these names."""
DRAINED = -1
"""The batch of what was under way when the life before ended."""
CARRIED = -1_000_000
"""The first batch of what a life begins with, where an earlier one had it; others follow it."""
NOT_AGAIN = ("subscriptions", "rejects", "metrics")
"""Rows that an earlier life wrote already about the same events; what stands after them is recorded instead."""


class Whole:
    """One region of all brokers; `settings` are those of the life that is prepared."""

    def __init__(self, settings: Settings, regions: Iterable[Region] = (), name: str = NEW) -> None:
        """Join regions, or begin with nothing. `refused` counts the events that broke a rule."""
        part = Part(name, name, settings.config.overlay.brokers)
        self._life = settings
        self._settings = replace(settings, parts=(part,), links={}, records={name: 0})
        self._region = join(name, regions, settings.config.setups(), settings.epoch)
        self._store = Store(self._region, b"")
        self.sent: list[Sent] = []
        self.refused = 0
        self._carried = CARRIED

    def inherited(self, config: Config, moves: Mapping[str, str]) -> Inherited:
        """Return what stands, as it would be carried over to another configuration. Nothing changes."""
        return inherited(self._region, config.space, config.overlay.brokers, moves)

    def become(self, old: Whole, before: Inherited, now: Inherited) -> None:
        """Let `now` stand here, as it does in the whole of another configuration; `before` was fed already."""
        self._region.clock = old.clock
        prune_as(old._region, self._region)  # first, because pruning what stands already takes longer
        self._feed_requests(changes(self._region, before, now))
        settle_ledgers(self._region, now)

    def _feed_requests(self, requests: Sequence[Subscribe | Unsubscribe]) -> None:
        place, clock = Channel(RANKS["subscribe"], 0, NEW), self._region.clock
        for k in range(0, len(requests), PORTION):
            portion = enumerate(requests[k : k + PORTION], k)
            arrivals = (Arrival(place, n, clock, r.name.broker, LOCAL, r) for n, r in portion)
            self.take(arrivals, self._next_carried(), without=NOT_AGAIN)

    def record(self, *, decisions: bool, known: Mapping[Name, Standing] = NOTHING) -> None:
        """Record what stands; with its decisions, unless they were made again and recorded.

        What was `known` is recorded already.
        """
        for outcome in carried(self._region, decisions=decisions, known=known):
            self._send(outcome, self._next_carried())

    def _next_carried(self) -> int:
        self._carried += 1
        return self._carried - 1

    def feed(self, records: Iterable[Any], without: Collection[str] = ()) -> None:
        """Take records of Kafka's, in the order of their times. They must not hold publications or letters."""
        ordered = in_order(records)
        portions = [ordered[k : k + PORTION] for k in range(0, len(ordered), PORTION)]
        for k, portion in enumerate(portions):
            sorter = Sorter(self._settings, time.time_ns() // 1000)
            for moment, record in portion:
                place = (record.topic, record.partition, record.offset)
                sorter.add(*place, moment, record.key, record.value, _headers(record.headers))
            parcels = (read_parcel(row["parcel"]) for row in sorter.rows())
            arrivals = merge(arrivals_of(parcels, self._region.name, self._settings.config.space.dims))
            self.take(arrivals, DRAINED - len(portions) + k, without=without)

    def drain(self, letters: Iterable[Arrival], batches: int, without: Collection[str] = ()) -> None:
        """Take letters that were under way between the regions that were joined, up to so many batches of theirs."""
        self._note(self._region.drain(under_way(self._region, letters), batches), DRAINED, without)

    def take(self, arrivals: Iterable[Arrival], batch: int, without: Collection[str] = ()) -> None:
        """Take arrivals as a batch below 0. Nothing is recorded in the tables `without`."""
        self._note(self._region.take(arrivals), batch, without)

    def _note(self, outcome: Outcome, batch: int, without: Collection[str]) -> None:
        outcome.notices += self._region.echoes.end()
        self.refused += len(outcome.rejects)
        for table in without:
            getattr(outcome, table).clear()
        self._send(outcome, batch)

    def _send(self, outcome: Outcome, batch: int) -> None:
        output = Output(self._settings, self._store, outcome, batch)
        prefix = f"{self._settings.config.kafka.prefix}."
        for record in output.records():
            headers = [(header["key"], header["value"]) for header in record.headers or ()]
            topic = record.topic.removeprefix(prefix)
            self.sent.append(Sent(topic, record.partition, record.key, record.value, headers))

    @property
    def clock(self) -> int:
        """The latest moment of the regions that were joined."""
        return self._region.clock

    @property
    def received(self) -> dict[str, int]:
        """The number of the last letter that was taken on each channel between the regions that were joined."""
        return {receiver.channel: receiver.number for receiver in self._region.receivers.values()}

    def seed(self) -> dict[str, bytes]:
        """Return the state that each region of the life begins with. Nothing else can be done afterwards."""
        config = self._life.config
        setups = {part.name: config.setups(part.brokers) for part in self._life.parts}
        made = cut(self._region, setups, self._life.epoch)
        return {name: prepared(region, setups[name]) for name, region in made.items()}


def _headers(headers: Sequence[tuple[str, bytes]]) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in headers] or None
