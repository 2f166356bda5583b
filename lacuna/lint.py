"""`lacuna lint`: which subscriptions of a file would be refused or are redundant, before they are sent.

A file is what `simulate` takes and `produce` writes: a subscription a line. What is found, the first that fits:

    empty       its filter matches nothing (an inverted range, an empty set, a contradiction)
    rejected    it breaks another rule, and would be a row in `rejects`
    replaced    another line gives the same subscription again, and is later by the core's rule (`ledger`)
    duplicate   another subscription at the same broker has the very same filter
    covered     others at the same broker cover it: one alone, or several together

Redundant is not useless: its client gets its deliveries all the same. But its broker need not tell any neighbour of it:
the network would not know less without it.

Everything that is reported can be left out at once (`redundancy`). With `--against`, what already stands at the same
broker and the file does not speak about is kept in any case. Only subscriptions of the same broker are compared: what
comes from another broker covers on some of its links and not on others.

A Boolean filter of more than 64 boxes travels as a more general one (`state.filters.where`). It is judged by what its
client asks for, up to 512 boxes; beyond that it is found redundant if even the more general one is, and covers nothing.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.table import Table

from lacuna.config_file import read_config
from lacuna.console import console
from lacuna.history import Source, standing
from lacuna.redundancy import redundant
from state.config import Config
from state.filters.trees import MOST_TERMS, Filter, boxes_of
from state.geometry.boxes import Boxes
from state.protocol.events import Context, Reject, read_line
from state.protocol.ledger import Ledger
from state.protocol.messages import Name, Subscribe, Unsubscribe

Subparsers = Any
EMPTY_RULES = ("empty", "inverted", "nothing")
FINDINGS = ("empty", "rejected", "replaced", "duplicate", "covered by one", "covered by several")
LONGEST = 8


def add_lint(sub: Subparsers) -> None:
    command = sub.add_parser(
        "lint",
        help="which subscriptions of a file are empty, duplicate or covered by others, before they are sent",
        description="Look through the subscriptions of an events file. Exit code 0: nothing found, 1: something found, "
        "2: it could not run.",
    )
    command.add_argument("file", metavar="FILE", help="JSON lines as for simulate; kind and broker may be left out")
    command.add_argument(
        "--config", default="lacuna.toml", metavar="F", help="the configuration (default: %(default)s)"
    )
    command.add_argument("--broker", metavar="B", help="for lines that name none")
    command.add_argument(
        "--against",
        nargs="?",
        const="",
        metavar="DIR",
        help="also compare with what stands: in the configuration's lake, or in what `simulate --out DIR` wrote",
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=run_lint)


def run_lint(args: argparse.Namespace) -> int:
    config = read_config(args.config)
    known: dict[Name, Boxes] = {}
    if args.against is not None:
        source = Source(config, Path(args.against) if args.against else None)
        known = standing(config.space, source.decisions(origin="local"))
    with Path(args.file).open("rb") as file:
        linter = Linter(config, args.broker)
        linter.read(file)
    found = linter.findings(known)
    report = {"subscriptions": linter.seen, "against": len(known), **linter.counts(found)}
    if args.json:
        print(json.dumps({**report, "findings": [finding.as_json() for finding in found]}))
    else:
        _show(report, found)
    return 1 if found else 0


Who = tuple[str | None, str | None, str | None]
"""A name as far as a line gives it: broker, client, id."""


@dataclass(frozen=True)
class Finding:
    """What is to be said about a line."""

    line: int
    what: str
    name: Who
    by: tuple[Name, ...] = ()
    message: str = ""

    def as_json(self) -> dict[str, Any]:
        """The finding as one object."""
        broker, client, id = self.name
        by = [name._asdict() for name in self.by]
        said = {"line": self.line, "finding": self.what, "subscription": id, "client": client, "broker": broker}
        return said | {"by": by, "message": self.message}

    def words(self) -> str:
        """The same for a person."""
        if self.message:
            return self.message
        names = ", ".join(f"{name.id} of {name.client}" for name in self.by[:LONGEST])
        return names + (f" and {len(self.by) - LONGEST} more" if len(self.by) > LONGEST else "")


class Asked(NamedTuple):
    """What a line asks for: its boxes, or, where those would be too many, the filter, and boxes that hold more."""

    line: int
    boxes: Boxes
    exact: Filter | None = None

    @property
    def filter(self) -> Boxes | Filter:
        """What is asked for and nothing else."""
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
        """Take the lines of a file. What does not stand at its end is not looked at, nor are publications."""
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
        self._clock = max(self._clock, message.moment)
        for name in self._ledger.expire(self._clock):
            del self._last[name]
        if isinstance(message, Subscribe | Unsubscribe):
            self.seen += isinstance(message, Subscribe)
            self._spoken.add(message.name)
            self._hear(number, message)

    def _refused(self, number: int, line: bytes, reject: Reject) -> None:
        what = "empty" if reject.rule in EMPTY_RULES else "rejected"
        self._found.append(Finding(number, what, _who(line), message=f"{reject.rule}: {reject.message}"))

    def _hear(self, number: int, message: Subscribe | Unsubscribe) -> None:
        """Which word about a subscription is the last is not a matter of lines: the core's ledger knows."""
        name = message.name
        known = self._last.get(name)
        if not self._ledger.hear(message, self._clock).news:
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
        """What travels may be more general than what the client asks for; here the latter counts, if it can be had."""
        if message.exact is None:
            return Asked(number, message.boxes)
        boxes = boxes_of(message.exact, self._config.space, MOST_TERMS)
        return Asked(number, message.boxes, message.exact) if boxes is None else Asked(number, boxes)

    def _completed(self, line: bytes) -> bytes:
        """The line with kind and broker, where it names none."""
        event = _event(line)
        if event is None or ("kind" in event and "broker" in event):
            return line
        missing = {"kind": "subscribe"} | ({"broker": self._broker} if self._broker else {})
        return msgspec.json.encode(missing | event)

    def findings(self, known: dict[Name, Boxes]) -> list[Finding]:
        """Everything found, by line, given what already stands. What the file speaks about is as the file says."""
        found = list(self._found)
        for broker in self._config.overlay.brokers:
            mine = {name: asked for name, asked in self._last.items() if name.broker == broker}
            there = {n: boxes for n, boxes in known.items() if n.broker == broker and n not in self._spoken}
            found += self._redundant(mine, there)
        return sorted(found, key=lambda finding: finding.line)

    def _redundant(self, mine: dict[Name, Asked], there: dict[Name, Boxes]) -> Iterable[Finding]:
        """What others at the broker make redundant."""
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
        """How often each finding was made."""
        tally = Counter(finding.what for finding in found)
        return {what.replace(" ", "_"): tally[what] for what in FINDINGS}


def _event(line: bytes) -> dict[str, Any] | None:
    """The JSON object in a line, if it is one."""
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _who(line: bytes) -> Who:
    """Whose subscription a line is, as far as it says so."""
    event = _event(line) or {}
    broker, client, id = (event.get(field) for field in ("broker", "client", "id"))
    return _text(broker), _text(client), _text(id)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _show(report: dict[str, int], found: list[Finding]) -> None:
    screen = console()
    if found:
        table = Table("line", "subscription", "client", "broker", "finding", "by")
        for finding in found:
            broker, client, id = (part or "" for part in finding.name)
            table.add_row(str(finding.line), id, client, broker, finding.what, finding.words())
        screen.print(table)
    told = ", ".join(
        f"{count:,} {what.replace('_', ' ')}" for what, count in report.items() if count or what == "subscriptions"
    )
    screen.print(told if found else f"{told}; nothing found")
