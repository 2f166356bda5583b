"""The client library: subscribe, unsubscribe, publish, and take deliveries.

    from producers.client import Client

    with Client.from_file("lacuna.toml", broker="oslo", name="ann") as ann:
        ann.subscribe("s1", {"price": [10, 20], "symbol": ["IBM"]}, ttl=3600)
        ann.publish("p1", {"price": 12.5, "volume": 150, "symbol": "IBM"}, payload="anything")
        for delivery in ann.deliveries(timeout=60):
            print(delivery.publication, delivery.at, delivery.payload)

A client is attached to one broker under one name. Every event is checked before it is sent (`EventRefused` names value,
rule and remedy), stamped with the time, and, for subscribes and unsubscribes, with a revision that grows (see
`compose`): of two events about one subscription the later wins, although they are in different topics. Sending does not
wait: it returns a `Sent`, which can be waited for (`place`), awaited, or given a callback. `flush` and the end of the
`with` block wait for everything, and raise `NotConfirmed` with all that Kafka did not confirm. `sent.wait()` waits for
the router, too: until the event has had its effect at every broker (see `answers`). docs/client.md has examples.

Without this library, any Kafka client will do that writes the same JSON with the broker as the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from access import DEADLINE
from producers.answers import Answers, new_ack
from producers.compose import Clock, micros
from producers.deliveries import Deliveries, Gap, warn_of
from producers.sender import WINDOW, Sender, Sent
from state.config import Config, parse
from state.errors import ConfigError, nearest
from state.protocol.events import MOST_NAME
from state.protocol.messages import Headers

Where = Mapping[str, Any] | list[Any] | str
"""An object of ranges, a list of alternatives, or a text such as "price < 20 OR volume > 500"."""


class Client:
    """One client, attached to one broker. May be shared by threads."""

    def __init__(
        self,
        config: Config,
        *,
        broker: str,
        name: str,
        deadline: float = DEADLINE,
        window: int = WINDOW,
        clock: Clock = micros,
    ) -> None:
        """Connect. `deadline` is how many seconds Kafka may take to answer, here and later.

        `window` is how many events may wait for Kafka to confirm them; then sending waits.
        """
        self.broker, self.name = checked_broker(config, broker), checked_name(name)
        self._kafka, self._deadline = config.kafka, deadline
        self._sender = Sender(config, deadline=deadline, window=window, clock=clock)
        self._answers = Answers(config.kafka, self._sender, deadline)
        self._listening: list[Deliveries] = []

    @classmethod
    def from_file(cls, path: str | Path, *, broker: str, name: str, deadline: float = DEADLINE) -> Client:
        """A client of the system that a `lacuna.toml` describes."""
        return cls(parse(Path(path).read_text(encoding="utf-8-sig")), broker=broker, name=name, deadline=deadline)

    def subscribe(
        self, id: str, where: Where, ttl: float | None = None, rev: int | None = None, *, ack: bool = False
    ) -> Sent:
        """Ask for everything in `where`; replaces what `id` asked for before. `ttl` is in seconds.

        `wait()` of the result returns when the subscription is in force at every broker. With `ack`, the router is
        asked to say so at once, not only when somebody waits.
        """
        fields = {"id": id, "client": self.name, "where": where, "ttl": ttl, "rev": rev, "ack": self._ack(ack)}
        return self._answers.awaited(self._sender.send("subscribe", self.broker, _given(fields)))

    def unsubscribe(self, id: str, rev: int | None = None, *, ack: bool = False) -> Sent:
        """Ask for `id` no longer. With `ack`, `wait()` also says if there was nothing to cancel."""
        fields = {"id": id, "client": self.name, "rev": rev, "ack": self._ack(ack)}
        return self._answers.awaited(self._sender.send("unsubscribe", self.broker, _given(fields)))

    def publish(
        self, id: str, at: Mapping[str, Any], payload: Any = None, headers: Headers = (), *, ack: bool = False
    ) -> Sent:
        """Publish a point of the space, with anything that JSON can hold. Kafka headers travel to the deliveries.

        With `ack`, `wait()` returns how many subscriptions it reached.
        """
        fields = {"id": id, "at": at, "payload": payload, "ack": self._ack(ack)}
        sent = self._sender.send("publish", self.broker, _given(fields), headers)
        return self._answers.awaited(sent) if ack else sent

    def _ack(self, wanted: bool) -> str | None:
        """Return a new ack and listen for its answer, if one is wanted."""
        if not wanted:
            return None
        self._answers.expect(ack := new_ack())
        return ack

    def deliveries(
        self,
        *,
        from_beginning: bool = False,
        timeout: float | None = None,
        bookmark: str | None = None,
        on_gap: Callable[[Gap], object] = warn_of,
    ) -> Deliveries:
        """Listen for the client's deliveries, each once, from now on; see `Deliveries` for the options."""
        deliveries = Deliveries(
            self._kafka,
            self.name,
            from_beginning=from_beginning,
            timeout=timeout,
            bookmark=bookmark,
            on_gap=on_gap,
            deadline=self._deadline,
        )
        self._listening.append(deliveries)
        return deliveries

    def flush(self, timeout: float | None = None) -> None:
        """Wait until Kafka has confirmed everything sent so far. Raises `NotConfirmed` for what it did not."""
        self._sender.flush(timeout)

    def close(self) -> None:
        """Flush, and end everything that the client opened."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close; after an error in the body, a delivery at hand is not counted as taken."""
        try:
            for deliveries in self._listening:
                deliveries.__exit__(kind, error, None)
        finally:
            self._answers.close()
            self._sender.__exit__(kind, error, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """As `__exit__`, without blocking the event loop."""
        await asyncio.to_thread(self.__exit__, kind, error, None)


def checked_broker(config: Config, broker: str) -> str:
    """The broker, if the overlay has it."""
    if broker not in config.overlay.brokers:
        known = ", ".join(config.overlay.brokers)
        rule = f"the overlay has no such broker{nearest(broker, config.overlay.brokers)}"
        raise ConfigError("broker", broker, rule, f"use one of {known}")
    return broker


def checked_name(name: str) -> str:
    """The name, if a client may be called so."""
    if not 1 <= len(name) <= MOST_NAME:
        raise ConfigError("client", name, f"a client has a name of 1 to {MOST_NAME} characters", "choose another")
    return name


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
