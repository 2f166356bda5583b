"""Boolean filters: trees, the boxes that they are, bytes and text, against cell enumeration."""

from __future__ import annotations

import tracemalloc
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import StateError
from state.filters import trees as trees_module
from state.filters.pruning import fitted, terms
from state.filters.trees import (
    EVERYTHING,
    MOST_TERMS,
    NOTHING,
    And,
    Filter,
    Leaf,
    Or,
    all_boxes,
    boxes_of,
    conjunction,
    disjunction,
    holds,
    leaves,
    of_boxes,
    pack_tree,
    pmin,
    to_text,
    unpack_tree,
)
from state.filters.where import parse
from state.geometry.boxes import Box, Boxes, check_disjoint, stack
from state.space import Attribute, Corner, Space, float_key

SIDE = 5
DIMS = 3
SPACE = Space(tuple(Attribute(f"x{i}", "int", 0, SIDE - 1) for i in range(DIMS)))
POINTS: list[Corner] = list(product(range(SIDE), repeat=DIMS))

leaf = st.builds(
    lambda i, ends: Leaf(i, min(ends), max(ends) + 1),
    st.integers(0, DIMS - 1),
    st.tuples(st.integers(0, SIDE - 1), st.integers(0, SIDE - 1)),
)


def trees(most: int = 12) -> st.SearchStrategy[Filter]:
    """Tidy trees, some of them nothing or everything."""
    return st.recursive(
        leaf,
        lambda below: st.builds(
            lambda join, parts: join(parts, SPACE),
            st.sampled_from([conjunction, disjunction]),
            st.lists(below, max_size=4),
        ),
        max_leaves=most,
    )


def cells(tree: Filter) -> set[Corner]:
    return {point for point in POINTS if holds(tree, point)}


def is_tidy(tree: Filter) -> bool:
    if isinstance(tree, Leaf):
        return 0 <= tree.lo < tree.hi <= SIDE
    if not tree.children:
        return True
    sides = [c.attribute for c in tree.children if isinstance(c, Leaf)]
    alone = isinstance(tree, Or) or len(set(sides)) == len(sides)
    apart = isinstance(tree, And) or all(
        a.hi < b.lo or b.hi < a.lo
        for k, a in enumerate(tree.children)
        for b in tree.children[k + 1 :]
        if isinstance(a, Leaf) and isinstance(b, Leaf) and a.attribute == b.attribute
    )
    inner = all(is_tidy(c) and type(c) is not type(tree) and c not in (EVERYTHING, NOTHING) for c in tree.children)
    partial = all(not isinstance(c, Leaf) or c.hi - c.lo < SIDE for c in tree.children)
    return len(tree.children) > 1 and alone and apart and inner and partial


def joined_naively(boxes: list[tuple[Corner, Corner]]) -> list[tuple[Corner, Corner]]:
    """Join the first pair that can be, the last box into the place of the second, and begin again."""
    boxes = list(boxes)
    for k, j in combinations(range(len(boxes)), 2):
        (a_lo, a_hi), (b_lo, b_hi) = boxes[k], boxes[j]
        differ = [i for i in range(DIMS) if (a_lo[i], a_hi[i]) != (b_lo[i], b_hi[i])]
        if len(differ) == 1 and (a_hi[differ[0]] == b_lo[differ[0]] or b_hi[differ[0]] == a_lo[differ[0]]):
            boxes[k] = tuple(map(min, a_lo, b_lo)), tuple(map(max, a_hi, b_hi))
            boxes[j] = boxes[-1]
            return joined_naively(boxes[:-1])
    return boxes


@given(st.permutations(POINTS), st.integers(0, 60))
def test_boxes_are_joined_as_if_begun_again_after_each(points: list[Corner], count: int) -> None:
    cells = [(point, tuple(x + 1 for x in point)) for point in points[:count]]
    boxes = np.array(cells, np.int64).reshape(-1, 2, DIMS)
    assert trees_module._joined(boxes).tolist() == [list(map(list, box)) for box in joined_naively(cells)]


@given(st.lists(st.tuples(*[st.tuples(st.integers(0, 4), st.integers(1, 5))] * DIMS), max_size=20))
def test_maximal_boxes_are_those_that_no_other_contains(sides: list[tuple[tuple[int, int], ...]]) -> None:
    boxes = [([lo for lo, _ in box], [lo + size for lo, size in box]) for box in sides]

    def inside(a: int, b: int) -> bool:
        return all(boxes[a][0][i] >= boxes[b][0][i] and boxes[a][1][i] <= boxes[b][1][i] for i in range(DIMS))

    places = range(len(boxes))
    kept = [k for k in places if not any(inside(k, j) and (j < k or not inside(j, k)) for j in places if j != k)]
    found = trees_module._maximal(np.array(boxes, np.int64).reshape(-1, 2, DIMS))
    assert found.tolist() == [list(map(list, boxes[k])) for k in kept]


