"""Clients' events: JSON in, a message or a reject out. Strict, so that nothing doubtful reaches the routing.

    subscribe    {"id": "s1", "client": "ann", "where": {"price": [10, 20]}, "ttl": 60, "rev": 3, "time": "..."}
                 `where` has other forms too, text among them: see `where`
    unsubscribe  {"id": "s1", "client": "ann", "rev": 4, "time": "..."}
    publish      {"id": "p1", "at": {"price": 12.5}, "payload": "anything", "time": "..."}

Each may also have an `ack`: its client is told when it has had its effect everywhere (`notices`).

An event that cannot be accepted becomes a `Reject` with the rule that it broke. A reject is data, not an error of ours:
it is recorded, and the stream goes on. `RULES` lists every rule; each is tested.

Decoding is done by msgspec into the typed structs below: it refuses NaN, infinities and numbers beyond a double. Where
it fails, a second, slower look finds out which rule that was. JSON with a name twice in one object is refused too
(which of the two was meant?); that look is taken only where more names are written than were decoded, and last, so that
an event of a million names is refused for what they are before they are compared.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

import msgspec

from state.errors import InvariantError, nearest, shown
from state.filters.where import Asked, asked
from state.protocol.messages import Headers, Message, Name, Publish, Stamp, Subscribe, Unsubscribe
from state.space import Space, ValueRefused, timestamp_key

EventKind = Literal["subscribe", "unsubscribe", "publish"]
KINDS: tuple[EventKind, ...] = ("subscribe", "unsubscribe", "publish")

MOST_BYTES = 1 << 20
MOST_PAYLOAD = 1 << 16
MOST_NAME = 256
MOST_TTL = 100 * 366 * 86400
INT64 = 1 << 63
ABSENT = (None, msgspec.Raw())
"""The values of a field that was not given."""
NAMED = re.compile(rb'"\s*:')
FAR = re.compile(rb"[0-9][eE]\+?[0-9]{3}|[0-9]{200}")
"""Signs of a number that not every reader takes: an exponent of three digits, or 200 digits. Only a payload is searched
for them, because it is not decoded."""
MOST_DIGITS = 4300
"""Python and msgspec read no longer whole numbers, the sign included."""

RULES = {
    "ack": "an ack is a string of 1 to 256 characters",
    "attribute": "a publication names every attribute of the space, a subscription no other",
    "broker": "the key is the name of a broker of the overlay",
    "category": "a category's value is one of those declared",
    "client": "a client is a string of 1 to 256 characters",
    "deep": "a filter is nested at most 32 deep and has at most 1,024 predicates",
    "domain": "a value lies inside the domain of its attribute",
    "duplicate": "no name stands twice in one JSON object",
    "empty": "a set of categories, or a list of alternatives, is not empty",
    "field": "an event has no fields but those documented",
    "filter": "a filter is an object of ranges, a list of alternatives, or a text",
    "finite": "a number is finite: no NaN, no infinity",
    "foreign": "a record of an internal topic was written by this system",
    "fraction": "the value of an int attribute is a whole number",
    "id": "an id is a string of 1 to 256 characters",
    "inverted": "the low end of a range is not above its high end",
    "json": "a value is one JSON object",
    "kind": "an event is a subscribe, unsubscribe or publish",
    "missing": "an event has all the fields it needs",
    "nothing": "a filter holds for some point of the space",
    "order": "categories have no order: they are compared by =, <> and IN",
    "payload": "a payload is not longer than 65,536 bytes",
    "quota": "a client has no more subscriptions, and a subscription no more boxes, than [limits] allows",
    "range": "a range is a list of two ends",
    "rev": "a revision is a whole number from 0 below 2^63, at most a day of microseconds ahead of what is known",
    "size": "a value is not longer than 1,048,576 bytes",
    "stale": "a change of a subscription is later than what is known of it",
    "syntax": "a filter as text follows the grammar, in at most 65,536 characters",
    "time": "a time is an ISO 8601 timestamp, for a subscription at most a day ahead",
    "timestamp": "the value of a timestamp attribute is ISO 8601, no finer than a microsecond",
    "ttl": "a time to live is a number of seconds above 0, up to a hundred years",
    "type": "a value has the type of its field",
    "unexpected": "an event is read without an error of the router's own",
    "utf8": "a value is UTF-8",
    "work": "a filter is read in at most 49,152 steps",
}


@dataclass(frozen=True, slots=True)
class Reject:
    """A refused event: the rule it broke, and what in it did."""

    rule: str
    message: str


class Refused(msgspec.Struct, array_like=True, frozen=True):
    """A record of a topic that was refused: where it is, the value (its beginning, if it is long), and why.

    `key` is the key of the record, `arrived` when Kafka took it.
    """

    topic: str | None
    partition: int
    offset: int
    value: bytes
    rule: str
    message: str
    key: str | None = None
    arrived: int = 0


class Said(NamedTuple):
    """What can be read of an event that was refused: whose it is, its id and `ack`, and the producer's moment."""

    client: str | None = None
    id: str | None = None
    ack: str | None = None
    time: int | None = None


