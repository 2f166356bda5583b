"""Local services: calls the programs of `infra/` and reads their answers. Nothing imports `infra`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from state.errors import LacunaError


def keep_private() -> None:
    """Let this process and its children make files that only their user can read: they hold what clients sent.

    A folder that others are to read is given a default access list (`setfacl -d`), which stands above this.
    """
    os.umask(os.umask(0o077) | 0o077)


def infra(program: str, *args: str) -> dict[str, Any]:
    """Run `python -m infra.PROGRAM ... --json` and return its answer. Raises `LacunaError` with its error."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", f"infra.{program}", *args, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False, stdin=subprocess.DEVNULL)
    try:
        answer = dict(json.loads(done.stdout.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        raise LacunaError(f"infra.{program} {' '.join(args)}: {done.stderr.strip() or 'no answer'}") from None
    if "error" in answer:
        raise LacunaError(str(answer["error"]))
    return answer


def spark_jars() -> list[str]:
    """Check Java, and return the pinned jars for Spark, which are fetched once."""
    infra("java")
    return [str(jar) for jar in infra("fetch", "spark")["spark"]["jars"]]


def store_settings(*places: str) -> dict[str, str]:
    """Return the settings by which Spark finds object stores: the pinned jars, fetched once, if a place is at `s3a://`.

    They must be on the class path before Java starts: Spark looks for them there, and not among its own jars.
    """
    if not any(place.startswith("s3a://") for place in places):
        return {}
    return {"spark.driver.extraClassPath": str(Path(infra("fetch", "s3")["s3"]["folder"]) / "*")}


@contextmanager
def local_kafka(home: Path, port: int | None) -> Iterator[str]:
    """Run a Kafka on this machine and yield its bootstrap address. Stop it at the end, unless it ran before."""
    args = ["--home", str(home.resolve()), *([] if port is None else ["--port", str(port)])]
    status = infra("kafka", "start", *args)
    try:
        yield str(status["bootstrap"])
    finally:
        if status["changed"]:
            infra("kafka", "stop", "--home", str(home.resolve()))
