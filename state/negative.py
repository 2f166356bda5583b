"""The negative space: what nothing covers, as disjoint boxes (Jafarpour et al., "Subscription Subsumption Evaluation").

A subscription is covered by the union of the active ones exactly when it meets no negative rectangle (Proposition 1).
At the start the whole domain is one negative rectangle. An active subscription is subtracted from every rectangle
that it meets (Fig. 4 and 6); when it is cancelled, the part that it alone covered is given back (Fig. 7).

Two representations with one interface:

**`NegativeTree`** (ours, the default). A binary tree of cuts whose leaves tile the domain, each leaf either negative or
covered; the negative leaves *are* the rectangles, so there is no index beside them to keep in step.

        domain, after one subscription s              cut x at a
        ┌───┬───────┬───┐                            ┌────┴─────┐
        │   │   3   │   │                          (1)      cut x at b
        │ 1 ├───────┤ 2 │                                  ┌────┴────┐
        │   │ ▒ s ▒ │   │                            cut y at c      (2)
        │   ├───────┤   │                            ┌────┴────┐
        │   │   4   │   │                           (4)    cut y at d
        └───┴───────┴───┘                                  ┌──┴──┐
            a       b                                      ▒    (3)

Subtracting paints leaves covered, giving back paints them negative; a leaf that is only partly inside what is painted
is first cut along its sides. Two sibling leaves of one colour are joined, all the way up, so that cancelling
everything leaves one negative leaf: the domain. Which rectangle is found first depends on the tree's shape only,
never on where its nodes lie in memory; the shape is what is stored.

**`NegativeRtree`** (as published): a list of rectangles and an R-tree over them, from libspatialindex. Its coordinates
are doubles, so keys are rounded outward there and every candidate is judged again by its keys.

Departures from the paper: Fig. 4 prints its recursion twice (lines 10 and 11); once is meant. Fig. 4 cuts the
attributes in their given order (`order = "fixed"`); cutting first where the subscription covers the largest share
leaves fewer rectangles (`order = "overlap"`). Fig. 6 and 7 test a passive subscription against everything again if it
meets the cancelled one; here only those whose certificate names it are tested (`told`), which is fewer and just as
safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from rtree import index as rtree_index

from state.boxes import cut_order, meets, subtract
from state.errors import InvariantError, StateError
from state.kernels import kernel
from state.space import Keys

NEGATIVE, COVERED = 0, 1
LEAF = -1

Nodes = NDArray[np.int64]
"""Nodes of a tree, a row each: dimension (LEAF for a leaf), cut, left, right, parent. A leaf's colour is its `left`."""
DIM, CUT, LEFT, RIGHT, PARENT = 0, 1, 2, 3, 4


class NegativeSpace(Protocol):
    """What a strategy needs of the negative space."""

    @property
    def count(self) -> int:
        """The number of negative rectangles."""

    def gap(self, q: Keys) -> Keys | None:
        """A part of `q` that nothing covers, or None if all of `q` is covered."""

    def cover(self, q: Keys) -> None:
        """Subtract `q` (Fig. 6)."""

    def uncover(self, pieces: Keys) -> None:
        """Give back boxes that nothing covers any more (Fig. 7, line 20)."""

    def rectangles(self) -> Keys:
        """The negative rectangles, as an array of boxes."""

    def check(self) -> None:
        """Raise `InvariantError` unless the rectangles are pairwise disjoint and inside the domain."""

    def dump(self) -> tuple[Keys, NDArray[np.int8]]:
        """Everything needed to restore this space exactly: whole numbers, and colours or nothing."""


