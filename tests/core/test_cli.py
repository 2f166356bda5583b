"""The command line as a whole: every command can be asked for help, and costs only what it needs."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import lacuna.cli
from lacuna.__main__ import main
from lacuna.cli import COMMANDS, GROUPS
from lacuna.cli.config_file import read_config

SHARED = {"__init__", "config_file", "console", "options", "progress", "sending"}


TASKS = [("archive", "maintain"), ("archive", "rebuild")]
"""Commands that are parts of others."""


@pytest.mark.parametrize("words", [*((command,) for command in COMMANDS), *TASKS], ids=" ".join)
def test_every_command_has_help_with_examples_and_takes_json(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert shown.startswith(f"usage: lacuna {' '.join(words)} ")
    assert "--json" in shown or words in [("archive",), ("completion",)]
    assert "  lacuna " in shown or words in TASKS or "(lacuna " in shown


def test_commands_are_listed_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    for group, commands in GROUPS.items():
        part = shown.split(f"\n{group}:\n")[1].split("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines()] == list(commands)


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"lacuna {version('lacuna')}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["subscrbe"], "there is no command 'subscrbe' (did you mean 'subscribe'?)."),
        (["xyz"], "there is no command 'xyz'. `lacuna --help`"),
        (["run", "--memory", "10x"], "'10x' is not an amount of memory; write it as 2g or 512m"),
        (["up", "--port", "99999"], "'99999' is not a port"),
        (["simulate", "f", "--strategy", "union", "--strategy", "flood"], "--strategy is given twice"),
    ],
)
def test_a_slip_gets_one_message(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert said in capsys.readouterr().err


def test_a_package_that_is_not_installed_is_named_with_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(module: str) -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

    monkeypatch.setattr("lacuna.__main__.import_module", lacks)
    assert main(["run"]) == 2
    assert "pyspark is not installed. Remedy: pip install 'lacuna[spark]'" in capsys.readouterr().err


def completed(shell: str, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    script = f"{shell}\nCOMP_WORDS=({' '.join(map(shlex.quote, words))})\nCOMP_CWORD={len(words) - 1}\n_lacuna\n"
    done = subprocess.run(["bash", "-c", script + 'echo "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_shell_completes_commands_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, "lacuna", "subs") == ["subscribe", "subscriptions"]
    assert completed(script, "lacuna", "subscribe", "--wa") == ["--wait"]
    assert completed(script, "lacuna", "archive", "re") == ["rebuild"]
    assert main(["completion", "fish"]) == 0
    assert "complete -c lacuna -n '__fish_seen_subcommand_from listen' -l bookmark" in capsys.readouterr().out


def test_init_writes_files_that_work_and_overwrites_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "trial", "--port", "9192"]) == 0
    monkeypatch.chdir("trial")
    capsys.readouterr()
    assert main(["simulate", "events.jsonl", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["rejects"] == 0 and summary["deliveries"] == 3
    assert read_config("lacuna.toml").kafka.bootstrap == "localhost:9192"
    assert main(["init"]) == 2
    assert "it is there already, and is not overwritten" in capsys.readouterr().err


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
