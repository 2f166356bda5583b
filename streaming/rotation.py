"""Taking up rotated secrets: the queries start again between batches, with what is in the files now.

    files as used ──changed──▶ tried: checked, and a connection opened ──it works──▶ due ──queries started──▶ as used
                                  ▲  │ it does not: degraded, with the reason
                                  └──┘ tried again with the next look

Python's clients take up secrets by themselves (`access.security`). The clients in Spark keep those with which their
query began. Connections that are open stay open, so nothing is urgent: a file may be replaced before Kafka knows its
content, and the queries go on with the old one until it does. A password in the environment cannot change while the
process lives.
"""

from __future__ import annotations

from access.errors import Unreachable
from access.offsets import topic_spans
from access.security import check, stamp
from state.config import Kafka
from state.errors import LacunaError
from state.protocol.topics import Topics

DEADLINE = 5.0
"""Seconds that Kafka may take to accept new secrets."""


class Rotation:
    """The secrets that the queries use, and whether there are others. One thread looks, another takes up."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._used = stamp(kafka.security)
        self.due: str | None = None
        """The stamp of new secrets that work; None if there are none."""
        self.refused: str | None = None
        """Why new secrets are not taken up."""

    def look(self) -> None:
        """Look whether the files have changed, and if so, try their content."""
        now = stamp(self._kafka.security)
        if now in (self._used, self.due):
            self.refused = None
            return
        try:
            check(self._kafka.security)
            topic_spans(self._kafka.bootstrap, [Topics(self._kafka.prefix).control], DEADLINE)
        except Unreachable:
            return  # says nothing about the secrets
        except LacunaError as error:
            self.refused = str(error)
        else:
            self.refused, self.due = None, now

    def take_up(self) -> None:
        """Note that the queries use what was due."""
        self._used, self.due = self.due or self._used, None
