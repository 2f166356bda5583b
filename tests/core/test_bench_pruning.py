"""The benchmark's own arithmetic: matches by every tree, counts, who is reached on a line, where a curve bends."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.all_trees import AllTrees
from bench.papers import pruning
from bench.papers.pruning import BROKERS, reached_on_line, tally
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


def test_an_event_goes_on_as_long_as_each_broker_knows_somebody_beyond() -> None:
    chance = np.random.default_rng(1)
    beyond, sources = chance.random((BROKERS, 200, 3)) < 0.6, chance.integers(BROKERS, size=200)
    for event, (source, reached) in enumerate(zip(sources.tolist(), reached_on_line(beyond, sources), strict=True)):
        here = {source}
        for step, side in ((1, 2), (-1, 0)):
            place = source
            while 0 <= place + step < BROKERS and beyond[place, event, side]:
                place += step
                here.add(place)
        assert set(np.flatnonzero(reached).tolist()) == here
