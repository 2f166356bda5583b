"""A broker as bytes, in parts, and back. No other module knows the format.

    <B>/.subscriptions   every subscription that the broker knows, once: number, name, origin, shape, `where`
    <B>/.ledger          the stamps of the clients' subscriptions, and what is remembered of those that ended
    <B>/<M>              the link to M: which subscriptions are active and passive, certificates, the strategy's arrays

A link refers to subscriptions by number, and a certificate to active ones by position. The stamps of the ledger stand
in the order of the clients' subscriptions, and need no names. (No broker's name begins with a dot, so the keys of the
first two are no links.) Inside a part everything is a column (`columns`), boxes by attribute and end; around it is the
header of `sealed`.

Derived things are not stored: indexes, dependants, the heap of expiries, which of the clients' filters are matched as
trees. Everything that decides later answers is stored exactly: the order of lists, certificates, the shape of the tree
of negative rectangles. Whatever changes with every publication belongs to the head of a region (`store`).

The part of the subscriptions says for which configuration the broker was stored. Another one is refused, because keys,
boxes and a strategy's arrays mean nothing in a different space.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np

from state.errors import InvariantError, StateError
from state.filters.trees import Filter, pack_tree, unpack_tree
from state.geometry.boxes import Shape, gathered, shapes_of
from state.matching.clients import Clients
from state.protocol.ledger import NONE, Ended, Ledger, Standings
from state.protocol.messages import LOCAL, Cause, Name, Stamp, Subscribe
from state.protocol.reasons import Reason
from state.protocol.wire import Packed, pack, unpack
from state.routing.broker import Broker
from state.routing.certificates import Leaving
from state.routing.link import Link, Setup
from state.routing.rangetold import grid_of
from state.routing.subscriptions import Subscription, Subscriptions
from state.routing.told import Sweep, ToldDump
from state.space import Keys, Space
from state.storage.columns import (
    Ints,
    Texts,
    Words,
    blobs,
    column,
    from_blobs,
    from_numbers,
    from_series,
    from_texts,
    from_words,
    inside,
    numbers,
    series,
    spans,
    texts,
    words,
)
from state.storage.ends import coded, decoded
from state.storage.sealed import Migrations, damaged, seal, unseal
from state.strategies.base import Dump

VERSION = 3


def _without_leaving(payload: bytes) -> bytes:
    """Version 1 of a link had no shapes that are leaving."""
    return msgspec.msgpack.encode([*msgspec.msgpack.decode(payload), [], []])


MIGRATIONS: dict[str, Migrations] = {
    "subscriptions": {1: bytes, 2: bytes},  # all boxes were stored as such: what came later has defaults
    "ledger": {1: bytes, 2: bytes},
    "link": {1: _without_leaving, 2: bytes},
}
SUBSCRIPTIONS, LEDGER = ".subscriptions", ".ledger"

T = TypeVar("T")


class Names(msgspec.Struct, array_like=True):
    """A column of names."""

    brokers: Words
    clients: Words
    ids: Texts


class StoredTrees(msgspec.Struct, array_like=True):
    """Boolean filters: positions of their subscriptions, how many numbers each takes, and these (`pack_tree`)."""

    positions: bytes
    lengths: bytes
    trees: bytes


class StoredEnds(msgspec.Struct, array_like=True, frozen=True):
    """The boxes of Boolean filters, by their trees (`ends`): how many each filter has, their codes, and other ends."""

    counts: bytes = b""
    codes: bytes = b""
    others: bytes = b""


class StoredSubscriptions(msgspec.Struct, array_like=True):
    """The subscriptions of a broker, in order, and the configuration that everything was stored for.

    `boxes` are those of filters that are no trees, or, where nothing is in `ends`, all.
    """

    setup: str
    numbers: bytes
    names: Names
    origins: Words
    box_counts: bytes
    boxes: list[bytes]
    trees: StoredTrees
    exact: StoredTrees
    with_where: bytes
    where: Texts
    ends: StoredEnds = StoredEnds()


class StoredStamps(msgspec.Struct, array_like=True):
    """Stamps."""

    revs: bytes
    times: bytes
    ranks: bytes
    offsets: bytes


class StoredLedger(msgspec.Struct, array_like=True):
    """The clients' subscriptions that stand, in their order, and those that ended, in order of arrival."""

    standing: StoredStamps
    expires: bytes
    names: Names
    ended: StoredStamps
    arrived: bytes


