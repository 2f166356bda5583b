"""Half-open integer boxes: the only geometry there is.

A box is, per attribute, an interval `[lo, hi)` of int64 keys (see `space` for how values become keys). Half-open
intervals make "touching" and "overlapping" different things, so subtraction never leaves slivers:

        hi ┌─────────┐            q minus a, cut in the order (x, y):
           │    q    │
           │  ┌──────┼──┐            ┌──┬──────┐      left of a in x,
           │  │  a   │  │            │  │      │      then, inside a's x-range,
           │  └──────┼──┘            │  ├──────┤      above and below a in y
        lo └─────────┘               │  │▒▒▒▒▒▒│      (▒ = q ∩ a, which is gone)
                                     │  ├──────┤
                                     └──┴──────┘

At most 2d pieces, pairwise disjoint, and together with `q ∩ a` exactly q (Proposition 2 of the negative-space paper:
at most 2d - 1 *more* boxes than before).

Three forms, one meaning:

* `Box`, a frozen value that is valid once it exists: for messages, witnesses, people;
* an int64 array of shape `(n, 2, d)`, `[:, 0]` the low ends and `[:, 1]` the high ends: for everything that is fast;
* `Shape`, that array as bytes: for what is kept by the million. A box of three attributes takes 90 bytes, not 600.

Kernels take arrays and nothing else. All decisions compare coordinates; volumes only steer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.kernels import kernel, kernel_inline
from state.space import Keys, Sides, Space, corners_of

SUBTRACTION = 32
"""Looks at a box that take as long as to subtract one from another."""


@dataclass(frozen=True, slots=True)
class Box:
    """A non-empty half-open box of keys.

    >>> Box((0, 0), (2, 3))
    Box(lo=(0, 0), hi=(2, 3))
    >>> Box((0,), (0,))
    Traceback (most recent call last):
        ...
    ValueError: empty box: [0, 0) in dimension 0
    """

    lo: tuple[int, ...]
    hi: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.lo or len(self.lo) != len(self.hi):
            raise ValueError(f"a box needs as many low as high ends: {len(self.lo)} and {len(self.hi)}")
        for i, (lo, hi) in enumerate(zip(self.lo, self.hi, strict=True)):
            if lo >= hi:
                raise ValueError(f"empty box: [{lo}, {hi}) in dimension {i}")

    @classmethod
    def of(cls, keys: Keys) -> Box:
        """The box of one `(2, d)` array."""
        return cls(tuple(keys[0].tolist()), tuple(keys[1].tolist()))

    def keys(self) -> Keys:
        """This box as a `(2, d)` array."""
        return np.array((self.lo, self.hi), dtype=np.int64)


Boxes = tuple[Box, ...]
"""Disjoint boxes: the shape of one subscription."""


def boxes_where(space: Space, where: Mapping[str, object]) -> Boxes:
    """The disjoint boxes that `where` asks for in `space`; `ValueRefused` if it breaks a rule."""
    return boxes_between(space.sides(where))


def boxes_between(sides: Sides) -> Boxes:
    """The disjoint boxes that have these sides: as many as the product of their numbers."""
    return tuple(Box(lo, hi) for lo, hi in corners_of(sides))


def volume(space: Space, boxes: Boxes) -> float:
    """The natural volume of disjoint boxes as a share of the domain. Steers, never decides."""
    return sum(space.share(box.lo, box.hi) for box in boxes)


def stack(boxes: Iterable[Box], dims: int) -> Keys:
    """Boxes as one `(n, 2, d)` array; an empty sequence gives `(0, 2, dims)`."""
    rows = [(b.lo, b.hi) for b in boxes]
    return np.array(rows, np.int64) if rows else np.empty((0, 2, dims), np.int64)


def unstack(keys: Keys) -> Boxes:
    """The boxes of an `(n, 2, d)` array as values."""
    return tuple(Box.of(one) for one in keys)


DIMS = 8
"""Bytes at the beginning of a shape, which say how many attributes its boxes have."""


class Shape(bytes):
    """Disjoint boxes, as bytes: how many attributes they have, then the boxes.

    >>> Shape.of((Box((0, 1), (2, 3)),)).boxes
    (Box(lo=(0, 1), hi=(2, 3)),)
    """

    __slots__ = ()

    @classmethod
    def of(cls, boxes: Boxes) -> Shape:
        """Return the shape that consists of these boxes, at least one."""
        return cls.of_keys(stack(boxes, len(boxes[0].lo)))

    @classmethod
    def of_keys(cls, boxes: Keys) -> Shape:
        """Return the shape that consists of these boxes."""
        return cls(boxes.shape[2].to_bytes(DIMS, "little") + boxes.tobytes())

    @property
    def keys(self) -> Keys:
        """The boxes as an array, which cannot be written to."""
        return np.frombuffer(self, np.int64, offset=DIMS).reshape(-1, 2, self.dims)

    @property
    def dims(self) -> int:
        """The number of attributes."""
        return int.from_bytes(self[:DIMS], "little")

    @property
    def boxes(self) -> Boxes:
        """The boxes as values."""
        return unstack(self.keys)


def shapes_of(boxes: Keys, counts: NDArray[np.int64]) -> list[Shape]:
    """Cut an array of boxes into shapes, each of so many boxes."""
    raw, dims = boxes.tobytes(), boxes.shape[2]
    head, ends = dims.to_bytes(DIMS, "little"), (np.cumsum(counts) * 16 * dims).tolist()
    return [Shape(head + raw[begin:end]) for begin, end in pairwise([0, *ends])]


def gathered(shapes: Sequence[Shape], dims: int) -> tuple[NDArray[np.int64], Keys]:
    """Return how many boxes each shape has, and all of them, one shape after another."""
    counts = (np.fromiter(map(len, shapes), np.int64, len(shapes)) - DIMS) // (16 * dims)
    return counts, np.frombuffer(b"".join([shape[DIMS:] for shape in shapes]), np.int64).reshape(-1, 2, dims)


def hull(boxes: Keys) -> Keys:
    """Return the smallest box around all of these, as an array."""
    return np.stack((boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)))


def check_disjoint(boxes: Keys, what: str) -> None:
    """Raise `InvariantError` unless no two of these boxes share a point. O(n^2)."""
    for k, box in enumerate(boxes):
        others = boxes[k + 1 :]
        apart = (others[:, 0] >= box[1]) | (others[:, 1] <= box[0])
        if not apart.any(axis=1).all():
            raise InvariantError(f"{what}: {box.tolist()} meets another one")


@kernel_inline
def meets(a: Keys, b: Keys) -> bool:
    """Do two `(2, d)` boxes share a point? Touching is not sharing."""
    for i in range(a.shape[1]):
        if a[0, i] >= b[1, i] or b[0, i] >= a[1, i]:
            return False
    return True


@kernel_inline
def contains(outer: Keys, inner: Keys) -> bool:
    """Is every point of `inner` in `outer`?"""
    for i in range(outer.shape[1]):
        if outer[0, i] > inner[0, i] or outer[1, i] < inner[1, i]:
            return False
    return True


@kernel_inline
def key_length(lo: int, hi: int) -> float:
    """hi - lo for lo <= hi, rounded: the difference itself may exceed int64, and doubles alone would cancel to 0."""
    return float(np.uint64(hi) - np.uint64(lo))


@kernel
def overlap_fraction(q: Keys, a: Keys) -> float:
    """The share of `q` that `a` covers, measured in keys. Steers, never decides."""
    share = 1.0
    for i in range(q.shape[1]):
        lo = max(q[0, i], a[0, i])
        hi = min(q[1, i], a[1, i])
        share *= key_length(lo, hi) / key_length(q[0, i], q[1, i])
    return share


@kernel
def cut_order(q: Keys, a: Keys, by_overlap: bool, order: NDArray[np.int64]) -> None:
    """Write into `order` the dimensions in which to cut `q` by `a`.

    Either 0, 1, 2 ... as published (Fig. 4), or the dimension first in which `a` covers the largest share of `q`: the
    slabs cut off first are then thin, and what remains to be cut stays small.
    """
    d = q.shape[1]
    share = np.empty(d)
    for i in range(d):
        order[i] = i
        overlap = key_length(max(q[0, i], a[0, i]), min(q[1, i], a[1, i]))
        share[i] = overlap / key_length(q[0, i], q[1, i])
    if by_overlap:
        for i in range(1, d):
            k = i
            while k > 0 and share[order[k]] > share[order[k - 1]]:
                order[k], order[k - 1] = order[k - 1], order[k]
                k -= 1


@kernel
def subtract_into(q: Keys, a: Keys, by_overlap: bool, out: Keys) -> int:
    """Write `q` minus `a` into `out` (room for 2d boxes) and return how many pieces there are. `q` must meet `a`."""
    d = q.shape[1]
    order = np.empty(d, np.int64)
    cut_order(q, a, by_overlap, order)
    rest = q.copy()
    n = 0
    for k in range(d):
        i = order[k]
        if rest[0, i] < a[0, i]:
            out[n] = rest
            out[n, 1, i] = a[0, i]
            rest[0, i] = a[0, i]
            n += 1
        if rest[1, i] > a[1, i]:
            out[n] = rest
            out[n, 0, i] = a[1, i]
            rest[1, i] = a[1, i]
            n += 1
    return n


@kernel
def subtract_each(q: Keys, boxes: Keys, by_overlap: bool, most: int, looks: int) -> tuple[Keys, int]:
    """Return the rest of `q` without all of these boxes, as disjoint pieces, and how many looks are left.

    Given up where the pieces become more than `most` or the looks at a piece more than `looks`: -1 is left then.
    """
    d = q.shape[1]
    pieces, count = np.empty((16 + 2 * d, 2, d), np.int64), 1
    pieces[0] = q
    out = np.empty((2 * d, 2, d), np.int64)
    for k in range(len(boxes)):
        looks -= count
        j = 0
        while j < count:
            if not meets(pieces[j], boxes[k]):
                j += 1
                continue
            n = subtract_into(pieces[j], boxes[k], by_overlap, out)
            looks -= SUBTRACTION
            count -= 1
            pieces[j] = pieces[count]
            if count + n > len(pieces):
                pieces = np.concatenate((pieces, np.empty_like(pieces)))
            pieces[count : count + n] = out[:n]
            count += n
            if count > most or looks < 0:
                return pieces[:0].copy(), -1
    return pieces[:count].copy(), max(looks, 0)


def subtract(q: Keys, a: Keys, *, by_overlap: bool = False) -> Keys:
    """`q` minus `a` for two `(2, d)` boxes, as disjoint pieces; `q` itself where they do not meet.

    >>> subtract(Box((0, 0), (4, 4)).keys(), Box((1, 1), (9, 9)).keys()).tolist()
    [[[0, 0], [1, 4]], [[1, 0], [4, 1]]]
    """
    if not meets(q, a):
        return q[None].copy()
    out = np.empty((2 * q.shape[1], 2, q.shape[1]), np.int64)
    return out[: subtract_into(q, a, by_overlap, out)].copy()
