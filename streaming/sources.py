"""From Kafka to parcels: read the four topics, refuse what breaks a rule, fan out to the groups.

Runs on the workers, without state. Everything doubtful ends here, as a reject with its rule; the stateful step sees
only messages. A client's event goes to every group of its broker; so does a letter on a link, unread, to every group
of the receiving broker; a tick, and the wish for a rebuild or for another pruning, go to every group there is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from state.protocol.commands import read_wish
from state.protocol.events import Context, Reject, read
from state.protocol.topics import PRUNE, REBUILD
from state.protocol.wire import pack as pack_message
from streaming.schemas import Asked, ClientEvent, Mail, Refused, pack
from streaming.settings import REJECTS, TICK, Settings, group_name

UNSUBSCRIBE_PLACE = 1 << 62
"""Added to an unsubscribe's offset: of a subscribe and an unsubscribe at the same moment the latter is the later."""

FIELDS = pa.schema(
    [
        ("group", pa.string()),
        ("channel", pa.string()),
        ("start", pa.int64()),
        ("now", pa.int64()),
        ("blob", pa.binary()),
    ]
)
Channel = tuple[str, str]
"""Whose groups (a broker, REJECTS, or empty for all) and which channel."""


class Sorter:
    """Sorts one chunk of records into parcels."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._context = Context(settings.config.space, settings.config.overlay.brokers)
        self._links = settings.topic("links")
        self._prefix = len(settings.config.kafka.prefix) + 1
        self._directions = {f"{a}>{b}".encode(): (a, b) for a, b in settings.config.overlay.directions()}
        self._names = {group_name(*direction) for direction in self._directions.values()}
        self._parcels: dict[Channel, list[Any]] = defaultdict(list)

    def add(self, topic: str, partition: int, offset: int, time: int, key: bytes | None, value: bytes | None) -> None:
        """Take one record."""
        if topic == self._links:
            self._add_link(partition, offset, time, key, value or b"")
        else:
            self._add_event(topic, partition, offset, time, key, value or b"")

    def _add_link(self, partition: int, offset: int, time: int, key: bytes | None, value: bytes) -> None:
        if key in (TICK, REBUILD):
            self._parcels["", key.decode()] = [0]
        elif key == PRUNE:
            self._add_wish(partition, offset, value)
        elif key in self._directions:
            sender, receiver = self._directions[key]
            self._parcels[receiver, f"link:{sender}"].append(Mail(offset, time, value))
        else:
            message = f"{key!r} is not a link of the overlay"
            self._refuse(self._links, partition, offset, value, Reject("broker", message))

    def _add_wish(self, partition: int, offset: int, value: bytes) -> None:
        wish = read_wish(value, self._names)
        if isinstance(wish, Reject):
            self._refuse(self._links, partition, offset, value, wish)
        else:
            self._parcels["", "prune"].append(Asked(partition, offset, wish))

    def _add_event(self, topic: str, partition: int, offset: int, time: int, key: bytes | None, value: bytes) -> None:
        kind = topic[self._prefix :]
        broker = None if key is None else key.decode(errors="replace")
        place = offset + UNSUBSCRIBE_PLACE if kind == "unsubscribe" else offset
        message = read(self._context, kind, broker, value, time, place)
        if isinstance(message, Reject):
            self._refuse(topic, partition, offset, value, message)
        else:
            channel = (str(broker), f"client:{kind}:{partition:05}")
            self._parcels[channel].append(ClientEvent(offset, time, pack_message(message)))

    def _refuse(self, topic: str, partition: int, offset: int, value: bytes, reject: Reject) -> None:
        refused = Refused(topic, partition, offset, value[: 1 << 16], reject.rule, reject.message)
        self._parcels[REJECTS, f"{topic}:{partition:05}"].append(refused)

    def rows(self, now: int) -> Iterator[dict[str, Any]]:
        """What has gathered: a row per channel and group."""
        for (whose, channel), entries in self._parcels.items():
            start = getattr(entries[0], "offset", 0)
            blob = pack(entries)
            for group in self._groups(whose):
                yield {"group": group, "channel": channel, "start": start, "now": now, "blob": blob}
        self._parcels.clear()

    def _groups(self, whose: str) -> list[str]:
        if whose == REJECTS:
            return [REJECTS]
        return self._settings.groups(whose) if whose else list(self._settings.all_groups())


def sort_records(settings: Settings) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: Kafka records in, parcels out."""

    def sort(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sorter = Sorter(settings)
        for chunk in chunks:
            columns = chunk.to_pydict()
            names = ("topic", "partition", "offset", "time", "key", "value")
            for record in zip(*(columns[name] for name in names), strict=True):
                sorter.add(*record)
            if columns["now"]:
                yield pa.RecordBatch.from_pylist(list(sorter.rows(columns["now"][0])), schema=FIELDS)

    return sort
