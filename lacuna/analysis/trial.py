"""Trying an event or a filter: what the router would do, from the tables; nothing is changed by that.

    an event   whom it would reach, over which links, where it stops and why; for a subscription why it would not be
               reached, attribute by attribute
    a filter   its boxes, the share of the last publications that it matches, how each link on its way would decide,
               and what it would make redundant

The answers are the core's: the region of a copy (`mirror`) routes the event, and its links decide about the filter,
with the limits and budgets that the router has. Under `mics` a link decides by applying, so there the filter is
subscribed to and cancelled again, which undoes it exactly.

**What an answer is worth.** It is what the router would have done at the moment of the last rows of the tables
(`Trial.as_of`), the overlay being quiet. `Trial.vague` names the links that may do otherwise, and why.

The JSON of `answer`, which is `POST /v1/explain`:

    {"at": {...}, "broker": B, "subscription": {"home", "client", "subscription"}}      an event; all but `at` optional
    {"where": {...} or "...", "broker": B}                                             a filter
    ──▶ {"about", "sentences": [{"text", "link", "time", "state"}], "as_of", ...}      and the fields of `TriedEvent` or
                                                                                       `TriedFilter`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lacuna.analysis.event import NAMED, Beside, Crossing, Hidden, matches, sentences, way_between
from lacuna.analysis.event import nearest as nearest_box
from lacuna.analysis.lake import Tables
from lacuna.analysis.mirror import FROM_TABLES, Mirror
from lacuna.analysis.sentences import Sentence, Story
from lacuna.analysis.wording import listed, names_listed, number, words
from state.errors import LacunaError, nearest, shown
from state.filters.where import Asked, asked
from state.geometry.boxes import Box, Boxes, hull, stack
from state.geometry.cover import COVERED
from state.matching.boxlist import BoxList
from state.matching.clients import Clients
from state.protocol.arrivals import Arrival
from state.protocol.messages import LOCAL, Name, Publish, Subscribe, Unsubscribe
from state.routing.broker import Broker
from state.routing.decision import Decision
from state.routing.heard import BoxHeard
from state.routing.outcome import Outcome
from state.routing.told import Told
from state.space import Corner, Keys, Space, ValueRefused
from state.storage.rows import Row, name_value
from state.strategies.base import BUDGET

LAST = 10_000
"""Publications of which a filter's share is counted."""
MOST_LOOKED_AT = 1000
"""Active subscriptions of a link that are looked at to find those that a filter makes redundant."""
MOST_WORK = 20 * BUDGET
"""Candidates looked at for one filter on all links: a fifth of a second."""
PER_LINK = BUDGET // 60
"""Candidates that take as long as asking one link besides."""
TRIED = Name("", "", "")
"""The name of a filter that is tried; no client can choose it."""


class Refused(LacunaError):
    """What is to be tried is refused, for the rule for which the router would refuse it."""

    def __init__(self, what: str, rule: str, message: str) -> None:
        super().__init__(f"{what}: {message} (rule: {rule}). Remedy: correct it, as docs/events.md says")
        self.rule, self.message = rule, message


@dataclass(frozen=True)
class TriedEvent:
    """What an event would do. `reached` are the first subscriptions that it would reach, `deliveries` counts all."""

    at: dict[str, Any]
    broker: str
    deliveries: int
    reached: tuple[Name, ...]
    links: tuple[Crossing, ...]
    beside: Beside | None
    as_of: str | None


@dataclass(frozen=True)
class Decided:
    """What a link would decide about a filter: `forward` with a witness (where known), or `withhold` with coverers.

    `redundant` are active subscriptions there that the filter alone would cover, the first of `redundant_count`.
    """

    broker: str
    link: str
    hop: int
    action: str
    reason: str
    coverers: tuple[Name, ...]
    witness: dict[str, Any] | None
    nodes: int
    redundant: tuple[Name, ...]
    redundant_count: int
    vague: str | None


