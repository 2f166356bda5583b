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

A range is inserted in the time of two look-ups and the counts between its ends, whatever the size of the table.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from state.curves.blocks import Blocks, Ints, insert, locate, remove
from state.curves.hilbert import Ranges, append
from state.errors import InvariantError
from state.kernels import kernel

NONE: Ranges = np.empty((0, 2), np.int64)
"""No ranges."""


@kernel
def border(rows: Ints, order: Ints, head: Ints, size: Ints, count: int, after: int) -> int:
    """Make sure that a count begins after this cell. The new count of blocks."""
    block, place = locate(rows, order, head, size, count, after)
    held = 0
    if block >= 0:
        if rows[order[block], 0, place] == after:
            return count
        held = rows[order[block], 1, place]
    return insert(rows, order, head, size, count, block, place, np.array((after, held), np.int64))[0]


@kernel
def unborder(rows: Ints, order: Ints, head: Ints, size: Ints, count: int, after: int) -> int:
    """Remove the border after this cell, if the counts on both sides are the same. The new count of blocks."""
    block, place = locate(rows, order, head, size, count, after)
    before = 0
    if place > 0:
        before = rows[order[block], 1, place - 1]
    elif block > 0:
        where = order[block - 1]
        before = rows[where, 1, size[where] - 1]
    if before != rows[order[block], 1, place]:
        return count
    return remove(rows, order, head, size, count, block, place)


@kernel
def change(
    rows: Ints, order: Ints, head: Ints, size: Ints, count: int, ranges: Ranges, by: int
) -> tuple[int, Ranges, int]:
    """Add `by` (1 or -1) to the counts of sorted disjoint ranges.

    The new count of blocks, the cells that the union gained or lost, and 0, or -1 if a count would become negative.
    """
    changed = np.empty((4, 2), np.int64)
    end = 0
    for k in range(len(ranges)):
        before, last = ranges[k, 0] - 1, ranges[k, 1]
        count = border(rows, order, head, size, count, before)
        count = border(rows, order, head, size, count, last)
        block, place = locate(rows, order, head, size, count, before)
        after = before
        while after != last:
            where = order[block]
            held = rows[where, 1, place] + by
            if held < 0:
                return count, changed[:0].copy(), -1
            rows[where, 1, place] = held
            first, after = after + 1, last
            place += 1
            if place == size[where]:
                block, place = block + 1, 0
            if block < count:
                after = rows[order[block], 0, place]
            if held == (1 if by > 0 else 0):
                changed, end = append(changed, 0, end, first, after)
        count = unborder(rows, order, head, size, count, last)
        count = unborder(rows, order, head, size, count, before)
    return count, changed[:end].copy(), 0


@kernel
def held_at(rows: Ints, order: Ints, head: Ints, size: Ints, count: int, keys: Ints) -> NDArray[np.bool_]:
    """For each key, whether the union holds it: one look-up."""
    out = np.empty(len(keys), np.bool_)
    for k in range(len(keys)):
        block, place = locate(rows, order, head, size, count, keys[k] - 1)
        out[k] = block >= 0 and rows[order[block], 1, place] > 0
    return out


@kernel
def gaps_in(rows: Ints, order: Ints, head: Ints, size: Ints, count: int, ranges: Ranges) -> Ranges:
    """The parts of sorted disjoint ranges that the union does not hold."""
    out = np.empty((4, 2), np.int64)
    end = 0
    for k in range(len(ranges)):
        first, last = ranges[k]
        block, place = locate(rows, order, head, size, count, first - 1)
        while first <= last:
            held, until = 0, last
            if block >= 0:
                held = rows[order[block], 1, place]
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
def edge_before(rows: Ints, order: Ints, head: Ints, size: Ints, count: int, key: int) -> int:
    """The last cell of the union before `key`, or -1."""
    block, place = locate(rows, order, head, size, count, key - 2)
    if block < 0:
        return -1
    return key - 1 if rows[order[block], 1, place] > 0 else rows[order[block], 0, place]


@kernel
def edge_after(rows: Ints, order: Ints, head: Ints, size: Ints, count: int, key: int) -> int:
    """The first cell of the union after `key`, or -1."""
    block, place = locate(rows, order, head, size, count, key)
    if block >= 0 and rows[order[block], 1, place] > 0:
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
        blocks = self._blocks
        blocks.make_room(2 * len(ranges) + 1)
        blocks.count, changed, broken = change(
            blocks.rows, blocks.order, blocks.head, blocks.size, blocks.count, ranges, by
        )
        if broken:
            raise InvariantError(
                "a range is taken back that was not asked for. "
                "Remedy: the state of two brokers does not fit: restore both from one checkpoint"
            )
        return changed

    def holds(self, keys: Ints) -> NDArray[np.bool_]:
        """For each key, whether the union holds it. O(log n) each."""
        b = self._blocks
        return held_at(b.rows, b.order, b.head, b.size, b.count, keys)

    def uncovered(self, ranges: Ranges) -> Ranges:
        """The parts of sorted disjoint ranges that the union does not hold: none means covered or subsumed."""
        b = self._blocks
        return gaps_in(b.rows, b.order, b.head, b.size, b.count, ranges)

    def before(self, key: int) -> int:
        """The last cell of the union before `key`, or -1."""
        b = self._blocks
        return int(edge_before(b.rows, b.order, b.head, b.size, b.count, key))

    def after(self, key: int) -> int:
        """The first cell of the union after `key`, or -1."""
        b = self._blocks
        return int(edge_after(b.rows, b.order, b.head, b.size, b.count, key))

    def rows(self) -> Ints:
        """Everything, as an `(n, 2)` array: after which cell, which count."""
        return self._blocks.flat()

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
