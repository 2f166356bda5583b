"""Cells: the grid that a curve runs through. Values become cells; subscriptions are rounded outward.

Each chosen attribute's domain is cut into `2^bits` intervals by a monotone function from keys to cells:

    equal    cell = floor((value - low) x 2^bits / length), in the attribute's natural length: for a float the value
             itself, not its key. An attribute with fewer values than cells gives each value a cell of its own.
    fitted   cell = how many of the attribute's `borders` are at or below the key. `lacuna fit` learns borders with
             about as many publications between any two, so that cells are small where much is published.

One rule makes both safe: *the same function* maps publications and both ends of subscriptions. It is monotone, so a
point inside a box is in a cell between the box's end cells, however the arithmetic rounds. Publications that share a
cell cannot be told apart: that is where false positives between brokers come from, and nothing is ever lost.

Attributes that are not chosen do not count: the space is projected. `selective:N` chooses the N attributes that tell
most, by selectivity: the share of publications that a subscription asks for in this attribute, as `lacuna fit` learned
it; otherwise the share of the domain that one cell is. All of that comes from the configuration, so that every broker
has the same grid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from state.curves.hilbert import MOST_BITS, Curve, Ranges
from state.curves.hilbert import Cells as CellArray
from state.errors import ConfigError
from state.geometry.boxes import Box
from state.kernels import kernel, kernel_inline
from state.space import Attribute, Keys, Space, float_value

BITS = 8
"""Bits of a cell's number unless the configuration says otherwise, as published; fewer where there is no room."""
DIMS = "selective:3"
"""Attributes chosen by default: the number of ranges goes with the surface of a box, which explodes beyond three."""

FLIP = 2**63 - 1


@kernel_inline
def equal_cell(
    key: int, real: bool, low: int, origin: float, scale: float, top: int, bits: Keys, value: NDArray[np.float64]
) -> int:
    """The cell of one key; `bits` and `value` are two views of one number, to read a double's bits."""
    if real:
        bits[0] = key if key >= 0 else (key - 1) ^ FLIP
        along = value[0] / 2 - origin
    else:
        along = float(np.uint64(key) - np.uint64(low))
    along *= scale
    return top if along >= top else int(along)


@kernel
def equal_cells(keys: Keys, real: bool, low: int, origin: float, scale: float, top: int) -> NDArray[np.int64]:
    """The cell of each key."""
    cells = np.empty(len(keys), np.int64)
    bits = np.empty(1, np.int64)
    value = bits.view(np.float64)
    for k in range(len(keys)):
        cells[k] = equal_cell(keys[k], real, low, origin, scale, top, bits, value)
    return cells


@kernel
def first_key(cell: int, high: int, real: bool, low: int, origin: float, scale: float, top: int) -> int:
    """The smallest key from `low` below `high` whose cell is at least `cell`; `high` if there is none."""
    bits = np.empty(1, np.int64)
    value = bits.view(np.float64)
    least = low
    while least < high:
        middle = (least >> 1) + (high >> 1) + (least & high & 1)
        if equal_cell(middle, real, low, origin, scale, top, bits, value) < cell:
            least = middle + 1
        else:
            high = middle
    return least


@dataclass(frozen=True)
class Equal:
    """An attribute cut into cells of equal natural length."""

    attribute: Attribute
    bits: int

    @cached_property
    def _line(self) -> tuple[bool, int, float, float, int]:
        """Is it a float, where it begins, the same halved, cells per unit of length, the last cell.

        Floats are measured in halves: the whole length of a domain may exceed the largest double.
        """
        a, top = self.attribute, (1 << self.bits) - 1
        if a.kind != "float":
            return False, a.low, 0.0, min(1.0, 2.0**self.bits / (a.high - a.low + 1)), top
        length = float_value(a.high) / 2 - float_value(a.low) / 2  # to the last value, not beyond as `Attribute.length`
        scale = min(2.0**self.bits / length, np.finfo(np.float64).max) if length > 0 else 0.0
        return True, a.low, float_value(a.low) / 2, scale, top

    def cells(self, keys: Keys) -> NDArray[np.int64]:
        """The cell of each key."""
        return equal_cells(keys, *self._line)

    def first(self, cell: int) -> int:
        """The smallest key whose cell is at least `cell`; one beyond the domain if there is none."""
        return (
            self.attribute.high + 1 if cell > self._line[4] else first_key(cell, self.attribute.high + 1, *self._line)
        )

    def __str__(self) -> str:
        return self.attribute.name


