"""An index over boxes: which boxes hold this point, meet this box, contain this box, lie inside this box?

Boxes get slots in order of arrival, and answers come in that order, however the index is built. That is what makes
decisions reproducible. Two forms of the same idea, that small codes filter and coordinates decide:

    bit rows (`boxrows`)    2d bits for each box and question; best up to some ten thousand boxes
    tiles (`boxtiles`)      bounds for 64 boxes at a time, then 2d bytes for each box near the question

The newest boxes are always in bit rows. When these are full, they become a run of tiles. Runs are merged geometrically:
a new run takes in the one before it as long as that is not more than twice as large, up to a largest size. So each box
is moved O(log n) times, and no single `add` moves more than a bounded number of them:

    slots   │ run 0 .........................│ run 1 ...........│ run 2 ...│ bit rows │ free
                                                                            ▲ base

Removing a box clears one bit. When more slots are dead than alive, the living ones are **packed**: they get new slots
in the same order, and the tiles leave out the dead. What is left then costs as much as if the rest had never been
there. The caller learns the new slot of each old one from `packed`.

Rejected: an R-tree (libspatialindex answers 13 to 33 times slower from Python, see `bench core`, is not exact on keys
above 2^53, and gives answers in an order that depends on its history).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.geometry.boxrows import CONTAINING, INSIDE, MEETING, ONE, BitRows, Bits, Slots
from state.geometry.boxtiles import Tiles
from state.kernels import kernel
from state.space import Keys

FEWEST_SLOTS = 64


class Sizes(NamedTuple):
    """Thresholds. The first three count sides: boxes times attributes, which is what time and memory go by."""

    rows: int = 98_304
    """Most in bit rows alone: 32,768 boxes in 3 attributes. There tiles begin to be faster (`bench core`)."""
    tail: int = 12_288
    """Most in bit rows beside tiles: 4,096 boxes in 3 attributes."""
    merged: int = 393_216
    """Most in a run that is merged: 131,072 boxes in 3 attributes, about 30 ms."""
    tile: int = 64
    """Boxes in a tile, at most 64."""


@kernel
def _set_alive(alive: Bits, first: int, count: int) -> None:
    for slot in range(first, first + count):
        alive[slot >> 6] |= ONE << np.uint64(slot & 63)


@kernel
def _clear_alive(alive: Bits, slots: Slots) -> int:
    """Clear the bits of these slots; return the first that was not set, or -1."""
    for slot in slots:
        bit = ONE << np.uint64(slot & 63)
        if slot < 0 or slot >= 64 * len(alive) or not alive[slot >> 6] & bit:
            return int(slot)
        alive[slot >> 6] ^= bit
    return -1


@kernel
def _interleave(before: Slots, first: Slots, after: Slots, second: Slots) -> tuple[Slots, Slots]:
    """Join two answers, each as offsets and slots: for each point those of `first`, then those of `second`."""
    out = np.empty(len(first) + len(second), np.int64)
    for p in range(len(before) - 1):
        a, b, c, d = before[p], before[p + 1], after[p], after[p + 1]
        out[a + c : b + c] = first[a:b]
        out[b + c : b + d] = second[c:d]
    return before + after, out


class BoxIndex:
    """Boxes in order of arrival, each in a slot, found by point or by box.

    >>> import numpy as np
    >>> index = BoxIndex(1)
    >>> slots = index.add(np.array([[[0], [5]], [[3], [9]]]))
    >>> index.stab_all(np.array([[4], [8], [9]]))
    (array([0, 2, 3, 3]), array([0, 1, 1]))
    >>> index.stab_any(np.array([[4], [8], [9]])).tolist()
    [True, True, False]
    >>> index.inside(np.array([[2], [9]])).tolist()
    [1]
    """

    def __init__(self, dims: int, boxes: Keys | None = None, sizes: Sizes = Sizes()) -> None:  # noqa: B008
        self._dims, self._sizes = dims, sizes
        self._moved: Slots | None = None
        self._set(np.empty((0, 2, dims), np.int64) if boxes is None else boxes)

    def _set(self, boxes: Keys) -> None:
        """Begin with these boxes in slots 0, 1, 2 ..."""
        words = max(1, (len(boxes) + 63) >> 6)
        self._boxes, self._alive = np.empty((64 * words, 2, self._dims), np.int64), np.zeros(words, np.uint64)
        self._boxes[: len(boxes)] = boxes
        _set_alive(self._alive, 0, len(boxes))
        self._count = self._live = len(boxes)
        self._tiles, self._base = Tiles(self._dims, self._sizes.tile), 0
        if len(boxes) > self._most(self._sizes.rows):
            self._append_run(np.arange(len(boxes)))
        self._build_rows()

    def _most(self, sides: int) -> int:
        """Return how many boxes have so many sides."""
        return max(FEWEST_SLOTS, sides // self._dims)

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

    @property
    def tiled(self) -> list[int]:
        """The number of boxes in each run of tiles, dead ones included."""
        return self._tiles.sizes()

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._boxes.nbytes + self._alive.nbytes + self._rows.nbytes + self._tiles.nbytes

    def add(self, boxes: Keys) -> range:
        """Add boxes at the end and return their slots. O(d·B) a box, and O(log n) moves of each later."""
        first, count = self._count, len(boxes)
        self._make_room(count)
        self._boxes[first : first + count] = boxes
        _set_alive(self._alive, first, count)
        self._count += count
        self._live += count
        if self._count - self._base <= self._rows.room:
            self._rows.insert(first - self._base, self._boxes[first : first + count])
        elif self._count - self._base <= self._most_in_rows:
            self._build_rows()
        else:
            self._make_run()
        return range(first, first + count)

    def _make_room(self, more: int) -> None:
        """Grow the arrays by half; no box gets a new slot."""
        need = self._count + more
        if need > len(self._boxes):
            room = max(need, len(self._boxes) * 3 // 2)
            boxes, alive = np.empty((room, 2, self._dims), np.int64), np.zeros((room + 63) >> 6, np.uint64)
            boxes[: len(self._boxes)] = self._boxes
            alive[: len(self._alive)] = self._alive
            self._boxes, self._alive = boxes, alive

    def _build_rows(self) -> None:
        """Build bit rows for the slots from `base` on, with room for twice as many, or as many as there may be."""
        count = self._count - self._base
        self._rows = BitRows(self._newest, max(FEWEST_SLOTS, min(2 * count, self._most_in_rows)))

    @property
    def _most_in_rows(self) -> int:
        return self._most(self._sizes.tail if self._tiles else self._sizes.rows)

    @property
    def _newest(self) -> Keys:
        """The boxes that are in bit rows."""
        return self._boxes[self._base : self._count]

    def _make_run(self) -> None:
        """Make a run of tiles of all that is in bit rows, and of the runs before it that are not much larger."""
        living = self._living()
        parts = [living[living >= self._base]]
        size, most = len(parts[0]), self._most(self._sizes.merged)
        for before in reversed(self._tiles.sizes()):
            if before > 2 * size or before + size > most:
                break
            parts.append(self._only_living(self._tiles.take_last()))
            size += len(parts[-1])
        self._append_run(np.sort(np.concatenate(parts)))
        self._build_rows()

    def _only_living(self, slots: Slots) -> Slots:
        bits: Bits = self._alive[slots >> 6] >> (slots & 63).astype(np.uint64)
        return slots[(bits & ONE).astype(np.bool_)]

    def _append_run(self, slots: Slots) -> None:
        """Put these slots, the last ones, into tiles. Bit rows begin at a whole word: up to 63 slots stay unused."""
        if len(slots):
            self._tiles.append(slots, self._boxes)
        self._make_room(-self._count % 64)
        self._count = self._base = self._count + -self._count % 64

    def remove(self, slots: range | list[int]) -> None:
        """Forget the boxes of these slots. O(1) a box.

        Packs the slots when more are dead than alive, in O(n); the caller must then ask `packed`.
        """
        missing = _clear_alive(self._alive, np.asarray(slots, np.int64))
        if missing >= 0:
            raise InvariantError(f"slot {missing} of a box index is removed but holds no box")
        self._live -= len(slots)
        if self._count > 2 * self._live + FEWEST_SLOTS:
            self._pack()

    def _pack(self) -> None:
        living = self._living()
        self._moved = np.full(self._count, -1, np.int64)
        if 2 * len(living) <= self._most(self._sizes.rows):
            self._moved[living] = np.arange(len(living))
            self._set(self._boxes[living])
            return
        tiled = int(np.searchsorted(living, self._base))
        base = (tiled + 63) & ~63
        self._moved[living[:tiled]] = np.arange(tiled)
        self._moved[living[tiled:]] = np.arange(base, base + len(living) - tiled)
        self._tiles.follow(self._moved)
        self._base, self._count = base, base + len(living) - tiled
        boxes, self._alive = (
            np.zeros((self._count, 2, self._dims), np.int64),
            np.zeros((self._count + 63) >> 6, np.uint64),
        )
        boxes[:tiled], boxes[base:] = self._boxes[living[:tiled]], self._boxes[living[tiled:]]
        self._boxes = boxes
        _set_alive(self._alive, 0, tiled)
        _set_alive(self._alive, base, len(living) - tiled)
        self._build_rows()

    def packed(self) -> Slots | None:
        """Return the new slot of each old one (-1: dead) if the last `remove` packed the slots. Asking clears it."""
        moved, self._moved = self._moved, None
        return moved

    def stab_any(self, points: Keys) -> NDArray[np.bool_]:
        """For each point, whether any box holds it."""
        hit = self._rows.stab_any(points, self._newest, self._alive_newest)
        if self._tiles and not hit.all():
            hit[~hit] = self._tiles.stab_any(points[~hit], self._boxes, self._alive)
        return hit

    @property
    def _alive_newest(self) -> Bits:
        return self._alive[self._base >> 6 :]

    def stab_all(self, points: Keys) -> tuple[Slots, Slots]:
        """Return the slots of the boxes that hold each point, in order of arrival: offsets by point, and slots.

        Point p is held by `slots[offsets[p]:offsets[p + 1]]`.
        """
        if not self._tiles:
            return self._rows.stab_all(points, self._newest, self._alive)
        before, older = self._tiles.stab_all(points, self._boxes, self._alive)
        if self._count == self._base:
            return before, older
        after, newer = self._rows.stab_all(points, self._newest, self._alive_newest)
        return _interleave(before, older, after, newer + self._base)

    def meeting(self, q: Keys) -> Slots:
        """Return the slots whose box shares a point with `q`, in order of arrival."""
        return self._find(MEETING, q)

    def first_containing(self, q: Keys) -> int | None:
        """Return the slot of the earliest box that contains all of `q`."""
        slots = self._find(CONTAINING, q, first=True)
        return int(slots[0]) if len(slots) else None

    def inside(self, q: Keys) -> Slots:
        """Return the slots whose box lies wholly in `q`, in order of arrival."""
        return self._find(INSIDE, q)

    def _find(self, relation: int, q: Keys, *, first: bool = False) -> Slots:
        if not self._tiles:
            return self._rows.find(relation, q, self._newest, self._alive, first=first)
        older = self._tiles.find(relation, q, self._boxes, self._alive, first=first)
        if first and len(older):
            return older
        newer = self._rows.find(relation, q, self._newest, self._alive_newest, first=first)
        return np.concatenate((older, newer + self._base))

    def _living(self) -> Slots:
        bits = np.unpackbits(self._alive.view(np.uint8), bitorder="little")
        return np.flatnonzero(bits)

    def living(self) -> Iterator[int]:
        """Iterate over the slots that hold a box, in order of arrival."""
        return iter(self._living().tolist())

    def check(self) -> None:
        """Raise `InvariantError` unless rows, tiles, borders and boxes agree."""
        living = self._living()
        if len(living) != self._live or (self._live and living[-1] >= self._count):
            raise InvariantError(f"a box index counts {self._live} boxes but holds {len(living)}")
        if self._base & 63 or (self._base and not self._tiles):
            raise InvariantError(f"the bit rows of a box index begin at slot {self._base}")
        self._tiles.check(self._boxes, living[living < self._base])
        self._rows.check(self._newest, living[living >= self._base] - self._base)
