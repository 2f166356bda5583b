"""The Z curve against twins that list every cell, and every cube of the greedy partition."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.papers.zcurve_costs import cubes_by_level, cubes_needed, runs_needed
from bench.papers.zcurve_keys import ListedKeys, keys_of_level
from state.curves.zcurve import (
    ENOUGH,
    EVERYTHING,
    FOUND,
    SPENT,
    Cells,
    ZCurve,
    _enter,
    _leave,
    z_less,
)
from state.errors import InvariantError
from state.geometry.boxes import Box
from state.space import Attribute, Keys, float_key
from state.strategies.zcurve import cell

BITS = 3
Cell = tuple[int, ...]


def rank(point: Cell, bits: int = BITS) -> int:
    """The place on the curve: the bits interleaved, the first coordinate's first."""
    return int("".join(str(c >> b & 1) for b in range(bits - 1, -1, -1) for c in point), 2)


def curve_cells(axes: int, bits: int = BITS) -> list[Cell]:
    """All cells in the order of the curve."""
    return sorted(product(range(1 << bits), repeat=axes), key=lambda point: rank(point, bits))


def points(axes: int, bits: int = BITS) -> st.SearchStrategy[Cell]:
    return st.tuples(*[st.integers(0, (1 << bits) - 1)] * axes)


def array(point: Cell) -> Cells:
    return np.array(point, np.int64)


# The order and the jumps


@pytest.mark.parametrize("axes", [1, 2, 3])
@given(st.data())
def test_the_order_is_that_of_the_interleaved_bits(axes: int, data: st.DataObject) -> None:
    a, b = data.draw(points(axes)), data.draw(points(axes))
    assert z_less(array(a), array(b)) == (rank(a) < rank(b))


@pytest.mark.parametrize("axes", [1, 2, 3])
@given(st.data())
def test_entering_goes_to_the_first_cell_of_the_region(axes: int, data: st.DataObject) -> None:
    point, corner = data.draw(points(axes)), data.draw(points(axes))
    target = array(point)
    inside = all(p >= c for p, c in zip(point, corner, strict=True))
    assert _enter(array(point), array(corner), target) == (not inside)
    if not inside:
        later = (c for c in curve_cells(axes) if rank(c) > rank(point) and (array(c) >= array(corner)).all())
        assert tuple(target.tolist()) == next(later)


@pytest.mark.parametrize("axes", [1, 2, 3])
@given(st.data())
def test_leaving_goes_to_the_first_cell_after_the_cube(axes: int, data: st.DataObject) -> None:
    point, level = data.draw(points(axes)), data.draw(st.integers(0, BITS))
    target = array(point)
    after = [c for c in curve_cells(axes) if rank(c) >> level * axes > rank(point) >> level * axes]
    assert _leave(array(point), level, BITS, target) == bool(after)
    if after:
        assert tuple(target.tolist()) == after[0]


# The greedy partition


def greedy(corner: Cell, bits: int) -> Iterator[tuple[int, list[Cell]]]:
    """The paper's partition, by listing: the largest standard cubes inside what is left, in the order of the curve."""
    taken: set[Cell] = set()
    axes = len(corner)
    for level in range(bits, -1, -1):
        cubes: dict[int, list[Cell]] = {}
        for point in curve_cells(axes, bits):
            cubes.setdefault(rank(point, bits) >> level * axes, []).append(point)
        for cells in cubes.values():
            if not taken & set(cells) and all((array(c) >= array(corner)).all() for c in cells):
                taken |= set(cells)
                yield level, cells


@settings(max_examples=60)
@given(st.data())
def test_the_counts_are_those_of_the_greedy_partition(data: st.DataObject) -> None:
    axes = data.draw(st.integers(1, 3))
    corner = data.draw(points(axes))
    sides = [(1 << BITS) - c for c in corner]
    cubes = list(greedy(corner, BITS))
    by_level = {level: sum(one == level for one, _ in cubes) for level, _ in cubes}
    assert dict(cubes_by_level(sides)) == by_level
    assert cubes_needed(sides) == len(cubes)
    epsilon = data.draw(st.sampled_from([0.01, 0.1, 0.3, 0.7]))
    searched, needed = 0, 0
    while searched < (1 - Fraction(epsilon)) * math.prod(sides):
        searched += len(cubes[needed][1])
        needed += 1
    assert cubes_needed(sides, epsilon) == needed
    ranks = sorted(rank(c) for _, cells in cubes for c in cells)
    assert runs_needed(sides, BITS) == 1 + sum(b != a + 1 for a, b in pairwise(ranks))


