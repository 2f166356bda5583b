"""A query that dies of something passing is started again, with growing pauses; anything else stops the job."""

from __future__ import annotations

import pytest

from state.errors import InvariantError, LacunaError
from streaming.restarts import LONGEST_PAUSE, Death, JobFailed, Restarted


class Query:
    """A query that lives until the test ends it."""

    def __init__(self) -> None:
        self.isActive = True
        self.done = False

    def stop(self) -> None:
        self.isActive = False


class World:
    """A clock, what was said, and what the next starts do."""

    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.queries: list[Query] = []
        self.refusals: list[Exception] = []
        self.death = Death("the lake is away", passing=True)
        self.archive = Restarted(
            "archive",
            self.start,
            death_of=lambda _: self.death,
            has_progress=lambda query: query.done,
            say=self.said.append,
            clock=lambda: self.now,
        )

    def start(self) -> Query:
        if self.queries and self.refusals:
            raise self.refusals.pop(0)
        self.queries.append(Query())
        return self.queries[-1]

    def die(self) -> None:
        self.archive.query.isActive = False
        self.archive.look()

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.archive.look()


def test_it_is_started_again_after_a_pause_and_the_state_is_said() -> None:
    world = World()
    world.archive.look()
    assert world.archive.degraded is None and world.said == []
    world.die()
    assert world.archive.degraded == "the lake is away"
    assert world.said == ["degraded: the archive is tried again in 1 s: the lake is away"]
    world.after(0.9)
    assert len(world.queries) == 1
    world.after(0.1)
    assert len(world.queries) == 2 and world.archive.query is world.queries[1]
    world.archive.look()
    assert world.archive.degraded is not None, "it runs, but has done nothing yet"
    world.queries[1].done = True
    world.archive.look()
    assert world.archive.degraded is None and world.said[1:] == ["the archive works again"]


def test_pauses_grow_to_a_limit_and_begin_again_after_a_success() -> None:
    world = World()
    pauses = []
    for _ in range(12):
        world.die()
        pauses.append(world.archive._due - world.now)  # type: ignore[operator]
        world.after(pauses[-1])
    assert pauses[:4] == [1, 2, 4, 8] and pauses[-1] == LONGEST_PAUSE
    world.archive.query.done = True
    world.archive.look()
    world.die()
    assert world.archive._due == world.now + 1


def test_a_start_that_fails_counts_as_another_death() -> None:
    world = World()
    world.refusals = [LacunaError("its disk must have room"), OSError("away")]
    world.die()
    world.after(1)
    assert world.archive.degraded == "its disk must have room"
    world.after(2)
    assert world.archive.degraded == "OSError: away"
    world.after(4)
    assert len(world.queries) == 2


def test_what_does_not_pass_stops_the_job() -> None:
    world = World()
    world.death = Death("rows are lost", passing=False)
    with pytest.raises(JobFailed, match="the archive stopped: rows are lost"):
        world.die()
    world = World()
    world.refusals = [InvariantError("the tables are others")]
    world.die()
    with pytest.raises(JobFailed, match="the tables are others"):
        world.after(1)


def test_renewing_is_no_restart_and_waits_for_nothing() -> None:
    world = World()
    world.archive.renew()
    assert [query.isActive for query in world.queries] == [False, True]
    assert world.archive.restarts == 0 and world.archive.degraded is None and world.said == []
    world.die()
    world.archive.renew()
    world.after(1)
    assert len(world.queries) == 3 and world.archive.degraded is not None, "it has done nothing yet"
    world.archive.query.done = True
    world.archive.look()
    assert world.archive.degraded is None
