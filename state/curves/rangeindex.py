"""The index of the MICS paper's section 5: ranges of a curve, each with its subscription; finds those that meet.

Rows `(first, last, owner)` in blocks (`blocks`), sorted by where they begin; for each block also the farthest end in
it. Ranges that meet `[a, b]` begin at or before b and end at or after a: blocks that begin beyond b or end before a are
skipped, so a question looks at the directory and at the few blocks around the places asked for.
"""

from __future__ import annotations

import numpy as np

from state.curves.blocks import Blocks, Ints, insert, locate, remove
from state.curves.hilbert import Ranges
from state.errors import InvariantError
from state.kernels import kernel


@kernel
def measure(rows: Ints, order: Ints, size: Ints, count: int, reach: Ints, block: int) -> None:
    """Find out again how far the ranges in a block and its two neighbours reach."""
    for k in range(max(0, block - 1), min(count, block + 2)):
        where = order[k]
        reach[where] = rows[where, 1, : size[where]].max()


@kernel
def index_ranges(
    rows: Ints, order: Ints, head: Ints, size: Ints, count: int, reach: Ints, ranges: Ranges, owner: int
) -> int:
    """Add ranges of an owner. The new count of blocks."""
    row = np.empty(3, np.int64)
    for k in range(len(ranges)):
        row[0], row[1], row[2] = ranges[k, 0], ranges[k, 1], owner
        block, place = locate(rows, order, head, size, count, row[0])
        count, block, _ = insert(rows, order, head, size, count, block, place, row)
        measure(rows, order, size, count, reach, block)
    return count


@kernel
def drop_ranges(
    rows: Ints, order: Ints, head: Ints, size: Ints, count: int, reach: Ints, ranges: Ranges, owner: int
) -> int:
    """Remove ranges of an owner. The new count of blocks, or -1 if one is not there."""
    for k in range(len(ranges)):
        first = ranges[k, 0]
        block, place = locate(rows, order, head, size, count, first)
        while block >= 0 and rows[order[block], 0, place] == first and rows[order[block], 2, place] != owner:
            place -= 1  # another that begins at the same place
            if place < 0:
                block -= 1
                place = size[order[block]] - 1 if block >= 0 else 0
        if block < 0 or rows[order[block], 0, place] != first:
            return -1
        count = remove(rows, order, head, size, count, block, place)
        measure(rows, order, size, count, reach, block)
    return count


@kernel
def owners_meeting(
    rows: Ints, order: Ints, head: Ints, size: Ints, count: int, reach: Ints, ranges: Ranges, seen: Ints, mark: int
) -> Ints:
    """The owners of ranges that meet any of these, each once; `seen` holds `mark` for those that were found."""
    found = np.empty(16, np.int64)
    end = 0
    for k in range(len(ranges)):
        for block in range(count):
            if head[block] > ranges[k, 1]:
                break
            where = order[block]
            if reach[where] < ranges[k, 0]:
                continue
            for place in range(size[where]):
                if rows[where, 0, place] > ranges[k, 1]:
                    break
                owner = rows[where, 2, place]
                if rows[where, 1, place] >= ranges[k, 0] and seen[owner] != mark:
                    seen[owner] = mark
                    if end == len(found):
                        found = np.concatenate((found, found))
                    found[end] = owner
                    end += 1
    return np.sort(found[:end])


class RangeIndex:
    """Ranges with their owners, who are numbers from 0."""

    def __init__(self) -> None:
        self._blocks = Blocks(3)
        self._reach = np.zeros(len(self._blocks.order), np.int64)
        self._seen = np.zeros(64, np.int64)
        self._asked = 0

    def __len__(self) -> int:
        return int(self._blocks.size[self._blocks.order[: self._blocks.count]].sum())

    def add(self, ranges: Ranges, owner: int) -> None:
        """Add ranges of an owner."""
        b = self._blocks
        b.make_room(len(ranges) + 1)
        self._reach = np.concatenate((self._reach, np.zeros(len(b.order) - len(self._reach), np.int64)))
        if owner >= len(self._seen):
            self._seen = np.concatenate((self._seen, np.zeros(max(owner, len(self._seen)), np.int64)))
        b.count = index_ranges(b.rows, b.order, b.head, b.size, b.count, self._reach, ranges, owner)

    def remove(self, ranges: Ranges, owner: int) -> None:
        """Remove ranges of an owner, just as they were added."""
        b = self._blocks
        count = drop_ranges(b.rows, b.order, b.head, b.size, b.count, self._reach, ranges, owner)
        if count < 0:
            raise InvariantError(f"the index has no such range of {owner}")
        b.count = count

    def meeting(self, ranges: Ranges) -> list[int]:
        """The owners of ranges that meet any of these, in order."""
        b = self._blocks
        self._asked += 1
        found = owners_meeting(
            b.rows, b.order, b.head, b.size, b.count, self._reach, ranges, self._seen, self._asked
        ).tolist()
        return [int(owner) for owner in found]

    def check(self) -> None:
        """Raise `InvariantError` unless blocks are sound and say how far they reach."""
        b = self._blocks
        b.check()
        for block in b.order[: b.count].tolist():
            if self._reach[block] != b.rows[block, 1, : b.size[block]].max():
                raise InvariantError("the index does not know how far a block reaches")
