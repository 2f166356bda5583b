"""Answers: waiting until the router says what became of an event.

An event that carries an `ack`, a text that nobody else uses, is answered in the topic `notices` when it has had its
effect at every broker (`state.protocol.notices`). The reader must listen before the event is sent, so it is opened
first. A subscribe or unsubscribe that was sent without an `ack` is sent once more with one: the router knows it for a
repeat, which changes nothing, and answers. A publication cannot be repeated, so it must have had its `ack` from the
start.
"""

from __future__ import annotations

import json
import time
import uuid
from threading import Lock
from typing import Any
from weakref import finalize

from access import DEADLINE
from producers.errors import NoAnswer, NotAccepted
from producers.notices import connect_notices
from producers.sender import PATIENCE, Sender, Sent
from state.config import Kafka
from state.protocol.notices import Notice, read_notice

SLICE = 0.5
"""Seconds that one look at the topic takes at most."""


def new_ack() -> str:
    """Return a text that no other event carries."""
    return uuid.uuid4().hex


def ack_in(sent: Sent) -> str | None:
    """Return the ack that an event carries."""
    ack: str | None = json.loads(sent.value).get("ack")
    return ack


class Expected(dict[str, Notice | None]):
    """The answers that are expected, by ack; None where there is none yet."""

    def forget_with(self, sent: Sent, ack: str) -> None:
        """Forget an answer when nobody holds its event any more, so that what nobody waits for does not gather."""
        finalize(sent, self.pop, ack, None).atexit = False


class Answers:
    """The answers to one client's events. May be shared by threads; they wait in turn."""

    def __init__(self, kafka: Kafka, sender: Sender, deadline: float = DEADLINE) -> None:
        self._kafka, self._sender, self._deadline = kafka, sender, deadline
        self._lock = Lock()
        self._consumer: Any = None
        self._asked = Expected()

    def expect(self, ack: str) -> None:
        """Listen from now on for the answer to an event that is about to be sent."""
        with self._lock:
            self._listen()
            self._asked[ack] = None

    def awaited(self, sent: Sent) -> Sent:
        """Let an event be waited for, as long as somebody holds it."""
        sent.answer = self.wait
        if ack := ack_in(sent):
            self._asked.forget_with(sent, ack)
        return sent

    def wait(self, sent: Sent, timeout: float = PATIENCE) -> Notice:
        """Wait for the answer to an event. Raises `NotAccepted` if it was refused, `NoAnswer` if time is over."""
        ack = ack_in(sent) or self._ask_again(sent)
        ends = time.monotonic() + timeout
        with self._lock:
            while (notice := self._asked.get(ack)) is None:
                if time.monotonic() >= ends:
                    raise NoAnswer(sent.name, timeout)
                self._look(min(SLICE, max(0.0, ends - time.monotonic())))
            del self._asked[ack]
        if notice.state == "refused":
            raise NotAccepted(sent.name, notice)
        return notice

    def _ask_again(self, sent: Sent) -> str:
        self.expect(ack := new_ack())
        self._asked.forget_with(sent, ack)
        self._sender.repeat(sent, ack)
        return ack

    def _listen(self) -> None:
        """Read the topic from its end, if that has not begun."""
        if self._consumer is not None:
            return
        self._consumer = connect_notices(self._kafka, self._deadline)

    def _look(self, seconds: float) -> None:
        for records in self._consumer.poll(timeout_ms=round(seconds * 1000)).values():
            for record in records:
                notice = read_notice(record.value or b"")
                if notice is not None and notice.ack is not None and notice.ack in self._asked:
                    self._asked[notice.ack] = notice

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