class StoredDump(msgspec.Struct, array_like=True):
    """The arrays of a strategy. Counted ranges are two columns: the cells after which counts begin, and the counts."""

    numbers: list[bytes]
    small: bytes


class StoredLeaving(msgspec.Struct, array_like=True):
    """A shape that is leaving: what the neighbour was told, the reason, and the positions of the passive that wait."""

    told: Packed
    origin: str
    reason: str
    waiting: bytes


class StoredSweep(msgspec.Struct, array_like=True):
    """The position of an active subscription that may cover others, and how far they were looked at."""

    position: int
    looked: int
    cause: Cause | None
    hop: int


class StoredLink(msgspec.Struct, array_like=True):
    """A link. Coverers are positions among the active, followed by those that are leaving."""

    active: bytes
    passive: bytes
    coverer_counts: bytes
    coverers: bytes
    told: StoredDump
    heard: StoredDump
    leaving: list[StoredLeaving]
    sweeping: list[StoredSweep]


def keys_of(name: str, links: Iterable[str]) -> list[str]:
    """Return the keys of a broker's parts: subscriptions, ledger, and one for each link."""
    return [f"{name}/{part}" for part in (SUBSCRIPTIONS, LEDGER, *links)]


def encode(broker: Broker) -> dict[str, bytes]:
    """Return the parts of a broker. The same state always gives the same bytes. O(size of the broker)."""
    setups = {LOCAL: broker.setup} | {name: link.setup for name, link in broker.links.items()}
    rows = list(broker.subscriptions)
    stored = (
        _store_subscriptions(rows, describe(setups), broker.setup.space),
        _store_ledger(broker.ledger, [row.name for row in rows if row.origin == LOCAL]),
        *(_store_link(link, broker.subscriptions) for link in broker.links.values()),
    )
    return {key: seal(part, VERSION) for key, part in zip(keys_of(broker.name, broker.links), stored, strict=True)}


def decode(stored: Mapping[str, bytes], name: str, setups: Mapping[str, Setup]) -> Broker:
    """Return the broker that `encode` was given, except for its version. O(size of the broker).

    Raises `StateError` if a part is missing, damaged, of an unknown version, or was written for another configuration.
    """
    with uncollected():
        return _decode(stored, name, setups)


def _decode(stored: Mapping[str, bytes], name: str, setups: Mapping[str, Setup]) -> Broker:
    broker = Broker(name, setups)
    subscriptions, ledger, *links = keys_of(name, broker.links)
    with _reading(subscriptions):
        _restore_subscriptions(broker, _read(stored, subscriptions, StoredSubscriptions, "subscriptions"), setups)
    with _reading(ledger):
        _restore_ledger(broker, _read(stored, ledger, StoredLedger, "ledger"))
    for key, link in zip(links, broker.links.values(), strict=True):
        with _reading(key):
            _restore_link(broker, link, _read(stored, key, StoredLink, "link"))
    return broker


def describe(setups: Mapping[str, Setup]) -> str:
    """Return the configuration that a broker's state depends on, as text.

    Pruning may change at any time, and links may be listed in any order.
    """
    local = setups[LOCAL]
    sides = (f"{a.name}:{a.kind}[{a.low},{a.high}]{','.join(a.values)}" for a in local.space.attributes)
    links = sorted(_describe_link(setup) for link, setup in setups.items() if link != LOCAL)
    return "\n".join((f"{local.broker} remember={local.remember} {' '.join(sides)}", *links))


def _describe_link(setup: Setup) -> str:
    grid = f" cells={grid_of(setup.space, setup.spec)}" if setup.spec.by_ranges else ""
    return f"{setup.direction} {replace(setup.spec, pruning=None)}{grid}"


def other_configuration(what: str, stored: str, configured: str) -> StateError:
    """Return the error about state that was written for another configuration."""
    return StateError(
        f"{what} was written for another configuration\n  stored:     {stored}\n  configured: {configured}\n"
        "Remedy: go back to the stored configuration, or begin a new life: lacuna apply --from topics"
    )


def _read(stored: Mapping[str, bytes], key: str, kind: type[T], migrations: str) -> T:
    if key not in stored:
        raise damaged(_named(key), "it is missing")
    return unseal(stored[key], kind, VERSION, MIGRATIONS[migrations], _named(key))


