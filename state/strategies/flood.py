"""`flood`: tell the neighbour everything. The baseline against which savings are counted."""

from __future__ import annotations

from state.geometry.boxes import Boxes
from state.protocol.reasons import Reason
from state.strategies.base import Strategy, Verdict


class Flood(Strategy):
    """Never withholds. The box given as witness is simply the subscription's first."""

    name = "flood"

    def decide(self, boxes: Boxes) -> Verdict:
        return Verdict(False, Reason.FLOOD, witness=boxes[0])
