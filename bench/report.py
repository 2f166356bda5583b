"""The report of a benchmark: figures, how they are shown, and where they are kept.

Machines are shared and noisy, so figures are ratios of things measured in one run, each the median of several repeats
taken in turns. Absolute numbers are given beside them for orientation only.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from lacuna.cli.console import console
from lacuna.cli.progress import Step as Step

RESULTS = Path(__file__).parent / "results"


@dataclass
class Report:
    """Figures by name, what they must reach, and everything else worth knowing about the run."""

    name: str
    figures: dict[str, float] = field(default_factory=dict)
    goals: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    quick: bool = False
    sources: dict[str, str] = field(default_factory=dict)
    """Fingerprints of the files that were measured, where a test compares them."""

    def add(self, figure: str, value: float, goal: str = "") -> None:
        """Add a figure and, as text, the goal that it must reach."""
        self.figures[figure] = round(value, 4)
        if goal:
            self.goals[figure] = goal

    def skip(self, peer: str, why: str) -> None:
        """Say that a peer is left out, and why. It is in no figure."""
        self.skipped[peer] = why

    def as_json(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        return {
            "bench": self.name,
            "quick": self.quick,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "figures": self.figures,
            "goals": self.goals,
            "details": self.details,
            "notes": self.notes,
            **({"skipped": self.skipped} if self.skipped else {}),
            **({"sources": self.sources} if self.sources else {}),
        }

    def keep(self) -> Path:
        """Write the report into the results folder."""
        path = RESULTS / f"{self.name}{'-quick' if self.quick else ''}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")
        return path

    def show(self) -> None:
        """Print the report for a person."""
        table = Table("figure", "value", "goal", title=f"bench {self.name}")
        for figure, value in self.figures.items():
            table.add_row(figure, f"{value:,.4g}", self.goals.get(figure, ""))
        screen = console()
        screen.print(table)
        screen.print_json(json.dumps(self.details))
        for note in self.notes:
            screen.print(f"- {note}")
        for peer, why in self.skipped.items():
            screen.print(f"- skipped: {peer}: {why}")


def machine() -> dict[str, Any]:
    """Return what explains the numbers of a run about the machine that it was made on."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = models[0] if models else cpu
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ratio(slow: Callable[[], object], fast: Callable[[], object], repeats: int) -> float:
    """Return how many times longer `slow` takes than `fast`: the median over pairs measured in immediate succession."""
    return statistics.median(seconds(slow) / seconds(fast) for _ in range(repeats))


def median(values: Iterable[float]) -> float:
    """Return the median."""
    return statistics.median(values)
