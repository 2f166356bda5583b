"""The last event of each client about each subscription, so that a late or repeated event changes nothing.

Clients' events can overtake each other on their way: subscribe and unsubscribe are different topics, producers retry,
people restart programs. So every event carries a stamp, and only a later one than the last applied has an effect:

* both with a revision: the higher revision is later; equal ones by time, then by rank and offset of the channel;
* at least one without: by time, then by rank and offset. (Without a revision, the one that stands is meant.)

An unsubscribe must be remembered, or a subscribe that it overtook would take effect after all. It is remembered for
`remember` microseconds after it arrived, by the router's clock, not the client's. So is the end of a subscription whose
time to live has passed. From then on it has no effect. It is deleted with the next tick or expiry, and at the latest
when `GRACE` has passed as well (`next_due`): whole groups are deleted at once, not one with every event.

An event that is not later than what is known is refused as stale (`objection`), unless it is the same event again. So
is one whose revision or time is more than a day ahead of everything that is known: it would make all that its client
says until then stale.

A client may have `Limits` (`[limits]`): how many of its subscriptions stand at one broker, and how many boxes each
is. What goes beyond is refused by the rule `quota`, so that one client cannot fill the state. A replacement of what
stands, and an end, are always taken.

Ends are worked off in portions (`expire`): whatever has not had its turn is *over* nonetheless (`is_over`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from itertools import islice, takewhile
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.protocol.events import Reject
from state.protocol.messages import Name, Stamp, Subscribe, Unsubscribe
from state.space import timestamp_text

SECOND = 1_000_000
DAY = 24 * 3600 * SECOND
PORTION = 64
"""Subscriptions that one `expire` ends: each takes the links about as long as a request."""
FORGOTTEN = 4_096
"""Ends that one `expire` forgets."""
GRACE = 16
"""Ends may wait to be deleted for this fraction (1/16) of the time for which they are remembered, and a second."""


class Limits(NamedTuple):
    """What one client may have at a broker: standing subscriptions, and boxes of each; None: any number."""

    subscriptions_per_client: int | None = None
    boxes_per_subscription: int | None = None


class Standing(NamedTuple):
    """A subscription that stands: the stamp that made it, and when it ends (microseconds) if it does."""

    stamp: Stamp
    expires: int | None


_STANDING = Struct("<qqqqB")
_COLUMNS = [("rev", "<i8"), ("time", "<i8"), ("offset", "<i8"), ("expires", "<i8"), ("rank", "u1")]
NONE = -(2**63)
"""Stands for "no revision" and "never ends" among whole numbers."""


def _packed(standing: Standing) -> bytes:
    (rev, time, rank, offset), expires = standing
    numbers = (NONE if rev is None else rev, time, offset, NONE if expires is None else expires)
    return _STANDING.pack(*numbers, rank)


def _unpacked(packed: bytes) -> Standing:
    rev, time, offset, expires, rank = _STANDING.unpack(packed)
    stamp = Stamp(None if rev == NONE else rev, time, rank, offset)
    return Standing(stamp, None if expires == NONE else expires)


class Standings(MutableMapping[Name, Standing]):
    """What stands, by name. Each is kept as bytes: there are millions, and as objects one takes four times as much."""

    def __init__(self, standing: Mapping[Name, Standing] = MappingProxyType({})) -> None:
        self._packed = {name: _packed(one) for name, one in standing.items()}

    @classmethod
    def of(cls, names: Sequence[Name], columns: Mapping[str, NDArray[np.int64]]) -> Standings:
        """Return what stands, all at once: `rev`, `time`, `rank`, `offset` and `expires` as columns."""
        rows, made = np.empty(len(names), np.dtype(_COLUMNS)), cls()
        for column, values in columns.items():
            rows[column] = values
        packed, size = rows.tobytes(), _STANDING.size
        parts = (packed[k : k + size] for k in range(0, len(packed), size))
        made._packed = dict(zip(names, parts, strict=True))
        return made

    def __getitem__(self, name: Name) -> Standing:
        return _unpacked(self._packed[name])

    def __setitem__(self, name: Name, standing: Standing) -> None:
        self._packed[name] = _packed(standing)

    def __delitem__(self, name: Name) -> None:
        del self._packed[name]

    def __contains__(self, name: object) -> bool:
        return name in self._packed

    def __iter__(self) -> Iterator[Name]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def passing(self) -> list[tuple[int, Name]]:
        """Return the moments at which some end, with their names."""
        ends = ((_STANDING.unpack(packed)[3], name) for name, packed in self._packed.items())
        return [(moment, name) for moment, name in ends if moment != NONE]


class Ended(NamedTuple):
    """A subscription that does not stand any more: the stamp that ended it, and when that arrived."""

    stamp: Stamp
    arrived: int


class Update(NamedTuple):
    """The effect of an event: whether it is newer than what was known, and whether its subscription stood before."""

    is_newer: bool
    was_standing: bool


def later(stamp: Stamp, known: Stamp) -> bool:
    """Return whether `stamp` is later than `known`.

    >>> later(Stamp(2, 0, 0, 0), Stamp(1, 9, 0, 9)), later(Stamp(None, 3, 0, 0), Stamp(1, 2, 0, 9))
    (True, True)
    """
    if stamp.rev is not None and known.rev is not None and stamp.rev != known.rev:
        return stamp.rev > known.rev
    return stamp[1:] > known[1:]


def _is_repeat(message: Subscribe | Unsubscribe, stamp: Stamp, known: Standing | Ended) -> bool:
    """Return whether this is the event that is known, sent again."""
    same_rev = stamp.rev is None or stamp.rev == known.stamp.rev
    return message.asks == isinstance(known, Standing) and same_rev and stamp.time == known.stamp.time


def _told(stamp: Stamp) -> str:
    """Return a stamp as people read it."""
    return f"{'no rev' if stamp.rev is None else f'rev {stamp.rev}'} of {timestamp_text(stamp.time)}"


def _later_by(stamp: Stamp, by: int) -> Stamp:
    return stamp._replace(time=stamp.time + by)


class Ledger:
    """Standing and ended subscriptions of one broker's clients."""

    def __init__(self, remember: int = DAY, limits: Limits | None = None) -> None:
        self.remember, self.limits = remember, limits or Limits()
        self._counts: Counter[str] = Counter()  # standing subscriptions by client
        self.standing = Standings()
        self.ended: dict[Name, Ended] = {}  # in order of arrival, so that forgetting looks at the front only
        self._ends: list[tuple[int, Name]] = []  # a heap; may name subscriptions that were renewed since

    def judge(self, message: Subscribe | Unsubscribe, arrived: int) -> Update:
        """Return what effect a client's event that arrived at this moment would have. Nothing changes. O(1)."""
        if message.stamp is None:
            raise InvariantError(f"the client's event about {message.name} has no stamp")
        known = self._known(message.name, arrived)
        return Update(known is None or later(message.stamp, known.stamp), isinstance(known, Standing))

    def _known(self, name: Name, now: int) -> Standing | Ended | None:
        """Return the last event about a subscription, unless it need not be remembered any more."""
        ended = self.ended.get(name)
        if ended is not None and not self._is_past(ended, now):
            return ended
        return self.standing.get(name)

    def _is_past(self, ended: Ended, now: int) -> bool:
        return ended.arrived + self.remember <= now

    def objection(self, message: Subscribe | Unsubscribe, arrived: int) -> Reject | None:
        """Return why a client's event that arrived at this moment is refused; None if it is not. O(1)."""
        known = self._known(message.name, arrived)
        stamp, rev = message.stamp or Stamp(None, arrived, 0, 0), 0 if known is None else known.stamp.rev or 0
        if stamp.time > arrived + DAY:
            return Reject("time", f"time is {(stamp.time - arrived) // DAY} days ahead of the broker's clock")
        if stamp.rev is not None and stamp.rev > (most := max(rev, arrived) + DAY):
            return Reject("rev", f"rev = {stamp.rev} is too far ahead; at most {most} is allowed now")
        if known is None or later(stamp, known.stamp):
            return self._excess(message) if isinstance(message, Subscribe) else None
        if _is_repeat(message, stamp, known):
            return None
        since = "it was ended" if isinstance(known, Ended) else "it stands"
        return Reject("stale", f"{_told(stamp)} is not later than {_told(known.stamp)}, by which {since}")

    def _excess(self, message: Subscribe) -> Reject | None:
        """Return why a subscription is more than its client may have; None if it is not."""
        boxes, most = len(message.boxes), self.limits.boxes_per_subscription
        if most is not None and boxes > most:
            return Reject("quota", f"the filter is {boxes:,} boxes; a subscription may have {most:,}")
        client, allowed = message.name.client, self.limits.subscriptions_per_client
        if allowed is not None and message.name not in self.standing and self._counts[client] >= allowed:
            return Reject("quota", f"{self._counts[client]:,} subscriptions of {client} stand here; {allowed:,} may")
        return None

    def apply(self, message: Subscribe | Unsubscribe, arrived: int) -> Update:
        """Apply a client's event that arrived at this moment. O(1), and O(log n) with a time to live."""
        update, stamp = self.judge(message, arrived), message.stamp
        if not update.is_newer or stamp is None:
            return update
        known = self._known(message.name, arrived)
        if stamp.rev is None and known is not None:
            stamp = stamp._replace(rev=known.stamp.rev)
        if isinstance(message, Subscribe):
            self._stand(message.name, Standing(stamp, None if message.ttl is None else arrived + message.ttl))
        else:
            self._end(message.name, stamp, arrived)
        return update

    def _stand(self, name: Name, standing: Standing) -> None:
        self.ended.pop(name, None)
        self._counts[name.client] += name not in self.standing
        self.standing[name] = standing
        if standing.expires is None:
            return
        heapq.heappush(self._ends, (standing.expires, name))
        if len(self._ends) > 2 * len(self.standing) + PORTION:  # most are of subscriptions that were renewed
            self._ends = self._moments()

    def _end(self, name: Name, stamp: Stamp, arrived: int) -> None:
        """Remember an end. Arrivals of different channels may be out of order; what is remembered is not."""
        if name in self.standing:
            del self.standing[name]
            self._uncount(name.client)
        self.ended.pop(name, None)
        last = next(reversed(self.ended.values()), None)
        self.ended[name] = Ended(stamp, arrived if last is None else max(arrived, last.arrived))

    def _uncount(self, client: str) -> None:
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]

    def expire(self, now: int) -> list[tuple[Name, int]]:
        """End a portion of what is due, and forget a portion of what need not be remembered any more.

        Return the names that ended, each with the moment at which it was due.
        """
        due: list[tuple[Name, int]] = []
        while len(due) < PORTION and (moment := self.next_expiry) is not None and moment <= now:
            name = self._ends[0][1]
            due.append((name, self.end(name, now)))
        oldest = takewhile(lambda name: self._is_past(self.ended[name], now), self.ended)
        for name in list(islice(oldest, FORGOTTEN)):
            del self.ended[name]
        return due

    def end(self, name: Name, now: int) -> int:
        """End a subscription whose time to live has passed. Return the moment at which it was due."""
        stamp, moment = self.standing[name]
        if moment is None or moment > now:
            raise InvariantError(f"{name} is ended before its time")
        self._end(name, stamp, now)
        return moment

    def is_over(self, name: Name, now: int) -> bool:
        """Return whether a subscription that stands has come to the end of its time to live."""
        if name not in self.standing:
            return False
        expires = self.standing[name].expires
        return expires is not None and expires <= now

    @property
    def next_expiry(self) -> int | None:
        """The moment at which the next subscription ends.

        Heap entries of subscriptions that were renewed or ended since are dropped first. They are not stored, so a
        ledger that answered with them would differ from a restored one, and inputs would depend on which one it was.
        """
        while self._ends and not self._stands(*self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    @property
    def next_due(self) -> int | None:
        """The moment at which `expire` is to be called: the next expiry, or when ends have waited to be deleted."""
        moments = [moment for moment in (self.next_expiry,) if moment is not None]
        if self.ended:
            oldest = next(iter(self.ended.values())).arrived
            moments.append(oldest + self.remember + max(SECOND, self.remember // GRACE))
        return min(moments, default=None)

    def _stands(self, moment: int, name: Name) -> bool:
        return name in self.standing and self.standing[name].expires == moment

    def is_due(self, now: int) -> bool:
        """Return whether there is anything to end or to forget at this moment."""
        forgets = bool(self.ended) and self._is_past(next(iter(self.ended.values())), now)
        due = self.next_expiry
        return forgets or (due is not None and due <= now)

    def redate(self, by: int) -> None:
        """Move all moments noted so far by so many microseconds, because the clock did not know the time until now."""
        standing = {
            name: Standing(_later_by(s.stamp, by), None if s.expires is None else s.expires + by)
            for name, s in self.standing.items()
        }
        self.restore(standing, {name: Ended(_later_by(e.stamp, by), e.arrived + by) for name, e in self.ended.items()})

    def restore(self, standing: Mapping[Name, Standing], ended: dict[Name, Ended]) -> None:
        """Take over what another ledger held."""
        self.standing, self.ended = standing if isinstance(standing, Standings) else Standings(standing), ended
        self._counts = Counter(name.client for name in self.standing)
        self._ends = self._moments()

    def _moments(self) -> list[tuple[int, Name]]:
        ends = self.standing.passing()
        heapq.heapify(ends)
        return ends

    def check(self) -> None:
        """Raise `InvariantError` unless the ledger is consistent."""
        both = self.standing.keys() & self.ended.keys()
        if both:
            raise InvariantError(f"subscriptions stand and are ended at once: {sorted(both)[:3]}")
        if self._counts != Counter(name.client for name in self.standing):
            raise InvariantError("the standing subscriptions of a client are miscounted")
        arrived = [e.arrived for e in self.ended.values()]
        if arrived != sorted(arrived):
            raise InvariantError("ended subscriptions are not in the order in which that arrived")
        missing = set(self.standing.passing()) - set(self._ends)
        if missing:
            raise InvariantError(f"subscriptions with a time to live will never end: {sorted(missing)[:3]}")
