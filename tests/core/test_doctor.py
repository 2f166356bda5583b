"""`lacuna doctor`: each thing that is wrong is found, with its remedy; what is right is said too."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from access.control import ControlLog
from access.errors import Unreachable
from lacuna.__main__ import main
from lacuna.analysis import doctor
from state.errors import LacunaError
from state.protocol.control import Claim, Prefix

CONFIG = """
[space]
x = { kind = "int", low = 0, high = 9 }
[overlay]
brokers = ["hub"]
[kafka]
bootstrap = "BOOTSTRAP"
[engine]
metrics_port = 0
"""


@pytest.fixture
def findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Examine a healthy system with this changed in its configuration; the exit code, and findings by subject."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "infra", lambda *_: {})
    monkeypatch.setattr(doctor, "require_topics", lambda *_: None)
    monkeypatch.setattr(doctor, "differences", lambda *_: [])
    monkeypatch.setattr(doctor, "lacking", lambda *_: [])
    monkeypatch.setattr(ControlLog, "read", lambda _: Prefix())

    def examine(old: str = "", new: str = "", bootstrap: str = "localhost:9092") -> tuple[int, dict[str, Any]]:
        Path("lacuna.toml").write_text(CONFIG.replace("BOOTSTRAP", bootstrap).replace(old or "\0", new))
        code = main(["doctor", "--json"])
        return code, {each["about"]: each for each in json.loads(capsys.readouterr().out)["findings"]}

    return examine


def test_a_healthy_system(findings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = findings()
    assert code == 0 and {each["level"] for each in found.values()} == {"good"}
    assert found.keys() == {"Java", "jars", "lake.path", "lake.checkpoint", "Kafka", "rights"}
    assert main(["doctor"]) == 0
    assert "✓" in capsys.readouterr().out


def test_what_is_wrong_with_the_machine(findings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: str) -> None:
        raise LacunaError("Java 11 is too old. Remedy: install Java 17")

    monkeypatch.setattr(doctor, "infra", refuse)
    code, found = findings()
    assert code == 1 and found["Java"] == {
        "about": "Java",
        "level": "bad",
        "text": "Java 11 is too old",
        "remedy": "install Java 17",
    }


def test_a_port_that_is_taken(findings: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code, found = findings("metrics_port = 0", f"metrics_port = {server.getsockname()[1]}")
    assert code == 0 and found["metrics_port"]["level"] == "warning"


@pytest.mark.skipif(os.getuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_cannot_be_written(findings: Any) -> None:
    Path("closed").mkdir(mode=0o500)
    code, found = findings("[engine]", '[lake]\npath = "closed/lake"\n[engine]')
    assert code == 1 and "cannot be written" in found["lake.path"]["text"]


def test_little_room(findings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_FREE", 1 << 60)
    code, found = findings()
    assert code == 1 and found["lake.checkpoint"]["level"] == "bad"


def test_secrets_and_plain_connections(findings: Any) -> None:
    code, found = findings(bootstrap="kafka.example.org:9092")
    assert code == 0 and found["kafka.security"]["text"] == "connections to Kafka are not encrypted"
    code, found = findings("[engine]", 'security = { protocol = "SSL", ca_file = "none" }\n[engine]')
    assert code == 1 and "there is no such file" in found["kafka.security"]["text"]


def test_kafka_its_topics_and_its_clock(findings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "differences", lambda *_: ["topic lacuna.links: retention.ms is 5, not -1"])
    monkeypatch.setattr(ControlLog, "read", lambda _: Prefix(latest=1 << 60))
    code, found = findings()
    assert code == 0 and found["topics"]["level"] == "warning" and "ahead" in found["clock"]["text"]
    monkeypatch.setattr(ControlLog, "read", lambda _: Prefix(Claim(None, "bob@desk", "c"), term=1, latest=1))
    code, found = findings()
    assert code == 0 and found["router"]["text"].startswith("bob@desk holds the prefix, and has not ticked for")

    def away(*_: object) -> None:
        raise Unreachable("localhost:9092", 5)

    monkeypatch.setattr(doctor, "require_topics", away)
    code, found = findings()
    assert code == 1 and found["Kafka"]["remedy"].startswith("start Kafka")


def test_what_the_user_may_do(findings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"router": ["Write lacuna.records", "Read lacuna.publish"], "archive": []}
    monkeypatch.setattr(doctor, "lacking", lambda _bootstrap, _prefix, role, _deadline: missing[role])
    code, found = findings()
    assert code == 0 and found["rights"]["text"] == "this user may do what the archive needs"
    missing["archive"] = ["Read lacuna.records"]
    code, found = findings()
    assert code == 1 and found["rights"]["text"].endswith("Write lacuna.records, Read lacuna.publish")
    assert found["rights"]["remedy"] == "grant it what `lacuna acl router` prints"
