"""`lacuna bench zcurve`: what the paper reports (`bench.papers.zcurve`), and exact covering by a k-d tree.

* `runs_256`, `runs_257` (1 and 385): runs of the curve in a 256 x 256 and a 257 x 257 extremal square (section 3.1).
* `covers_found_2` (at least 0.9): share of the covered subscriptions that `zcurve` with epsilon = 0.05 and its default
  budget finds covered; 2 attributes, subscriptions spread evenly over the space, as the paper assumes.
* `exact_cover_vs_scan_1m` (at least 100): "who contains this box?" per second, k-d tree over a numpy scan, among
  1,000,000 boxes in 3 attributes. Beside it: bit rows and an R-tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.core import bulk_rtree
from bench.report import Report, Step, median, seconds
from bench.workloads import random_boxes
from state.geometry.boxindex import BoxIndex
from state.geometry.dominance import Dominance
from state.space import Keys

WIDEST = 0.2
"""Ranges of the boxes: up to this share of the domain."""


def beyond(report: Report, step: Step, *, quick: bool) -> None:
    """Exact covering against a scan."""
    _exact(report, step, quick)


def scan(columns: Sequence[NDArray[np.int64]], q: Keys) -> int | None:
    """The twin: the earliest container by comparing all boxes, a column at a time."""
    ends = q.T.reshape(-1)
    holds = columns[0] <= ends[0]
    for i in range(1, len(columns)):
        holds &= columns[i] <= ends[i] if i % 2 == 0 else columns[i] >= ends[i]
    first = int(holds.argmax())
    return first if holds[first] else None


def _exact(report: Report, step: Step, quick: bool) -> None:
    sizes = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    rows = []
    for count in sizes:
        step(f"exact covering among {count:,} boxes")
        rows.append(_against_scan(count, 3, with_rtree=count <= 100_000))
    report.details["exact_cover"] = rows
    if quick:
        rows.append(_against_scan(1_000_000, 3, with_rtree=False))
    report.add("exact_cover_vs_scan_1m", rows[-1]["scan_over_tree"], "at least 100")
    report.notes.append(
        f"exact cover: 3 attributes, uniform, ranges up to {WIDEST:.0%}; questions are other boxes of the same kind; "
        "medians of ratios taken in turns."
    )


def _against_scan(count: int, dims: int, *, with_rtree: bool) -> dict[str, Any]:
    boxes = random_boxes(count + 400, dims, WIDEST)
    boxes, questions = boxes[:count], boxes[count:]
    columns = [np.ascontiguousarray(boxes[:, end, i]) for i in range(dims) for end in (0, 1)]
    built = seconds(lambda: Dominance(dims, np.arange(count), boxes))
    tree, rows = Dominance(dims, np.arange(count), boxes), BoxIndex(dims, boxes)
    answers = [tree.first(q)[0] for q in questions]
    if answers[:20] != [scan(columns, q) for q in questions[:20]] or answers != [
        rows.first_containing(q) for q in questions
    ]:
        raise AssertionError("tree, rows and scan disagree")
    peers: dict[str, tuple[Callable[[Keys], object], int]] = {
        "tree": (tree.first, 400),
        "rows": (rows.first_containing, 400),
        "scan": (lambda q: scan(columns, q), 20),
    }
    if with_rtree:
        packed = bulk_rtree(boxes)
        peers["rtree"] = (lambda q: _rtree_container(packed, boxes, q), 20)
    turns = [{name: _per_question(ask, questions[:n]) for name, (ask, n) in peers.items()} for _ in range(7)]
    return {
        "boxes": count,
        "covered": round(sum(a is not None for a in answers) / len(answers), 3),
        "build_s": round(built, 3),
        **{f"{name}_us": round(median(turn[name] for turn in turns) * 1e6, 1) for name in peers},
        "scan_over_tree": round(median(turn["scan"] / turn["tree"] for turn in turns), 1),
        "rows_over_tree": round(median(turn["rows"] / turn["tree"] for turn in turns), 2),
    }


def _per_question(ask: Callable[[Keys], object], questions: Keys) -> float:
    return seconds(lambda: [ask(q) for q in questions]) / len(questions)


def _rtree_container(packed: Any, boxes: Keys, q: Keys) -> int | None:
    """The earliest container with an R-tree: who meets a corner of q, then by coordinates."""
    corner = q[0].astype(float)
    found = np.fromiter(packed.intersection((*corner, *corner)), np.int64)
    holds = found[(boxes[found, 0] <= q[0]).all(axis=1) & (boxes[found, 1] >= q[1]).all(axis=1)]
    return int(holds.min()) if len(holds) else None
