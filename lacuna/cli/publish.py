"""`lacuna publish`: send one publication."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from lacuna.cli.options import Args, Parser, read_object
from lacuna.cli.sending import add_sending, send


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Publish an event."
    command.add_argument("--id", metavar="ID", help="its id (default: a new one)")
    command.add_argument("--at", required=True, metavar="POINT", help="a JSON object that names every attribute")
    command.add_argument("--payload", metavar="TEXT", help="anything: taken as JSON if it is JSON, otherwise as text")
    add_sending(command)


def run(args: Args) -> int:
    """Send the publication."""
    id = uuid.uuid4().hex if args.id is None else args.id
    at, payload = read_object("--at", args.at), read_payload(args.payload)
    return send(args, "publisher", lambda client: client.publish(id, at, payload, ack=args.wait is not None))


def read_payload(text: str | None) -> Any:
    """Read a payload: the JSON value if the text is JSON, else the text itself."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
