"""`auto`, the default: exact always, by whichever of the two exact methods pays.

Both methods answer alike; they differ in what they cost. `union` keeps nothing and pays at each question, little when
few active subscriptions decide it and much when very many thin ones do. Negative rectangles find a gap by walking a
tree, however many active subscriptions there are, but each new active one cuts them up further, and in d attributes
their number grows with the d-th power.

Measured: on the Zipfian workload a decision by `union` costs about as much as one by negative rectangles, because a
YES needs its certificate anyway. Rectangles pay only for a NO with thousands of candidates: 10 us, where `union` takes
15 ns for each candidate that it looks at. So they are kept only where such questions are met, and only as many as can
be made or joined in one event:

    easy ──── a question takes union more than HARD candidates, ────▶ kept ──── more than MOST_RECTANGLES ────▶ dropped
              in at most MOST_DIMS attributes                             or active boxes than MOST_BOXES

* easy: `union` decides, and the first hard question makes the link keep rectangles (`observe`);
* kept: the rectangles find the gap, and where there is none `union` makes the certificate. (Letting `union` look at
  HARD candidates first takes six times as long: `lacuna bench negative-space`, `auto_kept`);
* dropped: `union` decides, for good.

The state changes with the history of questions alone, so a replay makes the same changes at the same messages.
"""

from __future__ import annotations

import numpy as np

from state.errors import StateError
from state.geometry.boxes import Boxes
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.space import Space
from state.strategies.base import BUDGET, Dump, Strategy, Verdict
from state.strategies.negative import Negative
from state.strategies.union import Union

MOST_DIMS = 3
MOST_RECTANGLES = 4096
MOST_BOXES = 2048  # made into rectangles in one event: 30 ms
HARD = 4096  # candidates looked at: 60 us, six times what the rectangles take

EASY, KEPT, DROPPED = 0, 1, 2


class Auto(Strategy):
    """Exact cover on demand; negative rectangles where questions are hard and attributes few."""

    name = "auto"

    def __init__(self, space: Space, active: BoxList, budget: int = BUDGET) -> None:
        super().__init__(space, active)
        self._union = Union(space, active, budget)
        self._negative: Negative | None = None
        self._stage = EASY if space.dims <= MOST_DIMS else DROPPED

    @property
    def negative_rectangles(self) -> int | None:
        return None if self._negative is None else self._negative.negative_rectangles

    def decide(self, boxes: Boxes) -> Verdict:
        return self.decide_within(boxes, self._union.budget)

    def decide_within(self, boxes: Boxes, budget: int) -> Verdict:
        if self._negative is None:
            return self._union.decide_within(boxes, budget)
        return self._negative.decide_within(boxes, min(budget, self._union.budget))

    def observe(self, verdict: Verdict) -> None:
        """Begin to keep negative rectangles after the first hard question."""
        if self._stage == EASY and verdict.nodes > HARD:
            self._keep()

    def _keep(self) -> None:
        if self.active.box_count > MOST_BOXES:
            self._stage = DROPPED
            return
        self._stage, self._negative = KEPT, Negative(self.space, self.active)
        for name in self.active:
            self.added(name, self.active.boxes(name))

    def _drop_if_many(self) -> None:
        kept = self._negative
        if kept is not None and (
            kept.exceeded or kept.negative_rectangles > MOST_RECTANGLES or self.active.box_count > MOST_BOXES
        ):
            self._stage, self._negative = DROPPED, None

    def added(self, name: Name, boxes: Boxes) -> None:
        if self._negative is not None:
            self._negative.added(name, boxes)
            self._drop_if_many()

    def removed(self, name: Name, boxes: Boxes) -> None:
        if self._negative is not None:
            self._negative.removed(name, boxes)
            if self._negative.exceeded:  # it stopped halfway, so the rectangles are not those of the active ones
                self._stage, self._negative = DROPPED, None

    def dump(self) -> Dump:
        inner = Dump() if self._negative is None else self._negative.dump()
        return Dump(np.concatenate(([self._stage], inner.numbers)), inner.small)

    def restore(self, dump: Dump) -> None:
        if not len(dump.numbers) or dump.numbers[0] not in (EASY, KEPT, DROPPED):
            raise StateError("the stored state of strategy auto is damaged")
        self._stage, self._negative = int(dump.numbers[0]), None
        if self._stage == KEPT:
            self._negative = Negative(self.space, self.active)
            self._negative.restore(Dump(dump.numbers[1:], dump.small))

    def check(self) -> None:
        if self._negative is not None:
            self._negative.check()
