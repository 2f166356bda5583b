"""Matching by looking at every tree: the method that counting predicates is measured against."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from state.filters.trees import Filter, Leaf
from state.kernels import kernel
from state.matching.predicates import Ints, compiled
from state.space import Keys


@kernel
def _match(points: Keys, code: Ints, begins: Ints) -> tuple[Ints, Ints]:
    """Return all pairs (point, tree that holds there), by point, then by tree. Columns of `code`: `predicates.Code`."""
    who, what = np.empty(1024, np.int64), np.empty(1024, np.int64)
    total = 0
    for p in range(len(points)):
        for k in range(len(begins)):
            at = 0
            while at >= 0:
                row = code[begins[k] + at]
                key = points[p, row[0]]
                at = row[3] if row[1] <= key < row[2] else row[4]
            if at == -1:
                if total == len(who):
                    who = np.concatenate((who, np.empty(len(who), np.int64)))
                    what = np.concatenate((what, np.empty(len(what), np.int64)))
                who[total], what[total] = p, k
                total += 1
    return who[:total].copy(), what[:total].copy()


class AllTrees:
    """Filters, compiled as `Predicates` compiles them, without an index."""

    def __init__(self, trees: Sequence[Filter], selectivity: Callable[[Leaf], float]) -> None:
        codes = [compiled(tree, selectivity, "few")[0] for tree in trees]
        self._code = np.array([row for code in codes for row in code], np.int64).reshape(-1, 6)
        self._begins = np.cumsum([0, *map(len, codes)])[:-1]

    def matching(self, points: Keys) -> tuple[Ints, Ints]:
        """Return all pairs (point, number of a tree that holds there), by point, then by tree."""
        return _match(points, self._code, self._begins)
