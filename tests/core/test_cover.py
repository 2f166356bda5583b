"""Exact cover on demand: the answer is that of cell enumeration, and every answer comes with its proof."""

from __future__ import annotations

from functools import cache
from resource import RUSAGE_SELF, getrusage

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from state.geometry import cover as cover_module
from state.geometry.cover import CELL, COVERED, GAP, UNKNOWN, cover, subtract_all
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
    assert (answer, used.tolist(), last.tolist(), nodes) == (GAP, [], q.tolist(), CELL)


def test_one_box_that_contains_all_is_the_whole_certificate() -> None:
    boxes = np.stack([keys((0, 0), (2, 6)), keys((2, 0), (6, 6)), naive.domain(2)])
    answer, used, _, nodes = cover(keys((1, 1), (5, 5)), boxes, np.arange(3), PLENTY)
    assert (answer, used.tolist(), nodes) == (COVERED, [2], CELL + 3)


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


def test_strips_are_looked_at_twice_in_any_order() -> None:
    strips = np.array([[[0, k], [50, k + 1]] for k in range(50)])
    q = keys((0, 0), (50, 50))
    for order in (np.arange(50), np.arange(50)[::-1].copy(), np.random.default_rng(1).permutation(50)):
        answer, used, _, looked = cover(q, strips, order, PLENTY)
        assert (answer, sorted(used.tolist()), looked) == (COVERED, list(range(50)), CELL + 100)
        assert cover(q, strips, order, CELL + 100)[0] == COVERED
        assert cover(q, strips, order, CELL + 99)[::3] == (UNKNOWN, CELL + 99)


def test_a_sweep_names_no_slab_that_it_does_not_need() -> None:
    ends = [(0, 4), (1, 3), (2, 9), (3, 6), (4, 8), (9, 12), (8, 12)]
    slabs = np.array([[[lo, 0], [hi, 5]] for lo, hi in ends])
    answer, used, _, _ = cover(keys((0, 0), (12, 5)), slabs, np.arange(len(slabs)), PLENTY)
    assert (answer, used.tolist()) == (COVERED, [0, 2, 6])


# Adversarial questions: each must be answered, with its proof, within so many looks at each candidate.


def bands(count: int) -> Keys:
    """Side by side, over all of the second attribute."""
    lows = np.arange(count) * 100
    return np.stack(
        (np.stack((lows, 0 * lows), axis=1), np.stack((lows + 100, 0 * lows + 100 * count), axis=1)), axis=1
    )


def grid(side: int, dims: int) -> Keys:
    points = np.stack(np.meshgrid(*[np.arange(side)] * dims, indexing="ij"), axis=-1).reshape(-1, dims) * 10
    return np.stack((points, points + 10), axis=1)


def crossing(count: int, dims: int) -> Keys:
    """Slabs in every attribute in turn; those of the first alone cover all."""
    boxes = np.zeros((dims * count, 2, dims), np.int64)
    boxes[:, 1] = 10 * count
    for i in range(dims):
        boxes[i::dims, 0, i] = 10 * np.arange(count)
        boxes[i::dims, 1, i] = 10 * np.arange(count) + (10 if i == 0 else 5)
    return boxes


def staircase(count: int) -> Keys:
    """Steps up from the left in one half of the boxes; the other half is everything right of them."""
    k = np.arange(count)
    left = np.stack((np.stack((0 * k, k), axis=1), np.stack((k + 1, k + 1), axis=1)), axis=1)
    right = np.stack((np.stack((k + 1, k), axis=1), np.stack((0 * k + count + 1, k + 1), axis=1)), axis=1)
    return np.concatenate((left, right))


def corner_staircase(count: int) -> Keys:
    """Boxes from one corner under a staircase, and boxes from the other corner above it."""
    k = np.arange(count)
    under = np.stack((np.zeros((count, 2), np.int64), np.stack((k + 1, count - k), axis=1)), axis=1)
    above = np.stack((np.stack((k, count - k), axis=1), np.full((count, 2), count + 1)), axis=1)
    return np.concatenate((under, above, [[[count, 0], [count + 1, count + 1]]]))


HARD: dict[str, tuple[Keys, int]] = {
    "bands": (bands(3000), 3),
    "crossing 2": (crossing(1500, 2), 3),
    "crossing 3": (crossing(400, 3), 5),
    "grid 2": (grid(50, 2), 40),
    "grid 3": (grid(14, 3), 40),
    "grid 4": (grid(7, 4), 40),
    "staircase": (staircase(1500), 150),
    "corner staircase": (corner_staircase(1500), 40),
}


