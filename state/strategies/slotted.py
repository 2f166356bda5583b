"""For strategies that keep an index of their own over the slots of the active list.

The list gives new slots to its entries when more than half of the old ones are dead (`BoxList.last_removal`). The index
then follows in O(n), without a look at each name. A restored strategy begins by filling its index.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from state.geometry.boxes import Boxes
from state.protocol.messages import Name
from state.space import Keys
from state.strategies.base import Dump, Strategy


class Slotted(Strategy):
    """Keeps the index that belongs to it in step with the active list."""

    @abstractmethod
    def _fill(self, slots: NDArray[np.int64], boxes: Keys) -> None:
        """Begin anew with these boxes, in order of arrival."""

    @abstractmethod
    def _add(self, slot: int, box: Keys) -> None:
        """A box arrives in a slot later than all others."""

    @abstractmethod
    def _remove(self, slot: int) -> None:
        """The box of a slot goes."""

    @abstractmethod
    def _follow(self, moved: NDArray[np.int64]) -> None:
        """Each box that lives has a new slot, `moved[slot]`, in the same order."""

    def added(self, name: Name, boxes: Boxes) -> None:
        for slot in self.active.slots(name):
            self._add(slot, self.active.table[slot])

    def removed(self, name: Name, boxes: Boxes) -> None:
        slots, moved = self.active.last_removal
        for slot in slots:
            self._remove(slot)
        if moved is not None:
            self._follow(moved)

    def restore(self, dump: Dump) -> None:
        slots = np.array([slot for name in self.active for slot in self.active.slots(name)], np.int64)
        self._fill(slots, self.active.table[slots])
