"""Each message of a channel is applied exactly once, in order; a gap or a newer epoch stops the job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.errors import InvariantError
from state.protocol.channel import Inbox, Mark


def test_messages_in_order_are_all_applied() -> None:
    inbox = Inbox()
    assert all(inbox.take("oslo", 7, number) for number in range(1, 6))
    assert inbox.marks == {"oslo": Mark(7, 5)}


@given(st.lists(st.integers(1, 6)))
def test_whatever_is_repeated_each_message_is_applied_once(repeats: list[int]) -> None:
    inbox = Inbox()
    applied, last = [], 0
    for back in repeats:
        last += 1
        for number in range(max(1, last - back), last + 1):
            if inbox.take("oslo", 1, number):
                applied.append(number)
    assert applied == list(range(1, last + 1))


@pytest.mark.parametrize(("last", "number"), [(0, 2), (1, 3), (5, 99)])
def test_a_gap_stops_and_changes_nothing(last: int, number: int) -> None:
    inbox = Inbox({"oslo": Mark(1, last)})
    with pytest.raises(InvariantError, match=f"jumps from message {last} to {number}.*Remedy"):
        inbox.take("oslo", 1, number)
    assert inbox.marks == {"oslo": Mark(1, last)}


def test_a_channel_begins_with_message_one() -> None:
    with pytest.raises(InvariantError, match="jumps"):
        Inbox().take("oslo", 1, 2)
    assert Inbox().take("oslo", 1, 1)


@pytest.mark.parametrize("number", [1, 5, 6, 99])
def test_a_newer_epoch_stops_whatever_the_number(number: int) -> None:
    inbox = Inbox({"oslo": Mark(7, 5)})
    with pytest.raises(InvariantError, match=r"in epoch 8, this state in 7.*Remedy"):
        inbox.take("oslo", 8, number)
    assert inbox.marks == {"oslo": Mark(7, 5)}


@pytest.mark.parametrize("number", [1, 5, 6, 99])
def test_a_leftover_of_an_older_epoch_is_ignored_whatever_the_number(number: int) -> None:
    inbox = Inbox({"oslo": Mark(7, 5)})
    assert not inbox.take("oslo", 6, number)
    assert inbox.marks == {"oslo": Mark(7, 5)}
    assert inbox.take("oslo", 7, 6)


def test_the_receivers_own_epoch_judges_the_first_message_too() -> None:
    inbox = Inbox()
    assert not inbox.take("oslo", 6, 3, own=7)
    assert inbox.marks == {}
    with pytest.raises(InvariantError, match="epoch"):
        inbox.take("oslo", 8, 1, own=7)
    with pytest.raises(InvariantError, match="jumps"):
        inbox.take("oslo", 7, 2, own=7)
    assert inbox.take("oslo", 7, 1, own=7)


def test_senders_count_apart() -> None:
    inbox = Inbox()
    assert inbox.take("oslo", 1, 1)
    assert inbox.take("rome", 2, 1)
    assert inbox.take("oslo", 1, 2)
    assert not inbox.take("rome", 2, 1)
    assert inbox.marks == {"oslo": Mark(1, 2), "rome": Mark(2, 1)}


def test_two_inboxes_share_nothing() -> None:
    Inbox().take("oslo", 1, 1)
    assert Inbox().marks == {}


def test_a_run_is_applied_at_once() -> None:
    inbox = Inbox()
    inbox.take_run("oslo", 1, 1, 4)
    inbox.take_run("oslo", 1, 5, 1)
    assert inbox.marks == {"oslo": Mark(1, 5)}
    assert inbox.take("oslo", 1, 6)


def test_a_run_that_begins_with_a_repeat_or_after_a_gap_stops() -> None:
    inbox = Inbox({"oslo": Mark(1, 4)})
    with pytest.raises(InvariantError, match="came twice"):
        inbox.take_run("oslo", 1, 4, 3)
    with pytest.raises(InvariantError, match="jumps"):
        inbox.take_run("oslo", 1, 6, 3)
    with pytest.raises(InvariantError, match="epoch"):
        inbox.take_run("oslo", 2, 5, 3)
    assert inbox.marks == {"oslo": Mark(1, 4)}
