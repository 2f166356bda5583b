"""`lacuna bench pruning`: the six panels of the dimension-pruning paper's Fig. 1, and matching against all trees.

Subscriptions and events are those of the workload `auctions`. For each dimension every pruning of every subscription is
put in the order in which the priority queue does them, and the table is looked at after shares of them from 0 to 1:

    central       (a) filtering time an event, counting all predicates as the paper does   (b) share of
                  subscriptions that an event matches                                      (c) associations saved
    distributed   five brokers in a line, a fifth of the subscriptions each, local ones exact, no covering
                  (d) filtering time an event, over all brokers that it reaches            (e) more messages on links
                  (f) non-local associations saved

(a) to (c) are measured on a table of all subscriptions. (d) and (f) are measured on the table of the middle broker of
the line: its own subscriptions as they are, all others pruned in the order of its own queue; (d) is the time there
times the number of brokers that an event reaches, since all five hold as many. (e) follows from whose subscriptions,
pruned, each event matches: it goes as far as the farthest broker on either side that has one.

Figures, at 75 % of all network-based prunings, where the published curve bends:

* `associations_at_bend` (at most 0.5), `traffic_at_bend` (at most 1.4), `filtering_time_at_bend` (at most 0.6): (f),
  (e) and (d) over the unpruned; published are 0.33, 1.37 and 0.47.
* `network_least_traffic`, `memory_fewest_associations_early`, `throughput_least_time_early`: in what share of the
  places looked at (early: up to 35 %) that dimension is the best of the three, as the paper says.
* `match_vs_all_trees` (at least 10): events a second through 200,000 subscriptions, over looking at every tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.all_trees import AllTrees
from bench.plot import OUT
from bench.report import Report, Step, ratio, seconds
from producers.auctions import SPACE, Auctions
from state.config import parse
from state.filters.pruning import BENDS, DIMENSIONS, Dimension, steps
from state.filters.selectivity import Selectivities
from state.filters.trees import Filter, boxes_of, leaves
from state.filters.where import parse as parse_filter
from state.geometry.boxes import Box, stack
from state.geometry.boxindex import BoxIndex
from state.matching.predicates import Counted, Predicates
from state.protocol.messages import Name
from state.space import Keys, Space

BROKERS = 5
MIDDLE = BROKERS // 2
BEND = BENDS["network"]
EARLY = 0.35
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)
TIMED = 250
"""Events that are timed at each place."""
TALLIED = 64
"""Events whose matches are counted at once."""
PUBLISHED = {"associations_at_bend": 0.33, "traffic_at_bend": 1.37, "filtering_time_at_bend": 0.47}


@dataclass(frozen=True)
class Size:
    """The size of a run."""

    subscriptions: int
    events: int
    matched: int
    shares: Sequence[float] = SHARES


SIZES = {
    "quick": Size(10_000, 5_000, 20_000, (0.0, 0.05, 0.2, 0.35, 0.5, 0.75, 1.0)),
    "everyday": Size(20_000, 10_000, 200_000),
    "full": Size(200_000, 100_000, 200_000, (0.0, 0.05, 0.2, 0.35, 0.5, 0.75, 1.0)),
}


@dataclass
class Curve:
    """One dimension's values at each share; times and associations are in units of the unpruned table's."""

    prunings: int
    time: list[float] = field(default_factory=list)
    matching: list[float] = field(default_factory=list)
    associations: list[float] = field(default_factory=list)
    reached: list[float] = field(default_factory=list)
    broker_time: list[float] = field(default_factory=list)
    broker_associations: list[float] = field(default_factory=list)

    @property
    def messages(self) -> list[float]:
        return [brokers - 1 for brokers in self.reached]

    @property
    def filtering(self) -> list[float]:
        """(d): the time an event takes at all brokers that it reaches, over that of the unpruned."""
        return [n / self.reached[0] * t for n, t in zip(self.reached, self.broker_time, strict=True)]


@dataclass(frozen=True)
class Scene:
    """The subscriptions, the events, and what was learned from earlier events."""

    space: Space
    trees: list[Filter]
    points: Keys
    homes: NDArray[np.int64]
    sources: NDArray[np.int64]
    learned: Selectivities


def run(step: Step, *, quick: bool) -> Report:
    """The everyday size; `pruning-full` is the paper's."""
    return run_size("pruning", SIZES["quick" if quick else "everyday"], step, quick=quick)


