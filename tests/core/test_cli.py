"""The command line as a whole: every command can be asked for help, and costs only what it needs."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import lacuna.cli
from lacuna.__main__ import main
from lacuna.cli import COMMANDS

SHARED = {"__init__", "config_file", "console", "options", "progress", "sending"}


TASKS = [("archive", "maintain"), ("archive", "rebuild")]
"""Commands that are parts of others."""


@pytest.mark.parametrize("words", [*((command,) for command in COMMANDS if command != "archive"), *TASKS], ids=" ".join)
def test_every_command_takes_help_and_json(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert shown.startswith(f"usage: lacuna {' '.join(words)} ")
    assert "--json" in shown


def test_every_module_is_a_command_or_shared() -> None:
    files = {path.stem for path in Path(str(lacuna.cli.__file__)).parent.glob("*.py")}
    modules = {command.module for command in COMMANDS.values()}
    assert {f"lacuna.cli.{stem}" for stem in files - SHARED} == modules - {"bench.command"}
    assert all(find_spec(module) for module in modules)


def test_only_the_module_of_the_command_is_imported() -> None:
    program = (
        "import sys; from lacuna.__main__ import main; code = main(['lint', 'no-such-file']);"
        "loaded = [name for name in ('bench', 'kafka', 'pyspark', 'lacuna.cli.run') if name in sys.modules];"
        "print(code, loaded)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 []", done.stderr
