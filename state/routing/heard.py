"""heard[M]: what a neighbour M asked of a broker, and so which publications go to M.

    BoxHeard      subscriptions as boxes: a publication goes to M if any holds it
    PrunedHeard   the same, generalised: fewer predicates, more publications (`matching.pruned`)
    RangeHeard    ranges of a curve, under `mics`: one look-up

All three take what the broker keeps of requests (`apply`) and say which points are wanted (`wants`, rule P). The first
two refer to the broker's rows, and each has the index that it answers by. So pruning can be put on, changed and taken
off at any time: the rows stay, and the index is made from them. A pruned link packs its rows, which it seldom reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
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
from state.geometry.boxes import gathered
from state.matching.boxlist import BoxList
from state.matching.extents import Extent, Extents
from state.matching.pruned import Pruned
from state.protocol.messages import Name, RangeChange, Unsubscribe
from state.protocol.wire import unpack_ranges
from state.routing.subscriptions import Subscription
from state.space import Keys, Space
from state.strategies.base import Dump

Mask = NDArray[np.bool_]
Learned = tuple[Counts, Counts]
"""Publications seen by attribute and bin, and those that the estimates stand on: see `selectivity`."""
Kept = Subscription | Unsubscribe | RangeChange
"""What a broker keeps of a request: the row that it became, or the request itself."""
OTHER_COPY = "Remedy: the state of one of the two is not the other's: restore both from one checkpoint"


class Heard(ABC):
    """The requests of a neighbour, and the publications that it therefore gets."""

    can_be_pruned = True
    learned: Learned | None = None
    """Counts learned from publications, which must be stored; None where nothing is learned."""

    @abstractmethod
    def apply(self, kept: Kept) -> None:
        """Take a request of the neighbour, as the broker keeps it."""

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


class SubscriptionsHeard(Heard):
    """Subscriptions: the broker's rows of this origin, in order of arrival."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.rows: dict[Name, Subscription] = {}

    def apply(self, kept: Kept) -> None:
        match kept:
            case Subscription():
                if kept.name in self.rows:
                    self._forget(kept.name)
                self.rows[kept.name] = kept
                self._add(kept)
            case Unsubscribe():
                if kept.name not in self.rows:
                    raise InvariantError(f"{kept.name} is taken back, but was never asked for. {OTHER_COPY}")
                self._forget(kept.name)
            case RangeChange():
                raise InvariantError("the neighbour speaks in ranges, this broker listens for boxes")

    def _forget(self, name: Name) -> None:
        self._remove(self.rows[name])
        del self.rows[name]

    @abstractmethod
    def _add(self, row: Subscription) -> None:
        """Take note of a new row, the last."""

    @abstractmethod
    def _remove(self, row: Subscription) -> None:
        """Take note of a row that goes next."""

    def __len__(self) -> int:
        return len(self.rows)

    def names(self) -> set[Name]:
        return set(self.rows)

    def asked(self) -> object:
        return {name: (row.boxes, row.tree) for name, row in self.rows.items()}

    def tree(self, name: Name) -> Filter:
        """Return a subscription as a filter."""
        row = self.rows[name]
        tree = row.tree
        return of_boxes(row.boxes, self.space) if tree is None else tree


class BoxHeard(SubscriptionsHeard):
    """Subscriptions as boxes, Boolean filters like all others."""

    def __init__(self, space: Space, rows: Iterable[Subscription] = ()) -> None:
        super().__init__(space)
        self._extents: Extents | None = None
        self.restore(rows, Dump())

    def _add(self, row: Subscription) -> None:
        self.boxes.add_keys(row.name, row.shape.keys)
        if self._extents is not None:
            self._extents.add(row.boxes, row.tree)

    def _remove(self, row: Subscription) -> None:
        if self._extents is not None:
            self._extents.remove_keys(self.boxes.keys(row.name), row.tree)
        self.boxes.remove(row.name)

    def wants(self, points: Keys) -> Mask:
        return self.boxes.holds_any(points)

    @property
    def extent(self) -> Extent:
        """The size of the filters heard; counted when it is first asked for."""
        if self._extents is None:
            self._extents = self._count()
        return self._extents.extent

    def _count(self) -> Extents:
        trees = {name: tree for name, row in self.rows.items() if (tree := row.tree) is not None}
        return Extents.of_list(self.space, self.boxes, trees)

    def pruned(self, pruning: Pruning | None) -> Heard:
        return self if pruning is None else PrunedHeard(self.space, pruning, self.rows.values())

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
        self.rows, dims = {row.name: row for row in rows}, self.space.dims
        self.boxes = BoxList.of(dims, list(self.rows), *gathered([row.shape for row in self.rows.values()], dims))
        self._extents = None

    def check(self) -> None:
        self.boxes.check()
        if list(self.boxes) != list(self.rows):
            raise InvariantError("the boxes heard are not those of the rows")
        if any(self.boxes.boxes(name) != row.boxes for name, row in self.rows.items()):
            raise InvariantError("the boxes heard are not those of the rows")
        if self._extents is not None:
            self._extents.check(self._count())


