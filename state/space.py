"""The space of attributes: values of four kinds become int64 keys, in order and without loss.

Every attribute has an order-preserving, injective map `key` from its domain to int64, so that `a <= b` exactly when
`key(a) <= key(b)`, and a closed range `[a, b]` is the half-open interval `[key(a), key(b) + 1)` of keys.

| kind        | value                         | key                                                            |
| ----------- | ----------------------------- | -------------------------------------------------------------- |
| `int`       | a whole number                | itself                                                         |
| `float`     | a finite IEEE double          | its bits as int64; for negative numbers all but the sign flipped |
| `category`  | one of a declared list        | its position in that list                                      |
| `timestamp` | ISO 8601, to the microsecond  | microseconds since 1970-01-01T00:00:00Z                        |

Doubles: the bit patterns of non-negative doubles, read as integers, are already in order; those of negative doubles
are in reverse order, which flipping the 63 value bits puts right, and one more closes the gap where -0.0 would be:
-0.0 and 0.0 are one value, so -0.0 is normalised first. No tolerance anywhere: two doubles that differ in the last
bit are neighbours, `key` apart by one.

A whole number that comes as a double (3.0, 1e6) is an `int`, up to 2^53. Beyond, several whole numbers are one double,
so it would be a guess which was meant, and it is refused.

A number that comes as text (`Written`) is not read before its kind is known: for an `int` it is exact, however many
digits it has, for a `float` it is the nearest double.

What does not fit its attribute raises `ValueRefused` with the name of the rule; `events` turns that into a reject,
`config` into a configuration error.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from state.errors import nearest, shown

Keys = NDArray[np.int64]
"""An int64 array: `(n, d)` for points, `(n, 2, d)` for boxes."""
Lengths = NDArray[np.float64]
"""Natural lengths."""
Corner = tuple[int, ...]
"""A key for each attribute."""
Sides = list[list[tuple[int, int]]]
"""For each attribute the disjoint intervals `[lo, hi)` that are asked for."""

Kind = Literal["int", "float", "category", "timestamp"]
KINDS: tuple[Kind, ...] = ("int", "float", "category", "timestamp")

DATED = re.compile(r"[0-9]{4}(-[0-9]{2}-[0-9]{2}|[0-9]{4}|-?W[0-9]{2}(-?[0-9])?)([Tt ].+)?")
"""A date, maybe with a time behind it: Python would take any character between the two."""
FINER = re.compile(r"[.,][0-9]{7}")
"""A fraction of a second finer than a microsecond."""
ZEROS = re.compile(r"([.,][0-9]{6})0+(?![0-9])")
"""A fraction that is only written finer."""
BEYOND = re.compile(r"([eE][+-]?)0*[1-9][0-9]{8,}")
"""An exponent that no number of digits in a text makes up for; some are more than `Decimal` can hold."""
MOST_SHOWN = 40
"""So many digits of a number are shown in a message."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
EXACT = 2**53
"""From here on a double stands for several whole numbers."""
LARGEST_INT = 2**63 - 2
"""The largest `int` value: its key plus one, the open end of a range, must still be an int64."""

LARGEST = math.nextafter(math.inf, 0)
"""The largest double."""

_FLIP = 2**63 - 1
_DOUBLE, _LONG = struct.Struct("<d"), struct.Struct("<q")


