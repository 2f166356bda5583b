"""`lacuna bench pruning-full`: the same as `pruning` with as much of everything as in the paper. Takes long."""

from __future__ import annotations

from bench.pruning import SIZES, run_size
from bench.report import Report, Step


def run(step: Step, *, quick: bool) -> Report:
    """200,000 subscriptions and 100,000 events; `quick` is that of `pruning`."""
    return run_size("pruning-full", SIZES["quick" if quick else "full"], step, quick=quick)
