"""Channels: each direction of a link is a sequence that is applied in order, each message exactly once.

What carries the messages may repeat them (Kafka out of Spark does, after a crash), but a sender numbers them 1, 2, 3
... and a receiver keeps the number of the last one it applied:

    number <= last       a repeat: ignored
    number == last + 1   applied
    number >  last + 1   a gap: messages are lost, and going on would lose publications; the job stops

A sender also states its epoch, which is new when it began from nothing. Numbers of different epochs say nothing about
each other, and what the receiver heard in the old epoch is not what the sender of the new one knows it told, so a
change of epoch stops the job as well.
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

    def take(self, sender: str, epoch: int, number: int) -> bool:
        """Whether this message is to be applied (True) or is a repeat (False). A gap raises `InvariantError`.

        >>> inbox = Inbox()
        >>> inbox.take("oslo", 1, 1), inbox.take("oslo", 1, 1), inbox.take("oslo", 1, 2)
        (True, False, True)
        """
        last = self.marks.get(sender, Mark(epoch, 0))
        if epoch != last.epoch:
            raise InvariantError(
                f"the channel from {sender} went from epoch {last.epoch} to {epoch}: its sender began from nothing. "
                "Remedy: start everything from an empty checkpoint and empty topics, or restore the sender's"
            )
        if number > last.number + 1:
            raise InvariantError(
                f"the channel from {sender} jumps from message {last.number} to {number}: messages are lost. "
                "Remedy: check the retention of the links topic, restore the topic or start from an empty checkpoint"
            )
        if number <= last.number:
            return False
        self.marks[sender] = Mark(epoch, number)
        return True

    def take_run(self, sender: str, epoch: int, first: int, count: int) -> None:
        """Apply `count` messages at once that are all to be applied: none of them a repeat."""
        if not self.take(sender, epoch, first):
            raise InvariantError(f"message {first} of the channel from {sender} came twice")
        self.marks[sender] = Mark(epoch, first + count - 1)
