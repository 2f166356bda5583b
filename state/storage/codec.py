"""The state of one group as bytes, and back. Nobody else knows the format.

    bytes 0..5    b"lacuna"
    byte  6       version of the format
    rest          a zstd frame (with checksum) of one MessagePack array: `Stored`

Inside, everything that there is much of is a column: names as lengths and text, whole numbers byte-shuffled (all lowest
bytes first, then all second-lowest ...), boxes by attribute and end. That is what lets zstd see that most bytes of a
column repeat: 10,000 subscriptions in three whole-number attributes take about a quarter of their raw size.

What can be derived is not stored: indexes, dependants, the heap of expiries. What decides later answers is stored
exactly: the order of lists, certificates, the shape of the tree of negative rectangles.

A version is for ever: a newer program reads an older blob by the functions in `MIGRATIONS`, one per step; an older
program refuses a newer blob. The blob also says for which configuration it was written; another one is refused, because
keys, boxes and strategy state mean nothing in a different space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from state.curves.ranges import RangeTable
from state.errors import StateError
from state.filters.selectivity import BINS, Counts
from state.filters.trees import Filter, pack_tree, unpack_tree
from state.geometry.boxes import Boxes, stack, unstack
from state.matching.boxlist import BoxList
from state.matching.clients import Clients
from state.protocol.channel import Inbox, Mark
from state.protocol.ledger import Ended, Ledger, Standing
from state.protocol.messages import Name, Stamp
from state.routing.link import Group, Link, Local, Setup, group
from state.routing.rangetold import RangeHeard, RangeTold, grid_of
from state.routing.told import Passive, Told
from state.space import Keys
from state.strategies import Dump

MAGIC = b"lacuna"
VERSION = 1
MIGRATIONS: dict[int, Callable[[bytes], bytes]] = {}
"""For each old version: its MessagePack payload as that of the next version."""

NONE = -(2**63)
"""Stands for "no revision" and "never expires" in columns of whole numbers."""


class Texts(msgspec.Struct, array_like=True):
    """A column of texts."""

    lengths: bytes
    text: bytes


class Names(msgspec.Struct, array_like=True):
    """All names that occur, in order of first use; elsewhere a name is its position here."""

    brokers: Texts
    clients: Texts
    ids: Texts


class Shapes(msgspec.Struct, array_like=True):
    """Subscriptions with their boxes."""

    names: bytes
    counts: bytes
    boxes: bytes


class StoredTrees(msgspec.Struct, array_like=True):
    """Boolean filters by name."""

    names: bytes
    lengths: bytes
    trees: bytes


class StoredLedger(msgspec.Struct, array_like=True):
    """Standing: name, rev, time, place, expires. Ended: name, rev, time, place, heard."""

    standing: tuple[bytes, bytes, bytes, bytes, bytes]
    ended: tuple[bytes, bytes, bytes, bytes, bytes]


class StoredTold(msgspec.Struct, array_like=True):
    """Active and passive candidates, certificates, the trees of both, and what the strategy keeps."""

    active: Shapes
    active_origins: Texts
    passive: Shapes
    passive_origins: Texts
    coverer_counts: bytes
    coverers: bytes
    trees: StoredTrees
    numbers: bytes
    small: bytes


class StoredTable(msgspec.Struct, array_like=True):
    """Counted ranges: the cells after which counts begin, and the counts."""

    after: bytes
    counts: bytes


class StoredRanges(msgspec.Struct, array_like=True):
    """Both halves of a link that speaks in ranges; of what clients asked for only the boxes, for ranges follow."""

    heard: StoredTable
    theirs: StoredTable
    active: Shapes


class Stored(msgspec.Struct, array_like=True):
    """One group. What clients asked for exactly, beyond boxes, has no boxes in `heard` but a tree in `trees`."""

    setup: str
    names: Names
    heard: Shapes
    trees: StoredTrees
    ledger: StoredLedger
    marks: dict[str, tuple[int, int]]
    sent: int
    told: StoredTold | None
    ranges: StoredRanges | None
    learned: tuple[bytes, bytes] | None


def encode(state: Link | Local) -> bytes:
    """The group as bytes. The same state always gives the same bytes."""
    payload = msgspec.msgpack.encode(_store(state))
    return MAGIC + bytes([VERSION]) + zstandard.ZstdCompressor(level=3, write_checksum=True).compress(payload)


def decode(blob: bytes, setup: Setup) -> Link | Local:
    """The group that `encode` was given; `StateError` if the blob is damaged, foreign or of an unknown version."""
    stored = _unpack(blob, setup)
    if stored.setup != describe(setup):
        raise StateError(
            f"the state of {setup.broker}>{setup.link} was written for another configuration\n"
            f"  stored:     {stored.setup}\n  configured: {describe(setup)}\n"
            "Remedy: go back to the stored configuration, or start with an empty checkpoint"
        )
    try:
        return _restore(stored, setup)
    except (ValueError, IndexError, TypeError) as error:
        raise StateError(_damaged(setup, str(error))) from error


def describe(setup: Setup) -> str:
    """The configuration of a group in one line: what its state depends on. Pruning may change at any time."""
    sides = (f"{a.name}:{a.kind}[{a.low},{a.high}]{','.join(a.values)}" for a in setup.space.attributes)
    grid = f" cells={grid_of(setup.space, setup.spec)}" if setup.spec.by_ranges else ""
    spec = replace(setup.spec, pruning=None)
    return f"{setup.broker}>{setup.link} {spec}{grid} remember={setup.remember} {' '.join(sides)}"


def _unpack(blob: bytes, setup: Setup) -> Stored:
    if blob[: len(MAGIC)] != MAGIC or len(blob) <= len(MAGIC):
        raise StateError(_damaged(setup, "it does not begin as state of Lacuna does"))
    version = blob[len(MAGIC)]
    if version > VERSION or (version < VERSION and version not in MIGRATIONS):
        raise StateError(
            f"the state of {setup.broker}>{setup.link} has version {version}, this program knows up to {VERSION}. "
            "Remedy: run the version of Lacuna that wrote it, or a later one"
        )
    try:
        payload = zstandard.ZstdDecompressor().decompress(blob[len(MAGIC) + 1 :])
        for step in range(version, VERSION):
            payload = MIGRATIONS[step](payload)
        return msgspec.msgpack.decode(payload, type=Stored)
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        raise StateError(_damaged(setup, str(error))) from error


def _damaged(setup: Setup, what: str) -> str:
    return (
        f"the stored state of {setup.broker}>{setup.link} is damaged: {what}. "
        "Remedy: restore the checkpoint from a copy, or start with an empty one"
    )


# Columns


def _numbers(values: Iterable[int] | NDArray[np.int64]) -> bytes:
    """Whole numbers, byte-shuffled."""
    column = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype="<i8").reshape(-1)
    return column.view(np.uint8).reshape(-1, 8).T.tobytes()


def _from_numbers(stored: bytes) -> NDArray[np.int64]:
    return np.frombuffer(stored, np.uint8).reshape(8, -1).T.copy().view("<i8").reshape(-1).astype(np.int64)


def _series(values: Iterable[int] | NDArray[np.int64]) -> bytes:
    """Whole numbers that mostly grow, such as times and places: the first, and the steps between them."""
    column = values if isinstance(values, np.ndarray) else np.array(list(values), dtype=np.int64)
    return _numbers(np.diff(column, prepend=np.int64(0)))  # wraps around where it must; so does the sum


def _from_series(stored: bytes) -> NDArray[np.int64]:
    return np.cumsum(_from_numbers(stored))


def _texts(values: Sequence[str]) -> Texts:
    encoded = [value.encode() for value in values]
    return Texts(_numbers(len(e) for e in encoded), b"".join(encoded))


def _from_texts(stored: Texts) -> list[str]:
    ends = np.cumsum(_from_numbers(stored.lengths)).tolist()
    return [stored.text[begin:end].decode() for begin, end in zip([0, *ends][: len(ends)], ends, strict=True)]


class _Book:
    """Names as numbers: each is written once."""

    def __init__(self) -> None:
        self.positions: dict[Name, int] = {}

    def __call__(self, names: Iterable[Name]) -> bytes:
        return _series([self.positions.setdefault(name, len(self.positions)) for name in names])

    def stored(self) -> Names:
        return Names(*(_texts([name[k] for name in self.positions]) for k in range(3)))


def _from_names(stored: Names) -> list[Name]:
    columns = (_from_texts(stored.brokers), _from_texts(stored.clients), _from_texts(stored.ids))
    return [Name(*parts) for parts in zip(*columns, strict=True)]


def _shapes(book: _Book, names: Sequence[Name], keys: Sequence[Keys], dims: int) -> Shapes:
    boxes = np.concatenate([np.empty((0, 2, dims), np.int64), *keys])
    return Shapes(book(names), _numbers(len(k) for k in keys), _numbers(boxes.reshape(-1, 2 * dims).T.copy()))


def _from_shapes(stored: Shapes, names: Sequence[Name], dims: int) -> list[tuple[Name, Keys]]:
    counts = _from_numbers(stored.counts)
    boxes = np.ascontiguousarray(_from_numbers(stored.boxes).reshape(2 * dims, -1).T).reshape(-1, 2, dims)
    if counts.sum() != len(boxes) or not (boxes[:, 0] < boxes[:, 1]).all():
        raise ValueError("boxes are missing or empty")
    parts = np.split(boxes, np.cumsum(counts)[:-1]) if len(counts) else []
    return [(names[n], part) for n, part in zip(_from_series(stored.names), parts, strict=True)]


# The parts of a group


def _store(state: Link | Local) -> Stored:
    book = _Book()
    dims = state.setup.space.dims
    heard = _list_shapes(book, BoxList(dims) if isinstance(state.heard, RangeHeard) else state.heard, dims)
    trees = _store_trees(book, state.trees if isinstance(state, Link) else state.heard.exact)
    ledger = _store_ledger(book, state.ledger)
    told = _store_told(book, state.told) if isinstance(state, Link) and isinstance(state.told, Told) else None
    ranges = _store_ranges(book, state) if isinstance(state, Link) else None
    marks = {sender: (mark.epoch, mark.number) for sender, mark in sorted(state.inbox.marks.items())}
    sent = state.sent if isinstance(state, Link) else 0
    learned = pack_learned(state.learned) if isinstance(state, Link) else None
    return Stored(describe(state.setup), book.stored(), heard, trees, ledger, marks, sent, told, ranges, learned)


def _restore(stored: Stored, setup: Setup) -> Link | Local:
    names = _from_names(stored.names)
    state = group(setup)
    heard = _from_shapes(stored.heard, names, setup.space.dims)
    trees = _from_trees(stored.trees, names, setup.space.dims)
    _restore_ledger(state, stored.ledger, names)
    state.inbox = Inbox({sender: Mark(*mark) for sender, mark in stored.marks.items()})
    if isinstance(state, Local):
        state.heard = Clients(setup.space, heard, trees)
        return state
    state.sent = stored.sent
    if isinstance(state.told, Told) and stored.told is not None:
        state.heard, state.trees = BoxList(setup.space.dims, heard), trees
        _restore_told(state.told, stored.told, names)
        state.learn(unpack_learned(stored.learned, setup.space.dims))
    elif isinstance(state.told, RangeTold) and stored.ranges is not None:
        _restore_ranges(state, state.told, stored.ranges, names)
    else:
        raise ValueError("what the neighbour was told is missing")
    return state


def _store_trees(book: _Book, trees: dict[Name, Filter]) -> StoredTrees:
    """Trees as lengths and whole numbers (see `filters.pack_tree`), byte-shuffled."""
    packed = [pack_tree(tree) for tree in trees.values()]
    numbers = _numbers(np.frombuffer(b"".join(packed), "<i8"))
    return StoredTrees(book(trees), _numbers(len(part) // 8 for part in packed), numbers)


def _from_trees(stored: StoredTrees, names: Sequence[Name], dims: int) -> dict[Name, Filter]:
    numbers = _from_numbers(stored.trees)
    ends = np.cumsum(_from_numbers(stored.lengths))
    parts = np.split(numbers, ends[:-1]) if len(ends) else []
    trees = (unpack_tree(part.astype("<i8").tobytes(), dims) for part in parts)
    return {names[n]: tree for n, tree in zip(_from_series(stored.names), trees, strict=True)}


def pack_learned(learned: tuple[Counts, Counts] | None) -> tuple[bytes, bytes] | None:
    """What a link learned from publications, as bytes."""
    return None if learned is None else (_numbers(learned[0]), _numbers(learned[1]))


def unpack_learned(stored: tuple[bytes, bytes] | None, dims: int) -> tuple[Counts, Counts] | None:
    """What a link had learned from publications."""
    if stored is None:
        return None
    counts, taken = (_from_numbers(part).reshape(dims, BINS) for part in stored)
    return counts, taken


def _store_ranges(book: _Book, link: Link) -> StoredRanges | None:
    told, heard = link.told, link.heard
    if not isinstance(told, RangeTold) or not isinstance(heard, RangeHeard):
        return None
    return StoredRanges(
        heard=_store_table(heard.table),
        theirs=_store_table(told.theirs),
        active=_list_shapes(book, told.active, told.space.dims),
    )


def _restore_ranges(link: Link, told: RangeTold, stored: StoredRanges, names: Sequence[Name]) -> None:
    dims = told.space.dims
    link.heard = RangeHeard(told.grid, _restore_table(stored.heard))
    told.restore(BoxList(dims, _from_shapes(stored.active, names, dims)), _restore_table(stored.theirs))


def _store_table(table: RangeTable) -> StoredTable:
    after, counts = np.ascontiguousarray(table.rows().T)
    return StoredTable(_series(after), _numbers(counts))


def _restore_table(stored: StoredTable) -> RangeTable:
    table = RangeTable(np.stack((_from_series(stored.after), _from_numbers(stored.counts)), axis=1))
    table.check()
    return table


def _list_shapes(book: _Book, entries: BoxList | Clients, dims: int) -> Shapes:
    names = list(entries)
    return _shapes(book, names, [entries.keys(name) for name in names], dims)


def _store_ledger(book: _Book, ledger: Ledger) -> StoredLedger:
    standing, ended = ledger.standing, ledger.ended
    return StoredLedger(
        (*_stamps(book, standing), _numbers(NONE if s.expires is None else s.expires for s in standing.values())),
        (*_stamps(book, ended), _numbers(e.heard for e in ended.values())),
    )


def _stamps(book: _Book, entries: dict[Name, Standing] | dict[Name, Ended]) -> tuple[bytes, bytes, bytes, bytes]:
    stamps = [entry.stamp for entry in entries.values()]
    revs = _series(NONE if s.rev is None else s.rev for s in stamps)
    return book(entries), revs, _series(s.time for s in stamps), _series(s.place for s in stamps)


def _restore_ledger(state: Group, stored: StoredLedger, names: Sequence[Name]) -> None:
    rows = _from_stamps(stored.standing, names)
    standing = {name: Standing(stamp, None if last == NONE else last) for name, stamp, last in rows}
    ended = {name: Ended(stamp, last) for name, stamp, last in _from_stamps(stored.ended, names)}
    state.ledger.restore(standing, ended)


def _from_stamps(
    stored: tuple[bytes, bytes, bytes, bytes, bytes], names: Sequence[Name]
) -> Iterable[tuple[Name, Stamp, int]]:
    names_, revs, times, places, lasts = stored
    columns = (
        _from_series(names_),
        _from_series(revs),
        _from_series(times),
        _from_series(places),
        _from_numbers(lasts),
    )
    for name, rev, time, place, last in zip(*(column.tolist() for column in columns), strict=True):
        yield names[name], Stamp(None if rev == NONE else rev, time, place), last


def _store_told(book: _Book, told: Told) -> StoredTold:
    dump = told.strategy.dump()
    passive = told.passive
    return StoredTold(
        active=_list_shapes(book, told.active, told.space.dims),
        active_origins=_texts([told.origins[name] for name in told.active]),
        passive=_shapes(
            book, list(passive), [stack(p.boxes, told.space.dims) for p in passive.values()], told.space.dims
        ),
        passive_origins=_texts([entry.origin for entry in passive.values()]),
        coverer_counts=_numbers(len(entry.coverers) for entry in passive.values()),
        coverers=book(name for entry in passive.values() for name in entry.coverers),
        trees=_store_trees(book, told.trees),
        numbers=_numbers(dump.numbers),
        small=dump.small.tobytes(),
    )


def _restore_told(told: Told, stored: StoredTold, names: Sequence[Name]) -> None:
    dims = told.space.dims
    active = _from_shapes(stored.active, names, dims)
    origins = dict(zip((name for name, _ in active), _from_texts(stored.active_origins), strict=True))
    told.restore(BoxList(dims, active), origins, _restore_passive(stored, names, dims))
    told.trees = _from_trees(stored.trees, names, dims)
    told.strategy.restore(Dump(_from_numbers(stored.numbers), np.frombuffer(stored.small, np.int8)))


def _restore_passive(stored: StoredTold, names: Sequence[Name], dims: int) -> dict[Name, Passive]:
    shapes: list[tuple[Name, Boxes]] = [(n, unstack(keys)) for n, keys in _from_shapes(stored.passive, names, dims)]
    coverers = [names[k] for k in _from_series(stored.coverers)]
    ends = np.cumsum(_from_numbers(stored.coverer_counts)).tolist()
    rows = zip(shapes, _from_texts(stored.passive_origins), [0, *ends][: len(ends)], ends, strict=True)
    return {
        name: Passive(boxes, origin, tuple(coverers[begin:end]), serial)
        for serial, ((name, boxes), origin, begin, end) in enumerate(rows)
    }
