"""The commands, one function each that declares its options and one that runs it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
from rich.table import Table

import bench
from bench import BENCHES
from lacuna.chain import chain
from lacuna.client_commands import show_summary
from lacuna.config_file import parse_strategy, read_config, warn
from lacuna.console import console, description
from lacuna.explain import add_explain
from lacuna.fit import add_fit
from lacuna.lint import add_lint
from lacuna.simulate import simulate
from lacuna.steps import steps
from state.errors import ConfigError
from state.strategies import PARAMETERS

Subparsers = Any


def progress() -> Progress:
    """A progress bar on standard error, for people only."""
    columns = (description(), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console(stderr=True), transient=True, disable=not sys.stderr.isatty())


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
        f"'{{name = \"union\", budget = 500}}'; names: {', '.join(PARAMETERS)}",
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
    warn(config)
    with open_lines(args.events) as lines:  # before anything that an earlier run left in --out is replaced
        summary = simulate(config, lines, out=_folder(args.out), seed=args.seed)
    show_summary(summary, "simulation", as_json=args.json)
    return 0


def _folder(out: str | None) -> Path | None:
    if not out:
        return None
    if Path(out).is_file():
        raise ConfigError("--out", out, "this is a file, and a folder is needed", "name another, or remove the file")
    return Path(out)


@contextmanager
def open_lines(path: str) -> Iterator[Iterable[bytes]]:
    """The lines of a file, with a progress bar where a person watches."""
    if path == "-":
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file, progress() as bar:
        yield _watched(file, bar)


def _watched(file: BinaryIO, bar: Progress) -> Iterator[bytes]:
    task = bar.add_task("simulating", total=os.fstat(file.fileno()).st_size)
    for number, line in enumerate(file):
        yield line
        if number % 256 == 0:
            bar.update(task, completed=file.tell())


# lacuna chain


def add_chain(sub: Subparsers) -> None:
    command = sub.add_parser(
        "chain",
        help="how likely strategy probabilistic finds a publication along a path of brokers",
        description="The probability of finding a publication along a path of brokers when subscriptions are withheld "
        "by guessing: Proposition 4 of the paper beside a simulation, and the same as Lacuna does it.",
    )
    command.add_argument("--brokers", type=int, default=10, metavar="N", help="the longest path (default: %(default)s)")
    command.add_argument(
        "--rho", type=float, default=0.2, metavar="P", help="a broker has the publication (default: %(default)s)"
    )
    command.add_argument(
        "--gap", type=float, default=0.04, metavar="P", help="share that is not covered, rho_w (default: %(default)s)"
    )
    command.add_argument("--trials", type=int, default=20, metavar="D", help="guesses, d (default: %(default)s)")
    command.add_argument("--runs", type=int, default=1000, metavar="N", help="default: %(default)s")
    command.add_argument("--seed", type=int, default=1, metavar="N", help="default: %(default)s")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=run_chain)


CHAIN_RULES: dict[str, tuple[Callable[[float], bool], str]] = {
    "brokers": (lambda n: 1 <= n <= 100, "a path has 1 to 100 brokers"),
    "rho": (lambda p: 0 < p <= 1, "a probability is above 0 and at most 1"),
    "gap": (lambda p: 1e-5 <= p <= 0.9, "the share that is not covered is from 0.00001 to 0.9"),
    "trials": (lambda n: n >= 1, "at least one guess is made"),
    "runs": (lambda n: 1 <= n <= 1_000_000, "there are 1 to 1,000,000 runs"),
    "seed": (lambda n: 0 <= n < 2**63, "a seed is not negative"),
}


def run_chain(args: argparse.Namespace) -> int:
    given = {name: getattr(args, name) for name in CHAIN_RULES}
    for name, (holds, rule) in CHAIN_RULES.items():
        if not holds(given[name]):
            raise ConfigError(f"--{name}", given[name], rule, "give another value")
    with steps() as step:
        result = chain(**given, step=step)
    if args.json:
        print(json.dumps(result))
        return 0
    title = (
        f"rho = {result['rho']}, rho_w = {result['rho_w']:.4g}, d = {result['trials']}: "
        f"a broker misses it with {result['missed']:.4g}; {result['runs']:,} runs"
    )
    table = Table("brokers", "formula", "measured", "formula, same guesses", "measured in the overlay", title=title)
    for row in result["paths"]:
        table.add_row(*(str(value) for value in row.values()))
    console().print(table)
    return 0


# lacuna bench


def add_bench(sub: Subparsers) -> None:
    command = sub.add_parser(
        "bench",
        help="measure, and compare with the papers and with peers",
        description="Measure. Figures are ratios within one run.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="benchmarks:\n" + "\n".join(f"  {name:<14} {about}" for name, about in BENCHES.items()),
    )
    command.add_argument("name", nargs="?", choices=sorted(BENCHES), metavar="NAME", help="default: all of them")
    command.add_argument("--quick", action="store_true", help="a minute or two, the same shape")
    command.add_argument("--json", action="store_true", help="print one JSON object a benchmark")
    command.add_argument("--keep", action="store_true", help="write the report into bench/results")
    command.set_defaults(run=run_bench)


def run_bench(args: argparse.Namespace) -> int:
    for name in [args.name] if args.name else sorted(BENCHES):
        with steps() as step:
            report = bench.run(name, step, quick=args.quick)
        if args.keep:
            report.keep()
        if args.json:
            print(json.dumps(report.as_json()))
        else:
            report.show()
    return 0


COMMANDS: tuple[Callable[[Subparsers], None], ...] = (
    *(add_simulate, add_explain, add_lint, add_chain),
    *(add_fit, add_bench),
)
