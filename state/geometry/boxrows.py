"""Boxes as bit rows: the part of the box index (`boxindex`) for up to some ten thousand boxes, and for the newest ones.

Theory. Cut each attribute into B buckets. For attribute i and bucket b keep two rows of bits, one bit per box:

    starts[i][b]   boxes whose low end lies in bucket b or an earlier one
    ends[i][b]     boxes whose last key lies in bucket b or a later one

    bucket       0     1     2     3          starts: 0     1     2     3     ends: 0     1     2     3
    box 0     ├─────────┤                             1     1     1     1           1     1     0     0
    box 1              ├────────────┤                 0     1     1     1           1     1     1     1
    box 2     ├─┤                                     1     1     1     1           1     0     0     0

A box can hold a point in bucket b only if its bit is set in `starts[b]` and `ends[b]`. Likewise it can meet q only if
it starts no later than q ends and ends no earlier than q starts, and can contain q only if it starts no later than q
starts and ends no earlier than q ends. So each question is the AND of 2d rows, 64 boxes a word, and then a comparison
of coordinates for the few bits that are left: the rows filter, the coordinates decide. The borders of the buckets are
quantiles of the ends seen when the rows were last built, and have no influence on any answer.

Cost: a question reads 2d·n/64 words and compares what is left; adding sets at most 2d·B bits; building takes O(B·n/64)
words. Memory: d·B/4 bits for each box that there is room for, 48 bytes an attribute with 256 buckets.

The boxes and the row of living ones belong to the index. Here they are numbered from 0.

Rejected: one row per bucket "overlaps" instead of two (half the words for points, but no answer for boxes).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from state.errors import InvariantError
from state.geometry.boxes import contains, meets
from state.kernels import kernel, kernel_inline
from state.space import Keys

Bits = NDArray[np.uint64]
Slots = NDArray[np.int64]

MOST_BUCKETS = 256  # 64 to 512 match 10,000 boxes within 20 % of each other; 256 is best for large boxes
BLOCK = 32  # words (2,048 boxes) between two looks at whether something was hit
SAMPLE = 8192  # boxes looked at for quantiles
ONE = np.uint64(1)

MEETING, CONTAINING, INSIDE = 0, 1, 2
"""How a box of the index is to stand to the box asked about."""


def quantiles(boxes: Keys, buckets: int) -> Slots:
    """Return `buckets - 1` borders per attribute with about equally many ends between each two of them."""
    some = boxes[:: max(1, len(boxes) // SAMPLE)]
    if not len(some):
        return np.zeros((boxes.shape[2], buckets - 1), np.int64)
    ends = np.sort(np.concatenate((some[:, 0], some[:, 1] - 1)).T, axis=1)
    return np.ascontiguousarray(ends[:, np.arange(1, buckets) * ends.shape[1] // buckets])


@kernel_inline
def bucket_of(borders: Slots, key: int) -> int:
    """Return the number of borders at or below `key`."""
    lo, hi = 0, len(borders)
    while lo < hi:
        mid = (lo + hi) >> 1
        if borders[mid] <= key:
            lo = mid + 1
        else:
            hi = mid
    return lo


def _lowest_bit_code(typing_context: Any, word: Any) -> Any:
    """Generate code for the position of the lowest set bit of a word that is not 0: one machine instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


lowest_bit: Any = intrinsic(_lowest_bit_code)


@kernel
def holds(box: Keys, point: Keys) -> bool:
    """Does the box hold the point?"""
    for i in range(len(point)):
        if point[i] < box[0, i] or point[i] >= box[1, i]:
            return False
    return True


@kernel
def stands(relation: int, box: Keys, q: Keys) -> bool:
    """Does the box stand to `q` in this relation?"""
    if relation == CONTAINING:
        return contains(box, q)
    if relation == INSIDE:
        return contains(q, box)
    return meets(box, q)


class RowArrays(NamedTuple):
    """The arrays that kernels take: borders `(d, B - 1)`, starts and ends `(d, B, words)`."""

    borders: Slots
    starts: Bits
    ends: Bits


