"""The Hilbert curve in any number of dimensions: cells to keys, keys to cells, boxes of cells to ranges of keys.

A grid of `2^bits` cells a side in `dims` dimensions; the curve visits every cell once, each next to the one before. So
a box of cells is a set of ranges on the curve, few of them because neighbours on the curve are neighbours in space:

        5──6   9─10          the 4 x 4 curve; the box of cells
        │  │   │  │          {6, 7, 8, 9} is one range, [6, 9]
        4  7───8  11
        │         │
        3──2  13─12
           │  │
        0──1  14─15

Orientation (Hamilton and Rau-Chaplin's form of the curve). At each level a cube is cut into `2^dims` cubes, visited in
the order of a Gray code that is reflected and rotated: `entry` is the corner where the curve enters, `direction` the
axis along which it leaves. The digit of a cube in the key is its rank in that order; `entry` and `direction` of the
next level follow from the digit.

Ranges by descent. The bits of a digit halve the cube one dimension at a time, so the curve is also a *binary* tree of
boxes whose keys are contiguous. Descend in key order: a half that misses the box is left out, one inside it is a whole
range, the others are halved again. Work goes with the number of ranges (the surface of the box), not with its cells;
and as dimensions are tested one by one, there is no step that looks at all `2^dims` cubes.

Cells and keys are int64 and `bits x dims <= 63`. Ranges are closed, `[first, last]`, as published: an open end of
`2^63` would not be an int64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from state.kernels import kernel, kernel_inline

MOST_BITS = 63
ROOM, LEAST_ROOM = 16, 1024
"""Halves of a box looked at for each range allowed, and in any case: a choice of gaps, and work that is bounded."""
BOXES, SHARE = 8, 32
"""Boxes of one shape that get all of that; more of them share it, each with so many halves at least."""
KEY, HALVINGS, INSIDE, ENTRY, DIRECTION, DIGIT, LEVEL, LEFT = range(8)
"""Fields of a half: the leading bits of its keys and how many, the dimensions in which it is inside the box, the
orientation of its cube, the leading bits of its digit there, the level of that cube, dimensions already halved in it.
"""
SMALL_CUBE = 6
"""Up to this many dimensions the turns of the curve are in a table, and the last cubes are looked at cell by cell."""
Cells = NDArray[np.int64]
"""Cells: `(n, d)` for points, `(n, 2, d)` for boxes, both corners inside."""
Ranges = NDArray[np.int64]
"""Closed ranges of keys, `(n, 2)`, sorted, disjoint."""


@kernel_inline
def rotate(x: int, by: int, dims: int) -> int:
    """Rotate `dims` bits to the left by 0 <= `by` <= dims."""
    return ((x << by) | (x >> (dims - by))) & ((1 << dims) - 1)


@kernel_inline
def trailing_ones(x: int) -> int:
    n = 0
    while x & 1:
        x >>= 1
        n += 1
    return n


@kernel_inline
def entry_after(entry: int, direction: int, digit: int, dims: int) -> int:
    """Where the curve enters the cube `digit` of a cube that it enters at `entry`."""
    if digit == 0:
        return entry
    even = (digit - 1) & ~1
    return entry ^ rotate(even ^ (even >> 1), direction + 1, dims)


@kernel_inline
def direction_after(direction: int, digit: int, dims: int) -> int:
    """Along which axis the curve runs in the cube `digit`."""
    turn = 0
    if digit > 0:
        turn = trailing_ones(digit if digit & 1 else digit - 1) % dims
    return (direction + turn + 1) % dims


@kernel_inline
def digit_of(corner: int, entry: int, direction: int, dims: int) -> int:
    """The rank of the cube at `corner` in the order in which the curve visits them."""
    digit = rotate(corner ^ entry, dims - 1 - direction, dims)
    shift = 1
    while shift < dims:  # the inverse of the Gray code
        digit ^= digit >> shift
        shift <<= 1
    return digit


@kernel
def turns_of(dims: int) -> NDArray[np.int64]:
    """For each orientation (`entry * dims + direction`) and corner: digit, and orientation there, as one number."""
    turns = np.empty((dims << dims, 1 << dims), np.int64)
    for state in range(len(turns)):
        entry, direction = state // dims, state % dims
        for corner in range(1 << dims):
            digit = digit_of(corner, entry, direction, dims)
            there = entry_after(entry, direction, digit, dims) * dims + direction_after(direction, digit, dims)
            turns[state, corner] = (there << dims) | digit
    return turns


@kernel
def keys_of_cells(cells: Cells, bits: int, turns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The key of each cell; `turns` saves most of the work if it is not empty."""
    count, dims = cells.shape
    keys = np.empty(count, np.int64)
    for k in range(count):
        key = entry = direction = state = 0
        for level in range(bits - 1, -1, -1):
            corner = 0
            for i in range(dims):
                corner |= ((cells[k, i] >> level) & 1) << i
            if len(turns):
                turn = turns[state, corner]
                key = (key << dims) | (turn & ((1 << dims) - 1))
                state = turn >> dims
            else:
                digit = digit_of(corner, entry, direction, dims)
                key = (key << dims) | digit
                entry = entry_after(entry, direction, digit, dims)
                direction = direction_after(direction, digit, dims)
        keys[k] = key
    return keys


