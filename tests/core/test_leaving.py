"""What is given up while others lean on it: the neighbour keeps it until each of these is told or certified anew."""

from __future__ import annotations

import tomllib
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.geometry.boxes import Box, Boxes
from state.protocol.messages import Name, Subscribe, Unsubscribe
from state.protocol.reasons import Reason
from state.routing import told as told_module
from state.routing.certificates import Certificates, Leaving
from state.routing.decision import Decision
from state.routing.told import Told
from state.space import Attribute, Space
from state.strategies import Spec

SIDE = 6
SPACE = Space((Attribute("x", "int", 0, SIDE - 1), Attribute("y", "int", 0, SIDE - 1)))
POINTS = list(product(range(SIDE), range(SIDE)))
PROVING = ("cover", "zcurve", "union", "auto", "negative", "negative-approx", "hybrid")


def name(id: str) -> Name:
    return Name("a", "ann", id)


def box(x0: int, x1: int, y0: int = 0, y1: int = SIDE) -> Box:
    return Box((x0, y0), (x1, y1))


def covered(shapes: list[Boxes]) -> set[tuple[int, ...]]:
    return {
        point
        for shape in shapes
        for one in shape
        for point in POINTS
        if all(low <= x < high for low, x, high in zip(one.lo, point, one.hi, strict=True))
    }


class Neighbour:
    """The other end of a link: what it has been told, checked after every message."""

    def __init__(self, told: Told) -> None:
        self.told, self.has, self.asked = told, dict[Name, Boxes](), dict[Name, Boxes]()
        self.decisions: list[Decision] = []

    def subscribe(self, id: str, *boxes: Box) -> list[Decision]:
        return self._hear(self.told.subscribe(name(id), boxes, "local"), self.asked | {name(id): boxes})

    def unsubscribe(self, id: str) -> list[Decision]:
        left = {one: boxes for one, boxes in self.asked.items() if one != name(id)}
        return self._hear(self.told.unsubscribe(name(id), Reason.UNSUBSCRIBED), left)

    def work(self) -> list[Decision]:
        return self._hear(self.told.work()[0], self.asked)

    def finish(self) -> None:
        while self.told.working:
            self.work()

    def _hear(self, decisions: list[Decision], asked: dict[Name, Boxes]) -> list[Decision]:
        """What was and is asked for stays covered with every message, and in the end all that is asked for is."""
        lasting = covered([boxes for one, boxes in asked.items() if self.asked.get(one) == boxes])
        for message in (message for decision in decisions for message in decision.messages()):
            assert isinstance(message, Subscribe | Unsubscribe)
            if isinstance(message, Subscribe):
                self.has[message.name] = message.boxes
            else:
                del self.has[message.name]
            assert lasting <= covered(list(self.has.values()))
        self.asked = asked
        assert covered(list(asked.values())) <= covered(list(self.has.values()))
        assert {one: boxes for one, (boxes, _) in self.told.asks().items()} == self.has
        self.told.check()
        self.decisions += [decision for decision in decisions if decision.records]
        return decisions


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_module, "PORTION", 2)
    monkeypatch.setattr(told_module, "WINDOW", 3)


boxes = st.builds(
    lambda x, y: Box((min(x), min(y)), (max(x) + 1, max(y) + 1)),
    *[st.tuples(st.integers(0, SIDE - 1), st.integers(0, SIDE - 1))] * 2,
)


@settings(max_examples=100)
@given(st.data())
def test_no_message_uncovers_what_is_asked_for(data: st.DataObject) -> None:
    covering = data.draw(st.sampled_from(("lazy", "active")))
    there = Neighbour(Told(SPACE, Spec(data.draw(st.sampled_from(PROVING)), covering=covering)))
    for _ in range(data.draw(st.integers(1, 25))):
        id = data.draw(st.sampled_from("abcdefghij"))
        match data.draw(st.sampled_from(("subscribe", "subscribe", "unsubscribe", "work"))):
            case "subscribe":
                there.subscribe(id, data.draw(boxes))
            case "unsubscribe" if name(id) in there.asked:
                there.unsubscribe(id)
            case "work":
                there.work()
    there.finish()
    assert not there.told.leaving
    assert there.has == {one: there.told.active.boxes(one) for one in there.told.active}
    for one in list(there.asked):
        there.unsubscribe(one.id)
    there.finish()
    assert not there.has


