"""Frames and channels: each letter is applied exactly once, in order; a gap stops the job."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.errors import InvariantError
from state.filters.trees import And, Leaf, Or
from state.geometry.boxes import Box
from state.protocol.channel import Receiver, Sender
from state.protocol.events import Reject
from state.protocol.frame import (
    HEAD,
    START,
    VERSION,
    Content,
    Frame,
    Kind,
    Letter,
    Rows,
    bodies_of_letters,
    body_of_rows,
    letter_of,
    read,
    rows_of,
    write,
)
from state.protocol.messages import Cause, Change, Name, Publish, RangeChange, Stamp, Subscribe, Unsubscribe
from state.protocol.wire import Packed, pack, pack_point, pack_ranges, unpack, unpack_point

NAME = Name("oslo", "ann", "s1")
BOXES = (Box((1, -2), (3, 4)), Box((5, 0), (9, 1)))
TREE, EXACT = Or((Leaf(0, 1, 3), Leaf(1, 0, 1))), And((Leaf(0, 1, 9), Leaf(1, -2, 4)))
MESSAGES = [
    Subscribe(NAME, BOXES, Stamp(3, 5, 1, 8), 60, TREE, EXACT, b'"x < 9"'),
    Subscribe(NAME, BOXES[1:], tree=TREE, cause=Cause(NAME, Change.SUBSCRIBE, 8, 9), hop=2),
    Unsubscribe(NAME, Stamp(None, 5, 3, 8)),
    Publish("p1", (1, -2), b'"x"', 5, "3:7", "rome", 2, 6, (("trace", b"\x00"),)),
    Unsubscribe(NAME, None, Cause(NAME, Change.EXPIRE, 8, 9), 3),
    RangeChange(
        NAME,
        pack_ranges(np.array([(1, 2), (5, 5)])),
        pack_ranges(np.array([(9, 12)])),
        Cause(NAME, Change.REPLACE, 8, 9),
        1,
    ),
]


def letters(count: int, epoch: int = 1, channel: str = "oslo>rome") -> list[Letter]:
    """The letters of a channel, each with one message."""
    sender, found = Sender(channel, epoch), []
    for number in range(count):
        body = next(bodies_of_letters([pack(Publish(f"p{number}", (number,)))]))
        frame = read(sender.frame("letter", body, batch=number))
        assert isinstance(frame, Frame)
        letter = letter_of(frame)
        assert isinstance(letter, Letter)
        found.append(letter)
    return found


# frames


def test_a_frame_is_read_as_it_was_written() -> None:
    content = Content(7, 3, "oslo>rome", 4, b"12345678", "letter", b"body")
    value, checksum = write(content)
    assert read(value) == Frame(content, checksum)


def test_a_letter_keeps_every_field_of_its_messages() -> None:
    [body] = bodies_of_letters(map(pack, MESSAGES))
    frame = read(Sender("oslo>rome", 7).frame("letter", body, 3))
    assert isinstance(frame, Frame)
    letter = letter_of(frame)
    assert isinstance(letter, Letter)
    assert [unpack(packed, 2) for packed in letter.messages] == MESSAGES
    assert (letter.epoch, letter.batch, letter.number, letter.previous) == (7, 3, 1, START)
    assert letter.checksum == frame.checksum


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_a_point_is_packed_as_int64_little_endian(keys: list[int]) -> None:
    """The format that stored logs and letters of earlier versions have."""
    packed = pack_point(tuple(keys))
    assert packed == b"".join(key.to_bytes(8, "little", signed=True) for key in keys)
    assert unpack_point(packed) == tuple(keys)


def test_rows_come_back() -> None:
    frame = read(Sender("oslo", 7).frame("rows", body_of_rows("routes", 3, b"stream"), 3))
    assert isinstance(frame, Frame)
    rows = rows_of(frame)
    assert isinstance(rows, Rows)
    assert (rows.table, rows.rows, rows.stream) == ("routes", 3, b"stream")


@given(st.binary() | st.binary().map(lambda data: b"LF\x01" + data))
def test_reading_never_raises(value: bytes) -> None:
    assert isinstance(read(value), Reject)


@given(st.data())
def test_any_changed_byte_is_noticed(data: st.DataObject) -> None:
    value = bytearray(Sender("oslo>rome", 7).frame("letter", b"body", 3))
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    found = read(bytes(value))
    assert isinstance(found, Reject) and found.rule == "foreign"


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_another_version_is_named(version: int) -> None:
    value, _ = write(Content(7, 3, "oslo>rome", 4, b"12345678", "letter", b"body"))
    other = bytearray(value)
    other[HEAD - 1] = version
    found = read(bytes(other))
    assert isinstance(found, Reject) and f"version {version}, this program knows {VERSION}" in found.message


def test_a_letter_or_rows_that_are_none_are_a_reject() -> None:
    kinds: tuple[Kind, ...] = ("letter", "rows")
    for kind in kinds:
        frame = read(Sender("oslo>rome", 7).frame(kind, b"{}", 3))
        assert isinstance(frame, Frame)
        assert isinstance(letter_of(frame), Reject) and isinstance(rows_of(frame), Reject)


@given(st.lists(st.integers(0, 60)), st.integers(1, 200))
def test_letters_are_cut_below_their_limit_and_lose_nothing(sizes: list[int], most: int) -> None:
    """Every message once, in order; only a single message exceeds the limit; a letter ends where no more fits."""
    messages: list[Packed] = [pack(Publish(f"p{k}", (k,), bytes(size))) for k, size in enumerate(sizes)]
    bodies = list(bodies_of_letters(messages, most))
    found: list[Packed] = []
    room: int | None = None
    for body in bodies:
        frame = read(Sender("oslo>rome", 7).frame("letter", body, 3))
        assert isinstance(frame, Frame)
        letter = letter_of(frame)
        assert isinstance(letter, Letter) and letter.messages
        assert len(body) <= most + 5 or len(letter.messages) == 1
        assert room is None or len(msgspec.msgpack.encode(letter.messages[0])) > room
        room = most - (len(body) - 5)
        found += letter.messages
    assert found == messages
    assert len(bodies) == len(messages) or most > 20


def test_a_letter_may_be_exactly_as_long_as_allowed() -> None:
    messages: list[Packed] = [pack(Publish(f"p{k}", (k,))) for k in range(2)]
    both = sum(len(msgspec.msgpack.encode(message)) for message in messages)
    assert [len(list(bodies_of_letters(messages, most))) for most in (both, both - 1)] == [1, 2]


# channels


def test_letters_in_order_are_all_applied() -> None:
    receiver = Receiver("oslo>rome")
    assert all(receiver.accept(letter, 9) is True for letter in letters(5))
    assert receiver.number == 5


@given(st.lists(st.integers(1, 6)))
def test_whatever_is_repeated_each_letter_is_applied_once(repeats: list[int]) -> None:
    receiver, sent, applied = Receiver("oslo>rome"), letters(len(repeats)), []
    for last, back in enumerate(repeats, 1):
        applied += [letter.number for letter in sent[max(0, last - back) : last] if receiver.accept(letter, 99) is True]
    assert applied == list(range(1, len(repeats) + 1))


@pytest.mark.parametrize(("last", "number"), [(0, 2), (1, 3), (5, 9)])
def test_a_gap_stops_and_changes_nothing(last: int, number: int) -> None:
    receiver, sent = Receiver("oslo>rome"), letters(10)
    for letter in sent[:last]:
        receiver.accept(letter, 99)
    before = receiver.number, receiver.checksum
    with pytest.raises(InvariantError, match=f"jumps from letter {last} to {number}.*Remedy"):
        receiver.accept(sent[number - 1], 99)
    assert (receiver.number, receiver.checksum) == before


def test_a_fork_is_refused_at_its_first_new_number() -> None:
    """A restored copy went on by itself: the next letter names another predecessor."""
    receiver, sent = Receiver("oslo>rome"), letters(3)
    other = Sender("oslo>rome", 1, 1, sent[0].checksum)
    forked = [read(other.frame("letter", next(bodies_of_letters([pack(Publish(id, (1,)))])), 0)) for id in "xy"]
    assert all(receiver.accept(letter, 9) for letter in sent[:2])
    for frame, words in zip(forked, ("is not the one that was applied", "does not follow the letter 2"), strict=True):
        assert isinstance(frame, Frame)
        letter = letter_of(frame)
        assert isinstance(letter, Letter)
        refused = receiver.accept(letter, 9)
        assert isinstance(refused, Reject) and refused.rule == "foreign" and words in refused.message
    assert receiver.accept(sent[2], 9) is True


@pytest.mark.parametrize("number", [1, 5, 6, 9])
def test_a_letter_of_a_batch_that_was_not_run_yet_is_refused_whatever_the_number(number: int) -> None:
    receiver = Receiver("oslo>rome", 5, b"checksum")
    refused = receiver.accept(letters(9)[number - 1], number - 1)
    assert isinstance(refused, Reject) and f"batch {number - 1}" in refused.message
    assert (receiver.number, receiver.checksum) == (5, b"checksum")
