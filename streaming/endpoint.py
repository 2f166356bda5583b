"""The job's endpoint: how it is, over HTTP, for an orchestrator, Prometheus, the command line and the console.

    /healthz   200 while the main loop moves, else 503
    /readyz    200 while the job does its work: first batch done, queries active, Kafka up; else 503
    /status    one JSON object: see `watch.Watch.status`
    /metrics   Prometheus text

It only reads, and has no users: it listens on the loopback address unless the configuration says otherwise.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from state.errors import LacunaError
from streaming.exposition import CONTENT_TYPE, text_of
from streaming.watch import Watch

PLAIN, JSON = "text/plain; charset=utf-8", "application/json"
MOST_SECONDS = 10.0
"""Seconds that a client may take to send its request."""


class Answer(NamedTuple):
    """The answer to a request."""

    code: int
    content_type: str
    text: str


class Endpoint:
    """A running endpoint. It ends with the process, or when it is closed."""

    def __init__(self, watch: Watch, host: str, port: int) -> None:
        """Begin to listen. Raises `LacunaError` if that cannot be done."""
        try:
            self._server = _Server((host, port), _handler(watch))
        except OSError as error:
            raise LacunaError(
                f"engine.metrics_port = {port}: {host} cannot be listened on there ({error.strerror}). Remedy: choose "
                "another port in [engine], or 0 for none; the job goes on without /metrics, /status and health"
            ) from None
        self.address = f"http://{host}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True, name="endpoint").start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True


def answers(watch: Watch) -> dict[str, Callable[[], Answer]]:
    """Return what is answered at each path."""
    return {
        "/healthz": lambda: _verdict(watch.alive, "ok", "the main loop does not move"),
        "/readyz": lambda: _verdict(watch.ready, "ready", _hindrances(watch)),
        "/status": lambda: Answer(200, JSON, json.dumps(watch.status()) + "\n"),
        "/metrics": lambda: Answer(200, CONTENT_TYPE, text_of(watch.metrics())),
    }


def _hindrances(watch: Watch) -> str:
    return "; ".join(watch.reasons.values()) or "the first batch is not done"


def _verdict(good: bool, yes: str, no: str) -> Answer:
    return Answer(200 if good else 503, PLAIN, f"{yes if good else no}\n")


def _handler(watch: Watch) -> type[BaseHTTPRequestHandler]:
    known = answers(watch)

    class Handler(BaseHTTPRequestHandler):
        timeout = MOST_SECONDS
        server_version, sys_version = "lacuna", ""

        def do_GET(self) -> None:
            answer = known.get(self.path.partition("?")[0], self._unknown)()
            body = answer.text.encode()
            self.send_response(answer.code)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the library's name

        def _unknown(self) -> Answer:
            return Answer(404, PLAIN, f"there are {', '.join(known)}\n")

        def log_message(self, *_: object) -> None:
            """Say nothing: scrapes come every few seconds."""

    return Handler
