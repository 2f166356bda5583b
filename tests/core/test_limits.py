"""A client that subscribes without end, against `[limits]`: what the others get, and what the state holds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from state.config import parse
from tests.core.histories import config_text
from tests.core.shell import Shell, forget

ALLOWED, FLOOD = 20, 3000
CONFIG = parse(
    config_text([("b0", "b1"), ("b1", "b2")], '"auto"')
    + f"[limits]\nsubscriptions_per_client = {ALLOWED}\nboxes_per_subscription = 2\n"
)


@pytest.fixture(autouse=True)
def new_process() -> None:
    forget()


def subscribe(client: str, number: int) -> dict[str, Any]:
    where = {"x": [number % 5, number % 5 + 1]}
    return {"kind": "subscribe", "broker": "b0", "client": client, "id": f"s{number}", "where": where}


def flooded(count: int) -> Shell:
    """A router whose client mallory sends so many subscriptions, and ann one in the middle of them; all in a batch."""
    shell = Shell(CONFIG, regions=1)
    for number in range(count):
        if number == count // 2:
            shell.send(subscribe("ann", 4))
        shell.send(subscribe("mallory", number))
    shell.send({"kind": "publish", "broker": "b2", "id": "p", "at": {"x": 4, "y": 1, "colour": "red"}})
    shell.run_batch()
    return shell


def test_a_flood_of_one_client_leaves_the_others_theirs_and_the_state_small() -> None:
    moderate, shell = flooded(ALLOWED), flooded(FLOOD)
    for each in (moderate, shell):
        each.check()
        assert ("b0", "ann", "s4", "p") in each.deliveries(), "in the batch of the flood"
    rules = Counter(row["rule"] for row in shell.tables()["rejects"])
    assert rules == {"quota": FLOOD - ALLOWED}
    standing = Counter(row["client"] for row in shell.tables()["subscriptions"] if row["change"] == "subscribe")
    assert standing == {"mallory": ALLOWED, "ann": 1}
    assert shell.stored.keys() == moderate.stored.keys()
    for name, row in moderate.stored.items():
        assert len(shell.stored[name]) < 1.1 * len(row), "what was refused is not kept"
