"""Notices: what the system tells a client about its own events, on the topic `notices`.

    {"state": "in-force", "kind": "subscribe", "broker": "oslo", "client": "ann", "id": "s1", "ack": "7f3a"}
    {"state": "ended", "kind": "unsubscribe", ...}         the cancellation has reached every region
    {"state": "not-standing", "kind": "unsubscribe", ...}  there was nothing to cancel
    {"state": "routed", "kind": "publish", "broker": "rome", "id": "p1", "ack": "91bc", "deliveries": 2}
    {"state": "refused", "client": "ann", "id": "s1", "rule": "stale", "message": "..."}

The key is the client, or the `ack` of an event that names no client. A client that puts an `ack` into an event, a text
of its own choice, is answered when the event has had its effect everywhere (`state.routing.echoes`). What is refused
and what was cancelled in vain is told without being asked. A notice may come twice after a crash.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from state.protocol.events import EventKind, Refused, Reject, said_in
from state.protocol.messages import Name, Publish, Subscribe, Unsubscribe

State = Literal["in-force", "ended", "not-standing", "routed", "refused"]


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one event of a client."""

    state: State
    kind: EventKind | None = None
    broker: str | None = None
    client: str | None = None
    id: str | None = None
    ack: str | None = None
    deliveries: int | None = None
    rule: str | None = None
    message: str | None = None

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return (self.client or self.ack or "").encode()


_notice_in = msgspec.json.Decoder(Notice).decode


def read_notice(value: bytes) -> Notice | None:
    """Read a record of the topic. Return None if it is no notice."""
    try:
        return _notice_in(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def about(message: Subscribe | Unsubscribe, state: State, refusal: Reject | None = None) -> Notice:
    """Return a notice about a client's change of a subscription."""
    name: Name = message.name
    kind: EventKind = "subscribe" if isinstance(message, Subscribe) else "unsubscribe"
    rule, why = (None, None) if refusal is None else (refusal.rule, refusal.message)
    return Notice(state, kind, name.broker, name.client, name.id, message.ack, rule=rule, message=why)


def about_publication(publication: Publish) -> Notice:
    """Return a notice about a publication that has been routed."""
    return Notice("routed", "publish", publication.entry, None, publication.id, publication.ack)


def about_refused(refused: Refused) -> Notice | None:
    """Return a notice about a refused record, or None if it does not say whom to tell."""
    sender = said_in(refused.value)
    if not sender.client and not sender.ack:
        return None
    return Notice(
        "refused",
        client=sender.client or None,
        id=sender.id,
        ack=sender.ack,
        rule=refused.rule,
        message=refused.message,
    )
