"""A lake of an earlier version: what its new tables are filled with.

An earlier version recorded decisions, but neither the changes of subscriptions nor publications. So when the archive
first meets such a lake, it fills `subscriptions` from `decisions`:

    a client's own broker decided, on its first link          the change
    forward or withhold of one that did not stand             subscribe
    the same of one that stood                                replace
    cancel or drop, unsubscribed or expired                   unsubscribe or expire

These rows keep the epoch, batch and `seq` of their decision, so that they come before whatever is recorded from now on.
What such a version recorded nowhere stays null: the filter as it was written (there is the same as boxes), its time to
live, moments other than `time`. A broker without neighbours decided nothing, so nothing is known of its clients.

`publications` begins empty. Both are said. The fill is one commit with a mark, so a killed one is repeated, and a
complete one is not. A rebuild, which makes all tables from the topic, does it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from state.geometry.boxes import boxes_where
from state.protocol.messages import LOCAL
from state.protocol.reasons import Reason
from state.space import Space
from state.storage.rows import Filters, Row, boxes_value, from_rows
from streaming.lake import RustWriter, Stamp, Stream, open_table, schema_of
from streaming.schemas import schemas_of, stream_of

STAMP = Stamp("lacuna-earlier", 1)
"""The mark of the commit that filled a table."""
COLUMNS = ("epoch", "batch", "seq", "time", "broker", "link", "client", "subscription", "action", "reason", "shape")
ENDS = {Reason.UNSUBSCRIBED: "unsubscribe", Reason.EXPIRED: "expire"}
NOT_OWN = (Reason.COVERED_ANEW, Reason.COVERED_BY_A_LATER_ONE)
"""Reasons of decisions that the subscription's own client did not cause."""


def bring_up(lake: str, space: Space, say: Callable[[str], None]) -> None:
    """Fill what an earlier version did not have, if it made this lake. Its tables have new columns at their end."""
    if schema_of(open_table(lake, "decisions")).names != schemas_of(space)["decisions"].names:
        fill(lake, space, say)


def fill(lake: str, space: Space, say: Callable[[str], None]) -> None:
    """Fill the tables that an earlier version did not have, once, and say what they hold."""
    if open_table(lake, "subscriptions").transaction_version(STAMP.application) is not None:
        return
    rows = list(changes(space, _decisions(lake)))
    if not rows:
        return
    stream = stream_of(space, "subscriptions", from_rows("subscriptions", rows))
    RustWriter(lake).append("subscriptions", lambda: [Stream(stream, None)], STAMP)
    say(
        f"the lake holds rows of an earlier version: the table subscriptions was filled with {len(rows)} changes that "
        "its decisions tell of (filters as boxes); publications of that time are in routes and deliveries only"
    )


def _decisions(lake: str) -> list[Row]:
    """Return the decisions of clients' own brokers that an earlier version recorded, in order."""
    recorded = open_table(lake, "decisions").to_pyarrow_dataset()
    of_earlier = pc.field("change").is_null() & (pc.field("origin") == LOCAL)
    found = recorded.to_table(columns=list(COLUMNS), filter=of_earlier)
    found = found.set_column(found.column_names.index("time"), "time", found["time"].cast(pa.int64()))
    rows = list(found.to_pylist())
    return sorted(rows, key=lambda row: (row["epoch"] or 0, row["batch"], row["seq"] or 0, row["broker"], row["link"]))


def changes(space: Space, decisions: Iterable[Row]) -> Iterator[Row]:
    """Yield the changes that the decisions of clients' own brokers tell of, as rows of `subscriptions`."""
    filters, first, standing = Filters(space), dict[str, str](), set[tuple[str, str, str]]()
    for row in decisions:
        if first.setdefault(row["broker"], row["link"]) != row["link"]:
            continue
        name = row["broker"], row["client"], row["subscription"]
        change = _change(row, stood=name in standing)
        if change is None:
            continue
        (standing.discard if change in ENDS.values() else standing.add)(name)
        yield {
            **{column: row[column] for column in ("batch", "seq", "broker", "client", "subscription", "time")},
            "epoch": row["epoch"] or 0,
            "change": change,
            **_asked(space, filters, row["shape"]),
        }


def _change(row: Row, *, stood: bool) -> str | None:
    if row["reason"] in ENDS:
        return ENDS[row["reason"]]
    if row["action"] not in ("forward", "withhold") or row["reason"] in NOT_OWN:
        return None
    return "replace" if stood else "subscribe"


def _asked(space: Space, filters: Filters, shape: str | None) -> Row:
    """Return the filter and the boxes of a shape. A subscription of very many boxes was recorded without."""
    if shape is None:
        return {"filter": None, "boxes": None}
    wheres: list[dict[str, Any]] = json.loads(shape)
    boxes = tuple(box for where in wheres for box in boxes_where(space, where))
    written = wheres[0] if len(wheres) == 1 else wheres
    return {"filter": json.dumps(written, separators=(",", ":")), "boxes": boxes_value(filters, boxes)}
