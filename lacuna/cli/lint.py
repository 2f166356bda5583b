"""`lacuna lint`: check the subscriptions of a file before they are sent."""

from __future__ import annotations

import json
from pathlib import Path

from rich.table import Table

from lacuna.analysis.decision_log import Source, standing
from lacuna.analysis.lint import Finding, Linter
from lacuna.cli.config_file import read_config
from lacuna.cli.console import console
from lacuna.cli.options import Args, Parser, add_config, add_json
from state.geometry.boxes import Boxes
from state.protocol.messages import Name


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Look through the subscriptions of an events file. Exit code 0: nothing found, 1: something found, 2: it could "
        "not run."
    )
    command.add_argument("file", metavar="FILE", help="JSON lines as for simulate; kind and broker may be left out")
    add_config(command)
    command.add_argument("--broker", metavar="B", help="for lines that name none")
    command.add_argument(
        "--against",
        nargs="?",
        const="",
        metavar="DIR",
        help="also compare with what stands: in the configuration's lake, or in what `simulate --out DIR` wrote",
    )
    add_json(command)


def run(args: Args) -> int:
    """Check the file and show the findings. The exit code is 1 if there are any."""
    config = read_config(args.config)
    known: dict[Name, Boxes] = {}
    if args.against is not None:
        source = Source(config, Path(args.against) if args.against else None)
        known = standing(config.space, source.decisions(origin="local"))
    with Path(args.file).open("rb") as file:
        linter = Linter(config, args.broker)
        linter.read(file)
    found = linter.findings(known)
    report = {"subscriptions": linter.seen, "against": len(known), **linter.counts(found)}
    if args.json:
        print(json.dumps({**report, "findings": [finding.as_json() for finding in found]}))
    else:
        _show(report, found)
    return 1 if found else 0


def _show(report: dict[str, int], found: list[Finding]) -> None:
    screen = console()
    if found:
        table = Table("line", "subscription", "client", "broker", "finding", "by")
        for finding in found:
            broker, client, id = (part or "" for part in finding.name)
            table.add_row(str(finding.line), id, client, broker, finding.what, finding.words())
        screen.print(table)
    told = ", ".join(
        f"{count:,} {what.replace('_', ' ')}" for what, count in report.items() if count or what == "subscriptions"
    )
    screen.print(told if found else f"{told}; nothing found")
