"""The job's own threads, without Spark and Kafka."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from access.errors import KafkaFailed, Unreachable
from state.protocol.control import Prefix
from streaming import service as module
from streaming.holder import PrefixHeld
from streaming.pipeline import Engine
from streaming.restarts import JobFailed
from streaming.service import Service, begins_of
from tests.core.test_archive_plan import settings_at


class Flaky:
    """A holder whose Kafka comes and goes: an error or None for each tick, the last for ever."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.ticks = threading.Semaphore(0)
        self.prefix = Prefix()

    def beat(self, _epoch: int, _batch: int, _offsets: Any, *, ticks: bool) -> None:
        assert ticks
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        self.ticks.release()
        if outcome is not None:
            raise outcome


def service_at(tmp_path: Path, holder: Any = None) -> Service:
    return Service(settings_at(tmp_path), Engine(), holder, archive=False, tick_seconds=0.001)


def test_ticks_go_on_whenever_kafka_is_away(tmp_path: Path) -> None:
    holder = Flaky(Unreachable("nowhere", 1), None, Unreachable("nowhere", 1), KafkaFailed("no. Remedy: none"), None)
    service = service_at(tmp_path, holder)
    service._keep_doing("tick", service._tick)
    for _ in range(7):
        assert holder.ticks.acquire(timeout=30)
    service.look()
    service._stop.set()
    service._threads[0].join(30)


def test_a_router_that_was_succeeded_stops_the_job(tmp_path: Path) -> None:
    service = service_at(tmp_path, Flaky(None, PrefixHeld("bob holds it. Remedy: stop that one")))
    service._keep_doing("tick", service._tick)
    service._threads[0].join(30)
    with pytest.raises(JobFailed, match=r"was succeeded by another, and stops: bob holds it\. Remedy"):
        service.look()


def test_a_thread_that_ends_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    service = service_at(tmp_path, Flaky(ZeroDivisionError()))
    service._keep_doing("tick", service._tick)
    service._threads[0].join(30)
    with pytest.raises(JobFailed, match=r"the thread 'tick' ended\. Remedy"):
        service.look()


def progress(batch: int) -> dict[str, Any]:
    """What Spark says of a batch that took one request and ten publications."""
    started: Any = {"lacuna.publish": {"0": 10 * batch}} if batch else "null"
    requests = {"startOffset": None, "endOffset": json.dumps({"lacuna.subscribe": {"0": batch}})}
    publications = {"startOffset": started, "endOffset": {"lacuna.publish": {"0": 10 * batch + 10}}}
    return {"batchId": batch, "sources": [requests, publications]}


def test_a_tick_says_where_another_life_could_begin(tmp_path: Path) -> None:
    """Requests behind the last batch; publications so many batches before that none is under way between regions."""
    service = service_at(tmp_path)
    assert service.reached() == (-1, {})
    hops = len(service.settings.parts)
    service._router = type("Query", (), {"recentProgress": [progress(batch) for batch in range(9)]})()
    assert service.reached() == (8, {"subscribe": {"0": 8}, "publish": {"0": 10 * (8 - hops)}})
    service._router = type("Query", (), {"recentProgress": [progress(0)]})()
    assert service.reached() == (0, {"subscribe": {"0": 0}, "publish": {}})


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
