"""Pruning: estimates, the order of prunings, the table of a link, and that nothing but traffic changes."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from state.config import parse
from state.errors import ConfigError, InvariantError
from state.filters.pruning import (
    DIMENSIONS,
    Dimension,
    Pruning,
    estimate,
    natural,
    options,
    rated,
    size,
    steps,
    without,
)
from state.filters.selectivity import BINS, FINEST, MOST_KEPT, START, Selectivities
from state.filters.trees import EVERYTHING, NOTHING, Filter, Leaf, Or, pmin
from state.filters.where import parse as parse_filter
from state.matching.pruned import Pruned
from state.protocol.commands import Override
from state.protocol.messages import Name
from state.routing.heard import Heard, PrunedHeard
from state.routing.outcome import Measured
from state.space import Attribute, Space, float_key, float_value
from state.storage.codec import decode, describe, encode
from state.storage.rows import metrics_row
from state.strategies import Spec
from tests.core.histories import BOX_TABLES, config_text, configs, events, points
from tests.core.naive import name
from tests.core.oracle import Oracle
from tests.core.overlay import Overlay
from tests.core.test_filters import POINTS, SPACE, cells, trees

uniform = partial(natural, SPACE)
real = trees().filter(lambda tree: tree != EVERYTHING and bool(cells(tree)))
dimensions = st.sampled_from(DIMENSIONS)


# One filter


@settings(max_examples=150)
@given(real, dimensions)
def test_every_pruning_generalises_and_saves(tree: Filter, dimension: Dimension) -> None:
    before = tree
    for step in steps(tree, dimension, uniform, SPACE):
        assert cells(before) <= cells(step.tree)
        assert size(step.tree) < size(before)
        assert step.tree not in (EVERYTHING, NOTHING), "the last predicate is never taken"
        assert step.worst >= step.key
        before = step.tree
    assert not options(before, uniform, SPACE) or all(
        without(before, option.path, SPACE) == EVERYTHING for option in options(before, uniform, SPACE)
    )


@settings(max_examples=400)
@given(real)
@example(parse_filter(SPACE, "x0 < 2 OR (x0 BETWEEN 2 AND 3 AND x1 < 2)"))
@example(parse_filter(SPACE, "(x0 < 2 AND x1 < 2 AND x2 < 2) OR (x0 < 2 AND x1 < 2) OR (x1 = 4 AND x2 = 4)"))
@example(parse_filter(SPACE, "x0 < 3 AND ((x0 = 0 AND x1 = 1) OR x0 BETWEEN 2 AND 3)"))
@example(parse_filter(SPACE, "((x0 = 0 AND x1 = 0 AND x2 = 0) OR x1 = 3) AND ((x0 = 0 AND x1 = 0) OR x1 = 3)"))
@example(parse_filter(SPACE, "((x0 = 0 OR x1 = 0) AND x2 = 0) OR x0 = 1 OR (x1 = 3 AND x2 = 3)"))
def test_options_are_rated_as_if_they_were_done(tree: Filter) -> None:
    """Whatever is merged then, be it that it touches what stands beside it, or equals it, near or farther up."""
    for option in options(tree, uniform, SPACE):
        pruned = without(tree, option.path, SPACE)
        assert option.saved == size(tree) - size(pruned)
        done = rated(pruned, uniform)
        assert done.pmin == option.rated.pmin == pmin(pruned)
        assert done.estimate == pytest.approx(option.rated.estimate)


def pruned(pruning: Pruning, entries: dict[Name, Filter], space: Space = SPACE) -> Pruned:
    """A pruned table of filters."""
    return Pruned(space, pruning, partial(natural, space), entries.__getitem__, entries)


TEN = Space((Attribute("a", "int", 0, 9), Attribute("b", "int", 0, 9)))


def test_what_merges_is_rated_as_merged() -> None:
    share = partial(natural, TEN)
    merged = parse_filter(TEN, "a <= 8")
    tree = parse_filter(TEN, "a < 5 OR (a BETWEEN 5 AND 8 AND b < 5)")
    touching, apart = options(tree, share, TEN)[::-1]
    assert touching.rated.estimate.degradation(estimate(tree, share)) == pytest.approx(0.4)
    assert apart.rated.estimate.degradation(estimate(tree, share)) == pytest.approx(0.15)
    table = pruned(Pruning("network", None, 0.15), {name(1): tree}, TEN)
    assert table.tree(name(1)) == Or((Leaf(0, 0, 5), Leaf(1, 0, 5))), "a <= 8 would let 0.4 more through"
    tree = parse_filter(TEN, "a < 8 OR (a BETWEEN 7 AND 8 AND b = 5)")
    best = next(steps(tree, "memory", share, TEN))
    assert (best.tree, best.key[0]) == (merged, -64.0), "the predicate, the one that it merges with, and both nodes"


@settings(max_examples=100)
@given(real)
def test_the_estimates_bound_the_average(tree: Filter) -> None:
    low, average, high = estimate(tree, uniform)
    assert 0 <= low <= average + 1e-9 and average <= high + 1e-9 and high <= 1
    assert low - 1e-9 <= len(cells(tree)) / 125 <= high + 1e-9


def heap_twin(entries: dict[Name, Filter], dimension: Dimension, most: int) -> dict[Name, Filter]:
    """The priority queue of the paper, section 3.4: the best pruning of all is done, the next of that filter enters."""
    trees, series, queue = dict(entries), {}, []
    for number, (entry, tree) in enumerate(entries.items()):
        series[entry] = list(steps(tree, dimension, uniform, SPACE))
        if series[entry]:
            queue.append((series[entry][0].key, number, 0, entry))
    heapq.heapify(queue)
    for _ in range(most):
        if not queue:
            break
        _, number, k, entry = heapq.heappop(queue)
        trees[entry] = series[entry][k].tree
        if k + 1 < len(series[entry]):
            heapq.heappush(queue, (series[entry][k + 1].key, number, k + 1, entry))
    return trees


@settings(max_examples=100)
@given(st.lists(real, max_size=8), dimensions, st.integers(0, 25))
def test_the_table_is_what_the_priority_queue_gives(some: list[Filter], dimension: Dimension, most: int) -> None:
    entries = {name(k): tree for k, tree in enumerate(some)}
    table = pruned(Pruning(dimension, most), entries)
    assert {n: table.tree(n) for n in entries} == heap_twin(entries, dimension, most)
    table.check()


@settings(max_examples=100)
@given(st.data())
def test_filters_come_and_go_without_a_trace(data: st.DataObject) -> None:
    pruning = data.draw(
        st.builds(
            Pruning, dimensions, st.one_of(st.none(), st.integers(0, 12)), st.sampled_from([None, 0.1, 1.0, 30.0])
        )
    )
    kept: dict[Name, Filter] = {}
    table = pruned(pruning, kept)
    for number in range(data.draw(st.integers(1, 14))):
        if kept and data.draw(st.integers(0, 2)) == 0:
            gone = data.draw(st.sampled_from(sorted(kept)))
            table.remove(gone)
            del kept[gone]
        else:
            kept[name(number)] = data.draw(real)
            table.add(name(number))
        table.check()
    assert len(table) == len(kept)
    assert pruning.prunings is None or table.prunings <= pruning.prunings
    with pytest.raises(InvariantError, match="already holds"):
        kept[name("x")] = Leaf(0, 0, 1)
        for _ in range(2):
            table.add(name("x"))


@settings(max_examples=100)
@given(st.lists(real, max_size=5), dimensions, st.integers(0, 12))
def test_the_table_lets_through_what_its_filters_do(some: list[Filter], dimension: Dimension, most: int) -> None:
    table = pruned(Pruning(dimension, most), {name(k): tree for k, tree in enumerate(some)})
    through = set().union(*(cells(table.tree(name(k))) for k in range(len(some))))
    asked = set().union(*(cells(tree) for tree in some))
    for held, expected in ((table.holds_any, through), (table.holds_any_original, asked)):
        found = held(np.array(POINTS)).tolist()
        assert {point for point, hit in zip(POINTS, found, strict=True) if hit} == expected


@settings(max_examples=60)
@given(real, dimensions, st.floats(0, 1))
def test_the_worst_that_is_still_done(tree: Filter, dimension: Dimension, bound: float) -> None:
    worst = bound * 60 if dimension == "memory" else bound * 3 if dimension == "throughput" else bound
    table = pruned(Pruning(dimension, None, worst), {name(1): tree})
    done = list(steps(tree, dimension, uniform, SPACE))[: table.prunings]
    limit = -worst if dimension == "memory" else worst
    assert all(step.key[0] <= limit for step in done)


# What is learned


WIDE = Space(
    (
        Attribute("a", "int", 0, 999),
        Attribute("f", "float", float_key(-1.0), float_key(1.0)),
        Attribute("c", "category", 0, 2, ("x", "y", "z")),
        Attribute("one", "int", 5, 5),
    )
)


def taught(space: Space, points: Any) -> Selectivities:
    """What is estimated after these publications."""
    share, begin = Selectivities(space), 0
    while begin < len(points):
        end = min(len(points), begin + share.room)
        share.see(np.asarray(points[begin:end]))
        begin = end
    return share


def test_the_declared_start_is_uniform() -> None:
    share = Selectivities(WIDE)
    assert share(Leaf(0, 0, 250)) == 0.25
    assert share(Leaf(1, float_key(0.0), float_key(1.0) + 1)) == pytest.approx(0.5)
    assert share(Leaf(2, 1, 2)) == pytest.approx(1 / 3)
    assert share(Leaf(3, 5, 6)) == 1.0


def test_bins_of_a_domain_wider_than_the_largest_double() -> None:
    most = 1.7976931348623157e308
    wide = Attribute("x", "float", float_key(-most), float_key(most))
    share = Selectivities(Space((wide,)))
    borders = [float_value(key) / most for key in share._borders[0].tolist()]
    assert borders == pytest.approx([k / 16 - 1 for k in range(1, BINS)])
    assert not share.see(np.array([[float_key(0.9 * most)]] * 10))
    assert share.counts[0].tolist() == [0] * 30 + [10, 0]


def test_estimates_that_are_kept_are_limited() -> None:
    share = Selectivities(WIDE)
    for k in range(2 * MOST_KEPT):
        share(Leaf(1, k, k + 1))
    assert share._share.cache_info().currsize <= MOST_KEPT


def test_estimates_follow_what_was_seen_at_every_doubling() -> None:
    share = Selectivities(WIDE)
    point = np.array([[10, float_key(0.5), 2, 5]])
    assert share.room == START
    for number in range(1, START):
        assert not share.see(point), number
    assert share(Leaf(2, 2, 3)) == pytest.approx(1 / 3)
    assert share.see(point)
    assert share(Leaf(2, 2, 3)) == pytest.approx((START / 3 + START) / (2 * START))
    assert share.room == START
    assert share(Leaf(0, 0, 1000 // BINS)) > 0.4
    assert share(Leaf(0, 500, 1000)) == pytest.approx(0.25)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 999), min_size=1, max_size=300), st.integers(0, 990), st.integers(1, 400))
def test_estimates_are_near_the_truth(seen: list[int], low: int, width: int) -> None:
    """Off by at most what lies in the bins that an end cuts, and by the start."""
    share = taught(WIDE, [[a, 0, 0, 5] for a in seen])
    taken = seen[: int(share.taken[0].sum())]
    leaf = Leaf(0, low, min(1000, low + width))
    bins = 2 * 1000 / BINS
    inner = sum(leaf.lo + bins <= a < leaf.hi - bins for a in taken)
    outer = sum(leaf.lo - bins <= a < leaf.hi + bins for a in taken)
    start = START * natural(WIDE, leaf)
    assert inner + start - 1e-6 <= share(leaf) * (len(taken) + START) <= outer + start + 1e-6


PRICE = Space((Attribute("price", "float", float_key(0.0), float_key(1000.0)),))


def between(low: float, high: float) -> Leaf:
    return Leaf(0, float_key(low), float_key(high) + 1)


def test_an_equality_of_floats_is_never_estimated_as_nothing() -> None:
    share = taught(PRICE, np.full((2048, 1), float_key(9.99)))
    assert share(between(9.99, 9.99)) == share(between(9.98, 10.0)) == pytest.approx(1 / FINEST, rel=0.05)
    assert share(between(9.0, 11.0)) > share(between(9.99, 9.99)) > share(between(500.0, 500.0)) > 0
    fresh = Selectivities(PRICE)
    assert fresh(between(9.99, 9.99)) == 1 / (BINS * FINEST)
    assert fresh(Leaf(0, float_key(0.0) + 1, float_key(1000.0) + 1)) == 1 - 1 / (BINS * FINEST)
    assert fresh(between(0.0, 1000.0)) == share(between(0.0, 1000.0)) == 1.0


def draw_key(a: Attribute) -> st.SearchStrategy[int]:
    """Any key of an attribute, often one near a border of bins."""
    near = st.builds(lambda k, by: min(a.high, max(a.low, a.key(k) + by)), values_of(a), st.integers(-2, 2))
    return st.one_of(st.integers(a.low, a.high), near, st.sampled_from([a.low, a.high]))


def values_of(a: Attribute) -> st.SearchStrategy[Any]:
    if a.kind == "float":
        return st.builds(lambda k: -1.0 + 2.0 * k / BINS, st.integers(0, BINS))
    return st.sampled_from([a.value(key) for key in range(a.low, a.high + 1, max(1, (a.high - a.low) // 7))])


@settings(max_examples=200)
@given(st.data())
def test_wider_is_never_estimated_lower_and_complements_add_up(data: st.DataObject) -> None:
    i = data.draw(st.integers(0, WIDE.dims - 1))
    a = WIDE.attributes[i]
    seen = data.draw(st.lists(draw_key(a), max_size=6))
    points = [[key if k == i else other.low for k, other in enumerate(WIDE.attributes)] for key in seen * 30]
    share = taught(WIDE, points)
    ends = sorted(data.draw(st.lists(draw_key(a), min_size=4, max_size=4)))
    outer, inner = Leaf(i, ends[0], ends[3] + 1), Leaf(i, ends[1], ends[2] + 1)
    assert 0 < share(inner) <= share(outer) + 1e-12 and share(outer) <= 1
    if (key := ends[1]) > a.low:
        assert share(Leaf(i, a.low, key)) + share(Leaf(i, key, a.high + 1)) == pytest.approx(1)
        assert share(Leaf(i, key, a.high + 1)) < 1


# Links


PRUNED = [
    table.replace("}", f", {more}}}") if table.startswith("{") else f"{{name = {table}, {more}}}"
    for table in BOX_TABLES
    if "prune" not in table
    for more in (
        'prune = "network", prunings = 3',
        'prune = "memory", prunings = 1000',
        'prune = "throughput", worst = 1',
        'prune = "network"',
    )
]


@settings(max_examples=30)
@given(st.data())
def test_deliveries_do_not_depend_on_pruning(data: st.DataObject) -> None:
    config = data.draw(configs(PRUNED))
    overlay, oracle = Overlay(config), Oracle({"colour"})
    for event in data.draw(events(config.overlay.brokers, most=25)):
        overlay.take(event)
        overlay.region.check()
        assert sorted(overlay.deliveries) == sorted(oracle.take(event))
        overlay.deliveries.clear()


def line(strategy: str, history: list[dict[str, Any]], shots: list[dict[str, Any]]) -> Overlay:
    overlay = Overlay(parse(config_text([("b0", "b1"), ("b1", "b2")], strategy)))
    shot = [{"kind": "publish", "broker": "b2", "id": f"p{k}", "at": at} for k, at in enumerate(shots)]
    for event in [*history, *shot]:
        overlay.take(event)
    return overlay


def heard_at(overlay: Overlay, broker: str, link: str) -> Heard:
    return overlay.region.brokers[broker].links[link].heard


def pruned_at(overlay: Overlay, broker: str, link: str) -> PrunedHeard:
    heard = heard_at(overlay, broker, link)
    assert isinstance(heard, PrunedHeard)
    return heard


@settings(max_examples=30)
@given(st.data())
def test_a_pruned_link_forwards_a_superset_and_says_which_falsely(data: st.DataObject) -> None:
    history = [e for e in data.draw(events(("b0", "b1", "b2"), most=20)) if e["kind"] != "publish"]
    shots = data.draw(st.lists(points(), min_size=1, max_size=10))
    plain = line('"flood"', history, shots)
    pruned = line('{name = "flood", prune = "network", prunings = 1000}', history, shots)
    forwarded = [{route[:4] for route in overlay.routes if route[4]} for overlay in (plain, pruned)]
    assert forwarded[0] <= forwarded[1]
    assert plain.deliveries == pruned.deliveries
    assert pruned.counts.get("false_forwards", 0) == len(forwarded_falsely(plain, pruned, shots))
    heard = pruned_at(pruned, "b2", "b1")
    space = pruned.config.space
    grid = space.points([space.point(at) for at in shots])
    wanted = heard.wants(grid)
    assert (heard.falsely(grid, wanted) == (wanted & ~heard.pruned(None).wants(grid))).all()


def forwarded_falsely(plain: Overlay, pruned: Overlay, shots: list[dict[str, Any]]) -> list[str]:
    """The publications that the pruned overlay forwarded where the unpruned one asked for none."""
    space = plain.config.space
    points = {f"p{k}": space.points([space.point(at)]) for k, at in enumerate(shots)}
    went = ((broker, link, publication) for broker, link, publication, _, goes in pruned.routes if goes)
    return [shot for broker, link, shot in went if not heard_at(plain, broker, link).wants(points[shot])[0]]


SETS = """
[space]
c = {{kind = "category", values = {values}}}
d = {{kind = "category", values = {values}}}
n = {{kind = "int", low = 0, high = 9}}
[overlay]
links = [["b0", "b1"]]
[routing]
strategy = {strategy}
"""


def forwarded(strategy: str, where: dict[str, Any], shots: list[dict[str, Any]]) -> tuple[int, int, Heard]:
    """How many publications from b1 go to b0, how many of them falsely, and what b1 heard from b0."""
    config = parse(SETS.format(values=[f"v{k}" for k in range(40)], strategy=strategy))
    overlay = Overlay(config)
    overlay.take({"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s", "where": where})
    heard = heard_at(overlay, "b1", "b0")
    points = config.space.points([config.space.point(at) for at in shots])
    wanted = heard.wants(points)
    return int(wanted.sum()), int(heard.falsely(points, wanted).sum()), heard


def test_what_is_not_pruned_is_routed_by_as_it_was_heard() -> None:
    """200 boxes travel as they are; a table that holds no more than 64 of one would let more through."""
    shots = [{"c": f"v{c}", "d": f"v{d}", "n": 0} for c in range(40) for d in range(40)]
    where = {"c": [f"v{2 * k}" for k in range(20)], "d": [f"v{2 * k}" for k in range(10)]}
    assert forwarded('"flood"', where, shots)[:2] == (200, 0)
    strategy = '{{name = "flood", prune = "network", prunings = {}}}'
    *counts, heard = forwarded(strategy.format(0), where, shots)
    assert counts == [200, 0]
    heard.check()
    *counts, heard = forwarded(strategy.format(1), where, shots)
    assert counts == [400, 200], "all that is asked of d, whatever c is"
    assert isinstance(heard, PrunedHeard)
    assert heard.table.extent.associations == 10


def test_a_pruned_filter_may_be_any_number_of_boxes() -> None:
    """Of 20 times 20 values in two attributes a range in the third is pruned: 400 boxes are left, 40 predicates."""
    some = [f"v{2 * k}" for k in range(20)]
    where = {"c": some, "d": some, "n": [0, 8]}
    shots = [{"c": f"v{c}", "d": f"v{d}", "n": n} for c in range(40) for d in range(40) for n in (8, 9)]
    *counts, heard = forwarded('{name = "flood", prune = "network", prunings = 1}', where, shots)
    assert counts == [800, 400]
    assert isinstance(heard, PrunedHeard)
    assert heard.table.extent.associations == 40


def many(count: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Subscriptions at b0, and publications that learn."""
    chance = np.random.default_rng(count)
    history = [
        {
            "kind": "subscribe",
            "broker": "b0",
            "client": "ann",
            "id": f"s{k}",
            "where": {"x": sorted(chance.integers(0, 8, 2).tolist()), "y": sorted(chance.integers(0, 8, 2).tolist())},
        }
        for k in range(count)
    ]
    shots = [{"x": int(chance.integers(0, 2)), "y": int(chance.integers(0, 8)), "colour": "red"} for _ in range(150)]
    return history, shots


