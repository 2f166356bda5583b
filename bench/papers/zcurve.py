"""Shen and Tirthapura, "Approximate Covering Detection": costs, the share of covers found, the search by listed keys.

Cubes and runs are counted against epsilon, aspect ratio, dimensions and side length, in closed form (Lemma 3.4). Covers
are looked for among subscriptions spread evenly, as the paper assumes, and among others; each question is asked of the
walk that goes on to the end of a level of cubes, and of the one that stops where the paper stops.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.papers import zcurve_lemmas as lemmas
from bench.papers.zcurve_costs import cubes_by_level, cubes_needed, leading_bits, runs_needed
from bench.papers.zcurve_keys import ListedKeys, key_of, keys_of_level
from bench.report import Report, Step, median
from bench.workloads import DOMAIN, named, random_boxes, told_of, zipf_boxes
from state.curves.hilbert import Curve
from state.curves.zcurve import FOUND, ZCurve
from state.space import Keys
from state.strategies import Spec
from state.strategies.zcurve import BITS, BUDGET, EPSILON

SOURCES = (
    "bench/papers/zcurve.py",
    "bench/papers/zcurve_costs.py",
    "bench/papers/zcurve_keys.py",
    "bench/papers/zcurve_lemmas.py",
    "bench/workloads.py",
    "producers/workloads.py",
    "state/curves/hilbert.py",
    "state/curves/zcurve.py",
    "state/strategies/cover.py",
    "state/strategies/zcurve.py",
)
EPSILONS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
MOST_LISTED = 10_000
"""Cubes that are listed for one question; a thin region has a million."""
WIDEST = 0.2
"""Ranges of the narrow workload: up to this share of the domain."""


def measure(report: Report, step: Step, *, quick: bool) -> None:
    """Everything that the paper reports; `quick` takes fewer subscriptions."""
    step("counting cubes and runs")
    report.add("runs_256", runs_needed((256, 256), 9), "1")
    report.add("runs_257", runs_needed((257, 257), 9), "385")
    report.details["section_3_1"] = {
        "runs_256": runs_needed((256, 256), 9),
        "runs_257": runs_needed((257, 257), 9),
        "largest_share_257": round(256**2 / 257**2, 4),
        "cubes_257_at_0.01": cubes_needed((257, 257), 0.01),
    }
    report.details["figure_1"] = _two_curves()
    report.details["lemmas"] = _lemmas()
    report.details["leading_bits"] = _leading_shares()
    _by_side(report)
    _by_aspect(report)
    _by_epsilon(report, 100 if quick else 400)
    step("looking for covers")
    _found(report, step, 2_000 if quick else 10_000)
    step("listing keys, and walking the points")
    report.details["listed_keys"] = _listed(100 if quick else 400)


# Counts


def _two_curves() -> dict[str, float]:
    """Runs of both curves in every rectangle of a grid of 16 by 16."""
    side, hilbert = 16, Curve(2, 4)
    cells = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1)
    z = np.array([[key_of(cell, 4) for cell in row] for row in cells.tolist()])
    h = hilbert.keys(cells.reshape(-1, 2)).reshape(side, side)
    runs, places = [], [(a, b) for a in range(side) for b in range(a + 1, side + 1)]
    for a, b in places:
        for c, d in places:
            runs.append([_runs(keys[a:b, c:d].ravel()) for keys in (z, h)])
    both = np.array(runs)
    return {
        "rectangles": len(both),
        "three_and_two": int(((both[:, 0] == 3) & (both[:, 1] == 2)).sum()),
        "mean_z": round(float(both[:, 0].mean()), 3),
        "mean_hilbert": round(float(both[:, 1].mean()), 3),
        "hilbert_has_no_more": round(float((both[:, 1] <= both[:, 0]).mean()), 4),
    }


def _runs(keys: Keys) -> int:
    return 1 + int((np.diff(np.sort(keys)) != 1).sum())


def _lemmas() -> dict[str, list[int]]:
    """Lemmas 2.1, 3.3, 3.4, 3.5, 4.1 and Fact 2.1 by brute force, as pairs of numbers."""
    regions = list(lemmas.some_regions(12))
    levels = [dict(cubes_by_level(sides)) for sides in ((5, 6), (3, 7), (7, 7), (3, 5, 6))]
    listed = [
        {level: n for level in range(3) if (n := sum(1 for _ in keys_of_level(sides, level, 3)))}
        for sides in ((5, 6), (3, 7), (7, 7), (3, 5, 6))
    ]
    hardest = [lemmas.hardest(*case) for case in ((2, 5, 0, 2), (2, 5, 1, 3), (3, 3, 0, 2))]
    slabs = [lemmas.slab(*case) for case in ((2, 3, 0), (2, 3, 2), (3, 2, 0), (3, 2, 1))]
    return {
        "pairs_of_cubes_crossing": [sum(one) for one in zip(*map(lemmas.crossing, (1, 2, 3), (4, 3, 2)), strict=True)],
        "cubes_broken": [sum(one) for one in zip(*map(lemmas.broken, (2, 3), (3, 2)), strict=True)],
        "greedy_fewest": [
            sum(lemmas.greedy_cubes(r, 2) for r in regions),
            sum(lemmas.fewest_cubes(r, 2) for r in regions),
        ],
        "regions": [len(regions)],
        "levels_counted_listed": [sum(sum(one.values()) for one in found) for found in (levels, listed)],
        "levels_differ": [sum(a != b for a, b in zip(levels, listed, strict=True))],
        "hardest_ones": [sum(one) for one in zip(*hardest, strict=True)],
        "slab_cubes_runs": [sum(one) for one in zip(*slabs, strict=True)],
        "key_of_a": [key_of((0b010, 0b011), 3)],
    }


def _leading_shares() -> dict[str, float]:
    """Lemma 3.2: the least share of the volume that the leading bits keep, over what is asked for."""
    chance = np.random.default_rng(3)
    least = {}
    for axes in (2, 4, 6):
        for epsilon in EPSILONS:
            m = leading_bits(axes, epsilon)
            sides = chance.integers(1, 2**20, (2000, axes))
            share = min(math.prod(lemmas.leading(side, m) / side for side in row) for row in sides.tolist())
            least[f"{axes} axes, {epsilon}"] = round(share - (1 - epsilon), 5)
    return least


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


def _by_epsilon(report: Report, count: int) -> None:
    """The regions that random ranges at 10 bits give, by number of attributes."""
    chance = np.random.default_rng(1)
    counts: dict[str, list[float]] = {}
    for dims in (1, 2, 3):
        regions = _regions(chance, count, dims)
        counts[f"{dims} attributes"] = [median(cubes_needed(r, e) for r in regions) for e in EPSILONS]
    report.details["median_cubes_by_epsilon"] = {"epsilon": EPSILONS, **counts}
    report.details["median_share_searched"] = {
        f"{dims} attributes": round(median(searched_share(r, EPSILON) for r in _regions(chance, count, dims)), 4)
        for dims in (1, 2, 3)
    }
    report.details["median_runs_by_epsilon"] = {"epsilon": [*EPSILONS, 0.0], **_runs_by_epsilon(chance, count // 4)}


def _runs_by_epsilon(chance: np.random.Generator, count: int) -> dict[str, list[float]]:
    """Runs in the part that Lemma 3.2 searches, the leading bits of each side; with epsilon = 0 in all of it."""
    runs = {}
    for dims, bits in ((1, BITS), (2, 5)):
        regions = _regions(chance, count, dims, bits)
        runs[f"{dims} attributes, {bits} bits"] = [
            median(runs_needed([lemmas.leading(side, e) for side in r], bits) for r in regions)
            for e in (*((leading_bits(2 * dims, epsilon)) for epsilon in EPSILONS), bits + 1)
        ]
    return runs


def _regions(chance: np.random.Generator, count: int, dims: int, bits: int = BITS) -> list[list[int]]:
    """The sides of the regions in which containers of random ranges lie."""
    ends = np.sort(chance.integers(0, 1 << bits, (count, dims, 2)), axis=2)
    sides: list[list[int]] = np.concatenate((ends[:, :, 0] + 1, (1 << bits) - ends[:, :, 1]), axis=1).tolist()
    return sides


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
            some = boxes(count, dims)
            for epsilon in EPSILONS if dims == 2 else (EPSILON,):
                for stop in ("level", "share"):
                    rows.append({"workload": workload, "stop": stop, **_share_found(some, epsilon, stop)})
    report.details["covers_found"] = rows
    wanted = {"workload": "even", "stop": "level", "attributes": 2, "epsilon": EPSILON}
    chosen = next(row for row in rows if wanted.items() <= row.items())
    report.add("covers_found_2", chosen["share_found"], "at least 0.9")
    report.notes.append(
        f"covers found: {count:,} subscriptions one after another, those not covered exactly become active; bits = "
        f"{BITS}, budget = {BUDGET}. Even: both ends uniform. Narrow: ranges up to {WIDEST:.0%} of the domain; their "
        "points crowd along a diagonal, so that more covers lie in the share that is not searched."
    )


def _share_found(boxes: Keys, epsilon: float, stop: str) -> dict[str, Any]:
    """Ask `zcurve` and `cover` about each subscription, on the same active ones: those that are not covered exactly."""
    dims = boxes.shape[2]
    curve, exact = told_of(dims, Spec("zcurve", (("epsilon", epsilon), ("stop", stop)))), told_of(dims, Spec("cover"))
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


# Where the search ends


def searched_share(sides: list[int], epsilon: float) -> float:
    """The share of the region that is looked at when the last level of cubes is searched to its end."""
    whole = math.prod(sides)
    for level in range(min(sides).bit_length() - 1, -1, -1):
        share = math.prod(side >> level << level for side in sides) / whole
        if share >= 1 - epsilon:
            return share
    return 1.0


# Listing


def _listed(questions: int) -> list[dict[str, Any]]:
    """Ask the same points by the listed keys of the paper and by the walk, both stopping where the paper stops."""
    rows = []
    for dims, bits, epsilon in ((1, BITS, 0.05), (2, BITS, 0.5)):
        chance, axes = np.random.default_rng([7, dims]), 2 * dims
        cells = chance.integers(0, 1 << bits, (1000, axes)) >> 1  # the lower half: many have no container
        corners = chance.integers(0, 1 << bits, (questions, axes))
        curve, listed = ZCurve(axes, bits), ListedKeys(cells, bits)
        curve.fill(np.arange(len(cells)), cells)
        low, high = -cells[:, ::2] - 1, cells[:, 1::2] + 1
        boxes = np.ascontiguousarray(np.stack((low, high), axis=1))
        cubes, walked, took, agree = [], [], np.zeros(2), 0
        curve.search(corners[0], boxes, boxes[0], epsilon, BUDGET, at_share=True)  # compiles the kernel
        for corner in corners:
            q = np.stack((-corner[::2] - 1, corner[1::2] + 1))
            began = time.perf_counter()
            slots, looked = listed.search(corner.tolist(), epsilon, MOST_LISTED)
            between = time.perf_counter()
            end, _, steps = curve.search(corner, boxes, q, epsilon, 10**6, at_share=True)
            took += between - began, time.perf_counter() - between
            agree += (end == FOUND) == bool(slots)
            cubes.append(looked)
            walked.append(steps)
        us = (took / len(corners) * 1e6).round(1).tolist()
        rows.append(
            {
                "attributes": dims,
                "epsilon": epsilon,
                "questions": len(corners),
                "agree": round(agree / len(corners), 4),
                "median_cubes": median(cubes),
                "median_steps": median(walked),
                "listed_us": us[0],
                "walk_us": us[1],
            }
        )
    return rows
