"""The guard of all requests, before anything else looks at them.

    Host      a name that the gateway knows: else a foreign page could reach it by a name of its own that leads here
    Origin    for what changes something: none, or the gateway's own, or another site could act for whoever sits here
    headers   answers forbid browsers everything that the console does not need, and are kept by no cache
    time      an answer that is no stream is given within `LONGEST` seconds, or not at all

It also counts what was answered, by route and status.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lacuna.serve.problems import Problem
from state.config import Serve

READING = ("GET", "HEAD", "OPTIONS")
OPEN = ("/healthz", "/readyz", "/metrics")
"""Paths that are asked for by address, by what watches over the gateway; nothing in them is secret."""
STREAM = "/v1/deliveries"
LONGEST = 90.0
POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
SAFE = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")

log = logging.getLogger(__name__)


def known_hosts(serve: Serve) -> frozenset[str]:
    """Return the names by which the gateway may be addressed."""
    own = LOOPBACK if serve.is_local else ()
    return frozenset((*own, serve.host.lower(), *serve.hosts)) - {"0.0.0.0", "::"}


def host_of(header: str) -> str:
    """Return the host of a `Host` header, without the port.

    >>> host_of("Example.org:8080"), host_of("[::1]:80"), host_of("evil@localhost"), host_of("")
    ('example.org', '::1', '', '')
    """
    try:
        parts = urlsplit(f"//{header}")
        return "" if "@" in header or parts.path or parts.query or parts.fragment else parts.hostname or ""
    except ValueError:
        return ""


def is_same_origin(origin: str, host: str) -> bool:
    """Return whether an `Origin` header names the page's own site, which is that of the `Host` header.

    >>> [is_same_origin(o, "a.org:80") for o in ("http://a.org:80", "https://A.org:80", "http://b.org", "null")]
    [True, True, False, False]
    """
    scheme, _, place = origin.partition("://")
    return scheme in ("http", "https") and place.lower() == host.lower()


class Guard:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, serve: Serve, requests: Counter[tuple[str, str]]) -> None:
        self._app, self._hosts, self._requests = app, known_hosts(serve), requests
        self._https = serve.cert_file is not None or serve.proxied

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, https=self._https)
        try:
            self._check(scope)
            async with asyncio.timeout(None if scope["path"] == STREAM else LONGEST):
                await self._app(scope, receive, answer.send)
        except Problem as problem:
            await problem.response()(scope, receive, answer.send)
        except Exception as error:
            if isinstance(error, TimeoutError):
                log.warning("a request to %r took more than %g s", scope["path"], LONGEST)
            else:
                log.exception("a request to %r failed", scope["path"])
            if answer.status is not None:
                raise
            fault = Problem(500, "fault", "the gateway failed", "try again; the log of the gateway says why")
            await fault.response()(scope, receive, answer.send)
        finally:
            self._requests[route_of(scope), str(answer.status or 0)] += 1

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if scope["path"] not in OPEN and host_of(host) not in self._hosts:
            raise Problem(421, "host", f"the gateway is not {host!r}", "add the name to [serve] hosts")
        if scope["method"] in READING:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if (origin is not None and not is_same_origin(origin, host)) or site not in ("same-origin", "none"):
            raise Problem(403, "origin", f"a page of {origin!r} asked for a change", "send it from a program")


def route_of(scope: Scope) -> str:
    """Return the pattern of the path that was served, never the path itself: anybody can make up paths."""
    route: Any = scope.get("route")
    return getattr(route, "path", None) or "other"


class _Answer:
    """Passes an answer on, with the headers that make it safe, and notes its status."""

    def __init__(self, send: Send, *, https: bool) -> None:
        self._send, self._https = send, https
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SAFE.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
            if self._https:
                headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            if self.status in (408, 413, 421):
                headers["Connection"] = "close"  # what is left of the body is not read
        await self._send(message)
