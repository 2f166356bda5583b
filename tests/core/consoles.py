"""Consoles over small lakes that are written without Spark: one like the tour's, and one whose names are markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from lacuna.serve import pages
from lacuna.serve.auth import Auth
from lacuna.serve.context import Context
from lacuna.serve.guard import Guard
from state.config import Config, parse
from tests.core.lakes import write_lake
from tests.core.shell import Shell

TEXT = """
[space]
price  = { kind = "float", low = 0.0, high = 1000.0 }
volume = { kind = "int",   low = 0,   high = 100000 }
symbol = { kind = "category", values = ["AAPL", "IBM", "MSFT"] }

[overlay]
links = [["oslo", "paris"], ["paris", "rome"], ["paris", "wien"]]

[kafka]
prefix = "tour"
"""
EVIL = "<script>alert(1)</script>\"'&{{7*7}}/../x"
HEALTHY = {
    "state": "healthy",
    "reasons": [],
    "version": "0.1.0",
    "prefix": "tour",
    "epoch": 7,
    "uptime_seconds": 75.0,
    "kafka": {"bootstrap": "localhost:9092", "up": True},
    "queries": {
        name: {
            "active": True,
            "batch": 4,
            "lag_records": 0,
            "lag_seconds": 0.0,
            "commit_age_seconds": 0.4,
            "batch_seconds": 0.25,
            "restarts": 0,
        }
        for name in ("router", "archive")
    },
    "per_second": {"in": 12.0, "delivered": 34.0, "rejected": 0.0},
    "standing": 3,
    "hottest": ["paris>oslo"],
}


def subscribe(broker: str, client: str, id: str, where: Any) -> dict[str, Any]:
    return {"kind": "subscribe", "broker": broker, "client": client, "id": id, "where": where}


def publish(broker: str, id: str, price: float, volume: int = 150, symbol: str = "IBM") -> dict[str, Any]:
    at = {"price": price, "volume": volume, "symbol": symbol}
    return {"kind": "publish", "broker": broker, "id": id, "at": at, "payload": EVIL}


TOUR = (
    subscribe("oslo", "ann", "s1", {"price": [10, 20]}),
    subscribe("oslo", "bob", "s2", {"price": [20, 30]}),
    subscribe("oslo", "cat", "s3", {"price": [15, 25], "symbol": ["IBM"]}),
    subscribe("oslo", "dan", "s4", "price BETWEEN 12 AND 18 OR volume > 90000"),
    publish("rome", "p1", 21.5),
    {"kind": "unsubscribe", "broker": "oslo", "id": "s2", "client": "bob"},
    publish("wien", "p2", 21.5),
    publish("rome", "p3", 500),
    publish("rome", "p4", 2000),
    subscribe("oslo", "eve", "s5", {"price": [20, 10]}),
)
HOSTILE = (
    subscribe("oslo", EVIL, EVIL, {"price": [10, 20]}),
    subscribe("oslo", "..", "..", {"price": [12, 18]}),
    subscribe("rome", EVIL, "text", f"price > 1 AND symbol <> 'IBM' OR symbol = '{'IBM'}'"),
    publish("rome", EVIL, 15),
    publish("rome", EVIL, 5000),
    subscribe("oslo", EVIL, EVIL + "2", EVIL),
)


def write(events: Iterable[dict[str, Any]], folder: Path, text: str = TEXT, regions: int | None = None) -> Config:
    """Take events through a router, and archive what it records. Return the configuration of the lake."""
    shell = Shell(parse(text), regions=regions)
    for event in events:
        shell.send(event)
        shell.finish()
    return write_lake(shell, folder)


def app(config: Config, status: dict[str, Any] | None = None) -> Starlette:
    """Return the pages behind the gateway's guard, with a job that says this of itself."""
    context = Context(config, Auth(config.serve), lambda: HEALTHY if status is None else status)
    guard = Middleware(Guard, serve=config.serve, requests=Counter())
    return Starlette(routes=pages.routes(context), middleware=[guard])


def console(config: Config, status: dict[str, Any] | None = None) -> TestClient:
    """Return a client of the pages."""
    return TestClient(app(config, status), base_url="http://localhost")
