"""Which of many subscriptions are redundant: the others ask for everything that they ask for.

Which ones is a choice: of two equal ones either is. All that are called redundant must be so at once, and nothing may
be kept that is not needed. Two passes:

    1   from the largest to the smallest: redundant is what those before it cover, together or alone. So the large ones
        are kept, and the many small ones inside them are not.
    2   again from the largest: redundant is also what *all* others that are left cover. Smaller ones may cover a larger
        one together; and volumes only steer: that of a float point is 0, and says nothing about what contains what.

            L ├──────────────┤                 1   M, the largest, is kept; L and R are not inside it
            M      ├────────────────┤          2   L and R cover M
            R              ├──────────────┤

What is found in a pass is covered by what is left at that moment, and if some of this goes later, then because others
cover it: in the end by what is kept. And what is kept was not covered by more than is kept. So the redundant can all be
left out, and none of the kept.

Who covers a redundant one is looked for at the end, among the kept ones only: no proof leans on what may be left out.
Beyond the budget of a test a subscription counts as not covered, and is kept; a proof then names all that may be part
of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from lacuna.coverers import certificate
from state.geometry.boxes import Boxes, stack, volume
from state.geometry.cover import COVERED, cover
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.space import Space
from state.strategies.base import BUDGET, certified

Shapes = Mapping[Name, Boxes]


def redundant(space: Space, mine: Shapes, there: Shapes, outer: Shapes) -> dict[Name, tuple[Name, ...]]:
    """The redundant ones among `mine` and `outer`, each with kept ones that together cover it.

    All of `there` is kept. The shapes of `outer` are larger than what is asked for: such a one may be covered, but
    cannot be said to cover anything.
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
    """Do the other entries cover this one?"""
    own = kept.slots(name)
    for q in kept.keys(name):
        slots = kept.meeting(q)
        others = slots[(slots < own.start) | (slots >= own.stop)]
        if cover(q, kept.table, others, BUDGET)[0] != COVERED:
            return False
    return True
