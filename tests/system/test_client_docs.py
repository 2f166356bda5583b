"""The examples of docs/client.md run as they stand, against a real Kafka with a router played by the test."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from state.config import Config
from state.protocol.topics import Topics
from tests.system.clients import Echo, log_of

pytestmark = pytest.mark.system

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
IMPORTS = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
EXAMPLES = re.findall(r"^```python example\n(.*?)^```", PAGE, re.S | re.M)
PRINTED = [
    r"p1 s1 \{'price': 12.5, 'volume': 150, 'symbol': 'IBM'\} \{'any': 'JSON'\}\n",
    r"routed 1\n",
    r"(publish 'q\d+' is in Kafka\n){1000}",
    r"\(\('traceparent', b'00-4bf9-00f0-01'\),\)\n",
    r"domain publish 'p1': .*Nothing was sent\.\n",
    r"1 p0\n",
    r"",
    r"p1\n",
]
"""What each example prints."""


@pytest.fixture
def echo(config: Config) -> Iterator[Echo]:
    """A router that delivers every publication to ann."""
    ended = threading.Event()
    echo = Echo(config.kafka, "ann")
    thread = threading.Thread(target=echo.run, args=(ended,))
    thread.start()
    yield echo
    ended.set()
    thread.join()


def test_every_example_is_here() -> None:
    assert len(IMPORTS) == 1
    assert len(EXAMPLES) == len(PRINTED) == PAGE.count("```python example")


@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_an_example(config: Config, echo: Echo, capsys: pytest.CaptureFixture[str], number: int) -> None:
    if "from_beginning" in EXAMPLES[number]:
        echo.deliver("p0", {"price": 1, "volume": 1, "symbol": "IBM"}, None, [])
    names = {"config": config, "__name__": "example"}
    exec(compile(IMPORTS[0] + EXAMPLES[number], "docs/client.md", "exec"), names)
    assert re.fullmatch(PRINTED[number], capsys.readouterr().out)


def test_the_json_is_what_the_library_writes(config: Config, echo: Echo) -> None:
    exec(compile(IMPORTS[0] + EXAMPLES[0], "docs/client.md", "exec"), {"config": config, "__name__": "example"})
    topics = Topics(config.kafka.prefix)
    written = {t: [(r.key, json.loads(r.value)["id"]) for r in log_of(config.kafka, t)] for t in topics.events}
    assert written == {
        topics.subscribe: [(b"oslo", "s1"), (b"oslo", "s2")],
        topics.unsubscribe: [(b"oslo", "s2")],
        topics.publish: [(b"oslo", "p1")],
    }
