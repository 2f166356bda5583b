"""The last word of each client about each subscription, so that a late or repeated word changes nothing.

Clients' events can overtake each other on their way: subscribe and unsubscribe are different topics, producers retry,
people restart programs. So every event carries a stamp, and only a later one than the last heard has an effect:

* both with a revision: the higher revision is later; equal ones by time, then by place in the log;
* at least one without: by time, then by place. (An event without a revision speaks about the revision that stands.)

An unsubscribe must be remembered after it is done, or a subscribe that it overtook would rise from the dead. It is kept
for `remember` microseconds after it was heard, by the router's clock, not the client's. So is the end of a subscription
whose time to live has passed.

Every group of a broker keeps its own ledger of the broker's clients. They all see the same events in the same order, so
they agree without talking to each other.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

from state.errors import InvariantError
from state.protocol.messages import Name, Stamp, Subscribe, Unsubscribe

DAY = 24 * 3600 * 1_000_000


class Standing(NamedTuple):
    """A subscription that stands: the stamp that made it, and when it ends (microseconds) if it does."""

    stamp: Stamp
    expires: int | None


class Ended(NamedTuple):
    """A subscription that does not stand any more: the stamp that ended it, and when that was heard."""

    stamp: Stamp
    heard: int


@dataclass(frozen=True, slots=True)
class Word:
    """What an event turned out to be: news, and about a subscription that stood before or not."""

    news: bool
    stood: bool


def later(stamp: Stamp, known: Stamp) -> bool:
    """Is `stamp` later than `known`?

    >>> later(Stamp(2, 0, 0), Stamp(1, 9, 9)), later(Stamp(None, 3, 0), Stamp(1, 2, 9))
    (True, True)
    """
    if stamp.rev is not None and known.rev is not None and stamp.rev != known.rev:
        return stamp.rev > known.rev
    return stamp[1:] > known[1:]


def _later_by(stamp: Stamp, by: int) -> Stamp:
    return stamp._replace(time=stamp.time + by)


class Ledger:
    """Standing and ended subscriptions of one broker's clients."""

    def __init__(self, remember: int = DAY) -> None:
        self.remember = remember
        self.standing: dict[Name, Standing] = {}
        self.ended: dict[Name, Ended] = {}  # in order of `heard`, so that forgetting looks at the front only
        self._ends: list[tuple[int, Name]] = []  # a heap; may name subscriptions that were renewed since

    def hear(self, message: Subscribe | Unsubscribe, now: int) -> Word:
        """Take note of a client's event. O(1), and O(log n) with a time to live."""
        stamp = message.stamp
        if stamp is None:
            raise InvariantError(f"the client's event about {message.name} has no stamp")
        known = self.standing.get(message.name) or self.ended.get(message.name)
        stood = message.name in self.standing
        if known is not None and not later(stamp, known.stamp):
            return Word(news=False, stood=stood)
        if stamp.rev is None and known is not None:
            stamp = stamp._replace(rev=known.stamp.rev)
        if isinstance(message, Subscribe):
            self._stand(message.name, Standing(stamp, message.expires))
        else:
            self._end(message.name, Ended(stamp, now))
        return Word(news=True, stood=stood)

    def _stand(self, name: Name, standing: Standing) -> None:
        self.ended.pop(name, None)
        self.standing[name] = standing
        if standing.expires is not None:
            heapq.heappush(self._ends, (standing.expires, name))

    def _end(self, name: Name, ended: Ended) -> None:
        self.standing.pop(name, None)
        self.ended.pop(name, None)
        self.ended[name] = ended

    def expire(self, now: int) -> list[Name]:
        """End what is due, forget what need not be remembered any more; the names that ended now. O(those)."""
        due = []
        while self._ends and self._ends[0][0] <= now:
            moment, name = heapq.heappop(self._ends)
            standing = self.standing.get(name)
            if standing is not None and standing.expires == moment:
                self._end(name, Ended(standing.stamp, now))
                due.append(name)
        while self.ended and next(iter(self.ended.values())).heard + self.remember <= now:
            del self.ended[next(iter(self.ended))]
        return due

    @property
    def next_expiry(self) -> int | None:
        """A moment before which nothing ends."""
        return self._ends[0][0] if self._ends else None

    def redate(self, by: int) -> None:
        """Move all that was noted so far by so many microseconds: the clock it was noted by did not know the time."""
        standing = {
            name: Standing(_later_by(s.stamp, by), None if s.expires is None else s.expires + by)
            for name, s in self.standing.items()
        }
        self.restore(standing, {name: Ended(_later_by(e.stamp, by), e.heard + by) for name, e in self.ended.items()})

    def restore(self, standing: dict[Name, Standing], ended: dict[Name, Ended]) -> None:
        """Take over what another ledger held."""
        self.standing, self.ended = standing, ended
        self._ends = [(s.expires, name) for name, s in standing.items() if s.expires is not None]
        heapq.heapify(self._ends)

    def check(self) -> None:
        """Raise `InvariantError` unless the ledger is consistent."""
        both = self.standing.keys() & self.ended.keys()
        if both:
            raise InvariantError(f"subscriptions stand and are ended at once: {sorted(both)[:3]}")
        heard = [e.heard for e in self.ended.values()]
        if heard != sorted(heard):
            raise InvariantError("ended subscriptions are not in the order in which they were heard")
        missing = {(s.expires, n) for n, s in self.standing.items() if s.expires is not None} - set(self._ends)
        if missing:
            raise InvariantError(f"subscriptions with a time to live will never end: {sorted(missing)[:3]}")
