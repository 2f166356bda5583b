"""The Hilbert curve: every cell once, each next to the one before; ranges are what enumerating the cells gives."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.curves.hilbert import Cells, Curve, Ranges, bridge_smallest, cell_count, merge

SMALL = [(1, 1), (1, 5), (2, 1), (2, 3), (3, 2), (4, 2), (5, 2), (7, 1), (8, 1)]
every_curve = pytest.mark.parametrize(("dims", "bits"), SMALL)


def enumerated(curve: Curve, boxes: Cells) -> list[int]:
    """The keys of all cells of boxes, one by one."""
    cells = {c for box in boxes.tolist() for c in product(*(range(lo, hi + 1) for lo, hi in zip(*box, strict=True)))}
    return sorted(curve.keys(np.array(sorted(cells))).tolist())


def merged(keys: list[int]) -> list[list[int]]:
    """Keys as maximal ranges."""
    ranges: list[list[int]] = []
    for key in keys:
        if ranges and ranges[-1][1] == key - 1:
            ranges[-1][1] = key
        else:
            ranges.append([key, key])
    return ranges


def boxes_in(curve: Curve, most: int = 1) -> st.SearchStrategy[Cells]:
    side = st.integers(0, (1 << curve.bits) - 1)
    box = st.tuples(*[st.tuples(side, side)] * curve.dims).map(lambda ends: np.sort(np.array(ends).T, axis=0))
    return st.lists(box, min_size=1, max_size=most).map(np.stack)


@every_curve
def test_every_cell_is_visited_once_and_each_is_next_to_the_one_before(dims: int, bits: int) -> None:
    curve = Curve(dims, bits)
    cells = curve.cells(np.arange(1 << (dims * bits)))
    assert len({tuple(cell) for cell in cells.tolist()}) == len(cells)
    assert cells.min() == 0
    assert cells.max() == (1 << bits) - 1
    assert (np.abs(np.diff(cells, axis=0)).sum(axis=1) == 1).all()
    assert (curve.keys(cells) == np.arange(len(cells))).all()


@pytest.mark.parametrize(("dims", "bits"), [(1, 63), (2, 31), (3, 21), (7, 9), (9, 7), (21, 3), (63, 1)])
def test_curves_of_63_bits_go_there_and_back_in_unit_steps(dims: int, bits: int) -> None:
    curve = Curve(dims, bits)
    last = (1 << (dims * bits)) - 1
    middles = np.random.default_rng(dims).integers(1, last, 200)
    keys = np.concatenate(([0, 1, last - 1, last], middles))
    cells = curve.cells(keys)
    assert (curve.keys(cells) == keys).all()
    assert (np.abs(cells[4:] - curve.cells(middles - 1)).sum(axis=1) == 1).all()
    whole = np.array([[0] * dims, [(1 << bits) - 1] * dims])
    assert curve.ranges(whole).tolist() == [[0, last]]
    assert curve.ranges(cells[3:4].repeat(2, axis=0)).tolist() == [[last, last]]


@every_curve
@settings(max_examples=40)
@given(st.data())
def test_ranges_are_the_cells_merged(dims: int, bits: int, data: st.DataObject) -> None:
    curve = Curve(dims, bits)
    box = data.draw(boxes_in(curve))[0]
    assert curve.ranges(box).tolist() == merged(enumerated(curve, box[None]))


@pytest.mark.parametrize("dims", [2, 3, 6, 7])
def test_ranges_of_a_batch_are_those_of_its_boxes(dims: int) -> None:
    curve = Curve(dims, 3)
    rng = np.random.default_rng(dims)
    boxes = np.sort(rng.integers(0, 8, (20, 2, dims)), axis=1)
    boxes[:, 1] = np.minimum(boxes[:, 1], boxes[:, 0] + 2)
    ranges, ends = curve.ranges_of(boxes)
    for box, begin, end in zip(boxes, [0, *ends.tolist()], ends.tolist(), strict=False):
        assert ranges[begin:end].tolist() == curve.ranges(box).tolist()
    assert len(curve.ranges_of(boxes[:0])[0]) == 0


@settings(max_examples=60)
@given(st.data())
def test_few_ranges_hold_all_cells_and_bridge_only_the_smallest_gaps(data: st.DataObject) -> None:
    curve = Curve(*data.draw(st.sampled_from([(2, 3), (3, 3), (4, 2)])))
    boxes, most = data.draw(boxes_in(curve, 3)), data.draw(st.integers(1, 12))
    ranges, bridged = curve.outer_ranges(boxes, most)
    exact = merge(curve.ranges_of(boxes)[0])
    held = set(enumerated(curve, boxes))
    given_ = {key for first, last in ranges.tolist() for key in range(first, last + 1)}
    assert held <= given_
    assert len(ranges) <= most
    assert merged(sorted(given_)) == ranges.tolist()
    assert bridged == len(given_) - len(held)
    if len(exact) <= most:
        assert bridged == 0
    left = (ranges[1:, 0] - ranges[:-1, 1]).tolist()
    gone = [b[0] - a[1] for a, b in zip(exact.tolist(), exact.tolist()[1:], strict=False)]
    assert len(ranges) == min(most, len(exact))
    assert sorted(left) == sorted(gone)[len(gone) - len(left) :]


def test_a_wide_box_in_4d_neither_explodes_nor_loses_a_cell() -> None:
    """A side of 500 of 1024 cells would be millions of ranges."""
    curve = Curve(4, 10)
    box = np.array([[300] * 4, [799] * 4])
    ranges, bridged = curve.outer_ranges(box[None], 64)
    assert len(ranges) <= 64
    assert bridged == cell_count(ranges) - 500**4 > 0
    corners = np.array(list(product((300, 799), repeat=4)))
    inside = np.random.default_rng(1).integers(300, 800, (2000, 4))
    for key in curve.keys(np.concatenate((corners, inside))).tolist():
        at = np.searchsorted(ranges[:, 0], key, side="right") - 1
        assert ranges[at, 0] <= key <= ranges[at, 1]
    assert (curve.outer_ranges(box[None], 64)[0] == ranges).all(), "the same each time, so that it can be taken back"


@pytest.mark.parametrize(("dims", "bits"), [(0, 3), (3, 0), (8, 8), (64, 1), (1, 64)])
def test_there_is_no_curve_beyond_63_bits(dims: int, bits: int) -> None:
    with pytest.raises(ValueError, match="must be 1 to 63"):
        Curve(dims, bits)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=8), st.integers(1, 9))
def test_merging_and_bridging(pairs: list[tuple[int, int]], most: int) -> None:
    ranges: Ranges = np.array([(first, first + more) for first, more in pairs], np.int64).reshape(-1, 2)
    cells = sorted({key for first, last in ranges.tolist() for key in range(first, last + 1)})
    union = merge(ranges)
    assert union.tolist() == merged(cells)
    assert cell_count(union) == len(cells)
    few = bridge_smallest(union, most)
    assert len(few) == min(most, len(union))
    assert {*cells} <= {key for first, last in few.tolist() for key in range(first, last + 1)}


def test_where_the_first_of_two_boxes_is_too_much_both_are_still_held() -> None:
    """A box that needs too many halves must not take the boxes after it along."""
    curve = Curve(dims=4, bits=8)
    large, small = np.array([[1] * 4, [250] * 4]), np.array([[0, 0, 0, 3], [0, 0, 0, 3]])
    for boxes in (np.stack((large, small)), np.stack((small, large)), np.stack((large, large, small))):
        ranges, _ = curve.outer_ranges(boxes, 16)
        corners = curve.keys(np.concatenate((large, small)))
        assert 1 <= len(ranges) <= 16
        assert all(((ranges[:, 0] <= key) & (key <= ranges[:, 1])).any() for key in corners)
