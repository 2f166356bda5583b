"""The negative space: what nothing covers, as disjoint boxes (Jafarpour et al., "Subscription Subsumption Evaluation").

A subscription is covered by the union of the active ones exactly when it meets no negative rectangle (Proposition 1).
At the start the whole domain is one negative rectangle. An active subscription is subtracted from every rectangle
that it meets (Fig. 4 and 6); when it is cancelled, the part that it alone covered is given back (Fig. 7).

Two representations with one interface:

**`NegativeTree`** (ours, the default). A tree of cuts (`cuts`) whose leaves tile the domain, each either negative or
covered; the negative leaves *are* the rectangles, so there is no index beside them to keep in step. Subtracting paints
leaves covered, giving back paints them negative. Cancelling everything leaves one negative leaf: the domain.

**`NegativeRtree`** (as published): a list of rectangles and an R-tree over them, from libspatialindex. Its coordinates
are doubles, so keys are rounded outward there and every candidate is judged again by its keys.

Departures from the paper: Fig. 4 prints its recursion twice (lines 10 and 11); once is meant. Fig. 4 cuts the
attributes in their given order (`order = "fixed"`); cutting first where the subscription covers the largest share
leaves fewer rectangles (`order = "overlap"`). Fig. 6 and 7 test a passive subscription against everything again if it
meets the cancelled one; here only those whose certificate names it are tested (`told`), which is fewer and just as
safe.

Joining. Rectangles that abut and agree in all other attributes can be one (the paper leaves it for future work). In the
R-tree's list any two can be joined. In a tree of cuts only siblings can, and those are at once; what abuts across a
higher cut cannot be one leaf, and cutting the joined rectangles into a new tree leaves more of them than before
(measured: 3 attributes 4256, joined 1935, in a new tree 4609; 4 attributes 97316, 51459, 594363). What helps the tree
is to subtract the active ones again from the largest to the smallest (2057; 55528), so that is its way to join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, nextafter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from rtree import index as rtree_index

from state.errors import InvariantError, StateError
from state.geometry.boxes import meets, subtract
from state.geometry.cuts import LEAF, MANY, NEGATIVE, CutTree, check_rectangles
from state.space import Keys

COVERED = 1
"""The other colour of the tree's leaves."""
LOOKS = 1 << 13
"""Looks at a node of the tree that take as long as a change of the R-tree: 50 to 100 us."""


class NegativeSpace(Protocol):
    """The interface that a strategy needs of the negative space."""

    @property
    def count(self) -> int:
        """The number of negative rectangles."""

    def gap(self, q: Keys) -> Keys | None:
        """A part of `q` that nothing covers, or None if all of `q` is covered."""

    def gap_within(self, q: Keys, looks: int) -> tuple[Keys | None, int]:
        """Return the same as `gap` and the looks left: -1 if it takes more, and then nothing is known."""

    def cover(self, q: Keys, most: int = MANY, looks: int = MANY) -> int:
        """Subtract `q` (Fig. 6). Return the looks left.

        Stops halfway as soon as there are more than `most` rectangles, or after so many looks: -1 is left then.
        """

    def uncover(self, pieces: Keys, most: int = MANY, looks: int = MANY) -> int:
        """Give back boxes that nothing covers any more (Fig. 7, line 20). Returns and stops as `cover` does."""

    def join(self, active: Keys, looks: int = MANY) -> None:
        """Make fewer rectangles of the same space, given all active boxes, the largest first.

        All stays as it is where that takes more looks, or leaves more rectangles.
        """

    def rectangles(self) -> Keys:
        """The negative rectangles, as an array of boxes."""

    def check(self) -> None:
        """Raise `InvariantError` unless the rectangles are pairwise disjoint and inside the domain."""

    def dump(self) -> tuple[Keys, NDArray[np.int8]]:
        """Everything needed to restore this space exactly: whole numbers, and colours or nothing."""


