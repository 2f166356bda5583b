"""CloudEvents 1.0 as publications: the structured and the binary form of the HTTP binding.

id                  the publication's id
data                {"at": {...}, "payload": ...}
everything else     Kafka headers `ce_source`, `ce_type` ..., which travel to the deliveries
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from lacuna.serve.problems import Problem
from state.protocol.messages import Headers

STRUCTURED = "application/cloudevents+json"
ATTRIBUTE = re.compile(r"[a-z0-9]{1,64}")
MOST_ATTRIBUTES = 64
NEEDED = ("id", "source", "type")


def from_structured(event: Mapping[str, Any]) -> tuple[dict[str, Any], Headers]:
    """Return the fields of a publication, and its headers."""
    if "data_base64" in event:
        raise _refused("data is JSON, not data_base64")
    attributes = {name: value for name, value in event.items() if name != "data"}
    return _publication(attributes, event.get("data"))


def is_binary(headers: Mapping[str, str]) -> bool:
    """Return whether a request carries a CloudEvent in the binary form."""
    return "ce-specversion" in headers


def from_binary(headers: Mapping[str, str], data: object) -> tuple[dict[str, Any], Headers]:
    """Return the fields of a publication, and its headers."""
    given = {name[3:]: unquote(value) for name, value in headers.items() if name.startswith("ce-")}
    return _publication(given, data)


def _publication(attributes: Mapping[str, Any], data: object) -> tuple[dict[str, Any], Headers]:
    if attributes.get("specversion") != "1.0":
        raise _refused(f"specversion is {attributes.get('specversion')!r}, not '1.0'")
    if len(attributes) > MOST_ATTRIBUTES:
        raise _refused(f"it has {len(attributes)} attributes, more than {MOST_ATTRIBUTES}")
    for name in NEEDED:
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise _refused(f"{name} is missing, or no text")
    for name, value in attributes.items():
        if not ATTRIBUTE.fullmatch(name) or not isinstance(value, str | int | bool):
            raise _refused(f"{name!r} is no attribute: lower-case letters and digits, with a text, number or boolean")
    if not isinstance(data, Mapping) or not set(data) <= {"at", "payload"}:
        raise _refused('data is {"at": {...}, "payload": ...}')
    headers = tuple((f"ce_{name}", _text(value).encode()) for name, value in attributes.items() if name != "id")
    return {"id": attributes["id"], **data}, headers


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refused(message: str) -> Problem:
    return Problem(422, "body", f"the CloudEvent cannot be taken: {message}", "see docs/gateway.md")
