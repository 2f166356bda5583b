"""The deliveries of one client, each once.

The router writes at least once: after a crash the topic may hold some deliveries again. It numbers them per `channel`,
1, 2, 3 ..., and states its `epoch`, which life of the system this is. One client sees only some of the numbers of a
channel, but in order, because its key keeps them in one partition:

    channel oslo, epoch 7    1  4  5 | crash | 4  5  9       a reader of this client
                             ✓  ✓  ✓           ·  ·  ✓       ✓ handed out   · at or below the highest seen: a repeat

So the reader keeps the highest number for every (partition, epoch, channel). Per partition, because a client's key may
move when partitions are added, and between partitions there is no order.

Not everything in the topic is the router's: after each poll that brought something for the client, the reader asks by
what to judge it (`judging`).

Only the partitions are read in which the router puts the client's deliveries, which is one for each life with another
number of partitions; where no life was announced, all. Other clients' records are passed over by their key, undecoded.
Every `REFRESH` seconds the reader asks whether there are new lives and partitions, and begins each partition at its
first record: nobody can have read it before.

A `bookmark` stores how far the reader is in Kafka: the offset of each partition and, as the offset's metadata, the
highest numbers, in one commit, so that repeats are recognised after a restart too. It is no consumer group: it belongs
to one client and to one reader at a time. Two readers with the same bookmark would each get every delivery, and the
later commit would win. A delivery counts as taken when the next one is asked for, or at a clean end; after a crash of
the reader, what was not stored yet comes again (at least once, at most the records of one poll). A partition that the
bookmark does not know is newer than it, and begins at its first record.

Kafka deletes records after a time (retention). Where the next record to be read is gone, the reader goes on with the
first that is left and reports a `Gap`: to `on_gap`, or else as a warning in the log.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
from kafka import TopicPartition
from kafka.errors import KafkaError, LogTruncationError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata

from access import DEADLINE
from access.connection import connect_consumer
from access.errors import KafkaFailed, Unreachable, failed
from access.topics import topic_missing
from producers.judging import DELIVERIES, Judge, Judgement, homes_of
from state.config import NAME, NAME_RULE, Kafka
from state.errors import ConfigError
from state.protocol.messages import Headers
from state.protocol.topics import Topics

SLICE = 0.25
"""Seconds of one poll, and the longest time until `stop` is noticed."""
REFRESH = 5.0
"""Seconds after which a reader asks again which partitions there are."""
MOST_METADATA = 4096
"""Kafka refuses longer metadata of an offset (`offset.metadata.max.bytes`)."""

log = logging.getLogger(__name__)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One publication for one subscription of the client; `headers` are the Kafka headers of the publication."""

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
    headers: Headers = ()


class Gap(NamedTuple):
    """Records of one partition that can no longer be read: `start` is the offset wanted, `end` the next one there is.

    Records of all clients count, so the client itself has lost that many deliveries at most, and maybe none.

    >>> print(Gap("lacuna.deliveries", 2, 40, 100))
    topic 'lacuna.deliveries', partition 2: the records from 40 to 99 were deleted before they were read. Remedy: read \
more often, or raise retention.ms of the topic.
    >>> print(Gap("lacuna.deliveries", 2, 100, 0))
    topic 'lacuna.deliveries', partition 2: the next record was to be 100, but Kafka has lost records or the topic was \
made again; reading goes on at 0. Remedy: find out what happened to the topic.
    """

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        where = f"topic {self.topic!r}, partition {self.partition}"
        if self.start > self.end:
            return (
                f"{where}: the next record was to be {self.start}, but Kafka has lost records or the topic was made "
                f"again; reading goes on at {self.end}. Remedy: find out what happened to the topic."
            )
        return (
            f"{where}: the records from {self.start} to {self.end - 1} were deleted before they were read. "
            "Remedy: read more often, or raise retention.ms of the topic."
        )


