"""The whole overlay in memory: every group of every broker, and the channels between them.

The same groups and messages as in the live router, without Kafka and Spark. A message on a channel waits until somebody
lets the receiver take it: `settle` until nothing waits, or `receive` one at a time in any order that the caller likes
(each channel stays in order by itself). Nothing here is random and nothing looks at a clock.

When no channel holds a message, a run of publications may travel as one batch (`publish`): they change nothing, so the
result is the same as one by one, and matching is vectorised over the batch.

What happens is told to a `Journal`, which counts, writes rows, or compares with a twin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from state.config import Config
from state.curves.ranges import RangeTable
from state.errors import InvariantError
from state.matching.boxlist import BoxList
from state.matching.clients import Clients
from state.protocol.messages import LOCAL, Message, Name, Publish, Request
from state.routing.link import Link, Local, group
from state.routing.rangetold import RangeHeard, RangeTold
from state.routing.told import Decision, Told
from state.space import Keys

Direction = tuple[str, str]
"""A channel: sender and receiver."""
EPOCH = 1
"""An overlay in memory begins from nothing once."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message on a channel: its number, and the input event that caused it."""

    number: int
    cause: int
    message: Message


@dataclass(frozen=True, slots=True)
class Batch:
    """Publications that travel together, each with the input event that it is."""

    publications: Sequence[Publish]
    causes: Sequence[int]
    points: Keys

    def __len__(self) -> int:
        return len(self.publications)

    def only(self, chosen: NDArray[np.bool_]) -> Batch:
        """Those for which `chosen` holds."""
        kept = np.flatnonzero(chosen).tolist()
        return Batch([self.publications[k] for k in kept], [self.causes[k] for k in kept], self.points[chosen])


class Journal(Protocol):
    """Is told what happens, in the order in which it happens."""

    def took(self, state: Link | Local, message: Request, cause: int) -> None:
        """A group applied a subscribe or unsubscribe, or a change of ranges."""

    def decided(self, link: Link, decisions: Sequence[Decision], cause: int) -> None:
        """A link decided about subscriptions."""

    def routed(self, link: Link, origin: str, batch: Batch, forward: NDArray[np.bool_]) -> None:
        """Publications from `origin` were considered for a link and forwarded or stopped."""

    def strayed(self, link: Link, batch: Batch, stray: NDArray[np.bool_]) -> None:
        """Publications came from a link, some of them for nothing (only asked where that can happen)."""

    def delivered(self, local: Local, batch: Batch, which: Sequence[int], names: Sequence[Name]) -> None:
        """Publications reached a broker; `which` of them matched the local subscriptions `names`, pair by pair."""


