"""Who covers a withheld subscription: when that was decided, and now.

A row names the coverers of the moment, by their ids. Later one of them may be cancelled, or replaced by another shape.
If others still cover the subscription, the link certifies it again and nothing changes for the neighbour, so no row
says so. By whom it is covered *now* is therefore found again, from the shapes of those that are active now. Any
certificate is a proof; the link may lean on another one than is found here.

Ids are not names: another client's subscription may have the same one. Of those active at the moment that have a
coverer's id, those are meant that meet the subscription; where they are still more than the ids, those of them that are
needed.

Where shapes were not recorded nothing can be found, nor where the link has no proof itself (`probabilistic`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lacuna.history import active_after, active_at, name_of, shape_of
from state.geometry.boxes import Boxes, meets, stack
from state.geometry.cover import COVERED
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.space import Space
from state.storage.rows import Row
from state.strategies.base import BUDGET, merged

Active = Mapping[Name, Boxes | None]
PATIENCE = 100 * BUDGET
"""Nodes for one box: a person waits longer than a link."""


@dataclass(frozen=True)
class Coverers:
    """Active subscriptions that together cover one, and all that were active at that moment.

    `names` is None where they cannot be found. `anew`: they are not those that were recorded with the decision.
    """

    names: tuple[Name, ...] | None
    active: Active
    anew: bool = False


def coverers_at(space: Space, rows: Sequence[Row], place: int) -> Coverers:
    """Who covered a subscription when row `place` of a link's rows was decided."""
    active = active_at(space, rows, place)
    return Coverers(_meant(space, rows[place], active), active)


def coverers_now(space: Space, rows: Sequence[Row], place: int) -> Coverers:
    """Who covers a subscription after all rows of a link, if `place` is the last row about it and withholds it."""
    then = coverers_at(space, rows, place)
    row, ids = rows[place], set(rows[place]["coverers"])
    if row["action"] != "withhold" or not ids or any(name_of(later) == name_of(row) for later in rows[place + 1 :]):
        return then
    active = active_after(space, rows)
    meant = then.names or ()
    if {name.id for name in meant} == ids and all(_lasts(then.active, active, name) for name in meant):
        return then
    return Coverers(_found(space, shape_of(space, row), active), active, anew=True)


def _lasts(then: Active, now: Active, name: Name) -> bool:
    return name in now and now[name] == then[name]


def _meant(space: Space, row: Row, active: Active) -> tuple[Name, ...]:
    """The active ones that the coverers of a row are."""
    ids, mine = set(row["coverers"]), shape_of(space, row)
    named = {name: boxes for name, boxes in active.items() if name.id in ids and _may_meet(mine, boxes)}
    if len(named) == len(ids):
        return tuple(named)
    return _found(space, mine, named) or tuple(named)


def _may_meet(one: Boxes | None, other: Boxes | None) -> bool:
    """Do two subscriptions share a point, as far as is known?"""
    if one is None or other is None:
        return True
    return any(meets(a.keys(), b.keys()) for a in one for b in other)


def _found(space: Space, boxes: Boxes | None, active: Active) -> tuple[Name, ...] | None:
    known = ((name, stack(shape, space.dims)) for name, shape in active.items() if shape is not None)
    return certificate(BoxList(space.dims, known), boxes, PATIENCE) if boxes else None


def certificate(held: BoxList, boxes: Boxes, budget: int = BUDGET) -> tuple[Name, ...] | None:
    """Entries whose union covers all of these boxes; None where that is not so, or not found within the budget."""
    parts = []
    for box in boxes:
        answer, names, _, _ = held.cover(box.keys(), budget)
        if answer != COVERED:
            return None
        parts.append(names)
    return merged(parts)
