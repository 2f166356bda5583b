"""Events of HTTP requests on their way into Kafka: checked by the router's own rules, sent, confirmed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from access.errors import KafkaFailed
from lacuna.serve.problems import Problem
from producers.compose import Revisions, micros
from producers.errors import REMEDIES, EventRefused
from producers.sender import Sender, Sent
from state.config import Config
from state.errors import shown
from state.protocol.events import Context, EventKind, Reject, Source, read
from state.protocol.messages import Headers


class Writer:
    """Sends events of all clients. A sender that Kafka refused something is replaced: its order is not certain."""

    def __init__(self, config: Config) -> None:
        self._config, self._context = config, Context(config.space, config.overlay.brokers)
        self._revisions = Revisions()
        self._lock = Lock()
        self._sender: Sender | None = None

    def next_revision(self) -> int:
        """Return a revision above all that this gateway has given."""
        return self._revisions.after(micros())

    def check(self, kind: EventKind, broker: str, fields: Mapping[str, Any]) -> Reject | None:
        """Return why the router would refuse an event."""
        try:
            value = json.dumps(fields, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            return Reject("json", str(error))
        outcome = read(self._context, kind, broker, value, Source(0, 0, "", micros()))
        return outcome if isinstance(outcome, Reject) else None

    async def send(self, kind: EventKind, broker: str, fields: Mapping[str, Any], headers: Headers = ()) -> Sent:
        """Send an event, and return when Kafka has confirmed it. Raises `Problem`."""
        return (await self.send_all(kind, broker, [fields], headers))[0]

    async def send_all(
        self, kind: EventKind, broker: str, events: Sequence[Mapping[str, Any]], headers: Headers = ()
    ) -> list[Sent]:
        """Send events in their order, and return when Kafka has confirmed all of them. Raises `Problem`."""
        try:
            sent = await asyncio.to_thread(self._put, kind, broker, events, headers)
            for each in sent:
                await each
        except EventRefused as refused:
            raise refusal(Reject(refused.rule, refused.message)) from None
        except KafkaFailed as failure:
            await asyncio.to_thread(self._give_up)
            remedy = "send it again; a subscription that is sent twice is one, a publication is two"
            raise Problem(503, "kafka", str(failure), remedy, {"Retry-After": "5"}) from None
        return sent

    def _put(self, kind: EventKind, broker: str, events: Sequence[Mapping[str, Any]], headers: Headers) -> list[Sent]:
        sender = self._connected()
        return [sender.send(kind, broker, fields, headers) for fields in events]

    def _connected(self) -> Sender:
        with self._lock:
            if self._sender is None:
                self._sender = Sender(self._config)
            return self._sender

    def _give_up(self, timeout: float | None = 0) -> None:
        """Let the next event go through a new sender."""
        with self._lock:
            sender, self._sender = self._sender, None
        if sender is not None:
            with suppress(KafkaFailed):  # each request has been told of its own event
                sender.close(timeout)

    def close(self) -> None:
        """Wait for what is under way, and end."""
        self._give_up(None)


def refusal(reject: Reject, line: int | None = None) -> Problem:
    """Return the problem that a refused event is."""
    problem = Problem(422, reject.rule, reject.message, REMEDIES[reject.rule])
    if line is not None:
        problem.more["line"] = line
    return problem


class _Twice(ValueError):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice
    return found


def read_object(body: bytes, line: int | None = None) -> dict[str, Any]:
    """Read a JSON object in which no name stands twice. Raises `Problem` by the rules of events."""
    try:
        value = json.loads(body.decode(), object_pairs_hook=_once)
    except _Twice:
        raise refusal(Reject("duplicate", "a name stands twice in one object"), line) from None
    except UnicodeDecodeError as error:
        raise refusal(Reject("utf8", f"byte {error.start} is not UTF-8"), line) from None
    except (ValueError, RecursionError) as error:
        raise refusal(Reject("json", f"not JSON: {error}"), line) from None
    if not isinstance(value, dict):
        raise refusal(Reject("json", f"a JSON object is needed, not {shown(value)}"), line)
    return value
