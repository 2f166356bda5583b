"""Which Java is taken, and what a person is told when there is none that will do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]


def ask(program: str = "infra.java", *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program of `infra` with nothing in its environment but what is given."""
    command = [sys.executable, "-m", program, *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def java_that_says(folder: Path, version: str) -> Path:
    """Make a program `bin/java` that reports a version as Java does, on stderr; return its home."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    program.chmod(0o755)
    return folder


def test_the_real_java_is_found_and_new_enough() -> None:
    """What the machine has will do, and `--json` says where it is."""
    answer = ask("infra.java", "--json", **os.environ)
    assert answer.returncode == 0, answer.stderr
    java = json.loads(answer.stdout)
    assert java["version"] >= 17
    assert os.access(java["path"], os.X_OK)


@pytest.mark.parametrize("program", [("infra.java",), ("infra.fetch", "spark"), ("infra.kafka", "start")])
def test_no_java_is_told_with_the_remedy(program: tuple[str, ...], tmp_path: Path) -> None:
    """Each program that needs Java says so, in one message, when PATH has none."""
    home = ("--home", str(tmp_path / "home"), "--port", "0") if "infra.kafka" in program else ()
    answer = ask(*program, *home, PATH=str(tmp_path), LACUNA_JARS=str(tmp_path / "jars"))
    assert answer.returncode == 1
    assert "no java on PATH and no JAVA_HOME" in answer.stderr
    assert "openjdk-17" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("text", "version"),
    [('java version "1.8.0_392"', 8), ('openjdk version "11.0.21" 2023-10-17', 11), ('openjdk version "16-ea"', 16)],
)
def test_an_old_java_is_refused_by_its_number(text: str, version: int, tmp_path: Path) -> None:
    """The message names the program, its version and the oldest that will do."""
    home = java_that_says(tmp_path, text)
    answer = ask(PATH=str(home / "bin"))
    assert answer.returncode == 1
    assert f"{home}/bin/java is Java {version}" in answer.stderr
    assert "need Java 17 or newer" in answer.stderr


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    """As it does for Spark: otherwise the two would run on different Javas."""
    home = java_that_says(tmp_path / "chosen", 'openjdk version "21.0.1" 2023-10-17')
    other = java_that_says(tmp_path / "other", 'openjdk version "17.0.1" 2021-10-19')
    answer = ask("infra.java", "--json", PATH=str(other / "bin"), JAVA_HOME=str(home))
    assert json.loads(answer.stdout) == {"path": f"{home}/bin/java", "version": 21}


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    """It is not skipped in favour of PATH: Spark would not skip it."""
    answer = ask("infra.java", "--json", PATH=os.environ["PATH"], JAVA_HOME=str(tmp_path))
    assert answer.returncode == 1
    assert f"JAVA_HOME is '{tmp_path}'" in json.loads(answer.stdout)["error"]


def test_a_program_that_is_no_java_is_refused(tmp_path: Path) -> None:
    """macOS ships such a stand-in: it is there, and says that there is no Java."""
    home = java_that_says(tmp_path, "Unable to locate a Java Runtime.")
    answer = ask(PATH=str(home / "bin"))
    assert answer.returncode == 1
    assert "does not name a version" in answer.stderr
