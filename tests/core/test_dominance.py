"""The k-d tree on boxes as points: the earliest container, through additions, removals and joins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from state.errors import InvariantError
from state.geometry import dominance
from state.geometry.dominance import Dominance, points_of
from state.space import Keys
from tests.core import naive


def earliest(held: dict[int, Keys], q: Keys) -> int | None:
    """The twin: look at all, in order."""
    return next((slot for slot, box in held.items() if naive.contains(box, q)), None)


@pytest.fixture(params=[(4, 1, 4), (64, 3, 1024)], ids=["small runs", "as set"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    tail, growth, first = request.param
    monkeypatch.setattr(dominance, "TAIL", tail)
    monkeypatch.setattr(dominance, "GROWTH", growth)
    monkeypatch.setattr(dominance, "FIRST", first)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_dominating_is_containing(dims: int) -> None:
    rng = np.random.default_rng(dims)
    for _ in range(200):
        a, b = naive.random_box(rng, dims), naive.random_box(rng, dims)
        pa, pb = points_of(np.stack((a, b)))
        assert bool((pa >= pb).all()) == naive.contains(a, b)


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_earliest_container_is_found_while_boxes_come_and_go(dims: int) -> None:
    rng = np.random.default_rng(dims)
    tree, held = Dominance(dims), dict[int, Keys]()
    for slot in range(400):
        box = naive.random_box(rng, dims, 5)
        tree.add(slot, box)
        held[slot] = box
        if rng.random() < 0.4:
            gone = list(held)[int(rng.integers(len(held)))]
            del held[gone]
            tree.remove(gone)
        q = naive.random_box(rng, dims, 5)
        assert tree.first(q)[0] == earliest(held, q)
        if slot % 25 == 0:
            tree.check()
            assert tree.held()[0].tolist() == list(held)
    for gone in list(held):
        tree.remove(gone)
    tree.check()
    assert tree.first(naive.domain(dims))[0] is None


@settings(max_examples=60)
@given(naive.boxes(2, 40), naive.box(2))
def test_filled_at_once_or_one_by_one_the_answer_is_the_same(boxes: Keys, q: Keys) -> None:
    for shape in (lambda box: box, naive.spread):
        at_once, one_by_one = Dominance(2, np.arange(len(boxes)), shape(boxes)), Dominance(2)
        for slot, box in enumerate(shape(boxes)):
            one_by_one.add(slot, box)
        expected = earliest(dict(enumerate(boxes)), q)
        assert at_once.first(shape(q))[0] == one_by_one.first(shape(q))[0] == expected


def test_many_boxes_are_cut_into_runs_that_grow() -> None:
    rng = np.random.default_rng(1)
    lo = rng.integers(0, 900, (9000, 2))
    boxes = np.stack((lo, lo + rng.integers(1, 100, (9000, 2))), axis=1)
    tree = Dominance(2, np.arange(9000), boxes)
    tree.check()
    for q in boxes[rng.integers(0, 9000, 200)]:
        inside = (boxes[:, 0] <= q[0]).all(axis=1) & (boxes[:, 1] >= q[1]).all(axis=1)
        assert tree.first(q)[0] == int(inside.argmax())


def test_few_nodes_of_many_are_looked_at() -> None:
    rng = np.random.default_rng(2)
    lo = rng.integers(0, 10**6, (20_000, 2))
    tree = Dominance(2, np.arange(20_000), np.stack((lo, lo + 5_000), axis=1))
    looked = [tree.first(np.stack((q, q + 4_990)))[1] for q in lo[:50]]
    assert np.mean(looked) < 300


@pytest.mark.parametrize("slot", [0, 7, 99])
def test_what_is_not_held_cannot_be_removed(slot: int) -> None:
    tree = Dominance(1, np.array([5]), np.array([[[0], [9]]]))
    with pytest.raises(InvariantError):
        tree.remove(slot)
    tree.remove(5)
    with pytest.raises(InvariantError):
        tree.remove(5)


def test_a_wrong_summary_is_noticed() -> None:
    tree = Dominance(1, np.arange(3), np.array([[[0], [9]], [[1], [5]], [[2], [3]]]))
    tree.check()
    tree._runs[0].largest[1, 0] += 1
    with pytest.raises(InvariantError):
        tree.check()
