"""Boxes as codes in tiles: the part of the box index (`boxindex`) for many boxes.

Theory. The ends of a box become **codes**: the bucket of its low end and of its last key in each attribute, one of 256
quantiles, a byte each. Boxes that lie near each other, as points of 2d codes, share a **tile**. For each tile and
attribute four bounds are kept: the least and the most code of a start and of an end.

    point ──▶ its codes ──bounds──▶ tiles that may hold it ──codes──▶ boxes: no, sure, or doubtful ──coordinates──▶ yes

    code of a start   < that of the point: sure    = : doubtful    > : no
    code of an end    > that of the point: sure    = : doubtful    < : no

All loops run over bytes side by side, without branches that depend on them, so LLVM makes vector instructions of
them. A side that the bounds leave no doubt about is not looked at. Only doubtful boxes are compared by coordinates: the
codes filter, the coordinates decide. A question about a box q works alike: a box meets q if it starts no later than q
ends and ends no earlier than q starts, and contains it if it starts no later than q starts and ends no earlier than q
ends.

Answers come in the order of slots, which is the order of arrival. Each match sets a bit in a map of all slots, with a
summary bit for each word; reading the map gives them in order without sorting.

Runs. Tiles are made for a **run** of boxes at once, with its own quantiles. Its boxes are put in order as in a k-d
tree: halve at the median of the code that varies most, until a half is a tile. A new run goes to the end, and the last
runs are taken back to be merged with newer boxes (`boxindex`), so runs work like a stack:

    tiles   │ run 0 ................................│ run 1 .........│ run 2 ..│

Cost: a question reads 4d bytes for each tile, and 2d bytes for each box in the tiles that may have an answer. Memory:
2d + 4 bytes for each box.

Measured, times faster than bit rows with batches of 100 points in 3 attributes: see `bench core`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.geometry.boxrows import (
    CONTAINING,
    INSIDE,
    MOST_BUCKETS,
    ONE,
    Bits,
    Slots,
    bucket_of,
    holds,
    lowest_bit,
    quantiles,
    stands,
)
from state.kernels import kernel
from state.space import Keys

Codes = NDArray[np.uint8]
Numbers = NDArray[np.int32]

SAMPLED = 128  # boxes looked at to find out which code varies most
SURE, DOUBTFUL, NO = np.uint8(3), np.uint8(1), np.uint8(0)
LOW_BITS, TO_TOP = np.uint64(0x0101010101010101), np.uint64(0x0102040810204080)


class Arrays(NamedTuple):
    """The arrays that kernels take, for T tiles of K boxes in R runs."""

    codes: Codes
    """`(T, 2, d, K)`: of starts and of ends."""
    bounds: Codes
    """`(4, d, T)`: least and most start, least and most end."""
    slots: Numbers
    """`(T, K)`: where the boxes are."""
    filled: Numbers
    """`(T,)`: how many boxes a tile has."""
    earliest: Numbers
    """`(T,)`: the least slot of each tile."""
    borders: Slots
    """`(R, d, 255)`: the quantiles of each run."""
    ends: Numbers
    """`(R,)`: the number of tiles up to the end of each run."""


# Making tiles


@kernel
def _encode(boxes: Keys, slots: Slots, borders: Slots) -> Codes:
    """Return the codes `(2, d, n)` of the boxes in these slots."""
    d = boxes.shape[2]
    codes = np.empty((2, d, len(slots)), np.uint8)
    for i in range(d):
        for k in range(len(slots)):
            codes[0, i, k] = bucket_of(borders[i], boxes[slots[k], 0, i])
            codes[1, i, k] = bucket_of(borders[i], boxes[slots[k], 1, i] - 1)
    return codes


@kernel
def _varies_most(codes: Codes, order: Slots) -> int:
    """Return the row of `codes` with the largest variance among the positions in `order`, or a sample of them."""
    step = 1 + len(order) // SAMPLED
    best, most = 0, -1.0
    for row in range(len(codes)):
        count, total, squares = 0, 0, 0
        for k in range(0, len(order), step):
            code = int(codes[row, order[k]])
            count += 1
            total += code
            squares += code * code
        variance = squares / count - (total / count) ** 2
        if variance > most:
            best, most = row, variance
    return best


@kernel
def _halve(codes: Codes, order: Slots, left: int, spare: Slots) -> None:
    """Reorder `order` so that no code among its first `left` is above one after them; equal ones keep their order."""
    counts = np.zeros(MOST_BUCKETS + 1, np.int64)
    for position in order:
        counts[codes[position]] += 1
    middle, below = 0, 0
    while below + counts[middle] < left:
        below += counts[middle]
        middle += 1
    low, equal, high = 0, below, below + counts[middle]
    for position in order:
        code = codes[position]
        if code < middle:
            spare[low] = position
            low += 1
        elif code == middle:
            spare[equal] = position
            equal += 1
        else:
            spare[high] = position
            high += 1
    order[:] = spare[: len(order)]


@kernel
def _near_each_other(codes: Codes, tile: int) -> Slots:
    """Return an order of positions in which each `tile` of them are near each other: the leaves of a k-d tree."""
    n = codes.shape[1]
    order, spare = np.arange(n), np.empty(n, np.int64)
    waiting = [(0, n)]
    while len(waiting):
        begin, end = waiting.pop()
        tiles = (end - begin + tile - 1) // tile
        if tiles > 1:
            left = (tiles + 1) // 2 * tile
            some = order[begin:end]
            _halve(codes[_varies_most(codes, some)], some, left, spare)
            waiting.append((begin, begin + left))
            waiting.append((begin + left, end))
    return order


def _tiled(codes: Codes, slots: Numbers, borders: Slots, tile: int) -> Arrays:
    """Cut codes `(2, d, n)` and their slots, in this order, into the tiles of one run."""
    sides, dims, n = codes.shape
    count = -(-n // tile)
    padded = np.zeros((sides, dims, count * tile), np.uint8)
    padded[:, :, :n] = codes
    blocks = padded.reshape(sides, dims, count, tile)
    begins = np.arange(0, n, tile)
    extremes = [f.reduceat(side, begins, axis=1) for side in codes for f in (np.minimum, np.maximum)]
    places = np.zeros(count * tile, np.int32)
    places[:n] = slots
    return Arrays(
        np.ascontiguousarray(blocks.transpose(2, 0, 1, 3)),
        np.stack(extremes),
        places.reshape(count, tile),
        np.diff(begins, append=n).astype(np.int32),
        np.minimum.reduceat(slots, begins),
        borders[None],
        np.array([count], np.int32),
    )


def _nothing(dims: int, tile: int) -> Arrays:
    return Arrays(
        np.empty((0, 2, dims, tile), np.uint8),
        np.empty((4, dims, 0), np.uint8),
        np.empty((0, tile), np.int32),
        np.empty(0, np.int32),
        np.empty(0, np.int32),
        np.empty((0, dims, MOST_BUCKETS - 1), np.int64),
        np.empty(0, np.int32),
    )


# Asking


@kernel
def _bytes(count: int) -> Codes:
    """Room for so many bytes, and zeros up to whole words of 64, as `_gather` reads them."""
    return np.zeros((count + 63) & ~63, np.uint8)


@kernel
def _gather(verdicts: Codes, found: Slots) -> int:
    """Write the positions of bytes with the lowest bit set to `found`; return how many. Takes whole 64s of bytes.

    The low bits of eight bytes become one byte by a multiplication, so that 64 of them are a word of bits.
    """
    count = 0
    eights = verdicts.view(np.uint64)
    for b in range(0, len(eights), 8):
        low = eights[b] | eights[b + 1] | eights[b + 2] | eights[b + 3]
        high = eights[b + 4] | eights[b + 5] | eights[b + 6] | eights[b + 7]
        if (low | high) & LOW_BITS == 0:  # most often
            continue
        word = np.uint64(0)
        for k in range(8):
            word |= ((eights[b + k] & LOW_BITS) * TO_TOP) >> np.uint64(56) << np.uint64(8 * k)
        while word != 0:
            found[count] = 8 * b + lowest_bit(word)
            count += 1
            word &= word - ONE
    return count


@kernel
def _mark(late: Codes, early: Codes, bounds: Codes, begin: int, end: int, marks: Codes, chosen: Slots) -> int:
    """Write the tiles begin to end with a box that may start no later than `late` and end no earlier than `early`.

    Writes them to `chosen`, counted from `begin`, and returns how many there are.
    """
    some, padded = marks[: end - begin], marks[: (end - begin + 63) & ~63]
    some[:] = 1
    padded[end - begin :] = 0
    for i in range(len(late)):
        starts, most, ends, least = bounds[0, i, begin:end], late[i], bounds[3, i, begin:end], early[i]
        for t in range(len(some)):
            some[t] &= np.uint8((starts[t] <= most) & (ends[t] >= least))
    return _gather(padded, chosen)


@kernel
def _judge(late: Codes, early: Codes, codes: Codes, bounds: Codes, t: int, filled: int, verdicts: Codes) -> None:
    """Judge for each box of a tile whether it starts no later than `late` and ends no earlier than `early`.

    Writes NO, DOUBTFUL or SURE. Looks only at the sides that the bounds leave open.
    """
    verdicts[:filled] = SURE
    verdicts[filled:] = NO
    tile = codes.shape[2]
    for i in range(len(late)):
        if bounds[1, i, t] >= late[i]:
            starts, most = codes[0, i], late[i]
            for k in range(tile):
                verdicts[k] &= SURE if starts[k] < most else (DOUBTFUL if starts[k] == most else NO)
        if bounds[2, i, t] <= early[i]:
            ends, least = codes[1, i], early[i]
            for k in range(tile):
                verdicts[k] &= SURE if ends[k] > least else (DOUBTFUL if ends[k] == least else NO)


@kernel
def _confirm(
    points: Keys, p: int, boxes: Keys, slots: Numbers, t: int, verdicts: Codes, found: Slots, some: int, doubtful: Slots
) -> int:
    """Keep those of the first `some` positions in `found` whose box holds the point `p`; return how many.

    No branch depends on what is found, and no array is made (its counter would be a fence): so the next boxes, which
    are seldom in a cache, are fetched while one is compared.
    """
    sure = doubts = 0
    for k in range(some):
        position = found[k]
        found[sure] = doubtful[doubts] = position
        certain = verdicts[position] == SURE
        sure += certain
        doubts += not certain
    for k in range(doubts):
        slot, holds = slots[t, doubtful[k]], True
        for i in range(points.shape[1]):
            holds &= (boxes[slot, 0, i] <= points[p, i]) & (points[p, i] < boxes[slot, 1, i])
        found[sure] = doubtful[k]
        sure += holds
    return sure


@kernel
def _set_bits(slots: Numbers, t: int, found: Slots, count: int, map_: Bits, summary: Bits) -> None:
    """Set the bits of the slots of a tile at the first `count` positions in `found`."""
    for k in range(count):
        slot = slots[t, found[k]]
        map_[slot >> 6] |= ONE << np.uint64(slot & 63)
        summary[slot >> 12] |= ONE << np.uint64((slot >> 6) & 63)


@kernel
def _read_bits(map_: Bits, summary: Bits, alive: Bits, out: Slots, count: int) -> int:
    """Append the living slots whose bits are set to `out`, in order, and clear the map. Return the new count."""
    for s in range(len(summary)):
        words = summary[s]
        summary[s] = 0
        while words != 0:
            w = (s << 6) + lowest_bit(words)
            words &= words - ONE
            word = map_[w] & alive[w]
            map_[w] = 0
            while word != 0:
                out[count] = (w << 6) + lowest_bit(word)
                count += 1
                word &= word - ONE
    return count


@kernel
def _stab_all(points: Keys, boxes: Keys, alive: Bits, tiles: Arrays) -> tuple[Slots, Slots]:
    """For each point the slots of the boxes that hold it, in order: offsets and slots."""
    n, d = points.shape
    offsets, out = np.zeros(n + 1, np.int64), np.empty(4 * n + 16, np.int64)
    map_, summary = np.zeros(len(alive), np.uint64), np.zeros((len(alive) >> 6) + 1, np.uint64)
    tile = tiles.slots.shape[1]
    at, verdicts = np.empty(d, np.uint8), _bytes(tile)
    found, doubtful = np.empty(tile + 8, np.int64), np.empty(tile + 8, np.int64)
    marks, chosen = _bytes(len(tiles.filled)), np.empty(len(tiles.filled) + 8, np.int64)
    count = 0
    for p in range(n):
        point = points[p]
        begin, matched = 0, 0
        for run in range(len(tiles.ends)):
            for i in range(d):
                at[i] = bucket_of(tiles.borders[run, i], point[i])
            end = tiles.ends[run]
            for m in range(_mark(at, at, tiles.bounds, begin, end, marks, chosen)):
                t = begin + chosen[m]
                _judge(at, at, tiles.codes[t], tiles.bounds, t, tiles.filled[t], verdicts)
                some = _gather(verdicts, found)
                kept = _confirm(points, p, boxes, tiles.slots, t, verdicts, found, some, doubtful)
                _set_bits(tiles.slots, t, found, kept, map_, summary)
                matched += kept
            begin = end
        if count + matched > len(out):
            out = np.concatenate((out, np.empty(len(out) + matched, np.int64)))
        if matched:
            count = _read_bits(map_, summary, alive, out, count)
        offsets[p + 1] = count
    return offsets, out[:count].copy()


@kernel
def _lives(alive: Bits, slot: int) -> bool:
    return bool(alive[slot >> 6] >> np.uint64(slot & 63) & ONE)


@kernel
def _holds_any(
    point: Keys, boxes: Keys, alive: Bits, tiles: Arrays, at: Codes, marks: Codes, chosen: Slots, verdicts: Codes
) -> bool:
    begin = 0
    for run in range(len(tiles.ends)):
        for i in range(len(at)):
            at[i] = bucket_of(tiles.borders[run, i], point[i])
        end = tiles.ends[run]
        for m in range(_mark(at, at, tiles.bounds, begin, end, marks, chosen)):
            t = begin + chosen[m]
            _judge(at, at, tiles.codes[t], tiles.bounds, t, tiles.filled[t], verdicts)
            for k in range(tiles.filled[t]):
                slot = tiles.slots[t, k]
                sure = verdicts[k] == SURE or (verdicts[k] == DOUBTFUL and holds(boxes[slot], point))
                if sure and _lives(alive, slot):
                    return True
        begin = end
    return False


@kernel
def _stab_any(points: Keys, boxes: Keys, alive: Bits, tiles: Arrays) -> NDArray[np.bool_]:
    """For each point: does any box hold it?"""
    n, d = points.shape
    hit = np.zeros(n, np.bool_)
    at, verdicts = np.empty(d, np.uint8), _bytes(tiles.slots.shape[1])
    marks, chosen = _bytes(len(tiles.filled)), np.empty(len(tiles.filled) + 8, np.int64)
    for p in range(n):
        hit[p] = _holds_any(points[p], boxes, alive, tiles, at, marks, chosen, verdicts)
    return hit


@kernel
def _find(relation: int, q: Keys, first: bool, boxes: Keys, alive: Bits, tiles: Arrays) -> Slots:
    """Return the slots whose box stands to `q` in `relation`, in order; only the first of them if so asked."""
    d = q.shape[1]
    map_, summary = np.zeros(len(alive), np.uint64), np.zeros((len(alive) >> 6) + 1, np.uint64)
    tile = tiles.slots.shape[1]
    verdicts, found = _bytes(tile), np.empty(tile + 8, np.int64)
    lo, hi = np.empty(d, np.uint8), np.empty(d, np.uint8)
    marks, chosen = _bytes(len(tiles.filled)), np.empty(len(tiles.filled) + 8, np.int64)
    surest = SURE if relation != INSIDE else np.uint8(4)  # that a box meets q does not say that it lies in q
    best, matched, begin = 64 * len(alive), 0, 0
    for run in range(len(tiles.ends)):
        for i in range(d):
            lo[i] = bucket_of(tiles.borders[run, i], q[0, i])
            hi[i] = bucket_of(tiles.borders[run, i], q[1, i] - 1)
        late, early = (lo, hi) if relation == CONTAINING else (hi, lo)
        end = tiles.ends[run]
        for m in range(_mark(late, early, tiles.bounds, begin, end, marks, chosen)):
            t = begin + chosen[m]
            if first and tiles.earliest[t] >= best:
                continue
            _judge(late, early, tiles.codes[t], tiles.bounds, t, tiles.filled[t], verdicts)
            some = _gather(verdicts, found)
            slots, kept = tiles.slots[t], 0
            for k in range(some):
                position = found[k]
                slot = slots[position]
                found[kept] = position
                if first and (slot >= best or not _lives(alive, slot)):
                    continue
                if verdicts[position] >= surest or stands(relation, boxes[slot], q):
                    kept += 1
                    best = min(best, slot)
            if not first:
                _set_bits(tiles.slots, t, found, kept, map_, summary)
            matched += kept
        begin = end
    if first:
        return np.full(1 if matched else 0, best)
    out = np.empty(matched, np.int64)
    return out[: _read_bits(map_, summary, alive, out, 0)]


class Tiles:
    """Runs of tiles. All methods that answer take the boxes by slot and the bits of the living slots."""

    def __init__(self, dims: int, tile: int) -> None:
        """Begin without boxes; `tile` is the number of boxes in a tile, a multiple of 8."""
        self._tile = tile
        self._arrays = _nothing(dims, tile)

    def __bool__(self) -> bool:
        """Are there any boxes?"""
        return len(self._arrays.filled) > 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(array.nbytes for array in self._arrays)

    def sizes(self) -> list[int]:
        """Return the number of boxes of each run, dead ones included."""
        return [int(self._arrays.filled[run].sum()) for run in self._runs()]

    def _runs(self) -> list[slice]:
        ends = self._arrays.ends.tolist()
        return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]

    def append(self, slots: Slots, boxes: Keys) -> None:
        """Make a run of the boxes in these slots. O(n log n)."""
        borders = quantiles(boxes[slots[:: max(1, len(slots) // 16384)]], MOST_BUCKETS)
        codes = _encode(boxes, slots, borders)
        order = _near_each_other(codes.reshape(-1, len(slots)), self._tile)
        self._join(_tiled(codes[:, :, order], slots[order].astype(np.int32), borders, self._tile))

    def _join(self, more: Arrays) -> None:
        tiles = len(self._arrays.filled)
        more = more._replace(ends=more.ends + np.int32(tiles))
        axes = Arrays(0, 2, 0, 0, 0, 0, 0)  # type: ignore[arg-type]
        joined = (np.concatenate((a, b), axis=axis) for a, b, axis in zip(self._arrays, more, axes, strict=True))  # type: ignore[call-overload]
        self._arrays = Arrays(*joined)

    def take_last(self) -> Slots:
        """Remove the last run; return its slots, dead ones included."""
        run = self._runs()[-1]
        slots = self._slots_of(run)
        a = self._arrays
        left = (a.codes[: run.start], a.bounds[:, :, : run.start], a.slots[: run.start], a.filled[: run.start])
        self._arrays = Arrays(*left, a.earliest[: run.start], a.borders[:-1], a.ends[:-1])
        return slots

    def _slots_of(self, run: slice) -> Slots:
        filled = np.arange(self._tile) < self._arrays.filled[run, None]
        return self._arrays.slots[run][filled].astype(np.int64)

    def follow(self, moved: Slots) -> None:
        """Leave out what is dead and give each box its new slot: `moved[slot]`, -1 if it is dead. O(n)."""
        old, runs = self._arrays, [(run, moved[self._slots_of(run)]) for run in self._runs()]
        self._arrays = _nothing(old.codes.shape[2], self._tile)
        for (run, slots), borders in zip(runs, old.borders, strict=True):
            filled = (np.arange(self._tile) < old.filled[run, None]).ravel()
            codes = old.codes[run].transpose(1, 2, 0, 3).reshape(2, old.codes.shape[2], -1)[:, :, filled]
            living = slots >= 0
            if living.any():
                self._join(_tiled(codes[:, :, living], slots[living].astype(np.int32), borders, self._tile))

    def stab_any(self, points: Keys, boxes: Keys, alive: Bits) -> NDArray[np.bool_]:
        """For each point, whether any box holds it."""
        return _stab_any(points, boxes, alive, self._arrays)

    def stab_all(self, points: Keys, boxes: Keys, alive: Bits) -> tuple[Slots, Slots]:
        """Return offsets by point, and the slots of the boxes that hold each, in order."""
        return _stab_all(points, boxes, alive, self._arrays)

    def find(self, relation: int, q: Keys, boxes: Keys, alive: Bits, *, first: bool = False) -> Slots:
        """Return the slots whose box stands to `q` in this relation, in order; only the first of them if so asked."""
        return _find(relation, q, first, boxes, alive, self._arrays)

    def check(self, boxes: Keys, living: Slots) -> None:
        """Raise `InvariantError` unless each living slot is in one tile, and codes and bounds agree with the boxes."""
        held: list[Slots] = [np.empty(0, np.int64)]
        for k, run in enumerate(self._runs()):
            slots = self._slots_of(run)
            held.append(slots)
            codes = _encode(boxes, slots, self._arrays.borders[k])
            anew = _tiled(codes, slots.astype(np.int32), self._arrays.borders[k], self._tile)
            for name in ("codes", "bounds", "filled", "earliest"):
                ours = getattr(self._arrays, name)
                if not np.array_equal(ours[:, :, run] if name == "bounds" else ours[run], getattr(anew, name)):
                    raise InvariantError(f"the {name} of the tiles of a box index disagree with its boxes")
        slots = np.concatenate(held)
        if len(np.unique(slots)) != len(slots) or not np.isin(living, slots).all():
            raise InvariantError("a box of a box index is in no tile, or in two")
