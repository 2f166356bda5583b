"""`negative`: keep the uncovered space as disjoint boxes (see `state.negative` for the theory and its paper).

A subscription that meets a negative rectangle is forwarded, and the common part is the witness. One that meets none is
covered; who covers it the negative space cannot say, so the certificate is found on demand (`state.cover`). If that
would take more than a set number of nodes, all active subscriptions that meet it are named: a longer proof, but a
proof.
"""

from __future__ import annotations

from typing import Literal

from state.boxes import Box, Boxes
from state.boxlist import BoxList
from state.errors import InvariantError
from state.messages import Name
from state.negative import NegativeRtree, NegativeSpace, NegativeTree
from state.space import Keys, Space
from state.strategies.base import Dump, Strategy, Verdict, keys_of, merged, said
from state.strategies.union import BUDGET

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
    ) -> None:
        super().__init__(space, active)
        self._kind, self._by_overlap = SPACES[index], order == "overlap"
        self.negative: NegativeSpace = self._kind(self.domain.keys(), by_overlap=self._by_overlap)

    @property
    def negative_rectangles(self) -> int:
        return self.negative.count

    def decide(self, boxes: Boxes) -> Verdict:
        for box in boxes:
            gap = self.negative.gap(box.keys())
            if gap is not None:
                return Verdict(False, "gap", witness=Box.of(gap), nodes=1)
        return self._certified(boxes)

    def _certified(self, boxes: Boxes) -> Verdict:
        parts: list[tuple[Name, ...]] = []
        work = 0
        for box in boxes:
            names, nodes = self.active.certificate(box.keys(), BUDGET)
            parts.append(names)
            work += nodes
        coverers = merged(parts)
        return Verdict(True, said(coverers), coverers, nodes=work)

    def added(self, name: Name, boxes: Boxes) -> None:
        for keys in keys_of(boxes):
            self.negative.cover(keys)

    def removed(self, name: Name, boxes: Boxes) -> None:
        for keys in keys_of(boxes):
            self.negative.uncover(self._uncovered(keys))

    def _uncovered(self, keys: Keys) -> Keys:
        return self.active.without(keys, by_overlap=self._by_overlap)

    def dump(self) -> Dump:
        return Dump(*self.negative.dump())

    def restore(self, dump: Dump) -> None:
        self.negative = self._kind.restored(self.domain.keys(), dump.numbers, dump.small, by_overlap=self._by_overlap)

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
