"""Composing events: the JSON that goes into Kafka, stamped and checked before it is sent.

Every event gets a `time` (the producer's clock, to the microsecond). Subscribes and unsubscribes also get a `rev`: they
are in different topics, between which Kafka keeps no order, and the router lets the higher revision win. The revision
is the clock in microseconds, or one more than the last where the clock stands or went back:

    clock   100  100   90  200
    rev     100  101  102  200      strictly growing over all ids of one composer, so also for each id

After a restart it goes on above what was, as long as the clock does. Two programs that change the same subscription are
in the order of their clocks.

The check is the router's own (`state.protocol.events`): what passes here is not rejected there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from producers.errors import EventRefused
from state.config import Config
from state.protocol.events import Context, EventKind, Reject, Source, read
from state.space import timestamp_text

Clock = Callable[[], int]


def micros() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class Revisions:
    """Numbers that only grow, near the clock.

    >>> revisions = Revisions()
    >>> [revisions.after(now) for now in (100, 100, 90, 200)]
    [100, 101, 102, 200]
    """

    def __init__(self) -> None:
        self._last = -1

    def after(self, now: int) -> int:
        """The next number: `now`, or just above the last."""
        self._last = max(now, self._last + 1)
        return self._last

    def seen(self, rev: int) -> None:
        """Someone chose a number: the next ones are above it."""
        self._last = max(self._last, rev)


class Composer:
    """Makes the bytes of events for one configuration. Not for several threads at once.

    `check` may be left out for events that are known to be valid; it takes a quarter of the time of a send.
    """

    def __init__(self, config: Config, clock: Clock = micros, *, check: bool = True) -> None:
        self._context = Context(config.space, config.overlay.brokers)
        self._clock, self._check = clock, check
        self._revisions = Revisions()

    def compose(self, kind: EventKind, broker: str, fields: Mapping[str, Any]) -> bytes:
        """The event as JSON. Raises `EventRefused` if the router would reject it.

        `fields` may hold a `rev` of the caller's own; the next ones are above it.
        """
        now = self._clock()
        event = {**fields, "time": timestamp_text(now)}
        if kind != "publish" and event.get("rev") is None:
            event["rev"] = self._revisions.after(now)
        value = _encoded(kind, event)
        outcome = read(self._context, kind, broker, value, Source(0, 0, "", now)) if self._check else None
        if isinstance(outcome, Reject):
            raise EventRefused(kind, event.get("id"), outcome)
        if kind != "publish":
            self._revisions.seen(event["rev"])
        return value


def _encoded(kind: str, event: Mapping[str, Any]) -> bytes:
    """JSON. NaN is written as such, for the check to refuse: null would mean an open end."""
    try:
        return _encode(event).encode()
    except UnicodeEncodeError as error:
        raise EventRefused(kind, event.get("id"), Reject("utf8", str(error))) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise EventRefused(kind, event.get("id"), Reject("json", str(error))) from None


def _plain(value: object) -> object:
    """Convert a value that JSON lacks but that has an obvious form: a date, a mapping, a number of numpy."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} is a {type(value).__name__}, which JSON does not have")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode
