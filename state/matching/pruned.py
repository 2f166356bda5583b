"""The pruned table of a link: what a neighbour asked for, made smaller, and by which publications are routed.

Every filter heard has its series of prunings, the best first (`pruning.steps`). All steps of all filters lie in one
list, sorted by (worst key up to it, order of arrival, step); the first `prunings` of them are done:

    list     s3:1  s1:1  s3:2  s7:1  s1:2 │ s2:1  s7:2 ...        done: s1 twice, s3 twice, s7 once
                                          cut

That is what the paper's priority queue does, step for step (see `pruning`), but as a value: it depends on what was
heard, in which order, and on the estimates, and on nothing else. A filter that comes or goes moves the others by at
most as many places as it has steps, and only filters so near the cut change. Unsubscription is nothing special. The
originals stay where they were, in heard, so pruning can be changed or undone at any time; the table is never stored.

Pruning is for memory, so the table holds little: predicates, as arrays, in one index (`predicates`).

    filter       its predicates as pruned, and behind them, where it is pruned, those of the original, to tell which
                 publications go only because of pruning
    place        a step is 36 bytes that sort as it does; the tree after it is made again when it is needed

An index of boxes would take several times as much: a filter is several boxes, and after some prunings more than before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice, takewhile
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.filters.pruning import Key, Pruning, Selectivity, Step, steps
from state.filters.trees import EVERYTHING, Filter, Leaf
from state.matching.extents import Extent, extent
from state.matching.predicates import Predicates
from state.protocol.messages import Name
from state.space import Keys, Space

Place = bytes
"""A step in the list: the worst key up to it, its filter's number in order of arrival, its own number from 1."""
_PLACE, _DOUBLES, _WORDS = Struct(">QQQQI"), Struct(">ddd"), Struct(">QQQ")
_SIGN, _ALL = 1 << 63, (1 << 64) - 1


def place_of(worst: Key, number: int, step: int) -> Place:
    """Return a step as bytes that sort as (worst, number, step) does.

    >>> keys = [(-64.0, 0.5, 1.0), (-64.0, 0.5, 2.0), (-0.0, 0.0, 0.0), (0.0, -0.0, 0.0), (0.0, 1e-9, 0.0)]
    >>> places = [place_of(key, number, 1) for number, key in enumerate(keys)]
    >>> places == sorted(places)
    True
    """
    a, b, c = worst
    words = _WORDS.unpack(_DOUBLES.pack(a + 0.0, b + 0.0, c + 0.0))  # -0.0 is to equal 0.0
    return _PLACE.pack(*(~word & _ALL if word & _SIGN else word | _SIGN for word in words), number, step)


@dataclass(slots=True)
class _Entry:
    """A filter: its number in order of arrival, its steps, how many of them are done, and its size after these."""

    number: int
    places: tuple[Place, ...]
    done: int = 0
    associations: int = 0
    bytes: int = 0


