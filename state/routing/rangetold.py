"""told[M] where links speak in ranges of a Hilbert curve: strategy `mics`.

A decision about cells must travel as cells, or events are lost: a subscription that the *cells* of others cover is not
covered by their boxes. So under `mics` brokers tell each other ranges, and match publications against ranges; a
publication's place on the curve is found by the same grid everywhere (`cells`). Clients' own subscriptions stay boxes,
and what reaches a client matches exactly.

    heard[M]   the set of ranges that M asked for
    told[M]    mine     how many of the broker's clients' subscriptions ask for each range   } M was told their union,
               theirs   how many of its other neighbours do                                 } with small gaps bridged

Whatever happens, a client's subscription that comes, changes or goes, or a neighbour's change of ranges, M is told by
how much the union changed: ranges added and ranges removed in one message, which makes and breaks at once. Nothing is
ever passive here and nothing is promoted: where one of two subscriptions goes, their common cells keep a count of one.

Rules, in the terms of ranges (`check` here, and between brokers in `region`):

    (S)  mine is exactly the ranges of the clients' subscriptions, theirs exactly what the other links heard
    (C)  what M was told holds every range of both: the subscriptions' ranges, rounded outward
    (H)  once the channel B>M is empty, heard[B] at M is what M was told

Two more ways of telling less by asking for more (imperfect merging), both outer approximations that travel as such:
`gap` bridges gaps of fewer than so many cells between any two ranges of the union; `max_ranges` bridges the smallest
gaps of a subscription that is too many ranges. Both are functions of what is asked for, of nothing else, so that taking
back undoes them exactly.

Decisions. One for each event and outgoing link, as everywhere:

    forward     M is told of ranges that it was not told before; the witness is a cell among them, as a box
    withhold    something was asked for and all of it is in ranges that M was told before
    cancel      nothing is added, some ranges are taken back
    drop        something was given up and all of it is still asked for by others

The counts do not say who the others are, so a withheld subscription has no coverers. They do say how much of it was
already covered: `asked`, `added` and `removed` count its ranges and those that were news.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from state.curves.cells import Grid
from state.curves.hilbert import Ranges, cell_count, merge
from state.curves.ranges import NONE, RangeTable, difference
from state.errors import InvariantError
from state.geometry.boxes import Box, Boxes, gathered, stack
from state.matching.boxlist import BoxList
from state.protocol.messages import LOCAL, Cause, Name, RangeChange, Request, Subscribe
from state.protocol.reasons import Reason
from state.protocol.wire import RANGE_BYTES, pack_ranges, unpack_ranges
from state.routing.certificates import Passive
from state.routing.decision import Action, Decision, Reach, reason_of
from state.routing.subscriptions import Subscriptions
from state.routing.told import ToldDump
from state.space import Keys, Space
from state.strategies import Spec
from state.strategies.base import Dump

MOST = 256
"""Ranges of one subscription unless the configuration says otherwise."""


def grid_of(space: Space, spec: Spec, where: str = "routing.strategy") -> Grid:
    """Return the grid of a specification. Raises `ConfigError` if it breaks a rule."""
    given = dict(spec.parameters)
    return Grid(space, given.get("bits"), given.get("cells", "equal"), given.get("dims"), where)


class RangeTold:
    """The ranges that a neighbour was told, and the counts from which they follow."""

    working = False

    def __init__(self, space: Space, spec: Spec) -> None:
        self.space, self.spec = space, spec
        parameters = dict(spec.parameters)
        self.grid = grid_of(space, spec)
        self._gap, self._most = int(parameters.get("gap", 0)), int(parameters.get("max_ranges", MOST))
        self.passive: dict[Name, Passive] = {}
        self.active, self.mine, self.theirs = BoxList(space.dims), RangeTable(), RangeTable()
        self._cause: Cause | None = None
        self._hop = 0

    def dump(self) -> ToldDump:
        """Return what must be stored. The clients' ranges follow from their boxes, and would be ten times as large."""
        return ToldDump(list(self.active), [], [], Dump(self.theirs.rows().reshape(-1)))

    def restore(self, dump: ToldDump, subscriptions: Subscriptions) -> None:
        """Take over what `dump` gave."""
        dims, shapes = self.space.dims, [subscriptions[name].shape for name in dump.active]
        self.active = BoxList.of(dims, dump.active, *gathered(shapes, dims))
        self.mine = RangeTable.of(np.concatenate([NONE, *(self._asked(name) for name in self.active)]))
        self.theirs = RangeTable(dump.strategy.numbers.reshape(-1, 2).copy())
        self.theirs.check()

    def rebuild(self) -> bool:
        """Return False: nothing is kept that could be recomputed."""
        return False

    def work(self) -> tuple[list[Decision], bool]:
        """Return that nothing is decided: no work is ever pending."""
        return [], False

    def sizes(self) -> dict[str, Any]:
        """Return the columns of `metrics` that are about what the neighbour was told."""
        none = ("negative_rectangles", "negative_share", "withheld_associations", "withheld_filter_bytes")
        return {"active": len(self.active), "passive": 0, "ranges": self.ranges, **dict.fromkeys(none)}

    def _asked(self, name: Name) -> Ranges:
        """The ranges of a client's subscription: the same ones each time."""
        return self.grid.ranges(self.active.keys(name), self._most)[0]

    def __len__(self) -> int:
        return len(self.active) + (len(self.mine) + len(self.theirs)) // 2

    @property
    def ranges(self) -> int:
        """The number of counted ranges."""
        return (len(self.mine) + len(self.theirs)) // 2

    def told(self) -> Ranges:
        """The ranges that the neighbour was told: the union, with small gaps bridged."""
        union = merge(np.concatenate((self.mine.union(), self.theirs.union())))
        return union if self._gap < 2 else bridged(union, self._gap)

    def standing(self) -> Iterator[Decision]:
        """Yield every subscription of the broker's clients as told: the counts do not know the others by name."""
        for name in self.active:
            yield Decision("forward", name, LOCAL, Reason.CARRIED, self.active.boxes(name))

    def asks(self) -> object:
        """Return what the neighbour was told, to be compared with what it heard (rule H)."""
        return self.told().tolist()

    def false_positives(self, points: Keys) -> NDArray[np.bool_]:
        """Return which publications from this neighbour nothing here wanted.

        Such a publication matches no subscription of a client, and lies in no range that another neighbour asked for.
        """
        return ~(self.active.holds_any(points) | self.theirs.holds(self.grid.keys(points)))

    # what happens

    def apply(self, origin: str, request: Request, cause: Cause | None) -> list[Decision]:
        """Apply a request that arrived on another link. Return how that changes what the neighbour is told."""
        self._cause, self._hop = cause, request.hop
        if isinstance(request, RangeChange):
            added, removed = unpack_ranges(request.added), unpack_ranges(request.removed)
            reach = self._change(self.theirs, added, removed, 0)
            return [self._decision(request.name, (), origin, Reason.TAKEN_BACK, reach)]
        if origin != LOCAL:
            raise InvariantError(f"{origin} speaks in boxes, this link in ranges. Remedy: one strategy for all links")
        if isinstance(request, Subscribe):
            return self.subscribe(request.name, request.boxes)
        return self.unsubscribe(request.name, reason_of(request.name, cause))

    def subscribe(self, name: Name, boxes: Boxes) -> list[Decision]:
        """Add a client's subscription, or change its shape."""
        old = NONE
        if name in self.active:
            if self.active.boxes(name) == boxes:
                return []
            old = self._forget(name)
        new, bridged = self.grid.ranges(stack(boxes, self.space.dims), self._most)
        self.active.add(name, boxes)
        return [self._decision(name, boxes, LOCAL, Reason.REPLACED, self._change(self.mine, new, old, bridged))]

    def unsubscribe(self, name: Name, reason: Reason) -> list[Decision]:
        """Remove a client's subscription."""
        boxes = self.active.boxes(name)
        return [self._decision(name, boxes, LOCAL, reason, self._change(self.mine, NONE, self._forget(name), 0))]

    def _forget(self, name: Name) -> Ranges:
        """Take a client's subscription off the list; its ranges, found again as they were found."""
        ranges = self._asked(name)
        self.active.remove(name)
        return ranges

    def _change(self, table: RangeTable, added: Ranges, removed: Ranges, extra: int) -> Reach:
        """Add or remove ranges. Return how their union changed, which is what the neighbour is told."""
        other = self.theirs if table is self.mine else self.mine
        gained = other.uncovered(table.add(added))
        lost = other.uncovered(table.remove(removed))
        news = cell_count(gained)
        partly = 0 < news < cell_count(added)
        if self._gap > 1 and (len(gained) or len(lost)):
            gained, lost = self._bridge(gained, lost)
            extra += max(0, cell_count(gained) - news)
        return Reach(len(added), pack_ranges(gained), pack_ranges(lost), extra if len(gained) else 0, partly)

    def _bridge(self, gained: Ranges, lost: Ranges) -> tuple[Ranges, Ranges]:
        """The change of the union as the change of the union with small gaps bridged.

        Between two cells that were and are in the union, and with nothing of the kind between them, only what was
        gained and lost there matters; so each such stretch is bridged by itself, as it was and as it is.
        """
        now, before = [], []
        for begin, end, inside, was in self._stretches(gained.tolist(), lost.tolist()):
            now += _bridged_between(begin, end, inside, self._gap)
            before += _bridged_between(begin, end, was, self._gap)
        return difference(*(merge(np.array(pairs, np.int64).reshape(-1, 2)) for pairs in (now, before)))

    def _stretches(
        self, gained: list[list[int]], lost: list[list[int]]
    ) -> Iterator[tuple[int, int, list[list[int]], list[list[int]]]]:
        """Stretches between lasting cells: where they begin and end (-1: nowhere), what was gained and lost inside."""
        gains, losses = [first for first, _ in gained], [first for first, _ in lost]
        g = k = 0
        while g < len(gained) or k < len(lost):
            first = min(gains[g : g + 1] + losses[k : k + 1])
            begin = max(self.mine.before(first), self.theirs.before(first))
            end = first - 1
            while True:  # the next cell of the union that was not just gained
                end = _least(self.mine.after(end), self.theirs.after(end))
                place = bisect_left(gains, end, g)
                if end < 0 or place == len(gains) or gains[place] != end:
                    break
                end = gained[place][1]
            to_g = len(gains) if end < 0 else bisect_left(gains, end, g)
            to_k = len(losses) if end < 0 else bisect_left(losses, end, k)
            yield begin, end, gained[g:to_g], lost[k:to_k]
            g, k = to_g, to_k

    def _decision(self, name: Name, boxes: Boxes, origin: str, reason: Reason, reach: Reach) -> Decision:
        action, why = _action(reach, reason)
        witness = self._witness(unpack_ranges(reach.added[:RANGE_BYTES]), boxes) if action == "forward" else None
        bound = 0.0 if action == "withhold" else None
        end = (reach, None, self._cause, self._hop)
        return Decision(action, name, origin, why, boxes, (), witness, reach.asked, None, bound, *end)

    def _witness(self, added: Ranges, boxes: Boxes) -> Box | None:
        """A cell that the neighbour was not told of before; the part of it that was asked for, if there is any."""
        cell = self.grid.box(int(added[0, 0]))
        if cell is None:
            return None
        for box in boxes:
            low, high = tuple(map(max, box.lo, cell.lo)), tuple(map(min, box.hi, cell.hi))
            if all(a < b for a, b in zip(low, high, strict=True)):
                return Box(low, high)
        return cell

    def check_candidates(self, names: set[Name], ranges: Sequence[Ranges]) -> None:
        """Raise `InvariantError` unless the candidates are exactly what the other links heard (rule S)."""
        again = RangeTable()
        for heard in ranges:
            again.add(heard)
        if names != set(self.active) or not np.array_equal(again.rows(), self.theirs.rows()):
            raise InvariantError("rule (S): the ranges counted are not what the other links heard")

    def check(self) -> None:
        """Raise `InvariantError` unless `mine` is exactly the ranges of the clients' subscriptions."""
        self.active.check()
        self.mine.check()
        self.theirs.check()
        again = RangeTable()
        for name in self.active:
            again.add(self._asked(name))
        if not np.array_equal(again.rows(), self.mine.rows()):
            raise InvariantError("rule (S): the counted ranges are not those of the clients' subscriptions")


