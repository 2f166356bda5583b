"""`lacuna bench core`: matching, deciding and simulating, against an R-tree and against the paper's method.

* `match_vs_rtree` (at least 5): points per second, all matches, 10,000 boxes in 3 attributes: our index over rtree's
  bulk query; the smaller of the ratios for small and for large boxes.
* `match_vs_rtree_100k`, `match_vs_rtree_1m` (at least 15): the same with 100,000 and 1,000,000 boxes.
* `index_bytes_per_box_3d` (at most 80), `index_bytes_per_box_16d` (at most 350): memory of the index, 100,000 boxes.
* `cover_bands_10k_ms` (at most 3): is a box covered by 10,000 bands side by side? With the names of all of them.
* `decision_vs_rtree_negative_3d` (at least 20): subscribe decisions per second, Zipfian workload in 3 attributes:
  `auto` with its lists and certificates over the paper's method on an R-tree, which has none.
* `decision_growth_100k_vs_10k` (at most 3): time per decision of `auto` at 100,000 subscriptions over that at 10,000.
* `simulate_events_per_s`: 10,000 subscriptions and 100,000 publications, uniform, on 7 brokers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rtree import index as rtree_index

from bench.report import Report, Step, median, ratio, seconds
from bench.workloads import domain_of, named, random_boxes, told_of, zipf_boxes
from lacuna.simulate import simulate
from producers.workloads import Workload
from state.config import Config, parse
from state.geometry.boxes import Boxes
from state.geometry.boxindex import BoxIndex
from state.geometry.cover import COVERED
from state.geometry.negative import NegativeRtree, NegativeTree
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.routing.told import Told
from state.space import Keys
from state.strategies import Spec
from state.strategies.base import BUDGET

SEVEN_BROKERS = """
[space]
x = {kind = "float", low = 0.0, high = 1000.0}
y = {kind = "float", low = 0.0, high = 1000.0}
z = {kind = "int", low = 0, high = 100000}
[overlay]
links = [["a", "b"], ["b", "c"], ["b", "d"], ["d", "e"], ["d", "f"], ["a", "g"]]
"""


def run(step: Step, *, quick: bool) -> Report:
    """All figures of the core; `quick` takes a minute and shows the same shape."""
    report = Report("core", quick=quick)
    repeats = 3 if quick else 7
    step("matching against an R-tree")
    _match(report, repeats)
    step("matching against an R-tree, with more boxes")
    _match_more(report, repeats, quick=quick)
    step("memory of the index, and a box over ten thousand bands")
    _memory(report, 100_000)
    _bands(report, repeats)
    step("deciding against the paper's method on an R-tree")
    _decide(report, 2_000 if quick else 10_000)
    step("deciding with more and more subscriptions")
    _growth(report, 20_000 if quick else 100_000, 3 if quick else 5)
    step("simulating seven brokers")
    _simulate(report, *((2_000, 20_000) if quick else (10_000, 100_000)))
    return report


# Matching


def bulk_rtree(boxes: Keys) -> rtree_index.Index:
    """An R-tree packed with all boxes at once: its best case."""
    rows = ((k, (*box[0].tolist(), *(box[1] - 1).tolist()), None) for k, box in enumerate(boxes))
    return rtree_index.Index(rows, properties=rtree_index.Property(dimension=boxes.shape[2]))


def _match(report: Report, repeats: int) -> None:
    _match_many(
        report, "match_vs_rtree", 10_000, {"small": (0.02, 20_000), "large": (0.5, 2_000)}, repeats, "at least 5"
    )
    report.notes.append("match: 3 attributes, sizes up to 2 % (small), 10 % (medium), 50 % (large) of the domain.")


def _match_more(report: Report, repeats: int, *, quick: bool) -> None:
    few, many = (30_000, 100_000) if quick else (100_000, 1_000_000)
    _match_many(
        report, "match_vs_rtree_100k", few, {"small": (0.02, 5_000), "large": (0.5, 100)}, repeats, "at least 15"
    )
    _match_many(
        report, "match_vs_rtree_1m", many, {"small": (0.02, 2_000), "medium": (0.1, 500)}, repeats, "at least 15"
    )


def _match_many(
    report: Report, figure: str, count: int, kinds: dict[str, tuple[float, int]], repeats: int, goal: str
) -> None:
    """Compare with rtree for boxes of each kind: their widest share of the domain, and how many points to match."""
    ratios = {}
    for kind, (widest, sample) in kinds.items():
        boxes = random_boxes(count, 3, widest)
        points = (np.random.default_rng(2).random((sample, 3)) * 1e6).astype(np.int64)
        ours, theirs = BoxIndex(3, boxes), bulk_rtree(boxes)
        floats = points.astype(np.float64)
        found = len(ours.stab_all(points)[1])
        if found != len(theirs.intersection_v(floats, floats)[0]):  # type: ignore[no-untyped-call]
            raise AssertionError("the two indexes disagree about the matches")
        ratios[kind] = ratio(
            lambda floats=floats, theirs=theirs: theirs.intersection_v(floats, floats),  # type: ignore[misc]
            lambda points=points, ours=ours: ours.stab_all(points),  # type: ignore[misc]
            repeats,
        )
        report.details[f"{figure}_{kind}"] = {
            "boxes": count,
            "matches_per_point": found / sample,
            "us_per_point": round(seconds(lambda points=points, ours=ours: ours.stab_all(points)) / sample * 1e6, 2),  # type: ignore[misc]
            "ratio": round(ratios[kind], 2),
        }
    report.add(figure, min(ratios.values()), goal)


def _memory(report: Report, count: int) -> None:
    for dims, goal in ((3, "at most 80"), (16, "at most 350")):
        boxes = random_boxes(count, dims, 0.5)
        report.add(f"index_bytes_per_box_{dims}d", BoxIndex(dims, boxes).nbytes / count, goal)
        grown = BoxIndex(dims, boxes[: count // 2])
        for begin in range(count // 2, count, 16):
            grown.add(boxes[begin : begin + 16])
        report.details[f"index_bytes_per_box_{dims}d"] = {"half_added_one_by_one": round(grown.nbytes / count, 1)}


def _bands(report: Report, repeats: int) -> None:
    ends = np.arange(10_000)[:, None] * 100
    bands = np.stack((ends, ends + 100), axis=1)
    held = BoxList(1, ((Name("hub", "bench", str(k)), band[None]) for k, band in enumerate(bands)))
    q = np.array([[0], [1_000_000]])
    answer, names, _, looked = held.cover(q, BUDGET)
    if answer != COVERED or len(names) != len(bands):
        raise AssertionError("the bands cover the box, all of them")
    took = median(seconds(lambda: held.cover(q, BUDGET)) for _ in range(repeats))
    report.add("cover_bands_10k_ms", took * 1e3, "at most 3")
    report.details["cover_bands_10k"] = {"candidates_looked_at": looked}


# Deciding


def times_told(told: Told, subscriptions: list[tuple[Name, Boxes]]) -> NDArray[np.float64]:
    """Seconds for each subscribe decision, lists and certificates included."""
    took = np.empty(len(subscriptions))
    for k, (name, boxes) in enumerate(subscriptions):
        began = time.perf_counter()
        told.subscribe(name, boxes, "local")
        took[k] = time.perf_counter() - began
    return took


def times_rtree(boxes: Keys) -> tuple[NDArray[np.float64], int]:
    """Seconds for each decision of Fig. 6 on an R-tree, nothing else counted; and the rectangles at the end."""
    space = NegativeRtree(domain_of(boxes.shape[2]).keys(), by_overlap=False)
    return _times_space(space, boxes), space.count


def _times_space(space: NegativeRtree | NegativeTree, boxes: Keys) -> NDArray[np.float64]:
    took = np.empty(len(boxes))
    for k, box in enumerate(boxes):
        began = time.perf_counter()
        if space.gap(box) is not None:
            space.cover(box)
        took[k] = time.perf_counter() - began
    return took


def _decide(report: Report, count: int) -> None:
    boxes = zipf_boxes(count, 3)
    subscriptions = named(boxes)
    times_told(told_of(3, Spec("auto")), subscriptions[:200])
    auto = told_of(3, Spec("auto"))
    ours = median(times_told(told_of(3, Spec("auto")), subscriptions).mean() for _ in range(3))
    times_told(auto, subscriptions)
    paper, rectangles = times_rtree(boxes)
    report.add("decision_vs_rtree_negative_3d", paper.mean() / ours, "at least 20")
    report.details["decision_3d"] = {
        "subscriptions": count,
        "active": len(auto.active),
        "auto_us": round(ours * 1e6, 1),
        "rtree_us": round(float(paper.mean()) * 1e6, 1),
        "rtree_rectangles": rectangles,
    }
    report.details["decision_us_by_strategy"] = dict(_by_strategy(count))
    report.notes.append("decisions: Zipf 0.5 over permuted places, size up to the end; `auto` includes certificates.")


def _by_strategy(count: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Orientation: microseconds per decision of each strategy in 2 and 3 attributes (R-tree apart)."""
    for dims in (2, 3):
        subscriptions = named(zipf_boxes(count, dims))
        for name in ("cover", "union", "negative", "auto"):
            told = told_of(dims, Spec(name))
            mean = float(times_told(told, subscriptions).mean())
            yield f"{name}_{dims}d", {"us": round(mean * 1e6, 1), "active": len(told.active)}


