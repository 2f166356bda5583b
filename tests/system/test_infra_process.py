"""Processes that outlive us: known by their mark, never mistaken for gone, ended for certain."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra import process

pytestmark = pytest.mark.system

MARK = "-Dlacuna.test=a mark with spaces"
PAUSE = "import signal; signal.pause()"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); {PAUSE[15:]}"

Start = Callable[[str], int]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return what starts a detached Python program that carries the mark, its words in `log`; all are ended after."""
    started: list[int] = []

    def spawn(code: str) -> int:
        command = [sys.executable, "-S", "-c", code, MARK]
        started.append(process.spawn(command, tmp_path / "log", tmp_path / "pid"))
        return started[-1]

    yield spawn
    for pid in started:
        process.end(pid, MARK, patience=5.0)


def test_a_process_is_never_taken_for_gone_while_it_becomes_another_program(start: Start) -> None:
    """The shell is replaced by the program just after the start, and has no arguments for a moment."""
    for _ in range(30):
        pid = start(PAUSE)
        assert all(process.carries(pid, MARK) for _ in range(50))
        os.kill(pid, signal.SIGKILL)


def test_it_is_nobodys_child_and_in_a_session_of_its_own(start: Start) -> None:
    """So no signal to our group reaches it, and its end leaves no zombie of ours."""
    pid = start(PAUSE)
    assert os.getsid(pid) != os.getsid(0)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    assert process.end(pid, MARK, patience=30.0) is False
    assert not process.carries(pid, MARK)


def test_one_that_ignores_the_request_is_forced(start: Start, tmp_path: Path) -> None:
    """SIGTERM first, SIGKILL when patience is at its end."""
    pid, log = start(DEAF), tmp_path / "log"
    assert process.wait_until(lambda: log.exists() and log.read_text() != "", 30.0)
    assert process.end(pid, MARK, patience=0.3) is True
    assert not process.carries(pid, MARK)


def test_another_program_is_left_alone(start: Start) -> None:
    """Without the mark it is not ours, whatever its number."""
    pid = start(PAUSE)
    assert process.end(pid, "another mark", patience=1.0) is False
    assert process.carries(pid, MARK)
