"""What the API offers: one table, from which both the routes and `/openapi.json` are made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, NamedTuple

from lacuna.serve.auth import CLIENT_HEADER, Right
from lacuna.serve.problems import RULES as HTTP_RULES
from state.config import Config
from state.protocol.events import MOST_NAME, MOST_TTL, RULES
from state.space import Attribute, timestamp_text

Schema = dict[str, Any]
JSON = "application/json"
NONE: Mapping[str, str] = MappingProxyType({})


class Operation(NamedTuple):
    """One operation: the endpoint that serves it (`api`), the right that it needs, what it takes and answers."""

    method: str
    path: str
    endpoint: str
    right: Right | None
    about: str
    body: Mapping[str, str] = NONE
    """The name of the schema of the body, by content type."""
    answers: Mapping[int, tuple[str, str]] = MappingProxyType({})
    """What a status means, and the name of the schema of its body."""
    parameters: tuple[str, ...] = ()


BROKER = "/v1/brokers/{broker}"
SUBSCRIPTION = f"{BROKER}/subscriptions/{{id:path}}"
BAD = {422: ("It breaks a rule; nothing was sent", "Problem")}
STALE = {409: ("A later change is known to the router (with `Prefer: wait`)", "Problem")}
OPERATIONS = (
    Operation(
        *("PUT", SUBSCRIPTION, "subscribe", "subscribe", "Ask for a part of the space, or for another one"),
        {JSON: "Subscription"},
        {200: ("It is in force at every broker", "Changed"), 202: ("It is sent", "Changed"), **BAD, **STALE},
        ("broker", "id", "prefer", "if_match"),
    ),
    Operation(
        *("DELETE", SUBSCRIPTION, "unsubscribe", "subscribe", "Ask for it no longer"),
        {},
        {
            200: ("It has ended at every broker", "Changed"),
            202: ("It is sent", "Changed"),
            404: ("Nothing of that name stands (with `Prefer: wait`)", "Problem"),
            **BAD,
            **STALE,
        },
        ("broker", "id", "prefer", "if_match"),
    ),
    Operation(
        *("POST", f"{BROKER}/publications", "publish", "publish", "Publish an event, a CloudEvent, or many events"),
        {JSON: "Publication", "application/cloudevents+json": "CloudEvent", "application/x-ndjson": "Lines"},
        {200: ("It was routed", "Published"), 202: ("It is sent", "Published"), **BAD},
        ("broker", "prefer"),
    ),
    Operation(
        *("GET", "/v1/subscriptions", "list", "subscribe", "What the client has asked for that stands"),
        {},
        {200: ("The subscriptions", "Standing")},
    ),
    Operation(
        *("GET", "/v1/deliveries", "deliveries", "listen", "The client's deliveries as server-sent events"),
        {},
        {200: ("A stream without end", "Stream")},
        ("from", "last_event_id"),
    ),
    Operation(
        *("POST", "/v1/explain", "explain", "observe", "Whom an event would reach; how a filter would be decided"),
        {JSON: "Try"},
        {200: ("The answer; nothing was changed", "Answer"), 422: ("It breaks a rule", "Problem")},
    ),
)
ALWAYS = {
    400: "A header or the body has not the form that it must have",
    401: "It does not say, or not rightly, whose request it is",
    403: "The token lacks the right, or a page of another site asked",
    408: "The body did not arrive in time",
    413: "The body is too long",
    415: "The body is of an unknown type",
    421: "The gateway has not this name",
    429: "More than the limits of the token allow",
    500: "The gateway failed",
    503: "Kafka or the tables do not answer, or there are too many streams",
}
"""Answers that every operation may give."""


def path_of(operation: Operation) -> str:
    """Return the path of an operation as OpenAPI writes it."""
    return operation.path.replace(":path", "")


def document(config: Config) -> Schema:
    """Return the description of the API of a system."""
    paths: Schema = {}
    for operation in OPERATIONS:
        paths.setdefault(path_of(operation), {})[operation.method.lower()] = _operation(operation)
    tokens = config.serve.tokens_file is not None
    scheme = {"type": "http", "scheme": "bearer"} if tokens else {"type": "apiKey", "in": "header"}
    named = scheme if tokens else scheme | {"name": CLIENT_HEADER}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lacuna", "version": version("lacuna"), "description": __doc__},
        "security": [{"client": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(config),
            "parameters": _parameters(config),
            "securitySchemes": {"client": named},
        },
    }


def _operation(operation: Operation) -> Schema:
    problem = {JSON: {"schema": _ref("Problem")}}
    answers: Schema = {str(status): {"description": about, "content": problem} for status, about in ALWAYS.items()}
    for status, (about, schema) in operation.answers.items():
        kind = "text/event-stream" if schema == "Stream" else JSON
        answers[str(status)] = {"description": about, "content": {kind: {"schema": _ref(schema)}}}
    found: Schema = {
        "operationId": operation.endpoint,
        "summary": operation.about,
        "description": f"Needs the right `{operation.right}`.",
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in operation.parameters],
        "responses": dict(sorted(answers.items())),
    }
    if operation.body:
        content = {kind: {"schema": _ref(schema)} for kind, schema in operation.body.items()}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameters(config: Config) -> Schema:
    brokers = {"type": "string", "enum": list(config.overlay.brokers)}
    revision = {"type": "string", "pattern": '^"[0-9]{1,18}"$'}
    place = {"type": "string", "maxLength": 16_384}
    return {
        "broker": {"name": "broker", "in": "path", "required": True, "schema": brokers},
        "id": {"name": "id", "in": "path", "required": True, "schema": _name()},
        "prefer": _header("Prefer", {"type": "string"}, "`wait`, or `wait=SECONDS`: answer when the router has"),
        "if_match": _header("If-Match", revision, "The `ETag` of the revision that this change follows"),
        "last_event_id": _header("Last-Event-ID", place, "The id of the last event: go on behind it"),
        "from": {"name": "from", "in": "query", "schema": {"type": "string", "enum": ["beginning"]}},
    }


def _header(name: str, schema: Schema, about: str) -> Schema:
    return {"name": name, "in": "header", "description": about, "schema": schema}


def _name() -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": MOST_NAME}


def _schemas(config: Config) -> Schema:
    text, number = {"type": "string"}, {"type": "integer"}
    anything: Schema = {}
    rules = {"type": "string", "enum": sorted({*RULES, *HTTP_RULES})}
    changed = {"broker": text, "id": text, "rev": number, "state": text}
    published = {"broker": text, "id": text, "state": text, "deliveries": number, "accepted": number}
    stands = {"broker": text, "id": text, "where": anything, "since": text, "expires": text}
    where = {"oneOf": [{"type": "object"}, {"type": "array"}, {"type": "string"}]}
    ttl = {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": MOST_TTL}
    publication = {"id": _name(), "at": _point(config), "payload": anything}
    data = _object({"at": _point(config), "payload": anything}, ("at",), closed=True)
    event = {"specversion": {"const": "1.0"}, "id": _name(), "source": _name(), "type": _name(), "data": data}
    problem = {"rule": rules, "message": text, "remedy": text, "line": number}
    tried = {"at": {"type": "object"}, "where": where, "broker": text, "subscription": {"type": "object"}}
    return {
        "Subscription": _object({"where": where, "ttl": ttl}, ("where",), closed=True),
        "Publication": _object(publication, ("id", "at"), closed=True),
        "CloudEvent": _object(event, tuple(event)),
        "Lines": {"type": "string", "description": "A publication a line"},
        "Changed": _object(changed, ("broker", "id", "rev")),
        "Published": _object(published, ("broker",)),
        "Standing": _object(
            {"subscriptions": {"type": "array", "items": _object(stands, ("broker", "id", "where", "since"))}},
            ("subscriptions",),
        ),
        "Stream": {"type": "string", "description": "Events: `id`, `data` (a delivery as JSON); `event: lost`"},
        "Try": {"type": "object", "properties": tried, "additionalProperties": False},
        "Answer": _object({"about": text, "sentences": {"type": "array"}}, ("about", "sentences")),
        "Problem": _object(problem, ("rule", "message", "remedy")),
    }


def _object(properties: Schema, required: tuple[str, ...], *, closed: bool = False) -> Schema:
    found = {"type": "object", "properties": properties, "required": list(required)}
    return found | {"additionalProperties": False} if closed else found


def _point(config: Config) -> Schema:
    attributes = config.space.attributes
    needed = tuple(a.name for a in attributes if a.default is None)
    return _object({a.name: _value(a) for a in attributes}, needed, closed=True)


def _value(attribute: Attribute) -> Schema:
    low, high = attribute.value(attribute.low), attribute.value(attribute.high)
    if attribute.kind == "category":
        return {"enum": [*attribute.values, *(old for old, _ in attribute.renamed)]}
    if attribute.kind == "timestamp":
        span = f"{timestamp_text(attribute.low)} to {timestamp_text(attribute.high)}"
        return {"type": "string", "format": "date-time", "description": span}
    return {"type": {"int": "integer", "float": "number"}[attribute.kind], "minimum": low, "maximum": high}