def run_size(name: str, size: Size, step: Step, *, quick: bool) -> Report:
    """All panels and figures at one size."""
    report = Report(name, quick=quick)
    step(f"{size.subscriptions} subscriptions, {size.events} events")
    scene = make_scene(size.subscriptions, size.events)
    clock = Clock(scene)
    curves = {dimension: _curve(scene, clock, dimension, size.shares, step) for dimension in DIMENSIONS}
    _add_figures(report, size.shares, curves)
    report.details["unpruned_filtering_ms"] = round(clock.best * 1000, 4)
    report.details["plot"] = str(_plot(name, size.shares, curves))
    report.details["subscriptions"], report.details["events"] = size.subscriptions, size.events
    step(f"matching {size.matched} subscriptions against looking at every tree")
    _match(report, size.matched, 3 if quick else 5)
    return report


def make_scene(subscriptions: int, events: int, seed: int = 1) -> Scene:
    """The workload, as trees and points."""
    space = parse(SPACE + '[overlay]\nbrokers = ["hub"]\n').space
    chance = np.random.default_rng(seed)
    auctions = Auctions(chance)
    trees = [parse_filter(space, text) for text in auctions.wheres(subscriptions)]
    earlier = space.points([space.point(at) for at in auctions.points(4096)])
    points = space.points([space.point(at) for at in auctions.points(events)])
    learned, begin = Selectivities(space), 0
    while begin < len(earlier):
        end = begin + learned.room
        learned.see(earlier[begin:end])
        begin = end
    homes = chance.integers(BROKERS, size=subscriptions)
    return Scene(space, trees, points, homes, chance.integers(BROKERS, size=events), learned)


# The panels


def _curve(scene: Scene, clock: Clock, dimension: Dimension, shares: Sequence[float], step: Step) -> Curve:
    step(f"{dimension}: every pruning of every subscription")
    series = [[(s.worst, s.tree) for s in steps(t, dimension, scene.learned, scene.space)] for t in scene.trees]
    order = sorted((worst, k, j) for k, one in enumerate(series) for j, (worst, _) in enumerate(one, 1))
    away = scene.homes != MIDDLE
    curve, whole = Curve(len(order)), Table(scene.trees, [(k, series[k][j - 1][1]) for _, k, j in order])
    broker = Table(scene.trees, [(k, tree) for k, tree in whole.prunings if away[k]])
    central, distant = _associations(scene.trees), _associations(scene.trees, away)
    for share in shares:
        step(f"{dimension}: {share:.0%} of {len(order)} prunings")
        whole.prune(share)
        broker.prune(share)
        curve.time.append(clock.time(whole.trees) if share else 1.0)
        curve.broker_time.append(clock.time(broker.trees) if share else 1.0)
        matching, reached = _traffic(scene, whole.trees)
        curve.matching.append(matching)
        curve.reached.append(reached)
        curve.associations.append(_associations(whole.trees) / central)
        curve.broker_associations.append(_associations(broker.trees, away) / distant)
    return curve


class Table:
    """Filters, of which a growing share of all prunings, given in their order, is done."""

    def __init__(self, trees: list[Filter], prunings: list[tuple[int, Filter]]) -> None:
        self.trees, self.prunings, self._done = list(trees), prunings, 0

    def prune(self, share: float) -> None:
        """Do more of them, up to a share of all."""
        until = round(share * len(self.prunings))
        for k, tree in self.prunings[self._done : until]:
            self.trees[k] = tree
        self._done = until


def _associations(trees: list[Filter], chosen: NDArray[np.bool_] | None = None) -> int:
    return sum(1 for k, tree in enumerate(trees) if chosen is None or chosen[k] for _ in leaves(tree))


def _index(scene: Scene, trees: list[Filter], counted: Counted) -> Predicates:
    entries = ((Name("", "", str(k)), tree) for k, tree in enumerate(trees))
    return Predicates(scene.space, entries, counted=counted, selectivity=scene.learned)


class Clock:
    """Times filtering by counting all predicates, always beside the unpruned table: other work comes and goes."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._points = scene, scene.points[:TIMED]
        self._unpruned = _index(scene, scene.trees, "all")
        self._unpruned.matching(self._points)
        self.best = inf

    def time(self, trees: list[Filter]) -> float:
        """The time to filter an event, in units of the unpruned one: the best of several runs of each, in turns."""
        index, ours, base = _index(self._scene, trees, "all"), inf, inf
        index.matching(self._points[:8])
        for _ in range(7):
            base = min(base, seconds(lambda: self._unpruned.matching(self._points)))
            ours = min(ours, seconds(lambda: index.matching(self._points)))
        self.best = min(self.best, base / len(self._points))
        return ours / base


def _traffic(scene: Scene, trees: list[Filter]) -> tuple[float, float]:
    """Return the share of subscriptions that an event matches, and the number of brokers that it reaches."""
    matches, wanted = tally(_index(scene, trees, "few"), scene.points, scene.homes, BROKERS)
    return float(matches.mean()) / len(trees), float(brokers_reached(wanted, scene.sources).mean())


def tally(
    index: Predicates, points: Keys, labels: NDArray[np.int64], most: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each point how many entries hold it, and which of `most` labels, one a slot, these entries have.

    A point may be held by most of the table, so the pairs that are found are kept for a few points at a time only.
    """
    held, seen = np.zeros(len(points), np.int64), np.zeros((len(points), most), np.bool_)
    for first in range(0, len(points), TALLIED):
        which, slots = index.matching(points[first : first + TALLIED])
        held[first : first + TALLIED] = np.bincount(which, minlength=len(points[first : first + TALLIED]))
        seen[first + which, labels[slots]] = True
    return held, seen


