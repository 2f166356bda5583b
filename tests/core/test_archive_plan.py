"""The archive's plan: each frame is taken once, in whatever batches, order and number of copies it comes."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.config import Config, parse
from state.errors import StateError
from state.protocol.channel import Sender
from state.protocol.control import Life, Lives
from state.protocol.frame import START, VERSION, body_of_rows
from state.storage.tables import TABLES, made_columns
from streaming.archive import Filled, MarkFiles, Marks, foreign_rows, make_plan
from streaming.lake import Head, unframe
from streaming.schemas import stream_of, table_of
from streaming.settings import Settings, settle

TEXT = """
[space]
x = { kind = "int", low = 0, high = 9 }
[overlay]
links = [["oslo", "paris"]]
[kafka]
bootstrap = "%s"
prefix = "%s"
[lake]
path = "%s/lake"
checkpoint = "%s/checkpoint"
"""


SPACE = parse(TEXT % ("localhost:1", "lacuna", ".", ".")).space


def config_at(folder: object, bootstrap: str = "localhost:1", prefix: str = "lacuna") -> Config:
    return parse(TEXT % (bootstrap, prefix, folder, folder))


def settings_at(folder: object, epoch: int = 7, **kafka: str) -> Settings:
    return settle(config_at(folder, **kafka), epoch, 2)


def columns_of(table: str, rows: int, chance: random.Random) -> dict[str, list[Any]]:
    """Rows for a table, as columns; now and then a value is null."""
    made: dict[str, list[Any]] = {}
    for column in made_columns(table):
        draw = {
            "int": lambda: chance.randrange(-(2**60), 2**60),
            "float": lambda: chance.uniform(-1e9, 1e9),
            "text": lambda: chance.choice(["", "ann", "Øyvind \N{SNOWMAN}", "a" * 50]) + str(chance.randrange(10**6)),
            "time": lambda: chance.randrange(0, 2**51),
            "json": lambda: {"x": [chance.randrange(99), 99]},
            "name": lambda: {"home": "b", "client": "ann", "subscription": f"s{chance.randrange(99)}"},
            "texts": lambda: [f"s{chance.randrange(99)}" for _ in range(chance.randrange(3))],
            "names": lambda: [{"home": "b", "client": "c", "subscription": "s"}] * chance.randrange(3),
            "point": lambda: (chance.randrange(10),),
            "boxes": lambda: [{"x": {"low": 1, "high": chance.randrange(1, 9)}}] * chance.randrange(3),
        }[column.kind]
        never = column.always or column.kind == "point"
        made[column.name] = [None if not never and chance.random() < 0.05 else draw() for _ in range(rows)]
    return made | ({"point": np.array(made["point"]).reshape(-1, 1)} if "point" in made else {})


@pytest.mark.parametrize("count", [1, 1000])
def test_rows_are_read_as_they_were_written_and_only_many_are_compressed(count: int) -> None:
    stream = stream_of(SPACE, "rejects", columns_of("rejects", 1, random.Random(1)))
    columns = {name: values * count for name, values in columns_of("rejects", 1, random.Random(1)).items()}
    many = stream_of(SPACE, "rejects", columns)
    assert table_of(many).to_pylist() == table_of(stream).to_pylist() * count
    assert (len(many) < table_of(many).nbytes / 10) == (count > 1)


def value_of(epoch: int, channel: str, number: int, table: str, rows: int, seed: int = 0) -> bytes:
    """The value of a record: a frame whose rows depend on nothing but these."""
    chance = random.Random(f"{epoch} {channel} {number} {table} {rows} {seed}")
    return frame_of(epoch, channel, number, table, rows, stream_of(SPACE, table, columns_of(table, rows, chance)))


CHECKSUMS: dict[tuple[int, str, int], bytes] = {}
"""The checksum of each frame that was made last, so that the next one on its channel follows it."""


def frame_of(epoch: int, channel: str, number: int, table: str, rows: int, stream: bytes) -> bytes:
    sender = Sender(channel, epoch, number - 1, CHECKSUMS.get((epoch, channel, number - 1), START))
    frame = sender.frame("rows", body_of_rows(table, rows, stream), 3)
    CHECKSUMS[epoch, channel, number] = sender.checksum
    return frame


def head(place: int, channel: str, number: int, epoch: int = 7, table: str = "routes", rows: int = 1) -> Head:
    return Head(0, place, epoch, channel, number, table, rows)


@st.composite
def logs(draw: st.DrawFn) -> list[Head]:
    """A topic of three partitions: channels in order, but any run may be told again from any earlier number on."""
    log = []
    for partition in range(draw(st.integers(1, 3))):
        channels = [(epoch, f"b{partition}>{name}") for epoch in (7, 8) for name in "xy"]
        told = dict.fromkeys(channels, 0)
        for offset in range(draw(st.integers(0, 12))):
            epoch, channel = draw(st.sampled_from(channels))
            number = draw(st.integers(1, told[epoch, channel] + 1))
            told[epoch, channel] = max(number, told[epoch, channel])
            table = list(TABLES)[hash((epoch, number)) % len(TABLES)]
            log.append(Head(partition, offset, epoch, channel, number, table, number % 4))
    return log


@given(logs(), st.lists(st.floats(0, 1), max_size=4), st.randoms(use_true_random=False))
def test_each_frame_is_taken_once(log: list[Head], cuts: list[float], chance: random.Random) -> None:
    """Cut anywhere (a partition stays in order), shuffled inside a batch, planned twice: the first copy is taken."""
    marks, taken = Marks("life"), Counter[Any]()
    first: dict[Any, Any] = {}
    for item in log:
        first.setdefault((item.epoch, item.channel, item.number), item.place)
    batches = [[item for item in log if cut(item, log, low) and not cut(item, log, high)] for low, high in ends(cuts)]
    for heads in batches:
        plan = make_plan(marks, heads)
        again = make_plan(marks, chance.sample(heads, len(heads)))
        assert again == plan
        new = [item for item in heads if item.place not in plan.skipped]
        taken.update((item.epoch, item.channel, item.number, item.place) for item in new)
        assert plan.rows == {table: sum(i.rows for i in new if i.table == table) for table in TABLES}
        assert plan.after.batch == marks.batch + 1
        marks = plan.after
    assert taken == Counter((*key, place) for key, place in first.items())
    assert marks.offsets == {str(item.partition): item.offset + 1 for item in log}
    rows = {table: sum(i.rows for i in log if i.place in first.values() and i.table == table) for table in TABLES}
    assert {table: filled.rows for table, filled in marks.tables.items()} == {t: n for t, n in rows.items() if n}


def ends(cuts: list[float]) -> list[tuple[float, float]]:
    edges = [0.0, *sorted(cuts), 2.0]
    return list(pairwise(edges))


def cut(item: Head, log: list[Head], edge: float) -> bool:
    """Whether a record is at or beyond an edge, which is a fraction of its partition."""
    length = sum(other.partition == item.partition for other in log)
    return item.offset >= edge * length


def test_a_gap_stops() -> None:
    before = make_plan(Marks("life"), [head(0, "a>b", 1)]).after
    with pytest.raises(
        StateError,
        match=r"a>b of epoch 7 jumps from frame 1 to 3 .*offset 5.*rows are missing.* Remedy: .*rebuild --force",
    ):
        make_plan(before, [head(5, "a>b", 3)])
    over = make_plan(before, [head(5, "a>b", 3), head(6, "a>b", 4)], over_gaps=True)
    assert over.skipped == frozenset() and over.after.channels == {"7": {"a>b": 4}}
    with pytest.raises(StateError, match="epoch 8 jumps from frame 0 to 2"):
        make_plan(before, [head(1, "a>b", 2), head(2, "a>b", 2, epoch=8)])


def test_epochs_are_channels_of_their_own() -> None:
    plan = make_plan(Marks("life"), [head(0, "a>b", 1), head(1, "a>b", 2), head(2, "a>b", 1, epoch=8)])
    assert plan.after.channels == {"7": {"a>b": 2}, "8": {"a>b": 1}}
    assert not plan.skipped


LATER = bytearray(frame_of(7, "b", 1, "routes", 1, b""))
LATER[2] = VERSION + 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (bytes(LATER), f"the frame has version {VERSION + 1}, this program knows {VERSION}"),
        (frame_of(7, "b", 1, "gossip", 1, b""), "a table 'gossip'"),
    ],
)
def test_what_a_later_version_wrote_stops(value: bytes, words: str) -> None:
    head, _ = unframe(2, 33, value)
    with pytest.raises(StateError, match=rf"record 33 in partition 2 .*{words}.*Remedy: "):
        make_plan(Marks("life"), [head])


@pytest.mark.parametrize(
    "value",
    [
        *(b"{}", b"", None, b"LF", msgspec.msgpack.encode([9, {"quite": "other"}])),
        frame_of(7, "b", 1, "routes", 1, b"")[:-3],
        Sender("b", 7).frame("letter", b"", 0),
    ],
)
def test_a_foreign_record_is_a_reject_and_the_others_are_taken(value: bytes | None) -> None:
    foreign, stream = unframe(0, 1, value)
    assert foreign.foreign and foreign.fault and not stream and foreign.value == (value or b"")
    plan = make_plan(Marks("life", foreign=2), [head(0, "b", 1), foreign, head(2, "b", 2)])
    assert plan.foreign == (foreign,) and plan.after.foreign == 3 and plan.skipped == {(0, 1)}
    assert plan.after.channels == {"7": {"b": 2}} and plan.after.offsets == {"0": 3}
    assert plan.rows == dict.fromkeys(TABLES, 0) | {"routes": 2, "rejects": 1}
    [row] = table_of(foreign_rows(plan.foreign, "lacuna.records", SPACE, 4)[0].rows).to_pylist()
    assert (row["topic"], row["partition"], row["offset"], row["rule"]) == ("lacuna.records", 0, 1, "foreign")
    assert (row["epoch"], row["batch"], row["seq"]) == (0, 4, 0), "of no life, in the archive's own batch"
    assert row["message"] == foreign.fault and row["value"] == (value or b"").decode(errors="replace")


# Lives

LIVES = Lives((Life(0, 7, "first"), Life(0, 8, "apply", {"records": {"0": 3}})), (10, 20))


def test_a_zombie_is_ignored_and_an_unknown_epoch_is_a_reject() -> None:
    heads = [head(0, "b", 1), head(3, "b", 2), head(4, "b", 1, epoch=8), head(5, "b", 1, epoch=9), head(6, "b", 9)]
    plan = make_plan(Marks("life"), heads, LIVES, 30)
    assert plan.skipped == {(0, 3), (0, 5), (0, 6)}
    assert [(item.epoch, item.fault) for item in plan.foreign] == [(9, "epoch 9 was not announced here")]
    assert plan.after.channels == {"7": {"b": 1}, "8": {"b": 1}} and plan.after.control == 30


def test_a_frame_that_does_not_follow_the_last_one_is_a_reject() -> None:
    first = head(0, "b", 1)._replace(checksum=b"1")
    second = head(1, "b", 2)._replace(previous=b"1", checksum=b"2")
    before = make_plan(Marks("life"), [first, second]).after
    assert before.checksums == {"7": {"b": b"2".hex()}}
    other = [second._replace(offset=2, checksum=b"x"), head(3, "b", 3)._replace(previous=b"x", checksum=b"y")]
    third = head(5, "b", 3)._replace(previous=b"2", checksum=b"3")
    plan = make_plan(before, [*other, second._replace(offset=4), third])
    assert [item.offset for item in plan.foreign] == [2, 3]
    assert plan.after.channels == {"7": {"b": 3}} and plan.rows["routes"] == 1
    old = Marks("life", channels={"7": {"b": 2}})
    assert make_plan(old, [head(5, "b", 3)._replace(previous=b"2")]).rows["routes"] == 1, "marks without checksums"


def test_a_damaged_frame_shows_as_a_gap() -> None:
    damaged, _ = unframe(0, 0, frame_of(7, "b", 1, "routes", 1, b"")[:-1])
    with pytest.raises(StateError, match="jumps from frame 0 to 2"):
        make_plan(Marks("life"), [damaged, head(1, "b", 2)])


def test_a_frame_comes_apart() -> None:
    head, stream = unframe(1, 2, value_of(7, "a>b", 4, "metrics", 5))
    assert head._replace(previous=START, checksum=START) == Head(1, 2, 7, "a>b", 4, "metrics", 5, None)
    assert head.checksum == CHECKSUMS[7, "a>b", 4] and len(stream) > 100


# Marks


def some_marks(batch: int) -> Marks:
    channels = {"7": {"a>b": batch + 1, "Å>ø": 2}, "1794856507940000": {"a>b": 1}}
    return Marks("life", batch, channels, {"0": 9}, {"routes": Filled(batch, 5)})


def test_marks_come_back_and_the_oldest_go(tmp_path: Any) -> None:
    files = MarkFiles(f"{tmp_path}/marks")
    assert files.numbers() == []
    for batch in range(130):
        assert not files.has(batch)
        files.put(some_marks(batch))
    assert files.has(129)
    assert files.numbers() == list(range(30, 130))
    assert files.get(129) == some_marks(129)
    assert [path.name for path in tmp_path.joinpath("marks").iterdir() if path.suffix != ".json"] == []


def test_damaged_marks_are_refused(tmp_path: Any) -> None:
    files = MarkFiles(str(tmp_path))
    files.put(some_marks(3))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(
        StateError, match=r"000003\.json: marks of the archive are missing or damaged.*Remedy: .*lacuna archive rebuild"
    ):
        files.get(3)
    with pytest.raises(StateError, match=r"000004\.json: marks of the archive are missing"):
        files.get(4)
    file.write_bytes(msgspec.json.encode({"life": "x", "batch": 3, "format": 2}))
    with pytest.raises(StateError, match=r"does not know \(format 2"):
        files.get(3)


# Topics that have lost their beginning


def test_a_new_archive_begins_where_the_topic_begins() -> None:
    """Each channel of such a partition begins with the first frame that is found, and has no gap after that."""
    before = Marks("life", begins={"0": 40})
    plan = make_plan(before, [head(40, "a", 5), head(41, "a", 6), head(42, "b", 9)])
    assert plan.after.channels == {"7": {"a": 6, "b": 9}} and plan.after.begins == {"0": 40}
    later = make_plan(plan.after, [head(43, "a", 6), head(44, "c", 3), head(45, "c", 4)])
    assert later.after.channels == {"7": {"a": 6, "b": 9, "c": 4}} and later.skipped == {(0, 43)}
    with pytest.raises(StateError, match="jumps from frame 6 to 8"):
        make_plan(plan.after, [head(43, "a", 8)])


def test_a_partition_that_is_whole_begins_with_the_first_frame() -> None:
    with pytest.raises(StateError, match="jumps from frame 0 to 2"):
        make_plan(Marks("life", begins={"1": 40}), [head(0, "a", 2)])
