"""`cover`: pairwise covering, as in Siena. Withhold what a single active subscription contains.

Each box of a subscription must lie wholly in one box of one active subscription. Finds no unions: two halves that
together cover a subscription do not count. The index over boxes (`boxindex`) takes the place of the R-tree: it answers
"who contains q?" as the AND of 2d bit rows.

A NO names the first box that no single active one contains; the union of several may still cover it.
"""

from __future__ import annotations

from state.boxes import Boxes
from state.messages import Name
from state.strategies.base import Strategy, Verdict, merged, said


class Cover(Strategy):
    """Withholds what is contained box by box in single active subscriptions."""

    name = "cover"

    def decide(self, boxes: Boxes) -> Verdict:
        found: list[tuple[Name, ...]] = []
        for box in boxes:
            container = self.active.container(box.keys())
            if container is None:
                return Verdict(False, "no single cover", witness=box, nodes=len(found) + 1)
            found.append((container,))
        coverers = merged(found)
        return Verdict(True, said(coverers), coverers, nodes=len(boxes))
