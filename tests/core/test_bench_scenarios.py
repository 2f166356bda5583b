"""The scenarios of `bench probabilistic` are what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest

from bench.probabilistic import (
    WIDTH,
    _square,
    comparison_boxes,
    extreme_non_cover,
    non_cover,
    redundant_covering,
)
from state.geometry.cover import COVERED, GAP
from state.matching.boxlist import BoxList
from state.space import Keys
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
