"""Approximate point dominance on the Z curve (Shen and Tirthapura): the sorted array, the greedy search, its cost.

Theory. A box of d attributes is a point of n = 2d coordinates (`dominance`), here cells of 2^bits a side, and whoever
contains q lies in the *extremal* region above q's point: the box from that point to the far corner of the universe,
with sides l1 ... ln. A standard cube (a cell of some level of the recursive halving) is one run of the curve, so the
points in it are one stretch of the sorted array. The region is cut greedily into standard cubes, largest first:

    S_i(l) = l without its bits below i;  R(S_i) = the extremal region with sides S_i(l1) ... S_i(ln)
    the cubes of side 2^i are exactly those in R(S_i) but not in R(S_i+1)                        (Lemma 3.4)

               ┌───┬───┬─┐
    l = (5, 5) │ . . . .│ │     one cube of side 4 in the far corner, nine of side 1 around it:
      = 101b   │ . 4 . .│1│     the largest holds 64 % of the region, and 16 of 25 cells
               └───┴───┴─┘      are one look; of a 257 x 257 region it holds over 99 %

The search looks at the cubes in that order until somebody is found who really contains q (compared by keys: a cell may
hold both who does and who does not), until the share searched reaches 1 - epsilon, or until the budget is spent.
Truncating the sides to ceil(log2(2n / epsilon)) leading bits keeps at least 1 - epsilon of the volume (Lemma 3.2), so
small bits are never looked at; how many cubes that takes depends on epsilon, n and the aspect ratio but not on the
lengths (Theorem 3.1), while the exhaustive search grows as the (n - 1)-th power of the shortest side (Theorem 4.1).

It is still many cubes: at 10 bits and epsilon = 0.05 a median of 84 in one attribute, 8e5 in two, 1.9e10 in three. So
cubes are never listed. The search walks the *points* in the order of the curve; from a point outside the region, or in
a cube that was looked at before, it jumps to the next cell that counts, and with one search of the array to the next
point after it. Empty cubes cost nothing, and each step is at a point:

    points   ──●──●────────●●●─────●────────●──▶ Z order
               ╰─▶ jump ──▶╰ look ╯╰─▶ jump ─▶

No key is ever formed. Of two points the one comes first that is smaller in the coordinate in which they differ in the
highest bit (the first such coordinate), which is the order of the interleaved bits; so bits x 2d may be anything.

Where the search ends. The paper's ends with the cube by which the share reaches 1 - epsilon. The walk passes empty
cubes without counting them, so it goes on to the end of that level of cubes (or until the cubes with points alone make
up the share): more is found than epsilon promises. `at_share` ends it where the paper's ends, with the cubes of a level
in the order of the curve: before a cube that is looked at, the cells before it are counted in closed form.

Slip. Lemma 3.6 bounds the cubes of m leading bits by m (2^alpha (2^m - 1))^(n-1); a factor of up to n is missing
(1171 cubes against 1029 for n = 4, m = 3). What Theorem 3.1 says for constant n stands.

Cost: a step is O(n log points). Adding and removing move up to 8 bytes a point in the array of slots.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.geometry.boxes import contains
from state.kernels import kernel, kernel_inline
from state.space import Keys

Slots = NDArray[np.int64]
Cells = NDArray[np.int64]
"""Coordinates on the curve: `(n, axes)`, each from 0 below 2^bits."""

FOUND, ENOUGH, EVERYTHING, SPENT = 0, 1, 2, 3
"""The ends of a search: with a container, at 1 - epsilon, after the whole region, with the budget spent."""

# The order of the curve


@kernel_inline
def _lower_bit(a: int, b: int) -> bool:
    """Is the highest bit of `a` below that of `b`?"""
    return a < b and a < (a ^ b)


@kernel
def z_less(a: Cells, b: Cells) -> bool:
    """Does `a` come before `b` on the curve?"""
    axis, differs = 0, 0
    for j in range(len(a)):
        x = a[j] ^ b[j]
        if _lower_bit(differs, x):
            axis, differs = j, x
    return bool(a[axis] < b[axis])


@kernel
def _reach(order: Slots, count: int, cells: Cells, target: Cells, begin: int) -> int:
    """The first position from `begin` on whose point is not before `target`: doubling steps, then halving."""
    step = 1
    while begin + step < count and z_less(cells[order[begin + step]], target):
        step *= 2
    lo, hi = begin + (step >> 1), min(begin + step, count)
    while lo < hi:
        mid = (lo + hi) >> 1
        if z_less(cells[order[mid]], target):
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel
def _sorted(slots: Slots, cells: Cells) -> Slots:
    """Slots in the order of the curve, equal ones as they come (merge sort)."""
    n = len(slots)
    order, other = slots.copy(), np.empty(n, np.int64)
    width = 1
    while width < n:
        for begin in range(0, n, 2 * width):
            middle, end = min(begin + width, n), min(begin + 2 * width, n)
            i, j = begin, middle
            for k in range(begin, end):
                if i < middle and (j == end or not z_less(cells[order[j]], cells[order[i]])):
                    other[k] = order[i]
                    i += 1
                else:
                    other[k] = order[j]
                    j += 1
        order, other = other, order
        width *= 2
    return order


# Jumps


@kernel
def _enter(point: Cells, corner: Cells, target: Cells) -> bool:
    """Is `point` outside the extremal region at `corner`? Then `target` becomes the first cell in it after `point`.

    The cell shares with `point` all bits above the highest one in which `point` falls short of the corner, has that bit
    set, and below it what the corner asks for.
    """
    axis, short = 0, 0
    for j in range(len(point)):
        if point[j] < corner[j] and _lower_bit(short, point[j] ^ corner[j]):
            axis, short = j, point[j] ^ corner[j]
    if short == 0:
        return False
    bit = 1
    while bit <= short >> 1:
        bit <<= 1
    for j in range(len(point)):
        kept = point[j] & -bit if j < axis else point[j] & -(2 * bit)
        target[j] = max(kept | bit if j == axis else kept, corner[j])
    return True


@kernel
def _leave(point: Cells, level: int, bits: int, target: Cells) -> bool:
    """Set `target` to the first cell after the standard cube of side 2^level around `point`; False if it is the last.

    Adds one to the interleaved number at that level: set bits become 0 until one that is 0 becomes 1.
    """
    for j in range(len(point)):
        target[j] = (point[j] >> level) << level
    for b in range(level, bits):
        for j in range(len(point) - 1, -1, -1):
            target[j] ^= 1 << b
            if target[j] & (1 << b):
                return True
    return False


@kernel
def _widest(point: Cells, corner: Cells, level: int, bits: int) -> int:
    """The level of the largest standard cube around `point` that lies in the region at `corner`; at least `level`."""
    while level < bits:
        for j in range(len(point)):
            if (point[j] >> (level + 1)) << (level + 1) < corner[j]:
                return level
        level += 1
    return level


@kernel
def _truncated(corner: Cells, level: int, bits: int, out: Cells) -> float:
    """Write the corner of R(S_level) into `out`; returns its share of the region at `corner`."""
    share = 1.0
    for j in range(len(corner)):
        side = (1 << bits) - corner[j]
        kept = (side >> level) << level
        out[j] = (1 << bits) - kept
        share *= kept / side
    return share


@kernel
def _before(point: Cells, corner: Cells, bits: int, whole: Cells) -> float:
    """The share, of the region at `whole`, of the cells that are in the region at `corner` and before `point`.

    For each bit set in the interleaved number of `point`: the cells with the same bits above it, and 0 in its place.
    """
    axes, total = len(point), 0.0
    for b in range(bits):
        for j in range(axes):
            if not point[j] & (1 << b):
                continue
            share = 1.0
            for i in range(axes):
                level = b if i <= j else b + 1
                low = (point[i] >> level) << level
                if i == j:
                    low ^= 1 << b
                high = low + (1 << level)
                share *= max(0, high - max(low, corner[i])) / ((1 << bits) - whole[i])
            total += share
    return total


# The search


@kernel
def search(
    order: Slots,
    count: int,
    cells: Cells,
    corner: Cells,
    boxes: Keys,
    q: Keys,
    bits: int,
    epsilon: float,
    budget: int,
    at_share: bool,
) -> tuple[int, int, int]:
    """Look for a box that contains `q`, whose point is `corner`. How it ended, the slot found, the steps it took."""
    axes = len(corner)
    outer, inner, target = np.empty(axes, np.int64), np.empty(axes, np.int64), np.empty(axes, np.int64)
    done, steps = 0.0, 0
    for level in range(bits, -1, -1):
        share = _truncated(corner, level, bits, outer)
        if share <= done:
            continue  # no cubes of this side
        cube = 1.0
        for j in range(axes):
            cube *= (1 << level) / ((1 << bits) - corner[j])
        at = _reach(order, count, cells, outer, 0)
        seen = 0
        while at < count:
            if steps >= budget:
                return SPENT, -1, steps
            steps += 1
            point = cells[order[at]]
            if _enter(point, outer, target):
                at = _reach(order, count, cells, target, at)
            elif done > 0 and not _enter(point, inner, target):
                if not _leave(point, _widest(point, inner, level, bits), bits, target):
                    break
                at = _reach(order, count, cells, target, at)
            else:
                if at_share:
                    searched = done + _before(point >> level << level, outer, bits, corner)
                    if done > 0:
                        searched -= _before(point >> level << level, inner, bits, corner)
                    if searched >= 1 - epsilon:
                        return ENOUGH, -1, steps
                last = not _leave(point, level, bits, target)
                while at < count and (last or z_less(cells[order[at]], target)):
                    if contains(boxes[order[at]], q):
                        return FOUND, int(order[at]), steps
                    if steps >= budget:
                        return SPENT, -1, steps
                    steps += 1
                    at += 1
                seen += 1
                if epsilon > 0 and done + seen * cube >= 1 - epsilon:
                    return ENOUGH, -1, steps
        done = max(share, done)
        if done >= 1:
            return EVERYTHING, -1, steps
        if done >= 1 - epsilon:
            return ENOUGH, -1, steps
        inner[:] = outer
    return EVERYTHING, -1, steps


@kernel
def _place(order: Slots, count: int, cells: Cells, slot: int) -> int:
    """How many come before a slot: those whose points are before its own, and of its equals the earlier slots."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        other = order[middle]
        if z_less(cells[other], cells[slot]) or (other < slot and not z_less(cells[slot], cells[other])):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _insert(order: Slots, count: int, cells: Cells, slots: Slots) -> None:
    """Insert slots that are in order. Each of the others moves at most once."""
    end = count
    for k in range(len(slots) - 1, -1, -1):
        at = _place(order, end, cells, slots[k])
        for j in range(end - 1, at - 1, -1):
            order[j + k + 1] = order[j]
        order[at + k] = slots[k]
        end = at


