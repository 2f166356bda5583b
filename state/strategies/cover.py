"""`cover`: pairwise covering, as in Siena. Withhold what a single active subscription contains.

Each box of a subscription must lie wholly in one box of one active subscription. Finds no unions: two halves that
together cover a subscription do not count. Who contains a box is found by one of two indexes, which answer alike, with
the earliest:

    rows   the index that the active list has anyway (`boxindex`): nothing more to keep
    tree   a k-d tree on the boxes as points (`dominance`): O(log n) where little contains it

`auto` takes the first. The tree is faster at 100,000 boxes, by 5 to 10 us of a decision; it takes a tenth of a second
to build, which is too long for one event, and as much memory again.

A NO names the first box that no single active one contains; the union of several may still cover it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.geometry.boxes import Boxes
from state.geometry.dominance import Dominance
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.space import Keys, Space
from state.strategies.base import Verdict, merged, said
from state.strategies.slotted import Slotted


class Cover(Slotted):
    """Withholds what is contained box by box in single active subscriptions."""

    name = "cover"

    def __init__(self, space: Space, active: BoxList, index: Literal["auto", "tree", "rows"] = "auto") -> None:
        super().__init__(space, active)
        self._tree = Dominance(space.dims) if index == "tree" else None

    def decide(self, boxes: Boxes) -> Verdict:
        found: list[tuple[Name, ...]] = []
        for box in boxes:
            container = self._container(box.keys())
            if container is None:
                return Verdict(False, Reason.NO_SINGLE_COVER, witness=box, nodes=len(found) + 1)
            found.append((container,))
        coverers = merged(found)
        return Verdict(True, said(coverers), coverers, nodes=len(boxes))

    def _container(self, keys: Keys) -> Name | None:
        if self._tree is None:
            return self.active.container(keys)
        slot, _ = self._tree.first(keys)
        return None if slot is None else self.active.owner(slot)

    def _fill(self, slots: NDArray[np.int64], boxes: Keys) -> None:
        if self._tree is not None:
            self._tree = Dominance(self.space.dims, slots, boxes)

    def _add(self, slots: NDArray[np.int64], boxes: Keys) -> None:
        if self._tree is not None:
            for slot, box in zip(slots.tolist(), boxes, strict=True):
                self._tree.add(slot, box)

    def _remove(self, slots: NDArray[np.int64]) -> None:
        if self._tree is not None:
            for slot in slots.tolist():
                self._tree.remove(slot)

    def _follow(self, moved: NDArray[np.int64]) -> None:
        if self._tree is not None:
            self._tree.follow(moved)

    def check(self) -> None:
        if self._tree is None:
            return
        self._tree.check()
        if self._tree.held()[0].tolist() != [slot for name in self.active for slot in self.active.slots(name)]:
            raise InvariantError("the dominance tree of cover does not hold the active list")
