"""`lacuna bench router`: the live router on a real Kafka, with a pass-through query beside it in the same session.

The pass-through query reads such topics, groups by the same regions and writes to Kafka, but its stateful function is
the identity: what it costs is what the engine costs. It has topics of its own, so that the two take turns and are never
busy at the same time. Ratios to it, within one run:

* `pass_through_ratio` (at least 0.8): publications per second through the router over those of the pass-through, at
  10,000 subscriptions in 3 attributes: one batch, from the moment it is planned to its commit.
* `batch_growth_100k_vs_1k` (at most 3): seconds per batch of 1,000 events (900 publications, 100 subscribes) with
  100,000 and with 1,000 subscriptions on one broker with 4 links, all in one region.
* `four_hops_in_batches_one_region` (at most 1.8): seconds from a publication at one end of a chain of five brokers to
  its delivery at the other, over those of a pass-through batch; all five brokers are one region.
* `four_hops_in_batches` (at most 2.8): the same with the default regions on two cores;
  `four_hops_in_batches_archiving` (at most 3.5): with the archive running too.
* `backlog_batches` (at most 2): batches until 5,000 subscriptions are in force that arrive behind 1,000,000 waiting
  publications, all in one region.
* `bytes_in_flight_max_mb` (at most 512): by how much a Python worker grows at most while one batch delivers 3 GiB: one
  publication of 64 kB to 50,000 clients.
* `archive_ratio` (above 1): rows per second archived over rows per second that the router makes.
* `listen_vs_consumer` (at least 0.7): see `bench.listening`.

A ratio hides what both sides pay. So these are kept as well: `seconds_four_hops` (one region), `seconds_batch` (a
pass-through batch of one publication), `publications_per_s` (at 10,000 subscriptions). Why one region is the default on
two cores, the details say: `hops_s` and `publications_per_s_by_regions`, with one region and with two.

Every time is a median of several batches of a warm session.
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from access.connection import connect_producer, spark_options
from access.topics import ensure_topics
from bench import listening
from bench.report import Report, Step, median
from lacuna.local import local_kafka, spark_jars
from producers.compose import Composer
from producers.sender import Sender
from producers.workloads import Workload
from state.config import Config, parse
from state.protocol.frame import Frame, Rows, read, rows_of
from state.protocol.topics import Topic, Topics
from streaming.pipeline import Engine, records, session
from streaming.schemas import OUTPUT, STATE, table_of
from streaming.service import Service
from streaming.settings import Settings, settle

SPACE = """
[space]
x = {kind = "int", low = 0, high = 1000}
y = {kind = "int", low = 0, high = 1000}
z = {kind = "int", low = 0, high = 1000}
"""
STAR = SPACE + '[overlay]\nlinks = [["hub", "a"], ["hub", "b"], ["hub", "c"], ["hub", "d"]]\nregions = 1\n'
CHAIN = SPACE + '[overlay]\nlinks = [["n1", "n2"], ["n2", "n3"], ["n3", "n4"], ["n4", "n5"]]\n'


def run(step: Step, *, quick: bool) -> Report:
    """All figures of the live router; `quick` takes a tenth of the subscriptions."""
    report = Report("router", quick=quick)
    scale = 10 if quick else 1
    step("starting Kafka")
    with tempfile.TemporaryDirectory() as folder, local_kafka(Path(folder) / "kafka", 0) as bootstrap:
        listening.measure(report, step, bootstrap, 3 if quick else 5, 50_000 // scale)
        engine = Engine(jars=spark_jars(), most_records=200_000)
        bench = Bench(report, step, Path(folder), bootstrap, engine, 3 if quick else 5)
        bench.star(scale)
        session(engine).stop()  # the workers still hold the star's region, which would be in the chain's way
        bench.backlog(scale)
        bench.wide(scale)
        session(engine).stop()
        bench.chain()
        session(engine).stop()
    return report


@dataclass
class Plain:
    """A running pass-through query."""

    config: Config
    query: StreamingQuery

    def seconds(self, events: list[dict[str, Any]]) -> float:
        """Return the seconds of the batch that holds these events."""
        before = last_batch(self.query)
        send_at_once(self.config, events)
        while True:
            self.query.processAllAvailable()
            batches = [p for p in self.query.recentProgress if p["batchId"] > before and p["numInputRows"]]
            if batches:
                return float(batches[0]["durationMs"]["triggerExecution"] / 1000)
            time.sleep(0.05)


@dataclass
class Bench:
    """One session, several systems one after another, each on topics and folders of its own."""

    report: Report
    step: Step
    folder: Path
    bootstrap: str
    engine: Engine
    repeats: int

    def config(self, text: str, name: str) -> Config:
        home = self.folder / name
        lake = f'[lake]\npath = "{home}/lake"\ncheckpoint = "{home}/checkpoint"\n'
        config = parse(f'{text}[kafka]\nbootstrap = "{self.bootstrap}"\nprefix = "{name}"\n{lake}')
        ensure_topics(self.bootstrap, name, {"deliveries": Topic(partitions=1)})
        return config

    @contextmanager
    def service(self, config: Config, *, archive: bool = False, most_records: int | None = None) -> Iterator[Service]:
        engine = self.engine if most_records is None else replace(self.engine, most_records=most_records)
        service = Service.of(config, engine, archive=archive, tick_seconds=0)
        service.start()
        try:
            yield service
        finally:
            service.stop_queries()

    # one broker with four links

    def star(self, scale: int) -> None:
        config = self.config(STAR, "star")
        with self.service(config) as service:
            self._load(config, service, 0, 1_000 // scale)
            few = self._batches(config, service, "few")
            self._load(config, service, 1_000 // scale, 10_000 // scale)
            self._pass_through(config, service)
            self._load(config, service, 10_000 // scale, 50_000 // scale)
            self._load(config, service, 50_000 // scale, 100_000 // scale)
            many = self._batches(config, service, "many")
            self.report.details["state_bytes"] = state_bytes(config)
        self.report.add("batch_growth_100k_vs_1k", many / few, "at most 3")
        self.report.details["batch_seconds"] = {"few": round(few, 3), "many": round(many, 3)}

    def _load(self, config: Config, service: Service, begin: int, end: int) -> None:
        """Bring the hub from `begin` to `end` subscriptions."""
        self.step(f"subscribing up to {end:,}")
        workload = Workload("zipf", 100_000, 0, cancelled=0.0)
        wanted = list(workload.events(config))[begin:end]
        for first in range(0, len(wanted), 5_000):
            send(config, [{**event, "broker": "hub"} for event in wanted[first : first + 5_000]])
            service.wait(service.quiet)

    def _batches(self, config: Config, service: Service, tag: str) -> float:
        """The median seconds of a batch of 1,000 mixed events at the hub."""
        self.step(f"measuring batches with {tag} subscriptions")
        times = []
        for repeat in range(self.repeats + 2):
            workload = Workload("zipf", 100, 0, cancelled=0.0, seed=repeat + 100)
            changes = [{**e, "broker": "hub", "id": f"{tag}{repeat}{e['id']}"} for e in workload.events(config)]
            events = [*changes, *sparse(900, f"{tag}{repeat}", repeat)]
            times.append(self._largest_batch(config, service, events))
        return median(times[2:])

    def _largest_batch(self, config: Config, service: Service, events: list[dict[str, Any]]) -> float:
        """Seconds of the batch that took these events."""
        query = service.query("router")
        before = last_batch(query)
        send_at_once(config, events)
        service.wait(service.quiet)
        progress = [p for p in query.recentProgress if p["batchId"] > before]
        first = max(progress, key=lambda p: p["numInputRows"])
        return float(first["durationMs"]["triggerExecution"] / 1000)

    def _pass_through(self, config: Config, service: Service) -> None:
        """Rates of one large batch, router and pass-through in turns."""
        self.step("measuring against the pass-through")
        count = 5_000
        ratios, rates = [], []
        with self.plain(STAR, "plain-star") as plain:
            for repeat in range(self.repeats + 1):
                events = sparse(count, f"pt{repeat}", repeat)
                ours = self._largest_batch(config, service, events)
                ratios.append(plain.seconds(events) / ours)
                rates.append(count / ours)
        self.report.add("pass_through_ratio", median(ratios[1:]), "at least 0.8")
        self.report.add("publications_per_s", median(rates[1:]))

    @contextmanager
    def plain(self, text: str, name: str) -> Iterator[Plain]:
        """The pass-through query, on topics of its own: it and the router are never busy at the same time."""
        config = self.config(text, name)
        settings = settle(config, 1, self.engine.partitions, self.engine.cores)
        query = pass_through(session(self.engine), settings, self.engine, f"{self.folder}/{name}/query")
        try:
            yield Plain(config, query)
        finally:
            query.stop()

    # large batches

    def backlog(self, scale: int) -> None:
        """Subscriptions behind many waiting publications."""
        waiting, wanted = 1_000_000 // scale, 5_000
        self.step(f"subscribing behind {waiting:,} waiting publications")
        config = self.config(STAR, "backlog")
        self._put_publications(config, waiting)
        workload = Workload("zipf", wanted, 0, cancelled=0.0)
        send(config, [{**event, "broker": "hub"} for event in workload.events(config)])
        topic = Topics(config.kafka.prefix).subscribe
        with self.service(config, most_records=50_000) as service:
            query = service.query("router")
            service.wait(lambda: any(read_up_to(p, topic) >= wanted for p in query.recentProgress))
            first = next(p for p in query.recentProgress if read_up_to(p, topic) >= wanted)
        self.report.add("backlog_batches", first["batchId"] + 1, "at most 2")

    def _put_publications(self, config: Config, count: int) -> None:
        producer = connect_producer(self.bootstrap)
        topic = Topics(config.kafka.prefix).publish
        for k in range(count):
            producer.send(topic, b'{"id":"w%d","at":{"x":0,"y":0,"z":0}}' % k, key=b"hub")
        producer.close()

    def wide(self, scale: int) -> None:
        """One publication for very many clients."""
        clients = 50_000 // scale
        self.step(f"delivering a publication of 64 kB to {clients:,} clients")
        config = self.config(SPACE + '[overlay]\nbrokers = ["hub"]\n', "wide")
        one = {"kind": "subscribe", "broker": "hub", "id": "s", "where": {}}
        at = {"x": 1, "y": 2, "z": 3}
        with self.service(config) as service:
            send(config, [{**one, "client": f"c{k}"} for k in range(clients)])
            service.wait(service.quiet)
            for size in (1, 65_000):  # the first one to have everything loaded that any publication needs
                before = workers()
                publication = {"kind": "publish", "broker": "hub", "id": f"p{size}", "at": at, "payload": "x" * size}
                with Watch() as watch:
                    send(config, [publication])
                    service.wait(service.quiet)
            last = service.query("router").recentProgress[-1]["durationMs"]
        grown = max(most - before.get(pid, 0) for pid, most in watch.most.items())
        self.report.add("bytes_in_flight_max_mb", grown / 2**20, "at most 512")
        self.report.details["wide"] = {"clients": clients, "bytes": clients * 65_300, "batch_ms": last}

    # five brokers in a line

    def chain(self) -> None:
        self.step("measuring hops in one region")
        joined = self._hops_alone(self.config(CHAIN + "regions = 1\n", "joined"))
        floor = self._floor()
        self.report.add("four_hops_in_batches_one_region", joined / floor, "at most 1.8")
        config = self.config(CHAIN, "chain")
        self.step("measuring hops with the default regions")
        alone = self._hops_alone(config)
        self.report.add("four_hops_in_batches", alone / floor, "at most 2.8")
        self.step("measuring hops with two regions")
        parted = self._hops_alone(self.config(CHAIN + "regions = 2\n", "parted"))
        self.step("measuring hops with the archive")
        with self.service(config, archive=True) as service:
            beside = self._hops(config, service, "beside")
            self.report.add("four_hops_in_batches_archiving", beside / floor, "at most 3.5")
            self.step("measuring the archive")
            self._archive(config, service)
        self.report.add("seconds_four_hops", joined)
        self.report.add("seconds_batch", floor)
        self.report.details["hops_s"] = {
            "one_region": round(joined, 3),
            "two_regions": round(parted, 3),
            "default_regions": round(alone, 3),
            "archiving": round(beside, 3),
        }

    def _hops_alone(self, config: Config) -> float:
        """Seconds of four hops without the archive."""
        with self.service(config) as service:
            seconds = self._hops(config, service, "alone")
            last = service.query("router").recentProgress[-1]
            self.report.details[f"batch_ms_{config.kafka.prefix}"] = last["durationMs"]
            self._spread_load(config, service)
        return seconds

    def _spread_load(self, config: Config, service: Service) -> None:
        """Publications per second where all five brokers have clients and publishers: the case for more regions."""
        send(config, list(Workload("uniform", 2_000, 0, cancelled=0.0).events(config)))
        service.wait(service.quiet)
        rates = []
        for repeat in range(self.repeats + 1):
            events = [
                {**event, "id": f"{repeat}-{event['id']}"}
                for event in Workload("uniform", 0, 5_000, seed=repeat).events(config)
            ]
            rates.append(len(events) / self._busy_seconds(config, service, events))
        rates_by_regions = self.report.details.setdefault("publications_per_s_by_regions", {})
        rates_by_regions[len(service.settings.parts)] = round(median(rates[1:]))

    def _busy_seconds(self, config: Config, service: Service, events: list[dict[str, Any]]) -> float:
        """Seconds of all batches that these events took, letters between regions included."""
        query = service.query("router")
        before = last_batch(query)
        send(config, events)
        service.wait(service.quiet)
        batches = [p for p in query.recentProgress if p["batchId"] > before and p["numInputRows"]]
        return float(sum(p["durationMs"]["triggerExecution"] for p in batches) / 1000)

    def _hops(self, config: Config, service: Service, tag: str) -> float:
        """Seconds from a publication at one end to its delivery at the other."""
        send(config, [{"kind": "subscribe", "broker": "n5", "client": "far", "id": "s", "where": {}}])
        service.wait(service.quiet)
        times = [self._cross(config, service, f"{tag}{k}") for k in range(self.repeats + 2)]
        return median(times[2:])

    def _floor(self) -> float:
        """Seconds of a pass-through batch of one publication."""
        self.step("measuring the pass-through")
        one = {"kind": "publish", "broker": "n1", "at": {"x": 1, "y": 2, "z": 3}}
        with self.plain(CHAIN, "plain-chain") as plain:
            floors = [plain.seconds([{**one, "id": f"floor{k}"}]) for k in range(self.repeats + 2)]
            self.report.details["pass_through_batch_ms"] = plain.query.recentProgress[-1]["durationMs"]
        return median(floors[2:])

    def _cross(self, config: Config, service: Service, name: str) -> float:
        """Seconds of one publication. The consumer begins at the end: earlier deliveries are not the router's time."""
        deliveries = TopicPartition(Topics(config.kafka.prefix).deliveries, 0)
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False, consumer_timeout_ms=60_000)
        consumer.assign([deliveries])
        consumer.seek_to_end(deliveries)
        consumer.position(deliveries)  # seeking is lazy
        began = time.monotonic()
        send(config, [{"kind": "publish", "broker": "n1", "id": name, "at": {"x": 1, "y": 2, "z": 3}}])
        for record in consumer:
            if json.loads(record.value)["publication"] == name:
                break
        took = time.monotonic() - began
        consumer.close()
        service.wait(service.quiet)
        return took

    def _archive(self, config: Config, service: Service) -> None:
        """A burst of publications: rows made per second by the router, and archived per second by the archive.

        Both run beside each other, as they do in a job. The archive waits for the next second between two batches, so
        its rate is counted over the time in which it was busy.
        """
        events = [{**e, "broker": "n1"} for e in Workload("zipf", 0, 20_000).events(config)]
        service.wait(service.archived)
        archive = service.query("archive")
        before, last = rows_in(config), last_batch(archive)
        began = time.monotonic()
        send(config, events)
        service.wait(service.quiet)
        routed = time.monotonic() - began
        service.wait(service.archived)
        archived = time.monotonic() - began
        made = rows_in(config) - before
        batches = [p for p in archive.recentProgress if p["batchId"] > last and p["numInputRows"]]
        seconds = sum(p["durationMs"]["triggerExecution"] for p in batches) / 1000
        self.report.add("archive_ratio", (made / seconds) / (made / routed), "above 1")
        self.report.details["archive"] = {
            "rows": made,
            "batches": len(batches),
            "busy_s": round(seconds, 2),
            "router_s": round(routed, 2),
            "caught_up_s": round(archived, 2),
        }


