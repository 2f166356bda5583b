"""A twin of the whole system that shares no code with it: who gets what, by comparing plain values.

It reads the same JSON events. A subscription stands from the event that made it to the one that ended it; a publication
goes to every standing subscription whose filter holds for its values. No keys, no boxes, no brokers, no messages.
"""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]
Delivery = tuple[str, str, str, str]
"""Broker, client, subscription, publication."""


def matches(where: Event, at: Event, categories: set[str]) -> bool:
    """Does a filter hold for a publication's values?"""
    for attribute, wanted in where.items():
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
