"""The one error of this folder, and the one way in which its programs report it.

Whoever meets it is setting up or operating, not debugging: the message says what was found, which rule it breaks and
what to do, and no traceback hides it. Anything else that escapes is a defect of ours and keeps its traceback.

    InfraError      the machine is not as it must be (Java, network, disk, port, jar, broker)
"""

import contextlib
import errno
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

Say = Callable[[str], None]


class InfraError(Exception):
    """The machine is not as it must be; the message carries value, rule and remedy."""


def say(message: str) -> None:
    """Tell a person; stdout belongs to results, so that a program can read them."""
    print(message, file=sys.stderr, flush=True)


def guarded(action: Callable[[], int], as_json: bool) -> int:
    """Run a program's body: its exit code, or 1 with the error told (with `--json` also as `{"error": ...}`)."""
    try:
        return action()
    except InfraError as error:
        say(f"error: {error}")
        if as_json:
            print(json.dumps({"error": str(error)}), flush=True)
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130


@contextlib.contextmanager
def writing(folder: Path, remedy: str) -> Iterator[None]:
    """Turn the operating system's refusal to write below `folder` into a message that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InfraError(f"no space left on the disk of {folder}; free some, or {remedy}") from error
        raise InfraError(
            f"cannot write below {folder} ({error.strerror}: {error.filename}); it must be a folder this user may "
            f"write to; change that, or {remedy}"
        ) from error
