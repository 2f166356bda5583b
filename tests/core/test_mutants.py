"""`make mutants`: each fault has its place in the code, once; what is planted is caught, and taken out again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import ROOT, Fault, read_faults, report

FAULTS, NEAR = read_faults()


def test_there_are_about_a_hundred_all_different() -> None:
    assert 90 <= len({fault.key for fault in FAULTS}) == len(FAULTS) <= 150


def test_every_fault_can_be_planted() -> None:
    """A fault fails here when its line has changed: write it again for the line as it is now, or take it out."""
    for fault in FAULTS:
        compile(fault.planted((ROOT / fault.file).read_text()), fault.file, "exec")


def test_every_fault_has_tests_near_it() -> None:
    assert {fault.file for fault in FAULTS} == NEAR.keys()
    for names in NEAR.values():
        assert all((ROOT / "tests" / "core" / f"test_{name}.py").is_file() for name in names)


@pytest.mark.parametrize(("old", "count"), [("gone", 0), ("a = 1", 2)])
def test_a_fault_whose_place_is_not_there_once_is_an_error(old: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"module.py: the place of the fault .all. is there {count} times"):
        Fault("module.py", old, "b = 2", "all").planted("a = 1\nc = 3\na = 1\n")


CODE = "def more(n):\n    return n + 1\n"
TEST = (
    "from state.module import more\n\ndef test_more():\n    assert more(1) == 2\n\ndef test_other():\n    assert True\n"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {"state/module.py": CODE, "tests/test_module.py": TEST, "conftest.py": ""}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    profile = "from hypothesis import settings\nsettings.register_profile('quick')\n"
    (tmp_path / "conftest.py").write_text(profile)
    return tmp_path


def test_a_fault_is_caught_by_the_test_that_fails_with_it_and_leaves_no_trace(tree: Path) -> None:
    """In a process of its own, as `make mutants` is: the tests run in a fork."""
    script = f"""
from pathlib import Path
from tests.mutants import Fault, failures_of, planted
tree = Path({str(tree)!r})
for new in ("n + 2", "n + 1 "):
    with planted(tree, Fault("state/module.py", "n + 1", new, "more")):
        print(failures_of(tree, ["tests/test_module.py"], "-x"))
print(failures_of(tree, ["tests/test_module.py"]))
with planted(tree, Fault("state/module.py", "return n + 1", "while True: pass", "more")):
    import tests.mutants
    tests.mutants.MOST_SECONDS = 2
    print(failures_of(tree, ["tests/test_module.py"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, env=os.environ, check=True
    )
    caught = "['tests/test_module.py::test_more']"
    assert done.stdout.splitlines() == [caught, "[]", "[]", "['out of time or memory']"]
    assert (tree / "state/module.py").read_text() == CODE


def test_no_tests_catch_nothing(tree: Path) -> None:
    script = f"from tests.mutants import *; failures_of(Path({str(tree)!r}), ['conftest.py'])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pytest finds no tests" in done.stderr


def test_the_report_counts_what_was_tried() -> None:
    one, two = FAULTS[:2]
    made = report(FAULTS, {one.key: {"caught": "a test"}, two.key: {"caught": None}})
    assert made.figures == {"faults": 2, "caught": 1, "caught_percent": 50.0}
    assert [row["breaks"] for row in made.details["survived"]] == [two.breaks]