class Pruned:
    """Filters by name in order of arrival, as many prunings done as asked for, those first that pay most.

    `original` gives each as it was heard.
    """

    def __init__(
        self,
        space: Space,
        pruning: Pruning,
        selectivity: Selectivity,
        original: Callable[[Name], Filter],
        names: Iterable[Name] = (),
    ) -> None:
        self._space, self._pruning, self._selectivity, self._original = space, pruning, selectivity, original
        self._entries: dict[Name, _Entry] = {}
        self._names: dict[int, Name] = {}
        self._order: list[Place] = []
        self._arrived = 0
        self.extent = self.unpruned = Extent(0, 0)
        """The size of the filters as they stand in the table, and as they were heard."""
        self._index = Predicates(space, selectivity=selectivity)
        for name in names:
            self._order += self._enter(name).places
        self._order.sort()
        for name in self._entries:
            self._settle(name)
        self._index.build()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def prunings(self) -> int:
        """The number of prunings that are done."""
        return self._cut

    def tree(self, name: Name) -> Filter:
        """A filter as it stands in the table. O(its prunings times predicates)."""
        return self._tree(name, self._original(name))

    def _tree(self, name: Name, original: Filter) -> Filter:
        done = self._entries[name].done
        return next(islice(self._steps(original), done - 1, None)).tree if done else original

    def _steps(self, original: Filter) -> Iterable[Step]:
        return steps(original, self._pruning.dimension, self._selectivity, self._space)

    def holds_any(self, points: Keys) -> NDArray[np.bool_]:
        """For each point, whether any filter in the table holds it."""
        return self._index.holds_any(points)

    def holds_any_original(self, points: Keys) -> NDArray[np.bool_]:
        """For each point, whether any filter as it was heard holds it."""
        return self._index.holds_any(points, exact=True)

    def add(self, name: Name) -> None:
        """A filter was heard."""
        before = self._cut
        entry = self._enter(name)
        for place in entry.places:
            insort(self._order, place)
        self._settle(name)
        after = self._cut
        self._move(self._order[min(after, before) : max(after, before + len(entry.places))], name)

    def remove(self, name: Name) -> None:
        """A filter is not asked for any more; `original` still gives it."""
        before, entry = self._cut, self._entries[name]
        self._take_out(name)
        self.unpruned = _sum(self.unpruned, extent(self._original(name)), -1)
        for place in entry.places:
            del self._order[bisect_left(self._order, place)]
        del self._entries[name], self._names[entry.number]
        after = self._cut
        self._move(self._order[max(0, min(after, before - len(entry.places))) : max(after, before)])

    @property
    def _cut(self) -> int:
        return self._pruning.count(len(self._order))

    def _enter(self, name: Name) -> _Entry:
        if name in self._entries:
            raise InvariantError(f"subscription {name} is added to a pruned table that already holds it")
        original, number = self._original(name), self._arrived
        allowed = takewhile(self._pruning.allows, self._steps(original))
        entry = _Entry(number, tuple(place_of(step.worst, number, k) for k, step in enumerate(allowed, 1)))
        self._entries[name], self._names[number] = entry, name
        self.unpruned = _sum(self.unpruned, extent(original))
        self._arrived += 1
        return entry

    def _due(self, entry: _Entry) -> int:
        """Return the number of prunings of a filter that lie before the cut."""
        return bisect_right(entry.places, self._order[self._cut - 1]) if self._cut else 0

    def _move(self, moved: list[Place], settled: Name | None = None) -> None:
        """Do or undo the steps that came before or fell behind the cut, except those of a filter that is settled."""
        names = {self._names[_PLACE.unpack(place)[3]]: None for place in moved}
        for name in names:
            if name != settled and self._entries[name].done != self._due(self._entries[name]):
                self._take_out(name)
                self._settle(name)

    def _settle(self, name: Name) -> None:
        """Put a filter into the table with as many prunings as are due."""
        entry, original = self._entries[name], self._original(name)
        entry.done = self._due(entry)
        tree = self._tree(name, original)
        entry.associations, entry.bytes = size = extent(tree)
        self.extent = _sum(self.extent, size)
        self._index.add(name, self._indexed(tree), original if entry.done else None)

    def _take_out(self, name: Name) -> None:
        """Take a filter out of the table as it stands there."""
        entry = self._entries[name]
        self.extent = _sum(self.extent, Extent(entry.associations, entry.bytes), -1)
        self._index.remove(name)

    def _indexed(self, tree: Filter) -> Filter:
        """A tree for an index of predicates, where everything is the whole of an attribute."""
        if tree != EVERYTHING:
            return tree
        low, high = self._space.domain
        return Leaf(0, low[0], high[0])

    def check(self) -> None:
        """Raise `InvariantError` unless the table equals one that is built from the beginning."""
        anew = Pruned(self._space, self._pruning, self._selectivity, self._original, self._entries)
        mine, its = ({name: table.tree(name) for name in table._entries} for table in (self, anew))
        if mine != its or self.prunings != anew.prunings:
            raise InvariantError("a pruned table depends on more than what was heard")
        if (self.extent, self.unpruned) != (anew.extent, anew.unpruned):
            raise InvariantError("a pruned table is miscounted")
        exact = {name: self._original(name) for name, entry in self._entries.items() if entry.done}
        self._index.check({name: self._indexed(tree) for name, tree in mine.items()}, exact)


def _sum(a: Extent, b: Extent, sign: int = 1) -> Extent:
    return Extent(a.associations + sign * b.associations, a.bytes + sign * b.bytes)
