"""The entry point: parses the command line, calls a command, turns errors into one message and an exit code.

0  done       1  the command ran and found something wrong       2  it could not run: usage, configuration, a file
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from lacuna import client_commands, commands, options
from state.errors import LacunaError


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(prog="lacuna", description="A content-based publish/subscribe router.")
    sub = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in (*options.COMMANDS, *commands.COMMANDS, *client_commands.COMMANDS):
        command(sub)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
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
