"""Whatever was added, removed and packed: the index answers as a scan of the living boxes in order of arrival would."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.errors import InvariantError
from state.geometry.boxindex import FEWEST_SLOTS, BoxIndex, Sizes
from state.geometry.boxrows import BLOCK
from state.space import Keys
from tests.core import naive

DIMS = [1, 2, 3]
all_dims = pytest.mark.parametrize("dims", DIMS)
SCALES = {"small": lambda small: small, "huge": naive.spread}
both_scales = pytest.mark.parametrize("scale", SCALES)
FORMS = {"rows": Sizes(), "tiles": Sizes(rows=0, tail=0, merged=500, tile=16), "tiny": Sizes(0, 0, 0, 8)}
"""Thresholds by which few boxes are in bit rows alone, in merged runs of tiles, in one run for each 64 boxes."""
every_form = pytest.mark.parametrize("form", FORMS)


@dataclass
class History:
    """An index beside the list of its living boxes, small, in order of arrival."""

    dims: int
    scale: str = "small"
    form: str = "rows"
    living: dict[int, Keys] = field(default_factory=dict)
    packed: int = 0

    def __post_init__(self) -> None:
        self.index = BoxIndex(self.dims, sizes=FORMS[self.form])

    def add(self, small: Keys) -> None:
        slots = self.index.add(SCALES[self.scale](small))
        assert self.index.packed() is None
        assert not self.living or slots.start > max(self.living)
        self.living.update(zip(slots, small, strict=True))

    def remove(self, slots: list[int]) -> None:
        self.index.remove(slots)
        for slot in slots:
            del self.living[slot]
        moved = self.index.packed()
        if moved is not None:
            self.packed += 1
            assert all((moved[slot] >= 0) == (slot in self.living) for slot in range(len(moved)))
            self.living = {int(moved[slot]): box for slot, box in self.living.items()}
            assert list(self.living) == sorted(self.living)

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
        assert pairs(self.index, large(points)) == holders
        assert self.index.stab_any(large(points)).tolist() == [p in dict(holders) for p in range(len(points))]

    def check_fresh(self, q: Keys, points: Keys) -> None:
        """A new index over the living boxes gives the same answers, slot by slot."""
        living, large = list(self.living), SCALES[self.scale]
        fresh = BoxIndex(self.dims, large(naive.stacked(list(self.living.values()), self.dims)), FORMS[self.form])
        fresh.check()
        for ask in ("meeting", "inside"):
            new, old = getattr(fresh, ask)(large(q)), getattr(self.index, ask)(large(q))
            assert [living[slot] for slot in new] == old.tolist()
        first = fresh.first_containing(large(q))
        assert (None if first is None else living[first]) == self.index.first_containing(large(q))
        new = pairs(fresh, large(points))
        assert [(p, living[slot]) for p, slot in new] == pairs(self.index, large(points))


def pairs(index: BoxIndex, points: Keys) -> list[tuple[int, int]]:
    """All pairs (point, slot of a box that holds it)."""
    offsets, slots = index.stab_all(points)
    assert (len(offsets), offsets[0], offsets[-1]) == (len(points) + 1, 0, len(slots))
    return list(zip(np.repeat(np.arange(len(points)), np.diff(offsets)).tolist(), slots.tolist(), strict=True))


def random_points(rng: np.random.Generator, dims: int, count: int) -> Keys:
    return rng.integers(0, naive.SIZE, (count, dims))


@both_scales
@all_dims
@every_form
def test_a_long_history_across_packing_answers_as_a_scan(dims: int, scale: str, form: str) -> None:
    rng = np.random.default_rng(dims)
    history = History(dims, scale, form)
    few = {"rows": (15, 45), "tiles": (60, 260), "tiny": (60, 200)}[form]
    for step in range(60):
        some = naive.stacked([naive.random_box(rng, dims) for _ in range(rng.integers(1, few[0]))], dims)
        history.add(some)
        keep = few[0] if rng.random() < 0.15 else few[1]
        while len(history.living) > keep:
            slots = list(history.living)
            history.remove([slots[k] for k in rng.choice(len(slots), min(9, len(slots) - keep), replace=False)])
        history.check()
        q, points = naive.random_box(rng, dims), random_points(rng, dims, 4)
        history.check_answers(q, points)
        if step % 5 == 0:
            history.check_fresh(q, points)
    assert history.packed >= 2


def test_runs_are_merged_geometrically_up_to_the_largest_size() -> None:
    index = BoxIndex(1, sizes=Sizes(rows=64, tail=64, merged=700, tile=8))
    chance = np.random.default_rng(1)
    most = 0
    for _ in range(40):
        lows = chance.integers(0, 1000, (64, 1))
        before = index.tiled
        index.add(np.stack((lows, lows + chance.integers(1, 50, (64, 1))), axis=1))
        index.check()
        moved = [size for size in index.tiled if size not in before]
        most = max(most, len(index.tiled))
        assert all(size <= 700 for size in moved)
    assert sum(index.tiled) + 64 >= 40 * 64 - 64
    assert 2560 // 700 <= most <= 12


@every_form
def test_what_is_left_of_many_is_as_small_as_if_the_rest_had_never_been(form: str) -> None:
    boxes = np.tile(naive.domain(2), (4000, 1, 1))
    index = BoxIndex(2, boxes, FORMS[form])
    full = index.nbytes
    while len(index) > 100:
        index.remove(list(index.living())[: min(50, len(index) - 100)])
        index.packed()
    index.check()
    few = BoxIndex(2, boxes[:100], FORMS[form])
    assert index.slots <= 2 * 100 + FEWEST_SLOTS + 64
    assert index.nbytes <= 4 * few.nbytes < full
    assert index.stab_all(np.zeros((1, 2), np.int64))[0].tolist() == [0, 100]


def test_many_boxes_in_tiles_answer_as_in_bit_rows_and_take_little_memory() -> None:
    chance = np.random.default_rng(3)
    lows = chance.integers(0, 10**6, (20_000, 3))
    boxes = np.stack((lows, lows + chance.integers(1, 10**5, (20_000, 3))), axis=1)
    tiles, rows = BoxIndex(3, boxes, Sizes(rows=3000)), BoxIndex(3, boxes)
    assert tiles.tiled == [20_000]
    assert rows.tiled == []
    points = chance.integers(0, 10**6, (50, 3))
    assert [a.tolist() for a in tiles.stab_all(points)] == [a.tolist() for a in rows.stab_all(points)]
    assert tiles.stab_any(points).tolist() == rows.stab_any(points).tolist()
    for low in points[:10]:
        for q in (np.stack((low, low + 10)), np.stack((low, low + 3 * 10**5))):
            assert tiles.meeting(q).tolist() == rows.meeting(q).tolist()
            assert tiles.inside(q).tolist() == rows.inside(q).tolist()
            assert tiles.first_containing(q) == rows.first_containing(q)
    assert tiles.nbytes <= 80 * 20_000


@pytest.mark.parametrize("shape", ["even", "clusters", "few values"])
def test_codes_stay_right_while_boxes_move_to_ever_coarser_groups(shape: str) -> None:
    """Groups of 512 boxes: their codes are finer than ranks can be told apart, until what is left is spread widely."""
    chance = np.random.default_rng(11)
    lows = {
        "even": chance.integers(0, 10**9, (12_000, 2)),
        "clusters": chance.integers(0, 5, (12_000, 2)) * 10**15 + chance.integers(0, 3000, (12_000, 2)),
        "few values": chance.integers(0, 12, (12_000, 2)),
    }[shape]
    widest = {"even": 10**8, "clusters": 500, "few values": 4}[shape]
    boxes = np.stack((lows, lows + chance.integers(1, widest, (12_000, 2))), axis=1)
    index = BoxIndex(2, boxes[:9000], Sizes(rows=0, tail=0, merged=2000, tile=8))
    for begin in range(9000, 12_000, 64):
        index.add(boxes[begin : begin + 64])
    assert len(index.tiled) > 2
    left = np.array(list(index.living()))
    numbers = np.arange(12_000)
    while len(left) > 300:
        index.check()
        points = boxes[numbers[chance.integers(0, len(left), 20)]].mean(axis=1).astype(np.int64)
        expected = [(p, int(left[k])) for p, x in enumerate(points) for k in np.flatnonzero(holding(boxes[numbers], x))]
        assert pairs(index, points) == expected
        assert index.stab_any(points).all()
        q = np.stack((points[0] - widest, points[0] + widest))
        low, high = boxes[numbers, 0], boxes[numbers, 1]
        assert index.meeting(q).tolist() == left[((low < q[1]) & (high > q[0])).all(axis=1)].tolist()
        assert index.inside(q).tolist() == left[((low >= q[0]) & (high <= q[1])).all(axis=1)].tolist()
        keep = np.sort(chance.permutation(len(left))[: len(left) * 2 // 5])
        index.remove(np.delete(left, keep).tolist())
        moved = index.packed()
        assert moved is not None
        left, numbers = moved[left[keep]], numbers[keep]


def holding(boxes: Keys, point: Keys) -> Keys:
    """Which boxes hold the point."""
    return ((boxes[:, 0] <= point) & (point < boxes[:, 1])).all(axis=1)


@both_scales
@all_dims
@naive.few
@given(st.data())
def test_every_short_history_answers_as_a_scan(dims: int, scale: str, data: st.DataObject) -> None:
    history = History(dims, scale, data.draw(st.sampled_from(list(FORMS))))
    history.add(np.tile(naive.domain(dims), (data.draw(st.sampled_from([0, 63, 64, 70])), 1, 1)))
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
    assert pairs(index, points) == [(1, 0), (2, 0), (3, 1), (4, 1)]


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
    offsets, slots = index.stab_all(np.zeros((3, 2), np.int64))
    assert offsets.tolist() == [0, 300, 600, 900]
    assert slots.tolist() == list(range(300)) * 3


def test_an_empty_index_finds_nothing() -> None:
    index = BoxIndex(2)
    q = naive.domain(2)
    assert (len(index), index.slots, list(index.living())) == (0, 0, [])
    assert not index.stab_any(np.zeros((3, 2), np.int64)).any()
    assert pairs(index, np.zeros((3, 2), np.int64)) == []
    assert index.meeting(q).size == index.inside(q).size == 0
    assert index.first_containing(q) is None
    assert index.stab_any(np.empty((0, 2), np.int64)).tolist() == []


@every_form
def test_an_index_emptied_again_finds_nothing_and_goes_on(form: str) -> None:
    history = History(2, form=form)
    for _ in range(4):
        history.add(np.tile(naive.domain(2), (2 * FEWEST_SLOTS, 1, 1)))
        history.remove(list(history.living))
        history.check()
        history.check_answers(naive.domain(2), np.zeros((1, 2), np.int64))
    assert history.packed >= 2


def test_asking_what_was_packed_clears_it() -> None:
    index = BoxIndex(1)
    index.add(np.tile(naive.domain(1), (FEWEST_SLOTS + 20, 1, 1)))
    index.remove([0, 5])
    assert index.packed() is None
    index.remove(list(range(6, FEWEST_SLOTS + 19)))
    moved = index.packed()
    assert moved is not None
    assert moved.tolist() == [-1, 0, 1, 2, 3, *[-1] * (FEWEST_SLOTS + 14), 4]
    assert index.packed() is None


@pytest.mark.parametrize("slot", [0, 1, 63, 64])
def test_removing_what_is_not_there_is_refused(slot: int) -> None:
    index = BoxIndex(1)
    index.add(naive.domain(1)[None])
    index.remove([0])
    with pytest.raises(InvariantError):
        index.remove([slot])


@every_form
def test_check_notices_a_box_that_its_codes_do_not_know(form: str) -> None:
    index = BoxIndex(1, np.array([[[k], [k + 2]] for k in range(100)]), FORMS[form])
    index.check()
    index.boxes[3] = [[30], [39]]
    with pytest.raises(InvariantError):
        index.check()
