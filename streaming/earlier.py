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

It fills `publications` with those that `routes` tells of and that the topic still holds, which alone has the point.
Broker, id and moment must agree; so a publication that is not routed yet, of which the router will make a row, is none
of them.

What was filled, and since when, is said. Each fill is one commit with a mark, so a killed one is repeated, and a
complete one is not. A rebuild, which makes all tables from the topic of records, does it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from access.offsets import Span, topic_spans
from access.tails import in_order, records_between
from state.config import Config
from state.geometry.boxes import boxes_where
from state.protocol.events import Context, Source, read
from state.protocol.messages import LOCAL, Publish
from state.protocol.reasons import Reason
from state.protocol.topics import Topics
from state.space import Space
from state.storage.rows import Filters, Row, boxes_value, from_rows
from streaming.dataset import dataset_of
from streaming.lake import RustWriter, Stamp, Stream, open_table, schema_of
from streaming.schemas import schemas_of, stream_of

STAMP = Stamp("lacuna-earlier", 1)
"""The mark of the commit that filled a table."""
COLUMNS = ("epoch", "batch", "seq", "time", "broker", "link", "client", "subscription", "action", "reason", "shape")
ENDS = {Reason.UNSUBSCRIBED: "unsubscribe", Reason.EXPIRED: "expire"}
NOT_OWN = (Reason.COVERED_ANEW, Reason.COVERED_BY_A_LATER_ONE, Reason.COVERED_AT_A_REBUILD)
"""Reasons of decisions that the subscription's own client did not cause."""
MOST_READ = 200_000
"""Publications of the topic that are looked at, the latest ones."""
Published = Callable[[Config], Iterable[Any]]
"""Reads records of the topic of publications, those of a partition in order."""


def latest_publications(config: Config) -> Iterator[Any]:
    """Yield the latest records of the topic of publications. Raises `Unreachable` if Kafka does not answer."""
    spans = topic_spans(config.kafka.bootstrap, [Topics(config.kafka.prefix).publish])
    each = MOST_READ // max(1, len(spans))
    latest = {where: Span(max(span.first, span.next - each), span.next) for where, span in spans.items()}
    return records_between(config.kafka.bootstrap, latest)


def bring_up(lake: str, config: Config, say: Callable[[str], None], published: Published = latest_publications) -> None:
    """Fill what an earlier version did not have, if it made this lake. Its tables have new columns at their end."""
    if schema_of(open_table(lake, "decisions")).names != schemas_of(config.space)["decisions"].names:
        fill(lake, config, say, published)


def fill(lake: str, config: Config, say: Callable[[str], None], published: Published = latest_publications) -> None:
    """Fill the tables that an earlier version did not have, once, and say what they hold."""
    space = config.space
    if not _is_filled(lake, "subscriptions") and (rows := list(changes(space, _decisions(lake)))):
        _append(lake, space, "subscriptions", from_rows("subscriptions", rows))
        say(
            f"the lake holds rows of an earlier version: the table subscriptions was filled with {len(rows)} changes "
            "that its decisions tell of (filters as boxes)"
        )
    if not _is_filled(lake, "publications") and (routes := _routes(lake)):
        rows = list(publications(config, routes, published(config)))
        points = np.array([row["point"] for row in rows], np.int64).reshape(-1, space.dims)
        _append(lake, space, "publications", from_rows("publications", rows) | {"point": points})
        say(f"the table publications was filled with {_said(rows)}; earlier ones are in routes and deliveries only")


def _is_filled(lake: str, table: str) -> bool:
    return open_table(lake, table).transaction_version(STAMP.application) is not None


def _append(lake: str, space: Space, table: str, columns: dict[str, Any]) -> None:
    stream = stream_of(space, table, columns)
    RustWriter(lake).append(table, lambda: [Stream(stream, None)], STAMP)


def _said(rows: list[Row]) -> str:
    """Return how many publications the topic still holds, and since when."""
    if not rows:
        return "none, because the topic holds none of that time any more"
    since = datetime.fromtimestamp(min(row["arrived"] for row in rows) / 1e6, UTC)
    return f"{len(rows)} that the topic still holds, since {since:%Y-%m-%d %H:%M:%S} UTC"


def _decisions(lake: str) -> list[Row]:
    """Return the decisions of clients' own brokers that an earlier version recorded, in order."""
    recorded = dataset_of(open_table(lake, "decisions"))
    of_earlier = pc.field("change").is_null() & (pc.field("origin") == LOCAL)
    found = recorded.to_table(columns=list(COLUMNS), filter=of_earlier)
    found = found.set_column(found.column_names.index("time"), "time", found["time"].cast(pa.int64()))
    rows = list(found.to_pylist())
    return sorted(rows, key=lambda row: (row["epoch"] or 0, row["batch"], row["seq"] or 0, row["broker"], row["link"]))


def _routes(lake: str) -> list[Row]:
    """Return the routes that an earlier version recorded at the brokers where events were published."""
    recorded = dataset_of(open_table(lake, "routes"))
    of_earlier = pc.field("publication_key").is_null() & (pc.field("origin") == LOCAL)
    found = recorded.to_table(columns=["epoch", "batch", "time", "broker", "publication"], filter=of_earlier)
    found = found.set_column(found.column_names.index("time"), "time", found["time"].cast(pa.int64()))
    return list(found.to_pylist())


def publications(config: Config, routes: Iterable[Row], records: Iterable[Any]) -> Iterator[Row]:
    """Yield the publications that routes tell of, as the topic has them, as rows of `publications`."""
    context = Context(config.space, config.overlay.brokers)
    routed = {(row["broker"], row["publication"], row["time"]): row for row in routes}
    for arrived, record in in_order(records):
        source = Source(0, record.offset, f"{record.partition}:{record.offset}", arrived)
        broker = (record.key or b"").decode(errors="replace")
        event = read(context, "publish", broker, record.value or b"", source)
        row = routed.pop((broker, event.id, event.time), None) if isinstance(event, Publish) else None
        if row is not None and isinstance(event, Publish):
            yield {
                **{column: row[column] for column in ("batch", "broker", "publication", "time")},
                "epoch": row["epoch"] or 0,
                "arrived": arrived,
                "publication_key": event.key,
                "point": event.point,
                "payload_bytes": len(event.payload or b""),
            }


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
