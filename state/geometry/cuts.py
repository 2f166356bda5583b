"""A tree of cuts: boxes that tile the domain, each of one colour.

An inner node cuts its box in two along one attribute, so the leaves tile the domain whatever happens. Painting a box
gives the part of each leaf inside it a colour; a leaf that is only partly inside is first cut along its sides:

        domain, after one box s was painted           cut x at a
        ┌───┬───────┬───┐                            ┌────┴─────┐
        │   │   3   │   │                          (1)      cut x at b
        │ 1 ├───────┤ 2 │                                  ┌────┴────┐
        │   │ ▒ s ▒ │   │                            cut y at c      (2)
        │   ├───────┤   │                            ┌────┴────┐
        │   │   4   │   │                           (4)    cut y at d
        └───┴───────┴───┘                                  ┌──┴──┐
            a       b                                      ▒    (3)

Colour 0 is `NEGATIVE`: covered by nobody. Two users: `negative` knows one other colour, covered; `attributed` has one
for each active subscription.

Two sibling leaves of one colour are joined, all the way up, so that painting everything in one colour leaves one leaf.
Which leaf is found first depends on the tree's shape only, never on where its nodes lie in memory; the shape is what is
stored. Dead nodes are dropped when they are more than half, so memory is O(leaves).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError, StateError
from state.geometry.boxes import SUBTRACTION, check_disjoint, cut_order
from state.kernels import kernel
from state.space import Keys

NEGATIVE = 0
LEAF = -1
MANY = 2**62
"""More leaves than there can be."""
ANY = -1
"""In the place of a colour: all of them."""

Nodes = NDArray[np.int64]
"""Nodes of a tree, a row each: dimension (LEAF for a leaf), cut, left, right, parent. A leaf's colour is its `left`."""
DIM, CUT, LEFT, RIGHT, PARENT = 0, 1, 2, 3, 4
Numbers = NDArray[np.int64]
Shape = NDArray[np.int8]


@kernel
def _first_negative(nodes: Nodes, q: Keys, looks: int) -> tuple[np.int64, int]:
    """Return the first negative leaf that meets `q`, in the order of the tree, or -1; and the looks left.

    After `looks` looks at a node it is given up: no leaf, and -1 look is left.

    Most questions are this one, and it takes less time than the call: so places are unsigned, which spares numba the
    look whether they count from the end, and no box is kept on the way (see `_part`).
    """
    waiting = np.empty(64, np.uint64)
    waiting[0] = 0
    depth, one = np.uint64(1), np.uint64(1)
    while depth > 0:
        if looks < 0:
            return np.int64(-1), -1
        depth -= one
        node = waiting[depth]
        looks -= 1
        while nodes[node, DIM] != LEAF:
            looks -= 1
            i, cut = np.uint64(nodes[node, DIM]), nodes[node, CUT]
            if q[0, i] >= cut:
                node = np.uint64(nodes[node, RIGHT])
                continue
            if q[1, i] > cut:
                if depth == len(waiting):
                    waiting = np.concatenate((waiting, np.empty_like(waiting)))
                waiting[depth] = np.uint64(nodes[node, RIGHT])
                depth += one
            node = np.uint64(nodes[node, LEFT])
        if nodes[node, LEFT] == NEGATIVE:
            return np.int64(node), max(looks, 0)
    return np.int64(-1), max(looks, 0)


@kernel
def _part(nodes: Nodes, leaf: int, q: Keys) -> Keys:
    """The part in `q` of a leaf that meets it."""
    part = q.copy()
    while leaf != 0:
        child, leaf = leaf, nodes[leaf, PARENT]
        i, cut = nodes[leaf, DIM], nodes[leaf, CUT]
        if nodes[leaf, LEFT] == child:
            part[1, i] = min(part[1, i], cut)
        else:
            part[0, i] = max(part[0, i], cut)
    return part


