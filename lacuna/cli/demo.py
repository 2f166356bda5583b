"""`lacuna demo`: everything on this machine, from nothing to a checked report, ending by itself.

A real Kafka, the real job, a seeded workload. The subscriptions are sent first and the publications when the overlay is
quiet, so that it is certain which deliveries must come. Every delivery is then compared with a brute-force oracle that
knows nothing of brokers, boxes or keys: it compares plain values.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from access.connection import connect_producer
from lacuna.cli.config_file import parse_strategy
from lacuna.cli.console import console, say_as_job
from lacuna.cli.options import Args, Parser, add_json
from lacuna.cli.progress import Step, steps
from lacuna.cli.run import heed_signals
from lacuna.local import infra, keep_private, local_kafka, spark_jars
from producers.sender import Sender
from producers.workloads import Event, Workload
from state.config import Config, parse
from state.errors import ConfigError
from state.protocol.events import EventKind
from state.protocol.topics import Topics
from state.storage.tables import TABLES
from streaming.endpoint import Endpoint
from streaming.holder import BEAT
from streaming.pipeline import Engine
from streaming.service import Service

CONFIG = """\
[space]
price  = { kind = "float", low = 0.0, high = 1000.0 }
volume = { kind = "int", low = 0, high = 100000 }
symbol = { kind = "category", values = ["AAPL", "IBM", "MSFT", "ORCL", "SAP"] }

[overlay]
links = [["paris", "oslo"], ["paris", "rome"], ["paris", "wien"], ["wien", "praha"], ["oslo", "bergen"]]

[routing]
strategy = "auto"

LINKS[kafka]
bootstrap = "127.0.0.1:9092"
prefix = "demo"

[lake]
path = "HOME/lake"
checkpoint = "HOME/checkpoint"
metrics_every = 0
"""
LINKS = """\
[routing.links."oslo>paris"]
strategy = "negative"

[routing.links."wien>paris"]
strategy = { name = "negative-approx", k = 5 }

"""
"""Two links of the default demo decide by other strategies, so that the tables show negative rectangles."""
REFUSED: tuple[tuple[EventKind, str, str], ...] = (
    ("subscribe", "oslo", '{"id": "r1", "client": "c1", "where": {"price": [20, 10]}}'),
    ("subscribe", "rome", '{"id": "r2", "client": "c2", "where": {"prize": [10, 20]}}'),
    ("subscribe", "wien", '{"id": "r3", "client": "c3", "where": "price < 20 AND"}'),
    ("subscribe", "graz", '{"id": "r4", "client": "c4", "where": {}}'),
    ("publish", "oslo", '{"id": "r5", "at": {"price": 1000.01, "volume": 5, "symbol": "IBM"}}'),
    ("publish", "rome", '{"id": "r6", "at": {"price": 10, "volume": 5}}'),
    ("publish", "wien", '{"id": "r7", "at": '),
)
"""Events that break a rule, with their brokers: the demo sends them on purpose."""

MARK = ".lacuna-demo"
"""A file that says: this folder was made by a demo."""
FOLDERS = ("kafka", "lake", "checkpoint")
"""The folders that a demo makes in its home."""

Delivery = tuple[str, str, str, str]


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Start a Kafka and the job, send a seeded workload, check every delivery, print a report, stop."
    )
    command.add_argument(
        "--home",
        default=".lacuna/demo",
        metavar="DIR",
        help="a new or empty folder, or that of an earlier demo, which is replaced (default: %(default)s)",
    )
    command.add_argument("--subscriptions", type=int, default=1000, metavar="N", help="default: %(default)s")
    command.add_argument("--publications", type=int, default=5000, metavar="N", help="default: %(default)s")
    command.add_argument("--workload", default="zipf", choices=("uniform", "zipf", "clustered"))
    command.add_argument(
        "--strategy",
        metavar="S",
        help="a name or a TOML table, for every link (default: auto, and two links that keep negative rectangles)",
    )
    command.add_argument("--seed", type=int, default=1, metavar="N")
    command.add_argument(
        "--serve", action="store_true", help="let the job run on, with gateway and console, until Ctrl-C"
    )
    add_json(command, "print the report as one JSON object")


def run(args: Args) -> int:
    """Run the demo and show its report. The exit code is 1 if a delivery is missing, false or repeated."""
    keep_private()
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    if args.strategy is not None:
        parse_strategy(args.strategy)  # refused before anything is started
    home = Path(args.home)
    workload = Workload(args.workload, args.subscriptions, args.publications, 0.2, args.seed)
    with ExitStack() as stack:
        with steps() as step:
            step("fetching the pinned jars (once)")
            jars = spark_jars()
            make_home(home)
            step("starting Kafka")
            config = _config(home, stack.enter_context(local_kafka(home / "kafka", 0)), args.strategy)
            service = stack.enter_context(_running(config, Engine(jars=jars), step, BEAT if args.serve else 0))
            facts = _perform(config, workload, service, step)
            if not args.serve:
                step("stopping")
                stack.close()
        report = _report(config, workload, facts, home)
        if args.json:
            print(json.dumps(report), flush=True)
        else:
            _show(report, config)
        if args.serve:
            _serve(config, service)
    return 1 if _faults(report) else 0


def _serve(config: Config, service: Service) -> None:
    """Let the job run on, with gateway and console at free ports, until Ctrl-C."""
    from lacuna.cli.serve import serving  # only who asks for it needs what it is made of

    stop = threading.Event()
    heed_signals(stop)
    service.say = say_as_job
    job = Endpoint(service.watch, "127.0.0.1", 0).address
    with serving(replace(config, serve=replace(config.serve, port=0, job=job))):
        service.wait(stop.is_set)
        say_as_job("stopping")


def make_home(home: Path) -> None:
    """Make the demo's folder, or empty that of an earlier demo. Refuse a folder that holds anything else.

    Of an earlier demo, only what a demo makes is removed.
    """
    mark = home / MARK
    if home.exists() and not mark.exists() and (not home.is_dir() or any(home.iterdir())):
        rule = "it was not made by a demo, and is not replaced"
        raise ConfigError("--home", str(home), rule, "name a new or empty folder, or remove it yourself")
    home.mkdir(parents=True, exist_ok=True)
    mark.touch()  # first: a demo that is killed at any moment leaves a folder that the next one may replace
    if (home / "kafka").is_dir():
        infra("kafka", "stop", "--home", str((home / "kafka").resolve()))  # left running by a demo that was killed
    for folder in FOLDERS:
        shutil.rmtree(home / folder, ignore_errors=True)
    (home / "lacuna.toml").unlink(missing_ok=True)


def _config(home: Path, bootstrap: str, strategy: str | None) -> Config:
    text = config_text(home, strategy).replace("127.0.0.1:9092", bootstrap)
    (home / "lacuna.toml").write_text(text)
    return parse(text)


def config_text(home: Path, strategy: str | None = None) -> str:
    """Return the demo's configuration, with a strategy for every link or its own choice."""
    text = CONFIG.replace("HOME", home.resolve().as_posix()).replace("LINKS", LINKS if strategy is None else "")
    if strategy is not None:
        text = text.replace('"auto"', strategy if strategy.lstrip().startswith("{") else f'"{strategy}"')
    return text


