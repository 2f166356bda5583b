"""Counted ranges against an array of counts, cell by cell; and the blocks that they lie in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.curves import blocks
from state.curves.blocks import Blocks
from state.curves.hilbert import Ranges
from state.curves.ranges import NONE, RangeTable, difference, without
from state.errors import InvariantError

SIZE = 40
TOP = 2**63 - 1


def mask(ranges: Ranges) -> np.ndarray:
    cells = np.zeros(SIZE, bool)
    for first, last in ranges.tolist():
        assert not cells[first : last + 1].any(), "ranges are disjoint"
        cells[first : last + 1] = True
    return cells


@st.composite
def some_ranges(draw: st.DrawFn) -> Ranges:
    """Sorted disjoint ranges, adjacent ones too."""
    ends = sorted(draw(st.sets(st.integers(0, SIZE), min_size=2, max_size=8)))
    pairs = [(a, b - 1) for a, b in pairwise(ends)]
    return np.array([pair for pair in pairs if draw(st.booleans())] or pairs[:1], np.int64)


@settings(max_examples=150)
@given(st.data())
def test_a_table_is_an_array_of_counts(data: st.DataObject) -> None:
    table, counts, held = RangeTable(), np.zeros(SIZE, np.int64), list[Ranges]()
    for _ in range(data.draw(st.integers(1, 12))):
        before = counts > 0
        if held and data.draw(st.booleans()):
            ranges = held.pop(data.draw(st.integers(0, len(held) - 1)))
            counts -= mask(ranges)
            assert (mask(table.remove(ranges)) == (before & (counts == 0))).all()
        else:
            ranges = data.draw(some_ranges())
            held.append(ranges)
            counts += mask(ranges)
            assert (mask(table.add(ranges)) == (~before & (counts > 0))).all()
        table.check()
        assert (table.holds(np.arange(SIZE)) == (counts > 0)).all()
        assert (mask(table.union()) == (counts > 0)).all()
        asked = data.draw(some_ranges())
        assert (mask(table.uncovered(asked)) == (mask(asked) & (counts == 0))).all()
        key = data.draw(st.integers(0, SIZE - 1))
        covered = np.flatnonzero(counts).tolist()
        assert table.before(key) == max((c for c in covered if c < key), default=-1)
        assert table.after(key) == min((c for c in covered if c > key), default=-1)
        again = RangeTable(table.rows())
        again.check()
        assert (again.rows() == table.rows()).all()
    for ranges in held:
        table.remove(ranges)
    assert len(table) == 0
    assert table.union().shape == NONE.shape


def test_the_union_is_maximal() -> None:
    table = RangeTable()
    table.add(np.array([[0, 3], [4, 6]]))
    table.add(np.array([[7, 9]]))
    assert table.union().tolist() == [[0, 9]]
    assert len(table) == 2


def test_the_largest_key_is_a_key_like_any_other() -> None:
    table = RangeTable()
    assert table.add(np.array([[TOP - 1, TOP]])).tolist() == [[TOP - 1, TOP]]
    assert table.add(np.array([[0, TOP]])).tolist() == [[0, TOP - 2]]
    assert table.holds(np.array([0, TOP])).all()
    assert table.remove(np.array([[TOP - 1, TOP]])).tolist() == []
    assert table.remove(np.array([[0, TOP]])).tolist() == [[0, TOP]]
    assert len(table) == 0


def test_what_was_not_asked_for_cannot_be_taken_back() -> None:
    table = RangeTable()
    table.add(np.array([[2, 5]]))
    with pytest.raises(InvariantError, match=r"not asked for.*Remedy"):
        table.remove(np.array([[4, 6]]))


@pytest.mark.parametrize(
    "rows", [[[0, 1]], [[0, 1], [3, 1], [5, 0]], [[0, -1], [3, 0]], [[3, 1], [2, 0]], [[0, 0], [2, 1], [4, 0]]]
)
def test_a_damaged_table_is_noticed(rows: list[list[int]]) -> None:
    with pytest.raises(InvariantError):
        RangeTable(np.array(rows)).check()


def test_many_rows_spread_over_blocks_and_come_together_again() -> None:
    table, rng = RangeTable(), np.random.default_rng(1)
    keys = rng.permutation(4000) * 3
    for key in keys.tolist():
        table.add(np.array([[key, key + 1]]))
    table.check()
    full = table._blocks.count
    assert len(table) == 8000
    assert full > 8000 // blocks.ROOM
    assert table.holds(np.sort(keys)).all()
    assert not table.holds(np.sort(keys) + 2).any()
    for key in rng.permutation(keys)[:-10].tolist():
        table.remove(np.array([[key, key + 1]]))
    table.check()
    assert len(table) == 20
    assert table._blocks.count <= 3, "blocks that became small were joined"


def test_a_wide_range_over_many_blocks() -> None:
    table = RangeTable(np.stack((np.arange(0, 6000, 2), np.tile([1, 0], 1500)), axis=1))
    gained = table.add(np.array([[0, 10_000]]))
    assert len(gained) == 1501
    table.check()
    assert table.union().tolist() == [[0, 10_000]]
    assert (table.remove(np.array([[0, 10_000]])) == gained).all()


def test_counts_that_are_lifted_together_are_counts_cell_by_cell() -> None:
    """Wide ranges over many blocks come and go among narrow ones."""
    rng, cells = np.random.default_rng(5), 20_000
    narrow = np.arange(0, cells, 8)[:, None] + np.array([[0, 3]])
    table, counts = RangeTable.of(narrow), np.zeros(cells, np.int64)
    for first, last in narrow.tolist():
        counts[first : last + 1] += 1
    asked: list[tuple[int, int]] = []
    for k in range(400):
        if asked and rng.random() < 0.45:
            first, last = asked.pop(int(rng.integers(len(asked))))
            changed, by = table.remove(np.array([[first, last]])), -1
        else:
            first, last = sorted(rng.integers(0, cells, 2).tolist()) if k % 2 else (k * 40, k * 40 + 90)
            asked.append((first, last))
            changed, by = table.add(np.array([[first, last]])), 1
        before = counts > 0
        counts[first : last + 1] += by
        turned = np.flatnonzero(before != (counts > 0))
        assert (
            np.concatenate([np.arange(a, b + 1) for a, b in changed.tolist()] or [turned[:0]]).tolist()
            == turned.tolist()
        )
        table.check()
        assert (table.holds(np.arange(cells)) == (counts > 0)).all()
        probe = int(rng.integers(cells))
        held = np.flatnonzero(counts > 0)
        assert table.after(probe) == min(held[held > probe], default=-1)
        assert table.before(probe) == max(held[held < probe], default=-1)
    steps = np.diff(np.concatenate(([0], counts, [0])))
    expected = np.stack((np.flatnonzero(steps) - 1, np.cumsum(steps)[steps != 0]), axis=1)
    assert table.rows().tolist() == expected.tolist()


def test_blocks_that_disagree_with_their_directory_are_noticed() -> None:
    rows = np.stack((np.arange(1000), np.arange(1000)), axis=1)
    for damage in ("head", "size", "order", "rows"):
        some = Blocks(2, rows)
        some.check()
        assert (some.flat() == rows).all()
        getattr(some, damage).flat[1] = -7
        with pytest.raises(InvariantError):
            some.check()


@settings(max_examples=60)
@given(some_ranges(), some_ranges())
def test_difference_is_cell_by_cell(new: Ranges, old: Ranges) -> None:
    added, removed = difference(new, old)
    assert (mask(added) == (mask(new) & ~mask(old))).all()
    assert (mask(removed) == (mask(old) & ~mask(new))).all()
    assert len(without(new, new)) == 0


def test_the_whole_curve_is_a_table_like_any_other() -> None:
    """From -1 to 2^63 - 1 is no int64."""
    table = RangeTable()
    table.add(np.array([[0, TOP]]))
    RangeTable(table.rows()).check()
    assert table.remove(np.array([[0, TOP]])).tolist() == [[0, TOP]]


def test_rows_out_of_order_are_found() -> None:
    with pytest.raises(InvariantError, match="not in order"):
        RangeTable(np.array([[3, 1], [2, 2], [5, 0]])).check()
    with pytest.raises(InvariantError, match="one place"):
        RangeTable(np.array([[3, 1], [3, 2], [5, 0]])).check()


def test_a_change_of_many_ranges_leaves_little_memory() -> None:
    table = RangeTable()
    many = np.arange(16_384)[:, None] * 4 + np.array([[0, 1]])
    table.add(many)
    table.check()
    assert table._blocks.rows.nbytes < 8 * table.rows().nbytes


@settings(max_examples=30)
@given(st.data())
def test_there_is_room_when_every_block_is_full(data: st.DataObject) -> None:
    """As many insertions as it takes to cut each block of a table that has no room left, and some more."""
    size = data.draw(st.integers(1, 6)) * blocks.ROOM
    table = RangeTable()
    full = Blocks(2, np.stack((np.arange(size) * 100, np.arange(size) % 2 + 1), axis=1))
    parts = np.split(full.flat(), size // blocks.ROOM)
    full.count = len(parts)
    full.rows, full.order = np.zeros((len(parts), 2, blocks.ROOM), np.int64), np.arange(len(parts))
    full.head, full.size = np.zeros(len(parts), np.int64), np.full(len(parts), blocks.ROOM)
    for k, part in enumerate(parts):
        full.rows[k], full.head[k] = part.T, part[0, 0]
    full.rows[-1, 1, -1] = 0
    table._blocks, table._lifts = full, np.zeros((len(parts), 2), np.int64)
    wanted = data.draw(st.integers(1, 3 * blocks.ROOM))
    places = np.sort(
        np.random.default_rng(data.draw(st.integers(0, 99))).choice(size - 1, min(wanted, size - 1), False)
    )
    table.add(places[:, None] * 100 + np.array([[3, 5]]))
    table.check()
    assert len(table._blocks.order) >= table._blocks.count
