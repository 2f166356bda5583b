"""Which deliveries are the router's, and where those of a client are.

The topic `deliveries` may hold what does not count: repeats after a crash, which their numbers show; records of a
router that was succeeded and does not know it yet; and what anybody else wrote. So a reader polls *first*, then reads
the topic `control` to its end, and judges by that what it has polled (`state.protocol.control`).

A number above the count of all records since the life began is passed over, too: taken for true, it would make every
later delivery look like a repeat.

The router itself chooses the partition of a client's deliveries: `murmur2(client) % P`, where P is the number of
partitions when the life began. The announcement of a life lists them, so a reader needs one partition for each life.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from access import DEADLINE
from access.connection import partition_of
from access.control import ControlLog
from state.config import Kafka
from state.protocol.control import Life, Lives, count_since
from state.protocol.topics import Topics

DELIVERIES = "deliveries"

log = logging.getLogger(__name__)


class Judgement(NamedTuple):
    """What a reader judges by: the lives that were announced, and the ends of the partitions (None: unknown)."""

    lives: Lives = Lives()
    ends: Mapping[int, int] | None = None

    def admits(self, partition: int, offset: int, epoch: int, seq: int) -> bool:
        """Return whether the router wrote a delivery, in a life that had not ended by then. O(lives)."""
        judgement = self.lives.judge(epoch, DELIVERIES, partition, offset)
        life = next((life for life in self.lives.announced if life.epoch == epoch), None)
        possible = life is None or self.ends is None or seq <= count_since(life, DELIVERIES, self.ends)
        if judgement == "foreign" or (judgement == "valid" and not possible):
            log.warning(
                "deliveries, partition %d, offset %d: passed over, not the router's: epoch %d, seq %d",
                *(partition, offset, epoch, seq),
            )
        return judgement == "valid" and possible


class Judge:
    """Reads what to judge by. For one thread."""

    def __init__(self, kafka: Kafka, deadline: float = DEADLINE) -> None:
        self._control = ControlLog(kafka.bootstrap, kafka.prefix, deadline)
        self._topic = Topics(kafka.prefix).deliveries

    def lives(self) -> Lives:
        """Return the lives that are announced by now."""
        return self._control.read().lives

    def look(self, partitions: Collection[int] = ()) -> Judgement:
        """Return what to judge by those records that were polled before; `partitions` count if no life has any."""
        lives = self.lives()
        known = {int(number) for life in lives.announced for number in life.ends.get(DELIVERIES, {})}
        return Judgement(lives, self._control.ends(self._topic, known or partitions))

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        self._control.close()


def home_of(client: bytes, life: Life) -> int | None:
    """Return the partition of a client's deliveries in a life; None if the announcement lists no partitions."""
    count = len(life.ends.get(DELIVERIES, {}))
    return partition_of(client, count) if count else None


def homes_of(client: bytes, lives: Lives) -> set[int] | None:
    """Return the partitions that may hold deliveries of a client; None: any, as no life says where they are."""
    homes = {home_of(client, life) for life in lives.announced}
    return None if None in homes or not homes else {home for home in homes if home is not None}
