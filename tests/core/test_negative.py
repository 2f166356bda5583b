"""The negative space is always exactly what nothing covers, as disjoint boxes, in both representations."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.errors import StateError
from state.geometry.boxes import unstack
from state.geometry.cuts import NEGATIVE, CutTree
from state.geometry.negative import COVERED, NegativeRtree, NegativeSpace, NegativeTree, joined
from state.matching.boxlist import BoxList
from state.space import Keys
from tests.core import naive
from tests.core.naive import keys, name

KINDS: dict[str, type[NegativeTree] | type[NegativeRtree]] = {"tree": NegativeTree, "rtree": NegativeRtree}
SIZES = {1: 6, 2: 6, 3: 4, 4: 3}
SCALES: dict[str, tuple[Callable[[Keys], Keys], Callable[[Keys], Keys]]] = {
    "small": (lambda small: small, lambda found: found),
    "huge": (naive.spread, naive.gathered),
}
both_kinds = pytest.mark.parametrize("kind", KINDS)
both_orders = pytest.mark.parametrize("order", ["fixed", "overlap"])
both_scales = pytest.mark.parametrize("scale", SCALES)
all_dims = pytest.mark.parametrize("dims", SIZES)


@dataclass
class History:
    """A negative space beside the list of what covers, and the same boxes small."""

    kind: str
    order: str
    dims: int
    scale: str = "small"
    small: dict[int, Keys] = field(default_factory=dict)
    serial: int = 0

    def __post_init__(self) -> None:
        self.large, self.back = SCALES[self.scale]
        self.domain = naive.domain(self.dims, SIZES[self.dims])
        self.space: NegativeSpace = KINDS[self.kind](self.large(self.domain), by_overlap=self.order == "overlap")
        self.active = BoxList(self.dims)

    def cover(self, box: Keys) -> None:
        self.space.cover(self.large(box))
        self.active.add(name(self.serial), unstack(self.large(box)[None]))
        self.small[self.serial] = box
        self.serial += 1

    def uncover(self, serial: int) -> None:
        box = self.small.pop(serial)
        self.active.remove(name(serial))
        self.space.uncover(self.active.without(self.large(box), by_overlap=self.order == "overlap"))

    def restore(self) -> None:
        dump = self.space.dump()
        by_overlap = self.order == "overlap"
        self.space = KINDS[self.kind].restored(self.large(self.domain), *dump, by_overlap=by_overlap)

    def gap(self, q: Keys) -> Keys | None:
        gap = self.space.gap(self.large(q))
        return None if gap is None else self.back(gap)

    def check(self) -> None:
        self.space.check()
        rectangles = self.back(self.space.rectangles())
        assert len(rectangles) == self.space.count
        assert naive.disjoint(rectangles)
        assert naive.union(rectangles) == naive.cells(self.domain) - naive.union(self.small.values())

    def check_gap(self, q: Keys) -> None:
        gap = self.gap(q)
        assert (gap is None) == naive.covered(q, self.small.values())
        if gap is not None:
            assert (gap[0] < gap[1]).all()
            assert naive.contains(q, gap)
            assert not any(naive.meets(gap, box) for box in self.small.values())


def random_history(history: History, rng: np.random.Generator, steps: int, *, most: int) -> None:
    """Random covers and uncovers, everything checked after each."""
    for _ in range(steps):
        if history.small and (len(history.small) >= most or rng.random() < 0.4):
            history.uncover(int(rng.choice(list(history.small))))
        else:
            history.cover(naive.random_box(rng, history.dims, SIZES[history.dims]))
        history.check()
        history.check_gap(naive.random_box(rng, history.dims, SIZES[history.dims]))


@both_scales
@both_orders
@both_kinds
@all_dims
def test_after_any_history_the_rectangles_are_exactly_the_complement(
    dims: int, kind: str, order: str, scale: str
) -> None:
    history = History(kind, order, dims, scale)
    random_history(history, np.random.default_rng([dims, 5]), 50, most=4 + 3 * dims)


@both_orders
@both_kinds
@naive.few
@given(st.data())
def test_every_short_history_leaves_exactly_the_complement(kind: str, order: str, data: st.DataObject) -> None:
    history = History(kind, order, 2)
    for _ in range(data.draw(st.integers(1, 6))):
        if history.small and data.draw(st.booleans()):
            history.uncover(data.draw(st.sampled_from(list(history.small))))
        else:
            history.cover(data.draw(naive.box(2)))
        history.check()
    history.check_gap(data.draw(naive.box(2)))


@both_orders
@all_dims
def test_the_gap_is_in_the_first_rectangle_that_is_met(dims: int, order: str) -> None:
    """Decisions carry it as their witness, so it must not depend on how it is looked for."""
    rng = np.random.default_rng([dims, 7])
    tree = CutTree(naive.domain(dims, SIZES[dims]))
    for _ in range(60):
        q = naive.random_box(rng, dims, SIZES[dims])
        met = tree.leaves(q, NEGATIVE)[1]
        gap = tree.gap(q)
        assert (gap is None) == (len(met) == 0)
        if gap is not None:
            assert gap.tolist() == [np.maximum(met[0, 0], q[0]).tolist(), np.minimum(met[0, 1], q[1]).tolist()]
        old, new = (NEGATIVE, COVERED) if rng.random() < 0.6 else (COVERED, NEGATIVE)
        tree.repaint(q[None], old, new, by_overlap=order == "overlap")


@both_orders
def test_a_tree_that_is_packed_many_times_stays_exact(order: str) -> None:
    rng = np.random.default_rng(11)
    history = History("tree", order, 3)
    for _ in range(25):
        for _ in range(8):
            history.cover(naive.random_box(rng, 3, SIZES[3]))
        while history.small:
            history.uncover(int(rng.choice(list(history.small))))
        history.check()
        assert history.space.count == 1


@both_scales
@both_orders
@all_dims
def test_taking_everything_back_leaves_a_tree_of_one_rectangle_the_domain(dims: int, order: str, scale: str) -> None:
    rng = np.random.default_rng(dims)
    history = History("tree", order, dims, scale)
    for _ in range(12):
        history.cover(naive.random_box(rng, dims, SIZES[dims]))
    while history.small:
        history.uncover(int(rng.choice(list(history.small))))
    assert history.space.count == 1
    assert history.back(history.space.rectangles()).tolist() == [history.domain.tolist()]


@both_orders
@pytest.mark.parametrize("dims", [2, 3, 4])
def test_taking_everything_back_leaves_the_rtree_the_volume_of_the_domain(dims: int, order: str) -> None:
    rng = np.random.default_rng(dims)
    history = History("rtree", order, dims)
    for _ in range(12):
        history.cover(naive.random_box(rng, dims, SIZES[dims]))
    while history.small:
        history.uncover(int(rng.choice(list(history.small))))
    rectangles = history.space.rectangles()
    assert np.prod(rectangles[:, 1] - rectangles[:, 0], axis=1).sum() == SIZES[dims] ** dims
    history.check()


@both_orders
@both_kinds
def test_a_domain_covered_completely_has_no_rectangles(kind: str, order: str) -> None:
    history = History(kind, order, 2)
    for box in (keys((0, 0), (3, 6)), keys((3, 0), (6, 6)), keys((0, 0), (6, 6)), keys((1, 1), (2, 2))):
        history.cover(box)
    assert history.space.count == 0
    assert history.space.rectangles().shape == (0, 2, 2)
    assert history.gap(history.domain) is None
    history.restore()
    assert history.space.count == 0
    assert history.gap(history.domain) is None


@both_orders
@both_kinds
def test_covering_what_is_covered_changes_nothing(kind: str, order: str) -> None:
    history = History(kind, order, 2)
    history.cover(keys((1, 1), (4, 4)))
    before = history.space.rectangles().tolist()
    for again in (keys((1, 1), (4, 4)), keys((2, 2), (3, 3))):
        history.cover(again)
        assert history.space.rectangles().tolist() == before


@both_scales
@both_orders
@both_kinds
@pytest.mark.parametrize("dims", [2, 3])
def test_a_restored_space_gives_the_same_answers_from_then_on(dims: int, kind: str, order: str, scale: str) -> None:
    kept, stored = History(kind, order, dims, scale), History(kind, order, dims, scale)
    for seed in range(4):
        for history in (kept, stored):
            random_history(history, np.random.default_rng([dims, seed]), 12, most=9)
        stored.restore()
        stored.check()
        rng = np.random.default_rng(seed)
        for _ in range(20):
            q = naive.random_box(rng, dims, SIZES[dims])
            old, new = (None if gap is None else gap.tolist() for gap in (kept.gap(q), stored.gap(q)))
            assert old == new
        assert kept.space.rectangles().tolist() == stored.space.rectangles().tolist()
        assert [part.tolist() for part in kept.space.dump()] == [part.tolist() for part in stored.space.dump()]


@both_orders
@both_kinds
def test_keys_that_no_double_tells_apart_are_told_apart(kind: str, order: str) -> None:
    low, base = 2**53, 2**62
    space = KINDS[kind](keys((low, base), (low + 9, base + 9)), by_overlap=order == "overlap")
    space.cover(keys((low + 1, base), (low + 9, base + 9)))
    assert space.rectangles().tolist() == [[[low, base], [low + 1, base + 9]]]
    assert space.gap(keys((low + 1, base), (low + 2, base + 1))) is None
    space.cover(keys((low, base + 1), (low + 1, base + 9)))
    assert space.rectangles().tolist() == [[[low, base], [low + 1, base + 1]]]
    assert space.gap(keys((low, base + 1), (low + 9, base + 9))) is None
    gap = space.gap(keys((low, base), (low + 9, base + 9)))
    assert gap is not None
    assert gap.tolist() == [[low, base], [low + 1, base + 1]]
    space.check()


# Dumps


def dumped(kind: str) -> tuple[Keys, Keys, np.ndarray]:
    space = KINDS[kind](naive.domain(2), by_overlap=False)
    space.cover(keys((1, 1), (4, 4)))
    return naive.domain(2), *space.dump()


NUMBERS: dict[str, Callable[[Keys], Keys]] = {
    "a number too few": lambda numbers: numbers[:-1],
    "a number too many": lambda numbers: np.append(numbers, 3),
    "an end far outside the domain": lambda numbers: np.append(99, numbers[1:]),
    "an end far below the domain": lambda numbers: np.append(numbers[:-1], -99),
}
SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "a node too few": lambda shape: shape[:-1],
    "a node too many": lambda shape: np.append(shape, shape[-1]),
    "no node": lambda shape: shape[:0],
    "only a cut": lambda shape: shape[:1],
    "a cut in an attribute that does not exist": lambda shape: np.append(np.int8(2), shape[1:]),
    "a colour that does not exist": lambda shape: np.append(shape[:-1], np.int8(-3)),
    "a leaf in place of the root": lambda shape: np.append(np.int8(-1), shape[1:]),
}


@both_kinds
@pytest.mark.parametrize("damage", NUMBERS)
def test_damaged_numbers_are_refused(kind: str, damage: str) -> None:
    domain, numbers, small = dumped(kind)
    with pytest.raises(StateError):
        KINDS[kind].restored(domain, NUMBERS[damage](numbers), small, by_overlap=False)


@pytest.mark.parametrize("damage", SHAPES)
def test_a_damaged_shape_is_refused(damage: str) -> None:
    domain, cuts, shape = dumped("tree")
    with pytest.raises(StateError):
        NegativeTree.restored(domain, cuts, SHAPES[damage](shape).astype(np.int8), by_overlap=False)


def test_a_tree_is_not_taken_for_a_list_nor_a_list_for_a_tree() -> None:
    for kind, other in (("tree", "rtree"), ("rtree", "tree")):
        domain, numbers, small = dumped(kind)
        with pytest.raises(StateError):
            KINDS[other].restored(domain, numbers, small, by_overlap=False)


@pytest.mark.parametrize(
    "rectangles",
    [
        [[[4, 0], [1, 6]]],
        [[[2, 0], [2, 6]]],
        [[[0, 0], [3, 6]], [[2, 0], [6, 6]]],
        [[[0, 0], [3, 6]], [[0, 0], [3, 6]]],
    ],
    ids=["inverted", "empty", "overlapping", "twice"],
)
def test_a_list_that_is_no_negative_space_is_refused(rectangles: list[list[list[int]]]) -> None:
    ends = np.array(rectangles, np.int64).reshape(-1)
    with pytest.raises(StateError):
        NegativeRtree.restored(naive.domain(2), ends, np.empty(0, np.int8), by_overlap=False)


# Kernels

NO_NUMBA = """
import numpy as np
from state.geometry.negative import NegativeTree