@pytest.mark.parametrize("shuffled", [False, True], ids=["sorted", "shuffled"])
@pytest.mark.parametrize("case", HARD)
def test_adversarial_questions_cost_few_looks_at_each_candidate(case: str, shuffled: bool) -> None:
    boxes, each = HARD[case]
    if shuffled:
        boxes = np.random.default_rng(1).permutation(boxes)
    q = np.stack((boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)))
    budget = each * len(boxes)
    answer, used, _, _ = cover(q, boxes, np.arange(len(boxes)), budget)
    assert answer == COVERED
    assert not len(subtract_all(q, boxes, used[np.argsort(boxes[used, 0, 0], kind="stable")], True))
    missing = next(k for k in used[len(used) // 2 :] if alone(boxes, k))
    answer, _, last, _ = cover(q, boxes, np.delete(np.arange(len(boxes)), missing), budget)
    assert answer == GAP
    assert (boxes[missing, 0] <= last[0]).all() and (last[0] < last[1]).all() and (last[1] <= boxes[missing, 1]).all()
    assert not meeting_fast(last, np.delete(boxes, missing, axis=0)).any()


def meeting_fast(q: Keys, boxes: Keys) -> NDArray[np.bool_]:
    return ((boxes[:, 0] < q[1]) & (boxes[:, 1] > q[0])).all(axis=1)


def alone(boxes: Keys, k: int) -> bool:
    """Does a part of a box lie in no other?"""
    others = np.flatnonzero(meeting_fast(boxes[k], boxes))
    return len(subtract_all(boxes[k], boxes, others[others != k], True)) > 0


def test_memory_is_bounded_by_candidates_and_budget() -> None:
    """One segment, filtered in place, where each descent once filtered into a new segment behind its parent's."""
    boxes = staircase(3000)
    q = np.stack((boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)))
    cover(q, boxes, np.arange(len(boxes)), 10)
    before = getrusage(RUSAGE_SELF).ru_maxrss
    assert cover(q, boxes, np.arange(len(boxes)), PLENTY)[0] == COVERED
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 32 * 1024


def test_a_question_deeper_than_the_first_buffers_is_answered() -> None:
    rng = np.random.default_rng(7)
    points = np.array([(x, y, z) for x in range(9) for y in range(9) for z in range(9)])
    rng.shuffle(points)
    boxes = np.stack((points, points + 1), axis=1)
    q = keys((0, 0, 0), (9, 9, 9))
    answer, used, _, _ = cover(q, boxes, np.arange(len(boxes)), PLENTY)
    assert (answer, sorted(used.tolist())) == (COVERED, list(range(729)))
    answer, _, last, _ = cover(q, boxes, np.arange(len(boxes) - 1), PLENTY)
    assert (answer, last.tolist()) == (GAP, boxes[-1].tolist())


@pytest.mark.parametrize(
    "rules", [{"FEW": 0}, {"FEW": 0, "LARGE": 0.3}, {"FEW": 0, "LARGE": 2.0, "SWEPT": 0}, {"SWEPT": 0}], ids=str
)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_every_rule_alone_is_exact(dims: int, rules: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds that make small questions meet every rule: cuts at medians, no sweeps. Not compiled."""
    for name, value in rules.items():
        monkeypatch.setattr(cover_module, name, value)
    for inner in ("_grown", "_classify", "_filter", "_take_slabs", "_sweep", "_median_cut", "_halve"):
        monkeypatch.setattr(cover_module, inner, getattr(cover_module, inner).py_func)
    rng = np.random.default_rng(dims)
    answers = set()
    for _ in range(60):
        boxes = naive.stacked([naive.random_box(rng, dims, SIZES[dims]) for _ in range(rng.integers(1, 30))], dims)
        q = naive.random_box(rng, dims, SIZES[dims])
        answer, used, last, _ = cover.py_func(q, boxes, meeting(q, boxes), PLENTY)  # type: ignore[attr-defined]
        assert answer == (COVERED if naive.covered(q, boxes) else GAP)
        if answer == COVERED:
            assert naive.covered(q, boxes[used])
        else:
            assert not any(naive.meets(last, box) for box in boxes)
        answers.add(answer)
    assert answers == {COVERED, GAP}


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
