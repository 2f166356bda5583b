"""Peers that are programs of their own: built on demand, told line by line what to do.

A program takes a folder with its input, builds its index, and prints the seconds that this took. Then each line that it
reads is an order, and each line that it prints an answer:

    match      match all points; the seconds that this took
    found      the same, and write all pairs (point, box) into `pairs.bin`, two 32-bit numbers each; their number

So a peer and we can be timed in turns, and no time is counted but that of matching. The sources are beside this module,
in `rust/` and `java/`; what is built from them is kept in `bench/out/peers`.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from threading import Timer

import numpy as np
from numpy.typing import NDArray

from infra.errors import InfraError
from infra.java import find_java

Pairs = NDArray[np.int64]
"""Pairs (point, box), sorted, each as one number."""

HERE = Path(__file__).parent
BUILT = HERE.parent / "out" / "peers"
PATIENCE = 60.0
"""Seconds that a peer may take to build its index and to match once."""
BUILDING = 300.0


class SkippedError(Exception):
    """A peer cannot be had, or takes too long; the message says why."""


def pairs_of(points: NDArray[np.integer], boxes: NDArray[np.integer]) -> Pairs:
    """Return pairs in the order in which all matchers' answers are compared.

    >>> pairs_of(np.array([1, 0]), np.array([3, 4])).tolist()
    [4, 4294967299]
    """
    return np.sort(points.astype(np.int64) << 32 | boxes.astype(np.int64))


class Program:
    """A matcher in a process of its own. Raises `SkippedError` if it is not ready within a minute."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._folder = folder
        self._log = (folder / "log").open("w+")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        try:
            self.built = float(self._answer())
        except BaseException:
            self.close()
            raise

    def match(self) -> float:
        """Match all points and return the seconds that it took."""
        return float(self._ask("match"))

    def pairs(self) -> Pairs:
        """Match all points and return the pairs."""
        count = int(self._ask("found"))
        found = np.fromfile(self._folder / "pairs.bin", np.uint32).reshape(count, 2)
        return pairs_of(found[:, 0], found[:, 1])

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _ask(self, order: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        began = time.monotonic()
        timer = Timer(PATIENCE, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            if time.monotonic() - began >= PATIENCE:
                raise SkippedError(f"it takes longer than {PATIENCE:.0f} s")
            self._log.seek(0)
            raise SkippedError(f"it ended by itself: {self._log.read()[-300:]}")
        return line.strip()


def rust() -> str:
    """Build the peers in Rust if need be, and return the program."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise SkippedError("cargo is not installed")
    built = BUILT / "rust"
    command = [cargo, "build", "--release", "--locked", "--manifest-path", str(HERE / "rust" / "Cargo.toml")]
    _build([*command, "--target-dir", str(built)])
    return str(built / "release" / "peers")


def jvm(program: str) -> list[str]:
    """Fetch the peers in Java if need be, and return the command that runs one of the sources here on them."""
    try:
        command = find_java().path
    except InfraError as error:
        raise SkippedError(str(error)) from error
    jars, source = BUILT / "jars", HERE / "java" / "pom.xml"
    wanted = BUILT / "jars.of"
    if not wanted.exists() or wanted.read_text() != source.read_text():
        maven = shutil.which("mvn")
        if maven is None:
            raise SkippedError("mvn is not installed")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        _build([maven, "-q", "-B", "-f", str(source), *goal])
        wanted.write_text(source.read_text())
    return [command, "-Xmx2g", "-cp", f"{jars}/*", str(HERE / "java" / f"{program}.java")]


def _build(command: list[str]) -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILDING, check=False)
    except subprocess.TimeoutExpired as error:
        raise SkippedError(f"{Path(command[0]).name} took longer than {BUILDING:.0f} s") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise SkippedError(f"{Path(command[0]).name} cannot build it: {said[-1][:200]}")
