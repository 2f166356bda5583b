"""Rows of the tables: the record of every change, publication, decision, route, delivery and reject.

The simulator writes them as JSON lines, the router sends them to the archive. Both make them here, from the outcome of
a region, so that a row means the same wherever it comes from. The columns are those of `tables`, but for `written`.

Rows are made as columns, because there are many of publications: arrays where there are arrays in the outcome, lists
elsewhere. Values are plain: times are microseconds, names and filters are objects. A point stays a row of keys, an
array for all, until its reader turns it into values (`point_columns`, `Space.describe_point`).

Rows are in the order of arrivals, whatever way publications were grouped into runs: by the item that caused them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from state.geometry.boxes import Boxes
from state.protocol.events import Refused, said_in
from state.protocol.messages import Name
from state.protocol.wire import RANGE_BYTES
from state.routing.counters import MOST_CELLS
from state.routing.decision import Decision
from state.routing.outcome import Changed, Decided, Ints, Measured, Outcome, Run
from state.space import Attribute, Keys, Space, float_values
from state.storage.tables import COUNTS, made_columns

Row = dict[str, Any]
Columns = dict[str, Any]
"""Columns of one table by name: lists or arrays of one length."""
Texts = NDArray[np.object_]

MOST_SHAPE = 64
"""A subscription of more boxes is not written out in every row about it."""
MOST_VALUE = 4096
"""A reject keeps this many characters of the refused value."""


def tables(
    outcome: Outcome, space: Space, batches: int | Ints | None, seq: int = 0, epoch: int = 1
) -> dict[str, Columns]:
    """Return the rows of an outcome as columns, by table, without `metrics`.

    `batches` is the number of the batch, or that of each item; None: items are such numbers. `seq` is that of the first
    row, `epoch` the life that all belong to.
    """
    items = {
        "subscriptions": np.array([item for item, _ in outcome.subscriptions], np.int64),
        "publications": _concatenated([part.run.items[part.index] for part in outcome.publications]),
        "decisions": np.array([decided.item for decided in outcome.decisions], np.int64),
        "routes": _concatenated([part.run.items[part.reached.index] for part in outcome.routes]),
        "deliveries": _concatenated([part.run.items[part.index] for part in outcome.deliveries]),
        "rejects": np.array([item for item, _ in outcome.rejects], np.int64),
    }
    filters = Filters(space)
    made = {
        "subscriptions": from_rows("subscriptions", (change_row(filters, each) for _, each in outcome.subscriptions)),
        "publications": _publications(outcome, space),
        "decisions": from_rows("decisions", (decision_row(filters, each) for each in outcome.decisions)),
        "routes": _routes(outcome),
        "deliveries": _deliveries(outcome),
        "rejects": from_rows("rejects", (reject_row(refused) for _, refused in outcome.rejects)),
    }
    places = np.empty(sum(map(len, items.values())), np.int64)
    places[np.argsort(np.concatenate(list(items.values())), kind="stable")] = np.arange(seq, seq + len(places))
    begin = 0
    for table, columns in made.items():
        those = items[table]
        columns["epoch"], columns["batch"] = np.full(len(those), epoch), _batch_of(those, batches)
        columns["seq"] = places[begin : begin + len(those)]
        begin += len(those)
        made[table] = _reordered(columns, np.argsort(those, kind="stable"))
    return made


def metrics_columns(measured: Iterable[Measured], batches: Sequence[int], seq: int, epoch: int = 1) -> Columns:
    """Return the rows of `metrics` as columns; `batches` are their batches, `seq` is that of the first."""
    columns = from_rows("metrics", map(metrics_row, measured))
    count = len(batches)
    return columns | {"epoch": [epoch] * count, "batch": batches, "seq": range(seq, seq + count)}


def row_count(outcome: Outcome) -> int:
    """Return how many rows `tables` makes."""
    listed = len(outcome.subscriptions) + len(outcome.decisions) + len(outcome.rejects)
    published = sum(len(part.index) for part in outcome.publications)
    delivered = sum(len(part.index) for part in outcome.deliveries)
    return listed + published + delivered + sum(len(part.forward) for part in outcome.routes)


def from_rows(table: str, rows: Iterable[Row]) -> Columns:
    """Return rows as columns; what a row does not have is null."""
    kept = list(rows)
    return {column.name: [row.get(column.name) for row in kept] for column in made_columns(table)}


def _concatenated(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _batch_of(items: Ints, batches: int | Ints | None) -> Ints:
    if isinstance(batches, int):
        return np.full(len(items), batches)
    return items if batches is None else batches[items]


def _reordered(columns: Columns, order: Ints) -> Columns:
    if (np.diff(order) > 0).all():
        return columns
    places = order.tolist()
    return {
        name: values[order] if isinstance(values, np.ndarray) else [values[k] for k in places]
        for name, values in columns.items()
    }


# Publications


class _Facts:
    """What rows say of the publications of a run, as arrays, so that rows are made by positions alone."""

    def __init__(self, run: Run) -> None:
        self.publication = _texts([p.id for p in run.publications])
        self.publication_key = _texts([p.key for p in run.publications])
        self.entry = _texts([p.entry for p in run.publications])
        self.time = np.array([p.time for p in run.publications], np.int64)
        self.arrived = np.array([p.arrived for p in run.publications], np.int64)


def _texts(values: Sequence[str]) -> Texts:
    made = np.empty(len(values), object)
    made[:] = values
    return made


_OF_PUBLICATION = ("publication", "publication_key", "time", "arrived")
_ON_ITS_WAY = (*_OF_PUBLICATION, "entry")


def _gathered(parts: Sequence[tuple[Run, Ints]], names: Sequence[str]) -> Columns:
    """Return what is known of the publications at these positions of their runs."""
    facts: dict[int, _Facts] = {}
    for run, _ in parts:
        if id(run) not in facts:
            facts[id(run)] = _Facts(run)
    found: Columns = {}
    for name in names:
        none = np.empty(0, np.int64 if name in ("time", "arrived") else object)
        found[name] = np.concatenate([none, *(getattr(facts[id(run)], name)[index] for run, index in parts)])
    return found


def _publications(outcome: Outcome, space: Space) -> Columns:
    parts = [(part.run, part.index) for part in outcome.publications]
    columns = _gathered(parts, _OF_PUBLICATION)
    columns["broker"] = _repeated([(part.broker, len(part.index)) for part in outcome.publications])
    none = np.empty((0, space.dims), np.int64)
    columns["point"] = np.concatenate([none, *(run.points[index] for run, index in parts)])
    columns["payload_bytes"] = [len(run.publications[k].payload or b"") for run, index in parts for k in index.tolist()]
    return columns


def _routes(outcome: Outcome) -> Columns:
    columns = _gathered([(part.run, part.reached.index) for part in outcome.routes], _ON_ITS_WAY)
    sizes = [len(part.forward) for part in outcome.routes]
    columns["broker"] = _repeated([(p.setup.broker, n) for p, n in zip(outcome.routes, sizes, strict=True)])
    columns["link"] = _repeated([(p.setup.link, n) for p, n in zip(outcome.routes, sizes, strict=True)])
    columns["hop"] = _concatenated([part.reached.hops for part in outcome.routes])
    columns["origin"] = [origin for part in outcome.routes for origin in part.reached.origins]
    forward = np.concatenate([np.empty(0, bool), *(part.forward for part in outcome.routes)])
    columns["action"] = _texts(["stop", "forward"])[forward.astype(np.int64)]
    return columns


def _deliveries(outcome: Outcome) -> Columns:
    columns = _gathered([(part.run, part.index) for part in outcome.deliveries], _ON_ITS_WAY)
    names = [name for part in outcome.deliveries for name in part.names]
    columns["broker"] = [name.broker for name in names]
    columns["client"] = [name.client for name in names]
    columns["subscription"] = [name.id for name in names]
    columns["hop"] = _concatenated([part.hops for part in outcome.deliveries])
    return columns


def _repeated(texts: Sequence[tuple[str, int]]) -> Texts:
    return np.repeat(_texts([text for text, _ in texts]), [count for _, count in texts])


def point_columns(space: Space, keys: Keys) -> dict[str, Any]:
    """Return the values of many points as arrays, by attribute. Timestamps stay microseconds."""
    return {a.name: _values(a, keys[:, k]) for k, a in enumerate(space.attributes)}


def _values(attribute: Attribute, keys: Keys) -> Any:
    match attribute.kind:
        case "float":
            return float_values(keys)
        case "category":
            return _texts(attribute.values)[keys]
        case _:
            return keys


# Subscriptions


class Filters:
    """Boxes as filters, each list of boxes made once: on its way a subscription is decided about many times."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._made: dict[int, tuple[Boxes, list[Row]]] = {}

    def of(self, boxes: Boxes) -> list[Row]:
        """Return a filter for each box; an attribute that it does not constrain is not named."""
        found = self._made.get(id(boxes))
        if found is None:  # the boxes are kept too, so that no other ones can have their id
            found = self._made[id(boxes)] = boxes, [dict(self.space.where(box.lo, box.hi)) for box in boxes]
        return found[1]


