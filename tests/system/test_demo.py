"""The demo as a person runs it: real parts from nothing to a checked report, and nothing left running."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from lacuna.cli.demo import REFUSED
from tests.core.test_questions import ask_all
from tests.system.live import PROGRAM, wait_until

pytestmark = pytest.mark.system


def test_the_demo_ends_well_serves_its_data_and_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, log = tmp_path / "demo", tmp_path / "log"
    command = [PROGRAM, "demo", "--home", str(home), "--json", "--subscriptions", "300", "--publications", "500"]
    with log.open("w") as errors:
        demo = subprocess.Popen([*command, "--serve"], stdout=subprocess.PIPE, stderr=errors, text=True)
    assert demo.stdout is not None
    try:
        line = demo.stdout.readline()
        assert line, log.read_text()[-2000:]
        check_report(json.loads(line))
        check_console(log)
    finally:
        demo.send_signal(signal.SIGINT)
    assert demo.wait(timeout=120) == 0, log.read_text()[-2000:]
    check_stopped(home)
    check_private(home)
    check_a_query(home)
    ask_all(home / "lacuna.toml", monkeypatch)


def check_report(report: dict[str, Any]) -> None:
    assert (report["missing"], report["false"], report["repeated"]) == (0, 0, 0)
    assert report["rejects"] == len(REFUSED), "those that were sent on purpose"
    assert report["deliveries"] > 0 and report["saved"] > 0 and report["brokers"] >= 5
    assert sum(link["promote"] for link in report["links"].values()) > 0


def check_console(log: Path) -> None:
    """The console shows the demo's data, the job is well, and both take what comes next."""
    wait_until(lambda: "serving at" in log.read_text(), "the console is there")
    url = log.read_text().partition("serving at ")[2].partition(": the console")[0]
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        wait_until(lambda: "● healthy" in http.get("/").text, "the job is well")
        assert f'<a href="/rejects">{len(REFUSED)}</a>' in http.get("/").text
        headers = {"Lacuna-Client": "ann", "Prefer": "wait=60"}
        put = http.put("/v1/brokers/praha/subscriptions/s1", json={"where": {"price": [10, 20]}}, headers=headers)
        assert put.json()["state"] == "in-force"


def check_stopped(home: Path) -> None:
    command = [sys.executable, "-m", "infra.kafka", "status", "--home", str(home / "kafka"), "--json"]
    status = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(status.stdout)["running"] is False


def check_private(home: Path) -> None:
    """Tables, checkpoint and Kafka's data can be read by this user alone."""
    files = [path for folder in ("lake", "checkpoint", "kafka") for path in (home / folder).rglob("*")]
    assert len(files) > 100
    assert [str(path) for path in (home, *files) if path.stat().st_mode & 0o077] == []


def check_a_query(home: Path) -> None:
    """One of the two queries that the report ends with."""
    query = "SELECT action, count(*) AS n FROM decisions GROUP BY ALL ORDER BY ALL"
    command = [PROGRAM, "sql", query, "--config", str(home / "lacuna.toml"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["action"] for row in rows} >= {"forward", "withhold", "promote", "cancel", "drop"}
