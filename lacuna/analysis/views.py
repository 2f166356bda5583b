"""Views over the tables, for the questions that people ask most; the same in every engine that Lacuna opens.

    links       each direction of a link: its strategy, and the brokers behind it
    standing    what each client has now
    savings     per link and day: messages sent, and what flooding would have sent
    latency     percentiles in seconds: from arrival to delivery, and for each crossing of a link
    hot_links   what each link carried, the busiest first
    why         a decision with its story: the filter asked for, and one row for each that covers it, with its filter
    why_not     a publication and a subscription that stood then, and each of its boxes, or that which contains the
                publication: the attribute that excludes it; `matches` is of the whole subscription

A view is text. Engines differ in a few words, which a `Dialect` knows. `why_not` compares a publication with a box,
attribute by attribute, so it depends on the space; `links` is the overlay of the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from state.config import Config
from state.space import Attribute

NO_LINKS = ("local", "*")
"""Links of `metrics` that are not links."""
MORE_THAN_READ = (
    "the statement does more than read, and `lacuna sql` only reads. Remedy: write a SELECT; tables are changed by the "
    "job and by `lacuna archive` alone"
)
"""What both engines say of a statement that writes."""
ENDED = ("unsubscribe", "expire")
"""Changes after which a subscription does not stand."""


@dataclass(frozen=True)
class Dialect:
    """The words in which engines differ; `{}` is where the argument goes."""

    micros: str
    each: str
    array: str
    quote: str
    moment: str
    listed: str
    any: str

    def name(self, name: str) -> str:
        """Return a name in quotes."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote


DUCKDB = Dialect(
    "epoch_us({})",
    "unnest(CASE WHEN len({0}) > 0 THEN {0} ELSE [NULL] END)",
    "[{}]",
    '"',
    "strftime({}, '%Y-%m-%dT%H:%M:%SZ')",
    "array_to_string({}, ', ')",
    "len(list_filter({0}, lambda box: {1})) > 0",
)
SPARK = Dialect(
    "unix_micros({})",
    "explode_outer({})",
    "array({})",
    "`",
    "date_format({}, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")",
    "concat_ws(', ', {})",
    "exists({0}, box -> {1})",
)


def views(config: Config, dialect: Dialect) -> dict[str, str]:
    """Return the text of each view, none before one that it uses."""
    return {
        "links": _links(config, dialect),
        "standing": STANDING,
        "savings": SAVINGS,
        "latency": _latency(dialect),
        "hot_links": HOT_LINKS,
        "why": _why(dialect),
        "why_not": _why_not(config, dialect),
    }


def _texts(values: Iterable[str]) -> str:
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)


def _links(config: Config, dialect: Dialect) -> str:
    overlay = config.overlay
    rows = [
        f"({_texts((a, b, str(config.spec_of(a, b))))}, {dialect.array.format(_texts(_behind(config, a, b)))})"
        for a, b in overlay.directions()
    ]
    none = f"('', '', '', {dialect.array.format(_texts(['']))})"
    values = ", ".join(rows or [none])
    return f"SELECT * FROM (VALUES {values}) AS t(broker, link, strategy, behind) WHERE broker <> ''"


def _behind(config: Config, broker: str, link: str) -> list[str]:
    """Return the brokers that a broker reaches over a link."""
    found, waiting = [link], [(broker, link)]
    while waiting:
        before, here = waiting.pop()
        beyond = [other for other in config.overlay.neighbours[here] if other != before]
        found += beyond
        waiting += [(here, other) for other in beyond]
    return sorted(found)


COMPLETE = "(SELECT coalesce(max(epoch), 0) FROM subscriptions WHERE batch < -1 OR change = 'carry')"
"""The last life that recorded everything it began with."""
STANDING = f"""
    WITH numbered AS (
        SELECT *, row_number() OVER (
            PARTITION BY broker, client, subscription ORDER BY epoch DESC, batch DESC, seq DESC) AS place
        FROM subscriptions WHERE epoch >= {COMPLETE})
    SELECT broker, client, subscription, change, filter, boxes, expires, time, arrived, written
    FROM numbered WHERE place = 1 AND change NOT IN ({_texts(ENDED)})"""
SAVINGS = f"""
    WITH told AS (
        SELECT CAST(time AS DATE) AS day, broker, link, sum(messages) AS messages,
            sum(forwarded) AS forwarded, sum(publications) AS considered
        FROM metrics WHERE link NOT IN ({_texts(NO_LINKS)}) GROUP BY 1, 2, 3),
    flooded AS (
        SELECT CAST(coalesce(s.arrived, s.time) AS DATE) AS day, l.broker, l.link, count(*) AS flooded
        FROM links AS l JOIN subscriptions AS s ON NOT array_contains(l.behind, s.broker)
        WHERE s.change NOT IN ('renew', 'carry') GROUP BY 1, 2, 3)
    SELECT coalesce(t.day, f.day) AS day, coalesce(t.broker, f.broker) AS broker, coalesce(t.link, f.link) AS link,
        coalesce(messages, 0) AS messages, coalesce(flooded, 0) AS flooded,
        coalesce(flooded, 0) - coalesce(messages, 0) AS saved,
        coalesce(forwarded, 0) AS forwarded, coalesce(considered, 0) AS flooded_publications
    FROM told AS t FULL JOIN flooded AS f ON t.day = f.day AND t.broker = f.broker AND t.link = f.link"""
