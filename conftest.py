"""Options of the test run."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, Phase, settings

# Machines differ in speed, so no deadlines, and no complaint that examples are made slowly. CI tries the same examples
# every time: a red run is about the change.
settings.register_profile(
    "lacuna", deadline=None, derandomize="CI" in os.environ, suppress_health_check=(HealthCheck.too_slow,)
)
# For a first look at a failure: `pytest --hypothesis-profile quick` does not look for a smaller example.
settings.register_profile("quick", settings.get_profile("lacuna"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("lacuna")


def pytest_collection_finish() -> None:
    """Keep the imported libraries out of the garbage collector's way, which takes 7 % of the time otherwise."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what happens into the transcripts; read the diff")
