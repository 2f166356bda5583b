"""Golden facts of the dimension-pruning paper, by section; numbers worked out by hand."""

from __future__ import annotations

import pytest

from state.filters.pruning import Estimate, estimate, options, steps
from state.filters.trees import And, Filter, Leaf, Or, pmin
from state.space import Attribute, Space

SPACE = Space(tuple(Attribute(name, "int", 0, 9) for name in "abcd"))
A, B, C, D = (Leaf(i, 0, 5) for i in range(4))
SHARES = {A: 0.9, B: 0.5, C: 0.2, D: 0.1}
TREE = And((A, Or((B, And((C, D))))))


def share(leaf: Leaf) -> float:
    return SHARES[leaf]


def test_section_3_1_selectivity_of_and_and_or() -> None:
    assert estimate(And((A, B)), share) == pytest.approx((0.4, 0.45, 0.5))
    assert estimate(And((C, D)), share) == pytest.approx((0.0, 0.02, 0.1))
    assert estimate(Or((B, C)), share) == pytest.approx((0.5, 0.6, 0.7))
    assert estimate(Or((A, B)), share) == pytest.approx((0.9, 0.95, 1.0))
    assert estimate(TREE, share) == pytest.approx((0.4, 0.9 * 0.51, 0.6))


def test_section_3_1_degradation_is_the_largest_difference() -> None:
    assert Estimate(0.2, 0.5, 0.6).degradation(Estimate(0.1, 0.3, 0.5)) == pytest.approx(0.2)
    without_a = estimate(Or((B, And((C, D)))), share)
    assert without_a.degradation(estimate(TREE, share)) == pytest.approx(max(0.1, 0.51 - 0.459, 0.0))


def test_section_3_1_degradation_is_against_the_original() -> None:
    """Small degradations add up: the second step is rated against the unpruned tree, not against the first."""
    tree = And((A, B, C))
    first, second = steps(tree, "network", share, SPACE)
    assert first.tree == And((B, C))
    assert first.key[0] == pytest.approx(max(0.0, 0.1 - 0.09, 0.0))
    assert second.tree == C
    assert second.key[0] == pytest.approx(max(0.2 - 0.0, 0.2 - 0.09, 0.0))


def test_section_3_2_memory_only_where_nothing_below_can_be_pruned() -> None:
    """The OR below the root holds an AND, so it may not be taken as a whole; its parts may."""
    paths = {option.path for option in options(TREE, share, SPACE)}
    assert paths == {(0,), (1,), (1, 1, 0), (1, 1, 1)}
    assert {option.path for option in options(TREE, share, SPACE, lowest=True)} == {(0,), (1, 1, 0), (1, 1, 1)}


def test_section_3_2_memory_is_against_the_tree_before_the_step() -> None:
    series = list(steps(And((A, B, C)), "memory", share, SPACE))
    assert [step.key[0] for step in series] == [-24.0, -32.0], "a predicate; then a predicate and the AND"


def test_section_3_3_pmin() -> None:
    assert [pmin(tree) for tree in (A, And((A, B, C)), Or((A, And((B, C)))), TREE)] == [1, 3, 1, 2]


def test_section_3_3_throughput_lowers_pmin_least() -> None:
    """C or D can go without lowering pmin, because B alone fulfils the OR; A can not."""
    first = next(steps(TREE, "throughput", share, SPACE))
    assert first.key[0] == 0.0
    assert first.tree == And((A, Or((B, D)))), "of the two that lower nothing, the one that degrades less"


def test_section_3_4_ties_fall_to_the_next_dimension() -> None:
    """By network two predicates degrade alike; the one whose going lowers pmin less goes first."""
    equal: dict[Filter, float] = {A: 1.0, B: 1.0, C: 0.5, D: 0.5}
    tree = And((A, C, Or((B, D))))
    first = next(steps(tree, "network", lambda leaf: equal[leaf], SPACE))
    assert first.key[0] == 0.0
    assert first.tree == And((A, C)), "as much as taking A, in degradation and pmin, but it saves more"
    by_memory = next(steps(And((A, C)), "memory", lambda leaf: equal[leaf], SPACE))
    assert by_memory.tree == C, "both save the same: the one that degrades less"
