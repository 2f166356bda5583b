"""Exact cover on demand: the answer is that of cell enumeration, and every answer comes with its proof."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state.geometry.cover import COVERED, GAP, UNKNOWN, cover, subtract_all
from state.space import Keys
from tests.core import naive
from tests.core.naive import keys

PLENTY = 10**6
SIZES = {1: 6, 2: 6, 3: 4, 4: 3}
all_dims = pytest.mark.parametrize("dims", SIZES)
SCALES = {"small": (lambda small: small, lambda found: found), "huge": (naive.spread, naive.gathered)}
both_scales = pytest.mark.parametrize("scale", SCALES)
both_orders = pytest.mark.parametrize("by_overlap", [False, True], ids=["fixed", "overlap"])


def meeting(q: Keys, boxes: Keys) -> Keys:
    return np.array([k for k, box in enumerate(boxes) if naive.meets(q, box)], np.int64)


@cache
def questions(dims: int) -> st.SearchStrategy[tuple[Keys, Keys]]:
    """A box and others. Half of them cover it: they are made of its own halves, over and over."""
    some = st.tuples(naive.box(dims, SIZES[dims]), naive.boxes(dims, 10, SIZES[dims]))
    return some | st.tuples(naive.box(dims, SIZES[dims]), st.lists(st.integers(0, 99), max_size=9)).map(_halves)


def _halves(drawn: tuple[Keys, list[int]]) -> tuple[Keys, Keys]:
    q, choices = drawn
    parts = [q.copy()]
    for choice in choices:
        part = parts.pop(choice % len(parts))
        i = choice % q.shape[1]
        middle = (part[0, i] + part[1, i]) // 2
        left, right = part.copy(), part.copy()
        left[1, i] = right[0, i] = middle
        parts += [half for half in (left, right) if half[0, i] < half[1, i]]
    return q, naive.stacked(parts, q.shape[1])


@both_scales
@all_dims
@naive.few
@given(st.data())
def test_the_answer_is_that_of_the_cells_and_proves_itself(dims: int, scale: str, data: st.DataObject) -> None:
    q, boxes = data.draw(questions(dims))
    large, small = SCALES[scale]
    candidates = meeting(q, boxes)
    answer, used, last, nodes = cover(large(q), large(boxes), candidates, PLENTY)
    assert answer == (COVERED if naive.covered(q, boxes) else GAP)
    assert nodes >= 1
    assert set(used) <= set(candidates)
    if answer == COVERED:
        assert naive.covered(q, boxes[used])
    else:
        witness = small(last)
        assert (witness[0] < witness[1]).all()
        assert naive.contains(q, witness)
        assert not any(naive.meets(witness, box) for box in boxes)


@pytest.mark.parametrize("seed", range(4))
@all_dims
def test_many_boxes_give_the_answer_of_the_cells(dims: int, seed: int) -> None:
    rng = np.random.default_rng([dims, seed])
    answers = set()
    for _ in range(60):
        count = int(rng.integers(1, 12 * dims * dims))
        boxes = naive.stacked([naive.random_box(rng, dims, SIZES[dims]) for _ in range(count)], dims)
        q = naive.random_box(rng, dims, SIZES[dims])
        answer, used, last, _ = cover(q, boxes, meeting(q, boxes), PLENTY)
        assert answer == (COVERED if naive.covered(q, boxes) else GAP)
        if answer == COVERED:
            assert naive.covered(q, boxes[used])
        else:
            assert naive.contains(q, last)
            assert not any(naive.meets(last, box) for box in boxes)
        answers.add(answer)
    assert answers == {COVERED, GAP}


def test_a_box_that_nothing_meets_is_its_own_witness() -> None:
    q = keys((1, 1), (3, 3))
    answer, used, last, nodes = cover(q, naive.stacked([], 2), np.empty(0, np.int64), PLENTY)
    assert (answer, used.tolist(), last.tolist(), nodes) == (GAP, [], q.tolist(), 1)


def test_one_box_that_contains_all_is_the_whole_certificate() -> None:
    boxes = np.stack([keys((0, 0), (2, 6)), keys((2, 0), (6, 6)), naive.domain(2)])
    answer, used, _, nodes = cover(keys((1, 1), (5, 5)), boxes, np.arange(3), PLENTY)
    assert (answer, used.tolist(), nodes) == (COVERED, [2], 1)


def test_duplicates_need_no_second_place_in_the_certificate() -> None:
    boxes = np.stack([keys((0,), (3,))] * 4 + [keys((3,), (6,))] * 4)
    answer, used, _, _ = cover(naive.domain(1), boxes, np.arange(8), PLENTY)
    assert answer == COVERED
    assert sorted(used.tolist()) == [0, 4]


def test_a_missing_point_in_the_middle_is_found() -> None:
    point = keys((2, 3, 1), (3, 4, 2))
    rest = subtract_all(naive.domain(3), point[None], np.arange(1), True)
    answer, _, last, _ = cover(naive.domain(3), rest, np.arange(len(rest)), PLENTY)
    assert (answer, last.tolist()) == (GAP, point.tolist())


@given(st.data())
def test_within_its_budget_the_answer_is_the_same_and_beyond_it_unknown(data: st.DataObject) -> None:
    q, boxes = data.draw(questions(2))
    candidates = meeting(q, boxes)
    answer, used, last, needed = cover(q, boxes, candidates, PLENTY)
    enough = cover(q, boxes, candidates, needed)
    assert (enough[0], enough[1].tolist(), enough[2].tolist()) == (answer, used.tolist(), last.tolist())
    for budget in range(1, needed):
        tried, _, _, nodes = cover(q, boxes, candidates, budget)
        assert (tried, nodes) == (UNKNOWN, budget)


def test_strips_cost_a_node_each() -> None:
    strips = np.array([[[0, k], [50, k + 1]] for k in range(50)])
    q = keys((0, 0), (50, 50))
    assert cover(q, strips, np.arange(50), PLENTY)[0] == COVERED
    assert cover(q, strips, np.arange(50), PLENTY)[3] == 50
    assert cover(q, strips, np.arange(50), 49)[0] == UNKNOWN


def test_a_question_deeper_than_the_first_buffers_is_answered() -> None:
    rng = np.random.default_rng(7)
    points = np.array([(x, y, z) for x in range(9) for y in range(9) for z in range(9)])
    rng.shuffle(points)
    boxes = np.stack((points, points + 1), axis=1)
    q = keys((0, 0, 0), (9, 9, 9))
    answer, used, _, nodes = cover(q, boxes, np.arange(len(boxes)), PLENTY)
    assert (answer, sorted(used.tolist()), nodes) == (COVERED, list(range(729)), 729)
    answer, _, last, _ = cover(q, boxes, np.arange(len(boxes) - 1), PLENTY)
    assert (answer, last.tolist()) == (GAP, boxes[-1].tolist())


@both_orders
@both_scales
@all_dims
@naive.few
@given(st.data())
def test_what_is_left_after_subtracting_all_is_exact(
    dims: int, scale: str, by_overlap: bool, data: st.DataObject
) -> None:
    q, boxes = data.draw(questions(dims))
    large, small = SCALES[scale]
    left = small(subtract_all(large(q), large(boxes), meeting(q, boxes), by_overlap))
    assert naive.disjoint(left)
    assert (left[:, 0] < left[:, 1]).all()
    assert naive.union(left) == naive.cells(q) - naive.union(boxes)


@both_orders
@given(naive.box(2))
@example(keys((0, 0), (1, 1)))
def test_subtracting_nothing_leaves_all(by_overlap: bool, q: Keys) -> None:
    assert subtract_all(q, naive.stacked([], 2), np.empty(0, np.int64), by_overlap).tolist() == [q.tolist()]


@both_orders
def test_subtracting_more_pieces_than_the_first_buffer_is_exact(by_overlap: bool) -> None:
    holes = np.array([[[2 * x, 2 * y], [2 * x + 1, 2 * y + 1]] for x in range(8) for y in range(8)])
    left = subtract_all(keys((0, 0), (16, 16)), holes, np.arange(len(holes)), by_overlap)
    assert naive.disjoint(left)
    assert naive.union(left) == naive.cells(keys((0, 0), (16, 16))) - naive.union(holes)