def test_pruning_can_be_changed_and_undone_on_stored_state() -> None:
    """The state of a pruned link is read under any other pruning, and under none: the originals are all there."""
    history, shots = many(12)
    plain = line('"flood"', history, shots)
    overlay = line('{name = "flood", prune = "network", prunings = 9}', history, shots)
    broker, heard = overlay.region.brokers["b1"], pruned_at(overlay, "b1", "b0")
    assert heard.table.prunings == 9
    stored, setups = encode(broker), overlay.config.setups()["b1"]
    for pruning in (None, Pruning("memory", 3), Pruning("throughput"), setups["b0"].spec.pruning):
        others = {link: replace(setup, spec=replace(setup.spec, pruning=pruning)) for link, setup in setups.items()}
        assert describe(others) == describe(setups)
        again = decode(stored, "b1", others).links["b0"].heard
        again.learn(heard.learned)  # kept in the head of a region
        again.check()
        assert again.asked() == heard_at(plain, "b1", "b0").asked()
        assert isinstance(again, PrunedHeard) == (pruning is not None)
        if isinstance(again, PrunedHeard) and pruning is not None:
            assert again.table.prunings <= (pruning.prunings or 1000)
    restored = decode(stored, "b1", setups)
    again = restored.links["b0"].heard
    again.learn(heard.learned)
    assert isinstance(again, PrunedHeard)
    assert [again.table.tree(n) for n in again.names()] == [heard.table.tree(n) for n in again.names()]
    assert encode(restored) == stored


