"""Messages as bytes: on links, in parcels between the stages of a batch, and in the log of a region's state.

A message is a MessagePack array whose first element says what it is. Boxes and points are int64, little-endian, in one
piece, so that reading them is one `frombuffer`.

    subscribe     [0, name, boxes, stamp, ttl, tree, exact, where, cause, hop, ack]
    unsubscribe   [1, name, stamp, cause, hop, ack]
    publish       [2, id, point, payload, time, key, entry, hop, arrived, headers, ack, echo]
    ranges        [3, name, added, removed, cause, hop]
    echo          [4, region, number]
    answer        [5, echo, deliveries]

A name is [broker, client, id], a stamp [rev, time, rank, offset], a cause [name, change, time, arrived]. From a client
there is no cause, from a neighbour no stamp and no ack; `tree` and `exact` are null but for Boolean filters. Echoes and
answers are their own packed form.
"""

from __future__ import annotations

from struct import pack as pack_numbers
from struct import unpack as unpack_numbers

import msgspec
import numpy as np

from state.curves.hilbert import Ranges
from state.filters.trees import Filter, pack_tree, unpack_tree
from state.geometry.boxes import Boxes, stack, unstack
from state.protocol.messages import (
    Answer,
    Cause,
    Echo,
    Headers,
    Message,
    Name,
    Publish,
    RangeChange,
    Stamp,
    Subscribe,
    Unsubscribe,
)


class PackedSubscribe(msgspec.Struct, array_like=True, tag=0):
    name: Name
    boxes: bytes
    stamp: Stamp | None
    ttl: int | None
    tree: bytes | None
    exact: bytes | None
    where: bytes | None
    cause: Cause | None
    hop: int
    ack: str | None = None


class PackedUnsubscribe(msgspec.Struct, array_like=True, tag=1):
    name: Name
    stamp: Stamp | None
    cause: Cause | None
    hop: int
    ack: str | None = None


class PackedPublish(msgspec.Struct, array_like=True, tag=2):
    id: str
    point: bytes
    payload: bytes | None
    time: int
    key: str
    entry: str
    hop: int
    arrived: int
    headers: Headers = ()
    ack: str | None = None
    echo: Echo | None = None


class PackedRangeChange(msgspec.Struct, array_like=True, tag=3):
    name: Name
    added: bytes
    removed: bytes
    cause: Cause | None
    hop: int


Packed = PackedSubscribe | PackedUnsubscribe | PackedPublish | PackedRangeChange
Carried = Packed | Echo | Answer
"""Everything that a letter carries."""

RANGE_BYTES = 16
EXPIRE, WORK, REBUILD = ".expire", ".work", ".rebuild"
"""Origins of inputs that are no message: time passed, a part of pending work was done, a rebuild was asked for."""


class Input(msgspec.Struct, array_like=True):
    """One input of a broker, as the log of its region keeps it: where it came from, when, and the message."""

    broker: str
    origin: str
    time: int
    message: Packed | None = None


def pack(message: Message) -> Packed:
    """Return the message as a value that MessagePack can carry."""
    match message:
        case Publish():
            p = message
            point = pack_point(p.point)
            where_from = p.key, p.entry, p.hop, p.arrived
            return PackedPublish(p.id, point, p.payload, p.time, *where_from, p.headers, p.ack, p.echo)
        case Subscribe(name, boxes, stamp, ttl, tree, exact, where, cause, hop, ack):
            trees = _pack_tree(tree), _pack_tree(exact)
            return PackedSubscribe(name, pack_boxes(boxes), stamp, ttl, *trees, where, cause, hop, ack)
        case Unsubscribe(name, stamp, cause, hop, ack):
            return PackedUnsubscribe(name, stamp, cause, hop, ack)
        case RangeChange(name, added, removed, cause, hop):
            return PackedRangeChange(name, added, removed, cause, hop)


def unpack(packed: Packed, dims: int) -> Message:
    """Return the message that was packed."""
    match packed:
        case PackedPublish():
            p = packed
            point = unpack_point(p.point)
            where_from = p.key, p.entry, p.hop, p.arrived
            return Publish(p.id, point, p.payload, p.time, *where_from, p.headers, p.ack, p.echo)
        case PackedSubscribe():
            s = packed
            trees = _unpack_tree(s.tree, dims), _unpack_tree(s.exact, dims)
            boxes = unpack_boxes(s.boxes, dims)
            return Subscribe(s.name, boxes, s.stamp, s.ttl, *trees, s.where, s.cause, s.hop, s.ack)
        case PackedUnsubscribe():
            return Unsubscribe(packed.name, packed.stamp, packed.cause, packed.hop, packed.ack)
        case PackedRangeChange():
            return RangeChange(packed.name, packed.added, packed.removed, packed.cause, packed.hop)


def _pack_tree(tree: Filter | None) -> bytes | None:
    return None if tree is None else pack_tree(tree)


def _unpack_tree(packed: bytes | None, dims: int) -> Filter | None:
    return None if packed is None else unpack_tree(packed, dims)


def pack_point(point: tuple[int, ...]) -> bytes:
    """Return a point as bytes."""
    return pack_numbers(f"<{len(point)}q", *point)


def unpack_point(packed: bytes) -> tuple[int, ...]:
    """Return the point that was packed."""
    return unpack_numbers(f"<{len(packed) // 8}q", packed)


def pack_boxes(boxes: Boxes) -> bytes:
    """Return boxes as bytes."""
    return stack(boxes, len(boxes[0].lo)).astype("<i8").tobytes()


def unpack_boxes(packed: bytes, dims: int) -> Boxes:
    """Return the boxes that were packed."""
    return unstack(np.frombuffer(packed, "<i8").astype(np.int64).reshape(-1, 2, dims))


def pack_ranges(ranges: Ranges) -> bytes:
    """Return ranges as bytes, `RANGE_BYTES` each."""
    return ranges.astype("<i8").tobytes()


def unpack_ranges(packed: bytes) -> Ranges:
    """Return the ranges that were packed."""
    return np.frombuffer(packed, "<i8").astype(np.int64).reshape(-1, 2)
