"""A running system through a chain of changes, under kill -9, while producers send all the time.

Subscriptions stand from the beginning. So brute force can say to whom a publication is owed from the publication alone,
whenever the router takes it and under whatever configuration. In the end every delivery was made exactly once, and
clients that listened all the time were handed each once.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from access.control import ControlLog
from access.topics import ensure_topics
from producers.deliveries import Deliveries
from producers.sender import Sender
from state.config import Config, parse
from state.protocol.topics import Topic
from streaming.service import PAUSING
from tests.core.oracle import Oracle
from tests.system.live import PROGRAM, Job, wait_until
from tests.system.owed import archived, delivered

pytestmark = pytest.mark.system

PACE = 0.05
"""Seconds between two publications."""
BROKERS = ("paris", "oslo", "rome", "praha", "wien")
SUBSCRIPTIONS = {
    "paris": [{}, {"price": [0, 499]}],
    "oslo": [{}, {"price": [100, 199]}, {"price": [120, 150]}],
    "rome": [{"symbol": ["IBM"]}, {"symbol": ["IBM"], "volume": [0, 50]}],
    "praha": [{"volume": [10, None]}, {"volume": [20, None], "price": [None, 700]}],
    "wien": [{}, {"symbol": ["AAPL", "MSFT"]}],
}


class Producers(threading.Thread):
    """Clients: first all subscribe, then they publish until they are stopped; what they are owed by brute force."""

    def __init__(self, config: Config) -> None:
        super().__init__(daemon=True)
        self._config, self._oracle, self._stop_them = config, Oracle({"symbol"}), threading.Event()
        self.owed: list[tuple[str, ...]] = []
        self.sent = 0

    def subscribe(self) -> None:
        with Sender(self._config, check=False) as sender:
            for broker, filters in SUBSCRIPTIONS.items():
                for k, where in enumerate(filters):
                    fields = {"id": f"{broker} {k}", "client": f"at {broker}", "where": where}
                    self._send(sender, "subscribe", broker, fields)

    def run(self) -> None:
        with Sender(self._config, check=False) as sender:
            while not self._stop_them.wait(PACE):
                self.publish(sender, BROKERS[self.sent % len(BROKERS)])

    def publish(self, sender: Sender, broker: str) -> None:
        k, self.sent = self.sent, self.sent + 1
        at = {"price": float(37 * k % 1000), "volume": k % 60, "symbol": ("IBM", "AAPL", "MSFT")[k % 7 % 3]}
        self._send(sender, "publish", broker, {"id": f"p{k}", "at": at})

    def _send(self, sender: Sender, kind: str, broker: str, fields: dict[str, Any]) -> None:
        sender.send(kind, broker, fields)
        self.owed += [found[1:] for found in self._oracle.take({"kind": kind, "broker": broker, **fields})]

    def stop(self, *last: str) -> None:
        """Stop, with a publication at each of these brokers."""
        self._stop_them.set()
        self.join()
        with Sender(self._config, check=False) as sender:
            for broker in last:
                self.publish(sender, broker)


class Listener(threading.Thread):
    """A client that listens all the time, by the client library."""

    def __init__(self, config: Config, client: str) -> None:
        super().__init__(daemon=True)
        self._deliveries, self.heard = Deliveries(config.kafka, client), list[tuple[str, ...]]()

    def run(self) -> None:
        with self._deliveries as deliveries:
            for d in deliveries:
                self.heard.append((d.client, d.subscription, d.publication))

    def stop(self) -> None:
        self._deliveries.stop()
        self.join()


@dataclass
class Change:
    """A change of the configuration's text, its options, and when the job is killed in the middle of it."""

    edits: dict[str, str]
    options: list[str] = field(default_factory=list)
    killed: str = ""


