"""What travels: names, and the messages that a broker takes from its clients and its neighbours.

A subscription is named by the broker its client is attached to, the client, and the id that the client chose. Clients
choose ids freely; two of them may choose the same, at one broker or at two, and neither may disturb the other.

Messages are values. The same three kinds arrive from clients and from neighbours; from clients they carry a `Stamp`,
by which a later word wins over an earlier one in whatever order they arrive (`ledger`). On a link order is given by
the channel (`channel`), so a stamp is not needed there.

Where links speak in ranges of a curve (strategy `mics`), a neighbour does not pass subscriptions on. It says by which
ranges what it asks for has changed, and which subscription was the cause: one message that makes and breaks at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from state.filters.trees import Filter
from state.geometry.boxes import Boxes
from state.space import Corner

LOCAL = "local"
"""The name of a broker's link to its own clients; no broker may be called so."""


class Name(NamedTuple):
    """Who a subscription is: unique in the whole overlay."""

    broker: str
    client: str
    id: str


class Stamp(NamedTuple):
    """When a client's word was given: its revision if it gave one, the time in microseconds, the place in the log."""

    rev: int | None
    time: int
    place: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Ask for everything in `boxes`; replaces what `name` asked for before.

    `tree` is the Boolean filter that these boxes are, if it is more than a conjunction of ranges. `exact` is what the
    client asked for, if that would be more boxes than may travel; only clients' messages have it.
    """

    name: Name
    boxes: Boxes
    stamp: Stamp | None = None
    expires: int | None = None
    tree: Filter | None = None
    exact: Filter | None = None

    @property
    def moment(self) -> int:
        """When the client said it; 0 on a link."""
        return 0 if self.stamp is None else self.stamp.time


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Forget `name`."""

    name: Name
    stamp: Stamp | None = None

    @property
    def moment(self) -> int:
        """When the client said it; 0 on a link."""
        return 0 if self.stamp is None else self.stamp.time


Range = tuple[int, int]
"""A closed range of places on a curve."""


@dataclass(frozen=True, slots=True)
class RangeChange:
    """Ask for `added` as well and for `removed` no longer, because of `name`. Each is sorted and disjoint."""

    name: Name
    added: tuple[Range, ...]
    removed: tuple[Range, ...]

    @property
    def moment(self) -> int:
        """When it was said: 0, as for everything on a link."""
        return 0


Request = Subscribe | Unsubscribe | RangeChange
"""What changes what a broker is asked for."""


@dataclass(frozen=True, slots=True)
class Publish:
    """An event at a point of the space. `payload` is the JSON text that came with it, or None."""

    id: str
    point: Corner
    payload: bytes | None = None
    moment: int = 0


Message = Request | Publish
