"""Pieces of stored state in a map of small values, so that a batch reads and writes only what it needs.

    oslo/paris      150 kB      ──▶     oslo/paris#0    3 | 64 kB
                                        oslo/paris#1        64 kB
                                        oslo/paris#2        22 kB

The first slice says how many there are. The map is the engine's: it keeps values by key, commits the changes of a batch
all at once, and handles values of some hundred kilobytes at most well. Whether slices belong together is not checked
here: every piece has a digest (`store`).
"""

from __future__ import annotations

from typing import Protocol

SLICE = 1 << 16
"""Bytes of a slice, apart from the count."""
COUNT = 4
"""Bytes of the count."""


class Values(Protocol):
    """A map from text to small values."""

    def get(self, key: str, /) -> bytes | None: ...

    def __setitem__(self, key: str, value: bytes, /) -> None: ...

    def __delitem__(self, key: str, /) -> None: ...


class Sliced:
    """Pieces (`store.Pieces`) in a map of small values. Each method costs O(slices) look-ups."""

    def __init__(self, values: Values, size: int = SLICE) -> None:
        self._values, self._size = values, size

    def get(self, key: str, /) -> bytes | None:
        """Return a piece; None if it, or a part of it, is not there."""
        first = self._values.get(f"{key}#0")
        if first is None:
            return None
        slices = [first[COUNT:], *map(self._values.get, _keys(key, 1, _count(first)))]
        there = [each for each in slices if each is not None]
        return b"".join(there) if len(there) == len(slices) else None

    def __setitem__(self, key: str, piece: bytes, /) -> None:
        before, count = self._slices(key), max(1, -(-len(piece) // self._size))
        for k, name in enumerate(_keys(key, 0, count)):
            part = piece[k * self._size : (k + 1) * self._size]
            self._values[name] = part if k else count.to_bytes(COUNT, "little") + part
        self._remove(key, count, before)

    def __delitem__(self, key: str, /) -> None:
        self._remove(key, 0, self._slices(key))

    def _slices(self, key: str) -> int:
        first = self._values.get(f"{key}#0")
        return 0 if first is None else _count(first)

    def _remove(self, key: str, begin: int, end: int) -> None:
        for name in _keys(key, begin, end):
            del self._values[name]


def _keys(key: str, begin: int, end: int) -> list[str]:
    return [f"{key}#{k}" for k in range(begin, end)]


def _count(first: bytes) -> int:
    return int.from_bytes(first[:COUNT], "little")