def test_comparing_terms_takes_little_memory() -> None:
    """All pairs of 2,048 boxes at once would be 129 MB."""
    boxes = np.random.default_rng(1).integers(0, 1000, (2048, 2, 16))
    boxes[:, 1] += boxes[:, 0] + 1
    trees_module._maximal(boxes[:2])
    tracemalloc.start()
    trees_module._maximal(boxes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000


def test_making_boxes_disjoint_ends_where_it_would_take_too_long() -> None:
    """In many attributes the pieces of a single box multiply, if all boxes have a point in common."""
    wide = Space(tuple(Attribute(f"x{i}", "int", 0, 1000) for i in range(12)))
    ends = np.random.default_rng(1).integers(1, 500, (80, 2, 12)) + np.array([[[0], [500]]])
    tree = disjunction([of_boxes((Box(tuple(lo), tuple(hi)),), wide) for lo, hi in ends.tolist()], wide)
    assert boxes_of(tree, wide, MOST_TERMS) is None
    assert len(fitted(tree, wide)[1]) <= 64


@settings(max_examples=150)
@given(st.lists(trees(), max_size=4))
def test_joined_trees_are_tidy_and_mean_what_they_say(parts: list[Filter]) -> None:
    every, some = conjunction(parts, SPACE), disjunction(parts, SPACE)
    assert cells(every) == set(POINTS).intersection(*map(cells, parts))
    assert cells(some) == set().union(*map(cells, parts))
    assert is_tidy(every) or isinstance(every, Leaf)
    assert is_tidy(some) or isinstance(some, Leaf)


@settings(max_examples=200)
@given(trees())
def test_boxes_are_disjoint_and_exactly_the_tree(tree: Filter) -> None:
    boxes = boxes_of(tree, SPACE)
    assert boxes is not None
    check_disjoint(stack(boxes, DIMS), "boxes")
    assert {
        p for p in POINTS for b in boxes if all(lo <= k < hi for lo, k, hi in zip(b.lo, p, b.hi, strict=True))
    } == cells(tree)
    assert boxes_of(tree, SPACE) == boxes
    assert cells(of_boxes(boxes, SPACE)) == cells(tree)


@settings(max_examples=150)
@given(trees())
def test_all_boxes_are_exactly_the_tree(tree: Filter) -> None:
    boxes = all_boxes(tree, SPACE)
    assert {
        p for p in POINTS for b in boxes if all(lo <= k < hi for lo, k, hi in zip(b.lo, p, b.hi, strict=True))
    } == cells(tree)


def test_all_boxes_are_as_many_as_it_takes() -> None:
    wide = Space(tuple(Attribute(f"x{i}", "int", 0, 99) for i in range(12)))
    alternatives = [Or((Leaf(i, 0, 3), Leaf(i, 50, 53))) for i in range(12)]
    assert len(all_boxes(conjunction(alternatives, wide), wide)) == 2**12


def test_boxes_that_would_be_far_more_if_they_were_disjoint_may_overlap() -> None:
    wide, chance = Space(tuple(Attribute(f"x{i}", "int", 0, 9) for i in range(5))), np.random.default_rng(3)
    sides = np.sort(chance.integers(0, 9, (100, 5, 2)), axis=2).tolist()
    tree = Or(tuple(And(tuple(Leaf(i, lo, hi + 2) for i, (lo, hi) in enumerate(box))) for box in sides))
    assert boxes_of(tree, wide, MOST_TERMS) is None
    boxes = all_boxes(tree, wide)
    assert len(boxes) <= 100
    for point in map(tuple, chance.integers(0, 10, (300, 5)).tolist()):
        held = any(all(lo <= k < hi for lo, k, hi in zip(b.lo, point, b.hi, strict=True)) for b in boxes)
        assert held == holds(tree, point)


def test_boxes_are_few() -> None:
    """Abutting pieces are joined, what another contains is dropped."""
    tree = disjunction([Leaf(0, 0, 2), conjunction([Leaf(0, 2, 4), Leaf(1, 0, 5)], SPACE), Leaf(0, 4, 5)], SPACE)
    assert boxes_of(tree, SPACE) == (Box((0,) * DIMS, (SIDE,) * DIMS),)
    inside = Or((Leaf(0, 0, 3), And((Leaf(0, 1, 2), Leaf(1, 1, 2)))))
    assert boxes_of(inside, SPACE) == (Box((0, 0, 0), (3, SIDE, SIDE)),)
    assert boxes_of(NOTHING, SPACE) == ()


@settings(max_examples=150)
@given(trees(20), st.integers(1, 4))
def test_what_is_too_many_boxes_is_generalised_until_it_fits(tree: Filter, most: int) -> None:
    general, boxes = fitted(tree, SPACE, most)
    assert len(boxes) <= most
    assert cells(tree) <= cells(general)
    assert boxes == boxes_of(general, SPACE, most)
    if (exact := boxes_of(tree, SPACE, most)) is not None:
        assert (general, boxes) == (tree, exact)


def test_an_explosion_is_given_up_and_fitted() -> None:
    wide = Space(tuple(Attribute(f"x{i}", "int", 0, 99) for i in range(12)))
    tree = conjunction([Or((Leaf(i, 0, 3), Leaf(i, 50, 53))) for i in range(12)], wide)
    assert terms(tree) == 2**12
    assert boxes_of(tree, wide) is None
    general, boxes = fitted(tree, wide)
    assert len(boxes) == 64, "six alternatives of two are left"
    assert len(list(leaves(general))) == 12


def volume_of(boxes: Boxes, space: Space) -> float:
    return sum(space.share(box.lo, box.hi) for box in boxes)


@pytest.mark.parametrize("more", [None, Leaf(1, 0, 500)], ids=["alone", "below an AND"])
def test_no_more_boxes_are_joined_than_are_too_many(more: Leaf | None) -> None:
    """100 intervals; the 36 smallest gaps are bridged, wherever they are, and no others."""
    line = Space(tuple(Attribute(name, "int", 0, 99_999) for name in "ab"))
    gaps = np.random.default_rng(1).permutation(np.arange(1, 101)).tolist()
    begins = np.cumsum([gap + 3 for gap in gaps]).tolist()
    tree = conjunction([Or(tuple(Leaf(0, begin, begin + 3) for begin in begins)), *([more] if more else [])], line)
    general, boxes = fitted(tree, line)
    assert len(boxes) == 64 == terms(general)
    exact = boxes_of(tree, line, 100)
    assert exact is not None
    bridged = sum(sorted(gaps[1:])[:36])
    share = 1.0 if more is None else (more.hi - more.lo) / 100_000
    assert volume_of(boxes, line) - volume_of(exact, line) == pytest.approx(bridged / 100_000 * share)


@settings(max_examples=60)
@given(st.integers(0, 9999), st.integers(2, 40), st.integers(1, 8))
def test_disjoint_boxes_become_just_as_many_as_fit(seed: int, count: int, most: int) -> None:
    """Far apart in a line, so that no box around two meets a third."""
    line, chance = Space(tuple(Attribute(name, "int", 0, 999) for name in "ab")), np.random.default_rng(seed)
    lows = chance.integers(0, 990, count).tolist()
    tree = Or(tuple(And((Leaf(0, 20 * k, 20 * k + 9), Leaf(1, low, low + 5))) for k, low in enumerate(lows)))
    general, boxes = fitted(tree, line, most)
    assert len(boxes) == min(most, count)
    assert boxes == boxes_of(general, line)


@settings(max_examples=150)
@given(trees())
def test_bytes_and_back(tree: Filter) -> None:
    assert unpack_tree(pack_tree(tree), DIMS) == tree


@settings(max_examples=100)
@given(trees(), st.data())
def test_damaged_bytes_are_refused_or_a_tree(tree: Filter, data: st.DataObject) -> None:
    packed = np.frombuffer(pack_tree(tree), "<i8").copy()
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(-(2**63), 2**63 - 1))
    try:
        again = unpack_tree(packed.tobytes()[: data.draw(st.integers(0, 8 * len(packed)))], DIMS)
        assert unpack_tree(pack_tree(again), DIMS) == again
    except StateError as error:
        assert "Remedy" in str(error)


