"""The subscriptions that stand, as the topics say: every subscribe and unsubscribe event, judged as the router judges.

The topics keep these events for ever, so neither the job nor the lake is needed. The router may not have read the last
of them yet. An event that it refuses (stale, beyond a limit, against a rule) has no effect here either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from access import DEADLINE
from access.offsets import topic_spans
from access.tails import records_between
from access.topics import require_topics
from state.config import Config
from state.protocol.arrivals import RANKS
from state.protocol.events import Context, Source, read
from state.protocol.ledger import Ledger
from state.protocol.messages import Name, Subscribe, Unsubscribe
from state.protocol.topics import Topics
from state.space import timestamp_text

KINDS = ("subscribe", "unsubscribe")


class Stands(NamedTuple):
    """A subscription that stands: since when, until when (None: until it is cancelled), and its filter as JSON."""

    broker: str
    client: str
    subscription: str
    since: str
    expires: str | None
    filter: str


def standing(config: Config, now: int, deadline: float = DEADLINE) -> list[Stands]:
    """Return what stands at this moment (microseconds). Raises `KafkaFailed` if the topics cannot be read."""
    topics, kafka = Topics(config.kafka.prefix), config.kafka.bootstrap
    names = [topics.of(kind) for kind in KINDS]
    require_topics(kafka, names, deadline)
    records = records_between(kafka, topic_spans(kafka, names, deadline), deadline)
    return list(judged(config, records, now))


def judged(config: Config, records: Iterable[Any], now: int) -> Iterator[Stands]:
    """Yield what stands after these records of the two topics."""
    context = Context(config.space, config.overlay.brokers)
    ledgers = {b: Ledger(config.remember, config.limits) for b in config.overlay.brokers}
    since: dict[Name, tuple[int, bytes]] = {}
    for record in sorted(records, key=_order):
        kind, arrived = _kind(record), record.timestamp * 1000
        broker = (record.key or b"").decode(errors="replace")
        source = Source(RANKS[kind], record.offset, f"{record.partition}:{record.offset}", arrived)
        message = read(context, kind, broker, record.value or b"", source)
        if isinstance(message, Subscribe | Unsubscribe) and _applied(ledgers[broker], message, arrived):
            since[message.name] = (arrived, getattr(message, "where", None) or b"")
    for ledger in ledgers.values():
        for name, stands in ledger.standing.items():
            if not ledger.is_over(name, now):
                arrived, where = since[name]
                ends = None if stands.expires is None else timestamp_text(stands.expires)
                yield Stands(*name, timestamp_text(arrived), ends, where.decode())


def _applied(ledger: Ledger, message: Subscribe | Unsubscribe, arrived: int) -> bool:
    """Apply an event, unless the router would refuse it or take it for a repeat. Return whether it had an effect."""
    while ledger.is_due(arrived):
        ledger.expire(arrived)
    return ledger.objection(message, arrived) is None and ledger.apply(message, arrived).is_newer


def _kind(record: Any) -> str:
    return str(record.topic).rpartition(".")[2]


def _order(record: Any) -> tuple[int, int, int, int]:
    return record.timestamp, RANKS[_kind(record)], record.partition, record.offset
