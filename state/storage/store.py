"""A region's state between batches: parts of brokers, the log of their inputs since, and a head.

Encoding a broker costs time in proportion to its size; a batch changes little of it. So what is stored is

    parts    each broker as of its snapshot (`codec`). Brokers take snapshots independently, all parts of one together
    log      one chunk for each batch: the inputs of all brokers, in order. An input makes one version of its broker
    head     what changes with every batch, or is as small: numbers of channels, versions, what publications taught,
             how an operator wants links to prune; and the digests of parts and chunks

and restoring is the parts and a replay of the log beyond them. Brokers are deterministic, so a replay gives the very
same ones (promise 4). A broker takes a snapshot when its inputs since the last one are a share of its
size, so writing costs O(inputs) amortised, whatever the size of the state. One input can end or forget thousands of
subscriptions at once. Each of these counts like an input, so that they do not stay in the stored parts.

    chunk          1        2        3        4        5            oslo   snapshot at 7: needs chunks 4 and 5
    inputs of      oslo 5   oslo 7   rome 1   oslo 9   oslo 12      rome   snapshot at 0: needs chunk 3
                   dropped  dropped                                 so 1 and 2 go, 3 stays until rome's next snapshot

A broker with few inputs must not hold back everybody's chunks for long. Where the log grows beyond twice the inputs
that all brokers may have pending, or beyond `MOST_CHUNKS`, every broker in it takes a snapshot.

A worker may still hold the region from an earlier batch. To be sure that it holds what it seems to hold, chunks are
chained: the digest of each includes the digest before it. A held region is used if its digest is one of the chain, and
every chunk from there on is still in the log; the rest is replayed, which costs O(inputs since), instead of O(state)
for decoding. Held or not, the result is the same; only time differs. A region that was opened and not closed belongs to
a batch that failed, and is never used again.

Where the bytes are kept is not decided here. A store is opened from `Pieces`, a mapping from keys to bytes, of which it
reads only those that it needs and writes only those that change:

    .head          the head
    .log/9f3a...   a chunk, by its digest in the chain
    oslo/paris     a part (`codec.keys_of`); no broker's name begins with a dot

`to_row` and `from_row` put all pieces into one row of bytes; `sliced.Sliced` keeps them in a map of small values.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from state.errors import InvariantError, StateError
from state.filters.selectivity import BINS
from state.protocol.channel import Receiver, Sender
from state.protocol.commands import Override
from state.protocol.messages import LOCAL
from state.protocol.wire import Input
from state.routing.broker import Broker
from state.routing.counters import Counters, Measure
from state.routing.echoes import Waiting
from state.routing.heard import Learned
from state.routing.link import Link, Setup
from state.routing.region import Region
from state.storage.codec import decode, describe, encode, keys_of, other_configuration
from state.storage.columns import from_numbers, numbers
from state.storage.sealed import MAGIC, Migrations, check_version, compress, damaged, decompress, read, seal, unseal

FORMAT = 1
MIGRATIONS: Migrations = {}
ROW_FORMAT = 1
FEWEST_INPUTS = 64
SHARE_OF_BROKER = 16
"""A broker takes a snapshot when more inputs were logged than this fraction (1/16) of its subscriptions."""
MOST_CHUNKS = 1024
"""Chunks of the log: each batch reads and checks all of them."""
UNSEEN = 20
"""A worker drops a region that it was not given for so many batches."""

Setups = Mapping[str, Mapping[str, Setup]]
"""The setups of a region's links, by broker and link."""
HEAD, LOG = ".head", ".log/"
Opened = Literal["new", "hit", "catch-up", "decode"]
"""The source of an opened state: nothing, the held copy, the held copy after a replay, or the stored bytes."""


class Pieces(Protocol):
    """The stored state of a region, by key; empty for one that begins from nothing. A dictionary will do."""

    def get(self, key: str, /) -> bytes | None: ...

    def __setitem__(self, key: str, piece: bytes, /) -> None: ...

    def __delitem__(self, key: str, /) -> None: ...


class End(msgspec.Struct, array_like=True):
    """One end of a channel: the number and the checksum of the last frame."""

    number: int
    checksum: bytes


class Versions(msgspec.Struct, array_like=True):
    """The version of a broker, and that of its snapshot."""

    version: int
    snapshot: int


