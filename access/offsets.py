"""Offsets: how much each partition of a topic holds."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple

from kafka import TopicPartition
from kafka.errors import KafkaError

from access import DEADLINE
from access.connection import connect_consumer
from access.errors import Unreachable

Partition = tuple[str, int]
"""A topic and the number of one of its partitions."""


class Span(NamedTuple):
    """The offset of the first record that a partition still holds, and the offset that its next record will have."""

    first: int
    next: int


def topic_spans(bootstrap: str, topics: Iterable[str], deadline: float = DEADLINE) -> dict[Partition, Span]:
    """Return the span of every partition of these topics. A topic that does not exist has no partitions.

    Records of transactions that are still open count: the router and the archive read them too.

    Raises `Unreachable` if Kafka does not answer within `deadline` seconds.
    """
    wait = round(deadline * 1000)
    with closing(connect_consumer(bootstrap, deadline, committed=False)) as consumer:
        try:
            numbers = {topic: sorted(consumer.partitions_for_topic(topic) or ()) for topic in topics}
            parts = [TopicPartition(topic, number) for topic in numbers for number in numbers[topic]]
            first = consumer.beginning_offsets(parts, timeout_ms=wait)
            ends = consumer.end_offsets(parts, timeout_ms=wait)
        except KafkaError:
            raise Unreachable(bootstrap, deadline) from None
    return {(part.topic, part.partition): Span(first[part], ends[part]) for part in parts}