@settings(max_examples=150)
@given(trees())
def test_text_is_read_back_as_the_same_tree(tree: Filter) -> None:
    if tree in (EVERYTHING, NOTHING) or (isinstance(tree, Leaf) and tree.hi - tree.lo == SIDE):
        return
    assert parse(SPACE, to_text(tree, SPACE)) == tree


def test_text_of_every_kind_of_value() -> None:
    space = Space(
        (
            Attribute("f", "float", float_key(-1.0), float_key(1.0)),
            Attribute("it's", "category", 0, 2, ("a", "b's", "c")),
            Attribute("t", "timestamp", 0, 10**12),
            Attribute("or", "int", 0, 9),
        )
    )
    tree = And((Leaf(0, float_key(0.1), float_key(0.25) + 1), Leaf(1, 1, 3), Leaf(2, 5, 10**12 + 1), Leaf(3, 4, 5)))
    text = to_text(tree, space)
    assert text == (
        "f BETWEEN 0.1 AND 0.25 AND \"it's\" IN ('b''s', 'c') AND t >= '1970-01-01T00:00:00.000005Z' AND \"or\" = 4"
    )
    assert parse(space, text) == tree
    assert [to_text(tree, space) for tree in (EVERYTHING, NOTHING)] == ["everything", "nothing"]


@settings(max_examples=100)
@given(trees())
def test_fewer_predicates_than_pmin_never_suffice(tree: Filter) -> None:
    for point in POINTS[:: len(POINTS) // 25]:
        fulfilled = sum(holds(one, point) for one in leaves(tree))
        assert not holds(tree, point) or fulfilled >= pmin(tree)


def test_a_stored_filter_that_is_none() -> None:
    for numbers in ([], [-5, 0, 1, 2], [9, 1, 2], [0, 2, 1], [0, 1, 2, 3], [-3] * 40):
        with pytest.raises(StateError, match="Remedy"):
            unpack_tree(np.array(numbers, "<i8").tobytes(), DIMS)