class Network:
    """All brokers of a configuration."""

    def __init__(self, config: Config, journal: Journal) -> None:
        self.config, self.journal = config, journal
        self.groups: dict[str, dict[str, Link | Local]] = {
            broker: {link: group(config.setup(broker, link)) for link in (LOCAL, *neighbours)}
            for broker, neighbours in config.overlay.neighbours.items()
        }
        self.channels: dict[Direction, deque[Envelope]] = {d: deque() for d in config.overlay.directions()}
        self.waiting: dict[Direction, None] = {}  # channels that hold a message, the longest waiting first

    def feed(self, broker: str, message: Message, now: int, cause: int) -> None:
        """A client's event arrives at its broker. What it causes waits on the channels."""
        self._arrive(broker, LOCAL, message, now, cause)

    def expire(self, now: int, cause: int) -> None:
        """End what is due everywhere. What that causes waits on the channels."""
        for groups in self.groups.values():
            for state in groups.values():
                due = state.ledger.next_expiry
                if due is not None and due <= now:
                    self._send(state, state.expire(now), cause)

    def redate(self, by: int) -> None:
        """Move all moments that were noted so far: the clock they were noted by did not know the time."""
        for groups in self.groups.values():
            for state in groups.values():
                state.ledger.redate(by)

    @property
    def next_expiry(self) -> int | None:
        """A moment before which nothing ends. O(groups)."""
        moments = (g.ledger.next_expiry for groups in self.groups.values() for g in groups.values())
        return min((m for m in moments if m is not None), default=None)

    def receive(self, direction: Direction, now: int) -> None:
        """The receiver of a channel takes the next message from it."""
        sender, receiver = direction
        channel = self.channels[direction]
        envelope = channel.popleft()
        del self.waiting[direction]
        if channel:
            self.waiting[direction] = None
        fresh = [g.inbox.take(sender, EPOCH, envelope.number) for g in self.groups[receiver].values()]
        if not all(fresh):
            raise InvariantError(f"message {envelope.number} of the channel {sender}>{receiver} came twice")
        self._arrive(receiver, sender, envelope.message, now, envelope.cause)

    def settle(self, now: int) -> None:
        """Let every channel be received until the overlay is quiet."""
        while self.waiting:
            self.receive(next(iter(self.waiting)), now)

    def rest(self) -> list[Link]:
        """Let every link use an idle moment; those that finished a rebuild in it."""
        states = (state for groups in self.groups.values() for state in groups.values())
        return [state for state in states if isinstance(state, Link) and state.restless and state.rest()]

    def publish(self, broker: str, batch: Batch) -> None:
        """Carry a batch of publications from a broker's clients through the quiet overlay."""
        if self.waiting:
            raise InvariantError("publications travel as a batch only while the overlay is quiet")
        reached = deque([(broker, LOCAL, batch)])
        while reached:
            here, origin, arrived = reached.popleft()
            for link, going in self._route(here, origin, arrived):
                first = link.number(len(going))
                there = link.setup.link
                for state in self.groups[there].values():
                    state.inbox.take_run(here, EPOCH, first, len(going))
                reached.append((there, here, going))

    def _route(self, broker: str, origin: str, batch: Batch) -> list[tuple[Link, Batch]]:
        """Rule (P) at one broker: deliver, and return what goes on which link."""
        onward = []
        for name, state in self.groups[broker].items():
            if isinstance(state, Local):
                self.journal.delivered(state, batch, *state.deliver(batch.points))
            elif name != origin:
                wanted = state.wants(batch.points)
                self.journal.routed(state, origin, batch, wanted)
                if wanted.any():
                    onward.append((state, batch.only(wanted)))
            else:
                stray = state.strays(batch.points)
                if stray is not None:
                    self.journal.strayed(state, batch, stray)
        return onward

    def _arrive(self, broker: str, origin: str, message: Message, now: int, cause: int) -> None:
        if isinstance(message, Publish):
            single = Batch([message], [cause], self.config.space.points([message.point]))
            for link, _ in self._route(broker, origin, single):
                self._post(link, message, cause)
            return
        for state in self.groups[broker].values():
            decisions = state.step(origin, message, now)
            self.journal.took(state, message, cause)
            self._send(state, decisions, cause)

    def _send(self, state: Link | Local, decisions: list[Decision], cause: int) -> None:
        if not isinstance(state, Link) or not decisions:
            return
        self.journal.decided(state, decisions, cause)
        for decision in decisions:
            for message in decision.messages():
                self._post(state, message, cause)

    def _post(self, link: Link, message: Message, cause: int) -> None:
        direction = (link.setup.broker, link.setup.link)
        self.channels[direction].append(Envelope(link.number(), cause, message))
        self.waiting.setdefault(direction)

    def check(self) -> None:
        """Raise `InvariantError` unless every rule holds; those between brokers only where no message is under way."""
        for broker, groups in self.groups.items():
            for name, state in groups.items():
                state.check()
                if isinstance(state, Link):
                    self._check_candidates(broker, name, state)
                    if not self.channels[broker, name]:
                        self._check_heard(broker, name, state)

    def _check_candidates(self, broker: str, name: str, link: Link) -> None:
        """Rule (S): the candidates are exactly what was heard on the other links."""
        others = [other.heard for link_name, other in self.groups[broker].items() if link_name != name]
        candidates = {s for heard in others if not isinstance(heard, RangeHeard) for s in heard}
        if isinstance(link.told, RangeTold):
            self._check_theirs(broker, name, link.told, others)
        if candidates != set(link.told.active) | link.told.passive.keys():
            raise InvariantError(f"rule (S): the candidates of {broker}>{name} are not what its other links heard")

    def _check_theirs(
        self, broker: str, name: str, told: RangeTold, others: list[BoxList | Clients | RangeHeard]
    ) -> None:
        """Rule (S) in ranges: what is counted for the other neighbours is exactly what they asked for."""
        again = RangeTable()
        for heard in others:
            if isinstance(heard, RangeHeard):
                again.add(heard.table.union())
        if not np.array_equal(again.rows(), told.theirs.rows()):
            raise InvariantError(f"rule (S): the ranges counted at {broker}>{name} are not what its other links heard")

    def _check_heard(self, broker: str, name: str, link: Link) -> None:
        """Rule (H): with an empty channel, the other end heard exactly what was told."""
        there = self.groups[name][broker]
        heard, told = there.heard, link.told
        if isinstance(heard, RangeHeard) or isinstance(told, RangeTold):
            self._check_heard_ranges(broker, name, heard, told)
            return
        trees = {name: tree for name, tree in told.trees.items() if name in told.active}
        same = isinstance(there, Link) and there.trees == trees
        if not same or {n: told.active.boxes(n) for n in told.active} != {n: heard.boxes(n) for n in heard}:
            raise InvariantError(f"rule (H): {name} has not heard from {broker} what it was told")

    def _check_heard_ranges(
        self, broker: str, name: str, heard: BoxList | Clients | RangeHeard, told: Told | RangeTold
    ) -> None:
        """Rule (H) in ranges."""
        if not isinstance(heard, RangeHeard) or not isinstance(told, RangeTold):
            raise InvariantError(f"{broker} and {name} do not both speak in ranges")
        if not np.array_equal(heard.table.union(), told.told()):
            raise InvariantError(f"rule (H): {name} has not heard from {broker} the ranges that it was told")
