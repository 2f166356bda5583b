"""The cost of a search on the Z curve, as counts of cubes and of runs (sections 3 and 4 of the paper).

A region is extremal: it reaches from a corner to the upper end of every axis, so its sides describe it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from state.curves.zcurve import Cells
from state.kernels import kernel


def leading_bits(axes: int, epsilon: float) -> int:
    """Return how many leading bits of each side keep at least 1 - epsilon of the volume (Lemma 3.2).

    >>> leading_bits(4, 0.05)
    8
    """
    return math.ceil(math.log2(2 * axes / epsilon))


def cubes_by_level(sides: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the levels of the greedy partition with the number of cubes of each, the largest first (Lemma 3.4).

    >>> list(cubes_by_level((257, 257)))
    [(8, 1), (0, 513)]
    """
    before = 0
    for level in range(min(sides).bit_length() - 1, -1, -1):
        volume = math.prod(side >> level << level for side in sides)
        if volume > before:
            yield level, (volume - before) >> (level * len(sides))
        before = volume


def cubes_needed(sides: Sequence[int], epsilon: float = 0.0) -> int:
    """Count the cubes to be searched, largest first, until 1 - epsilon of the region is searched; 0 means all of it.

    >>> cubes_needed((257, 257)), cubes_needed((257, 257), 0.01)
    (514, 1)
    """
    wanted = math.ceil((1 - Fraction(epsilon)) * math.prod(sides))
    cubes = searched = 0
    for level, count in cubes_by_level(sides):
        volume = 1 << (level * len(sides))
        take = min(count, -((searched - wanted) // volume))
        cubes, searched = cubes + take, searched + take * volume
        if searched >= wanted:
            break
    return cubes


@kernel
def _runs(corner: Cells, bits: int) -> int:
    """Walk the standard cubes in the order of the curve and count how often it enters the region."""
    axes = len(corner)
    waiting, levels = np.zeros((bits * (1 << axes) + 1, axes), np.int64), np.zeros(bits * (1 << axes) + 1, np.int64)
    levels[0] = bits
    depth, runs, inside = 1, 0, False
    while depth > 0:
        depth -= 1
        at, level = waiting[depth].copy(), levels[depth]
        whole, apart = True, False
        for j in range(axes):
            whole &= at[j] >= corner[j]
            apart |= at[j] + (1 << level) <= corner[j]
        if whole or apart:
            runs += whole and not inside
            inside = whole
            continue
        for child in range((1 << axes) - 1, -1, -1):
            for j in range(axes):
                waiting[depth, j] = at[j] + (((child >> (axes - 1 - j)) & 1) << (level - 1))
            levels[depth] = level - 1
            depth += 1
    return runs


def runs_needed(sides: Sequence[int], bits: int) -> int:
    """Count the runs of the curve in an extremal region, which an exhaustive search looks at.

    >>> runs_needed((256, 256), 9), runs_needed((257, 257), 9)
    (1, 385)
    """
    return int(_runs(np.array([(1 << bits) - side for side in sides], np.int64), bits))
