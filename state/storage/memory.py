"""A group's state between batches: a snapshot, and a log of what changed it since.

Encoding a whole group costs time in proportion to its size; a batch changes little of it. So what is stored is

    snapshot    the whole group as of version s (`codec`)
    log         the changes of versions t+1 ... v, t <= s, in order: message, origin, moment
    ticker      what changes with every batch, or is as small: marks, numbers given out, what publications taught,
                how an operator wants the link to prune

and restoring is the snapshot and a replay of the log beyond it. Steps are deterministic, so a replay gives the very
same group: promise 4, used every day. A snapshot is taken again when the log has grown to a share of the group, so
writing costs O(changes) amortised, whatever the size of the state.

A worker may still hold the group from an earlier batch. If its version lies inside the log it is brought up to date by
replaying the rest, which costs O(changes since), instead of O(state) for decoding. To be sure that it holds what it
seems to hold, versions carry a digest that chains all changes: a held group counts only if its digest is the log's at
that version. Held or not, the result is the same; only time differs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import msgspec
import zstandard

from state.errors import StateError
from state.protocol.channel import Mark
from state.protocol.commands import Override
from state.protocol.messages import Publish, Request
from state.protocol.wire import Packed, pack, unpack
from state.routing.link import Link, Local, Setup, group
from state.routing.told import Decision
from state.storage.codec import decode, encode, pack_learned, unpack_learned

VERSION = 1
FEWEST_CHANGES = 64
SHARE_OF_GROUP = 16
"""A snapshot is taken when the log holds more changes than this fraction (1/16) of the group's subscriptions."""


PASSED, RESTED, REBUILD = "", "rest", "rebuild"
"""What changed the group where no message did: time passed, it rested, a rebuild was asked for."""


class Change(msgspec.Struct, array_like=True):
    """One step that changed the group: a message from `origin`; without one, what `origin` says (`PASSED` ...)."""

    origin: str
    now: int
    message: Packed | None


class Ticker(msgspec.Struct, array_like=True):
    """Small things that move with every batch. What is added comes last, with a default: older state has none."""

    marks: dict[str, tuple[int, int]]
    sent: int
    records: int
    deliveries: int
    learned: tuple[bytes, bytes] | None = None
    override: Override | None = None


class Stored(msgspec.Struct, array_like=True):
    """What is stored: all of the above, versioned."""

    format: int
    snapshot: bytes
    snapshot_version: int
    version: int
    base_version: int
    base_digest: bytes
    log: list[tuple[bytes, int]]
    ticker: Ticker


_read_stored = msgspec.msgpack.Decoder(Stored).decode
_read_changes = msgspec.msgpack.Decoder(list[Change]).decode
_write = msgspec.msgpack.Encoder().encode


def _next_digest(digest: bytes, chunk: bytes) -> bytes:
    return hashlib.blake2b(chunk, key=digest, digest_size=16).digest()


