"""`lacuna sql` without Spark: what is printed, and in which form."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import duckdb
import pytest
from pyarrow import parquet

from lacuna.__main__ import main
from lacuna.analysis.duck import Duck, Mistake, NotPlain
from lacuna.cli import sql
from lacuna.cli.sql import Engines, statements
from state.config import parse
from state.storage.tables import TABLES
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


@pytest.fixture(scope="module")
def duck(folder: Path) -> Duck:
    config = parse(CONFIG)
    return Duck(replace(config, lake=replace(config.lake, path=str(folder / "lake"))))


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


def test_where_a_line_is_too_narrow_each_value_has_its_own(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.rstrip() for line in said(capsys, "SELECT * FROM deliveries ORDER BY seq LIMIT 2").splitlines()]
    names = [line.split()[0] for line in lines if line]
    assert names == [column.name for column in TABLES["deliveries"].columns] * 2
    assert lines.count("") == 1 and max(map(len, lines)) <= 80
    one = said(capsys, "SELECT client, hop, client FROM deliveries ORDER BY seq LIMIT 1")
    assert one.splitlines()[0].split() == ["client", "hop", "client"], "also twice the same name"


WRITING = (
    "COPY (SELECT 1) TO 'out.csv'",
    "ATTACH 'other.db'",
    "INSTALL httpfs",
    "PRAGMA database_list",
    "SET enable_external_access = true",
    "INSERT INTO decisions SELECT * FROM decisions",
    "DELETE FROM decisions",
    "DROP VIEW links",
    "SELECT 1; DROP VIEW links",
    "EXPORT DATABASE 'out'",
    "CREATE TABLE decisions AS SELECT 1",
)


@pytest.mark.parametrize("statement", WRITING)
def test_what_duckdb_knows_to_write_is_refused_without_spark(
    statement: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", statement]) == 2
    assert "the statement does more than read" in capsys.readouterr().err
    assert not Path("out.csv").exists() and not Path("other.db").exists() and not Path("out").exists()


FOR_SPARK = (
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT getenv('HOME')",
    "WITH x AS (SELECT content FROM read_blob('/etc/passwd')) SELECT * FROM x",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_settings",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM parquet_scan('lake/decisions/*.parquet')",
    "SELECT * FROM 'lake/decisions/x.parquet'",
    "EXPLAIN SELECT 1",
    "DESCRIBE decisions",
)


@pytest.mark.parametrize("statement", FOR_SPARK)
def test_files_and_catalogues_are_not_reached(statement: str, duck: Duck) -> None:
    with pytest.raises(NotPlain):
        duck.query(statement)


@pytest.mark.parametrize("table", ["'/etc/passwd'", '"/etc/passwd"', "config", "self"])
def test_a_name_is_a_table_of_the_lake_or_none(table: str, duck: Duck) -> None:
    with pytest.raises(Mistake, match="does not exist"):
        duck.query(f"SELECT * FROM {table}")


def test_a_setting_cannot_be_changed_even_past_the_checks(duck: Duck) -> None:
    with pytest.raises(duckdb.Error, match="locked"):
        duck._connection.execute("SET enable_external_access = true")
    with pytest.raises(duckdb.Error, match="disabled"):
        duck._connection.execute("SELECT * FROM read_text('/etc/passwd')")


def test_a_table_as_of_a_moment(duck: Duck) -> None:
    count = "SELECT count(*) AS n FROM decisions TIMESTAMP AS OF "
    assert duck.query(count + "'2100-01-01'").read_all()["n"].to_pylist() == [11]
    with pytest.raises(Mistake, match=r"the table is younger\. Remedy"):
        duck.query(count + "'1999-01-01'")
    with pytest.raises(Mistake, match=r"it has versions up to 1, .*Remedy"):
        duck.query("SELECT count(*) FROM decisions VERSION AS OF 99")
    with pytest.raises(NotPlain):
        duck.query(count + "'yesterday'")


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
