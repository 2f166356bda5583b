"""Errors of the client library. Each message can be shown to a person: it names the value, the rule and the remedy.

LacunaError
├── EventRefused    an event breaks a rule; nothing was sent
├── NotAccepted     the router refused an event that was sent
├── NoAnswer        the router did not say in time what became of an event
└── KafkaFailed     Kafka did not do what it was asked to (`access.errors`, importable from here too)
"""

from __future__ import annotations

from access.errors import KafkaFailed, NotConfirmed, NotSent, TopicMissing, Unreachable
from state.errors import LacunaError
from state.protocol.events import RULES, Reject
from state.protocol.notices import Notice

__all__ = [
    "REMEDIES",
    "EventRefused",
    "KafkaFailed",
    "NoAnswer",
    "NotAccepted",
    "NotConfirmed",
    "NotSent",
    "TopicMissing",
    "Unreachable",
]

REMEDIES = {
    "ack": "give a string, or leave it out",
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
    "foreign": "let only the router write to its internal topics",
    "fraction": "give a whole number, without point or exponent",
    "id": "choose another id",
    "inverted": "exchange the two ends",
    "json": "give values that JSON has: objects, lists, strings, numbers, true, false, null",
    "kind": "use subscribe, unsubscribe or publish",
    "missing": "add it",
    "nothing": "look for two conditions that exclude each other",
    "order": "compare categories by =, <> or IN",
    "payload": "send less, or send where the rest can be had",
    "quota": "cancel what is not needed any more, ask for less, or have [limits] raised",
    "range": "write two ends such as [10, 20]; null is an open end",
    "rev": "leave it out: a growing revision is then chosen",
    "size": "send less",
    "stale": "send the change again with a later revision, or leave the revision out",
    "syntax": "correct it there; docs/events.md says what a filter as text may be",
    "time": "write it as 2026-05-01T00:00:00Z",
    "timestamp": "write it as 2026-05-01T00:00:00Z",
    "ttl": "give seconds, or leave it out for no end",
    "type": "give it the type that the documentation of the events says",
    "unexpected": "report it together with the event: it is a fault of Lacuna's",
    "utf8": "give text that can be written as UTF-8",
    "work": "ask with several subscriptions",
}
"""The remedy for each broken rule."""


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


class NotAccepted(LacunaError):
    """The router refused an event that was sent: it knows what the sender did not."""

    def __init__(self, event: str, notice: Notice) -> None:
        remedy = REMEDIES.get(notice.rule or "", "look at the table rejects")
        super().__init__(f"{event}: the router refused it: {notice.message}. Remedy: {remedy}.")
        self.rule, self.notice = notice.rule, notice


class NoAnswer(LacunaError):
    """The router did not say in time what became of an event. The event stands in Kafka all the same."""

    def __init__(self, event: str, seconds: float) -> None:
        super().__init__(
            f"{event}: it is in Kafka, but the router has not said within {seconds:g} s what became of it. Remedy: see "
            "that the job runs (`lacuna up`, `lacuna run`), then wait again."
        )
