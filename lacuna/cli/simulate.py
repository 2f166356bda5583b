"""`lacuna simulate`: run a file of events through the overlay in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from lacuna.cli.config_file import parse_strategy, read_config, warn
from lacuna.cli.console import say, show_summary
from lacuna.cli.options import Args, Parser, add_config, add_json
from lacuna.cli.progress import open_lines
from lacuna.simulate import simulate
from state.errors import ConfigError, LacunaError, shown
from state.kernels import CACHE
from state.strategies import PARAMETERS

LOOKED_AT = 10
"""Lines at the beginning of a file that are looked at to see whether it holds events at all."""


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
    command.add_argument("--out", metavar="DIR", help="write the rows of every table as JSON lines")
    add_json(command, "print the summary as one JSON object")


def run(args: Args) -> int:
    """Simulate and show the summary."""
    config = read_config(args.config)
    if args.strategy is not None:
        config = config.with_strategy(parse_strategy(args.strategy))
    warn(config)
    if not CACHE.exists():
        say("compiling, once: the first simulation takes half a minute longer")
    with open_lines(args.events, "simulating") as lines:  # opened before the results of an earlier run are replaced
        summary = simulate(config, checked(lines, args.events), out=_folder(args.out), seed=args.seed)
    if args.json:
        print(json.dumps(summary))
    else:
        _show(summary)
    return 0


def checked(lines: Iterable[bytes], name: str) -> Iterable[bytes]:
    """Return the lines unchanged. Raises `LacunaError` if none of the first few is a JSON object."""
    rest = iter(lines)
    first = list(islice(rest, LOOKED_AT))
    written = [line for line in first if line.strip()]
    if written and not any(_is_object(line) for line in written):
        raise LacunaError(
            f"{name}: this is no events file: line 1 is {shown(first[0][:60])}. Remedy: name a file of JSON lines, one "
            "event a line, as `lacuna init` and `lacuna produce --out` write them"
        )
    return chain(first, rest)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _show(summary: dict[str, Any]) -> None:
    """Print the summary for a person: what was sent beside what flooding would have cost, rejects by their rule."""
    sent, flooded = summary["subscription_messages"], summary["flooded_messages"]
    saved = f" ({1 - sent / flooded:.0%} saved)" if flooded else ""
    told = f"{sent:,} instead of {flooded:,} by flooding{saved}"
    rejects = ", ".join(f"{count:,} {rule}" for rule, count in summary["rejects_by_rule"].items())
    shown = summary | {
        "subscription_messages": told,
        "rejects": f"{summary['rejects']:,} ({rejects})" if rejects else 0,
    }
    del shown["flooded_messages"]
    if not summary["cancelled_in_vain"]:
        del shown["cancelled_in_vain"]
    show_summary(shown, "simulation", as_json=False)


def _folder(out: str | None) -> Path | None:
    if not out:
        return None
    if Path(out).is_file():
        raise ConfigError("--out", out, "this is a file, and a folder is needed", "name another, or remove the file")
    return Path(out)
