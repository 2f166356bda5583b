"""`negative`: keep the uncovered space as disjoint boxes (see `state.geometry.negative` for the theory and its paper).

A subscription that meets a negative rectangle is forwarded, and the common part is the witness. One that meets none is
covered; who covers it the negative space cannot say, so the certificate is found on demand (`state.geometry.cover`).
Where that exceeds the budget, the subscription is forwarded for the reason "budget": nothing is withheld without a
proof.

The rectangles are joined (see `state.geometry.negative`) whenever they have doubled since the last time (`join =
"doubling"`), so that joining costs little in all.

In d attributes the rectangles grow with the d-th power of the active subscriptions: twelve of them in twelve attributes
are more than fit into memory. So there may be `most`. The change that would leave more of them stops there; they are
dropped, and `union` decides on this link for good, as exactly, and with the reason "budget" where it cannot:

    kept ──── a change leaves more than `most`, or takes more than LOOKS ────▶ dropped

A decision has LOOKS too; beyond them the subscription is forwarded for the reason "budget". Joining that takes more is
given up, and tried again when the rectangles have doubled.

This follows from the active subscriptions and their order alone, and is stored, so a replay drops them at the same
message.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from state.errors import InvariantError, StateError
from state.geometry.boxes import Box, Boxes, subtract_each
from state.geometry.negative import NegativeRtree, NegativeSpace, NegativeTree
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.space import Keys, Space
from state.strategies.base import BUDGET, Dump, Strategy, Verdict, certified, keys_of, largest_first
from state.strategies.union import Union

FEWEST = 64
"""So few rectangles are not worth joining."""
MOST = {"tree": 1 << 16, "rtree": 1 << 12}
"""Rectangles that are kept by default. Measured, 4 to 12 attributes: a change at this number takes 6 ms in the tree,
joining 8 ms; an insertion into the R-tree takes a thousand times as long as a leaf of the tree."""
LOOKS = 1 << 20
"""Looks at a rectangle, or at a piece of a cancelled subscription, for one event: 5 to 20 ms in the tree."""
PER_BOX, PER_JOINED = 1 << 12, 1 << 6
"""Looks that take as long as the fixed part of the work for one box of a change, and for one that is joined."""
DROPPED = -1
"""Stored in the place of the rectangles; where they are kept, the last number is at least 1."""
SPACES: dict[str, type[NegativeTree] | type[NegativeRtree]] = {"tree": NegativeTree, "rtree": NegativeRtree}


class Negative(Strategy):
    """Withholds exactly what meets no negative rectangle, as long as there are at most `most`.

    A change that `exceeded` this was not completed, and the rectangles mean nothing any more.
    """

    name = "negative"

    def __init__(
        self,
        space: Space,
        active: BoxList,
        index: Literal["tree", "rtree"] = "tree",
        order: Literal["overlap", "fixed"] = "overlap",
        join: Literal["never", "doubling"] = "doubling",
        most: int | None = None,
    ) -> None:
        super().__init__(space, active)
        self._most, self.exceeded = MOST[index] if most is None else most, False
        self._kind, self._by_overlap = SPACES[index], order == "overlap"
        self._joins, self._joined = join == "doubling", 1
        self.negative: NegativeSpace = self._kind(self.domain.keys(), by_overlap=self._by_overlap)

    @property
    def negative_rectangles(self) -> int:
        return self.negative.count

    def decide(self, boxes: Boxes) -> Verdict:
        return self.decide_within(boxes, BUDGET)

    def decide_within(self, boxes: Boxes, budget: int) -> Verdict:
        looks = LOOKS
        for box in boxes:
            gap, looks = self.negative.gap_within(box.keys(), looks)
            if gap is not None:
                return Verdict(False, Reason.GAP, witness=Box.of(gap), nodes=1)
            if looks < 0:
                return Verdict(False, Reason.BUDGET, nodes=1)
        return certified(self.active, boxes, budget)

    def added(self, name: Name, boxes: Boxes) -> None:
        looks = LOOKS
        for keys in keys_of(boxes):
            if not self.exceeded:
                looks = self.negative.cover(keys, self._most, looks)
                self._look(looks)
        self._join()

    def removed(self, name: Name, boxes: Boxes) -> None:
        looks = LOOKS
        for keys in keys_of(boxes):
            if not self.exceeded:
                others = self.active.table[self.active.meeting(keys)]
                looks -= PER_BOX + len(others)
                pieces, looks = subtract_each(keys, others, self._by_overlap, self._most, looks)
                if looks >= 0:
                    looks = self.negative.uncover(pieces, self._most, looks)
                self._look(looks)
        self._join()

    def _look(self, looks: int) -> None:
        self.exceeded |= looks < 0 or self.negative.count > self._most

    def _join(self) -> None:
        due = self._joins and self.negative.count > 2 * max(self._joined, FEWEST)
        if due and not self.exceeded:
            if self.active.box_count * PER_JOINED <= LOOKS:
                self.negative.join(largest_first(self.space, self.active.all_keys()), LOOKS)
            self._joined = self.negative.count

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
        for rectangle in self.active.without(self.domain.keys(), by_overlap=self._by_overlap):
            if len(self._covered_part(rectangle)):
                raise InvariantError(f"a part of {rectangle.tolist()} is covered by nothing, but is not negative")

    def _covered_part(self, box: Keys) -> Keys:
        """Return the rest of a box after the negative rectangles are subtracted from it."""
        names = [Name("", "", str(k)) for k in range(self.negative.count)]
        rectangles = BoxList(box.shape[1], zip(names, self.negative.rectangles()[:, None], strict=True))
        return rectangles.without(box, by_overlap=True)


class NegativeOrUnion(Strategy):
    """Negative rectangles until they exceed their limit; then `union`, for good."""

    name = "negative"

    def __init__(self, space: Space, active: BoxList, **parameters: Any) -> None:
        super().__init__(space, active)
        self._parameters, self._union = parameters, Union(space, active)
        self._kept: Negative | None = self._anew()

    def _anew(self) -> Negative:
        return Negative(self.space, self.active, **self._parameters)

    @property
    def negative_rectangles(self) -> int | None:
        return None if self._kept is None else self._kept.negative_rectangles

    def decide(self, boxes: Boxes) -> Verdict:
        return (self._kept or self._union).decide(boxes)

    def decide_within(self, boxes: Boxes, budget: int) -> Verdict:
        return (self._kept or self._union).decide_within(boxes, budget)

    def added(self, name: Name, boxes: Boxes) -> None:
        if self._kept is not None:
            self._kept.added(name, boxes)
            self._drop_if_exceeded(self._kept)

    def removed(self, name: Name, boxes: Boxes) -> None:
        if self._kept is not None:
            self._kept.removed(name, boxes)
            self._drop_if_exceeded(self._kept)

    def _drop_if_exceeded(self, kept: Negative) -> None:
        if kept.exceeded:
            self._kept = None

    def dump(self) -> Dump:
        return Dump(np.array([DROPPED], np.int64)) if self._kept is None else self._kept.dump()

    def restore(self, dump: Dump) -> None:
        if dump.numbers.tolist() == [DROPPED]:
            self._kept = None
        else:
            self._kept = self._anew()
            self._kept.restore(dump)

    def check(self) -> None:
        if self._kept is not None:
            self._kept.check()
