"""Redundant subscriptions: those of a set that the others cover.

The set is a choice: of two equal subscriptions either may be redundant. All redundant ones must be so at the same time,
and none may be kept that is not needed. Two passes:

    1   from the largest to the smallest: a subscription is redundant if those before it cover it, together or alone.
        This keeps the large ones, and not the many small ones inside them.
    2   again from the largest: a subscription is also redundant if *all* others that are left cover it. Smaller ones
        may cover a larger one together. Volumes only steer the order: that of a float point is 0.

            L ├──────────────┤                 1   M, the largest, is kept; L and R are not inside it
            M      ├────────────────┤          2   L and R cover M
            R              ├──────────────┤

A subscription found in a pass is covered by those left at that moment. If one of these goes later, others cover it, so
in the end the kept ones cover everything. A kept one was not covered by a set that contains all the other kept ones.
All redundant ones can therefore be left out, and none of the kept.

The coverers of a redundant one are searched at the end among the kept ones only: no proof depends on a subscription
that may be left out. If a test exceeds its budget, the subscription counts as not covered and is kept; a proof then
names all subscriptions that may be part of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from lacuna.analysis.certificates import certificate
from state.geometry.boxes import Boxes, stack, volume
from state.geometry.cover import COVERED, cover
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.space import Space
from state.strategies.base import BUDGET, certified

Shapes = Mapping[Name, Boxes]


def redundant(space: Space, mine: Shapes, there: Shapes, outer: Shapes) -> dict[Name, tuple[Name, ...]]:
    """Return the redundant ones among `mine` and `outer`, each with kept ones that together cover it.

    All of `there` is kept. The shapes of `outer` are larger than the client's filters: they can be found covered, but
    cannot cover anything.
    """
    kept = BoxList(space.dims, ((name, stack(boxes, space.dims)) for name, boxes in there.items()))
    order = sorted(mine, key=lambda name: -volume(space, mine[name]))
    for name in order:
        if certificate(kept, mine[name]) is None:
            kept.add(name, mine[name])
    for name in [name for name in order if name in kept]:
        if _covered_by_others(kept, name):
            kept.remove(name)
    proofs = {name: _proof(kept, mine[name]) for name in order if name not in kept}
    covered = ((name, certificate(kept, boxes)) for name, boxes in outer.items())
    return proofs | {name: by for name, by in covered if by is not None}


def _proof(kept: BoxList, boxes: Boxes) -> tuple[Name, ...]:
    """Return entries that together cover these boxes, which are covered; all that meet them if that takes too long."""
    met = (name for box in boxes for name in kept.names_meeting(box.keys()))
    return certified(kept, boxes).coverers or tuple(dict.fromkeys(met))


def _covered_by_others(kept: BoxList, name: Name) -> bool:
    """Return True if the other entries cover this one."""
    own = kept.slots(name)
    for q in kept.keys(name):
        slots = kept.meeting(q)
        others = slots[(slots < own.start) | (slots >= own.stop)]
        if cover(q, kept.table, others, BUDGET)[0] != COVERED:
            return False
    return True
