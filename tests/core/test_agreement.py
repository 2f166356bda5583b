"""Every strategy delivers the same, on spaces and filters as people have them: all kinds of attributes, real sizes.

The histories of the other tests live on an 8 x 8 grid, where brute force can follow. Here domains are wide, keys are
those of doubles and microseconds, filters are several boxes, and the workloads are those that people are given.
"""

from __future__ import annotations

import json
from functools import cache

import pytest

from lacuna.simulate import Simulation
from producers.workloads import WORKLOADS, Workload
from state.config import parse
from state.strategies import PARAMETERS, Spec
from tests.core.overlay import Received

CONFIG = """
[space]
price = {kind = "float", low = -5.0, high = 1000.0}
volume = {kind = "int", low = 0, high = 100000}
symbol = {kind = "category", values = ["AAPL", "IBM", "MSFT", "ORCL", "SAP"]}
seen = {kind = "timestamp", low = "2026-01-01T00:00:00Z", high = "2027-01-01T00:00:00Z"}
[overlay]
links = [["a", "b"], ["b", "c"], ["b", "d"]]
"""
FILTERS = [
    "symbol IN ('IBM', 'SAP') OR price > 100",
    "NOT (volume BETWEEN 10 AND 90000) AND symbol <> 'ORCL'",
    {"symbol": ["AAPL", "MSFT", "SAP"], "volume": [5, None]},
    "(price < 0 OR price > 10) AND (volume < 5000 OR seen > '2026-06-01T00:00:00Z')",
]
CERTAIN = sorted(set(PARAMETERS) - {"flood", "probabilistic"})


@cache
def lines(workload: str) -> tuple[bytes, ...]:
    """A workload with filters of several boxes in between, some of which are cancelled."""
    events = list(Workload(workload, 60, 150, cancelled=0.3, seed=3).events(parse(CONFIG)))
    for k in range(40):
        who = {"broker": "abcd"[k % 4], "client": "ann", "id": f"f{k}"}
        events.insert(3 * k, {"kind": "subscribe", **who, "where": FILTERS[k % 4]})
        if k % 3 == 0:
            events.insert(len(events) // 2 + k, {"kind": "unsubscribe", **who})
    return tuple(json.dumps(event).encode() for event in events)


@cache
def delivered(workload: str, strategy: str) -> list[tuple[int, str, str, str, str, int]]:
    record = Received()
    Simulation(parse(CONFIG).with_strategy(Spec(strategy)), record).quiet(lines(workload))
    assert not record.rejects
    return sorted(record.deliveries)


@pytest.mark.parametrize("workload", sorted(set(WORKLOADS) - {"auctions"}))
@pytest.mark.parametrize("strategy", CERTAIN)
def test_what_is_delivered_does_not_depend_on_the_strategy(workload: str, strategy: str) -> None:
    flooded = delivered(workload, "flood")
    assert delivered(workload, strategy) == flooded
    assert len(flooded) > 100
