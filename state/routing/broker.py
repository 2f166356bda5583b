"""A broker: its clients, its links, and everything that is kept once for all of them.

                      F ──request──▶ broker
                                     ├─▶ subscriptions   name, origin and shape
                                     ├─▶ heard[F]        gains or loses it (F may be the broker's own clients)
                                     └─▶ told[M]         of every other link M decides: forward or withhold  ──▶ M

A broker is the unit of storage: it changes by its inputs alone, one after another, and the same inputs always give the
same broker. Its region logs them; `replay` applies them again and discards what comes out. `version` counts them.

Inputs are a request of a client or neighbour, the passing of time where that ends something (`expire`), one part of
work that is spread out (`work`), and the command to rebuild. Every request also does one part of pending work, so that
it comes to its end on a busy broker too. Publications are not inputs: they change nothing that is logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from state.errors import InvariantError
from state.geometry.boxes import Shape
from state.matching.clients import Clients
from state.protocol.ledger import Ledger, Update
from state.protocol.messages import LOCAL, Cause, Change, Name, RangeChange, Request, Subscribe, Unsubscribe
from state.protocol.wire import EXPIRE, REBUILD, WORK, Input, unpack
from state.routing.decision import Decision
from state.routing.heard import Kept
from state.routing.link import Link, Setup, build
from state.routing.outcome import Changed
from state.routing.subscriptions import Subscription, Subscriptions


class Weight(Enum):
    """The weight of a client's request: nothing, the ledger alone, or what the client asks for."""

    STALE = "nothing: it comes too late to count"
    NOTE = "the ledger alone: a renewal, or the end of what does not stand"
    CHANGE = "what the client asks for"


@dataclass(slots=True)
class Effect:
    """The effect of an input: changes of clients' subscriptions, decisions by link, links that finished a rebuild."""

    changed: list[Changed] = field(default_factory=list)
    decided: list[tuple[Link, list[Decision]]] = field(default_factory=list)
    rebuilt: list[Link] = field(default_factory=list)