@kernel
def _leaves(nodes: Nodes, domain: Keys, q: Keys, colour: int, most: int) -> tuple[NDArray[np.int64], Keys]:
    """The leaves of one colour that meet `q`, at most `most`, with their boxes, in the order of the tree."""
    d = q.shape[1]
    found, boxes = np.empty(16, np.int64), np.empty((16, 2, d), np.int64)
    stack, frames = np.empty(64, np.int64), np.empty((64, 2, d), np.int64)
    stack[0], frames[0] = 0, domain
    depth, count = 1, 0
    box = domain.copy()
    while depth > 0:
        depth -= 1
        node = stack[depth]
        box[:] = frames[depth]
        while nodes[node, DIM] != LEAF:
            i, cut = nodes[node, DIM], nodes[node, CUT]
            if q[1, i] <= cut:
                box[1, i] = cut
                node = nodes[node, LEFT]
            elif q[0, i] >= cut:
                box[0, i] = cut
                node = nodes[node, RIGHT]
            else:
                if depth == len(stack):
                    stack = np.concatenate((stack, np.empty_like(stack)))
                    frames = np.concatenate((frames, np.empty_like(frames)))
                stack[depth], frames[depth] = nodes[node, RIGHT], box
                frames[depth, 0, i] = cut
                depth += 1
                box[1, i] = cut
                node = nodes[node, LEFT]
        if nodes[node, LEFT] == colour:
            if count == len(found):
                found = np.concatenate((found, np.empty_like(found)))
                boxes = np.concatenate((boxes, np.empty_like(boxes)))
            found[count], boxes[count] = node, box
            count += 1
            if count == most:
                break
    return found[:count], boxes[:count]


@kernel
def _split(nodes: Nodes, used: int, leaf: int, box: Keys, q: Keys, by_overlap: bool) -> tuple[int, int]:
    """Cut a leaf along the sides of `q` that pass through it, until one leaf lies inside `q`.

    Returns that leaf and the number of nodes now in use; `nodes` must have room for 4d more.
    """
    d = q.shape[1]
    order = np.empty(d, np.int64)
    cut_order(box, q, by_overlap, order)
    colour = nodes[leaf, LEFT]
    for k in range(d):
        i = order[k]
        for high in (False, True):
            cut = q[1, i] if high else q[0, i]
            if cut <= box[0, i] or cut >= box[1, i]:
                continue
            for child in (used, used + 1):
                nodes[child, DIM], nodes[child, LEFT], nodes[child, PARENT] = LEAF, colour, leaf
            nodes[leaf, DIM], nodes[leaf, CUT] = i, cut
            nodes[leaf, LEFT], nodes[leaf, RIGHT] = used, used + 1
            leaf = used if high else used + 1
            box[1 if high else 0, i] = cut
            used += 2
    return leaf, used


@kernel
def _paint(nodes: Nodes, leaf: int, colour: int) -> int:
    """Give a leaf a colour and join siblings of one colour upward. Returns how many joins there were."""
    nodes[leaf, LEFT] = colour
    joined = 0
    while leaf != 0:
        parent = nodes[leaf, PARENT]
        other = nodes[parent, LEFT] + nodes[parent, RIGHT] - leaf
        if nodes[other, DIM] != LEAF or nodes[other, LEFT] != colour:
            break
        nodes[parent, DIM], nodes[parent, LEFT] = LEAF, colour
        nodes[leaf, PARENT] = nodes[other, PARENT] = -1
        leaf = parent
        joined += 1
    return joined


@kernel
def _paint_all(
    nodes: Nodes, used: int, leaves: NDArray[np.int64], boxes: Keys, q: Keys, colour: int, by_overlap: bool
) -> tuple[Nodes, int, int, int]:
    """Paint the part in `q` of each of these leaves, which all have the other colour.

    Returns the nodes, how many are in use, and the change in the number of negative leaves and of dead nodes. Joining
    never removes a leaf that still waits here: it joins leaves of the new colour only.
    """
    d = q.shape[1]
    negative, dead = 0, 0
    for k in range(len(leaves)):
        while used + 4 * d > len(nodes):
            nodes = np.concatenate((nodes, np.empty_like(nodes)))
        before = used
        leaf, used = _split(nodes, used, leaves[k], boxes[k], q, by_overlap)
        pieces = (used - before) // 2
        joined = _paint(nodes, leaf, colour)
        negative += pieces - 1 if colour == COVERED else 1 - joined
        dead += 2 * joined
    return nodes, used, negative, dead


