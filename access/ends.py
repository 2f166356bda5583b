"""The ends of topics, asked for again and again on one connection, which is opened again when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError

from access import DEADLINE
from access.connection import connect_consumer
from access.errors import failed
from access.offsets import Partition
from state.config import Kafka

REFRESH = 30.0
"""Seconds after which the connection asks again which partitions there are."""


class TopicEnds:
    """The offsets that the next records of some topics will have. For one thread."""

    def __init__(self, kafka: Kafka, topics: Sequence[str], deadline: float = DEADLINE) -> None:
        self._kafka, self._topics, self._deadline = kafka, tuple(topics), deadline
        self._consumer: Any = None

    def read(self) -> dict[Partition, int]:
        """Return the end of every partition. Raises `Unreachable` if Kafka does not answer within the deadline."""
        try:
            if self._consumer is None:
                self._consumer = connect_consumer(self._kafka.bootstrap, self._deadline, refresh=REFRESH)
            known = {topic: self._consumer.partitions_for_topic(topic) or () for topic in self._topics}
            parts = [TopicPartition(topic, number) for topic, numbers in known.items() for number in numbers]
            ends = self._consumer.end_offsets(parts, timeout_ms=round(self._deadline * 1000))
        except KafkaError as error:
            self.close()
            raise failed(self._kafka.bootstrap, self._deadline, error) from None
        return {(part.topic, part.partition): int(end) for part, end in ends.items()}

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
