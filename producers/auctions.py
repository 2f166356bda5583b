"""The workload `auctions`: book auctions as in the dimension-pruning paper, Boolean subscriptions of three classes.

The paper names the scenario (three classes of subscriptions typical for online book auctions, and the distributions of
such auctions' events) and refers to reports for the details, which say nothing that could be copied here. So this is a
workload of the same kind, made once and not fitted to any curve:

events      a book is auctioned: its title (Zipfian over 50,000: few are auctioned often), which decides the author (one
            writes five titles on average) and mostly the genre; the seller (Zipfian over 20,000), who decides the
            rating (most are near 100); the price (log-normal around 9), the bids so far (geometric), the hours that are
            left (uniform), the condition and the format (a few values, some likelier)

subscriptions
  a book    (40 %)    title = T AND price <= P AND rating >= R
                      [AND (condition IN (...) OR price <= P / 2)] [AND format = F]
  an author (35 %)    (author = A [OR author = B]) AND price <= P AND (hours <= H OR bids <= N) AND rating >= R
                      [AND genre IN (...)]
  a seller  (25 %)    (seller = S [OR seller = T])
                      AND (genre IN (...) AND price <= P OR condition = 'new' AND bids <= N) [AND hours <= H]

Books, authors and sellers that are asked for are as popular as they are in the events. Each subscription names one
thing that is rare and several that are not; which of them can be left out is what pruning has to find out.

The space is given (`SPACE`): a configuration for this workload has these attributes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from state.errors import ConfigError
from state.space import Space

Ints = NDArray[np.int64]

TITLES, AUTHORS, SELLERS = 50_000, 10_000, 20_000
GENRES = (
    *("art", "biography", "business", "children", "comics", "computing", "cooking", "crafts", "crime", "education"),
    *("fantasy", "health", "history", "horror", "humour", "law", "medicine", "music", "nature", "poetry"),
    *("religion", "romance", "science", "travel"),
)
CONDITIONS = ("new", "as new", "very good", "good", "poor")
FORMATS = ("hardcover", "paperback", "audio")
POPULARITY = 0.8
"""The exponent of all Zipfian choices."""

SPACE = f"""
[space]
title = {{ kind = "int", low = 0, high = {TITLES - 1} }}
author = {{ kind = "int", low = 0, high = {AUTHORS - 1} }}
seller = {{ kind = "int", low = 0, high = {SELLERS - 1} }}
genre = {{ kind = "category", values = {list(GENRES)} }}
price = {{ kind = "float", low = 0.0, high = 1000.0 }}
bids = {{ kind = "int", low = 0, high = 100 }}
hours = {{ kind = "float", low = 0.0, high = 240.0 }}
rating = {{ kind = "int", low = 0, high = 100 }}
condition = {{ kind = "category", values = {list(CONDITIONS)} }}
format = {{ kind = "category", values = {list(FORMATS)} }}
"""
ATTRIBUTES = ("title", "author", "seller", "genre", "price", "bids", "hours", "rating", "condition", "format")


def check_space(space: Space) -> None:
    """Refuse a space that is not the workload's."""
    names = tuple(a.name for a in space.attributes)
    if names != ATTRIBUTES:
        raise ConfigError(
            "space", list(names), "the workload auctions has a space of its own", "take the one in docs/pruning.md"
        )


