"""Stored state: exact round trips, compact, versioned, refused where it cannot be trusted."""

from __future__ import annotations

import dataclasses

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.workloads import Workload
from state.config import Config, parse
from state.errors import StateError
from state.protocol.messages import LOCAL
from state.routing.link import Link, Local, group
from state.routing.overlay import Network
from state.storage import codec
from state.storage.codec import MAGIC, VERSION, decode, encode
from state.strategies import Spec
from tests.core.histories import STRATEGY_TABLES, config_text
from tests.core.test_overlay import Diary, message_of

THREE_INTS = """
[space]
x = {kind = "int", low = 0, high = 1000}
y = {kind = "int", low = 0, high = 1000}
z = {kind = "int", low = 0, high = 1000}
[overlay]
links = [["a", "b"]]
"""


def filled(config: Config, workload: Workload) -> Network:
    network = Network(config, Diary())
    for place, event in enumerate(workload.events(config)):
        network.feed(event["broker"], message_of(config, event, place), 0, place)
        network.settle(0)
    return network


@pytest.fixture(scope="module", params=STRATEGY_TABLES)
def network(request: pytest.FixtureRequest) -> Network:
    config = parse(config_text([("b0", "b1"), ("b1", "b2")], request.param))
    return filled(config, Workload("churn", 60, 60))


def groups(network: Network) -> list[Link | Local]:
    return [state for groups in network.groups.values() for state in groups.values()]


def test_round_trip_is_exact(network: Network) -> None:
    for state in groups(network):
        again = decode(encode(state), state.setup)
        again.check()
        assert encode(again) == encode(state)
        assert type(again) is type(state)
        assert list(again.heard) == list(state.heard)
        assert again.ledger.standing == state.ledger.standing
        assert list(again.ledger.ended.items()) == list(state.ledger.ended.items())
        assert again.inbox.marks == state.inbox.marks
        if isinstance(state, Link) and isinstance(again, Link):
            assert again.sent == state.sent
            assert list(again.told.active) == list(state.told.active)
            assert list(again.told.passive) == list(state.told.passive)


def test_empty_groups_round_trip() -> None:
    config = parse(THREE_INTS)
    for link in (LOCAL, "b"):
        state = group(config.setup("a", link))
        assert encode(decode(encode(state), state.setup)) == encode(state)


def test_names_of_any_text_and_floats_round_trip() -> None:
    text = '[space]\nf = {kind = "float", low = -1e308, high = 1e308}\n[overlay]\nlinks = [["a", "b"]]'
    config = parse(text)
    network = Network(config, Diary())
    ids = ["", "é", "\x00", "日本", "a" * 256, "'\"\\", "💥"]
    for place, one in enumerate(ids[1:]):
        event = {"kind": "subscribe", "broker": "a", "client": one, "id": one, "where": {"f": [-0.0, 5e-324 * place]}}
        network.feed("a", message_of(config, event, place), 0, place)
        network.settle(0)
    for state in groups(network):
        assert list(decode(encode(state), state.setup).heard) == list(state.heard)


def test_ten_thousand_subscriptions_are_compact() -> None:
    network = filled(parse(THREE_INTS), Workload("zipf", 10_000, 0, cancelled=0.0))
    raw = 10_000 * 3 * 2 * 8
    link = network.groups["a"]["b"]
    assert len(encode(link)) < raw / 2, "boxes, names and certificates together take half of the raw boxes"


def test_unknown_version_is_refused() -> None:
    state = group(parse(THREE_INTS).setup("a", "b"))
    blob = bytearray(encode(state))
    blob[len(MAGIC)] = VERSION + 1
    with pytest.raises(StateError, match=r"version 2.*Remedy"):
        decode(bytes(blob), state.setup)
    blob[len(MAGIC)] = 0
    with pytest.raises(StateError, match="version 0"):
        decode(bytes(blob), state.setup)


def test_older_version_is_migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob of an older format goes through one function per version."""
    state = group(parse(THREE_INTS).setup("a", "b"))
    blob = bytearray(encode(state))
    payload = zstandard.ZstdDecompressor().decompress(bytes(blob[len(MAGIC) + 1 :]))
    monkeypatch.setitem(codec.MIGRATIONS, 0, lambda old: old.removeprefix(b"old:"))
    old = MAGIC + bytes([0]) + zstandard.ZstdCompressor().compress(b"old:" + payload)
    assert encode(decode(old, state.setup)) == encode(state)


@pytest.mark.parametrize("change", ["broker", "link", "spec", "remember"])
def test_state_of_another_configuration_is_refused(change: str) -> None:
    setup = parse(THREE_INTS).setup("a", "b")
    other = {"broker": "x", "link": "y", "spec": Spec("flood"), "remember": 1}[change]
    with pytest.raises(StateError, match="another configuration"):
        decode(encode(group(setup)), dataclasses.replace(setup, **{change: other}))


def test_state_of_another_space_is_refused() -> None:
    setup = parse(THREE_INTS).setup("a", "b")
    wider = parse(THREE_INTS.replace("1000", "2000")).setup("a", "b")
    with pytest.raises(StateError, match="another configuration"):
        decode(encode(group(setup)), wider)


@settings(max_examples=200)
@given(st.data())
def test_damage_is_noticed(data: st.DataObject) -> None:
    """Any flipped byte and any cut is refused, or is one of zstd's few bits without meaning; nothing else happens."""
    state = SMALL
    blob = bytearray(encode(state))
    if data.draw(st.booleans()):
        blob = blob[: data.draw(st.integers(0, len(blob) - 1))]
    else:
        blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        survived = decode(bytes(blob), state.setup)
    except StateError:
        return
    assert encode(survived) == encode(state)


SMALL = filled(parse(config_text([("b0", "b1")], '"negative"')), Workload("churn", 20, 0)).groups["b0"]["b1"]