# The search


def universe(rng: np.random.Generator, axes: int, count: int, bits: int) -> tuple[ZCurve, Cells]:
    cells = rng.integers(0, 1 << bits, (count, axes))
    curve = ZCurve(axes, bits)
    curve.fill(np.arange(count), cells)
    return curve, cells


def as_boxes(cells: Cells, bits: int) -> Keys:
    """Boxes whose points are these cells: attribute i begins at minus the even coordinate and ends at the odd one."""
    low, high = -cells[:, ::2] - 1, cells[:, 1::2] + 1
    return np.ascontiguousarray(np.stack((low, high), axis=1))


@pytest.mark.parametrize("axes", [2, 4])
def test_without_epsilon_the_search_is_exact(axes: int) -> None:
    rng = np.random.default_rng(axes)
    ends = set()
    for _ in range(150):
        curve, cells = universe(rng, axes, int(rng.integers(0, 60)), BITS)
        q = rng.integers(0, 1 << BITS, axes)
        boxes = as_boxes(cells, BITS)
        end, slot, _ = curve.search(q, boxes, as_boxes(q[None], BITS)[0], 0.0, 10**6)
        above = (cells >= q).all(axis=1)
        assert end == (FOUND if above.any() else EVERYTHING)
        assert not above.any() or above[slot]
        ends.add(end)
    assert ends == {FOUND, EVERYTHING}


@pytest.mark.parametrize("at_share", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3])
def test_what_the_listed_cubes_hold_is_found_in_their_order(epsilon: float, at_share: bool) -> None:
    """The twin looks at every cube, empty ones too; where it finds somebody, so does the search, and the same one.

    The other way round it holds with `at_share`, which ends at the very cube at which the twin ends.
    """
    rng = np.random.default_rng(7)
    found = 0
    for _ in range(150):
        curve, cells = universe(rng, 2, int(rng.integers(1, 12)), BITS)
        q = rng.integers(0, 1 << BITS, 2)
        share, expected = 0.0, None
        for _, cube in greedy(tuple(q.tolist()), BITS):
            if share >= 1 - epsilon or expected is not None:
                break
            share += len(cube) / float(((1 << BITS) - q).prod())
            expected = next((s for s in curve.slots().tolist() if tuple(cells[s].tolist()) in cube), None)
        box = as_boxes(q[None], BITS)[0]
        end, slot, _ = curve.search(q, as_boxes(cells, BITS), box, epsilon, 10**6, at_share=at_share)
        if expected is not None:
            assert (end, slot) == (FOUND, expected)
            found += 1
        elif epsilon:
            assert end in ((ENOUGH, EVERYTHING) if at_share else (ENOUGH, FOUND, EVERYTHING))
        else:
            assert end == EVERYTHING
    assert found > 30


@settings(max_examples=60)
@given(st.data())
def test_the_listed_keys_are_those_of_the_greedy_partition(data: st.DataObject) -> None:
    axes = data.draw(st.integers(1, 3))
    corner = data.draw(points(axes))
    sides = [(1 << BITS) - c for c in corner]
    listed = {level: sorted(keys_of_level(sides, level, BITS)) for level in range(BITS + 1)}
    expected: dict[int, list[int]] = {level: [] for level in range(BITS + 1)}
    for level, cube in greedy(corner, BITS):
        first = min(rank(c) for c in cube)
        expected[level].append(first >> level * axes)
    assert listed == {level: sorted(keys) for level, keys in expected.items()}


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_the_search_by_listed_keys_and_the_walk_that_stops_at_the_share_find_alike(epsilon: float) -> None:
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(100):
        curve, cells = universe(rng, 4, int(rng.integers(1, 25)), BITS)
        q = rng.integers(0, 1 << BITS, 4)
        listed, _ = ListedKeys(cells, BITS).search(q.tolist(), epsilon, 10**6, sort=True)
        box = as_boxes(q[None], BITS)[0]
        end, slot, _ = curve.search(q, as_boxes(cells, BITS), box, epsilon, 10**6, at_share=True)
        assert (end == FOUND) == bool(listed)
        assert end != FOUND or slot in listed
        hits += bool(listed)
    assert 10 < hits < 95