def brokers_reached(wanted: NDArray[np.bool_], sources: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the brokers of a line that an event reaches: from its source to the farthest on either side that wants it.

    >>> brokers_reached(np.array([[1, 0, 0, 0, 1], [0, 0, 0, 1, 0], [0] * 5], bool), np.array([1, 3, 2])).tolist()
    [5, 1, 1]
    """
    places = np.arange(wanted.shape[1])
    first = np.where(wanted, places, wanted.shape[1]).min(axis=1)
    last = np.where(wanted, places, -1).max(axis=1)
    return np.asarray(np.maximum(last, sources) - np.minimum(first, sources) + 1)


# Figures


def _add_figures(report: Report, shares: Sequence[float], curves: dict[Dimension, Curve]) -> None:
    network, bend = curves["network"], list(shares).index(BEND)
    report.add("associations_at_bend", network.broker_associations[bend], "at most 0.5")
    report.add("traffic_at_bend", network.messages[bend] / network.messages[0], "at most 1.4")
    report.add("filtering_time_at_bend", network.filtering[bend], "at most 0.6")
    early = [k for k, share in enumerate(shares) if 0 < share <= EARLY]
    inner = [k for k, share in enumerate(shares) if 0 < share < 1]
    best: dict[str, tuple[Dimension, dict[Dimension, list[float]], list[int]]] = {
        "network_least_traffic": ("network", {d: c.messages for d, c in curves.items()}, inner),
        "memory_fewest_associations_early": ("memory", {d: c.associations for d, c in curves.items()}, early),
        "throughput_least_time_early": ("throughput", {d: c.time for d, c in curves.items()}, early),
    }
    for figure, (dimension, values, places) in best.items():
        held = [k for k in places if all(values[dimension][k] <= other[k] for other in values.values())]
        report.add(figure, len(held) / len(places), "1 as published")
        if len(held) < len(places):
            where = ", ".join(f"{shares[k]:.0%}" for k in places if k not in held)
            report.notes.append(f"{figure}: not at {where} of the prunings.")
    report.details["published"] = PUBLISHED
    report.details["panels"] = {dimension: _panels(shares, curve) for dimension, curve in curves.items()}
    report.notes.append(
        "published: 200,000 subscriptions, 100,000 events, two reports' distributions that are not at hand."
    )


def _panels(shares: Sequence[float], curve: Curve) -> dict[str, Any]:
    more = [messages / curve.messages[0] - 1 for messages in curve.messages]
    panels = {
        "a_filtering": curve.time,
        "b_matching_share": curve.matching,
        "c_associations_saved": [1 - a for a in curve.associations],
        "d_filtering": curve.filtering,
        "e_more_messages": more,
        "f_associations_saved": [1 - a for a in curve.broker_associations],
    }
    rounded = {name: [float(f"{value:.4g}") for value in values] for name, values in panels.items()}
    return {"prunings": curve.prunings, "shares": list(shares), "bend": _bend(shares, more), **rounded}


def _bend(shares: Sequence[float], values: list[float]) -> float:
    """Return the place where a growing curve lies farthest below the straight line between its ends."""
    line = [values[0] + (values[-1] - values[0]) * share for share in shares]
    return float(shares[int(np.argmax(np.array(line) - np.array(values)))])


def _plot(name: str, shares: Sequence[float], curves: dict[Dimension, Curve]) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    titles = {
        "a_filtering": "(a) filtering time, central, of the unpruned",
        "b_matching_share": "(b) share of subscriptions matched",
        "c_associations_saved": "(c) associations saved, central",
        "d_filtering": "(d) filtering time, five brokers, of the unpruned",
        "e_more_messages": "(e) more messages, five brokers",
        "f_associations_saved": "(f) associations saved, non-local",
    }
    figure = Figure(figsize=(15, 8), layout="constrained")
    FigureCanvasAgg(figure)
    for number, (panel, title) in enumerate(titles.items(), 1):
        place = figure.add_subplot(2, 3, number)
        for dimension, curve in curves.items():
            place.plot(shares, _panels(shares, curve)[panel], marker=".", label=dimension)
        if panel == "e_more_messages":
            place.plot([0.5, 0.75, 0.5], [0.1, 0.37, 0.26], "k^", label="published: network, network, throughput")
        if panel == "d_filtering":
            place.plot([0.75], [0.47], "k^", label="published: network")
        if panel == "f_associations_saved":
            place.plot([0.75], [0.67], "k^", label="published: network")
        for bent, share in BENDS.items() if panel == "b_matching_share" else ():
            place.axvline(share, linestyle=":", color="grey", label=f"published bend: {bent}")
        place.set(title=title, xlabel="share of prunings done", ylim=(0, None))
        place.legend(fontsize=7)
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.png"
    figure.savefig(path, dpi=100)
    return path.relative_to(OUT.parent.parent)


# Matching


def _match(report: Report, subscriptions: int, repeats: int) -> None:
    scene = make_scene(subscriptions, 400, seed=2)
    few, points = _index(scene, scene.trees, "few"), scene.points
    found = few.matching(points)
    all_trees = AllTrees(scene.trees, scene.learned)
    if any((a != b).any() for a, b in zip(found, all_trees.matching(points), strict=True)):
        raise AssertionError("counting and looking at every tree disagree about the matches")
    gain = ratio(lambda: all_trees.matching(points), lambda: few.matching(points), repeats)
    report.add("match_vs_all_trees", gain, "at least 10")
    published = _index(scene, scene.trees, "all")
    published.matching(points[:8])
    boxes: list[Box] = []
    owners = min(10_000, subscriptions)
    for tree in scene.trees[:owners]:
        boxes += boxes_of(tree, scene.space) or ()
    rows, some = BoxIndex(scene.space.dims, stack(boxes, scene.space.dims)), _index(scene, scene.trees[:owners], "few")
    rows.stab_all(points[:8]), some.matching(points[:8])
    report.details["matching"] = {
        "subscriptions": subscriptions,
        "matches_per_event": len(found[0]) / len(points),
        "events_per_s": round(len(points) / seconds(lambda: few.matching(points))),
        "counting_all_over_few": round(
            ratio(lambda: published.matching(points), lambda: few.matching(points), repeats), 2
        ),
        f"bit_rows_over_few_at_{owners}": round(
            ratio(lambda: rows.stab_all(points), lambda: some.matching(points), repeats), 2
        ),
        "boxes_per_subscription": round(len(boxes) / owners, 2),
    }
