"""`lacuna run`, `up` and `sql`: the job, with everything that it needs made ready first."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.status import Status
from rich.table import Table
from rich.text import Text

from access.topics import ensure_topics
from lacuna.client_commands import show_summary
from lacuna.config_file import read_config, warn
from lacuna.console import console
from lacuna.local import local_kafka, spark_jars
from state.config import Config
from state.errors import LacunaError
from state.storage.rows import TABLES
from streaming.checkpoint import adopt, known
from streaming.maintenance import maintain, next_due, rebuild
from streaming.pipeline import Engine, session
from streaming.service import Service
from streaming.settings import Settings

CONSOLE = console(stderr=True)
LAST = ("nice", "-n", "19")
"""Put before a command that is to take only the time that nobody else wants."""


def say(text: str) -> None:
    """A line of progress for a person."""
    CONSOLE.print(Text(text, "dim"))


def engine_of(args: argparse.Namespace) -> Engine:
    """The engine that the options ask for."""
    submitted = args.master == "submit"
    return Engine(
        master=None if submitted else args.master,
        jars=() if submitted else spark_jars(),
        partitions=args.partitions,
        memory=args.memory,
        most_records=args.max_records,
        conf=dict(pair.split("=", 1) for pair in map(checked_pair, args.conf)),
    )


def checked_pair(text: str) -> str:
    """A setting given as KEY=VALUE."""
    if "=" not in text:
        raise LacunaError(f"--conf {text!r}: a setting is KEY=VALUE. Remedy: write it so")
    return text


def service_of(config: Config, args: argparse.Namespace) -> Service:
    """The service of a configuration, everything checked that can be checked before Spark starts."""
    engine = engine_of(args)
    ensure_topics(config.kafka.bootstrap, config.kafka.prefix)
    settings = adopt(config, args.partitions)
    local = engine.master is not None and engine.master.startswith("local")
    writer = config.lake.writer or ("rust" if local else "spark")
    router, archive = args.only != "archive", args.only != "router"
    return Service(settings, engine, router, archive, writer, args.tick, say)


# lacuna run


def run_run(args: argparse.Namespace) -> int:
    return serve(read_config(args.config), args)


def serve(config: Config, args: argparse.Namespace) -> int:
    """Run the service until a signal comes or a query dies."""
    warn(config)
    stop = threading.Event()
    _heed_signals(stop)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    service = service_of(config, args)
    upkeep = Upkeep(service.settings, args.config, args.maintain if service.archive else 0)
    try:
        service.start()
        _heed_signals(stop)  # Spark has put a handler of its own for Ctrl-C
        announce(config, as_json=args.json)
        with CONSOLE.status("running") as status:
            service.wait(stop.is_set, meanwhile=lambda: _watch(service, upkeep, status))
        say("stopping between batches")
    finally:
        upkeep.stop()
        service.stop()
    return 0


def _watch(service: Service, upkeep: Upkeep, status: Status) -> None:
    """What is done between two looks at the queries: upkeep, and a line of progress where a person watches."""
    upkeep.look()
    if CONSOLE.is_terminal:
        parts = (f"{name}: batch {p['batch']:,}, {p['rows']:,} records" for name, p in service.progress().items())
        status.update(" | ".join(parts) or "waiting for the first batch")


class Upkeep:
    """Compaction and cleaning by schedule: `lacuna archive maintain` in a process of its own, nice to all others.

    So it takes no memory of the job and no time that the router could use, and if it fails the job goes on: the tables
    only stay larger than they need be, and the next time it is tried again.
    """

    def __init__(self, settings: Settings, config: str, every_hours: float) -> None:
        self._config, self._every = config, every_hours
        self._process: subprocess.Popen[bytes] | None = None
        self._due = next_due(settings, every_hours) if every_hours > 0 else None

    def look(self) -> None:
        """Begin if it is time to, and say how it ended."""
        if self._process is not None:
            self._look_after(self._process)
        elif self._due is not None and self._due <= datetime.now(UTC):
            self._due = datetime.now(UTC) + timedelta(hours=self._every)
            command = [*LAST, sys.executable, "-m", "lacuna", "archive", "maintain", "--config", self._config]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )

    def _look_after(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            return
        said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
        failed = f"the tables could not be maintained: {said[-500:]}"
        say(failed if process.returncode else "the tables are maintained")
        self._process = None

    def stop(self) -> None:
        """End it, if it is at work: what it had not committed it has not done."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def _heed_signals(stop: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())


