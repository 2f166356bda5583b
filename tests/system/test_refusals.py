"""What keeps the job from starting is one clear message and an exit code; nothing half started is left behind."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.system.live import CONFIG, PROGRAM

pytestmark = pytest.mark.system


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "lacuna.toml"
    file.write_text(CONFIG.format(bootstrap=f"127.0.0.1:{closed_port()}", prefix="none", home=tmp_path))
    return file


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def refuse(*args: str, env: dict[str, str] | None = None, remedy: str = "Remedy") -> str:
    """Run a command that must fail; its message, which must be short, without a trace, with a remedy."""
    done = subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode not in (0, None)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr and remedy in done.stderr, done.stderr
    return done.stderr


def test_no_kafka(config: Path) -> None:
    assert "127.0.0.1" in refuse("run", "--config", str(config))
    assert not (config.parent / "checkpoint").exists()
    assert not (config.parent / "lake").exists()


def test_no_java(config: Path) -> None:
    env = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"} | {"PATH": str(config.parent)}
    assert "Java" in refuse("run", "--config", str(config), env=env, remedy="install")


def test_old_java(config: Path) -> None:
    bin_ = config.parent / "jdk" / "bin"
    bin_.mkdir(parents=True)
    java = bin_ / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    message = refuse("run", "--config", str(config), env=os.environ | {"JAVA_HOME": str(bin_.parent)}, remedy="install")
    assert "11" in message and "17" in message


def test_port_in_use(config: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config.write_text(CONFIG.format(bootstrap=f"127.0.0.1:{port}", prefix="none", home=config.parent))
        message = refuse("up", "--config", str(config), "--home", str(config.parent / "kafka"), remedy="--port 0")
    assert str(port) in message
    assert not (config.parent / "checkpoint").exists()


def test_up_elsewhere(config: Path) -> None:
    config.write_text(CONFIG.format(bootstrap="192.0.2.1:9092", prefix="none", home=config.parent))
    assert "this machine" in refuse("up", "--config", str(config))


def test_sql_without_tables(config: Path) -> None:
    assert "there is no table subscriptions" in refuse("sql", "SELECT 1", "--config", str(config))


def test_archive_without_checkpoint(config: Path) -> None:
    assert "no such checkpoint" in refuse("archive", "maintain", "--config", str(config))
