"""The deliveries of one client, each once.

The router writes at least once: after a crash the topic may hold some deliveries again. It numbers them per `channel`,
1, 2, 3 ..., and states its `epoch`, its life from an empty checkpoint on. One client sees only some of the numbers of a
channel, but in order, because its key keeps them in one partition:

    channel oslo, epoch 7    1  4  5 | crash | 4  5  9       a reader of this client
                             ✓  ✓  ✓           ·  ·  ✓       ✓ handed out   · at or below the highest seen: a repeat

So the reader keeps the highest number for every (partition, epoch, channel). Per partition, because if ever the number
of partitions is changed, a client's key may move, and between partitions there is no order.

With a `group`, the reader stores how far it is in Kafka: the offset and, as the offset's metadata, the highest numbers,
in one commit, so that repeats are recognised after a restart too. A delivery counts as taken when the next one is asked
for, or at a clean end; after a crash of the reader, what was not stored yet comes again (at least once, at most
the records of one poll).

All partitions are read, and other clients' records are passed over by their key, undecoded: that is right whatever
wrote the topic and however many partitions it has.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec
from kafka import TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from access import DEADLINE
from access.connection import connect_consumer
from access.errors import TopicMissing, Unreachable
from state.config import NAME, NAME_RULE, Kafka
from state.errors import ConfigError
from state.protocol.topics import Topics

SLICE = 0.25
"""Seconds of one poll, and the longest time until `stop` is noticed."""
MOST_METADATA = 4096
"""Kafka refuses longer metadata of an offset (`offset.metadata.max.bytes`)."""

log = logging.getLogger(__name__)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One publication for one subscription of the client."""

    client: str
    subscription: str
    publication: str
    broker: str
    at: dict[str, Any]
    payload: Any = None
    time: str | None = None
    channel: str
    seq: int
    epoch: int
    batch: int | None = None
    publication_key: str | None = None
    entry: str | None = None
    hop: int | None = None


_decode = msgspec.json.Decoder(Delivery).decode

Marks = dict[tuple[int, str], int]


