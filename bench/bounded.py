"""`lacuna bench bounded`: the longest that any single event takes, for cases made to be as bad as possible.

Each case is data: subscriptions that become active, then events. Each runs under every strategy on one outgoing link,
with 10,000 and with 100,000 active subscriptions. Every event is measured, also those that fill the link. Under `mics`
the link speaks in ranges (`rangetold`), and nothing is passive there; otherwise its events are the same.

With an event belongs the part of pending work that a broker does at the same time; then the work that is left is done
part by part, and each is measured like an event. One more case is a whole region in which many subscriptions end at one
moment.

* `worst_event_ms` (at most 50): CPU time of the longest event of all cases, strategies and sizes.
* `worst_event_growth_100k_vs_10k` (at most 2): the longest event at 100,000 over the longest at 10,000.
* `worst_event_mb` (at most 64): the most memory that one event adds at its peak.

A strategy that cannot take in a case's subscriptions within an allowance of seconds is left out of that case from there
on, and the details say so: what was measured until then counts. Python's garbage collector is off while events are
measured: its pauses belong to the process, not to an event.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench.report import Report, Step
from lacuna.kernels import compile_tiles
from state.geometry.boxes import Box, Boxes
from state.protocol.arrivals import Arrival, Channel
from state.protocol.messages import LOCAL, Message, Name, Publish, Stamp, Subscribe
from state.protocol.reasons import Reason
from state.routing.link import Setup
from state.routing.rangetold import RangeTold
from state.routing.region import Region
from state.routing.told import Told
from state.space import Attribute, Keys, Space
from state.strategies import Spec

WIDTH = 1_000_000
LEANING = 10_000
MANY_BOXES = 1_024
WARM = 2_048
"""Active subscriptions in a run before those that count: so many that every method is met."""
ALLOWANCE = 15.0
"""Seconds to fill a link: with them, all cases take about 15 minutes."""
STRATEGIES = ("cover", "zcurve", "union", "auto", "negative", "negative-approx", "probabilistic", "hybrid", "mics")

Link = Told | RangeTold
Event = Callable[[Link], object]


@dataclass(frozen=True)
class Case:
    """Subscriptions that become active in this order, and the events that follow."""

    name: str
    dims: int
    active: Callable[[int], Keys]
    """The boxes of the active subscriptions, given about how many there are to be."""
    events: Callable[[int], Iterator[Event]]
    covering: Literal["lazy", "active"] = "lazy"


def run(step: Step, *, quick: bool) -> Report:
    """All cases under all strategies; `quick` has a tenth of the subscriptions."""
    report = Report("bounded", quick=quick)
    sizes = (1_000, 10_000) if quick else (10_000, 100_000)
    rows = []
    for case in CASES:
        for strategy in STRATEGIES:
            step(f"{case.name}: {strategy}")
            compile_tiles(case.dims)
            _measure(case, strategy, WARM, ALLOWANCE)  # loads the kernels
            rows += [_measure(case, strategy, size, ALLOWANCE) for size in sizes]
    step("many end at once")
    compile_tiles(2)
    _measure_ends(WARM)
    rows += [_measure_ends(size) for size in sizes]
    worst = {size: max(row["worst_ms"] for row in rows if row["size"] == size) for size in sizes}
    report.add("worst_event_ms", max(worst.values()), "at most 50")
    report.add("worst_event_growth_100k_vs_10k", worst[sizes[1]] / worst[sizes[0]], "at most 2")
    report.add("worst_event_mb", max(row["mb"] for row in rows), "at most 64")
    report.details["cases"] = sorted(rows, key=lambda row: -float(row["worst_ms"]))
    report.notes.append(f"sizes: {sizes[0]:,} and {sizes[1]:,} active subscriptions; CPU time; garbage collector off.")
    return report


# Measuring


def _measure(case: Case, strategy: str, size: int, allowance: float) -> dict[str, Any]:
    spec = Spec(strategy, covering=case.covering)
    told: Link = (RangeTold if spec.by_ranges else Told)(_space(case.dims), spec)
    gc.collect()
    gc.disable()
    try:
        filling, done = _fill(told, case.active(size), allowance)
        took = [_event(told, event) for event in case.events(size)] if done else []
        while done and told.working:
            took.append(_event(told, lambda _: None))  # `_cpu_ms` does a part of it
    finally:
        gc.enable()
    return {
        "case": case.name,
        "strategy": strategy,
        "size": size,
        "worst_ms": round(max([filling, *(ms for ms, _ in took)]), 2),
        "worst_filling_ms": round(filling, 2),
        "mb": round(max((mb for _, mb in took), default=0.0), 1),
        **({} if done else {"unfinished": f"not filled within {allowance:.0f} s"}),
    }


def _space(dims: int) -> Space:
    return Space(tuple(Attribute(f"x{i}", "int", 0, WIDTH - 1) for i in range(dims)))


def _fill(told: Link, boxes: Keys, allowance: float) -> tuple[float, bool]:
    """Subscribe to each box. Returns the longest in ms, and whether all were done within the allowance of seconds."""
    worst, began = 0.0, time.monotonic()
    for k, box in enumerate(boxes):
        shape = (Box.of(box),)
        worst = max(worst, _cpu_ms(told, subscribing(f"active {k}", shape)))
        if time.monotonic() - began > allowance:
            return worst, False
    return worst, True


def _cpu_ms(told: Link, event: Event) -> float:
    """Return the CPU time of an event, and of the part of pending work that a broker does with it."""
    began = time.process_time_ns()
    event(told)
    if told.working:
        told.work()
    return (time.process_time_ns() - began) / 1e6


def _measure_ends(size: int) -> dict[str, Any]:
    """So many subscriptions of one broker end at one moment; then publications arrive until all have had their turn."""
    space = _space(2)
    setups = {b: {link: Setup(b, link, space) for link in (LOCAL, m)} for b, m in (("a", "b"), ("b", "a"))}
    region = Region("bench", setups, measure="never", logs=False)
    boxes = _small(size, 2)
    gc.collect()
    gc.disable()
    try:
        region.take(_arrival(k, 0, _asking(k, box)) for k, box in enumerate(boxes))
        shot, took = Publish("p", (1, 1), b"{}", 0), list[float]()
        while region.working or not took:
            began = time.process_time_ns()
            region.take([_arrival(size + len(took), 1, shot)])
            took.append((time.process_time_ns() - began) / 1e6)
    finally:
        gc.enable()
    name = {"case": "many end at once", "strategy": "auto", "size": size}
    return name | {"worst_ms": round(max(took), 2), "worst_filling_ms": 0.0, "mb": 0.0}


def _asking(k: int, box: Keys) -> Subscribe:
    return Subscribe(Name("a", "bench", str(k)), (Box.of(box),), Stamp(None, 0, 0, k), ttl=1)


def _arrival(offset: int, time: int, message: Message) -> Arrival:
    return Arrival(Channel(0, 0, "bench"), offset, time, "a", LOCAL, message)


def _event(told: Link, event: Event) -> tuple[float, float]:
    """Return the CPU time of an event in ms, and the memory that it adds at its peak in MB."""
    peak, before = _memory()
    if peak > before + 1:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak: takes long, so only where it is in the way
    took = _cpu_ms(told, event)
    return took, _memory()[0] - before


def _memory() -> tuple[float, float]:
    """Return the highest and the present resident memory in MB."""
    found = re.findall(r"Vm(?:HWM|RSS):\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[0]) / 1024, int(found[1]) / 1024


# Events


def named(what: str) -> Name:
    """The name of a subscription."""
    return Name("hub", "bench", what)


def subscribing(what: str, boxes: Boxes) -> Event:
    """Somebody subscribes, or changes a subscription."""

    def event(told: Link) -> object:
        if isinstance(told, RangeTold):
            return told.subscribe(named(what), boxes)
        return told.subscribe(named(what), boxes, LOCAL)

    return event


def cancelling(what: str) -> Event:
    """Somebody unsubscribes."""
    return lambda told: told.unsubscribe(named(what), Reason.UNSUBSCRIBED)


def _box(dims: int, low: int = 0, high: int = WIDTH) -> Box:
    """A box with these ends in the first attribute, and all of the others."""
    return Box((low, *[0] * (dims - 1)), (high, *[WIDTH] * (dims - 1)))


def _over_all(dims: int) -> Callable[[int], Iterator[Event]]:
    """A box over everything; then the same in many boxes; then it changes to the half of everything; then it goes."""

    def events(size: int) -> Iterator[Event]:
        yield subscribing("all", (_box(dims),))
        edges = np.linspace(0, WIDTH, MANY_BOXES + 1).astype(int).tolist()
        parts = tuple(_box(dims, low, high) for low, high in pairwise(edges))
        yield subscribing("parts", parts)
        yield subscribing("all", (_box(dims, 0, WIDTH // 2),))
        yield cancelling("parts")
        yield cancelling("all")

    return events


def _leaning(dims: int) -> Callable[[int], Iterator[Event]]:
    """A broad subscription; many inside it, with gaps between them, that lean on it; then it is cancelled."""

    def events(size: int) -> Iterator[Event]:
        yield subscribing("broad", (_box(dims),))
        width = WIDTH // LEANING
        for k in range(LEANING):
            yield subscribing(f"leaning {k}", (_box(dims, k * width, k * width + width // 2),))
        yield cancelling("broad")

    return events


def _leaning_on_one_that_changes(dims: int) -> Callable[[int], Iterator[Event]]:
    """The same; but instead of being cancelled the broad subscription changes, and again."""

    def events(size: int) -> Iterator[Event]:
        *before, _ = _leaning(dims)(size)
        yield from before
        yield subscribing("broad", (_box(dims, WIDTH // 2),))
        yield subscribing("broad", (_box(dims, 0, WIDTH // 3),))

    return events


def _broad(dims: int) -> Callable[[int], Iterator[Event]]:
    """A box over everything, and its end."""
    return lambda size: iter((subscribing("all", (_box(dims),)), cancelling("all")))


def _going(size: int) -> Iterator[Event]:
    """The same as over all; then nine of ten go, one after another."""
    yield from _over_all(3)(size)
    yield from (cancelling(f"active {k}") for k in range(size) if k % 10)


# Cases


def _bands(size: int, dims: int = 2) -> Keys:
    """Side by side in the first attribute, sorted; each over all of the others."""
    edges = np.linspace(0, WIDTH, size + 1).astype(np.int64)
    boxes = np.zeros((size, 2, dims), np.int64)
    boxes[:, 1] = WIDTH
    boxes[:, 0, 0], boxes[:, 1, 0] = edges[:-1], edges[1:]
    return boxes


def _bands_but_one(size: int) -> Keys:
    return np.delete(_bands(size), size // 2, axis=0)


def _grid(size: int, dims: int) -> Keys:
    """Cells of a grid over everything, shuffled."""
    side = round(size ** (1 / dims))
    edges = np.linspace(0, WIDTH, side + 1).astype(np.int64)
    cells = np.stack(np.meshgrid(*[np.arange(side)] * dims, indexing="ij"), axis=-1).reshape(-1, dims)
    return np.random.default_rng(1).permutation(np.stack((edges[cells], edges[cells + 1]), axis=1))


def _crossing(size: int) -> Keys:
    """Slabs with gaps between them, in one attribute and the next in turn."""
    boxes = _bands(size)
    boxes[:, 1, 0] -= (boxes[:, 1, 0] - boxes[:, 0, 0]) // 3
    boxes[1::2] = boxes[1::2, :, ::-1]
    return boxes


def _staircase(size: int) -> Keys:
    """Steps from the left, and everything right of each."""
    rows = _bands(size // 2)[:, :, ::-1]
    left, right = rows.copy(), rows.copy()
    left[:, 1, 0] = right[:, 0, 0] = rows[:, 1, 1]
    boxes = np.random.default_rng(1).permutation(np.concatenate((left, right)))
    return boxes[(boxes[:, 0] < boxes[:, 1]).all(axis=1)]


def _small(size: int, dims: int) -> Keys:
    """Small boxes anywhere, few of which meet."""
    chance = np.random.default_rng(1)
    low = chance.integers(0, WIDTH - 1, (size, dims))
    most = max(2, int(WIDTH * (0.1 / size) ** (1 / dims)))
    return np.stack((low, np.minimum(low + chance.integers(1, most, (size, dims)), WIDTH)), axis=1)


CASES = (
    Case("bands", 2, _bands, _over_all(2)),
    Case("bands but one", 2, _bands_but_one, _over_all(2)),
    Case("grid in 2 attributes", 2, lambda size: _grid(size, 2), _over_all(2)),
    Case("grid in 3 attributes", 3, lambda size: _grid(size, 3), _over_all(3)),
    Case("crossing slabs", 2, _crossing, _over_all(2)),
    Case("staircase", 2, _staircase, _over_all(2)),
    Case("small boxes in 8 attributes", 8, lambda size: _small(size, 8), _over_all(8)),
    Case("small boxes in 3 attributes, cancelled", 3, lambda size: _small(size, 3), _going),
    Case("many lean on one", 2, lambda size: _small(size, 2), _leaning(2)),
    Case("many lean on one that changes", 2, lambda size: _small(size, 2), _leaning_on_one_that_changes(2)),
    Case("many are withdrawn", 2, lambda size: _small(size, 2), _broad(2), "active"),
)
