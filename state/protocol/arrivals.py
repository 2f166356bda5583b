"""Arrivals: everything that reaches a region, and the one order in which it is taken.

An arrival belongs to a channel: a partition of a topic, or an incoming link. A channel is never reordered. Arrivals of
different channels are ordered by

    time        when Kafka took the record, but never earlier than an arrival before it on its channel
    rank        of the channel, for arrivals at the same moment
    partition, name, offset

The ranks say what goes first at one moment: a subscribe before a publication, so that the publication is delivered; an
unsubscribe after both.

    subscribe 0    links 1    publish 2    unsubscribe 3    control 4

An events file is one channel with one rank, so `simulate` never reorders it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from state.protocol.commands import Command
from state.protocol.events import Refused, Reject
from state.protocol.frame import Letter
from state.protocol.messages import Message
from state.protocol.wire import Packed

RANKS = {"subscribe": 0, "links": 1, "publish": 2, "unsubscribe": 3, "control": 4}


class Channel(NamedTuple):
    """A sequence of arrivals: a partition of a topic; on a link, the direction `from>to` is the name."""

    rank: int
    partition: int
    name: str
    topic: str = ""
    """The topic, where the name is another one."""


class Arrival(NamedTuple):
    """A client's event, a letter from a neighbouring region, a refused record, or a command.

    `packed` is the message as bytes, for the log; a simulation, which keeps no log, has none.
    """

    channel: Channel
    offset: int
    time: int
    broker: str
    origin: str
    message: Message | Letter | Refused | Command
    packed: Packed | None = None

    @property
    def record(self) -> str:
        """Its position in Kafka, for messages to people."""
        return f"{self.channel.name}, partition {self.channel.partition}, offset {self.offset}"


def refusal(arrival: Arrival, value: bytes, reject: Reject) -> Refused:
    """Return a refused arrival as the row that says so needs it."""
    channel = arrival.channel
    where = channel.topic or channel.name, channel.partition, arrival.offset
    key = channel.name if channel.topic else arrival.broker
    return Refused(*where, value, reject.rule, reject.message, key, arrival.time)


_offset = attrgetter("offset")
_order = attrgetter("time", "channel", "offset")


def merge(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Put arrivals in order, whatever order they come in. O(n log n)."""
    channels: dict[Channel, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        channels[arrival.channel].append(arrival)
    merged = [arrival for channel in channels.values() for arrival in _in_time(channel)]
    merged.sort(key=_order)
    return merged


def _in_time(channel: list[Arrival]) -> Iterable[Arrival]:
    """Yield one channel in the order of its offsets, no arrival earlier than one before it."""
    channel.sort(key=_offset)
    latest = channel[0].time
    for arrival in channel:
        if arrival.time < latest:
            arrival = arrival._replace(time=latest)
        latest = arrival.time
        yield arrival
