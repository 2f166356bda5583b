"""The API below /v1: subscriptions, publications, what stands."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from access.errors import KafkaFailed
from lacuna.analysis.standing import Standing
from lacuna.analysis.trial import Refused
from lacuna.serve import cloudevents
from lacuna.serve.auth import Auth, Caller
from lacuna.serve.body import read_body
from lacuna.serve.problems import Problem
from lacuna.serve.trials import Trials
from lacuna.serve.waits import Waits
from lacuna.serve.writer import Writer, read_object, refusal
from producers.answers import new_ack
from producers.sender import Sent
from state.errors import LacunaError
from state.protocol.events import INT64, EventKind, Reject
from state.protocol.messages import Headers
from state.protocol.notices import Notice

MOST_EVENT = 1 << 19
"""Bytes of the body of one event; an event of 1 MiB would be beyond what Kafka takes in one record."""
MOST_LINES = 1 << 23
"""Bytes of the body of many publications."""
NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
WAIT, LONGEST_WAIT = 30.0, 60.0
"""Seconds to wait for the router's word by default, and at most."""
PREFERENCE = re.compile(r"\s*wait(?:\s*=\s*(\d{1,6}))?\s*", re.IGNORECASE)
ETAG = re.compile(r'\s*"(\d{1,19})"\s*')
STATUS = {"in-force": 200, "ended": 200, "routed": 200, "not-standing": 404, "refused": 422}

audit = logging.getLogger("lacuna.audit")


