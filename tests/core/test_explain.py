"""`lacuna explain`: the chain of decisions from files and from the lake, the proofs, the picture."""

from __future__ import annotations

import json
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from lacuna.__main__ import main
from lacuna.analysis import drawing
from lacuna.analysis.certificates import coverers_at, coverers_now
from lacuna.analysis.decision_log import Source, active_after, active_at, name_of, shape_of, standing
from lacuna.analysis.drawing import Picture
from lacuna.analysis.story import sentence
from lacuna.analysis.wording import range_in_words
from lacuna.simulate import Simulation, Writer
from state.config import Config, parse
from state.geometry.boxes import Boxes
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.routing.told import Told
from streaming.schemas import schemas_of
from tests.core import naive
from tests.core.histories import BOX_TABLES, configs, events
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


def decisions_schema() -> pa.Schema:
    return schemas_of(config().space)["decisions"]


def simulated(capsys: pytest.CaptureFixture[str], text: str, *told: dict[str, Any]) -> None:
    """Run events of client ann at broker a, if they do not say otherwise."""
    Path("lacuna.toml").write_text(text)
    given = ({"kind": "subscribe", "broker": "a", "client": "ann"} | event for event in told)
    Path("events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in given))
    assert main(["simulate", "events.jsonl", "--out", "out"]) == 0
    capsys.readouterr()


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["explain", *args, "--from", "out"]) == 0
    return " ".join(capsys.readouterr().out.split())


def cancel(id: str, **more: Any) -> dict[str, Any]:
    return {"kind": "unsubscribe", "id": id} | more


def write_lake(folder: Path) -> None:
    """The tables of a router that took the events one by one."""
    shell = Shell(config())
    for event in lines():
        shell.send(event)
        shell.settle()
    for table in ("decisions", "subscriptions"):
        rows = pa.Table.from_pylist(shell.tables()[table], schema=schemas_of(config().space)[table])
        for begin in (0, 3):  # two files, the later part first in the log
            write_deltalake(str(folder / table), rows.slice(3 - begin, None if begin == 0 else 3), mode="append")


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
    assert (first["reason"], first["change"]) == ("gap", "unsubscribe")


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
        write_deltalake("lake/decisions", pa.Table.from_pylist([row], schema=decisions_schema()), mode="append")
    read = Source(config()).decisions(broker="a", link="b")
    assert [(row["subscription"], row["action"]) for row in read] == [(r["subscription"], r["action"]) for r in made]


def test_lives_are_told_apart(here: Path) -> None:
    """Batches are counted from 0 in each life. One that begins from the topics, below -1, decides everything again."""
    shell = Shell(config())
    for event in lines():
        shell.send(event)
    shell.run_batch()
    first = [row for row in shell.tables()["decisions"] if row["broker"] == "a"]
    goes_on = [row | {"epoch": 8, "batch": 0, "seq": 0} for row in first[:1]]
    anew = [row | {"epoch": 9, "batch": -2, "seq": 0} for row in first[1:2]]
    table = "lake/decisions"
    write_deltalake(table, pa.Table.from_pylist([*goes_on, *first], schema=decisions_schema()))
    read = Source(config()).decisions(broker="a", link="b")
    assert [row["epoch"] for row in read] == [7] * len(first) + [8]
    write_deltalake(table, pa.Table.from_pylist(anew, schema=decisions_schema()), mode="append")
    read = Source(config()).decisions(broker="a", link="b")
    assert [(row["epoch"], row["subscription"]) for row in read] == [(9, first[1]["subscription"])]


def test_a_table_without_the_order_within_a_batch_is_read_as_found(here: Path) -> None:
    shell = Shell(config())
    for event in lines():
        shell.send(event)
    shell.run_batch()
    rows = pa.Table.from_pylist(shell.tables()["decisions"], schema=decisions_schema()).drop(["seq"])
    write_deltalake("lake/decisions", rows)
    read = Source(config()).decisions(broker="a", link="b")
    assert [row["action"] for row in read] == ["forward", "forward", "withhold", "forward", "promote", "cancel"]