def change_row(filters: Filters, changed: Changed) -> Row:
    """Return a row of `subscriptions`, without its place."""
    name, cause = changed.cause.name, changed.cause
    return {
        "broker": name.broker,
        "client": name.client,
        "subscription": name.id,
        "change": str(cause.change),
        "filter": _filter(filters, changed),
        "boxes": None if changed.boxes is None else boxes_value(filters, changed.boxes),
        "expires": changed.expires,
        "time": cause.time,
        "arrived": cause.arrived,
    }


def _filter(filters: Filters, changed: Changed) -> str | None:
    """Return what a client asks for, as text: a text as it was written, anything else as JSON."""
    if changed.where is not None:
        written = msgspec.json.decode(changed.where)
        return written if isinstance(written, str) else changed.where.decode()
    if changed.boxes is None:
        return None
    return msgspec.json.encode(filters.of(changed.boxes)).decode()


def boxes_value(filters: Filters, boxes: Boxes) -> list[Row] | None:
    """Return boxes as a table has them; None if they are very many."""
    attributes = filters.space.attributes
    if len(boxes) > MOST_SHAPE:
        return None
    return [{a.name: _side_value(a, where.get(a.name)) for a in attributes} for where in filters.of(boxes)]


def _side_value(attribute: Attribute, ends: list[Any] | None) -> list[Any] | Row | None:
    return ends if ends is None or attribute.kind == "category" else {"low": ends[0], "high": ends[1]}


