"""The approximate negative space, and who covers the rest of the domain (Jafarpour et al., section 4).

The exact negative space may need very many rectangles. Here a new subscription makes at most a set number of new ones:
of the rectangles that it meets it is subtracted only from the best (Fig. 8); the others stay negative although it
covers a part of them. So the negative space is never too small: who meets none of it is covered for certain; who meets
it may be covered all the same.

What is subtracted is attributed to the subscription: `CoveredBy`. One tree of cuts (`cuts`) holds both, its leaves
coloured NEGATIVE or with the number of the one they are attributed to:

    k = 0 for s2: rectangle 2 would become three,     s1 is cancelled (Fig. 9): what was attributed to it is
    so it stays whole, also where s2 covers it        negative again, also where s2 covers it
    ┌──────────────────────┐                          ┌──────────────────────┐
    │           3          │                          │                      │
    ├─────┬────────┬───────┤                          │                      │
    │  1  │ ▒ s1 ┌─┼─┐  2  │                          │          1           │
    │     │ ▒▒▒▒ └─┼─┘s2   │                          │           (s2)       │
    ├─────┴────────┴───────┤                          │                      │
    │           4          │                          │                      │
    └──────────────────────┘                          └──────────────────────┘

**Invariant**: negative rectangles and all `CoveredBy` together tile the domain, and what is attributed to a
subscription lies inside it. The tree gives the first half by its make.

A rectangle's **cost** is how many new ones its split makes: pieces less one (Proposition 2). Its **benefit** is the
natural volume of what is subtracted. `select` puts the highest benefit/cost, benefit, or 1/cost first; equal ones the
cheaper first, then in the order of the tree. Volumes steer; they decide nothing.

Departures from the paper. Fig. 8 asks `count <= k` before it adds up to 2d pieces, so it may overshoot: here a
rectangle is split only if the count stays within k, otherwise the next best is tried. Line 27 counts all pieces; the
text and Proposition 2 count the new ones, as here. (`cover(printed=True)` does both as printed.) A split that leaves
one piece or none is free and always made (lines 10 to 14). The text calls `CoveredBy` what is covered *only* by s; it
is what was first attributed to s: others may cover it. Giving it back whole (Fig. 9) is safe but makes the negative
space larger than it need be; `repair` then attributes what other active ones cover to them, so that inside the
cancelled one the negative space is exact again (unless that makes more than `MOST_REPAIRED` rectangles: the rest then
stays negative, which is safe too).

Work. A change may look at so many nodes of the tree; splits and repairs beyond that are left out, which leaves more
negative and is safe. Only what is given back must be complete: one look at the tree in the owner's hull. So the tree
has a largest size, beyond which nothing is split.

Drift. With every rectangle left unsplit or given back whole the negative space may grow beyond what is uncovered. How
far cannot be known without recomputing it; `drifted` tells when the count has grown by a factor since the start, or
the volume by a factor since its least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError, StateError
from state.geometry.cuts import MANY, NEGATIVE, CutTree, Numbers, Shape
from state.kernels import kernel
from state.space import Keys, Space

Select = Literal["ratio", "benefit", "cost"]
HEAD = 5
"""Numbers in front of the cuts in a dump: how many cuts, `_first`, `_unsplit`, and two doubles."""
MOST_REPAIRED = 1 << 12
"""New rectangles of one repair: in many attributes it would make millions."""
MOST_NODES = 1 << 17
"""Nodes of the tree beyond which no rectangle is split: a look at all of them takes some ms."""
PER_LEAF = 16
"""Looks at a node that take as long as to find out the volume of a rectangle."""
FEWEST, LEAST = 1024, 0.01
"""Drift below so many rectangles, or so little of the domain, is not worth a rebuild."""


@kernel
def _chosen(order: Numbers, costs: Numbers, limit: int, printed: bool) -> Numbers:
    """Return the candidates that can be split, in this order, with at most `limit` new rectangles in all; sorted.

    As `printed`, the limit is compared before the last of them is counted.
    """
    chosen, count, created = np.empty(len(order), np.int64), 0, 0
    for k in order:
        if costs[k] == 0 or (created if printed else created + costs[k]) <= limit:
            created += costs[k]
            chosen[count] = k
            count += 1
    return np.sort(chosen[:count])


class Attributed:
    """Negative rectangles and the `CoveredBy` of each owner, which is a number above 0.

    >>> from state.geometry.boxes import Box
    >>> from state.space import Attribute
    >>> space = Space((Attribute("x", "int", 0, 9), Attribute("y", "int", 0, 9)))
    >>> kept = Attributed(space, by_overlap=True)
    >>> kept.cover(1, Box((2, 2), (5, 5)).keys(), 2, "ratio")[0], kept.count
    (0, 1)
    >>> kept.cover(1, Box((2, 2), (5, 5)).keys(), 3, "ratio")[0], kept.count
    (3, 4)
    """

    def __init__(self, space: Space, *, by_overlap: bool) -> None:
        self._space, self._by_overlap = space, by_overlap
        self._tree = CutTree(np.array(space.domain, np.int64))
        self.share = self._least = 1.0
        self._first, self._unsplit = 1, 0

    @property
    def count(self) -> int:
        """The number of negative rectangles."""
        return self._tree.negative

    def gap(self, q: Keys) -> Keys | None:
        """The part in `q` of the first negative rectangle that meets it."""
        return self._tree.gap(q)

    def gap_within(self, q: Keys, looks: int) -> tuple[Keys | None, int]:
        """Return the same and the looks left: -1 if it takes more, and then nothing is known."""
        return self._tree.gap_within(q, looks)

    def rectangles(self) -> Keys:
        """The negative rectangles, as an array of boxes."""
        return self._tree.leaves(self._tree.domain, NEGATIVE)[1].copy()

    def cover(
        self, owner: int, q: Keys, limit: int, select: Select, looks: int = MANY, *, printed: bool = False
    ) -> tuple[int, int]:
        """Subtract `q` from the best of the rectangles that it meets (Fig. 8).

        Returns how many are new, at most `limit`, and the looks left. Where it takes more looks, or where there are
        MOST_NODES, rectangles stay as they are. As `printed`, there is no largest tree, and pieces are counted instead
        of new rectangles, up to 2d more than `limit`.
        """
        leaves, boxes, looks = self._tree.leaves_within(q, NEGATIVE, looks)
        looks -= PER_LEAF * len(leaves)
        if looks < 0:
            self._unsplit += 1
            return 0, -1
        pieces = (boxes[:, 0] < q[0]).sum(axis=1) + (boxes[:, 1] > q[1]).sum(axis=1)
        costs = np.where(pieces > 1, pieces, 0) if printed else np.maximum(pieces - 1, 0)
        if self._tree.size > MOST_NODES and not printed:
            costs[pieces > 0], limit = MANY, 0
        benefits = self._space.shares(_inside(boxes, q))
        chosen = best(benefits, costs, limit, select, printed=printed)
        self._tree.paint(leaves[chosen], boxes[chosen], q, owner, by_overlap=self._by_overlap)
        self.share -= math.fsum(benefits[chosen].tolist())
        self._least = min(self._least, self.share)
        self._unsplit += len(leaves) - len(chosen)
        return int(costs[chosen].sum()), looks

    def give_back(self, owner: int, hull: Keys) -> None:
        """Make negative what is attributed to `owner` (Fig. 9, line 6), whose boxes all lie in `hull`."""
        leaves, boxes = self._tree.leaves(hull, owner)
        self.share += math.fsum(self._space.shares(boxes).tolist())
        self._tree.paint(leaves, boxes, self._tree.domain, NEGATIVE, by_overlap=self._by_overlap)
        self._unsplit += len(leaves)

    def repair(self, q: Keys, owners: Numbers, boxes: Keys, looks: int = MANY) -> int:
        """Attribute to others, given with their boxes that meet `q`, what of the negative space in `q` they cover.

        Ends after `MOST_REPAIRED` new rectangles, or so many looks; what is not yet attributed stays negative. Returns
        the looks left.
        """
        leaves, found, looks = self._tree.leaves_within(q, NEGATIVE, looks)
        looks -= PER_LEAF * len(leaves)
        if looks < 0 or self._tree.size > MOST_NODES:
            return looks
        before, most = self._shares_in(q, found), self.count + MOST_REPAIRED
        _, looks = self._tree.paint_each(q, boxes, owners, by_overlap=self._by_overlap, most=most, looks=looks)
        self.share += self._negative_share(q) - before
        return looks

    def _negative_share(self, q: Keys) -> float:
        return self._shares_in(q, self._tree.leaves(q, NEGATIVE)[1])

    def _shares_in(self, q: Keys, boxes: Keys) -> float:
        """Return the natural volume of these boxes in `q`."""
        return math.fsum(self._space.shares(_inside(boxes, q)).tolist())

    def begin(self) -> None:
        """Measure drift from here on."""
        self._first, self._least, self._unsplit = self.count, self.share, 0

    def drifted(self, factor: int) -> bool:
        """Has the count or the volume grown by more than this factor, with something negative that may be covered?"""
        many = self.count > factor * max(self._first, FEWEST)
        return self._unsplit > 0 and (many or self.share > factor * max(self._least, LEAST))

    def dump(self, places: Mapping[int, int]) -> tuple[Numbers, Shape]:
        """Everything that must be stored, the owners as their `places`."""
        shape, cuts, owners = self._tree.shape()
        owners = np.array([places[owner] if owner else NEGATIVE for owner in owners.tolist()], np.int64)
        head = np.array([len(cuts), self._first, self._unsplit], np.int64)
        return np.concatenate((head, np.array([self.share, self._least]).view(np.int64), cuts, owners)), shape

    def load(self, numbers: Numbers, shape: Shape, most: int) -> None:
        """Take over what `dump` gave with places up to `most`; `StateError` if it does not tile the domain."""
        if len(numbers) < HEAD or not 0 <= numbers[0] <= len(numbers) - HEAD:
            raise StateError("the stored negative rectangles are damaged: their head is missing")
        inner, self._first, self._unsplit = numbers[:3].tolist()
        self.share, self._least = numbers[3:HEAD].view(np.float64).tolist()
        owners = numbers[HEAD + inner :]
        if ((owners < NEGATIVE) | (owners > most)).any():
            raise StateError("the stored negative rectangles are damaged: something is attributed to nobody")
        self._tree.load(shape, numbers[HEAD : HEAD + inner], owners)

    def tiles(self) -> tuple[Numbers, Keys]:
        """All leaves: owners (or NEGATIVE) and boxes, in the order of the tree."""
        return self._tree.tiles()

    def check(self) -> None:
        """Raise `InvariantError` unless the leaves tile the domain and `share` is about their volume."""
        self._tree.check()
        share = self._negative_share(self._tree.domain)
        if abs(share - self.share) > 1e-6:
            raise InvariantError(f"the negative share is taken for {self.share}, but is {share}")


def _inside(boxes: Keys, q: Keys) -> Keys:
    """The part in `q` of each of these boxes, which all meet it."""
    return np.stack((np.maximum(boxes[:, 0], q[0]), np.minimum(boxes[:, 1], q[1])), axis=1)


def best(
    benefits: NDArray[np.float64], costs: Numbers, limit: int, select: Select, *, printed: bool = False
) -> Numbers:
    """Return the positions of the rectangles that are split, sorted."""
    return _chosen(_order(benefits, costs, select), costs, limit, printed)


def _order(benefits: NDArray[np.float64], costs: Numbers, select: Select) -> Numbers:
    """Positions of the rectangles, the best first; the free ones before all others."""
    if select == "cost":
        return np.lexsort((costs,))
    worth = benefits / np.maximum(costs, 1) if select == "ratio" else benefits
    return np.lexsort((costs, -worth, costs > 0))
