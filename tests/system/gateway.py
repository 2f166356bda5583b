"""A gateway on a real Kafka, and a listener that takes its streams as a browser does."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from access.control import ControlLog
from access.offsets import topic_spans
from state.config import Kafka
from state.protocol.control import CLAIM, LIFE, Claim, Life
from state.protocol.topics import Topics

PROGRAM = Path(sys.executable).with_name("lacuna")
PATIENCE = 60.0


class Served:
    """A `lacuna serve` of the test's own."""

    def __init__(self, home: Path, text: str, *options: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        (home / "lacuna.toml").write_text(text)
        self.home, self._options = home, options
        self.url = ""
        self.start()

    def start(self, port: int = 0) -> None:
        """Start it, and wait until it serves."""
        command = [PROGRAM, "serve", "--config", str(self.home / "lacuna.toml"), "--json", "--port", str(port)]
        with (self.home / "gateway.log").open("ab") as log:
            self.process = subprocess.Popen([*command, *self._options], stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log()[-2000:]
        self.url = json.loads(line)["url"]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def log(self) -> str:
        return (self.home / "gateway.log").read_text()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def announce(kafka: Kafka, epoch: int = 1) -> Life:
    """Announce a life, as the router does before it writes."""
    topics = Topics(kafka.prefix)
    ends: dict[str, dict[str, int]] = {}
    for (topic, number), span in topic_spans(kafka.bootstrap, [topics.deliveries]).items():
        ends.setdefault(topic.removeprefix(f"{kafka.prefix}."), {})[str(number)] = span.next
    with ControlLog(kafka.bootstrap, kafka.prefix) as control:
        term = control.append(f"{CLAIM}{epoch}", Claim(control.read().term, "test", "test"))
        life = Life(term, epoch, "test", ends)
        control.append(f"{LIFE}{epoch}", life)
    return life


class Event(NamedTuple):
    """An event of a stream."""

    id: str
    data: dict[str, Any]
    kind: str = "message"


class Ear:
    """A listener: it keeps the last id, as the standard says, and connects again with it."""

    def __init__(self, client: str = "ann", last: str = "", **headers: str) -> None:
        self.headers, self.last = {"Lacuna-Client": client, **headers}, last

    @contextmanager
    def open(self, url: str, query: str = "", timeout: float = PATIENCE) -> Iterator[Iterator[Event]]:
        """Connect, wait until the stream has begun, and yield the events."""
        headers = self.headers | ({"Last-Event-ID": self.last} if self.last else {})
        with (
            httpx.Client(timeout=timeout, verify=False, trust_env=False) as http,
            http.stream("GET", f"{url}/v1/deliveries{query}", headers=headers) as answer,
        ):
            assert answer.status_code == 200, answer.read()
            lines = answer.iter_lines()
            first = self._read(lines)
            assert first is None, first
            yield (event for event in iter(lambda: self._read(lines, END), END) if isinstance(event, Event))

    def _read(self, lines: Iterator[str], end: object = None) -> Any:
        """Read up to the next empty line: an event, or None if there is only an id."""
        fields: dict[str, str] = {}
        for line in lines:
            if not line:
                break
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            return end
        self.last = fields.get("id", self.last)
        if "data" not in fields:
            return None
        return Event(self.last, json.loads(fields["data"]), fields.get("event", "message"))

    def take(self, url: str, count: int, query: str = "") -> list[Event]:
        """Connect and take so many events."""
        with self.open(url, query) as events:
            return [next(events) for _ in range(count)]

    def gather(self, url: Callable[[], str], wanted: int, query: str = "") -> list[Event]:
        """Take so many events, through as many connections as are needed."""
        found: list[Event] = []
        while len(found) < wanted:
            with suppress(httpx.TransportError), self.open(url(), "" if self.last else query) as events:
                for event in events:
                    found.append(event)
                    if len(found) == wanted:
                        return found
        return found


END = object()


def seqs(events: list[Event]) -> list[int]:
    return [event.data["seq"] for event in events]


def token_entry(token: str, client: str, *rights: str, more: str = "") -> str:
    """An entry of a file of tokens."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    return f'[[token]]\nsha256 = "{digest}"\nclient = "{client}"\nrights = {json.dumps(rights)}\n{more}\n'
