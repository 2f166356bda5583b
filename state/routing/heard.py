"""heard[M]: what a neighbour M asked of a broker, and so which publications go to M.

    BoxHeard      subscriptions as boxes: a publication goes to M if any holds it
    PrunedHeard   the same, generalised: fewer predicates, more publications (`matching.pruned`); wraps a `BoxHeard`
    RangeHeard    ranges of a curve, under `mics`: one look-up

All three take requests (`apply`) and say which points are wanted (`wants`, rule P). Pruning is a wrapper, so that it
can be put on, changed and taken off at any time: the originals stay where they were.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from state.curves.cells import Grid
from state.curves.hilbert import cell_count
from state.curves.ranges import RangeTable
from state.errors import InvariantError
from state.filters.pruning import Pruning
from state.filters.selectivity import Counts, Selectivities
from state.filters.trees import Filter, of_boxes
from state.geometry.boxes import Boxes, stack
from state.matching.boxlist import BoxList
from state.matching.extents import Extent, Extents
from state.matching.pruned import Pruned
from state.protocol.messages import Name, RangeChange, Request, Subscribe, Unsubscribe
from state.routing.subscriptions import Subscription
from state.space import Keys, Space
from state.strategies.base import Dump

Mask = NDArray[np.bool_]
Learned = tuple[Counts, Counts]
"""Publications seen by attribute and bin, and those that the estimates stand on: see `selectivity`."""
OTHER_COPY = "Remedy: the state of one of the two is not the other's: restore both from one checkpoint"


class Heard(ABC):
    """The requests of a neighbour, and the publications that it therefore gets."""

    can_be_pruned = True
    learned: Learned | None = None
    """Counts learned from publications, which must be stored; None where nothing is learned."""

    @abstractmethod
    def apply(self, request: Request) -> None:
        """Take a request of the neighbour."""

    @abstractmethod
    def wants(self, points: Keys) -> Mask:
        """Return for each point whether the neighbour is to have it (rule P)."""

    def falsely(self, points: Keys, wanted: Mask) -> Mask:
        """Return which of the wanted points the neighbour did not ask for, but gets because filters are pruned."""
        return np.zeros(len(points), np.bool_)

    @abstractmethod
    def __len__(self) -> int:
        """Return how many subscriptions, or ranges, were heard."""

    @abstractmethod
    def names(self) -> set[Name]:
        """Return the names of the subscriptions heard; none where only ranges are heard."""

    def ranges(self) -> NDArray[np.int64]:
        """Return the ranges heard; none where subscriptions are heard."""
        return np.empty((0, 2), np.int64)

    @abstractmethod
    def asked(self) -> object:
        """Return all that was heard, to be compared with what the other end told (rule H)."""

    @property
    def unpruned(self) -> Heard:
        """The same without a wrapper."""
        return self

    def pruned(self, pruning: Pruning | None) -> Heard:
        """Return the same, pruned in this way, or not at all."""
        return self

    def learn(self, learned: Learned | None) -> None:  # noqa: B027 - most learn nothing
        """Take over what publications taught before."""

    @abstractmethod
    def sizes(self) -> dict[str, Any]:
        """Return the columns of `metrics` that are about what was heard."""

    def dump(self) -> Dump:
        """Return what must be stored besides the broker's subscriptions."""
        return Dump()

    def restore(self, rows: Iterable[Subscription], dump: Dump) -> None:  # noqa: B027
        """Take over the subscriptions of this origin, and what `dump` gave."""

    @abstractmethod
    def check(self) -> None:
        """Raise `InvariantError` unless everything is consistent."""


