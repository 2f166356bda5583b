"""Ranges on the curve with how many times each is asked for: covering, subsumption and merging in one table.

Algorithm 1 of the MICS paper keeps the union of all ranges as disjoint ones, ordered by start. That answers everything
in one look-up, but it forgets who asked for what, so nothing can be taken back. Here each range also has a count:

    asked    [2    5]                      the table:   after 1: 1   after 3: 2   after 5: 1   after 8: 0
                [4       8]                the union:   [2, 8], where the count is positive

A change of the count is stored at the cell *after* which it holds, so that the largest key, 2^63 - 1, needs no key
beyond it. Neighbouring counts differ, the first is not 0, the last is.

Adding a range adds one between its ends, taking it away takes one. Where a count leaves 0 the union gains cells, where
it comes back to 0 the union loses them: exactly those are returned, and they are what a neighbour must be told.

    covered, subsumed     nothing is gained: one or many together already ask for it
    partly covered        some of it is gained: only that needs to travel
    merging               overlapping and adjacent ranges are one range of the union, by themselves

A range is inserted in the time of two look-ups and of the blocks of counts between its ends (`blocks`). A block in
which the union does not change is not looked into: its counts are **lifted** together, by one number beside it, as a
lower bound of them shows that none leaves 0 or comes back to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from state.curves.blocks import ROOM, Blocks, Ints, insert, locate, remove
from state.curves.hilbert import Ranges, append
from state.errors import InvariantError
from state.kernels import kernel

NONE: Ranges = np.empty((0, 2), np.int64)
"""No ranges."""
LIFT, LEAST = 0, 1
"""Of each block: what is to be added to all its counts, and a lower bound of them without that."""


@kernel
def settle(rows: Ints, size: Ints, lifts: Ints, where: int) -> None:
    """Add to the counts of a block what they were lifted by."""
    lift = lifts[where, LIFT]
    if lift != 0:
        for i in range(size[where]):
            rows[where, 1, i] += lift
        lifts[where, LEAST] += lift
        lifts[where, LIFT] = 0


@kernel
def border(rows: Ints, order: Ints, head: Ints, size: Ints, lifts: Ints, count: int, after: int) -> int:
    """Make sure that a count begins after this cell. The new count of blocks."""
    block, place = locate(rows, order, head, size, count, after)
    held = 0
    where = order[max(block, 0)]
    if count > 0:
        settle(rows, size, lifts, where)
    if block >= 0:
        if rows[where, 0, place] == after:
            return count
        held = rows[where, 1, place]
    lifts[where, LEAST] = 0 if count == 0 else min(lifts[where, LEAST], held)
    if count > 0 and size[where] == ROOM:  # it is cut in two
        lifts[order[count]] = lifts[where]
    return insert(rows, order, head, size, count, block, place, np.array((after, held), np.int64))[0]


@kernel
def unborder(rows: Ints, order: Ints, head: Ints, size: Ints, lifts: Ints, count: int, after: int) -> int:
    """Remove the border after this cell, if the counts on both sides are the same. The new count of blocks."""
    block, place = locate(rows, order, head, size, count, after)
    where, before = order[block], 0
    settle(rows, size, lifts, where)
    if place > 0:
        before = rows[where, 1, place - 1]
    elif block > 0:
        other = order[block - 1]
        before = rows[other, 1, size[other] - 1] + lifts[other, LIFT]
    if before != rows[where, 1, place]:
        return count
    if block + 1 < count and size[where] + size[order[block + 1]] <= ROOM // 2 + 1:  # they may be joined
        settle(rows, size, lifts, order[block + 1])
        lifts[where, LEAST] = min(lifts[where, LEAST], lifts[order[block + 1], LEAST])
    return remove(rows, order, head, size, count, block, place)


@kernel
def lifted(order: Ints, lifts: Ints, block: int, end: int, by: int) -> int:
    """Lift whole blocks from this one on, before `end`, while the union does not change in them; where that ends."""
    while block < end:
        where = order[block]
        if lifts[where, LIFT] + lifts[where, LEAST] < (1 if by > 0 else 2):
            break
        lifts[where, LIFT] += by
        block += 1
    return block


@kernel
def change(
    rows: Ints, order: Ints, head: Ints, size: Ints, lifts: Ints, count: int, ranges: Ranges, by: int
) -> tuple[int, Ranges, int]:
    """Add `by` (1 or -1) to the counts of sorted disjoint ranges.

    The new count of blocks, the cells that the union gained or lost, and 0, or -1 if a count would become negative.
    """
    changed = np.empty((4, 2), np.int64)
    end = 0
    for k in range(len(ranges)):
        before, last = ranges[k, 0] - 1, ranges[k, 1]
        count = border(rows, order, head, size, lifts, count, before)
        count = border(rows, order, head, size, lifts, count, last)
        block, place = locate(rows, order, head, size, count, before)
        until, stop = locate(rows, order, head, size, count, last)  # the counts from (block, place) to before there
        while block < until or place < stop:
            if place == 0 and block < until:
                block = lifted(order, lifts, block, until, by)
                if block == until:
                    continue
            where = order[block]
            settle(rows, size, lifts, where)
            least = rows[where, 1, 0] if place > 0 else rows[where, 1, 0] + by
            for i in range(1, place):
                least = min(least, rows[where, 1, i])
            behind = stop if block == until else size[where]
            for i in range(place, behind):
                held = rows[where, 1, i] + by
                if held < 0:
                    return count, changed[:0].copy(), -1
                rows[where, 1, i] = held
                least = min(least, held)
                if held == (1 if by > 0 else 0):
                    after = rows[where, 0, i + 1] if i + 1 < size[where] else head[block + 1]
                    changed, end = append(changed, 0, end, rows[where, 0, i] + 1, after)
            for i in range(behind, size[where]):
                least = min(least, rows[where, 1, i])
            lifts[where, LEAST] = least
            if block == until:
                break
            block, place = block + 1, 0
        count = unborder(rows, order, head, size, lifts, count, last)
        count = unborder(rows, order, head, size, lifts, count, before)
    return count, changed[:end].copy(), 0


@kernel
def held_at(rows: Ints, order: Ints, head: Ints, size: Ints, lifts: Ints, count: int, keys: Ints) -> NDArray[np.bool_]:
    """For each key, whether the union holds it: one look-up."""
    out = np.empty(len(keys), np.bool_)
    for k in range(len(keys)):
        block, place = locate(rows, order, head, size, count, keys[k] - 1)
        out[k] = block >= 0 and rows[order[block], 1, place] + lifts[order[block], LIFT] > 0
    return out


@kernel
def gaps_in(rows: Ints, order: Ints, head: Ints, size: Ints, lifts: Ints, count: int, ranges: Ranges) -> Ranges:
    """The parts of sorted disjoint ranges that the union does not hold."""
    out = np.empty((4, 2), np.int64)
    end = 0
    for k in range(len(ranges)):
        first, last = ranges[k]
        block, place = locate(rows, order, head, size, count, first - 1)
        while first <= last:
            held, until = 0, last
            if block >= 0:
                held = rows[order[block], 1, place] + lifts[order[block], LIFT]
                place += 1
            else:
                block, place = 0, 0
            if block < count and place == size[order[block]]:
                block, place = block + 1, 0
            if block < count:
                until = min(last, rows[order[block], 0, place])
            if held == 0:
                out, end = append(out, 0, end, first, until)
            if until == last:
                break
            first = until + 1
    return out[:end].copy()


@kernel
def edge_before(rows: Ints, order: Ints, head: Ints, size: Ints, lifts: Ints, count: int, key: int) -> int:
    """The last cell of the union before `key`, or -1."""
    block, place = locate(rows, order, head, size, count, key - 2)
    if block < 0:
        return -1
    held = rows[order[block], 1, place] + lifts[order[block], LIFT]
    return key - 1 if held > 0 else rows[order[block], 0, place]


@kernel
def edge_after(rows: Ints, order: Ints, head: Ints, size: Ints, lifts: Ints, count: int, key: int) -> int:
    """The first cell of the union after `key`, or -1."""
    block, place = locate(rows, order, head, size, count, key)
    if block >= 0 and rows[order[block], 1, place] + lifts[order[block], LIFT] > 0:
        return key + 1
    if block < 0:
        block, place = 0, 0
    else:
        place += 1
        if place == size[order[block]]:
            block, place = block + 1, 0
    return rows[order[block], 0, place] + 1 if block < count else -1


class RangeTable:
    """Counted ranges.

    >>> table = RangeTable()
    >>> table.add(np.array([[2, 5]])).tolist()
    [[2, 5]]
    >>> table.add(np.array([[4, 8]])).tolist()
    [[6, 8]]
    >>> table.remove(np.array([[2, 5]])).tolist()
    [[2, 3]]
    >>> table.union().tolist()
    [[4, 8]]
    """

    def __init__(self, rows: Ints | None = None) -> None:
        """Empty, or with the rows `(after, count)` of another."""
        self._blocks = Blocks(2, rows)
        self._lifts = np.zeros((len(self._blocks.order), 2), np.int64)

    @classmethod
    def of(cls, ranges: Ranges) -> RangeTable:
        """The table in which each of these ranges, in any order, is counted once. O(n log n), all at once.

        >>> RangeTable.of(np.array([[4, 8], [2, 5]])).rows().tolist()
        [[1, 1], [3, 2], [5, 1], [8, 0]]
        """
        after, where = np.unique(np.concatenate((ranges[:, 0] - 1, ranges[:, 1])), return_inverse=True)
        steps = np.bincount(where, np.repeat((1.0, -1.0), len(ranges)), len(after)).astype(np.int64)
        kept = steps != 0
        return cls(np.stack((after[kept], np.cumsum(steps[kept])), axis=1))

    def add(self, ranges: Ranges) -> Ranges:
        """Count sorted disjoint ranges once more; what the union gains by it."""
        return self._change(ranges, 1)

    def remove(self, ranges: Ranges) -> Ranges:
        """Count sorted disjoint ranges once less; what the union loses by it."""
        return self._change(ranges, -1)

    def _change(self, ranges: Ranges, by: int) -> Ranges:
        self._blocks.make_room(2 * len(ranges) + 1)
        more = len(self._blocks.order) - len(self._lifts)
        if more:
            self._lifts = np.concatenate((self._lifts, np.zeros((more, 2), np.int64)))
        self._blocks.count, changed, broken = change(*self._arrays, ranges, by)
        if broken:
            raise InvariantError(
                "a range is taken back that was not asked for. "
                "Remedy: the state of two brokers does not fit: restore both from one checkpoint"
            )
        return changed

    @property
    def _arrays(self) -> tuple[Ints, Ints, Ints, Ints, Ints, int]:
        """What kernels take."""
        b = self._blocks
        return b.rows, b.order, b.head, b.size, self._lifts, b.count

    def holds(self, keys: Ints) -> NDArray[np.bool_]:
        """For each key, whether the union holds it. O(log n) each."""
        return held_at(*self._arrays, keys)

    def uncovered(self, ranges: Ranges) -> Ranges:
        """The parts of sorted disjoint ranges that the union does not hold: none means covered or subsumed."""
        if not self._blocks.count:
            return ranges
        return gaps_in(*self._arrays, ranges)

    def before(self, key: int) -> int:
        """The last cell of the union before `key`, or -1."""
        return int(edge_before(*self._arrays, key))

    def after(self, key: int) -> int:
        """The first cell of the union after `key`, or -1."""
        return int(edge_after(*self._arrays, key))

    def rows(self) -> Ints:
        """Everything, as an `(n, 2)` array: after which cell, which count."""
        b, rows = self._blocks, self._blocks.flat()
        rows[:, 1] += np.repeat(self._lifts[b.order[: b.count], LIFT], b.size[b.order[: b.count]])
        return rows

    def union(self) -> Ranges:
        """The union as sorted, disjoint, maximal ranges."""
        rows = self.rows()
        held = np.concatenate(([False], rows[:, 1] > 0))
        firsts = rows[held[1:] & ~held[:-1], 0] + 1
        return np.stack((firsts, rows[~held[1:] & held[:-1], 0]), axis=1)

    def __len__(self) -> int:
        """The number of changes of the count: twice the number of ranges, where none touch."""
        return int(self._blocks.size[self._blocks.order[: self._blocks.count]].sum())

    def check(self) -> None:
        """Raise `InvariantError` unless counts differ from their neighbours, none is negative, and the last is 0."""
        self._blocks.check()
        for where in self._blocks.order[: self._blocks.count]:
            if self._blocks.rows[where, 1, : self._blocks.size[where]].min() < self._lifts[where, LEAST]:
                raise InvariantError("ranges: a count is below the bound kept for its block")
        rows = self.rows()
        counts = np.concatenate(([0], rows[:, 1]))
        if (counts < 0).any() or counts[-1] != 0 or (counts[1:] == counts[:-1]).any():
            raise InvariantError("ranges: counts are negative, repeated or never end")
        if (rows[1:, 0] <= rows[:-1, 0]).any():  # compared, not subtracted: from -1 to 2^63 - 1 is no int64
            raise InvariantError("ranges: two counts begin at one place, or in the wrong order")


def difference(new: Ranges, old: Ranges) -> tuple[Ranges, Ranges]:
    """Return the cells of sorted disjoint ranges that are only in `new`, and those only in `old`, as ranges."""
    return without(new, old), without(old, new)


def without(ranges: Ranges, others: Ranges) -> Ranges:
    """Sorted disjoint ranges less the cells of others.

    >>> without(np.array([[0, 9]]), np.array([[2, 3], [9, 12]])).tolist()
    [[0, 1], [4, 8]]
    """
    table = RangeTable()
    table.add(others)
    return table.uncovered(ranges)
