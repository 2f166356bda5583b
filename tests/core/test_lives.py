"""Lives without Kafka and Spark: copies taken and restored at any step, two routers at once, foreign records between.

`python -m tests.storms` does the same for hours.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import Config, parse
from tests.core.histories import config_text, configs
from tests.core.oracle import Oracle
from tests.core.overlay import spread_out
from tests.core.shell import forget
from tests.core.test_shell import publish, subscribe
from tests.core.world import Storm, World, copied
from tests.storms import add, played, report


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    spread_out(monkeypatch)


@settings(max_examples=40)
@given(configs(), st.randoms(use_true_random=False))
def test_whatever_happens_nothing_is_lost_and_nothing_invented(
    tmp_path_factory: pytest.TempPathFactory, config: Config, chance: random.Random
) -> None:
    """Rounds of changes and publications, a fault at every step, against brute force."""
    forget()
    Storm(config, chance, tmp_path_factory.mktemp("storm")).go(rounds=3, most=3)


class Apart(random.Random):
    """Chance that makes a region of each broker."""

    def random(self) -> float:
        return 1.0


def test_a_restored_copy_forgets_nothing_that_was_in_force(tmp_path: Path) -> None:
    """A copy older than a subscription; the publication that waits enters in another region than the subscriber's."""
    world = World(parse(config_text([("b0", "b1")], '"auto"')), Apart(), tmp_path)
    world.start()
    world.send(subscribe("b0", "old"))
    world.settle()
    world.copies.append(copied(world.folder))
    world.send(subscribe("b1", "new"))
    world.settle()
    world.send(publish("b0", "delivered"))
    world.settle()
    for _ in range(3):  # so long it takes until nothing can be under way between the regions
        world.run_batch()
    assert world.router is not None
    world.tick(world.router)
    world.send(publish("b0", "unread"))
    world.folder = copied(world.copies[-1])
    world.stop()
    world.start()
    world.settle()
    found = Counter((d[2], d[3]) for _, d in world.new_deliveries())
    assert found == Counter((s, p) for s in ("old", "new") for p in ("delivered", "unread")), "each once"


def test_a_storm_is_repeated_by_its_seed(tmp_path: Path) -> None:
    storms = [Storm.of(11, tmp_path / name, sizes=(2,)) for name in ("first", "again")]
    first, again = ((storm.events, storm.faults, storm.world.client.topics) for storm in storms)
    assert first == again and sum(storms[0].faults.values()) > 5


def test_what_fails_is_written_down_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Oracle, "take", lambda *_: [("b0", "nobody", "s", "p0")])
    found: dict[str, Any] = {"next": 5, "events": 0, "faults": {}, "failed": {}}
    add(found, played(5))
    assert "lost: [('b0', 'nobody', 's', 'p0')]" in found["failed"]["5"] and found["next"] == 6
    assert report(found).notes == ["python -m tests.storms --seed 5"]