def read_up_to(progress: Any, topic: str) -> int:
    """Return how many records of a topic were read when this batch ended."""
    found = 0
    for source in progress["sources"]:
        ends = source["endOffset"]
        offsets = json.loads(ends) if isinstance(ends, str) else ends or {}
        found += sum(offsets.get(topic, {}).values())
    return found


def workers() -> dict[int, int]:
    """Return the bytes in memory of every Python worker of this program's Spark, by its process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"pyspark.daemon" in (folder / "cmdline").read_bytes() and _is_below(os.getpid(), int(folder.name)):
                pages = int((folder / "statm").read_text().split()[1])
                found[int(folder.name)] = pages * resource.getpagesize()
    return found


def _is_below(ancestor: int, process: int) -> bool:
    while process not in (0, ancestor):
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process == ancestor


class Watch:
    """Looks at the workers, as long as the context lasts, and remembers the most that each had in memory."""

    def __init__(self) -> None:
        self.most: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.02):
            for pid, size in workers().items():
                self.most[pid] = max(self.most.get(pid, 0), size)


def send(config: Config, events: list[dict[str, Any]]) -> None:
    """Put events into Kafka and wait until they are there."""
    with Sender(config) as sender:
        for event in events:
            fields = {key: value for key, value in event.items() if key not in ("kind", "broker")}
            sender.send(event["kind"], event["broker"], fields)


def last_batch(query: StreamingQuery) -> int:
    """Return the number of the last batch that had records. An idle query reports the number of the next one."""
    return max((p["batchId"] for p in query.recentProgress if p["numInputRows"]), default=-1)


def send_at_once(config: Config, events: list[dict[str, Any]]) -> None:
    """Put events into Kafka so that one batch takes all of them, and nothing is sent while it runs.

    A transaction does that: the queries read what is committed.
    """
    topics, composer = Topics(config.kafka.prefix), Composer(config)
    producer = KafkaProducer(bootstrap_servers=config.kafka.bootstrap, transactional_id=f"bench-{config.kafka.prefix}")
    producer.init_transactions()
    producer.begin_transaction()
    for event in events:
        fields = {key: value for key, value in event.items() if key not in ("kind", "broker")}
        value = composer.compose(event["kind"], event["broker"], fields)
        producer.send(topics.of(event["kind"]), value, key=event["broker"].encode())
    producer.commit_transaction()
    producer.close()


def sparse(count: int, tag: str, seed: int) -> list[dict[str, Any]]:
    """Publications near the origin, where few of the Zipfian subscriptions reach.

    Deliveries are work of the batch, and grow with the subscriptions; what is measured here is the state's part.
    """
    points = np.random.default_rng(seed).integers(0, 31, (count, 3)).tolist()
    return [
        {"kind": "publish", "broker": "hub", "id": f"{tag}-{k}", "at": dict(zip("xyz", point, strict=True))}
        for k, point in enumerate(points)
    ]


def pass_through(spark: SparkSession, settings: Settings, engine: Engine, checkpoint: str) -> StreamingQuery:
    """The same topics and regions, an identity function with a counter for state, a Kafka sink."""
    keys = ", ".join(f"'{broker}', '{part.key}'" for broker, part in settings.part_of.items())
    source = records(spark, settings, engine).withColumn(
        "region", expr(f"coalesce(map({keys})[element_at(split(cast(key as string), '>'), -1)], 'none')")
    )
    topic = settings.topics.deliveries + "-plain"
    ensure_plain(settings, topic)

    def identity(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        count = state.get[0] if state.exists else 0
        for frame in frames:
            count += len(frame)
            values = {"topic": topic, "partition": 0, "key": frame["key"], "value": frame["value"], "headers": None}
            yield pd.DataFrame(values)
        state.update((count, b""))

    stepped = source.groupBy("region").applyInPandasWithState(identity, OUTPUT, STATE, "append", "NoTimeout")
    return (
        stepped.writeStream.format("kafka")
        .options(**spark_options(settings.config.kafka.bootstrap))
        .option("checkpointLocation", checkpoint)
        .start()
    )


def ensure_plain(settings: Settings, topic: str) -> None:
    """The topic that the pass-through writes to."""
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.errors import TopicAlreadyExistsError

    admin = KafkaAdminClient(bootstrap_servers=settings.config.kafka.bootstrap)
    try:
        admin.create_topics([NewTopic(topic, 1, 1)])
    except TopicAlreadyExistsError:
        pass
    finally:
        admin.close()


def _frames(config: Config) -> Iterator[tuple[str, Rows]]:
    topic = Topics(config.kafka.prefix).records
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=config.kafka.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=2_000,
    )
    try:
        for record in consumer:
            frame = read(record.value)
            if isinstance(frame, Frame):
                rows = rows_of(frame)
                if isinstance(rows, Rows):
                    yield frame.content.channel, rows
    finally:
        consumer.close()


def rows_in(config: Config) -> int:
    """Rows in the records topic."""
    return sum(rows.rows for _, rows in _frames(config))


def state_bytes(config: Config) -> dict[str, int]:
    """Return the last recorded size of every part of the stored state, by broker and link."""
    sizes: dict[str, int] = {}
    for _, rows in _frames(config):
        if rows.table == "metrics":
            for row in table_of(rows.stream).select(["broker", "link", "state_bytes"]).to_pylist():
                sizes[f"{row['broker']}>{row['link']}"] = row["state_bytes"]
    return sizes
