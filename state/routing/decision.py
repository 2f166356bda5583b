"""A decision: what a broker tells a neighbour about a subscription or does not, why, and because of which event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from state.filters.trees import Filter
from state.geometry.boxes import Box, Boxes
from state.protocol.messages import Cause, Change, Name, RangeChange, Request, Subscribe, Unsubscribe
from state.protocol.reasons import Reason, Trigger
from state.protocol.wire import RANGE_BYTES

Action = Literal["forward", "withhold", "promote", "cancel", "drop"]
MOST_BYTES = 16_384 * RANGE_BYTES
"""Ranges in one message: 256 KiB."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The same decision where the link speaks in ranges of a curve: what was asked for, and what that changes."""

    asked: int
    """The number of ranges of the subscription."""
    added: bytes
    """Ranges that are news to the neighbour, packed; and those that it must forget."""
    removed: bytes
    bridged: int = 0
    """Cells among them that nobody asked for."""
    partly: bool = False
    """Was some of it, but not all, told before?"""

    def messages(self, name: Name, cause: Cause | None, hop: int) -> tuple[RangeChange, ...]:
        """Return one message that makes and breaks at once, or several where a channel could not take it."""
        added, removed = self.added, self.removed
        if len(added) + len(removed) <= MOST_BYTES:
            return (RangeChange(name, added, removed, cause, hop),) if added or removed else ()
        makes = [(added[k : k + MOST_BYTES], b"") for k in range(0, len(added), MOST_BYTES)]
        breaks = [(b"", removed[k : k + MOST_BYTES]) for k in range(0, len(removed), MOST_BYTES)]
        return tuple(RangeChange(name, *change, cause, hop) for change in (*makes, *breaks))


class Decision(msgspec.Struct, frozen=True):
    """A decision about one subscription on one outgoing link, and the reason for it."""

    action: Action
    name: Name
    origin: str
    reason: Reason
    boxes: Boxes
    coverers: tuple[Name, ...] = ()
    witness: Box | None = None
    nodes: int = 0
    tree: Filter | None = None
    bound: float | None = None
    """The highest probability that withholding it is wrong: 0 where that is proved."""
    ranges: Reach | None = None
    trigger: Trigger | None = None
    """The subscription whose end or change made a promotion necessary."""
    cause: Cause | None = None
    """The client's event or expiry behind it."""
    hop: int = 0
    """The number of links that the cause has crossed."""
    around: Box | None = None
    """What the neighbour is told for the time being: a box around this shape and an earlier one that others lean on."""
    sends: bool = True
    """False for a cancel that waits until nobody leans on the shape."""
    records: bool = True
    """False for what the neighbour is told of a decision that was recorded before."""

    @property
    def text(self) -> str:
        """The reason as people read it."""
        return f"{self.trigger}: {self.reason}" if self.trigger else str(self.reason)

    def messages(self) -> tuple[Request, ...]:
        """Return the requests that tell the neighbour, if it has to be told."""
        if not self.sends:
            return ()
        if self.ranges is not None:
            return self.ranges.messages(self.name, self.cause, self.hop + 1)
        match self.action:
            case "forward" | "promote":
                told = (self.boxes, self.tree) if self.around is None else ((self.around,), None)
                return (Subscribe(self.name, told[0], tree=told[1], cause=self.cause, hop=self.hop + 1),)
            case "cancel":
                return (Unsubscribe(self.name, cause=self.cause, hop=self.hop + 1),)
            case _:
                return ()


def reason_of(name: Name, cause: Cause | None) -> Reason:
    """Return why a request gives a subscription up: its own end, or a neighbour's decision because of another event."""
    if cause is not None and cause.name == name:
        if cause.change is Change.EXPIRE:
            return Reason.EXPIRED
        if cause.change is Change.UNSUBSCRIBE:
            return Reason.UNSUBSCRIBED
    return Reason.TAKEN_BACK
