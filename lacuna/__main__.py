"""The entry point: parse the command line, run a command, turn an error into one message and an exit code.

0  done       1  the command ran and found something wrong       2  it could not run: usage, configuration, a file
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from lacuna.cli import COMMANDS
from state.errors import LacunaError


class CommandParser(argparse.ArgumentParser):
    """The parser of one command. It imports the command's module when it begins to parse."""

    def __init__(self, *, module: str, **options: Any) -> None:
        super().__init__(**options)
        self._module: str | None = module

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Declare the command on first use, then parse."""
        if self._module is not None:
            command = import_module(self._module)
            command.declare(self)
            self.set_defaults(run=command.run)
            self._module = None
        return super().parse_known_args(args, namespace)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(prog="lacuna", description="A content-based publish/subscribe router.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=CommandParser)
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.about, module=command.module)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    args = parser().parse_args(argv)
    try:
        return int(args.run(args))
    except LacunaError as error:
        return _fail(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return 130


def _fail(message: str) -> int:
    print(f"lacuna: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
