"""`union`: exact cover on demand (see `geometry.cover` for the theory). Withhold what the active ones cover together.

Keeps nothing but the active list. Exact within its budget of candidates looked at, which all boxes of a subscription
share. When the budget runs out, the subscription is forwarded with the reason "budget" and without a witness, which is
always safe.
"""

from __future__ import annotations

from state.geometry.boxes import Boxes
from state.matching.boxlist import BoxList
from state.space import Space
from state.strategies.base import BUDGET, Strategy, Verdict, certified


class Union(Strategy):
    """Withholds exactly what the union of the active subscriptions covers, within a budget."""

    name = "union"

    def __init__(self, space: Space, active: BoxList, budget: int = BUDGET) -> None:
        super().__init__(space, active)
        self.budget = budget

    def decide(self, boxes: Boxes) -> Verdict:
        return certified(self.active, boxes, self.budget)

    def decide_within(self, boxes: Boxes, budget: int) -> Verdict:
        return certified(self.active, boxes, min(budget, self.budget))
