"""`lacuna chain`: the probability that a publication is found along a path of brokers, computed and measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rich.table import Table

from lacuna.analysis.chain import chain
from lacuna.cli.console import console
from lacuna.cli.options import Args, Parser, add_json
from lacuna.cli.progress import steps
from state.errors import ConfigError

RULES: dict[str, tuple[Callable[[float], bool], str]] = {
    "brokers": (lambda n: 1 <= n <= 100, "a path has 1 to 100 brokers"),
    "rho": (lambda p: 0 < p <= 1, "a probability is above 0 and at most 1"),
    "gap": (lambda p: 1e-5 <= p <= 0.9, "the share that is not covered is from 0.00001 to 0.9"),
    "trials": (lambda n: n >= 1, "at least one guess is made"),
    "runs": (lambda n: 1 <= n <= 1_000_000, "there are 1 to 1,000,000 runs"),
    "seed": (lambda n: 0 <= n < 2**63, "a seed is not negative"),
}
"""The condition that the value of each option must meet, as a test and as text."""


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "The probability of finding a publication along a path of brokers when subscriptions are withheld by guessing: "
        "Proposition 4 of the paper beside a simulation, and the same as Lacuna does it."
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
    add_json(command)


def run(args: Args) -> int:
    """Compute, measure, and show both."""
    given = {name: getattr(args, name) for name in RULES}
    for name, (holds, rule) in RULES.items():
        if not holds(given[name]):
            raise ConfigError(f"--{name}", given[name], rule, "give another value")
    with steps() as step:
        result = chain(**given, step=step)
    if args.json:
        print(json.dumps(result))
    else:
        _show(result)
    return 0


def _show(result: dict[str, Any]) -> None:
    title = (
        f"rho = {result['rho']}, rho_w = {result['rho_w']:.4g}, d = {result['trials']}: "
        f"a broker misses it with {result['missed']:.4g}; {result['runs']:,} runs"
    )
    table = Table("brokers", "formula", "measured", "formula, same guesses", "measured in the overlay", title=title)
    for row in result["paths"]:
        table.add_row(*(str(value) for value in row.values()))
    console().print(table)
