"""Brute-force twins of the geometry, cell by cell, and the small boxes on which they are affordable.

A cell is a point of keys. On a domain of a few cells a side every question about boxes is a question about sets of
cells, and a set is hard to get wrong. For large keys the same small boxes are `spread`: coordinate c becomes `HUGE[c]`,
which keeps order and so every relation between boxes; `gathered` brings an answer back to the small domain.

Strategies of Hypothesis are cached here because building one costs more than drawing from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import product

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from state.geometry.boxes import Box
from state.geometry.boxes import subtract as cut
from state.protocol.messages import Name
from state.space import LARGEST_INT, Attribute, Corner, Keys, Space

few = settings(max_examples=30)
"""For tests that stand for many: each combination of their parameters is tried with this many examples."""

Cells = frozenset[Corner]
SIZE = 6
HUGE = np.array([-LARGEST_INT, -(2**53) - 1, -(2**53), 0, 2**53 + 1, LARGEST_INT, LARGEST_INT + 1], np.int64)
"""Ends for a domain of `SIZE` cells: the extremes, two neighbours, and keys that no double tells apart."""


def keys(lo: Iterable[int], hi: Iterable[int]) -> Keys:
    """One box as a `(2, d)` array."""
    return Box(tuple(lo), tuple(hi)).keys()


def cells(box: Keys) -> Cells:
    """The points of a box."""
    return _cells(tuple(map(tuple, box.tolist())))


@lru_cache(maxsize=4096)
def _cells(ends: tuple[Corner, Corner]) -> Cells:
    return frozenset(product(*(range(lo, hi) for lo, hi in zip(*ends, strict=True))))


def union(boxes: Iterable[Keys]) -> Cells:
    """The points of all boxes."""
    return frozenset().union(*(cells(box) for box in boxes))


def covered(q: Keys, boxes: Iterable[Keys]) -> bool:
    """Is every point of `q` in some box?"""
    return cells(q) <= union(boxes)


def meets(a: Keys, b: Keys) -> bool:
    """Do two boxes share a point?"""
    return bool(cells(a) & cells(b))


def contains(outer: Keys, inner: Keys) -> bool:
    """Is every point of `inner` in `outer`?"""
    return cells(inner) <= cells(outer)


def subtract(q: Keys, a: Keys) -> Cells:
    """The points of `q` that are not in `a`."""
    return cells(q) - cells(a)


def stab(point: Corner, boxes: Iterable[Keys]) -> list[int]:
    """Which boxes hold the point."""
    return [k for k, box in enumerate(boxes) if point in cells(box)]


def disjoint(boxes: Iterable[Keys]) -> bool:
    """Does no point lie in two boxes?"""
    parts = [cells(box) for box in boxes]
    return sum(map(len, parts)) == len(set().union(*parts))


def domain(dims: int, size: int = SIZE) -> Keys:
    """The box of all points with coordinates from 0 below `size`."""
    return keys((0,) * dims, (size,) * dims)


def space_of(domain: Box) -> Space:
    """The space of whole numbers with this domain."""
    sides = enumerate(zip(domain.lo, domain.hi, strict=True))
    return Space(tuple(Attribute(f"x{i}", "int", lo, hi - 1) for i, (lo, hi) in sides))


def spread(small: Keys) -> Keys:
    """Small coordinates as large keys, in the same order."""
    return HUGE[small]


def gathered(large: Keys) -> Keys:
    """The inverse of `spread`; every end must be one of `HUGE`."""
    small = np.searchsorted(HUGE, large)
    assert (HUGE[small] == large).all(), f"an end of {large.tolist()} is none that was given"
    return small


@cache
def sides(size: int) -> st.SearchStrategy[tuple[int, int]]:
    """Intervals [lo, hi) inside [0, size), degenerate ones of a single key included."""
    return st.sampled_from([(lo, hi) for lo in range(size) for hi in range(lo + 1, size + 1)])


@cache
def box(dims: int, size: int = SIZE) -> st.SearchStrategy[Keys]:
    """A box in the small domain."""
    return st.tuples(*[sides(size)] * dims).map(lambda ends: np.array(ends, np.int64).T.copy())


@cache
def boxes(dims: int, most: int, size: int = SIZE) -> st.SearchStrategy[Keys]:
    """Up to `most` boxes in the small domain as an `(n, 2, d)` array; duplicates are likely."""
    return st.lists(box(dims, size), max_size=most).map(lambda some: stacked(some, dims))


def stacked(some: list[Keys], dims: int) -> Keys:
    """Boxes as one array, also where there are none."""
    return np.array(some, np.int64).reshape(len(some), 2, dims)


def random_box(rng: np.random.Generator, dims: int, size: int = SIZE) -> Keys:
    """A box in the small domain, for histories too long for Hypothesis."""
    lo = rng.integers(0, size, dims)
    return np.stack((lo, rng.integers(lo + 1, size + 1)))


def random_shape(rng: np.random.Generator, dims: int, size: int = SIZE) -> Keys:
    """One to three disjoint boxes: what is left of one after another is taken away, or a whole one."""
    q = random_box(rng, dims, size)
    pieces = cut(q, random_box(rng, dims, size))[:3]
    return pieces if len(pieces) and rng.random() < 0.5 else q[None]


def name(k: object) -> Name:
    """A subscription's name."""
    return Name("oslo", "ann", str(k))
