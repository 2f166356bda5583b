"""told[M]: what a broker asked of its neighbour M, and what it need not ask.

The candidates are all subscriptions heard on the broker's *other* links. Each is

    active     M was told of it, or
    passive    withheld, because what M was told already covers it: its certificate names the active ones that do.

Rules that hold after every step (`check`):

    (S)  active and passive are disjoint and together are exactly the candidates
    (C)  the union of the active covers every candidate; for a passive one its certificate alone does
         (a strategy that does not prove its answers keeps this with the probability that it was given)

A step returns its decisions in order. Decisions that speak to M (`forward`, `promote`, `cancel`) are sent in that
order, and it is always make before break: what must be told instead goes before what is taken back.

Only passive subscriptions whose certificate names a cancelled one are decided again: the proofs of all others still
stand. They are tried against *active* ones only, the largest first, so that the one that covers the others is promoted
before them. (Tested against passive ones too, two equal ones would suppress each other.)

`withheld` is the size of the passive ones, which withholding saves; the sum is kept as they come and go.

`covering = "active"` also withdraws an active subscription when one that is told later, new or promoted, covers it
alone (by all its boxes together): M keeps a smaller table, at the price of a message. Its dependants then lean on the
later one.

Tried and found to lose publications (do not do these): one such table per broker instead of per outgoing link; passive
ones counted as covering; the cancel sent before the promotions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from state.curves.hilbert import Ranges
from state.errors import InvariantError
from state.filters.trees import Filter
from state.geometry.boxes import Box, Boxes, stack, volume
from state.matching.boxlist import BoxList
from state.matching.extents import Extent, Extents
from state.protocol.messages import Cause, Change, Name, Range, RangeChange, Request, Subscribe, Unsubscribe
from state.protocol.reasons import Reason, Trigger
from state.routing.subscriptions import Subscriptions
from state.space import Keys, Space
from state.strategies import Dump, Spec, Verdict

Action = Literal["forward", "withhold", "promote", "cancel", "drop"]
MOST_RANGES = 16_384
"""Ranges in one message: 256 KiB."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The same decision where the link speaks in ranges of a curve: what was asked for, and what that changes."""

    asked: int
    """The number of ranges of the subscription."""
    added: tuple[Range, ...]
    removed: tuple[Range, ...]
    bridged: int = 0
    """Cells among them that nobody asked for."""
    partly: bool = False
    """Was some of it, but not all, told before?"""

    def messages(self, name: Name, cause: Cause | None, hop: int) -> tuple[RangeChange, ...]:
        """Return one message that makes and breaks at once, or several where a channel could not take it."""
        added, removed = self.added, self.removed
        if len(added) + len(removed) <= MOST_RANGES:
            return (RangeChange(name, added, removed, cause, hop),) if added or removed else ()
        makes = [(added[k : k + MOST_RANGES], ()) for k in range(0, len(added), MOST_RANGES)]
        breaks = [((), removed[k : k + MOST_RANGES]) for k in range(0, len(removed), MOST_RANGES)]
        return tuple(RangeChange(name, *change, cause, hop) for change in (*makes, *breaks))


@dataclass(frozen=True, slots=True)
class Decision:
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

    @property
    def text(self) -> str:
        """The reason as people read it."""
        return f"{self.trigger}: {self.reason}" if self.trigger else str(self.reason)

    def messages(self) -> tuple[Request, ...]:
        """Return the requests that tell the neighbour, if it has to be told."""
        if self.ranges is not None:
            return self.ranges.messages(self.name, self.cause, self.hop + 1)
        match self.action:
            case "forward" | "promote":
                return (Subscribe(self.name, self.boxes, tree=self.tree, cause=self.cause, hop=self.hop + 1),)
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


@dataclass(slots=True)
class Passive:
    """A withheld subscription and the proof that it may be."""

    boxes: Boxes
    origin: str
    coverers: tuple[Name, ...]
    serial: int
    """Its place in the order in which subscriptions became passive."""


@dataclass(frozen=True, slots=True)
class ToldDump:
    """The told half of a link for the codec: names in order, certificates, and the arrays of the strategy."""

    active: list[Name]
    passive: list[Name]
    coverers: list[tuple[Name, ...]]
    strategy: Dump


