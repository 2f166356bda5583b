"""Checks of a file of subscriptions before they are sent: those that would be refused, and those that are redundant.

The file has the form that `simulate` reads and `produce` writes: one event a line. The findings, the first that fits:

    empty       its filter matches nothing (an inverted range, an empty set, a contradiction)
    rejected    it breaks another rule, and would be a row in `rejects`
    replaced    another line gives the same subscription again, and is later by the core's rule (`ledger`)
    duplicate   another subscription at the same broker has the very same filter
    covered     others at the same broker cover it: one alone, or several together

A redundant subscription is not useless: its client still gets its deliveries. But its broker need not tell any
neighbour of it, because it adds nothing to what the neighbours know.

All reported subscriptions can be left out at once (`redundancy`). Subscriptions that already stand at the same broker
and that the file does not mention are kept in any case. Only subscriptions of the same broker are compared: those of
another broker cover on some of its links and not on others.

A Boolean filter of more than 64 boxes travels as a more general one (`state.filters.where`). Up to 512 boxes, the
client's own filter is judged. Beyond that the filter is redundant if even the more general one is, and covers nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from lacuna.analysis.redundancy import redundant
from state.config import Config
from state.filters.trees import MOST_TERMS, Filter, boxes_of
from state.geometry.boxes import Boxes
from state.protocol.events import Context, Reject, read_line
from state.protocol.ledger import Ledger
from state.protocol.messages import Name, Subscribe, Unsubscribe

EMPTY_RULES = ("empty", "inverted", "nothing")
FINDINGS = ("empty", "rejected", "replaced", "duplicate", "covered by one", "covered by several")
LONGEST = 8


Who = tuple[str | None, str | None, str | None]
"""A name as far as a line gives it: broker, client, id."""


@dataclass(frozen=True)
class Finding:
    """A finding about one line."""

    line: int
    what: str
    name: Who
    by: tuple[Name, ...] = ()
    message: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the finding as one JSON object."""
        broker, client, id = self.name
        by = [name._asdict() for name in self.by]
        said = {"line": self.line, "finding": self.what, "subscription": id, "client": client, "broker": broker}
        return said | {"by": by, "message": self.message}

    def words(self) -> str:
        """Return the coverers or the message, as text for a person."""
        if self.message:
            return self.message
        names = ", ".join(f"{name.id} of {name.client}" for name in self.by[:LONGEST])
        return names + (f" and {len(self.by) - LONGEST} more" if len(self.by) > LONGEST else "")


class Asked(NamedTuple):
    """The subscription of a line: its boxes or, where those would be too many, its filter and boxes that contain it."""

    line: int
    boxes: Boxes
    exact: Filter | None = None

    @property
    def filter(self) -> Boxes | Filter:
        """Return the exact filter, for comparison."""
        return self.exact or self.boxes


