"""Bittner and Hinze, "Dimension-Based Subscription Pruning": the six panels of Fig. 1, and the estimates of section 3.

Subscriptions and events are those of the workload `auctions`. For each dimension every pruning of every subscription is
put in the order in which the priority queue does them, and the table is looked at after shares of them from 0 to 1:

    central       (a) filtering time an event, counting all predicates as the paper does   (b) share of
                  subscriptions that an event matches                                      (c) associations saved
    distributed   five brokers in a line, a fifth of the subscriptions each, local ones exact, no covering
                  (d) filtering time an event, over all brokers that it reaches            (e) more messages on links
                  (f) non-local associations saved

(a) to (c) are measured on one table of all subscriptions. (d) to (f) are measured on five tables, one for each broker:
its own subscriptions as they are, all others pruned in the order of its own queue. An event is filtered at each broker
that it reaches, and goes on over a link if something there, pruned as this broker has it, matches from beyond the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.report import Report, Step, seconds
from producers.auctions import SPACE, Auctions
from state.config import parse
from state.filters.pruning import BENDS, DIMENSIONS, Dimension, estimate, options, steps, without
from state.filters.selectivity import Selectivities
from state.filters.trees import Filter, Leaf, leaves
from state.filters.where import parse as parse_filter
from state.matching.predicates import Counted, Predicates
from state.protocol.messages import Name
from state.space import Keys, Space

SOURCES = (
    "bench/papers/pruning.py",
    "producers/auctions.py",
    "state/filters/pruning.py",
    "state/filters/selectivity.py",
    "state/filters/trees.py",
    "state/matching/predicates.py",
)
BROKERS = 5
BEND = BENDS["network"]
EARLY = 0.35
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.35, 0.4, 0.5, 0.6, 0.75, 1.0)
TIMED = 250
"""Events that are timed at each place."""
TALLIED = 64
"""Events whose matches are counted at once."""


@dataclass(frozen=True)
class Size:
    """The size of a run."""

    subscriptions: int
    events: int
    shares: Sequence[float] = SHARES


SIZES = {
    "quick": Size(3_000, 2_000, (0.0, 0.05, 0.2, 0.35, 0.5, 0.75, 1.0)),
    "everyday": Size(10_000, 5_000),
    "full": Size(200_000, 100_000, (0.0, 0.05, 0.2, 0.35, 0.5, 0.75, 1.0)),
}


@dataclass
class Curve:
    """One dimension's values at each share; times and associations are in units of the unpruned table's."""

    prunings: int
    time: list[float] = field(default_factory=list)
    matching: list[float] = field(default_factory=list)
    associations: list[float] = field(default_factory=list)
    messages: list[float] = field(default_factory=list)
    broker_time: list[float] = field(default_factory=list)
    """The time of an event at all brokers that it reaches, in units of one unpruned table."""
    broker_associations: list[float] = field(default_factory=list)

    @property
    def filtering(self) -> list[float]:
        """(d): the time of an event at all brokers that it reaches, over that of the unpruned."""
        return [t / self.broker_time[0] for t in self.broker_time]


@dataclass(frozen=True)
class Scene:
    """The subscriptions, the events, and what was learned from earlier events."""

    space: Space
    trees: list[Filter]
    points: Keys
    homes: NDArray[np.int64]
    sources: NDArray[np.int64]
    learned: Selectivities


def measure(report: Report, step: Step, *, quick: bool) -> None:
    """The everyday size; `pruning-full` is the paper's."""
    measure_size(report, SIZES["quick" if quick else "everyday"], step)


def measure_size(report: Report, size: Size, step: Step) -> None:
    """All panels and figures at one size."""
    step(f"{size.subscriptions} subscriptions, {size.events} events")
    scene = make_scene(size.subscriptions, size.events)
    report.details["estimates"] = _estimates(scene, 150)
    clock = Clock(scene)
    curves = {dimension: _curve(scene, clock, dimension, size.shares, step) for dimension in DIMENSIONS}
    _add_figures(report, size.shares, curves)
    report.details["unpruned_filtering_ms"] = round(clock.best * 1000, 4)
    report.details["subscriptions"], report.details["events"] = size.subscriptions, size.events


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
    curve, whole = Curve(len(order)), Table(scene.trees, [(k, series[k][j - 1][1]) for _, k, j in order])
    brokers = [
        Table(scene.trees, [(k, tree) for k, tree in whole.prunings if scene.homes[k] != place])
        for place in range(BROKERS)
    ]
    central = _associations(scene.trees)
    for share in shares:
        step(f"{dimension}: {share:.0%} of {len(order)} prunings")
        for table in (whole, *brokers):
            table.prune(share)
        curve.time.append(clock.time(whole.trees, 7) if share else 1.0)
        curve.matching.append(_matching(scene, whole.trees))
        curve.associations.append(_associations(whole.trees) / central)
        _look_at_brokers(curve, scene, clock, [table.trees for table in brokers], pruned=share > 0)
    return curve


