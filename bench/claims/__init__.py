"""What the five papers say, claim by claim, and whether the measured numbers agree.

A claim is looked for in the details of a report (`bench.papers`), so it is the same whether they were measured just
now or kept. Every claim that does not hold says why, in a sentence that names the cause; so does every one that cannot
be compared. One that always held has no such sentence; where it does not, the row says that nobody has explained it
yet, and kept results with such a row fail a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any, Literal

from bench.papers.svg import Series, lines

Details = Mapping[str, Any]
Holds = Literal["yes", "no", "not comparable"]

UNEXPLAINED = "not explained yet: find the cause, and whether it is ours"


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, and how to find it in what was measured."""

    where: str
    published: str
    measured: Callable[[Details], str]
    holds: Callable[[Details], bool] | None
    """None: it cannot be compared; `why` says for what reason."""
    why: str = ""


@dataclass(frozen=True)
class Row:
    """A claim with what was measured."""

    paper: str
    where: str
    published: str
    measured: str
    holds: Holds
    why: str


@dataclass(frozen=True)
class Plot:
    """A plot of what was measured, beside what was published where numbers were."""

    name: str
    title: str
    x: str
    y: str
    series: Callable[[Details], Series]
    log_x: bool = False
    log_y: bool = False

    def svg(self, details: Details) -> str:
        """Draw it."""
        return lines(self.title, self.x, self.y, self.series(details), log_x=self.log_x, log_y=self.log_y)


@dataclass(frozen=True)
class Paper:
    """A paper: its title, how the workload was filled in where it is silent, its claims and its plots."""

    title: str
    workload: str
    claims: Sequence[Claim]
    plots: Sequence[Plot]


def of(name: str) -> Paper:
    """The claims of one paper."""
    found: Paper = import_module(f"bench.claims.{name.replace('-', '_')}").PAPER
    return found


def rows(name: str, details: Details) -> list[Row]:
    """Compare what a paper says with what was measured."""
    return [row(name, claim, details) for claim in of(name).claims]


def row(name: str, claim: Claim, details: Details) -> Row:
    """Compare one claim."""
    holds: Holds = "not comparable" if claim.holds is None else "yes" if claim.holds(details) else "no"
    why = "" if holds == "yes" else claim.why or UNEXPLAINED
    return Row(name, claim.where, claim.published, claim.measured(details), holds, why)


def as_json(name: str, details: Details) -> list[dict[str, str]]:
    """The rows of a paper as data."""
    return [asdict(one) for one in rows(name, details)]


# How numbers are said


def listed(values: Sequence[float]) -> str:
    """Numbers side by side.

    >>> listed([1234, 5]), listed([0.12345])
    ('1,234, 5', '0.1235')
    """
    return ", ".join(f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" for value in values)


def percent(share: float, digits: int = 0) -> str:
    """A share in percent.

    >>> percent(0.374), percent(0.374, 1)
    ('37 %', '37.4 %')
    """
    return f"{100 * share:.{digits}f} %"


def grows(values: Sequence[float]) -> bool:
    """True if no value is below the one before it."""
    return all(a <= b for a, b in pairwise(values))