def box(lo, hi, dims):
    return np.array([[lo] * dims, [hi] * dims])

for dims in (1, 2, 16, 17, 31, 32):
    space = NegativeTree(box(0, 9, dims), by_overlap=True)
    space.cover(box(2, 7, dims))
    assert space.count == 2 * dims, (dims, space.count)
    space.cover(box(3, 8, dims))
    space.check()
    space = NegativeTree.restored(box(0, 9, dims), *space.dump(), by_overlap=True)
    space.cover(box(1, 4, dims))
    space.check()
    space = NegativeTree(box(0, 9, dims), by_overlap=True)
    space.cover(np.array([[0] * dims, [9] * (dims - 1) + [5]]))
    space = NegativeTree.restored(box(0, 9, dims), *space.dump(), by_overlap=True)
    space.cover(box(2, 7, dims))
    space.check()
"""


def test_a_tree_stays_inside_its_arrays_up_to_32_attributes() -> None:
    """Compiled, a kernel that writes beyond its array goes unnoticed; as plain Python it raises."""
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", NO_NUMBA], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Joining


@all_dims
@both_kinds
def test_joining_leaves_the_same_space_in_no_more_rectangles(kind: str, dims: int) -> None:
    rng = np.random.default_rng(dims)
    for _ in range(10):
        history = History(kind, "fixed", dims)
        for _ in range(8):
            history.cover(naive.random_box(rng, dims, SIZES[dims]))
        before = history.space.count
        boxes = sorted(history.small.values(), key=lambda box: -len(naive.cells(box)))
        history.space.join(naive.stacked(boxes, dims))
        history.check()
        assert kind == "tree" or history.space.count <= before


@both_kinds
def test_joining_that_takes_too_long_leaves_all_as_it_is(kind: str) -> None:
    rng = np.random.default_rng(5)
    history = History(kind, "fixed", 3)
    for _ in range(8):
        history.cover(naive.random_box(rng, 3, SIZES[3]))
    before = history.space.rectangles().tolist()
    history.space.join(naive.stacked(list(history.small.values()), 3), 8)
    assert history.space.rectangles().tolist() == before


# Looks


@both_kinds
def test_a_question_ends_after_so_many_looks(kind: str) -> None:
    history = History(kind, "fixed", 2)
    for box in (keys((0, 0), (3, 6)), keys((3, 0), (6, 3))):
        history.cover(box)
    gap, left = history.space.gap_within(history.domain, 10**6)
    assert gap is not None
    assert np.array_equal(gap, history.space.gap(history.domain))
    assert 0 <= left < 10**6
    assert history.space.gap_within(keys((0, 0), (3, 6)), 10**6)[0] is None
    assert history.space.gap_within(history.domain, 0) == (None, -1)


@both_kinds
def test_a_change_ends_after_so_many_looks(kind: str) -> None:
    history = History(kind, "fixed", 2)
    history.cover(keys((1, 1), (3, 3)))
    assert history.space.cover(keys((0, 0), (5, 5)), looks=1) == -1
    assert history.space.uncover(keys((1, 1), (3, 3))[None], looks=1) == -1
    assert History(kind, "fixed", 2).space.cover(keys((1, 1), (3, 3)), looks=10**6) >= 0


@given(naive.boxes(2, 5))
def test_joined_rectangles_cannot_be_joined_further(boxes: Keys) -> None:
    space = NegativeTree(naive.domain(2), by_overlap=False)
    for box in boxes:
        space.cover(box)
    found = joined(space.rectangles())
    assert naive.disjoint(found)
    assert naive.union(found) == naive.union(space.rectangles())
    for k, a in enumerate(found):
        for b in found[k + 1 :]:
            hull = np.stack((np.minimum(a[0], b[0]), np.maximum(a[1], b[1])))
            assert naive.cells(hull) != naive.cells(a) | naive.cells(b)