LINKS = '[["paris", "oslo"], ["paris", "rome"], ["paris", "wien"], ["wien", "praha"]]'
REGIONS = 'regions = [["paris", "oslo", "rome"], ["wien", "praha"]]'
CHAIN = {
    "a broker is added": Change({LINKS: f'{LINKS[:-1]}, ["praha", "brno"]]', REGIONS: "regions = 2"}),
    "the strategy becomes mics": Change({"[kafka]": '[routing]\nstrategy = "mics"\n[kafka]'}, killed="before"),
    "the broker is moved": Change({'["praha", "brno"]': '["oslo", "brno"]'}, killed="in the pause"),
    "the strategy becomes auto again": Change({'"mics"': '"auto"'}),
    "an attribute and a category are added": Change(
        {
            '"MSFT"]': '"MSFT", "SAP"]',
            "[overlay]": 'venue = { kind = "category", values = ["main", "dark"], default = "main" }\n[overlay]',
        },
    ),
    "a broker is removed, and its clients move": Change(
        {'["paris", "wien"], ["wien", "praha"]': '["paris", "praha"]'}, ["--move", "wien=brno"], killed="after"
    ),
}


@pytest.fixture
def job(tmp_path: Path, bootstrap: str) -> Iterator[Job]:
    made = Job(tmp_path, bootstrap, "chain")
    ensure_topics(bootstrap, "chain", {"deliveries": Topic(partitions=1)})
    yield made
    made.kill()


def test_a_chain_of_changes_under_kill_while_producers_send(job: Job) -> None:
    producers = Producers(job.config)
    producers.subscribe()
    job.start(tick=1)
    listeners = [Listener(job.config, f"at {broker}") for broker in BROKERS]
    for thread in (producers, *listeners):
        thread.start()
    try:
        for name, change in CHAIN.items():
            edit(job, change.edits)
            before = lives(job)
            if change.killed:
                killed(job, change)
            else:
                job.apply("--wait", "200", *change.options)
            assert lives(job) > before, name
            wait_until(lambda: len(job.committed("router")) > 1, "the life goes on")
        edit(job, {"regions = 2": "regions = 3"})
        assert job.terminate() == 0
        job.apply("--partitions", "3")
        job.start("--partitions", "3", tick=1)
    finally:
        producers.stop("brno", "praha", "wien")
    job.archive_settled()
    wait_until(lambda: sum(len(one.heard) for one in listeners) >= len(producers.owed), "listeners hear of everything")
    for listener in listeners:
        listener.stop()
    assert Counter(heard for one in listeners for heard in one.heard) == Counter(producers.owed)
    found = delivered(job.config)
    made = Counter(delivery[1:] for life in found.values() for delivery in life)
    assert made == Counter(producers.owed), "every delivery that is owed, once"
    assert len([life for life in found.values() if life]) >= len(CHAIN), "all the time"
    assert archived(job.config) == {epoch: sorted(life) for epoch, life in found.items()}
    venues = {(row["epoch"], row["point"]["venue"]) for row in job.rows("publications")}
    assert {venue for epoch, venue in venues if epoch in (1, max(found))} == {None, "main"}, "a running archive widens"
    assert {delivery[0] for delivery in found[max(found)]} == {"paris", "oslo", "rome", "praha", "brno"}


def edit(job: Job, edits: dict[str, str]) -> None:
    text = job.file.read_text()
    for old, new in edits.items():
        assert old in text, old
        text = text.replace(old, new)
    job.file.write_text(text)
    job.config = parse(text)


def lives(job: Job) -> int:
    """The number of lives that were announced."""
    with ControlLog(job.config.kafka.bootstrap, job.config.kafka.prefix) as control:
        return len(control.read().lives.announced)


def killed(job: Job, change: Change) -> None:
    """kill -9 while what stands is decided again, in the pause, or after the announcement; then the same command again.

    After the announcement the change is made already, and the command changes nothing more.
    """
    said, before = len(job.log()), lives(job)
    moments: dict[str, Callable[[], bool]] = {
        "before": lambda: "subscriptions again" in job.log()[said:],
        "in the pause": lambda: PAUSING in job.log()[said:],
        "after": lambda: lives(job) > before,
    }
    command = [PROGRAM, "apply", "--config", str(job.file), *change.options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asking:
        wait_until(moments[change.killed], f"the change is under way: {change.killed}")
        job.kill()
        asking.kill()
    job.apply(*change.options)
    job.start(tick=1)