@kernel
def _preorder(nodes: Nodes, used: int) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """The shape: per node its dimension or, for a leaf, -1 - colour; and the cuts of the inner nodes."""
    shape, cuts = np.empty(used, np.int8), np.empty(used, np.int64)
    stack = np.empty(used + 1, np.int64)
    stack[0] = 0
    depth, count, inner = 1, 0, 0
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if nodes[node, DIM] == LEAF:
            shape[count] = -1 - nodes[node, LEFT]
        else:
            shape[count] = nodes[node, DIM]
            cuts[inner] = nodes[node, CUT]
            inner += 1
            stack[depth], stack[depth + 1] = nodes[node, RIGHT], nodes[node, LEFT]
            depth += 2
        count += 1
    return shape[:count].copy(), cuts[:inner].copy()


@kernel
def _restore(shape: NDArray[np.int8], cuts: NDArray[np.int64]) -> Nodes:
    """The nodes of a shape, or an empty array if it is no tree."""
    nodes = np.empty((max(64, 2 * len(shape)), 5), np.int64)
    waiting = np.empty(len(shape) + 1, np.int64)
    waiting[0] = -1
    depth, inner = 1, 0
    for k in range(len(shape)):
        if depth == 0:
            return nodes[:0]
        depth -= 1
        parent = waiting[depth]
        if parent >= 0:
            nodes[parent, LEFT if k == parent + 1 else RIGHT] = k
        nodes[k, PARENT] = parent
        if shape[k] < 0:
            nodes[k, DIM], nodes[k, LEFT] = LEAF, -1 - shape[k]
        else:
            if inner == len(cuts):
                return nodes[:0]
            nodes[k, DIM], nodes[k, CUT] = shape[k], cuts[inner]
            inner += 1
            waiting[depth] = waiting[depth + 1] = k
            depth += 2
    return nodes if depth == 0 and inner == len(cuts) else nodes[:0]