@kernel
def cells_of_keys(keys: NDArray[np.int64], dims: int, bits: int) -> Cells:
    """The cell of each key; the inverse of `keys_of_cells`."""
    cells = np.zeros((len(keys), dims), np.int64)
    for k in range(len(keys)):
        entry = direction = 0
        for level in range(bits - 1, -1, -1):
            digit = (keys[k] >> (level * dims)) & ((1 << dims) - 1)
            corner = rotate(digit ^ (digit >> 1), direction + 1, dims) ^ entry
            for i in range(dims):
                cells[k, i] |= ((corner >> i) & 1) << level
            entry = entry_after(entry, direction, digit, dims)
            direction = direction_after(direction, digit, dims)
    return cells


@kernel_inline
def append(out: Ranges, begin: int, end: int, first: int, last: int) -> tuple[Ranges, int]:
    """Add a range behind those from `begin` to `end`: as part of the last one, if it follows it without a gap."""
    if end > begin and out[end - 1, 1] == first - 1:
        out[end - 1, 1] = last
        return out, end
    if end == len(out):
        grown = np.empty((2 * end, 2), np.int64)
        grown[:end] = out
        out = grown
    out[end, 0], out[end, 1] = first, last
    return out, end + 1


@kernel
def descend(box: Cells, bits: int, depth: int, most: int, out: Ranges, begin: int) -> tuple[Ranges, int]:
    """Append to `out`, from `begin`, the ranges of a box of cells; the array (it may have grown) and the new end.

    At `depth` halvings (`bits * dims`: single cells) a half that is partly inside counts as wholly inside: an outer
    approximation. More than `most` halves: gives up with the end -1.
    """
    dims = box.shape[1]
    whole = bits * dims
    everywhere = (1 << dims) - 1
    corners = np.zeros((whole + 2, dims), np.int64)  # a stack of halves: their low corners, and all else about them
    halves = np.zeros((whole + 2, 8), np.int64)
    for i in range(dims):
        if box[0, i] == 0 and box[1, i] == (1 << bits) - 1:
            halves[0, INSIDE] |= 1 << i
    halves[0, LEVEL] = bits - 1
    end, found, top = begin, 0, 0
    while top >= 0:
        key, rest, inside = halves[top, KEY], whole - halves[top, HALVINGS], halves[top, INSIDE]
        if inside == everywhere or halves[top, HALVINGS] == depth:
            top -= 1
            found += 1
            if found > most:
                return out, -1
            first = key << rest
            out, end = append(out, begin, end, first, first + ((1 << rest) - 1))
            continue
        entry, direction, digit = halves[top, ENTRY], halves[top, DIRECTION], halves[top, DIGIT]
        if rest == dims and dims <= SMALL_CUBE and depth == whole:  # cubes of two cells a side: all of them at once
            low_out = high_out = 0  # dimensions in which the cells at the low side, at the high side are outside
            for i in range(dims):
                low_out |= (1 << i) if corners[top, i] < box[0, i] else 0
                high_out |= (1 << i) if corners[top, i] >= box[1, i] else 0
            top -= 1
            for digit in range(1 << dims):
                corner = rotate(digit ^ (digit >> 1), direction + 1, dims) ^ entry
                if corner & high_out == 0 and ~corner & low_out == 0:
                    found += 1
                    out, end = append(out, begin, end, (key << dims) | digit, (key << dims) | digit)
            if found > most:
                return out, -1
            continue
        level, left, halving = halves[top, LEVEL], halves[top, LEFT], halves[top, HALVINGS] + 1
        i = direction - left if left <= direction else direction - left + dims
        left = left + 1 if left < dims - 1 else 0
        base, side = corners[top, i], 1 << level
        flip = (entry >> i) ^ digit  # the bit before this one, by the Gray code; a digit begins with 0
        here = top
        top -= 1
        for bit in (1, 0):  # the later half first: the stack turns them round
            low = base + side * ((bit ^ flip) & 1)
            high = low + (side - 1)
            if high < box[0, i] or low > box[1, i]:
                continue
            top += 1
            if top > here:
                for j in range(dims):
                    corners[top, j] = corners[here, j]
            corners[top, i] = low
            halves[top, KEY] = (key << 1) | bit
            halves[top, HALVINGS] = halving
            halves[top, INSIDE] = inside | (1 << i) if box[0, i] <= low and high <= box[1, i] else inside
            halves[top, LEFT] = left
            if left > 0:
                halves[top, LEVEL], halves[top, DIGIT] = level, (digit << 1) | bit
                halves[top, ENTRY], halves[top, DIRECTION] = entry, direction
            else:
                done = (digit << 1) | bit
                halves[top, LEVEL], halves[top, DIGIT] = level - 1, 0
                halves[top, ENTRY] = entry_after(entry, direction, done, dims)
                halves[top, DIRECTION] = direction_after(direction, done, dims)
    return out, end


