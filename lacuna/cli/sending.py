"""Sending one event: shared by `subscribe`, `unsubscribe` and `publish`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import msgspec

from access.topics import require_topics
from lacuna.cli.config_file import read_config
from lacuna.cli.options import Args, Parser, add_config, add_deadline, add_json, positive
from producers.client import Client, checked_broker
from producers.errors import NoAnswer
from producers.sender import PATIENCE, Sent
from state.config import Config
from state.errors import ConfigError
from state.protocol.notices import Notice
from state.protocol.topics import Topics


def add_name(command: Parser) -> None:
    """Add the options that name a subscription."""
    command.add_argument("--client", required=True, metavar="NAME", help="the client")
    command.add_argument("--id", required=True, metavar="ID", help="the client's name for the subscription")


def add_sending(command: Parser) -> None:
    """Add the options of every command that sends an event."""
    command.add_argument(
        "--broker", metavar="B", help="the broker that the client is attached to; may be left out if there is only one"
    )
    command.add_argument(
        "--wait",
        type=positive,
        nargs="?",
        const=PATIENCE,
        metavar="S",
        help="wait until the router says what became of it, for at most so many seconds "
        f"({PATIENCE:g}); exit code 1 if it says nothing",
    )
    add_config(command)
    add_deadline(command)
    add_json(command, "print the event and its place as one JSON object")


def send(args: Args, client: str, event: Callable[[Client], Sent]) -> int:
    """Connect a client, let it send one event, wait until Kafka confirms it, and say where it is.

    With `--wait`, wait for the router's answer as well, and say what it is.
    """
    config = read_config(args.config)
    broker = _broker(config, args.broker)
    require_topics(config.kafka.bootstrap, Topics(config.kafka.prefix).events, args.deadline)
    with Client(config, broker=broker, name=client, deadline=args.deadline) as connected:
        sent = event(connected)
        place = sent.place(args.deadline)
        notice = _answer(sent, args.wait)
    fields = json.loads(sent.value)
    answer = {} if notice is None else {"notice": msgspec.to_builtins(notice)}
    if args.json:
        print(json.dumps({"kind": args.command, "broker": broker, "event": fields, **place._asdict(), **answer}))
    else:
        where = f"{place.topic}, partition {place.partition}, {place.offset}"
        said = "" if notice is None else f"; {in_words(notice)}"
        print(f"{args.command} {fields['id']} at {broker}: {where}{said}")
    return 1 if args.wait is not None and (notice is None or notice.state == "not-standing") else 0


def _answer(sent: Sent, wait: float | None) -> Notice | None:
    """Wait for the router's answer if that is wanted; None, after a message, if none came."""
    if wait is None:
        return None
    try:
        return sent.wait(wait)
    except NoAnswer as error:
        print(f"lacuna: {error}", file=sys.stderr)
        return None


def in_words(notice: Notice) -> str:
    """Return what became of an event, as people say it.

    >>> in_words(Notice("routed", "publish", "rome", id="p1", deliveries=0))
    'it reached nobody: no subscription that stands matches it'
    >>> in_words(Notice("routed", "publish", "rome", id="p1", deliveries=1))
    'it reached 1 subscription'
    """
    if notice.state == "routed" and notice.deliveries:
        return f"it reached {notice.deliveries:,} subscription{'s' * (notice.deliveries > 1)}"
    return {
        "in-force": "in force at every broker",
        "ended": "ended at every broker",
        "not-standing": f"{notice.client} has no subscription {notice.id} at {notice.broker}: nothing was cancelled",
    }.get(notice.state, "it reached nobody: no subscription that stands matches it")


def _broker(config: Config, given: str | None) -> str:
    """Return the broker that was named, or the only one."""
    brokers = config.overlay.brokers
    if given is not None:
        return checked_broker(config, given)
    if len(brokers) > 1:
        raise ConfigError("--broker", None, f"there are {len(brokers)} brokers", f"name one of {', '.join(brokers)}")
    return brokers[0]
