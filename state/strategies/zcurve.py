"""`zcurve`: approximate pairwise covering on a Z curve (see `state.curves.zcurve` for the theory and its paper).

Withhold what a single active subscription contains, if the search finds it: the curve is searched from the largest
cubes down until all but `epsilon` of the space in which a container can lie has been looked at, or `budget` steps were
made. `stop = "share"` ends it at the very cube by which that share is reached, as published; `"level"`, the default,
at the end of that level of cubes, which costs little and finds more. What is found is compared by exact keys, so a YES
is a proof; what is not found is forwarded, which is safe.

Each attribute's domain is cut into 2^bits cells of equal natural length. The map is monotone, so whoever contains a box
also dominates it in cells: rounding hides nobody. (A domain with few values is spread over all cells, unlike in
`state.curves.cells`: shares of the volume mean nothing if most of the universe can never hold a point.)
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from state.curves.zcurve import ENOUGH, FOUND, SPENT, Cells, ZCurve
from state.geometry.boxes import Box, Boxes
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.space import Attribute, Keys, Space, float_value
from state.strategies.base import Verdict, merged, said
from state.strategies.slotted import Slotted

EPSILON = 0.05
BITS = 10
BUDGET = 1000
MOST_BITS = 32


def cell(attribute: Attribute, key: int, bits: int) -> int:
    """Return the cell, of 2^bits cells of equal length, that a key of the domain falls into; it grows with the key.

    >>> [cell(Attribute("a", "int", 0, 9), key, 1) for key in (0, 4, 5, 9)]
    [0, 0, 1, 1]
    """
    if attribute.kind != "float":
        return ((key - attribute.low) << bits) // (attribute.high - attribute.low + 1)
    low, high = float_value(attribute.low) / 2, float_value(attribute.high) / 2
    share = (float_value(key) / 2 - low) / (high - low) if high > low else 0.0
    return min(int(share * (1 << bits)), (1 << bits) - 1)


class ZCurveCover(Slotted):
    """Withholds what it finds a single active container for."""

    name = "zcurve"

    def __init__(
        self,
        space: Space,
        active: BoxList,
        epsilon: float = EPSILON,
        bits: int = BITS,
        budget: int = BUDGET,
        stop: Literal["level", "share"] = "level",
    ) -> None:
        super().__init__(space, active)
        self.epsilon, self.bits, self.budget, self._at_share = epsilon, bits, budget, stop == "share"
        self.curve = ZCurve(2 * space.dims, bits)

    def decide(self, boxes: Boxes) -> Verdict:
        found: list[tuple[Name, ...]] = []
        work = 0
        for box in boxes:
            end, slot, steps = self._search(box)
            work += steps
            if end != FOUND:
                return Verdict(False, REASONS.get(end, Reason.NO_SINGLE_COVER), witness=box, nodes=work)
            found.append((self.active.owner(slot),))
        coverers = merged(found)
        return Verdict(True, said(coverers), coverers, nodes=work)

    def _search(self, box: Box) -> tuple[int, int, int]:
        keys = box.keys()
        corner, table = self._cells(keys), self.active.table
        return self.curve.search(corner, table, keys, self.epsilon, self.budget, at_share=self._at_share)

    def _cells(self, keys: Keys) -> Cells:
        """The point of a box on the curve: per attribute how far down it begins and how far up it ends."""
        last = (1 << self.bits) - 1
        point: list[int] = []
        for a, lo, hi in zip(self.space.attributes, *keys.tolist(), strict=True):
            point += (last - cell(a, lo, self.bits), cell(a, hi - 1, self.bits))
        return np.array(point, np.int64)

    def _fill(self, slots: NDArray[np.int64], boxes: Keys) -> None:
        self.curve.fill(slots, self._points(boxes))

    def _points(self, boxes: Keys) -> Cells:
        return np.array([self._cells(keys) for keys in boxes], np.int64).reshape(len(boxes), 2 * self.space.dims)

    def _add(self, slots: NDArray[np.int64], boxes: Keys) -> None:
        self.curve.add(slots, self._points(boxes))

    def _remove(self, slots: NDArray[np.int64]) -> None:
        self.curve.remove(slots)

    def _follow(self, moved: NDArray[np.int64]) -> None:
        self.curve.follow(moved)

    def check(self) -> None:
        self.curve.check()


REASONS = {ENOUGH: Reason.NOT_FOUND, SPENT: Reason.BUDGET}
