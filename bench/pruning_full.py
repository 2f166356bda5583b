"""`lacuna bench pruning-full`: the same as `pruning` with as much of everything as in the paper. Takes long."""

from __future__ import annotations

from bench.papers.pruning import SIZES, measure_size
from bench.report import Report, Step


def run(step: Step, *, quick: bool) -> Report:
    """200,000 subscriptions and 100,000 events; `quick` is that of `pruning`."""
    report = Report("pruning-full", quick=quick)
    measure_size(report, SIZES["quick" if quick else "full"], step)
    return report