def crowd(covering: str = "lazy") -> Neighbour:
    """A broad subscription, and six that lean on it."""
    there = Neighbour(Told(SPACE, Spec("union", covering=covering)))
    there.subscribe("broad", box(0, SIDE))
    for k in range(SIDE):
        there.subscribe(f"s{k}", box(k, k + 1))
    return there


def spoken(decisions: list[Decision]) -> list[str]:
    return [
        f"{'+' if isinstance(message, Subscribe) else '-'}{message.name.id}"
        for decision in decisions
        for message in decision.messages()
        if isinstance(message, Subscribe | Unsubscribe)
    ]


def test_those_who_lean_are_promoted_in_portions_and_then_the_shape_leaves() -> None:
    there = crowd()
    assert spoken(there.unsubscribe("broad")) == ["+s0", "+s1"]
    assert [d.action for d in there.decisions[-3:]] == ["promote", "promote", "cancel"]
    assert name("broad") in there.has
    assert spoken(there.work()) == ["+s2", "+s3"]
    assert spoken(there.work()) == ["+s4", "+s5", "-broad"]
    assert not there.told.working
    assert [d.action for d in there.decisions].count("cancel") == 1


def test_what_leaves_covers_nothing_new() -> None:
    there = crowd()
    there.unsubscribe("broad")
    assert [d.action for d in there.subscribe("new", box(0, SIDE, 0, 2))] == ["forward"]


def test_the_largest_within_the_window_are_told_first() -> None:
    there = Neighbour(Told(SPACE, Spec("union")))
    there.subscribe("broad", box(0, SIDE))
    for id, shape in (("s0", box(0, 1)), ("s1", box(1, 2)), ("large", box(0, 4)), ("s5", box(5, 6))):
        there.subscribe(id, shape)
    assert spoken(there.unsubscribe("broad")) == ["+large"]  # s0 is covered by it
    there.finish()
    assert sorted(one.id for one in there.has) == ["large", "s5"]


def test_a_subscription_that_comes_back_as_it_was_stays() -> None:
    there = crowd()
    there.unsubscribe("broad")
    assert spoken(there.subscribe("broad", box(0, SIDE))) == ["+broad"]
    assert not there.told.working
    assert len(there.told.passive) == 4


def test_another_shape_is_told_together_with_the_one_that_leaves() -> None:
    there = crowd()
    decisions = there.subscribe("broad", box(2, SIDE, 1, SIDE))
    assert [d.action for d in decisions] == ["forward", "promote", "promote"]
    assert there.has[name("broad")] == (box(0, SIDE),)
    there.finish()
    assert there.has[name("broad")] == (box(2, SIDE, 1, SIDE),)
    assert [d.action for d in there.decisions].count("forward") == 2  # broad, in each of its shapes


def test_a_shape_that_grows_keeps_those_who_lean_on_it() -> None:
    there = Neighbour(Told(SPACE, Spec("union")))
    there.subscribe("broad", box(0, 5))
    for k in range(4):
        there.subscribe(f"s{k}", box(k, k + 1))
    assert spoken(there.subscribe("broad", box(0, SIDE))) == ["+broad"]
    assert len(there.told.passive) == 4


def test_with_active_covering_many_are_withdrawn_in_portions() -> None:
    there = Neighbour(Told(SPACE, Spec("union", covering="active")))
    for k in range(5):
        there.subscribe(f"s{k}", box(k, k + 1))
    assert spoken(there.subscribe("broad", box(0, SIDE))) == ["+broad", "-s0", "-s1"]
    assert spoken(there.work()) == ["-s2", "-s3"]
    assert spoken(there.work()) == ["-s4"]
    assert not there.told.working


def test_what_many_lean_on_is_withdrawn_when_none_does_any_more() -> None:
    there = Neighbour(Told(SPACE, Spec("union", covering="active")))
    there.subscribe("wide", box(0, 5))
    for k in range(5):
        there.subscribe(f"s{k}", box(k, k + 1))
    assert spoken(there.subscribe("broad", box(0, SIDE))) == ["+broad"]
    assert [d.action for d in there.decisions[-3:]] == ["forward", "cancel", "withhold"]
    there.finish()
    assert list(there.has) == [name("broad")]


def test_those_who_go_while_they_wait_are_not_waited_for() -> None:
    there = crowd()
    there.unsubscribe("broad")
    for k in range(2, SIDE):
        last = there.unsubscribe(f"s{k}")
    assert spoken(last) == ["-broad"]


