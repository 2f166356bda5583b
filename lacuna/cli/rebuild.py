"""`lacuna rebuild`: ask a running router to recompute its approximate negative rectangles."""

from __future__ import annotations

from lacuna.cli.config_file import read_config
from lacuna.cli.console import show_summary
from lacuna.cli.options import Args, Parser, add_config, add_deadline, add_json
from producers.control import ask_rebuild


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Ask every link of a running router whose strategy is approximate to recompute its negative rectangles from "
        "what is active. It is done in small parts, at ticks (run --tick); finished rebuilds are counted in metrics. "
        "Nothing is sent to neighbours."
    )
    add_config(command)
    add_deadline(command)
    add_json(command)


def run(args: Args) -> int:
    """Send the command, and show where in Kafka it is."""
    place = ask_rebuild(read_config(args.config), deadline=args.deadline)
    show_summary({"asked": True, **place._asdict()}, "rebuild", as_json=args.json)
    return 0
