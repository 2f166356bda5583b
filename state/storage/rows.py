"""Rows: what is recorded about every decision, route, delivery and reject, in the columns of the tables.

The simulator writes them as JSON lines, the live router sends them to the archive; both make them here, so that a row
means the same wherever it comes from. Rows are plain dictionaries of JSON values; each table's columns are listed with
their meaning in `TABLES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from state.protocol.messages import Name, RangeChange, Request, Subscribe
from state.routing.link import Link, Local, Setup
from state.routing.rangetold import RangeTold
from state.routing.told import Decision, Told
from state.space import Space, timestamp_text

Row = dict[str, Any]
Counts = dict[str, Any]
"""Counters of a batch by name; whole numbers, but for `promised`."""

TABLES: dict[str, dict[str, str]] = {
    "decisions": {
        "broker": "the broker that decided",
        "link": "the neighbour that is told or not",
        "subscription": "the id that the client chose",
        "client": "the client that subscribed",
        "home": "the broker that the client is attached to",
        "origin": "the neighbour from which the broker heard of it, or local",
        "action": "forward, withhold, promote, cancel or drop",
        "reason": "why, in words",
        "strategy": "the strategy of the link with its parameters",
        "coverers": "ids of the active subscriptions whose union covers it, when withheld",
        "witness": "a box inside it that the strategy found uncovered, as a filter, when forwarded or promoted",
        "boxes": "the number of boxes of the subscription",
        "shape": "the subscription as a list of filters, a box each; null when cancelled or dropped, or if very many",
        "bound": "with what probability at most it is wrong to withhold it: 0 where that is proved, null if forwarded",
        "nodes": "boxes (under mics: ranges) looked at to decide: the work, the same on every machine",
        "ranges": "under mics: how many ranges of the curve it is",
        "added": "under mics: ranges that the neighbour is told of and was not before; the others were covered",
        "removed": "under mics: ranges that the neighbour is told to forget",
        "bridged": "under mics: cells in them that nobody asked for, where gaps were bridged",
        "active": "subscriptions that the neighbour is told of, after this event",
        "passive": "subscriptions withheld from the neighbour, after this event",
        "time": "the moment of the event that caused it",
        "batch": "the router's batch; in a simulation the number of the input line",
        "seq": "its place in the order of the link's decisions, in this batch; in a simulation in all of it",
    },
    "routes": {
        "broker": "the broker that the publication reached",
        "link": "the neighbour it was considered for",
        "publication": "the id that the publisher chose",
        "origin": "the neighbour it came from, or local",
        "action": "forward or stop",
        "time": "the moment of the publication",
        "batch": "the router's batch; in a simulation the number of the input line",
    },
    "deliveries": {
        "broker": "the broker that the client is attached to",
        "client": "the client that receives it",
        "subscription": "the id of the subscription that it matches",
        "publication": "the id that the publisher chose",
        "time": "the moment of the publication",
        "batch": "the router's batch; in a simulation the number of the input line",
    },
    "metrics": {
        "broker": "the broker",
        "link": "the link of the group: a neighbour, or local",
        "batch": "the router's batch; in a simulation the number of the input line",
        "subscribes": "subscribe messages that the group took",
        "unsubscribes": "unsubscribe messages that the group took",
        "publications": "publications that the group considered",
        "forward": "subscriptions forwarded",
        "withhold": "subscriptions withheld",
        "promote": "subscriptions promoted",
        "cancel": "subscriptions cancelled",
        "drop": "withheld subscriptions dropped",
        "budget": "decisions for which the budget of nodes ran out",
        "audited": "probable answers that were decided again exactly",
        "wrong": "of these, how many were wrong (and put right)",
        "rebuilds": "rebuilds of the negative rectangles that were finished",
        "forwarded": "publications forwarded to the neighbour",
        "stopped": "publications not forwarded",
        "delivered": "deliveries to clients",
        "false_forwards": "publications forwarded only because filters are pruned",
        "false_positives": "publications that came from the neighbour and went nowhere: false positives of the link",
        "bridged": "cells told that nobody asked for, where gaps between ranges were bridged",
        "heard": "subscriptions (under mics: ranges) heard on this link",
        "active": "subscriptions that the neighbour is told of (under mics: the clients')",
        "passive": "subscriptions withheld from the neighbour",
        "negative_rectangles": "negative rectangles kept, where the strategy keeps any",
        "negative_share": "natural volume of the negative rectangles as a share of the domain, where it is kept",
        "ranges": "Hilbert ranges kept, where the strategy keeps any",
        "promised": "of the audited ones, how many may be wrong at most by their bounds: their sum",
        "prunings": "prunings done on what was heard; null where the link does not prune",
        "associations": "predicates of the filters heard, one for each that has it; null for local and under mics",
        "unpruned_associations": "the same before pruning",
        "filter_bytes": "size of the filters heard; null for local and under mics",
        "unpruned_filter_bytes": "the same before pruning",
        "withheld_associations": "predicates of the filters withheld from the neighbour: what covering saves there",
        "withheld_filter_bytes": "size of the filters withheld from the neighbour",
        "state_bytes": "size of the group's state as stored; null in a simulation, which stores nothing",
        "millis": "time that the group took in this batch; null in a simulation, which has no clock",
    },
    "rejects": {
        "topic": "the topic of the refused record",
        "partition": "its partition",
        "offset": "its offset; in a simulation the number of the input line less one",
        "value": "the record as it came, undecodable bytes replaced",
        "rule": "the rule it broke",
        "message": "what in it broke the rule",
        "batch": "the router's batch; in a simulation the number of the input line",
    },
}

_METRICS = list(TABLES["metrics"])
COUNTS = tuple(_METRICS[_METRICS.index("subscribes") : _METRICS.index("heard")])
"""The counters among the columns of `metrics`."""
MOST_CELLS = 2**63 - 1
"""More bridged cells than that are not counted."""
MOST_SHAPE = 64
"""A subscription of more boxes is not written out in every decision."""
MOST_VALUE = 4096
"""A reject keeps this many characters of the refused value."""


def decision_row(decision: Decision, link: Link, time: int, batch: int, seq: int) -> Row:
    """One row of `decisions`."""
    setup = link.setup
    return {
        "broker": setup.broker,
        "link": setup.link,
        "subscription": decision.name.id,
        "client": decision.name.client,
        "home": decision.name.broker,
        "origin": decision.origin,
        "action": decision.action,
        "reason": decision.reason,
        "strategy": str(setup.spec),
        "coverers": [name.id for name in decision.coverers],
        "witness": _witness(setup.space, decision),
        "boxes": len(decision.boxes),
        "shape": _shape(setup.space, decision),
        "bound": decision.bound,
        "nodes": decision.nodes,
        **_reach(decision),
        "active": len(link.told.active),
        "passive": len(link.told.passive),
        "time": timestamp_text(time),
        "batch": batch,
        "seq": seq,
    }


def _reach(decision: Decision) -> Row:
    reach = decision.ranges
    if reach is None:
        return dict.fromkeys(("ranges", "added", "removed", "bridged"))
    return {
        "ranges": reach.asked,
        "added": len(reach.added),
        "removed": len(reach.removed),
        "bridged": min(reach.bridged, MOST_CELLS),
    }


def _witness(space: Space, decision: Decision) -> Row | None:
    box = decision.witness
    return None if box is None else dict(space.describe(box.lo, box.hi))


def _shape(space: Space, decision: Decision) -> list[Row] | None:
    if decision.action in ("cancel", "drop") or len(decision.boxes) > MOST_SHAPE:
        return None
    return [dict(space.where(box.lo, box.hi)) for box in decision.boxes]


def route_row(setup: Setup, publication: str, origin: str, forward: bool, time: int, batch: int) -> Row:
    """One row of `routes`."""
    return {
        "broker": setup.broker,
        "link": setup.link,
        "publication": publication,
        "origin": origin,
        "action": "forward" if forward else "stop",
        "time": timestamp_text(time),
        "batch": batch,
    }


def delivery_row(name: Name, publication: str, time: int, batch: int) -> Row:
    """One row of `deliveries`."""
    return {
        "broker": name.broker,
        "client": name.client,
        "subscription": name.id,
        "publication": publication,
        "time": timestamp_text(time),
        "batch": batch,
    }


def reject_row(
    topic: str | None, partition: int, offset: int, value: bytes, rule: str, message: str, batch: int
) -> Row:
    """One row of `rejects`."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "value": value.decode(errors="replace")[:MOST_VALUE],
        "rule": rule,
        "message": message,
        "batch": batch,
    }