def test_those_that_leaned_on_a_shape_that_is_covered_after_all_are_decided_again() -> None:
    """The new shape is told, one of two that leaned on the old one leans on it, and the other, promoted, covers it."""
    neighbour = Neighbour(Told(SPACE, Spec.of("union", "here")))
    for id, one in (("s", box(0, 6)), ("small", box(0, 1)), ("large", box(0, 5))):
        neighbour.subscribe(id, one)
    neighbour.subscribe("s", box(0, 3))
    neighbour.finish()
    neighbour.told.check()
    assert list(neighbour.told.active) == [name("large")]
    assert {id: entry.coverers for id, entry in neighbour.told.passive.items()} == {
        name("s"): (name("large"),),
        name("small"): (name("large"),),
    }


def test_however_small_a_part_of_work_is_it_decides_one_and_is_no_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_module, "MOST_NODES", 0)
    monkeypatch.setattr(told_module, "PORTION", 8)
    told = Told(SPACE, Spec.of("union", "here"))
    neighbour = Neighbour(told)
    for id, one in (("s", box(0, 6)), *((f"p{k}", box(k, k + 1)) for k in range(4))):
        neighbour.subscribe(id, one)
    neighbour.unsubscribe("s")
    while told.leaving:
        waiting = len(told.leaving[name("s")].waiting)
        decided, rebuilt = told.work()
        assert decided and not rebuilt
        assert not told.leaving or len(told.leaving[name("s")].waiting) < waiting


def test_a_shape_on_which_somebody_comes_to_lean_again_does_not_go() -> None:
    """Nobody leaned on it when it was given up first; before that was told, it was told again, and given up again."""
    certificates = Certificates()
    certificates.leave(name("a"), Leaving((box(0, 6),), None, "local", Reason.REPLACED, None, 0))
    certificates.add(name("p"), (box(1, 2),), "local", (name("a"),))
    certificates.leave(name("a"), Leaving((box(0, 5),), None, "local", Reason.REPLACED, None, 0))
    assert certificates.left() == [] and list(certificates.leaving[name("a")].waiting) == [name("p")]


PRINTED = '{name = "negative-approx", k = 2, variant = "printed", unsubscribe = "approximate", drift = 0}'


def rebuilt(neighbour: Neighbour) -> list[Decision]:
    """Rebuild, which happens with the next request at the link: one that changes nothing. Return what is decided."""
    neighbour.finish()
    assert neighbour.told.rebuild()
    assert not neighbour.told.working, "it waits for a request, which is then the cause"
    one, boxes = next(iter(neighbour.asked.items()), (name("s0"), (box(0, 1),)))
    again = Subscribe(one, boxes, None)
    return neighbour._hear(neighbour.told.apply("local", again, None), neighbour.asked | {one: boxes})


def test_a_rebuild_as_printed_finds_out_again_who_is_active() -> None:
    """The neighbour was told of a half, and, when the other went, of all: after the rebuild it keeps all alone."""
    neighbour = Neighbour(Told(SPACE, Spec.of(tomllib.loads(f"x = {PRINTED}")["x"], "here")))
    for id, *ends in (("left", 0, 3), ("right", 3, 6), ("inner", 1, 2, 1, 2), ("all", 0, 6)):
        neighbour.subscribe(id, box(*ends))
    assert "all" not in {one.id for one in neighbour.told.active}, "the two halves cover it"
    neighbour.unsubscribe("left")
    assert {one.id for one in neighbour.told.active} == {"right", "all"}
    decided = [(one.action, one.name.id, [c.id for c in one.coverers], one.sends) for one in rebuilt(neighbour)]
    assert decided == [
        ("cancel", "right", ["all"], False),
        ("withhold", "right", ["all"], True),
        ("cancel", "right", [], True),
    ]
    assert {one.id for one in neighbour.told.active} == {"all"}
    assert rebuilt(neighbour) == []


@settings(max_examples=60)
@given(st.data())
def test_a_rebuild_as_printed_loses_nothing_whatever_came_and_went(data: st.DataObject) -> None:
    neighbour = Neighbour(Told(SPACE, Spec.of(tomllib.loads(f"x = {PRINTED}")["x"], "here")))
    for k in range(data.draw(st.integers(1, 14))):
        neighbour.subscribe(f"s{data.draw(st.integers(0, 7))}", data.draw(boxes))
        if neighbour.asked and data.draw(st.integers(0, 2)) == 0:
            neighbour.unsubscribe(data.draw(st.sampled_from(sorted(one.id for one in neighbour.asked))))
        if k % 4 == 3:
            rebuilt(neighbour)
    rebuilt(neighbour)
    assert rebuilt(neighbour) == [], "a second one finds nothing to change"
