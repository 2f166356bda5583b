"""Channels: each direction of a link between two regions is a sequence that is applied in order, each letter once.

Kafka may repeat letters (Spark's sink does, after a crash), but a sender numbers them 1, 2, 3 ... and a receiver keeps
the number and the checksum of the last one that it applied:

    number <  last       a repeat: ignored
    number == last       a repeat, if it has the checksum of the last one
    number == last + 1   applied, if it names the checksum of the last one as its predecessor
    number >  last + 1   a gap: letters are lost, and going on would lose publications; the job stops

A letter that uses a number again for other contents, or names another predecessor, is foreign: a reject. So is a letter
of a batch that this router has not run yet. Spark plans a batch before it writes anything of it, and reads in a batch
only what was there when it was planned, so such a letter was written by something else.

A frame also states its epoch: which life of the system it belongs to (`control`). Frames of other lives never come as
far as a channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from state.errors import InvariantError
from state.protocol.events import Reject
from state.protocol.frame import START, Content, Kind, Letter, write


def direction_name(sender: str, receiver: str) -> str:
    """Return the name of one direction of a link, and so of its channel."""
    return f"{sender}>{receiver}"


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
    number: int = 0
    checksum: bytes = START

    def accept(self, letter: Letter, batch: int) -> bool | Reject:
        """Return whether a letter that is read in this batch is to be applied (True), ignored (False) or refused.

        Raises `InvariantError` at a gap.

        >>> receiver = Receiver("oslo>paris")
        >>> first, second = Letter(1, 0, 1, START, b"a", []), Letter(1, 0, 2, b"a", b"b", [])
        >>> receiver.accept(first, 1), receiver.accept(first, 1), receiver.accept(second, 1)
        (True, False, True)
        """
        if letter.batch >= batch:
            return self._foreign(letter, f"is of batch {letter.batch}, which comes later than this one, {batch}")
        if letter.number < self.number:
            return False
        if letter.number == self.number:
            same = letter.checksum == self.checksum
            return self._foreign(letter, "is not the one that was applied here") if not same else False
        if letter.number > self.number + 1:
            raise InvariantError(
                f"the channel {self.channel} jumps from letter {self.number} to {letter.number}: letters are lost. "
                "Remedy: restore the topic links from a copy, or begin a new life: lacuna apply --from topics"
            )
        if letter.previous != self.checksum:
            return self._foreign(letter, f"does not follow the letter {self.number} that was applied here")
        self.number, self.checksum = letter.number, letter.checksum
        return True

    def _foreign(self, letter: Letter, why: str) -> Reject:
        return Reject("foreign", f"letter {letter.number} of the channel {self.channel} {why}")
