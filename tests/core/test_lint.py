"""`lacuna lint`: what is wrong with or redundant among subscriptions, before they are sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lacuna.__main__ import main
from lacuna.analysis.lint import Linter
from state.config import parse
from tests.core import naive
from tests.core.histories import config_text, wheres

CONFIG = config_text([("b0", "b1")], '"auto"')


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("lacuna.toml").write_text(CONFIG)
    return tmp_path


def line(id: str, where: Any, broker: str = "b0", **more: Any) -> str:
    return json.dumps({"kind": "subscribe", "broker": broker, "client": "ann", "id": id, "where": where} | more)


def cancel(id: str, broker: str = "b0", **more: Any) -> str:
    return json.dumps({"kind": "unsubscribe", "broker": broker, "client": "ann", "id": id, **more})


def linted(capsys: pytest.CaptureFixture[str], *lines: str, args: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    Path("f.jsonl").write_text("\n".join(lines) + "\n")
    code = main(["lint", "f.jsonl", "--json", *args])
    return code, dict(json.loads(capsys.readouterr().out))


def brief(report: dict[str, Any]) -> list[tuple[int, str, list[str]]]:
    return [(f["line"], f["finding"], [by["id"] for by in f["by"]]) for f in report["findings"]]


def test_each_finding(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = linted(
        capsys,
        line("inverted", {"x": [5, 2]}),
        line("none", {"colour": []}),
        line("unknown", {"z": [0, 1]}),
        "not json",
        line("left", {"x": [0, 4]}),
        line("right", {"x": [4, 7]}),
        line("twin", {"x": [4, 7]}),
        line("inner", {"x": [1, 2]}),
        line("middle", {"x": [3, 5], "y": [1, 2]}),
        line("elsewhere", {"x": [1, 2]}, "b1"),
        line("changed", {"y": [0, 0]}),
        line("changed", {"y": [7, 7], "x": [7, 7]}, rev=2),
        json.dumps({"kind": "publish", "broker": "b0", "id": "p", "at": {"x": 1, "y": 1, "colour": "red"}}),
    )
    assert code == 1
    assert brief(report) == [
        (1, "empty", []),
        (2, "empty", []),
        (3, "rejected", []),
        (4, "rejected", []),
        (7, "duplicate", ["right"]),
        (8, "covered by one", ["left"]),
        (9, "covered by several", ["left", "right"]),
        (11, "replaced", []),
        (12, "covered by one", ["right"]),
    ]
    assert (report["subscriptions"], report["empty"], report["covered_by_several"]) == (12, 2, 1)


def test_nothing_found_is_exit_code_0(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = linted(capsys, line("a", {"x": [0, 4]}), line("b", {"x": [3, 7]}))
    assert (code, report["findings"]) == (0, [])
    assert main(["lint", "f.jsonl"]) == 0
    assert "2 subscriptions; nothing found" in capsys.readouterr().out
    assert main(["lint", "missing.jsonl"]) == 2


def test_what_a_later_line_cancels_counts_for_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = linted(capsys, line("wide", {}), line("small", {"x": [1, 1]}), cancel("wide"))
    assert code == 0


def test_kind_and_broker_may_be_left_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = [json.dumps({"id": id, "client": "ann", "where": {}}) for id in ("a", "b")]
    code, report = linted(capsys, *plain, args=("--broker", "b1"))
    assert (code, brief(report)) == (1, [(2, "duplicate", ["a"])])
    assert report["findings"][0]["broker"] == "b1"
    code, report = linted(capsys, *plain)
    assert report["rejected"] == 2


def test_against_what_stands(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("events.jsonl").write_text(line("wide", {"x": [0, 5]}) + "\n" + line("gone", {}, "b1") + "\n")
    assert main(["simulate", "events.jsonl", "--out", "out"]) == 0
    capsys.readouterr()
    lines = (line("new", {"x": [1, 2]}), line("wide", {"x": [0, 1]}), line("other", {"x": [0, 1], "y": [0, 1]}, "b1"))
    code, report = linted(capsys, *lines, args=("--against", "out"))
    assert (code, report["against"]) == (1, 2)
    assert brief(report) == [(3, "covered by one", ["gone"])], "the new shape of `wide` covers `new` no longer"
    assert linted(capsys, *lines)[0] == 0
    assert main(["lint", "f.jsonl", "--against"]) == 2
    assert "there is no table decisions" in capsys.readouterr().err


def test_what_stands_counts_as_the_file_leaves_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cancels what stands does not lean on it."""
    Path("events.jsonl").write_text(line("wide", {"x": [0, 5]}) + "\n")
    assert main(["simulate", "events.jsonl", "--out", "out"]) == 0
    capsys.readouterr()
    new = line("new", {"x": [1, 2]})
    assert brief(linted(capsys, new, args=("--against", "out"))[1]) == [(1, "covered by one", ["wide"])]
    assert linted(capsys, cancel("wide"), new, args=("--against", "out"))[0] == 0
    assert linted(capsys, new, cancel("wide"), args=("--against", "out"))[0] == 0


