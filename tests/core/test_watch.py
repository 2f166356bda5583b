"""How the job is: numbers from progress, topic ends and tables; one word for them; the endpoint that shows both."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from access.errors import NotAdmitted, Unreachable
from access.offsets import Partition
from state.errors import LacunaError
from streaming.added import Added
from streaming.endpoint import Endpoint, answers
from streaming.exposition import Histogram, Metric, Sample, text_of
from streaming.settings import Settings
from streaming.tally import COLUMNS, Tally
from streaming.watch import LATE, STUCK, Watch
from tests.core.test_archive_plan import settings_at


class World:
    """A clock, the ends of the topics, and a watch that sees both."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *queries: str) -> None:
        self.now = 1_000_000.0
        self.settings = settings_at(folder)
        self.ends: dict[Partition, int] | None = {}
        self.watch = Watch(self.settings, queries or ("router", "archive"), clock=lambda: self.now)
        monkeypatch.setattr(self.watch._kafka, "read", self.read)

    def read(self) -> dict[Partition, int]:
        if self.ends is None:
            raise Unreachable("nowhere", 1)
        return self.ends

    def end(self, topic: str, offset: int) -> None:
        assert self.ends is not None
        self.ends[self.settings.topics.of(topic), 0] = offset

    def batch(self, number: int, **ends: int) -> None:
        """Let the router commit a batch that ends at these offsets."""
        offsets = {self.settings.topics.of(topic): {"0": end} for topic, end in ends.items()}
        self.watch.see("router", progress(number, offsets))

    def sample(self, after: float = 5.0) -> None:
        self.now += after
        self.watch.move()
        self.watch.sample()


