"""`kernel`: numba's `njit` with a cache on disk that can be trusted.

Compiling all kernels takes half a minute, so they are cached. numba notices when the file of a cached function changed,
but not when a function that it calls, in another file, did: after an edit or an upgrade, a stale copy of the callee
would go on living inside the cached caller. So the cache lies in a folder named after the text of *all* kernels: change
one, and everything is compiled again, once.

In a checkout the folder is beside the modules; installed, it is in the user's cache folder. `NUMBA_CACHE_DIR` puts it
elsewhere.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

HERE = Path(__file__).parent
MARK = b"\n@kernel"
Function = TypeVar("Function", bound=Callable[..., Any])


def _fingerprint() -> str:
    """A name for the text of all modules that hold kernels."""
    texts = (path.read_bytes() for path in sorted(HERE.rglob("*.py")))
    return hashlib.sha256(b"".join(text for text in texts if MARK in text)).hexdigest()[:16]


def _root() -> Path:
    """Return the folder in which caches lie."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(chosen)
    if (HERE.parent / "pyproject.toml").is_file():
        return HERE / "__pycache__"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lacuna" / "kernels"


CACHE = _root() / f"kernels-{_fingerprint()}"
"""The folder of the compiled kernels; it is not there before the first is compiled."""
numba.config.CACHE_DIR = str(CACHE)  # type: ignore[attr-defined]


def kernel(function: Function) -> Function:
    """Compile a function on arrays, when it is first called."""
    return cast(Function, numba.njit(cache=True)(function))


def kernel_inline(function: Function) -> Function:
    """The same, for a function so small that a call would cost more than its body."""
    return cast(Function, numba.njit(cache=True, inline="always")(function))