def test_the_files_of_a_seeded_run_are_read_as_they_stand(here: Path) -> None:
    """With a seed an earlier line may have its effect after a later one: `batch` is no order."""
    told = [{**event, "broker": "ab"[k % 2]} for k, event in enumerate(lines()[:4])]
    Path("events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in told))
    turned = False
    for seed in range(8):
        assert main(["simulate", "events.jsonl", "--out", "out", "--seed", str(seed)]) == 0
        rows = Source(config(), here / "out").decisions(broker="b", link="c")
        assert [row["seq"] for row in rows] == sorted({row["seq"] for row in rows})
        turned |= [row["batch"] for row in rows] != [1, 2, 3, 4]
    assert turned


def test_the_lake_tells_the_same_as_the_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lake(here / "lake")
    from_files = explained(capsys, "middle", "--client", "bob", "--from", "out")
    from_lake = explained(capsys, "middle", "--client", "bob")
    for told in (from_files, from_lake):
        for row in (*told["changes"], *(row for step in told["links"] for row in (step, *step["history"]))):
            row.pop("time")
            row.pop("batch")
        for one in told["sentences"]:
            one.pop("time")
    assert from_lake == from_files
    assert Source(config()).decisions(subscription="left") != []


def test_a_person_reads_who_covers_and_where_the_gap_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "middle", "--client", "bob", "--from", "out"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "middle of bob at a asks for x 3 to 7, y 2 to 4 and colour blue" in text
    story = "a>b told: b knows it", "line 3 left of ann and right of ann together covered it."
    promoted = "line 5 right of ann was cancelled. Nobody covers x 6 to 7, y 2 to 4 and colour blue."
    places = [text.index(said) for said in (*story, promoted, "b>c told: c knows it")]
    assert places == sorted(places), "the decisions of one link stand before the next link"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["middle"], "2 subscriptions have this id. Remedy: say which: --client bob --broker a, --client cat"),
        (["middle", "--client", "zoe"], "(it is recorded for bob at a, cat at a). Remedy"),
        (["nothing"], "no such subscription is recorded in out. Remedy"),
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
    (at,) = picture.points
    assert picture._cut(picture._witness, at).tolist() == [[[6, 2], [8, 5]]]
    assert picture.subscription(at).tolist() == [[[3, 2], [8, 5]]]
    drawn = naive.union(picture.uncovered(at))
    assert drawn == {(x, y) for x in range(6, 10) for y in range(10)}, "the one of cat is red; the slice is blue"
    assert naive.union(picture.gap(at)) == {(x, y) for x in (6, 7) for y in (2, 3, 4)}, "what is asked for, of that"


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


def test_a_broker_without_neighbours_has_nothing_to_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    alone = '[space]\nx = {kind = "int", low = 0, high = 99}\n[overlay]\nbrokers = ["a"]\nlinks = []\n'
    simulated(capsys, alone, {"id": "s", "where": "x < 9"}, cancel("s"))
    said = (
        "s of ann at a asked for x < 9; it was cancelled (line 2) └── a has no neighbours, so nothing had to be decided"
    )
    assert shown(capsys, "s") == said
    changes = explained(capsys, "s", "--from", "out")["changes"]
    assert [(row["change"], row["filter"]) for row in changes] == [("subscribe", "x < 9"), ("unsubscribe", None)]
    assert main(["explain", "s", "--from", "out", "--draw", "s.png"]) == 2
    assert "its broker has no neighbours. Remedy" in capsys.readouterr().err


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("action", ["forward", "withhold", "promote", "cancel", "drop"])
def test_each_reason_is_told_in_a_sentence(reason: Reason, action: str) -> None:
    """Also one that a broker never gives for this action: what is recorded is told."""
    name = {"home": "a", "client": "ann", "subscription": "s"}
    row = {**name, "action": action, "reason": str(reason), "origin": "b", "coverers": [], "witness": None}
    row |= {"bound": None, "strategy": "union", "shape": None, "cause": name, "change": "replace"}
    said = sentence(config().space, row)
    assert said.endswith(".") and "{" not in said and said == said.strip()


