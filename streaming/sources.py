"""From Kafka to parcels: read the topics, refuse what breaks a rule, and send each record to its region.

This stage runs on the workers, without state. A record that breaks a rule becomes a reject here, so the stateful step
sees only arrivals. An event goes to the region of its broker; a letter goes, unread, to the region of its receiver; a
tick or a command goes to every region. A reject goes to the region of its broker, or to the first if it has none.

A record counts as taken no later than the batch began, whatever the clock of the machine that stamped it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from state.protocol.arrivals import RANKS, Channel
from state.protocol.channel import direction_name
from state.protocol.commands import COMMAND, Apply, Tick, read_command
from state.protocol.control import CLAIM, LIFE, TICK
from state.protocol.events import Context, Refused, Reject, Source, read
from state.protocol.frame import Frame
from state.protocol.frame import read as read_frame
from state.protocol.messages import Headers
from state.protocol.wire import pack
from streaming.heap import HEAP
from streaming.schemas import MOST_REFUSED, Ordered, Parcel, Posted, Rejected, Sent, write_parcel
from streaming.settings import Part, Settings

COLUMNS = ("topic", "partition", "offset", "time", "key", "value", "headers")
"""The columns of a record."""
ROWS = pa.schema([("region", pa.string()), ("parcel", pa.binary())])
RawHeaders = Sequence[dict[str, Any]] | None
"""Headers as Spark hands them over."""


class Sorter:
    """Sorts one chunk of records into parcels; `now` is the moment at which the batch began."""

    def __init__(self, settings: Settings, now: int) -> None:
        self._settings, self._now = settings, now
        config, topics = settings.config, settings.topics
        self._context = Context(config.space, config.overlay.brokers)
        self._kinds = {topics.of(kind): kind for kind in RANKS}
        self._directions = {direction_name(a, b).encode(): (a, b) for a, b in config.overlay.directions()}
        self._links = {direction_name(a, b) for a, b in config.overlay.directions()}
        self._brokers = {old.encode(): new for old, new in settings.aliases.items()}
        self._brokers |= {broker.encode(): broker for broker in config.overlay.brokers}
        self._channels: dict[tuple[str, int], Channel] = {}
        self._parcels: dict[tuple[str, Channel], Parcel] = {}

    def add(
        self,
        topic: str,
        partition: int,
        offset: int,
        time: int,
        key: bytes | None,
        value: bytes | None,
        headers: RawHeaders = None,
    ) -> None:
        """Take one record."""
        kind, taken, content = self._kinds[topic], min(time, self._now), value or b""
        channel = self._channels.get((topic, partition))
        if channel is None:
            channel = self._channels[topic, partition] = Channel(RANKS[kind], partition, topic)
        if kind == "links":
            reject = self._add_letter(partition, offset, taken, key, content)
        elif kind == "control":
            reject = self._add_command(channel, offset, taken, key, content)
        else:
            reject = self._add_event(kind, channel, offset, taken, key, content, _headers(headers))
        if reject is not None:
            part, broker = self._home_of(kind, key)
            name = None if key is None else key.decode(errors="replace")
            why = reject.rule, reject.message
            refused = Refused(topic, partition, offset, content[:MOST_REFUSED], *why, name, taken)
            self._parcel(part, channel).rejects.append(Rejected(offset, taken, broker, refused))

    def _add_event(
        self, kind: str, channel: Channel, offset: int, time: int, key: bytes | None, value: bytes, headers: Headers
    ) -> Reject | None:
        broker = None if key is None else self._brokers.get(key) or key.decode(errors="replace")
        source = Source(channel.rank, offset, f"{channel.partition}:{offset}", time)
        message = read(self._context, kind, broker, value, source, headers)
        if isinstance(message, Reject):
            return message
        home = str(broker)
        self._parcel(self._settings.part_of[home], channel).events.append(Sent(offset, time, home, pack(message)))
        return None

    def _add_letter(self, partition: int, offset: int, time: int, key: bytes | None, value: bytes) -> Reject | None:
        direction = self._directions.get(key or b"")
        if direction is None:
            return Reject("broker", f"{key!r} is not a link of the overlay")
        sender, receiver = direction
        frame = read_frame(value)
        channel = Channel(RANKS["links"], partition, direction_name(sender, receiver), self._settings.topics.links)
        if not isinstance(frame, Frame):
            return frame
        content = frame.content
        if content.epoch in self._settings.earlier:
            return None  # of an earlier life, perhaps with other regions: a leftover, or a zombie's
        if content.epoch != self._settings.epoch:
            return Reject("foreign", f"epoch {content.epoch} is not one that this system has had")
        if content.kind != "letter" or content.channel != channel.name or channel.name not in self._settings.links:
            return Reject("foreign", f"a frame of {content.channel} ({content.kind}) is no letter on {channel.name}")
        part = self._settings.part_of[receiver]
        self._parcel(part, channel).letters.append(Posted(offset, time, receiver, sender, frame))
        return None

    def _add_command(self, channel: Channel, offset: int, time: int, key: bytes | None, value: bytes) -> Reject | None:
        name = (key or b"").decode(errors="replace")
        if name.startswith(CLAIM):
            return None
        if name != TICK and not name.startswith((LIFE, COMMAND)):
            return Reject("foreign", f"{name!r} is not the key of a tick, a claim, a life or a command")
        command = read_command(value, self._links) if name.startswith(COMMAND) else Tick()
        if isinstance(command, Reject):
            return command
        if isinstance(command, Apply):
            return None  # the holder's business
        for part in self._settings.parts:
            self._parcel(part, channel).commands.append(Ordered(offset, time, command))
        return None

    def _home_of(self, kind: str, key: bytes | None) -> tuple[Part, str]:
        """Return the region and the broker of a refused record."""
        name = (key or b"").decode(errors="replace")
        broker = name.rpartition(">")[2] if kind == "links" else name
        part = self._settings.part_of.get(broker)
        if part is None:
            part = self._settings.parts[0]
            broker = part.name
        return part, broker

    def _parcel(self, part: Part, channel: Channel) -> Parcel:
        parcel = self._parcels.get((part.key, channel))
        if parcel is None:
            parcel = self._parcels[part.key, channel] = Parcel(channel, [], [], [], [])
        return parcel

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the parcels so far, a row per region and channel, and start again."""
        for (region, _), parcel in self._parcels.items():
            yield {"region": region, "parcel": write_parcel(parcel)}
        self._parcels.clear()


def _headers(given: RawHeaders) -> Headers:
    return tuple([(header["key"], header["value"] or b"") for header in given]) if given else ()


def sort_records(settings: Settings) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow`: Kafka records in, parcels out."""

    def sort(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            if chunk.num_rows:
                sorter = Sorter(settings, chunk.column("now")[0].as_py())
                for record in zip(*(chunk.column(name).to_pylist() for name in COLUMNS), strict=True):
                    sorter.add(*record)
                yield pa.RecordBatch.from_pylist(list(sorter.rows()), schema=ROWS)
        HEAP.settle()

    return sort
