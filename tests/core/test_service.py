"""The job's own threads, without Spark and Kafka."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from access.errors import Unreachable
from state.protocol.control import TICK
from streaming import service as module
from streaming.pipeline import Engine
from streaming.restarts import JobFailed
from streaming.service import Service, begins_of
from tests.core.test_archive_plan import settings_at


class Sent:
    def __init__(self, failed: bool) -> None:
        self._failed = failed

    def failed(self) -> bool:
        return self._failed


class Flaky:
    """Producers as a Kafka gives them that comes and goes: a word per call, the last for ever."""

    def __init__(self, *calls: str) -> None:
        self.calls = list(calls)
        self.ticks = threading.Semaphore(0)
        self.connected = 0

    def connect(self, _bootstrap: str) -> Flaky:
        if self._next() == "away":
            raise Unreachable("nowhere", 1)
        self.connected += 1
        return self

    def send(self, _topic: str, _value: bytes, key: bytes) -> Sent:
        assert key == TICK.encode()
        call = self._next()
        if call == "away":
            raise KafkaTimeoutError("no metadata")
        self.ticks.release()
        return Sent(call == "lost")

    def close(self, timeout: float | None = None) -> None:
        """Nothing to close."""

    def _next(self) -> str:
        return self.calls.pop(0) if len(self.calls) > 1 else self.calls[0]


def service_at(tmp_path: Path) -> Service:
    return Service(settings_at(tmp_path), Engine(), archive=False, tick_seconds=0.001)


def test_ticks_go_on_whenever_kafka_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Away at the start, away when a tick is sent, and a tick that was taken and then lost."""
    kafka = Flaky("away", "away", "there", "there", "away", "away", "there", "lost", "there")
    monkeypatch.setattr(module, "connect_producer", kafka.connect)
    service = service_at(tmp_path)
    service._keep_doing("tick", service._tick)
    for _ in range(5):
        assert kafka.ticks.acquire(timeout=30)
    service.look()
    service._stop.set()
    service._threads[0].join(30)
    assert kafka.connected == 3


def test_a_thread_that_ends_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_bootstrap: str) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "connect_producer", broken)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    service = service_at(tmp_path)
    service._keep_doing("tick", service._tick)
    service._threads[0].join(30)
    with pytest.raises(JobFailed, match=r"the thread 'tick' ended\. Remedy"):
        service.look()


def test_letters_are_trimmed_up_to_where_the_last_batch_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch may have to be repeated; what batches before it have read is part of the committed state."""
    links = settings_at(tmp_path).topics.links
    sources = [{"startOffset": json.dumps({links: {"0": 7, "1": 0}, "x": {"0": 3}}), "endOffset": None}]
    sources += [{"startOffset": {"y": {"0": 9}}}, {"startOffset": None}]
    assert begins_of({"sources": sources}, links) == {(links, 0): 7}
    trimmed: list[Any] = []
    monkeypatch.setattr(module, "trim", lambda _, before: trimmed.append(before))
    service = service_at(tmp_path)
    service.trim_links()
    service._router = type("Query", (), {"lastProgress": {"sources": sources[1:]}})()
    service.trim_links()
    assert trimmed == []
    service._router = type("Query", (), {"lastProgress": {"sources": sources}})()
    service.trim_links()
    assert trimmed == [{(links, 0): 7}]
