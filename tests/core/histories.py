"""Random overlays and random histories of events for the tests, small enough that brute force can follow.

The space is an 8 x 8 grid with a category of three values: small domains make boxes touch, coincide and cover each
other all the time, which is where mistakes show.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from state.config import Config, parse
from state.strategies import STRATEGIES

SIDE = 8
COLOURS = ["blue", "green", "red"]
STRATEGY_TABLES = [
    *(f'"{name}"' for name in STRATEGIES),
    '{name = "union", budget = 2}',
    '{name = "negative", index = "rtree", order = "fixed"}',
    '{name = "negative", order = "fixed"}',
    '{name = "union", covering = "active"}',
    '{name = "negative", covering = "active"}',
    '{name = "cover", covering = "active"}',
    '{name = "cover", index = "tree"}',
    '{name = "zcurve", bits = 2, epsilon = 0.4, budget = 6, covering = "active"}',
]
PAIRWISE = ('flood"', 'cover"', 'zcurve"')
EXACT = [table for table in STRATEGY_TABLES if not any(name in table for name in (*PAIRWISE, "budget"))]


def space_text() -> str:
    colours = ", ".join(f'"{colour}"' for colour in COLOURS)
    sides = "\n".join(f'{name} = {{kind = "int", low = 0, high = {SIDE - 1}}}' for name in "xy")
    return f'[space]\n{sides}\ncolour = {{kind = "category", values = [{colours}]}}\n'


def config_text(links: list[tuple[str, str]], default: str, per_link: dict[str, str] | None = None) -> str:
    pairs = ", ".join(f'["{a}", "{b}"]' for a, b in links)
    text = space_text() + f'[overlay]\nbrokers = ["b0"]\nlinks = [{pairs}]\n[routing]\nstrategy = {default}\n'
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
    """An overlay with a strategy for all links and other ones for some of them."""
    links = draw(trees())
    table = st.sampled_from(tables or STRATEGY_TABLES)
    directions = [f"{a}>{b}" for a, b in links] + [f"{b}>{a}" for a, b in links]
    some = draw(st.lists(st.sampled_from(directions), unique=True, max_size=3)) if directions else []
    return parse(config_text(links, draw(table), {link: draw(table) for link in some}))


def _range() -> st.SearchStrategy[list[int | None]]:
    side = st.integers(0, SIDE - 1)
    ends = st.tuples(side, side).map(lambda pair: list[int | None](sorted(pair)))
    return st.one_of(ends, ends, ends, st.just([None, 3]), st.just([4, None]))


def wheres() -> st.SearchStrategy[dict[str, Any]]:
    colours = st.lists(st.sampled_from(COLOURS), min_size=1, max_size=3, unique=True)
    return st.fixed_dictionaries({}, optional={"x": _range(), "y": _range(), "colour": colours})


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
