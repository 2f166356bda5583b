"""A cursor: every delivery once, wherever a stream breaks, whatever the topic repeats, through lives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from access.connection import partition_of
from lacuna.serve.cursor import Cursor, stretches
from lacuna.serve.hub import RETRY, _id_frame, frame_of
from producers.judging import Judgement
from state.protocol.control import Life, Lives

CLIENT = b"ann"
CHANNELS = ("oslo", "rome")


class Kept(NamedTuple):
    """A record of the topic: a delivery of the client, or (`seq` 0) something else."""

    epoch: int
    channel: str
    seq: int


class Topic:
    """Partitions as lists, written in life after life: with repeats, and by routers that were succeeded."""

    def __init__(self) -> None:
        self.partitions: list[list[Kept]] = []
        self.lives: list[Life] = []
        self.expected: list[Kept] = []
        self.next = dict.fromkeys(CHANNELS, 1)

    def begin(self, partitions: int) -> None:
        """Begin a life, with at least as many partitions as before."""
        while len(self.partitions) < partitions:
            self.partitions.append([])
        ends = {str(k): len(part) for k, part in enumerate(self.partitions)}
        self.lives.append(Life(len(self.lives), len(self.lives) + 1, "test", {"deliveries": ends}))
        self.next = dict.fromkeys(CHANNELS, 1)

    @property
    def epoch(self) -> int:
        return len(self.lives)

    @property
    def home(self) -> list[Kept]:
        return self.partitions[partition_of(CLIENT, len(self.lives[-1].ends["deliveries"]))]

    def deliver(self, channel: str, back: int) -> None:
        """Write the last few of a channel again, as after a crash, and then the next."""
        first = max(1, self.next[channel] - back)
        self.home.extend(Kept(self.epoch, channel, n) for n in range(first, self.next[channel] + 1))
        self.expected.append(Kept(self.epoch, channel, self.next[channel]))
        self.next[channel] += 1

    def disturb(self, epoch: int, channel: str) -> None:
        """Write what a router of another life, or a stranger, writes."""
        if epoch != self.epoch:
            self.home.append(Kept(epoch, channel, 3))

    @property
    def judgement(self) -> Judgement:
        ends = {number: len(part) for number, part in enumerate(self.partitions)}
        return Judgement(Lives(tuple(self.lives), tuple(range(len(self.lives)))), ends)


steps = st.one_of(
    st.tuples(st.just("deliver"), st.sampled_from(CHANNELS), st.integers(0, 3)),
    st.tuples(st.just("disturb"), st.integers(0, 4), st.sampled_from(CHANNELS)),
    st.tuples(st.just("begin"), st.integers(0, 3)),
    st.tuples(st.just("other")),
)


def walk(topic: Topic, cursor: Cursor) -> Iterator[Kept | None]:
    """Read on from a cursor, record by record: what a stream hands out, or None."""
    judgement = topic.judgement
    while (stretch := cursor.settle(stretches(CLIENT, judgement.lives))) is not None:
        records = topic.partitions[stretch.partition]
        end = len(records) if stretch.end is None else stretch.end
        if cursor.offset >= end:
            return
        record, handed_out = records[cursor.offset], False
        admitted = record.seq and judgement.admits(stretch.partition, cursor.offset, record.epoch, record.seq)
        if admitted and record.epoch == cursor.epoch:
            handed_out = cursor.take(cursor.offset, record.channel, record.seq)
        else:
            cursor.offset += 1
        yield record if handed_out else None


def read(topic: Topic, cursor: Cursor, most: int) -> list[Kept]:
    """Read on from a cursor, `most` records at most."""
    return [record for record in islice(walk(topic, cursor), most) if record is not None]


@given(st.lists(steps, max_size=40), st.lists(st.integers(1, 5), max_size=40))
def test_each_delivery_comes_once_wherever_the_stream_breaks(
    history: list[tuple[object, ...]], breaks: list[int]
) -> None:
    topic, cursor = Topic(), Cursor()
    topic.begin(2)
    got: list[Kept] = []
    pauses = iter(breaks)
    for name, *words in history:
        match name, words:
            case "deliver", (str(channel), int(back)):
                topic.deliver(channel, back)
            case "disturb", (int(epoch), str(channel)):
                topic.disturb(epoch, channel)
            case "begin", (int(more),):
                topic.begin(len(topic.partitions) + more)
            case _:
                topic.home.append(Kept(topic.epoch, "", 0))
        if (most := next(pauses, 0)) > 0:
            got += read(topic, cursor, most)
            parsed = Cursor.parse(cursor.text())  # the stream breaks here: all that is left is the id
            assert parsed is not None and parsed.text() == cursor.text()
            cursor = parsed
    got += read(topic, cursor, 10**6)
    assert got == topic.expected


def sent(topic: Topic, last: str) -> bytes:
    """Return the bytes that a gateway sends to whoever comes with an id: where that is, then each delivery."""
    cursor = Cursor.parse(last) or Cursor()
    frames = [RETRY + _id_frame(cursor)]
    for record in walk(topic, cursor):
        if record is not None:
            value = json.dumps(record._asdict()).encode()
            frames.append(frame_of(cursor.text(), SimpleNamespace(value=value, headers=[])))
    return b"".join(frames)


def heard(data: bytes) -> tuple[list[Kept], str]:
    """Return the events that a browser makes of bytes, and the id that it keeps: of complete frames alone."""
    found, last = [], ""
    for frame in data.split(b"\n\n")[:-1]:
        fields = dict(line.split(b": ", 1) for line in frame.splitlines())
        last = fields.get(b"id", last.encode()).decode()
        if b"data" in fields:
            found.append(Kept(**json.loads(fields[b"data"])))
    return found, last


def test_a_stream_may_break_after_any_byte() -> None:
    topic = Topic()
    for partitions in (2, 5):
        topic.begin(partitions)
        for channel, back in (("oslo", 0), ("rome", 0), ("oslo", 2), ("oslo", 0), ("rome", 3)):
            topic.deliver(channel, back)
            topic.disturb(9, channel)
    whole = sent(topic, "")
    for cut in range(len(whole) + 1):
        before, last = heard(whole[:cut])
        assert before + heard(sent(topic, last))[0] == topic.expected, whole[:cut]


@given(st.text(max_size=40) | st.from_regex(r"[0-9]{1,3}\.[0-9]\.[0-9]{1,3}\.[a-z:,0-9]*", fullmatch=True))
def test_whatever_is_sent_as_an_id_is_read_or_is_none(text: str) -> None:
    cursor = Cursor.parse(text)
    assert cursor is None or Cursor.parse(cursor.text()) is not None


def test_an_id_of_a_life_that_never_was_begins_with_the_oldest() -> None:
    topic = Topic()
    topic.begin(3)
    topic.deliver("oslo", 0)
    cursor = Cursor(77, 5, 1000, {"oslo": 9})
    assert read(topic, cursor, 9) == topic.expected


def test_a_line_break_in_a_payload_does_not_end_the_event() -> None:
    frame = frame_of("1.0.5.", SimpleNamespace(value=b'{"payload":{\r\n"a":\n1}}', headers=[]))
    assert frame == b'id: 1.0.5.\ndata: {"payload":{ "a": 1}}\n\n'