@kernel
def _build(boxes: Keys, rows: RowArrays) -> None:
    """Fill the rows: own bucket first, then prefix and suffix OR."""
    starts, ends = rows.starts, rows.ends
    d, buckets, words = starts.shape
    for slot in range(len(boxes)):
        word, bit = slot >> 6, ONE << np.uint64(slot & 63)
        for i in range(d):
            starts[i, bucket_of(rows.borders[i], boxes[slot, 0, i]), word] |= bit
            ends[i, bucket_of(rows.borders[i], boxes[slot, 1, i] - 1), word] |= bit
    for i in range(d):
        for b in range(1, buckets):
            for w in range(words):
                starts[i, b, w] |= starts[i, b - 1, w]
                ends[i, buckets - 1 - b, w] |= ends[i, buckets - b, w]


@kernel
def _insert(first: int, boxes: Keys, borders: Slots, starts: Bits, ends: Bits) -> None:
    d, buckets, _ = starts.shape
    for k in range(len(boxes)):
        word, bit = (first + k) >> 6, ONE << np.uint64((first + k) & 63)
        for i in range(d):
            for b in range(bucket_of(borders[i], boxes[k, 0, i]), buckets):
                starts[i, b, word] |= bit
            for b in range(bucket_of(borders[i], boxes[k, 1, i] - 1) + 1):
                ends[i, b, word] |= bit


@kernel
def _filter(late: Slots, early: Slots, begin: int, end: int, alive: Bits, rows: RowArrays, found: Bits) -> None:
    """found = alive AND, over the attributes, starts[late] AND ends[early], for the words begin to end."""
    block = found[begin:end]
    block[:] = alive[begin:end]
    for i in range(rows.starts.shape[0]):
        start, stop = rows.starts[i, late[i], begin:end], rows.ends[i, early[i], begin:end]
        for w in range(len(block)):  # from 0, over whole views: this is what LLVM turns into vector instructions
            block[w] &= start[w] & stop[w]


@kernel
def _any_holds(found: Bits, begin: int, end: int, boxes: Keys, point: Keys) -> bool:
    for w in range(begin, end):
        word = found[w]
        while word != 0:
            if holds(boxes[(w << 6) + lowest_bit(word)], point):
                return True
            word &= word - ONE
    return False


@kernel
def _stab_any(points: Keys, boxes: Keys, alive: Bits, borders: Slots, starts: Bits, ends: Bits) -> NDArray[np.bool_]:
    """For each point: does any box hold it? Looks at a block of words at a time and stops at the first hit."""
    rows = RowArrays(borders, starts, ends)
    n, d = points.shape
    words = (len(boxes) + 63) >> 6
    hit = np.zeros(n, np.bool_)
    at = np.empty(d, np.int64)
    found = np.empty(words + 1, np.uint64)
    for p in range(n):
        for i in range(d):
            at[i] = bucket_of(rows.borders[i], points[p, i])
        begin = 0
        while begin < words and not hit[p]:
            end = min(begin + BLOCK, words)
            _filter(at, at, begin, end, alive, rows, found)
            hit[p] = _any_holds(found, begin, end, boxes, points[p])
            begin = end
    return hit


@kernel
def _collect(found: Bits, words: int, boxes: Keys, point: Keys, slots: Slots) -> int:
    """Write the found slots whose box really holds the point into `slots`; return how many."""
    count = 0
    for w in range(words):
        word = found[w]
        while word != 0:
            slot = (w << 6) + lowest_bit(word)
            word &= word - ONE
            slots[count] = slot
            count += holds(boxes[slot], point)
    return count


@kernel
def _stab_all(points: Keys, boxes: Keys, alive: Bits, borders: Slots, starts: Bits, ends: Bits) -> tuple[Slots, Slots]:
    """For each point the slots of the boxes that hold it, in order: offsets and slots."""
    rows = RowArrays(borders, starts, ends)
    n, d = points.shape
    words = (len(boxes) + 63) >> 6
    offsets, out = np.zeros(n + 1, np.int64), np.empty(4 * n + 16, np.int64)
    found, slots = np.empty(words + 1, np.uint64), np.empty(64 * words + 1, np.int64)
    at = np.empty(d, np.int64)
    count = 0
    for p in range(n):
        for i in range(d):
            at[i] = bucket_of(rows.borders[i], points[p, i])
        _filter(at, at, 0, words, alive, rows, found)
        matched = _collect(found, words, boxes, points[p], slots)
        if count + matched > len(out):
            out = np.concatenate((out, np.empty(len(out) + matched, np.int64)))
        out[count : count + matched] = slots[:matched]
        count += matched
        offsets[p + 1] = count
    return offsets, out[:count].copy()