@dataclass(frozen=True)
class Fitted:
    """An attribute cut at its borders; each border is the first key of a cell."""

    attribute: Attribute
    bits: int
    borders: Keys = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "borders", np.array(self.attribute.borders, np.int64))

    def cells(self, keys: Keys) -> NDArray[np.int64]:
        """The cell of each key."""
        return np.searchsorted(self.borders, keys, side="right").astype(np.int64)

    def first(self, cell: int) -> int:
        """The smallest key whose cell is at least `cell`; one beyond the domain if there is none."""
        if cell == 0:
            return self.attribute.low
        return int(self.borders[cell - 1]) if cell <= len(self.borders) else self.attribute.high + 1

    def __str__(self) -> str:
        digest = hashlib.blake2b(self.borders.astype("<i8").tobytes(), digest_size=6)
        return f"{self.attribute.name}/{digest.hexdigest()}"


class Grid:
    """The chosen attributes of a space, cut into cells, and the Hilbert curve through them."""

    def __init__(
        self,
        space: Space,
        bits: int | None = None,
        cells: str = "equal",
        dims: str | Sequence[str] | None = None,
        where: str = "routing.strategy",
    ) -> None:
        """A grid that keeps every rule, or `ConfigError`."""
        self.space = space
        self.columns = _columns(space, DIMS if dims is None else dims, where)
        count = len(self.columns)
        room = MOST_BITS // count
        if room < 1 or (bits is not None and bits > room):
            raise ConfigError(
                f"{where}.bits",
                bits or 1,
                f"bits x dims must be at most {MOST_BITS}; there are {count} dims",
                f"use at most {room} bits" if room else "choose fewer dims",
            )
        self.curve = Curve(count, min(BITS, room) if bits is None else bits)
        cut = Fitted if cells == "fitted" else Equal
        self.sides = [cut(space.attributes[i], self.curve.bits) for i in self.columns]
        for side in self.sides:
            if isinstance(side, Fitted):
                _check_borders(side, where)

    def cells(self, points: Keys) -> CellArray:
        """The cells of points `(n, d)`."""
        return np.stack(
            [side.cells(np.ascontiguousarray(points[:, i])) for side, i in zip(self.sides, self.columns, strict=True)],
            axis=1,
        )

    def keys(self, points: Keys) -> NDArray[np.int64]:
        """The places on the curve of points `(n, d)`."""
        return self.curve.keys(self.cells(points))

    def cell_boxes(self, boxes: Keys) -> CellArray:
        """The cells of half-open boxes `(n, 2, d)`, both corners inside: rounded outward."""
        low, high = self.cells(boxes[:, 0]), self.cells(boxes[:, 1] - 1)
        return np.stack((low, high), axis=1)

    def ranges(self, boxes: Keys, most: int) -> tuple[Ranges, int]:
        """The ranges of the union of boxes, at most `most`, and how many cells were bridged to make them so few."""
        return self.curve.outer_ranges(self.cell_boxes(boxes), most)

    def box(self, key: int) -> Box | None:
        """The cell at a place of the curve as a box of the space; None if no value lies in it."""
        low, high = (list(corner) for corner in self.space.domain)
        cell = self.curve.cells(np.array([key]))[0].tolist()
        for side, i, c in zip(self.sides, self.columns, cell, strict=True):
            low[i], high[i] = side.first(c), side.first(c + 1)
        return Box(tuple(low), tuple(high)) if all(a < b for a, b in zip(low, high, strict=True)) else None

    def __str__(self) -> str:
        return f"{','.join(str(side) for side in self.sides)}:{self.curve.bits}"


def _columns(space: Space, dims: str | Sequence[str], where: str) -> tuple[int, ...]:
    """The positions of the chosen attributes, in the order of the space."""
    names = [a.name for a in space.attributes]
    if isinstance(dims, str):
        count = int(dims.removeprefix("selective:"))
        return tuple(sorted(sorted(range(space.dims), key=lambda i: (_share(space.attributes[i]), i))[:count]))
    for name in dims:
        if name not in names:
            remedy = f"use some of {', '.join(names)}"
            raise ConfigError(f"{where}.dims", name, "the space has no such attribute", remedy)
    return tuple(names.index(name) for name in names if name in dims)


def _share(a: Attribute) -> float:
    """The share of publications that a subscription asks for in this attribute: the smaller, the more it tells."""
    return 1 / min(a.high - a.low + 1, 1 << BITS) if a.selectivity is None else a.selectivity


def _check_borders(side: Fitted, where: str) -> None:
    a, most = side.attribute, (1 << side.bits) - 1
    if not a.borders:
        raise ConfigError(f"{where}.cells", "fitted", f"there are no borders for {a.name}", "run lacuna fit first")
    if len(a.borders) > most:
        rule = f"{side.bits} bits leave room for {most} borders, {a.name} has {len(a.borders)}"
        raise ConfigError(f"{where}.bits", side.bits, rule, "run lacuna fit again, or use more bits")
