"""Boxes of Boolean filters in stored state: almost all of their ends are those of predicates, so the tree gives them.

    tree      price in [10, 20) AND (symbol in [2, 3) OR symbol in [7, 8))
    boxes     price [10, 20), symbol [2, 3), volume: all         codes   1 2   3 4   0 0
              price [10, 20), symbol [7, 8), volume: all                 1 2   5 6   0 0

Code 0 is the end of the domain, 2j + 1 the low end of predicate j, 2j + 2 its high end, and -1 an end that is listed
besides, where boxes were made larger than what the tree says. A box of ten attributes takes 2 bytes so, not 9, and to
read it is a look-up. To make the boxes from the tree again would take 150 microseconds a filter.
"""

from __future__ import annotations

import numpy as np

from state.kernels import kernel
from state.space import Keys
from state.storage.columns import Ints

OTHER = -1
"""The code of an end that no predicate has."""


@kernel
def _predicates(tree: Ints, leaves: Ints) -> int:
    """Write attribute and both ends of each predicate of a packed tree; return how many there are."""
    at = count = 0
    while at < len(tree):
        if tree[at] < 0:  # AND, OR
            at += 1
            continue
        leaves[count] = tree[at : at + 3]
        at, count = at + 3, count + 1
    return count


@kernel
def _code_of(value: int, whole: int, attribute: int, leaves: Ints, count: int) -> int:
    if value == whole:
        return 0
    for j in range(count):
        if leaves[j, 0] == attribute:
            for end in range(2):
                if leaves[j, 1 + end] == value:
                    return 2 * j + 1 + end
    return -1


@kernel
def _encode(boxes: Keys, counts: Ints, trees: Ints, lengths: Ints, domain: Keys, codes: Keys) -> None:
    leaves, first, begin = np.empty((len(trees), 3), np.int64), 0, 0
    for row in range(len(counts)):
        count = _predicates(trees[begin : begin + lengths[row]], leaves)
        begin += lengths[row]
        for k in range(first, first + counts[row]):
            for end in range(2):
                for i in range(boxes.shape[2]):
                    codes[k, end, i] = _code_of(boxes[k, end, i], domain[end, i], i, leaves, count)
        first += counts[row]


@kernel
def _decode(codes: Keys, others: Ints, counts: Ints, trees: Ints, lengths: Ints, domain: Keys, boxes: Keys) -> bool:
    """Write the boxes; return whether the codes, predicates and other ends fit together."""
    leaves, first, begin, other = np.empty((len(trees), 3), np.int64), 0, 0, 0
    for row in range(len(counts)):
        count = _predicates(trees[begin : begin + lengths[row]], leaves)
        begin += lengths[row]
        for k in range(first, first + counts[row]):
            for end in range(2):
                for i in range(boxes.shape[2]):
                    code = int(codes[k, end, i])
                    if code > 2 * count or code < -1 or (code == -1 and other == len(others)):
                        return False
                    if code == -1:
                        boxes[k, end, i] = others[other]
                        other += 1
                    elif code == 0:
                        boxes[k, end, i] = domain[end, i]
                    else:
                        boxes[k, end, i] = leaves[(code - 1) // 2, 1 + (code - 1) % 2]
        first += counts[row]
    return other == len(others)


def coded(boxes: Keys, counts: Ints, trees: Ints, lengths: Ints, domain: Keys) -> tuple[Keys, Ints]:
    """Return the ends of boxes as codes, and those that have none, in order.

    `counts` boxes belong to each filter, and `lengths` of the numbers in `trees`. O(ends times predicates).
    """
    codes = np.empty(boxes.shape, np.int64)
    _encode(np.ascontiguousarray(boxes), counts, trees, lengths, domain, codes)
    return codes, np.ascontiguousarray(boxes)[codes == OTHER]


def decoded(codes: Keys, others: Ints, counts: Ints, trees: Ints, lengths: Ints, domain: Keys) -> Keys:
    """Return the boxes that `coded` was given. Raises `ValueError` if they cannot be. O(ends)."""
    boxes = np.empty(codes.shape, np.int64)
    if counts.sum() != len(codes) or lengths.sum() != len(trees):
        raise ValueError("the boxes of Boolean filters do not belong to their trees")
    if not _decode(codes, others, counts, trees, lengths, domain, boxes):
        raise ValueError("an end of a box is that of no predicate")
    return boxes