@dataclass
class Facts:
    """Times and counts of the run, and the events that were sent."""

    seconds: dict[str, float]
    batches: int
    events: list[Event]


@contextmanager
def _running(config: Config, engine: Engine, step: Step, tick_seconds: float) -> Iterator[Service]:
    """Run the job as long as the body runs."""
    service = Service.of(config, engine, tick_seconds=tick_seconds, say=step)
    try:
        service.start()
        yield service
    finally:
        service.stop()


def _perform(config: Config, workload: Workload, service: Service, step: Step) -> Facts:
    seconds: dict[str, float] = {}
    events = list(workload.events(config))
    phases = {
        "subscriptions": [event for event in events if event["kind"] != "publish"],
        "publications": [event for event in events if event["kind"] == "publish"],
    }
    for name, phase in phases.items():
        began = time.monotonic()
        _send(config, phase)
        if name == "publications":
            _send_refused(config)
        step(f"{len(phase):,} {name} sent; waiting until the overlay is quiet")
        service.wait(service.quiet)
        seconds[name] = time.monotonic() - began
    step("waiting for the archive")
    service.wait(service.archived)
    batches = int(service.progress()["router"]["batch"]) + 1
    return Facts(seconds, batches, events)


def _send(config: Config, events: list[Event]) -> None:
    with Sender(config) as sender:
        for event in events:
            fields = {key: value for key, value in event.items() if key not in ("kind", "broker")}
            sender.send(event["kind"], event["broker"], fields)


def _send_refused(config: Config) -> None:
    """Send the events that break a rule, which a client library would not send."""
    producer, topics = connect_producer(config.kafka.bootstrap), Topics(config.kafka.prefix)
    try:
        for kind, broker, value in REFUSED:
            producer.send(topics.of(kind), value.encode(), key=broker.encode())
        producer.flush()
    finally:
        producer.close()


# The report


def _report(config: Config, workload: Workload, facts: Facts, home: Path) -> dict[str, Any]:
    tables = {table: deltalake.DeltaTable(f"{config.lake.path}/{table}").to_pyarrow_table() for table in TABLES}
    expected = expected_deliveries(config, facts.events)
    columns = ("broker", "client", "subscription", "publication")
    rows = [tuple(row[c] for c in columns) for row in tables["deliveries"].select(columns).to_pylist()]
    links = _by_link(tables["decisions"])
    told = sum(link["forward"] + link["promote"] + link["cancel"] for link in links.values())
    flood = _flooded(config, facts.events)
    return {
        "workload": workload.name,
        "brokers": len(config.overlay.brokers),
        "events": len(facts.events),
        "batches": facts.batches,
        "seconds": {name: round(value, 1) for name, value in facts.seconds.items()},
        "links": links,
        "subscription_messages": told,
        "flooded_messages": flood,
        "saved": round(1 - told / flood, 4),
        "publication_messages": pc.sum(pc.equal(tables["routes"]["action"], "forward")).as_py(),
        "deliveries": len(rows),
        "missing": len(expected - set(rows)),
        "false": len(set(rows) - expected),
        "repeated": len(rows) - len(set(rows)),
        "rejects": tables["rejects"].num_rows,
        "rejects_expected": len(REFUSED),
        "home": str(home),
        "lake": config.lake.path,
    }