@dataclass
class Memory:
    """A group and how its state is stored. One batch: `open`, any number of steps, `close`."""

    state: Link | Local
    records: int = 0
    deliveries: int = 0
    _snapshot: bytes = b""
    _snapshot_version: int = 0
    _version: int = 0
    _digest: bytes = b""
    _base: tuple[int, bytes] = (0, b"")
    _log: list[tuple[bytes, int]] = field(default_factory=list)
    _changes: list[Change] = field(default_factory=list)

    @classmethod
    def new(cls, setup: Setup) -> Memory:
        """The memory of a group that has not seen anything."""
        state = group(setup)
        return cls(state, _snapshot=encode(state))

    # steps

    def step(self, origin: str, message: Request, now: int) -> list[Decision]:
        """Let the group take a message, and remember it."""
        self._changes.append(Change(origin, now, pack(message)))
        return self.state.step(origin, message, now)

    def expire(self, now: int) -> list[Decision]:
        """Let time pass, and remember it where that ended something."""
        due = self.state.ledger.next_expiry
        if due is None or due > now:
            return []
        self._changes.append(Change(PASSED, now, None))
        return self.state.expire(now)

    @property
    def restless(self) -> bool:
        """Is there something to do in a moment in which nothing else is?"""
        return self.state.restless

    def rest(self) -> bool:
        """Let the group use an idle moment, and remember it; whether a rebuild was finished in it."""
        self._changes.append(Change(RESTED, 0, None))
        return self.state.rest()

    def rebuild(self) -> bool:
        """Ask for a rebuild, and remember it where there is something to rebuild."""
        begun = self.state.rebuild()
        if begun:
            self._changes.append(Change(REBUILD, 0, None))
        return begun

    def prune(self, override: Override | None) -> bool:
        """Let the link prune so (see `Link.prune`). The ticker has it, not the log: no later step depends on it."""
        return isinstance(self.state, Link) and self.state.prune(override)

    # storing

    def close(self) -> bytes:
        """The state as bytes, at the end of a batch. O(changes) amortised, and one copy of the snapshot."""
        if self._changes:
            chunk = zstandard.ZstdCompressor().compress(_write(self._changes))
            self._log.append((chunk, len(self._changes)))
            self._version += len(self._changes)
            self._digest = _next_digest(self._digest, chunk)
            self._changes = []
        if self._version - self._snapshot_version > max(FEWEST_CHANGES, self.size() // SHARE_OF_GROUP):
            self._take_snapshot()
        return _write(self._stored())

    def size(self) -> int:
        """The number of subscriptions that the group holds."""
        told = len(self.state.told) if isinstance(self.state, Link) else 0
        return len(self.state.heard) + told

    def _take_snapshot(self) -> None:
        """Snapshot now. Of the log the last chunk stays if it is small, for workers that are one batch behind."""
        self._snapshot, self._snapshot_version = encode(self.state), self._version
        version, digest = self._base
        last = self._log[-1:] if self._log[-1][1] <= max(FEWEST_CHANGES, self.size() // SHARE_OF_GROUP) else []
        for chunk, count in self._log[: len(self._log) - len(last)]:
            version, digest = version + count, _next_digest(digest, chunk)
        self._base, self._log = (version, digest), last

    def _stored(self) -> Stored:
        marks = {sender: (mark.epoch, mark.number) for sender, mark in sorted(self.state.inbox.marks.items())}
        ticker = Ticker(marks, 0, self.records, self.deliveries)
        if isinstance(self.state, Link):
            ticker.sent, ticker.override = self.state.sent, self.state.override
            ticker.learned = pack_learned(self.state.learned)
        version, digest = self._base
        return Stored(
            VERSION, self._snapshot, self._snapshot_version, self._version, version, digest, self._log, ticker
        )

    # restoring

    @classmethod
    def open(cls, blob: bytes, setup: Setup, held: Memory | None = None) -> Memory:
        """The memory that `close` stored; `held`, if it is an earlier one of the same group, saves decoding."""
        stored = _read(blob, setup)
        memory = (held and held._caught_up(stored)) or cls._decoded(stored, setup)
        ticker = stored.ticker
        memory.state.inbox.marks = {sender: Mark(*mark) for sender, mark in ticker.marks.items()}
        if isinstance(memory.state, Link):
            memory.state.sent = ticker.sent
            memory.state.prune(ticker.override)
            memory.state.learn(unpack_learned(ticker.learned, setup.space.dims))
        memory.records, memory.deliveries = ticker.records, ticker.deliveries
        return memory

    @classmethod
    def _decoded(cls, stored: Stored, setup: Setup) -> Memory:
        memory = cls(decode(stored.snapshot, setup))
        memory._adopt(stored)
        memory._replay(stored, stored.snapshot_version)
        return memory

    def _caught_up(self, stored: Stored) -> Memory | None:
        """Bring a held group up to the stored version, if it is an ancestor of it."""
        if self._changes:
            return None  # a batch that failed half-way touched it
        version, digest = stored.base_version, stored.base_digest
        points = {version: digest}
        for chunk, count in stored.log:
            version, digest = version + count, _next_digest(digest, chunk)
            points[version] = digest
        if points.get(self._version) != self._digest:
            return None
        behind = self._version
        self._adopt(stored)
        self._replay(stored, behind)
        return self

    def _adopt(self, stored: Stored) -> None:
        self._snapshot, self._snapshot_version = stored.snapshot, stored.snapshot_version
        self._base, self._log = (stored.base_version, stored.base_digest), list(stored.log)
        self._version, self._digest = stored.version, stored.base_digest
        for chunk, _ in stored.log:
            self._digest = _next_digest(self._digest, chunk)

    def _replay(self, stored: Stored, behind: int) -> None:
        """Apply the changes beyond version `behind`."""
        dims = self.state.setup.space.dims
        version = stored.base_version
        for chunk, count in stored.log:
            if version + count > behind:
                for change in _read_changes(zstandard.ZstdDecompressor().decompress(chunk))[max(0, behind - version) :]:
                    self._apply(change, dims)
            version += count

    def _apply(self, change: Change, dims: int) -> None:
        if change.message is None:
            self._pass(change)
            return
        message = unpack(change.message, dims)
        if isinstance(message, Publish):
            raise StateError("the log of a group's state holds a publication, which changes nothing")
        self.state.step(change.origin, message, change.now)

    def _pass(self, change: Change) -> None:
        match change.origin:
            case "":
                self.state.expire(change.now)
            case "rest":
                self.state.rest()
            case "rebuild":
                self.state.rebuild()
            case other:
                raise StateError(f"the log of a group's state holds a change that this program does not know: {other}")


def _read(blob: bytes, setup: Setup) -> Stored:
    try:
        stored = _read_stored(blob)
    except msgspec.DecodeError as error:
        raise StateError(
            f"the stored state of {setup.broker}>{setup.link} is damaged: {error}. "
            "Remedy: restore the checkpoint from a copy, or start with an empty one"
        ) from error
    if stored.format != VERSION:
        raise StateError(
            f"the state of {setup.broker}>{setup.link} has format {stored.format}, this program knows {VERSION}. "
            "Remedy: run the version of Lacuna that wrote it, or a later one"
        )
    return stored
