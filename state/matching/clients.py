"""heard[local]: what a broker's own clients asked for, exactly; the only place where a match is a delivery.

Two indexes, each where it is the faster (measured in `lacuna bench pruning`):

* as boxes in bit rows (`boxindex`), where a point costs 2d/64 words a box, whatever the filters are: 5 to 20 times
  faster for ranges of a hundredth of a domain or more, even at several boxes a filter;
* as trees among their predicates (`predicates`), where a point costs a look at each filter whose rarest predicate it
  fulfils: about 3 times faster for the auctions of `lacuna bench pruning` (ten attributes, five boxes a filter, one
  predicate in thousands), and in a tenth of the memory. So here lie Boolean filters that are rare enough for their
  number of boxes, and those that are more than `filters.MOST_BOXES` boxes, which have no exact ones.

Both answer in order of arrival. Where both have an answer, the two are merged in that order, by the numbers that the
broker gave to its subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain

import numpy as np

from state.errors import InvariantError
from state.filters.pruning import natural
from state.filters.trees import Filter
from state.geometry.boxes import Boxes, Shape, gathered, unstack
from state.matching.boxlist import BoxList
from state.matching.predicates import Predicates, rarest
from state.protocol.messages import Name
from state.space import Keys, Space

RARE = 5e-5
"""A look at a tree takes as long as 1/RARE sides of boxes in bit rows (`lacuna bench pruning`)."""


class Clients:
    """An ordered map from names to filters: disjoint boxes, or a tree where the boxes would be too many."""

    def __init__(
        self,
        space: Space,
        number_of: Callable[[Name], int],
        entries: Iterable[tuple[Name, Shape]] = (),
        exact: dict[Name, Filter] | None = None,
    ) -> None:
        """`entries` in order of arrival; those in `exact` are kept as trees, not as boxes.

        `number_of` gives each entry a number, which is higher the later it was added.
        """
        self.exact: dict[Name, Filter] = dict(exact or {})
        """The entries that are kept as trees."""
        arrived = dict(entries)
        as_boxes = {n: shape for n, shape in arrived.items() if n not in self.exact} if self.exact else arrived
        self._space, self._dims, self._number_of = space, space.dims, number_of
        self._boxes = BoxList.of(space.dims, list(as_boxes), *gathered(list(as_boxes.values()), space.dims))
        self._trees = Predicates(space, self.exact.items())

    def __len__(self) -> int:
        return len(self._boxes) + len(self._trees)

    def __contains__(self, name: Name) -> bool:
        return name in self._boxes or name in self._trees

    def __iter__(self) -> Iterator[Name]:
        names = chain(self._boxes, self._trees)
        return iter(sorted(names, key=self._number_of)) if len(self._trees) else names

    def keys(self, name: Name) -> Keys:
        """The boxes of an entry as an array; none if it is kept as a tree."""
        return np.empty((0, 2, self._dims), np.int64) if name in self._trees else self._boxes.keys(name)

    def boxes(self, name: Name) -> Boxes:
        """The boxes of an entry; none if it is kept as a tree."""
        return unstack(self.keys(name))

    def add(self, name: Name, boxes: Boxes, tree: Filter | None = None, exact: Filter | None = None) -> None:
        """Add an entry at the end: a filter by its boxes and its tree, or by the exact tree, if the boxes are not."""
        if name in self:
            raise InvariantError(f"subscription {name} is added to a list that already holds it")
        kept = self.as_tree(boxes, tree, exact)
        if kept is None:
            self._boxes.add(name, boxes)
        else:
            self._trees.add(name, kept)
            self.exact[name] = kept

    def as_tree(self, boxes: Boxes, tree: Filter | None, exact: Filter | None) -> Filter | None:
        """Return the tree as which `add` keeps such an entry, or None where it keeps the boxes."""
        if exact is None and tree is not None and self._is_rare(tree, boxes):
            return tree
        return exact

    def _is_rare(self, tree: Filter, boxes: Boxes) -> bool:
        """Do so few points fulfil what must be fulfilled that looking at the tree then takes less than its boxes?"""
        return rarest(tree, partial(natural, self._space)) <= RARE * len(boxes) * self._dims

    def remove(self, name: Name) -> None:
        """Forget an entry."""
        (self._trees if name in self._trees else self._boxes).remove(name)
        self.exact.pop(name, None)

    def holders(self, points: Keys) -> tuple[list[int], list[Name]]:
        """All pairs (point, entry that holds it), by point, then in order of arrival."""
        which, names = self._boxes.holders(points)
        if not len(self._trees):
            return which, names
        more, others = self._trees.holders(points)
        pairs = [*zip(which, names, strict=True), *zip(more, others, strict=True)]
        pairs.sort(key=lambda pair: (pair[0], self._number_of(pair[1])))
        return [k for k, _ in pairs], [name for _, name in pairs]

    def check(self) -> None:
        """Raise `InvariantError` unless every entry is in exactly one of the indexes, in order."""
        self._boxes.check()
        self._trees.check(self.exact)
        if any(name in self._trees for name in self._boxes):
            raise InvariantError("an entry of the clients is in two indexes")
        numbers = list(map(self._number_of, self._boxes))
        if sorted(numbers) != numbers:
            raise InvariantError("the clients' entries are not in order of arrival")
