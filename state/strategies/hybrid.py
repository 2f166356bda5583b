"""`hybrid`: a Hilbert index in front of an exact strategy (subscription indexing, section 5 of the MICS paper).

The trouble with exact strategies is the number of active subscriptions they look at. Most share no point with the one
in question; in many attributes, almost all. So the active ones are indexed by the ranges of their cells in a few
attributes, the most selective ones, and only those whose ranges meet the question's are handed to the inner strategy:

    question ──▶ its ranges ──index──▶ whose ranges meet them ──▶ inner strategy on these alone ──▶ its verdict

Two boxes that share a point share a cell, so nothing that could help to cover is ever left out, and the answer is the
inner strategy's answer: exact where it is exact. Cells here only decide who is looked at, so boxes travel, and `hybrid`
may be chosen link by link. `nodes` counts what the inner strategy did, and for each candidate what it takes to build
that strategy on it.

The inner strategy is built for one question and then forgotten, so it makes again what it would keep between questions:
`negative` cuts up the space for each, `auto` only where `union` finds the question hard.

Only as many ranges are indexed as pay (`MOST`): an index that finds a few too many is still right. Where it finds more
candidates than `MANY`, it has not helped, and building the inner strategy on all of them would take too long for one
event: then `union` decides on the whole list, within its budget.

A place in the index is reused once its subscription is gone; the order of arrival is kept beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from state.curves.cells import Grid
from state.curves.hilbert import Cells, Ranges
from state.curves.rangeindex import RangeIndex
from state.errors import InvariantError
from state.geometry.boxes import Boxes, hull, stack
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.space import Space
from state.strategies.base import Strategy, Verdict
from state.strategies.union import Union

MOST, MOST_ASKED = 8, 32
"""Ranges indexed for one subscription, by whose number the index grows; and ranges of a question."""
MOST_CELLS = 64
"""Boxes that become ranges one by one. More of them become the ranges of the box around them all."""
MANY = 512
"""Candidates for which an inner strategy is built: up to 5 ms, as much as `union` takes for some 200,000 of them."""
LISTED, KEPT = 2, 20
"""What it takes, in nodes, to list one candidate for an inner strategy; and if it keeps something of its own, too."""
Build = Callable[[Space, BoxList], Strategy]


class Hybrid(Strategy):
    """The inner strategy, on those active subscriptions alone that an index finds."""

    name = "hybrid"

    def __init__(
        self,
        space: Space,
        active: BoxList,
        inner: Build = Union,
        bits: int | None = None,
        dims: str | Sequence[str] | None = None,
    ) -> None:
        super().__init__(space, active)
        self._inner, self._grid = inner, Grid(space, bits, "equal", dims)
        self._fill()

    def _fill(self) -> None:
        """Index the whole active list, in order; all boxes become cells at once."""
        self._index = RangeIndex()
        self._entries: list[tuple[int, Name] | None] = []
        self._free: list[int] = []
        self._arrived = 0
        self._places: dict[Name, int] = {}
        keys = [self.active.keys(name) for name in self.active]
        if keys:
            cells = np.split(self._grid.cell_boxes(np.concatenate(keys)), np.cumsum([len(k) for k in keys])[:-1])
            for name, boxes in zip(self.active, cells, strict=True):
                self._enter(name, boxes)

    def decide(self, boxes: Boxes) -> Verdict:
        return self._ask(boxes, lambda strategy: strategy.decide(boxes))

    def decide_within(self, boxes: Boxes, budget: int) -> Verdict:
        return self._ask(boxes, lambda strategy: strategy.decide_within(boxes, budget))

    def _ask(self, boxes: Boxes, ask: Callable[[Strategy], Verdict]) -> Verdict:
        places = self._meeting(boxes)
        if len(places) > MANY:
            return ask(Union(self.space, self.active))
        names = self._in_order(places)
        found = self.active.part(names)
        inner = self._inner(self.space, found)
        keeps = type(inner).added is not Strategy.added
        for name in names if keeps else ():
            inner.added(name, found.boxes(name))
        verdict = ask(inner)
        return replace(verdict, nodes=verdict.nodes + len(names) * (KEPT if keeps else LISTED))

    def candidates(self, boxes: Boxes) -> list[Name]:
        """Return the active subscriptions that may share a point with these boxes, in order of arrival."""
        return self._in_order(self._meeting(boxes))

    def _meeting(self, boxes: Boxes) -> list[int]:
        return self._index.meeting(self._ranges(self._cells(boxes), MOST_ASKED))

    def _cells(self, boxes: Boxes) -> Cells:
        return self._grid.cell_boxes(stack(boxes, self.space.dims))

    def _ranges(self, cells: Cells, most: int) -> Ranges:
        """Return at most so many ranges that hold all of these boxes of cells."""
        if len(cells) > MOST_CELLS:
            cells = hull(cells)[None]
        return self._grid.curve.outer_ranges(cells, most)[0]

    def _in_order(self, places: list[int]) -> list[Name]:
        entries = sorted(entry for place in places if (entry := self._entries[place]) is not None)
        return [name for _, name in entries]

    def added(self, name: Name, boxes: Boxes) -> None:
        self._enter(name, self._cells(boxes))

    def _enter(self, name: Name, cells: Cells) -> None:
        place = self._free.pop() if self._free else len(self._entries)
        if place == len(self._entries):
            self._entries.append(None)
        self._entries[place] = (self._arrived, name)
        self._places[name] = place
        self._arrived += 1
        self._index.add(self._ranges(cells, MOST), place)

    def removed(self, name: Name, boxes: Boxes) -> None:
        place = self._places.pop(name)
        self._entries[place] = None
        self._free.append(place)
        self._index.remove(self._ranges(self._cells(boxes), MOST), place)

    def check(self) -> None:
        self._index.check()
        held = [self._entries[place] for place in self._places.values()]
        arrivals = [entry[0] for entry in held if entry is not None]
        if list(self._places) != list(self.active) or arrivals != sorted(arrivals) or len(arrivals) != len(held):
            raise InvariantError("the index does not hold exactly the active subscriptions, in order")
