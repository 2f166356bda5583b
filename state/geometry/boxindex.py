"""An index over boxes made of bit rows: which boxes hold this point, meet this box, contain this box?

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

Cost: a question reads 2d·n/64 words and compares what is left; adding sets at most 2d·B bits; removing clears one bit
in the row `alive`. When the slots run out, everything alive is packed in order and the rows are built again with room
for twice as many, so building costs O(B·n/64) words a doubling.

Order. Slots are given in order of arrival and packing keeps that order, so answers come in order of arrival, however
often the index was packed or rebuilt from stored state. That is what makes decisions reproducible.

Rejected: an R-tree (libspatialindex answers 15 to 20 times slower from Python, see `bench core`, is not exact on keys
above 2^53, and gives answers in an order that depends on its history); one row per bucket "overlaps" instead of two
(half the words for points, but no answer for boxes).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from state.errors import InvariantError
from state.geometry.boxes import contains, meets
from state.kernels import kernel, kernel_inline
from state.space import Keys

Rows = NDArray[np.uint64]
Slots = NDArray[np.int64]

FEWEST_SLOTS = 64
MOST_BUCKETS = 256  # 64 to 512 match 10,000 boxes within 20 % of each other; 256 is best for large boxes
BLOCK = 32  # words (2,048 boxes) between two looks at whether something was hit
ONE = np.uint64(1)


@kernel_inline
def _bucket(borders: Slots, key: int) -> int:
    """The number of borders at or below `key`."""
    lo, hi = 0, len(borders)
    while lo < hi:
        mid = (lo + hi) >> 1
        if borders[mid] <= key:
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel
def _build(boxes: Keys, count: int, borders: Slots, starts: Rows, ends: Rows) -> None:
    """Fill the rows for the first `count` boxes: own bucket first, then prefix and suffix OR."""
    d, buckets, words = starts.shape
    for slot in range(count):
        word, bit = slot >> 6, ONE << np.uint64(slot & 63)
        for i in range(d):
            starts[i, _bucket(borders[i], boxes[slot, 0, i]), word] |= bit
            ends[i, _bucket(borders[i], boxes[slot, 1, i] - 1), word] |= bit
    for i in range(d):
        for b in range(1, buckets):
            for w in range(words):
                starts[i, b, w] |= starts[i, b - 1, w]
                ends[i, buckets - 1 - b, w] |= ends[i, buckets - b, w]


@kernel
def _insert(slot: int, box: Keys, borders: Slots, starts: Rows, ends: Rows) -> None:
    d, buckets, _ = starts.shape
    word, bit = slot >> 6, ONE << np.uint64(slot & 63)
    for i in range(d):
        for b in range(_bucket(borders[i], box[0, i]), buckets):
            starts[i, b, word] |= bit
        for b in range(_bucket(borders[i], box[1, i] - 1) + 1):
            ends[i, b, word] |= bit


def _lowest_bit_code(typing_context: Any, word: Any) -> Any:
    """The position of the lowest set bit of a word that is not 0: one machine instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


_lowest_bit: Any = intrinsic(_lowest_bit_code)


@kernel
def _filter(
    late: Slots, early: Slots, begin: int, end: int, alive: Rows, starts: Rows, ends: Rows, found: Rows
) -> None:
    """found = alive AND, over the attributes, starts[late] AND ends[early], for the words begin to end."""
    block = found[begin:end]
    block[:] = alive[begin:end]
    for i in range(starts.shape[0]):
        start, stop = starts[i, late[i], begin:end], ends[i, early[i], begin:end]
        for w in range(len(block)):  # from 0, over whole views: this is what LLVM turns into vector instructions
            block[w] &= start[w] & stop[w]


@kernel
def _holds(box: Keys, point: Keys) -> bool:
    for i in range(len(point)):
        if point[i] < box[0, i] or point[i] >= box[1, i]:
            return False
    return True


@kernel
def _any_holds(found: Rows, begin: int, end: int, boxes: Keys, point: Keys) -> bool:
    for w in range(begin, end):
        word = found[w]
        while word != 0:
            if _holds(boxes[(w << 6) + _lowest_bit(word)], point):
                return True
            word &= word - ONE
    return False


@kernel
def _stab_any(
    points: Keys, boxes: Keys, words: int, borders: Slots, alive: Rows, starts: Rows, ends: Rows
) -> NDArray[np.bool_]:
    """For each point: does any box hold it? Looks at a block of words at a time and stops at the first hit."""
    n, d = points.shape
    hit = np.zeros(n, np.bool_)
    at = np.empty(d, np.int64)
    found = np.empty(words + 1, np.uint64)
    for p in range(n):
        for i in range(d):
            at[i] = _bucket(borders[i], points[p, i])
        begin = 0
        while begin < words and not hit[p]:
            end = min(begin + BLOCK, words)
            _filter(at, at, begin, end, alive, starts, ends, found)
            hit[p] = _any_holds(found, begin, end, boxes, points[p])
            begin = end
    return hit