class Auctions:
    """Draws auctions and subscriptions; everything follows from the generator."""

    def __init__(self, chance: np.random.Generator, dims: int = len(ATTRIBUTES)) -> None:
        """`dims` is what every workload is given; this one has its own (`check_space`)."""
        self._chance = chance
        self._titles, self._sellers = chance.permutation(TITLES), chance.permutation(SELLERS)
        self._weights = {n: _zipf(n) for n in (TITLES, SELLERS)}
        self._author_of = chance.integers(AUTHORS, size=TITLES)
        self._genre_of = chance.integers(len(GENRES), size=AUTHORS)
        self._rating_of = np.round(100 * chance.beta(12, 1, size=SELLERS)).astype(np.int64)

    def _popular(self, places: Ints, n: int) -> Ints:
        """Positions by popularity."""
        return np.asarray(places[self._chance.choice(len(places), n, p=self._weights[len(places)])])

    def points(self, n: int) -> Iterator[dict[str, int | float | str]]:
        """Auctions."""
        chance = self._chance
        titles, sellers = self._popular(self._titles, n), self._popular(self._sellers, n)
        authors = self._author_of[titles]
        usual, other = self._genre_of[authors], chance.integers(len(GENRES), size=n)
        genres = np.where(chance.random(n) < 0.9, usual, other)
        prices = np.minimum(np.round(np.exp(chance.normal(np.log(9.0), 0.9, size=n)), 2), 1000.0)
        bids = np.minimum(chance.geometric(0.25, size=n) - 1, 100)
        hours = np.round(chance.random(n) * 240, 2)
        conditions = chance.choice(len(CONDITIONS), n, p=(0.15, 0.2, 0.3, 0.25, 0.1))
        formats = chance.choice(len(FORMATS), n, p=(0.35, 0.6, 0.05))
        for k in range(n):
            yield {
                "title": int(titles[k]),
                "author": int(authors[k]),
                "seller": int(sellers[k]),
                "genre": GENRES[genres[k]],
                "price": float(prices[k]),
                "bids": int(bids[k]),
                "hours": float(hours[k]),
                "rating": int(self._rating_of[sellers[k]]),
                "condition": CONDITIONS[conditions[k]],
                "format": FORMATS[formats[k]],
            }

    def wheres(self, n: int) -> Iterator[str]:
        """Subscriptions, as text."""
        kinds = self._chance.choice(3, n, p=(0.4, 0.35, 0.25))
        titles, sellers = self._popular(self._titles, 2 * n), self._popular(self._sellers, 2 * n)
        for k in range(n):
            pair = slice(2 * k, 2 * k + 2)
            draw = (self._book, self._author, self._seller)[kinds[k]]
            yield draw(*(titles[pair] if kinds[k] < 2 else sellers[pair]).tolist())

    def _book(self, title: int, _: int) -> str:
        price = self._price(1.0)
        parts = [f"title = {title}", f"price <= {price}", f"rating >= {self._rating()}"]
        if self._maybe(0.5):
            parts.append(f"(condition IN {self._some(CONDITIONS, 3)} OR price <= {round(price / 2, 2)})")
        if self._maybe(0.4):
            parts.append(f"format = '{FORMATS[int(self._chance.integers(2))]}'")
        return " AND ".join(parts)

    def _author(self, title: int, other: int) -> str:
        author, second = int(self._author_of[title]), int(self._author_of[other])
        who = f"(author = {author} OR author = {second})" if self._maybe(0.4) else f"author = {author}"
        urgent = f"(hours <= {self._hours()} OR bids <= {self._bids()})"
        parts = [who, f"price <= {self._price(1.3)}", urgent, f"rating >= {self._rating()}"]
        if self._maybe(0.3):
            parts.append(f"genre IN {self._some(GENRES, 12)}")
        return " AND ".join(parts)

    def _seller(self, seller: int, other: int) -> str:
        who = f"(seller = {seller} OR seller = {other})" if self._maybe(0.5) else f"seller = {seller}"
        bargain = f"genre IN {self._some(GENRES, 6)} AND price <= {self._price(0.8)}"
        parts = [who, f"({bargain} OR condition = 'new' AND bids <= {self._bids()})"]
        if self._maybe(0.5):
            parts.append(f"hours <= {self._hours()}")
        return " AND ".join(parts)

    def _maybe(self, share: float) -> bool:
        return bool(self._chance.random() < share)

    def _price(self, dear: float) -> float:
        return float(round(min(900.0, np.exp(self._chance.normal(np.log(11.0 * dear), 0.6))), 2))

    def _rating(self) -> int:
        return int(self._chance.integers(40, 95))

    def _hours(self) -> int:
        return int(self._chance.integers(12, 200))

    def _bids(self) -> int:
        return int(self._chance.integers(0, 6))

    def _some(self, values: tuple[str, ...], most: int) -> str:
        picked = self._chance.permutation(len(values))[: int(self._chance.integers(1, most + 1))]
        return "(" + ", ".join(f"'{values[k]}'" for k in sorted(picked.tolist())) + ")"


def _zipf(n: int) -> NDArray[np.float64]:
    weights = 1 / np.arange(1, n + 1) ** POPULARITY
    return np.asarray(weights / weights.sum())
