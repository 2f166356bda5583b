"""Rows of the tables: the record of every decision, route, delivery and reject.

The simulator writes them as JSON lines, the router sends them to the archive. Both make them here, from the outcome of
a region, so that a row means the same wherever it comes from. Each table's columns are in `TABLES`, with types and
meanings. Values are plain: times are microseconds, names are objects, filters are objects.

Rows are in the order of arrivals, whatever way publications were grouped into runs: by the item that caused them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from state.protocol.events import Refused
from state.protocol.messages import Name
from state.protocol.wire import RANGE_BYTES
from state.routing.counters import MOST_CELLS
from state.routing.decision import Decision
from state.routing.outcome import Decided, Ints, Measured, Outcome
from state.space import Space

Row = dict[str, Any]
Columns = dict[str, list[Any]]
Kind = Literal["text", "int", "float", "time", "json", "texts", "name", "names"]
"""The content of a column: `json` is one or more filters, a name is an object of `home`, `client`, `subscription`."""


class Column(NamedTuple):
    """A column of a table: its name, what it holds, its meaning, and whether it counts."""

    name: str
    kind: Kind
    about: str
    counter: bool = False


EPOCH = Column("epoch", "int", "the life of the system; in a simulation 1. Batches are counted from 0 in each life")
TABLES: dict[str, tuple[Column, ...]] = {
    "decisions": (
        EPOCH,
        Column("broker", "text", "the broker that decided"),
        Column("link", "text", "the neighbour that is told or not"),
        Column("subscription", "text", "the id that the client chose"),
        Column("client", "text", "the client that subscribed"),
        Column("home", "text", "the broker that the client is attached to"),
        Column("origin", "text", "the neighbour from which the broker heard of it, or local"),
        Column("action", "text", "forward, withhold, promote, cancel or drop"),
        Column("reason", "text", "why, in words"),
        Column("cause", "name", "the subscription whose event or expiry caused it"),
        Column("strategy", "text", "the strategy of the link with its parameters"),
        Column("coverers", "texts", "ids of the active subscriptions whose union covers it, when withheld"),
        Column("covered_by", "names", "the same with the broker and the client of each"),
        Column(
            "witness",
            "json",
            "a box inside it that the strategy found uncovered, as a filter, when forwarded or promoted",
        ),
        Column("boxes", "int", "the number of boxes of the subscription"),
        Column(
            "shape",
            "json",
            "the subscription as a list of filters, a box each; null when cancelled or dropped, or if very many",
        ),
        Column(
            "bound",
            "float",
            "with what probability at most it is wrong to withhold it: 0 where that is proved, null if forwarded",
        ),
        Column("nodes", "int", "boxes (under mics: ranges) looked at to decide: the work, the same on every machine"),
        Column("ranges", "int", "under mics: how many ranges of the curve it is"),
        Column(
            "added",
            "int",
            "under mics: ranges that the neighbour is told of and was not before; the others were covered",
        ),
        Column("removed", "int", "under mics: ranges that the neighbour is told to forget"),
        Column("bridged", "int", "under mics: cells in them that nobody asked for, where gaps were bridged"),
        Column("active", "int", "subscriptions that the neighbour is told of, after this event"),
        Column("passive", "int", "subscriptions withheld from the neighbour, after this event"),
        Column("time", "time", "the moment of the client's event, or of the expiry, that caused it"),
        Column("batch", "int", "the router's batch; in a simulation the number of the input line"),
        Column(
            "seq",
            "int",
            "its place in the order of all rows of the region in this batch; in a simulation, in all of it",
        ),
    ),
    "routes": (
        EPOCH,
        Column("broker", "text", "the broker that the publication reached"),
        Column("link", "text", "the neighbour it was considered for"),
        Column("publication", "text", "the id that the publisher chose"),
        Column("origin", "text", "the neighbour it came from, or local"),
        Column("action", "text", "forward or stop"),
        Column("time", "time", "the moment of the publication"),
        Column("batch", "int", "the router's batch; in a simulation the number of the input line"),
    ),
    "deliveries": (
        EPOCH,
        Column("broker", "text", "the broker that the client is attached to"),
        Column("client", "text", "the client that receives it"),
        Column("subscription", "text", "the id of the subscription that it matches"),
        Column("publication", "text", "the id that the publisher chose"),
        Column("time", "time", "the moment of the publication"),
        Column("batch", "int", "the router's batch; in a simulation the number of the input line"),
    ),
    "metrics": (
        EPOCH,
        Column("broker", "text", "the broker; for a region as a whole, its name"),
        Column("link", "text", "a neighbour; local for the broker's clients; * for the region as a whole"),
        Column("batch", "int", "the router's batch; in a simulation the number of the input line"),
        Column("subscribes", "int", "subscribe messages that the broker took", counter=True),
        Column("unsubscribes", "int", "unsubscribe messages that the broker took", counter=True),
        Column("publications", "int", "publications that were considered for the link", counter=True),
        Column("forward", "int", "subscriptions forwarded", counter=True),
        Column("withhold", "int", "subscriptions withheld", counter=True),
        Column("promote", "int", "subscriptions promoted", counter=True),
        Column("cancel", "int", "subscriptions cancelled", counter=True),
        Column("drop", "int", "withheld subscriptions dropped", counter=True),
        Column(
            "budget",
            "int",
            "decisions cut short by the budget of candidates looked at",
            counter=True,
        ),
        Column("audited", "int", "probable answers that were decided again exactly", counter=True),
        Column("wrong", "int", "of these, how many were wrong (and put right)", counter=True),
        Column("rebuilds", "int", "rebuilds of the negative rectangles that were finished", counter=True),
        Column("forwarded", "int", "publications forwarded to the neighbour", counter=True),
        Column("stopped", "int", "publications not forwarded", counter=True),
        Column("delivered", "int", "deliveries to clients", counter=True),
        Column("false_forwards", "int", "publications forwarded only because filters are pruned", counter=True),
        Column(
            "false_positives",
            "int",
            "publications that came from the neighbour and went nowhere: false positives of the link",
            counter=True,
        ),
        Column(
            "bridged", "int", "cells told that nobody asked for, where gaps between ranges were bridged", counter=True
        ),
        Column("heard", "int", "subscriptions (under mics: ranges) heard on this link"),
        Column("active", "int", "subscriptions that the neighbour is told of (under mics: the clients')"),
        Column("passive", "int", "subscriptions withheld from the neighbour"),
        Column("negative_rectangles", "int", "negative rectangles kept, where the strategy keeps any"),
        Column(
            "negative_share",
            "float",
            "natural volume of the negative rectangles as a share of the domain, where it is kept",
        ),
        Column("ranges", "int", "Hilbert ranges kept, where the strategy keeps any"),
        Column(
            "promised",
            "float",
            "of the audited ones, how many may be wrong at most by their bounds: their sum",
            counter=True,
        ),
        Column("prunings", "int", "prunings done on what was heard; null where the link does not prune"),
        Column(
            "associations",
            "int",
            "predicates of the filters heard, one for each that has it; null for local and under mics",
        ),
        Column("unpruned_associations", "int", "the same before pruning"),
        Column(
            "filter_bytes",
            "int",
            "bytes of the filters heard, as written: 24 a predicate, 8 an AND or OR; null for local and under mics",
        ),
        Column("unpruned_filter_bytes", "int", "the same before pruning"),
        Column(
            "withheld_associations",
            "int",
            "predicates of the filters withheld from the neighbour: what covering saves there",
        ),
        Column("withheld_filter_bytes", "int", "bytes of the filters withheld from the neighbour"),
        Column(
            "state_bytes",
            "int",
            "size of the link's stored state; for the region, of head and log; null in a simulation",
        ),
        Column(
            "millis",
            "float",
            "time that the region took in its batch before this one; null for a link",
        ),
    ),
    "rejects": (
        EPOCH,
        Column("topic", "text", "the topic of the refused record"),
        Column("partition", "int", "its partition"),
        Column("offset", "int", "its offset; in a simulation the number of the input line less one"),
        Column("value", "text", "the record as it came, undecodable bytes replaced"),
        Column("rule", "text", "the rule it broke"),
        Column("message", "text", "what in it broke the rule"),
        Column("batch", "int", "the router's batch; in a simulation the number of the input line"),
    ),
}
COUNTS = tuple(column.name for column in TABLES["metrics"] if column.counter)
"""The counters among the columns of `metrics`."""
MOST_SHAPE = 64
"""A subscription of more boxes is not written out in every decision."""
MOST_VALUE = 4096
"""A reject keeps this many characters of the refused value."""
REGION = "*"
"""The link of a row of `metrics` that is about a region as a whole."""


def tables(outcome: Outcome, batches: int | Ints | None, seq: int = 0, epoch: int = 1) -> dict[str, Columns]:
    """Return the rows of an outcome as columns, by table.

    `batches` is the number of the batch, or that of each item; None: items are such numbers. `seq` is that of the first
    row, `epoch` the life that all belong to.
    """
    items = {
        "decisions": np.array([decided.item for decided in outcome.decisions], np.int64),
        "routes": _concatenated([part.run.items[part.reached.index] for part in outcome.routes]),
        "deliveries": _concatenated([part.run.items[part.index] for part in outcome.deliveries]),
        "rejects": np.array([item for item, _ in outcome.rejects], np.int64),
    }
    order = {table: np.argsort(those, kind="stable") for table, those in items.items()}
    places = np.empty(sum(map(len, items.values())), np.int64)
    places[np.argsort(np.concatenate(list(items.values())), kind="stable")] = np.arange(seq, seq + len(places))
    made = {
        "decisions": _from_rows("decisions", map(decision_row, outcome.decisions)),
        "routes": _routes(outcome),
        "deliveries": _deliveries(outcome),
        "rejects": _from_rows("rejects", (reject_row(refused) for _, refused in outcome.rejects)),
    }
    made["decisions"]["seq"] = places[: len(items["decisions"])].tolist()
    for table, columns in made.items():
        columns["batch"], columns["epoch"] = _batch_of(items[table], batches), [epoch] * len(items[table])
        made[table] = _reordered(columns, order[table])
    made["metrics"] = _from_rows("metrics", map(metrics_row, outcome.metrics))
    made["metrics"]["batch"] = _batch_of(np.array([m.item for m in outcome.metrics], np.int64), batches)
    made["metrics"]["epoch"] = [epoch] * len(outcome.metrics)
    return made


def row_count(outcome: Outcome) -> int:
    """Return how many rows `tables` numbers."""
    routed = sum(len(part.forward) for part in outcome.routes)
    return len(outcome.decisions) + routed + sum(len(p.names) for p in outcome.deliveries) + len(outcome.rejects)


def _concatenated(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _batch_of(items: Ints, batches: int | Ints | None) -> list[int]:
    if isinstance(batches, int):
        return [batches] * len(items)
    return list((items if batches is None else batches[items]).tolist())


def _reordered(columns: Columns, order: Ints) -> Columns:
    if (np.diff(order) > 0).all():
        return columns
    places = order.tolist()
    return {name: [values[k] for k in places] for name, values in columns.items()}


def _from_rows(table: str, rows: Iterable[Row]) -> Columns:
    """Return rows as columns; what a row does not have is null."""
    kept = list(rows)
    return {column.name: [row.get(column.name) for row in kept] for column in TABLES[table]}


def _routes(outcome: Outcome) -> Columns:
    columns: Columns = {column.name: [] for column in TABLES["routes"]}
    for part in outcome.routes:
        publications = [part.run.publications[k] for k in part.reached.index.tolist()]
        columns["broker"] += [part.setup.broker] * len(publications)
        columns["link"] += [part.setup.link] * len(publications)
        columns["publication"] += [publication.id for publication in publications]
        columns["origin"] += part.reached.origins
        columns["action"] += ["forward" if goes else "stop" for goes in part.forward.tolist()]
        columns["time"] += [publication.time for publication in publications]
    return columns


def _deliveries(outcome: Outcome) -> Columns:
    columns: Columns = {column.name: [] for column in TABLES["deliveries"]}
    for part in outcome.deliveries:
        publications = [part.run.publications[k] for k in part.index.tolist()]
        columns["broker"] += [name.broker for name in part.names]
        columns["client"] += [name.client for name in part.names]
        columns["subscription"] += [name.id for name in part.names]
        columns["publication"] += [publication.id for publication in publications]
        columns["time"] += [publication.time for publication in publications]
    return columns


def decision_row(decided: Decided) -> Row:
    """Return a row of `decisions`, without its place."""
    decision, setup = decided.decision, decided.setup
    cause = decision.cause
    return {
        "broker": setup.broker,
        "link": setup.link,
        "subscription": decision.name.id,
        "client": decision.name.client,
        "home": decision.name.broker,
        "origin": decision.origin,
        "action": decision.action,
        "reason": decision.text,
        "cause": None if cause is None else name_value(cause.name),
        "strategy": str(setup.spec),
        "coverers": [name.id for name in decision.coverers],
        "covered_by": [name_value(name) for name in decision.coverers],
        "witness": _witness(setup.space, decision),
        "boxes": len(decision.boxes),
        "shape": _shape(setup.space, decision),
        "bound": decision.bound,
        "nodes": decision.nodes,
        **_reach(decision),
        "active": decided.active,
        "passive": decided.passive,
        "time": 0 if cause is None else cause.time,
    }


def name_value(name: Name) -> Row:
    """Return a name as tables have it."""
    return {"home": name.broker, "client": name.client, "subscription": name.id}


def _reach(decision: Decision) -> Row:
    reach = decision.ranges
    if reach is None:
        return {}
    return {
        "ranges": reach.asked,
        "added": len(reach.added) // RANGE_BYTES,
        "removed": len(reach.removed) // RANGE_BYTES,
        "bridged": min(reach.bridged, MOST_CELLS),
    }


def _witness(space: Space, decision: Decision) -> Row | None:
    box = decision.witness
    return None if box is None else dict(space.describe(box.lo, box.hi))


def _shape(space: Space, decision: Decision) -> list[Row] | None:
    if decision.action in ("cancel", "drop") or len(decision.boxes) > MOST_SHAPE:
        return None
    return [dict(space.where(box.lo, box.hi)) for box in decision.boxes]


def reject_row(refused: Refused) -> Row:
    """Return a row of `rejects`, without its place."""
    return {
        "topic": refused.topic,
        "partition": refused.partition,
        "offset": refused.offset,
        "value": refused.value.decode(errors="replace")[:MOST_VALUE],
        "rule": refused.rule,
        "message": refused.message,
    }


def metrics_row(measured: Measured) -> Row:
    """Return a row of `metrics`, without its place: the counters of a link, and how large it is after them."""
    counts: Row = {count: measured.counts[count] for count in COUNTS}
    counts["promised"] = float(counts["promised"])
    return {"broker": measured.broker, "link": measured.link, **counts, **measured.sizes}
