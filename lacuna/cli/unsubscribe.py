"""`lacuna unsubscribe`: cancel one subscription."""

from __future__ import annotations

from lacuna.cli.options import Args, Parser
from lacuna.cli.sending import add_name, add_sending, send


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Cancel a subscription."
    add_name(command)
    add_sending(command)


def run(args: Args) -> int:
    """Send the cancellation."""
    return send(args, args.client, lambda client: client.unsubscribe(args.id, ack=args.wait is not None))