@kernel
def descend_all(boxes: Cells, bits: int, depth: int, most: int) -> tuple[Ranges, NDArray[np.int64]]:
    """The ranges of each box, one after the other, and where those of each end; the last is -1 if one had too many."""
    out = np.empty((16, 2), np.int64)
    ends = np.empty(len(boxes), np.int64)
    end = 0
    for k in range(len(boxes)):
        out, ends[k] = descend(boxes[k], bits, depth, most, out, end)
        if ends[k] < 0:
            ends[-1] = -1  # not reached, so nothing stands there yet
            return out[:0].copy(), ends
        end = ends[k]
    return out[:end].copy(), ends


@cache
def turns(dims: int) -> NDArray[np.int64]:
    """The table of turns, for few dimensions; for more it would be large, and is empty."""
    return turns_of(dims) if dims <= SMALL_CUBE else np.empty((0, 0), np.int64)


@dataclass(frozen=True, slots=True)
class Curve:
    """A Hilbert curve.

    >>> curve = Curve(dims=2, bits=2)
    >>> curve.keys(np.array([[0, 0], [1, 0], [3, 0]])).tolist()
    [0, 1, 15]
    >>> curve.ranges(np.array([[1, 2], [2, 3]])).tolist()
    [[6, 9]]
    """

    dims: int
    bits: int

    def __post_init__(self) -> None:
        if self.dims < 1 or self.bits < 1 or self.dims * self.bits > MOST_BITS:
            raise ValueError(f"no curve: {self.bits} bits x {self.dims} dimensions must be 1 to {MOST_BITS}")

    def keys(self, cells: Cells) -> NDArray[np.int64]:
        """The keys of cells `(n, d)`. O(bits x dims) each."""
        return keys_of_cells(cells, self.bits, turns(self.dims))

    def cells(self, keys: NDArray[np.int64]) -> Cells:
        """The cells of keys; the inverse of `keys`."""
        return cells_of_keys(keys, self.dims, self.bits)

    def ranges(self, box: Cells) -> Ranges:
        """The ranges of one box of cells `(2, d)`: sorted, disjoint, maximal."""
        return self.ranges_of(box[None])[0]

    def ranges_of(self, boxes: Cells) -> tuple[Ranges, NDArray[np.int64]]:
        """The ranges of many boxes `(n, 2, d)`, one box after the other, and where each one's end."""
        return self._descended(boxes, self.bits, 2**62)

    def _descended(self, boxes: Cells, level: int, most: int) -> tuple[Ranges, NDArray[np.int64]]:
        # The kernel takes seconds to compile: one layout in memory, one compilation.
        return descend_all(np.ascontiguousarray(boxes), self.bits, self.dims * level, most)

    def _deepest(self, boxes: Cells, most: int) -> tuple[Ranges, int]:
        """The ranges of boxes at the deepest level at which no box has more than `most` halves, and that level.

        If single cells are too many, the levels are tried from the top: each costs more than all before it.
        """
        found, ends = self._descended(boxes, self.bits, most)
        if ends[-1] >= 0:
            return found, self.bits
        for level in range(self.bits):
            deeper, ends = self._descended(boxes, level, most)
            if ends[-1] < 0:
                return found, level - 1
            found = deeper
        return found, self.bits - 1

    def outer_ranges(self, boxes: Cells, most: int) -> tuple[Ranges, int]:
        """At most `most` ranges that hold all cells of all boxes; and how many other cells they hold.

        As long as each box needs no more than `ROOM x most` halves (if there are many boxes, its share of `BOXES` times
        that), only the smallest gaps between their ranges are bridged. Beyond that the curve is descended less deep, so
        that the work is bounded whatever the boxes are.
        """
        room = max(LEAST_ROOM, ROOM * most)
        room = max(SHARE, min(room, BOXES * room // max(1, len(boxes))))
        found, level = self._deepest(boxes, room)
        exact = merge(found) if len(boxes) > 1 else found
        ranges = bridge_smallest(exact, most)
        asked = cell_count(exact) if level == self.bits else sum(box_cells(box) for box in boxes.tolist())
        return ranges, max(0, cell_count(ranges) - asked)


def merge(ranges: Ranges) -> Ranges:
    """Any ranges as sorted, disjoint, maximal ones."""
    if len(ranges) < 2:
        return ranges
    ordered = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reach = np.maximum.accumulate(ordered[:, 1])
    apart = np.flatnonzero(ordered[1:, 0] - 1 > reach[:-1])
    firsts = ordered[np.concatenate(([0], apart + 1)), 0]
    return np.stack((firsts, reach[np.concatenate((apart, [len(ordered) - 1]))]), axis=1)


def bridge_smallest(ranges: Ranges, most: int) -> Ranges:
    """The same ranges with the smallest gaps (the earliest where equal) bridged, until there are at most `most`."""
    if len(ranges) <= most:
        return ranges
    gaps = ranges[1:, 0] - ranges[:-1, 1]
    kept = np.sort(np.argsort(gaps, kind="stable")[len(gaps) - (most - 1) :])
    firsts, lasts = np.concatenate(([0], kept + 1)), np.concatenate((kept, [len(ranges) - 1]))
    return np.stack((ranges[firsts, 0], ranges[lasts, 1]), axis=1)


def box_cells(box: list[list[int]]) -> int:
    """Return the number of cells in a box."""
    return prod(high - low + 1 for low, high in zip(*box, strict=True))


def cell_count(ranges: Ranges) -> int:
    """Return the number of cells in disjoint ranges; exact also beyond int64."""
    return len(ranges) + int((ranges[:, 1] - ranges[:, 0]).astype(np.uint64).sum())
