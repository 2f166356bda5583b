"""The distribution: a wheel that holds what it should, installed into an environment of its own, and used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"access", "infra", "lacuna", "producers", "state", "streaming"}
PROGRAM = """
import sys
from importlib.util import find_spec
from producers.client import Client
heavy = ("pyspark", "pyarrow", "pandas", "deltalake", "matplotlib")
print([name for name in heavy if name in sys.modules], find_spec("bench"))
"""

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES - {"infra"}} <= set(names)
    assert {"infra/jars.toml", "streaming/log4j2.properties"} <= set(names)
    assert {"lacuna/serve/static/console.css", "lacuna/serve/templates/base.html"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith((".jar", ".nbi", ".nbc", ".pyc"))]


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the wheel; without a package index it borrows this one's libraries."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(home / "bin" / "pip"), "install", "--quiet", "--retries", "0", "--timeout", "30"]
    if subprocess.run([*pip, str(wheel)], capture_output=True, check=False, env=outside()).returncode:
        subprocess.run([*pip, "--no-deps", str(wheel)], check=True, env=outside())
        (site,) = home.glob("lib/python*/site-packages")
        (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"


def outside() -> dict[str, str]:
    """Return the variables of an environment in which the sources are not found."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


def run(environment: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(environment / words[0]), *words[1:]]
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(command, cwd=folder, env=outside() | cache, capture_output=True, text=True, check=False)


def test_a_producer_is_installed_without_spark_and_the_tour_works(environment: Path, tmp_path: Path) -> None:
    assert run(environment, tmp_path, "lacuna", "--version").stdout == "lacuna 0.1.0\n"
    assert run(environment, tmp_path, "lacuna", "init").returncode == 0
    done = run(environment, tmp_path, "lacuna", "simulate", "events.jsonl", "--json")
    assert json.loads(done.stdout)["deliveries"] == 3, done.stderr
    loaded = run(environment, tmp_path, "python", "-c", PROGRAM)
    assert loaded.stdout == "[] None\n", loaded.stderr
    assert "benchmarks are not part of the installed package" in run(environment, tmp_path, "lacuna", "bench").stderr


def test_what_is_not_installed_is_named(environment: Path, tmp_path: Path) -> None:
    if run(environment, tmp_path, "python", "-c", "import pyspark").returncode == 0:
        pytest.skip("no package index: the environment borrows the libraries of this one")
    assert "Remedy: pip install 'lacuna[spark]'" in run(environment, tmp_path, "lacuna", "run").stderr


def test_caches_go_to_the_users_folder(environment: Path, tmp_path: Path) -> None:
    program = "from infra.jars import root; from state.kernels import CACHE; print(root(), CACHE.parent)"
    folder = tmp_path / "cache" / "lacuna"
    assert run(environment, tmp_path, "python", "-c", program).stdout == f"{folder / 'jars'} {folder / 'kernels'}\n"