def _growth(report: Report, count: int, repeats: int) -> None:
    subscriptions = named(zipf_boxes(count, 3))
    few, many = [], []
    for _ in range(repeats):
        took = times_told(told_of(3, Spec("auto")), subscriptions)
        few.append(took[count // 10 - count // 50 : count // 10].mean())
        many.append(took[-(count // 50) :].mean())
    report.add("decision_growth_100k_vs_10k", median(m / f for m, f in zip(many, few, strict=True)), "at most 3")
    report.details["growth"] = {
        "subscriptions": count,
        "us_at_a_tenth": round(median(few) * 1e6, 1),
        "us_at_the_end": round(median(many) * 1e6, 1),
    }


# Simulating


def _simulate(report: Report, subscriptions: int, publications: int) -> None:
    config = parse(SEVEN_BROKERS)
    for workload in ("uniform", "zipf"):
        events = _lines(config, Workload(workload, subscriptions, publications))
        summary: dict[str, Any] = simulate(config, events)
        rate = summary["events"] / summary["seconds"]
        report.details[f"simulate_{workload}"] = {"events_per_s": round(rate), **summary}
        if workload == "uniform":
            report.add("simulate_events_per_s", rate)


def _lines(config: Config, workload: Workload) -> list[bytes]:
    return [json.dumps(event).encode() for event in workload.events(config)]
