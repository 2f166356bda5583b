"""`lacuna subscriptions`: what stands, of all clients or of one."""

from __future__ import annotations

import json
import time

from rich.table import Table

from lacuna.analysis.standing import Stands, standing
from lacuna.cli.config_file import read_config
from lacuna.cli.console import console
from lacuna.cli.options import Args, Parser, add_config, add_deadline, add_json


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Show the subscriptions that stand, as the topics of events say: the job need not run, and may not have read "
        "the last of them yet."
    )
    command.add_argument("--broker", metavar="NAME", help="only those at this broker")
    command.add_argument("--client", metavar="NAME", help="only those of this client")
    add_config(command)
    add_deadline(command)
    add_json(command, "print one JSON object a subscription")


def run(args: Args) -> int:
    """Show what stands."""
    found = standing(read_config(args.config), time.time_ns() // 1000, args.deadline)
    wanted = [s for s in found if args.broker in (None, s.broker) and args.client in (None, s.client)]
    if args.json:
        for each in wanted:
            print(json.dumps(each._asdict() | {"filter": json.loads(each.filter)}))
    else:
        _show(wanted)
    return 0


def _show(found: list[Stands]) -> None:
    table = Table(*Stands._fields, title=f"{len(found):,} subscriptions stand")
    for each in found:
        table.add_row(*(field or "" for field in each))
    console().print(table)
