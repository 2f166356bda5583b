"""The commands, one function each that declares its options and one that runs it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bench import BENCHES
from bench.report import steps
from lacuna.simulate import simulate
from producers.workloads import WORKLOADS, Workload
from state.config import Config, parse
from state.errors import ConfigError, LacunaError
from state.strategies import STRATEGIES, Spec

Subparsers = Any


def read_config(path: str) -> Config:
    """The configuration in a file."""
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LacunaError(f"{path}: there is no such file. Remedy: name a configuration with --config") from None
    except UnicodeDecodeError:
        raise LacunaError(f"{path}: it is not UTF-8 text. Remedy: save the configuration as UTF-8") from None
    except ConfigError as error:
        raise LacunaError(f"{path}: {error}") from None


def progress() -> Progress:
    """A progress bar on standard error, for people only."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def _show(summary: dict[str, Any], title: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary))
        return
    table = Table(title=title, show_header=False)
    for key, value in summary.items():
        if not isinstance(value, dict):
            table.add_row(key.replace("_", " "), f"{value:,}" if isinstance(value, int | float) else str(value))
    Console().print(table)


# lacuna simulate


def add_simulate(sub: Subparsers) -> None:
    command = sub.add_parser(
        "simulate",
        help="run a file of events through the overlay, without Kafka and Spark",
        description="Run a file of events (JSON lines with kind and broker) through the overlay in memory.",
    )
    command.add_argument("events", help="the events file, JSON lines; - for standard input")
    command.add_argument(
        "--config", default="lacuna.toml", metavar="F", help="the configuration (default: %(default)s)"
    )
    command.add_argument(
        "--strategy",
        metavar="S",
        help="for all links: a name or a TOML table, e.g. "
        f"'{{name = \"union\", budget = 500}}'; names: {', '.join(STRATEGIES)}",
    )
    command.add_argument("--seed", type=int, metavar="N", help="interleave link messages at random, reproducibly")
    command.add_argument(
        "--out", metavar="DIR", help="write decisions, routes, deliveries, metrics, rejects as JSON lines"
    )
    command.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    command.set_defaults(run=run_simulate)


def run_simulate(args: argparse.Namespace) -> int:
    config = read_config(args.config)
    if args.strategy is not None:
        config = config.with_strategy(parse_strategy(args.strategy))
    out = Path(args.out) if args.out else None
    summary = simulate(config, read_lines(args.events), out=out, seed=args.seed)
    _show(summary, "simulation", as_json=args.json)
    return 0


def parse_strategy(text: str) -> Spec:
    """A strategy given on the command line: a name, or a TOML table with parameters."""
    if not text.lstrip().startswith("{"):
        return Spec.of(text.strip().strip("'\""), "--strategy")
    try:
        return Spec.of(tomllib.loads(f"strategy = {text}")["strategy"], "--strategy")
    except tomllib.TOMLDecodeError as error:
        remedy = "write it as '{name = \"union\", budget = 500}'"
        raise ConfigError("--strategy", text, f"it is not a TOML table: {error}", remedy) from None


def read_lines(path: str) -> Iterator[bytes]:
    """The lines of a file, with a progress bar where a person watches."""
    if path == "-":
        yield from sys.stdin.buffer
        return
    with Path(path).open("rb") as file, progress() as bar:
        task = bar.add_task("simulating", total=os.fstat(file.fileno()).st_size)
        for number, line in enumerate(file):
            yield line
            if number % 256 == 0:
                bar.update(task, completed=file.tell())


# lacuna produce


def add_produce(sub: Subparsers) -> None:
    command = sub.add_parser(
        "produce",
        help="generate a seeded workload of events",
        description="Generate a workload for a configuration: subscriptions, cancellations and publications.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="workloads:\n" + "\n".join(f"  {name:<10} {about}" for name, (_, about) in WORKLOADS.items()),
    )
    command.add_argument("workload", choices=sorted(WORKLOADS), metavar="WORKLOAD", help=", ".join(sorted(WORKLOADS)))
    command.add_argument(
        "--config", default="lacuna.toml", metavar="F", help="the configuration (default: %(default)s)"
    )
    command.add_argument("--out", required=True, metavar="F", help="the events file to write; - for standard output")
    command.add_argument("--seed", type=int, default=1, metavar="N", help="the same seed, the same file (default: 1)")
    command.add_argument("--subscriptions", type=_count, default=1000, metavar="N", help="default: %(default)s")
    command.add_argument("--publications", type=_count, default=5000, metavar="N", help="default: %(default)s")
    command.add_argument(
        "--cancelled",
        type=_share,
        default=None,
        metavar="SHARE",
        help="share of the subscriptions cancelled again, 0 to 1 (default: 0.2, for churn 0.9)",
    )
    command.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    command.set_defaults(run=run_produce)


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")
    return share


def run_produce(args: argparse.Namespace) -> int:
    config = read_config(args.config)
    workload = Workload(args.workload, args.subscriptions, args.publications, args.cancelled, args.seed)
    counts: dict[str, int] = dict.fromkeys(("subscribe", "unsubscribe", "publish"), 0)
    with Sink(args.out) as write, progress() as bar:
        task = bar.add_task("producing", total=None)
        for event in workload.events(config):
            size = write(json.dumps(event) + "\n")
            counts[event["kind"]] += 1
            bar.update(task, advance=size)
    if args.out != "-":
        _show({"workload": args.workload, "seed": args.seed, **counts, "out": args.out}, "workload", as_json=args.json)
    return 0


class Sink:
    """Where lines go: a file, or standard output for `-`."""

    def __init__(self, path: str) -> None:
        self._file = sys.stdout if path == "-" else Path(path).open("w", encoding="utf-8")  # noqa: SIM115

    def __enter__(self) -> Callable[[str], int]:
        return self._file.write

    def __exit__(self, *_: object) -> None:
        if self._file is not sys.stdout:
            self._file.close()


# lacuna bench


def add_bench(sub: Subparsers) -> None:
    command = sub.add_parser(
        "bench",
        help="measure, and compare with the papers and with peers",
        description="Measure. Figures are ratios within one run.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="benchmarks:\n" + "\n".join(f"  {name:<10} {about}" for name, (_, about) in BENCHES.items()),
    )
    command.add_argument("name", nargs="?", choices=sorted(BENCHES), metavar="NAME", help="default: all of them")
    command.add_argument("--quick", action="store_true", help="a minute or two, the same shape")
    command.add_argument("--json", action="store_true", help="print one JSON object a benchmark")
    command.add_argument("--keep", action="store_true", help="write the report into bench/results")
    command.set_defaults(run=run_bench)


def run_bench(args: argparse.Namespace) -> int:
    for name in [args.name] if args.name else sorted(BENCHES):
        with steps() as step:
            report = BENCHES[name][0](step, quick=args.quick)
        if args.keep:
            report.keep()
        if args.json:
            print(json.dumps(report.as_json()))
        else:
            report.show()
    return 0


COMMANDS: tuple[Callable[[Subparsers], None], ...] = (add_simulate, add_produce, add_bench)