@kernel
def _leaves(nodes: Nodes, domain: Keys, q: Keys, colour: int, looks: int) -> tuple[Numbers, Keys, int]:
    """Return the leaves of one colour that meet `q`, with their boxes, in the order of the tree, and the looks left.

    Ends as soon as there were more than `looks` looks at a node: -1 is left then, and some leaves are missing.
    """
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
        looks -= 1
        while nodes[node, DIM] != LEAF:
            looks -= 1
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
        if colour == ANY or nodes[node, LEFT] == colour:
            if count == len(found):
                found = np.concatenate((found, np.empty_like(found)))
                boxes = np.concatenate((boxes, np.empty_like(boxes)))
            found[count], boxes[count] = node, box
            count += 1
        if looks < 0:
            return found[:count], boxes[:count], -1
    return found[:count], boxes[:count], looks


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
    nodes: Nodes, used: int, leaves: Numbers, boxes: Keys, q: Keys, colour: int, by_overlap: bool, more: int
) -> tuple[Nodes, int, int, int]:
    """Paint the part in `q` of each of these leaves, which all have one other colour.

    Stops, with some of them not painted, as soon as there are more than `more` new negative leaves.

    One of the two colours must be NEGATIVE. Returns the nodes, how many are in use, and the change in the number of
    negative leaves and of dead nodes. Joining never removes a leaf that still waits here: it joins leaves of the new
    colour only.
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
        negative += 1 - joined if colour == NEGATIVE else pieces - 1
        dead += 2 * joined
        if negative > more:
            break
    return nodes, used, negative, dead


@kernel
def _repaint(
    nodes: Nodes, used: int, domain: Keys, parts: Keys, old: int, new: int, by_overlap: bool, more: int, looks: int
) -> tuple[Nodes, int, int, int, int]:
    """Paint all of one colour in these boxes in another; as `_paint_all`. Also returns the looks left, or -1."""
    negative, dead = 0, 0
    for k in range(len(parts)):
        leaves, boxes, looks = _leaves(nodes, domain, parts[k], old, looks)
        looks -= SUBTRACTION * len(leaves)
        if looks < 0:
            return nodes, used, negative, dead, -1
        nodes, used, added, freed = _paint_all(nodes, used, leaves, boxes, parts[k], new, by_overlap, more - negative)
        negative += added
        dead += freed
        if negative > more:
            break
    return nodes, used, negative, dead, looks


@kernel
def _paint_each(
    nodes: Nodes,
    used: int,
    domain: Keys,
    q: Keys,
    boxes: Keys,
    colours: Numbers,
    by_overlap: bool,
    more: int,
    looks: int,
) -> tuple[Nodes, int, int, int, int, NDArray[np.bool_]]:
    """Paint what is negative of `q` in each of these boxes, which all meet it, in their colours; as `_paint_all`.

    Also returns the looks left, or -1, and for each box whether anything was painted.
    """
    negative, dead = 0, 0
    met = np.zeros(len(boxes), np.bool_)
    for k in range(len(boxes)):
        part = q.copy()
        for i in range(q.shape[1]):
            part[0, i] = max(part[0, i], boxes[k, 0, i])
            part[1, i] = min(part[1, i], boxes[k, 1, i])
        leaves, found, looks = _leaves(nodes, domain, part, NEGATIVE, looks)
        looks -= SUBTRACTION * len(leaves)
        if looks < 0:
            return nodes, used, negative, dead, -1, met
        nodes, used, fewer, freed = _paint_all(
            nodes, used, leaves, found, part, colours[k], by_overlap, more - negative
        )
        met[k] = len(leaves) > 0
        negative += fewer
        dead += freed
        if negative > more:
            break
    return nodes, used, negative, dead, looks, met


@kernel
def _preorder(nodes: Nodes, used: int) -> tuple[Shape, Numbers, Numbers]:
    """The shape, per node its dimension or LEAF; the cuts of the inner nodes; the colours of the leaves."""
    shape, cuts, colours = np.empty(used, np.int8), np.empty(used, np.int64), np.empty(used, np.int64)
    stack = np.empty(used + 1, np.int64)
    stack[0] = 0
    depth, count, inner = 1, 0, 0
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if nodes[node, DIM] == LEAF:
            shape[count] = LEAF
            colours[count - inner] = nodes[node, LEFT]
        else:
            shape[count] = nodes[node, DIM]
            cuts[inner] = nodes[node, CUT]
            inner += 1
            stack[depth], stack[depth + 1] = nodes[node, RIGHT], nodes[node, LEFT]
            depth += 2
        count += 1
    return shape[:count].copy(), cuts[:inner].copy(), colours[: count - inner].copy()


@kernel
def _restore(shape: Shape, cuts: Numbers, colours: Numbers) -> Nodes:
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
            if k - inner == len(colours):
                return nodes[:0]
            nodes[k, DIM], nodes[k, LEFT] = LEAF, colours[k - inner]
        else:
            if inner == len(cuts):
                return nodes[:0]
            nodes[k, DIM], nodes[k, CUT] = shape[k], cuts[inner]
            inner += 1
            waiting[depth] = waiting[depth + 1] = k
            depth += 2
    whole = depth == 0 and inner == len(cuts) and len(shape) - inner == len(colours)
    return nodes if whole else nodes[:0]


class CutTree:
    """Leaves of several colours that tile a domain.

    >>> from state.geometry.boxes import Box
    >>> tree = CutTree(Box((0, 0), (1001, 1001)).keys())
    >>> s1 = Box((175, 180), (511, 681)).keys()
    >>> _ = tree.repaint(s1[None], NEGATIVE, 7, by_overlap=False)
    >>> tree.negative, tree.leaves(s1, 7)[1].tolist()
    (4, [[[175, 180], [511, 681]]])
    """

    def __init__(self, domain: Keys) -> None:
        self.domain = domain
        self._nodes = np.empty((64, 5), np.int64)
        self._nodes[0] = (LEAF, 0, NEGATIVE, 0, -1)
        self._used, self._dead, self._negative = 1, 0, 1

    @property
    def negative(self) -> int:
        """The number of negative leaves."""
        return self._negative

    def gap(self, q: Keys) -> Keys | None:
        """The part in `q` of the first negative leaf that meets it. O(leaves on the way)."""
        leaf, _ = _first_negative(self._nodes, q, MANY)
        return None if leaf < 0 else _part(self._nodes, int(leaf), q)

    def gap_within(self, q: Keys, looks: int) -> tuple[Keys | None, int]:
        """Return the same and the looks left: -1 if there would be more, and then nothing is known."""
        leaf, looks = _first_negative(self._nodes, q, looks)
        return None if leaf < 0 else _part(self._nodes, int(leaf), q), looks

    @property
    def size(self) -> int:
        """The number of nodes, dead ones included: a look at all of them is the most that a question takes."""
        return self._used

    def leaves(self, q: Keys, colour: int) -> tuple[Numbers, Keys]:
        """The leaves of one colour that meet `q`, with their boxes, in the order of the tree. O(leaves that meet q)."""
        return _leaves(self._nodes, self.domain, q, colour, MANY)[:2]

    def leaves_within(self, q: Keys, colour: int, looks: int) -> tuple[Numbers, Keys, int]:
        """Return the same and the looks left: -1 if there would be more, and then some leaves are missing."""
        return _leaves(self._nodes, self.domain, q, colour, looks)

    def paint(self, leaves: Numbers, boxes: Keys, q: Keys, colour: int, *, by_overlap: bool) -> None:
        """Give the part in `q` of these leaves, just found and of one colour, another: to or from NEGATIVE."""
        self._took(*_paint_all(self._nodes, self._used, leaves, boxes, q, colour, by_overlap, MANY))

    def repaint(self, parts: Keys, old: int, new: int, *, by_overlap: bool, most: int = MANY, looks: int = MANY) -> int:
        """Give all of these boxes that has one colour another: to or from NEGATIVE. Return the looks left.

        Stops as soon as there are more than `most` negative leaves: what is painted then is of no use any more. So it
        does after `looks` looks at a node, and -1 is left.
        """
        more = most - self._negative
        painted = _repaint(self._nodes, self._used, self.domain, parts, old, new, by_overlap, more, looks)
        self._took(*painted[:4])
        return painted[4]

    def paint_each(
        self, q: Keys, boxes: Keys, colours: Numbers, *, by_overlap: bool, most: int = MANY, looks: int = MANY
    ) -> tuple[NDArray[np.bool_], int]:
        """Give what is negative of `q` in these boxes, which all meet it, the colour of the first box that has it.

        Returns for each box whether there was anything, and the looks left. One call for many boxes, so it is as fast
        as it can be. Stops as soon as there are more than `most` negative leaves, or after `looks` looks at a node: -1
        is left then.
        """
        more = most - self._negative
        painted = _paint_each(self._nodes, self._used, self.domain, q, boxes, colours, by_overlap, more, looks)
        self._took(*painted[:4])
        return painted[5], painted[4]

    def _took(self, nodes: Nodes, used: int, negative: int, dead: int) -> None:
        self._nodes, self._used = nodes, used
        self._negative += negative
        self._dead += dead
        if 2 * self._dead > self._used + 64:
            self._take(*self.shape())

    def shape(self) -> tuple[Shape, Numbers, Numbers]:
        """Everything needed to restore this tree: per node its dimension or LEAF; the cuts; the leaves' colours."""
        return _preorder(self._nodes, self._used)

    def load(self, shape: Shape, cuts: Numbers, colours: Numbers) -> None:
        """Take over a shape; `StateError` unless its leaves tile the domain."""
        if len(shape) and (shape.max() >= self.domain.shape[1] or shape.min() < LEAF):
            raise StateError("the stored tree of negative rectangles is damaged: no such attribute")
        self._take(shape, cuts, colours)
        boxes = self.tiles()[1]
        if len(boxes) != len(colours) or not inside(boxes, self.domain):
            raise StateError("the stored tree of negative rectangles is damaged: its leaves do not tile the domain")

    def _take(self, shape: Shape, cuts: Numbers, colours: Numbers) -> None:
        nodes = _restore(shape, cuts, colours)
        if not len(nodes):
            raise StateError("the stored tree of negative rectangles is damaged")
        self._nodes, self._used, self._dead = nodes, len(shape), 0
        self._negative = int(np.count_nonzero(colours == NEGATIVE))

    def tiles(self) -> tuple[Numbers, Keys]:
        """All leaves, as their colours and boxes, in the order of the tree."""
        leaves, boxes = self.leaves(self.domain, ANY)
        return self._nodes[leaves, LEFT], boxes

    def check(self) -> None:
        """Raise `InvariantError` unless the leaves are disjoint, fill the domain, and are counted rightly."""
        colours, boxes = self.tiles()
        check_rectangles(boxes, self.domain)
        if sum(_size(box) for box in boxes) != _size(self.domain):
            raise InvariantError("the leaves of a tree of cuts do not fill the domain")
        if np.count_nonzero(colours == NEGATIVE) != self._negative:
            raise InvariantError(f"{self._negative} negative rectangles are counted, but there are others")


def _size(box: Keys) -> int:
    """The number of points in a box, exactly."""
    return math.prod(hi - lo for lo, hi in zip(*box.tolist(), strict=True))


def inside(boxes: Keys, domain: Keys) -> bool:
    """Are all boxes non-empty and in the domain?"""
    sound = (boxes[:, 0] < boxes[:, 1]) & (boxes[:, 0] >= domain[0]) & (boxes[:, 1] <= domain[1])
    return bool(sound.all())


def check_rectangles(rectangles: Keys, domain: Keys) -> None:
    """Raise unless these boxes lie in the domain and share no point."""
    if not inside(rectangles, domain):
        raise InvariantError("a negative rectangle is empty or reaches beyond the domain")
    check_disjoint(rectangles, "negative rectangles")
