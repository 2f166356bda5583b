"""The README's tour of the running system, pasted as a whole, on a port of its own; Ctrl-C ends it all."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.test_readme import README, block
from tests.system.live import PROGRAM
from tests.system.test_refusals import closed_port

pytestmark = pytest.mark.system

SECTION = README.split("## A tour of the running system")[1].split("## Reference")[0]


def tour() -> list[str]:
    """The commands of the tour: the first is for a terminal of its own."""
    return re.findall(r"^    (\.venv/bin/lacuna .*)", SECTION, re.M)


@pytest.fixture(scope="module")
def port() -> int:
    return closed_port()


@pytest.fixture(scope="module")
def gateway() -> int:
    """The port of the gateway."""
    return closed_port()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, port: int, gateway: int) -> Path:
    """The folder that `lacuna init` makes."""
    home = tmp_path_factory.mktemp("tour")
    subprocess.run([PROGRAM, "init", "--port", str(port)], cwd=home, check=True, capture_output=True)
    with (home / "lacuna.toml").open("a") as config:
        config.write(f"\n[serve]\nport = {gateway}\n")
    return home


@pytest.fixture(scope="module")
def up(home: Path) -> Iterator[subprocess.Popen[str]]:
    """`lacuna up`, running."""
    assert tour()[0].split("#")[0].split() == [".venv/bin/lacuna", "up", "--config", "lacuna.toml"]
    command = [PROGRAM, "up", "--config", "lacuna.toml", "--json", "--serve"]
    with (home / "up.log").open("w") as log:
        process = subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line and json.loads(line)["running"], (home / "up.log").read_text()[-2000:]
    yield process
    if process.poll() is None:
        process.terminate()
        process.wait(timeout=120)


def paste(home: Path, script: str) -> str:
    """What a shell prints when these lines are pasted into it."""
    text = script.replace(".venv/bin/lacuna", PROGRAM)
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text], cwd=home, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian: apt install kcat)")
def test_another_client_writes_and_reads_the_topics(home: Path, up: subprocess.Popen[str], port: int) -> None:
    shown = paste(home, block("sh").replace("localhost:9092", f"127.0.0.1:{port}"))
    (key, notice), (client, delivery) = (line.split(" ", 1) for line in shown.splitlines())
    told = json.loads(notice)
    assert (key, told["state"], told["ack"]) == ("kim", "in-force", "a1")
    assert (client, json.loads(delivery)["publication"]) == ("kim", "k2")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_takes_part(home: Path, up: subprocess.Popen[str], gateway: int) -> None:
    """The examples of docs/gateway.md, pasted as a whole."""
    page = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
    script = page.split("```sh\n")[1].split("```")[0].replace("localhost:8080", f"localhost:{gateway}")
    script = script.replace("Prefer: wait", "Prefer: wait=60").replace("--max-time 3", "--max-time 10")
    shown = paste(home, script.replace("\ncurl", "; echo\ncurl"))
    in_force, routed, stands, stream, ended = (
        json.loads(line) if line.startswith("{") else line
        for line in re.findall(r"^(\{.*|data: .*)$", shown, re.M)
        if '"accepted"' not in line and '"g4"' not in line
    )
    assert in_force["state"] == "in-force" and in_force["rev"] > 0
    assert (routed["state"], routed["deliveries"]) == ("routed", 1)
    assert [s["id"] for s in stands["subscriptions"]] == ["g1"]
    assert json.loads(stream.removeprefix("data: "))["payload"] == "hello"
    assert ended["state"] == "ended"


def test_the_tour_of_the_running_system(home: Path, up: subprocess.Popen[str]) -> None:
    shown = paste(home, "\n".join(tour()[1:]))
    assert re.search(r"^subscribe s1 at oslo: .*; in force at every broker$", shown, re.M)
    assert re.search(r"^publish p1 at rome: .*; it reached 1 subscription$", shown, re.M)
    assert re.search(r"p1 for s1 at oslo .*\"hello\"$", shown, re.M)
    assert re.search(r"^oslo +paris +s1 +forward", shown, re.M)
    up.send_signal(signal.SIGINT)
    assert up.wait(timeout=120) == 0
    again = subprocess.run(
        [PROGRAM, "listen", "--client", "ann", "--deadline", "2"], cwd=home, capture_output=True, check=False
    )
    assert again.returncode == 2, "Kafka still runs"
