"""`lacuna fit`: learn cells from publications, and write them into the configuration.

Publications and subscriptions are read from a file of events or from the topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lacuna.analysis.fit import Sample, configured_bits, fitted, refuse_thin, write
from lacuna.cli.config_file import read_config, read_text
from lacuna.cli.console import show_summary
from lacuna.cli.options import Args, Parser, add_config, add_json
from lacuna.cli.progress import open_lines
from producers.history import past_events
from state.config import Config
from state.protocol.events import Context, Reject, read_line
from state.protocol.messages import Message


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        'Learn where publications are, for strategy mics with cells = "fitted", and how much each attribute tells, for '
        'dims = "selective:N". Replaces the section [cells] of the configuration, nothing else, and keeps the '
        "configuration as it was in a file beside it that ends in .bak."
    )
    command.add_argument(
        "events", nargs="?", help="an events file, JSON lines; - for standard input; left out: the topics of Kafka"
    )
    add_config(command)
    command.add_argument("--bits", type=int, choices=range(1, 13), metavar="N", help="default: the strategy's, or 8")
    command.add_argument("--force", action="store_true", help="learn from fewer publications than there are cells")
    command.add_argument("--out", metavar="F", help="write there, and leave the configuration as it is")
    add_json(command, "print the summary as one JSON object")


def run(args: Args) -> int:
    """Learn the cells, write them, and show what they were learned from."""
    text = read_text(args.config)
    config = read_config(args.config, routing=False)  # its strategy may already need the cells that are learned here
    sample = Sample(config.space)
    refused = _learn(sample, config, args.events)
    bits = args.bits or configured_bits(text)
    if not args.force:
        refuse_thin(sample, bits)
    new, _ = fitted(text, sample.cells(bits))
    if args.out is None:
        write(Path(f"{args.config}.bak"), text)
    write(Path(args.out or args.config), new)
    summary = {"publications": len(sample.points), "subscriptions": len(sample.boxes), "refused": refused}
    show_summary({**summary, "bits": bits, "written": args.out or args.config}, "cells", as_json=args.json)
    return 0


def _learn(sample: Sample, config: Config, events: str | None) -> int:
    """Learn from a file of events, or from the topics if there is none. Return how many events were refused."""
    if events is None:
        return sample.take(message for _, message in past_events(config, ("publish", "subscribe")))
    with open_lines(events, "learning") as lines:
        return sample.take(_messages(config, lines))


def _messages(config: Config, lines: Iterable[bytes]) -> Iterator[Message | Reject]:
    context = Context(config.space, config.overlay.brokers)
    return (read_line(context, line, 0, place)[2] for place, line in enumerate(lines) if line.strip())
