"""Channels: each direction of a link is a sequence that is applied in order, each message exactly once.

What carries the messages may repeat them (Kafka out of Spark does, after a crash), but a sender numbers them 1, 2, 3
... and a receiver keeps the number of the last one it applied:

    number <= last       a repeat: ignored
    number == last + 1   applied
    number >  last + 1   a gap: messages are lost, and going on would lose publications; the job stops

A sender also states its epoch: which life of the system this is. All groups begin their lives together, with an empty
checkpoint, and what they hear again from the topics after that is told anew in the new epoch. So a message of an older
epoch is a leftover and ignored; one of a newer epoch means that this state is an old copy, and the job stops.
"""

from __future__ import annotations

from typing import NamedTuple

from state.errors import InvariantError


class Mark(NamedTuple):
    """The last message applied on a channel."""

    epoch: int
    number: int


class Inbox:
    """How far each incoming channel has been applied."""

    def __init__(self, marks: dict[str, Mark] | None = None) -> None:
        self.marks: dict[str, Mark] = marks or {}

    def take(self, sender: str, epoch: int, number: int, own: int | None = None) -> bool:
        """Whether a message is to be applied (True) or ignored (False). A gap raises `InvariantError`.

        `own` is the receiver's epoch; without it the channel's first message decides.

        >>> inbox = Inbox()
        >>> inbox.take("oslo", 1, 1), inbox.take("oslo", 1, 1), inbox.take("oslo", 1, 2)
        (True, False, True)
        """
        last = self.marks.get(sender, Mark(epoch if own is None else own, 0))
        if epoch > last.epoch:
            raise InvariantError(
                f"the channel from {sender} is in epoch {epoch}, this state in {last.epoch}: the state is an old copy. "
                "Remedy: restore the newest checkpoint, or start from an empty one"
            )
        if epoch < last.epoch or number <= last.number:
            return False
        if number > last.number + 1:
            raise InvariantError(
                f"the channel from {sender} jumps from message {last.number} to {number}: messages are lost. "
                "Remedy: check the retention of the links topic, restore the topic or start from an empty checkpoint"
            )
        self.marks[sender] = Mark(epoch, number)
        return True

    def take_run(self, sender: str, epoch: int, first: int, count: int) -> None:
        """Apply `count` messages at once that are all to be applied: none of them a repeat."""
        if not self.take(sender, epoch, first):
            raise InvariantError(f"message {first} of the channel from {sender} came twice, or from an earlier life")
        self.marks[sender] = Mark(epoch, first + count - 1)