@pytest.mark.parametrize(
    ("cause", "change", "said"),
    [
        ("t", "unsubscribe", "t of bob was cancelled."),
        ("t", "expire", "t of bob expired."),
        ("t", "replace", "t of bob was replaced."),
        ("other", "subscribe", "t of bob was taken back."),
    ],
)
def test_a_promotion_tells_what_became_of_the_one_that_covered_it(cause: str, change: str, said: str) -> None:
    names = {id: {"home": "a", "client": "bob", "subscription": id} for id in ("t", "other")}
    row = {"home": "a", "client": "ann", "subscription": "s", "action": "promote", "reason": "gap", "shape": None}
    row |= {"trigger": names["t"], "cause": names[cause], "change": change, "witness": {"x": [1, 2]}, "coverers": []}
    assert sentence(config().space, row | {"bound": None}) == f"{said} Nobody covers x 1 to 2."


def test_of_an_early_version_only_the_ids_of_coverers_are_told() -> None:
    row = {"home": "a", "client": "ann", "subscription": "s", "action": "withhold", "reason": "covered by several"}
    row |= {"coverers": ["s1", "s2"], "witness": None, "bound": None, "shape": None}
    assert sentence(config().space, row) == "s1 and s2 together cover it."
    row |= {"action": "promote", "reason": "s1 was cancelled: gap", "coverers": []}
    assert sentence(config().space, row) == "s1 was cancelled. Nobody covers it."


@pytest.mark.parametrize(
    ("name", "ends", "said"),
    [
        ("price", [20.000000000000004, 25.0], "above 20 and up to 25"),
        ("price", [20.000000000000004, 29.999999999999996], "above 20 and below 30"),
        ("price", [10.0, 20.0], "10 to 20"),
        ("price", [0.0, 20.0], "up to 20"),
        ("price", [20.5, 100.0], "at least 20.5"),
        ("price", [20.000000000000004, 100.0], "above 20"),
        ("price", [7.0, 7.0], "7"),
        ("x", [0, 9], "anything"),
        ("colour", ["blue", "red"], "blue or red"),
        ("seen", ["2026-01-01T00:00:00Z", "2026-05-01T00:00:00Z"], "up to 2026-05-01T00:00:00Z"),
    ],
)
def test_a_range_is_told_as_people_say_it(name: str, ends: list[Any], said: str) -> None:
    (attribute,) = (a for a in config().space.attributes if a.name == name)
    assert range_in_words(attribute, ends) == said


# What is true now

PLAIN = """
[space]
x = {kind = "int", low = 0, high = 99}
y = {kind = "int", low = 0, high = 99}
[overlay]
links = [["a", "b"], ["b", "c"]]
"""


def asks(id: str, x: tuple[int, int], **more: Any) -> dict[str, Any]:
    return {"id": id, "where": {"x": list(x)}} | more


