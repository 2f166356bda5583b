"""Stored state: exact round trips, compact, versioned, refused where it cannot be trusted."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.workloads import Workload
from state.config import Config, parse
from state.errors import StateError
from state.filters.pruning import Pruning
from state.geometry.boxes import gathered
from state.protocol.commands import Override
from state.protocol.messages import LOCAL
from state.routing.broker import Broker
from state.routing.region import Region
from state.storage import codec
from state.storage.codec import (
    MIGRATIONS,
    VERSION,
    Names,
    StoredLedger,
    StoredLink,
    StoredSubscriptions,
    decode,
    describe,
    encode,
)
from state.storage.columns import from_numbers, from_series, from_texts, from_words, numbers, series, texts, words
from state.storage.ends import coded, decoded
from state.storage.sealed import MAGIC, compress, seal, unseal
from state.strategies import Spec
from tests.core.histories import STRATEGY_TABLES, config_text, configs, events
from tests.core.stored import fields, filled, setups_of

THREE_INTS = """
[space]
x = {kind = "int", low = 0, high = 1000}
y = {kind = "int", low = 0, high = 1000}
z = {kind = "int", low = 0, high = 1000}
[overlay]
links = [["a", "b"]]
"""


def again(broker: Broker) -> Broker:
    setups = {LOCAL: broker.setup} | {name: link.setup for name, link in broker.links.items()}
    return decode(encode(broker), broker.name, setups)


def check_round_trip(broker: Broker) -> None:
    restored = again(broker)
    restored.check()
    assert fields(restored) == fields(broker)
    assert encode(restored) == encode(broker)


@pytest.mark.parametrize("table", STRATEGY_TABLES)
def test_every_strategy_round_trips(table: str) -> None:
    config = parse(config_text([("b0", "b1"), ("b1", "b2")], table))
    for broker in filled(config, Workload("churn", 60, 60).events(config)).brokers.values():
        check_round_trip(broker)


@settings(max_examples=20)
@given(st.data())
def test_every_history_round_trips(data: st.DataObject) -> None:
    """Boolean filters, revisions, replaced and cancelled subscriptions, at every broker."""
    config = data.draw(configs())
    history = data.draw(events(config.overlay.brokers))
    for event in history:
        if event["kind"] == "subscribe" and data.draw(st.integers(0, 3)) == 0:
            event["ttl"] = data.draw(st.integers(1, 100)) / 1e6
    for broker in filled(config, history).brokers.values():
        check_round_trip(broker)


def test_the_garbage_collector_goes_on_as_before() -> None:
    broker = Region("all", setups_of(parse(THREE_INTS))).brokers["a"]
    assert gc.isenabled()
    again(broker)
    assert gc.isenabled()
    gc.disable()
    try:
        again(broker)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_empty_brokers_round_trip() -> None:
    for broker in Region("all", setups_of(parse(THREE_INTS))).brokers.values():
        check_round_trip(broker)


def subscribes(config: Config, *given: dict[str, Any]) -> Broker:
    own = [{"kind": "subscribe", "broker": "a", "client": "ann", "id": f"s{k}"} for k in range(len(given))]
    return filled(config, [one | more for one, more in zip(own, given, strict=True)]).brokers["a"]


def test_names_of_any_text_and_floats_round_trip() -> None:
    text = '[space]\nf = {kind = "float", low = -1e308, high = 1e308}\n[overlay]\nlinks = [["a", "b"]]'
    ids = ["é", "\x00", "日本", "a" * 256, "'\"\\", "💥"]
    given = ({"client": one, "id": one, "where": {"f": [-0.0, 5e-324 * k]}} for k, one in enumerate(ids))
    broker = subscribes(parse(text), *given)
    assert [row.name.id for row in again(broker).subscriptions] == ids
    check_round_trip(broker)


def test_filters_that_are_matched_as_trees_stay_trees() -> None:
    """A rare Boolean filter is kept as a tree, and so is one of too many boxes, whose boxes are not exact."""
    rare = f"x = 5 AND y IN ({', '.join(str(k) for k in range(0, 60, 3))})"
    many = " OR ".join(f"(x = {k} AND y <> {k} AND z <> {k})" for k in range(0, 1000, 40))
    broker = subscribes(parse(THREE_INTS), {"where": rare}, {"where": many}, {"where": "x > 5"})
    rows = list(again(broker).subscriptions)
    assert rows[1].exact is not None and rows[0].exact is None and rows[0].tree is not None
    assert again(broker).clients.exact.keys() == broker.clients.exact.keys() == {rows[0].name, rows[1].name}
    assert again(broker).clients.exact == broker.clients.exact
    assert [row.where is not None for row in rows] == [True] * 3
    check_round_trip(broker)


def test_a_renewed_subscription_ends_at_the_same_moment_before_and_after() -> None:
    """The earlier end is forgotten, not only where the ledger is restored: an input must not depend on that."""
    broker = subscribes(parse(THREE_INTS), {"id": "s", "where": {}, "ttl": 1}, {"id": "s", "where": {}, "ttl": 5})
    assert broker.ledger.next_expiry == again(broker).ledger.next_expiry == 5_000_001
    assert not broker.ledger.is_due(1_000_000) and not again(broker).ledger.is_due(1_000_000)


def test_brokers_named_like_parts_have_parts_of_their_own() -> None:
    text = THREE_INTS.replace('["a", "b"]', '["ledger", "subscriptions"]')
    config = parse(text)
    for broker in filled(config, Workload("uniform", 20, 0).events(config)).brokers.values():
        assert len(encode(broker)) == 3
        check_round_trip(broker)


def test_ranges_at_both_ends_of_a_curve_of_63_bits_round_trip() -> None:
    """The steps between their ends are larger than an int64."""
    sides = "\n".join(f'{name} = {{kind = "int", low = 0, high = {2**21 - 1}}}' for name in "xyz")
    text = f'[space]\n{sides}\n[overlay]\nlinks = [["a", "b"]]\n[routing]\nstrategy = {{name = "mics", bits = 21}}'
    corners = [{"where": {"x": [x, x], "y": [0, 0], "z": [0, 0]}} for x in (0, 2**21 - 1)]
    config = parse(text)
    broker = subscribes(config, {"where": {}}, *corners)
    check_round_trip(broker)
    region = filled(config, [{"kind": "subscribe", "broker": "a", "client": "c", "id": "all", "where": {}}])
    table = region.brokers["b"].links["a"].heard.dump().numbers
    assert table[0] == -1 and table[-2] == 2**63 - 1
    check_round_trip(region.brokers["b"])


def test_series_wrap_around() -> None:
    extremes = np.array([-1, 2**63 - 1, -(2**63), 0, 2**63 - 1, -(2**63)])
    assert from_series(series(extremes)).tolist() == extremes.tolist()


def test_words_are_stored_once() -> None:
    given = ["oslo", "rome", "oslo", "", "rome"]
    stored = words(given)
    assert from_words(stored) == given and stored.distinct.text == b"oslorome"


def test_ten_thousand_subscriptions_are_compact() -> None:
    config = parse(THREE_INTS)
    region = filled(config, Workload("zipf", 10_000, 0, cancelled=0.0).events(config))
    raw = 10_000 * 3 * 2 * 8
    stored = encode(region.brokers["a"])
    assert sum(map(len, stored.values())) < raw / 2, "everything together takes half of the raw boxes"
    assert len(stored["a/b"]) < raw / 8, "a link refers to subscriptions by number"


SMALL_CONFIG = parse(config_text([("b0", "b1")], '"negative"'))
SMALL_SETUPS = setups_of(SMALL_CONFIG)["b0"]


@pytest.fixture(scope="module")
def small() -> dict[str, bytes]:
    return encode(filled(SMALL_CONFIG, Workload("churn", 20, 0).events(SMALL_CONFIG)).brokers["b0"])


PARTS = ["b0/.subscriptions", "b0/.ledger", "b0/b1"]


@pytest.mark.parametrize("part", PARTS)
def test_unknown_versions_are_refused(small: dict[str, bytes], part: str) -> None:
    for version in (VERSION + 1, 0):
        blob = bytearray(small[part])
        blob[len(MAGIC)] = version
        with pytest.raises(StateError, match=rf"{part} has version {version}.*Remedy"):
            decode(small | {part: bytes(blob)}, "b0", SMALL_SETUPS)


@pytest.mark.parametrize("part", PARTS)
def test_older_versions_are_migrated(small: dict[str, bytes], part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of an older format goes through one function per version."""
    kind = dict(zip(PARTS, codec.MIGRATIONS, strict=True))[part]
    older = {VERSION - 1: lambda old: old.removeprefix(b"old:")}
    monkeypatch.setitem(codec.MIGRATIONS, kind, older)
    payload = zstandard.ZstdDecompressor().decompress(small[part][len(MAGIC) + 1 :])
    old = MAGIC + bytes([VERSION - 1]) + zstandard.ZstdCompressor().compress(b"old:" + payload)
    assert encode(decode(small | {part: old}, "b0", SMALL_SETUPS)) == small


