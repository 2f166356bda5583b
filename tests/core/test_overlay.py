"""Whole overlays under random histories, against brute force: the promises that everything else stands on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from state.config import Config, parse
from state.filters.where import asked
from state.matching.boxlist import BoxList
from state.protocol import events as events_module
from state.protocol.events import Context, Reject, read_line
from state.protocol.messages import LOCAL, Message, Name, Publish, Request
from state.routing.link import Link, Local
from state.routing.overlay import Batch, Network
from state.routing.rangetold import RangeTold
from state.routing.told import Decision
from state.storage.codec import decode, encode
from tests.core.histories import EXACT, SIDE, STRATEGY_TABLES, config_text, configs, events, points, wheres
from tests.core.oracle import Delivery, Event, Oracle


class Diary:
    """Keeps what happens."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.decisions: list[tuple[str, str, Decision]] = []
        self.routes: list[tuple[str, str, str, str, bool]] = []
        self.strays: list[str] = []

    def took(self, state: Link | Local, message: Request, cause: int) -> None:
        pass

    def strayed(self, link: Link, batch: Batch, stray: NDArray[np.bool_]) -> None:
        self.strays += [batch.publications[k].id for k in np.flatnonzero(stray)]

    def decided(self, link: Link, decisions: Sequence[Decision], cause: int) -> None:
        self.decisions += [(link.setup.broker, link.setup.link, decision) for decision in decisions]

    def routed(self, link: Link, origin: str, batch: Batch, forward: NDArray[np.bool_]) -> None:
        for publication, goes in zip(batch.publications, forward.tolist(), strict=True):
            self.routes.append((link.setup.broker, link.setup.link, publication.id, origin, goes))

    def delivered(self, local: Local, batch: Batch, which: Sequence[int], names: Sequence[Name]) -> None:
        self.deliveries += [(*name, batch.publications[k].id) for k, name in zip(which, names, strict=True)]


def message_of(config: Config, event: Event, place: int, arrived: int = 0) -> Message:
    context = Context(config.space, config.overlay.brokers)
    _, _, message = read_line(context, json.dumps(event).encode(), arrived, place)
    assert not isinstance(message, Reject), message
    return message


