"""A twin of the whole system that shares no code with it: who gets what, by comparing plain values.

It reads the same JSON events; a filter as text becomes an expression of Python's. A subscription stands from the event
that made it to the one that ended it; a publication goes to every standing subscription whose filter holds for its
values. No keys, no boxes, no brokers, no messages.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

Event = dict[str, Any]
Delivery = tuple[str, str, str, str]
"""Broker, client, subscription, publication."""


PYTHON = [
    (r"(\w+) BETWEEN (\d+) AND (\d+)", r"(\2 <= \1 <= \3)"),
    (r"\bIN \(([^)]*)\)", r"in (\1,)"),
    (r"<>", "!="),
    (r"(?<![<>!])=", "=="),
    *((rf"\b{word}\b", word.lower()) for word in ("AND", "OR", "NOT")),
]
"""From the language of filters to Python's, as far as the tests write it."""


@cache
def python_of(text: str) -> Any:
    """A filter as an expression of Python's."""
    for sql, python in PYTHON:
        text = re.sub(sql, python, text)
    return compile(text, "filter", "eval")


def matches(where: Any, at: Event, categories: set[str]) -> bool:
    """Does a filter hold for a publication's values?"""
    if isinstance(where, str):
        return bool(eval(python_of(where), {}, dict(at)))
    if isinstance(where, list):
        return any(matches(one, at, categories) for one in where)
    for attribute, wanted in where.items():
        if attribute == "not":
            if matches(wanted, at, categories):
                return False
            continue
        if wanted and isinstance(wanted[0], list):
            if not any(matches({attribute: one}, at, categories) for one in wanted):
                return False
            continue
        value = at[attribute]
        if attribute in categories:
            if value not in wanted:
                return False
        else:
            low, high = wanted
            if (low is not None and value < low) or (high is not None and value > high):
                return False
    return True


class Oracle:
    """The standing subscriptions; each event is applied at once and everywhere."""

    def __init__(self, categories: set[str]) -> None:
        self._categories = categories
        self.standing: dict[tuple[str, str, str], Event] = {}
        self._revs: dict[tuple[str, str, str], int] = {}

    def take(self, event: Event) -> list[Delivery]:
        """Apply one event; the deliveries if it is a publication."""
        if event["kind"] == "publish":
            return [
                (*name, event["id"])
                for name, where in self.standing.items()
                if matches(where, event["at"], self._categories)
            ]
        name = (event["broker"], event["client"], event["id"])
        rev = event.get("rev", self._revs.get(name, 0))
        if rev < self._revs.get(name, 0):
            return []
        self._revs[name] = rev
        if event["kind"] == "subscribe":
            self.standing[name] = event["where"]
        else:
            self.standing.pop(name, None)
        return []
