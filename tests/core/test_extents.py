"""How much filters are: sums kept as they come and go, against counting the filters themselves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import parse
from state.errors import InvariantError
from state.filters.trees import And, Filter, Leaf, all_boxes, of_boxes
from state.matching.boxlist import BoxList
from state.matching.extents import Extent, Extents, extent
from state.protocol.messages import LOCAL, Name
from state.routing.heard import BoxHeard
from state.routing.link import Link
from state.routing.told import Told
from state.storage.codec import decode, encode
from tests.core.histories import RANGE_TABLES, config_text, configs, events
from tests.core.naive import name
from tests.core.overlay import Overlay
from tests.core.test_filters import DIMS, SPACE, cells, trees

real = trees().filter(lambda tree: bool(cells(tree)))


def total(filters: list[Filter]) -> Extent:
    return Extent(sum(extent(f).associations for f in filters), sum(extent(f).bytes for f in filters))


def test_predicates_and_nodes_are_counted() -> None:
    assert extent(And((Leaf(0, 0, 1), Leaf(1, 0, 1)))) == (2, 56)
    assert extent(Leaf(0, 0, 1)) == (1, 24)
    assert extent(And(())) == (0, 8)


@settings(max_examples=150)
@given(st.lists(st.tuples(real, st.booleans()), max_size=8), st.data())
def test_sums_are_those_of_the_filters(some: list[tuple[Filter, bool]], data: st.DataObject) -> None:
    """Filters with their trees, and without, which are then what their boxes are."""
    asked = {name(k): (all_boxes(tree, SPACE), tree if keep else None) for k, (tree, keep) in enumerate(some)}
    filters = {n: of_boxes(boxes, SPACE) if tree is None else tree for n, (boxes, tree) in asked.items()}
    heard, kept, sums = BoxList(DIMS), dict[Name, Filter](), Extents(SPACE)
    for n, (boxes, tree) in asked.items():
        heard.add(n, boxes)
        sums.add(boxes, tree)
        kept |= {n: tree} if tree is not None else {}
    assert sums.extent == Extents.of_list(SPACE, heard, kept).extent == total(list(filters.values()))
    for n in data.draw(st.permutations(list(asked))):
        if data.draw(st.booleans()):
            sums.remove(*asked[n])
        else:
            sums.remove_keys(heard.keys(n), asked[n][1])
        del filters[n]
        assert sums.extent == total(list(filters.values()))


def test_a_wrong_sum_is_noticed() -> None:
    sums = Extents(SPACE, [(all_boxes(Leaf(0, 0, 1), SPACE), None)])
    with pytest.raises(InvariantError, match="miscounted"):
        sums.check(Extents(SPACE))


def heard_by(link: Link) -> list[Filter]:
    heard = link.heard.pruned(None)
    assert isinstance(heard, BoxHeard)
    return [row.tree or of_boxes(row.boxes, link.setup.space) for row in heard.rows.values()]


def withheld_by(told: Told) -> list[Filter]:
    return [told.trees.get(n) or of_boxes(entry.boxes, told.space) for n, entry in told.passive.items()]


@settings(max_examples=30)
@given(st.data())
def test_metrics_say_what_is_heard_and_what_is_withheld(data: st.DataObject) -> None:
    """After every event, on every link of any strategy that has filters; and after some of them from stored state."""
    overlay = Overlay(data.draw(configs()))
    for number, event in enumerate(data.draw(events(overlay.config.overlay.brokers, most=25))):
        overlay.take(event)
        for broker in overlay.region.brokers.values():
            for link in broker.links.values():
                check_sizes(link)
            assert broker.sizes(LOCAL) == {"heard": len(broker.clients), "active": 0, "passive": 0}
        if number % 4 == 0:
            check_restored(overlay)
    overlay.region.check()


def check_restored(overlay: Overlay) -> None:
    setups = overlay.config.setups()
    for broker in overlay.region.brokers.values():
        again = decode(encode(broker), broker.name, setups[broker.name])
        for link in broker.links.values():
            again.links[link.setup.link].heard.learn(link.heard.learned)  # kept in the head of a region
        for place in (LOCAL, *broker.links):
            assert again.sizes(place) == broker.sizes(place)


def check_sizes(link: Link) -> None:
    sizes = link.sizes()
    if not isinstance(link.told, Told):
        assert {sizes[size] for size in sizes if "associations" in size or "filter_bytes" in size} == {None}
        return
    heard, withheld = total(heard_by(link)), total(withheld_by(link.told))
    assert (sizes["unpruned_associations"], sizes["unpruned_filter_bytes"]) == heard
    assert (sizes["withheld_associations"], sizes["withheld_filter_bytes"]) == withheld
    if link.heard.pruned(None) is link.heard:
        assert (sizes["associations"], sizes["filter_bytes"], sizes["prunings"]) == (*heard, None)


def test_flooding_withholds_nothing_and_ranges_are_no_filters() -> None:
    event = {"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s", "where": {"x": [1, 2], "y": [3, 4]}}
    found = []
    for strategy in ('"flood"', RANGE_TABLES[0]):
        overlay = Overlay(parse(config_text([("b0", "b1")], strategy)))
        overlay.take(*({**event, "id": f"s{k}"} for k in range(2)))
        found.append(overlay.region.brokers["b1"].sizes("b0"))
    flood, ranges = found
    assert (flood["associations"], flood["filter_bytes"]) == (4, 112)
    assert (flood["withheld_associations"], flood["withheld_filter_bytes"]) == (0, 0)
    assert ranges["associations"] is ranges["withheld_associations"] is None
