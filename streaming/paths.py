"""Paths of what is kept: a folder of this machine, or an address that every machine of a cluster knows.

Paths without a scheme and `file:` ones are folders here; anything else (`s3://...`, `hdfs://...`) goes through Arrow's
file systems. Whatever a disk refuses becomes one message with value, rule and remedy.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow import fs

from state.errors import LacunaError


def is_local(path: str) -> bool:
    """Return whether a path names a folder of this machine: it has no scheme, or `file:`."""
    return "://" not in path or path.startswith("file:")


def absolute(path: str) -> str:
    """The path as both writers understand it wherever they run; an address (`s3://...`) stays as it is.

    >>> absolute("s3://bucket/lake"), absolute("file:///srv/lake")
    ('s3://bucket/lake', '/srv/lake')
    """
    if not is_local(path):
        return path.rstrip("/")
    return str(Path("/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path).resolve())


def file_system(path: str) -> tuple[Any, str]:
    """The file system of a path or address, and the path in it."""
    place = absolute(path)
    if is_local(place):
        return fs.LocalFileSystem(), place
    system, root = fs.FileSystem.from_uri(place.replace("s3a://", "s3://", 1))
    return system, root


FULL = ("No space left on device", "ENOSPC", "Disk quota exceeded")


@contextmanager
def refusals(name: str, path: str) -> Iterator[None]:
    """Turn a refusal of the disk, whoever reports it, into one message: value, rule, remedy."""
    try:
        yield
    except Exception as error:
        code, text = getattr(error, "errno", None), getattr(error, "strerror", None) or str(error)
        if code in (errno.ENOSPC, errno.EDQUOT) or any(sign in text for sign in FULL):
            rule, remedy = "its disk must have room", "free some space, and start again: nothing is lost"
            text = next((sign for sign in FULL if sign in text), text)
        elif isinstance(error, OSError):
            rule, remedy = "it must be a folder that this user may write to", "change its owner, or choose another one"
        else:
            raise
        raise LacunaError(f"{name} = {path!r}: {rule} ({text}). Remedy: {remedy}.") from error
