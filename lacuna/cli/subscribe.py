"""`lacuna subscribe`: send one subscription."""

from __future__ import annotations

from lacuna.cli.options import Args, Parser, positive, read_filter
from lacuna.cli.sending import add_name, add_sending, send


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Subscribe a client, or replace what it asked for under the same id."
    add_name(command)
    command.add_argument(
        "--where",
        required=True,
        metavar="FILTER",
        help="a text such as \"price < 20 AND (symbol = 'IBM' OR volume > 500)\", or JSON: an object of ranges with "
        "both ends closed and null for an open end, lists of values for a category; {} asks for everything",
    )
    command.add_argument("--ttl", type=positive, metavar="S", help="seconds until it ends by itself (default: never)")
    add_sending(command)


def run(args: Args) -> int:
    """Send the subscription."""
    where = read_filter(args.where)
    return send(args, args.client, lambda client: client.subscribe(args.id, where, args.ttl, ack=args.wait is not None))
