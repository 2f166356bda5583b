"""The options of the commands that need Spark. Apart from them, because importing Spark takes a second or two.

The command itself is imported when it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from state.storage.rows import TABLES

Subparsers = Any
Run = Callable[[argparse.Namespace], int]


def later(module: str, function: str) -> Run:
    """A function of a module that is imported when it is called."""

    def call(args: argparse.Namespace) -> int:
        return int(getattr(import_module(module), function)(args))

    return call


def add_engine_options(command: argparse.ArgumentParser) -> None:
    """What an operator tunes."""
    command.add_argument(
        "--config", default="lacuna.toml", metavar="F", help="the configuration (default: %(default)s)"
    )
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
        "--memory", default="2g", metavar="SIZE", help="memory of a local Spark (default: %(default)s)"
    )
    command.add_argument(
        "--max-records",
        type=int,
        default=50_000,
        metavar="N",
        help="records in one batch at most (default: %(default)s)",
    )
    command.add_argument(
        "--tick",
        type=float,
        default=10.0,
        metavar="S",
        help="seconds between two looks for what has expired; 0: never (default: %(default)s)",
    )
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark's; may be given several times",
    )
    command.add_argument(
        "--maintain",
        type=float,
        default=24.0,
        metavar="HOURS",
        help="hours between two times that the tables are compacted and cleaned, in a process of its own and at the "
        "lowest priority; 0: never (default: %(default)s)",
    )
    command.add_argument("--only", choices=("router", "archive"), help="run one of the two queries")
    command.add_argument("--json", action="store_true", help="print one JSON object when it is running")


def add_run(sub: Subparsers) -> None:
    command = sub.add_parser(
        "run",
        help="the long-running job, against the configured Kafka",
        description="Run the router and the archive against the configured Kafka until SIGTERM or Ctrl-C.",
    )
    add_engine_options(command)
    command.set_defaults(run=later("lacuna.service_commands", "run_run"))


def add_up(sub: Subparsers) -> None:
    command = sub.add_parser(
        "up",
        help="a local Kafka and the job, until stopped",
        description="Start a local Kafka at the configured port and run the job, until SIGTERM or Ctrl-C.",
    )
    add_engine_options(command)
    command.add_argument("--home", default=".lacuna/kafka", metavar="DIR", help="where Kafka keeps its files")
    command.set_defaults(run=later("lacuna.service_commands", "run_up"))


def add_sql(sub: Subparsers) -> None:
    command = sub.add_parser(
        "sql",
        help="Spark SQL over the Delta tables",
        description=f"Run a query over the Delta tables: {', '.join(TABLES)}.",
    )
    command.add_argument("query", help='for example "SELECT action, count(*) FROM decisions GROUP BY action"')
    command.add_argument(
        "--config", default="lacuna.toml", metavar="F", help="the configuration (default: %(default)s)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object a row")
    command.set_defaults(run=later("lacuna.service_commands", "run_sql"))


def add_demo(sub: Subparsers) -> None:
    command = sub.add_parser(
        "demo",
        help="everything on this machine: a local Kafka, the job, a workload, a report; ends by itself",
        description="Start a Kafka and the job, send a seeded workload, check every delivery, print a report, stop.",
    )
    command.add_argument("--home", default=".lacuna/demo", metavar="DIR", help="made anew (default: %(default)s)")
    command.add_argument("--subscriptions", type=int, default=1000, metavar="N", help="default: %(default)s")
    command.add_argument("--publications", type=int, default=5000, metavar="N", help="default: %(default)s")
    command.add_argument("--workload", default="zipf", choices=("uniform", "zipf", "clustered"))
    command.add_argument(
        "--strategy", default="auto", metavar="S", help="a name or a TOML table (default: %(default)s)"
    )
    command.add_argument("--seed", type=int, default=1, metavar="N")
    command.add_argument("--json", action="store_true", help="print the report as one JSON object")
    command.set_defaults(run=later("lacuna.demo", "run_demo"))


def add_archive(sub: Subparsers) -> None:
    command = sub.add_parser(
        "archive",
        help="look after the Delta tables: maintain, rebuild",
        description="maintain: compact the tables and remove old files, also beside a running job. "
        "rebuild: set the tables aside, so that the next run fills them anew from the records topic.",
    )
    command.add_argument("what", choices=("maintain", "rebuild"))
    command.add_argument("--config", default="lacuna.toml", metavar="F", help="default: %(default)s")
    command.add_argument("--retention-hours", type=int, default=168, metavar="N", help="default: %(default)s")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=later("lacuna.service_commands", "run_archive"))


COMMANDS: tuple[Callable[[Subparsers], None], ...] = (add_demo, add_up, add_run, add_sql, add_archive)