def decision_row(filters: Filters, decided: Decided) -> Row:
    """Return a row of `decisions`, without its place."""
    decision, setup = decided.decision, decided.setup
    cause, trigger = decision.cause, decision.trigger
    return {
        "broker": setup.broker,
        "link": setup.link,
        "subscription": decision.name.id,
        "client": decision.name.client,
        "home": decision.name.broker,
        "origin": decision.origin,
        "hop": decision.hop,
        "action": decision.action,
        "reason": str(decision.reason),
        "cause": None if cause is None else name_value(cause.name),
        "change": None if cause is None else str(cause.change),
        "trigger": None if trigger is None else name_value(trigger.name),
        "strategy": str(setup.spec),
        "coverers": [name.id for name in decision.coverers],
        "covered_by": [name_value(name) for name in decision.coverers],
        "witness": _witness(setup.space, decision),
        "boxes": len(decision.boxes),
        "shape": _shape(filters, decision),
        "bound": decision.bound,
        "nodes": decision.nodes,
        **_reach(decision),
        "active": decided.active,
        "passive": decided.passive,
        "time": 0 if cause is None else cause.time,
        "arrived": 0 if cause is None else cause.arrived,
    }


def name_value(name: Name) -> Row:
    """Return a name as tables have it."""
    return {"home": name.broker, "client": name.client, "subscription": name.id}


def _reach(decision: Decision) -> Row:
    reach = decision.ranges
    if reach is None:
        return {}
    return {
        "ranges": reach.asked,
        "added": len(reach.added) // RANGE_BYTES,
        "removed": len(reach.removed) // RANGE_BYTES,
        "bridged": min(reach.bridged, MOST_CELLS),
    }


def _witness(space: Space, decision: Decision) -> Row | None:
    box = decision.witness
    return None if box is None else dict(space.describe(box.lo, box.hi))


def _shape(filters: Filters, decision: Decision) -> list[Row] | None:
    if decision.action in ("cancel", "drop") or len(decision.boxes) > MOST_SHAPE:
        return None
    return filters.of(decision.boxes)


# The rest


def reject_row(refused: Refused) -> Row:
    """Return a row of `rejects`, without its place."""
    said = said_in(refused.value)
    return {
        "topic": refused.topic,
        "partition": refused.partition,
        "offset": refused.offset,
        "key": refused.key,
        "client": said.client,
        "id": said.id,
        "value": refused.value.decode(errors="replace")[:MOST_VALUE],
        "rule": refused.rule,
        "message": refused.message,
        "time": refused.arrived if said.time is None else said.time,
        "arrived": refused.arrived,
    }


def metrics_row(measured: Measured) -> Row:
    """Return a row of `metrics`, without its place: the counters of a link, and how large it is after them."""
    counts: Row = {count: measured.counts[count] for count in COUNTS}
    counts["promised"] = float(counts["promised"])
    m = measured
    head = {"broker": m.broker, "link": m.link, "strategy": m.strategy, "batches": m.batches}
    return {**head, "time": measured.time, "arrived": measured.time, **counts, **measured.sizes}
