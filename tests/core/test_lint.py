"""`lacuna lint`: what is wrong with or redundant among subscriptions, before they are sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lacuna.__main__ import main
from lacuna.lint import Linter
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
    return json.dumps({"kind": "subscribe", "broker": broker, "client": "ann", "id": id, "where": where, **more})


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
    cancel = json.dumps({"kind": "unsubscribe", "broker": "b0", "client": "ann", "id": "wide"})
    code, _ = linted(capsys, line("wide", {}), line("small", {"x": [1, 1]}), cancel)
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


@settings(max_examples=60)
@given(st.lists(wheres(), min_size=1, max_size=8))
def test_all_that_is_reported_can_be_left_out_at_once(filters: list[dict[str, Any]]) -> None:
    linter = Linter(parse(CONFIG), None)
    linter.read(line(f"s{k}", where).encode() for k, where in enumerate(filters))
    cells = {name: naive.union(box.keys() for box in boxes) for name, (_, boxes) in linter._last.items()}
    reported = {finding.name: finding for finding in linter.findings({})}
    kept = {name: mine for name, mine in cells.items() if name not in reported}
    rank = {name: (-len(mine), k) for k, (name, mine) in enumerate(cells.items())}
    assert set().union(*kept.values()) == set().union(*cells.values())
    for name, mine in cells.items():
        if name in reported:
            assert mine <= set().union(*(kept[by] for by in reported[name].by))
        else:  # smaller ones may cover it together: they are looked at after it
            larger = (other for n, other in kept.items() if rank[n] < rank[name])
            assert mine - set().union(*larger)
