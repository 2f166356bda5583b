"""The subscriptions that a broker knows: name, origin and shape, held and stored once, whichever links refer to them.

    number   name        origin   boxes, tree          exact, where
    17       oslo/ann/s1 local    what travels         only of the broker's own clients
    23       rome/bob/s7 rome     what rome told us

heard[M] is the rows with origin M, in the order of their numbers. What M was told refers to rows by number, so boxes
are stored once, however many links there are. A number is the broker's version when this shape was accepted. It grows,
is never used again, and does not depend on batches or workers, so parts of stored state that did not change stay valid.
A renewal keeps it.

A shape is bytes. Rows of a link that is pruned are packed, because they are seldom read: a Boolean filter of five boxes
in ten attributes then takes 260 bytes instead of 3,600.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from zlib import compress, decompress

from state.errors import InvariantError
from state.filters.trees import Filter, pack_tree, unpack_tree
from state.geometry.boxes import Boxes, Shape
from state.protocol.messages import Name, Subscribe

LEVEL = 1
"""Higher levels save no byte of a shape that is worth the time."""


class Subscription:
    """One shape of a subscription, as it was accepted. It never changes, but may be packed."""

    __slots__ = ("_shape", "_tree", "exact", "name", "number", "origin", "where")

    def __init__(
        self,
        number: int,
        name: Name,
        origin: str,
        shape: Shape,
        tree: Filter | None = None,
        exact: Filter | None = None,
        where: bytes | None = None,
    ) -> None:
        self.number, self.name, self.origin, self.exact, self.where = number, name, origin, exact, where
        self._shape: Shape | bytes = shape
        self._tree: Filter | bytes | None = tree

    @property
    def shape(self) -> Shape:
        """The disjoint boxes that travel, as bytes."""
        return self._shape if isinstance(self._shape, Shape) else Shape(decompress(self._shape))

    @property
    def boxes(self) -> Boxes:
        """The disjoint boxes that travel."""
        return self.shape.boxes

    @property
    def tree(self) -> Filter | None:
        """The Boolean filter that the boxes are, if it is more than a conjunction of ranges."""
        return unpack_tree(decompress(self._tree), self.shape.dims) if isinstance(self._tree, bytes) else self._tree

    def pack(self) -> None:
        """Compress the shape from now on. O(boxes and predicates)."""
        if not isinstance(self._shape, Shape):
            return
        self._shape = compress(self._shape, LEVEL)
        if self._tree is not None and not isinstance(self._tree, bytes):
            self._tree = compress(pack_tree(self._tree), LEVEL)


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

    def number(self, name: Name) -> int:
        """Return the number of a subscription."""
        return self._rows[name].number

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
        if row is None or (row.tree, row.exact) != (request.tree, request.exact):
            return False
        return row.shape == Shape.of(request.boxes)

    def check(self) -> None:
        """Raise `InvariantError` unless numbers grow."""
        numbers = [row.number for row in self]
        if any(b <= a for a, b in pairwise(numbers)):
            raise InvariantError("the numbers of a broker's subscriptions do not grow")
