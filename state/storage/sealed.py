"""The header around everything that is stored: a magic number, the version of the format, a checksum.

    bytes 0..5    b"lacuna"
    byte  6       version of the format
    rest          a zstd frame (with checksum) of one MessagePack value

A version is for ever: a newer program reads older bytes by migrations, one function per step; an older program refuses
newer bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
import zstandard

from state.errors import StateError

MAGIC = b"lacuna"
RESTORE = "Remedy: restore the checkpoint from a copy, or begin a new life: lacuna apply --from topics"
Migrations = Mapping[int, Callable[[bytes], bytes]]
"""For each old version: its MessagePack payload as that of the next version."""
T = TypeVar("T")

_write = msgspec.msgpack.Encoder().encode


def seal(value: object, version: int) -> bytes:
    """Return a value as bytes. The same value always gives the same bytes."""
    return MAGIC + bytes([version]) + compress(_write(value))


def unseal(sealed: bytes, kind: type[T], version: int, migrations: Migrations, what: str) -> T:
    """Return the value that was sealed. Raises `StateError` if it is damaged, foreign, or of an unknown version."""
    payload = decompress(sealed[check_version(sealed, version, migrations, what) :], what)
    for step in range(sealed[len(MAGIC)], version):
        payload = migrations[step](payload)
    return read(payload, kind, what)


def check_version(sealed: bytes, version: int, migrations: Migrations, what: str) -> int:
    """Return where the content of sealed bytes begins. Raises `StateError` if this program cannot read it."""
    if sealed[: len(MAGIC)] != MAGIC or len(sealed) <= len(MAGIC):
        raise damaged(what, "it does not begin as state of Lacuna does")
    found = sealed[len(MAGIC)]
    if found > version or (found < version and found not in migrations):
        raise StateError(
            f"{what} has version {found} of its format, this program knows up to {version}. "
            "Remedy: run the version of Lacuna that wrote it, or a later one"
        )
    return len(MAGIC) + 1


def compress(payload: bytes) -> bytes:
    """Compress bytes, with a checksum."""
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(payload)


def decompress(compressed: bytes, what: str) -> bytes:
    """Return the bytes that were compressed. Raises `StateError` if they are damaged."""
    try:
        return zstandard.ZstdDecompressor().decompress(compressed)
    except (zstandard.ZstdError, MemoryError) as error:
        raise damaged(what, str(error)) from error


def read(payload: bytes, kind: type[T], what: str) -> T:
    """Read a MessagePack value. Raises `StateError` if it is damaged."""
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged(what, str(error)) from error


def damaged(what: str, why: str) -> StateError:
    """Return the error about state that is not what was written."""
    return StateError(f"{what} is damaged: {why}. {RESTORE}")
