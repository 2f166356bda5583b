"""What the client library sends: the documented JSON, stamped, with revisions that grow, refused before it is sent."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.answers import Expected
from producers.client import checked_broker, checked_name
from producers.compose import Composer, Revisions, micros
from producers.errors import REMEDIES, EventRefused
from producers.sender import Sent
from state.config import parse
from state.errors import ConfigError
from state.protocol.events import KINDS, RULES, Context, Reject, Source, read
from state.protocol.messages import Publish, Subscribe
from state.protocol.topics import Topics

CONFIG = parse("""
[space]
price = {kind = "float", low = 0.0, high = 1000.0}
volume = {kind = "int", low = 0, high = 100000}
symbol = {kind = "category", values = ["AAPL", "IBM", "MSFT"]}
seen = {kind = "timestamp", low = "2026-01-01T00:00:00Z", high = "2027-01-01T00:00:00Z"}
[overlay]
links = [["oslo", "paris"]]
""")
AT = {"price": 12.5, "volume": 150, "symbol": "IBM", "seen": "2026-05-01T00:00:00Z"}
NOON = 1_780_000_000_123_456


def composer(*clock: int) -> Composer:
    times = iter(clock)
    return Composer(CONFIG, (lambda: next(times)) if clock else (lambda: NOON))


def subscribe(where: Any, **more: Any) -> dict[str, Any]:
    return {"id": "s1", "client": "ann", "where": where, **more}


def test_the_json_of_each_kind() -> None:
    one = composer()
    assert json.loads(one.compose("subscribe", "oslo", subscribe({"price": [10, None]}, ttl=60))) == {
        "id": "s1",
        "client": "ann",
        "where": {"price": [10, None]},
        "ttl": 60,
        "time": "2026-05-28T20:26:40.123456Z",
        "rev": NOON,
    }
    assert json.loads(one.compose("unsubscribe", "oslo", {"id": "s1", "client": "ann"})) == {
        "id": "s1",
        "client": "ann",
        "time": "2026-05-28T20:26:40.123456Z",
        "rev": NOON + 1,
    }
    assert json.loads(one.compose("publish", "oslo", {"id": "p1", "at": AT, "payload": {"n": [1, "ö"]}})) == {
        "id": "p1",
        "at": AT,
        "payload": {"n": [1, "ö"]},
        "time": "2026-05-28T20:26:40.123456Z",
    }


def test_the_router_reads_what_was_meant() -> None:
    context = Context(CONFIG.space, CONFIG.overlay.brokers)
    value = composer().compose("subscribe", "oslo", subscribe({"price": [10, 20]}, ttl=2))
    message = read(context, "subscribe", "oslo", value, Source(0, 0, "0", 0))
    assert isinstance(message, Subscribe)
    assert message.stamp is not None
    assert (message.stamp.rev, message.stamp.time, message.ttl) == (NOON, NOON, 2_000_000)


def test_dates_and_numbers_of_numpy_have_a_writing() -> None:
    at = {"price": np.float32(0.5), "volume": np.int64(3), "symbol": "IBM", "seen": datetime(2026, 5, 1, tzinfo=UTC)}
    value = composer().compose("publish", "oslo", {"id": "p1", "at": at})
    assert json.loads(value)["at"] == {"price": 0.5, "volume": 3, "symbol": "IBM", "seen": "2026-05-01T00:00:00+00:00"}
    context = Context(CONFIG.space, CONFIG.overlay.brokers)
    assert isinstance(read(context, "publish", "oslo", value, Source(0, 0, "0", 0)), Publish)


@given(st.lists(st.integers(0, 1 << 60)))
def test_revisions_grow_whatever_the_clock_does(clock: list[int]) -> None:
    revisions = Revisions()
    given = [revisions.after(now) for now in clock]
    assert all(a < b for a, b in pairwise(given))
    assert all(rev >= now for rev, now in zip(given, clock, strict=True))


def test_a_clock_that_goes_back_cannot_undo_a_word() -> None:
    one = composer(500, 400)
    first = json.loads(one.compose("subscribe", "oslo", subscribe({})))
    then = json.loads(one.compose("unsubscribe", "oslo", {"id": "s1", "client": "ann"}))
    assert (first["rev"], then["rev"]) == (500, 501)


def test_a_chosen_revision_is_kept_and_the_next_is_above_it() -> None:
    one = composer()
    high = NOON * 2
    assert json.loads(one.compose("subscribe", "oslo", subscribe({}, rev=high)))["rev"] == high
    assert json.loads(one.compose("subscribe", "oslo", subscribe({})))["rev"] == high + 1


def test_a_refused_revision_leaves_no_trace() -> None:
    one = composer()
    for rev in (-1, 1.5, "7", 1 << 63, True):
        with pytest.raises(EventRefused, match="rev"):
            one.compose("subscribe", "oslo", subscribe({}, rev=rev))
    assert json.loads(one.compose("subscribe", "oslo", subscribe({})))["rev"] == NOON


def circle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


REFUSED: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "inverted": ("subscribe", lambda: subscribe({"price": [20, 10]})),
    "domain": ("subscribe", lambda: subscribe({"price": [10, 2000]})),
    "attribute": ("subscribe", lambda: subscribe({"colour": [1, 2]})),
    "category": ("subscribe", lambda: subscribe({"symbol": ["SAP"]})),
    "empty": ("subscribe", lambda: subscribe({"symbol": []})),
    "finite": ("subscribe", lambda: subscribe({"price": [float("nan"), 20]})),
    "range": ("subscribe", lambda: subscribe({"price": [1]})),
    "ttl": ("subscribe", lambda: subscribe({}, ttl=0)),
    "filter": ("subscribe", lambda: subscribe([1])),
    "id": ("unsubscribe", lambda: {"id": "", "client": "ann"}),
    "client": ("unsubscribe", lambda: {"id": "s1", "client": 7}),
    "fraction": ("publish", lambda: {"id": "p1", "at": AT | {"volume": 1.5}}),
    "payload": ("publish", lambda: {"id": "p1", "at": AT, "payload": "x" * 70_000}),
    "json": ("publish", lambda: {"id": "p1", "at": AT, "payload": circle()}),
    "utf8": ("publish", lambda: {"id": "p1", "at": AT, "payload": "\ud800"}),
    "field": ("publish", lambda: {"id": "p1", "at": AT, "colour": 1}),
    "missing": ("publish", lambda: {"id": "p1"}),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_what_the_router_would_reject_is_not_sent(rule: str) -> None:
    kind, fields = REFUSED[rule]
    with pytest.raises(EventRefused) as refused:
        composer().compose(kind, "oslo", fields())  # type: ignore[arg-type]
    assert refused.value.rule == rule
    text = str(refused.value)
    assert text.startswith(f"{kind} ")
    assert f"Rule: {RULES[rule]}. Remedy: {REMEDIES[rule]}. Nothing was sent." in text
    assert "\n" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_broker_is_refused(kind: Any) -> None:
    with pytest.raises(EventRefused, match=r"'rome' is not a broker of the overlay .*Remedy: name a broker"):
        composer().compose(kind, "rome", subscribe({}))


def test_things_that_json_does_not_have_are_named() -> None:
    with pytest.raises(EventRefused, match="is a set, which JSON does not have"):
        composer().compose("publish", "oslo", {"id": "p1", "at": AT, "payload": {1, 2}})


def test_every_rule_has_a_remedy() -> None:
    assert set(REMEDIES) == set(RULES)
    for rule in RULES:
        assert "Remedy: " in str(EventRefused("publish", "p1", Reject(rule, "something")))


def test_a_client_is_attached_to_a_broker_under_a_name() -> None:
    assert checked_broker(CONFIG, "oslo") == "oslo"
    with pytest.raises(ConfigError, match=r"broker = 'rome'.*Remedy: use one of oslo, paris"):
        checked_broker(CONFIG, "rome")
    for name in ("", "x" * 257):
        with pytest.raises(ConfigError, match="1 to 256 characters"):
            checked_name(name)


def test_names_of_topics() -> None:
    topics = Topics("mine")
    assert topics.events == ("mine.subscribe", "mine.unsubscribe", "mine.publish")
    assert topics.all == (
        *topics.events,
        "mine.links",
        "mine.control",
        "mine.deliveries",
        "mine.notices",
        "mine.records",
    )
    assert [topics.of(kind) for kind in KINDS] == list(topics.events)


def test_the_clock_counts_microseconds() -> None:
    assert abs(micros() - datetime.now(UTC).timestamp() * 1e6) < 60e6


def test_an_answer_is_kept_no_longer_than_its_event() -> None:
    expected = Expected({"a1": None, "a2": None})
    held, dropped = (Sent("localhost:1", "lacuna.publish", "oslo", b"{}") for _ in range(2))
    expected.forget_with(held, "a1")
    expected.forget_with(dropped, "a2")
    del dropped
    gc.collect()
    assert expected.keys() == {"a1"}
    expected.pop("a1")  # it came, and was returned
    del held
    assert not expected
