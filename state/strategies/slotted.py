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
    def _add(self, slots: NDArray[np.int64], boxes: Keys) -> None:
        """Boxes arrive in slots later than all others."""

    @abstractmethod
    def _remove(self, slots: NDArray[np.int64]) -> None:
        """The boxes of these slots go."""

    @abstractmethod
    def _follow(self, moved: NDArray[np.int64]) -> None:
        """Each box that lives has a new slot, `moved[slot]`, in the same order."""

    def added(self, name: Name, boxes: Boxes) -> None:
        slots = self.active.slots(name)
        self._add(np.arange(slots.start, slots.stop), self.active.table[slots.start : slots.stop])

    def removed(self, name: Name, boxes: Boxes) -> None:
        slots, moved = self.active.last_removal
        self._remove(np.arange(slots.start, slots.stop))
        if moved is not None:
            self._follow(moved)

    def restore(self, dump: Dump) -> None:
        slots = np.array([slot for name in self.active for slot in self.active.slots(name)], np.int64)
        self._fill(slots, self.active.table[slots])
