"""Golden facts of the paper on probabilistic subsumption, by its tables. Its ranges are closed; ours are half-open."""

from __future__ import annotations

import numpy as np
import pytest

from lacuna.analysis.chain import pinwheel
from state.geometry.boxes import Box, stack
from state.matching.boxlist import BoxList
from state.space import Keys
from state.strategies import Spec, Verdict
from state.strategies.probabilistic.conflict import ConflictTable
from state.strategies.probabilistic.rspc import guesses, least_share, shares
from tests.core import naive
from tests.core.naive import name

DOMAIN = Box((0, 0), (2000, 2000))


def closed(x1: tuple[int, int], x2: tuple[int, int]) -> Box:
    return Box((x1[0], x2[0]), (x1[1] + 1, x2[1] + 1))


def table(s: Box, *others: Box) -> ConflictTable:
    return ConflictTable(s.keys(), stack(others, 2))


def decided(s: Box, *others: Box) -> Verdict:
    active = BoxList(2)
    for k, box in enumerate(others, 1):
        active.add(name(f"s{k}"), (box,))
    return Spec("probabilistic").build(naive.space_of(DOMAIN), active).decide((s,))


S = closed((830, 870), (1003, 1006))
S1, S2 = closed((820, 850), (1001, 1007)), closed((840, 880), (1002, 1009))
S3 = closed((810, 890), (1004, 1005))


def test_table_2_two_subscriptions_cover_together_what_neither_does_alone() -> None:
    assert ConflictTable(S.keys(), stack([S1, S2], 2)).container() is None
    verdict = decided(S, S1, S2)
    assert verdict.covered
    assert verdict.coverers == (name("s1"), name("s2"))
    assert 0 < verdict.bound <= 1e-6


def test_table_4_the_conflict_table() -> None:
    entries = table(S, S1, S2)
    assert entries.defined.tolist() == [[False, True, False, False], [True, False, False, False]]
    assert entries.boxes[0, 1, 0] == 851, "x1 > 850"
    assert entries.boxes[1, 0, 0] == 840, "x1 < 840"
    assert not entries.open()
    assert entries.minimized()[1] == 2


def test_table_5_not_covered_and_any_point_right_of_870_shows_it() -> None:
    s = closed((830, 890), (1003, 1006))
    verdict = decided(s, closed((820, 850), (1002, 1009)), closed((840, 870), (1001, 1007)))
    assert not verdict.covered
    assert verdict.witness is not None
    assert verdict.witness.lo[0] > 870
    assert verdict.witness.hi[0] - 1 <= 890
    assert (verdict.witness.lo[1], verdict.witness.hi[1]) == (1003, 1007)


def test_tables_6_and_7_entries_that_conflict_with_none_make_a_row_redundant() -> None:
    entries = table(S, S1, S2, S3)
    assert entries.defined.tolist() == [
        [False, True, False, False],
        [True, False, False, False],
        [False, False, True, True],
    ]
    assert entries.boxes[2, 0, 1] == 1004, "x2 < 1004"
    assert entries.boxes[2, 1, 1] == 1006, "x2 > 1005"
    rows, left = entries.minimized()
    assert rows[:left].tolist() == [0, 1]
    assert decided(S, S1, S2, S3).coverers == (name("s1"), name("s2"))


def test_algorithm_2_as_printed_answers_no_wrongly() -> None:
    """`fc >= 0` holds for every row: all would go, and nothing left means NO. But s is covered."""
    assert naive.covered(Box((30, 3), (71, 7)).keys(), [Box((20, 1), (51, 8)).keys(), Box((40, 2), (81, 10)).keys()])
    assert table(S, S1, S2).minimized()[1] == 2


def test_corollary_1_a_row_without_entries_contains_s() -> None:
    assert table(S, S3, S1, closed((0, 1000), (0, 1500))).container() == 2
    assert decided(S, S1, S, S2).coverers == (name("s2"),)
    assert decided(S, S1, S, S2).bound == 0


def test_corollary_2_decides_nothing() -> None:
    """Inside s on every side: all entries defined. It says nothing about whether s is covered."""
    inner = closed((840, 860), (1004, 1005))
    assert table(S, inner).defined.all()
    assert not decided(S, inner).covered
    assert decided(S, inner, S1, S2).covered


def test_corollary_3_enough_entries_are_a_certain_no() -> None:
    s = Box((0, 0), (100, 100))
    entries = table(s, Box((0, 0), (100, 50)), Box((10, 0), (100, 90)), Box((10, 10), (90, 90)))
    assert entries.counts.tolist() == [1, 2, 4]
    assert entries.open()
    witness = entries.witness(entries.few_first())
    assert not any(naive.meets(witness.keys() // 10, box // 10) for box in entries.boxes)


@pytest.mark.parametrize("hole", [2, 4, 8])
def test_rho_as_printed_is_no_lower_bound(hole: int) -> None:
    """The paper measures from the ends of s only; the hole between the four is thinner. Ours is exact here."""
    s, around = pinwheel(hole, side=30)
    keys: Keys = stack(around, 2)
    assert ConflictTable(s.keys(), keys).minimized()[1] == 4
    taken = shares(naive.space_of(s), s.keys(), keys)
    printed, ours = least_share(s.keys(), keys, taken, False), least_share(s.keys(), keys, taken, True)
    uncovered = len(naive.cells(s.keys()) - naive.union(keys)) / 900
    assert ours == pytest.approx(uncovered)
    assert printed > 1.8 * uncovered
    assert (1 - uncovered) ** guesses(1e-6, printed) > 1e-6 >= (1 - uncovered) ** guesses(1e-6, ours)


def test_equation_1() -> None:
    assert guesses(1e-6, 0.01) == np.ceil(np.log(1e-6) / np.log(0.99))
    assert guesses(1e-10, 0.0) == np.inf
    assert (1 - 0.01) ** guesses(1e-6, 0.01) <= 1e-6 < (1 - 0.01) ** (guesses(1e-6, 0.01) - 1)
