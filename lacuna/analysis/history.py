"""What really happened, told from the tables: the story of a subscription, and that of an event.

    subscription_story   hop by hop, what each link decided about it and why, over time
    event_story          whom a publication reached, which way, what each broker carried it for; for a subscription why
                         it was not reached

What a broker carried an event for follows from what its neighbour had been told of before (`decision_log`). Between
regions that takes a batch: where the record does not bear out what was asked at that moment, it is left unsaid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lacuna.analysis.decision_log import LAST_DECISION, active_after, filter_of, name_from
from lacuna.analysis.event import NAMED, Beside, Crossing, Hidden, matches, nearest, sentences, way_between
from lacuna.analysis.explain import Found, Present, as_json, last_shape
from lacuna.analysis.lake import Order, Tables, order_of
from lacuna.analysis.sentences import Sentence, Story
from lacuna.analysis.story import ENDS, present_sentence, sentence
from lacuna.analysis.wording import moment, named, number, words
from state.config import Config
from state.errors import LacunaError
from state.filters.where import Asked, asked
from state.protocol.messages import Name
from state.space import Corner, Space, ValueRefused, timestamp_key
from state.storage.rows import Row, name_value

OF_LINKS = ("broker", "link", "home", "client", "subscription", "action", "shape", "covered_by")
ENDED = ("unsubscribe", "expire")


# A subscription


def subscription_story(config: Config, found: Found, present: Present) -> Story:
    """Return the story of a subscription: a sentence on what it asks for, then one for each decision of each link.

    The facts are those of `lacuna explain --json`.
    """
    told = [Sentence(f"{named(name_value(found.name))} {what_is_asked(config.space, found)}.")]
    for step in found.steps:
        for row in step.rows[:-1]:
            told.append(Sentence(sentence(config.space, row, past=True), step.name, moment(row), "earlier"))
        said, now = sentence(config.space, step.last), present.get(step.name)
        if now is not None and now.recomputed:
            said = f"{sentence(config.space, step.last, past=True)} {present_sentence(step.last, now)}"
        told.append(Sentence(said, step.name, moment(step.last), step.state))
    if not found.steps:
        told.append(Sentence(f"{found.name.broker} has no neighbours, so nothing had to be decided."))
    return Story(named(name_value(found.name)), tuple(told), as_json(found, present, None))


def what_is_asked(space: Space, found: Found) -> str:
    """Return what a subscription asks for, and how it ended, if it did."""
    shape, last = last_shape(found.steps), found.changes[-1] if found.changes else None
    written = [row["filter"] for row in found.changes if row["filter"] is not None]
    if shape is not None:
        what = "; or ".join(words(space, where) for where in shape)
    else:
        what = written[-1] if written else "a filter that was not recorded"
    if last is None or last["filter"] is not None:
        return f"asks for {what}"
    return f"asked for {what}; it {ENDS[last['change']]} ({moment(last)})"


# An event


@dataclass(frozen=True)
class PastEvent:
    """What a publication did. `reached` are the first subscriptions that it reached, `deliveries` counts all."""

    publication: str
    publication_key: str
    at: dict[str, Any]
    broker: str
    time: str
    deliveries: int
    reached: tuple[Name, ...]
    links: tuple[Crossing, ...]
    beside: Beside | None


def event_story(tables: Tables, key: str, name: Name | None = None) -> Story:
    """Return the story of a publication, by its `publication_key`, or its id if that is unique.

    With the name of a subscription: why it was reached or not. Raises `LacunaError` if there is no such publication, or
    no such subscription stood then.
    """
    row = _publication(tables, key)
    config, key = tables.config, str(row["publication_key"])
    point = _point(config, row)
    way = () if name is None else way_between(config, row["broker"], _known_broker(config, name))
    routes = tables.rows("routes", publication_key=key)
    deliveries = [
        Name(d["broker"], d["client"], d["subscription"]) for d in tables.rows("deliveries", publication_key=key)
    ]
    links = tuple(_crossings(tables, routes, point, way))
    beside = None if name is None else _beside(tables, name, row, point, links, way)
    reached = tuple(deliveries[:NAMED])
    past = PastEvent(
        *(row["publication"], key, row["point"], row["broker"], row["time"], len(deliveries), reached, links, beside)
    )
    values = ", ".join(number(row["point"][a.name]) for a in config.space.attributes)
    about = f"{row['publication']} ({values}; {row['broker']}, {moment(row)})"
    return Story(about, tuple(sentences(len(deliveries), reached, links, beside, would=False)), past)


def _publication(tables: Tables, key: str) -> Row:
    """Return the row of a publication."""
    rows = tables.rows("publications", publication_key=key) or tables.rows("publications", publication=key)
    if len(rows) == 1:
        return rows[0]
    if rows:
        which = ", ".join(str(row["publication_key"]) for row in rows[:NAMED])
        raise LacunaError(f"{key}: {len(rows):,} publications have this id. Remedy: name one by its key: {which}")
    remedy = "look for it in rejects; or wait until the archive has caught up"
    raise LacunaError(f"{key}: no such publication is recorded in {tables.where}. Remedy: {remedy}")


def _point(config: Config, row: Row) -> Corner:
    try:
        return config.space.point(row["point"])
    except ValueRefused as refused:
        what = f"{row['publication']}: it was published in another space ({refused})"
        raise LacunaError(f"{what}. Remedy: name the configuration of that time") from None


def _known_broker(config: Config, name: Name) -> str:
    if name.broker not in config.overlay.neighbours:
        raise LacunaError(f"{name.broker}: there is no such broker. Remedy: use {', '.join(config.overlay.brokers)}")
    return name.broker


def _crossings(
    tables: Tables, routes: list[Row], point: Corner, way: tuple[tuple[str, str], ...]
) -> Iterator[Crossing]:
    """Yield the links that a publication was considered for, of a way only those on it, with what was asked there."""
    on_it = [row for row in routes if not way or (row["broker"], row["link"]) in way]
    by_link = _told_by(tables, on_it)
    for row in sorted(on_it, key=lambda row: (row["hop"], order_of(row))):
        told = active_after(tables.config.space, (d for d in by_link[row["link"], row["broker"]] if _before(d, row)))
        holding = [n for n, boxes in told.items() if boxes and matches(Asked(boxes), point)]
        place = row["broker"], row["link"], int(row["hop"]), row["action"]
        if tables.config.spec.by_ranges or bool(holding) != (row["action"] == "forward"):
            yield Crossing(*place, None, None, ())  # pruned, in ranges, or told while this was under way
        else:
            yield Crossing(*place, len(told), len(holding), tuple(holding[:NAMED]))


def _told_by(tables: Tables, routes: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return the decisions of the brokers at the other ends, by broker and link."""
    by_link: dict[tuple[str, str], list[Row]] = {(row["link"], row["broker"]): [] for row in routes}
    wanted = sorted({broker for broker, _ in by_link})
    if not wanted:
        return by_link
    orders, begun = [order_of(row) for row in routes], tables.begun("decisions")
    begun = begun if begun <= min(orders)[0] else 0  # a later life has decided everything again since
    for row in tables.between("decisions", OF_LINKS, LAST_DECISION, (min(orders), max(orders)), broker=wanted):
        if (row["broker"], row["link"]) in by_link and order_of(row)[0] >= begun:
            by_link[row["broker"], row["link"]].append(row)
    return by_link


