"""A box that exists is valid; subtraction is exact, disjoint, and never more than 2d pieces."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state.geometry.boxes import Box, boxes_where, contains, meets, overlap_fraction, stack, subtract, unstack, volume
from state.space import LARGEST_INT, Attribute, Keys, Space
from tests.core import naive
from tests.core.naive import keys

DIMS = [1, 2, 3, 4]
SIZES = {1: 6, 2: 6, 3: 5, 4: 4}
both_orders = pytest.mark.parametrize("by_overlap", [False, True], ids=["fixed", "overlap"])
all_dims = pytest.mark.parametrize("dims", DIMS)


@cache
def pair(dims: int) -> st.SearchStrategy[tuple[Keys, Keys]]:
    return st.tuples(naive.box(dims, SIZES[dims]), naive.box(dims, SIZES[dims]))


# Box


@pytest.mark.parametrize(
    ("lo", "hi"),
    [((), ()), ((0,), ()), ((), (1,)), ((0, 0), (1,)), ((0,), (0,)), ((1,), (0,)), ((0, 5), (1, 5)), ((0, 6), (1, 5))],
)
def test_a_box_that_is_empty_or_lopsided_does_not_exist(lo: Any, hi: Any) -> None:
    with pytest.raises(ValueError, match="box"):
        Box(lo, hi)


def test_a_box_of_a_single_point_exists() -> None:
    assert Box((3, LARGEST_INT), (4, LARGEST_INT + 1)).keys().tolist() == [[3, LARGEST_INT], [4, LARGEST_INT + 1]]


def test_a_box_cannot_change() -> None:
    with pytest.raises(AttributeError):
        Box((0,), (1,)).lo = (5,)  # type: ignore[misc]


@all_dims
@naive.few
@given(st.data())
def test_a_box_and_its_keys_are_one(dims: int, data: st.DataObject) -> None:
    small = data.draw(naive.boxes(dims, 4))
    for some in (small, naive.spread(small)):
        assert (stack(unstack(some), dims) == some).all()
        assert all((box.keys() == one).all() for box, one in zip(unstack(some), some, strict=True))


def test_no_boxes_stack_to_an_empty_array_of_the_right_shape() -> None:
    assert stack((), 3).shape == (0, 2, 3)
    assert unstack(stack((), 3)) == ()


def test_a_where_with_gaps_in_a_set_is_several_disjoint_boxes() -> None:
    space = Space((Attribute("n", "int", 0, 9), Attribute("c", "category", 0, 4, tuple("abcde"))))
    boxes = boxes_where(space, {"n": [2, 3], "c": ["e", "a", "c", "d"]})
    assert boxes == (Box((2, 0), (4, 1)), Box((2, 2), (4, 5)))
    assert volume(space, boxes) == pytest.approx(2 / 10 * 4 / 5)


# Relations


@all_dims
@naive.few
@given(st.data())
def test_meets_and_contains_say_what_the_cells_say(dims: int, data: st.DataObject) -> None:
    a, b = data.draw(pair(dims))
    for large_a, large_b in ((a, b), (naive.spread(a), naive.spread(b))):
        assert meets(large_a, large_b) == meets(large_b, large_a) == naive.meets(a, b)
        assert contains(large_a, large_b) == naive.contains(a, b)


def test_touching_is_not_meeting() -> None:
    assert not meets(keys((0, 0), (2, 2)), keys((2, 0), (4, 2)))
    assert not meets(keys((0, 0), (2, 2)), keys((2, 2), (4, 4)))
    assert meets(keys((0, 0), (2, 2)), keys((1, 1), (4, 4)))


@given(st.data())
def test_the_overlap_fraction_is_the_share_of_cells(data: st.DataObject) -> None:
    q, a = data.draw(pair(2).filter(lambda two: naive.meets(*two)))
    assert overlap_fraction(q, a) == pytest.approx(len(naive.cells(q) & naive.cells(a)) / len(naive.cells(q)))


@pytest.mark.parametrize("base", [0, 2**53, 2**62, LARGEST_INT - 9, -LARGEST_INT])
def test_the_overlap_fraction_is_as_good_where_no_double_tells_keys_apart(base: int) -> None:
    q = keys((base, base), (base + 2, base + 10))
    assert overlap_fraction(q, keys((base, base), (base + 1, base + 5))) == pytest.approx(1 / 4)
    assert overlap_fraction(q, naive.spread(naive.domain(2))) == 1.0


# Subtraction


@both_orders
@all_dims
@naive.few
@given(st.data())
def test_subtraction_leaves_exactly_the_rest(dims: int, by_overlap: bool, data: st.DataObject) -> None:
    q, a = data.draw(pair(dims))
    pieces = subtract(q, a, by_overlap=by_overlap)
    assert (pieces[:, 0] < pieces[:, 1]).all()
    assert len(pieces) <= 2 * dims
    assert naive.disjoint(pieces)
    assert naive.union(pieces) == naive.subtract(q, a)


@both_orders
@all_dims
@naive.few
@given(st.data())
def test_subtraction_is_exact_at_the_ends_of_int64(dims: int, by_overlap: bool, data: st.DataObject) -> None:
    q, a = data.draw(pair(dims))
    large = subtract(naive.spread(q), naive.spread(a), by_overlap=by_overlap)
    pieces = naive.gathered(large)
    assert (large[:, 0] < large[:, 1]).all()
    assert len(pieces) <= 2 * dims
    assert naive.disjoint(pieces)
    assert naive.union(pieces) == naive.subtract(q, a)


@both_orders
@naive.few
@given(naive.box(3), naive.box(3))
@example(keys((0, 0, 0), (6, 6, 6)), keys((2, 2, 2), (4, 4, 4)))
def test_there_are_as_many_pieces_as_sides_that_pass_through(by_overlap: bool, q: Keys, a: Keys) -> None:
    through = int((a[0] > q[0]).sum() + (a[1] < q[1]).sum())
    expected = through if naive.meets(q, a) else 1
    assert len(subtract(q, a, by_overlap=by_overlap)) == expected


@both_orders
def test_a_box_minus_itself_or_a_larger_one_is_nothing(by_overlap: bool) -> None:
    q = keys((1, 1), (3, 3))
    for a in (q, q.copy(), keys((0, 1), (3, 4)), keys((-LARGEST_INT,) * 2, (LARGEST_INT + 1,) * 2)):
        assert subtract(q, a, by_overlap=by_overlap).shape == (0, 2, 2)


@both_orders
def test_a_box_minus_one_that_only_touches_it_is_itself(by_overlap: bool) -> None:
    q = keys((1, 1), (3, 3))
    for a in (keys((3, 1), (4, 3)), keys((0, 0), (1, 1)), keys((3, 3), (4, 4))):
        assert subtract(q, a, by_overlap=by_overlap).tolist() == [q.tolist()]


@both_orders
def test_a_single_point_can_be_cut_out_of_all_int64(by_overlap: bool) -> None:
    whole = keys((-LARGEST_INT,) * 2, (LARGEST_INT + 1,) * 2)
    point = keys((LARGEST_INT - 1, -1), (LARGEST_INT, 0))
    pieces = subtract(whole, point, by_overlap=by_overlap)
    area = sum(int(np.prod(p[1].astype(object) - p[0].astype(object))) for p in pieces)
    assert len(pieces) == 4
    assert area == (2 * LARGEST_INT + 1) ** 2 - 1


def test_the_published_order_cuts_the_first_attribute_first_and_overlap_the_most_covered() -> None:
    q, a = keys((0, 0), (10, 10)), keys((4, 1), (6, 9))
    assert subtract(q, a, by_overlap=False)[0].tolist() == [[0, 0], [4, 10]]
    assert subtract(q, a, by_overlap=True)[0].tolist() == [[0, 0], [10, 1]]


@both_orders
@given(naive.box(2), naive.box(2))
def test_subtraction_leaves_its_arguments_alone(by_overlap: bool, q: Keys, a: Keys) -> None:
    before = q.tolist(), a.tolist()
    subtract(q, a, by_overlap=by_overlap)[...] = -1
    assert (q.tolist(), a.tolist()) == before
