"""The index of ranges against a plain list, and `hybrid`, which must answer as its inner strategy does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import parse
from state.curves.rangeindex import RangeIndex
from state.errors import ConfigError, InvariantError
from state.geometry.boxes import unstack
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.strategies import Spec
from state.strategies.hybrid import Hybrid
from tests.core import naive
from tests.core.histories import config_text
from tests.core.test_ranges import some_ranges


@settings(max_examples=80)
@given(st.data())
def test_the_index_finds_whose_ranges_meet(data: st.DataObject) -> None:
    index, held = RangeIndex(), dict[int, Any]()
    for owner in range(data.draw(st.integers(1, 10))):
        held[owner] = data.draw(some_ranges())
        index.add(held[owner], owner)
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(list(held)))
            index.remove(held.pop(gone), gone)
        index.check()
        asked = data.draw(some_ranges())
        meet = [o for o, rs in held.items() if any(a <= d and c <= b for a, b in rs for c, d in asked)]
        assert index.meeting(asked) == meet
    for owner, ranges in held.items():
        index.remove(ranges, owner)
    assert len(index) == 0


def test_many_owners_over_many_blocks() -> None:
    rng = np.random.default_rng(1)
    firsts = rng.integers(0, 500, 3000)
    ranges = {k: np.array([[first, first + int(rng.integers(40))]]) for k, first in enumerate(firsts.tolist())}
    index = RangeIndex()
    for owner, one in ranges.items():
        index.add(one, owner)
    for owner in rng.permutation(3000)[:1500].tolist():
        index.remove(ranges.pop(owner), owner)
    index.check()
    for a in range(0, 540, 7):
        meet = [o for o, one in ranges.items() if one[0, 0] <= a + 3 and one[0, 1] >= a]
        assert index.meeting(np.array([[a, a + 3]])) == meet


def test_what_is_not_in_the_index_cannot_be_removed() -> None:
    index = RangeIndex()
    index.add(np.array([[3, 5]]), 0)
    for first, owner in ((3, 1), (4, 0), (2, 0)):
        with pytest.raises(InvariantError):
            index.remove(np.array([[first, 5]]), owner)


@pytest.mark.parametrize("inner", ["auto", "union", "negative", "cover"])
@pytest.mark.parametrize("dims", [["x0"], ["x1", "x2"], "selective:3"])
def test_hybrid_answers_as_its_inner_strategy_does(inner: str, dims: object) -> None:
    rng = np.random.default_rng(3)
    space, active = naive.space_of(naive.Box.of(naive.domain(3))), BoxList(3)
    spec = Spec.of({"name": "hybrid", "inner": inner, "dims": dims, "bits": 2}, "test")
    hybrid, plain = spec.build(space, active), Spec(inner).build(space, active)
    answers = []
    for k in range(150):
        shape = unstack(naive.random_shape(rng, 3))
        ours, theirs = hybrid.decide(shape), plain.decide(shape)
        assert (ours.covered, ours.reason) == (theirs.covered, theirs.reason)
        answers.append(ours.covered)
        if not ours.covered:
            one = naive.name(k)
            active.add(one, shape)
            for strategy in (hybrid, plain):
                strategy.added(one, shape)
        if len(active) and rng.random() < 0.5:
            gone = list(active)[int(rng.integers(len(active)))]
            shape = active.boxes(gone)
            active.remove(gone)
            for strategy in (hybrid, plain):
                strategy.removed(gone, shape)
        hybrid.check()
    assert {True, False} == set(answers)


def test_auto_inside_is_exact_through_all_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a glance of `union` decides nothing, rectangles are made of what the index found, or given up."""
    monkeypatch.setattr("state.strategies.auto.HARD", 1)
    for most in (4096, 3):
        monkeypatch.setattr("state.strategies.auto.MOST_RECTANGLES", most)
        test_hybrid_answers_as_its_inner_strategy_does("auto", ["x1", "x2"])


def test_too_many_candidates_are_decided_by_union_on_the_whole_list(monkeypatch: pytest.MonkeyPatch) -> None:
    for many in (0, 2):
        monkeypatch.setattr("state.strategies.hybrid.MANY", many)
        test_hybrid_answers_as_its_inner_strategy_does("auto", ["x1", "x2"])


