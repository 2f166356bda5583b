"""For strategies that keep an index of their own over the slots of the active list.

The list renumbers its slots now and then (`BoxList.packs`); then the index is filled again too, which costs no more
than the packing did. Both happen at doublings, so it is amortised; and a restored strategy begins by filling.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from state.geometry.boxes import Boxes
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.space import Keys, Space
from state.strategies.base import Dump, Strategy


class Slotted(Strategy):
    """Keeps the index that belongs to it in step with the active list."""

    def __init__(self, space: Space, active: BoxList) -> None:
        super().__init__(space, active)
        self._slots: dict[Name, range] = {}
        self._packs = active.packs

    @abstractmethod
    def _fill(self, slots: NDArray[np.int64], boxes: Keys) -> None:
        """Start again with these boxes, in order of arrival."""

    @abstractmethod
    def _add(self, slot: int, box: Keys) -> None:
        """A box arrives in a slot later than all others."""

    @abstractmethod
    def _remove(self, slot: int) -> None:
        """The box of a slot goes."""

    def added(self, name: Name, boxes: Boxes) -> None:
        if self.active.packs != self._packs:
            self._refill()
            return
        self._slots[name] = self.active.slots(name)
        for slot in self._slots[name]:
            self._add(slot, self.active.table[slot])

    def removed(self, name: Name, boxes: Boxes) -> None:
        for slot in self._slots.pop(name):
            self._remove(slot)

    def _refill(self) -> None:
        self._packs = self.active.packs
        self._slots = {name: self.active.slots(name) for name in self.active}
        slots = np.array([slot for held in self._slots.values() for slot in held], np.int64)
        self._fill(slots, self.active.table[slots])

    def restore(self, dump: Dump) -> None:
        self._refill()
