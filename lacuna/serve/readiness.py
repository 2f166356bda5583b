"""Whether Kafka answers, for `/readyz` and `/metrics`: asked no more often than every few seconds, whoever asks."""

from __future__ import annotations

import time
from threading import Lock

from access.ends import TopicEnds
from access.errors import KafkaFailed
from state.config import Kafka
from state.protocol.topics import Topics

EVERY, DEADLINE = 5.0, 3.0


class Readiness:
    """Asks for the ends of the topic of deliveries. May be shared by threads, which wait for one answer."""

    def __init__(self, kafka: Kafka) -> None:
        self._topic = Topics(kafka.prefix).deliveries
        self._ends, self._lock = TopicEnds(kafka, [self._topic], DEADLINE), Lock()
        self._asked: float | None = None
        self._trouble = ""

    def trouble(self) -> str:
        """Return why the gateway cannot do its work; nothing if it can. Takes a few seconds if Kafka is away."""
        with self._lock:
            if self._asked is None or time.monotonic() > self._asked + EVERY:
                self._trouble = self._ask()
                self._asked = time.monotonic()
            return self._trouble

    def _ask(self) -> str:
        try:
            return "" if self._ends.read() else f"topic {self._topic!r} is not there: start the router, which makes it"
        except KafkaFailed as failure:
            return str(failure)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._ends.close()
