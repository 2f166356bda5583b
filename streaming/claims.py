"""One at a time: a lock on a file says that a checkpoint is in use.

Two routers on one checkpoint would give the same numbers to different letters; two archives would both believe that a
row is theirs to add. Spark notices next to nothing of that (its writer of checkpoints on local paths only looks whether
a file is there, see `pipeline`). So the first user of a checkpoint locks a file beside it. The lock ends with its
process and needs no cleaning up. Only local paths can be locked: with a checkpoint in an object store, the operator
must run only one job.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from state.errors import LacunaError
from streaming.paths import is_local, refusals

NOTHING = -1
"""The lock of a place that cannot be locked."""


class Claimed(LacunaError):
    """Another program holds the lock."""


def claim(file: str, used: str, what: str) -> int:
    """Lock `file` for this process. Return the open file, for `release`. `used` is the checkpoint, `what` its user."""
    if not is_local(file):
        return NOTHING
    while True:
        lock = _open(file, used)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise taken(used, what) from None
        if _is_there(lock, file):
            return lock
        os.close(lock)


@contextmanager
def alone(file: str, used: str) -> Iterator[None]:
    """Hold a lock for a moment; wait while another program holds it."""
    if not is_local(file):
        yield
        return
    lock = _open(file, used)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _open(file: str, used: str) -> int:
    with refusals("lake.checkpoint", used):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        return os.open(file, os.O_RDWR | os.O_CREAT, 0o600)


def _is_there(lock: int, file: str) -> bool:
    """Return whether the locked file is still the one at its path: a removed one locks nobody out."""
    try:
        return os.path.samestat(os.fstat(lock), Path(file).stat())
    except FileNotFoundError:
        return False


def taken(used: str, what: str) -> Claimed:
    """Return the error for the second program."""
    return Claimed(
        f"{used}: {what} runs on this checkpoint already, and there can be only one. Remedy: stop it first, or use "
        "another kafka.prefix, lake.checkpoint and lake.path"
    )


def release(lock: int) -> None:
    """Give a lock back."""
    if lock != NOTHING:
        os.close(lock)