def _named(key: str) -> str:
    return f"the stored state {key}"


@contextmanager
def _reading(key: str) -> Iterator[None]:
    """Let whatever does not fit together say which part it was found in."""
    try:
        yield
    except (ValueError, IndexError, KeyError, TypeError, InvariantError) as error:
        raise damaged(_named(key), str(error)) from error


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend the garbage collector, which would walk again and again through objects of which none is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# Subscriptions


def _store_subscriptions(rows: Sequence[Subscription], setup: str, space: Space) -> StoredSubscriptions:
    dims, trees = space.dims, _store_trees([row.tree for row in rows])
    counts, boxes = gathered([row.shape for row in rows if row.tree is None], dims)
    asked = [(k, row.where) for k, row in enumerate(rows) if row.where is not None]
    return StoredSubscriptions(
        setup,
        series(column(row.number for row in rows)),
        _store_names([row.name for row in rows]),
        words(row.origin for row in rows),
        numbers(counts),
        [numbers(boxes[:, end, i]) for i in range(dims) for end in (0, 1)],
        trees,
        _store_trees([row.exact for row in rows]),
        series(column(k for k, _ in asked)),
        blobs([where for _, where in asked]),
        _store_ends([row.shape for row in rows if row.tree is not None], trees, space),
    )


def _store_ends(shapes: Sequence[Shape], trees: StoredTrees, space: Space) -> StoredEnds:
    counts, boxes = gathered(shapes, space.dims)
    codes, others = coded(boxes, counts, from_numbers(trees.trees), from_numbers(trees.lengths), np.array(space.domain))
    return StoredEnds(numbers(counts), numbers(codes), numbers(others))


def _restore_subscriptions(broker: Broker, part: StoredSubscriptions, setups: Mapping[str, Setup]) -> None:
    if part.setup != describe(setups):
        raise other_configuration(f"the state of the broker {broker.name}", part.setup, describe(setups))
    rows = _rows(part, broker.setup.space)
    for row in rows:
        if row.origin != LOCAL and row.origin not in broker.links:
            raise ValueError(f"there is no link to {row.origin}")
        broker.subscriptions.add(row)
    if len(broker.subscriptions) != len(rows):
        raise ValueError("a subscription is there twice")
    broker.subscriptions.check()
    _restore_clients(broker)


def _rows(part: StoredSubscriptions, space: Space) -> list[Subscription]:
    names, dims = _from_names(part.names), space.dims
    columns = (
        from_series(part.numbers).tolist(),
        names,
        from_words(part.origins),
        _from_boxes(part, space, len(names)),
        _from_trees(part.trees, len(names), dims),
        _from_trees(part.exact, len(names), dims),
        _spread(from_blobs(part.where), from_series(part.with_where), len(names)),
    )
    return [Subscription(*row) for row in zip(*columns, strict=True)]


def _from_boxes(part: StoredSubscriptions, space: Space, size: int) -> list[Shape]:
    if len(part.boxes) != 2 * space.dims:
        raise ValueError("columns of boxes are missing")
    ends = np.stack([from_numbers(ends) for ends in part.boxes], axis=1)
    plain = _shapes(ends.reshape(-1, space.dims, 2).swapaxes(1, 2), from_numbers(part.box_counts))
    if not part.ends.codes:
        return plain
    shapes, boolean = _from_ends(part.ends, part.trees, space), set(from_series(part.trees.positions).tolist())
    if len(boolean) != len(shapes) or len(plain) + len(shapes) != size:
        raise ValueError(f"{len(plain)} and {len(shapes)} shapes do not belong to {size} subscriptions")
    others, theirs = iter(plain), iter(shapes)
    return [next(theirs if k in boolean else others) for k in range(size)]


def _from_ends(stored: StoredEnds, trees: StoredTrees, space: Space) -> list[Shape]:
    counts, codes = from_numbers(stored.counts), from_numbers(stored.codes).reshape(-1, 2, space.dims)
    packed = from_numbers(trees.trees), from_numbers(trees.lengths)
    return _shapes(decoded(codes, from_numbers(stored.others), counts, *packed, np.array(space.domain)), counts)


