"""Random overlays and random histories of events for the tests, small enough that brute force can follow.

The space is an 8 x 8 grid with a category of three values: small domains make boxes touch, coincide and cover each
other all the time, which is where mistakes show.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from hypothesis import strategies as st

from state.config import Config, parse
from state.strategies import STRATEGIES
from tests.core.oracle import matches

SIDE = 8
COLOURS = ["blue", "green", "red"]
BOX_TABLES = [
    *(f'"{name}"' for name, kind in STRATEGIES.items() if kind.proves),
    '{name = "union", budget = 2}',
    '{name = "negative", index = "rtree", order = "fixed"}',
    '{name = "negative", order = "fixed"}',
    '{name = "union", covering = "active"}',
    '{name = "negative", covering = "active"}',
    '{name = "cover", covering = "active"}',
    '{name = "union", prune = "network", prunings = 4}',
    '{name = "cover", index = "tree"}',
    '{name = "hybrid", inner = "negative", bits = 2, dims = ["x", "colour"]}',
    '{name = "hybrid", inner = "cover", dims = "selective:1", covering = "active"}',
    '{name = "zcurve", bits = 2, epsilon = 0.4, budget = 6, covering = "active"}',
    '{name = "negative-approx", k = 1}',
    '{name = "negative-approx", k = 2, unsubscribe = "approximate", select = "cost", covering = "active"}',
    '{name = "negative-approx", k = 1, bound = "dynamic", select = "benefit", order = "fixed"}',
    '{name = "negative-approx", k = 1, variant = "printed", unsubscribe = "approximate", drift = 1}',
]
RANGE_TABLES = [
    '"mics"',
    '{name = "mics", bits = 2, gap = 3}',
    '{name = "mics", bits = 1, dims = ["y", "x"]}',
    '{name = "mics", bits = 3, dims = "selective:2", max_ranges = 2}',
    '{name = "mics", bits = 3, gap = 9, max_ranges = 3}',
]
"""For all links or for none."""
STRATEGY_TABLES = BOX_TABLES + RANGE_TABLES
INEXACT = ('flood"', 'cover"', 'zcurve"', "approx", "budget")
EXACT = [table for table in BOX_TABLES if not any(word in table for word in INEXACT)]


def space_text() -> str:
    colours = ", ".join(f'"{colour}"' for colour in COLOURS)
    sides = "\n".join(f'{name} = {{kind = "int", low = 0, high = {SIDE - 1}}}' for name in "xy")
    return f'[space]\n{sides}\ncolour = {{kind = "category", values = [{colours}]}}\n'


def config_text(
    links: list[tuple[str, str]], default: str, per_link: dict[str, str] | None = None, regions: str = '"auto"'
) -> str:
    pairs = ", ".join(f'["{a}", "{b}"]' for a, b in links)
    text = (
        space_text()
        + f'[overlay]\nbrokers = ["b0"]\nlinks = [{pairs}]\nregions = {regions}\n[routing]\nstrategy = {default}\n'
    )
    for link, table in (per_link or {}).items():
        text += f'[routing.links."{link}"]\nstrategy = {table}\n'
    return text


@st.composite
def trees(draw: st.DrawFn, most: int = 5) -> list[tuple[str, str]]:
    """Links of a tree of one to `most` brokers: each new broker hangs on an earlier one."""
    brokers = draw(st.integers(1, most))
    return [(f"b{draw(st.integers(0, k - 1))}", f"b{k}") for k in range(1, brokers)]


@st.composite
def configs(draw: st.DrawFn, tables: list[str] | None = None) -> Config:
    """An overlay with a strategy for all links and other ones for some of them; or one that speaks in ranges."""
    links = draw(trees())
    if tables is None and draw(st.integers(0, 3)) == 0:
        return parse(config_text(links, draw(st.sampled_from(RANGE_TABLES))))
    table = st.sampled_from(tables or BOX_TABLES)
    directions = [f"{a}>{b}" for a, b in links] + [f"{b}>{a}" for a, b in links]
    some = draw(st.lists(st.sampled_from(directions), unique=True, max_size=3)) if directions else []
    return parse(config_text(links, draw(table), {link: draw(table) for link in some}))


def _range() -> st.SearchStrategy[list[int | None]]:
    side = st.integers(0, SIDE - 1)
    ends = st.tuples(side, side).map(lambda pair: list[int | None](sorted(pair)))
    return st.one_of(ends, ends, ends, st.just([None, 3]), st.just([4, None]))


def ranges() -> st.SearchStrategy[dict[str, Any]]:
    """Filters that are objects of ranges."""
    colours = st.lists(st.sampled_from(COLOURS), min_size=1, max_size=3, unique=True)
    return st.fixed_dictionaries({}, optional={"x": _range(), "y": _range(), "colour": colours})


def json_filters() -> st.SearchStrategy[Any]:
    """Alternatives and negations of objects of ranges."""
    several = st.fixed_dictionaries({"x": st.lists(_range(), min_size=1, max_size=3)})
    return st.recursive(
        st.one_of(ranges(), several),
        lambda below: st.one_of(
            st.lists(below, min_size=1, max_size=3), st.builds(lambda a, b: {**a, "not": b}, ranges(), below)
        ),
        max_leaves=8,
    )


@cache
def text_filters() -> st.SearchStrategy[str]:
    """Filters as text."""
    side, colour = st.integers(0, SIDE - 1), st.sampled_from(COLOURS)
    name = st.sampled_from("xy")
    compared = st.builds("{} {} {}".format, name, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), side)
    between = st.builds(lambda n, a, b: f"{n} BETWEEN {min(a, b)} AND {max(a, b)}", name, side, side)
    among = st.builds("{} IN ({}, {})".format, name, side, side)
    coloured = st.builds("colour {} '{}'".format, st.sampled_from(["=", "<>"]), colour)
    return st.recursive(
        st.one_of(compared, between, among, coloured),
        lambda below: st.one_of(
            st.builds("({} AND {})".format, below, below),
            st.builds("({} OR {})".format, below, below),
            st.builds("NOT ({})".format, below),
        ),
        max_leaves=10,
    )


def _holds_somewhere(where: Any) -> bool:
    cells = ({"x": x, "y": y, "colour": c} for x in range(SIDE) for y in range(SIDE) for c in COLOURS)
    return any(matches(where, at, {"colour"}) for at in cells)


@cache
def wheres() -> st.SearchStrategy[Any]:
    """Filters of every form that hold somewhere; most are objects of ranges."""
    return st.one_of(ranges(), ranges(), st.sampled_from(some_texts() + SOME_JSON))


SOME_JSON: list[Any] = [
    [{"x": [1, 3]}, {"y": [2, 5]}],
    [{"x": [0, 2], "y": [0, 2]}, {"x": [2, 5], "y": [1, 4]}, {"colour": ["red"]}],
    {"x": [[0, 1], [3, 4], [6, None]]},
    {"y": [1, 6], "not": {"x": [2, 4], "colour": ["blue", "red"]}},
    {"not": [{"x": [0, 2]}, {"y": [5, 7]}]},
    {"not": {"colour": ["green"]}},
]


def some_texts() -> list[str]:
    """Texts by chance, always the same: drawing them one by one with Hypothesis would take most of the tests' time."""
    chance = random.Random(5)

    def text(depth: int) -> str:
        if depth == 0 or chance.random() < 0.25:
            name, a, b = chance.choice("xy"), chance.randrange(SIDE), chance.randrange(SIDE)
            return chance.choice(
                [
                    f"{name} {chance.choice(['=', '<>', '<', '<=', '>', '>='])} {a}",
                    f"{name} BETWEEN {min(a, b)} AND {max(a, b)}",
                    f"{name} IN ({a}, {b})",
                    f"colour {chance.choice(['=', '<>'])} '{chance.choice(COLOURS)}'",
                ]
            )
        if chance.random() < 0.2:
            return f"NOT ({text(depth - 1)})"
        return f"({text(depth - 1)} {chance.choice(['AND', 'OR'])} {text(depth - 1)})"

    some = [text(3) for _ in range(60)] + [text(5) for _ in range(20)]  # a few are larger
    return [one for one in some if _holds_somewhere(one)]


def points() -> st.SearchStrategy[dict[str, Any]]:
    side = st.integers(0, SIDE - 1)
    return st.fixed_dictionaries({"x": side, "y": side, "colour": st.sampled_from(COLOURS)})


@st.composite
def events(draw: st.DrawFn, brokers: tuple[str, ...], ids: int = 8, most: int = 40) -> list[dict[str, Any]]:
    """A history: few ids, so that subscriptions are replaced and cancelled often; cancels of unknown ids too."""
    history = []
    for number in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(["subscribe", "subscribe", "subscribe", "unsubscribe", "unsubscribe", "publish"]))
        event: dict[str, Any] = {"kind": kind, "broker": draw(st.sampled_from(brokers))}
        if kind == "publish":
            history.append({**event, "id": f"p{number}", "at": draw(points())})
            continue
        event |= {"id": f"s{draw(st.integers(0, ids - 1))}", "client": draw(st.sampled_from(["ann", "bob"]))}
        if draw(st.integers(0, 9)) == 0:
            event["rev"] = draw(st.integers(0, 3))
        history.append(event | ({"where": draw(wheres())} if kind == "subscribe" else {}))
    return history