class Repeats:
    """The highest number seen of every (epoch, channel) of one partition.

    >>> repeats = Repeats()
    >>> repeats.mark(7, "oslo", 4)
    >>> repeats.has(7, "oslo", 4), repeats.has(7, "oslo", 9), repeats.has(8, "oslo", 1)
    (True, False, False)
    """

    def __init__(self, marks: Marks | None = None) -> None:
        self._marks: Marks = dict(marks or {})

    def has(self, epoch: int, channel: str, seq: int) -> bool:
        """Return True if this is a repeat."""
        return seq <= self._marks.get((epoch, channel), 0)

    def mark(self, epoch: int, channel: str, seq: int) -> None:
        """This was taken; it becomes the channel's latest, which matters to `text`."""
        highest = max(seq, self._marks.pop((epoch, channel), 0))
        self._marks[epoch, channel] = highest

    def text(self, most: int = MOST_METADATA) -> str:
        """The marks as text for `parse`; where they are too many, those of the channels heard of last."""
        marks = [[epoch, channel, seq] for (epoch, channel), seq in self._marks.items()]
        text = _text(marks)
        while len(text.encode()) > most:
            marks = marks[1 + len(marks) // 8 :]
            text = _text(marks)
        return text

    @classmethod
    def parse(cls, text: str) -> Repeats:
        """The inverse of `text`. What was written by someone else has no marks."""
        try:
            marks = msgspec.json.decode(text, type=list[tuple[int, str, int]])
        except msgspec.DecodeError:
            return cls()
        return cls({(epoch, channel): seq for epoch, channel, seq in marks})


def _text(marks: list[list[Any]]) -> str:
    return msgspec.json.encode(marks).decode()


class Deliveries:
    """An iterator over one client's deliveries. When it is there, it listens: what comes from now on is seen.

    `from_beginning`  also what is in the topic already (default: only what comes from now on)
    `timeout`         end after so many seconds without a delivery, once all that was there is read; default: never
    `group`           store progress under this name, and go on from it; the first time, as `from_beginning` says
    `deadline`        seconds that Kafka may take to answer
    """

    def __init__(
        self,
        kafka: Kafka,
        client: str,
        *,
        from_beginning: bool = False,
        timeout: float | None = None,
        group: str | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self._kafka, self._deadline = kafka, deadline
        self._topic = Topics(kafka.prefix).deliveries
        self._key = client.encode()
        self._timeout = math.inf if timeout is None else timeout
        self._group = None if group is None else group_id(kafka.prefix, group, client)
        self._repeats: dict[Any, Repeats] = {}
        self._taken: dict[Any, int] = {}
        self._fresh = False
        self._handed: tuple[Any, int, Delivery] | None = None
        self._records: deque[Any] = deque()
        self._behind: dict[Any, int] = {}
        self._stopped = self._closed = False
        self._consumer = connect_consumer(kafka.bootstrap, deadline, self._group)
        try:
            self._start(from_beginning=from_beginning)
        except BaseException:
            self._consumer.close()
            raise

    # Where to begin

    def _start(self, *, from_beginning: bool) -> None:
        try:
            numbers = self._consumer.partitions_for_topic(self._topic)
            if not numbers:
                raise TopicMissing(self._kafka.bootstrap, self._topic)
            partitions = [TopicPartition(self._topic, number) for number in sorted(numbers)]
            self._consumer.assign(partitions)
            for partition, offset in self._begin(partitions, from_beginning=from_beginning).items():
                self._consumer.seek(partition, offset)
        except KafkaError:
            raise Unreachable(self._kafka.bootstrap, self._deadline) from None

    def _begin(self, partitions: list[Any], *, from_beginning: bool) -> Mapping[Any, int]:
        wait = round(self._deadline * 1000)
        first = self._consumer.beginning_offsets(partitions, timeout_ms=wait)
        ends = self._consumer.end_offsets(partitions, timeout_ms=wait)
        begin = dict(first if from_beginning else ends)
        for partition in partitions:
            self._repeats[partition] = Repeats()
            stored = self._group and self._consumer.committed(partition, metadata=True, timeout_ms=wait)
            if stored:
                self._repeats[partition] = Repeats.parse(stored.metadata or "")
                begin[partition] = self._kept(partition, stored.offset, first[partition])
            self._taken[partition] = begin[partition]
        self._behind = {partition: end for partition, end in ends.items() if begin[partition] < end}
        # The first stored place makes "from now on" hold for the next reader of the group too.
        self._fresh = self._group is not None
        return begin

    def _kept(self, partition: Any, stored: int, first: int) -> int:
        """Return the offset to go on from. Kafka may have deleted records that were not read in time."""
        if stored < first:
            log.warning("%s: %d records were deleted by retention before they were read", partition, first - stored)
        return max(stored, first)

    # One delivery after another

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        self._settle()
        until = time.monotonic() + self._timeout
        while not self._stopped:
            delivery = self._next_new()
            if delivery is not None:
                return delivery
            if time.monotonic() >= until:
                break
            self._commit()
            self._poll(until)
            if self._behind:
                until = time.monotonic() + self._timeout
        raise StopIteration

    def _next_new(self) -> Delivery | None:
        """The next delivery among the records that are here."""
        while self._records:
            record = self._records.popleft()
            partition = TopicPartition(record.topic, record.partition)
            delivery = self._read(record) if record.key == self._key else None
            if delivery is not None and not self._is_repeat(partition, delivery):
                self._handed = partition, record.offset + 1, delivery
                return delivery
            self._took(partition, record.offset + 1)
        return None

    def _read(self, record: Any) -> Delivery | None:
        try:
            return _decode(record.value or b"")
        except msgspec.DecodeError as error:
            place = f"{record.topic}, partition {record.partition}, offset {record.offset}"
            log.warning("%s: passed over, not a delivery: %s", place, error)
            return None

    def _is_repeat(self, partition: Any, delivery: Delivery) -> bool:
        return self._repeats[partition].has(delivery.epoch, delivery.channel, delivery.seq)

    def _poll(self, until: float) -> None:
        """Wait for records, shortly, and see which partitions are still behind what was there at the start."""
        wait = min(SLICE, max(0.0, until - time.monotonic()))
        for partition, records in self._consumer.poll(timeout_ms=round(wait * 1000)).items():
            self._records.extend(records)
            if records[-1].offset + 1 >= self._behind.get(partition, math.inf):
                del self._behind[partition]
        if not self._records:  # the last offsets of a partition may be marks of transactions, which are no records
            self._behind.clear()

    # How far

    def _settle(self) -> None:
        """Count the delivery that was handed out as taken."""
        if self._handed is not None:
            partition, offset, delivery = self._handed
            self._handed = None
            self._repeats[partition].mark(delivery.epoch, delivery.channel, delivery.seq)
            self._took(partition, offset)

    def _took(self, partition: Any, offset: int) -> None:
        self._taken[partition] = offset
        self._fresh = self._group is not None

    def _commit(self) -> None:
        """Store how far we are. If Kafka cannot now, the next time will do."""
        if not self._fresh:
            return
        places = {
            partition: OffsetAndMetadata(offset, self._repeats[partition].text(), -1)
            for partition, offset in self._taken.items()
        }
        try:
            self._consumer.commit(places, timeout_ms=round(self._deadline * 1000))
            self._fresh = False
        except KafkaError as error:
            log.warning("progress of %s is not stored yet: %s", self._group, error)

    # The end

    def stop(self) -> None:
        """End the iteration soon; may be called from another thread or a signal handler."""
        self._stopped = True

    def close(self) -> None:
        """Count what was handed out as taken, store progress, and end."""
        self._settle()
        self._finish()

    def _finish(self) -> None:
        if not self._closed:
            self._closed = self._stopped = True
            self._commit()
            self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """After an error in the body the delivery at hand is not taken: with a group it comes again."""
        if kind is None:
            self.close()
        else:
            self._finish()


def group_id(prefix: str, group: str, client: str) -> str:
    """The name under which Kafka stores progress: of this client alone, since others pass over its deliveries.

    >>> group_id("lacuna", "desk", "ann")
    'lacuna/desk/ann'
    """
    if not NAME.fullmatch(group):
        raise ConfigError("group", group, NAME_RULE, "rename it")
    return f"{prefix}/{group}/{client}"
