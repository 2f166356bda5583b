"""How pages say how the job is, and how old the tables are."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from lacuna.serve.pulse import PAUSE, Pulse

WRITTEN = datetime(2026, 5, 1, 2, 13, tzinfo=UTC)


class Job:
    """Answers what it is told to, and counts how often it is asked."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {"state": "healthy", "reasons": []}
        self.asked, self.now, self.waits = 0, 1000.0, threading.Event()
        self.waits.set()
        self.pulse = Pulse(self, lambda: self.now)

    def __call__(self) -> dict[str, Any]:
        self.waits.wait()
        self.asked += 1
        return self.answer

    def look(self) -> Any:
        """Let the job be asked again, wait for its answer, and look."""
        self.now += PAUSE + 1
        before = self.asked
        self.pulse.look(WRITTEN)
        while self.asked == before or not self.pulse._asking.is_set():
            threading.Event().wait(0.001)
        return self.pulse.look(WRITTEN)


def archive(**more: Any) -> dict[str, Any]:
    behind = {"active": True, "lag_records": 0, "lag_seconds": 0.0} | more
    return {"state": "healthy", "reasons": [], "queries": {"archive": behind}}


def test_it_is_asked_once_in_a_while_however_many_look() -> None:
    job = Job()
    job.look()
    for _ in range(100):
        assert job.pulse.look(WRITTEN).state == "healthy"
    assert job.asked == 1


def test_age_counts_only_while_the_archive_is_behind() -> None:
    job = Job()
    job.answer = archive()
    assert job.look().tables == "tables up to date"  # although the last row is years old
    job.answer = archive(lag_records=7, lag_seconds=12.0)
    assert job.look().tables == "tables 12 s behind"
    job.answer = archive(active=False)
    assert job.look().reasons == ("the archive does not run; tables as of 2026-05-01 02:13:00 UTC",)


def test_a_job_that_does_not_answer_says_since_when() -> None:
    job = Job()
    job.answer = {"state": "down", "reasons": ["no job answers"]}
    first = job.look()
    assert first.state == "down"
    assert first.reasons[0] == "Job not reachable since 1970-01-01 00:16:43 UTC; tables as of 2026-05-01 02:13:00 UTC"
    assert job.look().reasons[0] == first.reasons[0]  # the moment stays
    job.answer = archive()
    assert job.look().state == "healthy"


def test_a_job_that_hangs_holds_no_page_up() -> None:
    job = Job()
    job.look()
    job.waits.clear()
    job.now += 100
    assert job.pulse.look(WRITTEN).state == "healthy"  # the last answer
    job.waits.set()


def test_an_error_of_asking_is_a_job_that_is_down() -> None:
    def fails() -> dict[str, Any]:
        raise RuntimeError("boom")

    look = Pulse(fails).look(None)
    assert look.state == "down" and "boom" in look.reasons[1]
