"""Whole overlays under random histories, against brute force: the promises that everything else stands on."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from state.config import parse
from state.filters.trees import Leaf
from state.filters.where import asked
from state.geometry.boxes import Box, Shape
from state.matching.boxlist import BoxList
from state.protocol import events as events_module
from state.protocol.messages import LOCAL, Name, Subscribe
from state.routing.decision import Decision
from state.routing.rangetold import RangeTold
from state.routing.subscriptions import Subscription, Subscriptions
from state.storage.codec import decode, encode
from tests.core.histories import (
    COLOURS,
    EXACT,
    SIDE,
    STRATEGY_TABLES,
    config_text,
    configs,
    events,
    points,
    wheres,
)
from tests.core.oracle import Delivery, Event, Oracle
from tests.core.overlay import Overlay, arrival_of, cells_of, spread_out


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    spread_out(monkeypatch)


def cells(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    return cells_of(keys, SIDE)


def check_none_covered_by_a_later_one(active: BoxList) -> None:
    shapes = [cells(active.keys(name)) for name in active]
    for k, later in enumerate(shapes):
        assert all((earlier & ~later).any() for earlier in shapes[:k]), "active covering"


def check_covering(overlay: Overlay) -> None:
    """Rules (C) and (N) by cell enumeration, on every link."""
    for broker in overlay.region.brokers.values():
        for link in broker.links.values():
            if isinstance(link.told, RangeTold):
                continue
            active = cells(link.told.active.all_keys())
            held = active.copy()
            for shape in link.told.leaving.values():
                held |= cells(np.stack([b.keys() for b in shape.boxes]))
            for entry in link.told.passive.values():
                assert not (cells(np.stack([b.keys() for b in entry.boxes])) & ~held).any(), "rule (C)"
            if link.setup.spec.covering == "active" and not link.told.working:
                check_none_covered_by_a_later_one(link.told.active)
            negative = getattr(link.told.strategy, "negative", None)
            if negative is not None:
                uncovered = cells(negative.rectangles())
                assert (uncovered[~active]).all(), "rule (N): never less than what is uncovered"
                exact = not link.setup.spec.name.endswith("approx")
                assert not exact or not uncovered[active].any(), "rule (N): exactly that"


@settings(max_examples=60)
@given(st.data())
def test_quiet_overlay_delivers_exactly_what_matches(data: st.DataObject) -> None:
    config = data.draw(configs())
    overlay, oracle = Overlay(config), Oracle({"colour"})
    for event in data.draw(events(config.overlay.brokers)):
        overlay.take(event)
        overlay.region.check()
        check_covering(overlay)
        expected = oracle.take(event)
        assert sorted(overlay.deliveries) == sorted(expected)
        overlay.deliveries.clear()


def test_a_promotion_takes_back_what_it_covers_also_where_another_changes_its_shape() -> None:
    """left and right together cover wide, and none of the three covers another; left shrinks, and wide is promoted."""
    overlay = Overlay(parse(config_text([("b0", "b1")], '{name = "union", covering = "active"}')))
    shapes = {"small": {"x": [3, 4]}, "left": {"x": [0, 3]}, "right": {"x": [4, 7]}, "wide": {"x": [2, 5]}}
    event = {"kind": "subscribe", "broker": "b0", "client": "ann"}
    for id, where in shapes.items():
        overlay.take(event | {"id": id, "where": where})
    overlay.decisions.clear()
    overlay.take(event | {"id": "left", "where": {"x": [0, 3], "y": [0, 0]}})
    told = [(decision.action, decision.name.id) for _, _, decision in overlay.decisions]
    assert told == [("promote", "wide"), ("forward", "left"), ("cancel", "small"), ("withhold", "small")]
    check_covering(overlay)
    overlay.region.check()


@settings(max_examples=30)
@given(st.data())
def test_filters_beyond_the_limit_of_boxes_are_delivered_exactly(data: st.DataObject) -> None:
    """What travels is generalised to two boxes; what is delivered is not, also from stored state."""
    config = data.draw(configs())
    overlay, oracle = Overlay(config), Oracle({"colour"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events_module, "asked", partial(asked, most=2))
        for event in data.draw(events(config.overlay.brokers, most=25)):
            overlay.take(event)
            overlay.region.check()
            reload(overlay)
            assert sorted(overlay.deliveries) == sorted(oracle.take(event))
            overlay.deliveries.clear()


def reload(overlay: Overlay) -> None:
    """Store every broker and take up what was stored."""
    brokers, setups = overlay.region.brokers, overlay.config.setups()
    for name, broker in brokers.items():
        brokers[name] = decode(encode(broker), name, setups[name])
        brokers[name].version = broker.version  # kept in the head of a region


@settings(max_examples=50)
@given(st.data())
def test_any_cut_into_steps_gives_the_same(data: st.DataObject) -> None:
    """Runs of publications, requests between them, renewals and repeats: however they fall into steps and runs."""
    config = data.draw(configs())
    history = data.draw(events(config.overlay.brokers, most=30))
    arrivals = [arrival_of(config, event, k, 1000 * k) for k, event in enumerate(history)]
    single, cut = Overlay(config), Overlay(config)
    for arrival in arrivals:
        single.note(single.region.take([arrival]))
    while arrivals:
        size = data.draw(st.integers(1, 12))
        cut.note(cut.region.take(arrivals[:size]))
        arrivals = arrivals[size:]
    assert single.deliveries == cut.deliveries
    assert single.decisions == cut.decisions
    assert sorted(single.routes) == sorted(cut.routes)
    assert states(single) == states(cut)


@settings(max_examples=60)
@given(st.data())
def test_what_publications_teach_does_not_depend_on_runs(data: st.DataObject) -> None:
    """Events that change nothing, between publications, change no route and no pruned table."""
    config = parse(config_text([("b0", "b1"), ("b1", "b2")], '{name = "union", prune = "network", prunings = 5}'))
    plain, noisy = Overlay(config), Overlay(config)
    requests = [e for e in data.draw(events(("b0", "b1", "b2"), most=12)) if e["kind"] == "subscribe"]
    for event in requests:
        event.pop("rev", None)
        plain.take(event)
        noisy.take(event)
    chance = random.Random(data.draw(st.integers(0, 99)))
    shots: list[Event] = [
        {"kind": "publish", "broker": chance.choice(["b0", "b2"]), "id": f"p{k}", "at": point(chance)}
        for k in range(chance.choice([30, 70, 200]))
    ]
    plain.take(*shots)
    renewals = [{**event, "id": "nobody", "kind": "unsubscribe"} for event in requests[:1]]
    for event in renewals:
        event.pop("where")
    mixed = [e for shot in shots for e in ([shot, *renewals] if chance.random() < 0.3 else [shot])]
    noisy.take(*mixed)
    assert sorted(plain.routes) == sorted(noisy.routes)
    for name, broker in plain.region.brokers.items():
        for link, one in broker.links.items():
            ours, theirs = one.heard.learned, noisy.region.brokers[name].links[link].heard.learned
            assert ours is not None and theirs is not None
            assert all((a == b).all() for a, b in zip(ours, theirs, strict=True))


def point(chance: random.Random) -> dict[str, Any]:
    return {"x": chance.randrange(SIDE), "y": chance.randrange(SIDE), "colour": chance.choice(COLOURS)}


@settings(max_examples=100)
@given(st.data())
def test_steps_that_mix_requests_and_publications_deliver_exactly(data: st.DataObject) -> None:
    """Brute force is the judge: a publication meets what was asked for before it, and nothing else."""
    config = data.draw(configs())
    overlay, oracle = Overlay(config), Oracle({"colour"})
    history = data.draw(events(config.overlay.brokers, most=30))
    overlay.take(*history)
    expected = [delivery for event in history for delivery in oracle.take(event)]
    assert sorted(overlay.deliveries) == sorted(expected)
    overlay.region.check()


def states(overlay: Overlay) -> dict[str, dict[str, bytes]]:
    return {name: encode(broker) for name, broker in overlay.region.brokers.items()}


@settings(max_examples=40)
@given(st.data())
def test_standing_subscription_misses_nothing_in_any_interleaving(data: st.DataObject) -> None:
    """Make before break: others come, change and go in random order while publications pass; one stands throughout."""
    config = data.draw(configs())
    brokers = config.overlay.brokers
    overlay = Overlay(config)
    standing: Event = {
        "kind": "subscribe",
        "broker": data.draw(st.sampled_from(brokers)),
        "id": "standing",
        "client": "zoe",
        "where": data.draw(wheres()),
    }
    overlay.feed(standing)
    overlay.settle()
    oracle = Oracle({"colour"})
    oracle.take(standing)
    expected: list[Delivery] = []
    history = data.draw(events(brokers, most=30))
    while history or overlay.waiting:
        waiting = list(overlay.waiting)
        pick = data.draw(st.integers(0, len(waiting) - (not history)))
        if pick < len(waiting):
            overlay.deliver(waiting[pick])
        else:
            event = history.pop(0)
            expected += [oracle_delivery for oracle_delivery in oracle.take(event) if oracle_delivery[2] == "standing"]
            overlay.feed(event)
        overlay.region.check()
    assert sorted(d for d in overlay.deliveries if d[2] == "standing") == sorted(expected)
    check_covering(overlay)


def test_what_expires_in_an_interleaved_run_waits_on_the_channels_like_everything_else() -> None:
    overlay = Overlay(parse(config_text([("b0", "b1"), ("b1", "b2")], '"union"')))
    subscribe = {"kind": "subscribe", "broker": "b0", "id": "s", "client": "ann", "where": {}, "ttl": 1}
    shot = {"kind": "publish", "broker": "b2", "id": "p", "at": {"x": 0, "y": 0, "colour": "red"}}
    overlay.take(subscribe)
    overlay.feed(subscribe | {"broker": "b1", "id": "other", "where": {"x": [0, 0]}})
    before = set(overlay.waiting)
    overlay.feed(shot, time=1_000_000)
    assert before and before < set(overlay.waiting), "nothing was received, the ends and the publication wait too"
    overlay.settle()
    overlay.region.check()
    assert overlay.deliveries == []


WIDE: list[Event] = [{}, {"x": [5, 7]}, {"x": [0, 5]}, {"x": [2, None]}, {"x": [3, 4], "y": [0, 7]}, {"y": [2, 6]}]


@settings(max_examples=75)
@given(st.data())
def test_make_before_break_in_every_interleaving(data: st.DataObject) -> None:
    """A small subscription that wide ones cover while they come, change and go; publications hit it all the time."""
    config = parse(config_text([("b0", "b1"), ("b1", "b2")], data.draw(st.sampled_from(STRATEGY_TABLES))))
    overlay = Overlay(config)
    small: Event = {"kind": "subscribe", "broker": "b0", "id": "small", "client": "zoe", "where": {"x": [3, 4]}}
    wide = {"kind": "subscribe", "broker": "b0", "client": "ann", "id": "w0", "where": {}}
    for event in (wide, small):
        overlay.take(event)
    published = 0
    for place in range(2, data.draw(st.integers(8, 40))):
        choice = data.draw(st.sampled_from(["receive", "receive", "change", "publish"]))
        if choice == "receive" and overlay.waiting:
            overlay.deliver(data.draw(st.sampled_from(list(overlay.waiting))))
        elif choice == "change":
            event = {"broker": "b0", "client": "ann", "id": data.draw(st.sampled_from(["w0", "w1"]))}
            event |= data.draw(
                st.sampled_from([{"kind": "unsubscribe"}, *({"kind": "subscribe", "where": w} for w in WIDE)])
            )
            overlay.feed(event)
        else:
            published += 1
            shot = {"kind": "publish", "broker": "b2", "id": f"p{place}", "at": {"x": 3, "y": 5, "colour": "red"}}
            overlay.take(shot)
    assert len([d for d in overlay.deliveries if d[2] == "small"]) == published


@settings(max_examples=60)
@given(st.data())
def test_after_any_interleaving_the_overlay_is_as_if_it_had_been_quiet(data: st.DataObject) -> None:
    """Once quiet, later publications reach exactly whom they match, whatever the order of messages was."""
    config = data.draw(configs())
    overlay, oracle = Overlay(config), Oracle({"colour"})
    history = data.draw(events(config.overlay.brokers, most=30))
    for event in history:
        oracle.take(event)
        overlay.feed(event)
        for _ in range(data.draw(st.integers(0, 2))):
            if overlay.waiting:
                overlay.deliver(data.draw(st.sampled_from(list(overlay.waiting))))
    while overlay.waiting:
        overlay.deliver(data.draw(st.sampled_from(list(overlay.waiting))))
    overlay.region.check()
    overlay.deliveries.clear()
    expected = []
    for k, at in enumerate(data.draw(st.lists(points(), min_size=1, max_size=6))):
        event = {
            "kind": "publish",
            "broker": data.draw(st.sampled_from(config.overlay.brokers)),
            "id": f"q{k}",
            "at": at,
        }
        expected += oracle.take(event)
        overlay.take(event)
    assert sorted(overlay.deliveries) == sorted(expected)


@settings(max_examples=30)
@given(st.data())
def test_storing_the_state_between_any_two_steps_changes_nothing(data: st.DataObject) -> None:
    """Decisions do not depend on whether the state was held in memory or encoded and decoded in between."""
    config = data.draw(configs())
    kept, reloaded = Overlay(config), Overlay(config)
    for event in data.draw(events(config.overlay.brokers, most=30)):
        reload(reloaded)
        kept.take(event)
        reloaded.take(event)
    reloaded.region.check()
    assert kept.decisions == reloaded.decisions
    assert kept.deliveries == reloaded.deliveries
    assert kept.routes == reloaded.routes
    assert states(kept) == states(reloaded)


@settings(max_examples=60)
@given(st.data())
def test_unsubscribing_everything_leaves_nothing(data: st.DataObject) -> None:
    config = data.draw(configs())
    overlay = Overlay(config)
    history = [e for e in data.draw(events(config.overlay.brokers)) if e["kind"] == "subscribe"]
    cancels = {(e["broker"], e["client"], e["id"]): {**e, "kind": "unsubscribe"} for e in history}
    for event in cancels.values():
        event.pop("where")
        event.pop("rev", None)
    for event in [*history, *data.draw(st.permutations(list(cancels.values())))]:
        overlay.take(event)
    overlay.finish()
    overlay.region.check()
    for broker in overlay.region.brokers.values():
        assert len(broker.clients) == len(broker.subscriptions) == 0
        for link in broker.links.values():
            assert len(link.heard) == len(link.told) == 0
            negative = getattr(getattr(link.told, "strategy", None), "negative", None)
            assert negative is None or cells(negative.rectangles()).all()


@settings(max_examples=30)
@given(st.data())
def test_exact_strategies_agree_on_every_decision(data: st.DataObject) -> None:
    """What is forwarded, withheld, promoted is the same under all exact strategies with lazy covering."""
    lazy = [table for table in EXACT if "active" not in table]
    links = [("b0", "b1"), ("b1", "b2")]
    history = data.draw(events(("b0", "b1", "b2"), most=30))
    outcomes = []
    for table in lazy:
        config = parse(config_text(links, table))
        overlay = Overlay(config)
        for event in history:
            overlay.take(event)
        outcomes.append([(b, n, d.action, d.name) for b, n, d in overlay.decisions])
    assert all(outcome == outcomes[0] for outcome in outcomes)


@settings(max_examples=60)
@given(st.data())
def test_witness_and_certificate_are_proofs(data: st.DataObject) -> None:
    """At the moment of the decision: nobody active meets the witness, the coverers are active and cover."""
    config = data.draw(configs(EXACT))
    overlay = Overlay(config)
    active: dict[tuple[str, str], dict[Name, Any]] = {d: {} for d in config.overlay.directions()}
    for event in data.draw(events(config.overlay.brokers, most=30)):
        overlay.take(event)
        for direction, standing in active.items():
            decisions = [decision for *at, decision in overlay.decisions if tuple(at) == direction]
            # what is promoted makes up for what goes, and is told before it goes
            going = {d.name for d in decisions if d.action == "cancel" and not d.coverers}
            going |= {d.name for d in decisions if d.action == "forward" and d.name in standing}
            for decision in decisions:
                check_proof(standing, going, decision)
        overlay.decisions.clear()


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
    expiring, cancelling = Overlay(config), Overlay(config)
    subscribes = [e for e in data.draw(events(("b0", "b1", "b2"))) if e["kind"] == "subscribe"]
    mortal: dict[tuple[str, str, str], Event] = {}
    for event in subscribes:
        event.pop("rev", None)
        name = (event["broker"], event["client"], event["id"])
        lives = data.draw(st.booleans())
        mortal.pop(name, None)
        if lives:
            mortal[name] = event
        expiring.take(event | ({"ttl": 5} if lives else {}))
        cancelling.take(event)
    shot = {"kind": "publish", "broker": "b0", "id": "p", "at": {"x": 0, "y": 0, "colour": "red"}}
    before = len(expiring.decisions)
    expiring.take(shot, time=4_999_999)
    assert len(expiring.decisions) == before, "a moment too early"
    delivered = len(expiring.deliveries)
    expiring.take(shot, time=5_000_000)
    assert not {(*name, "p") for name in mortal} & set(expiring.deliveries[delivered:]), "with or without its turn"
    expiring.finish(time=5_000_000)
    for event in mortal.values():
        cancelling.take({key: value for key, value in event.items() if key != "where"} | {"kind": "unsubscribe"})
    cancelling.finish()
    expiring.region.check()
    for name, broker in expiring.region.brokers.items():
        other = cancelling.region.brokers[name]
        assert set(broker.clients) == set(other.clients)
        for link, one in broker.links.items():
            assert one.heard.names() == other.links[link].heard.names() or mortal
            assert {n for n in (*one.told.active, *one.told.passive) if n.broker == name} == set(broker.clients)


def test_a_request_about_what_is_over_ends_it_first() -> None:
    """A renewal that comes too late is a new subscription, also if thousands wait for their turn to be ended."""
    overlay = Overlay(parse(config_text([("b0", "b1")], '"union"')))
    asked = [
        {"kind": "subscribe", "broker": "b0", "client": "ann", "id": f"s{k}", "where": {"x": [k, k]}, "ttl": 5}
        for k in range(4)
    ]
    for event in asked:
        overlay.take(event)
    before = len(overlay.decisions)
    overlay.take(asked[3], time=5_000_000)
    told = [(decision.action, decision.name.id, str(decision.reason)) for _, _, decision in overlay.decisions[before:]]
    assert told == [("cancel", "s0", "expired"), ("cancel", "s3", "expired"), ("forward", "s3", "gap")]
    overlay.finish(time=5_000_000)
    overlay.region.check()
    assert [name.id for name in overlay.region.brokers["b0"].clients] == ["s3"]


def test_a_stale_event_is_a_reject_that_says_what_stands() -> None:
    overlay = Overlay(parse(config_text([("b0", "b1")], '"union"')))
    event = {"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s", "where": {}, "rev": 5}
    overlay.take(event)
    assert not overlay.take(event).rejects
    outcome = overlay.take({"kind": "unsubscribe", "broker": "b0", "client": "ann", "id": "s", "rev": 4})
    ((_, refused),) = outcome.rejects
    assert (refused.rule, refused.offset) == ("stale", 3)
    assert b'"id":"s","client":"ann","rev":4' in refused.value
    assert "rev 5" in refused.message


def test_a_late_arrival_moves_no_clock_and_ends_by_its_own_time() -> None:
    """Records of two channels may be out of order by time, from one batch to the next."""
    overlay = Overlay(parse(config_text([("b0", "b1")], '"auto"')))
    subscribe = {"kind": "subscribe", "broker": "b0", "client": "ann", "where": {}}
    shot = {"kind": "publish", "broker": "b1", "at": {"x": 1, "y": 1, "colour": "red"}}
    overlay.take(shot | {"id": "p100"}, time=100)
    overlay.take(subscribe | {"id": "short", "ttl": 50e-6}, time=60)
    overlay.take(subscribe | {"id": "long", "ttl": 200e-6}, time=70)
    assert overlay.region.clock == 100
    for time in (109, 110, 269, 270):
        overlay.take(shot | {"id": f"p{time}"}, time=time)
    assert [(d[2], d[3]) for d in overlay.deliveries] == [
        *(("short", "p109"), ("long", "p109"), ("long", "p110")),
        ("long", "p269"),
    ]
    ended = [
        (d.name.id, d.cause.time)
        for broker, _, d in overlay.decisions
        if broker == "b0" and d.action == "cancel" and d.cause
    ]
    assert ended == [("short", 110), ("long", 270)], "the moment at which each was due, not at which that was noticed"


def test_a_renewal_asks_for_exactly_what_stands() -> None:
    """Boxes, tree and exact filter: two filters that travel as the same boxes may differ in what is delivered."""
    name, box, other = Name("b0", "ann", "s"), Box((0, 0), (5, 5)), Box((0, 0), (5, 6))
    leaf, more = Leaf(0, 1, 3), Leaf(0, 1, 4)
    known = Subscriptions()
    known.add(Subscription(3, name, LOCAL, Shape.of((box,)), leaf, leaf, b"1"))
    assert known.is_renewal(Subscribe(name, (box,), tree=leaf, exact=leaf, where=b"2"))
    assert not known.is_renewal(Subscribe(name, (other,), tree=leaf, exact=leaf))
    assert not known.is_renewal(Subscribe(name, (box,), tree=more, exact=leaf))
    assert not known.is_renewal(Subscribe(name, (box,), tree=leaf, exact=more))
    assert not known.is_renewal(Subscribe(name._replace(id="t"), (box,), tree=leaf, exact=leaf))
