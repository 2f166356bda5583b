"""The context of a page: all that it may look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lacuna.serve.auth import Auth
from lacuna.serve.trials import Trials
from state.config import Config


@dataclass(frozen=True)
class Context:
    """The configuration (`config.lake` has the tables), who may do what, and a function that asks the job how it is.

    `status` takes as long as the job takes to answer, a few seconds at most, so it is called in a thread
    (`starlette.concurrency.run_in_threadpool`), as Starlette does with an endpoint that is no coroutine. It never
    raises: of a job that does not answer it returns `{"state": "down", "reasons": [...]}`.

    Every page is seen by whoever has the right `observe`, and only by them; `app` sees to that. What is below
    `/static/` is open.
    """

    config: Config
    auth: Auth
    status: Callable[[], dict[str, Any]]

    @cached_property
    def trials(self) -> Trials:
        """The copy of the overlay on which events and filters are tried, one for pages and API."""
        return Trials(self.config)
