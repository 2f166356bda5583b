"""A gateway of a system, and a listener that takes its stream as a browser does: broken, it resumes at the last id."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
from collections import Counter
from contextlib import suppress
from typing import Self

from bench.faults.owed import Delivery
from bench.faults.system import LACUNA, Failed, System, state_of, wait_until

CLIENT = "ann"


class Gateway:
    """`lacuna serve`, started again at the same port after each death; `heard` is what its listener took."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.port = 0
        self.heard: Counter[Delivery] = Counter()
        self.connected = 0
        """How often the listener has found a stream."""
        self._last, self._ends = "", threading.Event()
        self.start()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        """Listen."""
        wait_until(lambda: self.connected > 0, "the listener has a stream", 60)
        return self

    def __exit__(self, *_: object) -> None:
        """End both."""
        self._ends.set()
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        with (self._system.home / "gateway.log").open("a") as log:
            self.process = subprocess.Popen(
                [*LACUNA, "serve", "--config", str(self._system.file), "--json", "--port", str(self.port)],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Failed("unclear stop: the gateway ended at its start")
        self.port = int(json.loads(line)["url"].rpartition(":")[2])

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """SIGSTOP, until `go_on`."""
        os.kill(self.process.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(self.process.pid) == "T", "the gateway stands still", 10)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.process.pid, signal.SIGCONT)

    def _listen(self) -> None:
        while not self._ends.wait(0.1):
            with suppress(OSError, http.client.HTTPException):
                self._take_stream()

    def _take_stream(self) -> None:
        headers = {"Lacuna-Client": CLIENT} | ({"Last-Event-ID": self._last} if self._last else {})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/v1/deliveries", headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            return
        fields: dict[str, str] = {}
        while line := answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name:
                fields[name] = value
                continue
            self.connected += "id" in fields and not self.connected
            self._last = fields.get("id", self._last)
            if "data" in fields:
                d = json.loads(fields["data"])
                self.heard[Delivery(d["broker"], CLIENT, d["subscription"], d["publication"])] += 1
            fields = {}
