"""Repeats among deliveries are recognised: by the highest number of each (epoch, channel), also after a restart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.deliveries import MOST_METADATA, Repeats, bookmark_id
from state.errors import ConfigError

Number = tuple[int, str, int]


def taken(repeats: Repeats, *numbers: Number) -> list[Number]:
    new = []
    for number in numbers:
        if not repeats.has(*number):
            repeats.mark(*number)
            new.append(number)
    return new


def test_what_comes_again_after_a_crash_is_a_repeat() -> None:
    first = [(7, "oslo", 1), (7, "oslo", 4), (7, "oslo", 5)]
    again = [(7, "oslo", 4), (7, "oslo", 5), (7, "oslo", 9)]
    assert taken(Repeats(), *first, *again) == [*first, (7, "oslo", 9)]


def test_channels_and_epochs_are_numbered_apart() -> None:
    numbers = [(7, "oslo", 5), (7, "rome", 1), (8, "oslo", 1), (7, "rome", 2)]
    assert taken(Repeats(), *numbers) == numbers


@given(st.data())
def test_each_delivery_once_whatever_was_replayed(data: st.DataObject) -> None:
    """A log is written in batches; after a crash a batch begins again, having been written up to any point."""
    log: list[Number] = []
    once: list[Number] = []
    number = {"oslo": 0, "rome": 0}
    for _ in range(data.draw(st.integers(1, 8))):
        batch: list[Number] = []
        for channel, step in data.draw(st.lists(st.tuples(st.sampled_from(["oslo", "rome"]), st.integers(1, 3)))):
            number[channel] += step
            batch.append((1, channel, number[channel]))
        for _ in range(data.draw(st.integers(0, 2))):
            log += batch[: data.draw(st.integers(0, len(batch)))]
        log += batch
        once += batch
    cut = data.draw(st.integers(0, len(log)))
    before = Repeats()
    got = taken(before, *log[:cut])
    got += taken(Repeats.parse(before.text()), *log[cut:])
    assert [n for n in got if n[1] == "oslo"] == [n for n in once if n[1] == "oslo"]
    assert [n for n in got if n[1] == "rome"] == [n for n in once if n[1] == "rome"]


def test_too_many_marks_leave_out_those_heard_of_first() -> None:
    repeats = Repeats()
    for k in range(1000):
        repeats.mark(1, f"a broker with a långt name {k}", k + 1)
    repeats.mark(1, "a broker with a långt name 0", 5)
    text = repeats.text()
    assert len(text.encode()) <= MOST_METADATA
    kept = Repeats.parse(text)
    assert kept.has(1, "a broker with a långt name 0", 5)
    assert kept.has(1, "a broker with a långt name 999", 1000)
    assert not kept.has(1, "a broker with a långt name 1", 2)


@pytest.mark.parametrize("text", ["", "by hand", "{}", "[[1]]", '[["1", "oslo", 2]]'])
def test_marks_that_someone_else_wrote_are_none(text: str) -> None:
    assert not Repeats.parse(text).has(1, "oslo", 1)


def test_progress_belongs_to_one_client() -> None:
    assert bookmark_id("lacuna", "a", "b/c") != bookmark_id("lacuna", "a.b", "c")
    with pytest.raises(ConfigError, match="bookmark = 'a/b'"):
        bookmark_id("lacuna", "a/b", "c")