class ValueRefused(ValueError):
    """A value does not fit its attribute: `rule` is the name of the rule, the text says which value and why."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Written:
    """A number as it was written, which is also how messages show it.

    >>> Attribute("n", "int", 0, 2**60).key(Written("9007199254740993.0"))
    9007199254740993
    """

    digits: str

    def __repr__(self) -> str:
        return self.digits if len(self.digits) <= MOST_SHOWN else f"{self.digits[:MOST_SHOWN]}..."

    def __float__(self) -> float:
        return float(self.digits)

    def exact(self) -> Decimal:
        """The number itself, or one as far beyond every domain, or as close to 0, where its exponent is absurd."""
        return Decimal(BEYOND.sub(r"\g<1>99999999", self.digits))


def float_key(value: float) -> int:
    """The order-preserving image of a finite double.

    >>> float_key(-0.0) == float_key(0.0) == 0
    True
    >>> float_key(-1.0) < float_key(-0.5) < float_key(5e-324) < float_key(1e308)
    True
    """
    bits: int = _LONG.unpack(_DOUBLE.pack(value + 0.0))[0]
    return bits if bits >= 0 else (bits ^ _FLIP) + 1


def float_value(key: int) -> float:
    """The double of a key; the inverse of `float_key`."""
    value: float = _DOUBLE.unpack(_LONG.pack(key if key >= 0 else (key - 1) ^ _FLIP))[0]
    return value + 0.0


def float_values(keys: Keys) -> Lengths:
    """The doubles of many keys."""
    return np.where(keys >= 0, keys, (keys - 1) ^ _FLIP).view(np.float64) + 0.0


def timestamp_key(text: str) -> int:
    """Microseconds since 1970 of an ISO 8601 timestamp; without an offset it is UTC.

    >>> timestamp_key("1970-01-01T00:00:01Z") == timestamp_key("1970-01-01 00:00:01.000000000z")
    True
    """
    plain = text
    if FINER.search(text):
        plain = ZEROS.sub(r"\1", text)
        if FINER.search(plain):
            raise ValueRefused("timestamp", f"{shown(text)} is finer than a microsecond")
    try:
        if not DATED.fullmatch(plain):
            raise ValueError
        moment = datetime.fromisoformat(plain.upper())
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return (moment.astimezone(UTC) - EPOCH) // MICROSECOND
    except (ValueError, OverflowError):
        raise ValueRefused("timestamp", f"{shown(text)} is not an ISO 8601 timestamp") from None


@lru_cache(maxsize=4096)
def timestamp_text(key: int) -> str:
    """The ISO 8601 text of a timestamp's key, in UTC.

    >>> timestamp_text(1_000_000)
    '1970-01-01T00:00:01Z'
    """
    return (EPOCH + key * MICROSECOND).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True)
class Attribute:
    """One dimension of the space: a name, a kind, and the keys of its domain `[low, high]` (closed)."""

    name: str
    kind: Kind
    low: int
    high: int
    values: tuple[str, ...] = ()
    borders: tuple[int, ...] = ()
    """Learned cells (see `cells`): the first key of each but the first."""
    selectivity: float | None = None
    """Learned: the share of publications that a subscription asks for in this attribute alone."""
    default: int | None = None
    """The key of a publication that does not name the attribute; None: it must."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Values that a category had under another name, and the names that they have now."""

    @property
    def domain(self) -> tuple[str, Kind, int, int, tuple[str, ...]]:
        """Name, kind and values: everything that keys depend on."""
        return self.name, self.kind, self.low, self.high, self.values

    def key(self, value: object) -> int:
        """The key of `value`, or `ValueRefused` if it is of the wrong type or outside the domain."""
        key = self._raw_key(value)
        if not self.low <= key <= self.high:
            low, high = self.value(self.low), self.value(self.high)
            raise ValueRefused("domain", f"{self.name} = {shown(value)} is outside its domain [{low}, {high}]")
        return key

    def _raw_key(self, value: object) -> int:
        match self.kind:
            case "int":
                return self._int_key(value)
            case "float":
                return self._float_key(value)
            case "category":
                return self._category_key(value)
            case "timestamp":
                if not isinstance(value, str):
                    raise ValueRefused("type", f"{self.name} = {shown(value)} is not an ISO 8601 string")
                return timestamp_key(value)

    def _int_key(self, value: object) -> int:
        if type(value) is int:
            return value
        if isinstance(value, Written):
            return self._exact_key(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueRefused("type", f"{self.name} = {shown(value)} is not a number")
        if isinstance(value, float):
            self._refuse_not_finite(value, value)
            self._refuse_rounded(value)
            self._refuse_fraction(value, value.is_integer())
        return int(value)

    def _refuse_rounded(self, number: float) -> None:
        """A double so large that it does not say which whole number of the domain was meant."""
        least, most = math.nextafter(number, -math.inf), math.nextafter(number, math.inf)
        if abs(number) >= EXACT and least <= self.high and self.low <= most:
            why = "may have been rounded: from 2^53 on write a whole number without point or exponent"
            raise ValueRefused("fraction", f"{self.name} = {number!r} {why}")

    def _exact_key(self, value: Written) -> int:
        exact = value.exact()
        self._refuse_fraction(value, exact == exact.to_integral_value())
        inside = max(Decimal(self.low - 1), min(exact, Decimal(self.high + 1)))  # 1e99999999 would be a huge integer
        return int(inside)

    def _float_key(self, value: object) -> int:
        if type(value) is float and math.isfinite(value):
            return float_key(value)
        if isinstance(value, bool) or not isinstance(value, int | float | Written):
            raise ValueRefused("type", f"{self.name} = {shown(value)} is not a number")
        try:
            number = float(value)
        except OverflowError:
            raise ValueRefused("domain", f"{self.name} = {shown(value)} is beyond the largest double") from None
        self._refuse_not_finite(value, number)
        return float_key(number)

    def _refuse_not_finite(self, value: object, number: float) -> None:
        if not math.isfinite(number):
            raise ValueRefused("finite", f"{self.name} = {shown(value)} is not a finite number")

    def _refuse_fraction(self, value: object, whole: bool) -> None:
        if not whole:
            raise ValueRefused("fraction", f"{self.name} = {shown(value)} has a fraction, but its kind is int")

    def _category_key(self, value: object) -> int:
        if not isinstance(value, str):
            raise ValueRefused("type", f"{self.name} = {shown(value)} is not a string")
        try:
            return self._positions[value]
        except KeyError:
            raise ValueRefused(
                "category", f"{self.name} = {shown(value)} is not one of {', '.join(self.values)}"
            ) from None

    @cached_property
    def _positions(self) -> dict[str, int]:
        now = {value: i for i, value in enumerate(self.values)}
        return now | {old: now[new] for old, new in self.renamed}

    def value(self, key: int) -> int | float | str:
        """The value of a key of the domain; the inverse of `key`."""
        match self.kind:
            case "int":
                return key
            case "float":
                return float_value(key)
            case "category":
                return self.values[key]
            case "timestamp":
                return timestamp_text(key)

    def length(self, lo: int, hi: int) -> float:
        """The natural length of the keys `[lo, hi)`: for volumes, which steer and never decide.

        Lengths add up: an interval is as long as its parts. So a double is as long as the step to the next one, and the
        largest takes none. Doubles are halved: a domain may be wider than the largest.

        >>> coin = Attribute("p", "float", float_key(0.5), float_key(0.5) + 1)
        >>> coin.length(coin.low, coin.low + 1) / coin.whole
        0.5
        """
        if self.kind == "float":
            return min(float_value(hi), LARGEST) / 2 - float_value(lo) / 2
        return float(hi - lo)

    def lengths(self, lo: Keys, hi: Keys) -> Lengths:
        """The `length` of each of several intervals."""
        if self.kind == "float":
            return self.positions(hi) - self.positions(lo)
        return (hi.astype(np.uint64) - lo.astype(np.uint64)).astype(np.float64)

    def positions(self, keys: Keys) -> Lengths:
        """Numbers, one for each key, whose differences are lengths, rounded."""
        if self.kind == "float":
            return np.minimum(float_values(keys), LARGEST) / 2
        return (keys.astype(np.uint64) - np.uint64(self.low % 2**64)).astype(np.float64)

    @cached_property
    def whole(self) -> float:
        """The natural length of the domain; 0 for some that are a single double."""
        return self.length(self.low, self.high + 1)

    def intervals(self, wanted: object) -> list[tuple[int, int]]:
        """The half-open key intervals of a `where` entry: a closed range, or a set of categories.

        >>> Attribute("a", "int", 0, 9).intervals([3, None])
        [(3, 10)]
        >>> Attribute("c", "category", 0, 2, ("x", "y", "z")).intervals(["z", "y"])
        [(1, 3)]
        """
        if not isinstance(wanted, list):
            raise ValueRefused("range", f"{self.name}: {shown(wanted)} is not a list")
        return self._category_intervals(wanted) if self.kind == "category" else [self._interval(wanted)]

    def _interval(self, ends: Sequence[object]) -> tuple[int, int]:
        if len(ends) != 2:
            raise ValueRefused("range", f"{self.name}: a range has two ends, not {len(ends)}")
        lo = self.low if ends[0] is None else self.key(ends[0])
        hi = self.high if ends[1] is None else self.key(ends[1])
        if lo > hi:
            raise ValueRefused("inverted", f"{self.name}: the range [{ends[0]}, {ends[1]}] is inverted")
        return lo, hi + 1

    def _category_intervals(self, wanted: Sequence[object]) -> list[tuple[int, int]]:
        if not wanted:
            raise ValueRefused("empty", f"{self.name}: an empty set of categories matches nothing")
        runs: list[tuple[int, int]] = []
        for key in sorted({self.key(value) for value in wanted}):
            if runs and runs[-1][1] == key:
                runs[-1] = (runs[-1][0], key + 1)
            else:
                runs.append((key, key + 1))
        return runs

    def range_of(self, lo: int, hi: int) -> list[int | float | str]:
        """The keys `[lo, hi)` as a `where` entry; the inverse of `intervals` for one interval."""
        if self.kind == "category":
            return [self.values[key] for key in range(lo, hi)]
        return [self.value(lo), self.value(hi - 1)]


def corners_of(sides: Sides) -> list[tuple[Corner, Corner]]:
    """The half-open corners of the boxes that have these sides: as many as the product of their numbers."""
    return [(tuple(lo for lo, _ in ends), tuple(hi for _, hi in ends)) for ends in product(*sides)]


@dataclass(frozen=True)
class Space:
    """The attributes, in order. A publication is a point in it; a subscription is one or more disjoint boxes.

    >>> space = Space((Attribute("a", "int", 0, 9), Attribute("c", "category", 0, 2, ("x", "y", "z"))))
    >>> space.corners({"a": [3, 4], "c": ["x", "z"]})
    [((3, 0), (5, 1)), ((3, 2), (5, 3))]
    >>> space.describe((3, 0), (5, 1))
    {'a': [3, 4], 'c': ['x']}
    """

    attributes: tuple[Attribute, ...]

    @property
    def dims(self) -> int:
        return len(self.attributes)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(a.name for a in self.attributes)

    @cached_property
    def domain(self) -> tuple[Corner, Corner]:
        """The low and high corner of the whole space, half-open."""
        return tuple(a.low for a in self.attributes), tuple(a.high + 1 for a in self.attributes)

    def point(self, at: Mapping[str, object]) -> Corner:
        """The keys of a publication, which must name every attribute that has no default, and no other."""
        if at.keys() != self.names:
            return self._completed(at)
        return tuple([a.key(at[a.name]) for a in self.attributes])

    def _completed(self, at: Mapping[str, object]) -> Corner:
        self._refuse_unknown(at)
        keys = [a.key(at[a.name]) if a.name in at else a.default for a in self.attributes]
        if None in keys:
            lacking = next(a.name for a in self.attributes if a.name not in at and a.default is None)
            raise ValueRefused("attribute", f"the publication does not name {lacking}")
        return tuple(key for key in keys if key is not None)

    def sides(self, where: Mapping[str, object]) -> Sides:
        """Return the keys that an object of ranges asks for in each attribute; one not named is unconstrained."""
        self._refuse_unknown(where)
        return [a.intervals(where[a.name]) if a.name in where else [(a.low, a.high + 1)] for a in self.attributes]

    def corners(self, where: Mapping[str, object]) -> list[tuple[Corner, Corner]]:
        """The half-open corners of the disjoint boxes that `where` asks for."""
        return corners_of(self.sides(where))

    def _refuse_unknown(self, named: Mapping[str, object]) -> None:
        for name in named:
            if name not in self.names:
                known = ", ".join(a.name for a in self.attributes)
                hint = nearest(name, self.names)
                raise ValueRefused("attribute", f"{shown(name)} is not an attribute of the space ({known}){hint}")

    def is_same(self, other: Space) -> bool:
        """Return whether both have the same keys for the same values, whatever was learned or is the default."""
        return [a.domain for a in self.attributes] == [a.domain for a in other.attributes]

    def describe(self, lo: Corner, hi: Corner) -> dict[str, list[int | float | str]]:
        """A box as a person would write it: a valid `where` that names every attribute."""
        ends = zip(self.attributes, lo, hi, strict=True)
        return {a.name: a.range_of(low, high) for a, low, high in ends}

    def where(self, lo: Corner, hi: Corner) -> dict[str, list[int | float | str]]:
        """The shortest `where` that asks for a box: what it does not constrain is not named."""
        ends = zip(self.attributes, lo, hi, strict=True)
        return {a.name: a.range_of(low, high) for a, low, high in ends if (low, high) != (a.low, a.high + 1)}

    def describe_point(self, keys: Corner) -> dict[str, int | float | str]:
        """A point's values by attribute; the inverse of `point`."""
        return {a.name: a.value(key) for a, key in zip(self.attributes, keys, strict=True)}

    def share(self, lo: Corner, hi: Corner) -> float:
        """The natural volume of a box as a share of the domain. Steers, never decides."""
        share = 1.0
        for a, low, high in zip(self.attributes, lo, hi, strict=True):
            share *= a.length(low, high) / a.whole if a.whole > 0 else 1.0
        return share

    def positions(self, boxes: Keys) -> Lengths:
        """The ends of an `(n, 2, d)` array of boxes as numbers whose differences are natural lengths."""
        return np.stack([a.positions(boxes[..., i]) for i, a in enumerate(self.attributes)], axis=-1)

    def shares(self, boxes: Keys) -> Lengths:
        """The `share` of each of an `(n, 2, d)` array of boxes."""
        shares = np.ones(len(boxes))
        for i, a in enumerate(self.attributes):
            if a.whole > 0:
                shares *= a.lengths(boxes[:, 0, i], boxes[:, 1, i]) / a.whole
        return shares

    def points(self, rows: Sequence[Corner]) -> Keys:
        """Points as an `(n, d)` array."""
        return np.array(rows, dtype=np.int64).reshape(len(rows), self.dims)
