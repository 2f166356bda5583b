"""A system that an earlier version of Lacuna left goes on: nothing is lost, nothing comes twice, nothing is foreign.

What it left is kept (`tests/data/make_earlier.py` says how it was made). Kafka gives topics other ids each time, so
these are exchanged in the file of the life, as if the topics had never been elsewhere.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from access.topics import topic_ids
from state.errors import LacunaError
from state.protocol.commands import Apply
from state.protocol.topics import Topics
from streaming.apply import apply
from streaming.earlier import fill
from tests.data.make_earlier import PREFIX
from tests.spark.test_remedies import ENGINE, System, new_system
from tests.system.live import wait_until
from tests.system.owed import archived, delivered

pytestmark = pytest.mark.system
__all__ = ["new_system"]

KEPT = Path(__file__).parents[1] / "data" / "earlier.tar.gz"


@pytest.fixture
def earlier(new_system: Callable[..., System], kafka: str, tmp_path: Path) -> Iterator[System]:
    system = new_system(kafka, PREFIX)
    with tarfile.open(KEPT) as packed:
        packed.extractall(tmp_path, filter="data")
    producer = KafkaProducer(bootstrap_servers=kafka)
    for name, records in json.loads((tmp_path / "topics.json").read_text()).items():
        for record in records:
            key, value = bytes.fromhex(record["key"]) or None, bytes.fromhex(record["value"])
            producer.send(system.topic(name), value, key, partition=record["partition"], timestamp_ms=record["time"])
    producer.close()
    file = tmp_path / "checkpoint" / "lacuna.json"
    life = json.loads(file.read_text())
    life["topics"] |= {name: id for name, id in topic_ids(kafka, PREFIX).items() if name in life["topics"]}
    file.write_text(json.dumps(life))
    for event in json.loads((tmp_path / "events.json").read_text()):
        system.history.note(event)
    yield system
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.delete_topics(list(Topics(PREFIX).all))
    wait_until(lambda: not any(name.startswith(f"{PREFIX}.") for name in admin.list_topics()), "the topics are gone")
    admin.close()


def test_a_system_of_an_earlier_version_goes_on_and_is_changed(earlier: System, tmp_path: Path) -> None:
    """As it is; then its state is brought up, because the configuration was not kept with it; then it is changed."""
    earlier.run()
    check(earlier, lives=1)
    fill(earlier.config.lake.path, earlier.config, earlier.said.append)  # as `lacuna archive rebuild` does
    keys = [row["publication_key"] for row in earlier.rows("publications")]
    published = [event for event in json.loads((tmp_path / "events.json").read_text()) if event["kind"] == "publish"]
    assert len(keys) == len(set(keys)) == len(published)
    before = earlier.file.read_text()
    wider = before.replace("[overlay]", 'venue = { kind = "int", low = 0, high = 9, default = 0 }\n[overlay]')
    changed = f'{wider}[routing]\nstrategy = "mics"\n'
    earlier.configure(changed)
    with pytest.raises(LacunaError, match="Remedy: run lacuna apply with the configuration as it was, then with the"):
        apply(earlier.config, ENGINE, earlier.said.append, Apply())
    for number, text in enumerate((before, changed), start=2):
        earlier.configure(text)
        earlier.history.publish("rome", f"unread before {number}")
        earlier.command("apply")
        earlier.history.publish("praha", f"after {number}")
        earlier.run()
        check(earlier, lives=number)


def test_a_state_of_an_earlier_version_is_brought_up_by_the_command(earlier: System) -> None:
    """The configuration stays, and the job of this version never ran before."""
    earlier.command("apply")
    earlier.history.publish("praha", "after it")
    earlier.run()
    check(earlier, lives=2)


def check(system: System, lives: int) -> None:
    system.check()
    assert len(delivered(system.config)) == len(archived(system.config)) == lives
    assert system.rows("rejects") == []
