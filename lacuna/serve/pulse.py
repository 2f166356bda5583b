"""How the job is and how old the tables are, as every page says it.

The job is asked by one thread, no more often than every `PAUSE` seconds, and only while somebody looks; a page shows
the last answer, and waits for it a moment at most. The age of the tables counts only while the archive is behind: an
idle system has old rows, and nothing is missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

PAUSE, PATIENCE = 2.0, 1.0
SIGNS = {"healthy": "●", "starting": "○", "degraded": "▲", "down": "✗"}


@dataclass(frozen=True)
class Look:
    """The state of the job: a word, the reasons, what to say of the tables, and all that the job said."""

    state: str
    reasons: tuple[str, ...]
    tables: str
    status: dict[str, Any]

    @property
    def sign(self) -> str:
        return SIGNS.get(self.state, "▲")


class Pulse:
    """Asks the job how it is."""

    def __init__(self, ask: Callable[[], dict[str, Any]], clock: Callable[[], float] = time.time) -> None:
        self._ask, self._clock, self._lock = ask, clock, threading.Lock()
        self._answer: dict[str, Any] | None = None
        self._asked, self._asking = float("-inf"), threading.Event()
        self._down: float | None = None
        self._asking.set()

    def look(self, written: datetime | None) -> Look:
        """Return how the job is; `written` is the moment of the tables' last row."""
        with self._lock:
            if self._clock() - self._asked >= PAUSE and self._asking.is_set():
                self._asking.clear()
                threading.Thread(target=self._refresh, daemon=True, name="pulse").start()
        if self._answer is None:
            self._asking.wait(PATIENCE)
        return self._judged(self._answer or {"state": "starting", "reasons": ["the job has not answered yet"]}, written)

    def _refresh(self) -> None:
        try:
            answer = self._ask()
        except Exception as error:  # nobody else would see it
            answer = {"state": "down", "reasons": [str(error)]}
        with self._lock:
            now = self._clock()
            self._down = None if answer["state"] != "down" else self._down or now
            self._answer, self._asked = answer, now
        self._asking.set()

    def _judged(self, status: dict[str, Any], written: datetime | None) -> Look:
        state, reasons = str(status["state"]), tuple(map(str, status["reasons"]))
        as_of = "" if written is None else f"tables as of {clock_text(written)}"
        if state == "down":
            since = datetime.fromtimestamp(self._down or self._clock(), UTC)
            says = f"Job not reachable since {clock_text(since)}" + (f"; {as_of}" if as_of else "")
            return Look(state, (says, *reasons), as_of, status)
        archive = status.get("queries", {}).get("archive")
        if archive is None:
            return Look(state, reasons, as_of, status)
        behind = float(archive["lag_seconds"])
        if not archive["active"]:
            return Look(state, (*reasons, f"the archive does not run; {as_of}"), as_of, status)
        if archive["lag_records"] == 0:
            return Look(state, reasons, "tables up to date", status)
        return Look(state, reasons, f"tables {behind:.0f} s behind", status)


def clock_text(moment: datetime) -> str:
    """Return a moment of today by its time, any other one with its date.

    >>> clock_text(datetime(2026, 5, 1, 12, 0, 7, tzinfo=UTC))
    '2026-05-01 12:00:07 UTC'
    """
    today = moment.astimezone(UTC).date() == datetime.now(UTC).date()
    return f"{moment.astimezone(UTC):{'%H:%M:%S' if today else '%Y-%m-%d %H:%M:%S'}} UTC"