def progress(batch: int, ends: dict[str, dict[str, int]]) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": "2026-11-18T14:00:00.000Z",
        "batchDuration": 250,
        "durationMs": {"addBatch": 200, "triggerExecution": 250},
        "sources": [{"startOffset": None, "endOffset": json.dumps(ends)}],
    }


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def values(watch: Watch) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples as a real parser reads them."""
    parser = pytest.importorskip("prometheus_client.parser", reason="`make setup` installs it")
    families = parser.text_string_to_metric_families(text_of(watch.metrics()))
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(watch: Watch, name: str, **labels: str) -> float:
    return values(watch)[f"lacuna_{name}", frozenset(labels.items())]


def test_events_are_counted_once_also_if_a_progress_was_missed(world: World) -> None:
    world.batch(0, publish=10, subscribe=3)
    world.batch(0, publish=10, subscribe=3)
    world.batch(5, publish=60, subscribe=3)
    assert value(world.watch, "events_total", kind="publish") == 60
    assert value(world.watch, "events_total", kind="subscribe") == 3
    assert value(world.watch, "query_batch_duration_seconds_count", query="router") == 2
    assert value(world.watch, "query_batch_duration_seconds_bucket", query="router", le="0.25") == 2
    assert value(world.watch, "query_phase_seconds_total", query="router", phase="addBatch") == 0.4


def test_lag_is_how_many_records_wait_and_for_how_long(world: World) -> None:
    world.batch(0, publish=10)
    world.end("publish", 10)
    world.sample()
    assert world.watch.status()["queries"]["router"]["lag_records"] == 0
    world.end("publish", 30)
    for _ in range(3):
        world.sample()
    status = world.watch.status()["queries"]["router"]
    assert status["lag_records"] == 20 and status["lag_seconds"] == 10
    world.end("publish", 50)
    world.sample()
    world.batch(1, publish=30)
    assert world.watch.status()["queries"]["router"]["lag_seconds"] == 0, "records of the last sample alone wait"
    topic = world.settings.topics.publish
    assert value(world.watch, "query_lag_records", query="router", topic=topic) == 20


def test_the_state_goes_from_starting_to_healthy_and_says_why_it_is_degraded(world: World) -> None:
    world.sample()
    assert world.watch.state == "starting" and not world.watch.ready and not world.watch.begun
    world.batch(0, publish=0)
    assert world.watch.state == "healthy" and world.watch.ready
    assert world.watch.news() == []
    world.ends = None
    world.sample()
    assert world.watch.state == "degraded" and not world.watch.ready
    (news,) = world.watch.news()
    assert news.startswith("degraded: Kafka at ") and "does not answer since" in news
    assert world.watch.news() == [], "it is told once"
    world.watch.miss_kafka(NotAdmitted("nowhere", "the password is wrong"))
    assert "the password is wrong" in world.watch.reasons["kafka"]
    world.ends = {}
    world.sample()
    assert world.watch.news() == ["all is well again"]
    world.watch.troubles = {"archive": "the lake is away"}
    assert world.watch.status()["reasons"] == ["the archive: the lake is away"]
    assert world.watch.news() == [], "whoever starts the archive again tells it"
    world.watch.troubles, world.watch.refused_secrets = {}, "it is empty"
    assert world.watch.status()["reasons"] == ["the new secrets of Kafka are not taken up: it is empty"]
    world.watch.refused_secrets = None
    world.end("publish", 1)
    world.sample()
    world.sample(LATE["router"] + 1)
    assert world.watch.reasons == {"router's lag": "the router is 31 s behind"}
    world.batch(1, publish=1)
    world.now += STUCK + 1
    assert "has not moved" in world.watch.reasons["loop"] and not world.watch.alive
    world.watch.move(pause=300)
    world.now += 300 + STUCK - 1
    assert world.watch.alive, "long work was announced"
    world.now += 1
    assert not world.watch.alive, "it is overdue"


def test_rates_are_those_of_the_last_samples(world: World) -> None:
    world.batch(0, publish=0)
    world.sample()
    world.batch(1, publish=100)
    world.sample(10.0)
    assert world.watch.status()["per_second"] == {"in": 10.0, "delivered": 0.0, "rejected": 0.0}


# tables


def row(broker: str, link: str, **values: int) -> dict[str, Any]:
    return {"broker": broker, "link": link, **{name: values.get(name, 0) for name in COLUMNS[2:]}}


def test_rows_of_the_tables_become_counters_and_sizes(world: World) -> None:
    tally, region = world.watch.tally, world.settings.parts[0].name
    hub, a = world.settings.parts[0].brokers[:2]
    tally.add(row(hub, a, active=9, state_bytes=10), count=False)
    tally.add(row(hub, a, forwarded=3, stopped=1, forward=2, active=2, passive=1, state_bytes=100))
    tally.add(row(hub, a, forwarded=4, active=3, state_bytes=120))
    tally.add(row(hub, "local", delivered=5, heard=7, state_bytes=30))
    tally.add(row(hub, "*", state_bytes=50))
    tally.rejects["json"] += 2
    assert value(world.watch, "link_publications_total", link=f"{hub}>{a}", action="forward") == 7
    assert value(world.watch, "link_received_total", link=f"{a}>{hub}") == 7
    assert value(world.watch, "link_decisions_total", link=f"{hub}>{a}", action="forward") == 2
    assert value(world.watch, "link_subscriptions", link=f"{hub}>{a}", state="active") == 3
    assert value(world.watch, "deliveries_total") == 5
    assert value(world.watch, "subscriptions", region=region) == 7
    assert value(world.watch, "region_state_bytes", region=region) == 200
    assert value(world.watch, "rejects_total", rule="json") == 2
    assert world.watch.status()["standing"] == 7


def test_of_very_many_links_only_those_between_regions_are_labelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.tally.MOST_DIRECTIONS", 1)
    settings: Settings = settings_at(tmp_path)
    (a, b) = settings.parts[0].brokers[:2]
    tally = Tally(settings)
    tally.add(row(a, b, forwarded=3))
    tally.add(row(b, a, forwarded=4))
    text = text_of(tally.metrics())
    assert f'lacuna_link_publications_total{{link="{settings.parts[0].name}>*",action="forward"}} 7' in text


def test_rows_are_seen_once_whatever_compacts_them(tmp_path: Path) -> None:
    def write(*numbers: int) -> None:
        write_deltalake(tmp_path / "metrics", pa.table({"n": pa.array(numbers, pa.int64())}), mode="append")

    added = Added(str(tmp_path), "metrics", ["n", "no such column"])
    added.begin()
    write(1)
    write(2, 3)
    assert [each["n"] for each in added.rows()] == [1, 2, 3]
    DeltaTable(tmp_path / "metrics").optimize.compact()
    write(4)
    assert [each["n"] for each in added.rows()] == [4]
    late = Added(str(tmp_path), "metrics", ["n"])
    late.begin()
    assert [each["n"] for each in late.before(1)] == [4]
    assert list(late.rows()) == []


# the text, the endpoint


def test_the_text_escapes_what_it_must_and_a_histogram_adds_up() -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="`make setup` installs it")
    times = Histogram((0.5, 1.0))
    for seconds in (0.5, 0.7, 9.25):
        times.add(seconds)
    odd = 'a "b"\\\n'
    text = text_of(
        [
            Metric("t", "histogram", "Times.", tuple(times.samples({"x": odd}))),
            Metric("none", "gauge", "Nothing.", ()),
            Metric("g", "gauge", "One.", (Sample({}, 0.1),)),
        ]
    )
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families.keys() == {"lacuna_t", "lacuna_g"}
    found = {(s.name, s.labels.get("le")): s.value for s in families["lacuna_t"].samples}
    assert (
        found["lacuna_t_bucket", "0.5"] == 1 and found["lacuna_t_bucket", "+Inf"] == found["lacuna_t_count", None] == 3
    )
    assert found["lacuna_t_sum", None] == 10.45
    assert all(s.labels["x"] == odd for s in families["lacuna_t"].samples)


@pytest.fixture
def address(world: World) -> Iterator[str]:
    endpoint = Endpoint(world.watch, "127.0.0.1", 0)
    yield endpoint.address
    endpoint.close()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_endpoint_answers_what_the_watch_knows(world: World, address: str) -> None:
    assert get(f"{address}/healthz") == (200, "ok\n")
    assert get(f"{address}/readyz") == (503, "the first batch is not done\n")
    world.batch(0, publish=0)
    assert get(f"{address}/readyz") == (200, "ready\n")
    assert json.loads(get(f"{address}/status")[1])["state"] == "healthy"
    assert "lacuna_kafka_up 1\n" in get(f"{address}/metrics?x=1")[1]
    assert get(f"{address}/secret") == (404, f"there are {', '.join(answers(world.watch))}\n")
    world.now += STUCK + 1
    assert get(f"{address}/healthz")[0] == 503


def test_a_port_that_is_taken_is_told_with_a_remedy(world: World, address: str) -> None:
    port = int(address.rpartition(":")[2])
    with pytest.raises(LacunaError, match=rf"engine\.metrics_port = {port}: .* Remedy: choose another port"):
        Endpoint(world.watch, "127.0.0.1", port)