def test_what_was_learned_steers_what_is_pruned() -> None:
    """Uniform, y is the wider side; once all publications are seen to have x below 2, the predicate on x says less."""
    shots = many(1)[1]
    where = {"x": [0, 1], "y": [0, 3]}
    history = [{"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s", "where": where}]
    kept = {}
    for seen in (shots[:63], shots):
        heard = pruned_at(line('{name = "flood", prune = "network", prunings = 1}', history, seen), "b2", "b1")
        assert heard.learned is not None
        counts, taken = heard.learned
        kept[int(counts[0].sum()), int(taken[0].sum())] = [heard.table.tree(n) for n in heard.names()]
    assert kept == {(63, 0): [Leaf(0, 0, 2)], (150, 128): [Leaf(1, 0, 4)]}


def test_metrics_show_what_pruning_contributes() -> None:
    history, shots = many(12)
    overlay = line('{name = "flood", prune = "memory", prunings = 10}', history, shots)
    sizes = overlay.region.brokers["b2"].sizes("b1")
    assert sizes["prunings"] == 10
    assert sizes["unpruned_associations"] - sizes["associations"] == 10
    assert sizes["filter_bytes"] < sizes["unpruned_filter_bytes"]
    plain = line('"flood"', history, []).region.brokers["b2"].sizes("b1")
    assert plain["prunings"] is None
    assert plain["associations"] == plain["unpruned_associations"] == sizes["unpruned_associations"]
    assert plain["filter_bytes"] == plain["unpruned_filter_bytes"] == sizes["unpruned_filter_bytes"]
    measured = metrics_row(Measured(1, "b2", "b1", "auto", 5, Counter({"false_forwards": 7}), sizes))
    assert (measured["prunings"], measured["false_forwards"]) == (10, 7)