class Taught(msgspec.Struct, array_like=True):
    """The counts that a link learned from publications, and its pruning override."""

    learned: tuple[bytes, bytes] | None = None
    override: Override | None = None


class Listed(msgspec.Struct, array_like=True):
    """A part in the list of the head: its size in bytes, and its digest."""

    size: int
    digest: bytes


class Chunk(msgspec.Struct, array_like=True):
    """A chunk of the log: the digests of the chain before and after it, and each broker's versions before and after.

    Chunks that an earlier version wrote do not say how many bytes they have.
    """

    before: bytes
    after: bytes
    versions: dict[str, tuple[int, int]]
    size: int = 0

    @property
    def inputs(self) -> int:
        """The number of inputs."""
        return sum(last - first for first, last in self.versions.values())

    @property
    def key(self) -> str:
        """The key of the piece that holds the inputs."""
        return f".log/{self.after.hex()}"


class Head(msgspec.Struct, array_like=True):
    """The head. New fields come last, with a default: older state does not have them."""

    name: str
    configuration: bytes
    epoch: int
    clock: int
    records: End
    delivered: int
    outgoing: dict[str, End]
    incoming: dict[str, End]
    brokers: dict[str, Versions]
    links: dict[str, Taught]
    parts: dict[str, Listed]
    log: list[Chunk]
    digest: bytes
    millis: float | None = None
    echoes: int = 0
    waiting: list[Waiting] = []
    counters: list[tuple[str, str, dict[str, int | float], int]] = []
    batches: int = 0
    measured: int = 0


class _Row(msgspec.Struct, array_like=True):
    head: bytes
    log: list[bytes]
    parts: dict[str, bytes]


_write = msgspec.msgpack.Encoder().encode


def to_row(pieces: Mapping[str, bytes]) -> bytes:
    """Return all pieces of a region as one row of bytes. Chunks must be in the order of the log."""
    log = [packed for key, packed in pieces.items() if key.startswith(LOG)]
    parts = {key: part for key, part in pieces.items() if not key.startswith(".")}
    return MAGIC + bytes([ROW_FORMAT]) + _write(_Row(pieces[HEAD], log, parts))


def from_row(row: bytes, name: str) -> dict[str, bytes]:
    """Return the pieces in a row. Raises `StateError` if it is damaged or of an unknown version."""
    what = _named(name)
    content = read(row[check_version(row, ROW_FORMAT, {}, what) :], _Row, what)
    chunks = unseal(content.head, Head, FORMAT, MIGRATIONS, what).log
    if len(chunks) != len(content.log):
        raise damaged(what, f"the log has {len(content.log)} chunks, not {len(chunks)}")
    log = {chunk.key: packed for chunk, packed in zip(chunks, content.log, strict=True)}
    return {HEAD: content.head, **log, **content.parts}


def _named(name: str) -> str:
    return f"the stored state of the region {name}"


def _digest(data: bytes, before: bytes = b"") -> bytes:
    return hashlib.blake2b(data, key=before, digest_size=16).digest()


