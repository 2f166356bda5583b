"""The scenarios of `bench probabilistic` are what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest

from bench.papers.probabilistic import (
    WIDTH,
    _square,
    beside,
    comparison_boxes,
    conflict_free_rows,
    extreme_non_cover,
    non_cover,
    redundant_covering,
)
from state.geometry.cover import COVERED, GAP
from state.matching.boxlist import BoxList
from state.space import Keys
from state.strategies.probabilistic.conflict import ConflictTable
from tests.core.naive import name


def answer(boxes: Keys, m: int) -> int:
    listed = BoxList(m, [(name(k), box[None]) for k, box in enumerate(boxes)])
    assert listed.container(_square(m)) is None, "no scenario has a pairwise cover"
    return listed.cover(_square(m), 100_000)[0]


@pytest.mark.parametrize("seed", range(5))
def test_redundant_covering_is_covered_by_a_fifth(seed: int) -> None:
    boxes, covering = redundant_covering(np.random.default_rng(seed), 60, 10)
    assert (len(boxes), covering) == (60, 12)
    assert answer(boxes, 10) == answer(boxes[:covering], 10) == COVERED
    assert answer(boxes[1:covering], 10) == GAP


@pytest.mark.parametrize("seed", range(5))
def test_non_cover_is_not_covered(seed: int) -> None:
    boxes = non_cover(np.random.default_rng(seed), 40, 10)
    assert answer(boxes, 10) == GAP
    assert (boxes[:, 1] > 0).all()
    assert (boxes[:, 0] < WIDTH).all()


@pytest.mark.parametrize("size", [0.005, 0.045])
def test_extreme_non_cover_leaves_exactly_its_gap(size: float) -> None:
    boxes = extreme_non_cover(np.random.default_rng(3), 50, 5, size)
    listed = BoxList(5, [(name(k), box[None]) for k, box in enumerate(boxes)])
    left = listed.without(_square(5), by_overlap=True)
    assert len(left) == 1
    extent = (left[0, 1] - left[0, 0]) / WIDTH
    assert extent[0] == pytest.approx(size, abs=2e-6)
    assert (extent[1:] == 1).all()


@pytest.mark.parametrize("m", [10, 20])
def test_the_comparison_names_a_few_attributes_of_many(m: int) -> None:
    boxes = comparison_boxes(300, m)
    named = ((boxes[:, 0] > 0) | (boxes[:, 1] < 1001)).sum(axis=1)
    assert 2.5 < named.mean() < 5.5
    assert (boxes[:, 0] < boxes[:, 1]).all()


def test_no_intersection_means_none_and_every_row_goes_in_the_first_pass() -> None:
    chance = np.random.default_rng(2)
    for m in (1, 3, 10):
        boxes = beside(chance, 40, m)
        assert not ((boxes[:, 0] < WIDTH) & (boxes[:, 1] > 0)).all(axis=1).any()
        assert conflict_free_rows(ConflictTable(_square(m), boxes)).all()


def test_a_row_is_free_if_one_of_its_entries_leaves_room_beside_all_others() -> None:
    """Definition 5, cell by cell, in one attribute and two."""
    chance = np.random.default_rng(3)
    for m in (1, 2):
        for _ in range(200):
            ends = np.sort(chance.integers(0, 9, (5, 2, m)), axis=1)
            ends[:, 1] += 1
            q, boxes = ends[0], ends[1:]
            table = ConflictTable(q, boxes)
            assert conflict_free_rows(table).tolist() == [free(table, row) for row in range(len(boxes))]


def free(table: ConflictTable, row: int) -> bool:
    m = table.q.shape[1]
    points = [range(table.q[0, i], table.q[1, i]) for i in range(m)]

    def entry(k: int, j: int) -> set[int]:
        i, above = divmod(j, 2)
        low, high = table.boxes[k, 0, i], table.boxes[k, 1, i]
        return {x for x in points[i] if (x >= high if above else x < low)}

    def clashes(j: int) -> bool:
        others = [k for k in range(len(table.boxes)) if k != row]
        return any(
            table.defined[k, other] and not entry(row, j) & entry(k, other)
            for k in others
            for other in (2 * (j // 2), 2 * (j // 2) + 1)
        )

    return any(table.defined[row, j] and not clashes(j) for j in range(2 * m))
