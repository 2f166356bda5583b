"""Seeded workloads: events for any configuration, the same for the same seed.

Every range and every point is drawn as fractions of an attribute's domain and then turned into values of its kind, so a
workload has the same shape whatever the space is. Clients (one for five subscriptions) are spread over the brokers.

| workload    | low end of a range                           | size of a range        | points                 |
| ----------- | -------------------------------------------- | ---------------------- | ---------------------- |
| `uniform`   | uniform                                      | uniform up to a fifth  | uniform                |
| `zipf`      | Zipf 0.5 over 1,001 randomly permuted places | uniform up to the end  | Zipf 0.5, same places  |
| `clustered` | normal around ten hot spots                  | uniform up to a tenth  | normal around the same |
| `churn`     | uniform                                      | uniform up to a fifth  | uniform                |

`auctions` is not of this shape: it has a space and distributions of its own, and asks in Boolean filters as text; see
the module of that name.

`zipf` is the workload of the negative-space paper as far as one setting can reproduce it. In the first three, all
subscriptions come first, mixed with their cancellations, then the publications. In `churn` everything is mixed: most
subscriptions are cancelled again, some are replaced by a newer revision, and publications go on all the while.

For a category the range becomes a set: one to three values, likelier where the range's low end would have been.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from producers.auctions import Auctions, check_space
from state.config import Config
from state.errors import ConfigError
from state.space import Attribute, Space, float_value

Event = dict[str, Any]
Fractions = NDArray[np.float64]
"""An array `(n, d)` of fractions of the attributes' domains."""

PLACES = 1001
ZIPF = 0.5
HOT_SPOTS = 10
SUBSCRIPTIONS_PER_CLIENT = 5
REPLACED_IN_CHURN = 0.2


class Shape(Protocol):
    """The way in which a workload draws ranges and points."""

    def lows(self, n: int) -> Fractions:
        """Low ends."""

    def sizes(self, lows: Fractions) -> Fractions:
        """Sizes for these low ends, none reaching beyond the domain."""

    def points(self, n: int) -> Fractions:
        """Points."""


class Uniform:
    """Everything uniform; ranges up to `widest` of the domain."""

    widest = 0.2

    def __init__(self, chance: np.random.Generator, dims: int, widest: float | None = None) -> None:
        self._chance, self._dims = chance, dims
        self.widest = self.widest if widest is None else widest

    def lows(self, n: int) -> Fractions:
        return np.asarray(self._chance.random((n, self._dims)) * (1 - self.widest))

    def sizes(self, lows: Fractions) -> Fractions:
        return np.minimum(self._chance.random(lows.shape) * self.widest, 1 - lows)

    def points(self, n: int) -> Fractions:
        return self._chance.random((n, self._dims))


class Zipf:
    """Low ends and points Zipfian over permuted places, sizes uniform up to `widest` or the end of the domain."""

    def __init__(
        self, chance: np.random.Generator, dims: int, widest: float | None = None, exponent: float = ZIPF
    ) -> None:
        self._chance = chance
        self._most = PLACES if widest is None else widest * (PLACES - 1)
        self._places = [chance.permutation(PLACES) for _ in range(dims)]
        weights = 1 / np.arange(1, PLACES + 1) ** exponent
        self._weights = weights / weights.sum()

    def _draw(self, n: int) -> NDArray[np.int64]:
        picks = [places[self._chance.choice(PLACES, n, p=self._weights)] for places in self._places]
        return np.stack(picks, axis=1).astype(np.int64)

    def lows(self, n: int) -> Fractions:
        return self._draw(n) / (PLACES - 1)

    def sizes(self, lows: Fractions) -> Fractions:
        room = np.minimum((PLACES - 1) - np.rint(lows * (PLACES - 1)), self._most)
        return np.asarray(np.floor(self._chance.random(lows.shape) * room) / (PLACES - 1))

    def points(self, n: int) -> Fractions:
        return self._draw(n) / (PLACES - 1)


class Clustered(Uniform):
    """Normal around hot spots, for subscriptions and publications alike."""

    widest = 0.1
    spread = 0.05

    def __init__(self, chance: np.random.Generator, dims: int, widest: float | None = None) -> None:
        super().__init__(chance, dims, widest)
        self._spots = chance.random((HOT_SPOTS, dims))

    def _around(self, n: int) -> Fractions:
        spots = self._spots[self._chance.integers(HOT_SPOTS, size=n)]
        return np.clip(self._chance.normal(spots, self.spread), 0, 1)

    def lows(self, n: int) -> Fractions:
        return np.minimum(self._around(n), 1 - self.widest / 2)

    def points(self, n: int) -> Fractions:
        return self._around(n)


