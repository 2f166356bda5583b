"""`negative`: keep the uncovered space as disjoint boxes (see `state.geometry.negative` for the theory and its paper).

A subscription that meets a negative rectangle is forwarded, and the common part is the witness. One that meets none is
covered; who covers it the negative space cannot say, so the certificate is found on demand (`state.geometry.cover`).
Where that exceeds the budget, the subscription is forwarded for the reason "budget": nothing is withheld without a
proof.

The rectangles are joined (see `state.geometry.negative`) whenever they have doubled since the last time (`join =
"doubling"`), so that joining costs little in all.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from state.errors import InvariantError, StateError
from state.geometry.boxes import Box, Boxes
from state.geometry.negative import NegativeRtree, NegativeSpace, NegativeTree
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.space import Keys, Space
from state.strategies.base import BUDGET, Dump, Strategy, Verdict, certified, keys_of, largest_first

FEWEST = 64
"""So few rectangles are not worth joining."""
SPACES: dict[str, type[NegativeTree] | type[NegativeRtree]] = {"tree": NegativeTree, "rtree": NegativeRtree}


class Negative(Strategy):
    """Withholds exactly what meets no negative rectangle."""

    name = "negative"

    def __init__(
        self,
        space: Space,
        active: BoxList,
        index: Literal["tree", "rtree"] = "tree",
        order: Literal["overlap", "fixed"] = "overlap",
        join: Literal["never", "doubling"] = "doubling",
    ) -> None:
        super().__init__(space, active)
        self._kind, self._by_overlap = SPACES[index], order == "overlap"
        self._joins, self._joined = join == "doubling", 1
        self.negative: NegativeSpace = self._kind(self.domain.keys(), by_overlap=self._by_overlap)

    @property
    def negative_rectangles(self) -> int:
        return self.negative.count

    def decide(self, boxes: Boxes) -> Verdict:
        return self.decide_within(boxes, BUDGET)

    def decide_within(self, boxes: Boxes, budget: int) -> Verdict:
        for box in boxes:
            gap = self.negative.gap(box.keys())
            if gap is not None:
                return Verdict(False, "gap", witness=Box.of(gap), nodes=1)
        return certified(self.active, boxes, budget)

    def added(self, name: Name, boxes: Boxes) -> None:
        for keys in keys_of(boxes):
            self.negative.cover(keys)
        self._join()

    def removed(self, name: Name, boxes: Boxes) -> None:
        for keys in keys_of(boxes):
            self.negative.uncover(self._uncovered(keys))
        self._join()

    def _join(self) -> None:
        if self._joins and self.negative.count > 2 * max(self._joined, FEWEST):
            self.negative.join(largest_first(self.space, self.active.all_keys()))
            self._joined = self.negative.count

    def _uncovered(self, keys: Keys) -> Keys:
        return self.active.without(keys, by_overlap=self._by_overlap)

    def dump(self) -> Dump:
        numbers, small = self.negative.dump()
        return Dump(np.append(numbers, self._joined), small)

    def restore(self, dump: Dump) -> None:
        if not len(dump.numbers):
            raise StateError("the stored negative rectangles are damaged: nothing is there")
        numbers, self._joined = dump.numbers[:-1], int(dump.numbers[-1])
        self.negative = self._kind.restored(self.domain.keys(), numbers, dump.small, by_overlap=self._by_overlap)

    def check(self) -> None:
        """Rule (N): disjoint, and exactly what the active ones leave uncovered."""
        self.negative.check()
        for keys in self.active.all_keys():
            gap = self.negative.gap(keys)
            if gap is not None:
                raise InvariantError(f"negative rectangles reach into an active subscription: {gap.tolist()}")
        for rectangle in self._uncovered(self.domain.keys()):
            if len(self._covered_part(rectangle)):
                raise InvariantError(f"a part of {rectangle.tolist()} is covered by nothing, but is not negative")

    def _covered_part(self, box: Keys) -> Keys:
        """What is left of a box after the negative rectangles are subtracted from it."""
        names = [Name("", "", str(k)) for k in range(self.negative.count)]
        rectangles = BoxList(box.shape[1], zip(names, self.negative.rectangles()[:, None], strict=True))
        return rectangles.without(box, by_overlap=True)
