"""Random Simple Predicates Cover (Ouksel, Jurca, Podnar, Aberer): a NO that is certain, a YES with a bound.

Theory. Guess points of s. One that no si holds is a witness: s is not covered, certainly. If none of d guesses is one,
s is probably covered; if it is not, that happens with probability at most

    (1 - rho)^d      where rho is the least share of s that can be left uncovered if anything is     (Proposition 1)

so d = ln(delta) / ln(1 - rho) guesses are enough for an error of at most delta. What is left uncovered contains a
polyhedron witness (`conflict`): a box whose side is, in each attribute,

    all of s                       or from s to a low end          from a high end to s
    or from a high end of one up to a low end of another           ┌──────┬──┬─────┐
                                                                   │  s1  │ ?│  s2 │   the gap is neither's distance
and rho is at least the product of the shortest of each.           └──────┴──┴─────┘   to the ends of s

Slip. The paper takes the shortest distance between the ends of s and those of any si, and so forgets the last kind: the
gap *between* two subscriptions may be far thinner. Its d is then too small and delta is not kept: a pinwheel of four
around a hole of 4 % gives rho = 16 % by the paper's rule. Here gaps count, so the bound holds; the paper's own rule is
kept for comparison (`gaps = False`).

`cap` limits the guesses. Then the bound is (1 - rho)^cap, larger than delta, and said to be so.

Points are uniform in natural length (as many between 1.0 and 2.0 as between 2.0 and 3.0, though the doubles are not): a
share of s in each attribute, in steps of 2^-53, which rho allows for. Their randomness is a counter through SplitMix64,
begun at a number that the caller derives from what it decides about: the same question has the same guesses, everywhere
and always.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from state.kernels import kernel, kernel_inline
from state.space import Keys, Space

Shares = NDArray[np.float64]
"""Boxes `(k, 2, d)` as shares of s: 0 where it begins, 1 where it ends."""

STEP = 2.0**-53
MANY = 2**62
"""More looks than can be made."""
LEAST = 5e-324
"""The smallest number above 0: guesses may make a YES as good as certain, but they prove nothing."""
_FLIP = np.int64(2**63 - 1)
_LARGEST = np.float64(1.7976931348623157e308)


# Natural length


def lengths(space: Space, keys: Keys) -> NDArray[np.float64]:
    """Keys, attributes last, as numbers whose differences are natural lengths (halved: none overflows)."""
    out = keys.astype(np.float64) / 2
    for i, attribute in enumerate(space.attributes):
        if attribute.kind == "float":
            ends = keys[..., i]
            bits = np.where(ends >= 0, ends, (ends - 1) ^ _FLIP)
            out[..., i] = np.clip(np.ascontiguousarray(bits).view(np.float64), -_LARGEST, _LARGEST) / 2
    return out


def shares(space: Space, q: Keys, boxes: Keys) -> Shares:
    """Return the ends of boxes as shares of `q` in each attribute: from 0 to 1 over q, never decreasing in the key."""
    clipped = np.clip(boxes, q[0], q[1])
    begin, end = lengths(space, q)
    whole = end - begin
    of_lengths = (lengths(space, clipped) - begin) / np.where(whole > 0, whole, 1)
    of_keys = (clipped - q[0]).view(np.uint64) / (q[1] - q[0]).view(np.uint64)
    taken: Shares = np.clip(np.where(whole > 0, of_lengths, of_keys), 0.0, 1.0)
    taken[clipped == q[0]] = 0.0
    taken[clipped == q[1]] = 1.0
    return taken


# The least share


@kernel
def _thinnest(low: Keys, high: Keys, low_share: Shares, high_share: Shares, q: Keys, gaps: bool) -> float:
    """The shortest side that a polyhedron witness can have in one attribute, as a share of q."""
    least = 1.0
    by_high = np.argsort(high)
    highs = high[by_high]
    for r in range(len(low)):
        if low[r] > q[0]:
            least = min(least, low_share[r])
            if gaps:
                before = np.searchsorted(highs, low[r]) - 1
                if before >= 0:
                    least = min(least, low_share[r] - high_share[by_high[before]])
        if high[r] < q[1]:
            least = min(least, 1.0 - high_share[r])
    return least


@kernel
def least_share(q: Keys, boxes: Keys, taken: Shares, gaps: bool) -> float:
    """rho: at least this share of q is uncovered, if anything is."""
    rho = 1.0
    for i in range(q.shape[1]):
        low, high = boxes[:, 0, i].copy(), boxes[:, 1, i].copy()
        thin = _thinnest(low, high, taken[:, 0, i].copy(), taken[:, 1, i].copy(), q[:, i].copy(), gaps)
        rho *= max(0.0, thin - STEP)
    return rho


def guesses(delta: float, rho: float) -> float:
    """Equation 1 solved for d: guesses for an error of at most delta; infinite where rho is 0.

    >>> guesses(1e-6, 0.01)
    1375.0
    """
    if rho >= 1:
        return 1.0
    return math.inf if rho * delta == 0 else float(math.ceil(math.log(delta) / math.log1p(-rho)))


def bound(rho: float, made: int) -> float:
    """Proposition 1: the probability that so many guesses miss what is uncovered is at most this; never 0."""
    return max(math.exp(made * math.log1p(-rho)), LEAST) if rho < 1 else LEAST


# The guesses


@kernel_inline
def _mixed(counter: np.uint64) -> np.uint64:
    """SplitMix64: a number's place in a sequence turned into 64 random bits."""
    z = counter
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def guess_within(taken: Shares, seed: int, trials: int, looks: int, point: NDArray[np.float64]) -> tuple[int, int]:
    """Algorithm 1: guess up to `trials` points; returns how many were made, and the looks left.

    The last point is left in `point`. If it is a witness the number is negative: minus the number of guesses. After
    `looks` looks at a box it ends with fewer than `trials` guesses, and no look is left.
    """
    k, _, d = taken.shape
    counter = np.uint64(seed)
    for made in range(1, trials + 1):
        for i in range(d):
            counter += np.uint64(0x9E3779B97F4A7C15)
            point[i] = np.float64(_mixed(counter) >> np.uint64(11)) * STEP
        held = False
        for r in range(k):
            looks -= 1
            held = True
            for i in range(d):
                if point[i] < taken[r, 0, i] or point[i] >= taken[r, 1, i]:
                    held = False
                    break
            if held:
                break
        if not held:
            return -made, max(looks, 0)
        if looks < 0:
            return made - 1, 0
    return trials, looks


@kernel
def guess(taken: Shares, seed: int, trials: int, point: NDArray[np.float64]) -> int:
    """Algorithm 1 without a limit of looks."""
    return guess_within(taken, seed, trials, MANY, point)[0]


@kernel
def around(point: NDArray[np.float64], q: Keys, boxes: Keys, taken: Shares) -> Keys:
    """The part of q on the point's side of every end that shows none of the boxes holds the point.

    For each box the first attribute in which it misses the point; all these half spaces hold the point.
    """
    space = q.copy()
    for r in range(len(boxes)):
        for i in range(q.shape[1]):
            if point[i] < taken[r, 0, i]:
                space[1, i] = min(space[1, i], boxes[r, 0, i])
                break
            if point[i] >= taken[r, 1, i]:
                space[0, i] = max(space[0, i], boxes[r, 1, i])
                break
    return space
