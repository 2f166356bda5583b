"""Output for people: text is shown as it is.

Ids, clients, brokers and paths may contain anything, so nothing is read as markup (`[/x]`) or as an emoji (`:x:`). Text
that is to be bold or red is a `rich.text.Text`.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def console(*, stderr: bool = False) -> Console:
    """Return a console on standard output, or on standard error."""
    return Console(stderr=stderr, markup=False, emoji=False)


STDERR = console(stderr=True)


def say(text: str) -> None:
    """Print a line of progress on standard error."""
    STDERR.print(Text(text, "dim"))


class Lines(logging.Formatter):
    """A log for machines: one JSON object a line, with time, level, logger and text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname.lower(), "logger": record.name, "text": record.getMessage()}
        return json.dumps(line, ensure_ascii=False)


def keep_log() -> None:
    """Write a log on standard error, unless that is a terminal: there `say_as_job` shows lines to a person."""
    if not STDERR.is_terminal:
        handler = logging.StreamHandler()
        handler.setFormatter(Lines())
        logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("kafka", "py4j"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)


def say_as_job(text: str) -> None:
    """Say something that a long-running job has to say: a line for a person, or an entry of the log."""
    if STDERR.is_terminal:
        say(text)
    else:
        logging.getLogger("lacuna").info(text)


def show_summary(summary: dict[str, Any], title: str, *, as_json: bool) -> None:
    """Print a summary: one JSON object for a program, a table for a person."""
    if as_json:
        print(json.dumps(summary))
        return
    table = Table(title=title, show_header=False)
    for key, value in summary.items():
        if not isinstance(value, dict):
            table.add_row(key.replace("_", " "), f"{value:,}" if isinstance(value, int | float) else str(value))
    console().print(table)
