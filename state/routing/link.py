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

from state.errors import InvariantError
from state.filters.pruning import Pruning
from state.filters.selectivity import Counts, Selectivities
from state.filters.trees import Filter, of_boxes
from state.matching.boxlist import BoxList
from state.matching.clients import Clients
from state.matching.extents import Extent, Extents
from state.matching.pruned import Pruned
from state.protocol.channel import Inbox
from state.protocol.commands import Override
from state.protocol.ledger import DAY, Ledger
from state.protocol.messages import LOCAL, Name, RangeChange, Request, Subscribe, Unsubscribe
from state.routing.rangetold import RangeHeard, RangeTold
from state.routing.told import Decision, Told
from state.space import Keys, Space
from state.strategies import Spec


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

    def rest(self) -> bool:
        """Use a moment in which there is nothing else to do; whether a rebuild was finished in it."""
        return False

    def rebuild(self) -> bool:
        """Begin to compute anew what the strategy keeps, in parts, as the link rests; whether it keeps anything."""
        return False

    @property
    def restless(self) -> bool:
        """Is there something to do in such a moment?"""
        return False

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
        self.heard.add(message.name, message.boxes, message.tree, message.exact)

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
        self.override: Override | None = None
        self._seen: Selectivities | None = None
        self._pruned: Pruned | None = None
        self._extents: Extents | None = None
        self.learn(None)

    def wants(self, points: Keys) -> NDArray[np.bool_]:
        """For each point, whether the neighbour asked for it (rule P); where it prunes, also what is near it."""
        if self._seen is None:
            return self.heard.holds_any(points)
        wanted = np.empty(len(points), np.bool_)
        begin = 0
        while begin < len(points):  # in steps, so that it does not matter how publications are cut into batches
            end = min(len(points), begin + self._seen.room)
            wanted[begin:end] = self.pruned.table.holds_any(points[begin:end])
            if self._seen.see(points[begin:end]):
                self._pruned = None
            begin = end
        return wanted

    def falsely(self, points: Keys, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of the points that are forwarded would not be if nothing were pruned."""
        false = np.zeros(len(points), np.bool_)
        if self._seen is not None and wanted.any():
            false[wanted] = ~self.heard.holds_any(points[wanted])
        return false

    @property
    def pruned(self) -> Pruned:
        """What the neighbour asked for, pruned; made when it is first needed."""
        pruning = self.pruning
        if pruning is None or self._seen is None:
            raise InvariantError(f"{self.setup.broker}>{self.setup.link} prunes nothing")
        if self._pruned is None:
            entries = ((name, self._tree(name)) for name in self._boxes())
            self._pruned = Pruned(self.setup.space, pruning, self._seen, self._boxes().boxes, entries)
        return self._pruned

    @property
    def extent(self) -> Extent | None:
        """How much what was heard is, unpruned; counted when it is first asked for. Ranges are no filters: None."""
        if isinstance(self.heard, RangeHeard):
            return None
        if self._extents is None:
            self._extents = Extents.of_list(self.setup.space, self.heard, self.trees)
        return self._extents.extent

    def _tree(self, name: Name) -> Filter:
        tree = self.trees.get(name)
        return of_boxes(self._boxes().boxes(name), self.setup.space) if tree is None else tree

    @property
    def learned(self) -> tuple[Counts, Counts] | None:
        """What was learned from publications and must be stored: see `selectivity`."""
        return None if self._seen is None else (self._seen.counts, self._seen.taken)

    def learn(self, learned: tuple[Counts, Counts] | None) -> None:
        """Take over what was stored, if this link prunes; begin anew if it did not before."""
        if self.pruning is None:
            return
        fresh = Selectivities(self.setup.space)
        if learned is not None:
            fresh.restore(*learned)
        if self._seen is None or (fresh.taken != self._seen.taken).any():
            self._pruned = None
            self._seen = fresh
        else:
            self._seen.counts = fresh.counts

    @property
    def pruning(self) -> Pruning | None:
        """How this link prunes: as was asked last, or else as configured."""
        if self.setup.spec.by_ranges:
            return None  # ranges are no filters that could be pruned
        return self.setup.spec.pruning if self.override is None else self.override.pruning

    def prune(self, override: Override | None) -> bool:
        """Prune so whatever is configured (None: as configured again); whether that was not so before.

        What was learned is dropped where nothing is pruned any more, and begins where pruning begins.
        """
        if self.setup.spec.by_ranges or override == self.override:
            return False
        self.override, self._pruned = override, None
        if self.pruning is None:
            self._seen = None
        elif self._seen is None:
            self.learn(None)
        return True

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
        if self._extents is not None:
            self._extents.add(message.boxes, message.tree)
        if self._pruned is not None:
            self._pruned.add(message.name, self._tree(message.name))

    def _forget(self, name: Name) -> None:
        if self._extents is not None:
            self._extents.remove_keys(self._boxes().keys(name), self.trees.get(name))
        self._boxes().remove(name)
        self.trees.pop(name, None)
        if self._pruned is not None:
            self._pruned.remove(name)

    def rest(self) -> bool:
        return isinstance(self.told, Told) and self.told.strategy.rest()

    def rebuild(self) -> bool:
        return isinstance(self.told, Told) and self.told.strategy.rebuild()

    @property
    def restless(self) -> bool:
        return isinstance(self.told, Told) and self.told.strategy.restless

    def check(self) -> None:
        super().check()
        self.told.check()
        if self.trees and not self.trees.keys() <= set(self._boxes()):
            raise InvariantError("a tree is kept of what was not heard")
        if self._extents is not None:
            self._extents.check(Extents.of_list(self.setup.space, self._boxes(), self.trees))
        if self._pruned is not None:
            self._pruned.check()


def group(setup: Setup) -> Link | Local:
    """An empty group: `Local` for the clients' link, `Link` for a neighbour's."""
    return Local(setup) if setup.link == LOCAL else Link(setup)