@dataclass(frozen=True)
class TriedFilter:
    """What a filter would do. `share` is that of the last `publications` that it matches, None if there are none.

    `complete` is False if asking all links would take too much work, so that the farther ones are missing.
    """

    broker: str
    boxes: tuple[dict[str, Any], ...]
    exact: bool
    share: float | None
    publications: int
    links: tuple[Decided, ...]
    complete: bool
    as_of: str | None


class Trial:
    """A copy of the overlay to try events and filters on. Not for two threads at once."""

    def __init__(self, tables: Tables) -> None:
        self.tables, self.config = tables, tables.config
        self.mirror = Mirror(tables)
        self._points: Keys | None = None
        self._version: object = None
        self._complete = True

    def refresh(self) -> bool:
        """Take over what was added to the tables. Return whether anything was; a millisecond where nothing was."""
        return self.mirror.refresh()

    @property
    def as_of(self) -> str | None:
        """The moment of the last rows that were taken over; None if there are none."""
        return self.mirror.as_of

    def vague(self, broker: str, link: str) -> str | None:
        """Return why a link may do otherwise than an answer says; None where it is exact."""
        return self.mirror.vague(broker, link)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request as JSON (see the module). Raises `Refused` for one that breaks a rule."""
        known = {"at", "where", "broker", "subscription"}
        for key in request:
            if key not in known:
                raise Refused(str(key)[:40], "field", f"there is no such field{nearest(str(key), known)}")
        if ("at" in request) == ("where" in request):
            raise Refused("explain", "missing", "it needs one of the fields at and where")
        broker = self.broker(request.get("broker"))
        if "where" in request:
            return self.filter(request["where"], broker).as_json()
        return self.event(request["at"], broker, self._name(request.get("subscription"))).as_json()

    def broker(self, given: object) -> str:
        """Return the broker that is given, or the first. Raises `Refused` if there is no such broker."""
        brokers = self.config.overlay.brokers
        if given is None:
            return brokers[0]
        if not isinstance(given, str) or given not in brokers:
            hint = nearest(given, brokers) if isinstance(given, str) else ""
            raise Refused("broker", "broker", f"{shown(given)} is not a broker of the overlay{hint}")
        return given

    def _name(self, given: object) -> Name | None:
        if given is None:
            return None
        fields = ("home", "client", "subscription")
        parts = [given.get(field) for field in fields] if isinstance(given, Mapping) else []
        if len(parts) != len(fields) or not all(isinstance(part, str) for part in parts):
            raise Refused("subscription", "field", f"it is an object of {listed(fields)}")
        return Name(*map(str, parts))

    # an event

    def event(self, at: object, broker: str, subscription: Name | None = None) -> Story:
        """Try an event that is published at a broker. Raises `Refused` if it is not accepted."""
        try:
            if not isinstance(at, dict):
                raise ValueRefused("type", f"{shown(at)} is not an object")
            point = self.config.space.point(at)
        except ValueRefused as refused:
            raise Refused("at", refused.rule, str(refused)) from None
        outcome = self.mirror.region.take([_arrival(broker, Publish("?", point, key="?", entry=broker))])
        links = tuple(self._crossings(outcome, point))
        names = [name for part in outcome.deliveries for name in part.names]
        beside = None if subscription is None else self._beside(subscription, point, links, broker)
        said = self.config.space.describe_point(point)
        tried = TriedEvent(said, broker, len(names), tuple(names[:NAMED]), links, beside, self.as_of)
        told = sentences(tried.deliveries, tried.reached, links, beside, would=True)
        values = ", ".join(number(value) for value in said.values())
        return Story(f"an event ({values}) at {broker}", tuple(told), tried)

    def _crossings(self, outcome: Outcome, point: Corner) -> Iterator[Crossing]:
        for part in outcome.routes:
            broker, link, goes = part.setup.broker, part.setup.link, bool(part.forward[0])
            heard = self.mirror.region.brokers[broker].links[link].heard
            among = self._holders(heard, point) if isinstance(heard, BoxHeard) else []
            holding = len(among) if isinstance(heard, BoxHeard) else int(goes)
            place = broker, link, int(part.reached.hops[0]), "forward" if goes else "stop"
            yield Crossing(*place, len(heard), holding, tuple(among[:NAMED]), self.vague(broker, link))

    def _holders(self, heard: BoxHeard, point: Corner) -> list[Name]:
        _, names = heard.boxes.holders(self.config.space.points([point]))
        return list(dict.fromkeys(names))

    def _beside(self, name: Name, point: Corner, links: Sequence[Crossing], broker: str) -> Beside:
        got = self.mirror.asked.get(name)
        if got is None:
            rule = f"{name.id} of {name.client} at {name.broker} does not stand; `lacuna subscriptions` lists what does"
            raise Refused("subscription", "id", rule)
        way = way_between(self.config, broker, name.broker)
        stops = [c.name for c in links if c.action == "stop" and (c.broker, c.link) in way]
        names = tuple(f"{a}>{b}" for a, b in way)
        fits, near = matches(got, point), nearest_box(self.config.space, got, point)
        return Beside(name, fits, len(got.boxes), near, names, next(iter(stops), None), tuple(self._hidden(name, way)))

    def _hidden(self, name: Name, way: Iterable[tuple[str, str]]) -> Iterator[Hidden]:
        """Yield the link on the way back from a subscription's broker where it is withheld; beyond, nobody knows it."""
        for b, a in way:
            told = self.mirror.region.brokers[a].links[b].told
            if isinstance(told, Told) and name in told.passive:
                yield Hidden(a, b, told.passive[name].coverers)

    # a filter

    def filter(self, where: object, broker: str) -> Story:
        """Try a filter that a client of a broker subscribes to. Raises `Refused` if it is not accepted."""
        try:
            got = asked(self.config.space, where)
        except ValueRefused as refused:
            raise Refused("where", refused.rule, str(refused)) from None
        most = self.config.limits.boxes_per_subscription
        if most is not None and len(got.boxes) > most:
            raise Refused("where", "quota", f"the filter is {len(got.boxes):,} boxes; a subscription may have {most:,}")
        self._complete = True
        links = tuple(self._range_decisions(got, broker) if self.mirror.by_ranges else self._decisions(got, broker))
        share, count = self._share(got)
        boxes = tuple(dict(self.config.space.where(box.lo, box.hi)) for box in got.boxes)
        tried = TriedFilter(broker, boxes, got.exact is None, share, count, links, self._complete, self.as_of)
        return Story(f"a filter at {broker}", tuple(_filter_sentences(self.config.space, tried)), tried)

    def _decisions(self, got: Asked, broker: str) -> Iterator[Decided]:
        """Ask the links outward, as long as the work for all of them lasts."""
        waiting: list[tuple[str, str, int]] = [(broker, LOCAL, 0)]
        left = MOST_WORK
        for here, origin, hop in waiting:
            for neighbour, link in self.mirror.region.brokers[here].links.items():
                if neighbour == origin or not isinstance(link.told, Told):
                    continue
                if left <= 0:
                    self._complete = False
                    return
                verdict = link.told.strategy.decide(got.boxes)
                witness = None if verdict.witness is None else self._described(verdict.witness)
                action = "withhold" if verdict.covered else "forward"
                names, count = ((), 0) if verdict.covered else self._redundant(link.told.active, got.boxes)
                left -= PER_LINK + verdict.nodes
                yield Decided(
                    *(here, neighbour, hop, action, str(verdict.reason), verdict.coverers, witness, verdict.nodes),
                    *(names, count, self.vague(here, neighbour)),
                )
                if not verdict.covered:
                    waiting.append((neighbour, here, hop + 1))

    def _described(self, box: Box) -> dict[str, Any]:
        return dict(self.config.space.describe(box.lo, box.hi))

    def _redundant(self, active: BoxList, boxes: Boxes) -> tuple[tuple[Name, ...], int]:
        """Return active subscriptions that these boxes alone cover, the first few, and how many there are."""
        dims = self.config.space.dims
        alone = BoxList(dims, [(TRIED, stack(boxes, dims))])
        near = active.inside(hull(stack(boxes, dims)), MOST_LOOKED_AT)[:MOST_LOOKED_AT]
        found = [name for name in near if _covers(alone, active.keys(name))]
        return tuple(found[:NAMED]), len(found)

    def _range_decisions(self, got: Asked, broker: str) -> Iterator[Decided]:
        """Subscribe and cancel again: how ranges change is only found by changing them, and undone exactly."""
        name, region = TRIED._replace(broker=broker), self.mirror.region
        made = region.take([_arrival(broker, Subscribe(name, got.boxes, self.mirror.stamp(), tree=got.tree))])
        region.take([_arrival(broker, Unsubscribe(name, self.mirror.stamp()))])
        here: Broker = region.brokers[broker]
        here.ledger.ended.pop(name, None)
        for each in made.decisions:
            d: Decision = each.decision
            witness = None if d.witness is None else self._described(d.witness)
            yield Decided(
                *(each.setup.broker, each.setup.link, d.hop, d.action, str(d.reason), (), witness, d.nodes, (), 0),
                self.vague(each.setup.broker, each.setup.link),
            )

    def _share(self, got: Asked) -> tuple[float | None, int]:
        points = self._last_points()
        if not len(points):
            return None, 0
        alone = Clients(self.config.space, lambda _: 0)
        alone.add(TRIED, got.boxes, got.tree, got.exact)
        return len(set(alone.holders(points)[0])) / len(points), len(points)

    def _last_points(self) -> Keys:
        """Return the points of the last publications."""
        version = self.tables.version("publications") if self.tables.has("publications") else None
        if self._points is None or version != self._version:
            rows = [] if version is None else self.tables.last("publications", LAST, ("point",))
            self._points = self.config.space.points(list(_points(self.config.space, rows)))
            self._version = version
        return self._points


