"""Cells: one monotone function for points and boxes, so that rounding never loses a publication."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.curves.cells import BITS, Equal, Fitted, Grid
from state.errors import ConfigError
from state.geometry.boxes import Box
from state.space import LARGEST_INT, Attribute, Space, float_key, float_value

REAL = Attribute("price", "float", float_key(0.0), float_key(1000.0))
HUGE = Attribute("huge", "float", float_key(-1.7e308), float_key(1.7e308))
TINY = Attribute("tiny", "float", float_key(0.0), float_key(5e-324))
POINT = Attribute("point", "float", float_key(3.0), float_key(3.0))
COUNT = Attribute("count", "int", 0, 99_999)
ALL = Attribute("all", "int", -LARGEST_INT, LARGEST_INT)
FEW = Attribute("few", "category", 0, 2, ("a", "b", "c"))
LEARNED = replace(COUNT, borders=(5, 6, 7, 500, 99_999))
ATTRIBUTES = [REAL, HUGE, TINY, POINT, COUNT, ALL, FEW]
every_side = pytest.mark.parametrize(
    "side",
    [Equal(a, bits) for a in ATTRIBUTES for bits in (1, 3, 8, 20, 63)] + [Fitted(LEARNED, 3)],
    ids=lambda side: f"{side} {side.bits}",
)


def keys_in(attribute: Attribute) -> st.SearchStrategy[int]:
    if attribute.kind == "float":
        low, high = float_value(attribute.low), float_value(attribute.high)
        return st.floats(low, high).map(float_key)
    return st.integers(attribute.low, attribute.high)


@every_side
@settings(max_examples=25)
@given(st.data())
def test_cells_keep_the_order_of_values(side: Equal | Fitted, data: st.DataObject) -> None:
    keys = np.array(sorted(data.draw(st.lists(keys_in(side.attribute), min_size=2, max_size=20))))
    cells = side.cells(keys)
    assert (np.diff(cells) >= 0).all()
    assert cells[0] >= 0
    assert cells[-1] < 1 << side.bits


@every_side
def test_the_first_key_of_a_cell_is_where_it_begins(side: Equal | Fitted) -> None:
    a = side.attribute
    cells = {int(side.cells(np.array([key]))[0]) for key in (a.low, (a.low + a.high) // 2, a.high)}
    for cell in cells:
        first = side.first(cell)
        assert int(side.cells(np.array([first]))[0]) == cell
        assert first == a.low or int(side.cells(np.array([first - 1]))[0]) < cell
        assert side.first(cell + 1) > first


def test_equal_cells_have_equal_natural_length() -> None:
    side = Equal(REAL, 3)
    assert [float_value(side.first(cell)) for cell in range(8)] == [125.0 * cell for cell in range(8)]
    assert side.cells(np.array([REAL.high])).tolist() == [7]
    assert [Equal(COUNT, 3).first(cell) for cell in range(9)] == [12_500 * cell for cell in range(9)]


@given(st.integers(1, 10**6), st.integers(1, 20))
def test_equal_cells_of_whole_numbers_are_exact(count: int, bits: int) -> None:
    side = Equal(Attribute("n", "int", 0, count - 1), bits)
    keys = np.unique(np.linspace(0, count - 1, 50).astype(np.int64))
    per_key = min(Fraction(1), Fraction(1 << bits, count))
    for key, cell in zip(keys.tolist(), side.cells(keys).tolist(), strict=True):
        exact = key * per_key
        assert cell == exact // 1 or abs(exact - round(exact)) < Fraction(1, 10**6), "or within rounding of a border"


def test_few_values_have_cells_of_their_own() -> None:
    assert Equal(FEW, 8).cells(np.array([0, 1, 2])).tolist() == [0, 1, 2]


def test_fitted_cells_begin_at_their_borders() -> None:
    side = Fitted(LEARNED, 3)
    assert side.cells(np.array([0, 4, 5, 6, 7, 499, 500, 99_998, 99_999])).tolist() == [0, 0, 1, 2, 3, 3, 4, 4, 5]
    assert [side.first(cell) for cell in range(8)] == [0, 5, 6, 7, 500, 99_999, 100_000, 100_000]


GRIDS = [
    Grid(Space((REAL, COUNT, FEW)), bits=3),
    Grid(Space((REAL, COUNT, FEW)), bits=2, dims=["few", "price"]),
    Grid(Space((HUGE, TINY, POINT, ALL)), bits=5, dims="selective:2"),
    Grid(Space((LEARNED,)), bits=3, cells="fitted"),
]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@settings(max_examples=60)
@given(st.data())
def test_a_point_in_a_box_is_in_its_ranges(grid: Grid, data: st.DataObject) -> None:
    """The rule that everything rests on, also after bridging."""
    point, low, high = [], [], []
    for a in grid.space.attributes:
        ends = sorted(data.draw(st.lists(keys_in(a), min_size=3, max_size=3)))
        low.append(ends[0])
        point.append(ends[1])
        high.append(ends[2] + 1)
    ranges, bridged = grid.ranges(Box(tuple(low), tuple(high)).keys()[None], data.draw(st.integers(1, 300)))
    key = int(grid.keys(np.array([point]))[0])
    assert any(first <= key <= last for first, last in ranges.tolist())
    assert bridged >= 0
    cell = grid.box(key)
    assert cell is not None
    assert all(lo <= x < hi for lo, x, hi in zip(cell.lo, point, cell.hi, strict=True)), "and in its cell's box"


def test_attributes_are_chosen_by_name_or_by_selectivity() -> None:
    a, b, c = replace(REAL, selectivity=0.5), replace(COUNT, selectivity=0.01), FEW
    space = Space((c, a, b))
    assert Grid(space, dims=["count", "price"]).columns == (1, 2)
    assert Grid(space, dims="selective:1").columns == (2,)
    assert Grid(space, dims="selective:2").columns == (0, 2), "of three values each tells more than half"
    assert Grid(space, dims="selective:9").columns == (0, 1, 2)
    assert Grid(Space((FEW, REAL, COUNT, ALL))).columns == (1, 2, 3), "by default three, the domain says which"


def test_there_are_eight_bits_unless_there_is_no_room() -> None:
    many = Space(tuple(replace(REAL, name=f"x{i}") for i in range(20)))
    assert Grid(many).curve.bits == BITS
    assert Grid(many, dims="selective:20").curve.bits == 3


@pytest.mark.parametrize(
    ("more", "where", "says"),
    [
        ({"dims": ["nowhere"]}, "here.dims", "no such attribute"),
        ({"bits": 22}, "here.bits", "at most 63"),
        ({"cells": "fitted"}, "here.cells", "no borders for price"),
        ({"cells": "fitted", "dims": ["count"], "bits": 2}, "here.bits", "room for 3 borders, count has 5"),
    ],
)
def test_a_grid_that_breaks_a_rule_is_refused(more: dict[str, object], where: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Grid(Space((REAL, LEARNED, FEW)), where="here", **more)  # type: ignore[arg-type]
    assert caught.value.where == where
