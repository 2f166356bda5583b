"""A system of real processes: Kafka behind a proxy, the job, the commands that its messages name."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from access.control import ControlLog
from access.offsets import topic_spans
from access.topics import ensure_topics
from bench.faults.proxy import Proxy
from lacuna.local import infra
from state.config import Config, parse
from state.protocol.topics import Topics
from streaming.life import Folder

PATIENCE = 240.0
LACUNA = (sys.executable, "-m", "lacuna")
SPACE = """[space]
x = { kind = "int", low = 0, high = 99 }
y = { kind = "float", low = 0.0, high = 1.0 }
colour = { kind = "category", values = ["red", "green", "blue"] }
"""
BALLAST = "ballast"
"""A file that takes all the room on the disk of a system."""
COMMAND = re.compile(r"lacuna ((?:apply|archive rebuild)(?: --from topics| --force)?)")
"""A remedy that is a command."""


class Failed(Exception):
    """The system did not do what it must: what, in a sentence."""


def wait_until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition. Raises `Failed`, saying which, if it does not come."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"not within {patience:.0f} s: {what}")
        time.sleep(0.05)


class Kafka:
    """A Kafka of the campaign's own, which others reach through a proxy."""

    def __init__(self, home: Path) -> None:
        self.home, self.proxy = home, Proxy()
        self.bootstrap = f"127.0.0.1:{self.proxy.port}"
        self.pid = 0
        with socket.create_server(("127.0.0.1", 0)) as free:  # Kafka asks itself through the proxy before it is ready
            self.proxy.target = free.getsockname()[1]
        self.start("--controller-port", "0")

    def start(self, *options: str) -> None:
        """Start it, at the port that it had."""
        ports = ("--port", str(self.proxy.target), "--advertised", str(self.proxy.port))
        self.pid = infra("kafka", "start", "--home", str(self.home), *ports, *options)["pid"]

    def stop(self) -> None:
        """Stop it."""
        infra("kafka", "stop", "--home", str(self.home))

    def kill(self) -> None:
        """kill -9."""
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: state_of(self.pid) in ("", "Z"), "Kafka is dead")


