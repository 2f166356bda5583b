"""The entry point: parse the command line, run a command, turn an error into one message and an exit code.

0  done       1  the command ran and found something wrong       2  it could not run: usage, configuration, a file
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

from lacuna.cli import COMMANDS, GROUPS
from state.errors import LacunaError, nearest

EXTRAS = {
    "pyspark": "spark",
    "delta": "spark",
    "deltalake": "spark",
    "pyarrow": "spark",
    "pandas": "spark",
    "matplotlib": "draw",
    "starlette": "serve",
    "uvicorn": "serve",
    "httptools": "serve",
    "jinja2": "serve",
    "bench": "bench",
}
"""The extra of the distribution that brings a package. Benchmarks are in the sources only."""


class Once(argparse.Action):
    """Store the value of an option, and refuse a second one: which of the two would be meant?"""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        given = namespace.__dict__.setdefault("given", set())
        if option_string is not None and self.dest in given:
            parser.error(f"{option_string} is given twice; give it once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class CommandParser(argparse.ArgumentParser):
    """The parser of one command. It imports the command's module when it begins to parse."""

    def __init__(self, *, command: str, **options: Any) -> None:
        super().__init__(**options)
        self._name: str | None = command
        for action in (None, "store"):
            self.register("action", action, Once)

    def declare(self) -> None:
        """Let the command declare its options, once. Raises `LacunaError` if an extra is not installed."""
        if self._name is None:
            return
        command, self._name = COMMANDS[self._name], None
        try:
            module = import_module(command.module)
        except ModuleNotFoundError as error:
            raise _lacking(error) from None
        module.declare(self)
        self.set_defaults(run=module.run)
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        examples = "\n".join(("examples:", *(f"  {example}" for example in command.examples)))
        self.epilog = f"{self.epilog}\n\n{examples}" if self.epilog else examples

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Declare the command on first use, then parse."""
        self.declare()
        return super().parse_known_args(args, namespace)


def _lacking(error: ModuleNotFoundError) -> Exception:
    """Return what to do about a package that is not installed, or the error itself if it is none of ours."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    if package == "bench":
        return LacunaError("benchmarks are not part of the installed package. Remedy: run them from the sources")
    return LacunaError(f"{package} is not installed. Remedy: pip install 'lacuna[{EXTRAS[package]}]'")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="lacuna",
        description="A content-based publish/subscribe router.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(_listing()),
    )
    top.add_argument("--version", action="version", version=f"lacuna {version('lacuna')}")
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=CommandParser, help="one of those below"
    )
    for name in COMMANDS:
        commands.add_parser(name, command=name)
    return top


def _listing() -> Iterator[str]:
    """Yield the commands by group, as `--help` lists them."""
    for group, commands in GROUPS.items():
        yield f"{group}:"
        yield from (f"  {name:<15}{command.about}" for name, command in commands.items())
        yield ""
    yield "`lacuna COMMAND --help` has the options of a command and examples."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        return _fail(f"there is no command {words[0]!r}{nearest(words[0], COMMANDS)}. `lacuna --help` lists them all")
    try:
        top = parser()
        args = top.parse_args(words)
        args.parser = top
        return int(args.run(args))
    except LacunaError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:  # a command that only sometimes needs an extra
        return _fail(str(_lacking(error)))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return 130


def _fail(message: str) -> int:
    from lacuna.cli.console import visible  # here: it takes a tenth of a second to import

    print(f"lacuna: {visible(message)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
