"""The notebook of twenty questions: every cell runs, and no answer is empty, on the tables of the demo's workload."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import pytest

from lacuna.cli.demo import CONFIG
from producers.workloads import Workload
from state.config import parse
from tests.core.lakes import write_lake
from tests.core.shell import Shell

NOTEBOOK = Path(__file__).parents[2] / "docs" / "questions.ipynb"
APPROXIMATE = '[routing.links."wien>paris"]\nstrategy = {name = "negative-approx", k = 5}\n'
REFUSED = [b"{", b'{"id": "p", "at": {}, "time": "2026-01-01T00:00:00Z"}', b'{"client": "ann", "id": 5}']


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("demo")
    text = CONFIG.replace("HOME", str(home)) + APPROXIMATE
    shell = Shell(parse(text), regions=2)
    for event in Workload("zipf", 300, 60, cancelled=0.3).events(shell.settings.config):
        shell.send(event)
    for value in REFUSED:
        shell.put("publish", b"oslo", value)
    shell.settle(most=150)
    write_lake(shell, home)
    (home / "lacuna.toml").write_text(text)
    return home


def test_twenty_questions_are_answered(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib.use("Agg")
    monkeypatch.setenv("LACUNA_CONFIG", str(home / "lacuna.toml"))
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    programs = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    questions = [text for cell in cells if (text := "".join(cell["source"])).startswith("## ")]
    assert len(questions) == 20 and len(programs) == 21
    names: dict[str, object] = {}
    exec(programs[0], names)
    for question, program in zip(questions, programs[1:], strict=True):
        exec(program, names)
        assert len(names["answer"]), question  # type: ignore[arg-type]
