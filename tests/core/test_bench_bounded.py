"""The cases of `bench bounded` are valid and can be measured; how long they take is not tested here."""

from __future__ import annotations

import pytest

from bench.bounded import CASES, STRATEGIES, WIDTH, Case, _measure, _measure_ends
from state.strategies import PARAMETERS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("size", [64, 1000])
def test_a_case_has_as_many_valid_boxes_as_asked_for(case: Case, size: int) -> None:
    boxes = case.active(size)
    assert 0.7 * size <= len(boxes) <= 1.1 * size
    assert boxes.shape[1:] == (2, case.dims)
    assert (boxes[:, 0] < boxes[:, 1]).all()
    assert boxes.min() >= 0
    assert boxes.max() <= WIDTH


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.dims == 2 and "lean" not in case.name], ids=lambda c: c.name
)
def test_a_case_can_be_measured(case: Case) -> None:
    row = _measure(case, "union", 64, 60.0)
    assert "unfinished" not in row
    assert row["worst_ms"] >= row["worst_filling_ms"] > 0


def test_many_ends_can_be_measured() -> None:
    assert _measure_ends(200)["worst_ms"] > 0


def test_a_strategy_that_is_too_slow_is_left_out() -> None:
    assert "unfinished" in _measure(CASES[0], "union", 64, 0.0)


def test_ranges_are_measured_too() -> None:
    assert "unfinished" not in _measure(CASES[0], "mics", 64, 60.0)


def test_every_strategy_that_decides_is_measured() -> None:
    assert set(STRATEGIES) == PARAMETERS.keys() - {"flood"}
