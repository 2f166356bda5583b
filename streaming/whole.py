"""The whole overlay as one region, outside of Spark: a new life is prepared with it.

    subscribe, unsubscribe   ──feed──▶ ┌──────────┐ ──seed──▶ the state that each region of the new life begins with
    state and letters of the           │  whole   │
    life before              ──join──▶ └──────────┘ ──sent──▶ rows and deliveries, for the prologue

Where the configuration changes, what stands is fed to the whole of the new one (`changed`) while the system still runs.
In the pause the whole of the old one is drained, and goes on as the new one (`become`).

Inside one region a request is in force everywhere before the next arrival. A life that begins so has all subscriptions
in force before its first publication. Rows and deliveries are numbered on a channel of their own, in the new epoch, and
belong to batches below 0: below -1 if they were fed, -1 if they were under way when the life before ended. A life with
rows below -1 has decided everything again, and its decisions are complete by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from state.config import Config
from state.protocol.arrivals import RANKS, Arrival, Channel, merge
from state.protocol.messages import LOCAL, Subscribe, Unsubscribe
from state.routing.carry import Inherited, changes, cut, inherited, join, settle_ledgers, successor
from state.routing.region import Region
from state.storage.store import Store, prepared
from streaming.life import Sent
from streaming.schemas import read_parcel
from streaming.settings import Part, Settings
from streaming.sources import Sorter
from streaming.step import Output, arrivals_of

CHANNEL = ".life"
"""The channel of a prologue. No broker's name begins with a dot, so no region has this name."""
DRAINED = -1
"""The batch of what was under way when the life before ended."""
CARRIED = -1_000_000
"""The first batch of what was decided again because the configuration has changed; the others follow it."""
PORTION = 20_000
"""Records that are fed at a time."""


class Whole:
    """One region of all brokers; `settings` are those of the life that is prepared."""

    def __init__(self, settings: Settings, regions: Iterable[Region] = (), behind: Whole | None = None) -> None:
        """Join regions. What it sends comes `behind` what another whole has to send."""
        self._be(settings, join(CHANNEL, regions, settings.config.setups(), settings.epoch))
        self.sent: list[Sent] = []
        self._carried = CARRIED
        if behind is not None:
            self._go_on(behind._region, behind.sent)

    def _be(self, settings: Settings, region: Region) -> None:
        part = Part(CHANNEL, CHANNEL, settings.config.overlay.brokers)
        self._life, self._region = settings, region
        self._settings = replace(settings, parts=(part,), links={}, records={CHANNEL: 0})
        self._store = Store(region, b"")

    def _go_on(self, before: Region, sent: list[Sent]) -> None:
        """Number what is sent behind what was sent for another region."""
        self._region.records, self._region.delivered, self.sent = before.records, before.delivered, sent

    def inherited(self, config: Config, moves: Mapping[str, str]) -> Inherited:
        """Return what stands, as it would be carried over to another configuration. Nothing changes."""
        return inherited(self._region, config.space, config.overlay.brokers, moves)

    def changed(self, settings: Settings, what: Inherited) -> Whole:
        """Return the whole of another configuration, in which the same stands. It has nothing to send but that."""
        new = Whole.__new__(Whole)
        new.sent, new._carried = [], CARRIED
        new._be(settings, successor(self._region, settings.config.setups(), settings.epoch))
        new._feed_requests(what.requests)
        settle_ledgers(new._region, what)
        return new

    def become(self, ahead: Whole, before: Inherited, now: Inherited) -> None:
        """Go on as another whole, to which `before` was fed, and in which `now` stands here."""
        region, sent = self._region, self.sent
        self._be(ahead._life, ahead._region)
        self._go_on(region, sent)
        self._carried = ahead._carried
        self._region.clock = region.clock
        self._feed_requests(changes(self._region, before, now))
        settle_ledgers(self._region, now)

    def _feed_requests(self, requests: Sequence[Subscribe | Unsubscribe]) -> None:
        place, clock = Channel(RANKS["subscribe"], 0, CHANNEL), self._region.clock
        for k in range(0, len(requests), PORTION):
            portion = enumerate(requests[k : k + PORTION], k)
            self.take((Arrival(place, n, clock, r.name.broker, LOCAL, r) for n, r in portion), self._carried)
            self._carried += 1

    def feed(self, records: Iterable[Any]) -> None:
        """Take records of Kafka's, in the order of their times. They must not hold publications or letters."""
        ordered = _in_order(records)
        portions = [ordered[k : k + PORTION] for k in range(0, len(ordered), PORTION)]
        for k, portion in enumerate(portions):
            sorter = Sorter(self._settings, time.time_ns() // 1000)
            for moment, _, _, _, record in portion:
                place = (record.topic, record.partition, record.offset)
                sorter.add(*place, moment, record.key, record.value, _headers(record.headers))
            parcels = (read_parcel(row["parcel"]) for row in sorter.rows())
            arrivals = merge(arrivals_of(parcels, CHANNEL, self._settings.config.space.dims))
            self.take(arrivals, DRAINED - len(portions) + k)

    def take(self, arrivals: Iterable[Arrival], batch: int, letters_before: int = 0) -> None:
        """Take arrivals as a batch below 0; letters among them are of batches before `letters_before`."""
        outcome = self._region.take(arrivals, letters_before)
        outcome.notices += self._region.echoes.end()
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


def _in_order(records: Iterable[Any]) -> list[tuple[int, int, int, int, Any]]:
    """Return records by time, none earlier than one before it in its partition, as arrivals are ordered."""
    latest: dict[tuple[str, int], int] = {}
    found = []
    for record in records:
        where = (record.topic, record.partition)
        latest[where] = max(latest.get(where, 0), record.timestamp * 1000)
        rank = RANKS[record.topic.rpartition(".")[2]]
        found.append((latest[where], rank, record.partition, record.offset, record))
    return sorted(found, key=lambda one: one[:4])


def _headers(headers: Sequence[tuple[str, bytes]]) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in headers] or None
