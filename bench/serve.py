"""`lacuna bench serve`: many listeners through one gateway, beside as many readers of the topic.

The deliveries of 200 clients are written into a topic of four partitions, spread evenly. All in one run:

* `listeners_vs_topic_readers` (at least 10): deliveries per second to 200 listeners of one gateway, while they are
  being written, over those to 200 programs that each read the topic for their own with a bare consumer, which is what a
  listener without a gateway needs at least. Readers share the cores, so as many as fit are run, and a reader's part of
  the deliveries is what it would get of 200: the figure does not depend on how many there are, as long as they keep the
  cores busy. `details` says how many.
* `added_latency_ms` (at most 20): median from the moment at which Kafka took a delivery to its arrival at a listener,
  at 100 deliveries a second.
* `memory_per_listener_kb` (at most 100): by how much the gateway's memory grows with 1,000 listeners, for each.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from access.control import ControlLog
from access.offsets import topic_spans
from access.topics import ensure_topics
from bench.report import Report, Step, median
from lacuna.local import local_kafka
from state.config import Kafka
from state.protocol.control import CLAIM, LIFE, Claim, Life
from state.protocol.topics import Topics

LISTENERS, READERS, MANY = 200, 4, 1_000
CONFIG = """
[space]
x = {{ kind = "int", low = 0, high = 9 }}
[overlay]
brokers = ["oslo"]
[kafka]
bootstrap = "{bootstrap}"
prefix = "serve"
[serve]
port = 0
"""


def run(step: Step, *, quick: bool) -> Report:
    """Run the benchmark."""
    report = Report("serve", quick=quick)
    each = 100 if quick else 500
    with tempfile.TemporaryDirectory() as folder, local_kafka(Path(folder) / "kafka", 0) as bootstrap:
        kafka = Kafka(bootstrap, "serve")
        ensure_topics(bootstrap, kafka.prefix)
        _announce(kafka)
        (Path(folder) / "lacuna.toml").write_text(CONFIG.format(bootstrap=bootstrap))
        with _gateway(Path(folder)) as (url, pid):
            step(f"{MANY:,} listeners that wait")
            report.add("memory_per_listener_kb", _memory(url, pid), "at most 100")
            step("one delivery after another")
            report.add("added_latency_ms", _latency(kafka, url, 200 if quick else 1000), "at most 20")
            step(f"{LISTENERS} listeners of the gateway")
            through = max(_through_gateway(kafka, url, each, turn) for turn in range(2))
        step(f"{READERS} readers of the topic")
        direct = _by_readers(kafka, each)
    report.add("listeners_vs_topic_readers", through / direct, "at least 10")
    report.details |= {
        "readers": READERS,
        "listeners": LISTENERS,
        "deliveries": LISTENERS * each,
        "deliveries_per_s_gateway": round(through),
        "deliveries_per_s_200_readers": round(direct, 1),
    }
    return report


def _announce(kafka: Kafka) -> None:
    ends = {str(number): span.next for (_, number), span in _spans(kafka).items()}
    with ControlLog(kafka.bootstrap, kafka.prefix) as control:
        term = control.append(f"{CLAIM}bench", Claim(None, "bench", "bench"))
        control.append(f"{LIFE}1", Life(term, 1, "bench", {"deliveries": ends}))


def _spans(kafka: Kafka) -> Any:
    return topic_spans(kafka.bootstrap, [Topics(kafka.prefix).deliveries])


@contextmanager
def _gateway(home: Path) -> Iterator[tuple[str, int]]:
    program, file = str(Path(sys.executable).with_name("lacuna")), str(home / "lacuna.toml")
    command = [program, "serve", "--config", file, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], process.pid
    finally:
        process.terminate()
        process.wait()


def _client(number: int) -> str:
    return f"c{number}"


def _value(client: str, channel: str, seq: int) -> bytes:
    """Return a delivery as the router writes it."""
    value = {"client": client, "subscription": "s1", "broker": "oslo", "publication": f"p{seq}", "at": {"x": 1}}
    value |= {"payload": "hello", "time": "2026-05-01T00:00:00Z", "publication_key": f"0/{seq}", "entry": "oslo"}
    return json.dumps(value | {"channel": channel, "epoch": 1, "batch": 1, "hop": 0, "seq": seq}).encode()


# Listeners, in a process of their own


async def _listen(url: str, clients: list[str], each: int, told: Queue[Any]) -> None:
    """Take so many deliveries for each client. Tell when all listen, and then when each delivery of the first came."""
    host, _, port = url.rpartition("/")[2].partition(":")
    begun = asyncio.Semaphore(0)
    moments: list[float] = []

    async def one(client: str) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"GET /v1/deliveries HTTP/1.1\r\nHost: {host}\r\nLacuna-Client: {client}\r\n\r\n"
        writer.write(head.encode())
        await reader.readuntil(b"id: ")
        begun.release()
        left, rest = each, b""
        while left:
            data = rest + await reader.read(1 << 16)
            came, rest = data.count(b"\ndata: "), data[-6:]
            left -= came
            if client == clients[0]:
                moments.extend([time.time()] * came)
        writer.close()

    tasks = [asyncio.create_task(one(client)) for client in clients]
    for _ in clients:
        await begun.acquire()
    told.put("listening")
    await asyncio.gather(*tasks)
    told.put((time.time(), moments))


def _run_listeners(url: str, clients: list[str], each: int, told: Queue[Any]) -> None:
    asyncio.run(_listen(url, clients, each, told))


@contextmanager
def _listeners(url: str, clients: list[str], each: int) -> Iterator[Queue[Any]]:
    """Run listeners, and yield when all of them listen."""
    context = get_context("spawn")
    told: Queue[Any] = context.Queue()
    process = context.Process(target=_run_listeners, args=(url, clients, each, told), daemon=True)
    process.start()
    try:
        assert told.get(timeout=120) == "listening"
        yield told
    finally:
        process.terminate()
        process.join()


def _through_gateway(kafka: Kafka, url: str, each: int, turn: int) -> float:
    """Return deliveries per second to all listeners, from the first that is written to the last that arrives."""
    clients = [_client(k) for k in range(LISTENERS)]
    topic = Topics(kafka.prefix).deliveries
    channel = f"turn{turn}"
    values = [(client, _value(client, channel, k)) for k in range(1, each + 1) for client in clients]
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=5, batch_size=1 << 17)
    with _listeners(url, clients, each) as told:
        began = time.time()
        for client, value in values:
            producer.send(topic, value, key=client.encode())
        producer.flush()
        ended, _ = told.get(timeout=600)
    producer.close()
    return len(values) / float(ended - began)


def _latency(kafka: Kafka, url: str, count: int) -> float:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=0)
    written = []
    with _listeners(url, ["ann"], count) as told:
        for seq in range(1, count + 1):
            value = _value("ann", "latency", seq)
            sent = producer.send(Topics(kafka.prefix).deliveries, value, key=b"ann").get(30)
            written.append(sent.timestamp / 1000)
            time.sleep(0.01)
        _, came = told.get(timeout=120)
    producer.close()
    return 1000 * median(later - before for before, later in zip(written, came, strict=True))


def _memory(url: str, pid: int) -> float:
    """Return the kilobytes that one listener takes."""

    def resident() -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4

    with _listeners(url, ["warm"], 1):
        before = resident()
    clients = [_client(k) for k in range(MANY)]
    with _listeners(url, clients, 1):
        return (resident() - before) / MANY


# Readers, each a process


def _read(kafka: Kafka, client: bytes, count: int, ready: Any, told: Queue[Any]) -> None:
    """Read the whole topic for one client's deliveries, as a program without a gateway does."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, enable_auto_commit=False)
    topic = Topics(kafka.prefix).deliveries
    parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    ends = consumer.end_offsets(parts)
    ready.wait()
    began, found = time.time(), 0
    while any(consumer.position(part) < end for part, end in ends.items()):
        for records in consumer.poll(timeout_ms=100, max_records=5_000).values():
            found += sum(record.key == client and json.loads(record.value)["seq"] > 0 for record in records)
    told.put((began, time.time(), found))
    consumer.close()


def _by_readers(kafka: Kafka, each: int) -> float:
    """Return deliveries per second to 200 readers."""
    context = get_context("spawn")
    ready, told = context.Barrier(READERS), context.Queue()
    processes = [
        context.Process(target=_read, args=(kafka, _client(k).encode(), each, ready, told)) for k in range(READERS)
    ]
    for process in processes:
        process.start()
    answers = [told.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    spent = max(end for _, end, _ in answers) - min(begin for begin, _, _ in answers)
    return float(sum(found for _, _, found in answers) / spent)
