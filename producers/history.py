"""The events that the topics hold, from the beginning up to now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError

from access import DEADLINE
from access.connection import connect_consumer
from access.errors import Unreachable, failed
from access.topics import topic_missing
from state.config import Config
from state.protocol.events import Context, EventKind, Reject, Source, read
from state.protocol.messages import Message
from state.protocol.topics import Topics

POLL_MS = 200


def past_events(
    config: Config, kinds: Sequence[EventKind], deadline: float = DEADLINE
) -> Iterator[tuple[EventKind, Message | Reject]]:
    """Yield every event of these kinds that is in its topic when this is called, topic by topic."""
    context = Context(config.space, config.overlay.brokers)
    consumer = connect_consumer(config.kafka.bootstrap, deadline)
    try:
        for kind in kinds:
            for record in _records(consumer, config, kind, deadline):
                broker = None if record.key is None else record.key.decode(errors="replace")
                value = record.value or b""
                yield kind, read(context, kind, broker, value, Source(0, record.offset, "", record.timestamp * 1000))
    except KafkaError as error:
        raise failed(config.kafka.bootstrap, deadline, error) from None
    finally:
        consumer.close()


def _records(consumer: Any, config: Config, kind: EventKind, deadline: float) -> Iterator[Any]:
    topic = Topics(config.kafka.prefix).of(kind)
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise topic_missing(config.kafka.bootstrap, topic, deadline)
    partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    ends = consumer.end_offsets(partitions, timeout_ms=round(deadline * 1000))
    waited = time.monotonic()
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            waited = time.monotonic()
            yield from records
        if time.monotonic() - waited > deadline:
            raise Unreachable(config.kafka.bootstrap, deadline)