class BoxHeard(Heard):
    """Subscriptions as boxes. `trees` are the Boolean filters among them; their boxes are there like all others."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.boxes = BoxList(space.dims)
        self.trees: dict[Name, Filter] = {}
        self._extents: Extents | None = None

    def apply(self, request: Request) -> None:
        match request:
            case Subscribe():
                if request.name in self.boxes:
                    self._forget(request.name)
                self._remember(request.name, request.boxes, request.tree)
            case Unsubscribe():
                if request.name not in self.boxes:
                    raise InvariantError(f"{request.name} is taken back, but was never asked for. {OTHER_COPY}")
                self._forget(request.name)
            case RangeChange():
                raise InvariantError("the neighbour speaks in ranges, this broker listens for boxes")

    def _remember(self, name: Name, boxes: Boxes, tree: Filter | None) -> None:
        self.boxes.add(name, boxes)
        if tree is not None:
            self.trees[name] = tree
        if self._extents is not None:
            self._extents.add(boxes, tree)

    def _forget(self, name: Name) -> None:
        if self._extents is not None:
            self._extents.remove_keys(self.boxes.keys(name), self.trees.get(name))
        self.boxes.remove(name)
        self.trees.pop(name, None)

    def wants(self, points: Keys) -> Mask:
        return self.boxes.holds_any(points)

    def __len__(self) -> int:
        return len(self.boxes)

    def names(self) -> set[Name]:
        return set(self.boxes)

    def asked(self) -> object:
        return {name: (self.boxes.boxes(name), self.trees.get(name)) for name in self.boxes}

    def tree(self, name: Name) -> Filter:
        """Return a subscription as a filter."""
        tree = self.trees.get(name)
        return of_boxes(self.boxes.boxes(name), self.space) if tree is None else tree

    @property
    def extent(self) -> Extent:
        """The size of the filters heard; counted when it is first asked for."""
        if self._extents is None:
            self._extents = Extents.of_list(self.space, self.boxes, self.trees)
        return self._extents.extent

    def pruned(self, pruning: Pruning | None) -> Heard:
        return self if pruning is None else PrunedHeard(self, pruning)

    def sizes(self) -> dict[str, Any]:
        associations, taken = self.extent
        return {
            "heard": len(self),
            "prunings": None,
            "associations": associations,
            "unpruned_associations": associations,
            "filter_bytes": taken,
            "unpruned_filter_bytes": taken,
        }

    def restore(self, rows: Iterable[Subscription], dump: Dump) -> None:
        kept = list(rows)
        dims = self.space.dims
        self.boxes = BoxList(dims, ((row.name, stack(row.boxes, dims)) for row in kept))
        self.trees = {row.name: row.tree for row in kept if row.tree is not None}
        self._extents = None

    def check(self) -> None:
        self.boxes.check()
        if not self.trees.keys() <= set(self.boxes):
            raise InvariantError("a tree is kept of what was not heard")
        if self._extents is not None:
            self._extents.check(Extents.of_list(self.space, self.boxes, self.trees))


class PrunedHeard(Heard):
    """The requests of a neighbour, pruned by the selectivities that publications teach."""

    def __init__(self, inner: BoxHeard, pruning: Pruning) -> None:
        self._inner, self._pruning = inner, pruning
        self._seen = Selectivities(inner.space)
        self._made: Pruned | None = None

    @property
    def unpruned(self) -> Heard:
        return self._inner

    def pruned(self, pruning: Pruning | None) -> Heard:
        """Prune in another way. What was learned is kept where pruning goes on, and dropped where it ends."""
        if pruning is None:
            return self._inner
        again = PrunedHeard(self._inner, pruning)
        again._seen = self._seen
        return again

    @property
    def table(self) -> Pruned:
        """The pruned filters; made when they are first needed."""
        if self._made is None:
            entries = ((name, self._inner.tree(name)) for name in self._inner.boxes)
            heard = self._inner.boxes.boxes
            self._made = Pruned(self._inner.space, self._pruning, self._seen, heard, entries)
        return self._made

    def apply(self, request: Request) -> None:
        known = request.name in self._inner.boxes
        if self._made is not None and known:
            self._made.remove(request.name)
        self._inner.apply(request)
        if self._made is not None and isinstance(request, Subscribe):
            self._made.add(request.name, self._inner.tree(request.name))

    def wants(self, points: Keys) -> Mask:
        wanted = np.empty(len(points), np.bool_)
        begin = 0
        while begin < len(points):  # in steps, so that it does not matter how publications are cut into runs
            end = min(len(points), begin + self._seen.room)
            wanted[begin:end] = self.table.table.holds_any(points[begin:end])
            if self._seen.see(points[begin:end]):
                self._made = None
            begin = end
        return wanted

    def falsely(self, points: Keys, wanted: Mask) -> Mask:
        false = np.zeros(len(points), np.bool_)
        if wanted.any():
            false[wanted] = ~self._inner.wants(points[wanted])
        return false

    def __len__(self) -> int:
        return len(self._inner)

    def names(self) -> set[Name]:
        return self._inner.names()

    def asked(self) -> object:
        return self._inner.asked()

    @property
    def learned(self) -> Learned | None:  # type: ignore[override]
        return self._seen.counts, self._seen.taken

    def learn(self, learned: Learned | None) -> None:
        fresh = Selectivities(self._inner.space)
        if learned is not None:
            fresh.restore(*learned)
        if (fresh.taken != self._seen.taken).any():
            self._made, self._seen = None, fresh
        else:
            self._seen.counts = fresh.counts

    def sizes(self) -> dict[str, Any]:
        associations, taken = self.table.extent
        pruned = {"prunings": self.table.prunings, "associations": associations, "filter_bytes": taken}
        return self._inner.sizes() | pruned

    def restore(self, rows: Iterable[Subscription], dump: Dump) -> None:
        self._inner.restore(rows, dump)
        self._made = None

    def check(self) -> None:
        self._inner.check()
        if self._made is not None:
            self._made.check()


class RangeHeard(Heard):
    """The requests of a neighbour as a set of ranges. Ranges are not filters, so they cannot be pruned."""

    can_be_pruned = False

    def __init__(self, grid: Grid) -> None:
        self.grid, self.table = grid, RangeTable()

    def apply(self, request: Request) -> None:
        """Take a change of ranges. Those added must be new, those removed must be there."""
        if not isinstance(request, RangeChange):
            raise InvariantError("the neighbour speaks in boxes, this broker listens for ranges")
        added, removed = ranges_of(request.added), ranges_of(request.removed)
        if cell_count(self.table.add(added)) != cell_count(added):
            raise InvariantError(f"ranges are asked for twice, because of {request.name}. {OTHER_COPY}")
        self.table.remove(removed)

    def wants(self, points: Keys) -> Mask:
        return self.table.holds(self.grid.keys(points))

    def __len__(self) -> int:
        return len(self.table) // 2

    def names(self) -> set[Name]:
        return set()

    def ranges(self) -> NDArray[np.int64]:
        return self.table.union()

    def asked(self) -> object:
        return self.table.union().tolist()

    def sizes(self) -> dict[str, Any]:
        none = ("prunings", "associations", "unpruned_associations", "filter_bytes", "unpruned_filter_bytes")
        return {"heard": len(self), **dict.fromkeys(none)}

    def dump(self) -> Dump:
        return Dump(self.table.rows().reshape(-1))

    def restore(self, rows: Iterable[Subscription], dump: Dump) -> None:
        self.table = RangeTable(dump.numbers.reshape(-1, 2).copy())
        self.table.check()

    def check(self) -> None:
        self.table.check()
        if (self.table.rows()[:, 1] > 1).any():
            raise InvariantError("a neighbour asked for a range twice")


def ranges_of(pairs: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the ranges of a message as an array."""
    return np.array(pairs, np.int64).reshape(-1, 2)
