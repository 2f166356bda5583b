"""`union`: exact cover on demand (see `geometry.cover` for the theory). Withhold what the active ones cover together.

Keeps nothing but the active list. Exact within its budget of nodes; when that runs out the subscription is forwarded
with the reason "budget" and without a witness, which is always safe.
"""

from __future__ import annotations

from state.geometry.boxes import Box, Boxes
from state.geometry.cover import GAP, UNKNOWN
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.space import Space
from state.strategies.base import BUDGET, Strategy, Verdict, merged, said


class Union(Strategy):
    """Withholds exactly what the union of the active subscriptions covers, within a budget."""

    name = "union"

    def __init__(self, space: Space, active: BoxList, budget: int = BUDGET) -> None:
        super().__init__(space, active)
        self.budget = budget

    def decide(self, boxes: Boxes) -> Verdict:
        certificates: list[tuple[Name, ...]] = []
        work = 0
        for box in boxes:
            answer, names, last, nodes = self.active.cover(box.keys(), self.budget)
            work += nodes
            if answer == UNKNOWN:
                return Verdict(False, Reason.BUDGET, nodes=work)
            if answer == GAP:
                return Verdict(False, Reason.GAP, witness=Box.of(last), nodes=work)
            certificates.append(names)
        coverers = merged(certificates)
        return Verdict(True, said(coverers), coverers, nodes=work)
