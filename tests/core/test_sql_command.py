"""`lacuna sql` without Spark: what is printed, and in which form."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from pyarrow import parquet

from lacuna.__main__ import main
from lacuna.cli import sql
from lacuna.cli.sql import Engines, statements
from state.config import parse
from tests.core.lakes import write_lake
from tests.core.shell import Shell
from tests.core.test_views import CONFIG, EVENTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shell = Shell(parse(CONFIG), regions=1)
    for event in EVENTS:
        shell.send(event)
    shell.settle()
    home = tmp_path_factory.mktemp("sql")
    write_lake(shell, home)
    (home / "lacuna.toml").write_text(CONFIG)
    return home


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)

    def no_spark(*_: object) -> None:
        raise AssertionError("Spark would be started")

    monkeypatch.setattr(Engines, "_in_spark", no_spark)
    return folder


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["sql", *args]) == 0
    return capsys.readouterr().out


QUERY = "SELECT client, hop, arrived, broker FROM deliveries ORDER BY publication_key, client"


def test_json_has_a_row_a_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in said(capsys, QUERY, "--json").splitlines()]
    assert [row["client"] for row in rows] == ["ann", "bob", "ann"]
    assert rows[0]["arrived"].endswith("Z") and rows[0]["hop"] == 2
    [row] = [json.loads(line) for line in said(capsys, "SELECT point FROM publications LIMIT 1", "--json").splitlines()]
    assert row["point"] == {"price": 12.5, "volume": 150, "the symbol": "IBM", "seen": "2026-05-01T00:00:00Z"}


def test_csv_and_parquet_have_all_rows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "SELECT covered_by, coverers, hop FROM decisions ORDER BY seq", "--csv").splitlines()
    assert lines[0] == '"covered_by","coverers","hop"' and len(lines) > 4
    said(capsys, "SELECT * FROM decisions", "--parquet", "all.parquet")
    assert parquet.read_table("all.parquet").num_rows == len(lines) - 1


def test_a_person_sees_headers_numbers_to_the_right_and_what_is_cut_off(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "MOST_SHOWN", 2)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["sql", QUERY]) == 0
    shown = capsys.readouterr()
    head, *rows = shown.out.rstrip().splitlines()
    assert head.split() == ["client", "hop", "arrived", "broker"] and len(rows) == 2
    assert rows[0].index("2") == head.index("hop") + 2, "to the right"
    assert "only the first 2 rows are shown" in " ".join(shown.err.split())
    assert main(["sql", QUERY + " LIMIT 2"]) == 0
    assert "only the first" not in capsys.readouterr().err


def test_a_mistake_is_one_line_and_no_traceback(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "SELECT nothing FROM decisions"]) == 2
    shown = capsys.readouterr().err
    assert "nothing" in shown and "Remedy" in shown and "Traceback" not in shown


def test_the_shell_stays_after_a_mistake(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = "SELECT nothing FROM decisions;\nSELECT count(*) AS n\nFROM deliveries;\nSELECT hop FROM routes LIMIT 1;\n"
    monkeypatch.setattr(sys, "stdin", StringIO(typed))
    assert main(["sql", "--json"]) == 0
    shown = capsys.readouterr()
    assert [json.loads(line) for line in shown.out.splitlines()] == [{"n": 3}, {"hop": 0}]
    assert "nothing" in shown.err


def test_statements_end_with_a_semicolon_or_the_input() -> None:
    assert list(statements(StringIO("a\nb;\nc"))) == ["a\nb", "c"]
    assert list(statements(StringIO("a;\n\nb;\n"))) == ["a"], "an empty line ends the shell"