def test_a_coverer_that_is_gone_is_not_named_as_one_that_covers_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The link has found another proof. An earlier version wrote no row about that."""
    monkeypatch.chdir(tmp_path)
    simulated(capsys, PLAIN, asks("s1", (0, 50)), asks("s2", (40, 99)), asks("s3", (45, 48)), cancel("s1"))
    (step,) = explained(capsys, "s3", "--from", "out")["links"]
    assert (step["reason"], step["coverers"], step["coverers_now"]) == ("covered anew", ["s2"], ["s2"])
    file = Path("out/decisions.jsonl")
    file.write_text("".join(line for line in file.open() if "covered anew" not in line))
    (step,) = explained(capsys, "s3", "--from", "out")["links"]
    assert (step["state"], step["coverers"], step["coverers_now"]) == ("withheld", ["s1"], ["s2"])
    now = "s1 of ann covered it. They do not all stand any more; now s2 of ann covers it."
    assert f"a>b withheld: b need not know it line 3 {now}" in shown(capsys, "s3")
    told = explained(capsys, "s2", "--from", "out")["links"][0]
    assert (told["state"], told["coverers_now"]) == ("told", [])


def test_while_the_proof_stands_it_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    simulated(capsys, PLAIN, asks("s1", (0, 50)), asks("s3", (45, 48)), asks("s2", (40, 99)))
    (step,) = explained(capsys, "s3", "--from", "out")["links"]
    assert step["coverers_now"] == step["coverers"] == ["s1"]
    assert "withheld: b need not know it line 2 s1 of ann covers it." in shown(capsys, "s3")


def test_a_coverer_of_another_shape_is_not_the_proof_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    simulated(capsys, PLAIN, asks("s1", (0, 50)), asks("s2", (40, 99)), asks("s3", (45, 48)), asks("s1", (0, 9)))
    assert explained(capsys, "s3", "--from", "out")["links"][0]["coverers_now"] == ["s2"]


def test_what_was_dropped_is_shown_as_it_was_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody has to cover it any more, so nothing is computed from what is active now."""
    monkeypatch.chdir(tmp_path)
    simulated(capsys, PLAIN, asks("s1", (0, 50)), asks("s3", (45, 48)), cancel("s3"), cancel("s1"))
    rows = Source(parse(PLAIN), Path("out")).decisions(broker="a", link="b")
    (place,) = [k for k, row in enumerate(rows) if row["action"] == "withhold"]
    then = coverers_now(parse(PLAIN).space, rows, place)
    assert [name.id for name in then.names or ()] == ["s1"] and not then.recomputed


MANY = ", ".join(f'"v{k:02}"' for k in range(20))
SOME = [f"v{k:02}" for k in range(0, 20, 2)]
CATEGORIES = "\n".join(
    [
        "[space]",
        *(f'{name} = {{kind = "category", values = [{MANY}]}}' for name in "cd"),
        '[overlay]\nlinks = [["a", "b"]]',
    ]
)


def test_a_shape_that_was_not_recorded_is_not_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A subscription is replaced by one of a hundred boxes, which are not written out."""
    monkeypatch.chdir(tmp_path)
    simulated(capsys, CATEGORIES, {"id": "s", "where": {}}, {"id": "s", "where": {"c": SOME, "d": SOME}})
    assert explained(capsys, "s", "--from", "out")["shape"] is None
    many = json.dumps({"c": SOME, "d": SOME}, separators=(",", ":"))
    said = shown(capsys, "s").replace(" ", "")
    assert f"sofannataasksfor{many}" in said, "as the client wrote it"
    Path("out/subscriptions.jsonl").unlink()
    assert "s of ann at a asks for a filter that was not recorded" in shown(capsys, "s")
    assert main(["explain", "s", "--from", "out", "--draw", "s.png"]) == 2
    assert "its filter was not recorded on a>b. Remedy" in capsys.readouterr().err


def test_whoever_covers_it_now_is_named_although_its_shape_was_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wide, narrow = {"id": "wide", "where": {}}, {"id": "narrow", "where": {"c": ["v00"], "d": ["v00"]}}
    simulated(capsys, CATEGORIES, wide, narrow, {"id": "many", "where": {"c": SOME, "d": SOME}}, cancel("wide"))
    (step,) = explained(capsys, "narrow", "--from", "out")["links"]
    assert (step["state"], step["coverers"], step["coverers_now"]) == ("withheld", ["many"], ["many"])
    assert "wide of ann was cancelled. many of ann still covers it." in shown(capsys, "narrow")


def test_beyond_a_link_that_took_it_back_nobody_says_that_the_client_unsubscribed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = asks("wide", (0, 50)), asks("s", (60, 70)), asks("s", (10, 20))
    simulated(capsys, PLAIN, *changes)
    first, second = explained(capsys, "s", "--from", "out")["links"]
    assert (first["state"], second["state"]) == ("withheld", "cancelled")
    cause = {"home": "a", "client": "ann", "subscription": "s"}
    assert (second["reason"], second["cause"]) == ("taken back", cause)
    assert (
        "c was told to forget it line 2 Nobody covered any of it. line 3 It was replaced, and a took it back."
        in shown(capsys, "s")
    )
    simulated(capsys, PLAIN, *changes, asks("s", (60, 70)), cancel("s"))
    second = explained(capsys, "s", "--from", "out")["links"][1]
    assert [row["reason"] for row in second["history"]] == ["gap", "taken back", "gap", "unsubscribed"]
    assert "line 5 The client cancelled it." in shown(capsys, "s")


def test_whoever_caused_it_is_named_beyond_a_link_that_took_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under active covering, a later subscription of another client takes it back."""
    monkeypatch.chdir(tmp_path)
    text = PLAIN + '[routing]\nstrategy = {name = "union", covering = "active"}\n'
    simulated(capsys, text, asks("s", (10, 20)), asks("wide", (0, 50), client="bob"))
    first, second = explained(capsys, "s", "--from", "out")["links"]
    wide = {"home": "a", "client": "bob", "subscription": "wide"}
    assert (first["state"], first["reason"], first["covered_by"]) == ("withheld", "covered by a later one", [wide])
    assert (first["cause"], second["cause"]) == (wide, wide)
    text = shown(capsys, "s")
    assert "b need not know it line 1 Nobody covered any of it. line 2" in text
    assert "line 2 wide of bob, which came later, covers it." in text
    assert "a took it back when wide of bob was subscribed." in text