def _before(row: Row, other: Row) -> bool:
    return order_of(row) < order_of(other)


def _beside(
    tables: Tables, name: Name, row: Row, point: Corner, links: tuple[Crossing, ...], way: Iterable[tuple[str, str]]
) -> Beside:
    """Return a subscription beside a publication, as it stood then."""
    got = _asked_then(tables, name, row)
    stops = [crossing.name for crossing in links if crossing.action == "stop"]
    names = tuple(f"{a}>{b}" for a, b in way)
    fits, near = matches(got, point), nearest(tables.config.space, got, point)
    return Beside(
        name, fits, len(got.boxes), near, names, next(iter(stops), None), tuple(_hidden(tables, name, row, way))
    )


def _asked_then(tables: Tables, name: Name, row: Row) -> Asked:
    """Return what a subscription asked for when a publication came. Raises `LacunaError` if it did not stand."""
    changes = tables.rows("subscriptions", subscription=name.id, client=name.client, broker=name.broker)
    before = [change for change in changes if _moment(change) < _moment(row)]
    if before and before[-1]["change"] not in ENDED:
        try:
            return asked(tables.config.space, filter_of(before[-1]["filter"]))
        except ValueRefused as refused:
            what = f"{name.id}: it was asked for in another space ({refused})"
            raise LacunaError(f"{what}. Remedy: name the configuration of that time") from None
    if before:
        why = f"it {ENDS[before[-1]['change']]} ({moment(before[-1])})"
    else:
        why = f"it was subscribed later ({moment(changes[0])})" if changes else "no such subscription is recorded"
    who = named(name_value(name))
    raise LacunaError(f"{who} did not stand then: {why}. Remedy: name another one, or wait for the archive")


def _moment(row: Row) -> tuple[int, Order]:
    """Return when a client's event was taken: brokers take events in the order of their arrival."""
    return timestamp_key(row["arrived"]), order_of(row)


def _hidden(tables: Tables, name: Name, row: Row, way: Iterable[tuple[str, str]]) -> Iterator[Hidden]:
    """Yield the link on the way back where the subscription was withheld then; beyond it nobody knew it."""
    rows = tables.rows(
        "decisions", since=tables.begun("decisions"), subscription=name.id, client=name.client, home=name.broker
    )
    for b, a in way:
        last = [d for d in rows if (d["broker"], d["link"]) == (a, b) and _before(d, row)][-1:]
        if last and last[0]["action"] == "withhold":
            yield Hidden(a, b, tuple(name_from(value) for value in last[0]["covered_by"] or ()))