def test_what_stands_with_a_shape_that_was_not_recorded_covers_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of more than 64 boxes has taken the place of one that covered everything."""
    values = ", ".join(f'"v{k:02}"' for k in range(20))
    sides = "\n".join(f'{name} = {{kind = "category", values = [{values}]}}' for name in "cd")
    Path("lacuna.toml").write_text(f'[space]\n{sides}\n[overlay]\nlinks = [["b0", "b1"]]\n')
    some = [f"v{k:02}" for k in range(0, 20, 2)]
    Path("events.jsonl").write_text(line("s", {}) + "\n" + line("s", {"c": some, "d": some}) + "\n")
    assert main(["simulate", "events.jsonl", "--out", "out"]) == 0
    capsys.readouterr()
    code, report = linted(capsys, line("n", {"c": ["v01"]}), args=("--against", "out"))
    assert (code, report["against"]) == (0, 0)


@pytest.mark.parametrize(
    "lines",
    [
        [line("s", {"x": [0, 5]}, rev=5), line("s", {"x": [0, 1]}, rev=3)],
        [
            line("s", {"x": [0, 5]}, time="2026-05-02T00:00:00Z"),
            line("s", {"x": [0, 1]}, time="2026-05-01T00:00:00Z"),
        ],
    ],
)
def test_the_later_word_wins_whatever_the_order_of_lines(
    lines: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = linted(capsys, *lines, line("inner", {"x": [4, 5]}))
    assert code == 1
    assert brief(report) == [(2, "replaced", []), (3, "covered by one", ["s"])]
    assert "line 1 is later" in report["findings"][0]["message"]


def test_a_cancel_that_comes_too_late_cancels_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (line("s", {}, rev=3), cancel("s", rev=2), line("inner", {"x": [4, 5]}))
    assert brief(linted(capsys, *lines)[1]) == [(3, "covered by one", ["s"])]
    gone = (cancel("s", rev=4), line("s", {}, rev=3), line("inner", {"x": [4, 5]}))
    assert linted(capsys, *gone)[0] == 0, "a later cancel stands before it"


def test_a_file_without_times_after_one_with_times(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a simulation, an event without a time happens when the one before it did."""
    lines = (line("s", {}, time="2026-05-01T00:00:00Z"), cancel("s"), line("inner", {"x": [4, 5]}))
    assert linted(capsys, *lines)[0] == 0
    ended = line("s", {}, time="2026-05-01T00:00:00Z", ttl=5)
    lines = (ended, line("inner", {"x": [4, 5]}, time="2026-05-01T00:01:00Z"))
    assert linted(capsys, *lines)[0] == 0, "it has expired by then"