class NegativeTree:
    """The negative space as the leaves of a tree of cuts.

    >>> from state.boxes import Box
    >>> space = NegativeTree(Box((0, 0), (1001, 1001)).keys(), by_overlap=False)
    >>> space.cover(Box((175, 180), (511, 681)).keys())
    >>> space.count
    4
    """

    def __init__(self, domain: Keys, *, by_overlap: bool) -> None:
        self._domain, self._by_overlap = domain, by_overlap
        self._nodes = np.empty((64, 5), np.int64)
        self._nodes[0] = (LEAF, 0, NEGATIVE, 0, -1)
        self._used, self._dead, self._count = 1, 0, 1

    @property
    def count(self) -> int:
        return self._count

    def gap(self, q: Keys) -> Keys | None:
        """The part in `q` of the first negative leaf that meets it. O(leaves on the way)."""
        _, boxes = _leaves(self._nodes, self._domain, q, NEGATIVE, 1)
        return _intersection(boxes[0], q) if len(boxes) else None

    def cover(self, q: Keys) -> None:
        self._colour(q, COVERED)

    def uncover(self, pieces: Keys) -> None:
        for piece in pieces:
            self._colour(piece, NEGATIVE)

    def _colour(self, q: Keys, colour: int) -> None:
        leaves, boxes = _leaves(self._nodes, self._domain, q, 1 - colour, -1)
        self._nodes, self._used, negative, dead = _paint_all(
            self._nodes, self._used, leaves, boxes, q, colour, self._by_overlap
        )
        self._count += negative
        self._dead += dead
        if 2 * self._dead > self._used + 64:
            self._load(*_preorder(self._nodes, self._used))

    def rectangles(self) -> Keys:
        return _leaves(self._nodes, self._domain, self._domain, NEGATIVE, -1)[1].copy()

    def dump(self) -> tuple[Keys, NDArray[np.int8]]:
        shape, cuts = _preorder(self._nodes, self._used)
        return cuts, shape

    @classmethod
    def restored(cls, domain: Keys, cuts: Keys, shape: NDArray[np.int8], *, by_overlap: bool) -> NegativeTree:
        """The space that `dump` described."""
        space = cls(domain, by_overlap=by_overlap)
        if len(shape) and (shape.max() >= domain.shape[1] or shape.min() < -1 - COVERED):
            raise StateError("the stored tree of negative rectangles is damaged: no such attribute or colour")
        space._load(shape, cuts)
        leaves = [_leaves(space._nodes, domain, domain, colour, -1)[1] for colour in (NEGATIVE, COVERED)]
        boxes = np.concatenate(leaves)
        if len(boxes) != np.count_nonzero(shape < 0) or not _inside(boxes, domain):
            raise StateError("the stored tree of negative rectangles is damaged: its leaves do not tile the domain")
        return space

    def _load(self, shape: NDArray[np.int8], cuts: NDArray[np.int64]) -> None:
        nodes = _restore(shape, cuts)
        if not len(nodes):
            raise StateError("the stored tree of negative rectangles is damaged")
        self._nodes, self._used, self._dead = nodes, len(shape), 0
        self._count = int(np.count_nonzero(shape == -1 - NEGATIVE))

    def check(self) -> None:
        rectangles = self.rectangles()
        if len(rectangles) != self._count:
            raise InvariantError(f"{self._count} negative rectangles are counted, {len(rectangles)} are there")
        _check_disjoint(rectangles, self._domain)


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
        parts = [_intersection(self._rectangles[key], q) for key in self._meeting(q)]
        return min(parts, key=lambda part: part.tolist(), default=None)

    def cover(self, q: Keys) -> None:
        for key in list(self._meeting(q)):
            rectangle = self._rectangles.pop(key)
            self._index.delete(key, _outward(rectangle))
            for piece in subtract(rectangle, q, by_overlap=self._by_overlap):
                self._insert(piece)

    def uncover(self, pieces: Keys) -> None:
        for piece in pieces:
            self._insert(piece)

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
            _check_disjoint(rectangles, domain)
        except InvariantError as error:
            raise StateError(f"the stored list of negative rectangles is damaged: {error}") from error
        space._set(rectangles)
        return space

    def check(self) -> None:
        _check_disjoint(self.rectangles(), self._domain)


def _intersection(a: Keys, b: Keys) -> Keys:
    return np.stack((np.maximum(a[0], b[0]), np.minimum(a[1], b[1])))


def _outward(box: Keys) -> list[float]:
    """The closed box as doubles, rounded outward: keys above 2^53 would collide otherwise.

    libspatialindex wants two dimensions at least; the second of a single one is the point 0.
    """
    lo, hi = box[0].astype(np.float64), (box[1] - 1).astype(np.float64)
    if len(lo) == 1:
        lo, hi = np.append(lo, 0.0), np.append(hi, 0.0)
    exact = np.abs(box).max() < 2**53
    return [*(lo if exact else np.nextafter(lo, -np.inf)), *(hi if exact else np.nextafter(hi, np.inf))]


def _inside(boxes: Keys, domain: Keys) -> bool:
    """Are all boxes non-empty and in the domain?"""
    sound = (boxes[:, 0] < boxes[:, 1]) & (boxes[:, 0] >= domain[0]) & (boxes[:, 1] <= domain[1])
    return bool(sound.all())


def _check_disjoint(rectangles: Keys, domain: Keys) -> None:
    if not _inside(rectangles, domain):
        raise InvariantError("a negative rectangle is empty or reaches beyond the domain")
    for k, rectangle in enumerate(rectangles):
        others = rectangles[k + 1 :]
        apart = (others[:, 0] >= rectangle[1]) | (others[:, 1] <= rectangle[0])
        if not apart.any(axis=1).all():
            raise InvariantError(f"negative rectangle {rectangle.tolist()} meets another one")
