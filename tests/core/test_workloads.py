"""Workloads: seeded, of the size asked for, all of them valid events for any configuration."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lacuna.simulate import simulate
from producers.auctions import AUTHORS, SPACE, TITLES, Auctions
from producers.workloads import WORKLOADS, Workload, Zipf, value_at
from state.config import Config, parse
from state.errors import ConfigError
from state.protocol.events import Context, Reject, read_line
from state.space import LARGEST_INT, Attribute, float_key
from tests.core.naive import few

LARGEST = sys.float_info.max
LAST = "9999-12-31T23:59:59.999999Z"

MIXED = """
[space]
price = {kind = "float", low = -5.5, high = 1000.0}
volume = {kind = "int", low = -3, high = 7}
symbol = {kind = "category", values = ["AAPL", "IBM", "MSFT"]}
seen = {kind = "timestamp", low = "2026-01-01T00:00:00Z", high = "2027-01-01T00:00:00Z"}
single = {kind = "int", low = 4, high = 4}
[overlay]
links = [["oslo", "paris"], ["paris", "rome"]]
"""


def config_for(name: str) -> Config:
    """A configuration that a workload fits: any but for `auctions`."""
    return parse(SPACE + MIXED[MIXED.index("[overlay]") :] if name == "auctions" else MIXED)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_event_is_accepted(name: str) -> None:
    config = config_for(name)
    context = Context(config.space, config.overlay.brokers)
    for event in Workload(name, 200, 300).events(config):
        message = read_line(context, json.dumps(event).encode(), 0, 0)[2]
        assert not isinstance(message, Reject), (event, message)


ENDS = {
    "int": [-LARGEST_INT, -(2**53), -1, 0, 1, 2**53 + 1, LARGEST_INT - 1, LARGEST_INT],
    "float": [-LARGEST, -1e308, -1.0, -5e-324, 0.0, 5e-324, math.nextafter(1.0, 2.0), 1e308, LARGEST],
    "timestamp": ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "2026-05-01T00:00:00.000001Z", LAST],
}


@st.composite
def hostile(draw: st.DrawFn) -> str:
    """An attribute of a legal domain, however long, short or far away."""
    if draw(st.integers(0, 9)) == 0:
        texts = st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=3)
        values = draw(st.lists(texts, min_size=1, max_size=9, unique=True))
        return f'{{kind = "category", values = {json.dumps(values, ensure_ascii=False)}}}'
    kind = draw(st.sampled_from(sorted(ENDS)))
    low, high = sorted(draw(st.lists(st.sampled_from(ENDS[kind]), min_size=2, max_size=2)))
    return f"{{kind = {json.dumps(kind)}, low = {json.dumps(low)}, high = {json.dumps(high)}}}"


@few
@given(st.lists(hostile(), min_size=1, max_size=3), st.sampled_from(sorted(set(WORKLOADS) - {"auctions"})))
@example([f'{{kind = "timestamp", low = "0001-01-01T00:00:00Z", high = "{LAST}"}}'], "zipf")
@example([f'{{kind = "int", low = 0, high = {LARGEST_INT}}}'], "zipf")
@example([f'{{kind = "float", low = {-LARGEST}, high = {LARGEST}}}'], "clustered")
@example([f'{{kind = "float", low = {-LARGEST}, high = 0.0}}'], "clustered")
def test_every_event_is_accepted_whatever_the_domain(attributes: list[str], name: str) -> None:
    space = "".join(f"a{k} = {attribute}\n" for k, attribute in enumerate(attributes))
    config = parse(f'[space]\n{space}[overlay]\nbrokers = ["hub"]')
    events = list(Workload(name, 30, 60).events(config))
    summary = simulate(config, [json.dumps(event).encode() for event in events])
    assert summary["rejects"] == 0
    assert summary["events"] == len(events)


def test_a_domain_longer_than_the_largest_double_has_more_than_one_point() -> None:
    wide = Attribute("x", "float", float_key(-LARGEST), float_key(LARGEST))
    assert [value_at(wide, f) for f in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([-LARGEST, -LARGEST / 2, 0.0, LARGEST])


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(ConfigError, match="a seed is not negative"):
        Workload("uniform", seed=-1)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_seed_decides_everything(name: str) -> None:
    config = config_for(name)
    first, again, other = (list(Workload(name, 50, 50, seed=seed).events(config)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", WORKLOADS)
def test_sizes_are_as_asked_for(name: str) -> None:
    events = list(Workload(name, 100, 70, cancelled=0.3).events(config_for(name)))
    kinds = [event["kind"] for event in events]
    assert kinds.count("publish") == 70
    assert kinds.count("unsubscribe") == 30
    assert len({event["id"] for event in events if event["kind"] == "subscribe"}) == 100
    assert {event["broker"] for event in events} == {"oslo", "paris", "rome"}


@pytest.mark.parametrize("name", WORKLOADS)
def test_cancellations_follow_their_subscribe(name: str) -> None:
    seen = set()
    for event in Workload(name, 100, 10).events(config_for(name)):
        if event["kind"] == "subscribe":
            seen.add(event["id"])
        elif event["kind"] == "unsubscribe":
            assert event["id"] in seen


def test_zipf_is_the_workload_of_the_paper() -> None:
    """Low ends on 1,001 places, some far more often than others; sizes reach up to the end of the domain."""
    shape = Zipf(np.random.default_rng(1), 1)
    lows = shape.lows(20_000)
    places = np.rint(lows * 1000)
    ends = places + np.rint(shape.sizes(lows) * 1000)
    assert np.allclose(lows * 1000, places)
    assert ends.max() <= 1000
    counts = np.sort(np.unique(places, return_counts=True)[1])[::-1]
    assert 5 * np.median(counts) < counts[0] < 60 * np.median(counts)


def test_auctions_have_a_space_of_their_own() -> None:
    assert SPACE in (Path(__file__).parents[2] / "docs/pruning.md").read_text()
    with pytest.raises(ConfigError, match=r"a space of its own.*docs/pruning.md"):
        list(Workload("auctions", 5, 5).events(parse(MIXED)))


def test_auctions_are_of_three_classes_and_ask_for_what_is_popular() -> None:
    auctions = Auctions(np.random.default_rng(1))
    texts = list(auctions.wheres(4000))
    shares = [sum(f"{rare} = " in text for text in texts) / len(texts) for rare in ("title", "author", "seller")]
    assert shares == pytest.approx([0.4, 0.35, 0.25], abs=0.03)
    titles = [point["title"] for point in auctions.points(20_000)]
    asked = [int(text.split()[2]) for text in texts if text.startswith("title")]
    counts = np.bincount(titles, minlength=TITLES)
    assert counts.max() > 100 * len(titles) / TITLES, "some are auctioned often"
    assert counts[asked].mean() > 5 * counts.mean(), "and these are asked for often"
    by_title = {point["title"]: point["author"] for point in auctions.points(2000)}
    assert all(by_title[p["title"]] == p["author"] for p in auctions.points(500) if p["title"] in by_title)
    assert max(by_title.values()) < AUTHORS  # type: ignore[type-var, operator]


def test_parameters_of_the_papers() -> None:
    """Fewer attributes named, shorter ranges, more skew; what is not given leaves a seed's events as they were."""
    config = config_for("zipf")
    plain = list(Workload("zipf", 200, 200).events(config))
    assert list(Workload("zipf", 200, 200, zipf=0.5).events(config)) == plain
    named = [e["where"] for e in Workload("zipf", 200, 0, attributes=2).events(config) if e["kind"] == "subscribe"]
    assert {len(where) for where in named} == {2}
    assert len({tuple(where) for where in named}) > 1, "not always the same two"
    for name in ("zipf", "uniform", "clustered"):
        short = [e for e in Workload(name, 200, 0, widest=0.01).events(config) if e["kind"] == "subscribe"]
        attribute = next(a for a in config.space.attributes if a.name == "price")
        longest = max(high - low for low, high in (e["where"][attribute.name] for e in short))
        assert 0 < longest <= 0.011 * 1005.5, name
    even, skewed = (points_of(Workload("zipf", 0, 2000, zipf=s).events(config)) for s in (0.0, 2.0))
    assert max(Counter(even).values()) < 20 < 800 < max(Counter(skewed).values())


def points_of(events: Iterable[dict[str, Any]]) -> list[Any]:
    """The values of the first attribute."""
    return [next(iter(event["at"].values())) for event in events]


def test_parameters_that_mean_nothing_are_refused() -> None:
    config = config_for("zipf")
    with pytest.raises(ConfigError, match="not Zipfian"):
        Workload("uniform", zipf=1.0)
    with pytest.raises(ConfigError, match="a form of their own"):
        Workload("auctions", attributes=2)
    with pytest.raises(ConfigError, match="names 1 to"):
        list(Workload("uniform", 5, 5, attributes=9).events(config))