class NegativeTree:
    """The negative space as the leaves of a tree of cuts.

    >>> from state.geometry.boxes import Box
    >>> space = NegativeTree(Box((0, 0), (1001, 1001)).keys(), by_overlap=False)
    >>> _ = space.cover(Box((175, 180), (511, 681)).keys())
    >>> space.count
    4
    """

    def __init__(self, domain: Keys, *, by_overlap: bool) -> None:
        self._tree, self._by_overlap = CutTree(domain), by_overlap

    @property
    def count(self) -> int:
        return self._tree.negative

    def gap(self, q: Keys) -> Keys | None:
        return self._tree.gap(q)

    def gap_within(self, q: Keys, looks: int) -> tuple[Keys | None, int]:
        return self._tree.gap_within(q, looks)

    def cover(self, q: Keys, most: int = MANY, looks: int = MANY) -> int:
        return self._tree.repaint(q[None], NEGATIVE, COVERED, by_overlap=self._by_overlap, most=most, looks=looks)

    def cover_all(self, boxes: Keys) -> NDArray[np.bool_]:
        """Fig. 6 for a run of subscriptions, in one call: for each, whether it was *not* covered by those before it."""
        return _painted(self._tree, boxes, self._by_overlap, MANY, MANY)[0]

    def uncover(self, pieces: Keys, most: int = MANY, looks: int = MANY) -> int:
        return self._tree.repaint(pieces, COVERED, NEGATIVE, by_overlap=self._by_overlap, most=most, looks=looks)

    def join(self, active: Keys, looks: int = MANY) -> None:
        tree = CutTree(self._tree.domain)
        if _painted(tree, active, self._by_overlap, self.count, looks)[1] >= 0 and tree.negative <= self.count:
            self._tree = tree

    def rectangles(self) -> Keys:
        return self._tree.leaves(self._tree.domain, NEGATIVE)[1].copy()

    def dump(self) -> tuple[Keys, NDArray[np.int8]]:
        """The cuts, and per node its dimension or, for a leaf, -1 - colour."""
        shape, cuts, colours = self._tree.shape()
        shape[shape == LEAF] = -1 - colours
        return cuts, shape

    @classmethod
    def restored(cls, domain: Keys, cuts: Keys, shape: NDArray[np.int8], *, by_overlap: bool) -> NegativeTree:
        """The space that `dump` described."""
        space = cls(domain, by_overlap=by_overlap)
        colours = -1 - shape[shape < 0].astype(np.int64)
        if colours.max(initial=NEGATIVE) > COVERED:
            raise StateError("the stored tree of negative rectangles is damaged: no such colour")
        space._tree.load(np.maximum(shape, LEAF), cuts, colours)
        return space

    def check(self) -> None:
        self._tree.check()


def _painted(tree: CutTree, boxes: Keys, by_overlap: bool, most: int, looks: int) -> tuple[NDArray[np.bool_], int]:
    """Paint all of these boxes covered; as `CutTree.paint_each`."""
    colours = np.full(len(boxes), COVERED, np.int64)
    return tree.paint_each(tree.domain, boxes, colours, by_overlap=by_overlap, most=most, looks=looks)


