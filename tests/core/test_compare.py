"""`lacuna compare`: what it counts is what `simulate` counts, on events of any form; the examples are what docs say."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from lacuna.__main__ import main
from lacuna.analysis.comparison import MEASURES

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
CONFIG = """
[space]
x = {kind = "int", low = 0, high = 100}
c = {kind = "category", values = ["red", "blue"]}
t = {kind = "timestamp", low = "2026-01-01T00:00:00Z", high = "2027-01-01T00:00:00Z"}
[overlay]
links = [["a", "b"], ["b", "c"]]
"""
MAPPING = """
[people]
kind = "subscribe"
client = "name"
broker = "home"
where.x = { around = "x", within = 5 }
where.c = { is = "colour" }
[things]
kind = "publish"
at = { x = "x", c = "colour", t = "at" }
"""
PEOPLE = "name,home,x,colour\nann,a,2,red\nbob,c,98,blue\neve,a,2,red\nzoe,nowhere,5,red\ntom,a,,red\n"
THINGS = "x,colour,at\n1,red,2026-05-01T00:00:00Z\n100,blue,2026-05-01T00:00:00Z\n50,red,2026-05-01T00:00:00Z\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lacuna.toml").write_text(CONFIG)
    (tmp_path / "mapping.toml").write_text(MAPPING)
    (tmp_path / "people.csv").write_text(PEOPLE)
    (tmp_path / "things.csv").write_text(THINGS)
    return tmp_path


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main(["compare", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def make(*words: str) -> None:
    """Make events by `lacuna produce`."""
    assert main(["produce", *words, "--out", "e.jsonl"]) == 0


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["compare", *words]) == 2
    return capsys.readouterr().err


def test_it_counts_what_simulate_counts(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make("churn", "--subscriptions", "80", "--publications", "100")
    found = compared(capsys, "--strategies", 'flood,{name = "union", budget = 500}', "e.jsonl")["results"]
    assert [(r["strategy"].split()[0], r["subscriptions"]) for r in found] == [
        (name, size) for name in ("flood", "union") for size in (5, 10, 20, 40, 80)
    ]
    for row in (found[4], found[9]):
        name = "flood" if row["strategy"] == "flood" else '{name = "union", budget = 500}'
        assert main(["simulate", "e.jsonl", "--strategy", name, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        for column in ("subscription_messages", "publication_messages", "table_entries", "deliveries", "rejects"):
            assert row[column] == said[column], column
    assert found[9]["subscription_messages"] < found[4]["subscription_messages"]
    assert found[0]["deliveries"] < found[4]["deliveries"]


def test_csv_and_parquet_by_a_mapping(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ends are cut to the domain, a category is one value; a row without a value or broker is refused."""
    words = ("--strategies", "flood,auto", "--mapping", "mapping.toml", "people.csv")
    flood, auto = (r for r in compared(capsys, *words, "things.csv")["results"] if r["subscriptions"] == 5)
    assert (flood["deliveries"], flood["rejects"], flood["subscription_messages"]) == (3, 2, 6)
    assert (auto["deliveries"], auto["subscription_messages"]) == (3, 4), "ann and eve ask for the same"
    table = arrow_csv.read_csv(home / "things.csv")
    assert pa.types.is_timestamp(table.schema.field("at").type)
    parquet.write_table(table, home / "things.parquet")
    again = compared(capsys, *words, "things.parquet")["results"]
    assert [r["deliveries"] for r in again] == [
        r["deliveries"] for r in compared(capsys, *words, "things.csv")["results"]
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[people]", "[persons]", "it has no section [people]"),
        ("where.x", "where.y", "y"),
        ("within = 5", "width = 5", "x"),
        ('client = "name"', 'clients = "name"', "clients"),
        ('client = "name"', "every = 0", "every"),
        ("[people]", "[people", "it cannot be read as TOML"),
    ],
)
def test_a_mapping_that_means_nothing_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    (home / "mapping.toml").write_text(MAPPING.replace(old, new, 1))
    error = refused(capsys, "--mapping", "mapping.toml", "people.csv", "things.csv")
    assert said in error and "Remedy" in error


def test_what_is_missing_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "say what they are with --mapping" in refused(capsys, "people.csv")
    assert "there is no such file" in refused(capsys, "nothing.jsonl")
    (home / "empty.jsonl").write_text("")
    assert "no subscription to compare strategies on" in refused(capsys, "empty.jsonl")
    make("uniform", "--subscriptions", "5", "--publications", "5")
    assert "a .png or .svg file" in refused(capsys, "e.jsonl", "--draw", "x.pdf")


def test_the_page_needs_nothing_else(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make("uniform", "--subscriptions", "40", "--publications", "20")
    capsys.readouterr()
    assert main(["compare", "--strategies", "flood,auto", "e.jsonl", "--html", "r.html", "--draw", "r.svg"]) == 0
    shown = capsys.readouterr().out
    page = (home / "r.html").read_text()
    for measure in MEASURES:
        assert measure.title in shown and measure.about in page
    assert page.count("<svg") == 1 and "All delivered the same." in page
    assert not re.search(r'(?:src|href)="(?!#)', re.sub(r'xlink:href="#', 'href="#', page)), "nothing is loaded"
    assert "<svg" in (home / "r.svg").read_text()


def test_a_strategy_that_loses_deliveries_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make("zipf", "--subscriptions", "300", "--publications", "300", "--seed", "3")
    loose = '{name = "probabilistic", delta = 0.9, trials = 1}'
    lost = compared(capsys, "--strategies", f"auto,{loose}", "e.jsonl")["lost"]
    assert len(lost) == 1 and next(iter(lost)).startswith("probabilistic") and next(iter(lost.values())) > 0


@pytest.mark.parametrize(("name", "files"), [("earthquakes", "cities earthquakes"), ("flights", "passengers flights")])
def test_examples_are_what_the_page_says(
    name: str, files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(EXAMPLES / name, tmp_path / name)
    monkeypatch.chdir(tmp_path / name)
    words = ("--strategies", "flood,auto", "--mapping", "mapping.toml", *(f"{file}.csv" for file in files.split()))
    found = compared(capsys, *words)
    whole = max(row["subscriptions"] for row in found["results"])
    page = (ROOT / "docs" / "compare.md").read_text()
    table = page.split(f"| `{name}` | messages |")[1].split("\n\n")[0]
    for row in found["results"]:
        if row["subscriptions"] == whole:
            assert not row["rejects"]
            (line,) = (line for line in table.splitlines() if f"`{row['strategy']}`" in line)
            columns = ("subscription_messages", "table_entries", "publication_messages", "false_positives")
            assert [f"{row[column]:,}" for column in columns] == [cell.strip() for cell in line.split("|")[2:6]]
    assert not found["lost"]
