"""The benchmark's own arithmetic: matches by every tree, counts, who is reached on a line, where a curve bends."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import pruning
from bench.all_trees import AllTrees
from bench.pruning import BROKERS, _bend, brokers_reached, tally
from state.filters.pruning import natural
from state.filters.trees import EVERYTHING, NOTHING, Filter, holds
from state.matching.predicates import Predicates
from tests.core.naive import name
from tests.core.test_filters import POINTS, SPACE, trees

GRID = np.array(POINTS, np.int64)
some_trees = st.lists(trees().filter(lambda tree: tree not in (EVERYTHING, NOTHING)), min_size=1, max_size=8)


@settings(max_examples=40)
@given(some_trees)
def test_every_tree_is_looked_at(filters: list[Filter]) -> None:
    found = AllTrees(filters, partial(natural, SPACE)).matching(GRID)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == [
        (k, n) for k, point in enumerate(POINTS) for n, tree in enumerate(filters) if holds(tree, point)
    ]


@settings(max_examples=40)
@given(some_trees, st.integers(1, 200))
def test_a_tally_counts_matches_and_marks_labels(filters: list[Filter], at_once: int) -> None:
    index = Predicates(SPACE, ((name(k), tree) for k, tree in enumerate(filters)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "TALLIED", at_once)
        held, seen = tally(index, GRID, np.arange(len(filters)) % 3, 3)
    for k, point in enumerate(POINTS):
        holding = [n for n, tree in enumerate(filters) if holds(tree, point)]
        assert held[k] == len(holding)
        assert np.flatnonzero(seen[k]).tolist() == sorted({n % 3 for n in holding})


def test_an_event_reaches_everybody_between_its_source_and_those_who_want_it() -> None:
    chance = np.random.default_rng(1)
    wanted, sources = chance.random((200, BROKERS)) < 0.3, chance.integers(BROKERS, size=200)
    for row, source, reached in zip(wanted, sources.tolist(), brokers_reached(wanted, sources).tolist(), strict=True):
        here = {source}
        for step in (1, -1):
            place = source
            while any(row[k] for k in range(place + step, BROKERS if step > 0 else -1, step)):
                place += step
                here.add(place)
        assert len(here) == reached


def test_a_bend_is_where_a_curve_hangs_lowest() -> None:
    assert _bend((0, 0.25, 0.5, 0.75, 1.0), [0, 0, 0, 0.1, 1.0]) == 0.75
    assert _bend((0, 0.05, 0.5, 1.0), [0, 0, 1, 1.0]) == 0.05