def test_the_box_around_many_boxes_finds_all_that_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state.strategies.hybrid.MOST_CELLS", 0)
    test_hybrid_answers_as_its_inner_strategy_does("auto", ["x1", "x2"])
    space, active = naive.space_of(naive.Box((0, 0), (1024, 1024))), BoxList(2)
    hybrid = Spec("hybrid").build(space, active)
    assert isinstance(hybrid, Hybrid)
    corners = tuple(naive.Box((x, y), (x + 8, y + 8)) for x in (0, 600) for y in (0, 600))
    active.add(naive.name(0), corners)
    hybrid.added(naive.name(0), corners)
    assert hybrid.candidates((naive.Box((300, 300), (301, 301)),)) == [naive.name(0)]
    assert hybrid.candidates((naive.Box((1000, 1000), (1001, 1001)),)) == []
    active.remove(naive.name(0))
    hybrid.removed(naive.name(0), corners)
    hybrid.check()


def test_only_what_shares_a_cell_is_looked_at() -> None:
    """Subscriptions in the corners of a large space: a question in one corner sees the ones there."""
    space, active = naive.space_of(naive.Box((0,) * 5, (1024,) * 5)), BoxList(5)
    hybrid = Spec.of({"name": "hybrid", "dims": ["x0", "x3"]}, "test").build(space, active)
    assert isinstance(hybrid, Hybrid)
    for k in range(400):
        low = tuple((k + i) % 2 * 900 + k // 4 for i in range(5))
        boxes = (naive.Box(low, tuple(x + 10 for x in low)),)
        active.add(naive.name(k), boxes)
        hybrid.added(naive.name(k), boxes)
    found = hybrid.candidates((naive.Box((0,) * 5, (5, 1024, 1024, 1024, 1024)),))
    assert found == [n for n in active if active.keys(n)[0, 0, 0] < 5 or active.keys(n)[0, 0, 0] // 4 <= 1]
    assert 0 < len(found) < 20
    verdict = hybrid.decide((naive.Box((0,) * 5, (5,) * 5),))
    assert verdict.nodes < 20


def test_places_of_the_gone_are_given_up() -> None:
    space, active = naive.space_of(naive.Box.of(naive.domain(2))), BoxList(2)
    hybrid = Spec("hybrid").build(space, active)
    assert isinstance(hybrid, Hybrid)
    names: list[Name] = []
    for k in range(500):
        names.append(naive.name(k))
        active.add(names[-1], unstack(naive.domain(2)[None]))
        hybrid.added(names[-1], active.boxes(names[-1]))
        if k % 10:
            boxes = active.boxes(names[-1])
            active.remove(names[-1])
            hybrid.removed(names[-1], boxes)
    hybrid.check()
    assert len(hybrid._entries) < 60
    assert hybrid.candidates(unstack(naive.domain(2)[None])) == list(active)


@pytest.mark.parametrize(
    ("table", "where"),
    [
        ({"inner": "flood"}, "here.inner"),
        ({"inner": "hybrid"}, "here.inner"),
        ({"inner": "mics"}, "here.inner"),
        ({"inner": "nonsense"}, "here.inner"),
        ({"inner": 3}, "here.inner"),
        ({"inner": {"name": "union", "budget": 0}}, "here.inner.budget"),
        ({"inner": {"name": "union", "covering": "active"}}, "here.inner"),
        ({"bits": 64}, "here.bits"),
        ({"dims": ["x", "x"]}, "here.dims"),
        ({"dims": "x"}, "here.dims"),
        ({"gap": 3}, "here.gap"),
    ],
)
def test_a_bad_parameter_is_refused(table: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Spec.of({"name": "hybrid", **table}, "here")
    assert caught.value.where == where


def test_its_grid_is_checked_with_the_configuration_and_it_mixes_freely() -> None:
    with pytest.raises(ConfigError, match="no such attribute"):
        parse(config_text([("b0", "b1")], '{name = "hybrid", dims = ["nowhere"]}'))
    parse(config_text([("b0", "b1")], '"auto"', {"b0>b1": '{name = "hybrid", bits = 3}'}))


def test_a_specification_in_words() -> None:
    spec = Spec.of({"name": "hybrid", "inner": {"name": "union", "budget": 5}, "dims": ["x"]}, "here")
    assert str(spec) == "hybrid dims=x inner=(union budget=5)"
