"""`python -m tests.storms`: storms over the core and the shell for hours, without Kafka and Spark (`tests.core.world`).

Each seed is a storm: an overlay, a history of client events, and a fault at every step; deliveries and rows are
compared with brute force. Seeds follow each other, and a run goes on where the last one ended.

    --events 10000000      until so many client events have been sent in all runs
    --seed N               one storm, with the trace of what fails
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.report import Report
from lacuna.cli.console import console
from lacuna.cli.progress import counted
from state.protocol import ledger
from state.routing import region, told
from tests.core.world import Storm

WORK = Path(__file__).parents[1] / ".lacuna" / "storms.json"
SAVED_EVERY = 50
"""Storms."""


def played(seed: int, *, raises: bool = False) -> dict[str, Any]:
    """Play one storm. Return its events, its faults by kind, and what failed."""
    with tempfile.TemporaryDirectory(prefix="lacuna-storm-") as folder:
        try:
            storm = Storm.of(seed, Path(folder))
        except Exception as error:
            if raises:
                raise
            return {"events": 0, "faults": {}, "failed": f"{type(error).__name__}: {str(error)[:300]}"}
    return {"events": storm.events, "faults": storm.faults, "failed": None}


def spread_out() -> None:
    """Let work that is spread out be spread out in small histories, too."""
    told.PORTION, told.WINDOW, ledger.PORTION, region.PORTION = 1, 2, 1, 1


def report(found: dict[str, Any]) -> Report:
    """Return what all runs have found."""
    made = Report("storms")
    made.add("events", found["events"], "at least 10,000,000")
    made.add("storms", found["next"])
    made.add("faults", sum(found["faults"].values()))
    made.add("failed", len(found["failed"]), "at most 0")
    made.details = {"seeds": [0, found["next"] - 1], "faults": found["faults"], "failed": found["failed"]}
    made.notes = [f"python -m tests.storms --seed {seed}" for seed in found["failed"]]
    return made


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.storms", description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=10_000_000, help="client events in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="play this storm alone")
    parser.add_argument("--again", action="store_true", help="forget earlier runs")
    parser.add_argument("--keep", action="store_true", help="write the result into bench/results")
    options = parser.parse_args(words)
    spread_out()
    if options.seed is not None:
        print(json.dumps(played(options.seed, raises=True)))
        return
    new = options.again or not WORK.exists()
    found = {"next": 0, "events": 0, "faults": {}, "failed": {}} if new else json.loads(WORK.read_text())
    gc.freeze()
    with counted("events", options.events) as show:
        while found["events"] < options.events:
            add(found, played(found["next"]))
            show(found["events"])
            if found["next"] % SAVED_EVERY == 0:
                save(found)
    save(found)
    made = report(found)
    made.show()
    if options.keep:
        console().print(str(made.keep()))


def add(found: dict[str, Any], storm: dict[str, Any]) -> None:
    """Add the next storm to what was found."""
    if storm["failed"]:
        found["failed"][str(found["next"])] = storm["failed"]
        print(f"storm {found['next']}: {storm['failed']}", flush=True)
    found["next"] += 1
    found["events"] += storm["events"]
    found["faults"] = dict(Counter(found["faults"]) + Counter(storm["faults"]))


def save(found: dict[str, Any]) -> None:
    """Keep what was found so far."""
    WORK.parent.mkdir(exist_ok=True)
    beside = WORK.with_suffix(".new")
    beside.write_text(json.dumps(found))
    beside.replace(WORK)


if __name__ == "__main__":
    main()
