"""Benchmarks: commands that print figures, published values beside measured ones. Never timed tests."""

from __future__ import annotations

from typing import Protocol

from bench import core
from bench.report import Report, Step

__all__ = ["BENCHES"]


class Run(Protocol):
    """Runs one benchmark, saying what it does."""

    def __call__(self, step: Step, *, quick: bool) -> Report: ...


BENCHES: dict[str, tuple[Run, str]] = {
    "core": (core.run, "matching, deciding, simulating; against an R-tree and the paper's method on one"),
}
