"""The paper's own search (section 5): every cube of the region is listed and its key looked up.

`state.curves.zcurve` never forms a key and skips empty cubes; this is the method that it is measured against. A key is
the number whose bits are those of a cube's coordinates, in turns, axis 0 first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import product

from state.curves.zcurve import Cells


def key_of(cell: Sequence[int], bits: int) -> int:
    """Return the key of a cube whose coordinates have so many bits.

    >>> key_of((0b010, 0b011), 3)
    13
    """
    return int("".join(str(c >> b & 1) for b in range(bits - 1, -1, -1) for c in cell) or "0", 2)


def coordinates(side: int, place: int, level: int, bits: int) -> range:
    """Return where, along one axis, the cubes of side 2^level lie that belong to the set bit at `place` (Equation 1).

    Above `place` the bits are those of the side, inverted; there it is set; below it they may be anything.

    >>> [f"{c:02b}" for c in coordinates(0b101, 2, 1, 3)]
    ['10', '11']
    """
    if place == bits:
        return range(1 << (bits - level))
    first = ((~side & ((1 << bits) - 1)) >> (place + 1) << (place + 1) | 1 << place) >> level
    return range(first, first + (1 << (place - level)))


def keys_of_level(sides: Sequence[int], level: int, bits: int) -> Iterator[int]:
    """Yield the keys of the cubes of side 2^level in the greedy partition of an extremal region: first P, then Q."""
    places = [[b for b in range(level, bits + 1) if side >> b & 1] for side in sides]
    for chosen in product(*places):
        if min(chosen) == level:
            ranges = [coordinates(side, p, level, bits) for side, p in zip(sides, chosen, strict=True)]
            for cell in product(*ranges):
                yield key_of(cell, bits - level)


class ListedKeys:
    """Points by their keys, in a sorted list, and the search by listing cubes."""

    def __init__(self, points: Cells, bits: int) -> None:
        self._bits, self._axes = bits, points.shape[1]
        self._points = sorted((key_of(point, bits), slot) for slot, point in enumerate(points.tolist()))
        self._keys = [key for key, _ in self._points]

    def search(self, corner: Sequence[int], epsilon: float, most: int, *, sort: bool = False) -> tuple[list[int], int]:
        """Return the slots in the first cube that holds any, none after 1 - epsilon, and how many cubes were listed.

        At most so many cubes; with `sort`, those of one side in the order of the curve, which the paper leaves open.
        """
        sides = [(1 << self._bits) - c for c in corner]
        whole, searched, listed = 1, 0, 0
        for side in sides:
            whole *= side
        for level in range(min(sides).bit_length() - 1, -1, -1):
            keys = keys_of_level(sides, level, self._bits)
            for key in sorted(keys) if sort else keys:
                if searched >= (1 - epsilon) * whole or listed >= most:
                    return [], listed
                low, high = key << level * self._axes, (key + 1) << level * self._axes
                found = self._points[bisect_left(self._keys, low) : bisect_left(self._keys, high)]
                searched, listed = searched + (1 << level * self._axes), listed + 1
                if found:
                    return [slot for _, slot in found], listed
        return [], listed
