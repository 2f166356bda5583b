"""The benchmark's own arithmetic: who is reached on a line, and where a curve bends."""

from __future__ import annotations

import numpy as np

from bench.pruning import BROKERS, _bend, brokers_reached


def test_an_event_reaches_everybody_between_its_source_and_those_who_want_it() -> None:
    chance = np.random.default_rng(1)
    wanted, sources = chance.random((200, BROKERS)) < 0.3, chance.integers(BROKERS, size=200)
    for row, source, reached in zip(wanted, sources.tolist(), brokers_reached(wanted, sources).tolist(), strict=True):
        here = {source}
        for step in (1, -1):
            place = source
            while any(row[k] for k in range(place + step, BROKERS if step > 0 else -1, step)):
                place += step
                here.add(place)
        assert len(here) == reached


def test_a_bend_is_where_a_curve_hangs_lowest() -> None:
    assert _bend((0, 0.25, 0.5, 0.75, 1.0), [0, 0, 0, 0.1, 1.0]) == 0.75
    assert _bend((0, 0.05, 0.5, 1.0), [0, 0, 1, 1.0]) == 0.05
