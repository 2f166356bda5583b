"""`lacuna produce`: generate a seeded workload, into Kafka or into a file for `simulate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from access.topics import require_topics
from lacuna.cli.config_file import read_config
from lacuna.cli.console import show_summary
from lacuna.cli.options import (
    Args,
    Parser,
    add_config,
    add_deadline,
    add_json,
    amount,
    count,
    positive,
    share,
    show_lines,
)
from lacuna.cli.progress import counted
from producers.produce import produce_to_kafka
from producers.workloads import WORKLOADS, Workload
from state.config import Config
from state.errors import ConfigError
from state.protocol.events import KINDS
from state.protocol.topics import Topics


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Generate a workload for a configuration: subscriptions, cancellations and publications. Goes into the "
        "configured Kafka or, with --out, into an events file for simulate."
    )
    show_lines(command, "workloads:\n" + "\n".join(f"  {name:<10} {about}" for name, (_, about) in WORKLOADS.items()))
    command.add_argument("workload", choices=sorted(WORKLOADS), metavar="WORKLOAD", help=", ".join(sorted(WORKLOADS)))
    add_config(command)
    command.add_argument("--out", metavar="F", help="an events file to write instead; - for standard output")
    command.add_argument("--rate", type=positive, metavar="N", help="events per second (default: as fast as it goes)")
    command.add_argument("--seed", type=int, default=1, metavar="N", help="the same seed, the same events (default: 1)")
    command.add_argument("--subscriptions", type=count, default=1000, metavar="N", help="default: %(default)s")
    command.add_argument("--publications", type=count, default=5000, metavar="N", help="default: %(default)s")
    command.add_argument(
        "--cancelled",
        type=share,
        default=None,
        metavar="SHARE",
        help="share of the subscriptions cancelled again, 0 to 1 (default: 0.2, for churn 0.9)",
    )
    command.add_argument(
        "--zipf", type=amount, default=None, metavar="S", help="the exponent of the workload zipf (default: 0.5)"
    )
    command.add_argument(
        "--widest",
        type=share,
        default=None,
        metavar="SHARE",
        help="the longest range, as a share of the domain (default: by the workload, see docs/compare.md)",
    )
    command.add_argument(
        "--attributes",
        type=count,
        default=None,
        metavar="N",
        help="how many attributes a subscription names, chosen at random (default: all)",
    )
    add_deadline(command)
    add_json(command, "print the summary as one JSON object")


def run(args: Args) -> int:
    """Produce the workload and show how much it was."""
    config = read_config(args.config)
    workload = Workload(
        args.workload,
        args.subscriptions,
        args.publications,
        args.cancelled,
        args.seed,
        args.zipf,
        args.widest,
        args.attributes,
    )
    if args.out is not None and args.rate is not None:
        raise ConfigError("--rate", args.rate, "a file has no rate", "leave out --rate, or --out to send into Kafka")
    summary: dict[str, Any] = {"workload": args.workload, "seed": args.seed}
    if args.out is None:
        require_topics(config.kafka.bootstrap, Topics(config.kafka.prefix).events, args.deadline)
        with counted("producing", workload.total) as progress:
            summary |= produce_to_kafka(config, workload, args.rate, progress, deadline=args.deadline)
        summary |= {"bootstrap": config.kafka.bootstrap, "prefix": config.kafka.prefix}
    else:
        summary |= {**_produce_to_file(config, workload, args.out), "out": args.out}
    if args.out != "-":
        show_summary(summary, "workload", as_json=args.json)
    return 0


def _produce_to_file(config: Config, workload: Workload, out: str) -> dict[str, int]:
    """Write the events as JSON lines. Return how many there are of each kind."""
    counts: dict[str, int] = dict.fromkeys(KINDS, 0)
    with _writer(out) as write, counted("producing", workload.total) as progress:
        for number, event in enumerate(workload.events(config), 1):
            write(json.dumps(event) + "\n")
            counts[event["kind"]] += 1
            if number % 256 == 0:
                progress(number)
    return counts


@contextmanager
def _writer(path: str) -> Iterator[Callable[[str], int]]:
    """Yield the function that writes into a file, or to standard output for `-`."""
    if path == "-":
        yield sys.stdout.write
    else:
        with Path(path).open("w", encoding="utf-8") as file:
            yield file.write
