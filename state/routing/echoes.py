"""Echoes: how the region of a client finds out that the client's event has had its effect everywhere.

Inside a region an event has its effect at once. To hear of the others, the region of the client sends an *echo* over
its borders, behind the messages that the event caused. A channel keeps the order of its letters, so whoever receives
the echo has applied those messages, and every earlier one: also what others asked for that makes this subscription
redundant. A region passes the echo on over its other borders, and answers when all of those have answered:

    oslo ──subscribe s1──▶ ┌────────┐ ──s1, echo──▶ ┌───────┐ ──echo──▶ ┌──────┐
                           │ region │               │ next  │           │ last │
    oslo ◀───in-force────  └────────┘ ◀───answer─── └───────┘ ◀─answer─ └──────┘

The echo of a publication travels with the publication, only where the publication goes, and its answers bring the
number of deliveries that were made.

An echo is named by the region that began it and a number. What a region waits for is part of its stored state, so that
a crash loses no answer. The overlay is a tree: an echo reaches each region once.

Where regions are joined (`carry`), one knows what all of them waited for. There is nobody left to answer; the clients
are told as soon as everything under way was taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from state.protocol.messages import Answer, Echo
from state.protocol.notices import Notice

Direction = tuple[str, str]


class Waiting(msgspec.Struct, array_like=True):
    """An echo that waits for answers: from where, how many deliveries so far, and what to do with the sum.

    `back` is where to answer; None: this region began the echo, and tells its client by `notice`.
    """

    echo: Echo
    back: Direction | None
    notice: Notice | None
    awaits: list[Direction]
    deliveries: int = 0
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """An echo of which all answers are there: the answer for a neighbour, or the notice for the client."""

    back: Direction | None
    answer: Answer
    notice: Notice | None


class Echoes:
    """The echoes of one region that wait for answers."""

    def __init__(self, region: str) -> None:
        self._region = region
        self.number = 0
        self.waiting: dict[Echo, Waiting] = {}

    def new(self) -> Echo:
        """Return the name of a new echo."""
        self.number += 1
        return Echo(self._region, self.number)

    def wait(
        self,
        echo: Echo,
        awaits: Collection[Direction],
        *,
        back: Direction | None = None,
        notice: Notice | None = None,
        deliveries: int = 0,
    ) -> Answered | None:
        """Wait for answers from these borders. Return the result at once if there are none to wait for."""
        if (joined := self.waiting.get(echo)) is not None:
            joined.deliveries += deliveries
            return None
        waiting = Waiting(echo, back, notice, list(awaits), deliveries)
        if not waiting.awaits:
            return _answered(waiting)
        self.waiting[echo] = waiting
        return None

    def hear(self, answer: Answer, border: Direction) -> Answered | None:
        """Take the answer that came over a border. Return the result when it was the last."""
        waiting = self.waiting.get(answer.echo)
        if waiting is None or not (waiting.joined or border in waiting.awaits):
            return None  # of an earlier life
        waiting.deliveries += answer.deliveries
        if waiting.joined:
            return None
        waiting.awaits.remove(border)
        if waiting.awaits:
            return None
        del self.waiting[answer.echo]
        return _answered(waiting)

    def join(self, other: Echoes) -> None:
        """Take over what another region waited for, which is now a part of this one."""
        for one in other.waiting.values():
            joined = self.waiting.setdefault(one.echo, Waiting(one.echo, None, None, [], joined=True))
            joined.notice = joined.notice or one.notice
            joined.deliveries += one.deliveries

    def end(self) -> list[Notice]:
        """Return what clients are to be told, all regions being joined and nothing under way any more."""
        ended, self.waiting = self.waiting, {}
        return [notice for one in ended.values() if (notice := _answered(one).notice) is not None]

    def restore(self, number: int, waiting: Iterable[Waiting]) -> None:
        """Take over what another instance waited for."""
        self.number, self.waiting = number, {one.echo: one for one in waiting}


def _answered(waiting: Waiting) -> Answered:
    notice = waiting.notice
    if notice is not None and notice.kind == "publish":
        notice = msgspec.structs.replace(notice, deliveries=waiting.deliveries)
    return Answered(waiting.back, Answer(waiting.echo, waiting.deliveries), notice)
