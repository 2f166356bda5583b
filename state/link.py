"""The state of one (broker, link) group: the unit of parallelism.

A broker B has a link to each neighbour and the link `local` to its clients. Each link M has two halves,

    heard[M]   what M asked of B
    told[M]    what B asked of M (neighbours only)

and is a group of its own. An event that arrives at B from F goes to every group of B: group F updates heard[F], every
other group M updates told[M] and, for a publication, asks heard[M] whether M wants it. No group needs to know another's
state, so they run in parallel, and a hot broker is as many tasks as it has links.

                      F ──event──▶ B
                                   ├─▶ group F       heard[F] gains or loses it
                                   ├─▶ group M       told[M] decides: forward or withhold  ──▶ M
                                   └─▶ group local   publications: deliver what matches exactly

    (H)  once the channel B>M is empty, heard[B] at M equals the active half of told[M] at B
         (under `mics` both are ranges: see `rangetold`)
    (P)  a publication from F goes to each neighbour M other than F with a match in heard[M], and to local; never back

Each group also keeps the ledger of the broker's clients (who may only change what stands by a later word) and the marks
of the broker's incoming channels (each message exactly once, in order). Both are the same in all groups of a broker,
because all see the same events in the same order; keeping them apart is what spares the groups any talk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from state.boxlist import BoxList
from state.channel import Inbox
from state.clients import Clients
from state.errors import InvariantError
from state.filters import Filter
from state.ledger import DAY, Ledger
from state.messages import LOCAL, Name, RangeChange, Request, Subscribe, Unsubscribe
from state.rangetold import RangeHeard, RangeTold
from state.space import Keys, Space
from state.strategies import Spec
from state.told import Decision, Told


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything about a group that is configured, not learned."""

    broker: str
    link: str
    space: Space
    spec: Spec = Spec("auto")
    remember: int = DAY


class Group(ABC):
    """What the groups of a broker have in common: heard[link], the clients' ledger, the channels' marks."""

    heard: BoxList | Clients | RangeHeard

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.ledger = Ledger(setup.remember)
        self.inbox = Inbox()

    def step(self, origin: str, message: Request, now: int) -> list[Decision]:
        """Apply a message that arrived at the broker from `origin` (`local` or a neighbour) at the moment `now`."""
        if origin == LOCAL and not isinstance(message, RangeChange):
            word = self.ledger.hear(message, now)
            if not word.news or (isinstance(message, Unsubscribe) and not word.stood):
                return []
        return self._apply(origin, message, "unsubscribed")

    def expire(self, now: int) -> list[Decision]:
        """End the clients' subscriptions whose time to live has passed: the same as if they had unsubscribed."""
        done: list[Decision] = []
        for name in self.ledger.expire(now):
            done += self._apply(LOCAL, Unsubscribe(name), "expired")
        return done

    def _apply(self, origin: str, message: Request, reason: str) -> list[Decision]:
        if origin == self.setup.link:
            self._hear(message)
            return []
        return self._tell(origin, message, reason)

    def _hear(self, message: Request) -> None:
        if isinstance(message, RangeChange):
            raise InvariantError(f"{self.setup.link} speaks in ranges, {self.setup.broker} listens for boxes")
        if message.name in self.heard:
            self._forget(message.name)
        elif isinstance(message, Unsubscribe):
            raise InvariantError(
                f"{self.setup.link} tells {self.setup.broker} to forget {message.name}, which it never asked for. "
                "Remedy: the state of one of the two is not the other's: restore both from one checkpoint"
            )
        if isinstance(message, Subscribe):
            self._remember(message)

    @abstractmethod
    def _remember(self, message: Subscribe) -> None:
        """The link asks for something."""

    @abstractmethod
    def _forget(self, name: Name) -> None:
        """The link asks for something no longer."""

    @abstractmethod
    def _tell(self, origin: str, message: Request, reason: str) -> list[Decision]:
        """What another link of the broker asked for: does this link's neighbour have to be told?"""

    def check(self) -> None:
        """Raise `InvariantError` unless every rule that concerns this group alone holds."""
        self.heard.check()
        self.ledger.check()


class Local(Group):
    """The group (broker, local): the clients' subscriptions, kept exactly, and who gets which publication."""

    heard: Clients

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.heard = Clients(setup.space)

    def deliver(self, points: Keys) -> tuple[list[int], list[Name]]:
        """All pairs (point, subscription that it matches), by point, then in order of arrival."""
        return self.heard.holders(points)

    def _remember(self, message: Subscribe) -> None:
        self.heard.add(message.name, message.boxes, message.exact)

    def _forget(self, name: Name) -> None:
        self.heard.remove(name)

    def _tell(self, origin: str, message: Request, reason: str) -> list[Decision]:
        """What neighbours ask for is no concern of the clients."""
        return []

    def check(self) -> None:
        super().check()
        if self.ledger.standing.keys() != set(self.heard):
            raise InvariantError("the clients' subscriptions are not those that stand in the ledger")


class Link(Group):
    """The group (broker, neighbour): what the neighbour asked for, and what it was asked for.

    `trees` are the Boolean filters among what was heard; their boxes are in `heard` with all others.
    """

    heard: BoxList | RangeHeard

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.trees: dict[Name, Filter] = {}
        self.told: Told | RangeTold
        if setup.spec.by_ranges:
            self.told = RangeTold(setup.space, setup.spec)
            self.heard = RangeHeard(self.told.grid)
        else:
            self.told = Told(setup.space, setup.spec)
            self.heard = BoxList(setup.space.dims)
        self.sent = 0

    def wants(self, points: Keys) -> NDArray[np.bool_]:
        """For each point, whether the neighbour asked for it (rule P)."""
        return self.heard.holds_any(points)

    def strays(self, points: Keys) -> NDArray[np.bool_] | None:
        """For each publication that came from the neighbour, whether it came for nothing; None: they never do."""
        return self.told.strays(points) if isinstance(self.told, RangeTold) else None

    def number(self, count: int = 1) -> int:
        """The number of the next message on the channel to the neighbour, the first of `count` that are sent now."""
        self.sent += count
        return self.sent - count + 1

    def _hear(self, message: Request) -> None:
        if isinstance(self.heard, RangeHeard) and isinstance(message, RangeChange):
            self.heard.hear(message)
        else:
            super()._hear(message)

    def _tell(self, origin: str, message: Request, reason: str) -> list[Decision]:
        return self.told.take(origin, message, reason)

    def _boxes(self) -> BoxList:
        if isinstance(self.heard, RangeHeard):
            raise InvariantError(f"{self.setup.link} speaks in boxes, {self.setup.broker} listens for ranges")
        return self.heard

    def _remember(self, message: Subscribe) -> None:
        self._boxes().add(message.name, message.boxes)
        if message.tree is not None:
            self.trees[message.name] = message.tree

    def _forget(self, name: Name) -> None:
        self._boxes().remove(name)
        self.trees.pop(name, None)

    def check(self) -> None:
        super().check()
        self.told.check()
        if self.trees and not self.trees.keys() <= set(self._boxes()):
            raise InvariantError("a tree is kept of what was not heard")


def group(setup: Setup) -> Link | Local:
    """An empty group: `Local` for the clients' link, `Link` for a neighbour's."""
    return Local(setup) if setup.link == LOCAL else Link(setup)