def warn_of(gap: Gap) -> None:
    """Write a gap into the log."""
    log.warning("%s", gap)


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

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Drop the marks of epochs that are not wanted."""
        self._marks = {key: seq for key, seq in self._marks.items() if wanted(key[0])}

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
    """An iterator over one client's deliveries, for `for` and for `async for`.

    When it is there, it listens: what comes from now on is seen.

    `from_beginning`  also what is in the topic already (default: only what comes from now on)
    `timeout`         end after so many seconds without a delivery, once all that was there is read; default: never
    `bookmark`        store progress under this name, and go on from it; the first time, as `from_beginning` says
    `on_gap`          called with each `Gap`; whatever it raises ends the iteration (default: a warning in the log)
    `deadline`        seconds that Kafka may take to answer
    """

    def __init__(
        self,
        kafka: Kafka,
        client: str,
        *,
        from_beginning: bool = False,
        timeout: float | None = None,
        bookmark: str | None = None,
        on_gap: Callable[[Gap], object] = warn_of,
        deadline: float = DEADLINE,
    ) -> None:
        self._kafka, self._deadline, self._on_gap = kafka, deadline, on_gap
        self._topic = Topics(kafka.prefix).deliveries
        self._key = client.encode()
        self._timeout = math.inf if timeout is None else timeout
        self._bookmark = None if bookmark is None else bookmark_id(kafka.prefix, bookmark, client)
        self._judge = Judge(kafka, deadline)
        self._judgement = Judgement()
        self._polled: list[Any] = []
        self._repeats: dict[int, Repeats] = {}
        self._taken: dict[int, int] = {}
        self._fresh = False
        self._handed: tuple[int, int, Delivery] | None = None
        self._records: deque[Any] = deque()
        self._gaps: deque[Gap] = deque()
        self._behind: dict[int, int] = {}
        self._lost: set[int] = set()
        self._waited = 0.0
        self._refreshed = time.monotonic()
        self._stopped = self._closed = False
        self._thread: ThreadPoolExecutor | None = None
        self._polling: Future[None] | None = None
        self._consumer = connect_consumer(kafka.bootstrap, deadline, self._bookmark, reset="none", refresh=REFRESH)
        try:
            self._start(from_beginning=from_beginning)
        except BaseException:
            self._consumer.close()
            self._judge.close()
            raise

    # Where to begin

    def _start(self, *, from_beginning: bool) -> None:
        try:
            numbers = self._wanted()
            first, ends = self._spans(numbers)
            stored = self._stored(numbers)
            known = bool(stored)  # a partition that a bookmark lacks came after it
            begin = first if from_beginning or known else ends
            self._read_from({number: begin[number] for number in numbers} | stored, first, ends)
        except KafkaError as error:
            raise failed(self._kafka.bootstrap, self._deadline, error) from None
        self._behind = {number: end for number, end in ends.items() if self._taken[number] < end}

    def _wanted(self) -> set[int]:
        """Return the partitions that may hold deliveries of the client."""
        there = set(self._consumer.partitions_for_topic(self._topic) or ())
        if not there:
            raise topic_missing(self._kafka.bootstrap, self._topic, self._deadline)
        homes = homes_of(self._key, self._judge.lives())
        return there if homes is None else homes & there

    def _spans(self, numbers: set[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Return the first offset of each partition, and the offset after its last record."""
        partitions, wait = [self._partition(number) for number in numbers], round(self._deadline * 1000)
        first = self._consumer.beginning_offsets(partitions, timeout_ms=wait)
        ends = self._consumer.end_offsets(partitions, timeout_ms=wait)
        return {p.partition: first[p] for p in partitions}, {p.partition: ends[p] for p in partitions}

    def _stored(self, numbers: set[int]) -> dict[int, int]:
        """Return the offsets that the bookmark holds, and take over its marks."""
        if self._bookmark is None:
            return {}
        self._fresh = True  # the first commit makes "from now on" hold for the next reader with this bookmark too
        found = {}
        for number in numbers:
            wait = round(self._deadline * 1000)
            stored = self._consumer.committed(self._partition(number), metadata=True, timeout_ms=wait)
            if stored:
                self._repeats[number] = Repeats.parse(stored.metadata or "")
                found[number] = int(stored.offset)
        return found

    def _read_from(self, wanted: dict[int, int], first: dict[int, int], ends: dict[int, int]) -> None:
        """Read these partitions too, each from the wanted offset or the nearest that there is."""
        self._consumer.assign([self._partition(number) for number in {*self._taken, *wanted}])
        for number, offset in sorted(wanted.items()):
            self._repeats.setdefault(number, Repeats())
            self._go_to(number, offset, offset if first[number] <= offset <= ends[number] else first[number])

    def _go_to(self, number: int, wanted: int, offset: int) -> None:
        """Read a partition from an offset on, which is a gap if another one was wanted."""
        if offset != wanted:
            self._gaps.append(Gap(self._topic, number, wanted, offset))
            self._fresh = self._bookmark is not None
        self._consumer.seek(self._partition(number), offset)
        self._taken[number] = offset

    def _partition(self, number: int) -> Any:
        return TopicPartition(self._topic, number)

    # One delivery after another

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        self._settle()
        if self._polling is not None:  # left by an `async for` that was cancelled
            self._polling.result()
            self._polling = None
        until = time.monotonic() + self._timeout
        while not self._stopped:
            delivery = self._next_new()
            if delivery is not None:
                return delivery
            if not self._waits(until):
                break
            self._fetch(until)
            if self._behind:
                until = time.monotonic() + self._timeout
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        """As `__next__`; a thread waits for Kafka meanwhile. May be cancelled: the next call goes on."""
        self._settle()
        until = time.monotonic() + self._timeout
        while not self._stopped:
            delivery = None if self._polling else self._next_new()
            if delivery is not None:
                return delivery
            if not self._polling and not self._waits(until):
                break
            await self._fetch_aside(until)
            if self._behind:
                until = time.monotonic() + self._timeout
        raise StopAsyncIteration

    async def _fetch_aside(self, until: float) -> None:
        """Fetch in the reader's own thread. A fetch that was cancelled is still under way, and is waited for first."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "deliveries")
        if self._polling is None:
            self._polling = self._thread.submit(self._fetch, until)
        polling = self._polling
        try:
            await asyncio.shield(asyncio.wrap_future(polling))
        finally:
            if polling.done():
                self._polling = None

    def _waits(self, until: float) -> bool:
        """Return whether to wait for more. Before all that was there at the start is read, yes."""
        if not self._behind:
            return time.monotonic() < until
        if self._waited > self._deadline:
            self._waited = 0.0
            raise Unreachable(self._kafka.bootstrap, self._deadline)
        return True

    def _next_new(self) -> Delivery | None:
        """Return the next delivery among the records that are here, and report gaps."""
        while self._gaps:
            self._on_gap(self._gaps.popleft())
        records, key, repeats = self._records, self._key, self._repeats
        while records:
            record = records.popleft()
            delivery = self._read(record) if record.key == key else None
            if (
                delivery is not None
                and self._judgement.admits(record.partition, record.offset, delivery.epoch, delivery.seq)
                and not repeats[record.partition].has(delivery.epoch, delivery.channel, delivery.seq)
            ):
                self._handed = record.partition, record.offset + 1, delivery
                return delivery
            self._took(record.partition, record.offset + 1)
        return None

    def _read(self, record: Any) -> Delivery | None:
        try:
            delivery = _decode(record.value or b"")
        except msgspec.DecodeError as error:
            place = f"{record.topic}, partition {record.partition}, offset {record.offset}"
            log.warning("%s: passed over, not a delivery: %s", place, error)
            return None
        if record.headers:
            msgspec.structs.force_setattr(delivery, "headers", tuple((k, v or b"") for k, v in record.headers))
        return delivery

    # Fetching

    def _fetch(self, until: float) -> None:
        """Store progress, look for new partitions, and wait shortly for records."""
        self._commit()
        self._add_new_partitions()
        began = time.monotonic()
        wait = SLICE if self._behind else min(SLICE, max(0.0, until - began))
        try:
            for records in self._consumer.poll(timeout_ms=round(wait * 1000)).values():
                self._polled.extend(records)
            self._look_at_control()
            self._records.extend(self._polled)
            self._polled.clear()
            self._catch_up()
        except OffsetOutOfRangeError as error:
            self._lost |= {partition.partition for partition in error.args[0]}
        except LogTruncationError as error:
            self._lost |= {partition.partition for partition in error.divergent_offsets}
        except KafkaError as error:
            raise KafkaFailed(
                f"topic {self._topic!r}: Kafka at {self._kafka.bootstrap} cannot be read: {error}. "
                "Remedy: read the error; then listen again, which goes on from the bookmark if there is one."
            ) from None
        if self._lost:
            self._reposition()
        self._waited = 0.0 if self._records else self._waited + time.monotonic() - began

    def _look_at_control(self) -> None:
        """Learn by what to judge the records that were polled; those not judged yet wait for the next fetch."""
        if any(record.key == self._key for record in self._polled):
            self._judgement = self._judge.look(self._taken.keys())

    def _catch_up(self) -> None:
        """Forget the partitions that have reached the end seen at the start.

        Positions count, not records: the last offsets of a partition may be marks of transactions.
        """
        for number, end in list(self._behind.items()):
            position = self._consumer.position(self._partition(number), timeout_ms=0)
            if position is not None and position >= end:
                del self._behind[number]

    def _reposition(self) -> None:
        """Go to the first record of each partition whose position Kafka does not have: deleted, lost, or made again.

        That loses nothing, and what comes again is recognised by its number.
        """
        try:
            first, ends = self._spans(self._lost)
        except KafkaError:
            return  # the next fetch tries again
        for number in self._lost:
            self._go_to(number, self._taken[number], first[number])
            if number in self._behind:
                self._behind[number] = min(self._behind[number], ends[number])
        self._lost = set()

    def _add_new_partitions(self) -> None:
        """From time to time, see whether there are new lives or partitions, and read these from their first record."""
        if time.monotonic() < self._refreshed + REFRESH:
            return
        self._refreshed = time.monotonic()
        try:
            new = self._wanted() - self._taken.keys()
        except Unreachable as error:
            log.warning("%s: new partitions cannot be looked for yet: %s", self._topic, error)
            return
        if new:
            try:
                first, ends = self._spans(new)
                self._read_from(first, first, ends)
            except KafkaError as error:
                log.warning("%s: new partitions cannot be read yet: %s", self._topic, error)

    # How far

    def _settle(self) -> None:
        """Count the delivery that was handed out as taken."""
        if self._handed is not None:
            number, offset, delivery = self._handed
            self._handed = None
            self._repeats[number].mark(delivery.epoch, delivery.channel, delivery.seq)
            self._took(number, offset)

    def _took(self, number: int, offset: int) -> None:
        self._taken[number] = offset
        self._fresh = self._bookmark is not None

    def _commit(self) -> None:
        """Store how far we are. If Kafka cannot now, the next time will do."""
        if not self._fresh:
            return
        for number in self._taken:
            self._forget_ended_lives(number)
        places = {
            self._partition(number): OffsetAndMetadata(offset, self._repeats[number].text(), -1)
            for number, offset in self._taken.items()
        }
        try:
            self._consumer.commit(places, timeout_ms=round(self._deadline * 1000))
            self._fresh = False
        except KafkaError as error:
            log.warning("progress of %s is not stored yet: %s", self._bookmark, error)

    def _forget_ended_lives(self, number: int) -> None:
        """Drop the marks of lives that have ended before the next record of a partition."""
        lives, offset = self._judgement.lives, self._taken[number]
        self._repeats[number].keep(lambda epoch: lives.judge(epoch, DELIVERIES, number, offset) == "valid")

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
            if self._thread is not None:
                self._thread.shutdown()  # a fetch that was cancelled is still under way
            self._commit()
            self._consumer.close()
            self._judge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """After an error in the body the delivery at hand is not taken: with a bookmark it comes again."""
        if kind is None:
            self.close()
        else:
            self._finish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """As `__exit__`, without blocking the event loop."""
        await asyncio.to_thread(self.__exit__, kind, error, None)


def bookmark_id(prefix: str, bookmark: str, client: str) -> str:
    """Return the name under which Kafka stores a bookmark. It is of one client, since others pass over its deliveries.

    >>> bookmark_id("lacuna", "desk", "ann")
    'lacuna/desk/ann'
    """
    if not NAME.fullmatch(bookmark):
        raise ConfigError("bookmark", bookmark, NAME_RULE, "rename it")
    return f"{prefix}/{bookmark}/{client}"
