"""The topic `control` as it is in Kafka: read to its end, appended to.

What its records mean is in `state.protocol.control`. Every reader has a log of its own, which remembers how far it has
read; the topic is compacted and small.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from types import TracebackType
from typing import Any, Self

from kafka import TopicPartition
from kafka.errors import KafkaError

from access import DEADLINE
from access.connection import connect_consumer, connect_producer
from access.errors import KafkaFailed, Unreachable, failed
from state.protocol.control import Beat, Claim, Declined, Life, Prefix, Record, fold, write
from state.protocol.topics import Topics

REFRESH = 5.0
"""Seconds after which a log asks again which partitions there are."""


class ControlLog:
    """The control topic of a prefix. For one thread."""

    def __init__(self, bootstrap: str, prefix: str, deadline: float = DEADLINE) -> None:
        self._bootstrap, self._deadline = bootstrap, deadline
        self._topic = Topics(prefix).control
        self._part = TopicPartition(self._topic, 0)
        self._consumer: Any = None
        self._producer: Any = None
        self._prefix = Prefix()

    def read(self) -> Prefix:
        """Return the content of the topic, read to the end that it has now. A missing topic is an empty one."""
        try:
            consumer = self._reading()
            if consumer.partitions_for_topic(self._topic):
                self._read_to(consumer, consumer.end_offsets([self._part], timeout_ms=self._wait)[self._part])
            return self._prefix
        except KafkaError as error:
            self.close()
            raise failed(self._bootstrap, self._deadline, error) from None

    def _reading(self) -> Any:
        if self._consumer is None:
            self._consumer = connect_consumer(self._bootstrap, self._deadline, refresh=REFRESH, wait=0.01)
            self._consumer.assign([self._part])
            self._consumer.seek(self._part, self._prefix.next)
        return self._consumer

    def _read_to(self, consumer: Any, end: int) -> None:
        """Fold the records up to an offset. The last offsets may be marks of transactions, or compacted away."""
        until = time.monotonic() + self._deadline
        while consumer.position(self._part, timeout_ms=self._wait) < end:
            if time.monotonic() > until:
                raise Unreachable(self._bootstrap, self._deadline)
            for found in consumer.poll(timeout_ms=200).values():
                records = (Record(r.offset, r.timestamp * 1000, r.key, r.value) for r in found)
                self._prefix = fold(records, self._prefix)
        self._prefix = self._prefix._replace(next=max(self._prefix.next, end))

    @property
    def _wait(self) -> int:
        return round(self._deadline * 1000)

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int] | None:
        """Return the ends of partitions of another topic, on the connection that is open here.

        None if some of them are so new that this connection does not know them yet.
        """
        parts = [TopicPartition(topic, number) for number in partitions]
        try:
            if not set(partitions) <= set(self._reading().partitions_for_topic(topic) or ()):
                return None
            ends = self._reading().end_offsets(parts, timeout_ms=self._wait)
        except KafkaError as error:
            self.close()
            raise failed(self._bootstrap, self._deadline, error) from None
        return {part.partition: end for part, end in ends.items()}

    def append(self, key: str, value: Claim | Life | Beat | Declined) -> int:
        """Append a record. Return its offset when Kafka has confirmed it."""
        try:
            if self._producer is None:
                self._producer = connect_producer(self._bootstrap, self._deadline)
            sent = self._producer.send(self._topic, write(value), key=key.encode(), partition=0)
            return int(sent.get(timeout=self._deadline).offset)
        except KafkaError as error:
            self.close()
            raise KafkaFailed(
                f"topic {self._topic!r}: Kafka at {self._bootstrap} did not take a record ({error}). Remedy: see that "
                "it runs and that this user may write to the topic."
            ) from None

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        for connection in (self._consumer, self._producer):
            if connection is not None:
                connection.close()
        self._consumer = self._producer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
