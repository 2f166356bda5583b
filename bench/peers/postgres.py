"""PostgreSQL's cube with a GiST index: a server of its own in a folder, without durability and on one core.

The time of a question is the server's own (EXPLAIN ANALYZE), so neither the way to it nor its answers are counted.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bench.peers.programs import PATIENCE, Pairs, SkippedError, pairs_of
from bench.report import seconds
from state.space import Keys

SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "shared_buffers": "1GB",
    "maintenance_work_mem": "512MB",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "autovacuum": "off",
    "statement_timeout": f"{PATIENCE:.0f}s",
}
USER = "postgres"
"""The account that the server runs as where we are the superuser, under whom it refuses to run."""


class Server:
    """A server that stands until `close`. Raises `SkippedError` where PostgreSQL or its cube is not installed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._user = folder, USER if os.geteuid() == 0 else None
        folder.mkdir(mode=0o755)
        if self._user:
            try:
                shutil.chown(folder, self._user)
            except LookupError as error:
                raise SkippedError(f"there is no account {USER} to run it as") from error
        self._run(_program("initdb"), "-D", f"{folder}/db", "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8")
        options = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [_program("postgres"), "-D", f"{folder}/db", "-k", str(folder), *options],
            cwd=folder,
            user=self._user,
            stdout=self._log,
            stderr=self._log,
        )
        try:
            self._await()
            self.run("CREATE EXTENSION cube")
        except BaseException:
            self.close()
            raise

    def run(self, sql: str, rows: Iterable[str] = ()) -> str:
        """Run statements, with the rows of a `COPY ... FROM STDIN` where there is one, and return what they print."""
        words = (_program("psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", str(self._folder), "-U", USER, "-d", USER)
        return self._run(*words, "-c", sql, rows="".join(f"{row}\n" for row in rows))

    def timed(self, sql: str) -> float:
        """Return the seconds that the server takes for a question."""
        plan = self.run(f"SET enable_seqscan = off; EXPLAIN (ANALYZE, TIMING OFF) {sql}")
        found = re.search(r"Execution Time: ([\d.]+) ms", plan)
        if found is None or "boxes_index" not in plan:
            raise AssertionError(f"PostgreSQL does not use its index: {plan}")
        return float(found.group(1)) / 1000

    def close(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def _await(self) -> None:
        deadline = time.monotonic() + PATIENCE
        ready = [_program("pg_isready"), "-q", "-h", str(self._folder)]
        while subprocess.run(ready, check=False, capture_output=True).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SkippedError(f"the server does not start: {(self._folder / 'log').read_text()[-300:]}")
            time.sleep(0.05)  # between two looks at a condition

    def _run(self, *command: str, rows: str = "") -> str:
        done = subprocess.run(
            command, input=rows, capture_output=True, text=True, cwd=self._folder, user=self._user, check=False
        )
        if done.returncode:
            raise SkippedError(f"{Path(command[0]).name}: {done.stderr.strip()[-300:]}")
        return done.stdout


def _program(name: str) -> str:
    """Return where a program of PostgreSQL is; Debian has most of them beside its libraries only."""
    found = shutil.which(name) or max(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), default=None)
    if found is None:
        raise SkippedError(f"PostgreSQL is not installed ({name})")
    return found


class Cubes:
    """Boxes in a table with a GiST index, and the points or boxes that are asked about in another."""

    MATCHING = "SELECT q.id, b.id FROM questions q JOIN boxes b ON b.cube @> q.cube"
    COVERING = "SELECT q.id, (SELECT b.id FROM boxes b WHERE b.cube @> q.cube LIMIT 1) FROM questions q"

    def __init__(self, server: Server, boxes: Keys, questions: Keys, sql: str = MATCHING) -> None:
        """`questions` are points, or boxes for `COVERING`."""
        self._server, self._sql = server, sql
        server.run("DROP TABLE IF EXISTS boxes, questions")
        for table, rows in (("boxes", boxes), ("questions", questions)):
            server.run(f"CREATE TABLE {table} (id int, cube cube)")
            server.run(f"COPY {table} FROM STDIN", (f"{k}\t{_cube(row)}" for k, row in enumerate(rows)))
        self.built = seconds(lambda: server.run("CREATE INDEX boxes_index ON boxes USING gist (cube)"))
        server.run("ANALYZE boxes; ANALYZE questions")

    def match(self) -> float:
        """Return the seconds that the server takes to answer all questions."""
        return self._server.timed(self._sql)

    def rows(self) -> list[list[str]]:
        """Answer all questions."""
        return [line.split("|") for line in self._server.run(f"SET enable_seqscan = off; {self._sql}").splitlines()]

    def pairs(self) -> Pairs:
        """Answer all questions, as pairs."""
        found = np.array(self.rows(), np.int64).reshape(-1, 2)
        return pairs_of(found[:, 0], found[:, 1])

    def close(self) -> None:
        """Leave the server to others."""


def _cube(row: Keys) -> str:
    """A point, or a box whose high corner is outside; a cube is closed."""
    corners = (row,) if row.ndim == 1 else (row[0], row[1] - 1)
    return ",".join("(" + ",".join(map(str, corner.tolist())) + ")" for corner in corners)
