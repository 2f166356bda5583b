"""`lacuna bench zcurve`: approximate covering on a Z curve, and exact covering by a k-d tree.

* `runs_256`, `runs_257` (1 and 385): runs of the curve in a 256 x 256 and a 257 x 257 extremal square (section 3.1).
* `covers_found_2` (at least 0.9): share of the covered subscriptions that `zcurve` with epsilon = 0.05 and its default
  budget finds covered; 2 attributes, subscriptions spread evenly over the space, as the paper assumes.
* `exact_cover_vs_scan_1m` (at least 100): "who contains this box?" per second, k-d tree over a numpy scan, among
  1,000,000 boxes in 3 attributes.

Beside them: cubes and runs against epsilon, aspect ratio, dimensions and side length (in closed form: Lemma 3.4), the
share found and the time against epsilon, and the tree beside bit rows, an R-tree and the scan. Plots in `bench/out/`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.core import DOMAIN, bulk_rtree, named, random_boxes, told_of, zipf_boxes
from bench.plot import lines
from bench.report import Report, Step, median, seconds
from bench.zcurve_costs import cubes_needed, leading_bits, runs_needed
from state.geometry.boxindex import BoxIndex
from state.geometry.dominance import Dominance
from state.space import Keys
from state.strategies import Spec
from state.strategies.zcurve import BITS, BUDGET, EPSILON

EPSILONS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
WIDEST = 0.2
"""Ranges of the narrow workload, and of the boxes for exact covering: up to this share of the domain."""


def run(step: Step, *, quick: bool) -> Report:
    """All figures of the Z curve; `quick` takes fewer subscriptions."""
    report = Report("zcurve", quick=quick)
    step("counting cubes and runs")
    report.add("runs_256", runs_needed((256, 256), 9), "1")
    report.add("runs_257", runs_needed((257, 257), 9), "385")
    _by_side(report)
    _by_aspect(report)
    _by_epsilon(report, 100 if quick else 400)
    step("looking for covers")
    _found(report, step, 2_000 if quick else 10_000)
    step("exact covering against a scan")
    _exact(report, step, quick)
    return report


# Counts


def _by_side(report: Report) -> None:
    """Sides of all ones, aspect ratio 0: the approximate search stays flat, the exhaustive one does not."""
    gammas = range(2, 21)
    for axes in (2, 4, 6):
        approximate = [cubes_needed([2**g - 1] * axes, EPSILON) for g in gammas]
        exhaustive = [cubes_needed([2**g - 1] * axes) for g in gammas]
        runs = [runs_needed([2**g - 1] * axes, g) for g in gammas if g * (axes - 1) <= 14]
        report.details[f"cubes_by_side_{axes}_axes"] = {
            "side_bits": list(gammas),
            "epsilon_0.05": approximate,
            "exhaustive": exhaustive,
            "exhaustive_runs": runs,
        }
        sides = [2**g - 1 for g in gammas]
        lines(
            f"zcurve-side-{axes}",
            f"Cubes by side length, {axes} dimensions, aspect ratio 0",
            "side",
            "cubes or runs",
            {
                f"epsilon = {EPSILON}": (sides, approximate),
                "exhaustive": (sides, exhaustive),
                "exhaustive, runs": (sides[: len(runs)], runs),
            },
            log_x=True,
            log_y=True,
        )
    report.notes.append(
        "by side: from about log2(2n / epsilon) bits on, cubes at epsilon = 0.05 are constant (Theorem 3.1); the "
        "exhaustive search grows as the (n - 1)-th power of the side (Theorem 4.1)."
    )


def _by_aspect(report: Report) -> None:
    """The shortest side 8 bits of ones, all others alpha bits longer."""
    alphas = list(range(7))
    counts = {
        f"{axes} axes": [cubes_needed([255, *[2 ** (8 + a) - 1] * (axes - 1)], EPSILON) for a in alphas]
        for axes in (2, 4, 6)
    }
    report.details["cubes_by_aspect_ratio"] = {"alpha": alphas, **counts}
    series = {label: (alphas, values) for label, values in counts.items()}
    lines("zcurve-aspect", "Cubes by aspect ratio, epsilon = 0.05", "aspect ratio", "cubes", series, log_y=True)


def _by_epsilon(report: Report, count: int) -> None:
    """The regions that random ranges at 10 bits give, by number of attributes."""
    chance = np.random.default_rng(1)
    counts: dict[str, list[float]] = {}
    for dims in (1, 2, 3):
        ends = np.sort(chance.integers(0, 1 << BITS, (count, dims, 2)), axis=2)
        regions = np.concatenate((ends[:, :, 0] + 1, (1 << BITS) - ends[:, :, 1]), axis=1).tolist()
        counts[f"{dims} attributes"] = [median(cubes_needed(r, e) for r in regions) for e in EPSILONS]
    report.details["median_cubes_by_epsilon"] = {"epsilon": EPSILONS, **counts}
    report.details["median_runs_by_epsilon"] = {"epsilon": [*EPSILONS, 0.0], **_runs_by_epsilon(chance, count // 4)}
    report.details["median_cubes_at_0.05_known"] = {"1": 84, "2": 8e5, "3": 1.9e10}
    series = {label: (EPSILONS, values) for label, values in counts.items()}
    lines(
        "zcurve-epsilon", "Cubes by epsilon, random ranges, 10 bits", "epsilon", "cubes", series, log_x=True, log_y=True
    )


def _runs_by_epsilon(chance: np.random.Generator, count: int) -> dict[str, list[float]]:
    """Runs in the part that Lemma 3.2 searches, the leading bits of each side; with epsilon = 0 in all of it."""
    runs = {}
    for dims, bits in ((1, BITS), (2, 5)):
        ends = np.sort(chance.integers(0, 1 << bits, (count, dims, 2)), axis=2)
        regions = np.concatenate((ends[:, :, 0] + 1, (1 << bits) - ends[:, :, 1]), axis=1).tolist()
        runs[f"{dims} attributes, {bits} bits"] = [
            median(runs_needed([_leading(side, e) for side in r], bits) for r in regions)
            for e in (*((leading_bits(2 * dims, epsilon)) for epsilon in EPSILONS), bits + 1)
        ]
    return runs


def _leading(side: int, kept: int) -> int:
    """A side with only its leading bits."""
    drop = max(0, side.bit_length() - kept)
    return side >> drop << drop


# Covers found


def even_boxes(count: int, dims: int) -> Keys:
    """Both ends uniform in the domain [0, 1000]: as points, spread evenly over the universe."""
    ends = np.sort(np.random.default_rng(1).integers(0, DOMAIN + 1, (count, 2, dims)), axis=1)
    ends[:, 1] += 1
    return ends


def narrow_boxes(count: int, dims: int) -> Keys:
    """Ranges up to `WIDEST` of the domain: all points lie near one diagonal, so covers are close to the corner."""
    boxes = random_boxes(count, dims, WIDEST) // 1000
    boxes[:, 1] = np.maximum(boxes[:, 1], boxes[:, 0] + 1)
    return boxes


def _found(report: Report, step: Step, count: int) -> None:
    workloads: dict[str, Callable[[int, int], Keys]] = {"even": even_boxes, "narrow": narrow_boxes, "zipf": zipf_boxes}
    rows: list[dict[str, Any]] = []
    for workload, boxes in workloads.items():
        for dims in (1, 2, 3, 4):
            step(f"looking for covers: {workload}, {dims} attributes")
            for epsilon in EPSILONS if dims == 2 else (EPSILON,):
                rows.append({"workload": workload, **_share_found(boxes(count, dims), epsilon)})
    report.details["covers_found"] = rows
    two = {w: [row for row in rows if row["workload"] == w and row["attributes"] == 2] for w in workloads}
    series = {w: ([row["epsilon"] for row in mine], [row["share_found"] for row in mine]) for w, mine in two.items()}
    lines("zcurve-found", "Covers found, 2 attributes", "epsilon", "share", series, log_x=True)
    chosen = next(r for r in rows if (r["workload"], r["attributes"], r["epsilon"]) == ("even", 2, EPSILON))
    report.add("covers_found_2", chosen["share_found"], "at least 0.9")
    report.notes.append(
        f"covers found: {count:,} subscriptions one after another, those not covered exactly become active; bits = "
        f"{BITS}, budget = {BUDGET}. Even: both ends uniform. Narrow: ranges up to {WIDEST:.0%} of the domain; their "
        "points crowd along a diagonal, so that more covers lie in the share that is not searched."
    )


def _share_found(boxes: Keys, epsilon: float) -> dict[str, Any]:
    """Ask `zcurve` and `cover` about each subscription, on the same active ones: those that are not covered exactly."""
    dims = boxes.shape[2]
    curve, exact = told_of(dims, Spec("zcurve", (("epsilon", epsilon),))), told_of(dims, Spec("cover"))
    took, answers, steps = np.zeros((len(boxes), 2)), np.zeros((len(boxes), 2), bool), 0
    for k, (name, shape) in enumerate(named(boxes)):
        for which, told in enumerate((curve, exact)):
            began = time.perf_counter()
            verdict = told.strategy.decide(shape)
            took[k, which] = time.perf_counter() - began
            answers[k, which] = verdict.covered
            steps += verdict.nodes if told is curve else 0
        if not answers[k, 1]:
            for told in (curve, exact):
                told.active.add(name, shape)
                told.strategy.added(name, shape)
    if (answers[:, 0] & ~answers[:, 1]).any():
        raise AssertionError("zcurve found a cover that is none")
    return {
        "attributes": dims,
        "epsilon": epsilon,
        "active": len(exact.active),
        "covered": int(answers[:, 1].sum()),
        "share_found": round(float(answers[:, 0].sum() / answers[:, 1].sum()), 4),
        "steps": round(steps / len(boxes), 1),
        "zcurve_us": round(float(np.median(took[:, 0])) * 1e6, 1),
        "cover_us": round(float(np.median(took[:, 1])) * 1e6, 1),
    }


# Exact covering


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
