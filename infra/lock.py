"""One process at a time, across processes: an advisory lock on a file.

The kernel drops it when its holder dies, however it dies, so there is no stale lock to clear: that is why this is
`flock` and not a file whose existence means "taken".
"""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from infra.errors import Say, say


@contextlib.contextmanager
def exclusive(path: Path, waiting: str, tell: Say = say) -> Iterator[None]:
    """Hold the lock at `path`; if another process holds it, tell `waiting` and wait for it."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(waiting)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
