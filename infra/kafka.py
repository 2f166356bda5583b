"""A real Kafka on this machine: `python -m infra.kafka start|stop|status [--home DIR] [--port N] [--json]`.

For the demo, the tests and a person's desk, not for a cluster. It is detached: whoever started it may leave or be
killed. Everything of it lies below its home:

    home/data                 topics and messages; formatted once
    home/server.properties    written again at each start; the ports of the last start are read back from it
    home/kafka.log, .log.1    the words of this run, and of the one before
    home/kafka.pid            the process; a stale one (see `process`) counts as none
    home/.lock                start and stop take turns

"Running" means that the broker answers a request and that it is this home's broker, never only that a process or an
open port exists. Exit codes: 0 done (status: running), 1 refused or failed, 2 wrong usage, 3 not running.
"""

import argparse
import json
import logging
import os
import shutil
import signal
import sys
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, NoReturn

from infra import fetch, jars, kraft, process
from infra.errors import InfraError, guarded, say, writing
from infra.java import find_java
from infra.kraft import Ports
from infra.lock import exclusive
from infra.ports import HOST, find_free, obstacle

DEFAULT_HOME, DEFAULT_PORT = Path(".lacuna/kafka"), 9092
PATIENCE = 90.0  # seconds until it answers; 5 on an idle machine, 10 after a kill -9, more on a loaded one
STOP_PATIENCE = 30.0  # seconds between SIGTERM and SIGKILL; 1 is usual
LOG_LINES = 25
FULL_DISK = "No space left on device"
REMEDIES = {
    "Address already in use": "another program took the port meanwhile: start again, or with --port 0",
    "insufficient memory": "the machine has too little memory left for a heap of 512 MB: end something",
    FULL_DISK: "the disk is full: free some space, or choose another --home",
    "AccessDeniedException": "this user may not write there: use the user who started it first, or another --home",
}


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of the broker of one home; `--json` prints just this."""

    running: bool
    state: Literal["running", "starting", "stopped"]  # "starting": a process that does not answer (yet)
    bootstrap: str | None
    pid: int | None
    home: str
    log: str
    changed: bool = False  # whether this very call started or stopped it


@dataclass
class LocalKafka:
    """The broker of one home, running or not; as a context, started on entry and stopped at exit.

    `port` None is that of the last start at this home, or 9092; 0 is any free one. `controller_port` None is the last
    one, or the one after `port`; 0 is any free one, and so is None where `port` is 0. `advertised` is the port that
    clients are told, where something stands between them and the broker.
    """

    home: Path = DEFAULT_HOME
    port: int | None = None
    controller_port: int | None = None
    patience: float = PATIENCE
    advertised: int | None = None

    def __post_init__(self) -> None:
        """Fix where things lie: the caller may change its folder later."""
        self.home = self.home.resolve()
        self.log = self.home / "kafka.log"
        self._pid_file = self.home / "kafka.pid"
        self._mark = f"-Dlacuna.kafka.home={self.home}"

    def start(self) -> Status:
        """Start it, or find it running; return when it answers."""
        with writing(self.home, "choose another --home"):
            self.home.mkdir(parents=True, exist_ok=True)
            with exclusive(self.home / ".lock", f"another process starts or stops the Kafka of {self.home}; waiting"):
                return self._start() if self._pid() is None else self._join()

    def stop(self) -> Status:
        """Stop it, if it runs; what it stored stays."""
        if not self.home.is_dir():
            return self.status()
        with (
            writing(self.home, "stop it as the user who started it"),
            exclusive(self.home / ".lock", f"another process starts or stops the Kafka of {self.home}; waiting"),
        ):
            pid = self._pid()
            if pid is not None:
                self._end(pid)
            self._pid_file.unlink(missing_ok=True)
            return replace(self.status(), changed=pid is not None)

    def status(self) -> Status:
        """Look, and change nothing."""
        pid, ports = self._pid(), kraft.last_ports(self.home)
        if pid is None or ports is None:
            return self._status("stopped", None, None)
        return self._status("running" if kraft.answers(self.home, ports) else "starting", ports, pid)

    def lives(self) -> bool:
        """Tell whether the process is there, answering or not."""
        return self._pid() is not None

    def tail(self) -> str:
        """Return the last words of the broker, with a head that says whose they are."""
        words = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:] if self.log.is_file() else []
        return "\n".join([f"The end of {self.log}:", *(f"    {line}" for line in words)])

    def __enter__(self) -> Status:
        """Start."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop."""
        self.stop()

    def _start(self) -> Status:
        java = find_java().path
        ports = self._choose_ports()
        fetch.ensure("kafka")
        library = jars.pinned("kafka").folder
        kraft.format_storage(java, library, self.home, ports)
        kraft.write_settings(self.home, ports, advertised=self.advertised)
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        try:
            command = kraft.broker_command(java, library, self._mark)
            pid = process.spawn(command, self.log, self._pid_file, **kraft.LOCALE)
            say(f"starting Kafka at {ports.bootstrap} (process {pid}), home {self.home}")
            self._await_answer(pid, ports)
        except BaseException:
            self._withdraw()
            raise
        return replace(self._status("running", ports, pid), changed=True)

    def _join(self) -> Status:
        """It runs, or is about to: wait until it answers, and touch nothing."""
        pid, ports = self._pid(), kraft.last_ports(self.home)
        if pid is None or ports is None:
            raise InfraError(f"the Kafka of {self.home} runs without its settings; stop it, then start it again")
        if self.port and self.port != ports.client:
            raise InfraError(
                f"the Kafka of {self.home} already runs, at port {ports.client}, and a home has one broker; to have it "
                f"at port {self.port} stop it first, or choose another --home"
            )
        self._await_answer(pid, ports)
        return self._status("running", ports, pid)

    def _choose_ports(self) -> Ports:
        last = kraft.last_ports(self.home) or Ports(DEFAULT_PORT, DEFAULT_PORT + 1)
        client = last.client if self.port is None else self.port or find_free()
        usual = 0 if self.port == 0 else last.controller if client == last.client else client + 1
        controller = (usual if self.controller_port is None else self.controller_port) or find_free(client)
        for port, option in ((client, "--port"), (controller, "--controller-port")):
            hurdle = obstacle(port)
            if hurdle:
                raise InfraError(
                    f"port {port} ({option}) of {HOST} cannot be used: {hurdle}. Kafka needs two ports of its own, "
                    f"{client} for clients and {controller} for its controller: stop the program that listens there, "
                    "or choose with --port N and --controller-port N, or let --port 0 pick free ones"
                )
        return Ports(client, controller)

    def _await_answer(self, pid: int, ports: Ports) -> None:
        answered = False

        def settled() -> bool:
            nonlocal answered
            answered = kraft.answers(self.home, ports)
            return answered or not process.carries(pid, self._mark)

        process.wait_until(settled, self.patience)
        if answered:
            return
        if not process.carries(pid, self._mark):
            raise InfraError(f"Kafka ended before it answered at {ports.bootstrap}.\n{self.tail()}\n{self._remedy()}")
        raise InfraError(
            f"Kafka (process {pid}) did not answer at {ports.bootstrap} within {self.patience:.0f} s.\n{self.tail()}\n"
            f"{self._remedy()}; on a loaded machine give it longer with --timeout"
        )

    def _remedy(self) -> str:
        words = self.tail()
        if shutil.disk_usage(self.home).free < 2**20:  # a full disk may keep its own mention out of the log
            words += FULL_DISK
        known = [remedy for sign, remedy in REMEDIES.items() if sign in words]
        lost = f"read the log; if the storage is damaged and may be lost, delete {self.home} and start again"
        return f"What to do: {known[0] if known else lost}"

    def _withdraw(self) -> None:
        """Leave nothing of a start that failed but the log."""
        pid = self._pid()
        if pid is not None:
            process.end(pid, self._mark, patience=5.0)
        self._pid_file.unlink(missing_ok=True)

    def _end(self, pid: int) -> None:
        if process.end(pid, self._mark, STOP_PATIENCE):
            say(f"Kafka (process {pid}) did not stop within {STOP_PATIENCE:.0f} s and was killed")

    def _pid(self) -> int | None:
        """Return the id of the living process, if the pid file names one that is this home's broker."""
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None
        return pid if process.carries(pid, self._mark) else None

    def _status(self, state: Literal["running", "starting", "stopped"], ports: Ports | None, pid: int | None) -> Status:
        bootstrap = ports.bootstrap if ports else None
        return Status(state == "running", state, bootstrap, pid, str(self.home), str(self.log))


