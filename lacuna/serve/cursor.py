"""How far a listener is, as the id of each event of its stream; and which deliveries are new to it.

The router numbers deliveries per `channel` (a region), and states the `epoch`, which life of the system it is. In each
life it puts the deliveries of a client into one partition. So a client's deliveries are one sequence:

    epoch 1, partition 3                 epoch 2, partition 0
    |  1  2  4  5  4  5  9 ...  |        |  1  2  3 ...
    begin        repeats after  end      begin                 begins and ends: `ends` of the announced lives
                 a crash

A cursor is a place in that sequence, and the highest number of each channel that came before it in this epoch:

    id: 1.3.207.oslo:9,rome:4            epoch 1, partition 3, the next offset is 207

An offset alone would fail: the router may write 4 and 5 once more behind it. A number alone would fail too: it does not
say where to go on reading. Together they need no memory in the gateway: any gateway goes on from any id.

    resume    seek to the offset, and pass over numbers at or below the highest
    next life begin at its first offset; numbers begin again
    lost      the offset is not there any more (retention): go on with the first that is, and say so
    unknown   an epoch that was never announced: Kafka was made again, or the id is made up; begin with the oldest life

Before the first life there is nothing to read: epoch 0 stands for that, and what follows is the first life's beginning.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import NamedTuple

from producers.judging import DELIVERIES, home_of
from state.protocol.control import Lives

FORM = re.compile(r"(\d{1,18})\.(\d{1,9})\.(\d{1,18})\.(.*)")
MOST_TEXT = 16_384


class Stretch(NamedTuple):
    """The part of a partition that holds a client's deliveries of one life; `end` is None for the newest."""

    epoch: int
    partition: int
    begin: int
    end: int | None


def stretches(client: bytes, lives: Lives) -> list[Stretch]:
    """Return where a client's deliveries are, life after life. A life that lists no partitions has none.

    >>> from state.protocol.control import Life
    >>> ends = {"0": 50, "1": 60}
    >>> announced = Life(1, 1, "first", {"deliveries": {"0": 0}}), Life(9, 2, "apply", {"deliveries": ends})
    >>> stretches(b"cat", Lives(announced))
    [Stretch(epoch=1, partition=0, begin=0, end=50), Stretch(epoch=2, partition=1, begin=60, end=None)]
    """
    found = []
    for life, later in zip_longest(lives.announced, lives.announced[1:]):
        home = home_of(client, life)
        if home is not None:
            begin = life.ends[DELIVERIES][str(home)]
            end = None if later is None else later.ends.get(DELIVERIES, {}).get(str(home), begin)
            found.append(Stretch(life.epoch, home, begin, end))
    return found


class Cursor:
    """How far one listener is."""

    __slots__ = ("epoch", "numbers", "offset", "partition")

    def __init__(
        self, epoch: int = 0, partition: int = 0, offset: int = 0, numbers: dict[str, int] | None = None
    ) -> None:
        self.epoch, self.partition, self.offset = epoch, partition, offset
        self.numbers = dict(numbers or {})

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """Return the cursor that an id stands for; None if it is no id of ours.

        >>> Cursor.parse("1.3.207.oslo:9,rome:4").numbers, Cursor.parse("1.3"), Cursor.parse("1.0.5.").text()
        ({'oslo': 9, 'rome': 4}, None, '1.0.5.')
        """
        found = FORM.fullmatch(text) if len(text) <= MOST_TEXT and text.isascii() else None
        if found is None:
            return None
        numbers = {}
        for pair in found[4].split(",") if found[4] else ():
            channel, _, number = pair.rpartition(":")
            if not channel or not number.isdigit() or len(number) > 18:
                return None
            numbers[channel] = int(number)
        return cls(int(found[1]), int(found[2]), int(found[3]), numbers)

    def text(self) -> str:
        """Return the id."""
        numbers = ",".join([f"{channel}:{number}" for channel, number in self.numbers.items()])
        return f"{self.epoch}.{self.partition}.{self.offset}.{numbers}"

    def take(self, offset: int, channel: str, number: int) -> bool:
        """Pass a delivery of this epoch and partition. Return whether it is new."""
        self.offset = offset + 1
        if number <= self.numbers.get(channel, 0):
            return False
        self.numbers[channel] = number
        return True

    def enter(self, stretch: Stretch) -> None:
        """Go to the beginning of a life."""
        self.epoch, self.partition, self.offset, self.numbers = stretch.epoch, stretch.partition, stretch.begin, {}

    def settle(self, there: list[Stretch]) -> Stretch | None:
        """Go on to the next life as long as this one is read to its end. Return where to read; None: nowhere yet.

        A cursor whose epoch or partition no life has, which only a Kafka that was made again explains, goes to the
        oldest life.
        """
        if not there:
            return None
        if self.epoch == 0:
            self.enter(there[0])
        at = next((k for k, s in enumerate(there) if (s.epoch, s.partition) == (self.epoch, self.partition)), None)
        if at is None:
            at = 0
            self.enter(there[0])
        while (end := there[at].end) is not None and self.offset >= end:
            at += 1
            self.enter(there[at])
        self.offset = max(self.offset, there[at].begin)
        return there[at]
