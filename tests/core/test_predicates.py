"""Counting predicates finds exactly the filters that hold, whatever is counted and however the index was built."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import InvariantError
from state.filters.trees import EVERYTHING, NOTHING, And, Filter, Leaf, Or, boxes_of, holds
from state.geometry.boxes import Shape, unstack
from state.matching import predicates as module
from state.matching.clients import Clients
from state.matching.predicates import Counted, Predicates, compiled
from state.protocol.messages import Name
from state.space import Attribute, Space
from tests.core.naive import name
from tests.core.test_filters import DIMS, POINTS, SPACE, trees

GRID = np.array(POINTS, np.int64)
real = trees().filter(lambda tree: tree not in (EVERYTHING, NOTHING))


def expected(kept: dict[Name, Filter]) -> list[tuple[int, Name]]:
    return [(k, n) for k, point in enumerate(POINTS) for n, tree in kept.items() if holds(tree, point)]


@pytest.mark.parametrize("counted", ["few", "all"])
@settings(max_examples=20)
@given(data=st.data())
def test_any_history_is_matched_exactly(counted: Counted, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEWEST_WAITING", data.draw(st.integers(0, 6)))
        index, kept = Predicates(SPACE, counted=counted), dict[Name, Filter]()
        for number in range(data.draw(st.integers(1, 20))):
            if kept and data.draw(st.integers(0, 2)) == 0:
                gone = data.draw(st.sampled_from(list(kept)))
                index.remove(gone)
                del kept[gone]
            else:
                kept[name(number)] = data.draw(real)
                index.add(name(number), kept[name(number)])
        index.check(kept)
        assert list(index) == list(kept)
        pairs = expected(kept)
        assert list(zip(*index.holders(GRID), strict=True)) == pairs
        assert np.flatnonzero(index.holds_any(GRID)).tolist() == sorted({k for k, _ in pairs})


def test_jumps_are_those_drawn_at_the_head_of_the_module() -> None:
    a, b, c = Leaf(0, 0, 1), Leaf(1, 0, 3), Leaf(2, 0, 2)
    code, needed = compiled(And((a, Or((b, c)))), lambda leaf: {a: 0.2, b: 0.6, c: 0.4}[leaf], "few")
    assert code == [(0, 0, 1, 1, -2, True), (1, 0, 3, -1, 2, False), (2, 0, 2, -1, -2, False)]
    assert needed == 1
    code, needed = compiled(And((a, Or((b, c)))), lambda leaf: 0.5, "all")
    assert [row[-1] for row in code] == [True] * 3
    assert needed == 2


def test_a_predicate_that_stands_twice_counts_twice() -> None:
    """(a OR b) AND (a OR c) needs two of its four predicates, and a alone fulfils two."""
    a, b, c = Leaf(0, 0, 1), Leaf(1, 0, 1), Leaf(2, 0, 1)
    index = Predicates(SPACE, [(name(1), And((Or((a, b)), Or((a, c)))))], counted="all")
    assert index.holds_any(np.array([[0, 4, 4], [4, 0, 0], [4, 0, 4]])).tolist() == [True, True, False]


def test_counts_begin_anew_before_they_overflow() -> None:
    index = Predicates(SPACE, [(name(1), And((Leaf(0, 0, 1), Leaf(1, 0, 1))))], counted="all")
    for base in (2**62 - 1, 2**62 + 1):
        index._base = base
        assert index.holds_any(np.array([[0, 0, 0], [0, 1, 0]])).tolist() == [True, False]


def test_a_name_is_added_once() -> None:
    index = Predicates(SPACE, [(name(1), Leaf(0, 0, 1))])
    with pytest.raises(InvariantError, match="already holds it"):
        index.add(name(1), Leaf(0, 0, 2))


@settings(max_examples=60)
@given(st.data())
def test_clients_are_matched_in_order_of_arrival_whatever_index_they_are_in(data: st.DataObject) -> None:
    arrived = dict[Name, int]()
    clients, kept = Clients(SPACE, arrived.__getitem__), dict[Name, Filter]()
    for number in range(data.draw(st.integers(1, 12))):
        if kept and data.draw(st.integers(0, 3)) == 0:
            gone = data.draw(st.sampled_from(list(kept)))
            clients.remove(gone)
            del kept[gone]
            continue
        tree = data.draw(real)
        kept[name(number)], arrived[name(number)] = tree, number
        given = data.draw(st.sampled_from([(None, None), (tree, None), (tree, tree)]))
        clients.add(name(number), boxes_of(tree, SPACE) or (), *given)
        clients.check()
    again = Clients(SPACE, arrived.__getitem__, [(n, Shape.of_keys(clients.keys(n))) for n in clients], clients.exact)
    for one in (clients, again):
        assert list(one) == list(kept)
        assert list(zip(*one.holders(GRID), strict=True)) == expected(kept)
        assert all(one.boxes(n) == unstack(np.empty((0, 2, DIMS), np.int64)) for n in one.exact)


def test_rare_filters_lie_among_predicates_others_as_boxes() -> None:
    """One value in ten thousand is rare; half a domain is not."""
    wide = Space((Attribute("a", "int", 0, 9_999), Attribute("b", "int", 0, 9_999)))
    clients = Clients(wide, [name(0), name(1)].index)
    for number, side in enumerate((1, 5_000)):
        tree = And((Leaf(0, 7, 7 + side), Or((Leaf(1, 0, 10), Leaf(1, 100, 110)))))
        clients.add(name(number), boxes_of(tree, wide) or (), tree)
    assert list(clients.exact) == [name(0)]
    assert clients.holders(np.array([[7, 105], [8, 105], [7, 50]])) == ([0, 0, 1], [name(0), name(1), name(1)])
