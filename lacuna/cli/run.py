"""`lacuna run`: the job, until it is stopped or a query dies. `lacuna up` runs the same with a Kafka of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from rich.status import Status

from access.errors import Unreachable
from lacuna.cli.config_file import read_config, warn
from lacuna.cli.console import STDERR, keep_log, say_as_job
from lacuna.cli.options import Args, Parser, add_config, add_json, amount, memory, port
from lacuna.local import keep_private, spark_jars, store_settings
from state.config import Config
from state.errors import ConfigError, LacunaError
from streaming.endpoint import Endpoint
from streaming.maintenance import check_keep, next_due
from streaming.pipeline import Engine
from streaming.service import STARTING, Service
from streaming.settings import Settings
from streaming.watch import Watch

BETWEEN_TRIES, SAID_EVERY = 2.0, 5
"""Seconds between two attempts to reach Kafka at the start, and after how many of them that is said again."""
LOWEST_PRIORITY = ("nice", "-n", "19")
"""Put before a command that is to take only the time that nothing else needs."""


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Run the router and the archive against the configured Kafka until SIGTERM or Ctrl-C."
    add_engine_options(command)


def add_engine_options(command: Parser) -> None:
    """Add the options by which an operator tunes the job."""
    add_spark_options(command)
    command.add_argument(
        "--tick",
        type=float,
        default=5.0,
        metavar="S",
        help="seconds between two ticks, at most 5: what has expired ends, and the prefix stays held; 0: none "
        "(default: %(default)s)",
    )
    command.add_argument(
        "--maintain",
        type=float,
        default=24.0,
        metavar="HOURS",
        help="hours between two times that the tables are compacted and cleaned, in a process of its own and at the "
        "lowest priority; 0: never (default: %(default)s)",
    )
    command.add_argument(
        "--spark-ui", type=port, metavar="PORT", help="show Spark's own web page at this port of the loopback address"
    )
    command.add_argument(
        "--wait", action="store_true", help="if Kafka does not answer at the start, keep trying until it does"
    )
    command.add_argument("--only", choices=("router", "archive"), help="run one of the two queries")
    add_json(command, "print one JSON object when it is running")


def add_spark_options(command: Parser) -> None:
    """Add the configuration, and the options by which Spark is started."""
    add_config(command)
    command.add_argument(
        "--master",
        default="local[2,4]",
        metavar="M",
        help="Spark's master, or `submit` to take what spark-submit gives (default: %(default)s)",
    )
    command.add_argument(
        "--partitions",
        type=int,
        default=2,
        metavar="N",
        help="tasks of the stateful step; fixed for the life of a checkpoint (default: %(default)s)",
    )
    command.add_argument(
        "--memory", type=memory, default="2g", metavar="SIZE", help="memory of a local Spark (default: %(default)s)"
    )
    command.add_argument(
        "--max-records",
        type=int,
        default=50_000,
        metavar="N",
        help="publications in one batch at most (default: %(default)s)",
    )
    command.add_argument(
        "--trigger",
        type=amount,
        default=0.0,
        metavar="S",
        help="least seconds between the beginnings of two batches of the router; 1 or more where each batch writes to "
        "an object store (default: %(default)g)",
    )
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark's; may be given several times",
    )


def run(args: Args) -> int:
    """Run the job with the configured Kafka."""
    return serve(read_config(args.config), args)


def engine_of(config: Config, args: Args) -> Engine:
    """Return the engine that the configuration and the options describe."""
    submitted = args.master == "submit"
    if config.lake.checkpoint.startswith("s3://"):
        rule = "Spark knows object stores by another name"
        raise ConfigError("lake.checkpoint", config.lake.checkpoint, rule, "write it as s3a://...")
    stores = {} if submitted else store_settings(config.lake.path, config.lake.checkpoint)
    return Engine(
        master=None if submitted else args.master,
        jars=() if submitted else spark_jars(),
        partitions=args.partitions,
        memory=args.memory,
        most_records=args.max_records,
        trigger=f"{round(args.trigger * 1000)} milliseconds",
        conf=stores | spark_ui(args) | dict(pair.split("=", 1) for pair in map(checked_pair, args.conf)),
    )


def spark_ui(args: Args) -> dict[str, str]:
    """Return the settings by which Spark shows its own web page, if it is to."""
    chosen = getattr(args, "spark_ui", None)
    return {} if chosen is None else {"spark.ui.enabled": "true", "spark.ui.port": str(chosen)}


def checked_pair(text: str) -> str:
    """Return a setting of the form KEY=VALUE unchanged. Raises `LacunaError` if it has another form."""
    if "=" not in text:
        raise LacunaError(f"--conf {text!r}: a setting is KEY=VALUE. Remedy: write it so")
    return text


def service_of(config: Config, args: Args) -> Service:
    """Return the service of a configuration. Everything that does not need Spark is checked before Spark starts."""
    check_keep(config)
    engine = engine_of(config, args)
    local = engine.master is not None and engine.master.startswith("local")
    writer = config.lake.writer or ("rust" if local else "spark")
    router, archive = args.only != "archive", args.only != "router"
    return Service.of(
        config, engine, router=router, archive=archive, writer=writer, tick_seconds=args.tick, say=say_as_job
    )


def serve(config: Config, args: Args) -> int:
    """Run the service until a signal comes or a query dies. Return the exit code."""
    keep_private()
    warn(config)
    keep_log()
    stop = threading.Event()
    heed_signals(stop)
    watch = Watch(Settings(config, 0, ()), [name for name in ("router", "archive") if args.only in (None, name)])
    open_endpoint(watch, config)
    service = begun(lambda: service_of(config, args), stop, watch, waits=args.wait)
    if service is None:
        return 0
    service.take(watch)
    upkeep = Upkeep(service.settings, args.config, args.maintain if service.archive else 0)
    try:
        service.start()
        heed_signals(stop)  # Spark has put a handler of its own for Ctrl-C
        say_as_job("waiting for the first batch")
        service.wait(lambda: stop.is_set() or service.watch.begun)
        if not stop.is_set():
            announce(config, as_json=args.json)
        with STDERR.status("running") as status:
            service.wait(stop.is_set, meanwhile=lambda: _watch(service, upkeep, status))
        say_as_job("stopping between batches")
    finally:
        upkeep.stop()
        service.stop()
    return 0


def begun(begin: Callable[[], Service], stop: threading.Event, watch: Watch, *, waits: bool) -> Service | None:
    """Begin, and with `waits` again and again until Kafka answers. Return None if a signal came first."""
    tries = 0
    while not stop.is_set():
        watch.move(STARTING)
        try:
            return begin()
        except Unreachable as error:
            if not waits:
                raise
            watch.miss_kafka(error)
            if tries % SAID_EVERY == 0:
                say_as_job(f"Kafka is waited for: {error}")
            tries += 1
            stop.wait(BETWEEN_TRIES)
    return None


def open_endpoint(watch: Watch, config: Config) -> None:
    """Let the job say over HTTP how it is. A port that is taken is said, and does not keep the job from running."""
    if config.endpoint.port == 0:
        return
    try:
        address = Endpoint(watch, config.endpoint.host, config.endpoint.port).address
    except LacunaError as error:
        say_as_job(str(error))
    else:
        say_as_job(f"how it is: {address}/status, /metrics, /healthz, /readyz")


def _watch(service: Service, upkeep: Upkeep, status: Status) -> None:
    """Do what is due between two looks at the queries: upkeep, and a line of progress at a terminal."""
    upkeep.look()
    if STDERR.is_terminal:
        parts = (f"{name}: batch {p['batch']:,}, {p['rows']:,} records" for name, p in service.progress().items())
        lagging = [f"DEGRADED: the {name} is started again" for name in service.degraded]
        status.update(" | ".join((*lagging, *parts)) or "waiting for the first batch")


class Upkeep:
    """Compaction and cleaning by schedule: `lacuna archive maintain` in a process of its own, at the lowest priority.

    Upkeep takes no memory of the job and no time that the router could use. If it fails, the job goes on: the tables
    stay larger than they need to be until the next attempt.
    """

    def __init__(self, settings: Settings, config: str, every_hours: float) -> None:
        self._config, self._every = config, every_hours
        self._process: subprocess.Popen[bytes] | None = None
        self._due = next_due(settings, every_hours) if every_hours > 0 else None

    def look(self) -> None:
        """Start the process when it is due, and report its result when it has ended."""
        if self._process is not None:
            self._look_after(self._process)
        elif self._due is not None and self._due <= datetime.now(UTC):
            self._due = datetime.now(UTC) + timedelta(hours=self._every)
            maintain = (sys.executable, "-m", "lacuna", "archive", "maintain", "--config", self._config)
            self._process = subprocess.Popen(
                [*LOWEST_PRIORITY, *maintain],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )

    def _look_after(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            return
        said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
        failed = f"the tables could not be maintained: {said[-500:]}"
        say_as_job(failed if process.returncode else "the tables are maintained")
        self._process = None

    def stop(self) -> None:
        """End the process if it is running. Work that it has not committed has no effect."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def heed_signals(stop: threading.Event) -> None:
    """Let Ctrl-C and SIGTERM set an event."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())


def announce(config: Config, *, as_json: bool) -> None:
    """Print that the job runs, and where."""
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
        say_as_job(f"running: Kafka at {facts['bootstrap']}, topics {facts['prefix']}.*, tables below {facts['lake']}")