def _by_link(decisions: pa.Table) -> dict[str, dict[str, int]]:
    counted = decisions.group_by(["broker", "link", "action"]).aggregate([("action", "count")]).to_pylist()
    links: dict[str, dict[str, int]] = {}
    for row in sorted(counted, key=lambda row: (row["broker"], row["link"])):
        name = f"{row['broker']}>{row['link']}"
        link = links.setdefault(name, dict.fromkeys(("forward", "withhold", "promote", "cancel", "drop"), 0))
        link[row["action"]] = row["action_count"]
    return links


def _flooded(config: Config, events: list[Event]) -> int:
    """Return the messages that flooding would have sent: every subscribe and unsubscribe once over every link."""
    changes = len([event for event in events if event["kind"] != "publish"])
    return changes * (len(config.overlay.brokers) - 1)


def expected_deliveries(config: Config, events: list[Event]) -> set[Delivery]:
    """Return the deliveries that must come (the oracle): compare plain values, one subscription after another."""
    publications = [event for event in events if event["kind"] == "publish"]
    values = {a.name: np.array([p["at"][a.name] for p in publications]) for a in config.space.attributes}
    cancelled = {(e["broker"], e["client"], e["id"]) for e in events if e["kind"] == "unsubscribe"}
    expected: set[Delivery] = set()
    for event in events:
        name = (event["broker"], event.get("client", ""), event["id"])
        if event["kind"] == "subscribe" and name not in cancelled:
            matching = np.flatnonzero(_matches(config, event["where"], values, len(publications)))
            expected |= {(*name, publications[k]["id"]) for k in matching.tolist()}
    return expected


def _matches(config: Config, where: Event, values: dict[str, NDArray[Any]], count: int) -> NDArray[np.bool_]:
    holds = np.ones(count, bool)
    categories = {a.name for a in config.space.attributes if a.kind == "category"}
    for name, wanted in where.items():
        if name in categories:
            holds &= np.isin(values[name], wanted)
        else:
            holds &= (values[name] >= wanted[0]) & (values[name] <= wanted[1])
    return holds


def _faults(report: dict[str, Any]) -> int:
    """Return how many deliveries and rejects are not as they must be."""
    rejects = abs(report["rejects"] - report["rejects_expected"])
    return int(report["missing"] + report["false"] + report["repeated"] + rejects)


def _show(report: dict[str, Any], config: Config) -> None:
    screen = console()
    table = Table("link", "forwarded", "withheld", "promoted", "cancelled", "dropped", title="what each link was told")
    for name, link in report["links"].items():
        table.add_row(name, *(f"{link[action]:,}" for action in ("forward", "withhold", "promote", "cancel", "drop")))
    screen.print(table)
    verdict = ("WRONG", "red") if _faults(report) else ("every delivery is right", "green")
    screen.print(
        Panel(
            Text.assemble(
                f"{report['events']:,} events through {report['brokers']} brokers in {report['batches']} batches\n"
                f"subscription messages: {report['subscription_messages']:,} instead of {report['flooded_messages']:,} "
                f"by flooding ({report['saved']:.0%} saved)\n"
                f"publication messages: {report['publication_messages']:,}\n"
                f"deliveries: {report['deliveries']:,}; against the oracle: missing {report['missing']}, "
                f"false {report['false']}, repeated {report['repeated']}: ",
                verdict,
                f"\nrejects: {report['rejects']}; events that break a rule were sent on purpose: "
                f"{report['rejects_expected']}",
            ),
            title="the whole overlay",
        )
    )
    screen.print(f"The Delta tables are in {report['lake']}. Two queries to try:")
    for query in (
        "SELECT broker, link, action, count(*) AS n FROM decisions GROUP BY ALL ORDER BY ALL",
        "SELECT client, subscription, link, filter, coverer_client, coverer_filter FROM why LIMIT 5",
    ):
        command = f"{_shortest(Path(sys.argv[0]))} sql --config {report['home']}/lacuna.toml"
        screen.print(f'  {command} "{query}"', highlight=False, soft_wrap=True)


def _shortest(path: Path) -> Path:
    """Return the path as a person would type it in the current folder."""
    full = path.resolve()
    return full.relative_to(Path.cwd()) if full.is_relative_to(Path.cwd()) else path
