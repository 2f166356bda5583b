"""Names, and the messages that a broker takes from its clients and its neighbours.

A subscription is named by the broker its client is attached to, the client, and the id that the client chose. Clients
choose ids freely; two of them may choose the same, at one broker or at two, and neither may disturb the other.

Messages are values, made by the million; a msgspec struct is made in a tenth of the time of a frozen dataclass. The
same kinds arrive from clients and from neighbours.

    from a client       carries a `Stamp`, by which the later of two events wins in any order of arrival (`ledger`)
    from a neighbour    carries a `Cause`, the client's event or expiry behind it, and how many links it has crossed; it
                        needs no stamp, because its channel keeps the order (`channel`)

Where links speak in ranges of a curve (strategy `mics`), a neighbour does not pass subscriptions on. It says by which
ranges what it asks for has changed, and which subscription was the cause: one message that makes and breaks at once.

A client that wants to be told when its event has had its effect everywhere puts an `ack` into it. Between regions an
`Echo` follows such an event, and an `Answer` comes back (`state.routing.echoes`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from state.filters.trees import Filter
from state.geometry.boxes import Boxes
from state.space import Corner

LOCAL = "local"
"""The name of a broker's link to its own clients; no broker may be called so."""


class Name(NamedTuple):
    """The identity of a subscription, unique in the whole overlay."""

    broker: str
    client: str
    id: str


class Stamp(NamedTuple):
    """The moment of a client's event: its revision if it gave one, its time in microseconds, its rank and offset.

    The rank is that of the channel on which the event arrived (`arrivals`).
    """

    rev: int | None
    time: int
    rank: int
    offset: int


class Change(StrEnum):
    """The kinds of change of a client's subscription."""

    SUBSCRIBE = "subscribe"
    REPLACE = "replace"
    RENEW = "renew"
    UNSUBSCRIBE = "unsubscribe"
    EXPIRE = "expire"
    CARRY = "carry"
    """It stood when a life began."""


class Cause(NamedTuple):
    """The client's event or expiry behind a request: whose, what, the producer's moment, and when it arrived."""

    name: Name
    change: Change
    time: int
    arrived: int


class Subscribe(msgspec.Struct, frozen=True):
    """Ask for everything in `boxes`; replaces what `name` asked for before.

    `tree` is the Boolean filter that these boxes are, if it is more than a conjunction of ranges. Only messages of
    clients have `exact`, what the client asked for if that would be more boxes than may travel; `where`, the same as
    the client wrote it; `ttl`, for how many microseconds it stands after its arrival; and `ack`.
    """

    name: Name
    boxes: Boxes
    stamp: Stamp | None = None
    ttl: int | None = None
    tree: Filter | None = None
    exact: Filter | None = None
    where: bytes | None = None
    cause: Cause | None = None
    hop: int = 0
    ack: str | None = None

    @property
    def shape(self) -> tuple[Boxes, Filter | None, Filter | None]:
        """What it asks for, whoever does so and when."""
        return self.boxes, self.tree, self.exact

    @property
    def time(self) -> int:
        """When the client said it, in microseconds; 0 on a link."""
        return 0 if self.stamp is None else self.stamp.time

    @property
    def asks(self) -> bool:
        """True if it asks for more, False if it only gives up."""
        return True


class Unsubscribe(msgspec.Struct, frozen=True):
    """Forget `name`."""

    name: Name
    stamp: Stamp | None = None
    cause: Cause | None = None
    hop: int = 0
    ack: str | None = None

    @property
    def time(self) -> int:
        """When the client said it, in microseconds; 0 on a link."""
        return 0 if self.stamp is None else self.stamp.time

    @property
    def asks(self) -> bool:
        """True if it asks for more, False if it only gives up."""
        return False


class RangeChange(msgspec.Struct, frozen=True):
    """Ask for `added` as well and for `removed` no longer, because of `name`. Each is sorted and disjoint.

    There may be a hundred thousand of them, so they stay in the packed form in which they travel (`wire.pack_ranges`).
    """

    name: Name
    added: bytes
    removed: bytes
    cause: Cause | None = None
    hop: int = 0

    @property
    def time(self) -> int:
        """When it was said: 0, as for everything on a link."""
        return 0

    @property
    def asks(self) -> bool:
        """True if it asks for more, False if it only gives up."""
        return bool(self.added)


Request = Subscribe | Unsubscribe | RangeChange
"""A change of what a broker is asked for."""


class Echo(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """A question that follows a client's event to other regions: named by the region that began it, and a number."""

    region: str
    number: int


class Answer(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """The answer to an echo: everything before it was applied, and so many deliveries of its publication were made."""

    echo: Echo
    deliveries: int


Headers = tuple[tuple[str, bytes], ...]
"""Kafka headers, carried from a publication to its deliveries."""


class Publish(msgspec.Struct, frozen=True):
    """An event at a point of the space.

    `payload` is the JSON text that came with it, or None. `key` is the partition and offset of the record that brought
    it (in a simulation, the line), `entry` the broker where it was published, `hop` how many links it has crossed. From
    a client it may have an `ack`; then it travels between regions with its `echo`.
    """

    id: str
    point: Corner
    payload: bytes | None = None
    time: int = 0
    key: str = ""
    entry: str = ""
    hop: int = 0
    arrived: int = 0
    headers: Headers = ()
    ack: str | None = None
    echo: Echo | None = None


Message = Request | Publish
