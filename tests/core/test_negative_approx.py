"""Approximate negative rectangles: never too few, at most k more for each subscription, and every part of the domain
either negative or attributed to somebody who covers it; rebuilt in steps that nobody has to wait for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import StateError
from state.geometry import attributed
from state.geometry.attributed import Attributed, Select
from state.geometry.boxes import Box, unstack
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.space import Attribute, Keys, Space, float_key
from state.strategies import Dump, Spec
from state.strategies import negative_approx as module
from state.strategies.negative_approx import NegativeApprox
from tests.core import naive
from tests.core.naive import keys, name

SIZES = {1: 6, 2: 6, 3: 4}
SELECTS: tuple[Select, ...] = ("ratio", "benefit", "cost")
every_select = pytest.mark.parametrize("select", SELECTS)
all_dims = pytest.mark.parametrize("dims", SIZES)


@dataclass
class World:
    """A strategy on its active list, beside the plain boxes."""

    dims: int = 2
    options: dict[str, Any] = field(default_factory=dict)
    held: dict[Name, Keys] = field(default_factory=dict)
    serial: int = 0

    def __post_init__(self) -> None:
        self.domain = naive.domain(self.dims, SIZES[self.dims])
        self.active = BoxList(self.dims)
        self.strategy = self._built()

    def _built(self) -> NegativeApprox:
        return NegativeApprox(naive.space_of(Box.of(self.domain)), self.active, **self.options)

    def add(self, shape: Keys) -> Name:
        self.serial += 1
        one = name(self.serial)
        self.active.add(one, unstack(shape))
        self.held[one] = shape
        self.strategy.added(one, unstack(shape))
        return one

    def remove(self, one: Name) -> None:
        shape = self.held.pop(one)
        self.active.remove(one)
        self.strategy.removed(one, unstack(shape))

    def store(self) -> None:
        dump = self.strategy.dump()
        self.active = BoxList(self.dims, [(one, self.active.keys(one)) for one in self.active])
        self.strategy = self._built()
        self.strategy.restore(dump)

    def uncovered(self) -> naive.Cells:
        return naive.cells(self.domain) - naive.union(box for shape in self.held.values() for box in shape)

    def negative(self) -> naive.Cells:
        return naive.union(self.strategy.negative.rectangles())

    def check(self) -> None:
        """The invariants, cell by cell, and again by the structure itself."""
        self.strategy.check()
        kept = self.strategy.negative
        covered_by = {
            one: naive.union(leaves_of(kept, number, self.domain)) for one, number in self.strategy._numbers.items()
        }
        assert covered_by.keys() == self.held.keys()
        for one, cells in covered_by.items():
            assert cells <= naive.union(self.held[one])
        parts = [self.negative(), *covered_by.values()]
        assert sum(map(len, parts)) == len(set().union(*parts)) == len(naive.cells(self.domain))
        assert self.negative() >= self.uncovered()
        assert kept.count == len(kept.rectangles())


def random_steps(world: World, seed: int, steps: int, cancel: float = 0.4) -> None:
    rng = np.random.default_rng([seed, world.dims])
    for _ in range(steps):
        if world.held and rng.random() < cancel:
            world.remove(list(world.held)[int(rng.integers(len(world.held)))])
        else:
            world.add(naive.random_shape(rng, world.dims, SIZES[world.dims]))
        world.check()


# Subscribing: Fig. 8


@all_dims
@every_select
@pytest.mark.parametrize("unsubscribe", ["approximate", "exact"])
def test_every_part_is_negative_or_attributed_and_nothing_uncovered_is_missed(
    dims: int, select: Select, unsubscribe: str
) -> None:
    for k in (0, 1, 4):
        random_steps(World(dims, {"k": k, "select": select, "unsubscribe": unsubscribe}), k, 40)


@pytest.mark.parametrize("limit", ["negative_approx.LOOKS", "attributed.MOST_NODES"])
@pytest.mark.parametrize("most", [0, 40, 10_000, 20_000])
def test_with_few_looks_or_nodes_nothing_uncovered_is_missed(
    limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = "state.strategies." if "LOOKS" in limit else "state.geometry."
    monkeypatch.setattr(room + limit, most)
    world = World(2, {"k": 5})
    random_steps(world, 7, 60)
    if "LOOKS" in limit and most == 0:
        assert world.strategy.negative_rectangles == 1


def test_a_tree_of_the_largest_size_is_not_split_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state.geometry.attributed.MOST_NODES", 0)
    world = World(2, {"k": 50})
    world.add(np.array([[[1, 1], [3, 3]]]))
    assert world.strategy.negative_rectangles == 1
    world.add(world.domain[None])
    assert world.strategy.negative_rectangles == 0


@all_dims
@every_select
@pytest.mark.parametrize("order", ["overlap", "fixed"])
def test_a_subscription_makes_at_most_k_new_rectangles(dims: int, select: Select, order: str) -> None:
    for k in (0, 1, 2, 5):
        world = World(dims, {"k": k, "select": select, "order": order})
        rng = np.random.default_rng(k)
        for _ in range(25):
            before = world.strategy.negative_rectangles
            world.add(naive.random_shape(rng, dims, SIZES[dims]))
            assert world.strategy.negative_rectangles <= before + k


@all_dims
def test_the_dynamic_bound_is_for_all_active_ones_together(dims: int) -> None:
    rng = np.random.default_rng(dims)
    world = World(dims, {"k": 3, "bound": "dynamic"})
    for i in range(1, 30):
        before = world.strategy.negative_rectangles
        world.add(naive.random_shape(rng, dims, SIZES[dims]))
        assert world.strategy.negative_rectangles <= max(before, 3 * i)
        world.check()


def test_the_dynamic_bound_lets_later_ones_use_what_earlier_ones_left() -> None:
    """Three strips at the border are free; the fourth may then make 4 · 1 - 1 new rectangles instead of 1."""
    for bound, rectangles in (("constant", 1), ("dynamic", 4)):
        world = World(2, {"k": 1, "bound": bound})
        for lo, hi in (((0, 0), (6, 1)), ((0, 5), (6, 6)), ((0, 1), (1, 5)), ((2, 2), (4, 4))):
            world.add(keys(lo, hi)[None])
        assert world.strategy.negative_rectangles == rectangles


@all_dims
def test_with_room_for_all_it_is_exact(dims: int) -> None:
    world = World(dims, {"k": 10**6, "drift": 0})
    rng = np.random.default_rng(dims)
    for _ in range(30):
        world.add(naive.random_shape(rng, dims, SIZES[dims]))
        if rng.random() < 0.3:
            world.remove(list(world.held)[int(rng.integers(len(world.held)))])
        assert world.negative() == world.uncovered()


@settings(max_examples=60)
@given(st.data())
def test_a_yes_is_an_exact_yes(data: st.DataObject) -> None:
    options = {
        "k": data.draw(st.integers(0, 4)),
        "select": data.draw(st.sampled_from(SELECTS)),
        "unsubscribe": data.draw(st.sampled_from(["approximate", "exact"])),
    }
    world = World(2, options)
    for _ in range(data.draw(st.integers(1, 8))):
        world.add(data.draw(naive.box(2))[None])
        if data.draw(st.integers(0, 3)) == 0:
            world.remove(data.draw(st.sampled_from(list(world.held))))
        q = data.draw(naive.box(2))
        verdict = world.strategy.decide((Box.of(q),))
        if verdict.covered:
            assert naive.cells(q) <= naive.union(box for one in verdict.coverers for box in world.held[one])
        else:
            assert verdict.reason == "possible gap"
            assert verdict.witness is not None
            assert naive.cells(verdict.witness.keys()) <= naive.cells(q) & world.negative()


def test_figure_8_a_split_beyond_k_is_not_made_but_a_cheaper_one_after_it_is() -> None:
    """The middle of the whole domain costs 3, so with k = 2 it waits; a strip at the border is free."""
    world = World(2, {"k": 2})
    world.add(keys((2, 2), (4, 4))[None])
    assert (world.strategy.negative_rectangles, len(world.negative())) == (1, 36)
    world.add(keys((0, 0), (6, 2))[None])
    assert (world.strategy.negative_rectangles, len(world.negative())) == (1, 24)
    world.add(keys((2, 2), (4, 4))[None])
    assert (world.strategy.negative_rectangles, len(world.negative())) == (3, 20), "now it costs 2"


def test_figure_8_what_is_met_and_left_whole_would_have_cost_too_much() -> None:
    """Greedy, but never lazy: no rectangle stays unsplit that the bound had room for."""
    rng = np.random.default_rng(5)
    kept = Attributed(naive.space_of(Box.of(naive.domain(3, 9))), by_overlap=True)
    left = 0
    for owner in range(1, 40):
        q = naive.random_box(rng, 3, 9)
        created, _ = kept.cover(owner, q, 4, "ratio")
        assert created <= 4
        for rectangle in kept.rectangles():
            if naive.meets(rectangle, q):
                left += 1
                sides = int((rectangle[0] < q[0]).sum() + (rectangle[1] > q[1]).sum())
                assert created + sides - 1 > 4
    assert left


@all_dims
@every_select
def test_figure_8_as_printed_overshoots_by_less_than_one_split(dims: int, select: Select) -> None:
    """`While (count <= k)`: the last split may leave up to 2d pieces, all of which are counted."""
    most = 0
    for k in (0, 1, 2, 5):
        world = World(dims, {"k": k, "select": select, "variant": "printed"})
        rng = np.random.default_rng(k)
        for _ in range(25):
            before = world.strategy.negative_rectangles
            world.add(naive.random_shape(rng, dims, SIZES[dims])[:1])
            most = max(most, world.strategy.negative_rectangles - before - k)
            world.check()
    assert most <= 2 * dims - 1
    assert most > 0 or dims == 1


def test_figure_8_as_printed_splits_where_the_bound_leaves_no_room() -> None:
    """The middle of the whole domain leaves four pieces: more than k = 2, and made all the same."""
    world = World(2, {"k": 2, "variant": "printed"})
    world.add(keys((2, 2), (4, 4))[None])
    assert (world.strategy.negative_rectangles, len(world.negative())) == (4, 32)


def test_figure_8_as_printed_does_not_ask_for_a_single_one_that_contains_it() -> None:
    """A wall leaves two rectangles; the middle is subtracted from one of them only, whatever lies in the other."""
    found = {}
    for variant in ("bounded", "printed"):
        world = World(2, {"k": 0 if variant == "printed" else 1, "variant": variant})
        world.add(keys((2, 0), (3, 6))[None])
        world.add(keys((1, 1), (5, 5))[None])
        sides = (Box((1, 2), (2, 3)), Box((3, 2), (4, 3)))
        found[variant] = [world.strategy.decide((side,)).covered for side in sides]
    assert found["bounded"] == [True, True]
    assert sorted(found["printed"]) == [False, True]


def leaves_of(kept: Attributed, owner: int, q: Keys) -> Keys:
    """The leaves that meet `q` and are attributed to `owner`."""
    return kept._tree.leaves(q, owner)[1].copy()


def chosen(select: Select, wall: int) -> str:
    """A wall leaves a rectangle on each side; the next one may be subtracted from one of them only.

    On the left that leaves three pieces (cost 2), on the right two (cost 1).
    """
    kept = Attributed(Space((Attribute("x", "int", 0, 19), Attribute("y", "int", 0, 9))), by_overlap=True)
    kept.cover(1, keys((wall, 0), (wall + 1, 10)), 9, select)
    kept.cover(2, keys((2, 1), (20, 9)), 2, select)
    (mine,) = leaves_of(kept, 2, keys((0, 0), (20, 10)))
    return "left" if mine[0, 0] < wall else "right"


def test_selection_by_benefit_cost_and_their_ratio() -> None:
    assert [chosen(select, 12) for select in ("benefit", "ratio", "cost")] == ["left", "right", "right"]
    assert [chosen(select, 17) for select in ("benefit", "ratio", "cost")] == ["left", "left", "right"]


def test_volumes_are_natural_also_for_floats() -> None:
    """[1, 2] and [2, 4] hold equally many doubles, but the second is twice as long: the greater benefit."""
    space = Space((Attribute("x", "float", float_key(0.5), float_key(4.0)), Attribute("y", "int", 0, 9)))
    kept = Attributed(space, by_overlap=True)
    kept.cover(1, keys((float_key(1.9), 0), (float_key(2.0), 10)), 9, "benefit")
    kept.cover(2, keys((float_key(1.0), 2), (float_key(3.5), 8)), 2, "benefit")
    (mine,) = leaves_of(kept, 2, keys(*space.domain))
    assert mine[0, 0] == float_key(2.0), "1.5 x 6 rather than 0.9 x 6"
    kept.check()


# Unsubscribing: Fig. 9, and the repair


def test_figure_9_gives_back_what_was_attributed_also_where_others_cover_it() -> None:
    world = World(2, {"unsubscribe": "approximate"})
    first = world.add(keys((0, 0), (4, 6))[None])
    world.add(keys((2, 0), (6, 6))[None])
    assert len(world.negative()) == 0
    world.remove(first)
    assert len(world.negative()) == 24, "all of the first, though the second covers half of it"
    world.check()


def test_the_repair_gives_back_only_what_nobody_else_covers() -> None:
    world = World(2, {"unsubscribe": "exact"})
    first = world.add(keys((0, 0), (4, 6))[None])
    world.add(keys((2, 0), (6, 6))[None])
    world.remove(first)
    assert world.negative() == world.uncovered()
    assert len(world.negative()) == 12
    world.check()


@all_dims
def test_after_a_repair_the_negative_space_inside_the_cancelled_one_is_exact(dims: int) -> None:
    world = World(dims, {"k": 2, "unsubscribe": "exact"})
    rng = np.random.default_rng(7)
    for _ in range(12):
        world.add(naive.random_shape(rng, dims, SIZES[dims]))
    for one in list(world.held):
        inside = naive.union(world.held[one])
        world.remove(one)
        assert world.negative() & inside == world.uncovered() & inside
        world.check()


@all_dims
@pytest.mark.parametrize("unsubscribe", ["approximate", "exact"])
def test_unsubscribing_everything_leaves_the_whole_domain_as_one_rectangle(dims: int, unsubscribe: str) -> None:
    world = World(dims, {"k": 2, "unsubscribe": unsubscribe})
    random_steps(world, 3, 25, cancel=0.2)
    for one in list(world.held):
        world.remove(one)
    assert world.strategy.negative_rectangles == 1
    assert world.strategy.negative_share == pytest.approx(1.0)


# Rebuilding


def rebuilt(world: World) -> int:
    """Let a strategy rest until it is content; how many rests that took."""
    rests = 1
    while not world.strategy.rebuild_step():
        assert world.strategy.rebuilding
        rests += 1
        world.check()
    world.check()
    return rests


def test_a_rebuild_is_made_in_bounded_steps_beside_what_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP", 3)
    world = World(2, {"k": 1})
    random_steps(world, 4, 30, cancel=0.1)
    before = world.strategy.negative.rectangles().tolist()
    assert world.strategy.rebuild()
    assert not world.strategy.rebuild_step()
    assert world.strategy.negative.rectangles().tolist() == before, "answers are as before until it is finished"
    world.add(keys((0, 0), (2, 2))[None])
    world.remove(next(iter(world.held)))
    assert 1 + rebuilt(world) >= (len(world.held) + 2) // 3
    assert not world.strategy.rebuilding


@all_dims
@pytest.mark.parametrize("unsubscribe", ["approximate", "exact"])
def test_whatever_comes_and_goes_during_a_rebuild_it_misses_nothing(
    dims: int, unsubscribe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP", 1)
    rng = np.random.default_rng([dims, 8])
    for seed in range(6):
        world = World(dims, {"k": 50, "drift": 0, "unsubscribe": unsubscribe})
        random_steps(world, seed, 12, cancel=0.0)
        world.strategy.rebuild()
        while world.strategy.rebuilding:
            if rng.random() < 0.4:
                world.strategy.rebuild_step()
                world.check()
            else:
                random_steps(world, int(rng.integers(1000)), 1, cancel=0.7)


@all_dims
def test_a_rebuild_begins_with_the_largest_and_misses_nothing(dims: int) -> None:
    world = World(dims, {"k": 0, "drift": 0})
    rng = np.random.default_rng(1)
    for _ in range(10):
        world.add(naive.random_box(rng, dims, SIZES[dims])[None])
    world.add(world.domain[None])
    assert world.strategy.negative_rectangles <= 1
    world.strategy.rebuild()
    assert rebuilt(world) == 1
    assert world.strategy.negative_rectangles == 0
    whole = world.strategy._numbers[name(world.serial)]
    assert set(world.strategy.negative.tiles()[0].tolist()) == {whole}


def test_without_a_wish_and_without_drift_there_is_nothing_to_do() -> None:
    world = World(2, {"k": 0})
    random_steps(world, 6, 20)
    assert not world.strategy.rebuilding
    assert not world.strategy.rebuild_step()


@pytest.mark.parametrize("drift", [0, 1, 2])
def test_drift_of_the_volume_makes_a_rebuild_due(drift: int) -> None:
    """A cover that is given back whole leaves negative what another one covers: that doubles the negative space."""
    world = World(2, {"k": 50, "unsubscribe": "approximate", "drift": drift})
    world.add(keys((0, 0), (6, 2))[None])
    first = world.add(keys((0, 2), (6, 5))[None])
    world.add(keys((0, 3), (6, 5))[None])
    assert (len(world.negative()), world.strategy.rebuilding) == (6, False)
    world.remove(first)
    assert (len(world.negative()), world.strategy.rebuilding) == (24, drift > 0)
    if drift:
        assert rebuilt(world) == 1
        assert world.negative() == world.uncovered()
        assert not world.strategy.rebuilding


def test_drift_of_the_count_makes_a_rebuild_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributed, "FEWEST", 2)
    world = World(2, {"k": 2})
    for x, y in ((3, 3), (0, 0), (2, 0), (4, 0)):  # the first would cost 3 and stays whole
        assert not world.strategy.rebuilding
        world.add(keys((x, y), (x + 1, y + 1))[None])
    assert (world.strategy.negative_rectangles, world.strategy.rebuilding) == (6, True)
    rebuilt(world)
    assert not world.strategy.rebuilding


@pytest.mark.parametrize("seed", range(4))
def test_storing_it_in_the_middle_of_a_rebuild_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP", 2)
    options = {"k": seed, "unsubscribe": "exact" if seed % 2 else "approximate", "drift": 1}
    kept, stored = World(2, options), World(2, options)
    rng = np.random.default_rng(seed)
    finished = 0
    for step in range(60):
        shape, chance, pick = naive.random_shape(rng, 2), rng.random(), int(rng.integers(1 << 30))
        for world in (kept, stored):
            if world.held and chance < 0.3:
                world.remove(list(world.held)[pick % len(world.held)])
            else:
                world.add(shape)
        if step % 20 == 5:
            assert kept.strategy.rebuild() and stored.strategy.rebuild()
        if step % 3 == 0:
            done = kept.strategy.rebuild_step()
            assert stored.strategy.rebuild_step() == done
            finished += done
        if step % 2:
            stored.store()
        stored.check()
        dumps = kept.strategy.dump(), stored.strategy.dump()
        assert dumps[0].numbers.tolist() == dumps[1].numbers.tolist()
        assert dumps[0].small.tolist() == dumps[1].small.tolist()
        assert kept.strategy.rebuilding == stored.strategy.rebuilding
    assert finished


def dump_of(world: World) -> tuple[list[int], list[int]]:
    dump = world.strategy.dump()
    return dump.numbers.tolist(), dump.small.tolist()


def test_a_damaged_dump_is_refused() -> None:
    world = World(2, {"k": 4})
    world.add(keys((1, 1), (3, 3))[None])
    numbers, small = dump_of(world)
    last = len(numbers) - 1
    for wrong in (
        ([], small),
        (numbers[:3], small),
        ([9, *numbers[1:]], small),
        ([numbers[0], 3, *numbers[2:]], small),
        (numbers, small[:-1]),
        (numbers, []),
        ([*numbers[:last], 7], small),
        ([*numbers[:last], -1], small),
    ):
        with pytest.raises(StateError):
            World(2, {"k": 4}).strategy.restore(Dump(np.array(wrong[0], np.int64), np.array(wrong[1], np.int8)))


def test_the_parameters_have_rules() -> None:
    spec = Spec.of({"name": "negative-approx", "k": 5, "bound": "dynamic", "drift": 0}, "here")
    assert str(spec) == "negative-approx bound=dynamic drift=0 k=5"
    built = Spec.of({"name": "negative-approx", "k": 2**62, "bound": "dynamic"}, "here").build(
        naive.space_of(Box((0, 0), (9, 9))), BoxList(2)
    )
    built.active.add(name(1), (Box((1, 1), (2, 2)),))
    built.added(name(1), (Box((1, 1), (2, 2)),))
    assert built.negative_rectangles == 4


def test_the_share_of_a_domain_of_few_floats_is_kept_right() -> None:
    """Each cut once lost the step between two neighbours: the share was taken for 0.8, but was 0.4."""
    first = float_key(1.0)
    space = Space((Attribute("x", "float", first, first + 4),))
    active = BoxList(1)
    strategy = NegativeApprox(space, active)
    for k in (1, 3):
        active.add(name(k), (Box((first + k,), (first + k + 1,)),))
        strategy.added(name(k), active.boxes(name(k)))
        strategy.check()
    assert strategy.negative_share == pytest.approx(0.6)


def test_a_repair_in_many_attributes_is_bounded_and_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve subscriptions with a point in common, in twelve attributes: an exact repair would make millions."""
    monkeypatch.setattr(attributed, "MOST_REPAIRED", 200)
    rng = np.random.default_rng(1)
    active = BoxList(12)
    strategy = NegativeApprox(naive.space_of(Box((0,) * 12, (1001,) * 12)), active)
    for k in range(12):
        shape = (Box(tuple(rng.integers(1, 500, 12).tolist()), tuple(rng.integers(501, 1000, 12).tolist())),)
        active.add(name(k), shape)
        strategy.added(name(k), shape)
    for k in range(3):
        shape, before = active.boxes(name(k)), strategy.negative_rectangles
        active.remove(name(k))
        strategy.removed(name(k), shape)
        assert strategy.negative_rectangles <= before + 50 * 24 + 200 + 24
        strategy.check()
