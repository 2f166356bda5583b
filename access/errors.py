"""Failures of Kafka. Each message can be shown to a person: it names the value, what happened, and the remedy.

LacunaError
└── KafkaFailed         Kafka did not do what it was asked to
    ├── Unreachable     Kafka does not answer
    ├── TopicMissing    Kafka does not know a topic
    └── NotConfirmed    Kafka did not confirm an event: it may or may not have the event
"""

from __future__ import annotations

from state.errors import LacunaError


class KafkaFailed(LacunaError):
    """Kafka did not do what it was asked to."""


class Unreachable(KafkaFailed):
    """No Kafka answers."""

    def __init__(self, bootstrap: str, deadline: float) -> None:
        super().__init__(
            f"kafka.bootstrap = {bootstrap!r}: no Kafka answered there within {deadline:g} s. "
            "Remedy: start Kafka, or correct bootstrap in [kafka]."
        )


class TopicMissing(KafkaFailed):
    """A topic is not there."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(
            f"topic {topic!r}: Kafka at {bootstrap} does not know it. "
            "Remedy: start the router, which creates the topics, or correct prefix in [kafka]."
        )


class NotConfirmed(KafkaFailed):
    """Events may or may not have arrived."""

    def __init__(self, bootstrap: str, topic: str, cause: BaseException) -> None:
        super().__init__(
            f"topic {topic!r}: Kafka at {bootstrap} did not confirm an event ({cause}). Remedy: see that Kafka runs "
            "and takes records of this size, connect again, and send again what was not confirmed; a subscribe or "
            "unsubscribe sent twice does no harm."
        )
