"""Sorted rows in blocks: insertion stays flat as they grow, look-up is two short binary searches.

A row is a few int64 numbers; rows are sorted by the first. They lie in blocks of at most `ROOM` rows, the blocks in
order by a directory:

    order     7    2    5    ...     which block comes first, second, ...; behind the `count` in use, the free ones
    head     -1   40   96    ...     the first number of each, side by side for the search
    rows[7]  -1  3  8  21  38        one array per column and block
    rows[2]  40 41 77

An insertion moves at most one block's rows and, when a full block is cut in two, the directory. A block that becomes
small is joined with the next one. Kernels take the arrays; `Blocks` owns them and makes room in time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.kernels import kernel

Ints = NDArray[np.int64]
MOST_SPARE = 1024
"""Blocks by which the arrays grow at most unless more are needed: they are cleared, 4 MB in two columns."""
ROOM = 256
"""Rows of a block: moving half of them takes about as long as searching the directory of a table of 100,000."""


@kernel
def locate(rows: Ints, order: Ints, head: Ints, size: Ints, count: int, key: int) -> tuple[int, int]:
    """The last row whose first number is at most `key`: its block's place in the order, and its place there; or -1."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if head[middle] <= key:
            low = middle + 1
        else:
            high = middle
    block = low - 1
    if block < 0:
        return -1, -1
    column = rows[order[block], 0]
    low, high = 1, size[order[block]]
    while low < high:
        middle = (low + high) >> 1
        if column[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return block, low - 1


@kernel
def insert(
    rows: Ints, order: Ints, head: Ints, size: Ints, count: int, block: int, place: int, row: Ints
) -> tuple[int, int, int]:
    """Put a row behind (block, place), or before all others where these are -1. The new count, and where it is."""
    if count == 0:
        count, block, place = 1, 0, -1
        size[order[0]] = 0
    elif block < 0:
        block, place = 0, -1
    where = order[block]
    if size[where] == ROOM:
        fresh, half = order[count], ROOM // 2
        for i in range(count, block + 1, -1):
            order[i], head[i] = order[i - 1], head[i - 1]
        rows[fresh, :, : ROOM - half] = rows[where, :, half:]
        size[fresh], size[where] = ROOM - half, half
        order[block + 1], head[block + 1] = fresh, rows[fresh, 0, 0]
        count += 1
        if place >= half:
            block, place, where = block + 1, place - half, fresh
    place += 1
    for c in range(rows.shape[1]):
        for i in range(size[where], place, -1):
            rows[where, c, i] = rows[where, c, i - 1]
        rows[where, c, place] = row[c]
    size[where] += 1
    if place == 0:
        head[block] = row[0]
    return count, block, place


@kernel
def remove(rows: Ints, order: Ints, head: Ints, size: Ints, count: int, block: int, place: int) -> int:
    """Take a row out. The new count of blocks."""
    where = order[block]
    size[where] -= 1
    for c in range(rows.shape[1]):
        for i in range(place, size[where]):
            rows[where, c, i] = rows[where, c, i + 1]
    gone = -1
    if size[where] == 0:
        gone = block
    else:
        if place == 0:
            head[block] = rows[where, 0, 0]
        if block + 1 < count and size[where] + size[order[block + 1]] <= ROOM // 2:
            gone, other = block + 1, order[block + 1]
            rows[where, :, size[where] : size[where] + size[other]] = rows[other, :, : size[other]]
            size[where] += size[other]
            size[other] = 0
    if gone >= 0:
        free = order[gone]
        for i in range(gone, count - 1):
            order[i], head[i] = order[i + 1], head[i + 1]
        count -= 1
        order[count] = free
    return count


class Blocks:
    """The arrays of one set of rows."""

    def __init__(self, columns: int, rows: Ints | None = None) -> None:
        """Empty, or with sorted `rows`, an `(n, columns)` array; blocks are then filled to three quarters."""
        given = np.empty((0, columns), np.int64) if rows is None else rows
        share = ROOM * 3 // 4
        self.count = -(-len(given) // share)
        space = max(4, self.count * 3 // 2)
        self.rows = np.zeros((space, columns, ROOM), np.int64)
        self.order, self.head, self.size = np.arange(space), np.zeros(space, np.int64), np.zeros(space, np.int64)
        for k in range(self.count):
            part = given[k * share : (k + 1) * share]
            self.rows[k, :, : len(part)] = part.T
            self.size[k], self.head[k] = len(part), part[0, 0]

    def make_room(self, more: int) -> None:
        """Have free blocks for `more` insertions, with any removals between them.

        Every block may be full now. One that was cut or joined is at most half full, so half a block of insertions
        comes before it is cut again.
        """
        space = len(self.order)
        need = self.count + min(more, self.count + more // (ROOM // 2) + 1)
        if need <= space:
            return
        extra = max(min(space // 8, MOST_SPARE), need - space)
        # In place: the memory of a large array is mapped anew, not copied, and nothing else refers to it.
        self.rows.resize((space + extra, *self.rows.shape[1:]), refcheck=False)
        self.order = np.concatenate((self.order, np.arange(space, space + extra)))
        self.head, self.size = (np.concatenate((a, np.zeros(extra, np.int64))) for a in (self.head, self.size))

    def flat(self) -> Ints:
        """All rows in order, as an `(n, columns)` array."""
        used = self.order[: self.count].tolist()
        parts = [self.rows[k, :, : self.size[k]].T for k in used]
        return np.concatenate([np.empty((0, self.rows.shape[1]), np.int64), *parts])

    def check(self) -> None:
        """Raise `InvariantError` unless rows are sorted, no block is empty and the directory agrees."""
        used = self.order[: self.count]
        if sorted(self.order.tolist()) != list(range(len(self.order))):
            raise InvariantError("blocks: a block is lost or in use twice")
        if not all(0 < size <= ROOM for size in self.size[used].tolist()):
            raise InvariantError("blocks: a block is empty or too full")
        if (self.head[: self.count] != self.rows[used, 0, 0]).any():
            raise InvariantError("blocks: the directory does not say where blocks begin")
        first = self.flat()[:, 0]
        if (first[1:] < first[:-1]).any():  # compared, not subtracted: the difference may be no int64
            raise InvariantError("blocks: rows are not in order")
