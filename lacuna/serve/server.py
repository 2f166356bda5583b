"""The server: a socket, and what a hostile or dying client may do to it at most.

head of a request   within 10 s, and 64 KiB     (uvicorn itself would wait for ever)
idle connection     30 s
connections         6,000; beyond, 503
at the end          streams are told to end, everything else has 10 s
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from state.config import Serve
from state.errors import ConfigError, LacunaError

HEAD_SECONDS, MOST_HEAD = 10.0, 1 << 16
IDLE_SECONDS, END_SECONDS = 30, 10
MOST_CONNECTIONS = 6_000
ABORT = "lacuna.abort"
"""The key of a request's extensions that holds a function which ends its connection at once."""


class Protocol(HttpToolsProtocol):
    """A connection whose requests must begin in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._expect_head()

    def _expect_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self._timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD + len(data):
                self.transport.abort()
                return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        self._head_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """A server that says when it begins to end, so that streams end too."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], object]) -> None:
        super().__init__(config)
        self._drain = drain

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the streams end, then everything else."""
        self._drain()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End, and do not raise the signal again when all is done: an end by a signal is a clean one."""
        self.should_exit = True


def listen(serve: Serve) -> socket.socket:
    """Return a socket that listens. Raises `LacunaError` if that cannot be done."""
    family = socket.AF_INET6 if ":" in serve.host else socket.AF_INET
    try:
        found = socket.create_server((serve.host, serve.port), family=family, backlog=2048)
    except OSError as error:
        raise LacunaError(
            f"serve.port = {serve.port}: {serve.host} cannot be listened on there ({error.strerror}). Remedy: choose "
            "another port with --port or in [serve]"
        ) from None
    found.setblocking(False)
    return found


def url_of(serve: Serve, listening: socket.socket) -> str:
    """Return the address of a gateway as a person or a program types it."""
    scheme = "http" if serve.cert_file is None else "https"
    host = serve.hosts[0] if serve.host in ("0.0.0.0", "::") else serve.host
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def server(app: Any, serve: Serve, drain: Callable[[], object]) -> Server:
    """Return a server for an application. Raises `ConfigError` if its certificate cannot be used."""
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=END_SECONDS,
    )
    config.load()
    if serve.cert_file is not None and serve.key_file is not None:
        config.ssl = _tls(serve.cert_file, serve.key_file)
    return Server(config, drain)


def _tls(cert: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        rule = f"no certificate chain and key in PEM can be read ({getattr(error, 'reason', None) or error})"
        raise ConfigError("serve.cert_file", cert, rule, "name the files that hold them") from None
    return context
