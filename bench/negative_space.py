"""`lacuna bench negative-space`: Tables 1 and 2 and Fig. 10 to 15 of Jafarpour et al., and what beats them.

* `tree_vs_rtree_2d`, `tree_vs_rtree_3d` (at least 20): decisions per second of Fig. 6, 10,000 subscriptions: negative
  rectangles as leaves of a tree over the same rectangles in an R-tree, both asked from Python for one subscription at a
  time. (What the tree does with all of them in one call: see `details`.)
* `union_vs_rtree_4d` (at least 500): decisions per second, exact cover on demand over the R-tree, for as many
  subscriptions as the R-tree manages in the time that it is given; `details` say how many.
* `union_growth_100k_vs_10k_4d` (below 10, the aim is 2): time per decision of `union`, certificates and lists included.
* `rectangles_overlap_vs_fixed_3d`, `_4d` (at most 0.5): rectangles left by cutting the largest overlap first, over
  those left by the published order.
* `unsubscribe_vs_subscribe_4d` (at most 10): time per unsubscribe over time per subscribe, `union`, 10,000
  subscriptions, all cancelled in random order, promotions included.
* `golden_rectangles_0` to `_3` (1, 4, 7, 7): the worked example of the paper.

Workload: whole numbers in [0, 1000], the low end Zipf 0.5 over randomly permuted places, the size uniform up to the
end. The paper gives no exponent; no single one reproduces all its rows, this one comes closest to them jointly.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench.core import domain_of, named, times_told, told_of, zipf_boxes
from bench.report import Report, Step, median
from state.geometry.boxes import Box
from state.geometry.negative import NegativeRtree, NegativeSpace, NegativeTree
from state.protocol.reasons import Reason
from state.space import Keys
from state.strategies import Spec

OUT = Path(__file__).parent / "out"
MARKS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""The columns of the tables: shares of all subscriptions. In 4D the paper's Table 1 ends at 4,000: 1 GB was full."""
PUBLISHED_EXACT: dict[int, list[int]] = {
    2: [181, 118, 81, 73, 66],
    3: [15983, 20154, 19667, 20756, 22230],
    4: [364740, 665000],
}
PUBLISHED_APPROXIMATE: dict[int, list[int]] = {
    2: [367, 405, 430, 438, 443],
    3: [27928, 30221, 31755, 33071, 34079],
    4: [13455, 23414, 32148, 39969, 47064],
}
K = 50
S1, S2, S3 = Box((175, 180), (511, 681)), Box((405, 110), (841, 541)), Box((380, 230), (721, 496))
ALLOWED = {2: 60.0, 3: 150.0, 4: 40.0, 5: 20.0}
"""Seconds that the R-tree may take by number of attributes: enough for 10,000 subscriptions in 2 and 3."""
Series = dict[str, list[int]]


