"""Benchmarks: commands that print figures, published values beside measured ones. Never timed tests."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from bench.report import Report, Step

BENCHES: dict[str, str] = {
    "apply": "the pause of a running system that changes to another strategy",
    "core": "matching, deciding, simulating; against an R-tree and the paper's method on one",
    "bounded": "the longest that any single event takes, for cases made to be as bad as possible",
    "mics": "ranges of a Hilbert curve: the paper's tables and figures, against the linear method",
    "negative-space": "Tables 1 and 2 and Fig. 10 to 15 of the negative-space paper; index, order, on demand",
    "zcurve": "approximate covering on a Z curve, exact covering by a k-d tree",
    "probabilistic": "the scenarios of the paper on probabilistic subsumption, and false answers",
    "peers": "the same boxes, points and filters: rtree, rstar, cube, event-ruler, a-tree, z3, ActiveMQ",
    "pruning": "Fig. 1 of the dimension-pruning paper; matching Boolean filters against looking at every tree",
    "pruning-full": "the same with 200,000 subscriptions and 100,000 events, as in the paper; takes long",
    "serve": "200 listeners of a gateway, beside as many readers of the topic; latency, memory of a listener",
    "router": "the live router: against a pass-through query, with growing state, hop by hop, with the archive",
}
"""Each is a module here with a function `run`; imported when it is run, because some need Spark."""


def run(name: str, step: Step, *, quick: bool) -> Report:
    """Run one benchmark, saying what it does."""
    return cast("Report", import_module(f"bench.{name.replace('-', '_')}").run(step, quick=quick))