WORKLOADS: dict[str, tuple[type[Uniform] | type[Zipf] | type[Auctions], str]] = {
    "uniform": (Uniform, "ranges anywhere, up to a fifth of the domain"),
    "zipf": (Zipf, "as in the negative-space paper: Zipfian low ends, sizes up to the end of the domain"),
    "clustered": (Clustered, "subscriptions and publications around ten hot spots"),
    "churn": (Uniform, "subscriptions come, change and go while publications go on"),
    "auctions": (Auctions, "book auctions with Boolean filters of three classes, in a space of their own"),
}
CANCELLED = {"churn": 0.9}
CANCELLED_ELSEWHERE = 0.2


def value_at(attribute: Attribute, fraction: float) -> int | float | str:
    """The value at a fraction of an attribute's domain."""
    if attribute.kind == "float":
        low, high = float_value(attribute.low), float_value(attribute.high)
        return min(max(_rounded(_between(low, high, fraction), high - low), low), high)
    if attribute.kind == "category":
        return attribute.values[min(int(fraction * len(attribute.values)), len(attribute.values) - 1)]
    key = attribute.low + round(fraction * (attribute.high - attribute.low))
    return attribute.value(min(key, attribute.high))  # a double rounds the length of a very long domain, maybe upward


def _rounded(value: float, length: float) -> float:
    """Return a value as a person would write it: a hundred thousand steps to the domain, or a few more.

    >>> _rounded(661.9999999999999, 1000.0), _rounded(0.12345678, 1.0), _rounded(123456.7, 1e9)
    (662.0, 0.12346, 120000.0)
    """
    if not 1e-300 < length < math.inf:
        return value
    try:
        return round(value, 5 - math.ceil(math.log10(length)))
    except OverflowError:  # a value beside the largest double, rounded away from zero
        return value


def _between(low: float, high: float, fraction: float) -> float:
    """The double at a fraction of the way; from both ends where the way is longer than the largest double."""
    length = high - low
    return low + fraction * length if math.isfinite(length) else (1 - fraction) * low + fraction * high


