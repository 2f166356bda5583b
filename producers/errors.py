"""Errors of the producers' side; their text is fit to be shown to a person.

    LacunaError
    ├── EventRefused    an event breaks a rule; names value, rule and remedy; nothing was sent
    └── KafkaFailed     Kafka did not do what it was asked
        ├── Unreachable     it does not answer
        ├── TopicMissing    it does not know a topic
        └── NotConfirmed    it did not confirm an event: whether it has it is not known

What they say: the value, the rule that it breaks or what happened, and the remedy.
"""

from __future__ import annotations

from state.errors import LacunaError
from state.protocol.events import RULES, Reject

REMEDIES = {
    "attribute": "name every attribute of [space] in a publication, and no other anywhere",
    "broker": "name a broker of [overlay]",
    "category": "use one of the values declared in [space]",
    "client": "choose another client name",
    "deep": "ask with several subscriptions",
    "domain": "stay inside the domain declared in [space], or leave the end open with null",
    "duplicate": "give each name once",
    "empty": "list at least one value, or leave the attribute out",
    "field": "leave it out, or put it into the payload",
    "filter": 'write an object of ranges such as {"price": [10, 20]}, or a text such as "price < 20 OR volume > 500"',
    "finite": "give a finite number; null is an open end",
    "fraction": "give a whole number, without point or exponent",
    "id": "choose another id",
    "inverted": "exchange the two ends",
    "json": "give values that JSON has: objects, lists, strings, numbers, true, false, null",
    "kind": "use subscribe, unsubscribe or publish",
    "missing": "add it",
    "nothing": "look for two conditions that exclude each other",
    "order": "compare categories by =, <> or IN",
    "payload": "send less, or send where the rest can be had",
    "range": "write two ends such as [10, 20]; null is an open end",
    "rev": "leave it out: a growing revision is then chosen",
    "size": "send less",
    "syntax": "correct it there; README says what a filter as text may be",
    "time": "write it as 2026-05-01T00:00:00Z",
    "timestamp": "write it as 2026-05-01T00:00:00Z",
    "ttl": "give seconds, or leave it out for no end",
    "type": "give it the type that the documentation of the events says",
    "unexpected": "report it together with the event: it is a fault of Lacuna's",
    "utf8": "give text that can be written as UTF-8",
    "work": "ask with several subscriptions",
}
"""What to do about each broken rule."""


class EventRefused(LacunaError):
    """An event breaks a rule, so the router would reject it. Nothing was sent.

    >>> print(EventRefused("publish", "p1", Reject("fraction", "volume = 1.5 is not a whole number")))
    publish 'p1': volume = 1.5 is not a whole number. Rule: the value of an int attribute is a whole number. Remedy: \
give a whole number, without point or exponent. Nothing was sent.
    """

    def __init__(self, kind: str, id: object, reject: Reject) -> None:
        rule, remedy = RULES[reject.rule], REMEDIES[reject.rule]
        super().__init__(f"{kind} {id!r}: {reject.message}. Rule: {rule}. Remedy: {remedy}. Nothing was sent.")
        self.rule, self.message = reject.rule, reject.message


class KafkaFailed(LacunaError):
    """Kafka did not do what it was asked."""


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
            "and takes records of this size, connect anew, and send again what was not confirmed; a subscribe or "
            "unsubscribe sent twice does no harm."
        )
