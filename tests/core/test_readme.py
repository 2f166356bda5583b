"""The README is true: its tour runs and shows what it says, and it names every command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from lacuna.__main__ import main, parser
from state.strategies import PARAMETERS, STRATEGIES

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(language: str, text: str = README) -> str:
    found = re.search(rf"```{language}\n(.*?)```", text, re.S)
    assert found
    return found[1]


def test_first_tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lacuna.toml").write_text(block("toml"))
    Path("events.jsonl").write_text(block("json"))
    for command in re.findall(r"\.venv/bin/lacuna (.*)", README.split("Larger workloads")[0]):
        assert main(command.split()) == 0
    decisions = [json.loads(line) for line in Path("out/decisions.jsonl").read_text().splitlines()]
    at_oslo = [row for row in decisions if row["subscription"] == "s3" and row["broker"] == "oslo"]
    assert [row["action"] for row in at_oslo] == ["withhold", "promote"]
    assert at_oslo[0]["coverers"] == ["s1", "s2"]
    assert at_oslo[1]["witness"]["price"] == [20.000000000000004, 25.0]
    deliveries = [json.loads(line) for line in Path("out/deliveries.jsonl").read_text().splitlines()]
    assert {row["publication"] for row in deliveries if row["client"] == "cat"} == {"p1", "p2"}
    capsys.readouterr()


def test_the_commands_of_pruning_run_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for the numbers, which are smaller here."""
    text = (Path(__file__).parents[2] / "docs" / "pruning.md").read_text()
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
    for strategy in STRATEGIES:
        assert f"| `{strategy}` |" in README
        for parameter in PARAMETERS[strategy]:
            assert f"`{parameter}`" in README


def test_the_two_commands_are_there() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
