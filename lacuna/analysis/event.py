"""An event on its way: the links that it is considered for, and the subscriptions that it is compared with, in words.

The same values and the same words serve an event that is tried (`trial`) and one that really happened (`history`);
`would` is True of the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lacuna.analysis.sentences import Sentence
from lacuna.analysis.wording import listed, named, names_listed, number, range_in_words
from state.config import Config
from state.filters.trees import holds
from state.filters.where import Asked
from state.geometry.boxes import Box
from state.protocol.messages import Name
from state.space import Attribute, Corner, Space
from state.storage.rows import name_value

NAMED = 20
"""Subscriptions that an answer names; it counts all."""
DIGITS = 12
"""Digits of a distance: the difference of two doubles has more, which nobody meant."""


@dataclass(frozen=True)
class Crossing:
    """A link that an event is considered for: `action` is `forward` or `stop`.

    `asked` is how many subscriptions (under `mics`: ranges) the neighbour asked for, `holding` how many of them contain
    the event (under `mics` 0 or 1), `among` the first of these. Where that is not known both are None. `vague` is the
    reason why the link may do otherwise than is said.
    """

    broker: str
    link: str
    hop: int
    action: str
    asked: int | None
    holding: int | None
    among: tuple[Name, ...]
    vague: str | None = None

    @property
    def name(self) -> str:
        return f"{self.broker}>{self.link}"


@dataclass(frozen=True)
class Compared:
    """One attribute of an event beside what a subscription asks for.

    `asked` is the range, or the categories; None if anything. `distance` is how far the value is from the range, in the
    attribute's unit (a timestamp: seconds); 0 inside, None for a category outside.
    """

    attribute: str
    kind: str
    asked: list[Any] | None
    value: Any
    matches: bool
    distance: float | None
    text: str


@dataclass(frozen=True)
class Hidden:
    """A link on which a broker never heard of a subscription, because others cover it there."""

    broker: str
    link: str
    coverers: tuple[Name, ...]


@dataclass(frozen=True)
class Beside:
    """A subscription beside an event: whether it matches, attribute by attribute of the box that is nearest.

    `way` are the links from the event's broker to the subscription's; `stopped_at` is the one where the event stops, if
    it does; `hidden` are the links on the way back on which it was withheld.
    """

    name: Name
    matches: bool
    boxes: int
    attributes: tuple[Compared, ...]
    way: tuple[str, ...]
    stopped_at: str | None
    hidden: tuple[Hidden, ...]


# Comparing


def matches(got: Asked, point: Corner) -> bool:
    """Return whether a filter holds for a point, exactly."""
    if got.exact is not None:
        return holds(got.exact, point)
    return any(all(a <= p < b for a, p, b in zip(box.lo, point, box.hi, strict=True)) for box in got.boxes)


def nearest(space: Space, got: Asked, point: Corner) -> tuple[Compared, ...]:
    """Return the attributes of a point beside the nearest box of a filter: fewest outside, then least far."""
    return min((compare(space, box, point) for box in got.boxes), key=lambda found: _far(space, found))


def compare(space: Space, box: Box, point: Corner) -> tuple[Compared, ...]:
    """Return the attributes of a point beside the sides of a box.

    >>> space = Space((Attribute("x", "int", 0, 99), Attribute("c", "category", 0, 1, ("IBM", "SAP"))))
    >>> [one.text for one in compare(space, Box((10, 1), (21, 2)), (25, 0))]
    ['x 25 is 5 above 10 to 20', 'c IBM is not SAP']
    """
    return tuple(_compared(a, box.lo[k], box.hi[k], point[k]) for k, a in enumerate(space.attributes))


def _compared(a: Attribute, lo: int, hi: int, key: int) -> Compared:
    inside, value = lo <= key < hi, a.value(key)
    if lo <= a.low and hi > a.high:
        return Compared(a.name, a.kind, None, value, True, 0.0, f"{a.name} may be anything")
    asked = a.range_of(lo, hi)
    said = range_in_words(a, asked)
    if inside:
        verb = "is" if lo + 1 == hi else "is within"
        return Compared(a.name, a.kind, asked, value, True, 0.0, f"{a.name} {number(value)} {verb} {said}")
    if a.kind == "category":
        return Compared(a.name, a.kind, asked, value, False, None, f"{a.name} {value} is not {said}")
    distance, side = _distance(a, lo, hi, key)
    return Compared(a.name, a.kind, asked, value, False, distance, _outside(a, value, said, distance, side))


def _outside(a: Attribute, value: Any, said: str, distance: float, side: str) -> str:
    if a.kind == "float" and distance <= abs(value) * 1e-9:
        return f"{a.name} {number(value)} is not {said}"  # an end that is not included
    far = f"{number(distance)} s" if a.kind == "timestamp" else number(distance)
    if " to " in said or not said.startswith(("at least", "up to", "above", "below")):
        return f"{a.name} {number(value)} is {far} {side} {said}"
    return f"{a.name} {number(value)} is {far} {side} what it asks for: {said}"


def _distance(a: Attribute, lo: int, hi: int, key: int) -> tuple[float, str]:
    """Return how far a key is from an interval, and on which side."""
    end, side = (lo, "below") if key < lo else (hi - 1, "above")
    if a.kind == "timestamp":
        return abs(key - end) / 1_000_000, side
    if a.kind == "int":
        return abs(key - end), side
    distance = abs(float(a.value(key)) - float(a.value(end)))
    return float(f"{distance:.{DIGITS}g}"), side


def _far(space: Space, found: tuple[Compared, ...]) -> tuple[int, float]:
    """Return how far a point is from a box: the attributes outside, then their distances as shares of the domains."""
    outside = [(c, a) for c, a in zip(found, space.attributes, strict=True) if not c.matches]
    wide = [1.0 if c.distance is None else min(1.0, c.distance / _width(a)) for c, a in outside]
    return len(outside), math.fsum(wide)


def _width(a: Attribute) -> float:
    """Return the length of a domain in the unit of distances."""
    return {"float": 2.0, "timestamp": 1e-6}.get(a.kind, 1.0) * a.whole or 1.0


def way_between(config: Config, begin: str, end: str) -> tuple[tuple[str, str], ...]:
    """Return the directions of the links from one broker to another, in order."""
    before: dict[str, str] = {begin: begin}
    waiting = [begin]
    for broker in waiting:
        for other in config.overlay.neighbours[broker]:
            if other not in before:
                before[other] = broker
                waiting.append(other)
    way, here = [], end
    while here != begin:
        way.append((before[here], here))
        here = before[here]
    return tuple(reversed(way))


# Telling


def sentences(
    deliveries: int, reached: Sequence[Name], links: Iterable[Crossing], beside: Beside | None, *, would: bool
) -> Iterator[Sentence]:
    """Yield what an event does, or would do: with a subscription beside it, only what concerns that one."""
    if beside is not None:
        yield beside_sentence(beside, would=would)
        yield from (hidden_sentence(beside.name, one, would=would) for one in beside.hidden)
    else:
        yield reached_sentence(deliveries, reached, would=would)
    for crossing in links:
        if beside is None or crossing.name in beside.way:
            yield crossing_sentence(crossing, would=would)
    if beside is not None:
        yield reached_sentence(deliveries, [name for name in reached if name != beside.name], beside, would=would)


def reached_sentence(
    deliveries: int, reached: Sequence[Name], beside: Beside | None = None, *, would: bool
) -> Sentence:
    """Return whom the event reaches."""
    verb = "It would reach" if would else "It reached"
    others = deliveries - (beside is not None and beside.matches and beside.stopped_at is None)
    if others <= 0:
        return Sentence(f"{verb} nobody{' else' if deliveries else ''}.")
    who = "1 subscription" if others == 1 else f"{others:,} subscriptions"
    some = names_listed(map(name_value, reached)) if others <= len(reached) else _some(reached)
    state = "" if beside is not None else "reached"
    return Sentence(f"{verb} {who.replace(' sub', ' other sub') if beside is not None else who}: {some}.", state=state)


def _some(names: Sequence[Name]) -> str:
    return f"{listed([named(name_value(name)) for name in names[:5]], 'and')} among them"


def crossing_sentence(crossing: Crossing, *, would: bool) -> Sentence:
    """Return why an event goes over a link, or stops there."""
    c = crossing
    if c.action == "forward":
        verb = "would carry" if would else "carried"
        said = f"{c.broker} {verb} it to {c.link}{_why_forward(c)}."
    else:
        verb = "would stop it for" if would else "stopped it for"
        said = f"{c.broker} {verb} {c.link}{_why_stop(c)}."
    more = f" {c.vague[:1].upper()}{c.vague[1:]}." if c.vague else ""
    return Sentence(said + more, c.name, state=c.action)


def _why_forward(c: Crossing) -> str:
    if not c.among:
        return f": {c.link} asked for the range that it is in" if c.holding else ""
    first = named(name_value(c.among[0]))
    if c.holding == 1:
        return f": of the {c.asked:,} that {c.link} asked for, {first} contains it"
    return f": {c.holding:,} of the {c.asked:,} that {c.link} asked for contain it, {first} among them"


def _why_stop(c: Crossing) -> str:
    if c.asked is None:
        return ""
    return f": {c.link} asked for nothing" if c.asked == 0 else f": none of {c.link}'s {c.asked:,} contains it"


def beside_sentence(beside: Beside, *, would: bool) -> Sentence:
    """Return whether an event reaches a subscription, and in which attributes they differ."""
    name = named(name_value(beside.name))
    outside = [c.text for c in beside.attributes if not c.matches]
    inside = [c.attribute for c in beside.attributes if c.matches]
    if beside.matches and beside.stopped_at is None:
        reached = "would reach" if would else "reached"
        return Sentence(f"It {reached} {name}: it matches in every attribute.", state="reached")
    head = f"It {'would' if would else 'did'} not reach {name}"
    if beside.matches:
        return Sentence(f"{head}, although it matches: {beside.stopped_at} does not carry it.", state="not reached")
    if not outside:
        return Sentence(f"{head}: the filter as written does not hold for it.", state="not reached")
    rest = f"; {listed(inside)} {'matches' if len(inside) == 1 else 'match'}" if inside else ""
    one_of = "" if beside.boxes == 1 else f" (of its {beside.boxes:,} boxes this is the nearest)"
    return Sentence(f"{head}: {listed(outside)}{rest}{one_of}.", state="not reached")


def hidden_sentence(name: Name, hidden: Hidden, *, would: bool) -> Sentence:
    """Return why a broker on the way never heard of a subscription."""
    by = names_listed(map(name_value, hidden.coverers))
    verb = "covers" if len(hidden.coverers) == 1 else "cover"
    said = f"{hidden.link} {'has never heard' if would else 'never heard'} of {name.id}"
    because = f": {by} {verb} it on {hidden.broker}>{hidden.link}" if by else ""
    return Sentence(f"{said}{because}.", f"{hidden.broker}>{hidden.link}", state="withheld")
