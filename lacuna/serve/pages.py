"""The pages of the console: what somebody asks for, as a page that shows it.

    /                                    the overlay: what flows, what was saved, where it is hot
    /subscriptions                       what stands; `?where=` tries a filter
    /subscriptions/HOME/CLIENT/ID        a subscription in words, drawn, and its way with the reason at each link
    /events                              the last publications; `?key=` one of them; `?at=` tries an event
    /rejects                             what was refused, with the remedy
    /health                              how the job is, and how it has been

Forms are plain GET forms, so every view has an address that can be kept and sent. Pages change nothing. Templates
escape everything that they are given; the few pieces of SVG that are made in Python are `Markup`, which escapes too.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from importlib.resources import files
from typing import Any
from urllib.parse import quote, unquote, urlencode

from deltalake.exceptions import DeltaError
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from lacuna.serve.chart import health_charts
from lacuna.serve.context import Context
from lacuna.serve.eventpage import EventPage
from lacuna.serve.map import draw_map
from lacuna.serve.overview import SHOWN, WINDOWS, Overview, moment
from lacuna.serve.pulse import Pulse, clock_text
from lacuna.serve.subscriptionpage import SubscriptionPage, middle_key
from state.errors import LacunaError, nearest
from state.protocol.events import RULES
from state.protocol.messages import Name
from state.storage.rows import MOST_VALUE

MOST_LINKS = 40
log = logging.getLogger(__name__)
ASSETS = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}


class NotFound(Exception):
    """There is no such thing; the text says what to do."""


def routes(context: Context) -> list[BaseRoute]:
    """Return the routes of all pages."""
    return Console(context).routes()


class Console:
    """The pages of one gateway."""

    def __init__(self, context: Context) -> None:
        self.config, self._auth = context.config, context.auth
        self._overview = Overview(self.config)
        self._pulse, trials = Pulse(context.status), context.trials
        self._subscription = SubscriptionPage(self._overview, trials)
        self._event = EventPage(self._overview, trials)

    def routes(self) -> list[BaseRoute]:
        """Return the route of each page, and of the files that pages need."""
        pages = {
            "/": self.overlay,
            "/subscriptions": self.subscriptions,
            "/subscriptions/{name:path}": self.subscription,
            "/events": self.events,
            "/rejects": self.rejects,
            "/health": self.health,
            "/{path:path}": self.unknown,
        }
        found: list[BaseRoute] = [Route(f"/static/{name}", self._asset(name)) for name in ASSETS]
        return found + [Route(path, self._answer(page)) for path, page in pages.items()]

    def _asset(self, name: str) -> Callable[[Request], Response]:
        content = files("lacuna.serve").joinpath("static", name).read_bytes()

        def answer(_: Request) -> Response:
            headers = {"Cache-Control": "public, max-age=300"}
            return Response(content, media_type=ASSETS[name], headers=headers)

        return answer

    def _answer(self, page: Callable[[Request], tuple[str, dict[str, Any]]]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            status = 200
            try:
                template, shown = page(request)
            except NotFound as error:
                status, template, shown = 404, "message.html", {"title": "Not found", "message": str(error)}
            except LacunaError as error:
                status, template, shown = 503, "message.html", {"title": "Nothing to show yet", "message": str(error)}
            except (OSError, DeltaError) as error:
                log.exception("the tables cannot be read")
                message = f"The tables at {self.config.lake.path} cannot be read: {error} Remedy: look at [lake] path"
                status, template, shown = 503, "message.html", {"title": "Nothing to show now", "message": message}
            return HTMLResponse(self._rendered(request, template, shown), status)

        return answer

    def _rendered(self, request: Request, template: str, shown: dict[str, Any]) -> str:
        try:
            written = self._overview.written()
        except (LacunaError, OSError, DeltaError):
            written = None
        shell = {
            "prefix": self.config.kafka.prefix,
            "look": self._pulse.look(written),
            "now": f"{datetime.now(UTC):%H:%M:%S} UTC",
            "page": "/" + request.url.path.split("/")[1],
            "space": self.config.space,
            "brokers": self.config.overlay.brokers,
            "signed_in": self._auth.uses_tokens,
        }
        return self._templates.get_template(template).render(shell | shown)

    @cached_property
    def _templates(self) -> Environment:
        made = Environment(
            loader=PackageLoader("lacuna.serve"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )
        made.filters |= {"count": count_text, "percent": percent_text, "clock": lambda m: clock_text(moment(m))}
        made.globals |= {"page_of": page_of, "link_to": link_to}
        return made

    # the pages

    def overlay(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Show what flows over the links."""
        given = request.query_params
        window = given.get("time", "") if given.get("time", "") in WINDOWS else ""
        wanted = given.get("broker", "").strip()
        brokers = self.config.overlay.brokers
        figures = self._overview.figures(window)
        busiest = sorted(figures.flows.items(), key=lambda pair: (-pair[1].carried, pair[0]))
        near = [pair for pair in busiest if wanted in pair[0]]
        every = near + [pair for pair in busiest if wanted not in pair[0]]
        wrong = f"There is no broker {wanted}{nearest(wanted, brokers)}." if wanted and wanted not in brokers else ""
        return "overlay.html", {
            "figures": figures,
            "map": draw_map(self.config, figures, wanted),
            "strategy": f"{self.config.spec}, others on some links" if self.config.specs else str(self.config.spec),
            "windows": WINDOWS,
            "window": window,
            "wanted": wanted,
            "wrong": wrong,
            "links": every if given.get("all") else every[:MOST_LINKS],
            "all_links": link_to("/", time=window, broker=wanted, all="1"),
            "example": self._example_publish(),
        }

    def _example_publish(self) -> str:
        """Return the command that would publish something here."""
        space = self.config.space
        middle = space.describe_point(tuple(middle_key(a, a.low, a.high + 1) for a in space.attributes))
        broker = self.config.overlay.brokers[0]
        return f"lacuna publish --broker {shlex.quote(broker)} --at {shlex.quote(json.dumps(middle))}"

    def subscriptions(self, request: Request) -> tuple[str, dict[str, Any]]:
        """List what stands, or try a filter."""
        given = request.query_params
        if {"home", "client", "id"} <= set(given):
            return self._one(Name(given["home"], given["client"], given["id"]), request)
        return "subscriptions.html", self._subscription.found(request.query_params)

    def subscription(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Show one subscription."""
        path = request.scope.get("raw_path", request.url.path.encode()).split(b"/subscriptions/", 1)[1]
        parts = [unquote(part.decode("latin-1")) for part in path.split(b"/")]
        if len(parts) != 3:
            raise NotFound("A subscription has the address /subscriptions/BROKER/CLIENT/ID. Remedy: find it there")
        return self._one(Name(*parts), request)

    def _one(self, name: Name, request: Request) -> tuple[str, dict[str, Any]]:
        shown = self._subscription.shown(name, request.query_params)
        if shown is None:
            raise NotFound(
                f"No subscription {name.id} of {name.client} at {name.broker} is recorded. Remedy: look for the id "
                "under Subscriptions and under Rejects; the archive may not have caught up yet"
            )
        return "subscription.html", shown

    def events(self, request: Request) -> tuple[str, dict[str, Any]]:
        """List the last publications, show one, or try an event."""
        given = request.query_params
        if "key" not in given:
            return "events.html", self._event.found(given)
        shown = self._event.shown(given["key"], given)
        if shown is None:
            raise NotFound(
                f"No publication with the key {given['key']} is recorded. Remedy: a key is the partition and the "
                "offset of a record, as in 0:17; look for the id under Events; the archive may not have caught up yet"
            )
        return "event.html", shown

    def rejects(self, request: Request) -> tuple[str, dict[str, Any]]:
        """List what was refused."""
        rule, client = request.query_params.get("rule", ""), request.query_params.get("client", "").strip()
        rows = self._overview.rejects()
        fitting = [row for row in rows if rule in ("", row["rule"]) and client in ("", row["client"])]
        return "rejects.html", {
            "rows": [row | {"remedy": remedy_of(row), "again": again(row)} for row in fitting],
            "rules": sorted({row["rule"] for row in rows}),
            "rule": rule,
            "client": client,
            "total": self._overview.figures().rejects,
            "most": SHOWN,
        }

    def health(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Show how the job is, and how it has been."""
        window = request.query_params.get("time", "1h")
        window = window if WINDOWS.get(window, ("", 0))[1] else "1h"
        history = self._overview.history(window)
        return "health.html", {
            "history": [m for m in history if m.delay is not None or m.batch is not None],
            "charts": health_charts(history),
            "windows": {key: value for key, value in WINDOWS.items() if value[1]},
            "window": window,
        }

    def unknown(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Say what there is instead."""
        if request.url.path.startswith("/v1/"):
            raise HTTPException(404, "there is no such path")  # programs are answered in JSON
        raise NotFound(f"There is no page {request.url.path}. Remedy: choose one of those above")


def link_to(path: str, **given: object) -> str:
    """Return an address with the parameters that are given.

    >>> link_to("/", broker="a&b", time="")
    '/?broker=a%26b'
    """
    query = urlencode({key: value for key, value in given.items() if value not in ("", None)})
    return f"{path}?{query}" if query else path


def page_of(home: str, client: str, id: str) -> str:
    """Return the address of a subscription's page, whatever characters its names have.

    >>> page_of("oslo", "a/b", "s 1")
    '/subscriptions/oslo/a%2Fb/s%201'
    """
    if any(set(part) <= {"."} for part in (home, client, id)):  # a browser would take it for a step in the path
        return link_to("/subscriptions", home=home, client=client, id=id)
    return "/subscriptions/" + "/".join(quote(part, safe="") for part in (home, client, id))


def count_text(value: float) -> str:
    """Return a number for a person."""
    return f"{value:,.0f}"


def percent_text(share: float) -> str:
    """Return a share for a person.

    >>> [percent_text(share).replace("\u00a0", " ") for share in (0.37, 0.0004, 0, 1e-9, 0.999)]
    ['37 %', '0.04 %', '0 %', 'under 0.01 %', '99.9 %']
    """
    percent = share * 100
    if 0 < percent < 0.01:
        return "under 0.01\u00a0%"
    digits = ".0f" if percent in (0, 100) or 1 <= percent <= 99 else ".2g" if percent < 1 else ".1f"
    return f"{percent:{digits}}\u00a0%"


def remedy_of(row: dict[str, Any]) -> str:
    """Return what to do about a reject: what its rule asks for."""
    return f"{RULES.get(row['rule'], row['rule'])}".capitalize() + ". Correct the event and send it again."


def again(row: dict[str, Any]) -> str | None:
    """Return the command that sends a corrected event over HTTP; None if the record is not readable as one."""
    kind = str(row["topic"] or "").rpartition(".")[2]
    if kind not in ("subscribe", "unsubscribe", "publish") or not row["key"]:
        return None
    broker = quote(row["key"], safe="")
    client = shlex.quote(f"Lacuna-Client: {row['client'] or 'CLIENT'}")
    url, method = f"/v1/brokers/{broker}/subscriptions/{quote(row['id'] or 'ID', safe='')}", "PUT"
    if kind == "publish":
        url, method = f"/v1/brokers/{broker}/publications", "POST"
    if len(row["value"]) >= MOST_VALUE:  # the table has only its beginning
        return None
    body = "" if kind == "unsubscribe" else f" -H 'Content-Type: application/json' -d {shlex.quote(row['value'])}"
    method = "DELETE" if kind == "unsubscribe" else method
    return f'curl -X {method} "$GATEWAY{url}" -H {client}{body}'
