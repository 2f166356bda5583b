"""Golden facts of the Z-curve paper, by section."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from bench.papers import zcurve_lemmas as lemmas
from bench.papers.zcurve_costs import cubes_by_level, cubes_needed, leading_bits, runs_needed
from state.curves.hilbert import Curve
from state.curves.zcurve import z_less


def test_section_3_1_two_squares_that_differ_by_one_row() -> None:
    assert runs_needed((256, 256), 9) == 1
    assert runs_needed((257, 257), 9) == 385
    level, count = next(cubes_by_level((257, 257)))
    assert (level, count) == (8, 1)
    assert 256**2 / 257**2 > 0.99
    assert cubes_needed((257, 257), 0.01) == 1


@pytest.mark.parametrize(("axes", "bits"), [(1, 4), (2, 3), (3, 2)])
def test_lemma_2_1_standard_cubes_nest_or_are_disjoint(axes: int, bits: int) -> None:
    pairs, crossing = lemmas.crossing(axes, bits)
    assert pairs > 300
    assert crossing == 0


@pytest.mark.parametrize(("axes", "bits"), [(2, 3), (3, 2)])
def test_fact_2_1_a_standard_cube_is_a_single_run_of_either_curve(axes: int, bits: int) -> None:
    assert lemmas.broken(axes, bits)[1] == 0


def test_figure_1_a_rectangle_of_three_runs_on_the_z_curve_and_two_on_the_hilbert_curve() -> None:
    """The figure's own place is not in the text; there are such rectangles, and none needs fewer than one run."""
    hilbert, pairs = Curve(2, 3), Counter[tuple[int, int]]()
    for (x, y), (a, b) in product(combinations(range(9), 2), repeat=2):
        cells = list(product(range(x, y), range(a, b)))
        z = lemmas.runs_of(lemmas.z_keys(cells, 3))
        pairs[z, lemmas.runs_of(hilbert.keys(np.array(cells)).tolist())] += 1
    assert pairs[3, 2] > 0
    mean = [sum(pair[k] * n for pair, n in pairs.items()) / pairs.total() for k in (0, 1)]
    assert mean[1] < mean[0], "fewer runs on the Hilbert curve, on average over all rectangles"


def test_lemma_3_3_the_greedy_partition_of_any_region_is_minimal() -> None:
    """Against every choice of larger cubes; for extremal regions also as counted in closed form."""
    for region in lemmas.some_regions(12):
        assert lemmas.greedy_cubes(region, 2) == lemmas.fewest_cubes(region, 2)
    for sides in product(range(1, 5), repeat=2):
        region = frozenset(product(*(range(4 - side, 4) for side in sides)))
        assert cubes_needed(sides) == lemmas.fewest_cubes(region, 2)


@pytest.mark.parametrize("sides", [(5, 6), (3, 7), (7, 7), (3, 5, 6)])
def test_lemma_3_4_the_cubes_from_a_level_on_fill_the_region_of_the_leading_bits(sides: tuple[int, ...]) -> None:
    filled = 0
    by_level = dict(cubes_by_level(sides))
    for level in range(2, -1, -1):
        filled += by_level.get(level, 0) << (level * len(sides))
        assert filled == int(np.prod([side >> level << level for side in sides]))
        assert (level in by_level) == any(side >> level & 1 for side in sides) or level >= min(sides).bit_length()


@pytest.mark.parametrize(("axes", "bits", "alpha", "m"), [(2, 5, 0, 2), (2, 5, 1, 3), (3, 3, 0, 2)])
def test_lemma_3_5_most_cubes_where_all_leading_bits_are_ones_and_all_others_as_long(
    axes: int, bits: int, alpha: int, m: int
) -> None:
    most, of_ones = lemmas.hardest(axes, bits, alpha, m)
    assert most == of_ones


def test_the_universe_around_a_region_changes_nothing() -> None:
    assert {runs_needed((257, 257), bits) for bits in (9, 10, 12)} == {385}


