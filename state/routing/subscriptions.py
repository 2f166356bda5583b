"""The subscriptions that a broker knows: name, origin and shape, held and stored once, whichever links refer to them.

    number   name        origin   boxes, tree          exact, where
    17       oslo/ann/s1 local    what travels         only of the broker's own clients
    23       rome/bob/s7 rome     what rome told us

heard[M] is the rows with origin M, in the order of their numbers; what M was told refers to rows by number (in memory,
to the very same boxes). A number is the broker's version when this shape was accepted. It grows, is never used again,
and does not depend on batches or workers, so parts of stored state that did not change stay valid. A renewal keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from state.errors import InvariantError
from state.filters.trees import Filter
from state.geometry.boxes import Boxes
from state.protocol.messages import Name, Subscribe


@dataclass(frozen=True, slots=True)
class Subscription:
    """One shape of a subscription, as it was accepted."""

    number: int
    name: Name
    origin: str
    boxes: Boxes
    tree: Filter | None = None
    exact: Filter | None = None
    where: bytes | None = None


class Subscriptions:
    """An ordered map from names to subscriptions, in the order of their numbers."""

    def __init__(self) -> None:
        self._rows: dict[Name, Subscription] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: Name) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._rows.values())

    def __getitem__(self, name: Name) -> Subscription:
        return self._rows[name]

    def add(self, subscription: Subscription) -> None:
        """Add a shape behind all others; an earlier one of the same name goes."""
        self._rows.pop(subscription.name, None)
        self._rows[subscription.name] = subscription

    def remove(self, name: Name) -> Subscription:
        """Forget a subscription and return it."""
        return self._rows.pop(name)

    def is_renewal(self, request: Subscribe) -> bool:
        """Return whether a client's request asks for exactly the shape that stands."""
        row = self._rows.get(request.name)
        asked = (request.boxes, request.tree, request.exact)
        return row is not None and (row.boxes, row.tree, row.exact) == asked

    def check(self) -> None:
        """Raise `InvariantError` unless numbers grow."""
        numbers = [row.number for row in self]
        if any(b <= a for a, b in pairwise(numbers)):
            raise InvariantError("the numbers of a broker's subscriptions do not grow")