@kernel
def _remove(order: Slots, count: int, cells: Cells, slots: Slots) -> bool:
    """Take out slots that are in order; False if one is not there. Each of the others moves at most once."""
    end = at = 0
    for k in range(len(slots)):
        place = _place(order, count, cells, slots[k])
        if place == count or order[place] != slots[k]:
            return False
        if k == 0:
            end = at = place
        for j in range(at, place):
            order[end] = order[j]
            end += 1
        at = place + 1
    for j in range(at, count):
        order[end] = order[j]
        end += 1
    return True


class ZCurve:
    """The SFC array: slots of boxes in the order of their points on the curve.

    >>> curve = ZCurve(2, 3)
    >>> curve.add(np.arange(2), np.array([(5, 5), (1, 7)]))
    >>> [int(slot) for slot in curve.slots()]
    [1, 0]
    """

    def __init__(self, axes: int, bits: int) -> None:
        self._axes, self._bits = axes, bits
        self.fill(np.empty(0, np.int64), np.empty((0, axes), np.int64))

    def __len__(self) -> int:
        return self._count

    def fill(self, slots: Slots, cells: Cells) -> None:
        """Start again with these slots, in order of arrival, and the cells of their points. O(n log n)."""
        self._count = len(slots)
        self._cells = np.zeros((max(64, 2 * (int(slots.max(initial=0)) + 1)), self._axes), np.int64)
        self._cells[slots] = cells
        self._order = np.zeros(len(self._cells), np.int64)
        self._order[: self._count] = _sorted(slots, self._cells)

    def add(self, slots: Slots, cells: Cells) -> None:
        """Add points under slots later than all others. O(n) in moves, O(log n) each in comparisons."""
        last = int(slots.max(initial=0))
        if last >= len(self._cells):
            self._cells = np.concatenate((self._cells, np.zeros((last + 1, self._axes), np.int64)))
            self._order = np.concatenate((self._order, np.zeros(last + 1, np.int64)))
        self._cells[slots] = cells
        _insert(self._order, self._count, self._cells, _sorted(slots, self._cells))
        self._count += len(slots)

    def remove(self, slots: Slots) -> None:
        """Forget the points of these slots."""
        if not _remove(self._order, self._count, self._cells, _sorted(slots, self._cells)):
            raise InvariantError("a slot of a Z curve is removed that holds no point")
        self._count -= len(slots)

    def follow(self, moved: Slots) -> None:
        """Give each point its new slot, `moved[slot]`. New slots are in the same order, so nothing is sorted. O(n)."""
        slots = self.slots()
        cells = np.zeros((max(64, int(moved.max(initial=0)) + 1), self._axes), np.int64)
        cells[moved[slots]] = self._cells[slots]
        order = np.zeros(len(cells), np.int64)
        order[: self._count] = moved[slots]
        self._cells, self._order = cells, order

    def search(
        self, corner: Cells, boxes: Keys, q: Keys, epsilon: float, budget: int, *, at_share: bool = False
    ) -> tuple[int, int, int]:
        """A slot whose box (in `boxes`) contains `q`, whose point has the cells `corner`; see `search`."""
        return search(self._order, self._count, self._cells, corner, boxes, q, self._bits, epsilon, budget, at_share)

    def slots(self) -> Slots:
        """The slots in the order of the curve."""
        return self._order[: self._count]

    def check(self) -> None:
        """Raise `InvariantError` unless the slots are in the order of the curve, equal points in order of arrival."""
        slots = self.slots().tolist()
        for a, b in itertools.pairwise(slots):
            if z_less(self._cells[b], self._cells[a]) or (not z_less(self._cells[a], self._cells[b]) and a >= b):
                raise InvariantError(f"slots {a} and {b} of a Z curve are not in order")