class Store:
    """A region and how its state is stored. One batch: `open`, any number of steps of `region`, `save`."""

    def __init__(self, region: Region, configuration: bytes) -> None:
        self.region = region
        self.opened: Opened = "new"
        self.sizes: dict[str, int] = {}
        """As stored last: the bytes of each part by its key, and those of `head` and `log`."""
        self.millis: float | None = None
        """The time that the last stored batch took, as whoever ran it says."""
        self._configuration = configuration
        self._digest = _digest(_write((region.name, region.epoch, configuration)))
        self._pieces: Pieces = {}
        self._listed: dict[str, Listed] = {}
        self._snapshots: dict[str, int] = {}
        self._log: list[Chunk] = []
        self._closed = False

    # reading

    @classmethod
    def open(
        cls,
        pieces: Pieces,
        name: str,
        setups: Setups,
        epoch: int,
        held: Store | None = None,
        *,
        measure: Measure = "step",
    ) -> Store:
        """Open the state that `save` has written into these pieces, or a region that begins from nothing.

        `held`, if it is the store of an earlier batch of the same region, saves decoding; it must not be used besides.
        Raises `StateError` if the state is damaged, of an unknown version, or was written for something else.
        """
        packed = pieces.get(HEAD)
        if packed is None:
            store = cls(Region(name, setups, epoch, measure=measure), _configuration(setups))
            store._pieces = pieces
            return store
        head = unseal(packed, Head, FORMAT, MIGRATIONS, _named(name))
        _check_head(head, pieces, name, setups, epoch)
        behind = None if held is None else held._behind(head)
        if held is not None and behind is not None:
            store, store.opened = held, "catch-up" if behind < len(head.log) else "hit"
        else:
            store, behind = cls(Region(name, setups, epoch, measure=measure), head.configuration), 0
            store.opened = "decode"
        store._closed = False
        if store.opened == "decode":
            store._decode(head, pieces, setups)
        store._adopt(head, pieces, len(packed))
        store._replay(behind)
        store._resume(head)
        return store

    def _behind(self, head: Head) -> int | None:
        """Return the first chunk that this held region has not seen; None if it is of no use."""
        ours = (self.region.name, self.region.epoch, self._configuration)
        if not self._closed or ours != (head.name, head.epoch, head.configuration):
            return None
        after = head.digest
        for behind in range(len(head.log), -1, -1):
            if after == self._digest:
                return behind
            if behind == 0 or head.log[behind - 1].after != after:
                return None  # a chunk in between was dropped
            after = head.log[behind - 1].before
        return None

    def _decode(self, head: Head, pieces: Pieces, setups: Setups) -> None:
        for name, links in setups.items():
            broker = decode(_parts_of(head, pieces, name, links), name, links)
            broker.version = head.brokers[name].snapshot
            self.region.brokers[name] = broker

    def _adopt(self, head: Head, pieces: Pieces, size: int) -> None:
        self._pieces, self._listed = pieces, dict(head.parts)
        self._snapshots = {name: versions.snapshot for name, versions in head.brokers.items()}
        self._log, self._digest = list(head.log), head.digest
        self._measure(size)

    def _replay(self, behind: int) -> None:
        """Apply the logged inputs that brokers have not seen, from this chunk on."""
        brokers, what = self.region.brokers, _named(self.region.name)
        for name in brokers:
            self._count_from_snapshot(name)
        for number, chunk in enumerate(self._log[behind:], behind + 1):
            if all(last <= brokers[name].version for name, (_, last) in chunk.versions.items()):
                continue
            packed = self._pieces.get(chunk.key)
            if packed is None or _digest(packed, chunk.before) != chunk.after:
                why = "missing" if packed is None else "not the one that was written"
                raise damaged(what, f"chunk {number} of the log is {why}")
            versions = {name: first for name, (first, _) in chunk.versions.items()}
            for entry in read(decompress(packed, what), list[Input], what):
                versions[entry.broker] += 1
                _replay_input(brokers[entry.broker], entry, versions[entry.broker], what)
                self._count_from_snapshot(entry.broker)

    def _count_from_snapshot(self, name: str) -> None:
        """Begin to count what is gone, if the broker is as its snapshot: a held one may have counted before that."""
        broker = self.region.brokers[name]
        if broker.version == self._snapshots[name]:
            broker.gone = 0

    def _resume(self, head: Head) -> None:
        """Take over from the head what the log does not have."""
        region = self.region
        for name, broker in region.brokers.items():
            if broker.version != head.brokers[name].version:
                raise damaged(_named(region.name), f"the log of {name} ends too early")
            for link in broker.links.values():
                _teach(link, head.links.get(link.setup.direction, Taught()))
        region.clock, region.delivered, self.millis = head.clock, head.delivered, head.millis
        region.echoes.restore(head.echoes, head.waiting)
        _count_on(region.counters, head)
        _continue(region.records, head.records)
        for direction, sender in region.senders.items():
            _continue(sender, head.outgoing[">".join(direction)])
        for direction, receiver in region.receivers.items():
            _continue(receiver, head.incoming[">".join(direction)])
        region.resume()

    # writing

    def save(self) -> None:
        """Write what has changed into the pieces, at the end of a batch. O(inputs) amortised."""
        if self.region.waiting:
            raise InvariantError(f"the region {self.region.name} is stored while messages wait inside")
        self._log_batch()
        for broker in self._due():
            self._take_snapshot(broker)
        self._drop_chunks()
        self._pieces[HEAD] = head = seal(self._head(), FORMAT)
        self._measure(len(head))
        self.leave()

    def leave(self) -> None:
        """End a batch that changed nothing: what is stored stays as it is, and the region may be held."""
        self._pieces = {}  # they are read again with the next batch; a held region need not keep them in memory
        self._closed = True

    def _measure(self, head: int) -> None:
        self.sizes = {key: part.size for key, part in self._listed.items()}
        self.sizes |= {"head": head, "log": sum(chunk.size for chunk in self._log)}

    def _log_batch(self) -> None:
        """Make the inputs of this batch a chunk of the log."""
        inputs, self.region.log = self.region.log, []
        if not inputs:
            return
        counts = Counter(entry.broker for entry in inputs)
        now = {name: self.region.brokers[name].version for name in counts}
        packed = compress(_write(inputs))
        before, self._digest = self._digest, _digest(packed, self._digest)
        versions = {name: (now[name] - count, now[name]) for name, count in counts.items()}
        chunk = Chunk(before, self._digest, versions, len(packed))
        self._log.append(chunk)
        self._pieces[chunk.key] = packed

    def _due(self) -> list[Broker]:
        """Return the brokers that are to take a snapshot."""
        brokers = self.region.brokers
        pending = {
            name: broker.version - self._snapshots.get(name, -1) + broker.gone
            for name, broker in brokers.items()
            if broker.version != self._snapshots.get(name)
        }
        if self._is_too_long():
            return [brokers[name] for name in pending]
        return [
            brokers[name]
            for name, inputs in pending.items()
            if name not in self._snapshots or inputs > _most_inputs(brokers[name])
        ]

    def _is_too_long(self) -> bool:
        inputs = sum(chunk.inputs for chunk in self._log)
        if inputs <= 2 * FEWEST_INPUTS * len(self.region.brokers):
            return len(self._log) > MOST_CHUNKS
        return len(self._log) > MOST_CHUNKS or inputs > 2 * sum(map(_most_inputs, self.region.brokers.values()))

    def _take_snapshot(self, broker: Broker) -> None:
        self._snapshots[broker.name], broker.gone = broker.version, 0
        for key, part in encode(broker).items():
            self._pieces[key] = part
            self._listed[key] = Listed(len(part), _digest(part))

    def _drop_chunks(self) -> None:
        """Drop the chunks that no broker needs. The last one stays if it is small: workers are often one behind."""
        recent = self._log[-1:]
        if recent and recent[0].inputs > sum(map(_most_inputs, self.region.brokers.values())):
            recent = []
        older = self._log[: len(self._log) - len(recent)]
        for chunk in older:
            if not self._is_needed(chunk):
                del self._pieces[chunk.key]
        self._log = [chunk for chunk in older if self._is_needed(chunk)] + recent

    def _is_needed(self, chunk: Chunk) -> bool:
        return any(last > self._snapshots[name] for name, (_, last) in chunk.versions.items())

    def _head(self) -> Head:
        region = self.region
        links = [link for broker in region.brokers.values() for link in broker.links.values()]
        taught = ((link.setup.direction, _taught(link)) for link in links)
        return Head(
            name=region.name,
            configuration=self._configuration,
            epoch=region.epoch,
            clock=region.clock,
            records=_end(region.records),
            delivered=region.delivered,
            outgoing={sender.channel: _end(sender) for sender in region.senders.values()},
            incoming={receiver.channel: _end(receiver) for receiver in region.receivers.values()},
            brokers={name: Versions(b.version, self._snapshots[name]) for name, b in region.brokers.items()},
            links={name: one for name, one in taught if one != Taught()},
            parts=self._listed,
            log=self._log,
            digest=self._digest,
            millis=self.millis,
            echoes=region.echoes.number,
            waiting=list(region.echoes.waiting.values()),
            counters=[(*place, dict(counts), n) for place, (counts, n) in region.counters.waiting.items()],
            batches=region.counters.batches,
            measured=region.counters.measured,
        )


