"""What clients are owed, by brute force, and what they got: from the topic, and from the tables, life by life."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import deltalake

from access.control import ControlLog
from producers.sender import Sender
from state.config import Config
from state.protocol.topics import Topics
from tests.core.oracle import Delivery, Oracle
from tests.system.live import read_topic

AT = {"price": 1.0, "volume": 1, "symbol": "IBM"}


class History:
    """The events that clients sent, and the deliveries that they are owed."""

    def __init__(self, config: Config) -> None:
        self._config, self._oracle = config, Oracle({"symbol"})
        self.owed: list[Delivery] = []

    def subscribe(self, broker: str, id: str) -> None:
        self._send({"kind": "subscribe", "broker": broker, "client": f"at {broker}", "id": id, "where": {}})

    def publish(self, broker: str, *ids: str, payload: str = "") -> None:
        for id in ids:
            self._send({"kind": "publish", "broker": broker, "id": id, "at": AT, "payload": payload})

    def move(self, moves: Mapping[str, str]) -> None:
        """Let the clients of brokers be those of others, and producers use the old names still."""
        standing = self._oracle.standing.items()
        self._oracle.standing = {(moves.get(b, b), client, id): where for (b, client, id), where in standing}

    def _send(self, event: dict[str, Any]) -> None:
        with Sender(self._config, check=False) as sender:
            sender.send(event["kind"], event["broker"], {k: v for k, v in event.items() if k not in ("kind", "broker")})
        self.note(event)

    def note(self, event: dict[str, Any]) -> None:
        """Take note of an event that was sent."""
        self.owed += self._oracle.take(event)


def delivered(config: Config) -> dict[int, list[Delivery]]:
    """Deliveries by epoch, without repeats, and without those of a router that was succeeded. In one partition."""
    marks: dict[tuple[int, str], int] = {}
    found: dict[int, list[Delivery]] = {}
    with ControlLog(config.kafka.bootstrap, config.kafka.prefix) as control:
        lives = control.read().lives
    for offset, record in enumerate(read_topic(config.kafka.bootstrap, Topics(config.kafka.prefix).deliveries)):
        d = json.loads(record.value)
        if lives.judge(d["epoch"], "deliveries", 0, offset) == "void":
            continue
        if d["seq"] > marks.get((d["epoch"], d["channel"]), 0):
            marks[d["epoch"], d["channel"]] = d["seq"]
            found.setdefault(d["epoch"], []).append((d["broker"], d["client"], d["subscription"], d["publication"]))
    return found


def archived(config: Config) -> dict[int, list[Delivery]]:
    """The rows of the table of deliveries by epoch, sorted."""
    table = deltalake.DeltaTable(f"{config.lake.path}/deliveries").to_pyarrow_table()
    found: dict[int, list[Delivery]] = {}
    for r in table.to_pylist():
        found.setdefault(r["epoch"], []).append((r["broker"], r["client"], r["subscription"], r["publication"]))
    return {epoch: sorted(rows) for epoch, rows in found.items()}
