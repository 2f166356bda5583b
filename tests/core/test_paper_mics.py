"""Golden facts of the MICS paper, by its sections."""

from __future__ import annotations

import numpy as np

from state.curves.hilbert import Curve
from state.curves.ranges import NONE, RangeTable
from state.routing.rangetold import bridged

CURVE = Curve(dims=2, bits=3)
BOX = np.array([[4, 2], [6, 5]])
"""The augmented subscription of Fig. 3, in the orientation of our curve."""
EXAMPLE = [[32, 35], [45, 46], [50, 55]]


def test_3_3_the_published_subscription_is_a_box_of_our_curve() -> None:
    assert CURVE.ranges(BOX).tolist() == EXAMPLE


def test_3_4_the_published_publications_match_or_do_not() -> None:
    table = RangeTable()
    table.add(np.array(EXAMPLE))
    assert table.holds(np.array([28, 52, 50])).tolist() == [False, True, True]
    assert ((CURVE.cells(np.array([52, 50])) >= BOX[0]) & (CURVE.cells(np.array([52, 50])) <= BOX[1])).all()


def test_3_3_ranges_go_with_the_surface() -> None:
    """Formula (1): about surface / 2d ranges, on average over all places."""
    for dims, side in ((2, 16), (3, 8)):
        curve, chance = Curve(dims, 8), np.random.default_rng(dims)
        low = chance.integers(0, 256 - side, (400, dims))
        _, ends = curve.ranges_of(np.stack((low, low + side - 1), axis=1))
        expected = 2 * dims * side ** (dims - 1) / (2 * dims)
        assert 0.8 < ends[-1] / len(low) / expected < 1.2


def test_3_5_total_and_partial_covering() -> None:
    """Fig. 4: all ranges of s2 in ranges of s1; then only one of them."""
    table = RangeTable()
    table.add(np.array([[10, 30], [50, 60]]))
    assert len(table.uncovered(np.array([[12, 20], [50, 60]]))) == 0
    assert table.uncovered(np.array([[12, 20], [55, 70]])).tolist() == [[61, 70]]


def test_3_6_perfect_and_imperfect_merging() -> None:
    """Overlapping or adjacent ranges become one; with a threshold also those with a smaller gap between them."""
    table = RangeTable()
    table.add(np.array([[0, 4], [5, 9], [12, 20], [24, 30]]))
    union = table.union()
    assert union.tolist() == [[0, 9], [12, 20], [24, 30]]
    assert bridged(union, 3).tolist() == [[0, 20], [24, 30]]
    assert bridged(union, 4).tolist() == [[0, 30]]
    assert bridged(NONE, 4).tolist() == []


def test_3_7_subsumption_by_several() -> None:
    table = RangeTable()
    table.add(np.array([[0, 4]]))
    table.add(np.array([[5, 9]]))
    assert len(table.uncovered(np.array([[3, 7]]))) == 0


def test_4_2_what_algorithm_1_forgets_is_counted() -> None:
    """Taking one of two overlapping subscriptions back leaves exactly the other."""
    table = RangeTable()
    table.add(np.array([[0, 9]]))
    assert table.add(np.array([[5, 14]])).tolist() == [[10, 14]]
    assert table.remove(np.array([[0, 9]])).tolist() == [[0, 4]]
    assert table.union().tolist() == [[5, 14]]
    assert table.remove(np.array([[5, 14]])).tolist() == [[5, 14]]
    assert len(table) == 0
