"""`lacuna listen`: show a client's deliveries as they come."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from lacuna.cli.config_file import read_config
from lacuna.cli.options import Args, Parser, add_config, add_deadline, add_json, count, positive, show_lines
from producers.client import checked_name
from producers.deliveries import Deliveries, Delivery, Gap


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Show a client's deliveries, each once, until stopped (Ctrl-C or SIGTERM: exit code 0)."
    show_lines(command, "example: lacuna listen --client ann --count 1 --timeout 60")
    command.add_argument("--client", required=True, metavar="NAME", help="the client")
    command.add_argument("--from-beginning", action="store_true", help="also what was delivered before")
    command.add_argument(
        "--bookmark",
        metavar="NAME",
        help="store progress in Kafka under this name, and go on from it; for one reader at a time",
    )
    command.add_argument("--count", type=count, metavar="N", help="end after so many deliveries")
    command.add_argument(
        "--timeout",
        type=positive,
        metavar="S",
        help="end after so many seconds without a delivery; exit code 1 if there were fewer than --count",
    )
    add_config(command)
    add_deadline(command)
    add_json(command, "print one JSON object a delivery")


def run(args: Args) -> int:
    """Listen until stopped, or until a limit is reached."""
    config = read_config(args.config)
    client, kafka = checked_name(args.client), config.kafka
    with (
        Deliveries(
            kafka,
            client,
            from_beginning=args.from_beginning,
            timeout=args.timeout,
            bookmark=args.bookmark,
            on_gap=_say_gap,
            deadline=args.deadline,
        ) as deliveries,
        _until_stopped(deliveries) as stopped,
    ):
        print(f"listening for {args.client} at {kafka.bootstrap}", file=sys.stderr, flush=True)
        shown = _show(deliveries, args.count, as_json=args.json)
        return 1 if not stopped and args.count is not None and shown < args.count else 0


def _show(deliveries: Deliveries, most: int | None, *, as_json: bool) -> int:
    """Print deliveries as they come. Return how many there were."""
    shown = 0
    while shown != most and (delivery := next(deliveries, None)) is not None:
        print(msgspec.json.encode(delivery).decode() if as_json else _line(delivery), flush=True)
        shown += 1
    return shown


def _say_gap(gap: Gap) -> None:
    print(f"lacuna: {gap}", file=sys.stderr, flush=True)


def _line(delivery: Delivery) -> str:
    at = json.dumps(delivery.at, ensure_ascii=False)
    payload = "" if delivery.payload is None else json.dumps(delivery.payload, ensure_ascii=False)
    what = f"{delivery.publication} for {delivery.subscription} at {delivery.broker}"
    return "  ".join(part for part in (delivery.time, what, at, payload) if part)


@contextmanager
def _until_stopped(deliveries: Deliveries) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM end the listening between two deliveries. Yield the list of signals that came."""
    came: list[int] = []

    def stop(number: int, _: object) -> None:
        came.append(number)
        deliveries.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
