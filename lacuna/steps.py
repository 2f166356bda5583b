"""Long work says what it is doing, on standard error: a moving line for a person, plain lines for a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Step = Callable[[str], None]


@contextmanager
def steps() -> Iterator[Step]:
    """A function to be called with what begins now."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting")

        def step(text: str) -> None:
            progress.update(task, description=text)
            if not console.is_terminal:
                console.print(f"{time.strftime('%H:%M:%S')} {text}", highlight=False)

        yield step
