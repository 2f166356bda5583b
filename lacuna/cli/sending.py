"""Sending one event: shared by `subscribe`, `unsubscribe` and `publish`."""

from __future__ import annotations

import json
from collections.abc import Callable

from access.topics import require_topics
from lacuna.cli.config_file import read_config
from lacuna.cli.options import Args, Parser, add_config, add_deadline, add_json
from producers.client import Client, checked_broker
from producers.sender import Sent
from state.config import Config
from state.errors import ConfigError
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
    add_config(command)
    add_deadline(command)
    add_json(command, "print the event and its place as one JSON object")


def send(args: Args, client: str, event: Callable[[Client], Sent]) -> int:
    """Connect a client, let it send one event, wait until Kafka confirms it, and say where it is."""
    config = read_config(args.config)
    broker = _broker(config, args.broker)
    require_topics(config.kafka.bootstrap, Topics(config.kafka.prefix).events, args.deadline)
    with Client(config, broker=broker, name=client, deadline=args.deadline) as connected:
        sent = event(connected)
        place = sent.place(args.deadline)
    fields = json.loads(sent.value)
    if args.json:
        print(json.dumps({"kind": args.command, "broker": broker, "event": fields, **place._asdict()}))
    else:
        print(f"{args.command} {fields['id']} at {broker}: {place.topic}, partition {place.partition}, {place.offset}")
    return 0


def _broker(config: Config, given: str | None) -> str:
    """Return the broker that was named, or the only one."""
    brokers = config.overlay.brokers
    if given is not None:
        return checked_broker(config, given)
    if len(brokers) > 1:
        raise ConfigError("--broker", None, f"there are {len(brokers)} brokers", f"name one of {', '.join(brokers)}")
    return brokers[0]
