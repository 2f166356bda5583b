"""Topics: the names of everything that a system keeps in Kafka, and what an operator may choose about each.

All begin with the prefix of the configuration, so that several systems can share one Kafka. The names are all
that the programs that create, write and read topics have in common.

    [kafka.topics]
    publish    = { partitions = 8, retention = 7 }      days; "forever"
    deliveries = { partitions = 16, replication = 3 }

Four things are not for an operator to choose. `control` and `notices` have one partition: commands and claims have one
order, and notices are few. Of `control` Kafka keeps the last record of each key, and `links` holds a part of the state,
which the router removes when it has been read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from state.errors import ConfigError, nearest

WHERE = "kafka.topics"
TOPIC_NAMES = ("subscribe", "unsubscribe", "publish", "links", "control", "deliveries", "notices", "records")
ONE_PARTITION = ("control", "notices")
NO_RETENTION: Mapping[str, str] = {
    "control": "Kafka keeps the last record of each key of it",
    "links": "it holds a part of the state, and the router removes what was read",
}
FOREVER = "forever"
MOST_COPIES = 32767
MOST_PARTITIONS = 10_000
MOST_DAYS = 36500


@dataclass(frozen=True)
class Topic:
    """How a topic is made: its partitions, its copies, and the days for which records are kept.

    None is what Lacuna, or Kafka itself, makes by default. Without an end the days are `math.inf`.
    """

    partitions: int | None = None
    replication: int | None = None
    retention: float | None = None


def read_topics(given: object) -> dict[str, Topic]:
    """Read `[kafka.topics]`. Raises `ConfigError` if it breaks a rule.

    >>> read_topics({"publish": {"partitions": 8, "retention": 7}})
    {'publish': Topic(partitions=8, replication=None, retention=7)}
    """
    if not isinstance(given, Mapping):
        raise ConfigError(WHERE, given, "this must be a section", f"write it as [{WHERE}]")
    return {name: _read_topic(name, wanted) for name, wanted in given.items()}


def _read_topic(name: str, given: object) -> Topic:
    where, keys = f"{WHERE}.{name}", tuple(field.name for field in fields(Topic))
    if name not in TOPIC_NAMES:
        raise ConfigError(
            where, given, f"there is no such topic{nearest(name, TOPIC_NAMES)}", f"use {', '.join(TOPIC_NAMES)}"
        )
    if not isinstance(given, Mapping):
        raise ConfigError(where, given, "this must be a table", f"write {name} = {{ partitions = 8 }}")
    for key, value in given.items():
        if key not in keys:
            rule = f"there is no such key{nearest(key, keys)}"
            raise ConfigError(f"{where}.{key}", value, rule, f"use {', '.join(keys)}")
    return Topic(
        _partitions(name, given.get("partitions")),
        read_copies(f"{where}.replication", given.get("replication")),
        _retention(name, given.get("retention")),
    )


def _partitions(name: str, given: object) -> int | None:
    where, remedy = f"{WHERE}.{name}.partitions", "write a whole number such as 8"
    if given is None:
        return None
    if type(given) is not int or not 1 <= given <= MOST_PARTITIONS:
        raise ConfigError(where, given, f"it is a number of partitions, from 1 to {MOST_PARTITIONS:,}", remedy)
    if name in ONE_PARTITION and given != 1:
        raise ConfigError(where, given, "this topic has one partition", "leave it out")
    return given


def read_copies(where: str, given: object) -> int | None:
    """Read the number of copies of one topic, or of all."""
    if given is not None and (type(given) is not int or not 1 <= given <= MOST_COPIES):
        raise ConfigError(where, given, "it is the number of copies of each topic, from 1", "write a number such as 3")
    return given


def _retention(name: str, given: object) -> float | None:
    where = f"{WHERE}.{name}.retention"
    if given is None:
        return None
    if name in NO_RETENTION:
        raise ConfigError(where, given, f"it cannot be chosen: {NO_RETENTION[name]}", "leave it out")
    if given == FOREVER:
        return math.inf
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= MOST_DAYS:
        rule = "it is the days for which records are kept, up to a hundred years"
        raise ConfigError(where, given, rule, f'write a number such as 7, or "{FOREVER}"')
    return given


@dataclass(frozen=True)
class Topics:
    """The topics of one system.

    >>> Topics("lacuna").subscribe
    'lacuna.subscribe'
    >>> Topics("lacuna").of("publish")
    'lacuna.publish'
    """

    prefix: str = "lacuna"

    def of(self, kind: str) -> str:
        """Return the topic of a kind of event, or of `links`, `control`, `deliveries`, `notices` or `records`."""
        return f"{self.prefix}.{kind}"

    @property
    def subscribe(self) -> str:
        """Subscribe events; key = broker."""
        return self.of("subscribe")

    @property
    def unsubscribe(self) -> str:
        """Unsubscribe events; key = broker."""
        return self.of("unsubscribe")

    @property
    def publish(self) -> str:
        """Publish events; key = broker."""
        return self.of("publish")

    @property
    def links(self) -> str:
        """Letters between regions; key = `from>to`."""
        return self.of("links")

    @property
    def control(self) -> str:
        """Ticks and commands: see `commands`."""
        return self.of("control")

    @property
    def deliveries(self) -> str:
        """Deliveries to clients; key = client."""
        return self.of("deliveries")

    @property
    def notices(self) -> str:
        """What clients are told about their own events; key = client: see `notices`."""
        return self.of("notices")

    @property
    def records(self) -> str:
        """Frames of rows for the archive; key = region."""
        return self.of("records")

    @property
    def events(self) -> tuple[str, str, str]:
        """The topics that clients write."""
        return self.subscribe, self.unsubscribe, self.publish

    @property
    def all(self) -> tuple[str, ...]:
        """Every topic of the system."""
        return (*self.events, self.links, self.control, self.deliveries, self.notices, self.records)
