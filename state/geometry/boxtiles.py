"""Boxes as codes in tiles: the part of the box index (`boxindex`) for many boxes.

Theory. The ends of a box become small numbers in three steps, each a coarser look at the one before:

    key      what the box says: an integer of 64 bits
    rank     the number of borders at or below the key; the borders are quantiles of the ends in a run, at most 4,096
    code     the rank as seen from the box's group, a byte: `(rank - base) >> shift`

None of them puts two keys in the wrong order. So a code decides unless two are equal; then the coordinates do:

    code of a start   < that of the point: sure    = : doubtful    > : no
    code of an end    > that of the point: sure    = : doubtful    < : no

Boxes that lie near each other, as points of 2d ranks, share a **tile** of 64, and 64 such tiles share a **group** with
one base and shift for each attribute and side. A group spans a small part of the domain, so its codes are fine there:
few boxes are doubtful. A group knows its least start and most end in ranks, and for each of its tiles the least and the
most code of a start and of an end:

    point ──▶ ranks ──extents──▶ groups ──▶ codes ──bounds──▶ tiles ──codes──▶ boxes: no, sure, doubtful ──keys──▶ yes

A tile has 64 bytes for each attribute and side, a cache line, and 64 verdicts are a word of bits. All loops run over
bytes side by side, without branches that depend on them, so LLVM makes vector instructions of them. A side that the
bounds leave no doubt about is not looked at. A question about a box q works alike: a box meets q if it starts no later
than q ends and ends no earlier than q starts, and contains it if it starts no later than q starts and ends no earlier
than q ends.

Memory is slow: with a million boxes nearly all that a point looks at comes from beyond the caches. So many points are
answered in stages, some hundred tiles at a time, and each stage has what the next one will read fetched ahead:

    choose tiles ──fetch codes──▶ sift boxes ──fetch slots──▶ list the doubtful ──fetch boxes──▶ compare, set in order

Answers come in the order of slots, which is the order of arrival. A few are sorted; of many, each sets a bit in a map
of all slots, with a summary bit for each word, and reading the map gives them in order.

Runs. Tiles are made for a **run** of boxes at once, with its own borders. Its boxes are put in order as in a k-d tree:
halve at the median of the rank that varies most, until a half is a group, then a tile. A new run goes to the end, and
the last runs are taken back to be merged with newer boxes (`boxindex`), so runs work like a stack:

    tiles   │ run 0 ................................│ run 1 .........│ run 2 ..│

Boxes that stay when others are left out move to other groups, of which only codes are known. A base is a multiple of
`1 << shift`, so a code of one group gives the code in another exactly, if that is no finer.

Cost: a question reads 4d bytes for each group, 2d·64 for each group that may have an answer, and 2d·64 for each such
tile. Memory: about 2.5d + 4 bytes for each box.

Rejected: codes that are the same for the whole run (a byte is too coarse for a million boxes: of those that pass, more
than a third to nearly all are doubtful); a tile of 512 without groups (three to six times as many codes are read).
Measured, times faster than an R-tree: see `bench core`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from state.errors import InvariantError
from state.geometry.boxrows import (
    CONTAINING,
    INSIDE,
    ONE,
    Bits,
    Slots,
    holds,
    lowest_bit,
    quantiles,
    stands,
)
from state.kernels import kernel, kernel_inline
from state.space import Keys

Codes = NDArray[np.uint8]
Ranks = NDArray[np.uint16]
Numbers = NDArray[np.int32]

WIDTH = 64
"""Most boxes in a tile, and most tiles in a group: the bits of a word."""
FEWEST_BUCKETS, MOST_BUCKETS = 256, 4096
BOXES_A_BUCKET = 16  # borders take d / 2 bytes a box in small runs, and next to nothing in large ones
SAMPLED = 128  # boxes looked at to find out which rank varies most
COARSE = 8  # bits of a rank by which boxes are put in order: so few counters that clearing them costs nothing
SEARCHED = 256  # keys whose ranks are searched side by side
TOGETHER = 512  # tiles in one stage: what is fetched for them fits into the second cache
FEW = 16  # answers of one point that are sorted rather than read from a map
ATTRIBUTES = 4  # attributes that are looked at before asking whether a box is left, and whose codes are fetched ahead
SURE, DOUBTFUL, NO = np.uint8(3), np.uint8(1), np.uint8(0)
LOW_BITS, TO_TOP = np.uint64(0x0101010101010101), np.uint64(0x0102040810204080)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class TileArrays(NamedTuple):
    """The arrays that kernels take, for T tiles in G groups in R runs."""

    codes: Codes
    """`(T, d, 2, 64)`: of starts and of ends."""
    slots: Numbers
    """`(T, 64)`: where the boxes are."""
    filled: Numbers
    """`(T,)`: how many boxes a tile has."""
    earliest: Numbers
    """`(T,)`: the least slot of each tile."""
    bounds: Codes
    """`(G, 4, d, 64)`: least and most start, least and most end of each tile of a group."""
    scales: Numbers
    """`(G, 2, d, 2)`: base and shift, of starts and of ends."""
    firsts: Numbers
    """`(G,)`: the first tile of each group."""
    counts: Numbers
    """`(G,)`: how many tiles a group has."""
    extents: Ranks
    """`(2, d, G)`: least start and most end of each group."""
    borders: Slots
    """`(d, ...)`: the borders of all runs, one run after the other; of each a power of two less one."""
    border_ends: Numbers
    """`(R,)`: the number of borders up to the end of each run."""
    ends: Numbers
    """`(R,)`: the number of groups up to the end of each run."""


# Making tiles


@kernel
def _rank(boxes: Keys, slots: Slots, borders: Slots) -> Ranks:
    """Return the ranks `(2, d, n)` of the boxes in these slots: the number of borders at or below each end.

    There are a power of two borders, less one. Some hundred keys are searched side by side, step by step: no branch
    depends on a key, and LLVM makes vector instructions of it. That is eight times as fast as one key after the other.
    """
    n, d = len(slots), boxes.shape[2]
    ranks = np.empty((2, d, n), np.uint16)
    keys, at = np.empty(SEARCHED, np.int64), np.empty(SEARCHED, np.int64)
    for i in range(d):
        row = borders[i]
        for side in range(2):
            for first in range(0, n, SEARCHED):
                some = min(SEARCHED, n - first)
                for k in range(some):
                    keys[k] = boxes[slots[first + k], side, i] - side
                    at[k] = 0
                step = (len(row) + 1) >> 1
                while step:
                    for k in range(some):
                        at[k] += step if row[np.uint64(at[k] + step - 1)] <= keys[k] else 0
                    step >>= 1
                for k in range(some):
                    ranks[side, i, first + k] = at[k]
    return ranks


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
    counts = np.zeros((1 << COARSE) + 1, np.int64)
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
    """Return an order of positions in which those of a group, and of each `tile` in it, are near each other.

    These are the leaves of a k-d tree, halved at whole groups as long as there are several.
    """
    n = codes.shape[1]
    order, spare = np.arange(n), np.empty(n, np.int64)
    waiting = [(0, n)]
    while len(waiting):
        begin, end = waiting.pop()
        unit = WIDTH * tile if end - begin > WIDTH * tile else tile
        units = (end - begin + unit - 1) // unit
        if units > 1:
            left = (units + 1) // 2 * unit
            some = order[begin:end]
            _halve(codes[_varies_most(codes, some)], some, left, spare)
            waiting.append((begin, begin + left))
            waiting.append((begin + left, end))
    return order


def _grouped(values: NDArray[Any], groups: int, tile: int) -> NDArray[Any]:
    """Return `(2, d, n)` values as `(2, d, groups, 64, tile)`, the last one repeated as often as needed."""
    missing = groups * WIDTH * tile - values.shape[2]
    padded = np.concatenate((values, np.repeat(values[:, :, -1:], missing, axis=2)), axis=2)
    return padded.reshape(*values.shape[:2], groups, WIDTH, tile)


def _scales(ranks: Ranks, shifts: Codes | None, group: int) -> tuple[Numbers, Numbers]:
    """Return base and shift `(2, d, G)` of groups of so many boxes: the finest in which they differ by at most 255."""
    begins = np.arange(0, ranks.shape[2], group)
    least, most = (f.reduceat(ranks, begins, axis=2).astype(np.int32) for f in (np.minimum, np.maximum))
    shift = np.zeros_like(least) if shifts is None else np.maximum.reduceat(shifts, begins, axis=2).astype(np.int32)
    while (too_fine := (most >> shift) - (least >> shift) > 255).any():
        shift += too_fine
    return least >> shift << shift, shift


def _bounds(grouped: Codes) -> Codes:
    """Return the least and most start, and the least and most end, of each tile: `(4, d, G, 64)`."""
    return np.stack([f(side, axis=3) for side in grouped for f in (np.min, np.max)])


def _tiled(ranks: Ranks, shifts: Codes | None, slots: Numbers, borders: Slots, tile: int) -> TileArrays:
    """Cut ranks `(2, d, n)` and their slots, in this order, into the groups and tiles of one run.

    `shifts` says how many low bits of the ranks are unknown (and 0 here); None: none.
    """
    _, dims, n = ranks.shape
    base, shift = _scales(ranks, shifts, WIDTH * tile)
    groups, tiles = base.shape[2], -(-n // tile)
    grouped = _grouped(ranks, groups, tile) - base[..., None, None].astype(np.uint16)
    coded = (grouped >> shift[..., None, None].astype(np.uint16)).astype(np.uint8)
    bounds = _bounds(coded)
    codes = np.zeros((tiles, dims, 2, WIDTH), np.uint8)
    codes[..., :tile] = coded.reshape(2, dims, groups * WIDTH, tile)[:, :, :tiles].transpose(2, 1, 0, 3)
    begins = np.arange(0, n, tile)
    filled = np.diff(begins, append=n).astype(np.int32)
    places = np.zeros((tiles, WIDTH), np.int32)
    places[np.arange(WIDTH) < filled[:, None]] = slots
    firsts = np.arange(0, tiles, WIDTH)
    return TileArrays(
        codes,
        places,
        filled,
        np.minimum.reduceat(slots, begins),
        np.ascontiguousarray(bounds.transpose(2, 0, 1, 3)),
        np.ascontiguousarray(np.stack((base, shift), axis=-1).transpose(2, 0, 1, 3)),
        firsts.astype(np.int32),
        np.diff(firsts, append=tiles).astype(np.int32),
        _extents(bounds, base, shift),
        borders,
        np.array([borders.shape[1]], np.int32),
        np.array([groups], np.int32),
    )


def _extents(bounds: Codes, base: Numbers, shift: Numbers) -> Ranks:
    """Return the least rank that a start of each group may have, and the most that an end may have."""
    least = base[0] + (bounds[0].min(axis=2).astype(np.int32) << shift[0])
    most = base[1] + ((bounds[3].max(axis=2).astype(np.int32) + 1) << shift[1]) - 1
    return np.stack((least, most)).astype(np.uint16)


def _nothing(dims: int) -> TileArrays:
    def none(*shape: int) -> Numbers:
        return np.empty(shape, np.int32)

    return TileArrays(
        np.empty((0, dims, 2, WIDTH), np.uint8),
        none(0, WIDTH),
        none(0),
        none(0),
        np.empty((0, 4, dims, WIDTH), np.uint8),
        none(0, 2, dims, 2),
        none(0),
        none(0),
        np.empty((2, dims, 0), np.uint16),
        np.empty((dims, 0), np.int64),
        none(0),
        none(0),
    )


# Asking


def _prefetch_code(typing_context: Any, array: Any, position: Any) -> Any:
    """Generate code that has a contiguous array's cache line at `position` fetched: a hint, without any effect."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        hint = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], hint)
        line = builder.bitcast(builder.gep(data, [args[1]]), pointer)
        builder.call(function, [line, number(0), number(3), number(1)])  # to read, keep in all caches, data
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


