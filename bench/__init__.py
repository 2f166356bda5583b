"""Benchmarks: commands that print figures, published values beside measured ones. Never timed tests."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.report import Report, Step

BENCHES: dict[str, str] = {
    "apply": "the pause of a running system that changes to another strategy",
    "core": "matching, deciding, simulating; against an R-tree and the paper's method on one",
    "bounded": "the longest that any single event takes, for cases made to be as bad as possible",
    "days": "thirty days of a small system, compressed: files, bytes and memory that are left behind",
    "faults": "faults on a running system, one after another, each compared with brute force: kills, damage, copies",
    "papers": "every claim of the five papers, published beside measured; --paper NAME: of one",
    "mics": "what the MICS paper reports; ranges by descent, look-ups, the state of a link",
    "negative-space": "what the negative-space paper reports; against its R-tree, on demand, cancelling",
    "zcurve": "what the Z curve paper reports; exact covering by a k-d tree",
    "probabilistic": "what the paper on probabilistic subsumption reports",
    "peers": "the same boxes, points and filters: rtree, rstar, cube, event-ruler, a-tree, z3, ActiveMQ",
    "pruning": "what the dimension-pruning paper reports; matching against looking at every tree",
    "pruning-full": "the same with 200,000 subscriptions and 100,000 events, as in the paper; takes long",
    "scale": "a million subscriptions at a broker; several workers; a burst; what an idle system writes",
    "serve": "200 listeners of a gateway, beside as many readers of the topic; latency, memory of a listener",
    "router": "the live router: against a pass-through query, with growing state, hop by hop, with the archive",
}
"""Each is a module here with a function `run`, imported when it is run, because some need Spark; or a paper."""
LONG = ("days", "faults", "pruning-full", "scale")
"""These take long, so they run only by name."""
BEYOND = ("mics", "negative-space", "zcurve", "pruning")
"""Papers that there is more to measure about than what they report: a function `beyond` in the module of that name."""


def run(name: str, step: Step, *, quick: bool, paper: str | None = None, **options: int) -> list[Report]:
    """Run one benchmark, saying what it does. Return its report; before it, or for `papers`, one for each paper.

    `options` are those of the benchmark itself.
    """
    from bench.papers import PAPERS, measured

    if name == "papers":
        return [measured(one, step, quick=quick) for one in ([paper] if paper else PAPERS)]
    if name in PAPERS:
        return [found := measured(name, step, quick=quick), _beyond(name, found, step)]
    return [_module(name).run(step, quick=quick, **options)]


def _beyond(name: str, found: Report, step: Step) -> Report:
    """The figures of a paper's measurement, whose details are kept with it, and what else is measured."""
    from bench.report import Report

    report = Report(name, dict(found.figures), dict(found.goals), notes=list(found.notes), quick=found.quick)
    if name in BEYOND:
        _module(name).beyond(report, step, quick=found.quick)
    return report


def _module(name: str) -> Any:
    return import_module(f"bench.{name.replace('-', '_')}")
