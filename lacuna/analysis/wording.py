"""Filters, values, names and moments in words, as people write them.

A box is closed, so the part beyond 20 begins with the next number that a computer has, 20.000000000000004. A person
writes "above 20": an end is written as its neighbour where that is much shorter. An end of the domain is not written at
all, because nothing lies beyond it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from state.space import Attribute, Space
from state.storage.rows import Row

SHORTER = 5
"""Characters that a number must be shorter than its neighbour to be written in its place."""
GROUPED = 10_000
"""The least whole number that is written with separators."""
MOST_NAMES = 6
"""Names in one sentence; JSON has all."""
NO_MOMENT = "1970-01-01T00:00:00Z"
"""The moment of an event without a time in a simulation."""


# Filters


def words(space: Space, where: Mapping[str, Any]) -> str:
    """Return a filter as text, without the attributes that it does not constrain."""
    (lo, hi), *_ = space.corners(where)
    brief = space.where(lo, hi)
    return listed([f"{a.name} {range_in_words(a, brief[a.name])}" for a in space.attributes if a.name in brief]) or (
        "everything"
    )


def range_in_words(attribute: Attribute, ends: Sequence[Any]) -> str:
    """Return a range of one attribute as text: `10 to 20`, `above 20`, `at least 5 and below 30`, `IBM or SAP`."""
    if attribute.kind == "category":
        return listed(list(ends), "or")
    low, high = ends
    if low == high:
        return number(low)
    low_end, high_end = attribute.range_of(attribute.low, attribute.high + 1)
    above, below = (_beyond(low, -math.inf), _beyond(high, math.inf)) if attribute.kind == "float" else (None, None)
    first, last = _alike(low if above is None else above, high if below is None else below)
    begin = None if low == low_end else f"at least {first}" if above is None else f"above {first}"
    end = None if high == high_end else f"up to {last}" if below is None else f"below {last}"
    if above is None and below is None and begin and end:
        return f"{first} to {last}"
    return " and ".join(part for part in (begin, end) if part) or "anything"


def _beyond(end: float, towards: float) -> float | None:
    """Return the number just outside a range, if it is much shorter than the end itself."""
    outside = math.nextafter(end, towards)
    return outside if len(number(outside)) + SHORTER < len(number(end)) else None


def number(value: object, least: int = GROUPED) -> str:
    """Return a value as people write it.

    >>> number(25.0), number(0.1), number(7), number(48900), number("2026-01-01T00:00:00Z")
    ('25', '0.1', '7', '48,900', '2026-01-01T00:00:00Z')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        value = int(value)
    return f"{value:,}" if isinstance(value, int) and abs(value) >= least else str(value)


def _alike(low: object, high: object) -> tuple[str, str]:
    """Return the two ends of a range, both with separators if one has them.

    >>> _alike(1998, 2026), _alike(2300, 10899)
    (('1998', '2026'), ('2,300', '10,899'))
    """
    least = 0 if any("," in number(end) for end in (low, high)) else GROUPED
    return number(low, least), number(high, least)


# Names and moments


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Return parts as one enumeration.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"], "or")
    ('a', 'a and b', 'a, b or c')
    """
    return f" {last} ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def named(name: Row, home: str | None = None) -> str:
    """Return a subscription as `s1 of ann at oslo`, without the broker where that is `home`."""
    at = "" if name["home"] == home else f" at {name['home']}"
    return f"{name['subscription']} of {name['client']}{at}"


def names_listed(names: Iterable[Row], home: str | None = None) -> str:
    """Return subscriptions as one enumeration, the first few by name."""
    all_names = [named(name, home) for name in names]
    more = len(all_names) - MOST_NAMES
    return listed(all_names if more <= 1 else [*all_names[:MOST_NAMES], f"{more} others"])


def moment(row: Row) -> str:
    """Return when a row came about; where a simulation knows no time, the input line.

    >>> moment({"time": "2026-05-01T12:00:00.250000Z", "batch": 3}), moment({"time": NO_MOMENT, "batch": 3})
    ('2026-05-01 12:00:00.250Z', 'line 3')
    """
    if row["time"] == NO_MOMENT:
        return f"line {row['batch']}"
    return re.sub(r"(\.\d{3})\d*Z$", r"\1Z", str(row["time"]).replace("T", " "))
