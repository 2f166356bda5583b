"""Whatever was added, removed and packed: the index answers as a scan of the living boxes in order of arrival would."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.errors import InvariantError
from state.geometry.boxindex import BLOCK, FEWEST_SLOTS, BoxIndex
from state.space import Keys
from tests.core import naive

DIMS = [1, 2, 3]
all_dims = pytest.mark.parametrize("dims", DIMS)
SCALES = {"small": lambda small: small, "huge": naive.spread}
both_scales = pytest.mark.parametrize("scale", SCALES)


@dataclass
class History:
    """An index beside the list of its living boxes, small, in order of arrival."""

    dims: int
    scale: str = "small"
    living: dict[int, Keys] = field(default_factory=dict)
    packed: int = 0

    def __post_init__(self) -> None:
        self.index = BoxIndex(self.dims)

    def add(self, small: Keys) -> None:
        slots = self.index.add(SCALES[self.scale](small))
        moved = self.index.packed()
        if moved is not None:
            self.packed += 1
            assert all((moved[slot] >= 0) == (slot in self.living) for slot in range(len(moved)))
            self.living = {int(moved[slot]): box for slot, box in self.living.items()}
        self.living.update(zip(slots, small, strict=True))

    def remove(self, slots: list[int]) -> None:
        self.index.remove(slots)
        for slot in slots:
            del self.living[slot]

    def check(self) -> None:
        self.index.check()
        assert list(self.index.living()) == list(self.living)
        assert len(self.index) == len(self.living)

    def check_answers(self, q: Keys, points: Keys) -> None:
        boxes, slots = list(self.living.values()), list(self.living)
        large = SCALES[self.scale]
        assert self.index.meeting(large(q)).tolist() == [s for s, b in self.living.items() if naive.meets(b, q)]
        assert self.index.inside(large(q)).tolist() == [s for s, b in self.living.items() if naive.contains(q, b)]
        containing = [s for s, b in self.living.items() if naive.contains(b, q)]
        assert self.index.first_containing(large(q)) == (containing[0] if containing else None)
        holders = [(p, slots[k]) for p, point in enumerate(points.tolist()) for k in naive.stab(tuple(point), boxes)]
        which, what = self.index.stab_all(large(points))
        assert list(zip(which.tolist(), what.tolist(), strict=True)) == holders
        assert self.index.stab_any(large(points)).tolist() == [p in dict(holders) for p in range(len(points))]

    def check_fresh(self, q: Keys, points: Keys) -> None:
        """A new index over the living boxes gives the same answers, slot by slot."""
        living, large = list(self.living), SCALES[self.scale]
        fresh = BoxIndex(self.dims, large(naive.stacked(list(self.living.values()), self.dims)))
        for ask in ("meeting", "inside"):
            new, old = getattr(fresh, ask)(large(q)), getattr(self.index, ask)(large(q))
            assert [living[slot] for slot in new] == old.tolist()
        first = fresh.first_containing(large(q))
        assert (None if first is None else living[first]) == self.index.first_containing(large(q))
        (new_points, new), (old_points, old) = fresh.stab_all(large(points)), self.index.stab_all(large(points))
        assert new_points.tolist() == old_points.tolist()
        assert [living[slot] for slot in new] == old.tolist()


def random_points(rng: np.random.Generator, dims: int, count: int) -> Keys:
    return rng.integers(0, naive.SIZE, (count, dims))


@both_scales
@all_dims
@pytest.mark.parametrize("seed", [1, 2])
def test_a_long_history_across_packing_answers_as_a_scan(dims: int, scale: str, seed: int) -> None:
    rng = np.random.default_rng([seed, dims])
    history = History(dims, scale)
    for step in range(45):
        some = naive.stacked([naive.random_box(rng, dims) for _ in range(rng.integers(1, 9))], dims)
        history.add(some)
        keep = 15 if rng.random() < 0.2 else 45
        while len(history.living) > keep:
            history.remove([int(rng.choice(list(history.living)))])
        history.check()
        q, points = naive.random_box(rng, dims), random_points(rng, dims, 4)
        history.check_answers(q, points)
        if step % 3 == 0:
            history.check_fresh(q, points)
    assert history.packed >= 2


@both_scales
@all_dims
@naive.few
@given(st.data())
def test_every_short_history_answers_as_a_scan(dims: int, scale: str, data: st.DataObject) -> None:
    history = History(dims, scale)
    for _ in range(data.draw(st.integers(1, 4))):
        history.add(data.draw(naive.boxes(dims, 4)))
        if history.living:
            history.remove(data.draw(st.lists(st.sampled_from(list(history.living)), unique=True, max_size=2)))
        history.check()
        points = np.array([data.draw(st.tuples(*[st.integers(0, naive.SIZE - 1)] * dims))], np.int64)
        history.check_answers(data.draw(naive.box(dims)), points)


@both_scales
def test_points_at_the_very_ends_of_boxes_are_judged_exactly(scale: str) -> None:
    index = BoxIndex(1)
    ends = SCALES[scale](np.array([[[1], [3]], [[3], [6]]]))
    index.add(ends)
    points = np.array([[ends[0, 0, 0] - 1], [ends[0, 0, 0]], [ends[0, 1, 0] - 1], [ends[1, 0, 0]], [ends[1, 1, 0] - 1]])
    which, what = index.stab_all(points)
    assert list(zip(which.tolist(), what.tolist(), strict=True)) == [(1, 0), (2, 0), (3, 1), (4, 1)]


def test_thousands_of_boxes_are_found_in_every_block_of_words() -> None:
    count = 64 * BLOCK * 2 + 70
    starts = np.arange(count)[:, None]
    index = BoxIndex(1, np.stack((starts, starts + 2), axis=1))
    points = np.array([[0], [63], [64], [64 * BLOCK], [count - 1], [count], [count + 1]])
    assert index.stab_any(points).tolist() == [True] * 6 + [False]
    assert index.stab_all(points[[3]])[1].tolist() == [64 * BLOCK - 1, 64 * BLOCK]
    assert index.meeting(np.array([[count - 2], [count + 9]])).tolist() == [count - 3, count - 2, count - 1]


def test_many_answers_for_one_point_are_all_given() -> None:
    index = BoxIndex(2)
    index.add(np.tile(naive.domain(2), (300, 1, 1)))
    which, what = index.stab_all(np.zeros((3, 2), np.int64))
    assert which.tolist() == [0] * 300 + [1] * 300 + [2] * 300
    assert what.tolist() == list(range(300)) * 3


def test_an_empty_index_finds_nothing() -> None:
    index = BoxIndex(2)
    q = naive.domain(2)
    assert (len(index), index.slots, list(index.living())) == (0, 0, [])
    assert not index.stab_any(np.zeros((3, 2), np.int64)).any()
    assert index.stab_all(np.zeros((3, 2), np.int64))[0].size == 0
    assert index.meeting(q).size == index.inside(q).size == 0
    assert index.first_containing(q) is None
    assert index.stab_any(np.empty((0, 2), np.int64)).tolist() == []


def test_an_index_emptied_again_finds_nothing_and_goes_on() -> None:
    history = History(2)
    for _ in range(4):
        history.add(np.tile(naive.domain(2), (FEWEST_SLOTS - 1, 1, 1)))
        history.remove(list(history.living))
        history.check()
        history.check_answers(naive.domain(2), np.zeros((1, 2), np.int64))
    assert history.packed >= 2


def test_asking_what_was_packed_clears_it() -> None:
    index = BoxIndex(1)
    index.add(np.tile(naive.domain(1), (FEWEST_SLOTS, 1, 1)))
    assert index.packed() is None
    index.remove([0, 5])
    index.add(naive.domain(1)[None])
    moved = index.packed()
    assert moved is not None
    assert moved.tolist() == [-1, 0, 1, 2, 3, -1, *range(4, FEWEST_SLOTS - 2)]
    assert index.packed() is None


@pytest.mark.parametrize("slot", [0, 1, 63, 64])
def test_removing_what_is_not_there_is_refused(slot: int) -> None:
    index = BoxIndex(1)
    index.add(naive.domain(1)[None])
    index.remove([0])
    with pytest.raises(InvariantError):
        index.remove([slot])


def test_check_notices_a_box_that_its_rows_do_not_know() -> None:
    index = BoxIndex(1, np.array([[[k], [k + 2]] for k in range(40)]))
    index.check()
    index.boxes[3] = [[30], [39]]
    with pytest.raises(InvariantError):
        index.check()
