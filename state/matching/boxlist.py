"""Named unions of boxes in order of arrival, with an index: the form of `heard` and of the active half of `told`.

Each entry is a subscription's name and its disjoint boxes. It has a **number**, which stays the same as long as the
entry is there and is then given to another. The boxes of all entries lie in one `BoxIndex`, those of one entry side by
side, so that a slot leads to a number, a number to its name and to its slots, and a name to its number:

    names     ann/s1        bob/s7                  cat/s2
    numbers   0             2                       1
    slots     0    1        2                       3    4    5

Numbers and slots lie in arrays. When the index packs its slots, they follow without a look at each name.

Answers come in order of arrival (see `boxindex`), so they do not depend on how often the list was packed or restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.geometry.boxes import Boxes, check_disjoint, stack, unstack
from state.geometry.boxindex import BoxIndex, Sizes
from state.geometry.cover import COVERED, UNKNOWN, cover, subtract_all
from state.protocol.messages import Name
from state.space import Keys


class Removal(NamedTuple):
    """What the removal of an entry did to slots, for those who keep slots of a list."""

    slots: range
    """The slots that the entry had."""
    moved: NDArray[np.int64] | None
    """The new slot of each old one, -1 where it is dead; None if slots stayed as they were."""


class BoxList:
    """An ordered map from names to disjoint boxes that answers questions about all of them."""

    def __init__(self, dims: int, entries: Iterable[tuple[Name, Keys]] = (), sizes: Sizes = Sizes()) -> None:  # noqa: B008
        self._dims = dims
        self._numbers: dict[Name, int] = {}
        self._free: list[int] = []
        self.last_removal = Removal(range(0), None)
        held = dict(entries)
        boxes = np.concatenate([np.empty((0, 2, dims), np.int64), *held.values()])
        self._fill(list(held), np.array([len(keys) for keys in held.values()], np.int64), boxes, sizes)

    @classmethod
    def of(cls, dims: int, names: Sequence[Name], counts: NDArray[np.int64], boxes: Keys) -> BoxList:
        """Return a list of entries of so many boxes each, all of which are given one after another."""
        made = cls(dims)
        made._fill(names, counts, boxes, Sizes())
        return made

    def _fill(self, names: Sequence[Name], counts: NDArray[np.int64], boxes: Keys, sizes: Sizes) -> None:
        """Take many entries at once: the index is built once, not box by box."""
        self._index = BoxIndex(self._dims, boxes, sizes)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._names = np.empty(len(names), object)
        self._names[:] = names
        self._counts, self._first = counts, np.cumsum(counts) - counts
        self._owners = np.repeat(np.arange(len(names)), counts)

    def part(self, names: Sequence[Name]) -> BoxList:
        """Return a list of some of the entries, in the order given."""
        numbers = np.fromiter(map(self._numbers.__getitem__, names), np.int64, len(names))
        counts = self._counts[numbers]
        slots = np.repeat(self._first[numbers] + counts - np.cumsum(counts), counts) + np.arange(counts.sum())
        return BoxList.of(self._dims, names, counts, self._index.boxes[slots])

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, name: Name) -> bool:
        return name in self._numbers

    def __iter__(self) -> Iterator[Name]:
        return iter(self._numbers)

    @property
    def box_count(self) -> int:
        """The number of boxes of all entries."""
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, names and their dictionary not counted."""
        arrays = (self._names, self._counts, self._first, self._owners)
        return self._index.nbytes + sum(array.nbytes for array in arrays)

    def keys(self, name: Name) -> Keys:
        """Return the boxes of one entry as an array."""
        slots = self.slots(name)
        return self._index.boxes[slots.start : slots.stop].copy()

    def boxes(self, name: Name) -> Boxes:
        """Return the boxes of one entry."""
        return unstack(self.keys(name))

    def slots(self, name: Name) -> range:
        """Return the slots of one entry's boxes."""
        number = self._numbers[name]
        first = int(self._first[number])
        return range(first, first + int(self._counts[number]))

    def owner(self, slot: int) -> Name:
        """Return the entry that a slot belongs to."""
        return self.name_of(self._owners[slot])

    def name_of(self, number: int) -> Name:
        """Return the name of the entry with this number."""
        name: Name = self._names[number]
        return name

    @property
    def table(self) -> Keys:
        """The boxes by slot, dead slots included, for kernels."""
        return self._index.boxes

    def all_keys(self) -> Keys:
        """Return all boxes, in order of arrival."""
        return self._index.boxes[np.fromiter(self._index.living(), np.int64, len(self._index))]

    def add(self, name: Name, boxes: Boxes) -> None:
        """Add an entry at the end. O(boxes)."""
        self.add_keys(name, stack(boxes, self._dims))

    def add_keys(self, name: Name, keys: Keys) -> None:
        """Add an entry at the end, its boxes as an array. O(boxes)."""
        if name in self._numbers:
            raise InvariantError(f"subscription {name} is added to a list that already holds it")
        slots = self._index.add(keys)
        number = self._free.pop() if self._free else len(self._numbers)
        if number >= len(self._names):
            self._names, self._first, self._counts = map(_longer, (self._names, self._first, self._counts))
        while slots.stop > len(self._owners):
            self._owners = _longer(self._owners)
        self._numbers[name] = number
        self._names[number], self._first[number], self._counts[number] = name, slots.start, len(slots)
        self._owners[slots.start : slots.stop] = number

    def remove(self, name: Name) -> None:
        """Forget an entry. O(boxes); O(n) when more slots are dead than alive, for then they are packed."""
        slots = self.slots(name)
        self._index.remove(slots)
        number = self._numbers.pop(name)
        self._names[number] = None
        self._free.append(number)
        moved = self._index.packed()
        self.last_removal = Removal(slots, moved)
        if moved is not None:
            self._follow(moved)

    def _follow(self, moved: NDArray[np.int64]) -> None:
        owners = np.zeros(len(self._index.boxes), np.int64)
        living = np.flatnonzero(moved >= 0)
        owners[moved[living]] = self._owners[living]
        self._owners = owners
        held = np.fromiter(self._numbers.values(), np.int64, len(self._numbers))
        self._first[held] = moved[self._first[held]]
        if len(held) * 16 < len(self._names):  # seldom, as it looks at each name
            self._renumber(held)

    def _renumber(self, held: NDArray[np.int64]) -> None:
        """Number the entries 0, 1, 2 ... again, where few are left of many."""
        renumbered = np.zeros(len(self._names), np.int64)
        renumbered[held] = np.arange(len(held))
        self._owners = renumbered[self._owners]
        self._names, self._first, self._counts = self._names[held], self._first[held], self._counts[held]
        self._numbers = {name: number for number, name in enumerate(self._numbers)}
        self._free = []

    def holds_any(self, points: Keys) -> NDArray[np.bool_]:
        """For each point, whether any entry holds it."""
        return self._index.stab_any(points)

    def holders(self, points: Keys) -> tuple[list[int], list[Name]]:
        """Return all pairs (point, entry that holds it), by point, then in order of arrival."""
        offsets, numbers = self.holder_numbers(points)
        which = np.repeat(np.arange(len(points)), np.diff(offsets))
        return which.tolist(), self._names[numbers].tolist()

    def holder_numbers(self, points: Keys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of the entries that hold each point, in order of arrival: offsets by point, and numbers.

        Point p is held by `numbers[offsets[p]:offsets[p + 1]]`; `name_of` gives their names.
        """
        offsets, slots = self._index.stab_all(points)
        return offsets, self._owners[slots]

    def container(self, q: Keys) -> Name | None:
        """The earliest entry one of whose boxes contains all of `q`."""
        slot = self._index.first_containing(q)
        return None if slot is None else self.owner(slot)

    def cover(self, q: Keys, budget: int) -> tuple[int, tuple[Name, ...], Keys, int]:
        """Test `q` against the union. Returns the answer, the names used, the last cell and the work (see `cover`).

        Work is the number of candidates looked at, at most `budget`; 1 if one box contains all of `q`.
        """
        if budget < 1:
            return UNKNOWN, (), q, 0
        one = self._index.first_containing(q)
        if one is not None:
            return COVERED, (self.owner(one),), q, 1
        answer, used, last, nodes = cover(q, self._index.boxes, self._index.meeting(q), budget)
        return answer, self._named(used), last, nodes

    def meeting(self, q: Keys) -> NDArray[np.int64]:
        """The slots whose box shares a point with `q`, in order of arrival."""
        return self._index.meeting(q)

    def _named(self, slots: NDArray[np.int64]) -> tuple[Name, ...]:
        return tuple(dict.fromkeys(self._names[self._owners[slots]].tolist()))

    def without(self, q: Keys, *, by_overlap: bool) -> Keys:
        """What is left of `q` after every entry is subtracted from it: disjoint boxes."""
        return subtract_all(q, self._index.boxes, self._index.meeting(q), by_overlap)

    def boxes_meeting(self, q: Keys) -> tuple[list[Name], Keys]:
        """The boxes that meet `q`, in order of arrival, with the name of the entry of each."""
        slots = self._index.meeting(q)
        return self._names[self._owners[slots]].tolist(), self._index.boxes[slots]

    def box_counts(self) -> NDArray[np.int64]:
        """The number of boxes of each entry, in order."""
        return self._counts[np.fromiter(self._numbers.values(), np.int64, len(self._numbers))]

    def names_meeting(self, q: Keys) -> list[Name]:
        """The entries with a box that shares a point with `q`."""
        return list(self._named(self._index.meeting(q)))

    def inside(self, q: Keys, most: int = 2**62) -> list[Name]:
        """The entries with a box wholly inside `q`; of more than `most`, at least so many."""
        slots, taken = self._index.inside(q), most
        names = self._named(slots[:taken])
        while len(names) < most and taken < len(slots):  # some have several of these boxes
            taken *= 2
            names = self._named(slots[:taken])
        return list(names)

    def check(self) -> None:
        """Raise `InvariantError` unless names, slots and index agree and each entry's boxes are disjoint."""
        self._index.check()
        held = [slot for name in self._numbers for slot in self.slots(name)]
        if held != list(self._index.living()):
            raise InvariantError("the names of a list and the slots of its index disagree")
        numbers = [*self._numbers.values(), *self._free]
        if len(set(numbers)) != len(numbers):
            raise InvariantError("two entries of a list have the same number")
        for name, number in self._numbers.items():
            slots = self.slots(name)
            if self.name_of(number) != name or any(self.owner(slot) != name for slot in slots):
                raise InvariantError(f"a slot of {name} leads to another name")
            if len(slots) > 1:
                check_disjoint(self.keys(name), f"the boxes of {name}")


def _longer(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy with half as much room again."""
    longer = np.empty(len(array) * 3 // 2 + 16, array.dtype)
    longer[: len(array)] = array
    return longer
