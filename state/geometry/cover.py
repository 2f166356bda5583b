"""Exact cover on demand: is a box covered by the union of others, and who covers it, or where is the gap?

Theory (ours; it goes beyond the papers, which keep the uncovered space instead). To test q against boxes a1 ... an,
begin with q as the first **cell**. A cell is tested with only those candidates that meet it:

    1   one candidate contains the cell: it is covered. No candidate meets it: it is a gap; stop, it is the witness.
    2   A candidate that spans the cell in all attributes but one is a **slab** there. Take the attribute whose slabs'
        lengths have the highest sum. If that sum reaches the length of the cell, or if these slabs are an eighth of the
        candidates, sort them by their low ends and sweep, each time taking the one that reaches farthest. What no slab
        reaches becomes new cells, without the slabs as candidates; if no other candidates are left, it is a gap.
    3   Otherwise, with few candidates or with one that covers a good part of the cell, subtract the one with the
        largest overlap: the at most 2d pieces become new cells.
    4   Otherwise cut the cell in two at the median of the ends inside it, in the attribute that separates best.

        slabs in x, swept:  a, c       largest overlap subtracted      cut at a median
        ┌────┬──┬─────┬────┐           ┌───┬──────────┬──┐             ┌────────┬─────────┐
        │ a  │  │     │ c  │           │   │          │  │             │▒ ▒▒  ▒ │▒▒  ▒ ▒  │
        │  ┌─┴──┴┐    │    │           │   │    a     │  │             │  ▒ ▒▒▒ │ ▒ ▒▒  ▒ │
        │  │  b  │ gap│    │           │   ├──────────┤  │             │▒▒  ▒ ▒ │▒  ▒ ▒▒  │
        └──┴─────┴────┴────┘           └───┴──────────┴──┘             └────────┴─────────┘

All cells gone: YES, and the candidates used are the **certificate**: their union covers q. A cell that nothing meets:
NO, and that cell is the **witness**: a box inside q that none of the boxes covers. Both are proofs by coordinates.

Rule 2 makes bands side by side cost O(n log n); subtracting them one at a time is quadratic. The share of an eighth
keeps it from sweeping two slabs among thousands of others, cell after cell (staircases). Rule 4 divides what no single
candidate can: thousands of small boxes, a grid.

Nothing is kept besides the boxes, so memory is O(n) and cancelling a box costs nothing here; only what names the box in
its certificate must be tested again. The problem is co-NP-hard in the number of attributes, so the work is bounded by a
budget. Its unit is a candidate looked at, plus CELL for each cell, so it is the same on every machine. When it runs out
the answer is UNKNOWN, which everybody must treat as "not covered", and all of the budget counts as spent.

The cells wait on an explicit stack. The candidates of a cell are a segment of one growing buffer. A waiting cell refers
to the segment of its parent, which it shares with its siblings; the last of them filters it in place. Cells are taken
last in, first out, so everything above that segment is free again when a cell is taken:

    buffer   │ candidates of q ......│ of piece 4 .....│ of piece 4.2 ..│ free
                                     ▲ pieces 1, 2, 3 of q still wait and refer to q's segment

Each number in the buffer beyond the first n was counted against the budget, so memory is O(n + budget).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from state.geometry.boxes import key_length, meets, subtract_into
from state.kernels import kernel, kernel_inline
from state.space import Keys

Slots = NDArray[np.int64]

COVERED, GAP, UNKNOWN = 0, 1, 2

FEW = 128  # candidates that are subtracted one by one, whatever their size; 256 is 1.3 times slower on staircases
LARGE = 0.02  # of a cell: a candidate that is worth subtracting among many
SWEPT = 8  # sweep slabs that are at least 1/SWEPT of the candidates
SAMPLE = 512  # ends looked at for a median
CELL = 16  # candidates that take as long to look at as the fixed part of a cell: staircases are cells of few candidates
WHOLE = 0.999999  # slabs that sum up to this may cover the cell; rounded sums only steer
CONTAINS, NONE = 2.0, -1


@kernel
def _grown(array: NDArray[np.int64], need: int) -> NDArray[np.int64]:
    """Return `array`, or a copy of at least twice its length where it is too short."""
    if need <= len(array):
        return array
    longer = np.empty((max(need, 2 * len(array)), *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


@kernel_inline
def _classify(cell: Keys, per_key: NDArray[np.float64], box: Keys) -> tuple[int, int, float]:
    """Return in how many attributes `box` fails to span the cell, the last of them, and the share that it covers.

    `per_key` is 1 / length of the cell in each attribute.
    """
    fails, where, share = 0, NONE, 1.0
    for i in range(cell.shape[1]):
        lo, hi = max(cell[0, i], box[0, i]), min(cell[1, i], box[1, i])
        short = (lo > cell[0, i]) | (hi < cell[1, i])
        fails += short
        where = i if short else where
        share *= key_length(lo, hi) * per_key[i]
    return fails, where, share


@kernel
def _sweep(cell: Keys, i: int, boxes: Keys, slabs: Slots, used: Slots, uses: int, gaps: Keys) -> tuple[int, int]:
    """Cover the cell along attribute `i` with slabs. Append those needed to `used` and write what is left to `gaps`.

    Returns the new length of `used` and the number of gaps. Both arrays need room for one more than there are slabs.
    """
    order = np.argsort(boxes[slabs, 0, i], kind="mergesort")
    reach, end = cell[0, i], cell[1, i]
    count, k = 0, 0
    while reach < end:
        best, farthest = NONE, reach
        while k < len(order) and boxes[slabs[order[k]], 0, i] <= reach:
            slot = slabs[order[k]]
            if boxes[slot, 1, i] > farthest:
                best, farthest = slot, boxes[slot, 1, i]
            k += 1
        if best != NONE:
            used[uses] = best
            uses += 1
            reach = farthest
            continue
        stop = min(end, boxes[slabs[order[k]], 0, i]) if k < len(order) else end
        gaps[count] = cell
        gaps[count, 0, i], gaps[count, 1, i] = reach, stop
        count += 1
        reach = stop
    return uses, count


@kernel
def _median_cut(cell: Keys, boxes: Keys, candidates: Slots) -> tuple[int, int]:
    """Return the attribute and the key at which to cut the cell: the least copies and the most even halves."""
    n, d = len(candidates), cell.shape[1]
    step = 1 + 2 * n // SAMPLE
    ends = np.empty(2 * (n // step + 1), np.int64)
    best, where, least = NONE, 0, 3 * n + 1
    for i in range(d):
        found = 0
        for k in range(0, n, step):
            for side in range(2):
                end = boxes[candidates[k], side, i]
                ends[found] = end
                found += cell[0, i] < end < cell[1, i]
        if found == 0:
            continue
        cut = np.sort(ends[:found])[found >> 1]
        left, right = 0, 0
        for k in range(n):
            left += boxes[candidates[k], 0, i] < cut
            right += boxes[candidates[k], 1, i] > cut
        cost = max(left, right) + left + right - n
        if cost < least:
            best, where, least = i, cut, cost
    return best, where


@kernel
def _filter(
    cell: Keys,
    boxes: Keys,
    buffer: Slots,
    begin: int,
    end: int,
    first: int,
    kinds: Slots,
    lengths: NDArray[np.float64],
    counts: Slots,
) -> tuple[int, int, float]:
    """Move the candidates `buffer[begin:end]` that meet the cell to `buffer[first:]`, and learn what each can do.

    Writes for each of them the attribute in which it is a slab to `kinds`, and the sums of slabs to `lengths`. Returns
    the end of the new segment, the candidate with the largest overlap (the earliest where equal), and its share of the
    cell: 1 if it contains the cell; then nothing else counts.
    """
    top, best, largest = first, NONE, -1.0
    lengths[:] = 0.0
    counts[:] = 0
    per_key = np.empty(cell.shape[1])
    for i in range(cell.shape[1]):
        per_key[i] = 1.0 / key_length(cell[0, i], cell[1, i])
    for k in range(begin, end):
        slot = buffer[k]
        if not meets(boxes[slot], cell):
            continue
        fails, i, share = _classify(cell, per_key, boxes[slot])
        if fails == 0:
            return first, slot, CONTAINS
        if share > largest:
            best, largest = slot, share
        if fails == 1:
            lengths[i] += share
            counts[i] += 1
        kinds[top - first] = i if fails == 1 else NONE
        buffer[top] = slot
        top += 1
    return top, best, largest


@kernel
def _take_slabs(i: int, segment: Slots, kinds: Slots) -> tuple[Slots, int]:
    """Take the slabs in attribute `i` out of the segment; return them and how many candidates remain."""
    slabs, taken, remain = np.empty(len(segment), np.int64), 0, 0
    for k in range(len(segment)):
        slot = segment[k]
        if kinds[k] == i:
            slabs[taken] = slot
            taken += 1
        else:
            segment[remain] = slot
            remain += 1
    return slabs[:taken], remain


@kernel
def _halve(cell: Keys, i: int, cut: int, out: Keys) -> int:
    """Write the two halves of the cell to `out`."""
    out[0] = cell
    out[1] = cell
    out[0, 1, i] = cut
    out[1, 0, i] = cut
    return 2


@kernel
def cover(q: Keys, boxes: Keys, candidates: Slots, budget: int) -> tuple[int, Slots, Keys, int]:
    """Test `q` against the boxes of the slots `candidates`, which must all meet it.

    Returns the answer, the slots used (the certificate if the answer is COVERED), the last cell (the witness if it is
    GAP), and the number of candidates looked at, which is at most `budget`.
    """
    d = q.shape[1]
    used, uses = np.empty(16, np.int64), 0
    waiting, parent = np.empty((4 * d, 2, d), np.int64), np.empty((4 * d, 2), np.int64)
    buffer = _grown(candidates, len(candidates) + 1)
    kinds, lengths, counts = np.empty(len(candidates) + 1, np.int64), np.empty(d), np.empty(d, np.int64)
    cell = q.copy()
    waiting[0] = q
    parent[0] = (0, len(candidates))
    depth, looked = 1, 0
    while depth > 0:
        depth -= 1
        cell[:] = waiting[depth]
        begin, end = parent[depth]
        if looked + CELL + end - begin > budget:
            return UNKNOWN, used[:uses], cell, budget
        looked += CELL + end - begin
        shared = depth > 0 and parent[depth - 1, 0] == begin and parent[depth - 1, 1] == end
        first = end if shared else begin
        buffer, used = _grown(buffer, first + end - begin), _grown(used, uses + 1)
        top, best, share = _filter(cell, boxes, buffer, begin, end, first, kinds, lengths, counts)
        if best == NONE:
            return GAP, used[:uses], cell, looked
        if share == CONTAINS:
            used[uses] = best
            uses += 1
            continue
        n, i = top - first, int(np.argmax(lengths))
        slabs = counts[i]
        if slabs > 1 and (lengths[i] >= WHOLE or slabs * SWEPT >= n):
            if looked + slabs > budget:
                return UNKNOWN, used[:uses], cell, budget
            looked += slabs
            taken, remain = _take_slabs(i, buffer[first:top], kinds)
            top = first + remain
            used = _grown(used, uses + slabs)
            waiting, parent = _grown(waiting, depth + slabs + 1), _grown(parent, depth + slabs + 1)
            uses, pieces = _sweep(cell, i, boxes, taken, used, uses, waiting[depth:])
            if pieces > 0 and remain == 0:
                return GAP, used[:uses], waiting[depth].copy(), looked
        elif n <= FEW or share >= LARGE:
            used[uses] = best
            uses += 1
            waiting, parent = _grown(waiting, depth + 2 * d), _grown(parent, depth + 2 * d)
            pieces = subtract_into(cell, boxes[best], True, waiting[depth:])
        else:
            if looked + n > budget:
                return UNKNOWN, used[:uses], cell, budget
            looked += n
            i, cut = _median_cut(cell, boxes, buffer[first:top])
            waiting, parent = _grown(waiting, depth + 2), _grown(parent, depth + 2)
            pieces = _halve(cell, i, cut, waiting[depth:])
        for k in range(depth, depth + pieces):
            parent[k] = (first, top)
        depth += pieces
    return COVERED, used[:uses], cell, looked


@kernel
def subtract_all(q: Keys, boxes: Keys, candidates: NDArray[np.int64], by_overlap: bool) -> Keys:
    """Return the rest of `q` without every candidate's box, as disjoint pieces (Fig. 7, lines 6 to 19)."""
    d = q.shape[1]
    pieces, count = np.empty((16, 2, d), np.int64), 1
    pieces[0] = q
    out = np.empty((2 * d, 2, d), np.int64)
    for slot in candidates:
        k = 0
        while k < count:
            if not meets(pieces[k], boxes[slot]):
                k += 1
                continue
            n = subtract_into(pieces[k], boxes[slot], by_overlap, out)
            pieces = _grown(pieces, count + n)
            count -= 1
            pieces[k] = pieces[count]
            for j in range(n):
                pieces[count] = out[j]
                count += 1
    return pieces[:count].copy()
