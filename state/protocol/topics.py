"""Topics: the names under which a system's events, links, deliveries and records are in Kafka.

All begin with the prefix of the configuration, so that several systems can share one Kafka. Only names are here: who
creates topics, writes or reads them needs nothing else in common.
"""

from __future__ import annotations

from dataclasses import dataclass


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
        """The topic of a kind of event, or of `links`, `control`, `deliveries` or `records`."""
        return f"{self.prefix}.{kind}"

    @property
    def subscribe(self) -> str:
        """What clients ask for; key = broker."""
        return self.of("subscribe")

    @property
    def unsubscribe(self) -> str:
        """What clients no longer ask for; key = broker."""
        return self.of("unsubscribe")

    @property
    def publish(self) -> str:
        """What publishers say; key = broker."""
        return self.of("publish")

    @property
    def links(self) -> str:
        """What brokers tell each other; key = `from>to`."""
        return self.of("links")

    @property
    def control(self) -> str:
        """Ticks and commands: see `commands`."""
        return self.of("control")

    @property
    def deliveries(self) -> str:
        """What reaches clients; key = client."""
        return self.of("deliveries")

    @property
    def records(self) -> str:
        """What the archive writes."""
        return self.of("records")

    @property
    def events(self) -> tuple[str, str, str]:
        """The topics that clients write."""
        return self.subscribe, self.unsubscribe, self.publish

    @property
    def all(self) -> tuple[str, ...]:
        """Every topic of the system."""
        return (*self.events, self.links, self.control, self.deliveries, self.records)
