"""The probability that a publication is found along a path of brokers: Proposition 4, and measurements.

Setting (section 5, Fig. 4 of the paper on probabilistic subsumption). Brokers B1 ... Bn in a line. All of them know the
subscriptions S; a new one, s, is issued at B1, and what S leaves uncovered of it is a share rho_w. The publication that
matches s but nothing in S is issued at each broker with probability rho. Each broker in turn forwards s, unless d
guesses all miss what is uncovered. Then the publication is found with probability

    sum over i = 1 ... n of   rho [(1 - rho) (1 - (1 - rho_w)^d)]^(i-1)                                    (2)

There each broker makes guesses of its own. In Lacuna the guesses follow from the subscription and the parameters, so
that brokers that know the same make the same guesses: either B1 is wrong or none is, and only the first step can fail:

    rho + (1 - (1 - rho_w)^d) sum over i = 2 ... n of   rho (1 - rho)^(i-1)

which is never less. Both are measured: the first with separate guesses for each broker, the second on a real overlay
with subscriptions, link messages, publications and deliveries. Each run asks another question.

S is a pinwheel, the smallest arrangement in which nothing but a guess finds the gap:

    ┌────┬──────┐
    │ s4 │  s3  │     s is the whole square; every entry of the conflict table is in conflict
    │  ┌─┴─┐    │     with another, so neither a corollary nor MCS decides
    ├──┤ ? ├────┤
    │  └─┬─┘ s2 │
    │ s1 │      │
    └────┴──────┘
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from state.config import Config, parse
from state.geometry.boxes import Box, stack
from state.protocol.arrivals import Arrival, Channel
from state.protocol.messages import LOCAL, Message, Name, Publish, Stamp, Subscribe, Unsubscribe
from state.routing.region import Region
from state.strategies.probabilistic.rspc import guess, shares

SIDE = 1000
ROOM = 10**6


def pinwheel(hole: int, at: int = 0, side: int = SIDE) -> tuple[Box, list[Box]]:
    """Return a square, and four boxes that cover it except for a square hole in its middle."""
    a, b, end = at + (side - hole) // 2, at + (side + hole) // 2, at + side
    corners = [((at, at), (b, a)), ((b, at), (end, b)), ((a, b), (end, end)), ((at, a), (a, end))]
    return Box((at, at), (end, end)), [Box(lo, hi) for lo, hi in corners]


def formula(rho: float, missed: float, brokers: int) -> float:
    """Return equation 2, where each broker makes guesses of its own; `missed` is (1 - rho_w)^d."""
    return sum(rho * ((1 - rho) * (1 - missed)) ** i for i in range(brokers))


def shared_formula(rho: float, missed: float, brokers: int) -> float:
    """Return the probability where all brokers make the same guesses."""
    return rho + (1 - missed) * sum(rho * (1 - rho) ** i for i in range(1, brokers))


Step = Callable[[str], None]


def chain(
    brokers: int, rho: float, gap: float, trials: int, runs: int, seed: int, step: Step = lambda _: None
) -> dict[str, Any]:
    """Return formulas and measurements for paths of 1 to `brokers` brokers."""
    hole = max(2, round(math.sqrt(gap) * SIDE / 2) * 2)
    rho_w = (hole / SIDE) ** 2
    missed = (1 - rho_w) ** trials
    issued = np.random.default_rng(seed).random((runs, brokers)) < rho
    step("each broker with guesses of its own")
    apart = _found(issued, _reach_apart(hole, trials, runs, brokers, seed))
    step("the overlay")
    together = _found_in_overlay(hole, trials, issued, seed)
    return {
        "rho": rho,
        "rho_w": rho_w,
        "trials": trials,
        "missed": missed,
        "runs": runs,
        "paths": [
            {
                "brokers": n,
                "formula": round(formula(rho, missed, n), 4),
                "measured": round(float(apart[:, n - 1].mean()), 4),
                "formula_shared": round(shared_formula(rho, missed, n), 4),
                "measured_shared": round(float(together[:, n - 1].mean()), 4),
            }
            for n in range(1, brokers + 1)
        ],
    }


def _found(issued: NDArray[np.bool_], reach: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each run and length of path whether the publication was issued at a broker that s reached."""
    reached = np.arange(issued.shape[1]) < reach[:, None]
    return np.logical_or.accumulate(issued & reached, axis=1)


def _reach_apart(hole: int, trials: int, runs: int, brokers: int, seed: int) -> NDArray[np.int64]:
    """Return how many brokers s reaches in each run, if each makes guesses of its own."""
    s, four = pinwheel(hole)
    taken = shares(_config(2, 1).space, s.keys(), stack(four, 2))
    seeds = np.random.default_rng([seed, 1]).integers(-(2**63), 2**63, (runs, brokers))
    point = np.empty(2)
    forwards = np.array([[guess(taken, int(one), trials, point) < 0 for one in row] for row in seeds])
    return np.asarray(1 + np.logical_and.accumulate(forwards[:, : brokers - 1], axis=1).sum(axis=1))


def _config(brokers: int, trials: int) -> Config:
    sides = "".join(f'{x} = {{kind = "int", low = 0, high = {ROOM + SIDE}}}\n' for x in "xy")
    links = [[f"b{k}", f"b{k + 1}"] for k in range(1, brokers)]
    strategy = f'{{name = "probabilistic", delta = 1e-300, trials = {trials}}}'
    return parse(f'[space]\n{sides}[overlay]\nbrokers = ["b1"]\nlinks = {links}\n[routing]\nstrategy = {strategy}\n')


def _found_in_overlay(hole: int, trials: int, issued: NDArray[np.bool_], seed: int) -> NDArray[np.bool_]:
    """Measure on a real overlay. Each run uses another pinwheel, s and publications, and unsubscribes at its end."""
    runs, brokers = issued.shape
    region = Region("chain", _config(brokers, trials).setups(), measure="never", logs=False)
    places = np.random.default_rng([seed, 2]).permutation(ROOM)[:runs].tolist()
    found = np.zeros(issued.shape, bool)
    names = [Name("b1", "c", str(k)) for k in range(5)]
    for run, at in enumerate(places):
        s, four = pinwheel(hole, at)
        shapes = zip(names, [*four, s], strict=True)
        region.take(_arrival("b1", Subscribe(name, (box,), Stamp(None, run, 0, 0))) for name, box in shapes)
        middle = (at + SIDE // 2, at + SIDE // 2)
        shots = (_arrival(f"b{k + 1}", Publish(str(k), middle)) for k in np.flatnonzero(issued[run]).tolist())
        delivered = region.take(shots).deliveries_in_order()
        found[run, [int(publication.id) for publication, *_ in delivered]] = True
        region.take(_arrival("b1", Unsubscribe(name, Stamp(None, run, 0, 1))) for name in reversed(names))
    return np.asarray(np.logical_or.accumulate(found, axis=1))


def _arrival(broker: str, message: Message) -> Arrival:
    return Arrival(Channel(0, 0, "chain"), 0, 0, broker, LOCAL, message)