def main() -> int:
    """Do what the command line says."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # its client logs each refused connection of a wait
    os.umask(os.umask(0o077) | 0o077)  # what clients sent is for this user alone
    options = _parser().parse_args()
    broker = LocalKafka(options.home, options.port, options.controller_port, options.timeout, options.advertised)
    return guarded(lambda: _act(broker, options), options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.kafka", description="A real Kafka on this machine.")
    parser.add_argument("action", choices=("start", "stop", "status"))
    parser.add_argument("--home", type=Path, default=DEFAULT_HOME, help=f"its folder (default: {DEFAULT_HOME})")
    parser.add_argument("--port", type=_port, help=f"for clients; 0: any free (default: the last, or {DEFAULT_PORT})")
    parser.add_argument(
        "--controller-port", type=_port, help="0: any free (default: the last, or the one after --port)"
    )
    parser.add_argument("--advertised", type=_port, help="the port that clients are told, if a proxy stands there")
    parser.add_argument("--timeout", type=float, default=PATIENCE, help="seconds to wait for an answer (%(default)s)")
    parser.add_argument("--foreground", action="store_true", help="start: stay, and stop it when told to end")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object on stdout")
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port < 2**16:
        raise argparse.ArgumentTypeError(f"{port} is no port; ports are 0 to 65535")
    return port


def _act(broker: LocalKafka, options: argparse.Namespace) -> int:
    if options.action == "start":
        signal.signal(signal.SIGTERM, _leave)
        _show(broker.start(), options.json)
        return _stay(broker, options.json) if options.foreground else 0
    status = broker.stop() if options.action == "stop" else broker.status()
    _show(status, options.json)
    return 0 if status.running or options.action == "stop" else 3


def _leave(number: int, _frame: object) -> NoReturn:
    """Told to end while we wait: leave by an exception, so that a half-started broker is withdrawn."""
    raise SystemExit(128 + number)


def _stay(broker: LocalKafka, as_json: bool) -> int:
    """Wait until told to end, then stop the broker; or until it ends by itself, which is a failure."""
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: told.set())
    while not told.wait(0.5):
        if not broker.lives():
            raise InfraError(f"Kafka ended by itself.\n{broker.tail()}")
    _show(broker.stop(), as_json)
    return 0


def _show(status: Status, as_json: bool) -> None:
    if as_json:
        text = json.dumps(asdict(status))
    elif status.state == "stopped":
        text = f"Kafka {'has stopped' if status.changed else 'is not running'}, home {status.home}"
    else:
        verb = "runs" if status.running else "does not answer (yet)"
        text = f"Kafka {verb} at {status.bootstrap} (process {status.pid}), home {status.home}"
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