def _configuration(setups: Setups) -> bytes:
    """Return the digest of the configuration that a region's state depends on."""
    return _digest("\n".join(sorted(describe(links) for links in setups.values())).encode())


def _check_head(head: Head, pieces: Pieces, name: str, setups: Setups, epoch: int) -> None:
    """Raise `StateError` unless this is the state of that region, under this configuration."""
    what = _named(name)
    for kind, found, expected in (("region", head.name, name), ("epoch", head.epoch, epoch)):
        if found != expected:
            raise StateError(
                f"{what} belongs to the {kind} {found}, not to {expected}. "
                "Remedy: restore the checkpoint from a copy, or begin a new life: lacuna apply --from topics"
            )
    if head.brokers.keys() != setups.keys():
        raise other_configuration(what, ", ".join(head.brokers), ", ".join(setups))
    if head.configuration != _configuration(setups):
        for broker, links in setups.items():
            decode(_parts_of(head, pieces, broker, links), broker, links)  # shows both configurations
        raise other_configuration(what, head.configuration.hex(), _configuration(setups).hex())


def _parts_of(head: Head, pieces: Pieces, broker: str, links: Mapping[str, Setup]) -> dict[str, bytes]:
    """Read the parts of a broker, and verify their digests. A part that was never listed is left to the codec."""
    found = {}
    for key in keys_of(broker, (link for link in links if link != LOCAL)):
        listed = head.parts.get(key)
        if listed is None:
            continue
        part = pieces.get(key)
        if part is None or _digest(part) != listed.digest:
            why = "it is missing" if part is None else "it is not the one that was written"
            raise damaged(f"{_named(head.name)}, part {key},", why)
        found[key] = part
    return found


