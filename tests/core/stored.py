"""Regions, arrivals and a comparison field by field, for the tests of stored state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from state.config import Config
from state.protocol.arrivals import RANKS, Arrival, Channel
from state.protocol.events import Context, Reject, Source, read
from state.protocol.messages import LOCAL
from state.routing.broker import Broker
from state.routing.link import Link, Setup
from state.routing.region import Region
from state.space import timestamp_text
from state.strategies.base import Dump

FILE = Channel(0, 0, "file")


def setups_of(config: Config, brokers: Iterable[str] | None = None) -> dict[str, dict[str, Setup]]:
    """The setups of a region: of all brokers, or of these."""
    neighbours = config.overlay.neighbours
    return {
        broker: {link: config.setup(broker, link) for link in (LOCAL, *neighbours[broker])}
        for broker in (config.overlay.brokers if brokers is None else brokers)
    }


def arrival_of(config: Config, event: Mapping[str, Any], offset: int, time: int = 0) -> Arrival:
    """The arrival of an event from a client, stamped with the rank of its topic."""
    context = Context(config.space, config.overlay.brokers)
    kind, broker = event["kind"], event["broker"]
    value = json.dumps({key: item for key, item in event.items() if key not in ("kind", "broker")}).encode()
    message = read(context, kind, broker, value, Source(RANKS[kind], offset, f"0:{offset}", time))
    assert not isinstance(message, Reject), message
    return Arrival(FILE, offset, time, broker, LOCAL, message)


def filled(config: Config, events: Iterable[Mapping[str, Any]]) -> Region:
    """One region that is the whole overlay, after these events, a microsecond apart.

    Every number of an event is another one, so that none can stand for another unnoticed: when the client says that it
    was, when it arrived, its offset.
    """
    region = Region("all", setups_of(config), logs=False, measure="never")
    timed = ({"time": timestamp_text(10**6 + 2 * k)} | dict(event) for k, event in enumerate(events))
    region.take(arrival_of(config, event, 3 * k + 5, k) for k, event in enumerate(timed))
    return region


def fields(broker: Broker) -> dict[str, object]:
    """Everything that a broker is, in an order that matters where order matters."""
    clients = broker.clients
    return {
        "name": broker.name,
        "subscriptions": [
            (row.number, row.name, row.origin, row.boxes, row.tree, row.exact, row.where)
            for row in broker.subscriptions
        ],
        "clients": list(clients),
        "boxes of clients": {name: clients.boxes(name) for name in clients},
        "trees of clients": clients.exact,
        "remember": broker.ledger.remember,
        "standing": broker.ledger.standing,
        "ended": list(broker.ledger.ended.items()),
        "next expiry": broker.ledger.next_expiry,
        "links": {name: link_fields(link) for name, link in broker.links.items()},
    }


def link_fields(link: Link) -> dict[str, object]:
    """Everything that a link is."""
    told, heard = link.told, link.heard
    dump = told.dump()
    return {
        "setup": link.setup,
        "kinds": (type(told), type(heard)),
        "active": [(name, told.active.boxes(name)) for name in told.active],
        "passive": [(name, p.boxes, p.origin, p.coverers) for name, p in told.passive.items()],
        "origins": getattr(told, "origins", None),
        "trees told": getattr(told, "trees", None),
        "asks": told.asks(),
        "kept by the strategy": numbers(dump.strategy),
        "size": (len(told), len(heard)),
        "asked": heard.asked(),
        "heard in order": list(getattr(heard, "rows", ())),
        "ranges": numbers(heard.dump()),
        "working": told.working,
        "leaving": [(name, shape, list(shape.waiting)) for name, shape in dump.leaving.items()],
        "sweeping": list(dump.sweeping.items()),
        "metrics": link.sizes(),
    }


def numbers(dump: Dump) -> tuple[list[int], list[int]]:
    """The arrays of a strategy."""
    return np.asarray(dump.numbers).tolist(), np.asarray(dump.small).tolist()
