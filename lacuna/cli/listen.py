"""`lacuna listen`: show a client's deliveries as they come."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from lacuna.cli.config_file import read_config
from lacuna.cli.options import Args, Parser, add_config, add_deadline, add_json, count, positive
from producers.client import checked_name
from producers.deliveries import Deliveries, Delivery, Gap
from producers.notices import Notices
from state.config import Kafka
from state.errors import ConfigError
from state.protocol.notices import Notice

QUIET = 10.0
"""Seconds without a delivery after which a reason is offered."""


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Show a client's deliveries, each once, until stopped (Ctrl-C or SIGTERM: exit code 0)."
    command.add_argument("--client", required=True, metavar="NAME", help="the client")
    command.add_argument(
        "--notices", action="store_true", help="show what became of the client's own events instead: refused, in force"
    )
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
    if args.notices:
        return _show_notices(kafka, client, args)
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
        _say(f"listening for {args.client} at {kafka.bootstrap}: {awaited(args)}")
        shown = _show(deliveries, args)
        return 1 if not stopped and args.count is not None and shown < args.count else 0


def _show_notices(kafka: Kafka, client: str, args: Args) -> int:
    """Print notices as they come."""
    if args.bookmark is not None:
        raise ConfigError("--bookmark", args.bookmark, "notices have none", "leave it out, or leave --notices out")
    shown = 0
    with Notices(
        kafka, client, from_beginning=args.from_beginning, timeout=args.timeout, deadline=args.deadline
    ) as notices:
        with _until_stopped(notices) as stopped:
            _say(f"listening for notices to {client} at {kafka.bootstrap}: {awaited(args, 'notice')}")
            while shown != args.count and (notice := next(notices, None)) is not None:
                print(msgspec.json.encode(notice).decode() if args.json else _notice_line(notice), flush=True)
                shown += 1
        return 1 if not stopped and args.count is not None and shown < args.count else 0


def _notice_line(notice: Notice) -> str:
    what = f"{notice.kind or 'event'} {notice.id or '?'}" + (f" at {notice.broker}" if notice.broker else "")
    why = f": {notice.rule}, {notice.message}" if notice.rule else ""
    return f"{what} {notice.state}{why}"


def awaited(args: Args, what: str = "delivery") -> str:
    """Return what is waited for, and until when, as people say it."""
    many = {"delivery": "deliveries", "notice": "notices"}[what]
    which = many if args.count is None else f"{args.count} {what if args.count == 1 else many}"
    begin = "after the bookmark" if args.bookmark else "from the beginning" if args.from_beginning else "from now on"
    end = "until Ctrl-C" if args.timeout is None else f"until none comes for {args.timeout:g} s"
    return f"{which} {begin}, {end}"


def _show(deliveries: Deliveries, args: Args) -> int:
    """Print deliveries as they come. Return how many there were."""
    shown = 0
    with _reminder(args.client) as came:
        while shown != args.count and (delivery := next(deliveries, None)) is not None:
            came.set()
            print(msgspec.json.encode(delivery).decode() if args.json else _line(delivery), flush=True)
            shown += 1
    return shown


@contextmanager
def _reminder(client: str) -> Iterator[threading.Event]:
    """Say once, after a while, why there may be no delivery, unless the event that is yielded is set before."""
    came = threading.Event()
    text = (
        f"no delivery for {client} in {QUIET:g} s. One comes when somebody publishes what {client} has subscribed to "
        f"before: `lacuna subscribe --client {client} ... --wait` says when that is in force, and `lacuna publish ... "
        "--wait` whom a publication reached"
    )

    def remind() -> None:
        if not came.wait(QUIET):
            _say(text)

    threading.Thread(target=remind, daemon=True).start()
    try:
        yield came
    finally:
        came.set()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _say_gap(gap: Gap) -> None:
    _say(f"lacuna: {gap}")


def _line(delivery: Delivery) -> str:
    at = json.dumps(delivery.at, ensure_ascii=False)
    payload = "" if delivery.payload is None else json.dumps(delivery.payload, ensure_ascii=False)
    what = f"{delivery.publication} for {delivery.subscription} at {delivery.broker}"
    return "  ".join(part for part in (delivery.time, what, at, payload) if part)


@contextmanager
def _until_stopped(deliveries: Deliveries | Notices) -> Iterator[list[int]]:
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