prefetch: Any = intrinsic(_prefetch_code)


class Work(NamedTuple):
    """The tiles that are looked at in one stage."""

    points: Numbers
    """`(n,)`: who asks."""
    groups: Numbers
    """`(n,)`: the group of each tile."""
    tiles: Numbers
    """`(n,)`: the tiles."""
    asked: Codes
    """`(n, 2, d)`: how late a box may start and how early it may end, in codes of the group."""
    sure: Bits
    """`(n,)`: boxes of the tile that are answers."""
    doubtful: Bits
    """`(n,)`: boxes of the tile that may be answers."""
    marks: Codes
    """Room for a byte for each of 64 tiles or boxes, then for each group of a run."""
    eights: Bits
    """The same bytes as words."""


@kernel_inline
def _room(most: int, tiles: TileArrays) -> Work:
    """Room for `most` tiles."""
    marks = np.empty(len(tiles.firsts) + 2 * WIDTH & -WIDTH, np.uint8)
    return Work(
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty((most + 1, 2, tiles.codes.shape[1]), np.uint8),
        np.empty(most, np.uint64),
        np.empty(most, np.uint64),
        marks,
        marks.view(np.uint64),
    )


@kernel_inline
def _as_word(eights: Bits, begin: int, bit: int) -> np.uint64:
    """Return one bit of each of 64 bytes, words of `eights` from `begin` on, as a word: 8 at a time, by multiplying."""
    word = np.uint64(0)
    for k in range(8):
        bits = eights[begin + k] >> np.uint64(bit) & LOW_BITS
        word |= (bits * TO_TOP) >> np.uint64(56) << np.uint64(8 * k)
    return word


