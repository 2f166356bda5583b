"""The later event wins in whatever order events arrive; what ended is remembered long enough, and not longer."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.errors import InvariantError
from state.geometry.boxes import Box
from state.protocol import ledger as module
from state.protocol.ledger import DAY, Ended, Ledger, Limits, Standing, Update, later
from state.protocol.messages import Name, Stamp, Subscribe, Unsubscribe
from tests.core.naive import name

S1, S2 = name("s1"), name("s2")
SHAPE = (Box((0,), (1,)),)
NEWS, RENEWED, OLD, STALE = Update(True, False), Update(True, True), Update(False, True), Update(False, False)


def subscribe(one: Name, rev: int | None, time: int, offset: int = 0, ttl: int | None = None) -> Subscribe:
    return Subscribe(one, SHAPE, Stamp(rev, time, 0, offset), ttl)


def unsubscribe(one: Name, rev: int | None, time: int, offset: int = 0) -> Unsubscribe:
    return Unsubscribe(one, Stamp(rev, time, 0, offset))


# Stamps

revs, times, ranks, offsets = st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)
stamps = st.builds(Stamp, st.none() | revs, times, ranks, offsets)
revised = st.builds(Stamp, revs, times, ranks, offsets)
timed = st.builds(Stamp, st.none(), times, ranks, offsets)


@pytest.mark.parametrize(
    ("stamp", "known", "expected"),
    [
        (Stamp(2, 0, 0, 0), Stamp(1, 9, 0, 9), True),
        (Stamp(1, 9, 0, 9), Stamp(2, 0, 0, 0), False),
        (Stamp(1, 2, 0, 0), Stamp(1, 1, 0, 9), True),
        (Stamp(1, 1, 0, 1), Stamp(1, 1, 0, 0), True),
        (Stamp(1, 1, 0, 0), Stamp(1, 1, 0, 0), False),
        (Stamp(None, 2, 0, 0), Stamp(7, 1, 0, 9), True),
        (Stamp(None, 1, 0, 9), Stamp(7, 2, 0, 0), False),
        (Stamp(7, 1, 0, 0), Stamp(None, 2, 0, 0), False),
        (Stamp(0, 3, 0, 0), Stamp(None, 2, 0, 9), True),
        (Stamp(None, 1, 0, 1), Stamp(None, 1, 0, 0), True),
        (Stamp(None, 1, 0, 0), Stamp(None, 1, 0, 0), False),
        (Stamp(0, 5, 0, 5), Stamp(0, 5, 0, 5), False),
        (Stamp(None, 1, 3, 0), Stamp(None, 1, 0, 9), True),
        (Stamp(None, 1, 0, 9), Stamp(None, 1, 3, 0), False),
        (Stamp(None, 2, 0, 0), Stamp(None, 1, 3, 9), True),
    ],
)
def test_revision_decides_then_time_then_rank_then_offset(stamp: Stamp, known: Stamp, expected: bool) -> None:
    assert later(stamp, known) is expected


@given(stamps, stamps)
def test_of_two_stamps_at_most_one_is_later(a: Stamp, b: Stamp) -> None:
    assert not (later(a, b) and later(b, a))
    if a[1:] != b[1:]:
        assert later(a, b) or later(b, a)


@given(st.lists(revised, unique=True) | st.lists(timed, unique=True))
def test_stamps_of_one_kind_are_in_one_order(some: list[Stamp]) -> None:
    ranked = sorted(some, key=lambda stamp: (-1 if stamp.rev is None else stamp.rev, *stamp[1:]))
    for i, a in enumerate(ranked):
        for j, b in enumerate(ranked):
            assert later(a, b) == (i > j)


# Applying


def test_a_subscription_stands_until_it_is_ended() -> None:
    ledger = Ledger()
    assert ledger.apply(subscribe(S1, None, 1), 1) == NEWS
    assert ledger.apply(subscribe(S1, None, 2), 2) == RENEWED
    assert ledger.apply(unsubscribe(S1, None, 3), 3) == RENEWED
    assert ledger.apply(subscribe(S1, None, 4), 4) == NEWS
    assert list(ledger.standing) == [S1]
    ledger.check()


def test_a_repeat_changes_nothing() -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, 1, 1, 1), 1)
    assert ledger.apply(subscribe(S1, 1, 1, 1), 2) == OLD
    ledger.apply(unsubscribe(S1, 2, 2, 2), 3)
    assert ledger.apply(unsubscribe(S1, 2, 2, 2), 4) == STALE
    assert ledger.apply(subscribe(S1, 1, 1, 1), 5) == STALE
    assert ledger.ended[S1].arrived == 3
    ledger.check()


def test_an_unsubscribe_that_overtook_its_subscribe_cancels_it() -> None:
    ledger = Ledger()
    assert ledger.apply(unsubscribe(S1, None, 5), 10) == NEWS
    assert ledger.apply(subscribe(S1, None, 4), 11) == STALE
    assert not ledger.standing
    assert ledger.apply(subscribe(S1, None, 6), 12) == NEWS
    assert ledger.standing[S1].stamp.time == 6
    ledger.check()


def test_a_higher_revision_wins_over_a_later_time() -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, 2, 1), 1)
    assert ledger.apply(unsubscribe(S1, 1, 99), 2) == OLD
    assert ledger.apply(subscribe(S1, 1, 99), 3) == OLD
    assert ledger.apply(unsubscribe(S1, 3, 0), 4) == RENEWED


def test_an_event_without_revision_speaks_about_the_revision_that_stands() -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, 5, 10), 10)
    assert ledger.apply(unsubscribe(S1, None, 9), 11) == OLD
    assert ledger.apply(unsubscribe(S1, None, 11), 12) == RENEWED
    assert ledger.apply(subscribe(S1, 4, 99), 13) == STALE
    assert ledger.apply(subscribe(S1, 6, 0), 14) == NEWS


def test_names_do_not_disturb_each_other() -> None:
    ledger = Ledger()
    other = S1._replace(client="bob")
    for one in (S1, S2, other):
        assert ledger.apply(subscribe(one, None, 1), 1) == NEWS
    ledger.apply(unsubscribe(S1, None, 2), 2)
    assert list(ledger.standing) == [S2, other]


drawn_events = st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 2), st.integers(0, 3))


@given(st.lists(drawn_events, unique_by=lambda event: event[1:], min_size=1, max_size=4), st.booleans())
def test_in_whatever_order_events_arrive_the_last_one_wins(
    drawn: list[tuple[bool, int, int, int]], revisions: bool
) -> None:
    last = max(drawn, key=lambda event: event[1:] if revisions else event[2:] + event[1:2])
    for some in permutations(drawn):
        ledger = Ledger()
        for stands, first, time, offset in some:
            stamp = Stamp(first, time, 0, offset) if revisions else Stamp(None, time, offset, first)
            ledger.apply(Subscribe(S1, SHAPE, stamp) if stands else Unsubscribe(S1, stamp), 0)
            ledger.check()
        assert (S1 in ledger.standing) == last[0]
        assert (S1 in ledger.ended) != last[0]


def test_a_clients_event_without_stamp_is_an_error() -> None:
    with pytest.raises(InvariantError):
        Ledger().apply(Subscribe(S1, SHAPE), 0)


# Time to live


def test_a_subscription_ends_when_its_time_has_passed_and_only_once() -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, None, 0, ttl=10), 0)
    ledger.apply(subscribe(S2, None, 0), 0)
    assert ledger.next_expiry == 10
    assert ledger.expire(9) == []
    assert ledger.expire(10) == [(S1, 10)]
    assert ledger.expire(11) == []
    assert list(ledger.standing) == [S2]
    assert ledger.next_expiry is None
    ledger.check()


def test_subscriptions_end_in_the_order_of_their_ends_then_of_their_names() -> None:
    ledger = Ledger()
    for k, ttl in enumerate([7, 5, 7, 6]):
        ledger.apply(subscribe(name(9 - k), None, 0, ttl=ttl), 0)
    assert ledger.expire(8) == [(name(8), 5), (name(6), 6), (name(7), 7), (name(9), 7)]


def test_a_time_to_live_counts_from_the_arrival_not_from_the_clients_time() -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, None, 10**15, ttl=10), 5)
    ledger.apply(subscribe(S2, None, 0, ttl=10), 6)
    assert ledger.expire(15) == [(S1, 15)]
    assert ledger.expire(16) == [(S2, 16)]


def test_what_has_expired_does_not_rise_by_a_repeat_but_by_a_later_event() -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, None, 1, ttl=9), 1)
    ledger.expire(10)
    assert ledger.apply(subscribe(S1, None, 1, ttl=9), 11) == STALE
    assert ledger.apply(unsubscribe(S1, None, 2), 12) == NEWS
    assert ledger.apply(subscribe(S1, None, 3, ttl=7), 13) == NEWS
    assert ledger.expire(20) == [(S1, 20)]


@pytest.mark.parametrize("ttl", [3, 8, 18, None])
def test_a_renewal_replaces_the_end(ttl: int | None) -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, None, 1, ttl=9), 1)
    ledger.apply(subscribe(S1, None, 2, ttl=ttl), 2)
    ledger.check()
    ended = [now for now in range(3, 30) if ledger.expire(now)]
    assert ended == ([] if ttl is None else [2 + ttl])
    assert (S1 in ledger.standing) == (ttl is None)


def test_a_stale_renewal_does_not_move_the_end() -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, 2, 5, ttl=9), 1)
    assert ledger.apply(subscribe(S1, 1, 9, ttl=99), 2) == OLD
    assert ledger.expire(10) == [(S1, 10)]


def test_an_unsubscribed_one_does_not_expire_as_well() -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, None, 1, ttl=9), 1)
    ledger.apply(unsubscribe(S1, None, 2), 2)
    assert ledger.expire(10) == []


def test_judging_an_event_tells_its_effect_and_changes_nothing() -> None:
    ledger = Ledger()
    for message, expected in (
        (subscribe(S1, None, 1, ttl=9), NEWS),
        (subscribe(S1, None, 2), RENEWED),
        (subscribe(S1, None, 1), OLD),
        (unsubscribe(S1, None, 3), RENEWED),
        (subscribe(S1, None, 2), STALE),
    ):
        before = dict(ledger.standing), dict(ledger.ended), ledger.next_expiry
        assert ledger.judge(message, 2) == expected
        assert (dict(ledger.standing), ledger.ended, ledger.next_expiry) == before
        assert ledger.apply(message, 5) == expected


@pytest.mark.parametrize("end", [subscribe(S1, None, 2), subscribe(S1, None, 2, ttl=50), unsubscribe(S1, None, 2)])
def test_an_end_that_was_replaced_is_no_next_expiry(end: Subscribe | Unsubscribe) -> None:
    """Otherwise the clock of a restored ledger, which does not have it, would differ."""
    ledger = Ledger()
    ledger.apply(subscribe(S1, None, 1, ttl=9), 1)
    ledger.apply(end, 2)
    restored = Ledger()
    restored.restore(dict(ledger.standing), dict(ledger.ended))
    assert ledger.next_expiry == restored.next_expiry == (52 if getattr(end, "ttl", None) else None)


def test_something_is_due_when_an_end_has_come_or_can_be_forgotten() -> None:
    ledger = Ledger(remember=100)
    assert not ledger.is_due(10**9)
    ledger.apply(subscribe(S1, None, 1, ttl=9), 1)
    assert [ledger.is_due(9), ledger.is_due(10)] == [False, True]
    ledger.expire(10)
    assert [ledger.is_due(109), ledger.is_due(110)] == [False, True]
    ledger.expire(110)
    assert not ledger.is_due(10**9)


# Remembering


def test_an_end_is_remembered_for_as_long_as_was_set_and_then_forgotten() -> None:
    ledger = Ledger(remember=100)
    ledger.apply(unsubscribe(S1, None, 5), 10)
    ledger.expire(109)
    assert ledger.apply(subscribe(S1, None, 4), 109) == STALE
    ledger.expire(110)
    assert not ledger.ended
    assert ledger.apply(subscribe(S1, None, 4), 110) == NEWS


def test_remembering_starts_anew_with_each_end_and_counts_by_the_routers_clock() -> None:
    ledger = Ledger(remember=100)
    ledger.apply(unsubscribe(S1, None, 10**15), 10)
    ledger.apply(unsubscribe(S2, None, 0), 20)
    ledger.apply(unsubscribe(S1, None, 10**15 + 1), 50)
    ledger.check()
    ledger.expire(120)
    assert list(ledger.ended) == [S1]
    ledger.expire(150)
    assert not ledger.ended


def test_ends_that_arrive_out_of_order_are_forgotten_in_order_and_none_too_early() -> None:
    """Arrivals of different channels may be out of order from one batch to the next."""
    ledger = Ledger(remember=100)
    ledger.apply(unsubscribe(S1, None, 5), 50)
    ledger.apply(unsubscribe(S2, None, 5), 20)
    ledger.check()
    ledger.expire(149)
    assert list(ledger.ended) == [S1, S2]
    ledger.expire(150)
    assert not ledger.ended


def test_the_end_of_a_time_to_live_is_remembered_too() -> None:
    ledger = Ledger(remember=100)
    ledger.apply(subscribe(S1, None, 0, ttl=10), 0)
    assert ledger.expire(30) == [(S1, 10)]
    ledger.expire(129)
    assert S1 in ledger.ended
    ledger.expire(130)
    assert not ledger.ended


def test_nothing_is_remembered_for_no_time() -> None:
    ledger = Ledger(remember=0)
    ledger.apply(unsubscribe(S1, None, 5), 10)
    assert ledger.apply(subscribe(S1, None, 4), 10) == NEWS
    ledger.apply(unsubscribe(S1, None, 5), 10)
    ledger.expire(10)
    assert not ledger.ended


Call = tuple[bool, int, int, int, bool]
calls = st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 9), st.integers(0, 3), st.booleans()))


@given(calls, st.integers(0, 4))
def test_it_makes_no_difference_when_ends_are_deleted(
    history: list[tuple[bool, int, int, int, bool]], keep: int
) -> None:
    """One ledger is told of the passing of time at random, the other one never, until the end; nothing is left then."""
    often, never = Ledger(remember=keep), Ledger(remember=keep)
    now = 0
    for offset, (stands, which, time, later_by, tells) in enumerate(history):
        now += later_by
        stamp = Stamp(None, time, 0, offset)
        message = Subscribe(name(which), SHAPE, stamp) if stands else Unsubscribe(name(which), stamp)
        if tells:
            often.expire(now)
        objections = [ledger.objection(message, now) for ledger in (often, never)]
        assert objections[0] == objections[1]
        assert often.judge(message, now) == never.judge(message, now) == often.apply(message, now)
        never.apply(message, now)
        often.check()
        never.check()
    assert often.standing == never.standing
    for ledger in (often, never):
        due = ledger.next_due
        assert (due is None) == (not ledger.ended)
        if due is not None:
            ledger.expire(due + keep + now)
            assert not ledger.ended and ledger.next_due is None


def test_ends_are_due_to_be_deleted_in_groups() -> None:
    """A grace of a sixteenth, and at least a second, so that not every event deletes one."""
    for seconds, due in ((160, 170), (0, 1)):
        ledger = Ledger(remember=seconds * module.SECOND)
        ledger.apply(unsubscribe(S1, None, 0), 0)
        ledger.apply(unsubscribe(S2, None, 0), 10 * module.SECOND)
        assert ledger.next_due == due * module.SECOND
        ledger.apply(subscribe(S1, None, 1, ttl=5), 10)
        ledger.apply(unsubscribe(S2, None, 1), 11)
        assert ledger.next_due == 15


def test_a_day_is_remembered_unless_told_otherwise() -> None:
    assert Ledger().remember == DAY == 86_400_000_000


# Stored state

Event = tuple[bool, int, int, int | None]
events = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 9), st.none() | st.integers(0, 30)))


@given(events, events)
def test_a_restored_ledger_goes_on_as_the_old_one(before: list[Event], after: list[Event]) -> None:
    old, new = Ledger(remember=5), Ledger(remember=5)

    def step(ledger: Ledger, now: int, event: Event) -> tuple[Update, list[tuple[Name, int]]]:
        stands, which, time, ttl = event
        stamp = Stamp(None, time, 0, now)
        message = Subscribe(name(which), SHAPE, stamp, ttl) if stands else Unsubscribe(name(which), stamp)
        update = ledger.apply(message, now)
        return update, ledger.expire(now)

    for now, event in enumerate(before):
        step(old, now, event)
    new.restore(dict(old.standing), dict(old.ended))
    new.check()
    for now, event in enumerate(after, len(before)):
        assert step(old, now, event) == step(new, now, event)
        assert (list(old.standing), list(old.ended)) == (list(new.standing), list(new.ended))
        new.check()
    assert old.expire(99) == new.expire(99)


@given(events, st.integers(-(10**9), 10**9))
def test_a_ledger_that_is_dated_again_is_what_it_would_have_been(history: list[Event], by: int) -> None:
    moved, twin = Ledger(remember=5), Ledger(remember=5)
    for ledger, begin in ((moved, 0), (twin, by)):
        for k, (stands, which, time, ttl) in enumerate(history):
            stamp = Stamp(None, begin + time, 0, k)
            message = Subscribe(name(which), SHAPE, stamp, ttl) if stands else Unsubscribe(name(which), stamp)
            ledger.apply(message, begin + k)
    moved.redate(by)
    moved.check()
    assert (moved.standing, moved.ended) == (twin.standing, twin.ended)
    assert moved.expire(by + 20) == twin.expire(by + 20)
    assert list(moved.ended.items()) == list(twin.ended.items())


def test_check_notices_a_ledger_that_contradicts_itself() -> None:
    stamp = Stamp(None, 0, 0, 0)
    ledger = Ledger()
    ledger.restore({S1: Standing(stamp, None)}, {S1: Ended(stamp, 0)})
    with pytest.raises(InvariantError):
        ledger.check()
    ledger.restore({}, {S1: Ended(stamp, 5), S2: Ended(stamp, 4)})
    with pytest.raises(InvariantError):
        ledger.check()
    ledger.restore({}, {})
    ledger.standing[S1] = Standing(stamp, 7)
    with pytest.raises(InvariantError):
        ledger.check()


# Refusing

NOW = 1_777_636_800_000_000


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        (subscribe(S1, 7, NOW - 5, offset=3), "stale"),
        (unsubscribe(S1, 7, NOW), "stale"),
        (unsubscribe(S1, None, NOW - 1), "stale"),
        (subscribe(S1, 8, NOW, offset=3), None),
        (subscribe(S1, None, NOW, offset=0), None),
        (subscribe(S1, 9, NOW - 5), None),
        (subscribe(S1, NOW + DAY, NOW), None),
        (unsubscribe(S1, NOW + DAY + 10, NOW), "rev"),
        (subscribe(S2, 2**63 - 1, NOW), "rev"),
        (subscribe(S2, None, NOW + DAY + 10), "time"),
        (subscribe(S2, None, NOW + DAY), None),
        (unsubscribe(S2, None, NOW), None),
    ],
)
def test_what_is_stale_or_far_ahead_is_refused_and_the_same_event_again_is_not(
    message: Subscribe | Unsubscribe, rule: str | None
) -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, 8, NOW, offset=3), NOW)
    objection = ledger.objection(message, NOW + 5)
    assert (objection and objection.rule) == rule


def test_a_stale_event_is_told_what_stands() -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, 8, NOW), NOW)
    ledger.apply(unsubscribe(S1, 9, NOW), NOW)
    objection = ledger.objection(subscribe(S1, 7, NOW + 1), NOW + 5)
    assert objection is not None
    assert objection.message == (
        "rev 7 of 2026-05-01T12:00:00.000001Z is not later than rev 9 of 2026-05-01T12:00:00Z, by which it was ended"
    )
    assert ledger.objection(unsubscribe(S1, 9, NOW), NOW + 5) is None


def test_a_standing_revision_far_ahead_may_be_followed_by_the_next() -> None:
    ledger = Ledger()
    ledger.apply(subscribe(S1, 2**62, NOW), NOW)
    assert ledger.objection(unsubscribe(S1, 2**62 + 1, NOW), NOW) is None


# Portions


def test_many_that_end_at_once_end_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PORTION", 2)
    ledger = Ledger()
    names = [name(f"s{k}") for k in range(5)]
    for one in names:
        ledger.apply(subscribe(one, None, 1, ttl=9), 1)
    assert not any(ledger.is_over(one, 9) for one in names)
    assert all(ledger.is_over(one, 10) for one in names)
    assert [len(ledger.expire(10)) for _ in range(4)] == [2, 2, 1, 0]


def test_many_ends_are_forgotten_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORGOTTEN", 2)
    ledger = Ledger(remember=10)
    for k in range(5):
        ledger.apply(unsubscribe(name(f"s{k}"), None, 1), 1)
    left = []
    for _ in range(4):
        ledger.expire(11)
        left.append(len(ledger.ended))
    assert left == [3, 1, 0, 0]
    assert not ledger.is_due(11)


def test_renewals_leave_no_crowd_of_old_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PORTION", 2)
    ledger = Ledger()
    for k in range(100):
        ledger.apply(subscribe(S1, None, k, ttl=1000), k)
    assert len(ledger._ends) <= 4
    ledger.check()
    assert ledger.next_expiry == 1099


# Limits


def of(client: str, id: str) -> Name:
    return Name("hub", client, id)


def refusal(ledger: Ledger, message: Subscribe | Unsubscribe) -> str | None:
    found = ledger.objection(message, 1_000)
    if found is None:
        ledger.apply(message, 1_000)
        ledger.check()
    return None if found is None else found.rule


def test_a_client_has_no_more_subscriptions_than_it_may_and_others_are_not_concerned() -> None:
    ledger = Ledger(limits=Limits(subscriptions_per_client=2))
    asked = [subscribe(of("ann", f"s{k}"), None, k) for k in range(4)]
    assert [refusal(ledger, one) for one in asked] == [None, None, "quota", "quota"]
    assert refusal(ledger, subscribe(of("bob", "s9"), None, 9)) is None
    assert refusal(ledger, subscribe(of("ann", "s1"), None, 10)) is None, "a replacement is not one more"
    assert refusal(ledger, asked[0]) is None, "nor is the same event again"
    assert refusal(ledger, unsubscribe(of("ann", "s0"), None, 11)) is None
    assert refusal(ledger, subscribe(of("ann", "s3"), None, 12)) is None, "there is room again"
    assert refusal(ledger, subscribe(of("ann", "s4"), None, 13)) == "quota"


def test_time_makes_room_and_a_restored_ledger_counts_the_same() -> None:
    ledger = Ledger(limits=Limits(subscriptions_per_client=1))
    assert refusal(ledger, subscribe(of("ann", "s1"), None, 1, ttl=5)) is None
    again = Ledger(limits=ledger.limits)
    again.restore(dict(ledger.standing), dict(ledger.ended))
    again.check()
    assert refusal(again, subscribe(of("ann", "s2"), None, 2)) == "quota"
    again.expire(2_000)
    assert refusal(again, subscribe(of("ann", "s2"), None, 2)) is None


def test_a_subscription_has_no_more_boxes_than_it_may() -> None:
    ledger = Ledger(limits=Limits(boxes_per_subscription=1))
    two = Subscribe(S1, (Box((0,), (1,)), Box((5,), (6,))), Stamp(None, 1, 0, 0), None)
    found = ledger.objection(two, 1_000)
    assert found is not None and found.rule == "quota" and "2 boxes; a subscription may have 1" in found.message
    assert refusal(ledger, subscribe(S1, None, 1)) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.booleans()), max_size=40))
def test_no_history_of_events_goes_beyond_the_limit(history: list[tuple[str, int, bool]]) -> None:
    ledger = Ledger(limits=Limits(subscriptions_per_client=3))
    for time, (client, number, asks) in enumerate(history):
        name = of(client, f"s{number}")
        refusal(ledger, subscribe(name, None, time) if asks else unsubscribe(name, None, time))
        stands = [name.client for name in ledger.standing]
        assert all(stands.count(each) <= 3 for each in "abc")
