"""The subscriptions that stand, as the topics say: every subscribe and unsubscribe event, judged as the router judges.

The topics keep these events for ever, so neither the job nor the lake is needed. The router may not have read the last
of them yet. An event that it refuses (stale, beyond a limit, against a rule) has no effect here either. Clients of a
broker that is gone are shown at the one to which `lacuna apply --move` has moved them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

from access import DEADLINE
from access.control import ControlLog
from access.offsets import Partition, Span, topic_spans
from access.tails import in_order, records_between
from access.topics import require_topics
from state.config import Config
from state.protocol.arrivals import RANKS
from state.protocol.events import Context, Source, read
from state.protocol.ledger import Ledger
from state.protocol.messages import Name, Subscribe, Unsubscribe
from state.protocol.topics import Topics
from state.space import timestamp_text

KINDS = ("subscribe", "unsubscribe")
NO_ALIASES: Mapping[str, str] = MappingProxyType({})


class Stands(NamedTuple):
    """A subscription that stands: since when, until when (None: until it is cancelled), and its filter as JSON."""

    broker: str
    client: str
    subscription: str
    since: str
    expires: str | None
    filter: str


class Standing:
    """What stands, for somebody who asks again and again: each time only the new events are read."""

    def __init__(self, config: Config) -> None:
        self._config, self._topics = config, Topics(config.kafka.prefix)
        self._context = Context(config.space, config.overlay.brokers)
        self._control = ControlLog(config.kafka.bootstrap, config.kafka.prefix)
        self._aliases: Mapping[str, str] = {}
        self._lock = Lock()
        self._begin()

    def _begin(self) -> None:
        config = self._config
        self._ledgers = {b: Ledger(config.remember, config.limits) for b in config.overlay.brokers}
        self._since: dict[Name, tuple[int, bytes]] = {}
        self._read: dict[Partition, int] = {}

    def now(self, now: int, deadline: float = DEADLINE) -> list[Stands]:
        """Return what stands at this moment (microseconds). Raises `KafkaFailed` if the topics cannot be read."""
        names, kafka = [self._topics.of(kind) for kind in KINDS], self._config.kafka.bootstrap
        with self._lock:
            newest = self._control.read().lives.newest
            self.follow({} if newest is None else newest.aliases)
            spans = topic_spans(kafka, names, deadline)
            if {topic for topic, _ in spans} != set(names):
                require_topics(kafka, names, deadline)
            if any(self._read.get(part, span.first) > span.next for part, span in spans.items()):
                self._begin()  # the topics were made again
            left = {part: Span(self._read.get(part, span.first), span.next) for part, span in spans.items()}
            if any(span.first < span.next for span in left.values()):
                self.take(list(records_between(kafka, left, deadline)))
            self._read = {part: span.next for part, span in spans.items()}
            return list(self.at(now))

    def follow(self, aliases: Mapping[str, str]) -> None:
        """Show the clients of brokers that are gone at others. Where that is news, everything is read again."""
        if aliases != self._aliases:
            self._aliases = aliases
            self._begin()

    def close(self) -> None:
        """Close the connection that is kept."""
        self._control.close()

    def take(self, records: Iterable[Any]) -> None:
        """Apply records of the two topics, which came after those before."""
        for arrived, record in in_order(records):
            kind, named = _kind(record), (record.key or b"").decode(errors="replace")
            broker = self._aliases.get(named, named)
            source = Source(RANKS[kind], record.offset, f"{record.partition}:{record.offset}", arrived)
            message = read(self._context, kind, broker, record.value or b"", source)
            if isinstance(message, Subscribe) and _applied(self._ledgers[broker], message, arrived):
                self._since[message.name] = (arrived, message.where or b"")
            elif isinstance(message, Unsubscribe) and _applied(self._ledgers[broker], message, arrived):
                self._since.pop(message.name, None)

    def at(self, now: int) -> Iterator[Stands]:
        """Yield what stands at a moment (microseconds)."""
        for ledger in self._ledgers.values():
            for name, stands in ledger.standing.items():
                if not ledger.is_over(name, now):
                    arrived, where = self._since[name]
                    ends = None if stands.expires is None else timestamp_text(stands.expires)
                    yield Stands(*name, timestamp_text(arrived), ends, where.decode())


def standing(config: Config, now: int, deadline: float = DEADLINE) -> list[Stands]:
    """Return what stands at this moment (microseconds). Raises `KafkaFailed` if the topics cannot be read."""
    with closing(Standing(config)) as found:
        return found.now(now, deadline)


def judged(
    config: Config, records: Iterable[Any], now: int, aliases: Mapping[str, str] = NO_ALIASES
) -> Iterator[Stands]:
    """Yield what stands after these records of the two topics. `aliases` are brokers that are gone, and their heirs."""
    found = Standing(config)
    found.follow(aliases)
    found.take(records)
    return found.at(now)


def _applied(ledger: Ledger, message: Subscribe | Unsubscribe, arrived: int) -> bool:
    """Apply an event, unless the router would refuse it or take it for a repeat. Return whether it had an effect."""
    while ledger.is_due(arrived):
        ledger.expire(arrived)
    return ledger.objection(message, arrived) is None and ledger.apply(message, arrived).is_newer


def _kind(record: Any) -> str:
    return str(record.topic).rpartition(".")[2]
