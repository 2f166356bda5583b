"""`lacuna explain --where`: what a filter is, for machines and for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lacuna.__main__ import main

CONFIG = """
[space]
price = {kind = "float", low = 0.0, high = 1000.0}
volume = {kind = "int", low = 0, high = 999}
symbol = {kind = "category", values = ["AAPL", "IBM", "MSFT"]}
[overlay]
brokers = ["hub"]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("lacuna.toml").write_text(CONFIG)
    return tmp_path


def explained(where: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["explain", "--where", where, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_tree_boxes_selectivity_and_ranges(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    about = explained("price <= 500 AND (symbol = 'IBM' OR volume >= 900)", capsys)
    assert about["filter"] == "price <= 500.0 AND (symbol = 'IBM' OR volume >= 900)"
    assert (about["predicates"], about["pmin"], about["exact"]) == (3, 2, True)
    kinds = [next(iter(child)) for child in about["tree"]["and"]]
    assert kinds == ["predicate", "or"]
    average = 0.5 * (1 - (1 - 1 / 3) * 0.9)
    assert about["selectivity"]["average"] == pytest.approx(average)
    assert about["volume"] == pytest.approx(average, rel=0.01)
    assert len(about["boxes"]) == 2
    assert about["boxes"][0] == {"price": [0.0, 500.0], "volume": [900, 999], "symbol": ["AAPL", "IBM", "MSFT"]}
    assert about["ranges"]["count"] == len(about["ranges"]["ranges"]) > 0


def test_json_filters_and_what_travels_more_general(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explained('{"price": [0, 500]}', capsys)["filter"] == "price <= 500.0"
    assert explained('[{"price": [0, 500]}, {"symbol": ["IBM"]}]', capsys)["tree"]["or"]
    about = explained(" OR ".join(f"price = {10 * k}" for k in range(80)), capsys)
    assert not about["exact"] and len(about["boxes"]) <= 64 and about["travels"] != about["filter"]


def test_for_people(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--where", "price <= 500 AND (symbol = 'IBM' OR volume >= 900)"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:4] == [
        "AND   0.2",
        "    price <= 500.0   0.5",
        "    OR   0.4",
        "        symbol = 'IBM'   0.333",
    ]
    assert "3, at least 2 of them must hold" in out


@pytest.mark.parametrize("where", ["{}", "price >= 0", "[{}]"])
def test_everything_is_called_so(where: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--where", where]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "everything   1"
    assert explained(where, capsys)["filter"] == "everything"


def test_an_error_is_one_message(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--where", "price <"]) == 2
    assert capsys.readouterr().err.startswith("lacuna: --where: at character 8: the end is not allowed here; allowed")


@pytest.mark.parametrize("words", [[], ["s1", "--where", "price < 5"]])
def test_one_thing_is_explained(here: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words]) == 2
    assert "name a subscription, or give one of --at, --publication and --where" in capsys.readouterr().err
