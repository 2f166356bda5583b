"""Links that speak in ranges: what is told is the union with small gaps bridged, after every step; nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import parse
from state.curves.hilbert import cell_count, merge
from state.curves.ranges import RangeTable
from state.errors import ConfigError, InvariantError
from state.geometry.boxes import Box, Boxes
from state.protocol.arrivals import Arrival, Channel
from state.protocol.frame import START, Letter
from state.protocol.messages import LOCAL, Cause, Change, Name, Publish, RangeChange, Subscribe, Unsubscribe
from state.protocol.wire import RANGE_BYTES, pack, pack_ranges, unpack, unpack_ranges
from state.routing import decision as decision_module
from state.routing.decision import Reach
from state.routing.heard import RangeHeard
from state.routing.rangetold import RangeTold, bridged
from state.routing.region import Region
from state.routing.told import Told
from state.storage.codec import decode, encode
from state.strategies import Spec
from tests.core.histories import RANGE_TABLES, config_text, events, points
from tests.core.naive import space_of
from tests.core.oracle import Oracle
from tests.core.overlay import Overlay

SPACE = space_of(Box((0, 0), (16, 16)))
LINE = [("b0", "b1"), ("b1", "b2")]


def told_of(**parameters: Any) -> RangeTold:
    return RangeTold(SPACE, Spec.of({"name": "mics", "bits": 3, **parameters}, "test"))


def name(k: object) -> Name:
    return Name("b0", "ann", str(k))


def box(x: int, y: int, width: int, height: int) -> Boxes:
    return (Box((x, y), (min(x + width, 16), min(y + height, 16))),)


shapes = st.builds(box, *[st.integers(0, 15)] * 2, *[st.integers(1, 9)] * 2)


@pytest.mark.parametrize("gap", [0, 1, 2, 5, 40])
@pytest.mark.parametrize("most", [1, 3, 256])
@settings(max_examples=25)
@given(st.data())
def test_what_is_told_is_always_the_union_bridged(gap: int, most: int, data: st.DataObject) -> None:
    """Clients and two neighbours come, change and go; the sum of all changes is what `told` says."""
    told = told_of(gap=gap, max_ranges=most)
    heard = RangeHeard(told.grid)
    theirs: dict[str, RangeTable] = {"b1": RangeTable(), "b2": RangeTable()}
    held: dict[Name, Boxes] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        kind = data.draw(st.sampled_from(["subscribe", "subscribe", "unsubscribe", "b1", "b2"]))
        one = name(data.draw(st.integers(0, 4)))
        if kind == "subscribe":
            boxes = data.draw(shapes)
            decisions = told.apply(LOCAL, Subscribe(one, boxes), None)
            held[one] = boxes
        elif kind == "unsubscribe":
            if held.pop(one, None) is None:
                continue
            decisions = told.apply(LOCAL, Unsubscribe(one), None)
        else:
            decisions = told.apply(kind, random_change(theirs[kind], data), None)
        for decision in decisions:
            for message in decision.messages():
                assert isinstance(message, RangeChange)
                heard.apply(message)
        told.check()
        heard.check()
        union = merge(np.concatenate([told.mine.union(), *(table.union() for table in theirs.values())]))
        assert heard.table.union().tolist() == told.told().tolist() == bridged(union, max(gap, 1)).tolist()


def random_change(table: RangeTable, data: st.DataObject) -> RangeChange:
    """A neighbour asks for some ranges that it did not ask for, and gives up some that it did."""
    first = data.draw(st.integers(0, 60))
    added = table.uncovered(np.array([[first, data.draw(st.integers(first, 63))]]))[: data.draw(st.integers(0, 3))]
    held = table.union()
    removed = held[data.draw(st.integers(0, len(held))) :][:2]
    table.add(added)
    table.remove(removed)
    return RangeChange(name("far"), pack_ranges(added), pack_ranges(removed))


# Decisions


def one(told: RangeTold, boxes: Boxes | None, k: object = 1) -> tuple[str, str, Reach]:
    request = Unsubscribe(name(k)) if boxes is None else Subscribe(name(k), boxes)
    cause = Cause(name(k), Change.SUBSCRIBE if boxes else Change.UNSUBSCRIBE, 0, 0)
    (decision,) = told.apply(LOCAL, request, cause)
    assert decision.ranges is not None
    return decision.action, decision.reason, decision.ranges


def test_forward_withhold_drop_cancel() -> None:
    told = told_of()
    action, reason, reach = one(told, box(0, 0, 4, 4), 1)
    assert (action, reason, reach) == ("forward", "new ranges", Reach(1, packed((0, 3)), b""))
    assert one(told, box(1, 1, 2, 2), 2)[:2] == ("withhold", "covered by ranges")
    assert one(told, box(0, 0, 8, 4), 3)[:2] == ("forward", "partly covered")
    assert one(told, None, 1)[:2] == ("drop", "unsubscribed")
    assert one(told, None, 3) == ("cancel", "unsubscribed", Reach(0, b"", told_lost(told, box(0, 0, 8, 4))))
    assert one(told, None, 2)[0] == "cancel"
    assert len(told) == 0


def packed(*ranges: tuple[int, int]) -> bytes:
    return pack_ranges(np.array(ranges, np.int64))


def told_lost(told: RangeTold, boxes: Boxes) -> bytes:
    """The ranges of boxes that are not told any more."""
    ranges, _ = told.grid.ranges(np.stack([b.keys() for b in boxes]), 99)
    table = RangeTable()
    table.add(told.told())
    return pack_ranges(table.uncovered(ranges))


def test_a_replacement_makes_and_breaks_in_one_message() -> None:
    told = told_of()
    one(told, box(0, 0, 4, 4))
    action, _, reach = one(told, box(12, 12, 4, 4))
    assert action == "forward"
    assert reach.added and reach.removed
    assert one(told, box(12, 12, 2, 2))[:2] == ("cancel", "replaced")
    assert told.apply(LOCAL, Subscribe(name(1), box(12, 12, 2, 2)), None) == []


def test_the_witness_is_a_part_of_it_that_nobody_was_told_of() -> None:
    told = told_of()
    told.apply(LOCAL, Subscribe(name(1), box(0, 0, 3, 3)), None)
    (decision,) = told.apply(LOCAL, Subscribe(name(2), box(1, 1, 9, 2)), None)
    assert decision.witness is not None
    witness = decision.witness
    assert all(b.lo[i] <= witness.lo[i] < witness.hi[i] <= b.hi[i] for b in box(1, 1, 9, 2) for i in (0, 1))
    cells = told.grid.cells(np.array([witness.lo, [x - 1 for x in witness.hi]]))
    first = told.grid.cell_boxes(np.stack([b.keys() for b in box(0, 0, 3, 3)]))[0]
    assert not ((cells >= first[0]) & (cells <= first[1])).all(axis=1).any()


def test_what_max_ranges_bridges_is_counted_and_taken_back() -> None:
    wide, few = told_of(), told_of(max_ranges=1)
    asked = one(wide, box(1, 3, 9, 2))[2]
    action, _, reach = one(few, box(1, 3, 9, 2))
    assert (action, reach.added) == ("forward", reach.added[:RANGE_BYTES])
    assert reach.bridged == cell_count(unpack_ranges(reach.added)) - cell_count(unpack_ranges(asked.added)) > 0
    assert one(few, None) == ("cancel", "unsubscribed", Reach(0, b"", reach.added))


def test_what_a_gap_bridges_is_counted() -> None:
    told = told_of(gap=64)
    assert one(told, box(0, 0, 2, 2), 1)[2].added == packed((0, 0))
    last = one(told, box(14, 0, 2, 2), 2)[2]
    assert (last.added, last.bridged) == (packed((1, 63)), 62)
    assert one(told, None, 1) == ("cancel", "unsubscribed", Reach(0, b"", packed((0, 62))))


def test_what_both_bridge_is_counted_together() -> None:
    asked, few = one(told_of(), box(1, 3, 9, 2))[2], one(told_of(max_ranges=1), box(1, 3, 9, 2))[2]
    told = told_of(gap=64, max_ranges=1)
    one(told, box(14, 0, 2, 2), 1)
    both = one(told, box(1, 3, 9, 2), 2)[2]
    assert both.bridged == cell_count(unpack_ranges(both.added)) - cell_count(unpack_ranges(asked.added))
    assert both.bridged > few.bridged > 0


def test_a_change_too_long_for_a_channel_is_several_messages_that_make_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_module, "MOST_BYTES", 2 * RANGE_BYTES)
    added, removed = packed((0, 1), (3, 4), (6, 7)), packed((10, 11))
    messages = Reach(3, added, removed).messages(name(1), None, 1)
    assert [(m.added, m.removed) for m in messages] == [
        (packed((0, 1), (3, 4)), b""),
        (packed((6, 7)), b""),
        (b"", removed),
    ]
    assert Reach(1, b"", b"").messages(name(1), None, 1) == ()


def test_a_change_of_ranges_travels_as_it_is() -> None:
    change = RangeChange(name("é"), packed((0, 3), (2**63 - 1, 2**63 - 1)), b"")
    assert unpack(pack(change), 2) == change


# The rules that join two brokers


def test_what_two_brokers_cannot_both_mean_stops() -> None:
    told = told_of()
    heard = RangeHeard(told.grid)
    heard.apply(RangeChange(name(1), packed((3, 5)), b""))
    with pytest.raises(InvariantError, match="asked for twice"):
        heard.apply(RangeChange(name(2), packed((5, 6)), b""))
    with pytest.raises(InvariantError, match="not asked for"):
        heard.apply(RangeChange(name(2), b"", packed((40, 41))))
    with pytest.raises(InvariantError, match="speaks in boxes"):
        told.apply("b1", Subscribe(name(1), box(0, 0, 1, 1)), None)
    with pytest.raises(InvariantError, match="speaks in ranges"):
        Told(SPACE, Spec("auto")).apply("b1", RangeChange(name(1), packed((3, 5)), b""), None)


def test_a_wrong_count_is_noticed() -> None:
    told = told_of()
    one(told, box(0, 0, 4, 4))
    told.mine.add(np.array([[7, 9]]))
    with pytest.raises(InvariantError, match=r"rule \(S\)"):
        told.check()


# False positives


@settings(max_examples=60)
@given(st.data())
def test_a_false_positive_is_a_publication_that_goes_nowhere(data: st.DataObject) -> None:
    """Came over a link, matches no client there, goes to no other neighbour: that is what is counted."""
    config = parse(config_text(LINE, data.draw(st.sampled_from(RANGE_TABLES))))
    overlay, oracle = Overlay(config), Oracle({"colour"})
    for event in data.draw(events(config.overlay.brokers, most=15)):
        if event["kind"] != "publish":
            oracle.take(event)
            overlay.take(event)
    for k, at in enumerate(data.draw(st.lists(points(), min_size=1, max_size=6))):
        shot = {"kind": "publish", "broker": "b0", "id": f"p{k}", "at": at}
        wanted = {delivery[0] for delivery in oracle.take(shot)}
        overlay.routes.clear()
        outcome = overlay.take(shot)
        reached = {(broker, link) for broker, link, _, _, goes in overlay.routes if goes}
        nowhere = {(b, a) for a, b in reached if b not in wanted and not (b == "b1" and ("b1", "b2") in reached)}
        counted = {place: counts["false_positives"] for place, counts in outcome.counts.items()}
        assert {place: count for place, count in counted.items() if count} == dict.fromkeys(nowhere, 1)


def test_a_false_positive_from_another_region_is_counted_where_it_arrives() -> None:
    config = parse(config_text(LINE, '"mics"'))
    region = Region("b1", config.setups(("b1", "b2")))
    letter = Letter(1, 0, 1, START, b"x", [pack(Publish("p", (0, 0, 0)))])
    outcome = region.take([Arrival(Channel(1, 0, "b0>b1"), 0, 0, "b1", "b0", letter)], batch=1)
    assert outcome.counts["b1", "b0"]["false_positives"] == 1


def test_a_link_is_as_large_as_the_ranges_of_both_directions() -> None:
    overlay = Overlay(parse(config_text(LINE, '"mics"')))
    for broker in ("b0", "b2"):
        where = {"x": [1, 3]}
        overlay.take({"kind": "subscribe", "broker": broker, "client": "ann", "id": broker, "where": where})
    link = overlay.region.brokers["b1"].links["b0"]
    assert isinstance(link.told, RangeTold) and link.told.ranges == len(link.heard) > 0
    assert link.sizes()["ranges"] == 2 * len(link.heard)


# Configuration


def test_all_links_or_none() -> None:
    for default, other in (('"mics"', '"auto"'), ('"auto"', '"mics"'), ('"mics"', '{name = "mics", bits = 3}')):
        with pytest.raises(ConfigError, match="for all links or for none") as caught:
            parse(config_text(LINE, default, {"b0>b1": other}))
        assert caught.value.where == ('routing.links."b0>b1".strategy')
        assert "hybrid" in caught.value.remedy


def test_links_may_bridge_differently_and_a_default_that_nobody_uses_does_not_count() -> None:
    parse(config_text(LINE, '"mics"', {"b0>b1": '{name = "mics", gap = 4, max_ranges = 9}'}))
    both = {f"{a}>{b}": '"mics"' for pair in LINE for a, b in (pair, pair[::-1])}
    assert all(parse(config_text(LINE, '"auto"', both)).spec_of(*d).by_ranges for d in LINE)


def test_another_strategy_for_all_is_checked_too() -> None:
    config = parse(config_text(LINE, '"auto"'))
    assert config.with_strategy(Spec.of("mics", "x")).spec.by_ranges
    with pytest.raises(ConfigError, match="at most 63"):
        config.with_strategy(Spec.of({"name": "mics", "bits": 30}, "x"))
    with pytest.raises(ConfigError, match="no borders for x"):
        config.with_strategy(Spec.of({"name": "mics", "cells": "fitted"}, "x"))


@pytest.mark.parametrize(
    ("table", "where"),
    [
        ({"bits": 0}, "bits"),
        ({"bits": 64}, "bits"),
        ({"cells": "round"}, "cells"),
        ({"gap": -1}, "gap"),
        ({"max_ranges": 0}, "max_ranges"),
        ({"dims": []}, "dims"),
        ({"dims": "selective"}, "dims"),
        ({"dims": "selective:0"}, "dims"),
        ({"dims": [3]}, "dims"),
        ({"dims": ["x", "y", "x"]}, "dims"),
        ({"budget": 3}, "budget"),
    ],
)
def test_a_bad_parameter_is_refused(table: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Spec.of({"name": "mics", **table}, "here")
    assert caught.value.where == f"here.{where}"


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 4), shapes), max_size=12))
def test_covering_is_taken_and_changes_nothing(asked: list[tuple[int, Boxes]]) -> None:
    lazy, active = told_of(covering="lazy"), told_of(covering="active")
    for k, boxes in asked:
        request = Subscribe(name(k), boxes)
        assert lazy.apply(LOCAL, request, None) == active.apply(LOCAL, request, None)


FINEST = """
[space]
x = {kind = "float", low = 0.0, high = 1.0}
y = {kind = "float", low = 0.0, high = 1.0}
z = {kind = "float", low = 0.0, high = 1.0}
[overlay]
links = [["b0", "b1"], ["b1", "b2"]]
[routing]
strategy = {name = "mics", bits = 21}
"""


def test_the_finest_curve_can_be_stored_and_restored() -> None:
    """bits x attributes = 63: a subscription to everything is the range from 0 to 2^63 - 1, too long for an int64."""
    config = parse(FINEST)
    overlay = Overlay(config)
    overlay.take({"kind": "subscribe", "broker": "b0", "client": "ann", "id": "all", "where": {}})
    brokers, setups = overlay.region.brokers, config.setups()
    assert brokers["b1"].links["b0"].heard.asked() == [[0, 2**63 - 1]]
    for name, broker in brokers.items():
        again = decode(encode(broker), name, setups[name])
        again.check()
        assert encode(again) == encode(broker)


def test_a_specification_in_words() -> None:
    spec = Spec.of({"name": "mics", "dims": ["x", "y"], "bits": 4}, "here")
    assert str(spec) == "mics bits=4 dims=x,y"


CELLS = "\n[cells]\nx = {borders = [2, 5], selectivity = 0.2}\n"


def test_learned_cells_belong_to_the_space() -> None:
    config = parse(config_text(LINE, '{name = "mics", bits = 2, cells = "fitted", dims = ["x"]}') + CELLS)
    x = config.space.attributes[0]
    assert (x.borders, x.selectivity) == ((2, 5), 0.2)
    link = Overlay(config).region.brokers["b0"].links["b1"]
    assert isinstance(link.told, RangeTold)
    assert link.told.grid.cells(np.array([[1, 0, 0], [2, 0, 0], [5, 0, 0]])).tolist() == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("cells", "where", "says"),
    [
        ("q = {borders = [2]}", "cells.q", "no such attribute"),
        ("x = [2]", "cells.x", "must be a table"),
        ("x = {border = [2]}", "cells.x.border", "no such key"),
        ("x = {borders = 2}", "cells.x.borders", "must be a list"),
        ("x = {borders = [2, 2]}", "cells.x.borders", "borders grow"),
        ("x = {borders = [0, 2]}", "cells.x.borders", "above the low end"),
        ("x = {borders = [2, 99]}", "cells.x.borders", "outside its domain"),
        ("x = {selectivity = 2}", "cells.x.selectivity", "a share"),
        ("x = {selectivity = true}", "cells.x.selectivity", "a share"),
    ],
)
def test_bad_cells_are_refused(cells: str, where: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse(config_text(LINE, '"mics"') + f"\n[cells]\n{cells}\n")
    assert caught.value.where == where
