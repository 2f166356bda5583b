"""`lacuna simulate`: run a file of events through the overlay in memory."""

from __future__ import annotations

from pathlib import Path

from lacuna.cli.config_file import parse_strategy, read_config, warn
from lacuna.cli.console import show_summary
from lacuna.cli.options import Args, Parser, add_config, add_json
from lacuna.cli.progress import open_lines
from lacuna.simulate import simulate
from state.errors import ConfigError
from state.strategies import PARAMETERS


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Run a file of events (JSON lines with kind and broker) through the overlay in memory."
    command.add_argument("events", help="the events file, JSON lines; - for standard input")
    add_config(command)
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
    add_json(command, "print the summary as one JSON object")


def run(args: Args) -> int:
    """Simulate and show the summary."""
    config = read_config(args.config)
    if args.strategy is not None:
        config = config.with_strategy(parse_strategy(args.strategy))
    warn(config)
    with open_lines(args.events, "simulating") as lines:  # opened before the results of an earlier run are replaced
        summary = simulate(config, lines, out=_folder(args.out), seed=args.seed)
    show_summary(summary, "simulation", as_json=args.json)
    return 0


def _folder(out: str | None) -> Path | None:
    if not out:
        return None
    if Path(out).is_file():
        raise ConfigError("--out", out, "this is a file, and a folder is needed", "name another, or remove the file")
    return Path(out)
