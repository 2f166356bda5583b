"""Sending events into Kafka: composed, checked, confirmed.

Kafka confirms later than it is sent to. Events travel in batches (`access.connection`: what comes within 20 ms, up to
128 KiB), and each `send` returns a `Sent`, which can be waited for, awaited, or given a callback.

The sender keeps every event that is not confirmed yet, `window` of them at most: then `send` waits for the older half,
so that memory stays bounded however fast events come. No failure is lost:

    failed, and `place` or `await` has raised it     the caller knows, and it is not raised again
    failed otherwise                                 the next `send`, `flush` or `close` raises it
    not confirmed at the end                         `flush` and `close` raise it, together with all the others

Subscribe and unsubscribe are two topics, and Kafka keeps no order between topics. So a request waits until an earlier
one of the same subscription on the other topic is confirmed: they arrive in the order in which they were sent.

If Kafka refused an event (rather than being late), the order of what follows is no longer certain: all later sends
fail too, until a new sender is made.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple, Self

from kafka.errors import KafkaError, KafkaTimeoutError

from access import DEADLINE
from access.connection import connect_producer
from access.errors import NotConfirmed, NotSent
from access.topics import topic_missing
from producers.compose import Clock, Composer, micros
from state.config import Config
from state.errors import LacunaError
from state.protocol.events import EventKind
from state.protocol.messages import Headers, Name
from state.protocol.notices import Notice
from state.protocol.topics import Topics

PATIENCE = 60.0
"""Seconds to wait for the router's answer unless told otherwise."""
WINDOW = 10_000

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """The position of an event in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True, weakref_slot=True, eq=False)
class Sent:
    """An event on its way. `await` it in a coroutine, or call `place` to wait in a thread."""

    bootstrap: str
    topic: str
    key: str
    value: bytes
    future: Any = None
    raised: bool = False
    """True once the caller has been told that it failed."""
    answer: Callable[[Sent, float], Notice] | None = None
    """Waits for the router's answer; a client's events have it."""

    def put(self, producer: Any, deadline: float, headers: Headers = ()) -> None:
        """Hand the event to the producer. Raises `TopicMissing`, `Unreachable` or `NotConfirmed`."""
        try:
            self.future = producer.send(self.topic, self.value, key=self.key.encode(), headers=list(headers))
        except KafkaTimeoutError:  # nothing is known of the topic
            raise topic_missing(self.bootstrap, self.topic, deadline) from None
        except KafkaError as error:
            raise self.not_confirmed(error) from None

    @property
    def name(self) -> str:
        """The event in words, such as "publish 'p1'"."""
        id = json.loads(self.value).get("id")
        return self.topic.rpartition(".")[2] + ("" if id is None else f" {id!r}")

    def place(self, timeout: float = DEADLINE) -> Place:
        """Wait until Kafka confirms the event. Raises `NotConfirmed` if it refuses, or does not answer in time."""
        try:
            found = self.future.get(timeout)
        except KafkaError as error:
            self.raised = self.done
            raise self.not_confirmed(error) from None
        return Place(found.topic, found.partition, found.offset)

    def wait(self, timeout: float = PATIENCE) -> Notice:
        """Wait until the router says that the event has had its effect at every broker, and return its notice.

        A publication must have been sent with `ack=True`. Raises `NotAccepted` if the router refused the event, and
        `NoAnswer` if no answer came within `timeout` seconds: the event stands in Kafka all the same.
        """
        if self.answer is None:
            raise LacunaError(f"{self.name}: nobody was asked for an answer. Remedy: publish with ack=True")
        return self.answer(self, timeout)

    @property
    def done(self) -> bool:
        """True once Kafka has confirmed or refused the event."""
        return bool(self.future.is_done)

    @property
    def failed(self) -> bool:
        """True once Kafka has refused the event."""
        return bool(self.future.failed())

    def add_done_callback(self, call: Callable[[Sent], object]) -> None:
        """Call `call(sent)` once the event is done, or at once if it is.

        The call is made by the thread that talks to Kafka, so it must neither wait nor send. It should look at
        `failed`; a failure that it sees is still raised by the next `send`, `flush` or `close`.
        """
        self.future.add_both(lambda _: self._call(call))

    def _call(self, call: Callable[[Sent], object]) -> None:
        try:
            call(self)
        except Exception:
            log.exception("the callback of %s failed", self.name)

    def __await__(self) -> Generator[Any, None, Place]:
        """Wait without blocking the event loop; as `place`, but as long as the producer tries."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not waiter.done():  # it may have been cancelled
                waiter.set_result(None)

        self.add_done_callback(lambda _: loop.call_soon_threadsafe(wake))
        yield from waiter
        return self.place(0)

    def not_confirmed(self, cause: BaseException, events: tuple[Sent, ...] = ()) -> NotConfirmed:
        """Return the error that names this event; it may be the first of several."""
        return NotConfirmed(self.bootstrap, self.topic, self.key, cause, event=self.name, events=events or (self,))


