"""The size of filters: their predicates and their bytes, of one and of many that come and go.

What a table of filters costs is counted in associations, a predicate once for each filter that has it, and in bytes
(`pruning.size`). Ranges and sets count as the filter that their boxes are (`filters.of_boxes`), so that a table means
the same whether its links prune or not. Of one box that is known without making the filter:

    constrained attributes     0            1     n
    filter                     everything   p     AND(p1 ... pn)
    bytes                      8            24    8 + 24 n

Sums are kept as filters come and go: a change costs what the change is, not what the table is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import ne, or_
from typing import NamedTuple

import numpy as np

from state.errors import InvariantError
from state.filters.pruning import LEAF_BYTES, NODE_BYTES, size
from state.filters.trees import Filter, leaves, of_boxes
from state.geometry.boxes import Boxes, unstack
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.space import Keys, Space


class Extent(NamedTuple):
    """The size of one filter, or of several together."""

    associations: int
    bytes: int


def extent(tree: Filter) -> Extent:
    """Return the size of a filter. O(predicates)."""
    return Extent(sum(1 for _ in leaves(tree)), size(tree))


class Extents:
    """The sum over filters that come and go, each given by its boxes and, if it has one, its tree.

    >>> from state.geometry.boxes import Box
    >>> from state.space import Attribute
    >>> sums = Extents(Space(tuple(Attribute(name, "int", 0, 8) for name in "abc")))
    >>> sums.add((Box((0, 2, 2), (9, 4, 4)),), None)
    >>> sums.extent
    Extent(associations=2, bytes=56)
    """

    def __init__(self, space: Space, entries: Iterable[tuple[Boxes, Filter | None]] = ()) -> None:
        self._space, (self._low, self._high) = space, space.domain
        self._associations = self._bytes = 0
        for boxes, tree in entries:
            self.add(boxes, tree)

    @classmethod
    def of_list(cls, space: Space, boxes: BoxList, trees: dict[Name, Filter]) -> Extents:
        """The sum over a list, those of one box in one go."""
        counts, names = boxes.box_counts(), list(boxes)
        alone = np.fromiter((name not in trees for name in names), np.bool_, len(names)) & (counts == 1)
        others = (names[k] for k in np.flatnonzero(~alone).tolist())
        found = cls(space, ((boxes.boxes(name), trees.get(name)) for name in others))
        ends = boxes.all_keys()[(np.cumsum(counts) - counts)[alone]]
        constrained = (ends != np.array(space.domain)).any(axis=1).sum(axis=1)
        found._associations += int(constrained.sum())
        found._bytes += int((LEAF_BYTES * constrained + NODE_BYTES * (constrained != 1)).sum())
        return found

    @property
    def extent(self) -> Extent:
        """The sum now."""
        return Extent(self._associations, self._bytes)

    def add(self, boxes: Boxes, tree: Filter | None) -> None:
        """A filter comes. O(boxes), or O(predicates) of a tree."""
        self._change(boxes, tree, 1)

    def remove(self, boxes: Boxes, tree: Filter | None) -> None:
        """A filter that came goes."""
        self._change(boxes, tree, -1)

    def remove_keys(self, keys: Keys, tree: Filter | None) -> None:
        """The same for boxes that are an array: of one box no `Box` is made."""
        if tree is None and len(keys) == 1:
            lo, hi = keys[0].tolist()
            self._change_one(lo, hi, -1)
        else:
            self._change(unstack(keys), tree, -1)

    def _change(self, boxes: Boxes, tree: Filter | None, sign: int) -> None:
        if tree is None and len(boxes) == 1:
            self._change_one(boxes[0].lo, boxes[0].hi, sign)
        else:
            associations, taken = extent(of_boxes(boxes, self._space) if tree is None else tree)
            self._associations += sign * associations
            self._bytes += sign * taken

    def _change_one(self, lo: Sequence[int], hi: Sequence[int], sign: int) -> None:
        constrained = sum(map(or_, map(ne, lo, self._low), map(ne, hi, self._high)))
        self._associations += sign * constrained
        self._bytes += sign * (LEAF_BYTES * constrained + NODE_BYTES * (constrained != 1))

    def check(self, anew: Extents) -> None:
        """Raise `InvariantError` unless the sum equals one that is computed from the beginning."""
        if self.extent != anew.extent:
            raise InvariantError(f"filters are miscounted: {self.extent} instead of {anew.extent}")
