"""Long work says what it is doing, on standard error: a moving line for a person, plain lines for a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

from lacuna.console import console, description

Step = Callable[[str], None]


@contextmanager
def steps() -> Iterator[Step]:
    """A function to be called with what begins now."""
    screen = console(stderr=True)
    columns = (SpinnerColumn(), description(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("starting")

        def step(text: str) -> None:
            progress.update(task, description=text)
            if not screen.is_terminal:
                screen.print(f"{time.strftime('%H:%M:%S')} {text}", highlight=False)

        yield step
