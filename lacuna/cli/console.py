"""Output for people: text is shown as it is.

Ids, clients, brokers and paths may contain anything, so nothing is read as markup (`[/x]`) or as an emoji (`:x:`). Text
that is to be bold or red is a `rich.text.Text`. Control characters are shown as escapes: a terminal would obey them,
and whoever may send an event could move its cursor or change its title.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters but for the tab and the end of a line."""


def visible(text: str) -> str:
    r"""Return a text with its control characters as escapes.

    >>> visible("s1" + chr(27) + "[2J")
    's1\\x1b[2J'
    """
    return CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class Screen(Console):
    """A console that shows control characters as escapes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments of something to be shown."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def console(*, stderr: bool = False) -> Console:
    """Return a console on standard output, or on standard error."""
    return Screen(stderr=stderr, markup=False, emoji=False)


STDERR = console(stderr=True)


def say(text: str) -> None:
    """Print a line of progress on standard error."""
    STDERR.print(Text(text, "dim"))


class Lines(logging.Formatter):
    """A log for machines: one JSON object a line, with time, level, logger, text, and the trace of an error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname.lower(), "logger": record.name, "text": record.getMessage()}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
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
