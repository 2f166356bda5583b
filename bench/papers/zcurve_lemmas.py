"""The lemmas about standard cubes and runs, by brute force in small universes.

Each function returns counts of what the lemma says are equal, or how often it does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product

import numpy as np

from bench.papers.zcurve_costs import cubes_needed
from bench.papers.zcurve_keys import key_of
from state.curves.hilbert import Curve

Region = frozenset[tuple[int, ...]]


def standard_cubes(axes: int, bits: int) -> list[Region]:
    """Every standard cube of a universe, as its cells."""
    return [
        frozenset(product(*(range(c, c + (1 << level)) for c in corner)))
        for level in range(bits + 1)
        for corner in product(range(0, 1 << bits, 1 << level), repeat=axes)
    ]


def runs_of(keys: Iterable[int]) -> int:
    """How many runs of consecutive numbers."""
    numbers = set(keys)
    return sum(number - 1 not in numbers for number in numbers)


def z_keys(cells: Iterable[Sequence[int]], bits: int) -> list[int]:
    """The places of cells on the Z curve."""
    return [key_of(cell, bits) for cell in cells]


def crossing(axes: int, bits: int) -> tuple[int, int]:
    """Lemma 2.1: pairs of standard cubes, and how many of them neither nest nor are disjoint."""
    pairs = list(combinations(standard_cubes(axes, bits), 2))
    return len(pairs), sum(not (a <= b or b <= a or not a & b) for a, b in pairs)


def broken(axes: int, bits: int) -> tuple[int, int]:
    """Fact 2.1: standard cubes, and how many are more than one run, on the Z curve or on the Hilbert curve."""
    cubes, hilbert = standard_cubes(axes, bits), Curve(axes, bits)
    both = [(runs_of(z_keys(c, bits)), runs_of(hilbert.keys(np.array(sorted(c))).tolist())) for c in cubes]
    return len(cubes), sum(one != (1, 1) for one in both)


def fewest_cubes(region: Region, bits: int) -> int:
    """The least number of standard cubes that make up a region: every choice of larger ones is tried."""
    axes = len(next(iter(region), (0,)))
    larger = [cube for cube in standard_cubes(axes, bits) if cube <= region and len(cube) > 1]
    return min(
        size + len(region) - sum(map(len, chosen))
        for size in range(len(larger) + 1)
        for chosen in combinations(larger, size)
        if not any(a & b for a, b in combinations(chosen, 2))
    )


def greedy_cubes(region: Region, bits: int) -> int:
    """Lemma 3.3: how many cubes the greedy algorithm makes of a region."""
    inside = [cube for cube in standard_cubes(len(next(iter(region), (0,))), bits) if cube <= region]
    left, count = set(region), 0
    while left:
        left -= max((cube for cube in inside if cube <= left), key=len)
        count += 1
    return count


def some_regions(count: int) -> Iterator[Region]:
    """Regions of any form in a universe of 4 by 4 cells, and all extremal ones."""
    chance = np.random.default_rng(12)
    for _ in range(count):
        yield frozenset(cell for cell in product(range(4), repeat=2) if chance.random() < 0.85)
    for sides in product(range(1, 5), repeat=2):
        yield frozenset(product(*(range(4 - side, 4) for side in sides)))


def hardest(axes: int, bits: int, alpha: int, m: int) -> tuple[int, int]:
    """Lemma 3.5: the most cubes of any sides cut to m leading bits, and the cubes where all these are ones.

    Among all sides whose longest has `bits` bits and whose shortest has `alpha` fewer.
    """
    most = 0
    for sides in product(range(1, 1 << bits), repeat=axes):
        lengths = sorted(side.bit_length() for side in sides)
        if sides == tuple(sorted(sides)) and (lengths[0], lengths[-1]) == (bits - alpha, bits):
            most = max(most, cubes_needed([leading(side, m) for side in sides]))
    ones = [((1 << m) - 1) << (length - m) for length in (bits - alpha, *[bits] * (axes - 1))]
    return most, cubes_needed(ones)


def leading(side: int, kept: int) -> int:
    """A side with only its leading bits."""
    drop = max(0, side.bit_length() - kept)
    return side >> drop << drop


def slab(axes: int, gamma: int, alpha: int) -> tuple[int, int]:
    """Lemma 4.1: the cubes of R_0, and in how many runs of the region they lie.

    R_0 has the least bit of the last side and the highest one of all others.
    """
    bits = gamma + alpha
    sides = [*[(1 << bits) - 1] * (axes - 1), (1 << gamma) - 1]
    region = set(z_keys(product(*(range((1 << bits) - side, 1 << bits) for side in sides)), bits))
    cubes = z_keys(product(*([range(1 << (bits - 1), 1 << bits)] * (axes - 1)), [(1 << bits) - sides[-1]]), bits)
    starts = set()
    for first in cubes:
        while first - 1 in region:
            first -= 1
        starts.add(first)
    return len(cubes), len(starts)
