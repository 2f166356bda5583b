"""Pruning saves memory: the bytes that a worker holds for a link, all Python objects and arrays counted."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from producers.auctions import SPACE as AUCTIONS
from producers.auctions import Auctions
from state.config import parse
from state.filters.pruning import Pruning, fitted
from state.filters.trees import Leaf, Or, holds
from state.filters.where import parse as parse_filter
from state.geometry.boxes import Box, Shape
from state.protocol.commands import Override
from state.protocol.messages import LOCAL, Name, Subscribe, Unsubscribe
from state.protocol.wire import pack, unpack
from state.routing.broker import Broker
from state.routing.heard import PrunedHeard
from state.routing.link import Setup
from state.routing.subscriptions import Subscription
from state.space import Attribute, Space
from state.storage.codec import decode, encode
from state.strategies import Spec
from tests.core.naive import name

FILTERS = 100
SPACE = parse(AUCTIONS + '[overlay]\nbrokers = ["hub"]\n').space


@cache
def requests() -> list[bytes]:
    """Boolean filters of the workload `auctions`, as they travel."""
    auctions = Auctions(np.random.default_rng(3))
    shapes = (fitted(parse_filter(SPACE, text), SPACE) for text in auctions.wheres(FILTERS))
    return [pack(Subscribe(Name("b", "ann", str(k)), boxes, tree=tree)) for k, (tree, boxes) in enumerate(shapes)]


def setups(pruning: Pruning | None, space: Space = SPACE) -> Mapping[str, Setup]:
    spec = replace(Spec("flood"), pruning=pruning)
    return {LOCAL: Setup("a", LOCAL, space), "b": Setup("a", "b", space, spec)}


def taken(pruning: Pruning | None, heard: list[bytes]) -> Broker:
    """A broker at the edge of the overlay that heard these, and whose table is made."""
    broker = Broker("a", setups(pruning))
    for moment, request in enumerate(heard):
        message = unpack(request, SPACE.dims)
        assert isinstance(message, Subscribe)
        broker.apply("b", message, moment)
    broker.sizes("b")
    return broker


def made(pruning: Pruning | None, *, restored: bool) -> Broker:
    """Such a broker as it came to be, or as it is restored."""
    broker = taken(pruning, requests())
    if restored:
        broker = decode(encode(broker), "a", setups(pruning))
        broker.sizes("b")
    return broker


@cache
def bytes_held(pruning: Pruning | None, *, restored: bool) -> int:
    """The bytes that such a broker holds."""
    made(pruning, restored=restored)  # what is made once in a process is made now; tracing takes much longer
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        _held = made(pruning, restored=restored)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


@pytest.mark.parametrize("restored", [False, True], ids=["live", "restored"])
@pytest.mark.parametrize(
    "pruning", [Pruning("memory"), Pruning("memory", 1_000_000), Pruning("network")], ids=["some", "all", "network"]
)
def test_a_pruned_link_takes_a_third_less_memory(pruning: Pruning, *, restored: bool) -> None:
    assert bytes_held(pruning, restored=restored) < 0.68 * bytes_held(None, restored=restored)


def test_the_originals_come_back_when_pruning_ends() -> None:
    """The rows that a pruned link packed are the same subscriptions, in memory and at rest."""
    heard = requests()[:50]
    plain, broker = taken(None, heard), taken(Pruning("memory"), heard)
    assert encode(broker) == encode(plain)
    link = broker.links["b"]
    assert link.heard.asked() == plain.links["b"].heard.asked()
    link.prune(Override(None))
    assert not isinstance(link.heard, PrunedHeard)
    link.heard.check()
    assert link.heard.asked() == plain.links["b"].heard.asked()
    assert broker.sizes("b") == plain.sizes("b")
    broker.apply("b", Unsubscribe(Name("b", "ann", "7")), 99)
    plain.apply("b", Unsubscribe(Name("b", "ann", "7")), 99)
    assert broker.sizes("b") == plain.sizes("b")
    broker.check()
    assert encode(broker) == encode(plain)


def test_a_packed_shape_is_the_same() -> None:
    boxes, tree = (Box((0, -(2**62)), (1, 2**62)), Box((3, 4), (5, 6))), Or((Leaf(0, 1, 2), Leaf(1, -4, 4)))
    for shape in ((boxes, tree), (boxes[:1], None)):
        row = Subscription(1, name(1), "b", Shape.of(shape[0]), shape[1])
        for _ in range(2):
            row.pack()
            assert (row.boxes, row.tree) == shape


def test_a_subscription_to_everything_is_routed_on_a_pruned_link() -> None:
    """It has no predicate to find it by, and nothing to prune."""
    space = Space((Attribute("x", "int", -5, 5), Attribute("y", "int", 0, 9)))
    broker = Broker("a", setups(Pruning("network", 100), space))
    grid = np.array([(x, y) for x in (-5, 0, 5) for y in (0, 9)], np.int64)
    narrow = Leaf(0, 0, 3)
    for number, box in enumerate((Box((0, 0), (3, 10)), Box((-5, 0), (6, 10)))):
        broker.apply("b", Subscribe(name(number), (box,)), number)
    heard = broker.links["b"].heard
    assert heard.wants(grid).all() and not heard.falsely(grid, np.ones(len(grid), np.bool_)).any()
    assert broker.sizes("b")["associations"] == 1
    heard.check()
    broker.apply("b", Unsubscribe(name(1)), 2)
    assert heard.wants(grid).tolist() == [holds(narrow, (int(x), int(y))) for x, y in grid]