@kernel_inline
def _any(eights: Bits) -> bool:
    """Is the lowest bit of any of the first 64 bytes set?"""
    low, high = eights[0] | eights[1] | eights[2] | eights[3], eights[4] | eights[5] | eights[6] | eights[7]
    return bool((low | high) & LOW_BITS)


@kernel_inline
def _first_bits(count: int) -> np.uint64:
    """Return a word with its first `count` bits set."""
    return ALL >> np.uint64(WIDTH - count)


@kernel_inline
def _rank_all(point: Keys, tiles: TileArrays, run: int, ranks: Ranks) -> None:
    """Write the ranks of a point in a run: the number of borders at or below each of its keys."""
    begin, end = tiles.border_ends[run - 1] if run else 0, tiles.border_ends[run]
    for i in range(len(point)):
        at, step = begin, (end - begin + 1) >> 1
        while step:
            at += step if tiles.borders[i, np.uint64(at + step - 1)] <= point[i] else 0
            step >>= 1
        ranks[i] = at - begin


@kernel_inline
def _mark_groups(late: Ranks, early: Ranks, extents: Ranks, begin: int, count: int, marks: Codes) -> None:
    """Mark the groups from `begin` on with a box that may start no later than `late` and end no earlier than `early`.

    The marks of a run begin after the first 64, and are 0 beyond it up to a whole word of bits.
    """
    for g in range((count + WIDTH - 1) & -WIDTH):
        marks[WIDTH + g] = g < count
    for i in range(len(late)):
        most, least = late[i], early[i]
        for g in range(count):
            marks[WIDTH + g] &= np.uint8((extents[0, i, begin + g] <= most) & (extents[1, i, begin + g] >= least))


