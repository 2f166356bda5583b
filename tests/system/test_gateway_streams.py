"""Streams of deliveries over HTTP: every delivery exactly once, wherever the stream breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from kafka import TopicPartition

from access.connection import connect_admin, partition_of
from state.config import Config
from state.protocol.topics import Topics
from tests.system.clients import Router
from tests.system.gateway import Ear, Served, announce, seqs

pytestmark = pytest.mark.system


def until(happens: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture
def served(config: Config, text: str, tmp_path: Path) -> Iterator[Served]:
    announce(config.kafka)
    with Served(tmp_path / "gateway", text) as served:
        yield served


def test_a_listener_gets_what_comes_from_now_on_and_nothing_of_others(
    config: Config, router: Router, served: Served
) -> None:
    router.deliver("ann", 1, epoch=1)
    with Ear().open(served.url) as events:
        router.deliver("bob", 2, epoch=1)
        router.deliver("ann", 3, 4, epoch=1, headers=[("source", b"/desk")])
        first, second = next(events), next(events)
    assert seqs([first, second]) == [3, 4]
    assert first.data["client"] == "ann" and first.data["payload"] == {"n": 3}
    assert first.data["headers"] == {"source": "/desk"}
    assert seqs(Ear().take(served.url, 3, "?from=beginning")) == [1, 3, 4]


def test_a_stream_that_breaks_at_any_point_goes_on_there(config: Config, router: Router, served: Served) -> None:
    router.deliver("ann", 1, 2, epoch=1)
    router.deliver("bob", 3, epoch=1)
    router.deliver("ann", 4, epoch=1)
    router.deliver("ann", 1, channel="rome>local", epoch=1)
    router.deliver("ann", 2, 4, epoch=1)  # a crash
    router.deliver("ann", 5, epoch=1)
    router.deliver("ann", 6, epoch=9)  # nobody announced that
    router.deliver("ann", 10_000, epoch=1)  # nor can there be so many
    router.deliver("ann", 7, epoch=1)
    expected = [("oslo>local", n) for n in (1, 2, 4)] + [("rome>local", 1)] + [("oslo>local", n) for n in (5, 7)]
    whole = Ear().take(served.url, 6, "?from=beginning")
    assert [(e.data["channel"], e.data["seq"]) for e in whole] == expected
    for k, event in enumerate(whole):
        rest = whole[k + 1 :]
        assert [e.data for e in Ear(last=event.id).take(served.url, len(rest))] == [e.data for e in rest]
    with Ear(last=whole[-1].id).open(served.url) as events:
        router.deliver("ann", 7, 8, epoch=1)
        assert next(events).data["seq"] == 8


def test_the_first_frame_resumes_a_listener_that_got_nothing(config: Config, router: Router, served: Served) -> None:
    ear = Ear()
    with ear.open(served.url):
        pass
    router.deliver("ann", 1, epoch=1)
    assert seqs(ear.take(served.url, 1)) == [1]


def test_a_listener_may_come_before_the_first_life(config: Config, text: str, router: Router, tmp_path: Path) -> None:
    with Served(tmp_path / "gateway", text) as served:
        found: list[int] = []
        ear = threading.Thread(target=lambda: found.extend(seqs(Ear().take(served.url, 2))))
        ear.start()
        until(lambda: "gateway_streams 1" in httpx.get(f"{served.url}/metrics").text)
        announce(config.kafka)
        router.deliver("ann", 1, 2, epoch=1)
        ear.join(60)
        assert found == [1, 2]


def test_every_delivery_exactly_once_though_gateways_are_killed(
    config: Config, text: str, router: Router, tmp_path: Path
) -> None:
    """Two gateways beside each other, killed in turn under load: the listener goes from one to the other."""
    announce(config.kafka)
    count, moves = 3_000, threading.Event()
    with Served(tmp_path / "one", text) as one, Served(tmp_path / "two", text) as two:
        both = [one, two]
        turn = [0]

        def url() -> str:
            turn[0] += 1
            return both[turn[0] % 2].url

        def deliver() -> None:
            for n in range(1, count + 1, 50):
                router.deliver("ann", *range(max(1, n - 20), n + 50), epoch=1)  # with repeats
                router.deliver("bob", *range(n, n + 50), epoch=1, channel="bob")

        def kill() -> None:
            for k in range(6):
                if moves.wait(0.7):
                    return
                victim = both[k % 2]
                port = victim.port
                victim.kill()
                victim.start(port)

        threads = [threading.Thread(target=work) for work in (deliver, kill)]
        ear = Ear()
        with ear.open(one.url):
            pass
        for thread in threads:
            thread.start()
        try:
            found = seqs(ear.gather(url, count))
        finally:
            moves.set()
            for thread in threads:
                thread.join()
    assert found == list(range(1, count + 1))


def test_a_new_life_in_other_partitions_loses_and_repeats_nothing(
    config: Config, router: Router, served: Served
) -> None:
    clients = [f"c{k}" for k in range(12)]
    moved = next(c for c in clients if partition_of(c.encode(), 4) != partition_of(c.encode(), 7))
    with Ear(moved).open(served.url) as events:
        router.deliver(moved, 1, 2, epoch=1)
        got = [next(events), next(events)]
        topic = Topics(config.kafka.prefix).deliveries
        admin = connect_admin(config.kafka.bootstrap)
        admin.create_partitions({topic: 7})
        until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 7)
        admin.close()
        announce(config.kafka, 2)
        router.deliver(moved, 3, epoch=1, partition=partition_of(moved.encode(), 4))  # a router that was succeeded
        router.deliver(moved, 1, 2, epoch=2, partition=partition_of(moved.encode(), 7))
        got += [next(events), next(events)]
    assert [(e.data["epoch"], e.data["seq"]) for e in got] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    again = Ear(moved, last=got[0].id).take(served.url, 3)
    assert [(e.data["epoch"], e.data["seq"]) for e in again] == [(1, 2), (2, 1), (2, 2)]


def test_what_retention_removed_is_told(
    config: Config, text: str, router: Router, served: Served, tmp_path: Path
) -> None:
    router.deliver("ann", 1, 2, 3, 4, epoch=1)
    whole = Ear().take(served.url, 4, "?from=beginning")
    topic, number = Topics(config.kafka.prefix).deliveries, partition_of(b"ann", 4)
    admin = connect_admin(config.kafka.bootstrap)
    admin.delete_records({TopicPartition(topic, number): 3})
    admin.close()
    with Served(tmp_path / "two", text) as two:  # the first still has them in memory
        lost, last = Ear(last=whole[0].id).take(two.url, 2)
        assert (lost.kind, lost.data) == ("lost", {"partition": number, "from": 1, "to": 3})
        assert last.data["seq"] == 4
        assert seqs(Ear().take(two.url, 1, "?from=beginning")) == [4]


def test_a_slow_listener_is_bounded_and_holds_up_nobody(config: Config, router: Router, served: Served) -> None:
    payload = "x" * 20_000
    slow = httpx.Client(timeout=60, trust_env=False)
    with slow.stream("GET", f"{served.url}/v1/deliveries", headers={"Lacuna-Client": "ann"}) as answer:
        lines = answer.iter_lines()
        while next(lines):
            pass  # the stream has begun; from here on nothing is read
        with Ear("bob").open(served.url) as events:
            for n in range(1, 1001):
                value = b'{"client":"ann","channel":"oslo","epoch":1,"seq":%d,"payload":"%s"}' % (n, payload.encode())
                router._producer.send(Topics(config.kafka.prefix).deliveries, value, key=b"ann")
            router._producer.flush()
            router.deliver("bob", 1, epoch=1, channel="bob")
            assert next(events).data["seq"] == 1
        metrics = httpx.get(f"{served.url}/metrics").text
        pending = next(line for line in metrics.splitlines() if line.startswith("lacuna_gateway_pending_bytes"))
        assert float(pending.split()[1]) < 4_000_000
        taken = [line for line in _until_count(lines, 1000) if line.startswith("data: ")]
    assert [int(line.partition('"seq":')[2].partition(",")[0]) for line in taken] == list(range(1, 1001))
    slow.close()


def _until_count(lines: Iterator[str], count: int) -> Iterator[str]:
    while count:
        line = next(lines)
        count -= line.startswith("data: ")
        yield line


def test_streams_end_with_the_gateway_and_go_on_at_another(
    config: Config, text: str, router: Router, served: Served, tmp_path: Path
) -> None:
    ear = Ear()
    with ear.open(served.url) as events:
        router.deliver("ann", 1, epoch=1)
        assert next(events).data["seq"] == 1
        served.process.terminate()
        assert next(events, None) is None  # it ends, and is not broken off
    assert served.process.wait(30) == 0
    with Served(tmp_path / "two", text) as two:
        router.deliver("ann", 1, 2, epoch=1)
        assert seqs(ear.take(two.url, 1)) == [2]


def test_an_id_that_is_none_is_refused_and_one_of_another_kafka_begins_anew(
    config: Config, router: Router, served: Served
) -> None:
    router.deliver("ann", 1, epoch=1)
    headers = {"Lacuna-Client": "ann"}
    for id in ("7", "1.2", "a.b.c.d", "1.0.5.oslo", "1.0.5.oslo:x", "-1.0.5."):
        assert httpx.get(f"{served.url}/v1/deliveries", headers=headers | {"Last-Event-ID": id}).status_code == 400
    assert seqs(Ear(last="99.0.12.oslo:7").take(served.url, 1)) == [1]
    lost, first = Ear(last="1.{}.999999.".format(partition_of(b"ann", 4))).take(served.url, 2)
    assert lost.kind == "lost" and first.data["seq"] == 1


def test_more_streams_than_allowed_are_refused(config: Config, served: Served) -> None:
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(Ear().open(served.url))
        refused = httpx.get(f"{served.url}/v1/deliveries", headers={"Lacuna-Client": "ann"})
        assert (refused.status_code, refused.json()["rule"]) == (429, "limit")
        stack.enter_context(Ear("bob").open(served.url))
    until(lambda: "gateway_streams 0" in httpx.get(f"{served.url}/metrics").text)
