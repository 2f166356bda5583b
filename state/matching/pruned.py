"""The pruned table of a link: what a neighbour asked for, made smaller, and by which publications are routed.

Every filter heard has its series of prunings, the best first (`pruning.steps`). All steps of all filters lie in one
list, sorted by (worst key up to it, order of arrival, step); the first `prunings` of them are done:

    list     s3:1  s1:1  s3:2  s7:1  s1:2 │ s2:1  s7:2 ...        done: s1 twice, s3 twice, s7 once
                                          cut

That is what the paper's priority queue does, step for step (see `pruning`), but as a value: it depends on what was
heard, in which order, and on the estimates, and on nothing else. A filter that comes or goes moves the others by at
most as many places as it has steps, and only filters so near the cut change. Unsubscription is nothing special. The
originals stay where they were, in heard, so pruning can be changed or undone at any time; the table is never stored.

The table lets through what its filters let through and no more: a filter without a pruning lies in it as the boxes that
were heard, a pruned one as all the boxes that it is. Limits on boxes are for what travels.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from itertools import takewhile

from state.errors import InvariantError
from state.filters.pruning import Key, Pruning, Selectivity, Step, steps
from state.filters.trees import Filter, all_boxes
from state.geometry.boxes import Boxes, stack
from state.matching.boxlist import BoxList
from state.matching.extents import Extent, extent
from state.protocol.messages import Name
from state.space import Space

Place = tuple[Key, int, int]
"""A step in the list: the worst key up to it, its filter's number in order of arrival, its own number from 1."""


class Pruned:
    """Filters by name in order of arrival, as many prunings done as asked for, those first that pay most.

    `heard` has the boxes of each, as they were heard.
    """

    def __init__(
        self,
        space: Space,
        pruning: Pruning,
        selectivity: Selectivity,
        heard: Callable[[Name], Boxes],
        entries: Iterable[tuple[Name, Filter]] = (),
    ) -> None:
        self._space, self._pruning, self._selectivity, self._heard = space, pruning, selectivity, heard
        self._originals: dict[Name, Filter] = {}
        self._steps: dict[Name, list[Step]] = {}
        self._numbers: dict[Name, int] = {}
        self._names: dict[int, Name] = {}
        self._done: dict[Name, int] = {}
        self._order: list[Place] = []
        self._arrived = 0
        self._associations = self._bytes = 0
        for name, tree in entries:
            self._enter(name, tree)
            self._order += self._places(name)
        self._order.sort()
        for name in self._originals:
            self._done[name] = self._due(name)
            self._count(name, 1)
        self.table = BoxList(space.dims, ((name, stack(self._boxes(name), space.dims)) for name in self._originals))

    def __len__(self) -> int:
        return len(self._originals)

    @property
    def prunings(self) -> int:
        """The number of prunings that are done."""
        return self._cut

    @property
    def extent(self) -> Extent:
        """The size of the filters as they stand in the table."""
        return Extent(self._associations, self._bytes)

    def tree(self, name: Name) -> Filter:
        """A filter as it stands in the table."""
        done = self._done[name]
        return self._steps[name][done - 1].tree if done else self._originals[name]

    def add(self, name: Name, tree: Filter) -> None:
        """A filter was heard."""
        self._enter(name, tree)
        before = self._cut
        places = self._places(name)
        for place in places:
            insort(self._order, place)
        self._done[name] = self._due(name)
        self._count(name, 1)
        self.table.add(name, self._boxes(name))
        after = self._cut
        self._settle(self._order[min(after, before) : max(after, before + len(places))])

    def remove(self, name: Name) -> None:
        """A filter is not asked for any more."""
        self._count(name, -1)
        before = self._cut
        del self._done[name]
        places = self._places(name)
        for place in places:
            del self._order[bisect_left(self._order, place)]
        del self._originals[name], self._steps[name], self._names[self._numbers.pop(name)]
        self.table.remove(name)
        after = self._cut
        self._settle(self._order[max(0, min(after, before - len(places))) : max(after, before)])

    @property
    def _cut(self) -> int:
        return self._pruning.count(len(self._order))

    def _enter(self, name: Name, tree: Filter) -> None:
        if name in self._originals:
            raise InvariantError(f"subscription {name} is added to a pruned table that already holds it")
        series = steps(tree, self._pruning.dimension, self._selectivity, self._space)
        self._steps[name] = list(takewhile(self._pruning.allows, series))
        self._originals[name] = tree
        self._numbers[name], self._names[self._arrived] = self._arrived, name
        self._done[name] = 0
        self._arrived += 1

    def _places(self, name: Name) -> list[Place]:
        return [(step.worst, self._numbers[name], k) for k, step in enumerate(self._steps[name], 1)]

    def _due(self, name: Name) -> int:
        """Return the number of prunings of a filter that lie before the cut."""
        return bisect_right(self._places(name), self._order[self._cut - 1]) if self._cut else 0

    def _settle(self, moved: list[Place]) -> None:
        """The steps that came before or fell behind the cut: do or undo them."""
        for name in {self._names[number]: None for _, number, _ in moved}:
            self._count(name, -1)
            self._done[name] = self._due(name)
            self._count(name, 1)
            self.table.remove(name)
            self.table.add(name, self._boxes(name))

    def _boxes(self, name: Name) -> Boxes:
        return all_boxes(self.tree(name), self._space) if self._done[name] else self._heard(name)

    def _count(self, name: Name, sign: int) -> None:
        associations, taken = extent(self.tree(name))
        self._associations += sign * associations
        self._bytes += sign * taken

    def check(self) -> None:
        """Raise `InvariantError` unless the table equals one that is built from the beginning."""
        anew = Pruned(self._space, self._pruning, self._selectivity, self._heard, self._originals.items())
        mine, its = ({name: table.tree(name) for name in table._originals} for table in (self, anew))
        if mine != its or self.prunings != anew.prunings:
            raise InvariantError("a pruned table depends on more than what was heard")
        if any(self.table.boxes(name) != anew.table.boxes(name) for name in self._originals):
            raise InvariantError("the boxes of a pruned table are not those of its filters")
        if self.extent != anew.extent or len(self.table) != len(self):
            raise InvariantError("a pruned table is miscounted")