@kernel_inline
def _mark_tiles(g: int, late: Ranks, early: Ranks, tiles: TileArrays, work: Work, row: int) -> np.uint64:
    """Write `late` and `early` in codes of a group to a row of the work; return its tiles that may have an answer."""
    for t in range(WIDTH):
        work.marks[t] = 1
    for i in range(len(late)):
        most, least = _code(late[i], tiles.scales, g, 0, i), _code(early[i], tiles.scales, g, 1, i)
        work.asked[row, 0, i], work.asked[row, 1, i] = most, least
        for t in range(WIDTH):
            work.marks[t] &= np.uint8((tiles.bounds[g, 0, i, t] <= most) & (tiles.bounds[g, 3, i, t] >= least))
    return _as_word(work.eights, 0, 0) & _first_bits(tiles.counts[g])


@kernel_inline
def _code(rank: int, scales: Numbers, g: int, side: int, i: int) -> np.uint8:
    return np.uint8(min(255, max(0, np.int32(rank) - scales[g, side, i, 0]) >> scales[g, side, i, 1]))


@kernel_inline
def _choose(p: int, late: Ranks, early: Ranks, run: int, tiles: TileArrays, work: Work, count: int) -> int:
    """Append the tiles of a run that may have an answer to the work, and have their codes fetched; return the count."""
    sides, begin = 2 * len(late), tiles.ends[run - 1] if run else 0
    groups = tiles.ends[run] - begin
    _mark_groups(late, early, tiles.extents, begin, groups, work.marks)
    for first in range(0, groups, WIDTH):
        chosen = _as_word(work.eights, (WIDTH + first) >> 3, 0)
        while chosen != 0:
            g = begin + first + lowest_bit(chosen)
            chosen &= chosen - ONE
            row = count
            word = _mark_tiles(g, late, early, tiles, work, row)
            while word != 0:
                t = tiles.firsts[g] + lowest_bit(word)
                word &= word - ONE
                work.points[count], work.groups[count], work.tiles[count] = p, g, t
                for i in range(len(late)):
                    work.asked[count, 0, i], work.asked[count, 1, i] = work.asked[row, 0, i], work.asked[row, 1, i]
                for side in range(min(sides, 2 * ATTRIBUTES)):
                    prefetch(tiles.codes, (sides * t + side) * WIDTH)
                count += 1
    return count


