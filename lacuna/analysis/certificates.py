"""Certificates: the subscriptions that cover a withheld one, when that was decided and now.

A row names the coverers at the time of the decision. Later one of them may be cancelled, or replaced by another shape.
If others still cover the subscription, the link certifies it again, and a row says so (`covered anew`). An earlier
version of Lacuna wrote no such row: where a coverer is gone nonetheless, the coverers *now* are computed from the
shapes of what is active now. Any certificate is a proof; the link may hold another one than is found here.

Nothing can be found where shapes were not recorded, or where the link itself has no proof (`probabilistic`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lacuna.analysis.decision_log import active_after, active_at, name_from, name_of, shape_of
from state.geometry.boxes import Boxes, stack
from state.geometry.cover import COVERED
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.space import Space
from state.storage.rows import Row
from state.strategies.base import BUDGET, merged

Active = Mapping[Name, Boxes | None]
PATIENCE = 100 * BUDGET
"""The budget of nodes for one box, larger than a link's: a person can wait longer."""


@dataclass(frozen=True)
class Coverers:
    """Active subscriptions that together cover one, and all that were active at that moment.

    `names` is None if the coverers cannot be found. `recomputed` is True if they are not those of the decision.
    """

    names: tuple[Name, ...] | None
    active: Active
    recomputed: bool = False


def coverers_at(space: Space, rows: Sequence[Row], index: int) -> Coverers:
    """Return the coverers of a subscription when row `index` of a link's rows was decided.

    Rows of an early version have only their ids, which say too little.
    """
    names = tuple(name_from(value) for value in rows[index]["covered_by"] or ())
    return Coverers(names, active_at(space, rows, index))


def coverers_now(space: Space, rows: Sequence[Row], index: int) -> Coverers:
    """Return the coverers of a subscription after all rows of a link, if row `index` is its last and withholds it."""
    then = coverers_at(space, rows, index)
    row, names = rows[index], then.names or ()
    if row["action"] != "withhold" or not names or any(name_of(later) == name_of(row) for later in rows[index + 1 :]):
        return then
    active = active_after(space, rows)
    if all(_lasts(then.active, active, name) for name in names):
        return then
    return Coverers(_found(space, shape_of(space, row), active), active, recomputed=True)


def _lasts(then: Active, now: Active, name: Name) -> bool:
    return name in now and now[name] == then.get(name)


def _found(space: Space, boxes: Boxes | None, active: Active) -> tuple[Name, ...] | None:
    known = ((name, stack(shape, space.dims)) for name, shape in active.items() if shape is not None)
    return certificate(BoxList(space.dims, known), boxes, PATIENCE) if boxes else None


def certificate(held: BoxList, boxes: Boxes, budget: int = BUDGET) -> tuple[Name, ...] | None:
    """Return entries whose union covers these boxes, or None if there are none or the budget does not suffice."""
    parts = []
    for box in boxes:
        answer, names, _, _ = held.cover(box.keys(), budget)
        if answer != COVERED:
            return None
        parts.append(names)
    return merged(parts)