def _shapes(boxes: Keys, counts: Ints) -> list[Shape]:
    """Cut boxes into shapes. Raises `ValueError` if one is empty, or there are not as many as counted."""
    if (boxes[:, 0] >= boxes[:, 1]).any():
        raise ValueError("a box is empty")
    if counts.sum() != len(boxes) or (counts < 1).any():
        raise ValueError(f"{len(boxes)} boxes do not belong to {len(counts)} subscriptions")
    return shapes_of(boxes, counts)


def _restore_clients(broker: Broker) -> None:
    """Index the clients' subscriptions, each in the form that `Clients.add` would choose."""
    space, rows = broker.setup.space, [row for row in broker.subscriptions if row.origin == LOCAL]
    boolean = [row for row in rows if row.tree is not None or row.exact is not None]
    chosen = ((row.name, broker.clients.as_tree(row.boxes, row.tree, row.exact)) for row in boolean)
    trees = {name: tree for name, tree in chosen if tree is not None}
    entries = [(row.name, row.shape) for row in rows]
    broker.clients = Clients(space, broker.subscriptions.number, entries, trees)


def _store_names(names: Sequence[Name]) -> Names:
    return Names(words(n.broker for n in names), words(n.client for n in names), texts(n.id for n in names))


def _from_names(stored: Names) -> list[Name]:
    columns = (from_words(stored.brokers), from_words(stored.clients), from_texts(stored.ids))
    return list(map(Name._make, zip(*columns, strict=True)))


def _store_trees(trees: Sequence[Filter | None]) -> StoredTrees:
    packed = [(k, np.frombuffer(pack_tree(tree), "<i8")) for k, tree in enumerate(trees) if tree is not None]
    return StoredTrees(
        series(column(k for k, _ in packed)),
        numbers(column(len(tree) for _, tree in packed)),
        numbers(np.concatenate([np.empty(0, np.int64), *(tree for _, tree in packed)])),
    )


def _from_trees(stored: StoredTrees, size: int, dims: int) -> list[Filter | None]:
    whole = from_numbers(stored.trees).astype("<i8")
    cuts = spans(from_numbers(stored.lengths), len(whole))
    trees = [unpack_tree(whole[begin:end].tobytes(), dims) for begin, end in cuts]
    return _spread(trees, from_series(stored.positions), size)


def _spread(values: Sequence[T], positions: Ints, size: int) -> list[T | None]:
    """Return a list of this size with the values at these positions."""
    spread: list[T | None] = [None] * size
    for position, value in zip(inside(positions, size).tolist(), values, strict=True):
        spread[position] = value
    return spread


# The ledger


def _store_ledger(ledger: Ledger, clients: Sequence[Name]) -> StoredLedger:
    standing = [ledger.standing[name] for name in clients]
    ended = ledger.ended
    return StoredLedger(
        _store_stamps([entry.stamp for entry in standing]),
        series(column(NONE if entry.expires is None else entry.expires for entry in standing)),
        _store_names(list(ended)),
        _store_stamps([entry.stamp for entry in ended.values()]),
        series(column(entry.arrived for entry in ended.values())),
    )


def _restore_ledger(broker: Broker, part: StoredLedger) -> None:
    columns = {
        "rev": from_series(part.standing.revs),
        "time": from_series(part.standing.times),
        "rank": from_series(part.standing.ranks),
        "offset": from_series(part.standing.offsets),
        "expires": from_series(part.expires),
    }
    arrived = from_series(part.arrived).tolist()
    ended = [Ended(*row) for row in zip(_from_stamps(part.ended), arrived, strict=True)]
    broker.ledger.restore(
        Standings.of(list(broker.clients), columns), dict(zip(_from_names(part.names), ended, strict=True))
    )
    broker.ledger.check()


def _store_stamps(stamps: Sequence[Stamp]) -> StoredStamps:
    return StoredStamps(
        series(column(NONE if stamp.rev is None else stamp.rev for stamp in stamps)),
        series(column(stamp.time for stamp in stamps)),
        series(column(stamp.rank for stamp in stamps)),
        series(column(stamp.offset for stamp in stamps)),
    )


def _from_stamps(stored: StoredStamps) -> list[Stamp]:
    columns = (stored.revs, stored.times, stored.ranks, stored.offsets)
    rows = zip(*(from_series(one).tolist() for one in columns), strict=True)
    return [Stamp(None if rev == NONE else rev, time, rank, offset) for rev, time, rank, offset in rows]


# Links