@kernel
def _collect_related(relation: int, q: Keys, first: bool, found: Bits, words: int, boxes: Keys, slots: Slots) -> int:
    """Write the found slots whose box stands to `q` in `relation` into `slots`; return how many."""
    count = 0
    for w in range(words):
        word = found[w]
        while word != 0:
            slot = (w << 6) + lowest_bit(word)
            word &= word - ONE
            slots[count] = slot
            count += stands(relation, boxes[slot], q)
            if first and count:
                return count
    return count


@kernel
def _find(
    relation: int, q: Keys, first: bool, boxes: Keys, alive: Bits, borders: Slots, starts: Bits, ends: Bits
) -> Slots:
    """Return the slots whose box stands to `q` in `relation`, in order; only the first of them if so asked.

    Takes loose arrays, as the other kernels called from Python do: numba takes a microsecond to unpack a tuple.
    """
    rows = RowArrays(borders, starts, ends)
    d = q.shape[1]
    words = (len(boxes) + 63) >> 6
    lo, hi = np.empty(d, np.int64), np.empty(d, np.int64)
    for i in range(d):
        lo[i] = bucket_of(rows.borders[i], q[0, i])
        hi[i] = bucket_of(rows.borders[i], q[1, i] - 1)
    late, early = (lo, hi) if relation == CONTAINING else (hi, lo)
    found, slots = np.empty(words + 1, np.uint64), np.empty(64 * words + 1, np.int64)
    _filter(late, early, 0, words, alive, rows, found)
    count = _collect_related(relation, q, first, found, words, boxes, slots)
    return slots[:count].copy()


class BitRows:
    """Bit rows with room for a number of boxes. All methods take the boxes and the bits of the living ones."""

    def __init__(self, boxes: Keys, room: int) -> None:
        """Build rows for these boxes, with room for `room` of them and those that follow."""
        words = (room + 63) >> 6
        self.room = words * 64
        borders = quantiles(boxes, min(MOST_BUCKETS, max(4, room // 16)))
        shape = (boxes.shape[2], borders.shape[1] + 1, words)
        self._rows = RowArrays(borders, np.zeros(shape, np.uint64), np.zeros(shape, np.uint64))
        _build(boxes, self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(array.nbytes for array in self._rows)

    def insert(self, first: int, boxes: Keys) -> None:
        """Add boxes from number `first` on."""
        _insert(first, boxes, *self._rows)

    def stab_any(self, points: Keys, boxes: Keys, alive: Bits) -> NDArray[np.bool_]:
        """For each point, whether any box holds it."""
        return _stab_any(points, boxes, alive, *self._rows)

    def stab_all(self, points: Keys, boxes: Keys, alive: Bits) -> tuple[Slots, Slots]:
        """Return offsets by point, and the boxes that hold each, in order."""
        return _stab_all(points, boxes, alive, *self._rows)

    def find(self, relation: int, q: Keys, boxes: Keys, alive: Bits, *, first: bool = False) -> Slots:
        """Return the boxes that stand to `q` in this relation, in order; only the first of them if so asked."""
        return _find(relation, q, first, boxes, alive, *self._rows)

    def check(self, boxes: Keys, living: Slots) -> None:
        """Raise `InvariantError` unless the rows agree with the living boxes."""
        buckets = np.arange(self._rows.starts.shape[1])[:, None]
        words, bits = living >> 6, (living & 63).astype(np.uint64)
        for i, borders in enumerate(self._rows.borders):
            start = np.searchsorted(borders, boxes[living, 0, i], "right") <= buckets
            end = np.searchsorted(borders, boxes[living, 1, i] - 1, "right") >= buckets
            for rows, expected in ((self._rows.starts[i], start), (self._rows.ends[i], end)):
                if ((rows[:, words] >> bits & ONE).astype(bool) != expected).any():
                    raise InvariantError(f"the bit rows of a box index disagree with its boxes in dimension {i}")
