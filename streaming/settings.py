"""One frozen value with everything that the queries need to know; it travels to the workers with their code.

The overlay is cut into regions once, when a life is made (`life`). A region is named after its first
broker. Spark groups by a key of its own for each region, `name#salt`: the salt is chosen so that every region has a
partition of its own, which the name alone does not ensure. Channels are named without the salt.

The router also fixes in which partition of its topics each channel is written, so that partitions that are added later
never reorder a channel, or hide a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

from state.config import Config
from state.errors import ConfigError
from state.protocol.channel import direction_name
from state.protocol.control import Offsets
from state.protocol.topics import Topics
from state.routing.cut import Regions
from streaming.hashing import spark_partition


@dataclass(frozen=True)
class Part:
    """A region: its name, the key by which Spark groups, and its brokers."""

    name: str
    key: str
    brokers: tuple[str, ...]


@dataclass(frozen=True)
class Spread:
    """The number of partitions of each topic that the router writes."""

    links: int = 1
    records: int = 1
    deliveries: int = 1


@dataclass(frozen=True)
class Settings:
    """The configuration, which life of the system this is (`state.protocol.channel`), and its regions.

    `links` and `records` give the partition of each channel of these topics, `deliveries` the number of partitions over
    which clients are spread. `earlier` are the epochs of the lives before this one, `folder` is where this one is kept
    (`streaming.life`), `starts` are the offsets at which it begins. `seeded` says that its regions do not begin from
    nothing. `aliases` are brokers that are gone, and those that their clients have moved to.
    `state` is how Spark keeps the state of a region.
    """

    config: Config
    epoch: int
    parts: tuple[Part, ...]
    links: Mapping[str, int] = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)
    deliveries: int = 1
    earlier: frozenset[int] = frozenset()
    folder: str = ""
    starts: Offsets = field(default_factory=dict)
    seeded: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    state: str = "row"

    @property
    def topics(self) -> Topics:
        """The names of the topics."""
        return Topics(self.config.kafka.prefix)

    @cached_property
    def part_of(self) -> dict[str, Part]:
        """The region of each broker."""
        return {broker: part for part in self.parts for broker in part.brokers}

    @cached_property
    def by_key(self) -> dict[str, Part]:
        """The regions by the key by which Spark groups."""
        return {part.key: part for part in self.parts}


def settle(
    config: Config, epoch: int, partitions: int, cores: int | None = None, spread: Spread | None = None
) -> Settings:
    """Return the settings of a new checkpoint: `auto` is resolved here, for so many cores, and channels are placed.

    Raises `ConfigError` if there are fewer partitions of the stateful step than regions.
    """
    wide = spread or Spread()
    regions = config.overlay.cut(min(cores or partitions, partitions))
    parts = keyed(regions, partitions)
    home = {broker: part.name for part in parts for broker in part.brokers}
    borders = [direction_name(a, b) for a, b in config.overlay.directions() if home[a] != home[b]]
    return Settings(
        config,
        epoch,
        parts,
        {channel: k % wide.links for k, channel in enumerate(borders)},
        {part.name: k % wide.records for k, part in enumerate(parts)},
        wide.deliveries,
        state=config.state,
    )


def keyed(regions: Regions, partitions: int) -> tuple[Part, ...]:
    """Give every region a key that Spark puts into a partition of its own.

    >>> [part.key for part in keyed((("paris", "oslo"), ("rome",)), 2)]
    ['paris#0', 'rome#1']
    """
    if len(regions) > partitions:
        raise ConfigError(
            "overlay.regions",
            len(regions),
            f"every region has a partition of the stateful step to itself, and there are {partitions}",
            f"start with --partitions {len(regions)} or more, or make fewer regions",
        )
    parts: list[Part] = []
    taken: set[int] = set()
    for brokers in regions:
        name = brokers[0]
        keys = (f"{name}#{salt}" for salt in count())
        key = next(key for key in keys if spark_partition(key, partitions) not in taken)
        taken.add(spark_partition(key, partitions))
        parts.append(Part(name, key, brokers))
    return tuple(parts)
