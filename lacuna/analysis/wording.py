"""Filters in words, with numbers as people write them.

A box is closed, so what lies beyond 20 begins with the next number that a computer has, 20.000000000000004. A person
writes "above 20". An end is written in that way where its neighbour is much shorter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from state.space import Space

SHORTER = 5
"""Characters that a number must be shorter than its neighbour to be written in its place."""


def words(space: Space, where: Mapping[str, Any]) -> str:
    """Return a filter as text, without the attributes that it does not constrain."""
    kinds = {attribute.name: attribute.kind for attribute in space.attributes}
    (lo, hi), *_ = space.corners(where)
    brief = space.where(lo, hi)
    return " and ".join(f"{name} {in_words(kinds[name], ends)}" for name, ends in brief.items()) or "everything"


def in_words(kind: str, ends: list[Any]) -> str:
    """Return a range of one attribute as text.

    >>> in_words("float", [20.000000000000004, 25.0]), in_words("float", [10.0, 20.0])
    ('above 20, up to 25', '10 to 20')
    >>> in_words("float", [20.000000000000004, 29.999999999999996]), in_words("int", [7, 7])
    ('above 20 and below 30', '= 7')
    """
    if kind == "category":
        return "in " + ", ".join(ends)
    low, high = ends
    if low == high:
        return f"= {number(low)}"
    above, below = (_beyond(low, -math.inf), _beyond(high, math.inf)) if kind == "float" else (None, None)
    if above is not None and below is not None:
        return f"above {number(above)} and below {number(below)}"
    if above is not None:
        return f"above {number(above)}, up to {number(high)}"
    if below is not None:
        return f"from {number(low)}, below {number(below)}"
    return f"{number(low)} to {number(high)}"


def _beyond(end: float, towards: float) -> float | None:
    """Return the number just outside a range, if it is much shorter than the end itself."""
    outside = math.nextafter(end, towards)
    return outside if len(number(outside)) + SHORTER < len(number(end)) else None


def number(value: object) -> str:
    """Return a value as people write it: a whole number without a point.

    >>> number(25.0), number(0.1), number(7), number("2026-01-01T00:00:00Z")
    ('25', '0.1', '7', '2026-01-01T00:00:00Z')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return str(value)
