"""Jafarpour et al., "Subscription Subsumption Evaluation": its figures and propositions, as published."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.geometry.boxes import Box, subtract
from state.geometry.negative import NegativeRtree, NegativeTree
from state.matching.boxlist import BoxList
from state.strategies.negative import Negative
from tests.core import naive
from tests.core.naive import keys, name

DOMAIN = Box((0, 0), (1001, 1001))
S1 = Box((175, 180), (511, 681))
S2 = Box((405, 110), (841, 541))
S3 = Box((380, 230), (721, 496))

both_kinds = pytest.mark.parametrize("kind", [NegativeTree, NegativeRtree])
both_orders = pytest.mark.parametrize("by_overlap", [False, True], ids=["fixed", "overlap"])
Kind = type[NegativeTree] | type[NegativeRtree]


@both_orders
@both_kinds
def test_figures_2_3_and_5_one_four_seven_seven_and_s3_is_subsumed(kind: Kind, by_overlap: bool) -> None:
    space = kind(DOMAIN.keys(), by_overlap=by_overlap)
    counts, subsumed = [space.count], []
    for s in (S1, S2, S3):
        subsumed.append(space.gap(s.keys()) is None)
        if not subsumed[-1]:
            space.cover(s.keys())
        counts.append(space.count)
        space.check()
    assert counts == [1, 4, 7, 7]
    assert subsumed == [False, False, True]


@pytest.mark.parametrize("index", ["tree", "rtree"])
@pytest.mark.parametrize("order", ["fixed", "overlap"])
def test_figure_2_s3_is_covered_by_s1_and_s2_together_but_by_neither(index: str, order: str) -> None:
    active = BoxList(2)
    strategy = Negative(naive.space_of(DOMAIN), active, index, order)  # type: ignore[arg-type]
    for k, s in ((1, S1), (2, S2)):
        assert not strategy.decide((s,)).covered
        active.add(name(k), (s,))
        strategy.added(name(k), (s,))
    verdict = strategy.decide((S3,))
    assert verdict.covered
    assert set(verdict.coverers) == {name(1), name(2)}


@both_orders
def test_figure_3_one_split_makes_four_rectangles_around_s1(by_overlap: bool) -> None:
    pieces = subtract(DOMAIN.keys(), S1.keys(), by_overlap=by_overlap)
    assert len(pieces) == 4
    if not by_overlap:
        left, right = [[0, 0], [175, 1001]], [[511, 0], [1001, 1001]]
        assert pieces.tolist() == [left, right, [[175, 0], [511, 180]], [[175, 681], [511, 1001]]]


@both_orders
@both_kinds
@naive.few
@given(naive.boxes(2, 6), naive.box(2))
def test_proposition_1_subsumed_exactly_when_no_negative_rectangle_is_met(
    kind: Kind, by_overlap: bool, boxes: np.ndarray, s: np.ndarray
) -> None:
    space = kind(naive.domain(2), by_overlap=by_overlap)
    for box in boxes:
        space.cover(box)
    met = any(naive.meets(s, rectangle) for rectangle in space.rectangles())
    assert met == (space.gap(s) is not None) == (not naive.covered(s, boxes))


@both_orders
@pytest.mark.parametrize("kind", [NegativeTree, NegativeRtree])
@pytest.mark.parametrize("dims", [2, 3, 4])
def test_proposition_2_a_split_makes_at_most_2d_minus_1_more(dims: int, kind: Kind, by_overlap: bool) -> None:
    rng = np.random.default_rng(dims)
    space = kind(naive.domain(dims, 9), by_overlap=by_overlap)
    for _ in range(12):
        s = naive.random_box(rng, dims, 9)
        split = sum(bool(((r[0] < s[1]) & (s[0] < r[1])).all()) for r in space.rectangles())
        before = space.count
        space.cover(s)
        assert space.count <= before + split * (2 * dims - 1)


@both_orders
@both_kinds
@pytest.mark.parametrize("dims", [2, 3, 4])
def test_proposition_2_is_reached_by_a_subscription_strictly_inside(dims: int, kind: Kind, by_overlap: bool) -> None:
    space = kind(naive.domain(dims, 9), by_overlap=by_overlap)
    space.cover(keys((3,) * dims, (6,) * dims))
    assert space.count == 2 * dims


@both_orders
@given(st.data())
def test_proposition_3_n_ranges_leave_at_most_2n_plus_1_ranges(by_overlap: bool, data: st.DataObject) -> None:
    boxes = data.draw(naive.boxes(1, 8, 20))
    space = NegativeTree(naive.domain(1, 20), by_overlap=by_overlap)
    for box in boxes:
        space.cover(box)
    cuts, shape = space.dump()
    ranges = int((shape < 0).sum())
    assert ranges == len(cuts) + 1 <= 2 * len(boxes) + 1
    assert space.count <= len(boxes) + 1


def test_proposition_3_is_reached_by_ranges_apart() -> None:
    space = NegativeTree(naive.domain(1, 20), by_overlap=False)
    for k in range(5):
        space.cover(keys((4 * k + 1,), (4 * k + 2,)))
    assert len(space.dump()[1]) == 2 * 11 - 1
    assert space.count == 6


@both_orders
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_theorems_1_and_2_at_most_2n_plus_1_to_the_power_of_d_rectangles(dims: int, by_overlap: bool) -> None:
    """All tiles of the domain, covered and negative: the leaves of the tree, which no rectangle of the proof splits."""
    rng = np.random.default_rng(dims)
    size = {1: 20, 2: 9, 3: 7}[dims]
    for n in (1, 2, 3, 5, 8):
        space = NegativeTree(naive.domain(dims, size), by_overlap=by_overlap)
        for _ in range(n):
            space.cover(naive.random_box(rng, dims, size))
        tiles = int((space.dump()[1] < 0).sum())
        assert space.count <= tiles <= (2 * n + 1) ** dims


@both_orders
@both_kinds
@pytest.mark.parametrize(("dims", "slabs"), [(2, 3), (2, 6), (3, 2), (3, 4)])
def test_theorem_2_is_reached_but_for_a_constant_by_crossing_slabs(
    dims: int, slabs: int, kind: Kind, by_overlap: bool
) -> None:
    """d times as many slabs as there are in each attribute leave a grid: (n / d + 1)^d rectangles, in any order."""
    side = 2 * slabs + 1
    space = kind(naive.domain(dims, side), by_overlap=by_overlap)
    for i in range(dims):
        for k in range(slabs):
            slab = naive.domain(dims, side).copy()
            slab[:, i] = 2 * k + 1, 2 * k + 2
            space.cover(slab)
    assert space.count == (slabs + 1) ** dims


@both_orders
@both_kinds
def test_figure_7_unsubscribing_gives_back_only_what_nobody_else_covers(kind: Kind, by_overlap: bool) -> None:
    space, active = kind(DOMAIN.keys(), by_overlap=by_overlap), BoxList(2)
    for k, s in ((1, S1), (2, S2)):
        space.cover(s.keys())
        active.add(name(k), (s,))
    active.remove(name(2))
    space.uncover(active.without(S2.keys(), by_overlap=by_overlap))
    assert space.gap(S1.keys()) is None
    gap = space.gap(S3.keys())
    assert gap is not None
    assert gap[0, 0] >= S1.hi[0]
    area = sum(int(np.prod(r[1] - r[0])) for r in space.rectangles())
    assert area == 1001 * 1001 - 336 * 501
    active.remove(name(1))
    space.uncover(active.without(S1.keys(), by_overlap=by_overlap))
    assert sum(int(np.prod(r[1] - r[0])) for r in space.rectangles()) == 1001 * 1001
    space.check()
