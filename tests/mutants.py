"""`make mutants`: plant faults one by one, and see whether the fast tests catch them.

A test suite is worth what it catches. `mutants.toml` lists about a hundred faults, each a place in the core or the
shell and what stands there instead. Most were drawn at random (a line, then a change of it: a statement dropped, a
bound moved by one, a condition turned), so that they are not the faults that somebody had a test in mind for. Left out
are those that change nothing that can be seen, those that mypy finds, and those in code that only runs with a JVM or a
Kafka.

    for each fault, in a copy of the tree
        plant it ──▶ tests nearest to the module ──failed──▶ caught
                              └──passed──▶ all fast tests, on all cores ──failed──▶ caught
                                                               └──passed──▶ survived

A test catches a fault if it fails with it and passes without it, which is looked at in the end, for all of them.
Whatever runs for longer than `MOST_SECONDS` of CPU is caught, too. The nearest tests run in a fork of this process,
which has imported numba and pytest already. Results are written down one by one: a run that was ended goes on where it
was, and tries again what survived.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.report import Report
from lacuna.cli.console import console
from lacuna.cli.progress import counted

ROOT = Path(__file__).parents[1]
FAULTS = Path(__file__).with_suffix(".toml")
WORK = ROOT / ".lacuna" / "mutants.json"
MOST_SECONDS = 240
"""CPU seconds of the nearest tests; they take no more than one minute."""
MOST_BYTES = 12 << 30
OPTIONS = ("-q", "-p", "no:cacheprovider", "--hypothesis-profile", "quick")
OURS = ("access", "bench", "lacuna", "producers", "state", "streaming", "tests")
LIBRARIES = (
    "numba",
    "hypothesis.strategies",
    "hypothesis.extra.numpy",
    "pyarrow.parquet",
    "pandas",
    "deltalake",
    "lark",
)
"""What takes seconds to import; forks have it from this process."""
OUT_OF_TIME = "out of time or memory"
NO_TESTS = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)


@dataclass(frozen=True)
class Fault:
    """A place in a file, what stands there instead, and what that breaks."""

    file: str
    old: str
    new: str
    breaks: str

    def planted(self, text: str) -> str:
        """Return the text of the file with the fault. Raises `ValueError` unless its place is there exactly once."""
        count = text.count(self.old)
        if count != 1 or self.old == self.new:
            raise ValueError(f"{self.file}: the place of the fault ({self.breaks}) is there {count} times, not once")
        return text.replace(self.old, self.new)

    @property
    def key(self) -> str:
        """A name that changes with the fault."""
        return hashlib.sha256(f"{self.file}\0{self.old}\0{self.new}".encode()).hexdigest()[:12]


def read_faults() -> tuple[list[Fault], dict[str, list[str]]]:
    """Return all faults, and the tests nearest to each module."""
    table = tomllib.loads(FAULTS.read_text())
    return [Fault(**{k: v.strip("\n") for k, v in one.items()}) for one in table["fault"]], table["near"]


# the copy


@contextmanager
def copy_of_tree() -> Iterator[Path]:
    """Copy what is tracked, with compiled modules and kernels, into a folder that goes again."""
    with tempfile.TemporaryDirectory(prefix="lacuna-mutants-") as folder:
        copy = Path(folder).resolve() / "tree"
        for name in _git("ls-files").splitlines():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        for built in (".venv", ".jars"):
            (copy / built).symlink_to(ROOT / built)
        _take_kernels(copy)
        yield copy


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _take_kernels(copy: Path) -> None:
    """Take compiled kernels along. numba keeps them by a hash of the folder of their module."""
    for kernels in (ROOT / "state" / "__pycache__").glob("kernels-*"):
        for module in {path.parent for path in ROOT.glob("state/**/*.py")}:
            there = copy / module.relative_to(ROOT)
            old, new = (f"{at.name}_{hashlib.sha1(str(at).encode()).hexdigest()}" for at in (module, there))
            if (kernels / old).is_dir():
                shutil.copytree(kernels / old, copy / "state" / "__pycache__" / kernels.name / new)


@contextmanager
def planted(copy: Path, fault: Fault | None) -> Iterator[None]:
    """Plant a fault in the copy, and take it out again."""
    if fault is None:
        yield
        return
    path = copy / fault.file
    original = path.read_text()
    stands = path.stat()
    path.write_text(fault.planted(original))
    os.utime(path, (stands.st_atime, stands.st_mtime + 60))  # or its compiled form, of the same size, would be taken
    try:
        yield
    finally:
        path.write_text(original)
        os.utime(path, (stands.st_atime, stands.st_mtime))


# tests


def failures_of(copy: Path, tests: Sequence[str], *more: str) -> list[str]:
    """Run tests in a fork. Return those that fail."""
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.close(told)
        _run_tests(copy, [*more, *tests], tell)
    os.close(tell)
    with os.fdopen(told) as answers:
        failures = answers.read().splitlines()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code in NO_TESTS:
        raise ValueError(f"pytest finds no tests, or cannot be called so: {' '.join([*more, *tests])}")
    return failures or [OUT_OF_TIME if code < 0 else f"exit code {code}"] * (code != 0)


def _run_tests(copy: Path, words: Sequence[str], tell: int) -> None:
    """Be the fork: run the tests of the copy, tell which failed, and end."""

    class Failures:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                os.write(tell, f"{report.nodeid}\n".encode())

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                os.write(tell, f"{report.nodeid}\n".encode())

    os.chdir(copy)
    os.environ.update(_environment(copy))
    for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
        del sys.modules[name]
    sys.path[:] = [str(copy)] + [path for path in sys.path if path not in ("", str(ROOT))]
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    code = 1
    try:
        code = int(pytest.main([*OPTIONS, *words], plugins=[Failures()]))
    finally:
        os._exit(code)


def _environment(copy: Path) -> dict[str, str]:
    return {"CI": "true", "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}


def first_failure_of_all(copy: Path) -> str | None:
    """Run all fast tests, on all cores. Return the first that fails; None if all pass."""
    all_but_own = ("--ignore", "tests/core/test_mutants.py")  # it fails with every fault: none can be planted twice
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-x", "-n", "auto", "--dist", "worksteal", *all_but_own]
    done = subprocess.run(command, cwd=copy, env=os.environ | _environment(copy), capture_output=True, text=True)
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else None if done.returncode == 0 else f"exit code {done.returncode}"


def catcher(copy: Path, fault: Fault, near: dict[str, list[str]], *, only_near: bool) -> str | None:
    """Return the test that catches a fault; None if it survives."""
    tests = [f"tests/core/test_{name}.py" for name in near[fault.file]]
    with planted(copy, fault):
        for failed in failures_of(copy, tests, "-x"):
            return failed
        return None if only_near else first_failure_of_all(copy)


def refuse_unsound(copy: Path, found: dict[str, Any]) -> None:
    """Raise `SystemExit` if a test that caught something fails without any fault, too."""
    tests = {one["caught"] for one in found.values() if one["caught"] and "::" in one["caught"]}
    if tests and (failed := failures_of(copy, sorted(tests))):
        raise SystemExit(f"{failed} fail without any fault. Remedy: make the fast tests pass, and begin --again")


# results


def tried_before() -> dict[str, Any]:
    """Return what earlier runs found out, by key."""
    return dict(json.loads(WORK.read_text())) if WORK.exists() else {}


def _is_caught(found: dict[str, Any], fault: Fault) -> bool:
    return found.get(fault.key, {}).get("caught") is not None


def write_down(found: dict[str, Any]) -> None:
    """Keep what was found out so far."""
    WORK.parent.mkdir(exist_ok=True)
    beside = WORK.with_suffix(".new")
    beside.write_text(json.dumps(found, indent=1))
    beside.replace(WORK)


def report(faults: Sequence[Fault], found: dict[str, Any]) -> Report:
    """Return the share of faults that is caught, and each with the test that caught it."""
    made = Report("mutants")
    rows = [{"file": f.file, "breaks": f.breaks, **found[f.key]} for f in faults if f.key in found]
    caught = sum(row["caught"] is not None for row in rows)
    made.add("faults", len(rows))
    made.add("caught", caught)
    made.add("caught_percent", 100 * caught / max(1, len(rows)), "at least 95")
    made.details = {"survived": [row for row in rows if row["caught"] is None], "faults": rows}
    return made


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--again", action="store_true", help="forget what earlier runs found out")
    parser.add_argument("--near", action="store_true", help="only what is untried, only by the nearest tests")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="only every N-th fault, from the K-th")
    parser.add_argument("--file", default="", metavar="TEXT", help="only faults in files whose path has this text")
    parser.add_argument("--keep", action="store_true", help="write the result into bench/results")
    options = parser.parse_args(words)
    part, parts = map(int, options.part.split("/"))
    faults, near = read_faults()
    found = {} if options.again else tried_before()
    some = [fault for fault in faults if options.file in fault.file][part - 1 :: parts]
    left = [fault for fault in some if not ((options.near and fault.key in found) or _is_caught(found, fault))]

    with copy_of_tree() as copy, counted("faults", len(left)) as show:
        for library in LIBRARIES:
            importlib.import_module(library)
        for done, fault in enumerate(left):
            show(done)
            caught = catcher(copy, fault, near, only_near=options.near)
            found = tried_before() | {fault.key: {"caught": caught}}
            write_down(found)
            by = f", by {caught}" if caught else ""
            print(f"{'caught' if caught else 'SURVIVED'}: {fault.file}: {fault.breaks}{by}", flush=True)
        if not options.near:
            refuse_unsound(copy, found)
    made = report(faults, found)
    made.show()
    if options.keep:
        console().print(str(made.keep()))


if __name__ == "__main__":
    main()
