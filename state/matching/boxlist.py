"""Named unions of boxes in order of arrival, with an index: the form of `heard` and of the active half of `told`.

Each entry is a subscription's name and its disjoint boxes. The boxes of all entries lie in one `BoxIndex`, those of one
entry side by side, so that a slot leads to its name and a name to its slots:

    names   ann/s1        bob/s7                  cat/s2
    slots   0    1        2                       3    4    5

Answers come in order of arrival (see `boxindex`), so they do not depend on how often the list was packed or restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.geometry.boxes import Boxes, stack, unstack
from state.geometry.boxindex import BoxIndex
from state.geometry.cover import COVERED, UNKNOWN, cover, subtract_all
from state.protocol.messages import Name
from state.space import Keys


class BoxList:
    """An ordered map from names to disjoint boxes that answers questions about all of them."""

    def __init__(self, dims: int, entries: Iterable[tuple[Name, Keys]] = ()) -> None:
        self._dims = dims
        self._slots: dict[Name, range] = {}
        self._owners: list[Name] = []
        self._index = BoxIndex(dims)
        self.packs = 0
        """How often slots were given anew; whoever keeps slots of this list must then take them over again."""
        self._fill(entries)

    def _fill(self, entries: Iterable[tuple[Name, Keys]]) -> None:
        """Take many entries at once: the index is built once, not box by box."""
        parts = [np.empty((0, 2, self._dims), np.int64)]
        for name, keys in entries:
            self._slots[name] = range(len(self._owners), len(self._owners) + len(keys))
            self._owners += [name] * len(keys)
            parts.append(keys)
        if self._owners:
            self._index = BoxIndex(self._dims, np.concatenate(parts))

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, name: Name) -> bool:
        return name in self._slots

    def __iter__(self) -> Iterator[Name]:
        return iter(self._slots)

    @property
    def box_count(self) -> int:
        """The number of boxes of all entries."""
        return len(self._index)

    def keys(self, name: Name) -> Keys:
        """The boxes of one entry as an array."""
        slots = self._slots[name]
        return self._index.boxes[slots.start : slots.stop].copy()

    def boxes(self, name: Name) -> Boxes:
        """The boxes of one entry."""
        return unstack(self.keys(name))

    def slots(self, name: Name) -> range:
        """The slots of one entry's boxes."""
        return self._slots[name]

    def owner(self, slot: int) -> Name:
        """The entry that a slot belongs to."""
        return self._owners[slot]

    @property
    def table(self) -> Keys:
        """The boxes by slot, dead slots included, for kernels."""
        return self._index.boxes

    def all_keys(self) -> Keys:
        """All boxes, in order of arrival."""
        return self._index.boxes[np.fromiter(self._index.living(), np.int64, len(self._index))]

    def add(self, name: Name, boxes: Boxes) -> None:
        """Add an entry at the end. O(boxes)."""
        if name in self._slots:
            raise InvariantError(f"subscription {name} is added to a list that already holds it")
        slots = self._index.add(stack(boxes, self._dims))
        moved = self._index.packed()
        if moved is not None:
            self._follow(moved)
        self._slots[name] = slots
        self._owners += [name] * len(slots)

    def _follow(self, moved: NDArray[np.int64]) -> None:
        self.packs += 1
        self._owners = [owner for owner, slot in zip(self._owners, moved, strict=True) if slot >= 0]
        self._slots = {n: range(int(moved[s[0]]), int(moved[s[-1]]) + 1) for n, s in self._slots.items()}

    def remove(self, name: Name) -> None:
        """Forget an entry. O(boxes)."""
        self._index.remove(self._slots.pop(name))

    def holds_any(self, points: Keys) -> NDArray[np.bool_]:
        """For each point, whether any entry holds it."""
        return self._index.stab_any(points)

    def holders(self, points: Keys) -> tuple[list[int], list[Name]]:
        """All pairs (point, entry that holds it), by point, then in order of arrival."""
        which, slots = self._index.stab_all(points)
        owners = self._owners
        return which.tolist(), [owners[slot] for slot in slots.tolist()]

    def container(self, q: Keys) -> Name | None:
        """The earliest entry one of whose boxes contains all of `q`."""
        slot = self._index.first_containing(q)
        return None if slot is None else self._owners[slot]

    def cover(self, q: Keys, budget: int) -> tuple[int, tuple[Name, ...], Keys, int]:
        """Test `q` against the union. Returns the answer, the names used, the last cell and the work (see `cover`).

        Work is the number of candidates looked at, at most `budget`; 1 if one box contains all of `q`.
        """
        if budget < 1:
            return UNKNOWN, (), q, 0
        one = self._index.first_containing(q)
        if one is not None:
            return COVERED, (self._owners[one],), q, 1
        answer, used, last, nodes = cover(q, self._index.boxes, self._index.meeting(q), budget)
        return answer, self._named(used), last, nodes

    def meeting(self, q: Keys) -> NDArray[np.int64]:
        """The slots whose box shares a point with `q`, in order of arrival."""
        return self._index.meeting(q)

    def _named(self, slots: NDArray[np.int64]) -> tuple[Name, ...]:
        return tuple(dict.fromkeys(self._owners[slot] for slot in slots.tolist()))

    def without(self, q: Keys, *, by_overlap: bool) -> Keys:
        """What is left of `q` after every entry is subtracted from it: disjoint boxes."""
        return subtract_all(q, self._index.boxes, self._index.meeting(q), by_overlap)

    def boxes_meeting(self, q: Keys) -> tuple[list[Name], Keys]:
        """The boxes that meet `q`, in order of arrival, with the name of the entry of each."""
        slots = self._index.meeting(q)
        return [self._owners[slot] for slot in slots.tolist()], self._index.boxes[slots]

    def box_counts(self) -> NDArray[np.int64]:
        """The number of boxes of each entry, in order."""
        return np.fromiter((len(slots) for slots in self._slots.values()), np.int64, len(self._slots))

    def names_meeting(self, q: Keys) -> list[Name]:
        """The entries with a box that shares a point with `q`."""
        return list(self._named(self._index.meeting(q)))

    def inside(self, q: Keys) -> list[Name]:
        """The entries with a box wholly inside `q`."""
        return list(self._named(self._index.inside(q)))

    def check(self) -> None:
        """Raise `InvariantError` unless names, slots and index agree and each entry's boxes are disjoint."""
        self._index.check()
        held = [slot for slots in self._slots.values() for slot in slots]
        if held != list(self._index.living()):
            raise InvariantError("the names of a list and the slots of its index disagree")
        for name, slots in self._slots.items():
            if any(self._owners[slot] != name for slot in slots):
                raise InvariantError(f"a slot of {name} leads to another name")
            if len(slots) > 1:
                check_disjoint(name, self.keys(name))


def check_disjoint(name: Name, keys: Keys) -> None:
    """Raise unless the boxes of one subscription share no point."""
    for k in range(len(keys) - 1):
        apart = (keys[k + 1 :, 0] >= keys[k, 1]) | (keys[k + 1 :, 1] <= keys[k, 0])
        if not apart.any(axis=1).all():
            raise InvariantError(f"boxes of subscription {name} overlap")
