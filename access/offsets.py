"""Offsets: how much each partition of a topic holds, since when, and forgetting what is not needed any more."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import NamedTuple

from kafka import TopicPartition
from kafka.errors import KafkaError

from access import DEADLINE
from access.connection import connect_admin, connect_consumer
from access.errors import KafkaFailed, failed

Partition = tuple[str, int]
"""A topic and the number of one of its partitions."""


class Span(NamedTuple):
    """The offset of the first record that a partition still holds, and the offset that its next record will have."""

    first: int
    next: int


def topic_spans(bootstrap: str, topics: Iterable[str], deadline: float = DEADLINE) -> dict[Partition, Span]:
    """Return the span of every partition of these topics. A topic that does not exist has no partitions.

    Records behind a transaction that is still open do not count: nobody reads them yet.

    Raises `Unreachable` if Kafka does not answer within `deadline` seconds.
    """
    wait = round(deadline * 1000)
    with closing(connect_consumer(bootstrap, deadline)) as consumer:
        try:
            numbers = {topic: sorted(consumer.partitions_for_topic(topic) or ()) for topic in topics}
            parts = [TopicPartition(topic, number) for topic in numbers for number in numbers[topic]]
            first = consumer.beginning_offsets(parts, timeout_ms=wait)
            ends = consumer.end_offsets(parts, timeout_ms=wait)
        except KafkaError as error:
            raise failed(bootstrap, deadline, error) from None
    return {(part.topic, part.partition): Span(first[part], ends[part]) for part in parts}


def first_times(
    bootstrap: str, topic: str, partitions: Iterable[int], deadline: float = DEADLINE
) -> dict[int, datetime]:
    """Return when Kafka took the first record that each of these partitions still holds; none for an empty one."""
    ends, found = time.monotonic() + deadline, dict[int, datetime]()
    parts = [TopicPartition(topic, number) for number in partitions]
    with closing(connect_consumer(bootstrap, deadline)) as consumer:
        try:
            consumer.assign(parts)
            consumer.seek_to_beginning(*parts)
            while len(found) < len(parts) and time.monotonic() < ends:
                for part, records in consumer.poll(timeout_ms=200).items():
                    moment = datetime.fromtimestamp(records[0].timestamp / 1000, UTC)
                    found.setdefault(part.partition, moment)
                    consumer.pause(part)
        except KafkaError as error:
            raise failed(bootstrap, deadline, error) from None
    return found


def trim(bootstrap: str, before: Mapping[Partition, int], deadline: float = DEADLINE) -> None:
    """Let Kafka forget the records of these partitions below these offsets."""
    parts = {TopicPartition(*partition): offset for partition, offset in before.items()}
    with closing(connect_admin(bootstrap, deadline)) as admin:
        try:
            admin.delete_records(parts, timeout_ms=round(deadline * 1000))
        except KafkaError as error:
            names = ", ".join(sorted({topic for topic, _ in before}))
            raise KafkaFailed(
                f"topic {names}: Kafka at {bootstrap} did not delete records that were read ({error}). Remedy: allow "
                "this user to delete records of it; until then the topic grows."
            ) from None
