"""Restarting a query in place: after a failure that may pass, with growing pauses, while everything else goes on.

    running ──dies──▶ degraded ──pause──▶ started again ──a batch is done──▶ running
                         ▲                     │ dies
                         └──a longer pause─────┘

Both queries are run in this way. The router needs nothing of the archive, and the records topic keeps what is not
archived yet, so a lake that is away for an hour costs an hour of delay. The router is started again only after Kafka
was away, or did not accept it for a while. A failure that another attempt cannot mend (rows are lost, the tables are
not the archive's) stops the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from state.errors import ConfigError, InvariantError, LacunaError, StateError

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 300.0


class Running(Protocol):
    """A query as far as this module looks at it."""

    def stop(self) -> None:
        """End it."""

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether it runs."""


Q = TypeVar("Q", bound=Running)


class JobFailed(LacunaError):
    """A query died; the text says why and what to do."""


@dataclass(frozen=True)
class Death:
    """Why a query died, in one message, and whether another attempt may succeed."""

    cause: str
    passing: bool


class Restarted(Generic[Q]):
    """A query that is started again when it dies, `restarts` times so far.

    `degraded` is the cause as long as it lags because of that.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], Q],
        *,
        death_of: Callable[[Q], Death],
        has_progress: Callable[[Q], bool],
        say: Callable[[str], None],
        longest: float = LONGEST_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._longest = longest
        self._name, self._start, self._death_of = name, start, death_of
        self._has_progress, self._say, self._clock = has_progress, say, clock
        self.query = start()
        self.degraded: str | None = None
        self.restarts = 0
        self._pause = FIRST_PAUSE
        self._due: float | None = None

    def look(self) -> None:
        """Do what is due. Raises `JobFailed` if the query died of something that does not pass."""
        if self._due is not None:
            if self._clock() >= self._due:
                self._try_again()
        elif not self.query.isActive:
            self._died(self._death_of(self.query))
        elif self.degraded is not None and self._has_progress(self.query):
            self.degraded, self._pause = None, FIRST_PAUSE
            self._say(f"the {self._name} works again")

    def renew(self) -> None:
        """Stop the query if it runs, and start it again at once."""
        if self.query.isActive:
            self.query.stop()
        self._due = None
        self._start_again()

    def _try_again(self) -> None:
        self._due = None
        self.restarts += 1
        self._start_again()

    def _start_again(self) -> None:
        try:
            self.query = self._start()
        except LacunaError as error:
            self._died(Death(str(error), passing=is_passing_error(error)))
        except Exception as error:
            self._died(Death(f"{type(error).__name__}: {error}", passing=True))

    def _died(self, death: Death) -> None:
        if not death.passing:
            raise JobFailed(f"the {self._name} stopped: {death.cause}")
        self._due = self._clock() + self._pause
        self.degraded = death.cause
        self._say(f"degraded: the {self._name} is tried again in {self._pause:g} s: {death.cause}")
        self._pause = min(2 * self._pause, self._longest)


def is_passing_error(error: BaseException) -> bool:
    """Return whether an error of ours may be over at the next attempt.

    >>> from state.errors import InvariantError
    >>> is_passing_error(InvariantError("rows are lost")), is_passing_error(LacunaError("its disk must have room"))
    (False, True)
    """
    return not isinstance(error, ConfigError | InvariantError | StateError)