@kernel_inline
def _judge(work: Work, k: int, tiles: TileArrays) -> None:
    """Judge the boxes of a tile, and write those that are answers, and those that may be, to the work.

    Looks only at the sides that the bounds leave open, and no further when no box is left.
    """
    t, g = work.tiles[k], work.groups[k]
    place = t - tiles.firsts[g]
    for b in range(WIDTH):
        work.marks[b] = SURE
    for i in range(work.asked.shape[2]):
        most, least = work.asked[k, 0, i], work.asked[k, 1, i]
        starts_open, ends_open = tiles.bounds[g, 1, i, place] >= most, tiles.bounds[g, 2, i, place] <= least
        if starts_open and ends_open:
            for b in range(WIDTH):
                start, end = tiles.codes[t, i, 0, b], tiles.codes[t, i, 1, b]
                verdict = SURE if start < most else (DOUBTFUL if start == most else NO)
                work.marks[b] &= verdict & (SURE if end > least else (DOUBTFUL if end == least else NO))
        elif starts_open:
            for b in range(WIDTH):
                start = tiles.codes[t, i, 0, b]
                work.marks[b] &= SURE if start < most else (DOUBTFUL if start == most else NO)
        elif ends_open:
            for b in range(WIDTH):
                end = tiles.codes[t, i, 1, b]
                work.marks[b] &= SURE if end > least else (DOUBTFUL if end == least else NO)
        if i % ATTRIBUTES == ATTRIBUTES - 1 and not _any(work.eights):
            break
    maybe = _as_word(work.eights, 0, 0) & _first_bits(tiles.filled[t])
    work.sure[k] = _as_word(work.eights, 0, 1) & maybe
    work.doubtful[k] = maybe & ~work.sure[k]


@kernel_inline
def _sift(work: Work, count: int, tiles: TileArrays) -> int:
    """Keep the tiles in which there may be answers, and have their slots fetched; return how many."""
    kept = 0
    for k in range(count):
        _judge(work, k, tiles)
        if work.sure[k] | work.doubtful[k]:
            t = work.tiles[kept] = work.tiles[k]
            work.points[kept], work.sure[kept], work.doubtful[kept] = work.points[k], work.sure[k], work.doubtful[k]
            for line in range(0, WIDTH, 16):
                prefetch(tiles.slots, WIDTH * t + line)
            kept += 1
    return kept


@kernel
def _fetch(work: Work, count: int, slots: Numbers, boxes: Keys) -> None:
    """Have the doubtful boxes fetched."""
    sides = 2 * boxes.shape[2]
    for k in range(count):
        word = work.doubtful[k]
        while word != 0:
            first = sides * slots[work.tiles[k], lowest_bit(word)]
            word &= word - ONE
            prefetch(boxes, first)
            prefetch(boxes, first + sides - 1)


@kernel_inline
def _confirm(points: Keys, boxes: Keys, slots: Numbers, work: Work, k: int) -> np.uint64:
    """Return the boxes of a tile that hold its point, as bits. No branch depends on what a box says."""
    word, p = work.doubtful[k], work.points[k]
    confirmed: np.uint64 = work.sure[k]
    while word != 0:
        position = lowest_bit(word)
        word &= word - ONE
        slot, holds = slots[work.tiles[k], position], True
        for i in range(points.shape[1]):
            holds &= (boxes[slot, 0, i] <= points[p, i]) & (points[p, i] < boxes[slot, 1, i])
        confirmed |= np.uint64(holds) << np.uint64(position)
    return confirmed


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
def _sort(slots: Slots, begin: int, end: int, alive: Bits) -> int:
    """Put the living among a few slots in order; return their end."""
    kept = begin
    for k in range(begin, end):
        slot = slots[k]
        place = kept
        if _lives(alive, slot):
            while place > begin and slots[place - 1] > slot:
                slots[place] = slots[place - 1]
                place -= 1
            slots[place] = slot
            kept += 1
    return kept


@kernel
def _set_bits(slots: Slots, begin: int, end: int, map_: Bits, summary: Bits) -> None:
    for k in range(begin, end):
        slot = slots[k]
        map_[slot >> 6] |= ONE << np.uint64(slot & 63)
        summary[slot >> 12] |= ONE << np.uint64((slot >> 6) & 63)


@kernel
def _lives(alive: Bits, slot: int) -> bool:
    return bool(alive[slot >> 6] >> np.uint64(slot & 63) & ONE)