def test_a_link_of_version_1_has_nothing_that_leaves(small: dict[str, bytes]) -> None:
    def as_version_1(part: str, blob: bytes) -> bytes:
        payload = zstandard.ZstdDecompressor().decompress(blob[len(MAGIC) + 1 :])
        if part == "b0/b1":
            payload = msgspec.msgpack.encode(msgspec.msgpack.decode(payload)[:6])
        return MAGIC + bytes([1]) + zstandard.ZstdCompressor().compress(payload)

    assert encode(decode({part: as_version_1(part, blob) for part, blob in small.items()}, "b0", SMALL_SETUPS)) == small


@pytest.mark.parametrize("part", PARTS)
def test_missing_parts_are_refused(small: dict[str, bytes], part: str) -> None:
    with pytest.raises(StateError, match=rf"{part} is damaged: it is missing.*Remedy"):
        decode({key: blob for key, blob in small.items() if key != part}, "b0", SMALL_SETUPS)


@pytest.mark.parametrize(
    "change",
    [{"broker": "x"}, {"spec": Spec("flood")}, {"remember": 1}, {"space": ("7", "9")}, {"space": ('"red"', '"rosy"')}],
)
def test_state_of_another_configuration_is_refused(small: dict[str, bytes], change: dict[str, Any]) -> None:
    """The error shows both configurations."""
    if "space" in change:
        change = {"space": parse(config_text([("b0", "b1")], '"negative"').replace(*change["space"])).space}
    other = {link: dataclasses.replace(setup, **change) for link, setup in SMALL_SETUPS.items()}
    with pytest.raises(StateError, match="broker b0 was written for another configuration") as raised:
        decode(small, "b0", other)
    assert describe(SMALL_SETUPS) in str(raised.value) and describe(other) in str(raised.value)


