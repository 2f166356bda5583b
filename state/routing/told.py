"""told[M]: what a broker asked of its neighbour M, and what it need not ask.

The candidates are all subscriptions heard on the broker's *other* links. Each is

    active     M was told of it, or
    passive    withheld, because what M was told already covers it: its certificate names the active ones that do.

Rules that hold after every step (`check`):

    (S)  active and passive are disjoint and together are exactly the candidates
    (C)  the union of the active covers every candidate; for a passive one its certificate alone does
         (a strategy that does not prove its answers keeps this with the probability that it was given)

What a step did is returned as decisions, in order. Those that speak to M (`forward`, `promote`, `cancel`) are sent in
that order, and it is always make before break: what must be told instead goes before what is taken back.

Only passive subscriptions whose certificate names a cancelled one are decided again: the proofs of all others still
stand. They are tried against *active* ones only, the largest first, so that the one that covers the others is promoted
before them. (Tested against passive ones too, two equal ones would suppress each other.)

What withholding saves, `withheld`, is the sum over the passive ones, kept as they come and go.

`covering = "active"` also withdraws an active subscription when one that is told later, new or promoted, covers it
alone (by all its boxes together): M keeps a smaller table, at the price of a message. Its dependants then lean on the
later one.

Tried and found to lose publications (do not do these): one such table per broker instead of per outgoing link; passive
ones counted as covering; the cancel sent before the promotions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from state.errors import InvariantError
from state.filters.trees import Filter
from state.geometry.boxes import Box, Boxes, volume
from state.matching.boxlist import BoxList
from state.matching.extents import Extent, Extents
from state.protocol.messages import Name, Range, RangeChange, Request, Subscribe, Unsubscribe
from state.space import Space
from state.strategies import Spec, Verdict

Action = Literal["forward", "withhold", "promote", "cancel", "drop"]
MOST_RANGES = 16_384
"""Ranges in one message: 256 KiB."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The same decision where the link speaks in ranges of a curve: what was asked for, and what that changes."""

    asked: int
    """How many ranges the subscription is."""
    added: tuple[Range, ...]
    removed: tuple[Range, ...]
    bridged: int = 0
    """Cells among them that nobody asked for."""
    partly: bool = False
    """Was some of it, but not all, told before?"""

    def messages(self, name: Name) -> tuple[RangeChange, ...]:
        """One message that makes and breaks at once; one so long that a channel could not take it is several."""
        added, removed = self.added, self.removed
        if len(added) + len(removed) <= MOST_RANGES:
            return (RangeChange(name, added, removed),) if added or removed else ()
        makes = [RangeChange(name, added[k : k + MOST_RANGES], ()) for k in range(0, len(added), MOST_RANGES)]
        breaks = [RangeChange(name, (), removed[k : k + MOST_RANGES]) for k in range(0, len(removed), MOST_RANGES)]
        return (*makes, *breaks)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about one subscription on one outgoing link, and why."""

    action: Action
    name: Name
    origin: str
    reason: str
    boxes: Boxes
    coverers: tuple[Name, ...] = ()
    witness: Box | None = None
    nodes: int = 0
    tree: Filter | None = None
    bound: float | None = None
    """With what probability at most it is wrong to withhold it: 0 where that is proved."""
    ranges: Reach | None = None

    def messages(self) -> tuple[Request, ...]:
        """What the neighbour is told, if anything."""
        if self.ranges is not None:
            return self.ranges.messages(self.name)
        match self.action:
            case "forward" | "promote":
                return (Subscribe(self.name, self.boxes, tree=self.tree),)
            case "cancel":
                return (Unsubscribe(self.name),)
            case _:
                return ()


@dataclass(slots=True)
class Passive:
    """A withheld subscription and the proof that it may be."""

    boxes: Boxes
    origin: str
    coverers: tuple[Name, ...]
    serial: int
    """Its place in the order in which subscriptions became passive."""


class Told:
    """The candidates of one outgoing link, active and passive, under one strategy."""

    def __init__(self, space: Space, spec: Spec) -> None:
        self.space, self.spec = space, spec
        self.trees: dict[Name, Filter] = {}
        self.restore(BoxList(space.dims), {}, {})

    def restore(self, active: BoxList, origins: dict[Name, str], passive: dict[Name, Passive]) -> None:
        """Take over stored lists, passive ones with serials 0, 1, 2 ... The strategy begins anew on top of them."""
        self.active, self.origins, self.passive = active, origins, passive
        self.strategy = self.spec.build(self.space, active)
        self._serial = len(passive)
        self._withheld: Extents | None = None
        self._dependants: dict[Name, dict[Name, None]] = {}
        for name, entry in passive.items():
            self._depend(name, entry.coverers)

    def __len__(self) -> int:
        return len(self.active) + len(self.passive)

    @property
    def negative_rectangles(self) -> int | None:
        """How many negative rectangles the strategy keeps, if any."""
        return self.strategy.negative_rectangles

    @property
    def negative_share(self) -> float | None:
        """Their natural volume as a share of the domain, if the strategy keeps it."""
        return self.strategy.negative_share

    @property
    def withheld(self) -> Extent:
        """How much the neighbour was not told; counted when it is first asked for."""
        if self._withheld is None:
            self._withheld = self._count_withheld()
        return self._withheld.extent

    def _count_withheld(self) -> Extents:
        return Extents(self.space, ((entry.boxes, self.trees.get(name)) for name, entry in self.passive.items()))

    def take(self, origin: str, request: Request, reason: str) -> list[Decision]:
        """What another link asked for: does the neighbour have to be told?"""
        match request:
            case Subscribe():
                return self.subscribe(request.name, request.boxes, origin, request.tree)
            case Unsubscribe():
                return self.unsubscribe(request.name, reason)
            case RangeChange():
                raise InvariantError(
                    f"{origin} speaks in ranges, this link in boxes. Remedy: one strategy for all links"
                )

    def subscribe(self, name: Name, boxes: Boxes, origin: str, tree: Filter | None = None) -> list[Decision]:
        """A candidate appears or changes its shape. One that only renews itself is no news to the neighbour.

        `tree` goes to the neighbour with the boxes; it decides nothing here.
        """
        if name in self.active:
            if self.active.boxes(name) == boxes:
                return []
            self._keep_tree(name, tree)
            return self._replace(name, boxes, origin)
        if name in self.passive:
            if self.passive[name].boxes == boxes:
                return []
            self._forget_passive(name)
        self._keep_tree(name, tree)
        verdict = self.strategy.decide(boxes)
        if verdict.covered:
            return [self._withhold(name, boxes, origin, verdict)]
        forwarded = self._activate("forward", name, boxes, origin, verdict)
        return [forwarded, *self._withdraw_covered([forwarded])]

    def unsubscribe(self, name: Name, reason: str) -> list[Decision]:
        """A candidate disappears."""
        if name in self.passive:
            entry = self._forget_passive(name)
            self._keep_tree(name, None)
            return [Decision("drop", name, entry.origin, reason, entry.boxes)]
        self._keep_tree(name, None)
        boxes, origin, dependants = self._deactivate(name)
        promoted = self._reconsider(dependants, f"{name.id} was cancelled")
        return [*promoted, Decision("cancel", name, origin, reason, boxes), *self._withdraw_covered(promoted)]

    def _keep_tree(self, name: Name, tree: Filter | None) -> None:
        """The tree of a candidate from now on, if it has one."""
        self.trees.pop(name, None)
        if tree is not None:
            self.trees[name] = tree

    def _replace(self, name: Name, boxes: Boxes, origin: str) -> list[Decision]:
        """An active candidate changes its shape: one message that makes and breaks at once, or a cancel.

        What leaned on the old shape is decided again beside the new one, and whatever must be promoted is told before
        the old shape goes. Those promoted may cover the new shape; so it is decided again after them.
        """
        old, _, dependants = self._deactivate(name)
        why, promoted = f"{name.id} was replaced", list[Decision]()
        verdict = self.strategy.decide(boxes)
        if not verdict.covered:
            forwarded = self._activate("forward", name, boxes, origin, verdict)
            promoted = self._reconsider(dependants, why)
            if not promoted:
                return [forwarded, *self._withdraw_covered([forwarded])]
            _, _, dependants = self._deactivate(name)
            verdict = self.strategy.decide(boxes)
        if not verdict.covered:
            forwarded = self._activate("forward", name, boxes, origin, verdict)
            return [*promoted, forwarded, *self._withdraw_covered([forwarded, *promoted])]
        withheld = self._withhold(name, boxes, origin, verdict)
        promoted += self._reconsider(dependants, why)
        cancelled = Decision("cancel", name, origin, "replaced", old)
        return [*promoted, cancelled, withheld, *self._withdraw_covered(promoted)]

    def _activate(
        self, action: Action, name: Name, boxes: Boxes, origin: str, verdict: Verdict, why: str = ""
    ) -> Decision:
        self.active.add(name, boxes)
        self.origins[name] = origin
        self.strategy.added(name, boxes)
        reason = f"{why}: {verdict.reason}" if why else verdict.reason
        tree, bound = self.trees.get(name), verdict.bound or None
        return Decision(
            action, name, origin, reason, boxes, witness=verdict.witness, nodes=verdict.nodes, tree=tree, bound=bound
        )

    def _deactivate(self, name: Name) -> tuple[Boxes, str, list[Name]]:
        """Take a name out of the active list; returns its boxes, its origin, and who leaned on it."""
        boxes, origin = self.active.boxes(name), self.origins.pop(name)
        self.active.remove(name)
        self.strategy.removed(name, boxes)
        return boxes, origin, list(self._dependants.get(name, ()))

    def _withhold(self, name: Name, boxes: Boxes, origin: str, verdict: Verdict) -> Decision:
        self.passive[name] = Passive(boxes, origin, verdict.coverers, self._serial)
        self._serial += 1
        if self._withheld is not None:
            self._withheld.add(boxes, self.trees.get(name))
        self._depend(name, verdict.coverers)
        why, coverers = verdict.reason, verdict.coverers
        return Decision("withhold", name, origin, why, boxes, coverers, nodes=verdict.nodes, bound=verdict.bound)

    def _reconsider(self, names: list[Name], why: str) -> list[Decision]:
        """Decide withheld subscriptions again, the largest first (the earliest where equal)."""
        promoted = []
        for name in sorted(names, key=self._largest_first):
            entry = self.passive[name]
            verdict = self.strategy.decide(entry.boxes)
            if verdict.covered:
                self._independ(name, entry.coverers)
                entry.coverers = verdict.coverers
                self._depend(name, verdict.coverers)
            else:
                self._forget_passive(name)
                promoted.append(self._activate("promote", name, entry.boxes, entry.origin, verdict, why))
        return promoted

    def _largest_first(self, name: Name) -> tuple[float, int]:
        entry = self.passive[name]
        return -volume(self.space, entry.boxes), entry.serial

    def _withdraw_covered(self, told: list[Decision]) -> list[Decision]:
        """With `covering = "active"`: take back what any of those just told covers alone."""
        done: list[Decision] = []
        for decision in told if self.spec.covering == "active" else ():
            name = decision.name
            if name in self.active:  # not taken back itself meanwhile
                inside = [other for other in self._covered_by(decision.boxes) if other != name]
                done += [one for other in inside for one in self._withdraw(other, name)]
        return done

    def _covered_by(self, outer: Boxes) -> list[Name]:
        """The active ones that these boxes cover, together if they are several."""
        alone = BoxList(self.space.dims)
        alone.add(Name("", "", ""), outer)
        met = self.active.inside if len(outer) == 1 else self.active.names_meeting
        near = {name: None for box in outer for name in met(box.keys())}
        return [n for n in near if all(not len(alone.without(k, by_overlap=True)) for k in self.active.keys(n))]

    def _withdraw(self, name: Name, coverer: Name) -> list[Decision]:
        boxes, origin, dependants = self._deactivate(name)
        for dependant in dependants:
            entry = self.passive[dependant]
            self._independ(dependant, entry.coverers)
            entry.coverers = tuple(dict.fromkeys(coverer if c == name else c for c in entry.coverers))
            self._depend(dependant, entry.coverers)
        verdict = Verdict(True, "covered by a later one", (coverer,))
        withheld = self._withhold(name, boxes, origin, verdict)
        return [Decision("cancel", name, origin, withheld.reason, boxes, coverers=(coverer,)), withheld]

    def _forget_passive(self, name: Name) -> Passive:
        entry = self.passive.pop(name)
        if self._withheld is not None:
            self._withheld.remove(entry.boxes, self.trees.get(name))
        self._independ(name, entry.coverers)
        return entry

    def _depend(self, name: Name, coverers: tuple[Name, ...]) -> None:
        for coverer in coverers:
            self._dependants.setdefault(coverer, {})[name] = None

    def _independ(self, name: Name, coverers: tuple[Name, ...]) -> None:
        for coverer in coverers:
            dependants = self._dependants[coverer]
            del dependants[name]
            if not dependants:
                del self._dependants[coverer]

    def check(self) -> None:
        """Raise `InvariantError` unless rules (S), (C) and (N) hold and the dependants mirror the certificates."""
        self.active.check()
        self.strategy.check()
        if not self.trees.keys() <= set(self.active) | self.passive.keys():
            raise InvariantError("a tree is kept of what is no candidate")
        both = [name for name in self.passive if name in self.active]
        if both or self.origins.keys() != set(self.active):
            raise InvariantError(f"rule (S): active, passive and origins disagree: {both[:3]}")
        if self._withheld is not None:
            self._withheld.check(self._count_withheld())
        mirrored = {(c, name) for name, entry in self.passive.items() for c in entry.coverers}
        if mirrored != {(c, name) for c, names in self._dependants.items() for name in names}:
            raise InvariantError("dependants and certificates disagree")
        for name, entry in self.passive.items():
            self._check_certificate(name, entry)

    def _check_certificate(self, name: Name, entry: Passive) -> None:
        if any(coverer not in self.active for coverer in entry.coverers):
            raise InvariantError(f"rule (C): the certificate of {name} names one that is not active")
        if not self.strategy.proves:
            return
        proof = BoxList(self.space.dims, [(c, self.active.keys(c)) for c in entry.coverers])
        for box in entry.boxes:
            if len(proof.without(box.keys(), by_overlap=True)):
                raise InvariantError(f"rule (C): the certificate of {name} does not cover it")
