"""A list of named unions answers by name, in order of arrival, however often it was packed or built anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.errors import InvariantError
from state.geometry.boxes import Box, Boxes, check_disjoint, unstack
from state.geometry.boxindex import Sizes
from state.geometry.cover import COVERED, GAP, UNKNOWN
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.space import Keys
from tests.core import naive
from tests.core.naive import keys, name

PLENTY = 10**6


@dataclass
class History:
    """A list beside a plain dictionary of what it holds."""

    dims: int
    sizes: Sizes = Sizes()
    held: dict[Name, Keys] = field(default_factory=dict)
    serial: int = 0
    packed: int = 0

    def __post_init__(self) -> None:
        self.list = BoxList(self.dims, sizes=self.sizes)

    def add(self, boxes: Keys) -> None:
        self.list.add(name(self.serial), unstack(boxes))
        self.held[name(self.serial)] = boxes
        self.serial += 1

    def remove(self, one: Name) -> None:
        slots = self.list.slots(one)
        self.list.remove(one)
        assert self.list.last_removal.slots == slots
        self.packed += self.list.last_removal.moved is not None
        del self.held[one]

    def check(self, q: Keys, points: Keys) -> None:
        self.list.check()
        for some in (self.list, BoxList(self.dims, self.held.items())):
            self.check_contents(some)
            self.check_answers(some, q, points)

    def check_contents(self, some: BoxList) -> None:
        assert list(some) == list(self.held)
        assert len(some) == len(self.held)
        assert len(some._index) == sum(map(len, self.held.values()))
        assert [box.tolist() for box in some.all_keys()] == [b.tolist() for boxes in self.held.values() for b in boxes]
        for one, boxes in self.held.items():
            assert one in some
            assert some.keys(one).tolist() == boxes.tolist() == some.table[some.slots(one)].tolist()
            assert {some.owner(slot) for slot in some.slots(one)} == {one}
            assert some.boxes(one) == unstack(boxes)

    def check_answers(self, some: BoxList, q: Keys, points: Keys) -> None:
        every = [box for boxes in self.held.values() for box in boxes]
        holders = [(p, n) for p, at in enumerate(points.tolist()) for n in self.held if self.holds(n, tuple(at))]
        assert list(zip(*some.holders(points), strict=True)) == holders
        offsets, numbers = some.holder_numbers(points)
        parts = [numbers[begin:end] for begin, end in pairwise(offsets)]
        assert [(p, some.name_of(k)) for p, part in enumerate(parts) for k in part] == holders
        assert some.holds_any(points).tolist() == [p in dict(holders) for p in range(len(points))]
        containers = [n for n, boxes in self.held.items() if any(naive.contains(b, q) for b in boxes)]
        assert some.container(q) == (containers[0] if containers else None)
        assert some.inside(q) == [n for n, boxes in self.held.items() if any(naive.contains(q, b) for b in boxes)]
        left = some.without(q, by_overlap=True)
        assert naive.disjoint(left)
        assert naive.union(left) == naive.cells(q) - naive.union(every)
        self.check_cover(some, q, every)

    def check_cover(self, some: BoxList, q: Keys, every: list[Keys]) -> None:
        answer, names, last, nodes = some.cover(q, PLENTY)
        assert answer == (COVERED if naive.covered(q, every) else GAP)
        assert nodes >= 1
        assert len(set(names)) == len(names)
        if answer == COVERED:
            assert naive.covered(q, [box for n in names for box in self.held[n]])
        else:
            assert naive.contains(q, last)
            assert not any(naive.meets(last, box) for box in every)

    def holds(self, one: Name, at: tuple[int, ...]) -> bool:
        return bool(naive.stab(at, self.held[one]))


@pytest.mark.parametrize(("most", "sizes"), [(10, Sizes()), (90, Sizes(0, 0, 200, 8))], ids=["rows", "tiles"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_long_history_across_packing_answers_as_a_scan(dims: int, most: int, sizes: Sizes) -> None:
    rng = np.random.default_rng(dims)
    history = History(dims, sizes)
    for _ in range(40 * most // 10 + 150):
        history.add(naive.random_shape(rng, dims))
        few = 4 if rng.random() < 0.02 else most
        while len(history.held) > few and rng.random() < 0.95:
            history.remove(list(history.held)[int(rng.integers(len(history.held)))])
        if rng.random() < 10 / most:
            history.check(naive.random_box(rng, dims), rng.integers(0, naive.SIZE, (3, dims)))
    assert history.packed >= 2


@given(st.data())
def test_every_short_history_answers_as_a_scan(data: st.DataObject) -> None:
    history = History(2)
    for _ in range(data.draw(st.integers(1, 5))):
        history.add(data.draw(naive.box(2))[None])
        if data.draw(st.booleans()):
            history.remove(data.draw(st.sampled_from(list(history.held))))
        history.check(data.draw(naive.box(2)), np.array([[0, 0], [3, 3]]))


def boxes(*ends: tuple[int, int]) -> Boxes:
    return tuple(Box((lo,), (hi,)) for lo, hi in ends)


def test_a_point_in_two_entries_belongs_to_both_in_order_of_arrival() -> None:
    some = BoxList(1)
    for k, (lo, hi) in enumerate([(4, 6), (0, 5), (4, 5)]):
        some.add(name(k), boxes((lo, hi)))
    some.remove(name(1))
    some.add(name(1), boxes((0, 5)))
    assert some.holders(np.array([[4]])) == ([0, 0, 0], [name(0), name(2), name(1)])


def test_the_earliest_container_is_named() -> None:
    some = BoxList(1)
    for k, (lo, hi) in enumerate([(0, 3), (0, 9), (0, 10)]):
        some.add(name(k), boxes((lo, hi)))
    assert some.container(keys((2,), (5,))) == name(1)
    assert some.cover(keys((2,), (5,)), 1)[:2] == (COVERED, (name(1),))


def test_work_is_one_where_one_box_contains_all() -> None:
    held = BoxList(1, [(name(0), keys([0], [9])[None])])
    answer, names, _, work = held.cover(keys([2], [5]), PLENTY)
    assert (answer, names, work) == (COVERED, (name(0),), 1)


def test_a_certificate_names_each_entry_once() -> None:
    some = BoxList(1)
    some.add(name("ends"), boxes((0, 3), (6, 9)))
    some.add(name("middle"), boxes((3, 6)))
    answer, names, _, _ = some.cover(keys((0,), (9,)), PLENTY)
    assert answer == COVERED
    assert sorted(names) == sorted([name("ends"), name("middle")])


def test_beyond_its_budget_nothing_is_covered() -> None:
    some = BoxList(1)
    for k in range(6):
        some.add(name(k), boxes((2 * k, 2 * k + 2)))
    q = keys((1,), (9,))
    answer, names, _, work = some.cover(q, PLENTY)
    assert (answer, len(names)) == (COVERED, 5)
    assert some.cover(q, work)[0] == COVERED
    for budget in range(work):
        assert some.cover(q, budget)[::3] == (UNKNOWN, budget)


def test_what_is_removed_can_be_added_again_with_another_shape() -> None:
    some = BoxList(1)
    some.add(name(1), boxes((0, 5), (7, 9)))
    some.remove(name(1))
    assert (len(some), len(some._index), name(1) in some) == (0, 0, False)
    some.add(name(1), boxes((5, 7)))
    assert some.boxes(name(1)) == boxes((5, 7))
    some.check()


def test_a_name_cannot_be_added_twice() -> None:
    some = BoxList(1)
    some.add(name(1), boxes((0, 5)))
    with pytest.raises(InvariantError):
        some.add(name(1), boxes((7, 9)))
    some.check()
    assert some.boxes(name(1)) == boxes((0, 5))


def test_removing_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        BoxList(1).remove(name(1))


def test_what_is_given_out_is_a_copy() -> None:
    some = BoxList(1)
    some.add(name(1), boxes((0, 5)))
    some.keys(name(1))[...] = 7
    some.all_keys()[...] = 7
    assert some.boxes(name(1)) == boxes((0, 5))


def test_check_notices_boxes_of_one_entry_that_overlap() -> None:
    some = BoxList(1)
    some.add(name(1), boxes((0, 5), (4, 9)))
    with pytest.raises(InvariantError):
        some.check()


@given(naive.boxes(2, 5))
def test_overlapping_boxes_are_noticed_exactly(some: Keys) -> None:
    if naive.disjoint(some):
        check_disjoint(some, "these")
    else:
        with pytest.raises(InvariantError):
            check_disjoint(some, "these")