def test_a_subscription_that_expired_is_called_so_on_every_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    early, late = ({"time": f"2026-01-01T00:00:0{second}Z"} for second in (0, 9))
    simulated(capsys, PLAIN, asks("s", (10, 20), ttl=5) | early, asks("t", (90, 95)) | late)
    links = explained(capsys, "s", "--from", "out")["links"]
    assert [(link["state"], link["reason"]) for link in links] == [("cancelled", "expired")] * 2
    assert links[1]["time"] == "2026-01-01T00:00:05Z", "the moment at which it was due"


def test_under_mics_a_smaller_replacement_is_still_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cancel there only takes ranges back; its shape is not recorded with it."""
    monkeypatch.chdir(tmp_path)
    text = PLAIN + '[routing]\nstrategy = "mics"\n'
    simulated(capsys, text, asks("s", (0, 63)), asks("s", (0, 15)))
    told = explained(capsys, "s", "--from", "out")
    assert [(step["action"], step["state"]) for step in told["links"]] == [("cancel", "told"), ("cancel", "told")]
    assert told["shape"] is None
    rows = Source(parse(text), Path("out")).decisions(origin="local")
    assert standing(parse(text).space, rows) == {}, "it stands, but in which shape is not known"
    simulated(capsys, text, asks("s", (0, 63)), asks("s", (0, 15)), cancel("s"))
    assert [step["state"] for step in explained(capsys, "s", "--from", "out")["links"]] == ["cancelled", "cancelled"]


def test_under_mics_there_may_be_nothing_to_draw_beyond_the_first_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PLAIN + '[routing]\nstrategy = "mics"\n'
    simulated(capsys, text, asks("wide", (0, 63), broker="b"), asks("s", (0, 15)))
    assert main(["explain", "s", "--from", "out", "--draw", "s.png", "--link", "b>c"]) == 2
    assert "was not recorded on b>c" in capsys.readouterr().err


@pytest.mark.parametrize("id", ["[/bold]", "[red]x", "s[1]", ":x:", "$\\foo$"])
def test_ids_are_shown_as_they_are(
    id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    simulated(capsys, PLAIN, asks(id, (0, 9), client="[/x]"), asks("inner", (1, 2)))
    assert f"{id} of [/x] at a asks for x up to 9" in shown(capsys, id, "--draw", "p.png")
    assert f"{id} of [/x] covers it." in shown(capsys, "inner", "--draw", "p.png")


# Pictures of what is true


def drawn(monkeypatch: pytest.MonkeyPatch, *args: str) -> tuple[Picture, dict[str, Any]]:
    """The picture that a command draws, and what it was made from."""
    made: list[tuple[Picture, dict[str, Any]]] = []

    class Seen(Picture):
        def __init__(self, space: Any, axes: Any, row: Any, active: Any, coverers: Any, **more: Any) -> None:
            super().__init__(space, axes, row, active, coverers, **more)
            made.append((self, {"axes": axes, "active": active, "coverers": coverers, **more}))

    monkeypatch.setattr(drawing, "Picture", Seen)
    assert main(["explain", *args, "--from", "out", "--draw", "p.PNG"]) == 0
    return made[0]


def test_the_picture_shows_who_covers_it_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    simulated(capsys, PLAIN, asks("s1", (0, 50)), asks("s2", (40, 99)), asks("s3", (45, 48)), cancel("s1"))
    picture, made = drawn(monkeypatch, "s3")
    assert made["coverers"] == (Name("a", "ann", "s2"),)
    assert "s1 of ann was cancelled. s2 of ann still covers it." in picture._title("")
    assert Path("p.PNG").read_bytes().startswith(b"\x89PNG")


def test_of_two_with_one_id_that_one_is_the_coverer_which_covers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    far, near = asks("s1", (60, 90), client="bob"), asks("s1", (15, 40), client="cat")
    simulated(capsys, PLAIN, asks("s1", (0, 50)), far, asks("t", (10, 20)))
    assert drawn(monkeypatch, "t")[1]["coverers"] == (Name("a", "ann", "s1"),)
    simulated(capsys, PLAIN, near | {"where": {"x": [30, 60]}}, asks("s1", (0, 50)), far, asks("t", (10, 35)))
    assert drawn(monkeypatch, "t")[1]["coverers"] == (Name("a", "ann", "s1"),), (
        "the other one meets it, and is not needed"
    )


def test_one_attribute_is_drawn_as_bars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = '[space]\nx = {kind = "int", low = 0, high = 99}\n[overlay]\nlinks = [["a", "b"]]\n'
    simulated(capsys, line, asks("s1", (0, 50)), asks("s2", (40, 80)), asks("s3", (30, 60)))
    picture, made = drawn(monkeypatch, "s3")
    assert made["axes"] == (0,)
    assert picture.uncovered(picture.points[0]).tolist() == [[[81], [100]]]
    assert picture.gap(picture.points[0]).tolist() == []
    assert main(["explain", "s1", "--from", "out", "--draw", "p.svg", "--attributes", "x", "x"]) == 2


CUBE = """
[space]
x = {kind = "int", low = 0, high = 99}
y = {kind = "int", low = 0, high = 99}
z = {kind = "int", low = 0, high = 19}
colour = {kind = "category", values = ["blue", "green", "red"]}
[overlay]
links = [["a", "b"]]
"""


def boxed(id: str, **where: Any) -> dict[str, Any]:
    return {"id": id, "where": where}


def test_every_coverer_is_in_a_panel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those that the slice through the low corner does not meet: one panel a colour, and one where `top` is."""
    monkeypatch.chdir(tmp_path)
    told = [boxed("low", z=[0, 4], colour=["blue", "red"]), boxed("top", z=[5, 19], colour=["blue", "red"])]
    told += [boxed("apart", colour=["green"]), boxed("asked", x=[10, 20], y=[30, 50], colour=["blue", "red"])]
    simulated(capsys, CUBE, *told)
    picture, made = drawn(monkeypatch, "asked")
    assert made["axes"] == (0, 1), "the narrowest"
    assert [name.id for name in made["coverers"]] == ["low", "top"]
    assert [(at[2], at[3]) for at in picture.points] == [(0, 0), (0, 2), (5, 0)]
    assert picture.hidden() == []
    (view,) = picture._views(picture.points[0])
    (left, right), (bottom, top) = view.sides
    assert 5 < left < 10 and 20 < right < 25 and 20 < bottom < 30 and 50 < top < 60, "zoomed to what is asked for"