@kernel_inline
def _choose_all(points: Keys, p: int, tiles: TileArrays, ranks: Ranks, work: Work, count: int) -> int:
    """Append the tiles that may have a box with the point; return the count."""
    for run in range(len(tiles.ends)):
        _rank_all(points[p], tiles, run, ranks)
        count = _choose(p, ranks, ranks, run, tiles, work, count)
    return count


@kernel
def _stab_all(points: Keys, boxes: Keys, alive: Bits, *arrays: Any) -> tuple[Slots, Slots]:
    """For each point the slots of the boxes that hold it, in order: offsets and slots.

    Takes loose arrays, as the other kernels called from Python do: numba takes a microsecond to unpack a tuple.
    """
    tiles = TileArrays(*arrays)
    n, d = points.shape
    offsets, out = np.zeros(n + 1, np.int64), np.empty(4 * n + WIDTH, np.int64)
    map_, summary = np.zeros(len(alive), np.uint64), np.zeros((len(alive) >> 6) + 1, np.uint64)
    ranks, work = np.empty(d, np.uint16), _room(TOGETHER + len(tiles.filled), tiles)
    p = count = 0
    while p < n:
        q, some = p, 0
        while q < n and some < TOGETHER:
            some = _choose_all(points, q, tiles, ranks, work, some)
            q += 1
        some = _sift(work, some, tiles)
        _fetch(work, some, tiles.slots, boxes)
        k = 0
        while p < q:
            begin = count
            while k < some and work.points[k] == p:
                word, t = _confirm(points, boxes, tiles.slots, work, k), work.tiles[k]
                k += 1
                if count + WIDTH > len(out):
                    out = np.concatenate((out, np.empty(len(out), np.int64)))
                while word != 0:
                    out[count] = tiles.slots[t, lowest_bit(word)]
                    word &= word - ONE
                    count += 1
            if count - begin <= FEW:
                count = _sort(out, begin, count, alive)
            else:
                _set_bits(out, begin, count, map_, summary)
                count = _read_bits(map_, summary, alive, out, begin)
            p += 1
            offsets[p] = count
    return offsets, out[:count].copy()


@kernel_inline
def _holds_any(point: Keys, boxes: Keys, alive: Bits, tiles: TileArrays, work: Work, count: int) -> bool:
    for k in range(count):
        _judge(work, k, tiles)
        t, word = work.tiles[k], work.sure[k] | work.doubtful[k]
        while word != 0:
            position = lowest_bit(word)
            word &= word - ONE
            slot = tiles.slots[t, position]
            sure = work.sure[k] >> np.uint64(position) & ONE
            if (sure or holds(boxes[slot], point)) and _lives(alive, slot):
                return True
    return False


@kernel
def _stab_any(points: Keys, boxes: Keys, alive: Bits, *arrays: Any) -> NDArray[np.bool_]:
    """For each point: does any box hold it?"""
    tiles = TileArrays(*arrays)
    n, d = points.shape
    hit = np.zeros(n, np.bool_)
    ranks, work = np.empty(d, np.uint16), _room(len(tiles.filled), tiles)
    for p in range(n):
        count = _choose_all(points, p, tiles, ranks, work, 0)
        hit[p] = _holds_any(points[p], boxes, alive, tiles, work, count)
    return hit


@kernel
def _find(relation: int, q: Keys, first: bool, boxes: Keys, alive: Bits, *arrays: Any) -> Slots:
    """Return the slots whose box stands to `q` in `relation`, in order; only the first of them if so asked."""
    tiles = TileArrays(*arrays)
    d = q.shape[1]
    lo, hi = np.empty(d, np.uint16), np.empty(d, np.uint16)
    work, count = _room(len(tiles.filled), tiles), 0
    for run in range(len(tiles.ends)):
        _rank_all(q[0], tiles, run, lo)
        _rank_all(q[1] - 1, tiles, run, hi)
        late, early = (lo, hi) if relation == CONTAINING else (hi, lo)
        count = _choose(0, late, early, run, tiles, work, count)
    if first:
        return _first(relation, q, boxes, alive, tiles, work, count)
    count = _sift(work, count, tiles)
    map_, summary = np.zeros(len(alive), np.uint64), np.zeros((len(alive) >> 6) + 1, np.uint64)
    found, matched = np.empty(WIDTH, np.int64), 0
    for k in range(count):
        kept = _stand(relation, q, boxes, tiles.slots[work.tiles[k]], work.sure[k], work.doubtful[k], found)
        _set_bits(found, 0, kept, map_, summary)
        matched += kept
    out = np.empty(matched, np.int64)
    return out[: _read_bits(map_, summary, alive, out, 0)]


