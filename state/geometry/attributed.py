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
text and Proposition 2 count the new ones, as here. A split that leaves one piece or none is free and always made (lines
10 to 14). The text calls `CoveredBy` what is covered *only* by s; it is what was first attributed to s: others may
cover it. Giving it back whole (Fig. 9) is safe but makes the negative space larger than it need be; `repair` then
attributes what other active ones cover to them, so that inside the cancelled one the negative space is exact again
(unless that makes more than `MOST_REPAIRED` rectangles: the rest then stays negative, which is safe too).

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
from state.geometry.cuts import NEGATIVE, CutTree, Numbers, Shape
from state.kernels import kernel
from state.space import Keys, Space

Select = Literal["ratio", "benefit", "cost"]
HEAD = 5
"""Numbers in front of the cuts in a dump: how many cuts, `_first`, `_unsplit`, and two doubles."""
MOST_REPAIRED = 1 << 12
"""New rectangles of one repair: in many attributes it would make millions."""
FEWEST, LEAST = 1024, 0.01
"""Drift below so many rectangles, or so little of the domain, is not worth a rebuild."""


@kernel
def _chosen(order: Numbers, costs: Numbers, limit: int) -> Numbers:
    """Return the candidates that can be split, in this order, with at most `limit` new rectangles in all; sorted."""
    chosen, count, created = np.empty(len(order), np.int64), 0, 0
    for k in order:
        if created + costs[k] <= limit:
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
    >>> kept.cover(1, Box((2, 2), (5, 5)).keys(), 2, "ratio"), kept.count
    (0, 1)
    >>> kept.cover(1, Box((2, 2), (5, 5)).keys(), 3, "ratio"), kept.count
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

    def rectangles(self) -> Keys:
        """The negative rectangles, as an array of boxes."""
        return self._tree.leaves(self._tree.domain, NEGATIVE)[1].copy()

    def cover(self, owner: int, q: Keys, limit: int, select: Select) -> int:
        """Subtract `q` from the best of the rectangles that it meets (Fig. 8); how many are new, at most `limit`."""
        leaves, boxes = self._tree.leaves(q, NEGATIVE)
        pieces = (boxes[:, 0] < q[0]).sum(axis=1) + (boxes[:, 1] > q[1]).sum(axis=1)
        costs = np.maximum(pieces - 1, 0)
        benefits = self._space.shares(_inside(boxes, q))
        chosen = _chosen(_order(benefits, costs, select), costs, limit)
        self._tree.paint(leaves[chosen], boxes[chosen], q, owner, by_overlap=self._by_overlap)
        self.share -= math.fsum(benefits[chosen].tolist())
        self._least = min(self._least, self.share)
        self._unsplit += len(leaves) - len(chosen)
        return int(costs[chosen].sum())

    def give_back(self, owner: int, q: Keys) -> None:
        """Make negative what is attributed to `owner` in its box `q` (Fig. 9, line 6)."""
        leaves, boxes = self._tree.leaves(q, owner)
        self.share += math.fsum(self._space.shares(_inside(boxes, q)).tolist())
        self._tree.paint(leaves, boxes, q, NEGATIVE, by_overlap=self._by_overlap)
        self._unsplit += len(leaves)

    def repair(self, q: Keys, owners: Numbers, boxes: Keys) -> None:
        """Attribute to others, given with their boxes that meet `q`, what of the negative space in `q` they cover.

        Ends after `MOST_REPAIRED` new rectangles; what is not yet attributed stays negative.
        """
        before = self._negative_share(q)
        self._tree.paint_each(q, boxes, owners, by_overlap=self._by_overlap, most=self.count + MOST_REPAIRED)
        self.share += self._negative_share(q) - before

    def _negative_share(self, q: Keys) -> float:
        return math.fsum(self._space.shares(_inside(self._tree.leaves(q, NEGATIVE)[1], q)).tolist())

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


def _order(benefits: NDArray[np.float64], costs: Numbers, select: Select) -> Numbers:
    """Positions of the rectangles, the best first; the free ones before all others."""
    if select == "cost":
        return np.lexsort((costs,))
    worth = benefits / np.maximum(costs, 1) if select == "ratio" else benefits
    return np.lexsort((costs, -worth, costs > 0))