def test_a_small_gap_is_enlarged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told = boxed("left", x=[0, 48]), boxed("right", x=[50, 99]), boxed("asked", x=[10, 90], y=[10, 90])
    simulated(capsys, PLAIN, *told)
    picture, _ = drawn(monkeypatch, "asked")
    (at,) = picture.points
    assert picture.gap(at).tolist() == [[[49, 10], [50, 91]]]
    whole, enlarged = picture._views(at)
    (low, high), _ = enlarged.sides
    assert 40 < low <= 48 and 51 <= high < 60
    assert [picture._where(at, view) for view in (whole, enlarged)] == ["", "the gap enlarged"]


def test_too_many_slices_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    slices = [boxed(f"s{z}", z=[z, z]) for z in range(20)]
    simulated(capsys, CUBE, *slices, boxed("asked", x=[10, 20], y=[30, 50]))
    picture, made = drawn(monkeypatch, "asked")
    assert len(made["coverers"]) == 20 and len(picture.points) == drawing.MOST_PANELS
    assert f"{len(picture.hidden())} of those that cover it reach other slices." in picture._title("", 1000)
    assert len(picture.hidden()) == 10, "two of twelve panels are of the other colours"


# Against the region itself


def run_interleaved(config: Config, history: list[dict[str, Any]], folder: Path, seed: int) -> Simulation:
    with ExitStack() as stack:
        simulation = Simulation(config, Writer(folder, config.space, stack))
        simulation.interleaved((json.dumps(event).encode() for event in history), seed)
    return simulation


