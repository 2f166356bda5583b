"""The fit of the model of cost (`bench.model`)."""

from __future__ import annotations

import pytest

from bench.model import _fit


def test_a_fit_finds_the_constants() -> None:
    counts = [(1.0, 2.0, 9.0), (4.0, 1.0, 0.0), (2.0, 7.0, 3.0), (5.0, 5.0, 1.0)]
    took = [3 * a + 0.5 * b + 7 * c for a, b, c in counts]
    assert _fit(counts, took).tolist() == pytest.approx([3, 0.5, 7])


def test_no_constant_is_below_zero() -> None:
    assert _fit([(1.0, 1.0), (1.0, 2.0)], [2.0, 1.0]).min() == 0
