"""The README is true: its tour runs and shows what it says, it names every command, and its links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from lacuna.__main__ import main, parser
from lacuna.analysis.views import DUCKDB, views
from state.config import parse
from state.protocol.events import FIELDS
from state.protocol.notices import State
from state.storage.tables import TABLES
from state.strategies import PARAMETERS, STRATEGIES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def block(language: str, text: str = README) -> str:
    found = re.search(rf"```{language}\n(.*?)```", text, re.S)
    assert found
    return found[1]


def test_first_tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its commands pasted as a whole, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    codes = {}
    for command in re.findall(r"\.venv/bin/lacuna (.*)", README.split("Larger workloads")[0]):
        codes[command.split()[0]] = main(command.split())
    assert codes == {"init": 0, "simulate": 0, "explain": 0, "lint": 1}, "lint finds something"
    assert Path("lacuna.toml").read_text() == block("toml")
    assert Path("events.jsonl").read_text() == block("json")
    shown = " ".join(capsys.readouterr().out.split())
    assert "12 instead of 15 by flooding (20% saved)" in shown
    told = "Nobody covers price above 20 and up to 25 and symbol IBM"
    assert told in README and told in shown.replace("│ ", "")
    assert "s4 │ dan │ oslo │ covered by one │ s1 of ann" in shown
    decisions = [json.loads(line) for line in Path("out/decisions.jsonl").read_text().splitlines()]
    at_oslo = [row for row in decisions if row["subscription"] == "s3" and row["broker"] == "oslo"]
    assert [row["action"] for row in at_oslo] == ["withhold", "promote"]
    assert at_oslo[0]["coverers"] == ["s1", "s2"]
    deliveries = [json.loads(line) for line in Path("out/deliveries.jsonl").read_text().splitlines()]
    assert {row["publication"] for row in deliveries if row["client"] == "cat"} == {"p1", "p2"}


def test_the_commands_of_pruning_run_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for the numbers, which are smaller here."""
    text = (ROOT / "docs" / "pruning.md").read_text()
    monkeypatch.chdir(tmp_path)
    Path("auctions.toml").write_text(block("toml", text))
    commands = re.findall(r"^    lacuna ((?:produce|simulate) .*)", text, re.M)
    assert len(commands) == 2
    for command in commands:
        assert main(shlex.split(command.replace("000", ""))) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["brokers"] == 5 and result["events"] == 32


def test_every_command_and_strategy_is_documented() -> None:
    commands = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    for command in commands or ():
        assert f"lacuna {command}" in README, command
    page = (ROOT / "docs" / "strategies.md").read_text()
    for strategy in STRATEGIES:
        assert f"| `{strategy}` |" in page
        for parameter in PARAMETERS[strategy]:
            assert f"`{parameter}`" in page


def test_it_is_short_and_every_page_is_linked() -> None:
    assert len(README.splitlines()) < 200
    pages = "\n".join(path.read_text() for path in ROOT.glob("*.md")) + "\n".join(
        path.read_text() for path in (ROOT / "docs").glob("*.md")
    )
    assert [path.name for path in (ROOT / "docs").glob("*.md") if f"{path.name})" not in pages] == []


def test_the_site_has_every_page() -> None:
    named = re.findall(r"^ +- [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(named) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_the_checks_before_a_commit_are_those_of_lint() -> None:
    made = (ROOT / "Makefile").read_text().split("\nlint: setup\n")[1].split("\n\n")[0]
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in made.splitlines()]
    assert re.findall(r"entry: ([^,]+),", (ROOT / ".pre-commit-config.yaml").read_text()) == commands


@pytest.mark.parametrize("page", sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_every_field_and_state_is_on_the_page_of_events() -> None:
    page = (ROOT / "docs" / "events.md").read_text()
    for kind, (needed, optional) in FIELDS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{kind}` |"))
        assert all(f"`{field}`" in row for field in (*needed, *optional))
    for state in get_args(State):
        assert f"| `{state}` |" in page


def test_the_two_commands_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_page_about_the_tables_has_every_column_and_view() -> None:
    """In the words of the comments that the tables themselves have."""
    text = (ROOT / "docs" / "tables.md").read_text()
    for name, (about, columns, *_) in TABLES.items():
        part = text.split(f"## `{name}`\n")[1].split("\n## ")[0]
        assert part.strip().lower().startswith(about.lower())
        rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (.*) \|$", part, re.M)
        assert rows == [(column.name, column.about) for column in columns]
    assert set(re.findall(r"^\| `(\w+)` \|", text.split("## Views")[1], re.M)) == set(
        views(parse(block("toml")), DUCKDB)
    )
