"""What an overlay costs in the core: measured, fitted, and checked by doubling.

    subscribing     a for each subscription + b for each decision about it: one on each link that hears of it
    publishing      c for each direction of a link that a run reaches + d for each route row + e for each delivery

A run is what travels together: the publications of a batch between two changes. Overlays are trees in which each broker
has three more below it; clients are spread evenly over them. The constants are fitted to `FITTED`, by the relative
error. Then brokers, subscriptions and publications are doubled one at a time, and an overlay of 1,000 brokers is run:
`ratio` is what was measured over what the model says.

    python -m bench.model
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.takeover import BEGAN, SPACE, WARM
from producers.workloads import Workload
from state.config import Config, parse
from state.geometry.boxes import boxes_where
from state.protocol.arrivals import RANKS, Arrival, Channel
from state.protocol.messages import LOCAL, Name, Publish, Stamp, Subscribe
from state.routing.region import Region
from state.storage.codec import encode, uncollected

BELOW = 3
"""Brokers below each broker."""
REPEATS = 3


class Case(NamedTuple):
    """An overlay of so many brokers, subscriptions, and publications in a run."""

    brokers: int
    subscriptions: int
    publications: int


BASE = Case(20, 1_000, 1_000)
FITTED = (
    Case(5, 1_000, 1_000),
    Case(10, 500, 2_000),
    BASE,
    Case(20, 500, 4_000),
    Case(60, 500, 1_000),
)
CHECKED = {
    "brokers": BASE._replace(brokers=40),
    "subscriptions": BASE._replace(subscriptions=2_000),
    "publications": BASE._replace(publications=2_000),
    "thousand": Case(1_000, 200, 400),
}


def measured() -> dict[str, Any]:
    """Return the constants in microseconds, and how far each checked case is from what they say."""
    _run(BASE._replace(subscriptions=WARM))  # loads the kernels
    runs = [_run(case) for case in FITTED]
    asking = _fit([run.asked for run in runs], [run.subscribing for run in runs])
    sending = _fit([run.sent for run in runs], [run.publishing for run in runs])
    checks = {name: _checked(_run(case), asking, sending) for name, case in CHECKED.items()}
    names = ("subscription", "decision", "direction", "route", "delivery")
    constants = dict(zip(names, [*asking.tolist(), *sending.tolist()], strict=True))
    return {
        "microseconds": {name: round(value, 2) for name, value in constants.items()},
        "checks": checks,
        "fitted": {str(tuple(case)): run.described for case, run in zip(FITTED, runs, strict=True)},
    }


class Run(NamedTuple):
    """The CPU microseconds of one case, and the counts that they depend on."""

    subscribing: float
    publishing: float
    asked: tuple[float, ...]
    sent: tuple[float, ...]
    stored: int

    @property
    def described(self) -> dict[str, float]:
        """This run as figures for each subscription and publication run."""
        subscriptions, decisions = self.asked
        directions, routes, deliveries = self.sent
        return {
            "subscribe_us": round(self.subscribing / subscriptions, 1),
            "decisions_per_subscription": round(decisions / subscriptions, 1),
            "publish_ms_per_run": round(self.publishing / 1000, 2),
            "directions": directions,
            "routes": routes,
            "deliveries": deliveries,
            "stored_bytes_per_subscription": round(self.stored / subscriptions),
        }


def _run(case: Case) -> Run:
    config = _config(case.brokers)
    region = Region("b0", config.setups(config.overlay.brokers), logs=False)
    requests, decisions, subscribing = _subscribes(config, case.subscriptions), 0, 0.0
    with uncollected():
        while portion := list(islice(requests, 1_000)):
            began = time.process_time()
            outcome = region.take(portion)
            subscribing += time.process_time() - began
            decisions += len(outcome.decisions)
        publications, times = list(_publishes(config, case.publications)), []
        for _ in range(REPEATS):
            began = time.process_time()
            outcome = region.take(publications)
            times.append(time.process_time() - began)
    routes, deliveries = sum(len(one.reached.index) for one in outcome.routes), _count(outcome.deliveries)
    stored = sum(len(part) for broker in region.brokers.values() for part in encode(broker).values())
    sent = float(2 * (case.brokers - 1)), float(routes), float(deliveries)
    asked = float(case.subscriptions), float(decisions)
    return Run(subscribing * 1e6, min(times) * 1e6, asked, sent, stored)


def _count(deliveries: Any) -> int:
    return sum(len(one.index) for one in deliveries)


def _fit(counts: list[tuple[float, ...]], took: list[float]) -> NDArray[np.float64]:
    """Return the constants, none below 0, that are nearest to the times taken by the relative error."""
    rows = np.array(counts) / np.array(took)[:, None]
    kept = np.arange(rows.shape[1])
    while True:
        found = np.linalg.lstsq(rows[:, kept], np.ones(len(rows)), rcond=None)[0]
        if (found >= 0).all():
            constants = np.zeros(rows.shape[1])
            constants[kept] = found
            return constants
        kept = np.delete(kept, int(np.argmin(found)))


def _checked(run: Run, asking: NDArray[np.float64], sending: NDArray[np.float64]) -> dict[str, float]:
    ratios = {
        "subscribing_ratio": round(run.subscribing / float(asking @ run.asked), 2),
        "publishing_ratio": round(run.publishing / float(sending @ run.sent), 2),
    }
    return run.described | ratios


def _config(brokers: int) -> Config:
    links = [[f"b{(k - 1) // BELOW}", f"b{k}"] for k in range(1, brokers)]
    return parse(f"{SPACE}[overlay]\nlinks = {json.dumps(links)}\nregions = 1\n")


def _subscribes(config: Config, count: int) -> Iterator[Arrival]:
    channel = Channel(RANKS["subscribe"], 0, "subscribe")
    for k, event in enumerate(Workload("uniform", count, 0, cancelled=0.0).events(config)):
        broker, moment = str(event["broker"]), BEGAN + k
        name, stamp = Name(broker, str(event["client"]), str(event["id"])), Stamp(None, moment, channel.rank, k)
        asked = Subscribe(name, boxes_where(config.space, event["where"]), stamp=stamp)
        yield Arrival(channel, k, moment, broker, LOCAL, asked)


def _publishes(config: Config, count: int) -> Iterator[Arrival]:
    channel = Channel(RANKS["publish"], 0, "publish")
    for k, event in enumerate(Workload("uniform", 0, count).events(config)):
        broker, point = str(event["broker"]), config.space.point(event["at"])
        publication = Publish(str(event["id"]), point, key=f"0:{k}", entry=broker)
        yield Arrival(channel, k, 2 * BEGAN, broker, LOCAL, publication)


if __name__ == "__main__":
    print(json.dumps(measured(), indent=1))
