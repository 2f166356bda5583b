"""Topics: the names of everything that a system keeps in Kafka.

All begin with the prefix of the configuration, so that several systems can share one Kafka. The names are all
that the programs that create, write and read topics have in common.
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