def test_other_links_are_another_configuration(small: dict[str, bytes]) -> None:
    more = SMALL_SETUPS | {"b2": SMALL_CONFIG.setup("b0", "b2")}
    with pytest.raises(StateError, match="another configuration"):
        decode(small, "b0", more)


def test_pruning_is_no_part_of_the_configuration() -> None:
    """It may change at any time; the originals of what was heard are what is stored."""
    config = parse(config_text([("b0", "b1")], '"union"'))
    broker = filled(config, Workload("churn", 20, 50).events(config)).brokers["b0"]
    before = encode(broker)
    broker.links["b1"].prune(Override(Pruning("network", 3, None)))
    assert encode(broker) == before
    pruning = parse(config_text([("b0", "b1")], '{name = "union", prune = "memory", prunings = 2}'))
    assert encode(decode(before, "b0", setups_of(pruning)["b0"])) == before


@settings(max_examples=200)
@given(st.data())
def test_damage_is_noticed(small: dict[str, bytes], data: st.DataObject) -> None:
    """Any flipped byte and any cut is refused, or is one of zstd's few bits without meaning; nothing else happens."""
    part = data.draw(st.sampled_from(PARTS))
    blob = bytearray(small[part])
    if data.draw(st.booleans()):
        blob = blob[: data.draw(st.integers(0, len(blob) - 1))]
    else:
        blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        survived = decode(small | {part: bytes(blob)}, "b0", SMALL_SETUPS)
    except StateError:
        return
    assert encode(survived) == small


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x91", b"\x90", b"\x91\xa1\xff"])
def test_a_payload_that_is_no_such_value_is_refused(small: dict[str, bytes], payload: bytes) -> None:
    """Compressed well, but not MessagePack, cut off, of another shape, or not UTF-8."""
    for part in PARTS:
        with pytest.raises(StateError, match=rf"{part} is damaged.*Remedy"):
            decode(small | {part: MAGIC + bytes([VERSION]) + compress(payload)}, "b0", SMALL_SETUPS)


