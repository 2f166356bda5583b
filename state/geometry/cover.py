"""Exact cover on demand: is a box covered by the union of others, and who covers it, or where is the gap?

Theory (ours; it goes beyond the papers, which keep the uncovered space instead). To test q against boxes a1 ... an:

    cover(q, candidates):
        if one candidate contains q: q is covered by it alone
        if no candidate meets q:     q is a gap; stop, q is the witness
        take the candidate with the largest overlap and subtract it from q;
        each of the at most 2d pieces is tested alone, with only those candidates that meet it

All pieces gone: YES, and the candidates used are the **certificate**: their union covers q. A piece that nothing meets:
NO, and that piece is the **witness**: a box inside q that none of the boxes covers. Both are proofs by coordinates.

Nothing is kept besides the boxes, so memory is O(n) and cancelling a box costs nothing here; only what names the box in
its certificate must be tested again. The problem is co-NP-hard in the number of attributes, so the work is bounded by a
budget of nodes (boxes looked at); when it runs out the answer is UNKNOWN, which everybody must treat as "not covered".

The pieces wait on an explicit stack. The candidates of a node are a segment of one growing buffer; a piece refers to
the segment of its parent, and since pieces are taken last in, first out, everything above that segment is free again
when the piece is taken:

    buffer   │ candidates of q ......│ of piece 4 .....│ of piece 4.2 ..│ free
                                     ▲ pieces 1, 2, 3 of q still wait and refer to q's segment
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from state.geometry.boxes import contains, meets, overlap_fraction, subtract_into
from state.kernels import kernel
from state.space import Keys

COVERED, GAP, UNKNOWN = 0, 1, 2


@kernel
def _grown(array: NDArray[np.int64], need: int) -> NDArray[np.int64]:
    """`array`, or a copy of at least twice its length where it is too short."""
    if need <= len(array):
        return array
    longer = np.empty((max(need, 2 * len(array)), *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


@kernel
def _best(q: Keys, boxes: Keys, candidates: NDArray[np.int64]) -> int:
    """The candidate that contains `q`, or else the one with the largest overlap; the earliest where equal."""
    best, largest = int(candidates[0]), -1.0
    for slot in candidates:
        if contains(boxes[slot], q):
            return int(slot)
        share = overlap_fraction(q, boxes[slot])
        if share > largest:
            best, largest = int(slot), share
    return best


@kernel
def cover(q: Keys, boxes: Keys, candidates: NDArray[np.int64], budget: int) -> tuple[int, NDArray[np.int64], Keys, int]:
    """Test `q` against the boxes of the slots `candidates`, which must all meet it.

    Returns the answer, the slots used (the certificate if the answer is COVERED), the last box looked at (the witness
    if it is GAP) and the number of nodes.
    """
    d = q.shape[1]
    used, uses = np.empty(16, np.int64), 0
    waiting, parent = np.empty((8 * d, 2, d), np.int64), np.empty((8 * d, 2), np.int64)
    buffer = np.empty(2 * len(candidates) + 64, np.int64)
    buffer[: len(candidates)] = candidates
    waiting[0] = q
    parent[0, 0], parent[0, 1] = 0, len(candidates)
    depth, nodes = 1, 0
    piece = q.copy()
    while depth > 0:
        depth -= 1
        piece[:] = waiting[depth]
        begin, end = parent[depth]
        if nodes == budget:
            return UNKNOWN, used[:uses], piece, nodes
        nodes += 1
        buffer = _grown(buffer, 2 * end - begin)
        top = end
        for k in range(begin, end):
            if meets(boxes[buffer[k]], piece):
                buffer[top] = buffer[k]
                top += 1
        if top == end:
            return GAP, used[:uses], piece, nodes
        best = _best(piece, boxes, buffer[end:top])
        used = _grown(used, uses + 1)
        used[uses] = best
        uses += 1
        waiting, parent = _grown(waiting, depth + 2 * d), _grown(parent, depth + 2 * d)
        pieces = subtract_into(piece, boxes[best], True, waiting[depth:])
        for k in range(depth, depth + pieces):
            parent[k, 0], parent[k, 1] = end, top
        depth += pieces
    return COVERED, used[:uses], piece, nodes


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
