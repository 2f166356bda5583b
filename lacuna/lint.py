"""`lacuna lint`: which subscriptions of a file would be refused or are redundant, before they are sent.

A file is what `simulate` takes and `produce` writes: a subscription a line. What is found, the first that fits:

    empty       its filter matches nothing (an inverted range, an empty set)
    rejected    it breaks another rule, and would be a row in `rejects`
    replaced    a later line gives the same subscription again
    duplicate   another subscription at the same broker has the very same filter
    covered     others at the same broker cover it: one alone, or several together

Redundant is not useless: its client gets its deliveries all the same. But its broker will withhold it from every
neighbour, so the network would not know less without it.

Who is redundant is decided from the largest to the smallest against those that are not, so everything that is reported
can be left out at once: no two of them lean on each other. With `--against`, what already stands at the same broker
counts first. Only subscriptions of the same broker are compared: what comes from another broker covers on some of its
links and not on others.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from lacuna.config_file import read_config
from lacuna.history import Source, standing
from state.boxes import Boxes, volume
from state.boxlist import BoxList
from state.config import Config
from state.cover import COVERED
from state.events import Context, Reject, read_line
from state.messages import Name, Publish, Subscribe, Unsubscribe
from state.strategies.base import BUDGET

Subparsers = Any
EMPTY_RULES = ("empty", "inverted")
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


@dataclass(frozen=True)
class Finding:
    """What is to be said about a line."""

    line: int
    what: str
    name: Name | None
    by: tuple[Name, ...] = ()
    message: str = ""

    def as_json(self) -> dict[str, Any]:
        """The finding as one object."""
        broker, client, id = self.name or (None, None, None)
        by = [name._asdict() for name in self.by]
        said = {"line": self.line, "finding": self.what, "subscription": id, "client": client, "broker": broker}
        return said | {"by": by, "message": self.message}

    def words(self) -> str:
        """The same for a person."""
        if self.message:
            return self.message
        names = ", ".join(f"{name.id} of {name.client}" for name in self.by[:LONGEST])
        return names + (f" and {len(self.by) - LONGEST} more" if len(self.by) > LONGEST else "")


class Linter:
    """Reads subscriptions and finds what is wrong with them."""

    def __init__(self, config: Config, broker: str | None) -> None:
        self._config = config
        self._context = Context(config.space, config.overlay.brokers)
        only = config.overlay.brokers[0] if len(config.overlay.brokers) == 1 else None
        self._broker = broker or only
        self._found: list[Finding] = []
        self._last: dict[Name, tuple[int, Boxes]] = {}
        self.seen = 0

    def read(self, lines: Iterable[bytes]) -> None:
        """Take the lines of a file. What a later line cancels is not looked at, nor are publications."""
        for number, line in enumerate(lines, 1):
            if line.strip():
                self._take(number, line)

    def _take(self, number: int, line: bytes) -> None:
        kind, _, message = read_line(self._context, self._completed(line), 0, number)
        if isinstance(message, Publish) or (isinstance(message, Reject) and kind in ("publish", "unsubscribe")):
            return
        if isinstance(message, Unsubscribe):
            self._last.pop(message.name, None)
            return
        self.seen += 1
        if isinstance(message, Reject):
            what = "empty" if message.rule in EMPTY_RULES else "rejected"
            self._found.append(Finding(number, what, None, message=f"{message.rule}: {message.message}"))
        elif isinstance(message, Subscribe):
            if message.name in self._last:
                earlier, _ = self._last.pop(message.name)
                self._found.append(Finding(earlier, "replaced", message.name, message=f"given again in line {number}"))
            self._last[message.name] = number, message.boxes

    def _completed(self, line: bytes) -> bytes:
        """The line with kind and broker, where it names none."""
        try:
            event = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return line
        if not isinstance(event, dict) or ("kind" in event and "broker" in event):
            return line
        missing = {"kind": "subscribe"} | ({"broker": self._broker} if self._broker else {})
        return msgspec.json.encode(missing | event)

    def findings(self, known: dict[Name, Boxes]) -> list[Finding]:
        """Everything found, by line, given what already stands."""
        found = list(self._found)
        for broker in self._config.overlay.brokers:
            mine = {name: entry for name, entry in self._last.items() if name.broker == broker}
            there = {name: boxes for name, boxes in known.items() if name.broker == broker and name not in mine}
            found += self._redundant(mine, there)
        return sorted(found, key=lambda finding: finding.line)

    def _redundant(self, mine: dict[Name, tuple[int, Boxes]], there: dict[Name, Boxes]) -> Iterable[Finding]:
        """What others at the broker make redundant, from the largest to the smallest."""
        space = self._config.space
        kept = BoxList(space.dims)
        shapes: dict[Boxes, Name] = {}
        for name, boxes in there.items():
            kept.add(name, boxes)
            shapes.setdefault(boxes, name)
        for name, (line, boxes) in sorted(mine.items(), key=lambda item: (-volume(space, item[1][1]), item[1][0])):
            coverers = (shapes[boxes],) if boxes in shapes else _coverers(kept, boxes)
            if not coverers:
                kept.add(name, boxes)
                shapes[boxes] = name
                continue
            several = "covered by one" if len(coverers) == 1 else "covered by several"
            yield Finding(line, "duplicate" if boxes in shapes else several, name, coverers)

    def counts(self, found: list[Finding]) -> dict[str, int]:
        """How often each finding was made."""
        tally = Counter(finding.what for finding in found)
        return {what.replace(" ", "_"): tally[what] for what in FINDINGS}


def _coverers(kept: BoxList, boxes: Boxes) -> tuple[Name, ...]:
    """Who covers all of these boxes; nobody where that is not so, or not decided within the budget."""
    names: dict[Name, None] = {}
    for box in boxes:
        answer, used, _, _ = kept.cover(box.keys(), BUDGET)
        if answer != COVERED:
            return ()
        names.update(dict.fromkeys(used))
    return tuple(names)


def _show(report: dict[str, int], found: list[Finding]) -> None:
    console = Console()
    if found:
        table = Table("line", "subscription", "client", "broker", "finding", "by")
        for finding in found:
            broker, client, id = finding.name or ("", "", "")
            table.add_row(str(finding.line), id, client, broker, finding.what, finding.words())
        console.print(table)
    told = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in report.items() if count)
    console.print(told if found else f"{told}; nothing found")