def _replay_input(broker: Broker, entry: Input, version: int, what: str) -> None:
    if version <= broker.version:
        return
    if version > broker.version + 1:
        raise damaged(what, f"the log of {broker.name} jumps from version {broker.version} to {version}")
    broker.replay(entry)


def _most_inputs(broker: Broker) -> int:
    """Return how many inputs of a broker may be in the log beyond its snapshot."""
    return max(FEWEST_INPUTS, broker.size // SHARE_OF_BROKER)


def _end(end: Sender | Receiver) -> End:
    return End(end.number, end.checksum)


def _continue(end: Sender | Receiver, stored: End) -> None:
    end.number, end.checksum = stored.number, stored.checksum


def _count_on(counters: Counters, head: Head) -> None:
    counters.waiting = {(broker, link): (Counter(counts), n) for broker, link, counts, n in head.counters}
    counters.batches, counters.measured = head.batches, head.measured


def _taught(link: Link) -> Taught:
    learned = link.heard.learned
    return Taught(None if learned is None else (numbers(learned[0]), numbers(learned[1])), link.override)


def _teach(link: Link, taught: Taught) -> None:
    link.prune(taught.override)
    learned: Learned | None = None
    if taught.learned is not None:
        counts, taken = (from_numbers(part).reshape(-1, BINS) for part in taught.learned)
        learned = counts, taken
    link.heard.learn(learned)


def prepared(region: Region, setups: Setups) -> bytes:
    """Return the state of a region that was put together outside of any batch, as one row."""
    store, pieces = Store(region, _configuration(setups)), dict[str, bytes]()
    store._pieces = pieces
    store.save()
    return to_row(pieces)


class Held:
    """The stores that a worker holds between batches, by epoch and region, and how often that helped.

    `open` takes a store out and `keep` puts it back, so that one whose batch failed in between is gone.
    """

    def __init__(self, unseen: int = UNSEEN) -> None:
        self.counts: Counter[Opened] = Counter()
        self._unseen = unseen
        self._stores: dict[tuple[int, str], tuple[int, Store]] = {}

    def __len__(self) -> int:
        return len(self._stores)

    def open(
        self,
        pieces: Pieces,
        name: str,
        setups: Setups,
        epoch: int,
        batch: int,
        *,
        measure: Measure = "step",
    ) -> Store:
        """Open the state of a region for a batch (`Store.open`), with what is held of it; evict what was not seen."""
        _, held = self._stores.pop((epoch, name), (batch, None))
        self._stores = {key: one for key, one in self._stores.items() if abs(batch - one[0]) <= self._unseen}
        store = Store.open(pieces, name, setups, epoch, held, measure=measure)
        self.counts[store.opened] += 1
        return store

    def keep(self, store: Store, batch: int) -> None:
        """Hold a store that was closed at the end of this batch."""
        self._stores[store.region.epoch, store.region.name] = batch, store