def _store_link(link: Link, subscriptions: Subscriptions) -> StoredLink:
    dump, ranges = link.told.dump(), link.setup.spec.by_ranges
    active, passive = ({name: k for k, name in enumerate(names)} for names in (dump.active, dump.passive))
    leaving = {name: len(active) + k for k, name in enumerate(dump.leaving)}
    positions = [
        leaving[coverer] if coverer in leaving and name in dump.leaving[coverer].waiting else active[coverer]
        for name, coverers in zip(dump.passive, dump.coverers, strict=True)
        for coverer in coverers
    ]
    return StoredLink(
        series(column(subscriptions[name].number for name in dump.active)),
        series(column(subscriptions[name].number for name in dump.passive)),
        numbers(column(len(coverers) for coverers in dump.coverers)),
        numbers(column(positions)),
        _store_dump(dump.strategy, ranges),
        _store_dump(link.heard.dump(), ranges),
        [_store_leaving(name, shape, passive) for name, shape in dump.leaving.items()],
        [StoredSweep(active[name], sweep.looked, sweep.cause, sweep.hop) for name, sweep in dump.sweeping.items()],
    )


def _store_leaving(name: Name, shape: Leaving, passive: Mapping[Name, int]) -> StoredLeaving:
    told = pack(Subscribe(name, shape.boxes, tree=shape.tree, cause=shape.cause, hop=shape.hop))
    return StoredLeaving(told, shape.origin, shape.reason, series(column(passive[one] for one in shape.waiting)))


def _from_leaving(stored: StoredLeaving, passive: Sequence[Name], dims: int) -> tuple[Name, Leaving]:
    told = unpack(stored.told, dims)
    if not isinstance(told, Subscribe):
        raise ValueError("what is leaving is no subscription")
    waiting = {passive[k]: None for k in inside(from_series(stored.waiting), len(passive)).tolist()}
    reason = Reason(stored.reason)
    return told.name, Leaving(told.boxes, told.tree, stored.origin, reason, told.cause, told.hop, waiting)


def _restore_link(broker: Broker, link: Link, part: StoredLink) -> None:
    ranges, dims = link.setup.spec.by_ranges, link.setup.space.dims
    names = {row.number: row.name for row in broker.subscriptions}
    active = [names[number] for number in from_series(part.active).tolist()]
    passive = [names[number] for number in from_series(part.passive).tolist()]
    if len({*active, *passive}) != len(active) + len(passive):
        raise ValueError("a subscription is there twice")
    leaving = dict(_from_leaving(shape, passive, dims) for shape in part.leaving)
    told = [*active, *leaving]
    positions = inside(from_numbers(part.coverers), len(told)).tolist()
    cuts = spans(from_numbers(part.coverer_counts), len(positions))
    coverers = _certificates(told, positions, cuts)
    sweeping = {active[sweep.position]: Sweep(sweep.looked, sweep.cause, sweep.hop) for sweep in part.sweeping}
    kept = _from_dump(part.told, ranges)
    link.told.restore(ToldDump(active, passive, coverers, kept, leaving, sweeping), broker.subscriptions)
    origin = link.setup.link
    link.heard.restore((row for row in broker.subscriptions if row.origin == origin), _from_dump(part.heard, ranges))


def _certificates(
    told: Sequence[Name], positions: Sequence[int], cuts: Sequence[tuple[int, int]]
) -> list[tuple[Name, ...]]:
    """Return the coverers of each passive subscription. Most have one, which others have too: they share a tuple."""
    alone = [(name,) for name in told]
    return [
        alone[positions[begin]] if end - begin == 1 else tuple(told[k] for k in positions[begin:end])
        for begin, end in cuts
    ]


def _store_dump(dump: Dump, ranges: bool) -> StoredDump:
    stored = [numbers(dump.numbers)]
    if ranges:
        after, counts = dump.numbers.reshape(-1, 2).T
        stored = [series(after), numbers(counts)]
    return StoredDump(stored, dump.small.tobytes())


def _from_dump(stored: StoredDump, ranges: bool) -> Dump:
    small = np.frombuffer(stored.small, np.int8)
    if not ranges:
        (whole,) = stored.numbers
        return Dump(from_numbers(whole), small)
    after, counts = stored.numbers
    return Dump(np.stack((from_series(after), from_numbers(counts)), axis=1).reshape(-1), small)
