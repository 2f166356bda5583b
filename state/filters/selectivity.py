"""The selectivity of predicates: the share of publications that fulfil them, learned from those that were seen.

Per attribute a histogram: `BINS` bins of equal natural length (values of a category: as equal as their number allows).
Before anything was seen, publications are declared to be uniform over the domain, and that start goes on to weigh as
much as `START` publications; so an estimate is never 0 or 1 for want of evidence.

        count in the bins + START · natural share
    s = ─────────────────────────────────────────      (bins cut by an end count in part)
                  seen + START

Nor is it for want of resolution. Inside a bin values are taken to be spread evenly, and an equality of a float would be
nothing of it; but who asks for one value has seen it occur. So a bin is cut no finer than into `FINEST` parts: what is
narrower counts as one part, and what leaves out less than one part leaves out one. Wider is then never estimated lower,
and a predicate and its complement add up to 1.

What is learned is used in steps: estimates stay as they are until twice as many publications were seen as when they
were last taken. So whatever is derived from them (the pruned table of a link) changes seldom, and is a function of two
small arrays, `counts` and `taken`, that are stored. Publications that arrive together are counted as if they had come
one by one (`room`), so it does not matter how they are cut into batches.

Estimates steer, they never decide what is delivered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from state.filters.trees import Leaf
from state.space import Attribute, Keys, Space, float_key, float_value

BINS = 32
START = 64
FINEST = 1024
"""Parts of a bin that are told apart: with 32 bins about 32,000 values an attribute."""

MOST_KEPT = 1 << 10
"""Estimates that are kept, about 250 kB: pruning one filter asks for those of its predicates again and again."""

Counts = NDArray[np.int64]
"""Publications seen by attribute and bin: `(d, BINS)`."""


def _borders(a: Attribute) -> list[int]:
    """The keys at which the bins 1 to BINS - 1 begin."""
    if a.kind == "float":
        low, high = float_value(a.low) / 2, float_value(a.high) / 2  # the whole may exceed the largest double
        cuts = (float_key(2 * (low + (high - low) * (k / BINS))) for k in range(1, BINS))
    else:
        cuts = (a.low + (a.high + 1 - a.low) * k // BINS for k in range(1, BINS))
    return list(cuts)


class Selectivities:
    """The shares of publications that fulfil predicates, as far as publications were seen."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._borders = [np.array(_borders(a), np.int64) for a in space.attributes]
        inner = zip(space.attributes, self._borders, strict=True)
        self._ends = [[a.low, *borders.tolist(), a.high + 1] for a, borders in inner]
        self.restore(np.zeros((space.dims, BINS), np.int64), np.zeros((space.dims, BINS), np.int64))

    def restore(self, counts: Counts, taken: Counts) -> None:
        """Take over what was stored."""
        self.counts, self.taken = counts, taken
        self._sums: list[list[int]] = [[0, *np.cumsum(row).tolist()] for row in taken]
        self._share = lru_cache(MOST_KEPT)(self._estimate)

    @property
    def seen(self) -> int:
        """The number of publications seen."""
        return int(self.counts[0].sum())

    @property
    def room(self) -> int:
        """The number of publications that may still be seen before the estimates change."""
        return max(START, 2 * int(self.taken[0].sum())) - self.seen

    def see(self, points: Keys) -> bool:
        """Count publications, at most `room`; True if that changed the estimates."""
        for i, borders in enumerate(self._borders):
            bins = np.searchsorted(borders, points[:, i], side="right")
            self.counts[i] += np.bincount(bins, minlength=BINS)
        if self.room > 0:
            return False
        self.restore(self.counts, self.counts.copy())
        return True

    def __call__(self, leaf: Leaf) -> float:
        """The share of publications that fulfil a predicate."""
        return self._share(leaf)

    def _estimate(self, leaf: Leaf) -> float:
        """Whole bins from the sums, and parts of the two that an end may cut. O(log bins)."""
        i, a = leaf.attribute, self.space.attributes[leaf.attribute]
        ends, sums = self._ends[i], self._sums[i]
        first, last = bisect_right(ends, leaf.lo) - 1, bisect_left(ends, leaf.hi) - 1
        hits = START * _part(a, a.low, a.high + 1, leaf, BINS * FINEST) + sums[last + 1] - sums[first]
        for k in {first, last}:
            held = sums[k + 1] - sums[k]
            if held:
                hits -= held * (1 - _part(a, ends[k], ends[k + 1], leaf, FINEST))
        return hits / (START + sums[-1])


def _part(a: Attribute, lo: int, hi: int, leaf: Leaf, finest: int) -> float:
    """The natural share of the keys `[lo, hi)` that fulfil a predicate: all, or 1 to `finest` - 1 parts of them."""
    low, high = max(lo, leaf.lo), min(hi, leaf.hi)
    if low <= lo and high >= hi:
        return 1.0
    whole = a.length(lo, hi)
    return min(1 - 1 / finest, max(1 / finest, a.length(low, high) / whole)) if whole > 0 else 1.0