class Told:
    """The candidates of one outgoing link, active and passive, under one strategy."""

    def __init__(self, space: Space, spec: Spec) -> None:
        self.space, self.spec = space, spec
        self.trees: dict[Name, Filter] = {}
        self._cause: Cause | None = None
        self._hop = 0
        self._begin(BoxList(space.dims), {}, {})

    def dump(self) -> ToldDump:
        """Return what must be stored besides the broker's subscriptions."""
        coverers = [entry.coverers for entry in self.passive.values()]
        return ToldDump(list(self.active), list(self.passive), coverers, self.strategy.dump())

    def restore(self, dump: ToldDump, subscriptions: Subscriptions) -> None:
        """Take over what `dump` gave; boxes, origins and trees are those of the broker's subscriptions."""
        dims, active = self.space.dims, [subscriptions[name] for name in dump.active]
        passive = [subscriptions[name] for name in dump.passive]
        self.trees = {row.name: row.tree for row in (*active, *passive) if row.tree is not None}
        self._begin(
            BoxList(dims, ((row.name, stack(row.boxes, dims)) for row in active)),
            {row.name: row.origin for row in active},
            {
                row.name: Passive(row.boxes, row.origin, coverers, serial)
                for serial, (row, coverers) in enumerate(zip(passive, dump.coverers, strict=True))
            },
        )
        self.strategy.restore(dump.strategy)

    def _begin(self, active: BoxList, origins: dict[Name, str], passive: dict[Name, Passive]) -> None:
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
    def rebuilding(self) -> bool:
        """True if a rebuild is pending."""
        return self.strategy.rebuilding

    def rebuild_step(self) -> bool:
        """Do one part of a pending rebuild. Return True when it is complete."""
        return self.strategy.rebuild_step()

    def rebuild(self) -> bool:
        """Begin to recompute what the strategy keeps. Return False if it keeps nothing."""
        return self.strategy.rebuild()

    def sizes(self) -> dict[str, Any]:
        """Return the columns of `metrics` that are about what the neighbour was told."""
        associations, taken = self.withheld
        return {
            "active": len(self.active),
            "passive": len(self.passive),
            "negative_rectangles": self.strategy.negative_rectangles,
            "negative_share": self.strategy.negative_share,
            "ranges": None,
            "withheld_associations": associations,
            "withheld_filter_bytes": taken,
        }

    def asks(self) -> object:
        """Return what the neighbour was told, to be compared with what it heard (rule H)."""
        return {name: (self.active.boxes(name), self.trees.get(name)) for name in self.active}

    def false_positives(self, points: Keys) -> None:
        """Return None: where boxes travel, what a neighbour sends was asked for."""

    @property
    def withheld(self) -> Extent:
        """The size of the filters that the neighbour was not told; counted when it is first asked for."""
        if self._withheld is None:
            self._withheld = self._count_withheld()
        return self._withheld.extent

    def _count_withheld(self) -> Extents:
        return Extents(self.space, ((entry.boxes, self.trees.get(name)) for name, entry in self.passive.items()))

    def apply(self, origin: str, request: Request, cause: Cause | None) -> list[Decision]:
        """Apply a request that arrived on another link. Return what the neighbour is told or not told."""
        self._cause, self._hop = cause, request.hop
        match request:
            case Subscribe():
                return self.subscribe(request.name, request.boxes, origin, request.tree)
            case Unsubscribe():
                return self.unsubscribe(request.name, reason_of(request.name, cause))
            case RangeChange():
                raise InvariantError(
                    f"{origin} speaks in ranges, this link in boxes. Remedy: one strategy for all links"
                )

    def subscribe(self, name: Name, boxes: Boxes, origin: str, tree: Filter | None = None) -> list[Decision]:
        """Add a candidate, or change its shape. The neighbour hears nothing of one that stays as it was.

        `tree` goes to the neighbour with the boxes; it decides nothing here.
        """
        same_tree = self.trees.get(name) == tree
        if name in self.active:
            if same_tree and self.active.boxes(name) == boxes:
                return []
            self._keep_tree(name, tree)
            return self._replace(name, boxes, origin)
        if name in self.passive:
            if same_tree and self.passive[name].boxes == boxes:
                return []
            self._forget_passive(name)
        self._keep_tree(name, tree)
        verdict = self._decide(boxes)
        if verdict.covered:
            return [self._withhold(name, boxes, origin, verdict)]
        forwarded = self._activate("forward", name, boxes, origin, verdict)
        return [forwarded, *self._withdraw_covered([forwarded])]

    def unsubscribe(self, name: Name, reason: Reason) -> list[Decision]:
        """Remove a candidate and promote the passive subscriptions that only it covered."""
        if name in self.passive:
            entry = self._forget_passive(name)
            self._keep_tree(name, None)
            return [self._gone("drop", name, entry.origin, reason, entry.boxes)]
        self._keep_tree(name, None)
        boxes, origin, dependants = self._deactivate(name)
        promoted = self._reconsider(dependants, Trigger(name, replaced=False))
        return [*promoted, self._gone("cancel", name, origin, reason, boxes), *self._withdraw_covered(promoted)]

    def _decide(self, boxes: Boxes) -> Verdict:
        """Ask the strategy, and let it take note of its answer."""
        verdict = self.strategy.decide(boxes)
        self.strategy.observe(verdict)
        return verdict

    def _gone(
        self, action: Action, name: Name, origin: str, reason: Reason, boxes: Boxes, coverers: tuple[Name, ...] = ()
    ) -> Decision:
        """Return the decision about a candidate that the neighbour is told to forget, or was never told of."""
        return Decision(action, name, origin, reason, boxes, coverers, cause=self._cause, hop=self._hop)

    def _keep_tree(self, name: Name, tree: Filter | None) -> None:
        """Keep the tree of a candidate, or that it has none."""
        self.trees.pop(name, None)
        if tree is not None:
            self.trees[name] = tree

    def _replace(self, name: Name, boxes: Boxes, origin: str) -> list[Decision]:
        """An active candidate changes its shape: one message that makes and breaks at once, or a cancel.

        What leaned on the old shape is decided again beside the new one, and whatever must be promoted is told before
        the old shape goes. Those promoted may cover the new shape; so it is decided again after them.
        """
        old, _, dependants = self._deactivate(name)
        trigger, promoted = Trigger(name, replaced=True), list[Decision]()
        verdict = self._decide(boxes)
        if not verdict.covered:
            forwarded = self._activate("forward", name, boxes, origin, verdict)
            promoted = self._reconsider(dependants, trigger)
            if not promoted:
                return [forwarded, *self._withdraw_covered([forwarded])]
            _, _, dependants = self._deactivate(name)
            verdict = self._decide(boxes)
        if not verdict.covered:
            forwarded = self._activate("forward", name, boxes, origin, verdict)
            return [*promoted, forwarded, *self._withdraw_covered([forwarded, *promoted])]
        withheld = self._withhold(name, boxes, origin, verdict)
        promoted += self._reconsider(dependants, trigger)
        cancelled = self._gone("cancel", name, origin, Reason.REPLACED, old)
        return [*promoted, cancelled, withheld, *self._withdraw_covered(promoted)]

    def _activate(
        self, action: Action, name: Name, boxes: Boxes, origin: str, verdict: Verdict, trigger: Trigger | None = None
    ) -> Decision:
        self.active.add(name, boxes)
        self.origins[name] = origin
        self.strategy.added(name, boxes)
        return Decision(
            action,
            name,
            origin,
            verdict.reason,
            boxes,
            witness=verdict.witness,
            nodes=verdict.nodes,
            tree=self.trees.get(name),
            bound=verdict.bound or None,
            trigger=trigger,
            cause=self._cause,
            hop=self._hop,
        )

    def _deactivate(self, name: Name) -> tuple[Boxes, str, list[Name]]:
        """Take a name out of the active list. Return its boxes, its origin, and the passive ones that it covered."""
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
        return Decision(
            "withhold",
            name,
            origin,
            verdict.reason,
            boxes,
            verdict.coverers,
            nodes=verdict.nodes,
            bound=verdict.bound,
            cause=self._cause,
            hop=self._hop,
        )

    def _reconsider(self, names: list[Name], trigger: Trigger) -> list[Decision]:
        """Decide withheld subscriptions again, the largest first (the earliest where equal)."""
        promoted = []
        for name in sorted(names, key=self._largest_first):
            entry = self.passive[name]
            verdict = self._decide(entry.boxes)
            if verdict.covered:
                self._independ(name, entry.coverers)
                entry.coverers = verdict.coverers
                self._depend(name, verdict.coverers)
            else:
                self._forget_passive(name)
                promoted.append(self._activate("promote", name, entry.boxes, entry.origin, verdict, trigger))
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
        verdict = Verdict(True, Reason.COVERED_BY_A_LATER_ONE, (coverer,))
        withheld = self._withhold(name, boxes, origin, verdict)
        return [self._gone("cancel", name, origin, withheld.reason, boxes, (coverer,)), withheld]

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

    def check_candidates(self, names: set[Name], ranges: Sequence[Ranges]) -> None:
        """Raise `InvariantError` unless the candidates are exactly what the other links heard (rule S)."""
        if names != set(self.active) | self.passive.keys():
            raise InvariantError("rule (S): the candidates are not what the other links heard")

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