@pytest.mark.parametrize("sides", [*list(product((1, 5, 12, 16), repeat=2)), (3, 7, 9), (8, 8, 8), (15, 15, 15)])
def test_lemma_3_1_at_least_as_many_cubes_as_runs(sides: tuple[int, ...]) -> None:
    assert cubes_needed(sides) >= runs_needed(sides, 4)


@pytest.mark.parametrize("epsilon", [0.5, 0.1, 0.05, 0.01])
@pytest.mark.parametrize("axes", [1, 2, 4, 6])
def test_lemma_3_2_the_leading_bits_keep_the_volume(axes: int, epsilon: float) -> None:
    m = leading_bits(axes, epsilon)
    rng = np.random.default_rng(axes)
    for side in (2**20 - 1, *rng.integers(1, 2**20, 50).tolist()):
        drop = max(0, side.bit_length() - m)
        assert ((side >> drop << drop) / side) ** axes >= 1 - epsilon


def test_lemma_3_4_no_cube_is_wider_than_the_shortest_side() -> None:
    levels = [level for level, _ in cubes_by_level((0b1010, 0b1100100))]
    assert levels == [3, 2, 1]


@pytest.mark.parametrize(("axes", "gamma", "alpha", "m"), [(2, 6, 0, 3), (2, 6, 2, 3), (3, 5, 1, 2), (4, 8, 0, 3)])
def test_lemma_3_6_the_number_of_cubes_is_bounded(axes: int, gamma: int, alpha: int, m: int) -> None:
    sides = all_ones(axes, gamma, alpha, m)
    assert cubes_needed(sides) < axes * m * (2**alpha * (2**m - 1)) ** (axes - 1)


def test_lemma_3_6_as_printed_lacks_a_factor() -> None:
    """m (2^alpha (2^m - 1))^(d-1) holds for two dimensions; for four, a shell of a cube has up to d faces."""
    assert cubes_needed(all_ones(2, 6, 0, 3)) == 19 < 3 * 7
    assert cubes_needed(all_ones(4, 8, 0, 3)) == 1171 > 3 * 7**3


def all_ones(axes: int, gamma: int, alpha: int, m: int) -> list[int]:
    """Sides of m ones, the first of gamma bits and the others of alpha more: the worst case of Lemma 3.5."""
    ones = ((1 << m) - 1) << (gamma - m)
    return [ones, *[ones << alpha] * (axes - 1)]


@pytest.mark.parametrize("epsilon", [0.2, 0.05])
def test_theorem_3_1_the_approximate_search_does_not_grow_with_the_sides(epsilon: float) -> None:
    approximate = [cubes_needed([2**gamma - 1] * 4, epsilon) for gamma in range(14, 31, 4)]
    exhaustive = [cubes_needed([2**gamma - 1] * 4) for gamma in range(14, 31, 4)]
    assert max(approximate) <= 1.1 * min(approximate)
    assert all(after > 1000 * before for before, after in pairwise(exhaustive))


@pytest.mark.parametrize(("axes", "gamma", "alpha"), [(2, 4, 0), (2, 4, 3), (3, 3, 0), (3, 3, 1), (4, 3, 0)])
def test_theorem_4_1_the_exhaustive_search_grows_with_a_power_of_the_side(axes: int, gamma: int, alpha: int) -> None:
    sides = [*[2 ** (gamma + alpha) - 1] * (axes - 1), 2**gamma - 1]
    assert runs_needed(sides, gamma + alpha) >= 2 ** ((gamma + alpha - 1) * (axes - 1))


@pytest.mark.parametrize(("axes", "gamma", "alpha"), [(2, 3, 0), (2, 3, 2), (3, 2, 0), (3, 2, 1)])
def test_lemma_4_1_no_two_cubes_of_the_hard_slab_lie_in_one_run(axes: int, gamma: int, alpha: int) -> None:
    cubes, runs = lemmas.slab(axes, gamma, alpha)
    assert cubes == runs == 1 << ((gamma + alpha - 1) * (axes - 1))


def test_section_4_the_key_of_square_a() -> None:
    """Coordinates (010, 011) have the key 001101 = 13: thirteen cells come before it."""
    a = np.array([0b010, 0b011])
    assert sum(z_less(np.array(cell), a) for cell in product(range(8), repeat=2)) == 13