class NegativeRtree:
    """The negative space as published: a list of rectangles under an R-tree."""

    def __init__(self, domain: Keys, *, by_overlap: bool) -> None:
        self._domain, self._by_overlap = domain, by_overlap
        self._set(domain[None])

    def _set(self, rectangles: Keys) -> None:
        self._index = rtree_index.Index(properties=rtree_index.Property(dimension=max(2, self._domain.shape[1])))
        self._rectangles: dict[int, Keys] = {}
        self._next = 0
        for rectangle in rectangles:
            self._insert(rectangle)

    @property
    def count(self) -> int:
        return len(self._rectangles)

    def _insert(self, rectangle: Keys) -> None:
        self._index.insert(self._next, _outward(rectangle))
        self._rectangles[self._next] = rectangle.copy()
        self._next += 1

    def _meeting(self, q: Keys) -> Iterator[int]:
        found = sorted(self._index.intersection(_outward(q)))
        return (key for key in found if meets(self._rectangles[key], q))

    def gap(self, q: Keys) -> Keys | None:
        """The part in `q` of the lowest rectangle that meets it: the same whatever the R-tree's history."""
        return self._lowest(self._meeting(q), q)

    def _lowest(self, met: Iterable[int], q: Keys) -> Keys | None:
        parts = [_intersection(self._rectangles[key], q) for key in met]
        return min(parts, key=lambda part: part.tolist(), default=None)

    def gap_within(self, q: Keys, looks: int) -> tuple[Keys | None, int]:
        met = list(self._meeting(q))
        looks = max(-1, looks - LOOKS * (1 + len(met) // 16))
        return (self._lowest(met, q), looks) if looks >= 0 else (None, -1)

    def cover(self, q: Keys, most: int = MANY, looks: int = MANY) -> int:
        for key in list(self._meeting(q)):
            rectangle = self._rectangles.pop(key)
            self._index.delete(key, _outward(rectangle))
            pieces = subtract(rectangle, q, by_overlap=self._by_overlap)
            for piece in pieces:
                self._insert(piece)
            looks -= LOOKS * (1 + len(pieces))
            if self.count > most or looks < 0:
                break
        return max(-1, looks)

    def uncover(self, pieces: Keys, most: int = MANY, looks: int = MANY) -> int:
        for piece in pieces[: max(0, most - self.count) + 1]:
            self._insert(piece)
            looks -= LOOKS
            if looks < 0:
                break
        return max(-1, looks)

    def join(self, active: Keys, looks: int = MANY) -> None:
        rectangles = joined(self.rectangles())
        if LOOKS * len(rectangles) <= looks:
            self._set(rectangles)

    def rectangles(self) -> Keys:
        rows = sorted(rectangle.tolist() for rectangle in self._rectangles.values())
        return np.array(rows, np.int64).reshape(len(rows), 2, self._domain.shape[1])

    def dump(self) -> tuple[Keys, NDArray[np.int8]]:
        return self.rectangles().reshape(-1), np.empty(0, np.int8)

    @classmethod
    def restored(cls, domain: Keys, ends: Keys, shape: NDArray[np.int8], *, by_overlap: bool) -> NegativeRtree:
        """The space that `dump` described."""
        space = cls(domain, by_overlap=by_overlap)
        if len(shape) or ends.size % domain.size:
            raise StateError("the stored list of negative rectangles is damaged")
        rectangles = ends.reshape(-1, *domain.shape)
        try:
            check_rectangles(rectangles, domain)
        except InvariantError as error:
            raise StateError(f"the stored list of negative rectangles is damaged: {error}") from error
        space._set(rectangles)
        return space

    def check(self) -> None:
        check_rectangles(self.rectangles(), self._domain)


def joined(rectangles: Keys) -> Keys:
    """Disjoint boxes with those joined that abut in one attribute and agree in all others, until none do.

    >>> joined(np.array([[[0, 0], [2, 1]], [[0, 1], [1, 2]], [[1, 1], [2, 2]]])).tolist()
    [[[0, 0], [2, 2]]]
    """
    before = len(rectangles) + 1
    while len(rectangles) < before:
        before = len(rectangles)
        for i in range(rectangles.shape[2]):
            rectangles = _joined_along(rectangles, i)
    return rectangles


def _joined_along(rectangles: Keys, i: int) -> Keys:
    """Join runs of boxes that follow each other in attribute `i`: sorted by all other ends, they lie side by side."""
    others = np.delete(rectangles, i, axis=2).reshape(len(rectangles), 2 * rectangles.shape[2] - 2)
    order = np.lexsort((rectangles[:, 0, i], *others.T))
    ordered, others = rectangles[order], others[order]
    follows = (others[1:] == others[:-1]).all(axis=1) & (ordered[1:, 0, i] == ordered[:-1, 1, i])
    runs: Keys = ordered[np.append(True, ~follows)[: len(ordered)]]
    runs[:, 1, i] = ordered[np.append(~follows, True)[: len(ordered)], 1, i]
    return runs


def _intersection(a: Keys, b: Keys) -> Keys:
    return np.stack((np.maximum(a[0], b[0]), np.minimum(a[1], b[1])))


def _outward(box: Keys) -> list[float]:
    """The closed box as doubles, rounded outward: keys above 2^53 would collide otherwise.

    libspatialindex wants two dimensions at least; the second of a single one is the point 0.
    """
    lo, hi = box.tolist()
    ends = [float(low) for low in lo], [float(high - 1) for high in hi]
    if max(map(abs, (*lo, *hi))) >= 2**53:
        ends = [nextafter(low, -inf) for low in ends[0]], [nextafter(high, inf) for high in ends[1]]
    flat = [0.0] if len(lo) == 1 else []
    return [*ends[0], *flat, *ends[1], *flat]
