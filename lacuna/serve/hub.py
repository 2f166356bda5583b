"""The hub: who listens, and what each of them is to get. It lives in the event loop.

    came ──▶ catching up ──at the tail's offset──▶ live ──▶ gone
                 ▲                                  │
                 └── a new life, a jump of the tail ┘
                     or more than 256 kB pending

Catching up and being live give the same sequence (`cursor`), so a listener may go from one to the other at any record.
It goes live in the very moment in which it has read up to where the tail is: no record can be between.

A listener that takes its deliveries more slowly than they come has at most `MOST_PENDING` bytes in memory. What is
beyond stays in Kafka: the listener catches up, paced by its socket, and holds up nobody. One that takes nothing for
`PATIENCE` seconds is disconnected, and resumes by its last id.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from access.errors import KafkaFailed
from lacuna.serve.auth import Auth, Caller
from lacuna.serve.catchup import CatchUp
from lacuna.serve.cursor import Cursor, Stretch, stretches
from lacuna.serve.problems import Problem
from lacuna.serve.tail import Batch, Tail
from producers.judging import Judgement
from state.config import Kafka

MOST_PENDING = 256 * 1024
MOST_STREAMS = 5_000
MOST_IN_ALL = 256 * 1024 * 1024
"""Bytes for all listeners together, beyond which nobody catches up."""
LONGEST_WAIT = 1.0
PATIENCE = 30.0
EVERY = 15.0
"""Seconds after which a listener that got nothing gets its id, which also tells whether it is there."""
CHANNEL = re.compile(r"[^\s,:]{1,300}")
"""What a channel may be called: an id must be read again. The router's are; who else writes there may try anything."""
RETRY = b"retry: 1000\n"

log = logging.getLogger(__name__)


class Head(msgspec.Struct):
    """What the gateway needs to know of a delivery."""

    epoch: int
    channel: str
    seq: int


_decode = msgspec.json.Decoder(Head).decode
Send = Callable[[bytes], Awaitable[None]]


def head_of(value: bytes | None) -> Head | None:
    """Return what a record says; None if it is no delivery."""
    try:
        head = _decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return head if CHANNEL.fullmatch(head.channel) else None


def frame_of(id: str, record: Any) -> bytes:
    """Return a delivery as an event of a stream.

    >>> from types import SimpleNamespace
    >>> frame_of("1.0.5.", SimpleNamespace(value=b'{"payload":[1,\\n2]}', headers=[("source", b"/desk")]))
    b'id: 1.0.5.\\ndata: {"payload":[1, 2],"headers":{"source":"/desk"}}\\n\\n'
    """
    value: bytes = record.value
    if b"\n" in value or b"\r" in value:
        value = b" ".join(value.splitlines())  # outside of its strings JSON takes a space for a line break
    if record.headers:
        headers = {key: (text or b"").decode(errors="replace") for key, text in record.headers}
        value = value.rstrip()[:-1] + b',"headers":' + json.dumps(headers, separators=(",", ":")).encode() + b"}"
    return b"id: %s\ndata: %s\n\n" % (id.encode(), value)


class Listener:
    """One stream of one client."""

    __slots__ = ("abort", "caller", "closed", "cursor", "key", "live", "pending", "quiet", "size", "wake")

    def __init__(self, caller: Caller, client: str, cursor: Cursor | None, abort: Callable[[], None]) -> None:
        self.caller, self.key, self.cursor, self.abort = caller, client.encode(), cursor, abort
        self.live: int | None = None
        """The partition from whose tail it is fed."""
        self.pending: list[bytes] = []
        self.size, self.quiet, self.closed = 0, True, ""
        self.wake = asyncio.Event()

    def push(self, frame: bytes) -> None:
        """Add something to be sent."""
        self.pending.append(frame)
        self.size += len(frame)
        self.quiet = False
        self.wake.set()


