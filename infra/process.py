"""Processes that outlive us: start one on its own, know it again, end it.

A process id alone proves nothing: the process may be gone and its number given to another program. So the process
carries a mark among its arguments, and an id counts only while the process behind it carries that mark. A process that
ended but was not yet reaped has no arguments any more and counts as gone.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from infra.errors import InfraError

# The shell leaves at once, so the process is nobody's child: no zombie of ours, no pipe of our caller's kept open. The
# shell, not we, writes the id: killed in between, we would leave a process that nobody knows.
_DETACH = 'log=$1; pid=$2; shift 2; "$@" </dev/null >"$log" 2>&1 & echo $! >"$pid" || { kill -9 $!; exit 1; }'


def spawn(command: list[str], log: Path, pid_file: Path, **environment: str) -> int:
    """Start a process in a session of its own, its words in `log`, its id in `pid_file`; return the id."""
    done = subprocess.run(
        ["/bin/sh", "-c", _DETACH, "sh", str(log), str(pid_file), *command],
        cwd=log.parent,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    if done.returncode:
        raise InfraError(
            f"cannot write {pid_file}; a process that nobody could find again is not started: free the disk"
        )
    return int(pid_file.read_text())


def carries(pid: int, mark: str) -> bool:
    """Tell whether the process lives and has `mark` among its arguments."""
    if Path("/proc/self/cmdline").exists():
        return os.fsencode(mark) in _arguments(pid)
    listing = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
    return b" " + os.fsencode(mark) + b" " in b" " + listing.stdout.strip() + b" "


def _arguments(pid: int) -> list[bytes]:
    """Read a process's arguments; none when it is gone.

    They also read as empty for a moment while a process is replaced by another program (the shell by Java): one that
    has not ended is asked again, up to a second, which only a thread of the kernel needs in full.
    """
    found: list[bytes] = []

    def settled() -> bool:
        try:
            found[:] = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            return True
        return bool(found) or state in (b"Z", b"X")

    wait_until(settled, seconds=1.0, pause=0.005)
    return found


def end(pid: int, mark: str, patience: float) -> bool:
    """End the process: asked first, forced after `patience` seconds; tell whether it had to be forced."""
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 10.0)):
        _signal(pid, mark, number)
        if wait_until(lambda: not carries(pid, mark), seconds):
            return number is signal.SIGKILL
    raise InfraError(f"process {pid} does not end, not even by SIGKILL (a disk that hangs?); see `ps -p {pid}`")


def wait_until(condition: Callable[[], bool], seconds: float, pause: float = 0.1) -> bool:
    """Ask until it holds; tell whether it did within the time given."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def _signal(pid: int, mark: str, number: signal.Signals) -> None:
    try:
        if carries(pid, mark):
            os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise InfraError(f"process {pid} belongs to another user; only that user may stop it") from error