class _Said(msgspec.Struct):
    client: Any = None
    id: Any = None
    ack: Any = None
    time: Any = None


_decode_said = msgspec.json.Decoder(_Said).decode


def said_in(value: bytes) -> Said:
    """Return what can be read of a refused event.

    >>> said_in(b'{"client": "ann", "id": 7, "time": "1970-01-01T00:00:01Z"}')
    Said(client='ann', id=None, ack=None, time=1000000)
    """
    try:
        said = _decode_said(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Said()
    client, id, ack = (one if isinstance(one, str) else None for one in (said.client, said.id, said.ack))
    return Said(client, id, ack, _moment(said.time))


def _moment(value: object) -> int | None:
    try:
        return timestamp_key(value) if isinstance(value, str) else None
    except ValueRefused:
        return None


class _Refused(Exception):
    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class _Subscribe(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    client: str
    where: Any
    ttl: Any = None
    rev: Any = None
    time: Any = None
    ack: Any = None


class _Unsubscribe(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    client: str
    rev: Any = None
    time: Any = None
    ack: Any = None


class _Publish(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    at: dict[str, Any]
    payload: msgspec.Raw = msgspec.Raw()
    time: Any = None
    ack: Any = None


class _Line(msgspec.Struct):
    """The fields of a line of an events file besides the event: the topic and the key that it would have in Kafka."""

    kind: Any = None
    broker: Any = None


class _SubscribeLine(_Subscribe, kw_only=True, forbid_unknown_fields=True):
    kind: Any
    broker: Any


class _UnsubscribeLine(_Unsubscribe, kw_only=True, forbid_unknown_fields=True):
    kind: Any
    broker: Any


class _PublishLine(_Publish, kw_only=True, forbid_unknown_fields=True):
    kind: Any
    broker: Any


Found = TypeVar("Found")
Decoders = dict[str, Callable[[bytes], Any]]
_EVENTS: Decoders = {
    kind: msgspec.json.Decoder(struct).decode
    for kind, struct in zip(KINDS, (_Subscribe, _Unsubscribe, _Publish), strict=True)
}
_LINES: Decoders = {
    kind: msgspec.json.Decoder(struct).decode
    for kind, struct in zip(KINDS, (_SubscribeLine, _UnsubscribeLine, _PublishLine), strict=True)
}
_NEEDED = {
    struct: sum(field.required for field in msgspec.structs.fields(struct))
    for struct in (_Subscribe, _Unsubscribe, _Publish, _SubscribeLine, _UnsubscribeLine, _PublishLine)
}
"""The number of fields that an event must have."""
_decode_line = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Context:
    """Where events are read: the space and the brokers they must fit."""

    space: Space
    brokers: Collection[str]


class Source(NamedTuple):
    """Where an event comes from: the rank of its channel, its offset, its key (`Publish.key`), when it arrived.

    The moment of arrival (microseconds) stands in for a missing `time`.
    """

    rank: int
    offset: int
    key: str
    arrived: int


def read(
    context: Context, kind: str, broker: object, value: bytes, source: Source, headers: Headers = ()
) -> Message | Reject:
    """Read one event. Return its message, or the reject that it is."""
    return _guarded(lambda: _read(context, kind, broker, value, source, _EVENTS, headers))


def read_line(context: Context, line: bytes, arrived: int, offset: int) -> tuple[object, object, Message | Reject]:
    """Read one line of an events file. Return its kind, its broker and the message, or the reject that it is.

    A file is one channel, so all its lines have one rank. The key of a publication is the number of its line.
    """
    head = _guarded(lambda: _head(line))
    if isinstance(head, Reject):
        return None, None, head
    kind, broker, source = head.kind, head.broker, Source(0, offset, str(offset + 1), arrived)
    return kind, broker, _guarded(lambda: _read(context, kind, broker, line, source, _LINES, ()))


def read_where(space: Space, where: bytes) -> Asked | Reject:
    """Read a filter again that a client wrote in an event before."""
    return _guarded(lambda: asked(space, msgspec.json.decode(where)))


def _guarded(look: Callable[[], Found]) -> Found | Reject:
    """Return what `look` returns, or a reject where it raises.

    An exception that nobody thought of is a reject too: the event stays in the log, so raised again at every attempt
    it would stop the stream at this offset for good. What no event is to blame for stops it rightly.
    """
    try:
        return look()
    except (_Refused, ValueRefused) as refused:
        return Reject(refused.rule, str(refused))
    except (InvariantError, MemoryError):
        raise
    except Exception as error:
        return Reject("unexpected", f"{type(error).__name__} was raised while the event was read")


def _head(line: bytes) -> _Line:
    try:
        return _decode_line(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        _explain("", line, None)


def _read(
    context: Context,
    kind: object,
    broker: object,
    value: bytes,
    source: Source,
    decoders: Decoders,
    headers: Headers,
) -> Message:
    if not isinstance(kind, str) or kind not in decoders:
        raise _Refused("kind", f"{shown(kind)} is not one of {', '.join(KINDS)}")
    if not isinstance(broker, str) or broker not in context.brokers:
        hint = nearest(broker, context.brokers) if isinstance(broker, str) else ""
        raise _Refused("broker", f"{shown(broker)} is not a broker of the overlay ({', '.join(context.brokers)}){hint}")
    if len(value) > MOST_BYTES:
        raise _Refused("size", f"the value has {len(value)} bytes, more than {MOST_BYTES}")
    event = _decode(kind, value, decoders)
    message = _message(context, kind, broker, event, source, headers)
    if _may_repeat(event, value):
        _refuse_duplicates(value)
    return message


def _message(context: Context, kind: str, broker: str, event: Any, source: Source, headers: Headers) -> Message:
    if kind == "publish":
        return _publish(context, event, broker, source, headers)
    name = Name(broker, _name(event.client, "client"), _name(event.id, "id"))
    stamp = Stamp(_rev(event.rev), _time(event.time, source.arrived), source.rank, source.offset)
    if kind == "unsubscribe":
        return Unsubscribe(name, stamp, ack=_ack(event.ack))
    ttl = None if event.ttl is None else _ttl(event.ttl)
    wanted = asked(context.space, event.where)
    shape = wanted.tree, wanted.exact, _encode(event.where)
    return Subscribe(name, wanted.boxes, stamp, ttl, *shape, ack=_ack(event.ack))


def _publish(context: Context, event: _Publish, broker: str, source: Source, headers: Headers) -> Publish:
    payload = bytes(event.payload) or None
    if payload is not None and len(payload) > MOST_PAYLOAD:
        raise _Refused("payload", f"the payload has {len(payload)} bytes, more than {MOST_PAYLOAD}")
    if payload is not None:
        text = _text(payload)
        if FAR.search(payload):
            _load(text, far=True)
    id, point, time = _name(event.id, "id"), context.space.point(event.at), _time(event.time, source.arrived)
    return Publish(id, point, payload, time, source.key, broker, 0, source.arrived, headers, _ack(event.ack))


def _name(value: str, rule: str) -> str:
    if not 1 <= len(value) <= MOST_NAME:
        raise _Refused(rule, f"{rule} has {len(value)} characters; 1 to {MOST_NAME} are allowed")
    return value


def _ack(value: object) -> str | None:
    if value is not None and not (isinstance(value, str) and 1 <= len(value) <= MOST_NAME):
        raise _Refused("ack", f"ack = {shown(value)} is not a string of 1 to {MOST_NAME} characters")
    return value


def _rev(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < INT64:
        raise _Refused("rev", f"rev = {shown(value)} is not a whole number from 0 below 2^63")
    return value


def _ttl(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_TTL:
        raise _Refused("ttl", f"ttl = {shown(value)} is not a number of seconds above 0, up to {MOST_TTL}")
    return max(1, round(value * 1_000_000))


def _time(value: object, arrived: int) -> int:
    if value is None:
        return arrived
    if not isinstance(value, str):
        raise _Refused("time", f"time = {shown(value)} is not an ISO 8601 timestamp")
    try:
        return timestamp_key(value)
    except ValueRefused as refused:
        raise _Refused("time", str(refused)) from None


def _decode(kind: str, value: bytes, decoders: Decoders) -> Any:
    try:
        return decoders[kind](value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _explain(kind, value, error, more=() if decoders is _EVENTS else ("kind", "broker"))


def _may_repeat(event: Any, value: bytes) -> bool:
    """Could a name stand twice in an object? Only if more names are written than were decoded."""
    inner = event.at if isinstance(event, _Publish) else getattr(event, "where", None)
    names = len(inner) if isinstance(inner, dict) else 0
    if value.count(b":") <= _NEEDED[type(event)] + names:
        return False  # the usual event, seen at a glance
    given = sum([value not in ABSENT for value in msgspec.structs.astuple(event)])
    return len(NAMED.findall(value)) > given + names


def _refuse_duplicates(value: bytes) -> None:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            twice = next(key for key, count in Counter(key for key, _ in items).items() if count > 1)
            raise _Refused("duplicate", f"{shown(twice)} stands twice in one object")
        return found

    try:
        json.loads(_text(value), object_pairs_hook=pairs, parse_int=len)  # numbers may have any number of digits
    except (ValueError, RecursionError) as error:
        raise _Refused("json", f"not JSON: {error}") from None


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no name stands twice: which of the two would be meant?"""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return value


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as broken:
        raise _Refused("utf8", f"byte {broken.start} is not UTF-8") from None


def _explain(kind: str, value: bytes, error: Exception | None, more: tuple[str, ...] = ()) -> NoReturn:
    """Raise the refusal of a value that could not be decoded, with the rule that it broke."""
    event = _load(_text(value), far=FAR.search(value) is not None)
    if not isinstance(event, dict):
        raise _Refused("json", f"a JSON object is needed, not {type(event).__name__}")
    if kind:
        _refuse_fields(kind, event, more)
    raise _Refused("type" if isinstance(error, msgspec.ValidationError) else "json", str(error or "not JSON"))


def _load(text: str, *, far: bool) -> Any:
    """Read JSON as Python does, and refuse what it or another reader does not take.

    NaN and Infinity are not JSON, but Python takes them. 1e400 is JSON, but no double; numbers are looked at one by one
    only if one may be such (`far`).
    """
    decimal, whole = (_finite, _whole) if far else (None, None)
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=decimal, parse_int=whole)
    except (ValueError, RecursionError) as broken:
        raise _Refused("json", f"not JSON: {broken}") from None


def _refuse_constant(word: str) -> NoReturn:
    raise _Refused("finite", f"{word} is not a finite number")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse_constant(digits)


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise _Refused("json", f"a whole number has {len(digits):,} characters, more than {MOST_DIGITS:,}")
    return int(digits)


FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "subscribe": (("id", "client", "where"), ("ttl", "rev", "time", "ack")),
    "unsubscribe": (("id", "client"), ("rev", "time", "ack")),
    "publish": (("id", "at"), ("payload", "time", "ack")),
}
"""The fields of each kind: those it needs, and those it may have."""


def _refuse_fields(kind: str, event: dict[str, Any], more: tuple[str, ...]) -> None:
    needed, optional = FIELDS[kind]
    for field in needed:
        if field not in event:
            raise _Refused("missing", f"{field} is missing")
    for field in event:
        if field not in needed + optional + more:
            raise _Refused("field", f"{shown(field)} is not a field of a {kind} event")
    for field in ("id", "client"):
        if field in needed and not isinstance(event[field], str):
            raise _Refused(field, f"{field} = {shown(event[field])} is not a string")
