"""`lacuna acl`: print the least rights of a role in Kafka, as commands to run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import groupby

from access.rights import ROLES, Right, rights
from lacuna.cli.config_file import read_config
from lacuna.cli.options import Args, Parser, add_config, add_json
from state.protocol.topics import Topics


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Print the least rights of a role, as commands for Kafka's own tool `kafka-acls.sh`. Nothing is changed. A "
        "Kafka without an authorizer needs none."
    )
    command.add_argument("role", choices=tuple(ROLES), help="the role; a `lacuna run` without --only is a router")
    command.add_argument("--user", metavar="NAME", help="the user (default: lacuna-ROLE)")
    command.add_argument(
        "--bookmark",
        action="append",
        default=[],
        metavar="NAME",
        help="a bookmark of a listener; may be repeated",
    )
    command.add_argument(
        "--command-config",
        default="admin.properties",
        metavar="F",
        help="how an administrator logs in (default: %(default)s)",
    )
    add_config(command)
    add_json(command, "print one JSON object with the rights")


def run(args: Args) -> int:
    """Print the commands."""
    kafka = read_config(args.config).kafka
    principal = f"User:{args.user or f'lacuna-{args.role}'}"
    needed = list(rights(args.role, Topics(kafka.prefix), tuple(args.bookmark)))
    if args.json:
        print(json.dumps({"principal": principal, "rights": [right._asdict() for right in needed]}))
        return 0
    begin = ["kafka-acls.sh", "--bootstrap-server", kafka.bootstrap, "--command-config", args.command_config]
    for words in _commands(needed):
        print(shlex.join([*begin, "--add", "--allow-principal", principal, *words]))
    return 0


def _commands(needed: list[Right]) -> Iterator[list[str]]:
    """Yield the ends of commands: one for the resources that have the same operations."""
    operations: dict[tuple[str, str], list[str]] = {}
    for right in needed:
        operations.setdefault((right.resource, right.name), []).append(right.operation)
    by_operations = sorted(operations.items(), key=lambda each: (each[0][0], each[1], each[0][1]))
    for (kind, allowed), some in groupby(by_operations, key=lambda each: (each[0][0], each[1])):
        asked = [word for operation in allowed for word in ("--operation", operation)]
        yield asked + [word for (_, name), _ in some for word in (f"--{kind}", name)]