def cells(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The cells of the small space that boxes cover."""
    grid = np.zeros((SIDE, SIDE, 3), bool)
    for lo, hi in keys:
        grid[lo[0] : hi[0], lo[1] : hi[1], lo[2] : hi[2]] = True
    return grid


def check_none_covered_by_a_later_one(active: BoxList) -> None:
    shapes = [cells(active.keys(name)) for name in active]
    for k, later in enumerate(shapes):
        assert all((earlier & ~later).any() for earlier in shapes[:k]), "active covering"


def check_covering(network: Network) -> None:
    """Rules (C) and (N) by cell enumeration, on every link."""
    for groups in network.groups.values():
        for link in groups.values():
            if not isinstance(link, Link) or isinstance(link.told, RangeTold):
                continue
            active = cells(link.told.active.all_keys())
            for entry in link.told.passive.values():
                assert not (cells(np.stack([b.keys() for b in entry.boxes])) & ~active).any(), "rule (C)"
            if link.setup.spec.covering == "active":
                check_none_covered_by_a_later_one(link.told.active)
            negative = getattr(link.told.strategy, "negative", None)
            if negative is not None:
                uncovered = cells(negative.rectangles())
                assert (uncovered[~active]).all(), "rule (N): never less than what is uncovered"
                exact = not link.setup.spec.name.endswith("approx")
                assert not exact or not uncovered[active].any(), "rule (N): exactly that"


@settings(max_examples=120)
@given(st.data())
def test_quiet_overlay_delivers_exactly_what_matches(data: st.DataObject) -> None:
    config = data.draw(configs())
    diary, oracle = Diary(), Oracle({"colour"})
    network = Network(config, diary)
    for place, event in enumerate(data.draw(events(config.overlay.brokers))):
        network.feed(event["broker"], message_of(config, event, place), 0, place)
        network.settle(0)
        network.check()
        check_covering(network)
        expected = oracle.take(event)
        assert sorted(diary.deliveries) == sorted(expected)
        diary.deliveries.clear()


@settings(max_examples=60)
@given(st.data())
def test_filters_beyond_the_limit_of_boxes_are_delivered_exactly(data: st.DataObject) -> None:
    """What travels is generalised to two boxes; what is delivered is not, also from stored state."""
    config = data.draw(configs())
    diary, oracle = Diary(), Oracle({"colour"})
    network = Network(config, diary)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events_module, "asked", partial(asked, most=2))
        for place, event in enumerate(data.draw(events(config.overlay.brokers, most=25))):
            network.feed(event["broker"], message_of(config, event, place), 0, place)
            network.settle(0)
            network.check()
            for broker, groups in network.groups.items():
                groups[LOCAL] = decode(encode(groups[LOCAL]), config.setup(broker, LOCAL))
            assert sorted(diary.deliveries) == sorted(oracle.take(event))
            diary.deliveries.clear()


@settings(max_examples=60)
@given(st.data())
def test_batches_of_publications_equal_single_ones(data: st.DataObject) -> None:
    config = data.draw(configs())
    history = data.draw(events(config.overlay.brokers, most=25))
    shots = data.draw(st.lists(points(), min_size=1, max_size=8))
    one, many = Diary(), Diary()
    single, batched = Network(config, one), Network(config, many)
    for place, event in enumerate(e for e in history if e["kind"] != "publish"):
        for network in (single, batched):
            network.feed(event["broker"], message_of(config, event, place), 0, place)
            network.settle(0)
    publications = [Publish(f"p{k}", config.space.point(at)) for k, at in enumerate(shots)]
    for publication in publications:
        single.feed("b0", publication, 0, 0)
        single.settle(0)
    batch = Batch(publications, [0] * len(shots), config.space.points([p.point for p in publications]))
    batched.publish("b0", batch)
    assert sorted(one.deliveries) == sorted(many.deliveries)
    assert sorted(one.routes) == sorted(many.routes)
    assert states(single) == states(batched)


def states(network: Network) -> dict[tuple[str, str], bytes]:
    return {(b, n): encode(g) for b, groups in network.groups.items() for n, g in groups.items()}


@settings(max_examples=80)
@given(st.data())
def test_standing_subscription_misses_nothing_in_any_interleaving(data: st.DataObject) -> None:
    """Make before break: others come, change and go in random order while publications pass; one stands throughout."""
    config = data.draw(configs())
    brokers = config.overlay.brokers
    diary = Diary()
    network = Network(config, diary)
    standing: Event = {
        "kind": "subscribe",
        "broker": data.draw(st.sampled_from(brokers)),
        "id": "standing",
        "client": "zoe",
        "where": data.draw(wheres()),
    }
    network.feed(standing["broker"], message_of(config, standing, 0), 0, 0)
    network.settle(0)
    oracle = Oracle({"colour"})
    oracle.take(standing)
    expected: list[Delivery] = []
    history = data.draw(events(brokers, most=30))
    place = 1
    while history or network.waiting:
        waiting = list(network.waiting)
        pick = data.draw(st.integers(0, len(waiting) - (not history)))
        if pick < len(waiting):
            network.receive(waiting[pick], 0)
        else:
            event = history.pop(0)
            expected += [oracle_delivery for oracle_delivery in oracle.take(event) if oracle_delivery[2] == "standing"]
            network.feed(event["broker"], message_of(config, event, place), 0, place)
            place += 1
        network.check()
    assert sorted(d for d in diary.deliveries if d[2] == "standing") == sorted(expected)
    check_covering(network)


WIDE: list[Event] = [{}, {"x": [5, 7]}, {"x": [0, 5]}, {"x": [2, None]}, {"x": [3, 4], "y": [0, 7]}, {"y": [2, 6]}]


@settings(max_examples=150)
@given(st.data())
def test_make_before_break_in_every_interleaving(data: st.DataObject) -> None:
    """A small subscription that wide ones cover while they come, change and go; publications hit it all the time."""
    config = parse(config_text([("b0", "b1"), ("b1", "b2")], data.draw(st.sampled_from(STRATEGY_TABLES))))
    diary = Diary()
    network = Network(config, diary)
    small: Event = {"kind": "subscribe", "broker": "b0", "id": "small", "client": "zoe", "where": {"x": [3, 4]}}
    wide = {"kind": "subscribe", "broker": "b0", "client": "ann", "id": "w0", "where": {}}
    for place, event in enumerate((wide, small)):
        network.feed("b0", message_of(config, event, place), 0, place)
        network.settle(0)
    published = 0
    for place in range(2, data.draw(st.integers(8, 40))):
        choice = data.draw(st.sampled_from(["receive", "receive", "change", "publish"]))
        if choice == "receive" and network.waiting:
            network.receive(data.draw(st.sampled_from(list(network.waiting))), 0)
        elif choice == "change":
            event = {"broker": "b0", "client": "ann", "id": data.draw(st.sampled_from(["w0", "w1"]))}
            event |= data.draw(
                st.sampled_from([{"kind": "unsubscribe"}, *({"kind": "subscribe", "where": w} for w in WIDE)])
            )
            network.feed("b0", message_of(config, event, place), 0, place)
        else:
            published += 1
            shot = {"kind": "publish", "broker": "b2", "id": f"p{place}", "at": {"x": 3, "y": 5, "colour": "red"}}
            network.feed("b2", message_of(config, shot, place), 0, place)
    network.settle(0)
    assert len([d for d in diary.deliveries if d[2] == "small"]) == published


@settings(max_examples=60)
@given(st.data())
def test_after_any_interleaving_the_overlay_is_as_if_it_had_been_quiet(data: st.DataObject) -> None:
    """Once quiet, later publications reach exactly whom they match, whatever the order of messages was."""
    config = data.draw(configs())
    diary, oracle = Diary(), Oracle({"colour"})
    network = Network(config, diary)
    history = data.draw(events(config.overlay.brokers, most=30))
    for place, event in enumerate(history):
        oracle.take(event)
        network.feed(event["broker"], message_of(config, event, place), 0, place)
        for _ in range(data.draw(st.integers(0, 2))):
            if network.waiting:
                network.receive(data.draw(st.sampled_from(list(network.waiting))), 0)
    while network.waiting:
        network.receive(data.draw(st.sampled_from(list(network.waiting))), 0)
    network.check()
    diary.deliveries.clear()
    expected = []
    for k, at in enumerate(data.draw(st.lists(points(), min_size=1, max_size=6))):
        event = {
            "kind": "publish",
            "broker": data.draw(st.sampled_from(config.overlay.brokers)),
            "id": f"q{k}",
            "at": at,
        }
        expected += oracle.take(event)
        network.feed(event["broker"], message_of(config, event, 1000 + k), 0, 1000 + k)
        network.settle(0)
    assert sorted(diary.deliveries) == sorted(expected)


@settings(max_examples=60)
@given(st.data())
def test_storing_the_state_between_any_two_steps_changes_nothing(data: st.DataObject) -> None:
    """Decisions do not depend on whether the state was held in memory or encoded and decoded in between."""
    config = data.draw(configs())
    held, stored = Diary(), Diary()
    kept, reloaded = Network(config, held), Network(config, stored)
    for place, event in enumerate(data.draw(events(config.overlay.brokers, most=30))):
        for broker, groups in reloaded.groups.items():
            for name in groups:
                groups[name] = decode(encode(groups[name]), config.setup(broker, name))
        for network in (kept, reloaded):
            network.feed(event["broker"], message_of(config, event, place), 0, place)
            network.settle(0)
    reloaded.check()
    assert held.decisions == stored.decisions
    assert held.deliveries == stored.deliveries
    assert held.routes == stored.routes
    assert states(kept) == states(reloaded)


@settings(max_examples=60)
@given(st.data())
def test_unsubscribing_everything_leaves_nothing(data: st.DataObject) -> None:
    config = data.draw(configs())
    network = Network(config, Diary())
    history = [e for e in data.draw(events(config.overlay.brokers)) if e["kind"] == "subscribe"]
    cancels = {(e["broker"], e["client"], e["id"]): {**e, "kind": "unsubscribe"} for e in history}
    for event in cancels.values():
        event.pop("where")
        event.pop("rev", None)
    for place, event in enumerate([*history, *data.draw(st.permutations(list(cancels.values())))]):
        network.feed(event["broker"], message_of(config, event, place), 0, place)
        network.settle(0)
    network.check()
    for groups in network.groups.values():
        for state in groups.values():
            assert len(state.heard) == 0
            if isinstance(state, Link):
                assert len(state.told) == 0
                negative = getattr(getattr(state.told, "strategy", None), "negative", None)
                assert negative is None or cells(negative.rectangles()).all()


@settings(max_examples=60)
@given(st.data())
def test_exact_strategies_agree_on_every_decision(data: st.DataObject) -> None:
    """What is forwarded, withheld, promoted is the same under all exact strategies with lazy covering."""
    lazy = [table for table in EXACT if "active" not in table]
    links = [("b0", "b1"), ("b1", "b2")]
    history = data.draw(events(("b0", "b1", "b2"), most=30))
    outcomes = []
    for table in lazy:
        config = parse(config_text(links, table))
        diary = Diary()
        network = Network(config, diary)
        for place, event in enumerate(history):
            network.feed(event["broker"], message_of(config, event, place), 0, place)
            network.settle(0)
        outcomes.append([(b, n, d.action, d.name) for b, n, d in diary.decisions])
    assert all(outcome == outcomes[0] for outcome in outcomes)


@settings(max_examples=60)
@given(st.data())
def test_witness_and_certificate_are_proofs(data: st.DataObject) -> None:
    """At the moment of the decision: nobody active meets the witness, the coverers are active and cover."""
    config = data.draw(configs(EXACT))
    diary = Diary()
    network = Network(config, diary)
    active: dict[tuple[str, str], dict[Name, Any]] = {d: {} for d in config.overlay.directions()}
    for place, event in enumerate(data.draw(events(config.overlay.brokers, most=30))):
        network.feed(event["broker"], message_of(config, event, place), 0, place)
        network.settle(0)
        for direction, standing in active.items():
            decisions = [decision for *at, decision in diary.decisions if tuple(at) == direction]
            # what is promoted makes up for what goes, and is told before it goes
            going = {d.name for d in decisions if d.action == "cancel" and not d.coverers}
            going |= {d.name for d in decisions if d.action == "forward" and d.name in standing}
            for decision in decisions:
                check_proof(standing, going, decision)
        diary.decisions.clear()


def check_proof(active: dict[Name, Any], going: set[Name], decision: Decision) -> None:
    own = cells(np.stack([box.keys() for box in decision.boxes]))
    if decision.action in ("forward", "promote"):
        assert decision.witness is not None
        witness = cells(decision.witness.keys()[None])
        others = [grid for name, grid in active.items() if name not in going and name != decision.name]
        assert not (witness & ~own).any(), "the witness is inside the subscription"
        assert not any((witness & grid).any() for grid in others), "nothing that was told before meets the witness"
        active[decision.name] = own
    elif decision.action == "withhold":
        assert decision.coverers
        union = np.logical_or.reduce([active[name] for name in decision.coverers])
        assert not (own & ~union).any(), "the coverers cover it"
    elif decision.action == "cancel":
        del active[decision.name]


@settings(max_examples=40)
@given(st.data())
def test_time_to_live_is_an_unsubscribe(data: st.DataObject) -> None:
    """An overlay in which subscriptions expire ends as one in which they are cancelled at that moment."""
    table = data.draw(st.sampled_from(STRATEGY_TABLES))
    config = parse(config_text([("b0", "b1"), ("b1", "b2")], table))
    expiring, cancelling = Network(config, Diary()), Network(config, Diary())
    subscribes = [e for e in data.draw(events(("b0", "b1", "b2"))) if e["kind"] == "subscribe"]
    mortal: dict[tuple[str, str, str], Event] = {}
    for place, event in enumerate(subscribes):
        event.pop("rev", None)
        name = (event["broker"], event["client"], event["id"])
        lives = data.draw(st.booleans())
        mortal.pop(name, None)
        if lives:
            mortal[name] = event
        for network, ttl in ((expiring, lives), (cancelling, False)):
            timed = event | ({"ttl": 5} if ttl else {})
            network.feed(event["broker"], message_of(config, timed, place), 0, place)
            network.settle(0)
    expiring.expire(4_999_999, 0)
    assert not expiring.waiting
    expiring.expire(5_000_000, 0)
    expiring.settle(0)
    for place, event in enumerate(mortal.values()):
        cancel = {key: value for key, value in event.items() if key != "where"} | {"kind": "unsubscribe"}
        cancelling.feed(event["broker"], message_of(config, cancel, 1000 + place), 0, 1000 + place)
        cancelling.settle(0)
    expiring.check()
    for broker, groups in expiring.groups.items():
        for name, state in groups.items():
            other = cancelling.groups[broker][name]
            if isinstance(state, Link) and isinstance(other, Link):
                assert set(state.told.active) | state.told.passive.keys() == {*other.told.active, *other.told.passive}
            else:
                assert set(state.heard) == set(other.heard)