@dataclass(frozen=True)
class Workload:
    """A named workload of a given size.

    `cancelled` is the share of subscriptions that are cancelled again. `zipf` is the exponent of the workload of that
    name, `widest` the longest range as a share of the domain, `attributes` how many attributes a subscription names.
    """

    name: str
    subscriptions: int = 1000
    publications: int = 5000
    cancelled: float | None = None
    seed: int = 1
    zipf: float | None = None
    widest: float | None = None
    attributes: int | None = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ConfigError("seed", self.seed, "a seed is not negative", "give another one")
        if self.zipf is not None and self.name != "zipf":
            raise ConfigError(
                "zipf", self.zipf, f"the workload {self.name} is not Zipfian", "leave it out, or take zipf"
            )
        if self.name == "auctions" and (self.widest is not None or self.attributes is not None):
            raise ConfigError(
                self.name, None, "its filters have a form of their own", "leave out widest and attributes"
            )

    @property
    def total(self) -> int:
        """The number of events."""
        replaced = round(REPLACED_IN_CHURN * self.subscriptions) if self.name == "churn" else 0
        return self.subscriptions + round(self._share * self.subscriptions) + replaced + self.publications

    @property
    def _share(self) -> float:
        return CANCELLED.get(self.name, CANCELLED_ELSEWHERE) if self.cancelled is None else self.cancelled

    def events(self, config: Config) -> Iterator[Event]:
        """The events, in order, as lines of an events file."""
        chance = np.random.default_rng(self.seed)
        shape = self._shape(config.space, chance)
        subscribes = list(self._subscribes(config, shape, chance))
        changes = self._with_cancellations(subscribes, chance)
        publishes = self._publishes(config, shape, chance)
        return _mixed(changes, publishes, chance) if self.name == "churn" else _chained(changes, publishes)

    def _shape(self, space: Space, chance: np.random.Generator) -> Shape | Auctions:
        if self.attributes is not None and not 1 <= self.attributes <= space.dims:
            rule = f"a subscription names 1 to {space.dims} attributes in this space"
            raise ConfigError("attributes", self.attributes, rule, "give another number")
        chosen = WORKLOADS[self.name][0]
        if issubclass(chosen, Auctions):
            check_space(space)
            return chosen(chance)
        if issubclass(chosen, Zipf):
            return chosen(chance, space.dims, self.widest, ZIPF if self.zipf is None else self.zipf)
        return chosen(chance, space.dims, self.widest)

    def _subscribes(self, config: Config, shape: Shape | Auctions, chance: np.random.Generator) -> Iterator[Event]:
        where = _wheres(config.space, shape, self.subscriptions, chance)
        if self.attributes is not None:
            where = _named(where, self.attributes, chance)
        clients = max(1, self.subscriptions // SUBSCRIPTIONS_PER_CLIENT)
        brokers = config.overlay.brokers
        homes = chance.integers(len(brokers), size=clients)
        who = chance.integers(clients, size=self.subscriptions)
        for k in range(self.subscriptions):
            event = {"id": f"s{k + 1}", "client": f"c{who[k] + 1}", "where": where(k)}
            yield {"kind": "subscribe", "broker": brokers[homes[who[k]]], **event}

    def _with_cancellations(self, subscribes: list[Event], chance: np.random.Generator) -> list[Event]:
        """The subscribes in order, each cancelled one followed somewhere later by its unsubscribe."""
        n = len(subscribes)
        placed: list[tuple[float, Event]] = [(float(k), event) for k, event in enumerate(subscribes)]
        for k in chance.permutation(n)[: round(self._share * n)].tolist():
            placed.append((float(chance.uniform(k, n)), _unsubscribe(subscribes[k])))
        if self.name == "churn":
            placed += self._replacements(subscribes, chance)
        return [event for _, event in sorted(placed, key=lambda pair: pair[0])]

    def _replacements(self, subscribes: list[Event], chance: np.random.Generator) -> list[tuple[float, Event]]:
        """Newer revisions: an id asks for what another one asked for. The first ask is revision 0."""
        n = len(subscribes)
        replaced = []
        for k in chance.permutation(n)[: round(REPLACED_IN_CHURN * n)].tolist():
            other = subscribes[int(chance.integers(n))]
            replaced.append((float(chance.uniform(k, n)), {**subscribes[k], "where": other["where"], "rev": 1}))
        return replaced

    def _publishes(self, config: Config, shape: Shape | Auctions, chance: np.random.Generator) -> Iterator[Event]:
        at = _points(config.space, shape, self.publications)
        homes = chance.integers(len(config.overlay.brokers), size=self.publications)
        for k in range(self.publications):
            yield {"kind": "publish", "broker": config.overlay.brokers[homes[k]], "id": f"p{k + 1}", "at": at(k)}


def _wheres(space: Space, shape: Shape | Auctions, n: int, chance: np.random.Generator) -> Callable[[int], Event | str]:
    """The filter of the k-th subscription."""
    if isinstance(shape, Auctions):
        return list(shape.wheres(n)).__getitem__
    lows = shape.lows(n)
    sizes = shape.sizes(lows)
    return lambda k: _where(space, lows[k], sizes[k], chance)


def _named(where: Callable[[int], Event | str], count: int, chance: np.random.Generator) -> Callable[[int], Event]:
    """The same filter with so many of its attributes, chosen at random."""

    def some(k: int) -> Event:
        whole = where(k)
        assert isinstance(whole, dict)
        kept = set(chance.permutation(len(whole))[:count].tolist())
        return {name: ends for i, (name, ends) in enumerate(whole.items()) if i in kept}

    return some


def _points(space: Space, shape: Shape | Auctions, n: int) -> Callable[[int], Event]:
    """The values of the k-th publication."""
    if isinstance(shape, Auctions):
        return list(shape.points(n)).__getitem__
    points = shape.points(n)
    return lambda k: {a.name: value_at(a, float(points[k, i])) for i, a in enumerate(space.attributes)}


def _where(space: Space, lows: Fractions, sizes: Fractions, chance: np.random.Generator) -> Event:
    where: Event = {}
    for i, attribute in enumerate(space.attributes):
        low, high = float(lows[i]), float(lows[i] + sizes[i])
        if attribute.kind == "category":
            where[attribute.name] = _values(attribute, low, chance)
        else:
            where[attribute.name] = [value_at(attribute, low), value_at(attribute, high)]
    return where


def _values(attribute: Attribute, low: float, chance: np.random.Generator) -> list[str]:
    """One to three values: the one at the low end, and others."""
    more = chance.integers(3)
    values = [value_at(attribute, low), *(value_at(attribute, float(chance.random())) for _ in range(more))]
    return sorted({str(value) for value in values})


def _unsubscribe(event: Event) -> Event:
    return {"kind": "unsubscribe", "broker": event["broker"], "id": event["id"], "client": event["client"]}


def _chained(changes: list[Event], publishes: Iterator[Event]) -> Iterator[Event]:
    yield from changes
    yield from publishes


def _mixed(changes: list[Event], publishes: Iterator[Event], chance: np.random.Generator) -> Iterator[Event]:
    """Both in order, spread evenly into each other."""
    waiting = list(publishes)
    places = [(float(x), event) for x, event in zip(np.sort(chance.random(len(changes))), changes, strict=True)]
    places += [(float(x), event) for x, event in zip(np.sort(chance.random(len(waiting))), waiting, strict=True)]
    return (event for _, event in sorted(places, key=lambda pair: pair[0]))
