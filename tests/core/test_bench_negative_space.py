"""The benchmark's own arithmetic: what it counts, how far a slow peer gets, what the paper says in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.core import domain_of, zipf_boxes
from bench.negative_space import S1, S2, S3, approximate, claims, exact_counts, seconds_each
from state.geometry.negative import NegativeRtree, NegativeTree

FIGURES: dict[str, Any] = {
    "figure_10": {
        "n": [1, 2],
        **{f"{d}d": {"subsumption": [9 - d, 19 - d], "covering": [8 - d, 17 - d]} for d in (2, 3, 4)},
    },
    "figure_12": {"n": [1, 2], "k=10": [1, 10], "k=50": [2, 50], "k=100": [3, 60]},
    "figure_13": {"n": [1, 2], "k=10": [1, 10], "k=50": [2, 50], "k=100": [3, 60]},
    "figure_14": {"n": [1, 2], "ratio": [3, 30], "benefit": [2, 20], "cost": [1, 10]},
    "figure_15": {"n": [1, 2], "ratio": [3, 10], "benefit": [2, 20], "cost": [1, 30]},
}


def test_the_worked_example_is_counted_as_published() -> None:
    boxes = np.stack([s.keys() for s in (S1, S2, S3)])
    assert exact_counts(boxes, (1, 2, 3), by_overlap=False) == [4, 7, 7]


def test_approximate_counts_stay_within_k() -> None:
    boxes = zipf_boxes(60, 3)
    found = approximate(boxes, [20, 40, 60], 5, "ratio", "fixed")
    assert all(count <= 1 + 5 * mark for count, mark in zip(found["rectangles"], (20, 40, 60), strict=True))
    assert found["withheld"] == sorted(found["withheld"])


def test_a_peer_that_is_too_slow_is_measured_as_far_as_it_gets() -> None:
    boxes, domain = zipf_boxes(60, 2), domain_of(2).keys()
    assert seconds_each(NegativeRtree(domain, by_overlap=False), boxes, 0.0)[1] == 8
    assert seconds_each(NegativeTree(domain, by_overlap=False), boxes)[1] == 60


def test_what_the_paper_says_is_looked_for_in_the_figures() -> None:
    assert all(claims(FIGURES).values())


@pytest.mark.parametrize(
    ("figure", "curve", "claim"),
    [
        ("figure_12", "k=50", "figure 12: k from 10 to 50 gains more than from 50 to 100"),
        ("figure_13", "k=100", "figure 13: k = 100 keeps more rectangles than 50"),
        ("figure_14", "ratio", "figure 14: the ratio finds most"),
        ("figure_14", "benefit", "figure 14: benefit finds more than cost"),
    ],
)
def test_a_claim_that_does_not_hold_is_not_said_to(figure: str, curve: str, claim: str) -> None:
    other = FIGURES | {figure: FIGURES[figure] | {curve: [0, 5]}}
    assert not claims(other)[claim]