def _action(reach: Reach, reason: Reason) -> tuple[Action, Reason]:
    """Return what is done, and why; `reason` is that of giving up."""
    if reach.added:
        return "forward", Reason.PARTLY_COVERED if reach.partly else Reason.NEW_RANGES
    if reach.removed:
        return "cancel", reason
    return ("withhold", Reason.COVERED_BY_RANGES) if reach.asked else ("drop", reason)


def bridged(ranges: Ranges, gap: int) -> Ranges:
    """Sorted disjoint ranges with gaps of fewer than `gap` cells bridged."""
    apart = np.flatnonzero(ranges[1:, 0] - ranges[:-1, 1] - 1 >= gap)
    ends = np.concatenate((apart, [len(ranges) - 1])) if len(ranges) else apart
    return np.stack((ranges[np.concatenate(([0], ends[:-1] + 1)), 0], ranges[ends, 1]), axis=1) if len(ends) else ranges


def _bridged_between(begin: int, end: int, parts: list[list[int]], gap: int) -> list[tuple[int, int]]:
    """Ranges between two cells that are held (-1: there is none), and the bridges between all of these."""
    found: list[tuple[int, int]] = []
    last = begin if begin >= 0 else None
    for first, until in [*parts, *([[end, end - 1]] if end >= 0 else [])]:
        if last is not None and 0 < first - last - 1 < gap:
            found.append((last + 1, first - 1))
        if until >= first:
            found.append((first, until))
        last = until
    return found


def _least(a: int, b: int) -> int:
    """The smaller of two cells, where -1 is none."""
    return max(a, b) if a < 0 or b < 0 else min(a, b)
