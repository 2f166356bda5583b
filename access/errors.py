"""Failures of Kafka. Each message can be shown to a person: it names the value, what happened, and the remedy.

LacunaError
└── KafkaFailed         Kafka did not do what it was asked to
    ├── Unreachable     Kafka does not answer
    ├── NotAdmitted     Kafka, or this side, does not accept who the other is
    ├── NotAllowed      Kafka does not allow this user what was asked for
    ├── TopicMissing    Kafka does not know a topic
    ├── NotConfirmed    Kafka did not confirm an event: it may or may not have the event
    └── NotSent         an event was not sent: too many others are not confirmed yet
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from typing import Any

from kafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IllegalSaslStateError,
    KafkaConnectionError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedSaslMechanismError,
)

from state.errors import LacunaError
from state.protocol.security import security_of

AUTHORIZATION = (TopicAuthorizationFailedError, GroupAuthorizationFailedError, ClusterAuthorizationFailedError)
LOGIN = (SaslAuthenticationFailedError, UnsupportedSaslMechanismError, IllegalSaslStateError)


class KafkaFailed(LacunaError):
    """Kafka did not do what it was asked to."""


class Unreachable(KafkaFailed):
    """No Kafka answers. `closed` says that something there took connections and closed them."""

    def __init__(self, bootstrap: str, deadline: float, *, closed: bool = False) -> None:
        other = " What listens there closes connections, as a Kafka does that asks for TLS or SASL." if closed else ""
        also = ", or give it security" if closed else ""
        super().__init__(
            f"kafka.bootstrap = {bootstrap!r}: no Kafka answered there within {deadline:g} s.{other} "
            f"Remedy: start Kafka, or correct bootstrap in [kafka]{also}."
        )


class NotAdmitted(KafkaFailed):
    """The other side of a connection is not accepted as who it says it is."""

    def __init__(self, bootstrap: str, cause: str) -> None:
        super().__init__(
            f"kafka.bootstrap = {bootstrap!r}: {cause}. Remedy: correct security in [kafka]: protocol, mechanism, user "
            "and password, or the certificates."
        )


class NotAllowed(KafkaFailed):
    """Kafka does not allow this user what was asked for."""

    def __init__(self, bootstrap: str, cause: BaseException) -> None:
        super().__init__(
            f"kafka.bootstrap = {bootstrap!r}: Kafka does not allow this user to do that ({cause}). "
            "Remedy: grant it what `lacuna acl` prints for its role."
        )


def failed(bootstrap: str, deadline: float, *causes: BaseException) -> KafkaFailed:
    """Return what failures mean: the first that says more than that Kafka does not answer counts.

    Kafka tells that a login failed and closes the connection at once. kafka-python often sees only that it was closed.
    """
    found = [told for cause in causes for told in _chain(cause)]
    for cause in found:
        if isinstance(cause, ssl.SSLError):
            why = getattr(cause, "verify_message", None) or cause.reason or str(cause)
            return NotAdmitted(bootstrap, f"no encrypted connection is accepted: {why}")
        if isinstance(cause, AUTHORIZATION):
            return NotAllowed(bootstrap, cause)
    refused = any(isinstance(cause, LOGIN) for cause in found)
    closed = any("socket disconnected" in cause.args for cause in found if isinstance(cause, KafkaConnectionError))
    if refused or (closed and security_of(bootstrap).logs_in):
        return NotAdmitted(bootstrap, "Kafka does not accept the user, the password or the mechanism")
    return Unreachable(bootstrap, deadline, closed=closed)


def _chain(cause: BaseException) -> Iterator[BaseException]:
    """Yield an exception, what it was made of, and what it was raised in the course of: kafka-python wraps some."""
    yield cause
    yield from (told for told in (*cause.args, cause.__context__) if isinstance(told, BaseException))


class TopicMissing(KafkaFailed):
    """A topic is not there. `prefixes` are those of the systems that Kafka has topics of."""

    def __init__(self, bootstrap: str, topic: str, prefixes: Sequence[str]) -> None:
        there = f"The prefixes there: {', '.join(prefixes)}" if prefixes else "No prefix is there yet"
        hidden = security_of(bootstrap).logs_in or security_of(bootstrap).cert_file is not None
        granted = "; or this user may not see it: grant it what `lacuna acl` prints" if hidden else ""
        super().__init__(
            f"topic {topic!r}: Kafka at {bootstrap} does not know it. {there}. "
            f"Remedy: start the router, which creates the topics, or correct prefix in [kafka]{granted}."
        )
        self.topic, self.prefixes = topic, tuple(prefixes)


class NotConfirmed(KafkaFailed):
    """Kafka did not confirm an event. It may or may not have the event.

    `events` holds everything that was not confirmed; `topic`, `key`, `cause` and the message are about the first.
    """

    def __init__(
        self, bootstrap: str, topic: str, key: str, cause: BaseException, *, event: str, events: tuple[Any, ...]
    ) -> None:
        others = f" and {len(events) - 1:,} more" if len(events) > 1 else ""
        super().__init__(
            f"topic {topic!r}, key {key!r}: Kafka at {bootstrap} did not confirm {event}{others} ({cause}). "
            f"Remedy: {_remedy(cause)}, connect again, and send again what was not confirmed; a subscribe or "
            "unsubscribe sent twice does no harm."
        )
        self.topic, self.key, self.cause, self.events = topic, key, cause, events


class NotSent(KafkaFailed):
    """An event was not sent, because too many others wait for Kafka to confirm them."""

    def __init__(self, bootstrap: str, topic: str, key: str, *, event: str, waiting: int, deadline: float) -> None:
        super().__init__(
            f"topic {topic!r}, key {key!r}: {event} was not sent: {waiting:,} others wait for Kafka at {bootstrap} to "
            f"confirm them, and it confirmed none for {deadline:g} s. Remedy: see that Kafka runs, then send it again."
        )
        self.topic, self.key = topic, key


def _remedy(cause: BaseException) -> str:
    if isinstance(cause, MessageSizeTooLargeError | RecordListTooLargeError):
        return "send less, or raise max.message.bytes of the topic"
    if isinstance(cause, UnknownTopicOrPartitionError):
        return "start the router, which creates the topics, or correct prefix in [kafka]"
    if isinstance(cause, TopicAuthorizationFailedError):
        return "let this client write to the topic, as `lacuna acl` prints it"
    return "see that Kafka runs"
