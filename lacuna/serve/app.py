"""The application: which path is served by whom, and what is opened and closed with it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lacuna.analysis.job import status_of
from lacuna.analysis.standing import Standing
from lacuna.serve import pages, signin
from lacuna.serve.api import Api
from lacuna.serve.auth import Auth
from lacuna.serve.context import Context
from lacuna.serve.guard import Guard
from lacuna.serve.hub import Hub
from lacuna.serve.openapi import OPERATIONS, document
from lacuna.serve.problems import Problem, answer_problem
from lacuna.serve.readiness import Readiness
from lacuna.serve.streams import deliveries
from lacuna.serve.waits import Waits
from lacuna.serve.writer import Writer
from state.config import Config
from streaming.exposition import CONTENT_TYPE, Metric, Sample, text_of

ASSETS = "/static/"
"""Below it is what is the same for everybody: style, script, pictures."""
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")


class Gateway:
    """Everything that one gateway holds open."""

    def __init__(self, config: Config) -> None:
        """Read the tokens; nothing is opened yet. Raises `ConfigError` if they cannot be read."""
        self.config, self.auth = config, Auth(config.serve)
        self.requests: Counter[tuple[str, str]] = Counter()
        self.hub, self.writer = Hub(config.kafka, self.auth), Writer(config)
        self.readiness = Readiness(config.kafka)
        self.waits, self.context = Waits(config.kafka), Context(config, self.auth, lambda: status_of(config))
        self.api = Api(self.auth, self.writer, self.waits, Standing(config), self.context.trials)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Open and close it all."""
        self.hub.start()
        yield
        self.hub.drain()
        await self.hub.stop()
        await asyncio.to_thread(self.waits.stop)
        await asyncio.to_thread(self.writer.close)
        await asyncio.to_thread(self.readiness.close)

    def routes(self) -> list[BaseRoute]:
        """Return the routes of everything but the pages."""
        served: dict[str, Callable[[Request], Any]] = {
            "subscribe": self.api.subscribe,
            "unsubscribe": self.api.unsubscribe,
            "publish": self.api.publish,
            "list": self.api.list,
            "explain": self.api.explain,
            "deliveries": deliveries(self.auth, self.hub),
        }
        described = document(self.config)
        api = [Route(each.path, served[each.endpoint], methods=[each.method]) for each in OPERATIONS]
        return [
            *api,
            Route("/v1/{path:path}", _nothing_else(api), methods=METHODS),
            Route("/openapi.json", lambda _: JSONResponse(described)),
            Route("/healthz", lambda _: PlainTextResponse("ok\n")),
            Route("/readyz", self._ready),
            Route("/metrics", self._numbers),
        ]

    def _ready(self, _: Request) -> Response:
        """Answer in a thread: Kafka is asked."""
        trouble = self.readiness.trouble()
        return PlainTextResponse(f"{trouble or 'ready'}\n", 503 if trouble else 200)

    def _numbers(self, _: Request) -> Response:
        return Response(text_of(self.metrics()), media_type=CONTENT_TYPE)

    def metrics(self) -> list[Metric]:
        """Return the numbers of this gateway."""
        up = Sample({}, not self.readiness.trouble())
        closed = tuple(Sample({"reason": reason}, n) for reason, n in sorted(self.hub.closed.items()))
        requests = tuple(Sample({"route": r, "status": s}, n) for (r, s), n in sorted(self.requests.items()))
        seen = self.context.trials.seen
        age = () if seen is None else (Sample({}, round(time.time() - seen, 3)),)
        return [
            Metric("build_info", "gauge", "Version.", (Sample({"version": version("lacuna")}, 1),)),
            Metric("kafka_up", "gauge", "Whether Kafka answers.", (up,)),
            Metric("gateway_streams", "gauge", "Listeners.", (Sample({}, self.hub.streams),)),
            Metric("gateway_pending_bytes", "gauge", "Bytes for listeners in memory.", (Sample({}, self.hub.pending),)),
            Metric("gateway_tables_age_seconds", "gauge", "Since the copy of the tables was renewed.", age),
            Metric("gateway_deliveries_total", "counter", "Deliveries sent.", (Sample({}, self.hub.delivered),)),
            Metric("gateway_streams_closed_total", "counter", "Streams that ended, and why.", closed),
            Metric("gateway_requests_total", "counter", "Requests.", requests),
        ]


def build(config: Config) -> Starlette:
    """Return the gateway of a system. Raises `ConfigError` if the tokens cannot be read."""
    gateway = Gateway(config)
    auth = gateway.auth
    routes = [
        *gateway.routes(),
        *signin.routes(auth),
        Mount("/", routes=pages.routes(gateway.context), middleware=[Middleware(_Observers, auth=auth)]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, serve=config.serve, requests=gateway.requests)],
        exception_handlers={Problem: answer_problem, HTTPException: _unknown},
        lifespan=gateway.lifespan,
    )
    app.state.drain = gateway.hub.drain
    return app


async def _unknown(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = Problem(error.status_code, "path", error.detail, "look at /openapi.json", error.headers)
    return problem.response()


def _nothing_else(routes: list[Route]) -> Callable[[Request], Any]:
    """Return the endpoint of all that the API has not: no page answers there."""

    async def endpoint(request: Request) -> Response:
        found = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
        methods = sorted({method for route in found for method in route.methods or ()})
        if methods:
            raise Problem(
                405,
                "path",
                f"{request.method} is not for this path",
                "look at /openapi.json",
                {"Allow": ", ".join(methods)},
            )
        raise Problem(404, "path", "there is no such path", "look at /openapi.json")

    return endpoint


class _Observers:
    """Lets only those see pages who have the right `observe`; whoever has not signed in is asked to."""

    def __init__(self, app: ASGIApp, auth: Auth) -> None:
        self._app, self._auth = app, auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(ASSETS):
            await self._app(scope, receive, send)
            return
        try:
            self._auth.spend(self._auth.require(Request(scope), "observe"))
        except Problem as problem:
            if problem.status != 401 or not self._auth.uses_tokens:
                raise
            await RedirectResponse("/login", 303)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