class Linter:
    """Reads subscriptions and finds what is wrong with them."""

    def __init__(self, config: Config, broker: str | None) -> None:
        self._config = config
        self._context = Context(config.space, config.overlay.brokers)
        only = config.overlay.brokers[0] if len(config.overlay.brokers) == 1 else None
        self._broker = broker or only
        self._ledger = Ledger(config.remember)
        self._clock = 0
        self._found: list[Finding] = []
        self._last: dict[Name, Asked] = {}
        self._spoken: set[Name] = set()
        self.seen = 0

    def read(self, lines: Iterable[bytes]) -> None:
        """Read the lines of a file. Publications and subscriptions that end within the file are not examined."""
        for number, line in enumerate(lines, 1):
            if line.strip():
                self._take(number, self._completed(line))

    def _take(self, number: int, line: bytes) -> None:
        kind, _, message = read_line(self._context, line, self._clock, number)
        if isinstance(message, Reject):
            if kind not in ("publish", "unsubscribe"):
                self.seen += 1
                self._refused(number, line, message)
            return
        self._clock = max(self._clock, message.time)
        for name, _ in self._ledger.expire(self._clock):
            del self._last[name]
        if isinstance(message, Subscribe | Unsubscribe):
            self.seen += isinstance(message, Subscribe)
            self._spoken.add(message.name)
            self._hear(number, message)

    def _refused(self, number: int, line: bytes, reject: Reject) -> None:
        what = "empty" if reject.rule in EMPTY_RULES else "rejected"
        self._found.append(Finding(number, what, _who(line), message=f"{reject.rule}: {reject.message}"))

    def _hear(self, number: int, message: Subscribe | Unsubscribe) -> None:
        """Apply an event. The core's ledger decides which of two events about one subscription is the later."""
        name = message.name
        known = self._last.get(name)
        if not self._ledger.apply(message, self._clock).is_newer:
            if known is not None and isinstance(message, Subscribe):
                told = f"line {known.line} is later, by its revision or time"
                self._found.append(Finding(number, "replaced", name, message=told))
            return
        self._last.pop(name, None)
        if isinstance(message, Subscribe):
            if known is not None:
                self._found.append(Finding(known.line, "replaced", name, message=f"given again in line {number}"))
            self._last[name] = self._asked(number, message)

    def _asked(self, number: int, message: Subscribe) -> Asked:
        """Return the client's own filter as boxes if these are not too many, else beside its more general form."""
        if message.exact is None:
            return Asked(number, message.boxes)
        boxes = boxes_of(message.exact, self._config.space, MOST_TERMS)
        return Asked(number, message.boxes, message.exact) if boxes is None else Asked(number, boxes)

    def _completed(self, line: bytes) -> bytes:
        """Return the line with kind and broker added where they are missing."""
        event = _event(line)
        if event is None or ("kind" in event and "broker" in event):
            return line
        missing = {"kind": "subscribe"} | ({"broker": self._broker} if self._broker else {})
        return msgspec.json.encode(missing | event)

    def findings(self, known: dict[Name, Boxes]) -> list[Finding]:
        """Return all findings by line. `known` stands already; what the file mentions is as the file says."""
        found = list(self._found)
        for broker in self._config.overlay.brokers:
            mine = {name: asked for name, asked in self._last.items() if name.broker == broker}
            there = {n: boxes for n, boxes in known.items() if n.broker == broker and n not in self._spoken}
            found += self._redundant(mine, there)
        return sorted(found, key=lambda finding: finding.line)

    def _redundant(self, mine: dict[Name, Asked], there: dict[Name, Boxes]) -> Iterable[Finding]:
        """Yield the subscriptions of a broker that others at it make redundant."""
        exact = {name: asked.boxes for name, asked in mine.items() if asked.exact is None}
        outer = {name: asked.boxes for name, asked in mine.items() if asked.exact is not None}
        covered = redundant(self._config.space, exact, there, outer)
        same: dict[Boxes | Filter, Name] = {}
        for name, boxes in there.items():
            same.setdefault(boxes, name)
        for name, asked in mine.items():
            if name not in covered:
                same.setdefault(asked.filter, name)
        for name, asked in mine.items():
            twin = same.get(asked.filter, name)
            if twin != name:
                yield Finding(asked.line, "duplicate", name, (twin,))
            elif name in covered:
                several = "covered by one" if len(covered[name]) == 1 else "covered by several"
                yield Finding(asked.line, several, name, covered[name])

    def counts(self, found: list[Finding]) -> dict[str, int]:
        """Count the findings of each kind."""
        counts = Counter(finding.what for finding in found)
        return {what.replace(" ", "_"): counts[what] for what in FINDINGS}


def _event(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line, or None if the line holds none."""
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _who(line: bytes) -> Who:
    """Return broker, client and id of a line, each None if it is missing."""
    event = _event(line) or {}
    broker, client, id = (event.get(field) for field in ("broker", "client", "id"))
    return _text(broker), _text(client), _text(id)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