def run(step: Step, *, quick: bool) -> Report:
    """Everything; `quick` with fewer subscriptions, the same shape."""
    report = Report("negative-space", quick=quick)
    count = 2_000 if quick else 10_000
    step("the worked example")
    _golden(report)
    step("tables 1 and 2")
    _tables(report, count, [250, 500] if quick else [2_000, 4_000])
    step("figures 10 and 11: what is found redundant")
    _redundant(report, count)
    step("figures 12 to 15: k and the selection")
    _approximations(report, count)
    report.details["claims"] = claims(report.details)
    step("time per decision: R-tree, tree, on demand")
    _times(report, count, 0.1 if quick else 1.0, 3 if quick else 5)
    step("on demand with more and more subscriptions")
    _growth(report, 20_000 if quick else 100_000, 2 if quick else 3)
    step("unsubscribing")
    _unsubscribe(report, count, 2 if quick else 3)
    step("approximate and exact unsubscription, join, drift")
    _choices(report, count // 5)
    step("plots")
    report.details["plots"] = _plots(report.details)
    report.notes += NOTES
    return report


# The worked example


def _golden(report: Report) -> None:
    told = told_of(2, Spec("negative", (("order", "fixed"),)))
    for k, goal in enumerate((1, 4, 7, 7)):
        if k:
            told.subscribe(*named(np.stack([s.keys() for s in (S1, S2, S3)]))[k - 1], "local")
        report.add(f"golden_rectangles_{k}", told.strategy.negative_rectangles or 0, str(goal))


# Tables 1 and 2


def exact_counts(boxes: Keys, marks: Iterable[int], *, by_overlap: bool) -> list[int]:
    """Negative rectangles after so many subscriptions (Fig. 6)."""
    space, counts, done = NegativeTree(domain_of(boxes.shape[2]).keys(), by_overlap=by_overlap), [], 0
    for mark in marks:
        space.cover_all(boxes[done:mark])
        counts.append(space.count)
        done = mark
    return counts


def approximate(boxes: Keys, marks: list[int], k: int, select: str, order: str) -> Series:
    """Rectangles and withheld subscriptions after so many of them (Fig. 8)."""
    parameters = (("drift", 0), ("k", k), ("order", order), ("select", select))
    told = told_of(boxes.shape[2], Spec("negative-approx", parameters))
    rectangles, hidden, before = [], [], 1
    for number, one in enumerate(named(boxes), 1):
        told.subscribe(*one, "local")
        count = told.strategy.negative_rectangles or 0
        if count > before + k:
            raise AssertionError(f"a subscription made {count - before} new rectangles, more than {k}")
        before = count
        if number in marks:
            rectangles.append(count)
            hidden.append(len(told.passive))
    return {"rectangles": rectangles, "withheld": hidden}


def _marks(count: int) -> list[int]:
    return [round(count * mark) for mark in MARKS]


def _tables(report: Report, count: int, marks_4d: list[int]) -> None:
    one: dict[str, Any] = {}
    two: dict[str, Any] = {}
    for dims in (2, 3, 4):
        marks = _marks(count) if dims < 4 else marks_4d
        boxes = zipf_boxes(count, dims)
        fixed = exact_counts(boxes, marks, by_overlap=False)
        overlap = exact_counts(boxes, marks, by_overlap=True)
        one[f"{dims}d"] = {"n": marks, "fixed": fixed, "overlap": overlap, "published": PUBLISHED_EXACT[dims]}
        if dims > 2:
            name = f"rectangles_overlap_vs_fixed_{dims}d"
            report.add(name, overlap[-1] / fixed[-1], "at most 0.5")
        rows: dict[str, Any] = {"n": _marks(count), "published": PUBLISHED_APPROXIMATE[dims]}
        for order in ("fixed", "overlap"):
            found = approximate(boxes, _marks(count), K, "ratio", order)
            rows[order], rows[f"{order}_withheld"] = found["rectangles"], found["withheld"]
        two[f"{dims}d"] = rows
    report.details["table_1_exact"], report.details["table_2_k_50"] = one, two


# Fig. 10 and 11


def withheld(boxes: Keys, spec: Spec, marks: list[int]) -> list[int]:
    """Count the first subscriptions that a strategy withholds."""
    told = told_of(boxes.shape[2], spec)
    hidden = np.cumsum([told.subscribe(*one, "local")[0].action == "withhold" for one in named(boxes)])
    return [int(hidden[mark - 1]) for mark in marks]


def _redundant(report: Report, count: int) -> None:
    marks = _marks(count)
    figure_10: dict[str, Any] = {"n": marks}
    figure_11: dict[str, Any] = {"n": marks}
    for dims in (2, 3, 4):
        boxes = zipf_boxes(count, dims)
        covering = withheld(boxes, Spec("cover"), marks)
        subsumption = withheld(boxes, Spec("union"), marks)
        figure_10[f"{dims}d"] = {"subsumption": subsumption, "covering": covering}
        approximated = report.details["table_2_k_50"][f"{dims}d"]["fixed_withheld"]
        figure_11[f"{dims}d"] = {
            "approximate": approximated,
            "covering": covering,
            "extra": [a - c for a, c in zip(approximated, covering, strict=True)],
        }
    report.details["figure_10"], report.details["figure_11"] = figure_10, figure_11


# Fig. 12 to 15


def _approximations(report: Report, count: int) -> None:
    boxes, marks = zipf_boxes(count, 3), _marks(count)
    covering = report.details["figure_10"]["3d"]["covering"]
    cases: dict[str, tuple[int, str]] = {f"k={k}": (k, "ratio") for k in (10, 50, 100)}
    cases |= {"benefit": (K, "benefit"), "cost": (K, "cost")}
    found = {name: approximate(boxes, marks, *case, "fixed") for name, case in cases.items()}
    found["ratio"] = found[f"k={K}"]
    extra = {name: [w - c for w, c in zip(f["withheld"], covering, strict=True)] for name, f in found.items()}
    rectangles = {name: f["rectangles"] for name, f in found.items()}
    by_k, by_select = ("k=10", "k=50", "k=100"), ("ratio", "benefit", "cost")
    figures = {12: (extra, by_k), 13: (rectangles, by_k), 14: (extra, by_select), 15: (rectangles, by_select)}
    for number, (series, names) in figures.items():
        report.details[f"figure_{number}"] = {"n": marks, **{name: series[name] for name in names}}


def claims(details: Mapping[str, Any]) -> dict[str, bool]:
    """Check the statements of the paper about figures for which it prints no numbers."""
    redundant = [details["figure_10"][f"{dims}d"] for dims in (2, 3, 4)]
    extra, kept, found, left = (_ends(details[f"figure_{number}"]) for number in (12, 13, 14, 15))
    return {
        "figure 10: subsumption finds more than covering": all(
            s > c for row in redundant for s, c in zip(row["subsumption"], row["covering"], strict=True)
        ),
        "figure 10: fewer are redundant in more attributes": all(
            few["subsumption"][-1] > more["subsumption"][-1] for few, more in pairwise(redundant)
        ),
        "figure 12: k from 10 to 50 gains more than from 50 to 100": (
            extra["k=50"] - extra["k=10"] > extra["k=100"] - extra["k=50"]
        ),
        "figure 13: k = 100 keeps more rectangles than 50": kept["k=100"] > kept["k=50"],
        "figure 14: the ratio finds most": found["ratio"] == max(found.values()),
        "figure 14: benefit finds more than cost": found["benefit"] > found["cost"],
        "figure 15: the ratio keeps the fewest rectangles": left["ratio"] == min(left.values()),
    }


def _ends(figure: Mapping[str, list[int]]) -> dict[str, int]:
    """The last value of each curve."""
    return {name: values[-1] for name, values in figure.items() if name != "n"}


# Time per decision


def seconds_each(space: NegativeSpace, boxes: Keys, allowance: float = math.inf) -> tuple[float, int]:
    """Seconds for a decision of Fig. 6, one call each, and how many were made in the time allowed."""
    done, took, began = 0, 0.0, time.perf_counter()
    while done < len(boxes) and took <= allowance:
        some = boxes[done : done + 8]
        for box in some:
            if space.gap(box) is not None:
                space.cover(box)
        done += len(some)
        took = time.perf_counter() - began
    return took / done, done


def seconds_run(boxes: Keys, *, by_overlap: bool) -> float:
    """Seconds for a decision of Fig. 6, all subscriptions given to the tree as one run."""
    space = NegativeTree(domain_of(boxes.shape[2]).keys(), by_overlap=by_overlap)
    began = time.perf_counter()
    space.cover_all(boxes)
    return (time.perf_counter() - began) / len(boxes)


def seconds_told(boxes: Keys) -> float:
    """Seconds for a decision on demand, with lists and certificates."""
    return float(times_told(told_of(boxes.shape[2], Spec("union")), named(boxes)).mean())


def _times(report: Report, count: int, share: float, repeats: int) -> None:
    rows: dict[str, Any] = {}
    for dims, seconds in ALLOWED.items():
        domain = domain_of(dims).keys()
        _measured(domain, zipf_boxes(50, dims, seed=2), seconds)  # compiles the kernels
        boxes = zipf_boxes(count, dims)
        # Where the R-tree takes long, one pass is enough: noise averages out within it.
        turns = [_measured(domain, boxes, seconds * share) for _ in range(repeats if dims == 2 else 1)]
        took = {name: median(turn[name] for turn in turns) for name in turns[0]}
        reached = round(took.pop("subscriptions"))
        took[f"union_at_{count}"] = seconds_told(boxes)
        rows[f"{dims}d"] = {"subscriptions": reached} | {f"{name}_us": _us(each) for name, each in took.items()}
        if dims < 4:
            gain = median(turn["rtree"] / turn["tree"] for turn in turns)
            report.add(f"tree_vs_rtree_{dims}d", gain, "at least 20")
        if dims == 4:
            report.add("union_vs_rtree_4d", took["rtree"] / took["union"], "at least 500")
    report.details["time_per_decision"] = rows


def _measured(domain: Keys, boxes: Keys, allowance: float) -> dict[str, float]:
    """Seconds for a decision each way, one right after the other, for as many as the R-tree manages."""
    rtree, reached = seconds_each(NegativeRtree(domain, by_overlap=False), boxes, allowance)
    some = boxes[:reached]
    return {
        "subscriptions": reached,
        "rtree": rtree,
        "tree": seconds_each(NegativeTree(domain, by_overlap=False), some)[0],
        "tree_overlap": seconds_each(NegativeTree(domain, by_overlap=True), some)[0],
        "tree_in_one_call": seconds_run(some, by_overlap=False),
        "union": seconds_told(some),
    }


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 2)


def _growth(report: Report, count: int, repeats: int) -> None:
    subscriptions = named(zipf_boxes(count, 4))
    few, many = [], []
    for _ in range(repeats):
        took = times_told(told_of(4, Spec("union")), subscriptions)
        few.append(took[count // 10 - count // 50 : count // 10].mean())
        many.append(took[-(count // 50) :].mean())
    growth = median(m / f for m, f in zip(many, few, strict=True))
    report.add("union_growth_100k_vs_10k_4d", growth, "below 10, the aim is 2")
    report.details["union_growth_4d"] = {
        "subscriptions": count,
        "us_at_a_tenth": _us(median(few)),
        "us_at_the_end": _us(median(many)),
    }


# Unsubscribing


def _unsubscribe(report: Report, count: int, repeats: int) -> None:
    subscriptions = named(zipf_boxes(count, 4))
    ratios, comes, goes = [], [], []
    for seed in range(repeats):
        told = told_of(4, Spec("union"))
        comes.append(times_told(told, subscriptions).mean())
        order = np.random.default_rng(seed).permutation(count)
        began = time.perf_counter()
        for k in order:
            told.unsubscribe(subscriptions[k][0], Reason.UNSUBSCRIBED)
        goes.append((time.perf_counter() - began) / count)
        ratios.append(goes[-1] / comes[-1])
    report.add("unsubscribe_vs_subscribe_4d", median(ratios), "at most 10")
    report.details["unsubscribe_4d"] = {"subscribe_us": _us(median(comes)), "unsubscribe_us": _us(median(goes))}


# The defaults


def churn(dims: int, count: int, spec: Spec) -> dict[str, float | int | None]:
    """Let `count` subscriptions stand; twice as many times one of them goes and another comes."""
    subscriptions = named(zipf_boxes(3 * count, dims))
    told = told_of(dims, spec)
    for one in subscriptions[:count]:
        told.subscribe(*one, "local")
    standing, chance = list(range(count)), np.random.default_rng(3)
    messages = rebuilds = 0
    work = idle = 0.0
    for k in range(count, len(subscriptions)):
        place = int(chance.integers(count))
        gone, standing[place] = standing[place], k
        began = time.perf_counter()
        decisions = told.unsubscribe(subscriptions[gone][0], Reason.UNSUBSCRIBED) + told.subscribe(
            *subscriptions[k], "local"
        )
        decided = time.perf_counter()
        rebuilds += told.strategy.rebuilding and told.strategy.rebuild_step()
        idle += time.perf_counter() - decided
        work += decided - began
        messages += sum(len(decision.messages()) for decision in decisions)
    steps = len(subscriptions) - count
    return {
        "messages": messages,
        "active": len(told.active),
        "rectangles": told.strategy.negative_rectangles,
        "us": _us(work / steps),
        "idle_us": _us(idle / steps),
        "rebuilds": rebuilds,
    }


CHOICES: Mapping[str, Spec] = {
    "union": Spec("union"),
    "negative": Spec("negative", (("join", "never"),)),
    "negative, join": Spec("negative"),
    "approximate": Spec("negative-approx", (("drift", 0), ("unsubscribe", "approximate"))),
    "approximate, drift 2": Spec("negative-approx", (("unsubscribe", "approximate"),)),
    "exact repair": Spec("negative-approx", (("drift", 0),)),
    "exact repair, drift 2": Spec("negative-approx"),
}


def _choices(report: Report, count: int) -> None:
    """Measure the evidence for the defaults of `join`, `unsubscribe` and `drift`."""
    report.details["churn_3d"] = {name: churn(3, count, spec) for name, spec in CHOICES.items()}
    few = max(count // 4, 100)
    report.details["churn_4d"] = {name: churn(4, few, spec) for name, spec in CHOICES.items() if name != "negative"}


# Plots


def _plots(details: dict[str, Any]) -> list[str]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    OUT.mkdir(exist_ok=True)
    drawn = []
    labels = {
        "figure_10": "redundant subscriptions found",
        "figure_11": "redundant subscriptions found, k = 50",
        "figure_12": "found beyond covering, 3 attributes",
        "figure_13": "negative rectangles, 3 attributes",
        "figure_14": "found beyond covering, 3 attributes",
        "figure_15": "negative rectangles, 3 attributes",
    }
    for name, label in labels.items():
        figure, axes = pyplot.subplots(figsize=(6, 4))
        for series, values in _lines(details[name]):
            axes.plot(details[name]["n"], values, marker="o", label=series)
        axes.set(xlabel="subscriptions", ylabel=label, title=name.replace("_", " "))
        axes.legend()
        drawn.append(_save(figure, f"negative_space_{name}.png"))
        pyplot.close(figure)
    figure, axes = pyplot.subplots(figsize=(6, 4))
    rows = details["time_per_decision"]
    for series in ("rtree_us", "tree_us", "tree_overlap_us", "union_us"):
        axes.semilogy(list(rows), [row[series] for row in rows.values()], marker="o", label=series.removesuffix("_us"))
    axes.set(xlabel="attributes", ylabel="µs per decision", title="time per decision")
    axes.legend()
    drawn.append(_save(figure, "negative_space_times.png"))
    pyplot.close(figure)
    return drawn


def _lines(details: dict[str, Any]) -> Iterable[tuple[str, list[int]]]:
    for name, values in details.items():
        if isinstance(values, dict):
            yield from ((f"{name} {inner}", series) for inner, series in values.items())
        elif name != "n":
            yield name, values


def _save(figure: Any, name: str) -> str:
    figure.tight_layout()
    figure.savefig(OUT / name, dpi=120)
    return f"bench/out/{name}"


NOTES = [
    "workload: whole numbers in [0, 1000]; low end Zipf 0.5 over permuted places, size floor(u * (1000 - low)). Fitted "
    "once for all rows of Tables 1 and 2; the algorithm is not tuned to them.",
    "table 1: as published in shape (2D falls as ever more is covered, 3D levels off, 4D explodes) and in size for 4D; "
    "3D has about a third fewer: with one exponent for all, more is covered in three attributes than in the paper.",
    "table 2: in 3D fewer than published and not more than exact: k = 50 is hardly ever reached, and what a single one "
    "contains is withheld as well. In 4D more. A part of that is that k is spent on new rectangles (Proposition 2), "
    "not on all pieces as line 27 of figure 8 counts: counted so, 42,000 instead of 59,000 at n = 2,000. The rest must "
    "be the workload: in the paper a subscription adds 7 rectangles on average, so far more is covered there in 4D.",
    "figures 12 to 15: 3 attributes, k = 50 where it does not vary; the paper does not say for figures 14 and 15. As "
    "published: 10 to 50 gains much, 50 to 100 little; the ratio is best, cost worst; differences are smaller here.",
    "time per decision: rtree and tree decide as figure 6 does and keep no lists; union includes lists and proofs.",
]