@kernel
def _stand(
    relation: int, q: Keys, boxes: Keys, slots: Numbers, sure: np.uint64, doubtful: np.uint64, found: Slots
) -> int:
    """Write the slots of a tile whose box stands to `q` in `relation` to `found`; return how many."""
    word, kept = sure | doubtful, 0
    if relation == INSIDE:  # that a box meets q does not say that it lies in q
        sure = np.uint64(0)
    while word != 0:
        position = lowest_bit(word)
        word &= word - ONE
        slot = slots[position]
        found[kept] = slot
        kept += (sure >> np.uint64(position) & ONE) == ONE or stands(relation, boxes[slot], q)
    return kept


@kernel
def _first(relation: int, q: Keys, boxes: Keys, alive: Bits, tiles: TileArrays, work: Work, count: int) -> Slots:
    """Return the first living slot whose box stands to `q` in `relation`, if any."""
    found, best = np.empty(WIDTH, np.int64), 64 * len(alive)
    for k in range(count):
        t = work.tiles[k]
        if tiles.earliest[t] < best:
            _judge(work, k, tiles)
            for slot in found[: _stand(relation, q, boxes, tiles.slots[t], work.sure[k], work.doubtful[k], found)]:
                if slot < best and _lives(alive, slot):
                    best = slot
    return np.full(1 if best < 64 * len(alive) else 0, best)