def test_parts_that_do_not_belong_together_are_refused(small: dict[str, bytes]) -> None:
    """Numbers that the subscriptions do not have, or stamps of others."""
    other = encode(filled(SMALL_CONFIG, Workload("uniform", 90, 0, seed=2).events(SMALL_CONFIG)).brokers["b0"])
    for part in PARTS:
        with pytest.raises(StateError, match=r"is damaged.*Remedy"):
            decode(small | {part: other[part]}, "b0", SMALL_SETUPS)


def numbers_of(column: bytes, change: Callable[[list[int]], list[int]], *, grow: bool = False) -> bytes:
    """A column of numbers, changed."""
    read, write = (from_series, series) if grow else (from_numbers, numbers)
    return write(np.array(change(read(column).tolist()), np.int64))


def other_names(names: Names, ids: list[str]) -> Names:
    return Names(words(["b0"] * len(ids)), words(["c0"] * len(ids)), texts(ids))


INCONSISTENT: dict[str, tuple[str, Any, Callable[[Any], dict[str, Any]]]] = {
    "a subscription twice": (
        PARTS[0],
        StoredSubscriptions,
        lambda p: {"names": other_names(p.names, ["s"] * len(from_texts(p.names.ids)))},
    ),
    "numbers that do not grow": (
        PARTS[0],
        StoredSubscriptions,
        lambda p: {"numbers": numbers_of(p.numbers, lambda n: n[::-1], grow=True)},
    ),
    "an origin that is no neighbour": (
        PARTS[0],
        StoredSubscriptions,
        lambda p: {"origins": words(["b7" if o == "b1" else o for o in from_words(p.origins)])},
    ),
    "more boxes than there are": (
        PARTS[0],
        StoredSubscriptions,
        lambda p: {"box_counts": numbers_of(p.box_counts, lambda n: [n[0] + 1, *n[1:]])},
    ),
    "fewer boxes than there are": (
        PARTS[0],
        StoredSubscriptions,
        lambda p: {"box_counts": numbers_of(p.box_counts, lambda n: [n[0] - 1, *n[1:]])},
    ),
    "a negative number of boxes": (
        PARTS[0],
        StoredSubscriptions,
        lambda p: {"box_counts": numbers_of(p.box_counts, lambda n: [-1, n[0] + n[1] + 1, *n[2:]])},
    ),
    "a filter of nobody": (
        PARTS[0],
        StoredSubscriptions,
        lambda p: {"with_where": numbers_of(p.with_where, lambda n: [-1, *n[1:]], grow=True)},
    ),
    "active twice": (
        PARTS[2],
        StoredLink,
        lambda p: {"active": numbers_of(p.active, lambda n: [*n[1:2], *n[1:]], grow=True)},
    ),
    "active and passive": (
        PARTS[2],
        StoredLink,
        lambda p: {"active": numbers_of(p.active, lambda n: [*from_series(p.passive)[:1], *n[1:]], grow=True)},
    ),
    "a coverer before the first": (
        PARTS[2],
        StoredLink,
        lambda p: {"coverers": numbers_of(p.coverers, lambda n: [-1, *n[1:]])},
    ),
    "a coverer behind the last": (
        PARTS[2],
        StoredLink,
        lambda p: {"coverers": numbers_of(p.coverers, lambda n: [len(from_series(p.active)), *n[1:]])},
    ),
    "ends out of order": (
        PARTS[1],
        StoredLedger,
        lambda p: {"arrived": numbers_of(p.arrived, lambda n: n[::-1], grow=True)},
    ),
    "stamps of one more": (
        PARTS[1],
        StoredLedger,
        lambda p: {"expires": numbers_of(p.expires, lambda n: [*n, 1], grow=True)},
    ),
}