class Sender:
    """Sends events of any broker and client. May be shared by threads."""

    def __init__(
        self,
        config: Config,
        *,
        deadline: float = DEADLINE,
        clock: Clock = micros,
        check: bool = True,
        window: int = WINDOW,
    ) -> None:
        self._bootstrap, self._topics, self._deadline = config.kafka.bootstrap, Topics(config.kafka.prefix), deadline
        self._composer = Composer(config, clock, check=check)
        self._window = window
        self._lock = Lock()
        self._unconfirmed: deque[Sent] = deque()
        self._requests: dict[Name, Sent] = {}  # the last one of each subscription, as long as it is not confirmed
        self._producer = connect_producer(self._bootstrap, deadline)

    def send(self, kind: EventKind, broker: str, fields: Mapping[str, Any], headers: Headers = ()) -> Sent:
        """Check an event and send it; its order among the sender's revisions is the order of the calls.

        Raises `EventRefused` (it breaks a rule), `NotSent` (too many wait) or `NotConfirmed` (an earlier event failed);
        the event of this call was then not sent.
        """
        topic = self._topics.of(kind)
        with self._lock:
            self._raise_failed(self._settled())
            value = self._composer.compose(kind, broker, fields)
            if len(self._unconfirmed) >= self._window and not self._make_room():
                waiting, event = len(self._unconfirmed), f"{kind} {fields.get('id')!r}"
                raise NotSent(self._bootstrap, topic, broker, event=event, waiting=waiting, deadline=self._deadline)
            sent = Sent(self._bootstrap, topic, broker, value)
            if kind != "publish":
                self._keep_order(sent, Name(broker, str(fields.get("client")), str(fields.get("id"))))
            sent.put(self._producer, self._deadline, headers)
            self._unconfirmed.append(sent)
        return sent

    def _keep_order(self, sent: Sent, name: Name) -> None:
        """Wait for an earlier request of the same subscription on the other topic."""
        before = self._requests.get(name)
        if before is not None and before.topic != sent.topic:
            _wait(before, self._deadline)
        self._requests[name] = sent
        if len(self._requests) > self._window:
            self._requests = {name: sent for name, sent in self._requests.items() if sent.future and not sent.done}

    def repeat(self, sent: Sent, ack: str) -> Sent:
        """Send a subscribe or unsubscribe once more, the same but for its `ack`."""
        value = json.dumps({**json.loads(sent.value), "ack": ack}, ensure_ascii=False).encode()
        with self._lock:
            again = Sent(self._bootstrap, sent.topic, sent.key, value)
            again.put(self._producer, self._deadline)
            self._unconfirmed.append(again)
        return again

    # What became of the events

    def _settled(self) -> list[Sent]:
        """Remove the oldest events as far as they are done. Return those that failed."""
        failed = []
        while self._unconfirmed and self._unconfirmed[0].done:
            sent = self._unconfirmed.popleft()
            if sent.failed:
                failed.append(sent)
        return failed

    def _make_room(self) -> bool:
        """Wait for the older half of the window. Return False if no confirmation came within the deadline."""
        while len(self._unconfirmed) > self._window // 2:
            if not _wait(self._unconfirmed[0], self._deadline):
                return len(self._unconfirmed) < self._window
            self._raise_failed(self._settled())
        return True

    def _raise_failed(self, events: Iterable[Sent]) -> None:
        """Raise the events that failed and of which the caller does not know yet."""
        news = tuple(sent for sent in events if not sent.raised)
        for sent in news:
            sent.raised = sent.done
        if news:
            raise news[0].not_confirmed(news[0].future.exception or KafkaTimeoutError("no answer in time"), news)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until Kafka has confirmed everything sent so far. Raises `NotConfirmed` for what it did not.

        Without a timeout, as long as one confirmation follows another within the deadline.
        """
        with self._lock:
            waiting = list(self._unconfirmed)
        ends = None if timeout is None else time.monotonic() + timeout
        for sent in waiting:
            if not _wait(sent, self._deadline if ends is None else max(0.0, ends - time.monotonic())):
                break
        seen = {sent for sent in waiting if sent.done}
        with self._lock:
            self._unconfirmed = deque(sent for sent in self._unconfirmed if sent not in seen)
        self._raise_failed(sent for sent in waiting if sent not in seen or sent.failed)

    def close(self, timeout: float | None = None) -> None:
        """Flush and end. What is not confirmed in time is raised, and given up."""
        try:
            self.flush(timeout)
        except BaseException:
            self._producer._sender.force_close()  # otherwise `close` would wait for what cannot be, and so would `del`
            raise
        finally:
            self._unconfirmed.clear()
            with suppress(KafkaError):
                self._producer.close(timeout=self._deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close. If an error is on its way already, what was not confirmed is noted on it."""
        try:
            self.close()
        except NotConfirmed as failure:
            if error is None:
                raise
            error.add_note(str(failure))


def _wait(sent: Sent, seconds: float) -> bool:
    """Wait until an event is done. Return False if it is not in time."""
    try:
        sent.future.get(seconds)
    except KafkaError:
        return sent.done
    return True
