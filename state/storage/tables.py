"""The tables: their names, columns, types and meanings. Everything else about them is made from this list.

Every table begins with the same columns. `epoch`, `batch` and `seq` give the order of rows, in one table and between
them; where two regions have rows of one batch, `broker` and `link` tell them apart. The three moments make latency a
subtraction:

    time ──────────▶ arrived ──────────▶ written
    the producer     Kafka took the      Kafka took the record that brought the row (the first copy,
    said so          client's event      where a crash made two)

A subscription is named by `home`, `client` and `subscription`, a publication by `publication_key`; the ids that clients
choose (`subscription`, `publication`) are not unique.

None of these is ever null. In Delta's schema only those are declared so that every earlier version of Lacuna wrote,
because a topic may still hold its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["text", "int", "float", "time", "json", "texts", "name", "names", "point", "boxes"]
"""The content of a column.

`json` is one or more filters; a name is a struct of `home`, `client`, `subscription`; a point is a struct with a field
for each attribute; boxes are an array of such structs, of ranges (`low`, `high`) or of categories.
"""


class Column(NamedTuple):
    """A column of a table: its name, what it holds, its meaning, whether it counts, whether Delta refuses null."""

    name: str
    kind: Kind
    about: str
    counter: bool = False
    always: bool = False


class Table(NamedTuple):
    """A table: what a row is about, its columns, and those (besides the order of rows) that people filter by.

    Compaction sorts rows by the column `sorted_by`.
    """

    about: str
    columns: tuple[Column, ...]
    filtered: tuple[str, ...]
    sorted_by: str | None = None


def _key(name: str, kind: Kind, about: str) -> Column:
    return Column(name, kind, about, always=True)


def _count(name: str, about: str, kind: Kind = "int") -> Column:
    return Column(name, kind, about, counter=True)


WRITTEN = Column("written", "time", "when Kafka took the record that brought the row; null in a simulation")
ORDER = (
    _key("epoch", "int", "the life of the system; in a simulation 1. Batches are counted from 0 in each life"),
    _key("batch", "int", "the router's batch, below 0 at the beginning of a life; in a simulation the input line"),
    Column(
        "seq", "int", "its place in the order of all rows of the region in this batch; in a simulation, of all rows"
    ),
)


def _moments(time: str, arrived: str) -> tuple[Column, ...]:
    return Column("time", "time", time), Column("arrived", "time", arrived), WRITTEN


_OF_EVENT = _moments(
    "the moment of the client's event as its producer said it (default: `arrived`), or of the expiry",
    "when Kafka took the client's event, or the moment of the expiry",
)
_OF_PUBLICATION = _moments(
    "the moment of the publication as its producer said it (default: `arrived`)", "when Kafka took the publication"
)
_PUBLICATION = (
    _key("publication", "text", "the id that the publisher chose"),
    Column(
        "publication_key",
        "text",
        "partition and offset of the record that published it, the same in every life; in a simulation the input line",
    ),
)
_WAY = (
    Column("entry", "text", "the broker where it was published"),
    Column("hop", "int", "how many links it had crossed"),
)

TABLES: dict[str, Table] = {
    "subscriptions": Table(
        "one row per accepted change of a client's subscription, at its broker",
        (
            *ORDER,
            *_OF_EVENT,
            _key("broker", "text", "the broker that the client is attached to"),
            _key("client", "text", "the client that subscribed"),
            _key("subscription", "text", "the id that the client chose"),
            _key(
                "change",
                "text",
                "subscribe, replace, renew, unsubscribe, expire; carry: it stood when this life began",
            ),
            Column("filter", "text", "what the client asks for, as written; null when it ends"),
            Column(
                "boxes",
                "boxes",
                "the same as boxes, an attribute not constrained being null; null when it ends, or if very many",
            ),
            Column("expires", "time", "the end of its time to live; null if it has none"),
        ),
        ("broker", "client", "subscription"),
    ),
    "publications": Table(
        "one row per accepted publication, at its broker",
        (
            *ORDER,
            *_OF_PUBLICATION,
            _key("broker", "text", "the broker where it was published"),
            *_PUBLICATION,
            Column("point", "point", "its value of each attribute"),
            _key("payload_bytes", "int", "the size of its payload"),
        ),
        ("broker", "publication", "publication_key"),
    ),
    "decisions": Table(
        "one row per subscription event and outgoing link",
        (
            *ORDER,
            *_OF_EVENT,
            _key("broker", "text", "the broker that decided"),
            _key("link", "text", "the neighbour that is told or not"),
            _key("subscription", "text", "the id that the client chose"),
            _key("client", "text", "the client that subscribed"),
            _key("home", "text", "the broker that the client is attached to"),
            _key("origin", "text", "the neighbour from which the broker heard of it, or local"),
            Column("hop", "int", "how many links the event behind it had crossed"),
            _key("action", "text", "forward, withhold, promote, cancel or drop"),
            _key("reason", "text", "why, in words; of a promotion, what was found then"),
            Column("cause", "name", "the subscription whose event or expiry caused it"),
            Column("change", "text", "that event: subscribe, replace, unsubscribe, expire; carry"),
            Column("trigger", "name", "of a promotion: the subscription that covered it before, and does not any more"),
            _key("strategy", "text", "the strategy of the link with its parameters"),
            Column("coverers", "texts", "ids of the active subscriptions whose union covers it, when withheld"),
            Column("covered_by", "names", "the same with the broker and the client of each"),
            Column(
                "witness",
                "json",
                "a box inside it that the strategy found uncovered, as a filter, when forwarded or promoted",
            ),
            Column("boxes", "int", "the number of boxes of the subscription"),
            Column(
                "shape",
                "json",
                "the subscription as a list of filters, a box each; null when cancelled or dropped, or if very many",
            ),
            Column(
                "bound",
                "float",
                "with what probability at most it is wrong to withhold it: 0 where that is proved, null if forwarded",
            ),
            Column(
                "nodes", "int", "boxes (under mics: ranges) looked at to decide: the work, the same on every machine"
            ),
            Column("ranges", "int", "under mics: how many ranges of the curve it is"),
            Column(
                "added",
                "int",
                "under mics: ranges that the neighbour is told of and was not before; the others were covered",
            ),
            Column("removed", "int", "under mics: ranges that the neighbour is told to forget"),
            Column("bridged", "int", "under mics: cells in them that nobody asked for, where gaps were bridged"),
            Column("active", "int", "subscriptions that the neighbour is told of, after this event"),
            Column("passive", "int", "subscriptions withheld from the neighbour, after this event"),
        ),
        ("broker", "link", "subscription", "client", "home", "action"),
    ),
    "routes": Table(
        "one row per publication and outgoing link it was considered for",
        (
            *ORDER,
            *_OF_PUBLICATION,
            _key("broker", "text", "the broker that the publication reached"),
            _key("link", "text", "the neighbour it was considered for"),
            *_PUBLICATION,
            *_WAY,
            _key("origin", "text", "the neighbour it came from, or local"),
            _key("action", "text", "forward or stop"),
        ),
        ("broker", "link", "publication", "publication_key", "action"),
        "publication_key",
    ),
    "deliveries": Table(
        "one row per publication and local subscription it matched",
        (
            *ORDER,
            *_OF_PUBLICATION,
            _key("broker", "text", "the broker that the client is attached to"),
            _key("client", "text", "the client that receives it"),
            _key("subscription", "text", "the id of the subscription that it matches"),
            *_PUBLICATION,
            *_WAY,
        ),
        ("broker", "client", "subscription", "publication", "publication_key"),
        "publication_key",
    ),
    "metrics": Table(
        "one row per link touched since its last row, and one for the region",
        (
            *ORDER,
            *_moments(
                "the router's clock: the latest arrival that the row covers",
                "the same: when Kafka took that record",
            ),
            _key("broker", "text", "the broker; for a region as a whole, its name"),
            _key("link", "text", "a neighbour; local for the broker's clients; * for the region as a whole"),
            Column("strategy", "text", "the strategy of the link with its parameters; null for local and *"),
            Column("batches", "int", "how many batches the row covers"),
            _count("subscribes", "subscribe messages that came on this link, or from the clients"),
            _count("unsubscribes", "unsubscribe messages that came on this link, or from the clients"),
            _count("publications", "publications that were considered for the link"),
            _count("forward", "subscriptions forwarded"),
            _count("withhold", "subscriptions withheld, or covered anew"),
            _count("promote", "subscriptions promoted"),
            _count("cancel", "subscriptions cancelled"),
            _count("drop", "withheld subscriptions dropped"),
            _count("messages", "messages about subscriptions sent to the neighbour"),
            _count("budget", "decisions cut short by the budget of candidates looked at"),
            _count("audited", "probable answers that were decided again exactly"),
            _count("wrong", "of these, how many were wrong (and put right)"),
            _count("rebuilds", "rebuilds of the negative rectangles that were finished"),
            _count("forwarded", "publications forwarded to the neighbour"),
            _count("stopped", "publications not forwarded"),
            _count("delivered", "deliveries to clients"),
            _count("false_forwards", "publications forwarded only because filters are pruned"),
            _count("came", "publications that came from the neighbour"),
            _count(
                "false_positives",
                "of these, those that went nowhere: false positives of the link",
            ),
            _count("bridged", "cells told that nobody asked for, where gaps between ranges were bridged"),
            Column("heard", "int", "subscriptions (under mics: ranges) heard on this link"),
            Column("active", "int", "subscriptions that the neighbour is told of (under mics: the clients')"),
            Column("passive", "int", "subscriptions withheld from the neighbour"),
            Column(
                "negative_rectangles",
                "int",
                "negative rectangles kept; null: none, or given up for `union`",
            ),
            Column(
                "negative_share",
                "float",
                "natural volume of the negative rectangles as a share of the domain, where it is kept",
            ),
            Column("ranges", "int", "Hilbert ranges kept, where the strategy keeps any"),
            _count("promised", "of the audited ones, how many may be wrong at most: the sum of their bounds", "float"),
            Column("prunings", "int", "prunings done on what was heard; null where the link does not prune"),
            Column(
                "associations",
                "int",
                "predicates of the filters heard, one for each that has it; null for local and under mics",
            ),
            Column("unpruned_associations", "int", "the same before pruning"),
            Column(
                "filter_bytes",
                "int",
                "bytes of the filters heard, as written: 24 a predicate, 8 an AND or OR; null for local and under mics",
            ),
            Column("unpruned_filter_bytes", "int", "the same before pruning"),
            Column(
                "withheld_associations",
                "int",
                "predicates of the filters withheld from the neighbour: what covering saves there",
            ),
            Column("withheld_filter_bytes", "int", "bytes of the filters withheld from the neighbour"),
            Column(
                "state_bytes",
                "int",
                "size of the link's stored state; for the region, of head and log; null in a simulation",
            ),
            Column(
                "millis",
                "float",
                "time that the region took in the batches before this one; null for a link",
            ),
        ),
        ("broker", "link"),
    ),
    "rejects": Table(
        "one row per refused record",
        (
            *ORDER,
            *_moments(
                "the moment that its producer said, where it can be read; otherwise `arrived`",
                "when Kafka took the refused record",
            ),
            Column("topic", "text", "the topic of the refused record"),
            _key("partition", "int", "its partition"),
            _key("offset", "int", "its offset; in a simulation the number of the input line less one"),
            Column("key", "text", "its key: the broker that it was for"),
            Column("client", "text", "the client that it names, where that can be read"),
            Column("id", "text", "the id that it names, where that can be read"),
            Column("value", "text", "the record as it came, undecodable bytes replaced"),
            _key("rule", "text", "the rule it broke"),
            _key("message", "text", "what in it broke the rule"),
        ),
        ("topic", "partition", "offset", "client", "rule"),
    ),
}
COUNTS = tuple(column.name for column in TABLES["metrics"].columns if column.counter)
"""The counters among the columns of `metrics`."""
REGION = "*"
"""The link of a row of `metrics` that is about a region as a whole."""


def made_columns(table: str) -> Iterator[Column]:
    """Yield the columns that a row has when it is made: all but `written`, which only its reader can know."""
    return (column for column in TABLES[table].columns if column is not WRITTEN)


def skipped_by(table: str) -> tuple[str, ...]:
    """Return the columns by which files of a table can be skipped."""
    moments = ("time", "arrived", "written")
    return (*(column.name for column in ORDER), *moments, *TABLES[table].filtered)
