"""Channels: each direction of a link between two regions is a sequence that is applied in order, each letter once.

Kafka may repeat letters (Spark's sink does, after a crash), but a sender numbers them 1, 2, 3 ... and a receiver keeps
the number and the checksum of the last one that it applied:

    number <= last       a repeat: ignored
    number == last + 1   applied, if it names the checksum of the last one as its predecessor
    number >  last + 1   a gap: letters are lost, and going on would lose publications; the job stops

A sender also states its epoch: which life of the system this is. All regions begin a life together, so a letter of an
older epoch is a leftover and ignored; one of a newer epoch means that this state is an old copy, and the job stops.
"""

from __future__ import annotations

from dataclasses import dataclass

from state.errors import InvariantError
from state.protocol.frame import START, Content, Kind, Letter, write

OLD_COPY = "Remedy: restore the newest checkpoint, or start from an empty one"


@dataclass
class Sender:
    """The sending end of a channel: how many frames it has written, and the checksum of the last."""

    channel: str
    epoch: int
    number: int = 0
    checksum: bytes = START

    def frame(self, kind: Kind, body: bytes, batch: int) -> bytes:
        """Return the next frame of the channel as bytes."""
        self.number += 1
        frame, self.checksum = write(Content(self.epoch, batch, self.channel, self.number, self.checksum, kind, body))
        return frame


@dataclass
class Receiver:
    """The receiving end of a channel: the number and the checksum of the last letter that was applied."""

    channel: str
    epoch: int
    number: int = 0
    checksum: bytes = START

    def accept(self, letter: Letter) -> bool:
        """Return whether a letter is to be applied (True) or ignored (False). Raises `InvariantError` at a gap.

        >>> receiver = Receiver("oslo>paris", epoch=1)
        >>> first = Letter(1, 0, 1, START, b"a", [])
        >>> receiver.accept(first), receiver.accept(first), receiver.accept(Letter(1, 0, 2, b"a", b"b", []))
        (True, False, True)
        """
        if letter.epoch > self.epoch:
            raise InvariantError(
                f"the channel {self.channel} is in epoch {letter.epoch}, this state in {self.epoch}: the state is an "
                f"old copy. {OLD_COPY}"
            )
        if letter.epoch < self.epoch or letter.number < self.number:
            return False
        if letter.number == self.number:
            self._refuse_fork(letter.checksum, letter.number)
            return False
        if letter.number > self.number + 1:
            raise InvariantError(
                f"the channel {self.channel} jumps from letter {self.number} to {letter.number}: letters are lost. "
                "Remedy: check the retention of the links topic, restore the topic or start from an empty checkpoint"
            )
        self._refuse_fork(letter.previous, letter.number - 1)
        self.number, self.checksum = letter.number, letter.checksum
        return True

    def _refuse_fork(self, checksum: bytes, number: int) -> None:
        if checksum != self.checksum:
            raise InvariantError(
                f"letter {number} of the channel {self.channel} is not the one that was applied here: the state of one "
                f"of the two regions is an old copy. {OLD_COPY}"
            )
