"""`lacuna bench faults`: real processes are broken on purpose, again and again, by a program that keeps count.

    load ─▶ a condition ─▶ the fault ─▶ proof that it hit ─▶ does the job stop? its remedy, to the letter ─▶ load
                                                  deliveries and rows ═ brute force? ◀─ all that is owed is there ─┘

One Kafka and one job serve many cycles; a cycle starts again only what its fault has ended. The number of a cycle is
its seed: it chooses the fault (`catalogue`), the moment, the damage and the events. Figures:

* `cycles`: how many were played.
* `lost`: deliveries, or rows for them, that are owed and are not there.
* `repeated`: deliveries that came again where `docs/operations.md` does not say so, and rows that are there twice.
* `false`: deliveries that nobody asked for.
* `unclear_stops`: stops without cause and remedy, or whose remedy does not work.
* `failed`: cycles in which anything of this, or something else, went wrong.

Each result is written down at once, and a report is of all that were: a run that was ended goes on with other seeds.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.faults.campaign import Cycle, Result
from bench.faults.catalogue import FAULTS, SKIPPED, Fault, fault_of
from bench.faults.owed import History
from bench.faults.system import Kafka, System
from bench.report import Report, Step

WORK = Path(__file__).parents[2] / ".lacuna" / "faults.json"
OVERLAYS = (
    'links = [["n1", "n2"], ["n2", "n3"]]\nregions = 1',
    'links = [["n1", "n2"], ["n2", "n3"], ["n2", "n4"]]\nregions = [["n1", "n2", "n4"], ["n3"]]',
    'links = [["n1", "n2"], ["n2", "n3"], ["n3", "n4"], ["n4", "n5"]]\nregions = 2',
)
"""Systems take turns in these."""


def run(step: Step, *, quick: bool, cycles: int = 0, seed: int = 0) -> Report:
    """Play so many cycles from a seed on: 100, or, if it is to be `quick`, three."""
    cycles = cycles or (3 if quick else 100)
    with tempfile.TemporaryDirectory(prefix="lacuna-faults-") as folder, Stage(Path(folder)) as stage:
        for number, each in enumerate(range(seed, seed + cycles)):
            fault = fault_of(each)
            step(f"cycle {number + 1} of {cycles}: {fault.name}")
            write_down(stage.play(each, fault))
    return reported()


def reported() -> Report:
    """Return the figures of all cycles that were written down."""
    report, found = Report("faults"), written_down()
    rows = [found[seed] for seed in sorted(found)]
    report.add("cycles", len(rows), "at least 100")
    for figure in ("lost", "repeated", "false"):
        report.add(figure, sum(row[figure] for row in rows), "at most 0")
    report.add("unclear_stops", sum(row["unclear"] for row in rows), "at most 0")
    report.add("failed", sum(bool(row["failed"]) for row in rows), "at most 0")
    report.details = {
        "faults": dict(Counter(row["fault"] for row in rows)),
        "seconds": round(sum(row["seconds"] for row in rows)),
        "skipped": list(SKIPPED),
        "cycles": rows,
    }
    report.notes = [again(row["seed"]) for row in rows if row["failed"]]
    return report


def written_down() -> dict[int, dict[str, Any]]:
    """Return the results of all cycles, by seed."""
    rows = json.loads(WORK.read_text()) if WORK.exists() else []
    return {row["seed"]: row for row in rows}


def write_down(result: Result) -> None:
    """Keep the result of a cycle, instead of an earlier one of it."""
    found = written_down() | {result.seed: asdict(result)}
    WORK.parent.mkdir(exist_ok=True)
    beside = WORK.with_suffix(".new")
    beside.write_text(json.dumps([found[seed] for seed in sorted(found)], indent=1))
    beside.replace(WORK)


def again(seed: int) -> str:
    """Return the command that repeats a cycle."""
    return f"lacuna bench faults --cycles 1 --seed {seed}"


class Stage:
    """A Kafka, and one system after another."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, ExitStack()
        self._systems = 0
        self._now: tuple[System, History] | None = None

    def __enter__(self) -> Stage:
        """Start Kafka."""
        self._kafka = Kafka(self._folder / "kafka")
        self._stack.callback(self._kafka.stop)
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self._leave()
        self._stack.close()

    def play(self, seed: int, fault: Fault) -> Result:
        """Play a cycle on the system that runs, or on another if it must not be used any more."""
        system, history = self._now or self._begin(seed)
        if fault.own_disk and not system.own_disk:
            return Result(seed, fault.name, hit="skipped: a disk of its own needs the superuser")
        result = Cycle(system, history, seed, fault).play()
        if not result.is_good:
            print(f"{again(seed)}    # {fault.name}: {result.failed}", flush=True)
        if fault.last or not result.is_good:
            self._leave()
        return result

    def _begin(self, seed: int) -> tuple[System, History]:
        self._systems += 1
        overlay = f'[overlay]\n{random.Random(seed).choice(OVERLAYS)}\n[routing]\nstrategy = "auto"\n'
        system = System(self._folder / f"{self._systems}", self._kafka, f"faults{self._systems}", overlay)
        self._now = system, History(system)
        return self._now

    def _leave(self) -> None:
        if self._now is not None:
            self._now[0].close()
            self._now = None


__all__ = ["FAULTS", "run"]
