"""Output for people: text is shown as it is.

Ids, clients, brokers and paths may contain anything, so nothing is read as markup (`[/x]`) or as an emoji (`:x:`). Text
that is to be bold or red is a `rich.text.Text`.
"""

from __future__ import annotations

import json
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