@kernel
def _collect(found: Rows, words: int, boxes: Keys, point: Keys, slots: Slots) -> int:
    """Write the found slots whose box really holds the point into `slots`; return how many."""
    count = 0
    for w in range(words):
        word = found[w]
        while word != 0:
            slot = (w << 6) + _lowest_bit(word)
            word &= word - ONE
            slots[count] = slot
            count += _holds(boxes[slot], point)
    return count


@kernel
def _stab_all(
    points: Keys, boxes: Keys, words: int, borders: Slots, alive: Rows, starts: Rows, ends: Rows
) -> tuple[Slots, Slots]:
    """All pairs (point, slot) with the point in the slot's box, by point, then by slot."""
    n, d = points.shape
    who, what = np.empty(4 * n + 16, np.int64), np.empty(4 * n + 16, np.int64)
    found, slots = np.empty(words + 1, np.uint64), np.empty(64 * words + 1, np.int64)
    at = np.empty(d, np.int64)
    count = 0
    for p in range(n):
        for i in range(d):
            at[i] = _bucket(borders[i], points[p, i])
        _filter(at, at, 0, words, alive, starts, ends, found)
        matched = _collect(found, words, boxes, points[p], slots)
        if count + matched > len(who):
            who = np.concatenate((who, np.empty(len(who) + matched, np.int64)))
            what = np.concatenate((what, np.empty(len(what) + matched, np.int64)))
        who[count : count + matched] = p
        what[count : count + matched] = slots[:matched]
        count += matched
    return who[:count].copy(), what[:count].copy()


MEETING, CONTAINING, INSIDE = 0, 1, 2
"""Relations of a box of the index to the box asked about."""


@kernel
def _stands(relation: int, box: Keys, q: Keys) -> bool:
    if relation == CONTAINING:
        return contains(box, q)
    if relation == INSIDE:
        return contains(q, box)
    return meets(box, q)


@kernel
def _collect_related(relation: int, q: Keys, first: bool, found: Rows, words: int, boxes: Keys, slots: Slots) -> int:
    """Write the found slots whose box stands to `q` in `relation` into `slots`; return how many."""
    count = 0
    for w in range(words):
        word = found[w]
        while word != 0:
            slot = (w << 6) + _lowest_bit(word)
            word &= word - ONE
            slots[count] = slot
            count += _stands(relation, boxes[slot], q)
            if first and count:
                return count
    return count


@kernel
def _find(
    relation: int, q: Keys, first: bool, boxes: Keys, words: int, borders: Slots, alive: Rows, starts: Rows, ends: Rows
) -> Slots:
    """The slots whose box stands to `q` in `relation`, in order; only the first of them if so asked."""
    d = q.shape[1]
    lo, hi = np.empty(d, np.int64), np.empty(d, np.int64)
    for i in range(d):
        lo[i] = _bucket(borders[i], q[0, i])
        hi[i] = _bucket(borders[i], q[1, i] - 1)
    late, early = (lo, hi) if relation == CONTAINING else (hi, lo)
    found, slots = np.empty(words + 1, np.uint64), np.empty(64 * words + 1, np.int64)
    _filter(late, early, 0, words, alive, starts, ends, found)
    count = _collect_related(relation, q, first, found, words, boxes, slots)
    return slots[:count].copy()


