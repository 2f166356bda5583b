"""Certificates: the proofs that passive subscriptions may be withheld from a neighbour, and who leans on whom.

A certificate names subscriptions that the neighbour was told, whose shapes together contain the passive one. When one
of these shapes is given up, it is *leaving*: whoever leans on it waits there to be certified anew, or to be told. A
name can have a shape that leaves and, told since, one that does not; a certificate means the one that stood when it was
made. Those who wait are exactly those who mean the earlier one.

A subscription that is certified anew moves to the end of `passive`. So those who lean on a shape are always in the
order of `passive`, and stored state gives that order back without saying it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field

from state.errors import InvariantError
from state.filters.trees import Filter
from state.geometry.boxes import Boxes, Shape
from state.protocol.messages import Cause, Name
from state.protocol.reasons import Reason


@dataclass(slots=True)
class Passive:
    """A withheld subscription and its certificate."""

    shape: Shape
    origin: str
    coverers: tuple[Name, ...]

    @property
    def boxes(self) -> Boxes:
        """The boxes that it asks for."""
        return self.shape.boxes


@dataclass(slots=True)
class Leaving:
    """A shape that the neighbour still has although it was given up, and those who lean on it."""

    boxes: Boxes
    """What the neighbour was told last under this name."""
    tree: Filter | None
    origin: str
    reason: Reason
    """The reason why it was given up."""
    cause: Cause | None
    hop: int
    waiting: dict[Name, None] = field(default_factory=dict)


class Certificates:
    """The passive subscriptions of a link, the shapes that are leaving, and those who lean on each shape."""

    def __init__(
        self, passive: Iterable[tuple[Name, Passive]] = (), leaving: dict[Name, Leaving] | None = None
    ) -> None:
        """`passive` in order; those who wait for shapes in `leaving` are noted there."""
        self.passive: dict[Name, Passive] = {}
        self.leaving = leaving or {}
        self._leaning: dict[Name, dict[Name, None]] = {}
        self._left: dict[Name, None] = {}
        for name, entry in passive:
            self._enter(name, entry)

    def add(self, name: Name, boxes: Boxes, origin: str, coverers: tuple[Name, ...]) -> None:
        """Note a new passive subscription."""
        self._enter(name, Passive(Shape.of(boxes), origin, coverers))

    def _enter(self, name: Name, entry: Passive) -> None:
        self.passive[name] = entry
        for coverer in entry.coverers:
            if not self._waits(name, coverer):
                self._leaning.setdefault(coverer, {})[name] = None

    def remove(self, name: Name) -> Passive:
        """Forget a passive subscription."""
        entry = self.passive.pop(name)
        for coverer in entry.coverers:
            self._lean_no_more(name, coverer)
        return entry

    def _lean_no_more(self, name: Name, coverer: Name) -> None:
        if self._waits(name, coverer):
            waiting = self.leaving[coverer].waiting
            del waiting[name]
            if not waiting:
                self._left[coverer] = None
            return
        leaning = self._leaning[coverer]
        del leaning[name]
        if not leaning:
            del self._leaning[coverer]

    def renew(self, name: Name, coverers: tuple[Name, ...]) -> None:
        """Certify a passive subscription anew, by active ones."""
        entry = self.remove(name)
        entry.coverers = coverers
        self._enter(name, entry)

    def renamed(self, name: Name, coverer: Name, other: Name) -> tuple[Name, ...] | None:
        """Return a certificate with another coverer instead of one; None if it waits to be made anew anyway."""
        coverers = self.passive[name].coverers
        if any(self._waits(name, one) for one in coverers):
            return None
        return tuple(dict.fromkeys(other if one == coverer else one for one in coverers))

    def dependants(self, name: Name) -> Collection[Name]:
        """Return those who lean on what was told last under this name."""
        return self._leaning.get(name, ())

    def leave(self, name: Name, shape: Leaving) -> None:
        """Let a shape leave; all who lean on it wait. An earlier one that is still leaving goes with it."""
        before = self.leaving.get(name)
        if before is not None:
            shape.boxes, shape.tree, shape.waiting = before.boxes, before.tree, before.waiting
        shape.waiting.update(self._leaning.pop(name, {}))
        self.leaving[name] = shape
        self._left.pop(name, None)
        if not shape.waiting:
            self._left[name] = None

    def stay(self, name: Name) -> None:
        """Take back that a shape is leaving: what was told since contains it, so all who wait lean on that."""
        shape = self.leaving.pop(name)
        self._left.pop(name, None)
        if shape.waiting:
            self._leaning[name] = shape.waiting | self._leaning.get(name, {})

    def left(self) -> list[tuple[Name, Leaving]]:
        """Return the shapes on which nobody leans any more, and forget them."""
        gone, self._left = self._left, {}
        return [(name, self.leaving.pop(name)) for name in gone]

    def _waits(self, name: Name, coverer: Name) -> bool:
        shape = self.leaving.get(coverer)
        return shape is not None and name in shape.waiting

    def proof(self, name: Name) -> tuple[list[Name], list[Leaving]]:
        """Return what a certificate stands on: names told last, and shapes that are leaving."""
        coverers = self.passive[name].coverers
        waits = [coverer for coverer in coverers if self._waits(name, coverer)]
        return [c for c in coverers if c not in waits], [self.leaving[c] for c in waits]

    def check(self, active: Container[Name]) -> None:
        """Raise `InvariantError` unless certificates name what the neighbour has, and who leans on whom follows."""
        pairs = {(c, name) for name, entry in self.passive.items() for c in entry.coverers}
        leaning = [(c, name) for c, names in self._leaning.items() for name in names]
        waiting = [(c, name) for c, shape in self.leaving.items() for name in shape.waiting]
        if len(leaning) + len(waiting) != len(pairs) or pairs != {*leaning, *waiting}:
            raise InvariantError("those who lean on a shape and the certificates disagree")
        gone = [c for c in self._leaning if c not in active]
        if gone:
            raise InvariantError(f"rule (C): a certificate names {gone[0]}, which is not active")
        if self._left or any(not shape.waiting for shape in self.leaving.values()):
            raise InvariantError("a shape is leaving on which nobody leans")
        order = {name: k for k, name in enumerate(self.passive)}
        for names in (*self._leaning.values(), *(shape.waiting for shape in self.leaving.values())):
            places = [order[name] for name in names]
            if places != sorted(places):
                raise InvariantError("those who lean on a shape are not in the order of the passive ones")