def test_smaller_ones_may_cover_a_larger_one_together(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (line("L", {"x": [0, 4]}), line("R", {"x": [3, 7]}), line("M", {"x": [1, 6]}), line("N", {"x": [1, 6]}))
    assert brief(linted(capsys, *lines)[1]) == [
        (3, "covered by several", ["L", "R"]),
        (4, "covered by several", ["L", "R"]),
    ], "not N by M, which may itself be left out"


@pytest.mark.parametrize("turned", [False, True])
def test_points_have_no_volume_and_cover_all_the_same(
    turned: bool, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = '[space]\nprice = {kind = "float", low = 0.0, high = 9.0}\nvolume = {kind = "int", low = 0, high = 99}\n'
    Path("lacuna.toml").write_text(space + '[overlay]\nlinks = [["b0", "b1"]]\n')
    lines = [line("narrow", {"price": [1, 1], "volume": [5, 9]}), line("wide", {"price": [1, 1]})]
    code, report = linted(capsys, *(lines[::-1] if turned else lines))
    assert code == 1
    assert [(f["subscription"], f["by"][0]["id"]) for f in report["findings"]] == [("narrow", "wide")]


def test_what_is_refused_is_named_as_far_as_its_line_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (
        line("inverted", {"x": [5, 2]}),
        line("never", "x > 5 AND x < 3"),
        line("nowhere", {}, "b9"),
        json.dumps({"client": "ann", "id": 7, "where": {}}),
        "[]",
    )
    _, report = linted(capsys, *lines)
    found = [(f["finding"], f["subscription"], f["client"], f["broker"]) for f in report["findings"]]
    assert found == [
        ("empty", "inverted", "ann", "b0"),
        ("empty", "never", "ann", "b0"),
        ("rejected", "nowhere", "ann", "b9"),
        ("rejected", None, "ann", None),
        ("rejected", None, None, None),
    ]
    assert main(["lint", "f.jsonl"]) == 1
    assert "nowhere" in capsys.readouterr().out


def test_ids_are_shown_as_they_are(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = ("[/bold]", "[red]x", "s[1]", ":x:", "[link=y]")
    Path("f.jsonl").write_text("".join(line(id, {"x": [0, 1]}, client=f"[/{id}]") + "\n" for id in ("wide", *odd)))
    assert main(["lint", "f.jsonl"]) == 1
    shown = capsys.readouterr().out
    assert all(id in shown for id in odd)


def test_an_empty_file_has_no_subscriptions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.jsonl").write_text("")
    assert main(["lint", "f.jsonl"]) == 0
    assert capsys.readouterr().out == "0 subscriptions; nothing found\n"


BROAD = """
[space]
x = {kind = "int", low = 0, high = 999}
y = {kind = "int", low = 0, high = 999}
[overlay]
links = [["b0", "b1"]]
"""


def some_of(attribute: str, count: int) -> str:
    """Every tenth value: too many boxes to travel as they are."""
    return f"{attribute} IN ({', '.join(str(10 * k) for k in range(count))})"


def test_a_filter_that_travels_wider_covers_only_what_its_client_asks_for(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("lacuna.toml").write_text(BROAD)
    lines = (line("comb", some_of("x", 100)), line("tooth", {"x": [20, 20]}), line("gap", {"x": [21, 21]}))
    assert brief(linted(capsys, *lines)[1]) == [(2, "covered by one", ["comb"])]


def test_of_a_filter_that_is_too_many_boxes_only_more_is_known(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It covers nothing but its twin; it is covered if even what travels of it is."""
    Path("lacuna.toml").write_text(BROAD)
    grid = f"{some_of('x', 30)} AND {some_of('y', 30)}"
    lines = (line("grid", grid), line("cell", {"x": [20, 20], "y": [20, 20]}), line("twin", grid))
    assert brief(linted(capsys, *lines)[1]) == [(3, "duplicate", ["grid"])]
    lines = (*lines, line("all", {}))
    assert brief(linted(capsys, *lines)[1]) == [(k, "covered by one", ["all"]) for k in (1, 2, 3)]


@settings(max_examples=150)
@given(st.lists(wheres(), min_size=1, max_size=9), st.integers(0, 3))
def test_all_that_is_reported_can_be_left_out_at_once(filters: list[Any], standing: int) -> None:
    """The last `standing` ones are there already: they are never reported, and may be named."""
    linter, before = Linter(parse(CONFIG), None), Linter(parse(CONFIG), None)
    lines = [line(f"s{k}", where).encode() for k, where in enumerate(filters)]
    cut = max(1, len(lines) - standing)
    linter.read(lines[:cut])
    before.read(lines[cut:])
    there = {name: asked.boxes for name, asked in before._last.items()}
    shapes = there | {name: asked.boxes for name, asked in linter._last.items()}
    cells = {name: naive.union(box.keys() for box in boxes) for name, boxes in shapes.items()}
    reported = {finding.name: finding for finding in linter.findings(there)}
    kept = {name: mine for name, mine in cells.items() if name not in reported}
    assert reported.keys() <= linter._last.keys()
    assert set().union(*kept.values()) == set().union(*cells.values())
    for name, mine in cells.items():
        if name in reported:
            by = reported[name].by
            assert mine <= set().union(*(kept[other] for other in by)), "and none of the named is reported"
            assert (reported[name].what == "covered by several") == (len(by) > 1)
        elif name not in there:
            assert mine - set().union(*(other for n, other in kept.items() if n != name)), "nothing kept is redundant"
