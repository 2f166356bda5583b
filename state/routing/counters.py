"""Counters: what happened on each link, as the numbers from which rows of `metrics` are made.

They gather per step, or per item where every item is measured (`simulate --out`). Those of a step wait in the region's
state until rows of `metrics` are due, so that a link has a row every few seconds, and not in every batch.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from state.protocol.messages import Request
from state.protocol.reasons import Reason
from state.routing.decision import Decision
from state.routing.outcome import Ints, Mask, Place, Run

Measure = Literal["never", "step", "item"]
"""When rows of metrics are made: not at all, at the end of a step, or for every item."""
MOST_CELLS = 2**63 - 1
"""The highest count of bridged cells."""


class Counters:
    """The counters of a region's links that have gathered since they were taken.

    `waiting` are those that wait for a row, with the number of batches that they cover; `batches` is how many the
    region has had since its last rows, `measured` when these were made.
    """

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self._counts: dict[tuple[int, str, str], Counter[str]] = {}
        self.waiting: dict[Place, tuple[Counter[str], int]] = {}
        self.batches, self.measured = 0, 0

    def of(self, item: int, broker: str, link: str) -> Counter[str]:
        """Return the counters of a link: of this item where every item is measured, otherwise of the step."""
        key = (item if self.measure == "item" else 0, broker, link)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = Counter()
        return counts

    def take(self) -> list[tuple[int, str, str, Counter[str]]]:
        """Return all counters with their item, broker and link, and begin again."""
        gathered, self._counts = self._counts, {}
        return [(*key, counts) for key, counts in gathered.items()]

    def wait(self, broker: str, link: str, counts: Counter[str], batches: int = 1) -> None:
        """Let the counters of a link wait for its next row, which covers so many batches more."""
        before = self.waiting.get((broker, link))
        if before is not None:
            counts.update(before[0])
            batches += before[1]
        self.waiting[broker, link] = counts, batches

    def request(self, item: int, broker: str, origin: str, request: Request) -> None:
        """Count a request that a broker took, on the link that it came from."""
        self.of(item, broker, origin)["subscribes" if request.asks else "unsubscribes"] += 1

    def considered(self, run: Run, index: Ints, broker: str, link: str, wanted: Mask, false: Mask) -> None:
        """Count publications that were considered for a link, those that went, and those that nobody asked for."""
        which = {"publications": None, "forwarded": wanted, "stopped": ~wanted, "false_forwards": false}
        for what, mask in which.items():
            self.each(what, run, index, broker, link, mask)

    def each(self, what: str, run: Run, index: Ints, broker: str, link: str, which: Mask | None = None) -> None:
        """Count publications of a run, or those of them that a mask chooses."""
        chosen = index if which is None else index[which]
        if self.measure != "item":
            if len(chosen) or which is None:
                self.of(0, broker, link)[what] += len(chosen)
            return
        for item in run.items[chosen].tolist():
            self.of(item, broker, link)[what] += 1


def count_decision(counts: Counter[str], decision: Decision) -> None:
    """Add a decision to the counters of its link."""
    counts[decision.action] += 1
    if decision.reason is Reason.BUDGET:
        counts["budget"] += 1
    if decision.reason.is_audited:
        counts["audited"] += 1
        counts["wrong"] += decision.action != "withhold"
        counts["promised"] += decision.bound or 0.0  # type: ignore[assignment]  # the one counter of fractions
    if decision.ranges is not None:
        counts["bridged"] = min(counts["bridged"] + decision.ranges.bridged, MOST_CELLS)