@dataclass(frozen=True)
class Api:
    """What the endpoints use."""

    auth: Auth
    writer: Writer
    waits: Waits
    standing: Standing
    trials: Trials

    async def subscribe(self, request: Request) -> Response:
        """PUT /v1/brokers/{broker}/subscriptions/{id}."""
        broker, id = request.path_params["broker"], request.path_params["id"]
        caller, client = self.auth.client(request, "subscribe", broker)
        self.auth.spend(caller)
        given = read_object(await read_body(request, MOST_EVENT))
        for name in given:
            if name not in ("where", "ttl"):
                raise refusal(Reject("field", f"{name!r} is not a field of a subscription over HTTP"))
        fields = {"id": id, "client": client, **{k: v for k, v in given.items() if v is not None}}
        return await self._change(request, "subscribe", broker, fields)

    async def unsubscribe(self, request: Request) -> Response:
        """DELETE /v1/brokers/{broker}/subscriptions/{id}."""
        broker, id = request.path_params["broker"], request.path_params["id"]
        caller, client = self.auth.client(request, "subscribe", broker)
        self.auth.spend(caller)
        return await self._change(request, "unsubscribe", broker, {"id": id, "client": client})

    async def _change(self, request: Request, kind: EventKind, broker: str, fields: dict[str, Any]) -> Response:
        expected = expected_revision(request.headers.get("if-match"))
        rev = self.writer.next_revision() if expected is None else expected + 1
        answer = {"broker": broker, "id": fields["id"], "rev": rev}
        notice = await self._send(request, kind, broker, fields | {"rev": rev})
        return answered(answer, notice, headers={"ETag": f'"{rev}"'})

    async def publish(self, request: Request) -> Response:
        """POST /v1/brokers/{broker}/publications."""
        broker = request.path_params["broker"]
        caller = self.auth.require(request, "publish", broker)
        self.auth.spend(caller)
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind in NDJSON:
            return await self._publish_lines(request, caller, broker)
        if kind not in ("application/json", cloudevents.STRUCTURED):
            known = ", ".join(("application/json", cloudevents.STRUCTURED, NDJSON[0]))
            raise Problem(415, "body", f"Content-Type is {kind!r}", f"send {known}")
        self.auth.spend(caller, 1)
        given, headers = read_object(await read_body(request, MOST_EVENT)), Headers()
        if kind == cloudevents.STRUCTURED:
            given, headers = cloudevents.from_structured(given)
        elif cloudevents.is_binary(request.headers):
            given, headers = cloudevents.from_binary(request.headers, given)
        _only_known(given)
        notice = await self._send(request, "publish", broker, given, headers)
        return answered({"broker": broker, "id": given["id"]}, notice)

    async def _publish_lines(self, request: Request, caller: Caller, broker: str) -> Response:
        """Publish many at once: all of them, or none if one breaks a rule."""
        body = await read_body(request, MOST_LINES)
        lines = [(k, line) for k, line in enumerate(body.splitlines(), 1) if line.strip()]
        self.auth.spend(caller, max(1, len(lines)))
        events = await run_in_threadpool(self._checked, broker, lines)
        try:
            await self.writer.send_all("publish", broker, events)
        except Problem as problem:
            _audit(request, "publish", broker, {"id": f"{len(events)} publications"}, problem.status)
            raise
        _audit(request, "publish", broker, {"id": f"{len(events)} publications"}, 202)
        return JSONResponse({"broker": broker, "accepted": len(events)}, 202)

    def _checked(self, broker: str, lines: list[tuple[int, bytes]]) -> list[dict[str, Any]]:
        events = []
        for number, line in lines:
            event = read_object(line, number)
            _only_known(event, number)
            reject = self.writer.check("publish", broker, event)
            if reject is not None:
                raise refusal(reject, number)
            events.append(event)
        return events

    async def _send(
        self, request: Request, kind: EventKind, broker: str, fields: dict[str, Any], headers: Headers = ()
    ) -> Notice | None:
        """Send an event, and wait for the router's word if that is preferred. Return it; None: not (yet) known."""
        patience = patience_of(request.headers.getlist("prefer"))
        try:
            if patience is None:
                await self.writer.send(kind, broker, fields, headers)
                _audit(request, kind, broker, fields, 202)
                return None
            ack = new_ack()
            answer = await self.waits.expect(ack)
            sent: Sent = await self.writer.send(kind, broker, fields | {"ack": ack}, headers)
        except KafkaFailed as failure:
            raise Problem(503, "kafka", str(failure), "try again", {"Retry-After": "5"}) from None
        except Problem as problem:
            _audit(request, kind, broker, fields, problem.status)
            raise
        assert sent.done
        try:
            notice = await asyncio.wait_for(answer, patience)
        except TimeoutError:
            notice = None
        _audit(request, kind, broker, fields, 202 if notice is None else _status_of(notice))
        return notice

    async def list(self, request: Request) -> Response:
        """GET /v1/subscriptions."""
        caller, client = self.auth.client(request, "subscribe")
        self.auth.spend(caller)
        try:
            found = await run_in_threadpool(self.standing.now, time.time_ns() // 1000)
        except KafkaFailed as failure:
            raise Problem(503, "kafka", str(failure), "try again", {"Retry-After": "5"}) from None
        own = [s for s in found if s.client == client and (caller.brokers is None or s.broker in caller.brokers)]
        listed = [
            {"broker": s.broker, "id": s.subscription, "where": json.loads(s.filter), "since": s.since} | _expires(s)
            for s in own
        ]
        return JSONResponse({"subscriptions": listed})

    async def explain(self, request: Request) -> Response:
        """POST /v1/explain."""
        self.auth.spend(self.auth.require(request, "observe"))
        given = read_object(await read_body(request, MOST_EVENT))
        try:
            return JSONResponse(await run_in_threadpool(self.trials.answer, given))
        except Refused as refused:
            raise refusal(Reject(refused.rule, refused.message)) from None
        except (LacunaError, OSError) as error:
            raise Problem(503, "lake", str(error), "see that the job runs", {"Retry-After": "5"}) from None


def _expires(stands: Any) -> dict[str, str]:
    return {} if stands.expires is None else {"expires": stands.expires}


def _only_known(event: dict[str, Any], line: int | None = None) -> None:
    for name in event:
        if name not in ("id", "at", "payload"):
            raise refusal(Reject("field", f"{name!r} is not a field of a publication over HTTP"), line)


def patience_of(headers: list[str]) -> float | None:
    """Return for how many seconds a request prefers to wait; None: not at all.

    >>> patience_of([]), patience_of(["respond-async, wait=10"]), patience_of(["wait"]), patience_of(["wait=99999"])
    (None, 10.0, 30.0, 60.0)
    """
    for preference in ",".join(headers).split(","):
        found = PREFERENCE.fullmatch(preference)
        if found is not None:
            return WAIT if found[1] is None else min(float(found[1]), LONGEST_WAIT)
    return None


def expected_revision(header: str | None) -> int | None:
    """Return the revision that `If-Match` names. Raises `Problem` if it is none.

    >>> expected_revision('"41"'), expected_revision(None)
    (41, None)
    """
    if header is None:
        return None
    found = ETAG.fullmatch(header)
    if found is None or int(found[1]) >= INT64 - 1:
        raise Problem(400, "header", f"If-Match: {header} is no ETag of a subscription", 'write "REVISION"')
    return int(found[1])


def answered(answer: dict[str, Any], notice: Notice | None, headers: dict[str, str] | None = None) -> Response:
    """Return the answer to a change or a publication, given the router's word."""
    if notice is None:
        return JSONResponse(answer, 202, headers)
    if notice.state == "refused":
        rule, message = notice.rule or "unexpected", notice.message or "the router refused it"
        problem = refusal(Reject(rule, message))
        problem.status = _status_of(notice)
        raise problem
    if notice.state == "not-standing":
        raise Problem(
            404, "standing", f"{answer['id']!r} does not stand at {answer['broker']!r}", "look at what stands"
        )
    told = {"state": notice.state} | ({} if notice.deliveries is None else {"deliveries": notice.deliveries})
    return JSONResponse(answer | told, STATUS[notice.state], {**(headers or {}), "Preference-Applied": "wait"})


def _status_of(notice: Notice) -> int:
    return 409 if notice.rule == "stale" else STATUS[notice.state]


def _audit(request: Request, kind: str, broker: str, fields: dict[str, Any], status: int) -> None:
    """Write who changed what into the log: a line for each write."""
    who = getattr(request.state, "client", None)
    place = request.client.host if request.client else "?"
    audit.info("%s %r at %r by %r from %s: %d", kind, fields.get("id"), broker, who, place, status)
