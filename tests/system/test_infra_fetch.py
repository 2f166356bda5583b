"""The pinned jars: fetched once, believed only by their hashes, repaired when damaged, refused when wrong.

Real Ivy and real jars throughout. Where what is served matters, Ivy reads from a repository on disk, made of the
fetched jars (`LACUNA_IVY_SETTINGS`, the same door that a site with a mirror uses).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.live import disk_of

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
JAR = "delta-storage-4.4.0.jar"
PATTERN = "[artifact]-[revision].[ext]"


def fetch(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the fetcher to its end."""
    command = [sys.executable, "-m", "infra.fetch", *words]
    env = os.environ | environment
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)


def spark_report(answer: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return what `--json` said of Spark's jars, after a success."""
    assert answer.returncode == 0, answer.stderr
    report: dict[str, Any] = json.loads(answer.stdout)["spark"]
    return report


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """Return the folder of Spark's jars, fetched if this is the first run."""
    return Path(spark_report(fetch("spark", "--json"))["folder"])


@pytest.fixture
def mirror(spark_jars: Path, tmp_path: Path) -> tuple[Path, str]:
    """Return a repository on disk that holds Spark's jars, and the settings that make Ivy use it."""
    folder, settings = tmp_path / "mirror", tmp_path / "settings.xml"
    shutil.copytree(spark_jars, folder)
    settings.write_text(
        '<ivysettings><settings defaultResolver="disk"/><property name="ivy.checksums" value=""/><resolvers>'
        f'<filesystem name="disk"><artifact pattern="{folder}/{PATTERN}"/></filesystem></resolvers></ivysettings>'
    )
    return folder, str(settings)


@pytest.fixture
def copy(spark_jars: Path, tmp_path: Path) -> Path:
    """Return a copy of Spark's jars that a test may damage, below a root of its own, stamp and all."""
    folder = tmp_path / "jars" / "spark"
    shutil.copytree(spark_jars, folder)
    return folder


def flip_a_byte(path: Path) -> None:
    """Damage a file without changing its size."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_what_is_there_is_not_fetched_again(spark_jars: Path) -> None:
    """A second run says so, changes nothing, and needs neither network nor Java."""
    before = {path.name: path.stat().st_mtime_ns for path in spark_jars.iterdir()}
    report = spark_report(fetch("spark", "--json", PATH="", JAVA_HOME=""))
    assert report["fetched"] is False
    assert [Path(jar).parent for jar in report["jars"]] == [spark_jars] * 9
    assert {path.name: path.stat().st_mtime_ns for path in spark_jars.iterdir()} == before


def test_from_the_network_into_an_empty_folder(tmp_path: Path) -> None:
    """The real thing: nothing half-made is left beside the result, which passes a full check."""
    root = tmp_path / "not" / "there" / "yet"
    assert spark_report(fetch("spark", "--json", LACUNA_JARS=str(root)))["fetched"] is True
    assert sorted(path.name for path in root.iterdir()) == [".spark.lock", "spark", "spark.log"]
    assert spark_report(fetch("spark", "--json", "--verify", LACUNA_JARS=str(root)))["fetched"] is False


def test_two_at_once_fetch_once(mirror: tuple[Path, str], tmp_path: Path) -> None:
    """The one that comes second waits and finds the work done."""
    env = os.environ | {"LACUNA_JARS": str(tmp_path / "jars"), "LACUNA_IVY_SETTINGS": mirror[1]}
    command = [sys.executable, "-m", "infra.fetch", "spark", "--json"]
    both = [subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(json.loads(output)["spark"]["fetched"] for output in outputs) == [False, True]


def test_a_fetch_that_was_killed_leaves_no_folder(mirror: tuple[Path, str], tmp_path: Path) -> None:
    """Killed at work, it has put nothing in place; the next run does."""
    root = tmp_path / "jars"
    env = os.environ | {"LACUNA_JARS": str(root), "LACUNA_IVY_SETTINGS": mirror[1]}
    command = [sys.executable, "-m", "infra.fetch", "spark"]
    with subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "fetching 9 jars" in process.stderr.readline()
        process.kill()
    assert not (root / "spark").exists()
    assert spark_report(fetch("spark", "--json", LACUNA_JARS=str(root), LACUNA_IVY_SETTINGS=mirror[1]))["fetched"]


def test_damage_is_noticed_and_repaired(copy: Path, mirror: tuple[Path, str]) -> None:
    """A jar with a flipped byte, one cut short, one missing, one too many: each is named, and the set made whole."""
    flipped, cut, lost, *_ = sorted(copy.glob("*.jar"))
    flip_a_byte(flipped)
    os.truncate(cut, 1000)
    lost.unlink()
    (copy / "stray-1.0.jar").write_bytes(b"")
    answer = fetch("spark", "--json", LACUNA_JARS=str(copy.parent), LACUNA_IVY_SETTINGS=mirror[1])
    assert spark_report(answer)["fetched"] is True
    assert answer.stderr.count("spark: not as pinned: ") == 1
    for words in (
        "stray-1.0.jar is not pinned",
        f"{flipped.name} has",
        f"{cut.name} has",
        f"{lost.name} cannot be read",
    ):
        assert words in answer.stderr
    served, repaired = ({path.name: path.read_bytes() for path in folder.glob("*.jar")} for folder in (mirror[0], copy))
    assert repaired == served


def test_damage_that_shows_in_no_size_or_time_is_found_by_verify(copy: Path, mirror: tuple[Path, str]) -> None:
    """The quick check cannot see it; reading every file does."""
    jar, environment = copy / JAR, {"LACUNA_JARS": str(copy.parent), "LACUNA_IVY_SETTINGS": mirror[1]}
    spark_report(fetch("spark", "--json", **environment))
    times = (jar.stat().st_atime_ns, jar.stat().st_mtime_ns)
    flip_a_byte(jar)
    os.utime(jar, ns=times)
    assert spark_report(fetch("spark", "--json", **environment))["fetched"] is False
    assert spark_report(fetch("spark", "--json", "--verify", **environment))["fetched"] is True
    assert jar.read_bytes() == (mirror[0] / JAR).read_bytes()


def test_a_wrong_jar_from_the_network_is_refused(mirror: tuple[Path, str], tmp_path: Path) -> None:
    """The message names the file, what was expected and what was found; nothing is put in place."""
    flip_a_byte(mirror[0] / JAR)
    answer = fetch("spark", "--json", LACUNA_JARS=str(tmp_path / "jars"), LACUNA_IVY_SETTINGS=mirror[1])
    assert answer.returncode == 1
    found = subprocess.run(["sha256sum", mirror[0] / JAR], capture_output=True, text=True, check=True).stdout.split()[0]
    pin = "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"
    assert f"{JAR} has SHA-256 {found}, expected {pin}" in json.loads(answer.stdout)["error"]
    assert not (tmp_path / "jars" / "spark").exists()


def test_a_jar_that_cannot_be_had_is_named(mirror: tuple[Path, str], tmp_path: Path) -> None:
    """A repository that lacks one jar: that one is named, and where Ivy's words are."""
    (mirror[0] / JAR).unlink()
    answer = fetch("spark", LACUNA_JARS=str(tmp_path / "jars"), LACUNA_IVY_SETTINGS=mirror[1])
    assert answer.returncode == 1
    assert f"1 of 9 jars could not be had: {JAR}." in answer.stderr
    assert (tmp_path / "jars" / "spark.log").is_file()


def test_no_network_is_told_with_the_remedy(tmp_path: Path) -> None:
    """Java is sent to a proxy that is not there: a closed port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    proxy = f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={port} -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={port}"
    answer = fetch("spark", LACUNA_JARS=str(tmp_path / "jars"), JAVA_TOOL_OPTIONS=proxy)
    assert answer.returncode == 1
    assert "none of the 9 jars could be had: no network" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """One message with the folder and the remedy."""
    (tmp_path / "file").write_text("")
    answer = fetch("spark", LACUNA_JARS=str(tmp_path / "file" / "jars"))
    assert answer.returncode == 1
    assert f"cannot write below {tmp_path}/file/jars" in answer.stderr
    assert "set LACUNA_JARS to another folder" in answer.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of(tmp_path / "disk", "30m") as folder:
        yield folder


def test_a_full_disk_is_told_with_what_is_needed(small_disk: Path) -> None:
    """Before anything is fetched."""
    answer = fetch("spark", LACUNA_JARS=str(small_disk))
    assert answer.returncode == 1
    assert f"the disk of {small_disk} has 30 MB free; fetching needs 44 MB" in answer.stderr
    assert [path.name for path in small_disk.iterdir()] == [".spark.lock"]