class Hub:
    """All listeners of this gateway."""

    def __init__(self, kafka: Kafka, auth: Auth) -> None:
        self._auth, self._catchup, self._tail = auth, CatchUp(kafka), Tail(kafka, self._take)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[Listener] = set()
        self._streams: Counter[str] = Counter()
        self._live: defaultdict[int, dict[bytes, list[Listener]]] = defaultdict(dict)
        self._wanted: Counter[int] = Counter()
        self._at: dict[int, int] = {}
        self._judgement = Judgement()
        self._news = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None
        self._draining = False
        self.delivered = 0
        self.closed: Counter[str] = Counter()

    # The gateway's side

    def start(self) -> None:
        """Begin; called in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._ticker = self._loop.create_task(self._tick())
        self._tail.start()

    def drain(self) -> None:
        """Let all streams end: their listeners go on at another gateway."""
        self._draining = True
        for listener in self._listeners:
            self._close(listener, "drained")
        self._news.set()

    async def stop(self) -> None:
        """End the threads."""
        if self._ticker is not None:
            self._ticker.cancel()
        await asyncio.to_thread(self._tail.stop)
        await asyncio.to_thread(self._catchup.close)

    @property
    def streams(self) -> int:
        """How many listeners there are."""
        return len(self._listeners)

    @property
    def pending(self) -> int:
        """How many bytes wait to be sent."""
        return sum(listener.size for listener in self._listeners)

    # One listener

    def admit(self, listener: Listener) -> None:
        """Count a new listener. Raises `Problem` if there are too many."""
        if self._draining:
            raise Problem(503, "limit", "the gateway is about to end", "connect again", {"Retry-After": "1"})
        if len(self._listeners) >= MOST_STREAMS:
            raise Problem(503, "limit", f"there are {MOST_STREAMS:,} streams", "try later", {"Retry-After": "10"})
        most = listener.caller.limits.streams
        if self._streams[listener.caller.key] >= most:
            raise Problem(429, "limit", f"the client has {most} streams", "end one of them", {"Retry-After": "10"})
        self._listeners.add(listener)
        self._streams[listener.caller.key] += 1
        self._want()

    def leave(self, listener: Listener) -> None:
        """Forget a listener."""
        self._unplug(listener)
        self._listeners.discard(listener)
        self._streams[listener.caller.key] -= 1
        if not self._streams[listener.caller.key]:
            del self._streams[listener.caller.key]
        self.closed[listener.closed or "left"] += 1
        self._want()

    async def serve(self, listener: Listener, send: Send) -> None:
        """Send a listener what is for it, until it or the gateway ends. It must have been admitted."""
        held: int | None = None
        first, oldest = True, listener.cursor is not None and listener.cursor.epoch == 0
        try:
            while (stretch := await self._stretch(listener)) is not None:
                held = self._hold(held, stretch.partition if stretch.end is None else None)
                end = await self._at_of(listener, stretch.partition) if stretch.end is None else stretch.end
                if listener.cursor is None:  # from now on
                    listener.cursor = Cursor(stretch.epoch, stretch.partition, end)
                elif oldest:
                    await self._go_to_oldest(listener.cursor, end)
                    oldest = listener.cursor.offset == end
                if first:
                    await self._send(listener, send, RETRY + _id_frame(listener.cursor))
                    first = False
                else:
                    await self._go_on(listener, listener.cursor, stretch, end, send)
        finally:
            self._hold(held, None)

    async def _go_on(self, listener: Listener, cursor: Cursor, stretch: Stretch, end: int, send: Send) -> None:
        """Be live if the cursor is where the tail is; else read one slice, or wait for the tail."""
        if cursor.offset < end:
            while self.pending > MOST_IN_ALL:
                await self._wait()
            await self._send_counted(listener, send, await self._slice(listener, cursor, end))
        elif cursor.offset > end:  # another gateway has read further than this one, or Kafka was made again
            if lost := await self._reposition(cursor, stretch):
                await self._send(listener, send, lost)
            else:
                await self._wait()
        elif self._is_at_tail(listener, stretch, end):
            await self._be_live(listener, stretch.partition, send)

    def _is_at_tail(self, listener: Listener, stretch: Stretch, end: int) -> bool:
        """Return whether the tail is still there, and in that life, so that a listener may go live without a gap."""
        newest = stretches(listener.key, self._judgement.lives)[-1:]
        return newest == [stretch] and self._at.get(stretch.partition) == end and not listener.closed

    async def _stretch(self, listener: Listener) -> Stretch | None:
        """Return where the listener is to read; wait for the first life, if need be. None: the listener ends."""
        while not listener.closed:
            there = stretches(listener.key, self._judgement.lives)
            if listener.cursor is None and there:
                return there[-1]
            found = None if listener.cursor is None else listener.cursor.settle(there)
            if found is not None:
                return found
            if self._judgement.ends is not None and listener.cursor is None:
                listener.cursor = Cursor()  # nothing has begun yet: from now on is from the beginning
            await self._wait()
        return None

    async def _at_of(self, listener: Listener, partition: int) -> int:
        """Return how far the tail has read a partition; wait until it reads it."""
        while partition not in self._at and not listener.closed:
            await self._wait()
        return self._at.get(partition, 0)

    async def _wait(self) -> None:
        """Wait for news from the tail."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT):
                await self._news.wait()

    async def _send(self, listener: Listener, send: Send, data: bytes) -> None:
        """Send something now. A listener that does not take it in time is disconnected."""
        if not data or listener.closed:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await send(data)
        except TimeoutError:
            self._close(listener, "slow")
            listener.abort()

    async def _be_live(self, listener: Listener, partition: int, send: Send) -> None:
        """Send what the tail brings, until the listener has to catch up, or ends."""
        self._plug(listener, partition)
        try:
            while listener.live is not None or listener.pending:
                await listener.wake.wait()
                listener.wake.clear()
                data = b"".join(listener.pending)
                listener.pending.clear()
                await self._send(listener, send, data)
                listener.size -= len(data)
        finally:
            self._unplug(listener)

    async def _send_counted(self, listener: Listener, send: Send, data: bytes) -> None:
        """Send something that was not pending before, and count it meanwhile."""
        listener.size += len(data)
        try:
            await self._send(listener, send, data)
        finally:
            listener.size -= len(data)

    async def _slice(self, listener: Listener, cursor: Cursor, end: int) -> bytes:
        """Read on from the cursor, up to an end at most, and move the cursor. Return what is to be sent."""
        try:
            found = await self._catchup.read(cursor.partition, cursor.offset, end)
        except KafkaFailed as error:
            log.warning("a listener waits for Kafka: %s", error)
            await asyncio.sleep(1)
            return b""
        frames = [_lost_frame(cursor, found.begin)] if found.begin > cursor.offset else []
        for record in found.records.get(listener.key, ()):
            head = head_of(record.value) if record.offset >= cursor.offset else None
            if head is not None and head.epoch == cursor.epoch and self._admits(record, head):
                frames += self._taken(cursor, record, head)
        cursor.offset = max(cursor.offset, found.next)
        return b"".join((*frames, _id_frame(cursor)))

    async def _reposition(self, cursor: Cursor, stretch: Stretch) -> bytes:
        """Go to an offset that there is. Return an event that says what is lost, if anything is."""
        try:
            span = await self._catchup.span(cursor.partition)
        except KafkaFailed as error:
            log.warning("a listener waits for Kafka: %s", error)
            return b""
        begin = max(span.first, stretch.begin)
        return b"" if begin <= cursor.offset <= span.next else _lost_frame(cursor, begin)

    async def _go_to_oldest(self, cursor: Cursor, end: int) -> None:
        """Go to the first record that there is, up to an end. Nothing is lost that nobody asked for."""
        with suppress(KafkaFailed):
            cursor.offset = max(cursor.offset, min((await self._catchup.span(cursor.partition)).first, end))

    def _admits(self, record: Any, head: Head) -> bool:
        return self._judgement.admits(record.partition, record.offset, head.epoch, head.seq)

    def _taken(self, cursor: Cursor, record: Any, head: Head) -> Iterator[bytes]:
        if cursor.take(record.offset, head.channel, head.seq):
            self.delivered += 1
            yield frame_of(cursor.text(), record)

    # From the tail

    def _take(self, batch: Batch, done: Callable[[], None]) -> None:
        """Take a batch, in the thread of the tail."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._dispatch, batch, done)
        except RuntimeError:  # the loop has ended
            done()

    def _dispatch(self, batch: Batch, done: Callable[[], None]) -> None:
        """Hand the records of a batch to the listeners that are live."""
        try:
            if batch.judgement.lives != self._judgement.lives:
                self._catch_up_again(set(self._live))
            self._judgement = batch.judgement if self._listeners else Judgement()
            self._catch_up_again(set(batch.jumped))
            for record in batch.records:
                listeners = self._live[record.partition].get(record.key) if record.key is not None else None
                if listeners:
                    self._offer(record, listeners)
            self._at = {number: at for number, at in batch.at.items() if number in self._wanted}
        finally:
            news, self._news = self._news, asyncio.Event()
            news.set()
            if self._draining:
                self._news.set()
            done()

    def _offer(self, record: Any, listeners: list[Listener]) -> None:
        head = head_of(record.value)
        if head is None or not self._admits(record, head):
            return
        for listener in list(listeners):
            cursor = listener.cursor
            assert cursor is not None
            if head.epoch != cursor.epoch:
                continue
            if listener.size > MOST_PENDING:
                cursor.offset = record.offset
                self._unplug(listener)
                continue
            for frame in self._taken(cursor, record, head):
                listener.push(frame)

    def _catch_up_again(self, partitions: set[int]) -> None:
        """Let the listeners of some partitions catch up by themselves from where the tail was until now."""
        for partition in partitions:
            for listeners in list(self._live[partition].values()):
                for listener in list(listeners):
                    assert listener.cursor is not None
                    listener.cursor.offset = self._at.get(partition, listener.cursor.offset)
                    self._unplug(listener)

    # Who is where

    def _plug(self, listener: Listener, partition: int) -> None:
        listener.live = partition
        self._live[partition].setdefault(listener.key, []).append(listener)

    def _unplug(self, listener: Listener) -> None:
        partition, listener.live = listener.live, None
        if partition is not None:
            others = self._live[partition][listener.key]
            others.remove(listener)
            if not others:
                del self._live[partition][listener.key]
            listener.wake.set()

    def _hold(self, before: int | None, now: int | None) -> int | None:
        """Note that a listener needs the tail of another partition than before."""
        if before != now:
            for partition, change in ((before, -1), (now, 1)):
                if partition is not None:
                    self._wanted[partition] += change
            self._wanted = +self._wanted
            self._want()
        return now

    def _want(self) -> None:
        """Tell the tail what to read, and forget what it will not know any more."""
        self._at = {number: at for number, at in self._at.items() if number in self._wanted}
        if not self._listeners:
            self._judgement = Judgement()
        self._tail.want(frozenset(self._wanted) if self._listeners else None)

    def _close(self, listener: Listener, reason: str) -> None:
        listener.closed = listener.closed or reason
        self._unplug(listener)
        listener.wake.set()

    async def _tick(self) -> None:
        """From time to time, tell quiet listeners where they are, and end those whose token is gone."""
        while True:
            await asyncio.sleep(EVERY)
            for listener in list(self._listeners):
                if not self._auth.stands(listener.caller):
                    self._close(listener, "revoked")
                elif listener.live is not None and listener.quiet and listener.cursor is not None:
                    listener.cursor.offset = max(listener.cursor.offset, self._at.get(listener.live, 0))
                    listener.push(_id_frame(listener.cursor))
                listener.quiet = True


def _id_frame(cursor: Cursor) -> bytes:
    return b"id: %s\n\n" % cursor.text().encode()


def _lost_frame(cursor: Cursor, offset: int) -> bytes:
    """Go to the next offset that there is. Return the event that says what is lost."""
    lost = {"partition": cursor.partition, "from": cursor.offset, "to": offset}
    cursor.offset = offset
    return b"event: lost\nid: %s\ndata: %s\n\n" % (cursor.text().encode(), json.dumps(lost).encode())
