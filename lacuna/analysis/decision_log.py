"""The decision log: decisions about subscriptions, and their changes, read from the lake or from a simulation's files.

Rows come as `lacuna.analysis.lake` reads them: `witness` as a filter, `shape` as a list of filters (the disjoint boxes
of the subscription), or null.

Order. A simulation writes its rows in the order of events; its `batch` is the line that caused the row, which with a
seed is no order. The lake returns files in any order, but all rows of one link come from one region: they are sorted by
epoch, batch and `seq`. (Rows of a version without `seq` keep the order in which they are found.) The subscriptions
that a neighbour was told of at any moment follow from the rows before it: `forward` and `promote` add a subscription,
`cancel` removes it.

Lives. Each life records what it begins with, in batches below -1. One that has decided again about everything says
why; what earlier lives decided is then not read. One that keeps its brokers says `carried`. That tells nothing new of
most subscriptions, so the earlier decisions stay, with their reasons (`joined`). It corrects them where the life began
from an older copy: what was decided after the copy is not true any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from lacuna.analysis.lake import Lasting, open_tables, order_of
from state.config import Config
from state.geometry.boxes import Boxes, boxes_where
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.space import Space
from state.storage.rows import Row

TOLD = ("forward", "promote")
"""Actions after which the neighbour is told."""
GONE = ("cancel", "drop")
"""Actions after which the neighbour is not told, and the shape is not recorded."""
LAST_DECISION = Lasting(("broker", "link", "home", "client", "subscription"), "action", GONE, TOLD)
"""The decisions that still count."""
STILL_THERE = tuple(reason for reason in Reason if reason.still_stands)
"""Reasons of a cancel after which the subscription still stands. A row that withholds it follows, except in `mics`."""


@dataclass(frozen=True)
class Source:
    """The source of the rows: the lake of a configuration, or a folder that `simulate --out` wrote."""

    config: Config
    folder: Path | None = None

    def decisions(self, **equal: str) -> list[Row]:
        """Return the decisions whose columns have these values, those of each link in the order of deciding."""
        tables = open_tables(self.config, self.folder)
        lives = tables.lives()
        decided = max((epoch for epoch, again in lives.items() if again), default=0)
        return joined(tables.rows("decisions", since=decided, **equal), lives)

    def changes(self, **equal: str) -> list[Row]:
        """Return the changes of subscriptions whose columns have these values, in order. An early version has none."""
        tables = open_tables(self.config, self.folder)
        if not tables.has("subscriptions"):
            return []
        return tables.rows("subscriptions", since=tables.begun("subscriptions"), **equal)

    @property
    def where(self) -> str:
        """The path of the source, for messages."""
        return str(self.folder or self.config.lake.path)


def joined(rows: Iterable[Row], begun: Mapping[int, bool]) -> list[Row]:
    """Return the rows of several lives, in order, as those of one.

    `begun` are the lives that recorded what they begin with: whether they have decided again, or carried it over.
    """
    by_life: dict[int, list[Row]] = {epoch: [] for epoch in begun}
    for row in rows:
        by_life.setdefault(order_of(row)[0], []).append(row)
    found: list[Row] = []
    for epoch, new in sorted(by_life.items()):
        if begun.get(epoch):
            found = new
        elif epoch in begun:
            found = _carried_over(found, new)
        else:
            found += new
    return found


def _carried_over(before: list[Row], life: list[Row]) -> list[Row]:
    """Return the rows of a life that carried over what stood behind those before it, as far as they are true for it."""
    last = {_place(row): row for row in before}
    carried = {_place(row): row for row in life if row["reason"] == Reason.CARRIED}
    untrue = {place for place, row in last.items() if place not in carried and not _ends_or_is_by_ranges(row)}
    known = {place for place, row in carried.items() if place in last and _stands_as(last[place], row)}
    kept = [row for row in before if _place(row) not in untrue]
    return kept + [row for row in life if row["reason"] != Reason.CARRIED or _place(row) not in known]


def _place(row: Row) -> tuple[str, str, Name]:
    return row["broker"], row["link"], name_of(row)


def _ends_or_is_by_ranges(row: Row) -> bool:
    """Return whether nothing is carried over after this row: it is gone, or only its ranges are known (`mics`)."""
    return row["action"] in GONE or row.get("ranges") is not None


def _stands_as(row: Row, carried: Row) -> bool:
    """Return whether a carried row says of a subscription what an earlier one says."""
    told = row["action"] in TOLD
    same = row["shape"] == carried["shape"] and told == (carried["action"] in TOLD)
    return same and row["action"] not in GONE and (told or row["covered_by"] == carried["covered_by"])


def name_of(row: Row) -> Name:
    """Return the name of the subscription that a row is about."""
    return Name(row["home"], row["client"], row["subscription"])


def name_from(value: Row) -> Name:
    """Return the name in a column of names."""
    return Name(value["home"], value["client"], value["subscription"])


def filter_of(written: str) -> object:
    """Return a filter as a client gave it from the text that the table has of it.

    >>> filter_of('{"price": [1, 2]}'), filter_of("price > 3")
    ({'price': [1, 2]}, 'price > 3')
    """
    return json.loads(written) if written.lstrip()[:1] in ("{", "[") else written


def shape_of(space: Space, row: Row) -> Boxes | None:
    """Return the boxes of a row's subscription, or None if they were not recorded."""
    if row["shape"] is None:
        return None
    return tuple(box for where in row["shape"] for box in boxes_where(space, where))


def witness_of(space: Space, row: Row) -> Boxes:
    """Return the witness of a row, as at most one box."""
    return () if row["witness"] is None else boxes_where(space, row["witness"])


def stands(row: Row) -> bool:
    """Return True if the subscription stands after this row. A replaced one stands, in its new shape."""
    return row["action"] not in GONE or row["reason"] in STILL_THERE


def active_at(space: Space, rows: Sequence[Row], index: int) -> dict[Name, Boxes | None]:
    """Return what the neighbour had been told when row `index` of a link's rows was decided, without that row.

    A promotion comes before the cancel, or the new shape, that makes it necessary: make before break. It was decided
    without the cancelled subscription, or with the new shape. (If many are promoted because of one event, most of them
    come after it.)
    """
    before = list(rows[:index])
    if rows[index]["action"] == "promote":
        after = (
            row for row in rows[index + 1 :] if row["action"] != "promote" and row["reason"] != Reason.COVERED_ANEW
        )
        before += [row for row in islice(after, 1) if row.get("cause") == rows[index].get("cause")]
    active = active_after(space, before)
    active.pop(name_of(rows[index]), None)
    return active


def active_after(space: Space, rows: Iterable[Row]) -> dict[Name, Boxes | None]:
    """Return the subscriptions that the neighbour knows after these rows of a link; None for a shape not recorded."""
    told: dict[Name, Row] = {}
    for row in rows:
        if row["action"] in TOLD:
            told[name_of(row)] = row
        elif row["action"] == "cancel":
            told.pop(name_of(row), None)
    return {name: shape_of(space, row) for name, row in told.items()}


def standing(space: Space, rows: Iterable[Row]) -> dict[Name, Boxes]:
    """Return the clients' subscriptions that stand and whose present shapes their own broker recorded."""
    last: dict[Name, Row] = {}
    for row in rows:
        name = name_of(row)
        if row["broker"] != name.broker:
            continue
        if stands(row):
            last[name] = row
        else:
            last.pop(name, None)
    shapes = {name: shape_of(space, row) for name, row in last.items()}
    return {name: shape for name, shape in shapes.items() if shape is not None}