def _look_at_brokers(curve: Curve, scene: Scene, clock: Clock, tables: list[list[Filter]], *, pruned: bool) -> None:
    """(d) to (f) at one place."""
    reached = reach(scene, tables)
    times = [clock.time(trees, 3) if pruned else 1.0 for trees in tables]
    away = [scene.homes != place for place in range(BROKERS)]
    curve.messages.append(float(reached.sum(axis=1).mean()) - 1)
    curve.broker_time.append(float((reached.mean(axis=0) * np.array(times)).sum()))
    non_local = sum(_associations(trees, there) for trees, there in zip(tables, away, strict=True))
    curve.broker_associations.append(non_local / sum(_associations(scene.trees, there) for there in away))


def reach(scene: Scene, tables: list[list[Filter]]) -> NDArray[np.bool_]:
    """Return which brokers of the line each event reaches, hop by hop, each by its own table."""
    beyond = []
    for place, trees in enumerate(tables):
        side = np.sign(scene.homes - place) + 1  # 0: from the left, 1: its own, 2: from the right
        beyond.append(tally(index_of(scene, trees, "few"), scene.points, side, 3)[1])
    return reached_on_line(np.stack(beyond), scene.sources)


def reached_on_line(beyond: NDArray[np.bool_], sources: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the brokers reached: `beyond[b, e, 0]` and `[b, e, 2]`: broker b sends event e on to its left, right.

    >>> right = np.zeros((3, 1, 3), bool)
    >>> right[0, 0, 2] = right[2, 0, 0] = True
    >>> reached_on_line(right, np.array([0])).tolist(), reached_on_line(right, np.array([2])).tolist()
    ([[True, True, False]], [[False, True, True]])
    """
    brokers, events = beyond.shape[:2]
    reached: NDArray[np.bool_] = np.equal(np.arange(brokers), sources[:, None])
    for direction, side in ((1, 2), (-1, 0)):
        coming = reached[np.arange(events), sources]
        for hop in range(brokers - 1):
            place = sources + direction * hop
            inside = (place >= 0) & (place < brokers) & (place + direction >= 0) & (place + direction < brokers)
            at = np.clip(place, 0, brokers - 1)
            coming = coming & inside & beyond[at, np.arange(events), side]
            reached[np.flatnonzero(coming), (place + direction)[coming]] = True
    return reached


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


def index_of(scene: Scene, trees: list[Filter], counted: Counted) -> Predicates:
    entries = ((Name("", "", str(k)), tree) for k, tree in enumerate(trees))
    return Predicates(scene.space, entries, counted=counted, selectivity=scene.learned)


class Clock:
    """Times filtering by counting all predicates, always beside the unpruned table: other work comes and goes."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._points = scene, scene.points[:TIMED]
        self._unpruned = index_of(scene, scene.trees, "all")
        self._unpruned.matching(self._points)
        self.best = inf

    def time(self, trees: list[Filter], rounds: int) -> float:
        """The time to filter an event, in units of the unpruned one: the best of some runs of each, in turns."""
        index, ours, base = index_of(self._scene, trees, "all"), inf, inf
        index.matching(self._points[:8])
        for _ in range(rounds):
            base = min(base, seconds(lambda: self._unpruned.matching(self._points)))
            ours = min(ours, seconds(lambda: index.matching(self._points)))
        self.best = min(self.best, base / len(self._points))
        return ours / base


def _matching(scene: Scene, trees: list[Filter]) -> float:
    """Return the share of subscriptions that an event matches."""
    matches, _ = tally(index_of(scene, trees, "few"), scene.points, scene.homes, BROKERS)
    return float(matches.mean()) / len(trees)


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


# Estimates


def _estimates(scene: Scene, count: int) -> dict[str, Any]:
    """Section 3: is the true degradation within the estimated bounds? Can `pmin` ever rise?"""
    points = scene.points[:1000]
    checked = outside = 0
    for tree in scene.trees[:count]:
        pruned = [without(tree, option.path, scene.space) for option in options(tree, scene.learned, scene.space)]
        _, held = index_of(scene, [tree, *pruned], "all").matching(points)
        shares = np.bincount(held, minlength=1 + len(pruned)) / len(points)
        whole = estimate(tree, lambda leaf: _share(points, leaf))
        for actual, one in zip(shares[1:] - shares[0], pruned, strict=True):
            most = estimate(one, lambda leaf: _share(points, leaf)).most - whole.least
            outside += not -1e-9 <= actual <= most + 1e-9
            checked += 1
    keys = [s.key for t in scene.trees[:count] for s in steps(t, "throughput", scene.learned, scene.space)]
    return {"prunings": checked, "outside": outside, "lowers_pmin_least": min(key[0] for key in keys)}


def _share(points: Keys, leaf: Leaf) -> float:
    keys = points[:, leaf.attribute]
    return float(((leaf.lo <= keys) & (keys < leaf.hi)).mean())


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
    report.details["panels"] = {dimension: _panels(shares, curve) for dimension, curve in curves.items()}


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
