"""The README's tour of the running system, word for word, on a port of its own; Ctrl-C ends it all."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest

from tests.core.test_readme import README, block
from tests.system.live import PROGRAM, wait_until
from tests.system.test_refusals import closed_port

pytestmark = pytest.mark.system


def tour() -> dict[str, list[str]]:
    """The commands of the tour by name, each as its arguments."""
    section = README.split("## A tour of the running system")[1].split("\n| ")[0]
    lines = [line.removesuffix("&") for line in re.findall(r"\.venv/bin/lacuna (.*)", section)]
    return {line.split()[0]: shlex.split(line, comments=True) for line in lines}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the README's configuration, and a Kafka port that is free."""
    kafka = f'\n[kafka]\nbootstrap = "localhost:{closed_port()}"\n'
    (tmp_path / "lacuna.toml").write_text(block("toml") + kafka)
    return tmp_path


@pytest.fixture
def up(home: Path) -> Iterator[subprocess.Popen[str]]:
    """`lacuna up`, running."""
    command = [PROGRAM, "up", "--config", "lacuna.toml", "--json"]
    with (home / "up.log").open("w") as log:
        process = subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line and json.loads(line)["running"], (home / "up.log").read_text()[-2000:]
    yield process
    if process.poll() is None:
        process.terminate()
        process.wait(timeout=120)


def attempt(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *words], cwd=home, capture_output=True, text=True, timeout=200, check=False)


def run(home: Path, *words: str) -> str:
    done = attempt(home, *words)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_tour_of_the_running_system(home: Path, up: subprocess.Popen[str]) -> None:
    commands = tour()
    assert commands["up"] == ["up", "--config", "lacuna.toml"]
    run(home, *commands["subscribe"])
    wait_until(lambda: rows(home, "decisions") >= 3, "the subscription has reached every broker")
    run(home, *commands["publish"])
    delivery = json.loads(run(home, *commands["listen"], "--json").splitlines()[-1])
    assert (delivery["client"], delivery["publication"], delivery["payload"]) == ("ann", "p1", "hello")
    decided = run(home, *commands["sql"], "--json").splitlines()
    assert {json.loads(row)["action"] for row in decided} == {"forward"}
    up.send_signal(signal.SIGINT)
    assert up.wait(timeout=120) == 0
    assert attempt(home, *commands["publish"]).returncode != 0, "Kafka still runs"


def rows(home: Path, table: str) -> int:
    path = home / "lake" / table
    return int(deltalake.DeltaTable(str(path)).to_pyarrow_table().num_rows) if path.exists() else 0
