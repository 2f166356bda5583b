"""Messages as bytes: on links, in parcels between the stages of a batch, and in the log of a group's state.

A message is a MessagePack array whose first element says what it is. Boxes and points are int64, little-endian, in one
piece, so that reading them is one `frombuffer`.

    subscribe     [0, broker, client, id, boxes, rev, time, place, expires, tree, exact]
    unsubscribe   [1, broker, client, id, rev, time, place]
    publish       [2, id, point, payload, time]
    ranges        [3, broker, client, id, added, removed]

From a neighbour there is no stamp: `time` is then null. `tree` and `exact` are null but for Boolean filters.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from state.filters.trees import pack_tree, unpack_tree
from state.geometry.boxes import Boxes, stack, unstack
from state.protocol.messages import Message, Name, Publish, Range, RangeChange, Stamp, Subscribe, Unsubscribe

_encode = msgspec.msgpack.Encoder().encode


class PackedSubscribe(msgspec.Struct, array_like=True, tag=0):
    broker: str
    client: str
    id: str
    boxes: bytes
    rev: int | None
    time: int | None
    place: int
    expires: int | None
    tree: bytes | None = None
    exact: bytes | None = None


class PackedUnsubscribe(msgspec.Struct, array_like=True, tag=1):
    broker: str
    client: str
    id: str
    rev: int | None
    time: int | None
    place: int


class PackedPublish(msgspec.Struct, array_like=True, tag=2):
    id: str
    point: bytes
    payload: bytes | None
    time: int


class PackedRangeChange(msgspec.Struct, array_like=True, tag=3):
    broker: str
    client: str
    id: str
    added: bytes
    removed: bytes


Packed = PackedSubscribe | PackedUnsubscribe | PackedPublish | PackedRangeChange


def pack(message: Message) -> Packed:
    """A message as a value that MessagePack can carry."""
    if isinstance(message, Publish):
        point = np.array(message.point, "<i8").tobytes()
        return PackedPublish(message.id, point, message.payload, message.moment)
    if isinstance(message, RangeChange):
        return PackedRangeChange(*message.name, pack_ranges(message.added), pack_ranges(message.removed))
    rev, time, place = message.stamp or (None, None, 0)
    if isinstance(message, Unsubscribe):
        return PackedUnsubscribe(*message.name, rev, time, place)
    trees = (None if tree is None else pack_tree(tree) for tree in (message.tree, message.exact))
    return PackedSubscribe(*message.name, pack_boxes(message.boxes), rev, time, place, message.expires, *trees)


def unpack(packed: Packed, dims: int) -> Message:
    """The message that was packed."""
    if isinstance(packed, PackedPublish):
        point = tuple(np.frombuffer(packed.point, "<i8").tolist())
        return Publish(packed.id, point, packed.payload, packed.time)
    name = Name(packed.broker, packed.client, packed.id)
    if isinstance(packed, PackedRangeChange):
        return RangeChange(name, unpack_ranges(packed.added), unpack_ranges(packed.removed))
    stamp = None if packed.time is None else Stamp(packed.rev, packed.time, packed.place)
    if isinstance(packed, PackedUnsubscribe):
        return Unsubscribe(name, stamp)
    trees = (None if tree is None else unpack_tree(tree, dims) for tree in (packed.tree, packed.exact))
    return Subscribe(name, unpack_boxes(packed.boxes, dims), stamp, packed.expires, *trees)


def pack_boxes(boxes: Boxes) -> bytes:
    """Boxes as bytes."""
    return stack(boxes, len(boxes[0].lo)).astype("<i8").tobytes()


def unpack_boxes(packed: bytes, dims: int) -> Boxes:
    """The boxes that were packed."""
    return unstack(np.frombuffer(packed, "<i8").astype(np.int64).reshape(-1, 2, dims))


def pack_ranges(ranges: tuple[Range, ...]) -> bytes:
    """Ranges as bytes."""
    return np.array(ranges, "<i8").tobytes()


def unpack_ranges(packed: bytes) -> tuple[Range, ...]:
    """The ranges that were packed."""
    ends = np.frombuffer(packed, "<i8").tolist()
    return tuple(zip(ends[::2], ends[1::2], strict=True))


class Letter(msgspec.Struct, array_like=True):
    """Messages of one channel in order, numbered from `first`, from a sender in its `epoch`."""

    epoch: int
    first: int
    messages: list[Packed]


_read_letter = msgspec.msgpack.Decoder(Letter).decode


def write_letter(epoch: int, first: int, messages: Iterable[Packed]) -> bytes:
    """A run of messages as one record on a link."""
    return _encode(Letter(epoch, first, list(messages)))


def read_letter(record: bytes) -> Letter:
    """The run of messages in a record."""
    return _read_letter(record)
