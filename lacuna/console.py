"""Where people read: text is shown as it is.

Ids, clients, brokers and paths are anything, so nothing is read as markup (`[/x]`) or as an emoji (`:x:`); what is to
be bold or red is a `rich.text.Text`.
"""

from __future__ import annotations

from rich.console import Console
from rich.progress import TextColumn


def console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error."""
    return Console(stderr=stderr, markup=False, emoji=False)


def description() -> TextColumn:
    """What a progress bar is about."""
    return TextColumn("{task.description}", markup=False)
