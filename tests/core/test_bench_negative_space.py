"""The benchmark's own arithmetic: what it counts, and how far a slow peer gets."""

from __future__ import annotations

import numpy as np

from bench.negative_space import seconds_each
from bench.papers.negative_space import S1, S2, S3, approximate, exact_counts, unremoved
from bench.workloads import domain_of, zipf_boxes
from state.geometry.negative import NegativeRtree, NegativeTree


def test_the_worked_example_is_counted_as_published() -> None:
    boxes = np.stack([s.keys() for s in (S1, S2, S3)])
    assert exact_counts(boxes, (1, 2, 3), by_overlap=False) == [4, 7, 7]


def test_approximate_counts_stay_within_k() -> None:
    boxes = zipf_boxes(60, 3)
    found = approximate(boxes, [20, 40, 60], k=5)
    assert all(count <= 1 + 5 * mark for count, mark in zip(found["rectangles"], (20, 40, 60), strict=True))
    assert found["withheld"] == sorted(found["withheld"])


def test_what_lies_wholly_inside_stays_by_one_reading_of_figure_8() -> None:
    """Of three nested boxes, the largest last, the rectangles that the first two left stay."""
    boxes = np.array([[[400, 400], [600, 600]], [[300, 300], [700, 700]], [[0, 0], [1001, 1001]]])
    assert unremoved(boxes, [1, 2, 3])["rectangles"][-1] > 1
    assert approximate(boxes, [1, 2, 3])["rectangles"][-1] == 0


def test_a_peer_that_is_too_slow_is_measured_as_far_as_it_gets() -> None:
    boxes, domain = zipf_boxes(60, 2), domain_of(2).keys()
    assert seconds_each(NegativeRtree(domain, by_overlap=False), boxes, 0.0)[1] == 8
    assert seconds_each(NegativeTree(domain, by_overlap=False), boxes)[1] == 60
