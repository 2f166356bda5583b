"""Explanation of a subscription: why it was or was not forwarded, link by link, from its own broker outward.

Everything is read from the decisions in the tables (`decision_log`). On each link the last decision counts:

    told        the neighbour was told; the witness is a box that nobody told before covers
    withheld    the neighbour was not told; the coverers together cover it
    cancelled   the neighbour was told to forget it          dropped   it was withheld, and is gone

Brokers beyond a link that withholds a subscription do not know it, and need not.

The coverers are given as of the decision and, where not all of them are still active, as of now (`certificates`).

A subscription that ends is called unsubscribed, or expired, on every link. One that a neighbour took back although it
stands, because another covers it now, is called taken back; the row names the subscription that was the cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lacuna.analysis.certificates import Coverers, coverers_now
from lacuna.analysis.decision_log import GONE, Source, name_of, stands
from lacuna.analysis.lake import Tables, order_of
from state.config import Config
from state.errors import LacunaError
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.storage.rows import Row

STATES = {
    "forward": "told",
    "promote": "told",
    "withhold": "withheld",
    "cancel": "cancelled",
    "drop": "dropped",
}


# Reading


@dataclass(frozen=True)
class Found:
    """A subscription: its changes at its own broker, and the links that decided about it, from there outward."""

    name: Name
    changes: list[Row]
    steps: list[Step]


def find_subscription(source: Source, id: str, client: str | None, broker: str | None) -> Found:
    """Return the one subscription with this id, client and broker. Raises `LacunaError` if it is not one."""
    rows, changes = source.decisions(subscription=id), source.changes(subscription=id)
    name = _one_of(dict.fromkeys([*map(name_of, rows), *map(_changed, changes)]), source, id, client, broker)
    return Found(
        name,
        [row for row in changes if _changed(row) == name],
        list(outward_links(source.config, [row for row in rows if name_of(row) == name])),
    )


def find_name(tables: Tables, given: str, client: str | None) -> Name:
    """Return the one subscription with this id, or BROKER/CLIENT/ID. Raises `LacunaError` if it is not one."""
    parts = given.split("/", 2)
    whole = Name(*parts) if len(parts) == 3 and parts[0] in tables.config.overlay.neighbours else None
    rows = tables.rows("subscriptions", ("broker", "client", "subscription"), subscription=whole.id if whole else given)
    names = [name for name in dict.fromkeys(map(_changed, rows)) if client in (None, name.client)]
    fitting = [name for name in names if whole in (None, name)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        remedy = "look for it in rejects; or wait until the archive has caught up"
        raise LacunaError(f"{given}: no such subscription is recorded in {tables.where}. Remedy: {remedy}")
    which = ", ".join(f"{name.broker}/{name.client}/{name.id}" for name in fitting)
    raise LacunaError(f"{given}: {len(fitting)} subscriptions have this id. Remedy: say which: --subscription {which}")


def _changed(row: Row) -> Name:
    return Name(row["broker"], row["client"], row["subscription"])


def _one_of(names: Iterable[Name], source: Source, id: str, client: str | None, broker: str | None) -> Name:
    """Return the one name that fits."""
    fitting = [n for n in names if client in (None, n.client) and broker in (None, n.broker)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        which = ", ".join(f"--client {name.client} --broker {name.broker}" for name in fitting)
        raise LacunaError(f"{id}: {len(fitting)} subscriptions have this id. Remedy: say which: {which}")
    others = ", ".join(f"{name.client} at {name.broker}" for name in names)
    known = f" (it is recorded for {others})" if others else ""
    raise LacunaError(
        f"{id}: no such subscription is recorded in {source.where}{known}. Remedy: look for the id in rejects; or wait "
        "until the archive has caught up"
    )


@dataclass(frozen=True)
class Step:
    """One link: all decisions there about the subscription, of which the last counts, and the link before."""

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
        """Return True if a cancel left a smaller filter, which the neighbour knows already (only under `mics`)."""
        if self.last["action"] not in GONE:
            return False
        before = self.before is not None and self.before._asks_for_less()
        return stands(self.last) or (before and self.last["reason"] == Reason.TAKEN_BACK)

    @property
    def name(self) -> str:
        return f"{self.broker}>{self.link}"


def outward_links(config: Config, rows: list[Row]) -> Iterator[Step]:
    """Yield the links that decided about one subscription, from its own broker outward."""
    if not rows:
        return
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
    """Return the coverers of the subscription now, on each link that withholds it."""
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
    """Return the link to draw: the one named, or the first. Raises `LacunaError` if nothing was decided there."""
    links = [step.name for step in steps]
    if not links:
        raise LacunaError("--draw: no link decided about it: its broker has no neighbours. Remedy: leave --draw out")
    if wanted is None:
        return links[0]
    if wanted not in links:
        raise LacunaError(f"--link {wanted}: nothing was decided there. Remedy: choose one of {', '.join(links)}")
    return wanted


# Describing

COLUMNS = (
    *("action", "reason", "cause", "change", "trigger", "strategy", "origin", "coverers", "covered_by"),
    *("witness", "shape", "nodes", "time", "batch"),
)
OF_CHANGES = ("change", "filter", "expires", "time", "batch")
Present = Mapping[str, Coverers]


def as_json(found: Found, present: Present, drawn: str | None) -> dict[str, Any]:
    """Return the explanation as one JSON object."""
    name, steps = found.name, found.steps
    links = [
        {
            "broker": step.broker,
            "link": step.link,
            "depth": step.depth,
            "state": step.state,
            **_columns(step.last),
            "coverers_now": _ids(step, present),
            "history": [_columns(row) for row in step.rows],
        }
        for step in steps
    ]
    return {
        "subscription": name.id,
        "client": name.client,
        "broker": name.broker,
        "shape": last_shape(steps),
        "changes": [{column: row[column] for column in OF_CHANGES} for row in found.changes],
        "links": links,
        "drawing": drawn,
    }


def _columns(row: Row) -> Row:
    return {column: row.get(column) for column in COLUMNS}


def _ids(step: Step, present: Present) -> list[str] | None:
    """Return the ids of those that cover it now; none where it is not withheld, None where they cannot be found."""
    found = present.get(step.name)
    if found is None or not found.recomputed:
        return list(step.last["coverers"]) if found else []
    return None if found.names is None else [name.id for name in found.names]


def last_shape(steps: list[Step]) -> list[Row] | None:
    """Return the latest filter of the subscription, as its own broker recorded it."""
    own = [[row for row in step.rows if stands(row)] for step in steps if step.depth == 0]
    last = [rows[-1] for rows in own if rows]
    return max(last, key=order_of)["shape"] if last else None