class BoxIndex:
    """Boxes in order of arrival, each in a slot, found by point or by box.

    >>> import numpy as np
    >>> index = BoxIndex(1)
    >>> slots = index.add(np.array([[[0], [5]], [[3], [9]]]))
    >>> index.stab_all(np.array([[4], [8], [9]]))
    (array([0, 0, 1]), array([0, 1, 1]))
    >>> index.stab_any(np.array([[4], [8], [9]])).tolist()
    [True, True, False]
    >>> index.inside(np.array([[2], [9]])).tolist()
    [1]
    """

    def __init__(self, dims: int, boxes: Keys | None = None) -> None:
        self._dims = dims
        self._moved: NDArray[np.int64] | None = None
        self._rebuild(np.empty((0, 2, dims), np.int64) if boxes is None else boxes)

    def __len__(self) -> int:
        return self._live

    @property
    def slots(self) -> int:
        """Slots given so far, dead ones included: every slot is below it."""
        return self._count

    @property
    def boxes(self) -> Keys:
        """The boxes by slot (dead slots included), for kernels."""
        return self._boxes

    def add(self, boxes: Keys) -> range:
        """Add boxes at the end and return their slots. O(d·B) a box.

        Packs the slots if they run out; the caller learns the new slot of each old one from `packed`.
        """
        if self._count + len(boxes) > len(self._boxes):
            self._pack(len(boxes))
        first = self._count
        for box in boxes:
            self._boxes[self._count] = box
            _insert(self._count, box, self._borders, self._starts, self._ends)
            self._alive[self._count >> 6] |= ONE << np.uint64(self._count & 63)
            self._count += 1
        self._live += len(boxes)
        return range(first, self._count)

    def remove(self, slots: range | list[int]) -> None:
        """Forget the boxes of these slots. O(1) a box."""
        for slot in slots:
            bit = ONE << np.uint64(slot & 63)
            if slot >= self._count or not self._alive[slot >> 6] & bit:
                raise InvariantError(f"slot {slot} of a box index is removed but holds no box")
            self._alive[slot >> 6] ^= bit
        self._live -= len(slots)

    def packed(self) -> NDArray[np.int64] | None:
        """After an `add` that packed the slots: the new slot of each old one (-1: dead). Asking clears it."""
        moved, self._moved = self._moved, None
        return moved

    def stab_any(self, points: Keys) -> NDArray[np.bool_]:
        """For each point, whether any box holds it."""
        return _stab_any(points, self._boxes, self._words, *self._rows)

    def stab_all(self, points: Keys) -> tuple[Slots, Slots]:
        """The pairs (point, slot) where the slot's box holds the point, by point, then in order of arrival."""
        return _stab_all(points, self._boxes, self._words, *self._rows)

    def meeting(self, q: Keys) -> Slots:
        """The slots whose box shares a point with `q`, in order of arrival."""
        return _find(MEETING, q, False, self._boxes, self._words, *self._rows)

    def first_containing(self, q: Keys) -> int | None:
        """The slot of the earliest box that contains all of `q`."""
        slots = _find(CONTAINING, q, True, self._boxes, self._words, *self._rows)
        return int(slots[0]) if len(slots) else None

    def inside(self, q: Keys) -> Slots:
        """The slots whose box lies wholly in `q`, in order of arrival."""
        return _find(INSIDE, q, False, self._boxes, self._words, *self._rows)

    def living(self) -> Iterator[int]:
        """The slots that hold a box, in order of arrival."""
        return (s for s in range(self._count) if self._alive[s >> 6] >> np.uint64(s & 63) & ONE)

    def check(self) -> None:
        """Raise `InvariantError` unless rows, borders and boxes agree."""
        living = list(self.living())
        if len(living) != self._live:
            raise InvariantError(f"a box index counts {self._live} boxes but holds {len(living)}")
        for slot in living:
            for i in range(self._dims):
                self._check_rows(slot, i)

    def _check_rows(self, slot: int, i: int) -> None:
        lo, hi = self._boxes[slot, 0, i], self._boxes[slot, 1, i]
        for b in range(self._starts.shape[1]):
            starts = bool(self._starts[i, b, slot >> 6] >> np.uint64(slot & 63) & ONE)
            ends = bool(self._ends[i, b, slot >> 6] >> np.uint64(slot & 63) & ONE)
            if starts != (_bucket(self._borders[i], lo) <= b) or ends != (_bucket(self._borders[i], hi - 1) >= b):
                raise InvariantError(
                    f"the rows of a box index disagree with slot {slot} in bucket {b} of dimension {i}"
                )

    @property
    def _words(self) -> int:
        return (self._count + 63) >> 6

    @property
    def _rows(self) -> tuple[Slots, Rows, Rows, Rows]:
        return self._borders, self._alive, self._starts, self._ends

    def _pack(self, more: int) -> None:
        living = np.fromiter(self.living(), np.int64, self._live)
        self._moved = np.full(self._count, -1, np.int64)
        self._moved[living] = np.arange(len(living))
        self._rebuild(self._boxes[living], more)

    def _rebuild(self, boxes: Keys, more: int = 0) -> None:
        self._count = self._live = len(boxes)
        room = max(FEWEST_SLOTS, 2 * (len(boxes) + more))
        words = (room + 63) >> 6
        self._boxes = np.empty((words * 64, 2, self._dims), np.int64)
        self._boxes[: len(boxes)] = boxes
        self._borders = self._quantiles(boxes, min(MOST_BUCKETS, max(4, room // 16)))
        shape = (self._dims, self._borders.shape[1] + 1, words)
        self._starts, self._ends = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
        self._alive = np.zeros(words, np.uint64)
        full = len(boxes) >> 6
        self._alive[:full] = ~np.uint64(0)
        if len(boxes) & 63:
            self._alive[full] = (ONE << np.uint64(len(boxes) & 63)) - ONE
        _build(self._boxes, len(boxes), self._borders, self._starts, self._ends)

    def _quantiles(self, boxes: Keys, buckets: int) -> Slots:
        """Borders per attribute so that about equally many ends fall between two of them."""
        if not len(boxes):
            return np.zeros((self._dims, 1), np.int64)
        ends = np.sort(np.concatenate((boxes[:, 0], boxes[:, 1] - 1)), axis=0)
        picks = np.arange(1, buckets) * len(ends) // buckets
        return np.ascontiguousarray(ends[picks].T)