def _points(space: Space, rows: Iterable[Row]) -> Iterator[Corner]:
    """Yield the points of publications, without those that were published in another space."""
    for row in rows:
        with suppress(ValueRefused):
            yield space.point(row["point"])


def _arrival(broker: str, message: Publish | Subscribe | Unsubscribe) -> Arrival:
    return Arrival(FROM_TABLES, 0, 0, broker, LOCAL, message)


def _covers(alone: BoxList, boxes: Keys) -> bool:
    return all(alone.cover(box, MOST_LOOKED_AT)[0] == COVERED for box in boxes)


# Telling


def _filter_sentences(space: Space, tried: TriedFilter) -> Iterator[Sentence]:
    asks = "; or ".join(words(space, where) for where in tried.boxes[:NAMED])
    yield Sentence(f"It asks for {asks}.")
    if tried.share is not None:
        yield Sentence(f"It matches {tried.share:.2%} of the last {tried.publications:,} publications.")
    for d in tried.links:
        state = "told" if d.action == "forward" else "withheld"
        yield Sentence(_decided_text(space, d), f"{d.broker}>{d.link}", "", state)
    if not tried.complete:
        yield Sentence("What farther links would decide was not looked at: it would take too much work.")


def _decided_text(space: Space, d: Decided) -> str:
    if d.action == "withhold":
        by = names_listed(map(name_value, d.coverers)) or "what it was told before"
        return f"{d.link} would not be told: {by} {'covers' if len(d.coverers) == 1 else 'cover'} it."
    gap = "" if d.witness is None else f": nobody covers {words(space, d.witness)}"
    more = f" It would make {d.redundant_count:,} redundant there." if d.redundant_count else ""
    return f"{d.link} would be told{gap}.{more}"