def test_a_spent_budget_ends_the_search() -> None:
    curve = ZCurve(2, BITS)
    cells = np.array([[4, 5]] * 20)
    curve.fill(np.arange(20), cells)
    wrong = np.repeat(np.array([[[0], [1]]]), 20, axis=0)
    q = np.array([[-9], [9]])
    assert curve.search(array((4, 4)), wrong, q, 0.0, 5) == (SPENT, -1, 5)
    assert curve.search(array((4, 4)), wrong, q, 0.0, 100)[0] == EVERYTHING


def test_points_come_and_go_and_stay_in_order() -> None:
    rng = np.random.default_rng(3)
    curve, held = ZCurve(4, 2), dict[int, Cell]()
    for first in range(0, 900, 3):
        slots = np.arange(first, first + int(rng.integers(1, 4)))
        cells = rng.integers(0, 4, (len(slots), 4))
        curve.add(slots, cells)
        held |= {slot: (*some,) for slot, some in zip(slots.tolist(), cells.tolist(), strict=True)}
        if rng.random() < 0.5:
            gone = rng.permutation(list(held))[: int(rng.integers(1, 5))]
            curve.remove(np.sort(gone))
            held = {slot: some for slot, some in held.items() if slot not in gone}
        curve.check()
        assert curve.slots().tolist() == sorted(held, key=lambda s: (rank(held[s], 2), s))
    missing = next(slot for slot in range(300) if slot not in held)
    with pytest.raises(InvariantError):
        curve.remove(np.array([missing]))


def test_points_out_of_order_are_noticed() -> None:
    curve = ZCurve(1, 2)
    curve.fill(np.arange(2), np.array([[1], [2]]))
    curve._order[:2] = [1, 0]
    with pytest.raises(InvariantError):
        curve.check()


# Cells


@pytest.mark.parametrize(
    "attribute",
    [
        Attribute("i", "int", -5, 90),
        Attribute("one", "int", 3, 3),
        Attribute("wide", "int", -(2**63) + 2, 2**63 - 2),
        Attribute("f", "float", float_key(-2.5), float_key(1e3)),
        Attribute("all", "float", float_key(-1.7976931348623157e308), float_key(1.7976931348623157e308)),
        Attribute("c", "category", 0, 2, ("a", "b", "c")),
    ],
    ids=lambda a: a.name,
)
@given(st.data())
def test_cells_grow_with_the_key_and_fill_the_domain(attribute: Attribute, data: st.DataObject) -> None:
    key = st.integers(attribute.low, attribute.high)
    a, b = sorted((data.draw(key), data.draw(key)))
    bits = data.draw(st.integers(1, 32))
    assert 0 <= cell(attribute, a, bits) <= cell(attribute, b, bits) < 1 << bits
    assert cell(attribute, attribute.low, bits) == 0
    if attribute.high > attribute.low:
        assert cell(attribute, attribute.high, 1) == 1


def test_boxes_used_here_dominate_as_their_cells_do() -> None:
    rng = np.random.default_rng(9)
    for _ in range(100):
        a, b = rng.integers(0, 8, (2, 4))
        outer, inner = (Box.of(box) for box in as_boxes(np.stack((a, b)), BITS))
        contained = all(x <= y for x, y in zip(outer.lo, inner.lo, strict=True)) and all(
            x >= y for x, y in zip(outer.hi, inner.hi, strict=True)
        )
        assert contained == bool((a >= b).all())