def metrics_row(state: Link | Local, counts: Counts, batch: int, state_bytes: int | None, millis: float | None) -> Row:
    """One row of `metrics`: the counters of a batch, and how large the group is after it."""
    told = state.told if isinstance(state, Link) else None
    return {
        "broker": state.setup.broker,
        "link": state.setup.link,
        "batch": batch,
        **{count: counts.get(count, 0) for count in COUNTS},
        "heard": len(state.heard),
        "active": len(told.active) if told else 0,
        "passive": len(told.passive) if told else 0,
        "negative_rectangles": told.negative_rectangles if told else None,
        "negative_share": told.negative_share if told else None,
        "ranges": len(state.heard) + told.ranges if isinstance(told, RangeTold) else None,
        "promised": counts.get("promised", 0.0),
        **_filters(state),
        "state_bytes": state_bytes,
        "millis": millis,
    }


def count_request(counts: Counts, message: Request) -> None:
    """Add a message to the counters of a metrics row; a change of ranges is a subscribe if it adds any."""
    asks = isinstance(message, Subscribe) or (isinstance(message, RangeChange) and bool(message.added))
    kind = "subscribes" if asks else "unsubscribes"
    counts[kind] = counts.get(kind, 0) + 1


def _filters(state: Link | Local) -> Row:
    """How much the filters of a link are, and how much pruning and covering save of them."""
    link = state if isinstance(state, Link) else None
    pruned = link.pruned if link and link.learned is not None else None
    heard = link.extent if link else None
    kept = heard if pruned is None else pruned.extent
    withheld = link.told.withheld if link and isinstance(link.told, Told) else None
    (before, bytes_before), (now, bytes_now), (spared, bytes_spared) = (
        (None, None) if extent is None else extent for extent in (heard, kept, withheld)
    )
    return {
        "prunings": None if pruned is None else pruned.prunings,
        "associations": now,
        "unpruned_associations": before,
        "filter_bytes": bytes_now,
        "unpruned_filter_bytes": bytes_before,
        "withheld_associations": spared,
        "withheld_filter_bytes": bytes_spared,
    }


def _is_audited(decision: Decision) -> bool:
    """Was a probable answer decided again exactly? What was then told after all keeps the bound of that answer.

    A reason is looked at only where it is the strategy's own: that of a promotion names a subscription, whose id may be
    any word.
    """
    if decision.action == "withhold":
        return decision.reason.endswith("audited")
    return decision.bound is not None


def count_decisions(counts: Counts, decisions: Iterable[Decision]) -> None:
    """Add decisions to the counters of a metrics row."""
    for decision in decisions:
        counts[decision.action] = counts.get(decision.action, 0) + 1
        if decision.reason.endswith("budget"):
            counts["budget"] = counts.get("budget", 0) + 1
        if _is_audited(decision):
            counts["audited"] = counts.get("audited", 0) + 1
            counts["wrong"] = counts.get("wrong", 0) + (decision.action != "withhold")
            counts["promised"] = counts.get("promised", 0.0) + (decision.bound or 0.0)
        if decision.ranges is not None:
            counts["bridged"] = min(counts.get("bridged", 0) + decision.ranges.bridged, MOST_CELLS)
