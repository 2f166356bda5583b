"""One frozen value with everything that the queries need to know; it travels to the workers with their code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from state.config import Config
from state.protocol.messages import LOCAL

REJECTS = "rejects"
"""The group that numbers the rejects: the only one that belongs to no broker."""
TICK = b"tick"
"""The key of a record on the links topic that lets time pass in every group."""


@dataclass(frozen=True)
class Settings:
    """The configuration, and which life of the system this is (see `state.protocol.channel`)."""

    config: Config
    epoch: int

    def topic(self, name: str) -> str:
        """The full name of a topic."""
        return f"{self.config.kafka.prefix}.{name}"

    def groups(self, broker: str) -> list[str]:
        """The groups of one broker."""
        return [group_name(broker, link) for link in (LOCAL, *self.config.overlay.neighbours[broker])]

    def all_groups(self) -> Iterator[str]:
        """The groups of all brokers."""
        return (name for broker in self.config.overlay.brokers for name in self.groups(broker))


def group_name(broker: str, link: str) -> str:
    """A group as a string: the key by which Spark groups, and the name of its channel of records.

    >>> group_name("oslo", "paris")
    'oslo>paris'
    """
    return f"{broker}>{link}"


def group_parts(name: str) -> tuple[str, str]:
    """Broker and link of a group's name."""
    broker, _, link = name.partition(">")
    return broker, link
