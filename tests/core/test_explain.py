"""`lacuna explain`: the chain of decisions from files and from the lake, the proofs, the picture."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lacuna.__main__ import main
from lacuna.drawing import Picture
from lacuna.history import Source, active_at, name_of, shape_of, standing
from state.config import Config, parse
from state.messages import Name
from streaming.schemas import SCHEMAS
from tests.core import naive
from tests.core.shell import Shell

CONFIG = """
[space]
x = {kind = "int", low = 0, high = 9}
y = {kind = "int", low = 0, high = 9}
price = {kind = "float", low = 0.0, high = 100.0}
colour = {kind = "category", values = ["blue", "red"]}
seen = {kind = "timestamp", low = "2026-01-01T00:00:00Z", high = "2027-01-01T00:00:00Z"}
[overlay]
links = [["a", "b"], ["b", "c"]]
"""
EVENTS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("ann", "left", {"x": [0, 5]}),
    ("ann", "right", {"x": [5, 9], "colour": ["blue"]}),
    ("bob", "middle", {"x": [3, 7], "y": [2, 4], "colour": ["blue"]}),
    ("cat", "middle", {"colour": ["red"], "y": [0, 1]}),
    ("ann", "right", None),
]
BOB = Name("a", "bob", "middle")


def lines() -> list[dict[str, Any]]:
    told = []
    for client, id, where in EVENTS:
        event: dict[str, Any] = {"kind": "subscribe", "broker": "a", "client": client, "id": id, "where": where}
        told.append(event if where is not None else {**event, "kind": "unsubscribe"})
        if where is None:
            del told[-1]["where"]
    return told


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("lacuna.toml").write_text(CONFIG)
    Path("events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in lines()))
    assert main(["simulate", "events.jsonl", "--out", "out"]) == 0
    capsys.readouterr()
    return tmp_path


def explained(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["explain", *args, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def config() -> Config:
    return parse(CONFIG)


def write_lake(folder: Path) -> None:
    """The tables of a router that took the events one by one."""
    shell = Shell(config())
    for event in lines():
        shell.send(event)
        shell.settle()
    rows = pa.Table.from_pylist(shell.tables()["decisions"], schema=SCHEMAS["decisions"])
    for begin in (0, 3):  # two files, the later part first in the log
        write_deltalake(str(folder / "decisions"), rows.slice(3 - begin, None if begin == 0 else 3), mode="append")


def test_the_chain_goes_link_by_link_with_its_reasons(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = explained(capsys, "middle", "--client", "bob", "--from", "out")
    assert (told["subscription"], told["client"], told["broker"]) == ("middle", "bob", "a")
    assert told["shape"] == [{"x": [3, 7], "y": [2, 4], "colour": ["blue"]}]
    first, second = told["links"]
    assert [(step["broker"], step["link"], step["depth"], step["state"]) for step in (first, second)] == [
        ("a", "b", 0, "told"),
        ("b", "c", 1, "told"),
    ]
    assert [row["action"] for row in first["history"]] == ["withhold", "promote"]
    assert set(first["history"][0]["coverers"]) == {"left", "right"}
    assert first["witness"]["x"] == [6, 7]
    assert first["reason"] == "right was cancelled: gap"


def test_the_lake_is_read_in_the_order_of_the_decisions(here: Path) -> None:
    """All in one batch, a file a row, in any order."""
    shell = Shell(config())
    for event in lines():
        shell.send(event)
    shell.run_batch()
    made = [row for row in shell.tables()["decisions"] if row["broker"] == "a"]
    assert [row["action"] for row in made] == ["forward", "forward", "withhold", "forward", "promote", "cancel"]
    assert len({row["batch"] for row in made}) == 1
    for row in random.Random(3).sample(made, len(made)):
        write_deltalake("lake/decisions", pa.Table.from_pylist([row], schema=SCHEMAS["decisions"]), mode="append")
    read = Source(config()).decisions(broker="a", link="b")
    assert [(row["subscription"], row["action"]) for row in read] == [(r["subscription"], r["action"]) for r in made]


def test_a_table_without_the_order_within_a_batch_is_read_as_found(here: Path) -> None:
    shell = Shell(config())
    for event in lines():
        shell.send(event)
    shell.run_batch()
    rows = pa.Table.from_pylist(shell.tables()["decisions"], schema=SCHEMAS["decisions"]).drop(["seq"])
    write_deltalake("lake/decisions", rows)
    read = Source(config()).decisions(broker="a", link="b")
    assert [row["action"] for row in read] == ["forward", "forward", "withhold", "forward", "promote", "cancel"]


def test_the_lake_tells_the_same_as_the_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lake(here / "lake")
    from_files = explained(capsys, "middle", "--client", "bob", "--from", "out")
    from_lake = explained(capsys, "middle", "--client", "bob")
    for told in (from_files, from_lake):
        for step in told["links"]:
            for row in (step, *step["history"]):
                row.pop("time")
                row.pop("batch")
    assert from_lake == from_files
    assert Source(config()).decisions(subscription="left") != []


def test_a_person_reads_who_covers_and_where_the_gap_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "middle", "--client", "bob", "--from", "out"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "middle of bob at a asks for x 3 to 7 and y 2 to 4 and colour in blue" in text
    assert "batch 3: withhold: covered by several: left, right" in text
    assert "a>b told: right was cancelled: gap: nobody covers x 6 to 7 and y 2 to 4 and colour in blue" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["middle"], "2 subscriptions have this id. Remedy: say which: --client bob --broker a, --client cat"),
        (["middle", "--client", "zoe"], "(it is recorded for bob at a, cat at a). Remedy"),
        (["nothing"], "no decision about such a subscription is recorded in out. Remedy"),
        (["left", "--draw", "x.pdf"], "--draw x.pdf: a drawing is a .png or .svg file. Remedy"),
        (["left", "--draw", "x.png", "--link", "c>b"], "--link c>b: nothing was decided there. Remedy: choose one of"),
        (["left", "--draw", "x.png", "--attributes", "x", "z"], "--attributes z: no such attribute. Remedy"),
        (["left", "--draw", "x.png", "--attributes", "x", "x"], "needs two different attributes"),
    ],
)
def test_one_clear_message(args: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *args, "--from", "out"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_without_tables_the_remedy_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "left"]) == 2
    assert "lake.path = 'lake': there is no table decisions. Remedy" in capsys.readouterr().err
    assert main(["explain", "left", "--from", "nowhere"]) == 2
    assert "there is no decisions.jsonl in it. Remedy" in capsys.readouterr().err


def test_what_was_active_at_a_decision_is_the_sum_of_the_rows_before_it(here: Path) -> None:
    """A promotion stands before the cancel that it makes good for, and was decided without it."""
    space = config().space
    rows = Source(config(), here / "out").decisions(broker="a", link="b")
    assert [row["action"] for row in rows] == ["forward", "forward", "withhold", "forward", "promote", "cancel"]
    ids = [{name.id for name in active_at(space, rows, place)} for place in range(5)]
    assert ids == [set(), {"left"}, {"left", "right"}, {"left", "right"}, {"left", "middle"}]
    assert {name_of(row).client for row in rows if row["subscription"] == "middle"} == {"bob", "cat"}
    assert {name.id for name in standing(space, rows)} == {"left", "middle"}
    assert shape_of(space, rows[-1]) is None


def test_the_picture_shows_the_slice_through_the_witness(here: Path) -> None:
    space = config().space
    rows = Source(config(), here / "out").decisions(broker="a", link="b")
    picture = Picture(space, (0, 1), rows[4], active_at(space, rows, 4))
    assert picture._witness.tolist() == [[[6, 2], [8, 5]]]
    assert picture._subscription.tolist() == [[[3, 2], [8, 5]]]
    drawn = naive.union(picture.negative())
    assert drawn == {(x, y) for x in range(6, 10) for y in range(10)}, "the one of cat is red; the slice is blue"


@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize("attributes", [["x", "y"], ["price", "colour"], ["seen", "x"]])
def test_a_picture_is_drawn(suffix: str, attributes: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("middle", "--client", "bob", "--from", "out", "--draw", f"p.{suffix}", "--attributes", *attributes)
    assert explained(capsys, *args, "--link", "a>b")["drawing"] == f"p.{suffix}"
    content = Path(f"p.{suffix}").read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    if suffix == "svg":
        explained(capsys, *args)
        assert Path("p.svg").stat().st_size > 1000


def test_the_files_of_a_seeded_run_are_read_as_they_stand(here: Path) -> None:
    """With a seed an earlier line may have its effect after a later one: `batch` is no order."""
    told = [{**event, "broker": "ab"[k % 2]} for k, event in enumerate(lines()[:4])]
    Path("events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in told))
    turned = False
    for seed in range(8):
        assert main(["simulate", "events.jsonl", "--out", "out", "--seed", str(seed)]) == 0
        rows = Source(config(), here / "out").decisions(broker="b", link="c")
        assert [row["seq"] for row in rows] == list(range(4))
        turned |= [row["batch"] for row in rows] != [1, 2, 3, 4]
    assert turned