@settings(max_examples=60)
@given(st.data())
def test_the_rows_of_an_interleaved_run_tell_what_is_active_and_who_covers_the_rest(data: st.DataObject) -> None:
    """What the rows say about each link at the end is what the link itself holds."""
    config = data.draw(configs(BOX_TABLES))
    history = data.draw(events(config.overlay.brokers, most=30))
    with tempfile.TemporaryDirectory() as folder:
        simulation = run_interleaved(config, history, Path(folder), data.draw(st.integers(0, 99)))
        source = Source(config, Path(folder))
        for broker in simulation.region.brokers.values():
            for name, link in broker.links.items():
                assert isinstance(link.told, Told)
                same_as_told(config, source.decisions(broker=broker.name, link=name), link.told)


def same_as_told(config: Config, rows: list[dict[str, Any]], told: Told) -> None:
    active = active_after(config.space, rows)
    assert active == {name: told.active.boxes(name) for name in told.active}
    last = {name_of(row): place for place, row in enumerate(rows)}
    assert {name for name, place in last.items() if rows[place]["action"] == "withhold"} == told.passive.keys()
    for name, entry in told.passive.items():
        found = coverers_now(config.space, rows, last[name])
        assert found.names is not None
        assert set(found.names) <= set(told.active)
        assert cells(entry.boxes) <= set().union(*(cells(told.active.boxes(other)) for other in found.names))
        then = coverers_at(config.space, rows, last[name])
        assert {other.id for other in then.names or ()} <= set(rows[last[name]]["coverers"])
        assert cells(entry.boxes) <= set().union(*(cells(then.active[other] or ()) for other in then.names or ()))


def cells(boxes: Boxes) -> naive.Cells:
    return naive.union(box.keys() for box in boxes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--where", "x < 5", "--draw", "p.png"), "--draw: with --where it has no effect"),
        (("--where", "x < 5", "--client", "ann"), "--client: with --where it has no effect"),
        (("s1", "--link", "a>b"), "--link: it says what to draw, and nothing is drawn"),
    ],
)
def test_an_option_without_effect_is_said(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "lacuna.toml"
    config.write_text('[space]\nx = {kind = "int", low = 0, high = 9}\n[overlay]\nlinks = [["a", "b"]]\n')
    assert main(["explain", *words, "--config", str(config)]) == 2
    assert said in capsys.readouterr().err
