"""Which Java, and is it new enough: `python -m infra.java [--json]`.

Spark 4 and Kafka 4 need Java 17 or newer, and say so only by failing in their own ways (an unknown class version, an
unknown option). So ask first. `JAVA_HOME` wins over `PATH`, as it does for Spark, or the two would run on different
Javas; a `JAVA_HOME` without a Java is refused rather than skipped, because Spark would not skip it either.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.errors import InfraError, guarded

OLDEST = 17
SPARK_MODULE = "jdk.incubator.vector"  # Spark starts its JVM with --add-modules of it; cut-down run-times lack it
REMEDY = (
    f"install Java {OLDEST} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; Fedora: dnf install "
    "java-21-openjdk-headless; macOS: brew install openjdk@17), or point JAVA_HOME at one"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was asked for its version and is new enough."""

    path: str
    version: int


def find_java() -> Java:
    """Return the Java that Lacuna will run on, or say what is wrong with it."""
    path = _locate()
    answer = _ask(path, "-version")
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    if found is None:
        raise InfraError(f"{path} -version does not name a version (it says: {answer.strip()[:200]!r}); {REMEDY}")
    version = int(found.group(1))
    if version < OLDEST:
        raise InfraError(f"{path} is Java {version}; Spark 4 and Kafka 4 need Java {OLDEST} or newer; {REMEDY}")
    return Java(path, version)


def require_spark_module(java: Java) -> None:
    """Refuse a cut-down run-time: Spark would end at its start with a FindException."""
    answer = _ask(java.path, f"--add-modules={SPARK_MODULE}", "-version")
    if "FindException" in answer:
        raise InfraError(f"{java.path} lacks the module {SPARK_MODULE}, which Spark asks for at its start; {REMEDY}")


def _locate() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home, "bin", "java")
        if not os.access(path, os.X_OK):
            raise InfraError(f"JAVA_HOME is {home!r}, but there is no program {path}; unset it, or {REMEDY}")
        return str(path)
    found = shutil.which("java")
    if found is None:
        raise InfraError(f"no java on PATH and no JAVA_HOME; Spark and Kafka run on Java; {REMEDY}")
    return found


def _ask(path: str, *options: str) -> str:
    try:
        answer = subprocess.run(
            [path, *options], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfraError(f"{path} does not run ({error}); {REMEDY}") from error
    return (answer.stderr + answer.stdout).decode(errors="replace")


def main() -> int:
    """Print the Java that Lacuna will run on."""
    parser = argparse.ArgumentParser(prog="python -m infra.java", description="Which Java Lacuna will run on.")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object on stdout")
    as_json = parser.parse_args().json

    def show() -> int:
        java = find_java()
        require_spark_module(java)
        print(json.dumps(asdict(java)) if as_json else f"Java {java.version} at {java.path}")
        return 0

    return guarded(show, as_json)


if __name__ == "__main__":
    sys.exit(main())
