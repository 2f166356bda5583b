"""A workload into Kafka, as fast as it goes or at a chosen rate.

The events are those of the seeded workload, valid by construction, so they are not checked once more. Time and revision
are of the moment of sending (see `compose`), so a workload that is sent twice replaces its own subscriptions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from access import DEADLINE
from producers.sender import Sender
from producers.workloads import Workload
from state.config import Config
from state.protocol.events import KINDS

STEP = 256
"""Progress is told every so many events."""
SHORTEST_SLEEP = 0.001


class Pace:
    """Lets so many events pass per second: the n-th not before n / rate. Late ones are not held back, so the average
    holds.
    """

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._began = clock()
        self._passed = 0

    def wait(self) -> None:
        """Wait until the next event is due."""
        if self._rate is None:
            return
        early = self._began + self._passed / self._rate - self._clock()
        if early >= SHORTEST_SLEEP:
            self._sleep(early)
        self._passed += 1


def produce_to_kafka(
    config: Config,
    workload: Workload,
    rate: float | None = None,
    progress: Callable[[int], None] | None = None,
    *,
    deadline: float = DEADLINE,
) -> dict[str, Any]:
    """Send a workload and wait until Kafka has all of it; the counts by kind, and how long it took.

    `progress` is told the number of events sent so far.
    """
    counts: dict[str, int] = dict.fromkeys(KINDS, 0)
    began = time.monotonic()
    with Sender(config, deadline=deadline, check=False) as sender:
        pace = Pace(rate)
        for number, event in enumerate(workload.events(config)):
            pace.wait()
            kind, broker = event.pop("kind"), event.pop("broker")
            event.pop("rev", None)
            sender.send(kind, broker, event)
            counts[kind] += 1
            if progress is not None and number % STEP == 0:
                progress(number + 1)
    seconds = time.monotonic() - began
    total = sum(counts.values())
    if progress is not None:
        progress(total)
    return {**counts, "seconds": round(seconds, 3), "events_per_s": round(total / seconds, 1)}