HOT_LINKS = f"""
    SELECT broker, link, max(strategy) AS strategy, sum(forwarded) AS forwarded, sum(publications) AS considered,
        sum(messages) AS messages, sum(came) AS came, sum(false_positives) AS false_positives
    FROM metrics WHERE link NOT IN ({_texts(NO_LINKS)})
    GROUP BY broker, link ORDER BY forwarded DESC, broker, link"""
PERCENTILES = ", ".join(
    f"percentile_cont({share}) WITHIN GROUP (ORDER BY seconds) AS {name}"
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
)


def _latency(dialect: Dialect) -> str:
    def seconds(begin: str, end: str) -> str:
        return f"({dialect.micros.format(end)} - {dialect.micros.format(begin)}) / 1e6"

    return f"""
    WITH reached AS (
        SELECT epoch, publication_key, broker, min(written) AS written FROM (
            SELECT epoch, publication_key, broker, written FROM routes
            UNION ALL SELECT epoch, publication_key, broker, written FROM deliveries) AS every
        GROUP BY epoch, publication_key, broker),
    taken AS (
        SELECT 'end to end' AS what, entry, broker, hop, {seconds("arrived", "written")} AS seconds FROM deliveries
        UNION ALL
        SELECT 'one hop', r.broker, r.link, r.hop + 1, {seconds("r.written", "n.written")}
        FROM routes AS r JOIN reached AS n
            ON n.epoch = r.epoch AND n.publication_key = r.publication_key AND n.broker = r.link
        WHERE r.action = 'forward')
    SELECT what, entry AS sender, broker AS receiver, hop, count(*) AS times, {PERCENTILES}, max(seconds) AS longest
    FROM taken GROUP BY what, entry, broker, hop"""


WHEN = "coalesce(arrived, time)"
"""The moment of an event; an earlier version recorded one only."""
ASKED = f"""
    asked AS (
        SELECT broker, client, subscription, filter, boxes, {WHEN} AS since, lead({WHEN}) OVER (
            PARTITION BY broker, client, subscription ORDER BY epoch, batch, seq) AS until
        FROM subscriptions)"""
"""What each client asked for, from when until when."""


def _why(dialect: Dialect) -> str:
    stood = "{0}.since <= d.moment AND ({0}.until IS NULL OR d.moment < {0}.until)"
    return f"""
    WITH {ASKED},
    decided AS (SELECT *, {WHEN} AS moment, {dialect.each.format("covered_by")} AS coverer FROM decisions)
    SELECT d.epoch, d.batch, d.seq, d.time, d.arrived, d.written, d.broker, d.link, d.home, d.client, d.subscription,
        s.filter, d.action, d.reason, d.change, d.cause, d.witness,
        d.coverer.home AS coverer_home, d.coverer.client AS coverer_client,
        d.coverer.subscription AS coverer_subscription, c.filter AS coverer_filter
    FROM decided AS d
    LEFT JOIN asked AS s ON s.broker = d.home AND s.client = d.client AND s.subscription = d.subscription
        AND {stood.format("s")}
    LEFT JOIN asked AS c ON c.broker = d.coverer.home AND c.client = d.coverer.client
        AND c.subscription = d.coverer.subscription AND {stood.format("c")}"""


def _why_not(config: Config, dialect: Dialect) -> str:
    attributes = config.space.attributes
    outside = {a.name: _outside(a, dialect) for a in attributes}

    def case(value: Callable[[Attribute], str]) -> str:
        parts = " ".join(f"WHEN {outside[a.name]} THEN {value(a)}" for a in attributes)
        return f"CASE {parts} END"

    excluding = case(lambda a: _texts([a.name]))
    inside = " AND ".join(f"NOT coalesce({condition}, false)" for condition in outside.values())
    found = case(lambda a: _text(a, f"point.{dialect.name(a.name)}", dialect))
    asked = case(lambda a: _range(a, dialect))
    return f"""
    WITH {ASKED},
    pairs AS (
        SELECT p.epoch, p.publication_key, p.publication, p.broker AS entry, p.arrived, p.point, s.broker, s.client,
            s.subscription, s.filter, s.boxes
        FROM publications AS p JOIN asked AS s
            ON s.filter IS NOT NULL AND s.since <= p.arrived AND (s.until IS NULL OR p.arrived < s.until)),
    tried AS (SELECT *, {dialect.any.format("boxes", inside)} AS matches FROM pairs),
    each AS (SELECT *, {dialect.each.format("boxes")} AS box FROM tried)
    SELECT epoch, publication_key, publication, entry, arrived, broker, client, subscription, filter,
        {excluding} AS attribute, {found} AS value, {asked} AS asked, matches
    FROM each WHERE box IS NULL OR NOT matches OR ({inside})"""


def _outside(attribute: Attribute, dialect: Dialect) -> str:
    """Return the condition that a point is outside of a box in one attribute."""
    name = dialect.name(attribute.name)
    if attribute.kind == "category":
        return f"(box.{name} IS NOT NULL AND NOT array_contains(box.{name}, point.{name}))"
    return f"(box.{name} IS NOT NULL AND (point.{name} < box.{name}.low OR point.{name} > box.{name}.high))"


def _range(attribute: Attribute, dialect: Dialect) -> str:
    """Return the side of a box in one attribute, as text."""
    side = f"box.{dialect.name(attribute.name)}"
    if attribute.kind == "category":
        return dialect.listed.format(side)
    low, high = (_text(attribute, f"{side}.{end}", dialect) for end in ("low", "high"))
    return f"concat({low}, ' to ', {high})"


def _text(attribute: Attribute, value: str, dialect: Dialect) -> str:
    return dialect.moment.format(value) if attribute.kind == "timestamp" else f"CAST({value} AS STRING)"
