"""The control log: one holder at every offset, whoever sleeps between reading and writing; lives judged the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.protocol.commands import Apply
from state.protocol.control import (
    TICK,
    Beat,
    Claim,
    Declined,
    Life,
    Lives,
    Ordered,
    Prefix,
    Record,
    count_since,
    fold,
    life_key,
    write,
)


@dataclass
class Log:
    """The topic, as a list."""

    records: list[Record] = field(default_factory=list)

    def append(self, key: str, value: Claim | Life | Beat | Declined | bytes) -> int:
        offset = len(self.records)
        content = value if isinstance(value, bytes) else write(value)
        self.records.append(Record(offset, 1000 * offset, key.encode(), content))
        return offset

    @property
    def prefix(self) -> Prefix:
        return fold(self.records)


@dataclass
class Process:
    """A router that may sleep for ever between any two of its steps: it acts on what it read last."""

    name: str
    seen: Prefix = field(default_factory=Prefix)
    term: int | None = None
    claims: set[int | None] = field(default_factory=set)

    def look(self, log: Log) -> None:
        self.seen = log.prefix
        self.term = self.seen.term if self.seen.term in self.claims else None

    def claim(self, log: Log) -> None:
        self.claims.add(log.append(f"claim/{self.name}{len(log.records)}", Claim(self.seen.term, self.name, "c")))

    def tick(self, log: Log, released: bool) -> None:
        if self.term is not None:
            log.append(TICK, Beat(self.term, 1, released=released))

    def announce(self, log: Log) -> None:
        if self.term is not None:
            newest = self.seen.lives.newest
            life = Life(self.term, 1 if newest is None else newest.epoch + 1, self.name)
            log.append(life_key(life), life)


GARBAGE = [("tick", b""), ("tick", b"{"), ("claim/x", b'{"after": 1}'), ("life/9", b"[]"), ("other", b"x"), ("", b"")]
STEPS = ("look", "look", "claim", "tick", "release", "announce", "garbage")


def history(data: st.DataObject) -> tuple[Log, list[Process]]:
    log, processes = Log(), [Process(name) for name in "abc"]
    for _ in range(data.draw(st.integers(0, 40))):
        process, step = data.draw(st.sampled_from(processes)), data.draw(st.sampled_from(STEPS))
        if step == "look":
            process.look(log)
        elif step == "claim":
            process.claim(log)
        elif step == "announce":
            process.announce(log)
        elif step == "garbage":
            log.append(*data.draw(st.sampled_from(GARBAGE)))
        else:
            process.tick(log, released=step == "release")
    return log, processes


@given(st.data())
def test_a_log_is_read_on_where_it_was_left(data: st.DataObject) -> None:
    """Folding in two parts is folding at once, and the next record is the one behind the last."""
    log, _ = history(data)
    cut = data.draw(st.integers(0, len(log.records)))
    before = fold(log.records[:cut])
    assert fold(log.records[cut:], before) == log.prefix
    assert log.prefix.next == (log.records[-1].offset + 1 if log.records else 0)


@given(st.data())
def test_there_is_one_holder_at_every_offset(data: st.DataObject) -> None:
    """Whoever finds its own claim to be valid is the only one until the log says otherwise, for everybody."""
    log, processes = history(data)
    for process in processes:
        process.look(log)
    holders = [process for process in processes if process.term is not None]
    assert len(holders) <= 1
    prefix = log.prefix
    assert [process.name for process in holders] == ([] if prefix.claim is None else [prefix.claim.who])


@given(st.data())
def test_lives_and_ticks_are_those_of_the_holder_of_their_moment(data: st.DataObject) -> None:
    log, _ = history(data)
    for cut in range(len(log.records) + 1):
        before, after = fold(log.records[:cut]), fold(log.records[: cut + 1])
        if after.lives != before.lives:
            assert after.lives.announced[:-1] == before.lives.announced
            assert after.lives.announced[-1].term == before.term
        if after.beat != before.beat:
            assert after.beat is not None and after.beat.term == before.term
        if after.term != before.term:
            assert after.claim is not None and after.claim.after == before.term
            assert before.term is None or (after.term is not None and after.term > before.term)
        assert log.prefix.lives.before(cut) == before.lives
    epochs = [life.epoch for life in log.prefix.lives.announced]
    assert epochs == sorted(set(epochs))


@given(st.data())
def test_a_log_may_be_read_in_parts_and_compacted(data: st.DataObject) -> None:
    log, _ = history(data)
    whole, cut = log.prefix, data.draw(st.integers(0, len(log.records)))
    assert fold(log.records[cut:], fold(log.records[:cut])) == whole
    last = {record.key: record.offset for record in log.records}
    compacted = [record for record in log.records if last[record.key] == record.offset or record.key != b"tick"]
    kept = fold(compacted)
    assert (kept.claim, kept.term, kept.lives) == (whole.claim, whole.term, whole.lives)
    if kept.beat is not None:
        assert kept.beat == whole.beat


def test_a_claim_is_void_unless_it_follows_the_valid_one() -> None:
    log = Log()
    first = log.append("claim/a", Claim(None, "a", "c"))
    assert log.prefix.claim == Claim(None, "a", "c") and log.prefix.since == 1000 * first
    log.append("claim/b", Claim(None, "b", "c"))
    second = log.append("claim/c", Claim(first, "c", "c"))
    log.append("claim/d", Claim(first, "d", "c"))
    assert (log.prefix.claim, log.prefix.term) == (Claim(first, "c", "c"), second)


def test_a_prefix_is_released_by_its_holder_alone() -> None:
    log = Log()
    assert log.prefix.is_released
    first = log.append("claim/a", Claim(None, "a", "c"))
    assert not log.prefix.is_released
    log.append(TICK, Beat(first, 1))
    log.append(TICK, Beat(first + 7, 1, released=True))
    assert not log.prefix.is_released
    log.append(TICK, Beat(first, 1, released=True))
    assert log.prefix.is_released
    log.append("claim/b", Claim(first, "b", "c"))
    assert not log.prefix.is_released


def test_a_command_to_begin_a_life_waits_until_it_is_done() -> None:
    log = Log()
    first = log.append("claim/a", Claim(None, "a", "c"))
    log.append("command/1", b'{"command": "rebuild"}')
    assert log.prefix.asked is None
    offset = log.append("command/2", b'{"command": "apply", "source": "topics"}')
    assert log.prefix.asked == Ordered(offset, Apply("topics"))
    log.append("life/1", Life(first, 1, "apply"))
    assert log.prefix.asked is None
    log.append("command/3", b'{"command": "apply"}')
    log.append("claim/b", Claim(first, "b", "c"))
    assert log.prefix.asked is None, "it was for the holder before"


def test_a_command_that_is_declined_waits_no_longer() -> None:
    log = Log()
    term = log.append("claim/a", Claim(None, "a", "c"))
    offset = log.append("command/1", b'{"command": "apply"}')
    log.append(f"declined/{offset}", Declined(term + 7, offset, ["not by another"]))
    assert log.prefix.asked is not None and log.prefix.declined is None
    said = Declined(term, offset, ["a broker has subscriptions. Remedy: --move"])
    log.append(f"declined/{offset}", said)
    assert log.prefix.asked is None and log.prefix.declined == said
    later = log.append("command/2", b'{"command": "apply"}')
    log.append(f"declined/{offset}", said)
    assert log.prefix.asked is not None and log.prefix.asked.offset == later


ENDS = {"links": {"0": 10}, "records": {"0": 20, "1": 5}}
LIVES = Lives((Life(0, 3, "first"), Life(1, 4, "apply", ENDS), Life(1, 8, "apply", {"links": {"0": 30}})))


@pytest.mark.parametrize(
    ("epoch", "topic", "partition", "offset", "judgement"),
    [
        (3, "links", 0, 0, "valid"),
        (3, "links", 0, 9, "valid"),
        (3, "links", 0, 10, "void"),
        (3, "links", 1, 0, "void"),
        (3, "records", 1, 4, "valid"),
        (3, "records", 1, 5, "void"),
        (4, "links", 0, 9, "foreign"),
        (4, "links", 0, 10, "valid"),
        (4, "links", 0, 30, "void"),
        (8, "links", 0, 30, "valid"),
        (8, "links", 0, 10**9, "valid"),
        (5, "links", 0, 12, "foreign"),
        (9, "links", 0, 31, "foreign"),
        (-1, "links", 0, 31, "foreign"),
    ],
)
def test_a_record_is_judged_by_its_epoch_and_position(
    epoch: int, topic: str, partition: int, offset: int, judgement: str
) -> None:
    assert LIVES.judge(epoch, topic, partition, offset) == judgement
    assert Lives().judge(epoch, topic, partition, offset) == "valid"


def test_records_are_counted_from_the_beginning_of_a_life() -> None:
    assert count_since(LIVES.announced[1], "records", {0: 21, 1: 9, 2: 2}) == 1 + 4 + 2
    assert count_since(None, "records", {0: 21, 1: 9}) == 30
