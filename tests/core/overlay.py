"""A whole overlay as one region, fed with events as dictionaries; it keeps everything that happens."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lacuna.simulate import Tally
from state.config import Config
from state.protocol import ledger
from state.protocol.arrivals import Arrival, Channel
from state.protocol.commands import Tick
from state.protocol.events import Context, Reject, read_line
from state.protocol.messages import LOCAL, Change, Message
from state.routing import region as machine
from state.routing import told
from state.routing.decision import Decision
from state.routing.outcome import Outcome
from state.routing.region import Direction, Region
from tests.core.oracle import Delivery, Event

FILE = Channel(0, 0, "events")


def spread_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let work that is spread out be spread out in small histories, too."""
    monkeypatch.setattr(told, "PORTION", 1)
    monkeypatch.setattr(told, "WINDOW", 2)
    monkeypatch.setattr(ledger, "PORTION", 1)
    monkeypatch.setattr(machine, "PORTION", 1)


def message_of(config: Config, event: Event, offset: int = 0, arrived: int = 0) -> Message:
    """The message of an event that must be good."""
    context = Context(config.space, config.overlay.brokers)
    _, _, message = read_line(context, json.dumps(event).encode(), arrived, offset)
    assert not isinstance(message, Reject), message
    return message


def arrival_of(config: Config, event: Event, offset: int = 0, time: int = 0) -> Arrival:
    """An event as it arrives from a client."""
    return Arrival(FILE, offset, time, event["broker"], LOCAL, message_of(config, event, offset, time))


class Received(Tally):
    """A record of a simulation that keeps only who got what."""

    def __init__(self) -> None:
        super().__init__()
        self.deliveries: list[tuple[int, str, str, str, str, int]] = []
        """The number of the line, broker, client, subscription, publication, and the links crossed."""

    def take(self, outcome: Outcome, lines: list[int] | None) -> None:
        super().take(outcome, lines)
        for publication, name, hop, item in outcome.deliveries_in_order():
            line = item if lines is None else lines[item]
            self.deliveries.append((line, *name, publication.id, hop))


class Overlay:
    """One region of all brokers, and a diary of what happens in it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.region = Region("all", config.setups(), measure="never", logs=False)
        self.deliveries: list[Delivery] = []
        self.decisions: list[tuple[str, str, Decision]] = []
        self.routes: list[tuple[str, str, str, str, bool]] = []
        self.counts: dict[str, int] = {}
        self._offset = 0

    def take(self, *events: Event, time: int = 0) -> Outcome:
        """Let events arrive, the overlay quiet in between."""
        was_quiet = not self.waiting and not self.region.working  # else some may be what an earlier event left
        outcome = self.note(self.region.take([self._arrival(event, time) for event in events]))
        if was_quiet and len(events) == 1:
            self._check_causes(events[0], outcome)
        return outcome

    def feed(self, event: Event, time: int = 0) -> Outcome:
        """Let an event arrive, and leave what it causes on the channels."""
        arrival = self._arrival(event, time)
        return self.note(self.region.feed(arrival, arrival.offset))

    def deliver(self, direction: Direction) -> Outcome:
        """Let one message of a channel arrive."""
        return self.note(self.region.deliver(direction))

    def settle(self) -> None:
        """Let all messages arrive."""
        while self.waiting:
            self.deliver(next(iter(self.waiting)))

    def finish(self, time: int = 0) -> None:
        """Let time tick until no work is pending."""
        self.settle()
        while self.region.working:
            self._offset += 1
            self.note(self.region.take([Arrival(FILE, self._offset, time, "", LOCAL, Tick())]))

    @property
    def waiting(self) -> dict[Direction, None]:
        return self.region.waiting

    def _arrival(self, event: Event, time: int) -> Arrival:
        self._offset += 1
        return arrival_of(self.config, event, self._offset, time)

    def _check_causes(self, event: Event, outcome: Outcome) -> None:
        """Whatever a single event makes brokers decide, near and far, was caused by it, or by time that passed."""
        causes = [decided.decision.cause for decided in outcome.decisions]
        kinds = {"subscribe": ("subscribe", "replace")}.get(event["kind"], (event["kind"],))
        for cause in causes:
            assert cause is not None
            if cause.change != Change.EXPIRE:
                assert cause.name == (event["broker"], event["client"], event["id"]) and cause.change in kinds

    def _distance(self, a: str, b: str) -> int:
        """How many links are between two brokers."""
        reached, far = {a}, 0
        while b not in reached:
            reached |= {m for broker in reached for m in self.config.overlay.neighbours[broker]}
            far += 1
        return far

    def note(self, outcome: Outcome) -> Outcome:
        """Keep what happened. Publications and causes have crossed as many links as there are on the way."""
        for publication, name, hop, _ in outcome.deliveries_in_order():
            assert hop == self._distance(publication.entry, name.broker)
        for decided in outcome.decisions:
            cause = decided.decision.cause
            assert cause is not None
            assert decided.decision.hop == self._distance(cause.name.broker, decided.setup.broker)
        for decided in outcome.decisions:
            self.decisions.append((decided.setup.broker, decided.setup.link, decided.decision))
        for part in outcome.routes:
            for k, origin, goes in zip(part.reached.index, part.reached.origins, part.forward, strict=True):
                publication = part.run.publications[k].id
                self.routes.append((part.setup.broker, part.setup.link, publication, origin, bool(goes)))
        self.deliveries += [(*name, publication.id) for publication, name, _, _ in outcome.deliveries_in_order()]
        for counts in outcome.counts.values():
            for name, count in counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
        return outcome


def cells_of(keys: np.ndarray, side: int) -> np.ndarray:
    """The cells of the small space that boxes cover."""
    grid = np.zeros((side, side, 3), bool)
    for lo, hi in keys:
        grid[lo[0] : hi[0], lo[1] : hi[1], lo[2] : hi[2]] = True
    return grid
