"""`auto`, the default: exact always, by whichever of the two exact methods pays.

Both methods answer alike; they differ in what they cost. `union` keeps nothing and pays at each question, little when
few active subscriptions decide it and much when very many thin ones do. Negative rectangles find a gap by walking a
tree, however many active subscriptions there are, but each new active one cuts them up further, and in d attributes
their number grows with the d-th power.

Measured (`bench core`, 2 and 3 attributes, uniform and Zipfian): a decision by `union` costs 0.4 to 0.8 of one by
negative rectangles, because a YES needs its certificate anyway. So rectangles pay only where questions are hard:

    easy ──── a question takes union more than HARD nodes,  ────▶ kept ──── more than MOST_RECTANGLES ────▶ dropped
              in at most MOST_DIMS attributes

* easy: `union` decides, and the first hard question makes the link keep rectangles (`observe`);
* kept: `union` gets HARD nodes; what it cannot decide with them, the rectangles decide;
* dropped: `union` decides, for good.

The state changes with the history of questions alone, so a replay makes the same changes at the same messages.
"""

from __future__ import annotations

import numpy as np

from state.errors import StateError
from state.geometry.boxes import Boxes
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.space import Space
from state.strategies.base import BUDGET, Dump, Strategy, Verdict
from state.strategies.negative import Negative
from state.strategies.union import Union

MOST_DIMS = 3
MOST_RECTANGLES = 4096
HARD = 256

EASY, KEPT, DROPPED = 0, 1, 2


class Auto(Strategy):
    """Exact cover on demand; negative rectangles where questions are hard and attributes few."""

    name = "auto"

    def __init__(self, space: Space, active: BoxList, budget: int = BUDGET) -> None:
        super().__init__(space, active)
        self._union, self._glance = Union(space, active, budget), Union(space, active, min(HARD, budget))
        self._negative: Negative | None = None
        self._stage = EASY if space.dims <= MOST_DIMS else DROPPED

    @property
    def negative_rectangles(self) -> int | None:
        return None if self._negative is None else self._negative.negative_rectangles

    def decide(self, boxes: Boxes) -> Verdict:
        if self._negative is None:
            return self._union.decide(boxes)
        verdict = self._glance.decide(boxes)
        return self._negative.decide(boxes) if verdict.reason is Reason.BUDGET else verdict

    def observe(self, verdict: Verdict) -> None:
        """Begin to keep negative rectangles after the first hard question."""
        if self._stage == EASY and verdict.nodes > HARD:
            self._keep()

    def _keep(self) -> None:
        self._stage, self._negative = KEPT, Negative(self.space, self.active)
        for name in self.active:
            self.added(name, self.active.boxes(name))

    def added(self, name: Name, boxes: Boxes) -> None:
        if self._negative is not None:
            self._negative.added(name, boxes)
            if self._negative.negative_rectangles > MOST_RECTANGLES:
                self._stage, self._negative = DROPPED, None

    def removed(self, name: Name, boxes: Boxes) -> None:
        if self._negative is not None:
            self._negative.removed(name, boxes)

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
