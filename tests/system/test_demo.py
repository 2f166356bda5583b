"""The demo as a person runs it: real parts from nothing to a checked report, and nothing left running."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lacuna.cli.demo import REFUSED
from tests.system.live import PROGRAM

pytestmark = pytest.mark.system


def test_the_demo_ends_well_and_leaves_nothing_running(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    command = [PROGRAM, "demo", "--home", str(home), "--json", "--subscriptions", "300", "--publications", "500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert (report["missing"], report["false"], report["repeated"]) == (0, 0, 0)
    assert report["rejects"] == len(REFUSED), "those that were sent on purpose"
    assert report["deliveries"] > 0 and report["saved"] > 0 and report["brokers"] >= 5
    assert sum(link["promote"] for link in report["links"].values()) > 0
    check_stopped(home)
    check_private(home)
    check_a_query(home)


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
