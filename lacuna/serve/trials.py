"""`POST /v1/explain`: tries of events and filters, on one copy of the overlay that follows the tables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Lock
from typing import Any

from lacuna.analysis.lake import open_tables
from lacuna.analysis.trial import Trial
from state.config import Config

EVERY = 2.0
"""Seconds between two looks at the tables."""


class Trials:
    """The copy. It is made when somebody asks for the first time; tries take turns."""

    def __init__(self, config: Config) -> None:
        self._config, self._lock = config, Lock()
        self._trial: Trial | None = None
        self._looked = 0.0
        self.seen: float | None = None
        """When the tables were read last."""

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request. Raises `Refused`, or `LacunaError` if the tables cannot be read."""
        with self._lock:
            if self._trial is None:
                self._trial = Trial(open_tables(self._config))
            if time.monotonic() > self._looked + EVERY:
                self._trial.refresh()
                self._looked, self.seen = time.monotonic(), time.time()
            return self._trial.answer(request)