class Broker:
    """The state of one broker. `setups` are those of its links, and under `LOCAL` that of its clients."""

    def __init__(self, name: str, setups: Mapping[str, Setup]) -> None:
        self.name, self.setup = name, setups[LOCAL]
        self.version = 0
        self.gone = 0
        """Subscriptions that expired, and ends that were forgotten, since the last snapshot (`storage.store`)."""
        self.waits = False
        """Whether pending work has to wait (`Region.drain`)."""
        self.ledger = Ledger(self.setup.remember, self.setup.limits)
        self.subscriptions = Subscriptions()
        self.clients = Clients(self.setup.space, self.subscriptions.number)
        self.links: dict[str, Link] = {link: build(setup) for link, setup in setups.items() if link != LOCAL}

    # inputs

    def weigh(self, request: Request, arrived: int) -> Weight:
        """Return what a client's request would change. A stale one is no input."""
        if isinstance(request, RangeChange):
            return Weight.CHANGE
        return self._weight(request, self.ledger.judge(request, arrived))

    def _weight(self, request: Subscribe | Unsubscribe, update: Update) -> Weight:
        if not update.is_newer:
            return Weight.STALE
        same = self.subscriptions.is_renewal(request) if isinstance(request, Subscribe) else not update.was_standing
        return Weight.NOTE if same else Weight.CHANGE

    def apply(self, origin: str, request: Request, arrived: int) -> Effect:
        """Apply a request from `origin` (`LOCAL` or a neighbour) that is not stale."""
        self.version += 1
        effect = Effect()
        if origin == LOCAL and not isinstance(request, RangeChange):
            cause = self._cause(request, arrived)
            if self._weight(request, self.ledger.apply(request, arrived)) is Weight.CHANGE:
                effect.decided = self._change(origin, request, cause)
                effect.changed.append(self._changed(request, cause))
            elif isinstance(request, Subscribe):
                effect.changed.append(self._changed(request, cause._replace(change=Change.RENEW)))
        else:
            effect.decided = self._change(origin, request, request.cause)
        self._work(effect)
        return effect

    def expire(self, now: int, name: Name | None = None) -> Effect:
        """End this client's subscription, or a portion of those that are due, as if they had unsubscribed."""
        self.version += 1
        effect, remembered = Effect(), len(self.ledger.ended)
        due = self.ledger.expire(now) if name is None else [(name, self.ledger.end(name, now))]
        self.gone += 2 * len(due) + remembered - len(self.ledger.ended)  # each of those due is remembered now
        for ended, moment in due:
            cause = Cause(ended, Change.EXPIRE, moment, moment)
            effect.decided += self._change(LOCAL, Unsubscribe(ended), cause)
            effect.changed.append(Changed(cause))
        self._work(effect)
        return effect

    def work(self) -> Effect:
        """Do one part of pending work on every link."""
        self.version += 1
        effect = Effect()
        self._work(effect)
        return effect

    def rebuild(self) -> bool:
        """Begin to recompute what the strategies of all links keep. Return False, and change nothing, if none does."""
        begun = sum(link.told.rebuild() for link in self.links.values())  # of every link, not until the first
        self.version += begun > 0
        return begun > 0

    @property
    def working(self) -> bool:
        """True if any link has pending work."""
        return any(link.told.working for link in self.links.values())

    def _work(self, effect: Effect) -> None:
        if self.waits:
            return
        for link in self.links.values():
            if link.told.working:
                decisions, rebuilt = link.told.work()
                effect.decided.append((link, decisions))
                effect.rebuilt += [link] * rebuilt

    def _cause(self, request: Subscribe | Unsubscribe, arrived: int) -> Cause:
        """Return the cause of what a client's request does: the request, unless it was carried over (`carry`)."""
        if request.cause is not None:
            return request.cause
        if isinstance(request, Unsubscribe):
            return Cause(request.name, Change.UNSUBSCRIBE, request.time, arrived)
        change = Change.REPLACE if request.name in self.ledger.standing else Change.SUBSCRIBE
        return Cause(request.name, change, request.time, arrived)

    def _changed(self, request: Subscribe | Unsubscribe, cause: Cause) -> Changed:
        if isinstance(request, Unsubscribe):
            return Changed(cause)
        return Changed(cause, request.boxes, request.where, self.ledger.standing[request.name].expires)

    def _change(self, origin: str, request: Request, cause: Cause | None) -> list[tuple[Link, list[Decision]]]:
        """Let the link that the request came from hear it, and every other link decide."""
        kept = self._keep(origin, request)
        if origin != LOCAL:
            self.links[origin].heard.apply(kept)
        elif not isinstance(request, RangeChange):
            self._hear_client(request)
        others = (link for name, link in self.links.items() if name != origin)
        return [(link, link.told.apply(origin, request, cause)) for link in others]

    def _keep(self, origin: str, request: Request) -> Kept:
        """Add the row that a request becomes and return it, or remove the one that it ends and return the request."""
        if isinstance(request, Subscribe):
            r = request
            row = Subscription(self.version, r.name, origin, Shape.of(r.boxes), r.tree, r.exact, r.where)
            self.subscriptions.add(row)
            return row
        if isinstance(request, Unsubscribe) and request.name in self.subscriptions:
            self.subscriptions.remove(request.name)
        return request

    def _hear_client(self, request: Subscribe | Unsubscribe) -> None:
        if request.name in self.clients:
            self.clients.remove(request.name)
        if isinstance(request, Subscribe):
            self.clients.add(request.name, request.boxes, request.tree, request.exact)

    # the log

    def replay(self, entry: Input) -> None:
        """Apply a logged input again. Its effect is discarded, because it was sent before."""
        message = None if entry.message is None else unpack(entry.message, self.setup.space.dims)
        match entry.origin, message:
            case str(kind), Unsubscribe(name) if kind == EXPIRE:
                self.expire(entry.time, name)
            case str(kind), None if kind == EXPIRE:
                self.expire(entry.time)
            case str(kind), None if kind == WORK:
                self.work()
            case str(kind), None if kind == REBUILD:
                self.rebuild()
            case str(origin), Subscribe() | Unsubscribe() | RangeChange() as request:
                self.apply(origin, request, entry.time)
            case unknown:
                raise InvariantError(f"the log of {self.name} holds what is no input: {unknown}")

    # sizes and rules

    @property
    def size(self) -> int:
        """The number of stored entries: the subscriptions, the ends that are remembered, the entries of each link."""
        links = sum(len(link.told) + len(link.heard) for link in self.links.values())
        return len(self.subscriptions) + len(self.ledger.ended) + links

    def sizes(self, link: str) -> dict[str, Any]:
        """Return the columns of `metrics` that say how large a link is; `LOCAL` for the clients."""
        if link != LOCAL:
            return self.links[link].sizes()
        return {"heard": len(self.clients), "active": 0, "passive": 0}

    def check(self) -> None:
        """Raise `InvariantError` unless every rule that concerns this broker alone holds."""
        self.ledger.check()
        self.clients.check()
        self.subscriptions.check()
        if self.ledger.standing.keys() != set(self.clients):
            raise InvariantError("the clients' subscriptions are not those that stand in the ledger")
        for link in self.links.values():
            link.check()
            self._check_candidates(link)
        self._check_rows()

    def _check_candidates(self, link: Link) -> None:
        """Rule (S): the candidates of a link are exactly what was heard on the others."""
        others = [other.heard for other in self.links.values() if other is not link]
        names = set(self.clients).union(*(heard.names() for heard in others))
        link.told.check_candidates(names, [heard.ranges() for heard in others])

    def _check_rows(self) -> None:
        """The rows of an origin are what was heard from it, in the same order."""
        by_origin: dict[str, list[Name]] = {origin: [] for origin in (LOCAL, *self.links)}
        for row in self.subscriptions:
            by_origin[row.origin].append(row.name)
        if list(self.clients) != by_origin[LOCAL]:
            raise InvariantError("the clients' subscriptions are not the rows of that origin")
        for name, link in self.links.items():
            if link.heard.names() != set(by_origin[name]):
                raise InvariantError(f"what was heard from {name} is not the rows of that origin")
