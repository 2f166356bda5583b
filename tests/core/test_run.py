"""`lacuna run` at its start: a Kafka that is away is waited for, if that is wanted; the log is lines of JSON."""

from __future__ import annotations

import json
import logging
import threading
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from access.errors import Unreachable
from lacuna.cli import run
from lacuna.cli.console import keep_log, say_as_job
from lacuna.cli.run import begun, engine_of
from state.errors import ConfigError
from streaming.exposition import text_of
from streaming.pipeline import Engine
from streaming.service import Service
from streaming.settings import Settings
from streaming.watch import Watch
from tests.core.test_archive_plan import settings_at

AWAY = Unreachable("nowhere:1", 1)


class Start:
    """A start that fails so many times."""

    def __init__(self, failures: int, stop: threading.Event | None = None) -> None:
        self.failures, self.stop = failures, stop

    def __call__(self) -> str:
        self.failures -= 1
        if self.failures < 0:
            return "service"
        if self.failures == 0 and self.stop is not None:
            self.stop.set()
        raise AWAY


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(run, "say_as_job", said.append)
    monkeypatch.setattr(run, "BETWEEN_TRIES", 0.0)
    return said


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(Settings(settings_at(tmp_path).config, 0, ()), ["router", "archive"])


def test_kafka_is_waited_for_and_that_is_said_now_and_then(said: list[str], watch: Watch, tmp_path: Path) -> None:
    assert begun(Start(7), threading.Event(), watch, waits=True) == "service"  # type: ignore[arg-type, comparison-overlap]
    assert said == [f"Kafka is waited for: {AWAY}"] * 2
    assert watch.state == "degraded" and "does not answer since" in watch.reasons["kafka"]
    assert watch.alive and not watch.ready and watch.status()["epoch"] == 0 and text_of(watch.metrics())
    service = Service(settings_at(tmp_path), Engine())
    service.take(watch)
    assert service.watch is watch and watch.settings is service.settings


def test_a_signal_ends_the_waiting(said: list[str], watch: Watch) -> None:
    stop = threading.Event()
    assert begun(Start(3, stop), stop, watch, waits=True) is None  # type: ignore[arg-type]


def test_without_that_wish_the_start_fails(said: list[str], watch: Watch) -> None:
    with pytest.raises(Unreachable):
        begun(Start(1), threading.Event(), watch, waits=False)  # type: ignore[arg-type]
    assert said == []


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root, handlers, level = logging.getLogger(), logging.getLogger().handlers[:], logging.getLogger().level
    yield
    root.handlers[:], root.level = handlers, level


def test_the_log_is_a_json_object_a_line(capfd: pytest.CaptureFixture[str], logging_as_before: None) -> None:
    keep_log()
    say_as_job('it is "running" \N{SNOWMAN}')
    logging.getLogger("streaming.service").warning("no tick was sent: %s", "why")
    first, second = (json.loads(line) for line in capfd.readouterr().err.splitlines())
    assert (first["level"], first["text"]) == ("info", 'it is "running" \N{SNOWMAN}')
    assert first["time"].endswith("+00:00") and first["logger"] == "lacuna"
    assert (second["level"], second["text"]) == ("warning", "no tick was sent: why")


def test_a_checkpoint_that_spark_would_not_find_is_refused() -> None:
    settings = settings_at("s3://bucket/job")
    with pytest.raises(ConfigError, match=r"Remedy: write it as s3a://"):
        engine_of(settings.config, Namespace(master="local[1]"))