class Tiles:
    """Runs of tiles. All methods that answer take the boxes by slot and the bits of the living slots."""

    def __init__(self, dims: int, tile: int) -> None:
        """Begin without boxes; `tile` is the number of boxes in a tile, at most 64."""
        self._tile = tile
        self._arrays = _nothing(dims)

    def __bool__(self) -> bool:
        """Are there any boxes?"""
        return len(self._arrays.filled) > 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(array.nbytes for array in self._arrays)

    def sizes(self) -> list[int]:
        """Return the number of boxes of each run, dead ones included."""
        return [int(self._arrays.filled[tiles].sum()) for _, tiles, _ in self._runs()]

    def _runs(self) -> list[tuple[slice, slice, slice]]:
        """Return the groups, tiles and borders of each run."""
        a, begins, runs = self._arrays, (0, 0, 0), []
        for groups, borders in zip(a.ends.tolist(), a.border_ends.tolist(), strict=True):
            ends = groups, int(a.firsts[groups - 1] + a.counts[groups - 1]), borders
            runs.append((slice(begins[0], ends[0]), slice(begins[1], ends[1]), slice(begins[2], ends[2])))
            begins = ends
        return runs

    def append(self, slots: Slots, boxes: Keys) -> None:
        """Make a run of the boxes in these slots. O(n log n)."""
        some = boxes[slots[:: max(1, len(slots) // 16384)]]
        buckets = max(FEWEST_BUCKETS, min(MOST_BUCKETS, 1 << (len(slots) // BOXES_A_BUCKET).bit_length()))
        borders = quantiles(some, buckets)
        ranks = _rank(boxes, slots, borders)
        coarse = (ranks >> (buckets.bit_length() - 1 - COARSE)).astype(np.uint8)
        order = _near_each_other(coarse.reshape(-1, len(slots)), self._tile)
        self._join(_tiled(ranks[:, :, order], None, slots[order].astype(np.int32), borders, self._tile))

    def _join(self, more: TileArrays) -> None:
        a = self._arrays
        more = more._replace(
            firsts=more.firsts + np.int32(len(a.filled)),
            border_ends=more.border_ends + np.int32(a.borders.shape[1]),
            ends=more.ends + np.int32(len(a.firsts)),
        )
        axes = {"extents": 2, "borders": 1}
        joined = (np.concatenate((getattr(a, f), getattr(more, f)), axis=axes.get(f, 0)) for f in TileArrays._fields)
        self._arrays = TileArrays(*joined)

    def take_last(self) -> Slots:
        """Remove the last run; return its slots, dead ones included."""
        a = self._arrays
        groups, tiles, borders = self._runs()[-1]
        slots = self._slots_of(tiles)
        self._arrays = TileArrays(
            a.codes[: tiles.start],
            a.slots[: tiles.start],
            a.filled[: tiles.start],
            a.earliest[: tiles.start],
            a.bounds[: groups.start],
            a.scales[: groups.start],
            a.firsts[: groups.start],
            a.counts[: groups.start],
            a.extents[:, :, : groups.start],
            a.borders[:, : borders.start],
            a.border_ends[:-1],
            a.ends[:-1],
        )
        return slots

    def _held(self, tiles: slice) -> NDArray[np.bool_]:
        """Return which positions `(t, 64)` of these tiles hold a box."""
        return np.asarray(np.arange(WIDTH) < self._arrays.filled[tiles, None])

    def _slots_of(self, tiles: slice) -> Slots:
        return self._arrays.slots[tiles][self._held(tiles)].astype(np.int64)

    def _codes_of(self, tiles: slice) -> Codes:
        """Return the codes `(2, d, n)` of the boxes in these tiles."""
        return self._arrays.codes[tiles].transpose(2, 1, 0, 3)[:, :, self._held(tiles)]

    def _scales_of(self, groups: slice, tiles: slice) -> tuple[Numbers, Numbers]:
        """Return base and shift `(2, d, n)` of the group of each box in these tiles."""
        a = self._arrays
        boxes = np.add.reduceat(a.filled[tiles], a.firsts[groups] - tiles.start)
        base, shift = np.repeat(a.scales[groups].transpose(3, 1, 2, 0), boxes, axis=3)
        return base, shift

    def follow(self, moved: Slots) -> None:
        """Leave out what is dead and give each box its new slot: `moved[slot]`, -1 if it is dead. O(n)."""
        old = Tiles(self._arrays.codes.shape[1], self._tile)
        old._arrays, self._arrays = self._arrays, old._arrays
        for groups, tiles, borders in old._runs():
            slots = moved[old._slots_of(tiles)]
            living = slots >= 0
            if living.any():
                base, shift = old._scales_of(groups, tiles)
                ranks = (base + (old._codes_of(tiles).astype(np.int32) << shift)).astype(np.uint16)[:, :, living]
                shifts, slots = shift.astype(np.uint8)[:, :, living], slots[living]
                self._join(_tiled(ranks, shifts, slots.astype(np.int32), old._arrays.borders[:, borders], self._tile))

    def stab_any(self, points: Keys, boxes: Keys, alive: Bits) -> NDArray[np.bool_]:
        """For each point, whether any box holds it."""
        return _stab_any(points, boxes, alive, *self._arrays)

    def stab_all(self, points: Keys, boxes: Keys, alive: Bits) -> tuple[Slots, Slots]:
        """Return offsets by point, and the slots of the boxes that hold each, in order."""
        return _stab_all(points, boxes, alive, *self._arrays)

    def find(self, relation: int, q: Keys, boxes: Keys, alive: Bits, *, first: bool = False) -> Slots:
        """Return the slots whose box stands to `q` in this relation, in order; only the first of them if so asked."""
        return _find(relation, q, first, boxes, alive, *self._arrays)

    def check(self, boxes: Keys, living: Slots) -> None:
        """Raise `InvariantError` unless each living slot is in one tile, and codes and bounds agree with the boxes."""
        a, held = self._arrays, [np.empty(0, np.int64)]
        for groups, tiles, borders in self._runs():
            slots = self._slots_of(tiles)
            held.append(slots)
            base, shift = self._scales_of(groups, tiles)
            codes = (_rank(boxes, slots, np.ascontiguousarray(a.borders[:, borders])).astype(np.int32) - base) >> shift
            if not np.array_equal(codes, self._codes_of(tiles)) or (base & ((1 << shift) - 1)).any():
                raise InvariantError("the codes of the tiles of a box index disagree with its boxes")
            bounds = _bounds(_grouped(codes.astype(np.uint8), groups.stop - groups.start, self._tile))
            begins = np.arange(0, len(slots), self._tile)
            for name, ours, theirs in (
                ("bounds", a.bounds[groups], bounds.transpose(2, 0, 1, 3)),
                ("extents", a.extents[:, :, groups], _extents(bounds, *a.scales[groups].transpose(3, 1, 2, 0))),
                ("filled", a.filled[tiles], np.diff(begins, append=len(slots))),
                ("earliest", a.earliest[tiles], np.minimum.reduceat(slots, begins)),
            ):
                if not np.array_equal(ours, theirs):
                    raise InvariantError(f"the {name} of the tiles of a box index disagree with its boxes")
        slots = np.concatenate(held)
        if len(np.unique(slots)) != len(slots) or not np.isin(living, slots).all():
            raise InvariantError("a box of a box index is in no tile, or in two")
