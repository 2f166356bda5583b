"""A client's notices as they come: which of its events were refused, and why; which are in force.

Other than deliveries, notices are kept for a day only, and may come twice after a crash. `Client.subscribe(...).wait()`
waits for one of them (`answers`); here is the whole stream of one client.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from kafka import TopicPartition
from kafka.errors import KafkaError

from access import DEADLINE
from access.connection import connect_consumer
from access.errors import failed
from access.topics import topic_missing
from state.config import Kafka
from state.protocol.notices import Notice, read_notice
from state.protocol.topics import Topics

SLICE = 0.5
"""Seconds that one look at the topic takes at most."""


def connect_notices(kafka: Kafka, deadline: float = DEADLINE, *, from_beginning: bool = False) -> Any:
    """Return a consumer that reads the topic of notices, from now on or from its beginning."""
    topic = Topics(kafka.prefix).notices
    consumer: Any = connect_consumer(kafka.bootstrap, deadline)
    try:
        numbers = consumer.partitions_for_topic(topic)
        if not numbers:
            raise topic_missing(kafka.bootstrap, topic, deadline)
        parts = [TopicPartition(topic, number) for number in numbers]
        consumer.assign(parts)
        offsets = consumer.beginning_offsets if from_beginning else consumer.end_offsets
        for part, offset in offsets(parts, timeout_ms=round(deadline * 1000)).items():
            consumer.seek(part, offset)
    except KafkaError as error:
        consumer.close()
        raise failed(kafka.bootstrap, deadline, error) from None
    except BaseException:
        consumer.close()
        raise
    return consumer


class Notices(Iterator[Notice]):
    """An iterator over the notices of one client. It ends when stopped, or after `timeout` seconds without one."""

    def __init__(
        self,
        kafka: Kafka,
        client: str,
        *,
        from_beginning: bool = False,
        timeout: float | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self._kafka, self._key, self._deadline = kafka, client.encode(), deadline
        self._timeout, self._stopped = timeout, False
        self._found: list[Notice] = []
        self._consumer = connect_notices(kafka, deadline, from_beginning=from_beginning)

    def __next__(self) -> Notice:
        """Wait for the next notice."""
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._found and not self._stopped and (until is None or time.monotonic() < until):
            self._look()
        if not self._found:
            raise StopIteration
        return self._found.pop(0)

    def _look(self) -> None:
        try:
            polled = self._consumer.poll(timeout_ms=round(SLICE * 1000))
        except KafkaError as error:
            raise failed(self._kafka.bootstrap, self._deadline, error) from None
        mine = (record.value or b"" for records in polled.values() for record in records if record.key == self._key)
        self._found += [notice for value in mine if (notice := read_notice(value)) is not None]

    def stop(self) -> None:
        """Let the iterator end."""
        self._stopped = True

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
