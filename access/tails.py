"""The last records of topics, and whole topics up to an offset, read without a consumer group."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError

from access import DEADLINE
from access.connection import connect_consumer
from access.errors import Unreachable, failed
from access.offsets import Partition, Span
from state.protocol.arrivals import RANKS

FIRST_LOOK = 100
"""Records of each partition that are read at first."""


def records_between(bootstrap: str, spans: Mapping[Partition, Span], deadline: float = DEADLINE) -> Iterator[Any]:
    """Yield the records of partitions within these offsets, each partition in order.

    Raises `Unreachable` if nothing comes for `deadline` seconds.
    """
    parts = {TopicPartition(*where): span for where, span in spans.items() if span.first < span.next}
    with closing(connect_consumer(bootstrap, deadline, wait=0.01)) as consumer:
        try:
            consumer.assign(list(parts))
            for part, span in parts.items():
                consumer.seek(part, span.first)
            until = time.monotonic() + deadline
            while any(_position(consumer, part, deadline) < span.next for part, span in parts.items()):
                for part, found in consumer.poll(timeout_ms=200).items():
                    until = time.monotonic() + deadline
                    yield from (record for record in found if record.offset < parts[part].next)
                if time.monotonic() > until:
                    raise Unreachable(bootstrap, deadline)
        except KafkaError as error:
            raise failed(bootstrap, deadline, error) from None


def _position(consumer: Any, part: TopicPartition, deadline: float) -> int:
    return int(consumer.position(part, timeout_ms=round(deadline * 1000)))


def in_order(records: Iterable[Any]) -> list[tuple[int, Any]]:
    """Return records of the router's topics in the order in which it takes them, each with its time in microseconds.

    Within a partition times do not go back, as those of arrivals do not.
    """
    latest: dict[tuple[str, int], int] = {}
    found = []
    for record in records:
        where = (record.topic, record.partition)
        latest[where] = max(latest.get(where, 0), record.timestamp * 1000)
        rank = RANKS[record.topic.rpartition(".")[2]]
        found.append((latest[where], rank, record.partition, record.offset, record))
    return [(one[0], one[4]) for one in sorted(found, key=lambda one: one[:4])]


def last_records(
    bootstrap: str, spans: Mapping[Partition, Span], wanted: Callable[[Any], bool], deadline: float = DEADLINE
) -> list[Any]:
    """Return the last records of partitions: of each so many that a wanted one is among them, or all."""
    found: list[Any] = []
    left, look = dict(spans), FIRST_LOOK
    while left:
        begins = {where: max(span.first, span.next - look) for where, span in left.items()}
        seen = list(
            records_between(bootstrap, {where: Span(begins[where], left[where].next) for where in left}, deadline)
        )
        found += seen
        done = {(record.topic, record.partition) for record in seen if wanted(record)}
        done |= {where for where, begin in begins.items() if begin == left[where].first}
        left = {where: Span(span.first, begins[where]) for where, span in left.items() if where not in done}
        look *= 10
    return found