def announce(config: Config, *, as_json: bool) -> None:
    """Say that it runs, and where."""
    facts = {
        "running": True,
        "pid": os.getpid(),
        "bootstrap": config.kafka.bootstrap,
        "prefix": config.kafka.prefix,
        "lake": config.lake.path,
        "checkpoint": config.lake.checkpoint,
    }
    if as_json:
        print(json.dumps(facts), flush=True)
    else:
        say(f"running: Kafka at {facts['bootstrap']}, topics {facts['prefix']}.*, tables below {facts['lake']}")


# lacuna up


def run_up(args: argparse.Namespace) -> int:
    config = read_config(args.config)
    with local_kafka(Path(args.home), local_port(config.kafka.bootstrap)) as bootstrap:
        return serve(replace(config, kafka=replace(config.kafka, bootstrap=bootstrap)), args)


def local_port(bootstrap: str) -> int:
    """The port of a bootstrap address on this machine."""
    host, _, port = bootstrap.partition(":")
    if host not in ("localhost", "127.0.0.1") or not port.isdigit():
        raise LacunaError(
            f"kafka.bootstrap = {bootstrap!r}: `lacuna up` starts a Kafka on this machine, and this is another one. "
            "Remedy: write localhost:9092, or use `lacuna run` with a Kafka that is there"
        )
    return int(port)


# lacuna archive


def run_archive(args: argparse.Namespace) -> int:
    config = read_config(args.config)
    settings = known(config)
    if args.what == "rebuild":
        rebuilt = rebuild(settings, tell=lambda table, stage: say(f"{table}: {stage}"))
        title = "set aside; the next run fills the tables anew"
        show_summary({"rebuilt": True, **rebuilt.rows}, title, as_json=args.json)
        return 0
    done = maintain(settings, args.retention_hours, tell=lambda table, stage: say(f"{table}: {stage}"))
    summary = {
        f"{table}_{what}": value
        for table, upkeep in done.items()
        for what, value in (("files_before", upkeep.before.files), ("files_after", upkeep.after.files))
    }
    show_summary(summary, "maintained", as_json=args.json)
    return 0


# lacuna sql


def run_sql(args: argparse.Namespace) -> int:
    config = read_config(args.config)
    missing = [table for table in TABLES if not (Path(config.lake.path) / table / "_delta_log").is_dir()]
    if missing:
        raise LacunaError(
            f"lake.path = {config.lake.path!r}: there is no table {missing[0]} below it. "
            "Remedy: run the job first, or name the right configuration"
        )
    say("starting Spark")
    spark = session(Engine(jars=spark_jars(), partitions=2))
    try:
        for table in TABLES:
            path = str((Path(config.lake.path) / table).resolve())
            spark.read.format("delta").load(path).createOrReplaceTempView(table)
        _print_frame(spark.sql(args.query), as_json=args.json)
    except Exception as error:
        if type(error).__module__.startswith("pyspark"):
            raise LacunaError(f"the query failed: {str(error).splitlines()[0]}. Remedy: correct the query") from None
        raise
    finally:
        spark.stop()
    return 0


def _print_frame(frame: Any, *, as_json: bool) -> None:
    if as_json:
        for row in frame.toJSON().toLocalIterator():
            print(row)
        return
    table = Table(*frame.columns)
    for row in frame.limit(1000).collect():
        table.add_row(*(str(value) for value in row))
    console().print(table)
