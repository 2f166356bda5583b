"""told[M]: what a broker asked of its neighbour M, and what it need not ask.

The candidates are all subscriptions heard on the broker's *other* links. Each is

    active     M was told of it, or
    passive    withheld, because what M was told already covers it: its certificate names those that do.

A shape that was told and is given up, because it was cancelled, replaced or withdrawn, is

    leaving    M still has it, but it covers nothing new. Passive subscriptions whose certificate names it wait to be
               decided again, and when none is left, M is told to forget it.

Rules that hold after every step (`check`):

    (S)  active and passive are disjoint and together are exactly the candidates
    (C)  what M was told covers every candidate; for a passive one its certificate alone does
         (a strategy that does not prove its answers keeps this with the probability that it was given)

A step returns its decisions in order. Decisions that speak to M (`forward`, `promote`, `cancel`) are sent in that
order, and it is always make before break: what must be told instead goes before what is taken back. So the break can
wait, and no event has to decide about thousands at once: a step decides about a portion of those that wait, and `work`,
called with later events, about the next. Where a portion is enough, the shape leaves in the step that gave it up.

Only passive subscriptions whose certificate names a shape that leaves are decided again: the proofs of all others still
stand. They are tried against *active* ones only, the largest first, so that the one that covers the others is promoted
before them. (Tested against passive ones too, two equal ones would suppress each other.)

If a name is told in a new shape while an earlier one of the same name is leaving, M gets one box around both until
nobody waits any more: M keeps one shape for a name.

`withheld` is the size of the passive ones, which withholding saves; the sum is kept as they come and go.

`covering = "active"` also withdraws an active subscription when one that is told later, new or promoted, covers it
alone (by all its boxes together): M keeps a smaller table, at the price of a message. Its dependants then lean on the
later one. This too is done in portions.

A strategy that `recomputes` (`negative-approx`, `variant = "printed"`) rebuilds with the next request at the link: all
candidates are decided again, in one event however many there are: as in the paper's text, for study.

Tried and found to lose publications (do not do these): one such table per broker instead of per outgoing link; passive
ones counted as covering; the cancel sent before the promotions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Any

import numpy as np
from msgspec.structs import replace

from state.curves.hilbert import Ranges
from state.errors import InvariantError
from state.filters.trees import Filter
from state.geometry.boxes import Box, Boxes, Shape, contains, gathered, hull, stack, volume
from state.geometry.cover import subtract_all
from state.matching.boxlist import BoxList
from state.matching.extents import Extent, Extents
from state.protocol.messages import Cause, Name, RangeChange, Request, Subscribe, Unsubscribe
from state.protocol.reasons import Reason, Trigger
from state.routing.certificates import Certificates, Leaving, Passive
from state.routing.decision import Action, Decision, reason_of
from state.routing.subscriptions import Subscriptions
from state.space import Keys, Space
from state.strategies import Dump, Spec, Strategy, Verdict

PORTION = 32
"""Subscriptions decided again, or looked at to be withdrawn, in one part of work."""
MOST_NODES = 100_000
"""Candidates looked at (`Verdict.nodes`) after which a part of work ends early."""
WINDOW = 512
"""Those who wait among whom the largest are taken first."""


@dataclass(slots=True)
class Sweep:
    """Which active subscriptions one that was told covers alone: how many were looked at that stay, and the event."""

    looked: int
    cause: Cause | None
    hop: int


@dataclass(frozen=True, slots=True)
class ToldDump:
    """The told half of a link for the codec: names in order, certificates, and the arrays of the strategy."""

    active: list[Name]
    passive: list[Name]
    coverers: list[tuple[Name, ...]]
    strategy: Dump
    leaving: dict[Name, Leaving] = field(default_factory=dict)
    sweeping: dict[Name, Sweep] = field(default_factory=dict)


class Told:
    """The candidates of one outgoing link, active and passive, under one strategy."""

    def __init__(self, space: Space, spec: Spec) -> None:
        self.space, self.spec = space, spec
        self.trees: dict[Name, Filter] = {}
        self._cause: Cause | None = None
        self._hop = 0
        self._begin(BoxList(space.dims), {}, Certificates(), {})

    def dump(self) -> ToldDump:
        """Return what must be stored besides the broker's subscriptions."""
        coverers = [entry.coverers for entry in self.passive.values()]
        kept = self.strategy.dump()
        return ToldDump(list(self.active), list(self.passive), coverers, kept, self.leaving, self.sweeping)

    def restore(self, dump: ToldDump, subscriptions: Subscriptions) -> None:
        """Take over what `dump` gave; boxes, origins and trees are those of the broker's subscriptions."""
        dims, active = self.space.dims, [subscriptions[name] for name in dump.active]
        passive = [subscriptions[name] for name in dump.passive]
        self.trees = {row.name: row.tree for row in (*active, *passive) if row.tree is not None}
        proved = zip(passive, dump.coverers, strict=True)
        entries = ((row.name, Passive(row.shape, row.origin, coverers)) for row, coverers in proved)
        self._begin(
            BoxList.of(dims, [row.name for row in active], *gathered([row.shape for row in active], dims)),
            {row.name: row.origin for row in active},
            Certificates(entries, dump.leaving),
            dump.sweeping,
        )
        self.strategy.restore(dump.strategy)

    def _begin(
        self, active: BoxList, origins: dict[Name, str], certificates: Certificates, sweeping: dict[Name, Sweep]
    ) -> None:
        self.active, self.origins = active, origins
        self.strategy = self.spec.build(self.space, active)
        self._certificates = certificates
        self.passive, self.leaving = certificates.passive, certificates.leaving
        self.sweeping = sweeping
        self._withheld: Extents | None = None

    def __len__(self) -> int:
        return len(self.active) + len(self.passive) + len(self.leaving)

    @property
    def working(self) -> bool:
        """True if work is pending: others lean on shapes that leave, some may be withdrawn, or a rebuild goes on."""
        return bool(self.leaving or self.sweeping) or (self.strategy.rebuilding and not self.strategy.recomputes)

    def work(self) -> tuple[list[Decision], bool]:
        """Do one part of pending work. Return what is decided, and whether a rebuild is complete with it."""
        if self.leaving:
            name = next(iter(self.leaving))
            shape = self.leaving[name]
            self._cause, self._hop = shape.cause, shape.hop
            return self._finished(self._relieve(name)), False
        if self.sweeping:
            return self._finished([]), False
        return [], self.strategy.rebuild_step()

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

    def standing(self) -> Iterator[Decision]:
        """Yield every candidate as a decision that says how it stands: told, or withheld by its certificate."""
        for name in self.active:
            yield Decision("forward", name, self.origins[name], Reason.CARRIED, self.active.boxes(name))
        for name, entry in self.passive.items():
            bound = 0.0 if entry.coverers else None
            yield Decision("withhold", name, entry.origin, Reason.CARRIED, entry.boxes, entry.coverers, bound=bound)

    def asks(self) -> object:
        """Return what the neighbour was told, to be compared with what it heard (rule H)."""
        told = {name: (self.active.boxes(name), self.trees.get(name)) for name in self.active}
        return told | {name: (shape.boxes, shape.tree) for name, shape in self.leaving.items()}

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
                decided = self.subscribe(request.name, request.boxes, origin, request.tree)
            case Unsubscribe():
                decided = self.unsubscribe(request.name, reason_of(request.name, cause))
            case RangeChange():
                raise InvariantError(
                    f"{origin} speaks in ranges, this link in boxes. Remedy: one strategy for all links"
                )
        if self.strategy.recomputes and self.strategy.rebuilding and not self.leaving:
            decided += self._recompute()
        return decided

    def subscribe(self, name: Name, boxes: Boxes, origin: str, tree: Filter | None = None) -> list[Decision]:
        """Add a candidate, or change its shape. The neighbour hears nothing of one that stays as it was.

        `tree` goes to the neighbour with the boxes; it decides nothing here.
        """
        same_tree = self.trees.get(name) == tree
        if name in self.active:
            if same_tree and self.active.boxes(name) == boxes:
                return []
            return self._replace(name, boxes, origin, tree)
        if name in self.passive:
            if same_tree and self.passive[name].shape == Shape.of(boxes):
                return []
            self._forget_passive(name)
        self._keep_tree(name, tree)
        verdict = self._decide(boxes)
        if verdict.covered:
            return self._finished([self._withhold(name, boxes, origin, verdict)])
        return self._finished([self._tell(self._activate("forward", name, boxes, origin, verdict))])

    def unsubscribe(self, name: Name, reason: Reason) -> list[Decision]:
        """Remove a candidate. Passive subscriptions that only it covered are promoted, now or in later steps."""
        if name in self.passive:
            entry = self._forget_passive(name)
            self._keep_tree(name, None)
            return self._finished([self._gone("drop", name, entry.origin, reason, entry.boxes)])
        cancelled = self._leave(name, reason)
        self._keep_tree(name, None)
        return self._finished([*self._relieve(name), cancelled])

    def _replace(self, name: Name, boxes: Boxes, origin: str, tree: Filter | None) -> list[Decision]:
        """An active candidate changes its shape: one message that makes and breaks at once, or a cancel.

        What leaned on the old shape is decided again beside the new one, and whatever must be promoted is told before
        the old shape goes. Those promoted may cover the new shape; so it is decided again after them.
        """
        cancelled, again = self._leave(name, Reason.REPLACED), list[Decision]()
        self._keep_tree(name, tree)
        verdict = self._decide(boxes)
        if not verdict.covered:
            forwarded = self._activate("forward", name, boxes, origin, verdict)
            again = [] if self._returns(name) else self._relieve(name)
            promotes = any(decision.action == "promote" for decision in again)
            if not promotes or self.leaving[name].waiting:  # told: a box around both
                return self._finished([self._tell(forwarded), *again])
            self._deactivate(name)
            verdict = self._decide(boxes)
        if not verdict.covered:
            forwarded = self._activate("forward", name, boxes, origin, verdict)
            return self._finished([*again, self._tell(forwarded)])
        self._certificates.leave(name, self.leaving[name])  # whoever leaned on the new shape meanwhile waits, too
        withheld = self._withhold(name, boxes, origin, verdict)
        return self._finished([*again, *self._relieve(name), cancelled, withheld])

    def adopt(self, decision: Decision, anew: Collection[Name] = ()) -> list[Decision]:
        """Take over a decision that was recorded elsewhere, without deciding. Return what the neighbour is told.

        So a reader of the tables comes to hold the same active and passive ones, in the same order, and the shapes that
        leave. What a strategy keeps beside them may differ, because it is not recorded what it was asked for in vain.
        `anew` are those certified anew in the same event: where it replaces a shape, they lean on the new one, although
        its decision is recorded after theirs.
        """
        self._cause, self._hop, name = decision.cause, decision.hop, decision.name
        told: list[Decision] = []
        if name in self.passive:
            self._forget_passive(name)
        if name in self.active:
            self._leave(name, Reason.REPLACED if decision.action == "forward" else decision.reason)
        self._keep_tree(name, decision.tree if decision.action in ("forward", "promote", "withhold") else None)
        verdict = Verdict(decision.action == "withhold", decision.reason, decision.coverers, decision.witness)
        if decision.action in ("forward", "promote"):
            activated = self._activate(decision.action, name, decision.boxes, decision.origin, verdict)
            waiting = self.leaving[name].waiting if name in self.leaving else {}
            for one in [one for one in anew if one in waiting]:
                self._certificates.renew(one, self.passive[one].coverers)
            told.append(self._tell(activated))
        elif decision.action == "withhold":
            self._withhold(name, decision.boxes, decision.origin, verdict)
        self.sweeping.clear()  # what was withdrawn then was recorded, too
        return self._finished(told)

    def _decide(self, boxes: Boxes) -> Verdict:
        """Ask the strategy, and let it take note of its answer."""
        verdict = self.strategy.decide(boxes)
        self.strategy.observe(verdict)
        return verdict

    def _gone(
        self,
        action: Action,
        name: Name,
        origin: str,
        reason: Reason,
        boxes: Boxes,
        coverers: tuple[Name, ...] = (),
        *,
        sends: bool = True,
        records: bool = True,
    ) -> Decision:
        """Return the decision about a candidate that the neighbour is told to forget, or was never told of."""
        return Decision(
            action,
            name,
            origin,
            reason,
            boxes,
            coverers,
            cause=self._cause,
            hop=self._hop,
            sends=sends,
            records=records,
        )

    def _keep_tree(self, name: Name, tree: Filter | None) -> None:
        """Keep the tree of a candidate, or that it has none."""
        self.trees.pop(name, None)
        if tree is not None:
            self.trees[name] = tree

    # active and passive

    def _activate(
        self, action: Action, name: Name, boxes: Boxes, origin: str, verdict: Verdict, trigger: Trigger | None = None
    ) -> Decision:
        self.active.add(name, boxes)
        self.origins[name] = origin
        self.strategy.added(name, boxes)
        if self.spec.covering == "active":
            self.sweeping[name] = Sweep(0, self._cause, self._hop)
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

    def _deactivate(self, name: Name) -> tuple[Boxes, str]:
        """Take a name out of the active list. Return its boxes and its origin."""
        boxes, origin = self.active.boxes(name), self.origins.pop(name)
        self.active.remove(name)
        self.strategy.removed(name, boxes)
        self.sweeping.pop(name, None)
        return boxes, origin

    def _withhold(self, name: Name, boxes: Boxes, origin: str, verdict: Verdict) -> Decision:
        self._certificates.add(name, boxes, origin, verdict.coverers)
        if self._withheld is not None:
            self._withheld.add(boxes, self.trees.get(name))
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

    def _forget_passive(self, name: Name) -> Passive:
        entry = self._certificates.remove(name)
        if self._withheld is not None:
            self._withheld.remove(entry.boxes, self.trees.get(name))
        return entry

    # leaving

    def _leave(self, name: Name, reason: Reason, coverers: tuple[Name, ...] = ()) -> Decision:
        """Take a name out of the active list; the neighbour keeps what it was told until nobody leans on it."""
        tree = self.trees.get(name)
        boxes, origin = self._deactivate(name)
        self._certificates.leave(name, Leaving(boxes, tree, origin, reason, self._cause, self._hop))
        return self._gone("cancel", name, origin, reason, boxes, coverers, sends=False)

    def _relieve(self, name: Name) -> list[Decision]:
        """Decide again a portion of those who lean on a shape that leaves: promoted, or covered by others."""
        shape, decided, nodes = self.leaving[name], list[Decision](), 0
        trigger = Trigger(name, replaced=shape.reason is Reason.REPLACED)
        for waiting in nsmallest(PORTION, islice(shape.waiting, WINDOW), key=self._largest_first):
            if nodes > MOST_NODES:
                break
            entry = self.passive[waiting]
            verdict = self._decide(entry.boxes)
            nodes += verdict.nodes
            if verdict.covered:
                decided.append(self._cover_anew(waiting, verdict))
            else:
                nodes += self.strategy.change_cost
                decided.append(self._promote(waiting, verdict, trigger))
        return decided

    def _cover_anew(self, name: Name, verdict: Verdict) -> Decision:
        """Let others cover a passive subscription than before."""
        self._certificates.renew(name, verdict.coverers)
        entry = self.passive[name]
        decision = self._gone("withhold", name, entry.origin, Reason.COVERED_ANEW, entry.boxes, verdict.coverers)
        return replace(decision, nodes=verdict.nodes, bound=verdict.bound)

    def _largest_first(self, name: Name) -> float:
        """The order in which those who wait are decided again: the largest first, the earliest where equal.

        The earliest is the first that waits (`certificates`), and `nsmallest` keeps the order of equal ones.
        """
        return -volume(self.space, self.passive[name].boxes)

    def _returns(self, name: Name) -> bool:
        """Return whether what is told now under this name contains what is leaving, which then need not leave."""
        shape = self.leaving.get(name)
        if shape is None or not _contains(self.active.boxes(name), shape.boxes):
            return False
        self._certificates.stay(name)
        return True

    def _tell(self, decision: Decision) -> Decision:
        """Let what is told now under this name replace what is leaving, if nobody leans on that; or tell both."""
        name = decision.name
        if name not in self.leaving or self._returns(name):
            return decision
        shape = self.leaving[name]
        if not shape.waiting:
            self._certificates.stay(name)
            return decision
        around = Box.of(hull(stack((*decision.boxes, *shape.boxes), self.space.dims)))
        shape.boxes, shape.tree = (around,), None
        return replace(decision, around=around)

    def _finished(self, decisions: list[Decision]) -> list[Decision]:
        """Return what a step decided, with what is withdrawn after it, and the shapes that leave now."""
        if self.sweeping:
            decisions += self._sweep()
        decisions += [self._farewell(name, shape) for name, shape in self._certificates.left()]
        return decisions

    def _farewell(self, name: Name, shape: Leaving) -> Decision:
        """Return what tells the neighbour that a shape is gone; the decision was recorded when it was given up."""
        self._cause, self._hop = shape.cause, shape.hop
        if name not in self.active:
            return self._gone("cancel", name, shape.origin, shape.reason, shape.boxes, records=False)
        told = self._gone("forward", name, self.origins[name], shape.reason, self.active.boxes(name), records=False)
        return replace(told, tree=self.trees.get(name))

    # recomputing

    def _recompute(self) -> list[Decision]:
        """Find out in one pass over all candidates, the largest first, which are active and which are passive.

        Make before break: those who must be told are told, then every certificate is made of what is active now, then
        nobody leans on the others, and they are taken back.
        """
        fresh, verdicts = self._fresh()
        told = [
            self._promote(name, verdict)
            for name, verdict in verdicts.items()
            if not verdict.covered and name not in self.active
        ]
        covered = {name: verdict for name, verdict in verdicts.items() if verdict.covered}
        other = [name for name, entry in self.passive.items() if entry.coverers != covered[name].coverers]
        again = [self._cover_anew(name, covered[name]) for name in other]
        taken = [one for name in list(self.active) if name in covered for one in self._retire(name, covered[name])]
        self.strategy.take_over(fresh)
        return self._finished([*told, *again, *taken])

    def _fresh(self) -> tuple[Strategy, dict[Name, Verdict]]:
        """Return a new strategy that was told of all candidates, and what it said to each."""
        shapes = {name: self.active.boxes(name) for name in self.active}
        shapes |= {name: entry.boxes for name, entry in self.passive.items()}
        active = BoxList(self.space.dims)
        fresh, verdicts = self.spec.build(self.space, active), dict[Name, Verdict]()
        for name in sorted(shapes, key=lambda one: (-volume(self.space, shapes[one]), one)):
            verdicts[name] = fresh.decide(shapes[name])
            if not verdicts[name].covered:
                active.add(name, shapes[name])
                fresh.added(name, shapes[name])
        return fresh, verdicts

    def _promote(self, name: Name, verdict: Verdict, trigger: Trigger | None = None) -> Decision:
        entry = self._forget_passive(name)
        return self._tell(self._activate("promote", name, entry.boxes, entry.origin, verdict, trigger))

    def _retire(self, name: Name, verdict: Verdict) -> list[Decision]:
        """Take back what others cover, on which nobody leans."""
        boxes, origin, covered = self.active.boxes(name), self.origins[name], Reason.COVERED_AT_A_REBUILD
        cancelled = self._leave(name, covered, verdict.coverers)
        return [cancelled, self._withhold(name, boxes, origin, replace(verdict, reason=covered))]

    # withdrawing

    def _sweep(self) -> list[Decision]:
        """With `covering = "active"`: take back a portion of what those told cover alone."""
        done, left = list[Decision](), PORTION
        while self.sweeping and left > 0:
            name, sweep = next(iter(self.sweeping.items()))
            self._cause, self._hop = sweep.cause, sweep.hop
            near = [other for other in self._near(name, sweep.looked + left + 2) if other != name][sweep.looked :]
            for other in near[:left]:
                if self._covers(name, other):
                    done += self._withdraw(other, name)
                else:
                    sweep.looked += 1
            if len(near) <= left:
                del self.sweeping[name]
            left -= len(near) + 1
        return done

    def _near(self, name: Name, most: int) -> list[Name]:
        """The active ones that the boxes of this one may cover; of more than `most`, at least so many."""
        return self.active.inside(hull(self.active.keys(name)), most)

    def _covers(self, name: Name, other: Name) -> bool:
        """Return whether one active subscription contains another, by all its boxes together."""
        return _covered(self.active.keys(other), self.active.keys(name))

    def _withdraw(self, name: Name, coverer: Name) -> list[Decision]:
        """Take back what another covers. Those who lean on it lean on that one, at once unless they are many."""
        dependants, leaning = list(self._certificates.dependants(name)), list[Decision]()
        if len(dependants) <= PORTION:
            leaning = [d for one in dependants for d in self._lean_on(one, name, coverer)]
        boxes, origin = self.active.boxes(name), self.origins[name]
        verdict = Verdict(True, Reason.COVERED_BY_A_LATER_ONE, (coverer,))
        cancelled = self._leave(name, verdict.reason, verdict.coverers)
        return [cancelled, self._withhold(name, boxes, origin, verdict), *leaning]

    def _lean_on(self, name: Name, coverer: Name, other: Name) -> list[Decision]:
        """Let a certificate name another coverer instead of one, unless it waits to be made anew anyway."""
        coverers = self._certificates.renamed(name, coverer, other)
        if coverers is None:
            return []
        decision = self._cover_anew(name, Verdict(True, Reason.COVERED_ANEW, coverers))
        return [decision if self.strategy.proves else replace(decision, bound=None)]

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
        self._certificates.check(set(self.active))
        if not self.sweeping.keys() <= set(self.active):
            raise InvariantError("what is swept for is not active")
        for name in self.passive if self.strategy.proves else ():
            self._check_certificate(name)

    def _check_certificate(self, name: Name) -> None:
        told, leaving = self._certificates.proof(name)
        shapes = [stack(shape.boxes, self.space.dims) for shape in leaving]
        proof = np.concatenate([stack((), self.space.dims), *shapes, *map(self.active.keys, told)])
        if not _covered(self.passive[name].shape.keys, proof):
            raise InvariantError(f"rule (C): the certificate of {name} does not cover it")


def _covered(boxes: Keys, by: Keys) -> bool:
    """Return whether other boxes together contain all of these."""
    return not any(len(subtract_all(box, by, np.arange(len(by)), True)) for box in boxes)


def _contains(outer: Boxes, inner: Boxes) -> bool:
    """Return whether each inner box lies in one of the outer ones; not looked at where there are many."""
    if len(outer) * len(inner) > PORTION:
        return False
    return all(any(contains(one.keys(), other.keys()) for one in outer) for other in inner)
