"""Sending events into Kafka: composed, checked, confirmed.

Kafka confirms later than it is sent to. The sender keeps what is not confirmed yet, at most `WINDOW` events: then it
waits for the older half, so that memory stays bounded however fast events come. Every confirmation is looked at; the
first that fails is raised by the next `send`, `flush` or `close`, never dropped. If Kafka refused an event (rather than
being late), the order of what follows is no longer certain: all later sends fail too, until a new sender is made.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple, Self

from kafka.errors import KafkaError, KafkaTimeoutError

from access import DEADLINE
from access.connection import connect_producer
from access.errors import NotConfirmed, TopicMissing
from producers.compose import Clock, Composer, micros
from state.config import Config
from state.protocol.events import EventKind
from state.protocol.topics import Topics

WINDOW = 10_000


class Place(NamedTuple):
    """The position of an event in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Sent:
    """An event on its way."""

    bootstrap: str
    topic: str
    value: bytes
    future: Any

    def place(self, timeout: float = DEADLINE) -> Place:
        """Wait until Kafka confirms it. Raises `NotConfirmed` if it does not in time."""
        try:
            found = self.future.get(timeout)
        except KafkaError as error:
            raise NotConfirmed(self.bootstrap, self.topic, error) from None
        return Place(found.topic, found.partition, found.offset)


class Sender:
    """Sends events of any broker and client. May be shared by threads."""

    def __init__(
        self, config: Config, *, deadline: float = DEADLINE, clock: Clock = micros, check: bool = True
    ) -> None:
        self._bootstrap, self._topics, self._deadline = config.kafka.bootstrap, Topics(config.kafka.prefix), deadline
        self._composer = Composer(config, clock, check=check)
        self._lock = Lock()
        self._unconfirmed: deque[Sent] = deque()
        self._producer = connect_producer(self._bootstrap, deadline)

    def send(self, kind: EventKind, broker: str, fields: Mapping[str, Any]) -> Sent:
        """Check an event and send it; its order among the sender's revisions is the order of the calls."""
        with self._lock:
            value = self._composer.compose(kind, broker, fields)
            sent = self._put(self._topics.of(kind), broker, value)
            self._unconfirmed.append(sent)
            if len(self._unconfirmed) > WINDOW:
                self._confirm(WINDOW // 2)
        return sent

    def _put(self, topic: str, broker: str, value: bytes) -> Sent:
        try:
            future = self._producer.send(topic, value, key=broker.encode())
        except KafkaTimeoutError:
            raise TopicMissing(self._bootstrap, topic) from None
        except KafkaError as error:
            raise NotConfirmed(self._bootstrap, topic, error) from None
        return Sent(self._bootstrap, topic, value, future)

    def _confirm(self, left: int, timeout: float | None = None) -> None:
        """Wait until only the last `left` events are unconfirmed: in `timeout` seconds, or as long as it goes on."""
        ends = None if timeout is None else time.monotonic() + timeout
        while len(self._unconfirmed) > left:
            wait = self._deadline if ends is None else max(0.0, ends - time.monotonic())
            sent = self._unconfirmed.popleft()
            if not sent.future.succeeded():
                sent.place(wait)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until Kafka has confirmed everything sent so far.

        Without a timeout, as long as one confirmation follows another within the deadline.
        """
        with self._lock:
            self._confirm(0, timeout)

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
        """Close; an error already on its way is not hidden by another."""
        try:
            self.close()
        except NotConfirmed:
            if error is None:
                raise
