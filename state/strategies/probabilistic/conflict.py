"""The conflict table and the minimized cover set (Ouksel, Jurca, Podnar, Aberer): most answers without any chance.

Theory. To ask whether s is covered by s1 ... sk, write down what each si leaves out of s: for every attribute the part
of s below si and the part above it. Where such a part is not empty its entry in the table is *defined*:

                x1 < low   x1 > high   x2 < low   x2 > high          s1 ┌─────┬──┐
        s1          -       x1 > 850       -          -              ┌──┼─────┼┐ │ s
        s2       x1 < 840      -           -          -              │  └─────┼┼─┘   (here s2 takes what s1 leaves)
                                                                     └────────┴┘ s2

A point of s that no si holds lies, for every row, in one of the row's entries. So s is *not* covered exactly when one
entry of each row can be chosen so that all of them and s have a point in common: a **polyhedron witness**. Two entries
of different rows *conflict* if they exclude each other: "x < low of i" and "x >= high of k" with high >= low. On a line
intervals that meet pairwise have a common point, so a choice without a conflict is a witness.

    Corollary 1   a row without entries: si alone contains s. A certain YES.
    Corollary 3   the rows by number of entries: 1, 2, 3 ... at least: each choice spoils at most one entry of each
                  later row, so one is always left. A certain NO.
    Prop. 3, MCS  a row is redundant if one of its entries conflicts with none (free), or if it has at least as many
                  entries as there are rows. Take such rows out, one at a time, as long as there are any: what is left
                  covers s exactly when all did. If nothing is left: a certain NO.

Slips. Algorithm 2 takes a row out if `fc >= 0`, which is always so; it must be `fc >= 1`. It counts k down in a loop
over all rows, so the order matters: here rows go one at a time and everything is looked at again. Corollary 2 says that
s covers si if all of si's entries are defined; it only says that s sticks out of si on every side, and decides nothing.

Every NO comes with its witness, as a box. Go through the rows backwards: first those that were left, then those that
were taken out, the last one first. When a row was taken out, it could lose against all others that were still there;
those are exactly the ones chosen before it now, so an entry is always left (`complete`).

Half-open integers: "x < low" is [q.lo, low), "x > high" is [high, q.hi). Finding all free entries takes, per attribute,
the two highest `high` and the two lowest `low` (a row does not conflict with itself), so a pass is O(k d), not the
O(k^2 d^2) of the paper. Rows are sorted once by each end, so that the next highest and lowest are found when a row is
taken out: O(k d log k) in all. There may be k passes, so the looks at a row have a limit. Beyond it some redundant rows
stay, which is right all the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.geometry.boxes import Box, key_length
from state.kernels import kernel
from state.space import Keys

Rows = NDArray[np.int64]
NOBODY = -1
MANY = 2**62
"""More looks than can be made."""


@kernel
def defined(q: Keys, boxes: Keys) -> NDArray[np.bool_]:
    """Return the mask of defined entries: row by row, per attribute first "below", then "above"."""
    k, _, d = boxes.shape
    table = np.empty((k, 2 * d), np.bool_)
    for r in range(k):
        for i in range(d):
            table[r, 2 * i] = boxes[r, 0, i] > q[0, i]
            table[r, 2 * i + 1] = boxes[r, 1, i] < q[1, i]
    return table


@kernel
def _by_extreme(entry: int, boxes: Keys, table: NDArray[np.bool_]) -> Rows:
    """Return the rows with an entry of this kind, the highest `high` first, or the lowest `low` first."""
    i, above = entry >> 1, entry & 1
    rows = np.flatnonzero(table[:, entry])
    order = np.argsort(boxes[:, above, i][rows], kind="mergesort")
    return rows[order[::-1]] if above else rows[order]


@kernel
def _next_here(order: Rows, place: int, here: NDArray[np.bool_]) -> int:
    """Return the first place from `place` on whose row is still there."""
    while place < len(order) and not here[order[place]]:
        place += 1
    return place


@kernel
def _extremes(order: Rows, places: Rows, here: NDArray[np.bool_], best: Rows) -> None:
    """Write the two rows that an entry is compared with: the first two that are still there.

    `places` are where they were last; rows only go, so it never moves back: O(rows) in all.
    """
    places[0] = _next_here(order, places[0], here)
    places[1] = _next_here(order, max(places[1], places[0] + 1), here)
    for k in range(2):
        best[k] = order[places[k]] if places[k] < len(order) else NOBODY


@kernel
def _free(r: int, entry: int, boxes: Keys, best: Rows) -> bool:
    """Does a defined entry of row `r` conflict with no other row? `best`: the extreme rows of the opposite entry."""
    i = entry >> 1
    other = best[entry ^ 1, 0] if best[entry ^ 1, 0] != r else best[entry ^ 1, 1]
    if other == NOBODY:
        return True
    if entry & 1:
        return bool(boxes[r, 1, i] < boxes[other, 0, i])
    return bool(boxes[other, 1, i] < boxes[r, 0, i])


@kernel
def _redundant(r: int, left: int, boxes: Keys, table: NDArray[np.bool_], counts: Rows, best: Rows) -> bool:
    """Proposition 3: enough entries, or a free one."""
    if counts[r] >= left:
        return True
    for entry in range(table.shape[1]):
        if table[r, entry] and _free(r, entry, boxes, best):
            return True
    return False


@kernel
def minimized(boxes: Keys, table: NDArray[np.bool_], looks: int) -> tuple[Rows, int, int]:
    """Algorithm 2: the rows in the order in which a witness is made of them, how many are left, and the looks left.

    First the rows that are left, in their order, then those taken out, the last one first. Ends early when there were
    so many looks at a row; some of those left may be redundant then.
    """
    k, entries = table.shape
    here = np.ones(k, np.bool_)
    counts = np.zeros(k, np.int64)
    best, places = np.empty((entries, 2), np.int64), np.zeros((entries, 2), np.int64)
    orders = [_by_extreme(entry, boxes, table) for entry in range(entries)]
    for entry in range(entries):
        for r in range(k):
            counts[r] += table[r, entry]
        _extremes(orders[entry], places[entry], here, best[entry])
    sequence = np.empty(k, np.int64)
    left, changed = k, True
    while changed and looks >= 0:
        changed = False
        for r in range(k):
            looks -= 1
            if not here[r] or not _redundant(r, left, boxes, table, counts, best):
                continue
            here[r], changed = False, True
            left -= 1
            sequence[left] = r
            for entry in range(entries):
                if best[entry, 0] == r or best[entry, 1] == r:
                    _extremes(orders[entry], places[entry], here, best[entry])
    at = 0
    for r in range(k):
        if here[r]:
            sequence[at] = r
            at += 1
    return sequence, left, max(looks, 0)


@kernel
def complete(boxes: Keys, rows: Rows, witness: Keys) -> bool:
    """Cut `witness` down to one entry of each of the rows, the roomiest at each turn; False if one leaves nothing."""
    d = boxes.shape[2]
    for r in rows:
        best, widest = -1, 0.0
        for i in range(d):
            whole = key_length(witness[0, i], witness[1, i])
            below = min(witness[1, i], boxes[r, 0, i])
            if below > witness[0, i] and key_length(witness[0, i], below) / whole > widest:
                best, widest = 2 * i, key_length(witness[0, i], below) / whole
            above = max(witness[0, i], boxes[r, 1, i])
            if above < witness[1, i] and key_length(above, witness[1, i]) / whole > widest:
                best, widest = 2 * i + 1, key_length(above, witness[1, i]) / whole
        if best < 0:
            return False
        i = best >> 1
        if best & 1:
            witness[0, i] = max(witness[0, i], boxes[r, 1, i])
        else:
            witness[1, i] = min(witness[1, i], boxes[r, 0, i])
    return True


class ConflictTable:
    """A box against others.

    >>> from state.geometry.boxes import Box, stack
    >>> s = Box((830, 1003), (871, 1007)).keys()
    >>> table = ConflictTable(s, stack([Box((820, 1001), (851, 1008)), Box((840, 1002), (881, 1010))], 2))
    >>> table.defined.tolist()
    [[False, True, False, False], [True, False, False, False]]
    """

    def __init__(self, q: Keys, boxes: Keys) -> None:
        self.q, self.boxes = q, boxes
        self.defined = defined(q, boxes)
        self.counts: Rows = self.defined.sum(axis=1)

    def container(self) -> int | None:
        """Corollary 1: the first row without entries, whose box contains q."""
        bare = np.flatnonzero(self.counts == 0)
        return int(bare[0]) if len(bare) else None

    def open(self) -> bool:
        """Corollary 3: is q certainly not covered, by the number of entries alone?"""
        return bool((np.sort(self.counts) >= np.arange(1, len(self.counts) + 1)).all())

    def minimized(self) -> tuple[Rows, int]:
        """MCS: the rows left first, then those taken out, and how many are left."""
        return self.minimized_within(MANY)[:2]

    def minimized_within(self, looks: int) -> tuple[Rows, int, int]:
        """MCS that ends early after so many looks at a row; also returns the looks left."""
        return minimized(self.boxes, self.defined, looks)

    def few_first(self) -> Rows:
        """The rows in the order in which Corollary 3 makes a witness of them."""
        return np.argsort(self.counts, kind="stable")

    def witness(self, rows: Rows, begin: Keys | None = None) -> Box:
        """A box in q, and in `begin` if that is given, that none of the rows' boxes meets. There must be one."""
        witness = (self.q if begin is None else begin).copy()
        if not complete(self.boxes, rows, witness):
            raise InvariantError("a subscription that is certainly not covered has no witness")
        return Box.of(witness)
