"""How much filters are: sums kept as they come and go, against counting the filters themselves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state.routing.overlay import Network
from tests.core.test_overlay import Diary, message_of

from state.config import parse
from state.errors import InvariantError
from state.filters.trees import And, Filter, Leaf, all_boxes, of_boxes
from state.matching.boxlist import BoxList
from state.matching.extents import Extent, Extents, extent
from state.protocol.messages import Name
from state.routing.link import Link, Local
from state.routing.told import Told
from state.storage.codec import decode, encode
from state.storage.rows import metrics_row
from tests.core.histories import RANGE_TABLES, config_text, configs, events
from tests.core.naive import name
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
    assert isinstance(link.heard, BoxList)
    return [link.trees.get(n) or of_boxes(link.heard.boxes(n), link.setup.space) for n in link.heard]


def withheld_by(told: Told) -> list[Filter]:
    return [told.trees.get(n) or of_boxes(entry.boxes, told.space) for n, entry in told.passive.items()]


@settings(max_examples=60)
@given(st.data())
def test_metrics_say_what_is_heard_and_what_is_withheld(data: st.DataObject) -> None:
    """After every event, on every link of any strategy that has filters; and again from stored state."""
    config = data.draw(configs())
    network = Network(config, Diary())
    for place, event in enumerate(data.draw(events(config.overlay.brokers, most=25))):
        network.feed(event["broker"], message_of(config, event, place), 0, place)
        network.settle(0)
        for link in (group for groups in network.groups.values() for group in groups.values()):
            row = metrics_row(link, {}, place, None, None)
            if isinstance(link, Local) or not isinstance(link.told, Told):
                assert {row[column] for column in row if "associations" in column or "filter_bytes" in column} == {None}
                continue
            heard, withheld = total(heard_by(link)), total(withheld_by(link.told))
            assert (row["unpruned_associations"], row["unpruned_filter_bytes"]) == heard
            assert (row["withheld_associations"], row["withheld_filter_bytes"]) == withheld
            if link.learned is None:
                assert (row["associations"], row["filter_bytes"], row["prunings"]) == (*heard, None)
            again = decode(encode(link), link.setup)
            assert metrics_row(again, {}, place, None, None) == row
        network.check()


def test_flooding_withholds_nothing_and_ranges_are_no_filters() -> None:
    event = {"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s", "where": {"x": [1, 2], "y": [3, 4]}}
    rows = []
    for strategy in ('"flood"', RANGE_TABLES[0]):
        config = parse(config_text([("b0", "b1")], strategy))
        network = Network(config, Diary())
        for k in range(2):
            network.feed("b0", message_of(config, {**event, "id": f"s{k}"}, k), 0, k)
            network.settle(0)
        rows.append(metrics_row(network.groups["b1"]["b0"], {}, 1, None, None))
    flood, ranges = rows
    assert (flood["associations"], flood["filter_bytes"]) == (4, 112)
    assert (flood["withheld_associations"], flood["withheld_filter_bytes"]) == (0, 0)
    assert ranges["associations"] is ranges["withheld_associations"] is None