@pytest.mark.parametrize(
    ("given_", "where", "rule"),
    [
        ({"prune": "speed"}, "s.prune", "'network' or 'memory' or 'throughput'"),
        ({"prunings": 5}, "s.prunings", "nothing to stop without prune"),
        ({"worst": 0.5}, "s.worst", "nothing to stop without prune"),
        ({"prune": "network", "prunings": -1}, "s.prunings", "a whole number of at least 0"),
        ({"prune": "network", "worst": float("inf")}, "s.worst", "a finite number of at least 0"),
    ],
)
def test_a_bad_pruning_is_refused(given_: dict[str, Any], where: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as refused:
        Spec.of({"name": "union", **given_}, "s")
    assert refused.value.where == where


def test_a_pruning_is_written_as_it_was_given() -> None:
    spec = Spec.of({"name": "union", "prune": "memory", "prunings": 7, "covering": "active"}, "s")
    assert str(spec) == "union covering=active prune=memory prunings=7"


def test_a_link_that_prunes_nothing_has_no_pruned_table() -> None:
    heard = heard_at(line('"flood"', [], []), "b0", "b1")
    assert heard.learned is None
    assert heard.pruned(None) is heard


def test_where_links_speak_in_ranges_nothing_is_pruned() -> None:
    history, shots = many(5)
    overlay = line('{name = "mics", prune = "network"}', history, shots)
    heard = heard_at(overlay, "b2", "b1")
    assert heard.learned is None
    assert heard.pruned(Pruning("network")) is heard
    assert not overlay.region.brokers["b2"].links["b1"].prune(Override(Pruning("network")))
    assert overlay.deliveries == line('"flood"', history, shots).deliveries


@settings(max_examples=40)
@given(st.data())
def test_pruning_put_on_changed_and_taken_off_at_any_time_delivers_the_same(data: st.DataObject) -> None:
    """Originals stay in the broker's rows, so every change is as if it had always been so."""
    overlay, oracle = Overlay(parse(config_text([("b0", "b1"), ("b1", "b2")], '"union"'))), Oracle({"colour"})
    overrides = [None, Override(None), *(Override(Pruning(d, p)) for d in DIMENSIONS for p in (2, None))]
    for event in data.draw(events(("b0", "b1", "b2"), most=20)):
        for broker in overlay.region.brokers.values():
            for link in broker.links.values():
                before, override = link.heard.asked(), data.draw(st.sampled_from(overrides))
                changes = link.override != override
                assert link.prune(override) == changes
                assert (link.override, link.heard.asked()) == (override, before)
        overlay.take(event)
        overlay.region.check()
        assert sorted(overlay.deliveries) == sorted(oracle.take(event))
        overlay.deliveries.clear()
