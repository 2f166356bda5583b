"""Options that several commands have, and how the values of options are read."""

from __future__ import annotations

import argparse
import json
import math
import re
from typing import Any, cast

from access import DEADLINE
from state.errors import ConfigError
from state.protocol.events import once

Parser = argparse.ArgumentParser
Args = argparse.Namespace


def add_config(command: Parser) -> None:
    """Add `--config`."""
    command.add_argument(
        "--config", default="lacuna.toml", metavar="F", help="the configuration (default: %(default)s)"
    )


def add_json(command: Parser, about: str = "print one JSON object") -> None:
    """Add `--json`."""
    command.add_argument("--json", action="store_true", help=about)


def add_deadline(command: Parser) -> None:
    """Add `--deadline`."""
    command.add_argument(
        "--deadline",
        type=positive,
        default=DEADLINE,
        metavar="S",
        help="seconds that Kafka may take to answer (default: %(default)g)",
    )


def subcommands(command: Parser) -> argparse._SubParsersAction[Parser]:
    """Let a command have commands of its own, each with its own options and help."""
    return command.add_subparsers(metavar="TASK", required=True, parser_class=Parser)


def show_lines(command: Parser, epilog: str) -> None:
    """Let the help end with this text, its lines as they are."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = epilog


# Numbers


def positive(text: str) -> float:
    """Read a finite number above 0."""
    number = _number(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def amount(text: str) -> float:
    """Read a finite number of at least 0."""
    number = _number(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number of at least 0")
    return number


def share(text: str) -> float:
    """Read a number from 0 to 1."""
    number = _number(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")
    return number


def count(text: str) -> int:
    """Read a whole number of at least 0."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def port(text: str) -> int:
    """Read the number of a port."""
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: ports are 0 to 65535")
    return int(text)


def memory(text: str) -> str:
    """Check an amount of memory as Java and Spark write it."""
    if not re.fullmatch(r"[1-9][0-9]*[kmgtKMGT]b?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of memory; write it as 2g or 512m")
    return text


def _number(text: str) -> float:
    """Read a number. Text that is none becomes not-a-number, which lies in no range."""
    try:
        return float(text)
    except ValueError:
        return math.nan


# Filters and points

WRITTEN = {
    "--at": "write it as '{\"price\": 12.5}'",
    "--where": "write it as '{\"price\": [10, 20]}', or as text such as 'price < 20 OR volume > 500'",
}
"""The form of the value of an option."""


def read_filter(text: str) -> dict[str, Any] | list[Any] | str:
    """Read a filter: a JSON object or list, or else text. Its meaning is checked with the event."""
    if text.lstrip().startswith("["):
        return cast(list[Any], _json("--where", text))
    return read_object("--where", text) if text.lstrip().startswith("{") else text


def read_object(option: str, text: str) -> dict[str, Any]:
    """Read a JSON object. Raises `ConfigError` if the text is something else."""
    value = _json(option, text)
    if not isinstance(value, dict):
        raise ConfigError(option, text, "it is not a JSON object", WRITTEN[option])
    return value


def _json(option: str, text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ConfigError(option, text, f"it is not JSON: {error}", WRITTEN[option]) from None
