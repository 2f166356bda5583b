"""Columns: the forms in which stored state keeps whatever there is much of, so that zstd finds it repetitive.

    numbers   byte-shuffled: all lowest bytes first, then all second-lowest ... Most bytes of a column repeat
    series    for numbers that mostly grow (times, offsets, versions): the steps between them, as numbers
    texts     lengths, and all texts in one piece
    words     for texts that recur (brokers, clients, origins): each distinct one once, and who has which

Arithmetic on series wraps around at 64 bits, in both directions alike. A step may be larger than an int64 can hold:
the counted ranges of a curve of 63 bits begin at -1 and end at 2^63 - 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Texts(msgspec.Struct, array_like=True):
    """A column of texts."""

    lengths: bytes
    text: bytes


class Words(msgspec.Struct, array_like=True):
    """A column of texts that recur: the distinct ones in order of first use, and positions among them."""

    distinct: Texts
    positions: bytes


def column(values: Iterable[int]) -> Ints:
    """Return whole numbers as an array."""
    return np.fromiter(values, np.int64)


def numbers(values: Ints) -> bytes:
    """Return whole numbers as bytes, shuffled."""
    return np.ascontiguousarray(values, "<i8").reshape(-1).view(np.uint8).reshape(-1, 8).T.tobytes()


def from_numbers(stored: bytes) -> Ints:
    """Return the numbers that were stored."""
    return np.frombuffer(stored, np.uint8).reshape(8, -1).T.copy().view("<i8").reshape(-1).astype(np.int64)


def series(values: Ints) -> bytes:
    """Return whole numbers that mostly grow as bytes: the first, and the steps between them, modulo 2^64.

    >>> from_series(series(np.array([-1, 2**63 - 1, -(2**63)]))).tolist() == [-1, 2**63 - 1, -(2**63)]
    True
    """
    unsigned = np.ascontiguousarray(values, np.int64).view(np.uint64)
    return numbers(np.diff(unsigned, prepend=np.uint64(0)).view(np.int64))


def from_series(stored: bytes) -> Ints:
    """Return the series that was stored."""
    return np.cumsum(from_numbers(stored).view(np.uint64), dtype=np.uint64).view(np.int64)


def blobs(values: Sequence[bytes]) -> Texts:
    """Return a column of texts that are bytes already."""
    return Texts(numbers(column(map(len, values))), b"".join(values))


def from_blobs(stored: Texts) -> list[bytes]:
    """Return the texts that were stored, as bytes."""
    return [stored.text[begin:end] for begin, end in spans(from_numbers(stored.lengths), len(stored.text))]


def texts(values: Iterable[str]) -> Texts:
    """Return a column of texts."""
    return blobs([value.encode() for value in values])


def from_texts(stored: Texts) -> list[str]:
    """Return the texts that were stored."""
    return [blob.decode() for blob in from_blobs(stored)]


def words(values: Iterable[str]) -> Words:
    """Return a column of texts that recur."""
    known: dict[str, int] = {}
    positions = column(known.setdefault(value, len(known)) for value in values)
    return Words(texts(known), series(positions))


def from_words(stored: Words) -> list[str]:
    """Return the texts that were stored."""
    distinct = from_texts(stored.distinct)
    return [distinct[k] for k in inside(from_series(stored.positions), len(distinct)).tolist()]


def inside(positions: Ints, size: int) -> Ints:
    """Return positions in a list of this size. Raises `ValueError` where one is none: -1 would mean the last."""
    if len(positions) and not 0 <= positions.min() <= positions.max() < size:
        raise ValueError("a position leads outside of its list")
    return positions


def spans(counts: Ints, size: int) -> list[tuple[int, int]]:
    """Return where parts of these lengths begin and end. Raises `ValueError` unless they fill the whole."""
    ends = np.cumsum(counts).tolist()
    if (counts < 0).any() or (ends[-1] if ends else 0) != size:
        raise ValueError("the lengths of a column do not fit its content")
    return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []
