"""The decision log: decisions about subscriptions, read from the lake or from the files of a simulation.

The lake is read by delta-rs; Spark is not needed. Rows come as `state.storage.rows` makes them: `witness` as a filter,
`shape` as a list of filters (the disjoint boxes of the subscription), or null.

Order. A simulation writes its rows in the order of events; its `batch` is the line that caused the row, which with a
seed is no order. The lake returns files in any order, but all rows of one link come from one region: they are sorted by
epoch, batch and `seq`. (Rows of a version without `seq` keep the order in which they are found.) A life that begins
from the topics decides everything again, in batches below -1; what earlier lives decided is then not read. The
subscriptions that a neighbour was told of at any moment follow from the rows before it: `forward` and `promote` add a
subscription, `cancel` removes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from state.config import Config
from state.errors import LacunaError
from state.geometry.boxes import Boxes, boxes_where
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.space import Space
from state.storage.rows import Row

TOLD = ("forward", "promote")
"""Actions after which the neighbour is told."""
GONE = ("cancel", "drop")
"""Actions after which the neighbour is not told, and the shape is not recorded."""
STILL_THERE = tuple(reason for reason in Reason if reason.still_stands)
"""Reasons of a cancel after which the subscription still stands. A row that withholds it follows, except in `mics`."""


@dataclass(frozen=True)
class Source:
    """The source of the rows: the lake of a configuration, or a folder that `simulate --out` wrote."""

    config: Config
    folder: Path | None = None

    def decisions(self, **equal: str) -> list[Row]:
        """Return the decisions whose columns have these values, those of each link in the order of deciding."""
        return self._lines(equal) if self.folder else sorted(self._lake(equal), key=order_of)

    @property
    def where(self) -> str:
        """The path of the source, for messages."""
        return str(self.folder or self.config.lake.path)

    def _lines(self, equal: dict[str, str]) -> list[Row]:
        path = Path(str(self.folder)) / "decisions.jsonl"
        if not path.is_file():
            remedy = "name a folder that `lacuna simulate --out` wrote"
            raise LacunaError(f"{self.folder}: there is no decisions.jsonl in it. Remedy: {remedy}")
        with path.open("rb") as file:
            rows = (json.loads(line) for line in file)
            return [row for row in rows if all(row[column] == value for column, value in equal.items())]

    def _lake(self, equal: dict[str, str]) -> list[Row]:
        from deltalake import DeltaTable  # here: reading files needs neither
        from pyarrow import compute

        path = f"{self.config.lake.path.rstrip('/')}/decisions"
        if not DeltaTable.is_deltatable(path):
            remedy = "run the job first, name the right configuration, or read a simulation with --from"
            raise LacunaError(f"lake.path = {self.config.lake.path!r}: there is no table decisions. Remedy: {remedy}")
        rows = DeltaTable(path).to_pyarrow_dataset()
        wanted = None
        if "epoch" in rows.schema.names:  # an early version had none
            begun = rows.to_table(columns=["epoch"], filter=compute.field("batch") < -1)["epoch"]
            first = compute.max(begun).as_py()
            wanted = None if first is None else compute.field("epoch") >= first
        for column, value in equal.items():
            matches = compute.field(column) == value
            wanted = matches if wanted is None else wanted & matches
        return [_plain(row) for row in rows.to_table(filter=wanted).to_pylist()]


def order_of(row: Row) -> tuple[int, int, int]:
    """Return the sort key of a row among those of its link. Rows of an early version have no epoch, or no `seq`."""
    epoch, seq = row.get("epoch"), row.get("seq")
    return 0 if epoch is None else int(epoch), int(row["batch"]), -1 if seq is None else int(seq)


def _plain(row: Row) -> Row:
    """Return a row of the Delta table in the form that a simulation writes."""
    for column in ("witness", "shape"):
        row[column] = None if row[column] is None else json.loads(row[column])
    for column, value in row.items():
        if isinstance(value, datetime):
            row[column] = value.isoformat().replace("+00:00", "Z")
    return row


def name_of(row: Row) -> Name:
    """Return the name of the subscription that a row is about."""
    return Name(row["home"], row["client"], row["subscription"])


def name_from(value: Row) -> Name:
    """Return the name in a column of names."""
    return Name(value["home"], value["client"], value["subscription"])


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
