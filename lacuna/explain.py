"""`lacuna explain`: why a subscription was or was not forwarded, link by link, from its own broker outward.

Everything is read from the decisions in the tables (`lacuna.history`). On each link the last decision counts:

    told        the neighbour was told; the witness is a box that nobody told before covers
    withheld    the neighbour was not told; the coverers together cover it
    cancelled   the neighbour was told to forget it          dropped   it was withheld, and is gone

Beyond a link that withholds it nobody knows of it, and nobody needs to.

By whom it is covered is told as of the decision and, where these are not all active any more, as of now (`coverers`).

What a broker takes back, its neighbours call unsubscribed: they cannot tell whether the client did that, or whether it
is now withheld from them. The link before knows; each cancel there is one such row here, in the same order.

With `--where` instead of a subscription: what a filter is (`explain_filter`).
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text
from rich.tree import Tree

from lacuna.client_commands import read_filter
from lacuna.config_file import read_config
from lacuna.console import console
from lacuna.coverers import Coverers, coverers_now
from lacuna.drawing import draw
from lacuna.explain_filter import explain_filter, show_filter
from lacuna.history import GONE, Source, name_of, stands
from state.config import Config
from state.errors import LacunaError
from state.protocol.messages import Name
from state.space import Space
from state.storage.rows import Row

Subparsers = Any
STATES = {
    "forward": "told",
    "promote": "told",
    "withhold": "withheld",
    "cancel": "cancelled",
    "drop": "dropped",
}
FOUND = {
    "possible gap": "perhaps nobody covers",
    "no single cover": "no single one covers",
    "flood": "nobody was asked who covers",
}
"""What the witness is, where it is less than a proof."""
TAKEN_BACK = "unsubscribed"
LONGEST = 12
"""Coverers that are named to a person; --json names all."""


def add_explain(sub: Subparsers) -> None:
    command = sub.add_parser(
        "explain",
        help="why a subscription was or was not forwarded, link by link",
        description="Show, link by link from its own broker outward, whether a subscription was forwarded and why: who "
        "covers it, or a box that nobody covers. Reads the tables of the lake, or the files of a simulation.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  lacuna explain s3\n"
        "  lacuna explain s3 --from out --draw s3.png --attributes price volume\n"
        "  lacuna explain --where \"price < 20 AND (symbol = 'IBM' OR volume > 500)\"",
    )
    command.add_argument("subscription", nargs="?", metavar="SUBSCRIPTION", help="the id that the client chose")
    command.add_argument(
        "--where", metavar="FILTER", help="show what a filter is: tree, boxes, ranges, estimated selectivity"
    )
    command.add_argument("--client", metavar="NAME", help="whose it is, where several clients chose the same id")
    command.add_argument("--broker", metavar="B", help="the broker that the client is attached to")
    command.add_argument(
        "--config", default="lacuna.toml", metavar="F", help="the configuration (default: %(default)s)"
    )
    command.add_argument("--from", dest="folder", metavar="DIR", help="read what `simulate --out` wrote, not the lake")
    command.add_argument("--draw", metavar="F", help="draw the situation on one link into a .png or .svg file")
    command.add_argument(
        "--attributes",
        nargs=2,
        metavar=("A", "B"),
        help="the attributes to draw (default: the first two, or the only one)",
    )
    command.add_argument("--link", metavar="B>M", help="the link to draw (default: the first that decided)")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=run_explain)


def run_explain(args: argparse.Namespace) -> int:
    config = read_config(args.config)
    if (args.where is None) == (args.subscription is None):
        raise LacunaError("explain: it explains one thing. Remedy: name a subscription, or give a filter with --where")
    if args.where is not None:
        return run_filter(config, args.where, as_json=args.json)
    source = Source(config, Path(args.folder) if args.folder else None)
    rows = source.decisions(subscription=args.subscription)
    name = the_one(rows, source, args.subscription, args.client, args.broker)
    steps = list(chain(config, [row for row in rows if name_of(row) == name]))
    present = at_present(source, name, steps)
    drawn = None
    if args.draw:
        link = chosen_link(steps, args.link)
        drawn = draw(source, name, link, args.draw, args.attributes)
    if args.json:
        print(json.dumps(as_json(name, steps, present, drawn)))
    else:
        show(config.space, name, steps, present, drawn)
    return 0


def run_filter(config: Config, where: str, *, as_json: bool) -> int:
    about = explain_filter(config, read_filter(where))
    if as_json:
        print(json.dumps(about))
    else:
        show_filter(about)
    return 0


# Who


def the_one(rows: list[Row], source: Source, id: str, client: str | None, broker: str | None) -> Name:
    """The subscription that is meant."""
    names = dict.fromkeys(map(name_of, rows))
    fitting = [n for n in names if client in (None, n.client) and broker in (None, n.broker)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        which = ", ".join(f"--client {name.client} --broker {name.broker}" for name in fitting)
        raise LacunaError(f"{id}: {len(fitting)} subscriptions have this id. Remedy: say which: {which}")
    others = ", ".join(f"{name.client} at {name.broker}" for name in names)
    known = f" (it is recorded for {others})" if others else ""
    raise LacunaError(
        f"{id}: no decision about such a subscription is recorded in {source.where}{known}. Remedy: look for the id in "
        "rejects; wait until the archive has caught up; a broker without neighbours decides nothing"
    )


# What


@dataclass(frozen=True)
class Step:
    """One link: all that was decided there about the subscription, the last of it counts; and the link before it."""

    depth: int
    broker: str
    link: str
    rows: list[Row]
    before: Step | None = None

    @property
    def last(self) -> Row:
        return self.rows[-1]

    @property
    def state(self) -> str:
        return "told" if self._asks_for_less() else STATES[self.last["action"]]

    def _asks_for_less(self) -> bool:
        """Under `mics` a cancel may be a replacement by less: what is left of it is in what the neighbour was told."""
        if self.last["action"] not in GONE:
            return False
        before = self.before is not None and self.before._asks_for_less()
        return stands(self.last) or (before and self.last["reason"] == "taken back")

    @property
    def name(self) -> str:
        return f"{self.broker}>{self.link}"

    def origin_reason(self, row: Row) -> str | None:
        """Why the link before took back what this link calls unsubscribed, if that is recorded."""
        if self.before is None or row["reason"] != TAKEN_BACK:
            return None
        mine = [other for other in self.rows if other["reason"] == TAKEN_BACK]
        theirs = [other for other in self.before.rows if other["action"] == "cancel"]
        place = next(k for k, other in enumerate(mine) if other is row)
        if place >= len(theirs):
            return None
        return self.before.origin_reason(theirs[place]) or str(theirs[place]["reason"])


def chain(config: Config, rows: list[Row]) -> Iterator[Step]:
    """The links that decided about one subscription, from its own broker outward."""
    by_link: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_link[row["broker"], row["link"]].append(row)

    def outward(broker: str, before: Step | None) -> Iterator[Step]:
        for link in config.overlay.neighbours.get(broker, ()):
            if (before is None or link != before.broker) and (broker, link) in by_link:
                step = Step(0 if before is None else before.depth + 1, broker, link, by_link[broker, link], before)
                yield step
                yield from outward(link, step)

    yield from outward(rows[0]["home"], None)


def at_present(source: Source, name: Name, steps: list[Step]) -> dict[str, Coverers]:
    """Who covers the subscription now, on each link that withholds it."""
    found: dict[str, Coverers] = {}
    withheld = [step for step in steps if step.state == "withheld"]
    for broker in dict.fromkeys(step.broker for step in withheld):  # each broker's rows are read once
        by_link: dict[str, list[Row]] = defaultdict(list)
        for row in source.decisions(broker=broker):
            by_link[row["link"]].append(row)
        for step in (step for step in withheld if step.broker == broker):
            rows = by_link[step.link]
            place = max(k for k, row in enumerate(rows) if name_of(row) == name)
            found[step.name] = coverers_now(source.config.space, rows, place)
    return found


def chosen_link(steps: list[Step], wanted: str | None) -> str:
    """The link to draw."""
    links = [step.name for step in steps]
    if wanted is None:
        return links[0]
    if wanted not in links:
        raise LacunaError(f"--link {wanted}: nothing was decided there. Remedy: choose one of {', '.join(links)}")
    return wanted


# How it is told

COLUMNS = ("action", "reason", "strategy", "origin", "coverers", "witness", "shape", "nodes", "time", "batch")
Present = Mapping[str, Coverers]


def as_json(name: Name, steps: list[Step], present: Present, drawn: str | None) -> dict[str, Any]:
    """The explanation for a machine."""
    links = [
        {
            "broker": step.broker,
            "link": step.link,
            "depth": step.depth,
            "state": step.state,
            **_columns(step, step.last),
            "coverers_now": _ids(step, present),
            "history": [_columns(step, row) for row in step.rows],
        }
        for step in steps
    ]
    return {
        "subscription": name.id,
        "client": name.client,
        "broker": name.broker,
        "shape": _shape(steps),
        "links": links,
        "drawing": drawn,
    }


def _columns(step: Step, row: Row) -> Row:
    return {column: row[column] for column in COLUMNS} | {"origin_reason": step.origin_reason(row)}


def _ids(step: Step, present: Present) -> list[str] | None:
    """Who covers it now, by id; nobody where it is not withheld, None where that cannot be found."""
    found = present.get(step.name)
    if found is None or not found.anew:
        return list(step.last["coverers"]) if found else []
    return None if found.names is None else [name.id for name in found.names]


def _shape(steps: list[Step]) -> list[Row] | None:
    """The filter that the subscription had last, as its own broker recorded it."""
    own = [[row for row in step.rows if stands(row)] for step in steps if step.depth == 0]
    last = [rows[-1] for rows in own if rows]
    return max(last, key=lambda row: int(row["batch"]))["shape"] if last else None


def show(space: Space, name: Name, steps: list[Step], present: Present, drawn: str | None) -> None:
    """The explanation for a person."""
    shape = _shape(steps)
    asks = "a filter that was not recorded" if shape is None else " or ".join(words(space, where) for where in shape)
    top = Tree(Text.assemble((name.id, "bold"), f" of {name.client} at {name.broker} asks for {asks}"))
    at = {-1: top}
    for step in steps:
        said = because(space, step, step.last, present.get(step.name))
        at[step.depth] = at[step.depth - 1].add(Text.assemble((step.name, "bold"), f" {step.state}: {said}"))
        for row in step.rows[:-1]:
            said = because(space, step, row)
            at[step.depth].add(Text(f"batch {row['batch']}: {row['action']}: {said}", "dim"))
    screen = console()
    screen.print(top)
    if drawn:
        screen.print(f"drawn: {drawn}")


def because(space: Space, step: Step, row: Row, now: Coverers | None = None) -> str:
    """Why, in words: the reason, and its proof."""
    if row["coverers"]:
        return _covered(row, now)
    if row["witness"] is not None:
        found = FOUND.get(row["reason"].rpartition(": ")[2], "nobody covers")
        return f"{row['reason']}: {found} {words(space, row['witness'])}"
    why = step.origin_reason(row)
    return str(row["reason"]) if why in (None, TAKEN_BACK) else f"taken back by {row['origin']}: {why}"


def _covered(row: Row, now: Coverers | None) -> str:
    if now is None or not now.anew:
        return f"{row['reason']}: {_few(row['coverers'])}"
    present = "by whom now was not recorded" if now.names is None else f"now by {_few([n.id for n in now.names])}"
    return f"{row['reason']} when it was decided: {_few(row['coverers'])}; {present}"


def _few(ids: list[str]) -> str:
    more = len(ids) - LONGEST
    return ", ".join(ids[:LONGEST]) + (f" and {more} more" if more > 0 else "")


def words(space: Space, where: Row) -> str:
    """A filter as a person would say it: without what it does not constrain."""
    kinds = {attribute.name: attribute.kind for attribute in space.attributes}
    (lo, hi), *_ = space.corners(where)
    brief = space.where(lo, hi)
    return " and ".join(f"{name} {_range(kinds[name], ends)}" for name, ends in brief.items()) or "everything"


def _range(kind: str, ends: list[Any]) -> str:
    if kind == "category":
        return "in " + ", ".join(ends)
    return f"{ends[0]} to {ends[1]}" if ends[0] != ends[1] else f"= {ends[0]}"
