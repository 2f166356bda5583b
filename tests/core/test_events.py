"""Clients' events: the good become messages, the bad become rejects that name the rule they broke; none is an error."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state import space
from state.errors import InvariantError
from state.filters import where as where_module
from state.geometry.boxes import Box, boxes_where
from state.protocol import events, frame, ledger
from state.protocol.events import (
    KINDS,
    MOST_BYTES,
    MOST_NAME,
    MOST_PAYLOAD,
    MOST_TTL,
    RULES,
    Context,
    Reject,
    Source,
    read,
    read_line,
)
from state.protocol.messages import Message, Name, Publish, Stamp, Subscribe, Unsubscribe
from state.space import LARGEST_INT, Attribute, Space, float_key, timestamp_key

WIDE = tuple(f"v{k}" for k in range(130))
SPACE = Space(
    (
        Attribute("price", "float", float_key(0.0), float_key(1000.0)),
        Attribute("volume", "int", 0, 100_000),
        Attribute("symbol", "category", 0, 2, ("AAPL", "IBM", "MSFT")),
        Attribute("seen", "timestamp", timestamp_key("2026-01-01"), timestamp_key("2027-01-01")),
        Attribute("one", "category", 0, 129, WIDE),
        Attribute("two", "category", 0, 129, WIDE),
    )
)
CONTEXT = Context(SPACE, ("oslo", "paris"))
ARRIVED, OFFSET = 1_000_000, 42
SOURCE = Source(0, OFFSET, str(OFFSET + 1), ARRIVED)
AT = {"price": 12.5, "volume": 150, "symbol": "IBM", "seen": "2026-05-01T00:00:00Z", "one": "v0", "two": "v1"}
SUBSCRIBE = {"id": "s1", "client": "ann", "where": {"price": [10, 20], "volume": [100, None]}}
UNSUBSCRIBE = {"id": "s1", "client": "ann"}
PUBLISH = {"id": "p1", "at": AT, "payload": "anything"}
WITHOUT = object()


def changed(event: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**event, **changes}.items() if value is not WITHOUT}


def subscribe(**changes: Any) -> bytes:
    return json.dumps(changed(SUBSCRIBE, changes)).encode()


def unsubscribe(**changes: Any) -> bytes:
    return json.dumps(changed(UNSUBSCRIBE, changes)).encode()


def publish(**changes: Any) -> bytes:
    return json.dumps(changed(PUBLISH, changes)).encode()


def where(**entries: Any) -> bytes:
    return subscribe(where=entries)


def at(**values: Any) -> bytes:
    return publish(at=changed(AT, values))


def doubled(event: bytes, field: str, value: str = "1") -> bytes:
    """The event with one of its names, on whatever level, standing twice."""
    return event.replace(f'"{field}":'.encode(), f'"{field}": {value}, "{field}":'.encode(), 1)


def result(kind: object, value: bytes, broker: object = "oslo") -> Message | Reject:
    return read(CONTEXT, kind, broker, value, SOURCE)  # type: ignore[arg-type]


DEEP = b"[" * 100_000 + b"]" * 100_000
DIGITS = b"9" * 5000
EVERY_SECOND = list(WIDE[::2])


# Bad records: the rule, what is wrong, the kind, the value. (Bad kinds, brokers and lines come further down.)
def payload(written: bytes) -> bytes:
    return publish(payload="?").replace(b'"?"', written)


BAD: list[tuple[str, str, str, bytes]] = [
    ("json", "nothing at all", "publish", b""),
    ("json", "blank", "publish", b"  \n"),
    ("json", "half an object", "subscribe", b'{"id": "s1"'),
    ("json", "two objects", "unsubscribe", unsubscribe() + unsubscribe()),
    ("json", "a word after the object", "unsubscribe", unsubscribe() + b" x"),
    ("json", "a list", "subscribe", b"[1, 2]"),
    ("json", "a string", "publish", b'"p1"'),
    ("json", "a number", "publish", b"17"),
    ("json", "null", "unsubscribe", b"null"),
    ("json", "single quotes", "unsubscribe", b"{'id': 's1', 'client': 'ann'}"),
    ("json", "a comma too many", "unsubscribe", b'{"id": "s1", "client": "ann",}'),
    ("json", "a comment", "unsubscribe", b'{"id": "s1", "client": "ann"} // me'),
    ("json", "a byte order mark", "unsubscribe", b"\xef\xbb\xbf" + unsubscribe()),
    ("json", "deeper than can be read", "publish", DEEP),
    ("json", "a filter deeper than can be read", "subscribe", subscribe(where="?").replace(b'"?"', DEEP)),
    ("json", "half a surrogate pair in an id", "publish", publish(id="?").replace(b"?", rb"\ud800")),
    ("json", "a control character in an id", "publish", publish(id="?").replace(b"?", b"\x01")),
    ("json", "a bad escape in the payload", "publish", publish(payload="?").replace(b"?", rb"\q")),
    ("json", "a number with a leading zero", "publish", publish(payload=0).replace(b": 0", b": 007")),
    ("utf8", "Latin-1", "unsubscribe", unsubscribe(id="Ångström").decode("unicode_escape").encode("latin-1")),
    ("utf8", "UTF-16", "unsubscribe", b"\xff\xfe" + unsubscribe().decode().encode("utf-16-le")),
    ("utf8", "a stray byte in the id", "publish", publish(id="?").replace(b"?", b"\xff")),
    ("utf8", "a stray byte in the payload", "publish", publish(payload="?").replace(b"?", b"\xff")),
    ("utf8", "a stray byte inside a payload", "publish", publish(payload={"a": "?"}).replace(b"?", b"\xff")),
    ("size", "one byte too many", "unsubscribe", unsubscribe().ljust(MOST_BYTES + 1)),
    ("missing", "subscribe without id", "subscribe", subscribe(id=WITHOUT)),
    ("missing", "subscribe without client", "subscribe", subscribe(client=WITHOUT)),
    ("missing", "subscribe without where", "subscribe", subscribe(where=WITHOUT)),
    ("missing", "unsubscribe without id", "unsubscribe", unsubscribe(id=WITHOUT)),
    ("missing", "unsubscribe without client", "unsubscribe", unsubscribe(client=WITHOUT)),
    ("missing", "publish without id", "publish", publish(id=WITHOUT)),
    ("missing", "publish without at", "publish", publish(at=WITHOUT)),
    ("missing", "an empty object", "publish", b"{}"),
    ("field", "subscribe with an unknown field", "subscribe", subscribe(filter={})),
    ("field", "subscribe with a field of publish", "subscribe", subscribe(payload="x")),
    ("field", "unsubscribe with where", "unsubscribe", unsubscribe(where={})),
    ("field", "unsubscribe with ttl", "unsubscribe", unsubscribe(ttl=5)),
    ("field", "publish with rev", "publish", publish(rev=5)),
    ("field", "publish with client", "publish", publish(client="ann")),
    ("field", "a field in capitals", "unsubscribe", unsubscribe(Rev=5)),
    ("field", "kind and broker, which are topic and key", "unsubscribe", unsubscribe(kind="unsubscribe")),
    ("id", "an empty id", "subscribe", subscribe(id="")),
    ("id", "a number as id", "unsubscribe", unsubscribe(id=17)),
    ("id", "null as id", "publish", publish(id=None)),
    ("id", "an id too long", "publish", publish(id="x" * (MOST_NAME + 1))),
    ("client", "an empty client", "subscribe", subscribe(client="")),
    ("client", "a list as client", "unsubscribe", unsubscribe(client=["ann"])),
    ("client", "null as client", "subscribe", subscribe(client=None)),
    ("client", "a client too long", "subscribe", subscribe(client="é" * (MOST_NAME + 1))),
    ("filter", "a list as filter", "subscribe", subscribe(where=[1, 2])),
    ("filter", "null as filter", "subscribe", subscribe(where=None)),
    ("filter", "a number as filter", "subscribe", subscribe(where=5)),
    ("filter", "a number as alternative", "subscribe", subscribe(where=[{}, 5])),
    ("filter", "a number negated", "subscribe", where(**{"not": 5})),
    ("empty", "no alternative", "subscribe", subscribe(where=[])),
    ("nothing", "ranges that exclude each other", "subscribe", subscribe(where="price < 5 AND price > 6")),
    ("nothing", "everything, negated", "subscribe", where(**{"not": {}})),
    ("order", "categories in an order", "subscribe", subscribe(where="symbol > 'IBM'")),
    ("order", "categories between others", "subscribe", subscribe(where="symbol BETWEEN 'AAPL' AND 'IBM'")),
    ("syntax", "an empty text", "subscribe", subscribe(where="")),
    ("syntax", "half a comparison", "subscribe", subscribe(where="price >")),
    ("syntax", "a timestamp left open", "subscribe", subscribe(where="seen > TIMESTAMP '2026-05-01")),
    ("syntax", "a text too long", "subscribe", subscribe(where="price = 1" + " " * 65_536)),
    ("deep", "alternatives too deep", "subscribe", subscribe(where="?").replace(b'"?"', b"[" * 40 + b"{}" + b"]" * 40)),
    (
        "deep",
        "a negation too deep",
        "subscribe",
        subscribe(where="?").replace(b'"?"', b'{"not":' * 40 + b"{}" + b"}" * 40),
    ),
    ("deep", "too many predicates", "subscribe", subscribe(where=[{"volume": [2 * k, 2 * k]} for k in range(1025)])),
    (
        "duplicate",
        "an attribute twice in an alternative",
        "subscribe",
        subscribe(where="?").replace(b'"?"', b'[{"price":[1,2],"price":[1,2]}]'),
    ),
    ("attribute", "a filter on an unknown attribute", "subscribe", where(colour=[1, 2])),
    ("attribute", "a filter on an attribute in capitals", "subscribe", where(Price=[1, 2])),
    ("attribute", "a publication with an unknown attribute", "publish", at(colour=1)),
    ("attribute", "a publication without an attribute", "publish", at(symbol=WITHOUT)),
    ("attribute", "a publication without any", "publish", publish(at={})),
    ("range", "a number as range", "subscribe", where(price=5)),
    ("range", "an object as range", "subscribe", where(price={"low": 1})),
    ("range", "null as range", "subscribe", where(volume=None)),
    ("range", "a range with one end", "subscribe", where(price=[5])),
    ("range", "a range with three ends", "subscribe", where(price=[1, 2, 3])),
    ("range", "a range without ends", "subscribe", where(volume=[])),
    ("range", "a category not in a list", "subscribe", where(symbol="IBM")),
    ("inverted", "an inverted range of floats", "subscribe", where(price=[20, 10])),
    ("inverted", "an inverted range of ints", "subscribe", where(volume=[2, 1])),
    ("inverted", "an inverted range of timestamps", "subscribe", where(seen=["2026-06-02", "2026-06-01"])),
    ("empty", "no category", "subscribe", where(symbol=[])),
    ("category", "an unknown category in a filter", "subscribe", where(symbol=["IBM", "SAP"])),
    ("category", "an unknown category in a publication", "publish", at(symbol="SAP")),
    ("category", "a category in small letters", "publish", at(symbol="ibm")),
    ("domain", "a low end below the domain", "subscribe", where(price=[-1, 5])),
    ("domain", "a high end above the domain", "subscribe", where(volume=[0, 100_001])),
    ("domain", "a float above the domain", "publish", at(price=1000.0000000000001)),
    ("domain", "an int below the domain", "publish", at(volume=-1)),
    ("domain", "an int beyond int64", "publish", at(volume=2**80)),
    ("domain", "an int beyond any double", "publish", at(price=10**400)),
    ("domain", "a timestamp outside", "publish", at(seen="2025-12-31T23:59:59.999999Z")),
    ("domain", "a timestamp outside by its offset", "publish", at(seen="2026-01-01T00:00:00+00:01")),
    ("fraction", "a fraction for an int", "publish", at(volume=1.5)),
    ("fraction", "a fraction as end of an int", "subscribe", where(volume=[0.5, 2])),
    ("finite", "NaN in a publication", "publish", at(price=float("nan"))),
    ("finite", "infinity in a filter", "subscribe", where(price=[0, float("inf")])),
    ("finite", "minus infinity in a filter", "subscribe", where(price=[float("-inf"), 1])),
    ("finite", "NaN in a payload", "publish", publish(payload=float("nan"))),
    ("finite", "1e400", "publish", at(price=0).replace(b'"price": 0', b'"price": 1e400')),
    ("finite", "1e999 as payload", "publish", publish(payload="?").replace(b'"?"', b"1e999")),
    ("finite", "1E+400 inside a payload", "publish", publish(payload=["?"]).replace(b'"?"', b"7, {}, -1.5E+400")),
    ("finite", "very many digits and a point", "publish", payload(b"9" * 309 + b".5")),
    ("finite", "-1e999 for an int", "publish", at(volume=0).replace(b'"volume": 0', b'"volume": -1e999')),
    ("finite", "NaN as ttl", "subscribe", subscribe(ttl=float("nan"))),
    ("type", "a string for a float", "publish", at(price="12.5")),
    ("type", "a boolean for an int", "publish", at(volume=True)),
    ("type", "null for a float", "publish", at(price=None)),
    ("type", "a list for a category", "publish", at(symbol=["IBM"])),
    ("type", "a number for a timestamp", "publish", at(seen=1767225600)),
    ("type", "a string as end of a float", "subscribe", where(price=["1", 2])),
    ("type", "a boolean as end of an int", "subscribe", where(volume=[False, 2])),
    ("type", "null in a set of categories", "subscribe", where(symbol=["IBM", None])),
    ("type", "a list as at", "publish", publish(at=[1, 2])),
    ("type", "null as at", "publish", publish(at=None)),
    ("timestamp", "a word for a timestamp", "publish", at(seen="yesterday")),
    ("timestamp", "nanoseconds", "publish", at(seen="2026-05-01T00:00:00.000000001Z")),
    ("timestamp", "a day that does not exist", "subscribe", where(seen=["2026-02-30", None])),
    ("rev", "a negative revision", "subscribe", subscribe(rev=-1)),
    ("rev", "a fraction as revision", "unsubscribe", unsubscribe(rev=1.5)),
    ("rev", "a string as revision", "unsubscribe", unsubscribe(rev="1")),
    ("rev", "a boolean as revision", "subscribe", subscribe(rev=True)),
    ("rev", "a revision beyond int64", "unsubscribe", unsubscribe(rev=2**63)),
    ("ttl", "no time to live", "subscribe", subscribe(ttl=0)),
    ("ttl", "a negative time to live", "subscribe", subscribe(ttl=-5)),
    ("ttl", "a string as time to live", "subscribe", subscribe(ttl="60")),
    ("ttl", "a boolean as time to live", "subscribe", subscribe(ttl=True)),
    ("ttl", "more than a hundred years to live", "subscribe", subscribe(ttl=MOST_TTL + 1)),
    ("time", "a word as time", "subscribe", subscribe(time="now")),
    ("time", "a number as time", "unsubscribe", unsubscribe(time=1767225600)),
    ("time", "nanoseconds in a time", "publish", publish(time="2026-05-01T00:00:00.000000001Z")),
    ("time", "a time beyond the calendar", "publish", publish(time="10000-01-01T00:00:00Z")),
    ("payload", "a payload one byte too long", "publish", publish(payload="x" * (MOST_PAYLOAD - 1))),
    ("work", "a text of too many words", "subscribe", subscribe(where="price = 1" + " OR price = 1" * 2_000)),
    ("work", "too many brackets", "subscribe", subscribe(where="(" * 7_000 + "price = 1" + ")" * 7_000)),
    ("work", "too many objects", "subscribe", subscribe(where=[[{"volume": [k, k]} for k in range(50)]] * 50)),
    (
        "work",
        "more objects than are compared",
        "subscribe",
        doubled(subscribe(where=[[{"price": [1, 2]}] * 99] * 99), "id", '"s0"'),
    ),
    ("work", "too many ranges", "subscribe", where(volume=[[k, k] for k in range(5_000)])),
    ("work", "too many categories", "subscribe", where(symbol=["IBM"] * 50_000)),
    ("json", "a whole number that Python does not read", "publish", payload(b"[1, " + b"9" * 4_301 + b"]")),
    ("json", "a negative one", "publish", payload(b"-" + b"9" * 4_300)),
    ("finite", "many digits and an exponent", "publish", payload(b"9" * 300 + b"e10")),
    ("finite", "fewer digits and a larger exponent", "publish", payload(b"9" * 211 + b"E+99")),
    ("ack", "an ack that is a number", "subscribe", subscribe(ack=7)),
    ("ack", "an empty ack", "unsubscribe", unsubscribe(ack="")),
    ("ack", "an ack that is too long", "publish", publish(ack="a" * 257)),
    ("duplicate", "an id twice", "unsubscribe", b'{"id": "s1", "id": "s2", "client": "ann"}'),
    ("duplicate", "where twice", "subscribe", subscribe()[:-1] + b', "where": {}}'),
    ("duplicate", "an attribute twice in a filter", "subscribe", doubled(where(price=[1, 2]), "price")),
    ("duplicate", "an attribute twice in a publication", "publish", doubled(publish(), "price")),
    ("duplicate", "an attribute twice, no payload", "publish", doubled(publish(payload=WITHOUT), "price")),
    ("duplicate", "an id twice, no payload", "publish", doubled(publish(payload=WITHOUT), "id", '"p0"')),
    ("duplicate", "a name twice, once escaped", "unsubscribe", unsubscribe()[:-1] + rb', "\u0069d": "s2"}'),
    ("duplicate", "a name twice inside the payload", "publish", doubled(publish(payload={"a": 1}), "a")),
]


@pytest.mark.parametrize(
    ("rule", "kind", "value"), [(r, k, v) for r, _, k, v in BAD], ids=[f"{r}: {w}" for r, w, *_ in BAD]
)
def test_a_bad_record_is_rejected_by_its_rule(rule: str, kind: str, value: bytes) -> None:
    reject = result(kind, value)
    assert isinstance(reject, Reject)
    assert reject.rule == rule
    assert reject.message


READABLE = [b"9" * 4_300, b"-" + b"9" * 4_299, b"9" * 298 + b"e10", b"1." + b"9" * 5_000, b"1e308", b"0e999", b"1e-999"]


@pytest.mark.parametrize("number", READABLE, ids=lambda number: number[:8].decode())
def test_every_reader_takes_a_payload_that_is_accepted(number: bytes) -> None:
    message = result("publish", payload(number))
    assert isinstance(message, Publish) and message.payload == number
    assert json.loads(number) == msgspec.json.decode(number)


def test_every_rule_is_broken_by_some_record() -> None:
    assert len(BAD) >= 60
    assert {rule for rule, *_ in BAD} | {"kind", "broker", "unexpected", "foreign", "stale", "quota"} == set(RULES)


@pytest.mark.parametrize("kind", ["", "Publish", "publications", None, 5, ["publish"]])
def test_an_unknown_kind_is_rejected(kind: object) -> None:
    reject = result(kind, publish())
    assert isinstance(reject, Reject)
    assert reject.rule == "kind"


@pytest.mark.parametrize("broker", ["", "rome", "Oslo", "local", None, 5, b"oslo", ["oslo"]])
@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_broker_is_rejected(kind: str, broker: object) -> None:
    reject = result(kind, {"subscribe": subscribe, "unsubscribe": unsubscribe, "publish": publish}[kind](), broker)
    assert isinstance(reject, Reject)
    assert reject.rule == "broker"


# Good ones, next to the bad

GOOD: list[tuple[str, str, bytes]] = [
    ("white space around", "unsubscribe", b" \n\t" + unsubscribe() + b"\r\n"),
    ("exactly as long as allowed", "unsubscribe", unsubscribe().ljust(MOST_BYTES)),
    ("everything asked for", "subscribe", subscribe(where={})),
    ("alternatives", "subscribe", subscribe(where=[{"price": [1, 2]}, {"volume": [3, None]}])),
    ("alternatives for one attribute", "subscribe", where(price=[[1, 2], [5, 6]])),
    ("a negation beside a range", "subscribe", where(price=[1, 2], **{"not": {"symbol": ["IBM"]}})),
    ("a text", "subscribe", subscribe(where="price BETWEEN 10 AND 20 AND (symbol IN ('IBM') OR volume > 500)")),
    ("open ends", "subscribe", where(price=[None, None], volume=[None, 5], seen=["2026-02-01", None])),
    ("a range of one value", "subscribe", where(price=[5, 5])),
    ("the ends of the domain", "subscribe", where(price=[0, 1000], volume=[0, 100_000])),
    ("a set in any order, twice over", "subscribe", where(symbol=["MSFT", "AAPL", "MSFT"])),
    ("sets of categories that multiply", "subscribe", where(one=EVERY_SECOND, two=EVERY_SECOND)),
    ("optional fields that are null", "subscribe", subscribe(ttl=None, rev=None, time=None)),
    ("the longest id", "subscribe", subscribe(id="x" * MOST_NAME)),
    ("the longest client, in two bytes a letter", "unsubscribe", unsubscribe(client="é" * MOST_NAME)),
    ("the largest revision", "unsubscribe", unsubscribe(rev=2**63 - 1)),
    ("revision 0", "unsubscribe", unsubscribe(rev=0)),
    ("a fraction of a second to live", "subscribe", subscribe(ttl=0.5)),
    ("a hundred years to live", "subscribe", subscribe(ttl=MOST_TTL)),
    ("a time with offset", "unsubscribe", unsubscribe(time="2026-05-01T02:00:00.000001+02:00")),
    ("a whole number written as double", "publish", at(volume=150.0)),
    ("a whole number for a float", "publish", at(price=12)),
    ("minus zero", "publish", at(price=-0.0)),
    ("an exponent", "publish", at(volume=0).replace(b'"volume": 0', b'"volume": 1e5')),
    ("no payload", "publish", publish(payload=WITHOUT)),
    ("null as payload", "publish", publish(payload=None)),
    ("an object as payload", "publish", publish(payload={"a": {"a": [1, {"b": None}]}, "b": "a"})),
    ("a payload that looks like names", "publish", publish(payload='"id": "id": "at":')),
    ("the longest payload", "publish", publish(payload="x" * (MOST_PAYLOAD - 2))),
    ("letters of all kinds", "subscribe", subscribe(id="s\u2603\U0001f600", client='a"\\\n')),
    ("names escaped", "unsubscribe", rb'{"\u0069d": "s1", "client": "ann"}'),
]


@pytest.mark.parametrize(("kind", "value"), [(k, v) for _, k, v in GOOD], ids=[what for what, *_ in GOOD])
def test_a_good_record_is_a_message(kind: str, value: bytes) -> None:
    kinds = {"subscribe": Subscribe, "unsubscribe": Unsubscribe, "publish": Publish}
    message = result(kind, value)
    assert isinstance(message, kinds[kind]), message


def test_a_subscribe_says_who_wants_what_since_when_and_for_how_long() -> None:
    value = subscribe(rev=3, time="1970-01-01T00:00:05Z", ttl=2.5)
    boxes = boxes_where(SPACE, {"price": [10, 20], "volume": [100, None]})
    stamp, written = Stamp(3, 5_000_000, 0, OFFSET), b'{"price":[10,20],"volume":[100,null]}'
    assert result("subscribe", value) == Subscribe(
        Name("oslo", "ann", "s1"), boxes, stamp, ttl=2_500_000, where=written
    )


def test_a_subscribe_without_time_is_as_old_as_its_arrival() -> None:
    message = result("subscribe", subscribe(ttl=1), "paris")
    assert isinstance(message, Subscribe)
    assert message.name.broker == "paris"
    assert message.stamp == Stamp(None, ARRIVED, 0, OFFSET)
    assert message.ttl == 1_000_000


def test_a_set_with_a_gap_is_several_boxes() -> None:
    message = result("subscribe", where(symbol=["MSFT", "AAPL"]))
    assert isinstance(message, Subscribe)
    assert [(box.lo[2], box.hi[2]) for box in message.boxes] == [(0, 1), (2, 3)]


def test_an_unsubscribe_names_the_same_subscription() -> None:
    stamp = Stamp(4, ARRIVED, 0, OFFSET)
    assert result("unsubscribe", unsubscribe(rev=4)) == Unsubscribe(Name("oslo", "ann", "s1"), stamp)


def test_a_publication_is_a_point_and_its_payload_as_it_was_written() -> None:
    value = publish(payload="?", time="1970-01-01T00:00:05Z").replace(b'"?"', b'{"a" :  1.50}')
    where_from = ("43", "oslo", 0, ARRIVED)
    assert result("publish", value) == Publish("p1", SPACE.point(AT), b'{"a" :  1.50}', 5_000_000, *where_from)
    assert result("publish", publish(payload=WITHOUT)) == Publish("p1", SPACE.point(AT), None, ARRIVED, *where_from)


def test_a_publication_has_the_headers_of_its_record() -> None:
    headers = (("trace", b"7"), ("trace", b"\xff"))
    message = read(CONTEXT, "publish", "paris", publish(), Source(2, 9, "3/9", ARRIVED), headers)
    assert isinstance(message, Publish)
    assert (message.headers, message.key, message.entry, message.arrived) == (headers, "3/9", "paris", ARRIVED)


def test_a_stamp_has_the_rank_of_its_channel() -> None:
    message = read(CONTEXT, "unsubscribe", "oslo", unsubscribe(), Source(3, 9, "", ARRIVED))
    assert message == Unsubscribe(Name("oslo", "ann", "s1"), Stamp(None, ARRIVED, 3, 9))


def test_a_time_to_live_is_never_nothing() -> None:
    message = result("subscribe", subscribe(ttl=1e-9))
    assert isinstance(message, Subscribe)
    assert message.ttl == 1


def test_keys_of_the_largest_ints_survive() -> None:
    whole = Context(Space((Attribute("n", "int", -LARGEST_INT, LARGEST_INT),)), ("oslo",))
    message = read(whole, "subscribe", "oslo", where(n=[-LARGEST_INT, LARGEST_INT]), SOURCE)
    assert isinstance(message, Subscribe)
    assert message.boxes == (Box((-LARGEST_INT,), (LARGEST_INT + 1,)),)
    event = publish(at={"n": 2**53 + 1}, payload=WITHOUT)
    found = read(whole, "publish", "oslo", event, SOURCE)
    assert isinstance(found, Publish)
    assert found.point == (2**53 + 1,)


# Lines of a file


def line(kind: object, event: bytes, broker: object = "oslo") -> bytes:
    return json.dumps({"kind": kind, "broker": broker}).encode()[:-1] + b", " + event[1:]


each_kind = pytest.mark.parametrize(
    ("kind", "event"), [("subscribe", SUBSCRIBE), ("unsubscribe", UNSUBSCRIBE), ("publish", PUBLISH)], ids=KINDS
)


@each_kind
def test_a_line_is_the_event_with_its_kind_and_broker(kind: str, event: dict[str, Any]) -> None:
    value = json.dumps(event).encode()
    assert read_line(CONTEXT, line(kind, value), ARRIVED, OFFSET) == (kind, "oslo", result(kind, value))


WHOLE = [(r, w, k, v) for r, w, k, v in BAD if v.startswith(b'{"') and r != "size" and "kind" not in w]


@pytest.mark.parametrize(
    ("rule", "kind", "value"), [(r, k, v) for r, _, k, v in WHOLE], ids=[f"{r}: {w}" for r, w, *_ in WHOLE]
)
def test_a_bad_event_in_a_line_is_rejected_by_the_same_rule(rule: str, kind: str, value: bytes) -> None:
    reject = read_line(CONTEXT, line(kind, value), ARRIVED, OFFSET)[2]
    assert isinstance(reject, Reject)
    assert reject.rule == rule


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("json", b""),
        ("json", b"{"),
        ("json", b"[]"),
        ("json", b"null"),
        ("json", DEEP),
        ("utf8", b'{"kind": "\xff"}'),
        ("finite", b'{"kind": NaN}'),
        ("kind", b"{}"),
        ("kind", line("nonsense", publish())),
        ("kind", line(5, publish())),
        ("kind", line(["publish"], publish())),
        ("kind", line(None, publish())),
        ("broker", line("publish", publish(), "rome")),
        ("broker", line("publish", publish(), None)),
        ("broker", line("publish", publish(), {"oslo": 1})),
        ("broker", b'{"kind": "publish", ' + publish()[1:]),
        ("size", line("publish", publish()).ljust(MOST_BYTES + 1)),
        ("duplicate", b'{"kind": "subscribe", ' + line("publish", publish())[1:]),
        ("duplicate", b'{"broker": "paris", ' + line("publish", publish(payload=WITHOUT))[1:]),
    ],
)
def test_a_bad_line_is_rejected_by_its_rule(rule: str, text: bytes) -> None:
    reject = read_line(CONTEXT, text, ARRIVED, OFFSET)[2]
    assert isinstance(reject, Reject)
    assert reject.rule == rule


# Whatever comes


def safe(kind: str, value: bytes) -> None:
    for found in (result(kind, value), read_line(CONTEXT, value, ARRIVED, OFFSET)[2]):
        assert not isinstance(found, Reject) or (found.rule in RULES and found.rule != "unexpected"), found


@given(st.sampled_from(KINDS), st.binary())
@example("publish", b"\xff\xfe\x00")
@example("subscribe", b'{"id":"\x00')
def test_no_bytes_raise(kind: str, value: bytes) -> None:
    safe(kind, value)


numbers = st.integers() | st.floats() | st.integers(-(10**400), 10**400)
jsons: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


def almost(event: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An event with some of its fields, and fields of its filter or point, replaced by anything."""
    fields = st.dictionaries(
        st.sampled_from([*event, "rev", "ttl", "time", "where", "at", "payload"]), jsons, max_size=2
    )
    inner = st.dictionaries(
        st.sampled_from([*AT, "other"]), jsons | st.lists(jsons, min_size=2, max_size=2), max_size=3
    )

    def put(drawn: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
        made = {**event, **drawn[0]}
        for field in ("where", "at"):
            if isinstance(made.get(field), dict):
                made[field] = {**made[field], **drawn[1]}
        return made

    return st.tuples(fields, inner).map(put)


@given(st.sampled_from(KINDS), jsons)
def test_no_json_raises(kind: str, value: Any) -> None:
    safe(kind, json.dumps(value).encode())


@each_kind
@given(st.data())
def test_no_event_that_is_almost_good_raises(kind: str, event: dict[str, Any], data: st.DataObject) -> None:
    value = json.dumps(data.draw(almost(event))).encode()
    safe(kind, value)
    safe(kind, line(kind, value))


@pytest.mark.parametrize("good", [("subscribe", subscribe()), ("publish", publish(payload={"a": "b", "c": 1}))])
@given(st.integers(0, 300), st.binary(max_size=3))
def test_no_damaged_event_raises(good: tuple[str, bytes], where_: int, damage: bytes) -> None:
    kind, value = good
    k = where_ % len(value)
    safe(kind, value[:k] + damage + value[k + 1 :])


def test_no_depth_raises() -> None:
    """Readers stop at different depths; between two limits one reads what the other cannot."""
    for depth in (*range(900, 1100, 1), 5000, 50_000):
        nested = b"[" * depth + b"]" * depth
        safe("publish", publish(payload="?").replace(b'"?"', b'{"a": 1, "b": ' + nested + b"}"))
        safe("subscribe", subscribe(where={"price": "?"}).replace(b'"?"', nested))


def test_a_number_longer_than_python_reads_does_not_raise_and_is_judged_alike_wherever_it_stands() -> None:
    plain, inside = (publish(payload="?").replace(b'"?"', form % DIGITS) for form in (b"%s", b'{"a": 1, "b": %s}'))
    safe("publish", plain)
    safe("publish", inside)
    assert type(result("publish", plain)) is type(result("publish", inside))
    safe("publish", at(price=0).replace(b'"price": 0', b'"price": ' + DIGITS))
    safe("subscribe", subscribe(rev=0).replace(b'"rev": 0', b'"rev": ' + DIGITS))


# What nobody thought of


class Broken(bytes):
    """Bytes that cannot be measured."""

    error: type[Exception] = ArithmeticError

    def __len__(self) -> int:
        raise self.error("on purpose")


class OutOfMemory(Broken):
    error = MemoryError


class Unsound(Broken):
    error = InvariantError


def test_an_exception_that_nobody_thought_of_is_a_reject_that_names_it() -> None:
    value = Broken(publish())
    rejects = [result("publish", value), read_line(CONTEXT, Broken(line("publish", value)), ARRIVED, OFFSET)[2]]
    assert rejects == [Reject("unexpected", "ArithmeticError was raised while the event was read")] * 2


def test_the_stream_goes_on_where_the_stack_ends() -> None:
    """A filter as text needs some depth of Python's stack; where there is too little, that is the event's end only."""

    def deep(frames: int) -> Message | Reject:
        return deep(frames - 1) if frames else result("subscribe", subscribe(where="price < 5 OR volume > 3"))

    left = sys.getrecursionlimit() - len(inspect.stack())
    assert isinstance(deep(left // 2), Subscribe)
    assert deep(left - 14) == Reject("unexpected", "RecursionError was raised while the event was read")


@pytest.mark.parametrize("kind", [OutOfMemory, Unsound])
def test_what_no_event_is_to_blame_for_is_raised(kind: type[Broken]) -> None:
    with pytest.raises(kind.error):
        result("publish", kind(publish()))


@pytest.mark.parametrize("digits", [b"9" * 400, b"-" + b"9" * 5001])
def test_a_reject_is_short_and_in_our_words_however_long_the_number(digits: bytes) -> None:
    for kind, value in (
        ("publish", at(volume="?").replace(b'"?"', digits)),
        ("subscribe", subscribe(rev="?").replace(b'"?"', digits)),
        ("subscribe", subscribe(ttl="?").replace(b'"?"', digits)),
        ("subscribe", subscribe(id="?").replace(b'"?"', digits)),
    ):
        reject = result(kind, value)
        assert isinstance(reject, Reject)
        assert len(reject.message) < 300 and "set_int_max_str_digits" not in reject.message


@pytest.mark.parametrize("payload", [b"1e300", b"0.0001e311", b'"1e999"', b"9" * 400, b'{"f7e123": 1}', b"1e-999"])
def test_a_payload_that_only_looks_too_large_is_accepted(payload: bytes) -> None:
    assert isinstance(result("publish", publish(payload="?").replace(b'"?"', payload)), Publish)


# The list of rules


def named_rules(path: str) -> set[str]:
    """The rules that a module names where it refuses something, as far as they are written out there."""
    rules: set[str] = set()
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("_Refused", "ValueRefused", "Reject")
        ):
            rules |= {str(part.value) for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)}
    return rules


def test_every_rule_in_the_code_is_documented_and_no_other() -> None:
    written = {rule for module in (events, frame, ledger, space, where_module) for rule in named_rules(module.__file__)}
    assert len(written) > 15
    assert written <= set(RULES)
    assert set(RULES) - written == {"id", "client"}, "those two are the names of fields"
    assert all(text and not text.endswith(".") for text in RULES.values())
