"""A way through the overlay, link by link, as a list that shows by its depth what follows from what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from state.storage.rows import Row

MARKS = {
    "told": ("●", "told", "blue"),
    "withheld": ("○", "withheld", "soft"),
    "cancelled": ("✗", "cancelled", "soft"),
    "dropped": ("✗", "dropped", "soft"),
    "carried": ("●", "carried", "blue"),
    "stopped": ("○", "stopped", "soft"),
    "carry": ("●", "would carry", "blue"),
    "stop": ("○", "would stop", "soft"),
    "tell": ("●", "would tell", "blue"),
    "withhold": ("○", "would withhold", "soft"),
}
"""The sign, the word and the colour of what happens on a link."""


class Passage(NamedTuple):
    """One link on a way: how far it is from the beginning, what happens there, and why."""

    broker: str
    link: str
    depth: int
    state: str
    text: str

    @property
    def mark(self) -> tuple[str, str, str]:
        return MARKS[self.state]


def outward(begin: str, rows: Iterable[Row], goes_on: Callable[[Row], bool]) -> list[tuple[Row, int]]:
    """Return rows about links from a broker outward, each with its depth; none is behind a link that does not go on."""
    by_broker: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_broker[row["broker"]].append(row)
    found: list[tuple[Row, int]] = []
    waiting = [(row, 0) for row in reversed(by_broker[begin])]
    while waiting:
        row, depth = waiting.pop()
        found.append((row, depth))
        if goes_on(row):
            waiting += [
                (after, depth + 1) for after in reversed(by_broker[row["link"]]) if after["link"] != row["broker"]
            ]
    return found
