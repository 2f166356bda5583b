"""`GET /v1/deliveries`: a client's deliveries as server-sent events."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lacuna.serve.auth import Auth
from lacuna.serve.cursor import Cursor
from lacuna.serve.hub import Hub, Listener
from lacuna.serve.problems import Problem
from lacuna.serve.server import ABORT

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # a proxy is to pass on every event at once
]


def begin_of(request: Request) -> Cursor | None:
    """Return where a stream begins; None: at what comes from now on."""
    last, begin = request.headers.get("last-event-id"), request.query_params.get("from")
    if begin not in (None, "beginning"):
        raise Problem(400, "header", f"from={begin!r}", "write from=beginning, or leave it out")
    if last:
        cursor = Cursor.parse(last)
        if cursor is None:
            raise Problem(400, "header", "Last-Event-ID is no id of this gateway", "leave it out to begin from now on")
        return cursor
    return Cursor() if begin else None


class Stream(Response):
    """The answer that ends with its listener."""

    def __init__(self, hub: Hub, listener: Listener) -> None:
        self._hub, self._listener = hub, listener
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._listener.abort = scope.get("extensions", {}).get(ABORT, {}).get("call", lambda: None)
        self._hub.admit(self._listener)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._serve(receive, send)
        finally:
            self._hub.leave(self._listener)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _serve(self, receive: Receive, send: Send) -> None:
        async def put(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        tasks = [asyncio.create_task(self._hub.serve(self._listener, put)), asyncio.create_task(_gone(receive))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for failure in ended:
            if isinstance(failure, Exception):
                raise failure


async def _gone(receive: Receive) -> None:
    """Wait until the listener goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass


def deliveries(auth: Auth, hub: Hub) -> Any:
    """Return the endpoint."""

    async def endpoint(request: Request) -> Response:
        caller, client = auth.client(request, "listen")
        auth.spend(caller)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return Stream(hub, Listener(caller, client, begin_of(request), lambda: None))

    return endpoint
