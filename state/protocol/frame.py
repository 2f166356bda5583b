"""Frames: the one format of the records that the system writes for itself, on `links` and on `records`.

    bytes 0..1    b"LF"
    byte  2       version of the format
    bytes 3..10   checksum: BLAKE2b of everything behind it
    rest          a MessagePack array: epoch, batch, channel, number, previous, kind, body

`number` counts the frames of a channel 1, 2, 3 ... and `previous` is the checksum of the frame before, so that a fork
of a channel (a restored copy that went on by itself) shows at its first new number, not only as a number used twice.

The body depends on the kind:

    letter    messages of one direction of a link between two regions, in order (`wire`)
    rows      rows of one table: its name, how many, an Arrow stream
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from state.protocol.events import Reject
from state.protocol.wire import Carried

MAGIC = b"LF"
VERSION = 1
HEAD = len(MAGIC) + 1
CHECKSUM = 8
START = bytes(CHECKSUM)
"""The checksum before the first frame of a channel."""
MOST_LETTER = 400_000
"""Bytes of messages in one letter, well below Kafka's limit of 1 MiB a record."""

Kind = Literal["letter", "rows"]


class Content(msgspec.Struct, array_like=True, frozen=True):
    """A frame without its checksum."""

    epoch: int
    batch: int
    channel: str
    number: int
    previous: bytes
    kind: Kind
    body: bytes


class Frame(msgspec.Struct, frozen=True):
    """A frame that was read, its checksum verified."""

    content: Content
    checksum: bytes


class Rows(msgspec.Struct, array_like=True, frozen=True):
    """The body of a frame of rows: how many rows of a table, as an Arrow stream."""

    table: str
    rows: int
    stream: bytes


class Letter(msgspec.Struct, frozen=True):
    """Messages from a neighbouring region, as they arrive: the frame's numbers, and the messages, still packed."""

    epoch: int
    batch: int
    number: int
    previous: bytes
    checksum: bytes
    messages: list[Carried]


_encode = msgspec.msgpack.Encoder().encode
_read_content = msgspec.msgpack.Decoder(Content).decode
_read_messages = msgspec.msgpack.Decoder(list[Carried]).decode
_read_rows = msgspec.msgpack.Decoder(Rows).decode


def checksum_of(data: bytes) -> bytes:
    """Return the checksum of a frame's content as bytes."""
    return hashlib.blake2b(data, digest_size=CHECKSUM).digest()


def write(content: Content) -> tuple[bytes, bytes]:
    """Return the frame as bytes, and its checksum."""
    data = _encode(content)
    checksum = checksum_of(data)
    return MAGIC + bytes([VERSION]) + checksum + data, checksum


def read(value: bytes) -> Frame | Reject:
    """Read a frame. Return a reject for a record that is not a frame, or one of an unknown version. Never raises."""
    if value[: len(MAGIC)] != MAGIC or len(value) < HEAD + CHECKSUM:
        return Reject("foreign", "the record is not a frame of Lacuna")
    if value[len(MAGIC)] != VERSION:
        return Reject("foreign", f"the frame has version {value[len(MAGIC)]}, this program knows {VERSION}")
    checksum, data = value[HEAD : HEAD + CHECKSUM], value[HEAD + CHECKSUM :]
    if checksum_of(data) != checksum:
        return Reject("foreign", "the checksum of the frame does not fit its content")
    try:
        return Frame(_read_content(data), checksum)
    except msgspec.DecodeError as error:
        return Reject("foreign", f"the frame cannot be read: {error}"[:200])


def letter_of(frame: Frame) -> Letter | Reject:
    """Read the letter in a frame."""
    content = frame.content
    try:
        messages = _read_messages(content.body)
    except msgspec.DecodeError as error:
        return Reject("foreign", f"the letter cannot be read: {error}"[:200])
    return Letter(content.epoch, content.batch, content.number, content.previous, frame.checksum, messages)


def rows_of(frame: Frame) -> Rows | Reject:
    """Read the rows in a frame, still packed."""
    content = frame.content
    if content.kind != "rows":
        return Reject("foreign", f"it is a {content.kind} of the channel {content.channel}")
    try:
        return _read_rows(content.body)
    except msgspec.DecodeError as error:
        return Reject("foreign", f"the rows cannot be read: {error}"[:200])


def body_of_rows(table: str, rows: int, stream: bytes) -> bytes:
    """Return the body of a frame of rows."""
    return _encode(Rows(table, rows, stream))


def bodies_of_letters(messages: Iterable[Carried], most: int = MOST_LETTER) -> Iterator[bytes]:
    """Cut messages into bodies of at most `most` bytes, or of a single message."""
    run: list[bytes] = []
    size = 0
    for message in messages:
        packed = _encode(message)
        if run and size + len(packed) > most:
            yield _array(run)
            run, size = [], 0
        run.append(packed)
        size += len(packed)
    if run:
        yield _array(run)


def _array(parts: list[bytes]) -> bytes:
    """Join encoded values into one MessagePack array."""
    return b"\xdd" + len(parts).to_bytes(4, "big") + b"".join(parts)
