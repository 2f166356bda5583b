"""A Kafka for all tests of the client library, and a prefix of its own for every test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from access.topics import ensure_topics
from state.config import Config, parse
from tests.system.clients import CONFIG, Broker, Router


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker.start(tmp_path_factory.mktemp("broker") / "kafka")
    yield broker
    broker.stop()


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture
def text(bootstrap: str) -> str:
    return CONFIG.format(bootstrap=bootstrap, prefix=f"t{uuid.uuid4().hex[:12]}")


@pytest.fixture
def config(text: str) -> Config:
    """A system of its own, with its topics."""
    config = parse(text)
    ensure_topics(config.kafka.bootstrap, config.kafka.prefix)
    return config


@pytest.fixture
def file(text: str, tmp_path: Path) -> str:
    """The same as a file; its topics are made by whoever needs them."""
    (tmp_path / "lacuna.toml").write_text(text)
    return str(tmp_path / "lacuna.toml")


@pytest.fixture
def router(config: Config) -> Iterator[Router]:
    router = Router(config.kafka)
    yield router
    router.close()
