"""Progress of long work, on standard error: a moving line or a bar for a person, plain lines for a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lacuna.cli.console import console

Step = Callable[[str], None]
"""Is called with the name of each step as it begins."""


@contextmanager
def steps() -> Iterator[Step]:
    """Show steps: a moving line at a terminal, a line with the time for each step elsewhere."""
    screen = console(stderr=True)
    columns = (SpinnerColumn(), _description(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("starting")

        def step(text: str) -> None:
            progress.update(task, description=text)
            if not screen.is_terminal:
                screen.print(f"{time.strftime('%H:%M:%S')} {text}", highlight=False)

        yield step


@contextmanager
def counted(about: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar of so many things; the function that is yielded takes how many are done."""
    with _bar(MofNCompleteColumn()) as bar:
        task = bar.add_task(about, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def open_lines(path: str, about: str) -> Iterator[Iterable[bytes]]:
    """Open a file and yield its lines, with a bar of its bytes; `-` is standard input."""
    if path == "-":
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file, _bar(DownloadColumn()) as bar:
        yield _watched(file, bar, about)


def _watched(file: BinaryIO, bar: Progress, about: str) -> Iterator[bytes]:
    task = bar.add_task(about, total=os.fstat(file.fileno()).st_size)
    for number, line in enumerate(file):
        yield line
        if number % 256 == 0:
            bar.update(task, completed=file.tell())


def _bar(amounts: ProgressColumn) -> Progress:
    """Return a bar on standard error that shows only at a terminal."""
    columns = (_description(), BarColumn(), amounts, TimeRemainingColumn())
    return Progress(*columns, console=console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def _description() -> TextColumn:
    return TextColumn("{task.description}", markup=False)