class PrunedHeard(SubscriptionsHeard):
    """Subscriptions pruned by the selectivities that publications teach. Their rows are packed."""

    def __init__(self, space: Space, pruning: Pruning, rows: Iterable[Subscription] = ()) -> None:
        super().__init__(space)
        self._pruning = pruning
        self._seen = Selectivities(space)
        self._made: Pruned | None = None
        self.restore(rows, Dump())

    def pruned(self, pruning: Pruning | None) -> Heard:
        """Prune in another way. What was learned is kept where pruning goes on, and dropped where it ends."""
        if pruning is None:
            return BoxHeard(self.space, self.rows.values())
        again = PrunedHeard(self.space, pruning, self.rows.values())
        again._seen = self._seen
        return again

    @property
    def table(self) -> Pruned:
        """The pruned filters; made when they are first needed."""
        if self._made is None:
            self._made = Pruned(self.space, self._pruning, self._seen, self.tree, self.rows)
        return self._made

    def _add(self, row: Subscription) -> None:
        if self._made is not None:
            self._made.add(row.name)
        row.pack()

    def _remove(self, row: Subscription) -> None:
        if self._made is not None:
            self._made.remove(row.name)

    def wants(self, points: Keys) -> Mask:
        wanted = np.empty(len(points), np.bool_)
        begin = 0
        while begin < len(points):  # in steps, so that it does not matter how publications are cut into runs
            end = min(len(points), begin + self._seen.room)
            wanted[begin:end] = self.table.holds_any(points[begin:end])
            if self._seen.see(points[begin:end]):
                self._made = None
            begin = end
        return wanted

    def falsely(self, points: Keys, wanted: Mask) -> Mask:
        false = np.zeros(len(points), np.bool_)
        if wanted.any():
            false[wanted] = ~self.table.holds_any_original(points[wanted])
        return false

    @property
    def learned(self) -> Learned | None:  # type: ignore[override]
        return self._seen.counts, self._seen.taken

    def learn(self, learned: Learned | None) -> None:
        fresh = Selectivities(self.space)
        if learned is not None:
            fresh.restore(*learned)
        if (fresh.taken != self._seen.taken).any():
            self._made, self._seen = None, fresh
        else:
            self._seen.counts = fresh.counts

    def sizes(self) -> dict[str, Any]:
        table = self.table
        return {
            "heard": len(self),
            "prunings": table.prunings,
            "associations": table.extent.associations,
            "unpruned_associations": table.unpruned.associations,
            "filter_bytes": table.extent.bytes,
            "unpruned_filter_bytes": table.unpruned.bytes,
        }

    def restore(self, rows: Iterable[Subscription], dump: Dump) -> None:
        self.rows = {row.name: row for row in rows}
        for row in self.rows.values():
            row.pack()
        self._made = None

    def check(self) -> None:
        if self._made is not None:
            self._made.check()


class RangeHeard(Heard):
    """The requests of a neighbour as a set of ranges. Ranges are not filters, so they cannot be pruned."""

    can_be_pruned = False

    def __init__(self, grid: Grid) -> None:
        self.grid, self.table = grid, RangeTable()

    def apply(self, kept: Kept) -> None:
        """Take a change of ranges. Those added must be new, those removed must be there."""
        if not isinstance(kept, RangeChange):
            raise InvariantError("the neighbour speaks in boxes, this broker listens for ranges")
        added, removed = unpack_ranges(kept.added), unpack_ranges(kept.removed)
        if cell_count(self.table.add(added)) != cell_count(added):
            raise InvariantError(f"ranges are asked for twice, because of {kept.name}. {OTHER_COPY}")
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
