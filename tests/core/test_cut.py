"""Cutting a tree into regions: each is connected, each broker is in one, there are no more than asked for."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.config import parse
from state.routing.cut import Tree, cut, is_connected
from tests.core.histories import space_text, trees

Links = list[tuple[str, str]]


def tree_of(links: Links) -> Tree:
    tree: dict[str, list[str]] = {"b0": []}
    for a, b in links:
        tree.setdefault(a, []).append(b)
        tree.setdefault(b, []).append(a)
    return tree


def islands(tree: Tree, brokers: tuple[str, ...]) -> int:
    """Parts that brokers are in, by the links among them: a forest has as many as it has fewer links than nodes."""
    ends = [(a, b) for a in brokers for b in tree[a] if b in brokers]
    return len(brokers) - len(ends) // 2


@given(trees(most=30), st.integers(1, 40), st.randoms())
def test_regions_are_connected_and_each_broker_is_in_one(links: Links, count: int, chance: Random) -> None:
    chance.shuffle(links)
    tree = tree_of([(a, b) if chance.random() < 0.5 else (b, a) for a, b in links])
    regions = cut(tree, count)
    assert 1 <= len(regions) <= count
    assert sorted(broker for region in regions for broker in region) == sorted(tree)
    assert all(islands(tree, region) == 1 for region in regions)
    places = [[list(tree).index(broker) for broker in region] for region in regions]
    assert places == sorted(map(sorted, places)), "in the order of the configuration"


@given(trees(most=12), st.data())
def test_what_is_connected(links: Links, data: st.DataObject) -> None:
    tree = tree_of(links)
    brokers = tuple(data.draw(st.lists(st.sampled_from(list(tree)), min_size=1, unique=True)))
    assert is_connected(tree, brokers) == (islands(tree, brokers) == 1)


@given(st.integers(1, 60), st.data())
def test_a_line_is_cut_into_as_many_regions_as_asked_for_of_equal_size(length: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, length))
    sizes = [len(region) for region in cut(tree_of([(f"b{k}", f"b{k + 1}") for k in range(length - 1)]), count)]
    assert len(sizes) == count
    assert max(sizes) - min(sizes) <= 1


def test_as_many_regions_as_brokers_are_one_each() -> None:
    star = [("b0", f"b{k}") for k in range(1, 9)]
    assert cut(tree_of(star), 9) == tuple((f"b{k}",) for k in range(9))
    assert cut(tree_of(star), 1) == (tuple(f"b{k}" for k in range(9)),)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_cut_can_be_listed_in_a_configuration(count: int) -> None:
    links = [("b0", "b1"), ("b0", "b2"), ("b1", "b3"), ("b1", "b4"), ("b2", "b5"), ("b2", "b6")]
    pairs = ", ".join(f'["{a}", "{b}"]' for a, b in links)
    text = space_text() + f"[overlay]\nlinks = [{pairs}]\nregions = "
    regions = parse(text + str(count)).overlay.cut(99)
    listed = "[" + ", ".join("[" + ", ".join(f'"{b}"' for b in region) + "]" for region in regions) + "]"
    assert parse(text + listed).overlay.cut(1) == regions
