"""In force, by the system's own word: echoes between regions, through crashes, compared with what is delivered."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import Config, parse
from state.protocol.frame import Frame, Letter, letter_of, read
from state.protocol.messages import Answer, Echo
from state.protocol.notices import Notice
from state.routing.echoes import Echoes
from tests.core.shell import Shell, forget, some_cut
from tests.core.test_events import BAD

CHAIN = ["oslo", "paris", "rome", "wien"]
TEXT = """
[space]
n = { kind = "int", low = 0, high = 99 }
[overlay]
links = [["oslo", "paris"], ["paris", "rome"], ["rome", "wien"]]
"""
STAR = TEXT.replace('["rome", "wien"]', '["paris", "wien"], ["wien", "graz"]')


def config_of(text: str = TEXT) -> Config:
    return parse(text)


def subscribe(id: str, low: int, high: int, **more: Any) -> dict[str, Any]:
    where = {"n": [low, high]}
    return {"kind": "subscribe", "broker": "oslo", "client": "ann", "id": id, "where": where} | more


def publish(broker: str, id: str, n: int, **more: Any) -> dict[str, Any]:
    return {"kind": "publish", "broker": broker, "id": id, "at": {"n": n}} | more


def notices(shell: Shell) -> list[dict[str, Any]]:
    """The notices so far, each once."""
    values = [record.value for record in shell.topic("notices")]
    return [msgspec.json.decode(value) for value in dict.fromkeys(values)]


def told(shell: Shell, ack: str) -> dict[str, Any] | None:
    return next((notice for notice in notices(shell) if notice.get("ack") == ack), None)


def test_an_echo_leaves_a_region_behind_what_it_follows() -> None:
    """In a region of two brokers, the subscription has a link to cross before it reaches the other border."""
    shell = Shell(config_of(), regions=(("oslo",), ("paris", "rome"), ("wien",)))
    shell.send(subscribe("s", 0, 9, ack="a"))
    shell.run_batch()
    shell.run_batch()
    [frame] = [read(record.value) for record in shell.topic("links") if record.key == b"rome>wien"]
    assert isinstance(frame, Frame)
    letter = letter_of(frame)
    assert isinstance(letter, Letter)
    assert [isinstance(message, Echo) for message in letter.messages] == [False, True]


def run_until_told(shell: Shell, ack: str) -> dict[str, Any]:
    """Run batches, each by a new process, until the answer is there."""
    for _ in range(50):
        if (notice := told(shell, ack)) is not None:
            return notice
        shell.run_batch()
        forget()
    raise AssertionError("no answer")


def test_with_one_region_a_subscription_is_in_force_in_its_batch() -> None:
    shell = Shell(config_of(), regions=1)
    shell.send(subscribe("s1", 10, 20, ack="a1"))
    shell.run_batch()
    (notice,) = notices(shell)
    assert notice["state"] == "in-force"
    assert (notice["client"], notice["id"], notice["broker"], notice["kind"]) == ("ann", "s1", "oslo", "subscribe")
    assert shell.topic("notices")[0].key == b"ann"


def test_without_an_ack_nothing_is_told() -> None:
    shell = Shell(config_of())
    shell.send(subscribe("s1", 10, 20))
    shell.send(publish("oslo", "p1", 15))
    shell.settle()
    assert not notices(shell)


@pytest.mark.parametrize("late", [False, True])
def test_a_publication_after_the_notice_is_delivered_and_before_it_may_be_lost(late: bool) -> None:
    shell = Shell(config_of())
    shell.send(subscribe("s1", 10, 20, ack="a1"))
    shell.run_batch()
    if late:
        assert run_until_told(shell, "a1")["state"] == "in-force"
    else:
        assert told(shell, "a1") is None
    shell.send(publish("wien", "p1", 15))
    shell.settle()
    assert shell.deliveries() == [("oslo", "ann", "s1", "p1")] * late


def test_a_redundant_subscription_is_in_force_only_when_its_coverers_are() -> None:
    shell = Shell(config_of())
    shell.send(subscribe("s1", 10, 20))
    shell.send(subscribe("s2", 12, 18, client="bob", ack="a2"))  # withheld everywhere: nothing of it travels
    shell.run_batch()
    assert told(shell, "a2") is None
    run_until_told(shell, "a2")
    shell.send(publish("wien", "p1", 15))
    shell.settle()
    assert ("oslo", "bob", "s2", "p1") in shell.deliveries()


@settings(max_examples=18, deadline=None)
@given(st.integers(0, 10**6))
def test_what_is_in_force_receives_everything_through_crashes(seed: int) -> None:
    chance = random.Random(seed)
    config = config_of(chance.choice([TEXT, STAR]))
    overlay = config.overlay
    regions = some_cut(config, chance)
    shell = Shell(config, regions=regions, paced=True)
    owed: set[tuple[str, str]] = set()
    standing: dict[str, tuple[int, int]] = {}
    for k in range(12):
        low = chance.randint(0, 80)
        home = chance.choice(overlay.brokers)
        id, high = f"s{k}", low + chance.randint(0, 19)
        shell.send(subscribe(id, low, high, broker=home, client=f"c{k}", ack=id))
        for _ in range(chance.randint(0, 6)):
            shell.run_batch(most=chance.choice([1, 2, 9]), crashes=chance.randint(0, 1), shuffle=chance)
            forget()
        standing[id] = low, high
        n = chance.randint(0, 99)
        in_force = [s for s, (a, b) in standing.items() if a <= n <= b and told(shell, s) is not None]
        shell.send(publish(chance.choice(overlay.brokers), f"p{k}", n, ack=f"p{k}"))
        owed |= {(s, f"p{k}") for s in in_force}
    shell.finish()
    found = {(subscription, publication) for _, _, subscription, publication in shell.deliveries()}
    assert owed <= found
    for k in range(12):
        notice = told(shell, f"p{k}")
        assert notice is not None and notice["state"] == "routed"
        assert notice["deliveries"] == len([1 for _, publication in found if publication == f"p{k}"])
        assert told(shell, f"s{k}") is not None
    assert not any(shell.region(part.name).echoes.waiting for part in shell.settings.parts)


def test_where_regions_are_joined_one_knows_what_all_waited_for() -> None:
    """The first began an echo, the second passed it on; an answer is under way. Only clients are told, in the end."""
    first, second, whole = Echoes("first"), Echoes("second"), Echoes("whole")
    echo, other = first.new(), first.new()
    first.wait(echo, [("a", "b")], notice=Notice("routed", "publish", ack="p"), deliveries=1)
    first.wait(other, [("a", "b")], notice=Notice("in-force", "subscribe", ack="s"))
    second.wait(echo, [("b", "c")], back=("b", "a"), deliveries=2)
    whole.join(first)
    whole.join(second)
    assert whole.wait(echo, [("c", "d")], back=("c", "b"), deliveries=4) is None, "it came over a border that is gone"
    assert whole.hear(Answer(echo, 8), ("b", "c")) is None
    assert whole.hear(Answer(second.new(), 100), ("b", "c")) is None, "nobody waits for it"
    assert [(notice.ack, notice.deliveries) for notice in whole.end()] == [("p", 15), ("s", None)]
    assert not whole.waiting and not whole.end()


def test_a_publication_that_reaches_nobody_says_so() -> None:
    shell = Shell(config_of())
    shell.send(subscribe("s1", 10, 20))
    shell.settle()
    shell.send(publish("wien", "p1", 50, ack="a1"))
    shell.send(publish("wien", "p2", 15, ack="a2"))
    shell.settle()
    assert [(n["id"], n["state"], n["deliveries"]) for n in notices(shell)] == [
        ("p1", "routed", 0),
        ("p2", "routed", 1),
    ]
    assert shell.topic("notices")[0].key == b"a1"


def test_a_repeated_subscribe_with_an_ack_is_answered_like_the_first() -> None:
    shell = Shell(config_of())
    event = subscribe("s1", 10, 20, rev=5, time="1970-01-01T00:00:01Z")
    shell.send(event)
    shell.settle()
    shell.send(event | {"ack": "a1"})
    assert run_until_told(shell, "a1")["state"] == "in-force"
    assert not shell.tables()["rejects"]


def test_a_cancellation_in_vain_is_told_without_being_asked() -> None:
    shell = Shell(config_of())
    gone = {"kind": "unsubscribe", "broker": "oslo", "client": "ann", "id": "s9"}
    shell.send(gone)
    shell.settle()
    (notice,) = notices(shell)
    assert (notice["state"], notice["id"], notice["client"]) == ("not-standing", "s9", "ann")
    shell.send(subscribe("s1", 10, 20))
    shell.settle()
    shell.send(gone | {"id": "s1", "ack": "a1"})
    assert run_until_told(shell, "a1")["state"] == "ended"


def test_every_bad_record_passes_and_is_told_if_it_names_its_client() -> None:
    shell = Shell(config_of())
    for rule, _, kind, value in BAD:
        if rule != "size":
            shell.put(kind, b"oslo", value)
    shell.settle()
    refused = [notice for notice in notices(shell) if notice["state"] == "refused"]
    assert len(shell.tables()["rejects"]) > len(refused) > 40
    assert {"ack", "attribute", "missing"} <= {notice["rule"] for notice in refused}


def test_what_is_refused_is_told_with_its_rule() -> None:
    shell = Shell(config_of())
    shell.send(subscribe("s1", 10, 20, rev=5))
    shell.send(subscribe("s1", 10, 30, rev=4, ack="stale"))
    shell.send(subscribe("s2", 10, 200, ack="outside"))
    shell.put("subscribe", b"oslo", b"no json")
    shell.settle()
    stale, outside = (told(shell, "stale"), told(shell, "outside"))
    assert stale is not None and outside is not None
    assert (stale["state"], stale["rule"], stale["id"]) == ("refused", "stale", "s1")
    assert (outside["rule"], outside["client"]) == ("domain", "ann")
    assert len(notices(shell)) == 2
    assert len(shell.tables()["rejects"]) == 3