@pytest.mark.parametrize("what", INCONSISTENT)
def test_state_that_contradicts_itself_is_refused(what: str) -> None:
    """Sealed well, and still not what this program could have written."""
    history = [
        {"kind": "subscribe", "broker": broker, "client": "c0", "id": f"s{k}", "where": {"x": [k, 7 - k]}}
        for k in range(3)
        for broker in ("b0", "b1")
    ]
    gone = [{"kind": "unsubscribe", "broker": "b0", "client": "c0", "id": f"u{k}"} for k in range(2)]
    stored = encode(filled(SMALL_CONFIG, history + gone).brokers["b0"])
    decode(stored, "b0", SMALL_SETUPS)
    part, kind, change = INCONSISTENT[what]
    value = unseal(stored[part], kind, VERSION, {}, part)
    broken = seal(msgspec.structs.replace(value, **change(value)), VERSION)
    assert broken != stored[part]
    with pytest.raises(StateError, match=rf"{part} is damaged.*Remedy"):
        decode(stored | {part: broken}, "b0", SMALL_SETUPS)


# Boxes by the predicates of their trees


def test_boxes_of_trees_are_stored_by_their_predicates() -> None:
    """Ends of predicates and of the domain have codes; an end that boxes were rounded to is listed."""
    domain = np.array([[0, 0], [100, 100]])
    trees = np.array([-5, 0, 10, 20, 1, 30, 40, 0, 5, 6])  # AND of two, then a predicate alone
    boxes = np.array([[[10, 30], [20, 40]], [[10, 0], [20, 99]], [[5, 0], [6, 100]]])
    counts, lengths = np.array([2, 1]), np.array([7, 3])
    codes, others = coded(boxes, counts, trees, lengths, domain)
    assert codes.tolist() == [[[1, 3], [2, 4]], [[1, 0], [2, -1]], [[1, 0], [2, 0]]]
    assert others.tolist() == [99]
    assert (decoded(codes, others, counts, trees, lengths, domain) == boxes).all()


@pytest.mark.parametrize(
    ("codes", "others", "counts"),
    [
        ([[[5], [0]]], [], [1]),
        ([[[-2], [0]]], [], [1]),
        ([[[-1], [0]]], [], [1]),
        ([[[0], [0]]], [7], [1]),
        ([[[0], [0]]], [], [2]),
    ],
)
def test_codes_that_do_not_fit_are_refused(codes: list[Any], others: list[int], counts: list[int]) -> None:
    tree, domain = np.array([0, 5, 6]), np.array([[0], [9]])
    with pytest.raises(ValueError, match="box"):
        decoded(np.array(codes), np.array(others, np.int64), np.array(counts), tree, np.array([3]), domain)


def test_a_broker_of_version_2_is_read() -> None:
    """It had the boxes of Boolean filters among all others."""
    given = ({"where": "x > 5 AND y < 7"}, {"where": "x = 5 OR y > 3 AND z < 2"}, {"where": {"x": [1, 2]}})
    broker = subscribes(parse(THREE_INTS), *given)
    parts = encode(broker)
    key, links = "a/.subscriptions", setups_of(parse(THREE_INTS))["a"]
    part = unseal(parts[key], StoredSubscriptions, VERSION, MIGRATIONS["subscriptions"], key)
    counts, boxes = gathered([row.shape for row in broker.subscriptions], 3)
    part.box_counts, part.boxes = numbers(counts), [numbers(boxes[:, end, i]) for i in range(3) for end in (0, 1)]
    before = msgspec.msgpack.decode(msgspec.msgpack.encode(part))[:-1]
    earlier = {name: MAGIC + bytes([2]) + value[len(MAGIC) + 1 :] for name, value in parts.items()}
    restored = decode(earlier | {key: seal(before, 2)}, "a", links)
    restored.version = broker.version
    assert fields(restored) == fields(broker)
    assert encode(restored) == parts
