"""A request that is not served: the status, the rule that it broke, and what to do about it, as one JSON object.

    {"rule": "domain", "message": "price = 2000 is outside 0 to 1000", "remedy": "stay inside the domain ..."}

The rules of events are those of the router (`state.protocol.events`); the rules of HTTP are in `RULES` here.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

RULES = {
    "token": "a request says by `Authorization: Bearer TOKEN` whose it is; without tokens by `Lacuna-Client: NAME`",
    "right": "a token may do what its rights and brokers say",
    "host": "the gateway is addressed by a name that it knows",
    "origin": "what changes something comes from a page of the gateway itself, or from no page",
    "body": "a body is of a known type, has its form, is not too long, and arrives in time",
    "header": "a header has the form that the documentation says",
    "limit": "a token has so many requests, publications and streams as its limits say",
    "path": "a path, and a method on it, is one of those in /openapi.json",
    "changed": "a change that names a revision finds that revision",
    "standing": "what is cancelled stands",
    "kafka": "Kafka takes what is sent",
    "lake": "the tables can be read",
    "fault": "a request is answered without an error of the gateway's own",
}


class Problem(Exception):
    """A request that is not served."""

    def __init__(
        self, status: int, rule: str, message: str, remedy: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.rule, self.message, self.remedy = status, rule, message, remedy
        self.headers = dict(headers or {})
        self.more: dict[str, object] = {}

    def response(self) -> Response:
        """Return the answer."""
        content = {"rule": self.rule, "message": self.message, "remedy": self.remedy, **self.more}
        return JSONResponse(content, self.status, self.headers)


def answer_problem(_: Request, problem: Exception) -> Response:
    """Answer with a problem that was raised."""
    assert isinstance(problem, Problem)
    return problem.response()