class System:
    """A prefix, a folder with configuration, lake and checkpoint, and the job when it runs."""

    def __init__(self, home: Path, kafka: Kafka, prefix: str, overlay: str) -> None:
        self.home, self.kafka, self.prefix = home, kafka, prefix
        home.mkdir(parents=True)
        self.disk = home / "disk"
        self.disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", str(self.disk)]
        self.own_disk = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
        self.file = home / "lacuna.toml"
        self.configure(
            f'{SPACE}{overlay}[kafka]\nbootstrap = "{kafka.bootstrap}"\nprefix = "{prefix}"\n'
            f'[lake]\npath = "{self.disk}/lake"\ncheckpoint = "{self.disk}/checkpoint"\n'
            "metrics_every = 0\n[engine]\nmetrics_port = 0\n"
        )
        ensure_topics(kafka.bootstrap, prefix)
        self.process: subprocess.Popen[str] | None = None
        self.announced = False
        """Whether the job has said that it is running."""
        self.starts = 0

    def configure(self, text: str) -> None:
        """Write another configuration."""
        self.config: Config = parse(text)
        self.file.write_text(text)

    def close(self) -> None:
        """End the job, and take its folder away."""
        self.kill()
        if self.own_disk:
            subprocess.run(["umount", "-l", self.disk], check=False)
        shutil.rmtree(self.home, ignore_errors=True)

    # the job

    def start(self, *, wait: bool = True) -> bool:
        """Start the job. With `wait`, return whether it came to its first batch."""
        self.starts += 1
        self.announced = False
        always = ("--config", str(self.file), "--json", "--tick", "1", "--maintain", "0", "--memory", "1g")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*LACUNA, "run", *always],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        return not wait or self.begun()

    def begun(self) -> bool:
        """Wait until the job has said that it is running, or has ended; return which."""
        assert self.process is not None and self.process.stdout is not None
        if not self.announced:
            if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
                raise Failed(f"the job neither ran nor ended within {PATIENCE:.0f} s: {self.last_words()[:300]}")
            self.announced = bool(self.process.stdout.readline())
            if not self.announced:
                self.ended()
        return self.announced and self.runs

    @property
    def log(self) -> Path:
        """Where the job's last start writes."""
        return self.home / f"job-{self.starts}.log"

    @property
    def runs(self) -> bool:
        """Tell whether the job is there."""
        return self.process is not None and self.process.poll() is None

    def ended(self) -> str:
        """Wait until the job has ended by itself; what it said last."""
        wait_until(lambda: not self.runs, "the job ends by itself")
        return self.last_words()

    def last_words(self) -> str:
        """Return the last line of the log."""
        return (self.log.read_text().strip().splitlines() or [""])[-1]

    def kill(self) -> None:
        """kill -9, with all its children."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        """SIGTERM. Raises `Failed` if it does not end well."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed("the job does not stop when it is told to") from None
        if code:
            raise Failed(f"the job ended with {code} when it was told to stop: {self.last_words()[:500]}")

    def signal_all(self, number: int, *, workers: bool) -> list[int]:
        """Signal the job's Python workers, or all its processes. Return those that were signalled."""
        assert self.process is not None
        found = [pid for pid in (self.process.pid, *below(self.process.pid)) if not workers or is_worker(pid)]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return found

    def command(self, *words: str) -> tuple[int, str]:
        """Run a command of the command line; its exit code, and what it said."""
        done = subprocess.run(
            [*LACUNA, *words, "--config", str(self.file), "--json"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=PATIENCE,
        )
        said = done.stderr.strip().splitlines()
        return done.returncode, done.stdout.strip() if done.returncode == 0 else (said or [done.stdout])[-1]

    # what it has written down

    def topic(self, name: str) -> str:
        """Return the full name of a topic."""
        return Topics(self.prefix).of(name)

    def router_folder(self) -> Path:
        """Return Spark's checkpoint of the router's newest life."""
        lives = Folder(self.config.lake.checkpoint)
        return Path(lives.of(lives.epochs()[-1])) / "router"

    def in_a_batch(self) -> bool:
        """Tell whether a batch is planned and not committed."""
        with suppress(OSError, IndexError):
            folder = self.router_folder()
            return _newest(folder / "offsets") > _newest(folder / "commits")
        return False

    def batches(self) -> int:
        """Return the number of the last committed batch."""
        with suppress(OSError, IndexError):
            return _newest(self.router_folder() / "commits")
        return -1

    def await_tick(self) -> None:
        """Wait for a tick that says that everything published so far was carried to its end."""
        spans = topic_spans(self.kafka.bootstrap, [self.topic("publish")])
        ends = {str(number): span.next for (_, number), span in spans.items() if span.next}
        with ControlLog(self.kafka.bootstrap, self.prefix) as control:

            def told() -> bool:
                beat = control.read().beat
                done = {} if beat is None else beat.offsets.get("publish", {})
                return all(done.get(number, -1) >= end for number, end in ends.items())

            wait_until(told, "a tick says that all is done")

    # remedies

    def follow(self, said: str) -> str:
        """Do what a message names as its remedy, to the letter; what was done. Raises `Failed` if it is unclear."""
        remedy = said.partition("Remedy: ")[2]
        if not remedy:
            raise Failed(f"unclear stop: {said[:500] or 'nothing was said'}")
        if "free some space" in remedy:
            (self.disk / BALLAST).unlink(missing_ok=True)
        found = COMMAND.search(remedy)
        if found is None:
            if "start again" in remedy or "goes on by itself" in remedy:
                return "start again"
            raise Failed(f"unclear stop: no command, no start in {remedy[:300]}")
        code, said = self.command(*found[1].split())
        if code:
            return f"lacuna {found[1]}, then {self.follow(said)}"
        return f"lacuna {found[1]}"


def _newest(folder: Path) -> int:
    return max((int(file.name) for file in folder.iterdir() if file.name.isdigit()), default=-1)


def state_of(pid: int) -> str:
    """Return the letter that says what a process does; nothing if there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def below(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, and those that they have."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text().split()):
                yield child
                yield from below(child)


def is_worker(pid: int) -> bool:
    """Tell whether a process is one of Spark's for Python."""
    with suppress(OSError):
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
