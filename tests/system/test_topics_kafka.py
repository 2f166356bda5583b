"""Topics on a real Kafka: how Lacuna makes them, what it says of others, and what happens to them in the field."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from access.offsets import first_times, topic_spans, trim
from access.topics import differences, ensure_topics, topic_ids
from producers.sender import Sender
from state.config import Kafka
from state.protocol.topics import Topics, read_topics
from tests.system.live import Job, infra, read_topic

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = str(tmp_path_factory.mktemp("kafka"))
    yield infra("infra.kafka", "start", "--home", home, "--port", "0")["bootstrap"]
    infra("infra.kafka", "stop", "--home", home)


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Any]:
    made = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield made
    made.close()


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


def settings_of(admin: Any, topic: str) -> dict[str, str]:
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    return {key: setting["value"] for key, setting in found["topic"][topic].items()}


def put(bootstrap: str, topic: str, count: int, timestamp_ms: int | None = None) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for k in range(count):
        producer.send(topic, b"%d" % k, partition=0, timestamp_ms=timestamp_ms)
    producer.close()


def test_topics_are_made_for_the_field(bootstrap: str, admin: Any, prefix: str) -> None:
    wanted = Kafka(bootstrap, prefix, replication=1).wanted
    ensure_topics(bootstrap, prefix, wanted)
    topics = Topics(prefix)
    settings = {name.split(".")[1]: settings_of(admin, name) for name in topics.all}
    assert {each["message.timestamp.type"] for each in settings.values()} == {"LogAppendTime"}
    assert {each["min.insync.replicas"] for each in settings.values()} == {"1"}
    policies = {name: each["cleanup.policy"] for name, each in settings.items()}
    assert policies.pop("control") == "compact" and set(policies.values()) == {"delete"}
    assert settings["control"]["segment.ms"] == "3600000"  # a week of ticks would stay with Kafka's default
    for_ever = {name for name, each in settings.items() if each["retention.ms"] == "-1"}
    assert for_ever == {"subscribe", "unsubscribe", "links", "records"}
    assert {name for name, each in settings.items() if each["max.message.bytes"] == "8388608"} == {
        "links",
        "deliveries",
        "records",
    }
    assert differences(bootstrap, prefix, wanted) == []


def test_an_operator_chooses_partitions_copies_and_retention(bootstrap: str, admin: Any, prefix: str) -> None:
    chosen = read_topics(
        {
            "publish": {"partitions": 3, "retention": 0.5, "replication": 1},
            "records": {"retention": 30},
            "notices": {"retention": "forever"},
        }
    )
    ensure_topics(bootstrap, prefix, chosen)
    assert differences(bootstrap, prefix, chosen) == []
    kept = {name: settings_of(admin, Topics(prefix).of(name))["retention.ms"] for name in chosen}
    assert kept == {"publish": "43200000", "records": "2592000000", "notices": "-1"}
    assert settings_of(admin, Topics(prefix).publish)["min.insync.replicas"] == "1"
    other = read_topics({"publish": {"partitions": 8, "retention": 1}, "records": {"retention": 30}})
    said = differences(bootstrap, prefix, other | {"notices": chosen["notices"]})
    assert said == [
        f"topic {prefix}.publish: retention.ms is 43200000, not 86400000: records that are older are removed, whether "
        "they were read or not",
        f"topic {prefix}.publish: it has 3 partitions, not 8: fewer tasks read or write it at once",
    ]
    fewer = differences(bootstrap, prefix, chosen | read_topics({"publish": {"partitions": 2, "retention": 0.5}}))
    assert fewer == [f"topic {prefix}.publish: it has 3 partitions, not 2: Kafka takes none away again"]


def test_a_producer_with_a_wrong_clock_does_not_say_when_it_was(bootstrap: str, prefix: str) -> None:
    """Records with old timestamps are not deleted early, and those of the future do not come before others."""
    ensure_topics(bootstrap, prefix)
    for timestamp in (1_000, 4_000_000_000_000):
        put(bootstrap, Topics(prefix).publish, 1, timestamp)
    moments = [record.time / 1e6 for record in read_topic(bootstrap, Topics(prefix).publish)]
    assert all(abs(moment - time.time()) < 300 for moment in moments) and moments == sorted(moments)


def test_topics_that_exist_are_not_changed_and_what_differs_is_said(bootstrap: str, admin: Any, prefix: str) -> None:
    topics = Topics(prefix)
    admin.create_topics([NewTopic(topics.links, 1, 1, topic_configs={"retention.ms": "1000"})])
    ensure_topics(bootstrap, prefix)
    said = differences(bootstrap, prefix, Kafka(replication=3).wanted)
    assert settings_of(admin, topics.links)["retention.ms"] == "1000"
    about_links = [each for each in said if each.startswith(f"topic {topics.links}: ")]
    for part in (
        "message.timestamp.type is CreateTime, not LogAppendTime: a producer with a wrong clock",
        "retention.ms is 1000, not -1: records that are older are removed",
        "max.message.bytes is 1048588, not 8388608: a longer record",
        "min.insync.replicas is 1, not 2: a confirmed record is lost",
        "it has 1 copies, not 3",
    ):
        assert any(part in each for each in about_links), part
    assert not [each for each in differences(bootstrap, prefix) if not each.startswith(f"topic {topics.links}: ")]


def test_a_topic_made_again_has_another_id(bootstrap: str, admin: Any, prefix: str) -> None:
    ensure_topics(bootstrap, prefix)
    before = topic_ids(bootstrap, prefix)
    assert len(before) == len(set(before.values())) == len(Topics(prefix).all)
    remake(bootstrap, admin, prefix, "publish")
    after = topic_ids(bootstrap, prefix)
    assert [name for name in before if before[name] != after[name]] == ["publish"]


def remake(bootstrap: str, admin: Any, prefix: str, name: str) -> None:
    """Delete a topic and make it again."""
    admin.delete_topics([Topics(prefix).of(name)])
    deadline = time.monotonic() + 60
    while Topics(prefix).of(name) in admin.list_topics():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    ensure_topics(bootstrap, prefix)


def test_records_below_an_offset_are_trimmed(bootstrap: str, prefix: str) -> None:
    ensure_topics(bootstrap, prefix)
    links = Topics(prefix).links
    put(bootstrap, links, 5)
    before = time.time()
    trim(bootstrap, {(links, 0): 3})
    assert topic_spans(bootstrap, [links])[links, 0] == (3, 5)
    assert abs(first_times(bootstrap, links, [0])[0].timestamp() - before) < 300
    trim(bootstrap, {(links, 0): 5})
    assert first_times(bootstrap, links, [0], deadline=2) == {}


SUBSCRIBE = {"client": "ann", "id": "s1", "where": {}}
AT = {"price": 1.0, "volume": 1, "symbol": "IBM"}


def test_a_topic_made_again_is_refused_and_the_remedy_works(
    bootstrap: str, admin: Any, prefix: str, tmp_path: Path
) -> None:
    """The new topic has grown past the committed offset, so that Spark would go on in its middle."""
    job = Job(tmp_path, bootstrap, prefix)
    try:
        job.start()
        with Sender(job.config) as sender:
            sender.send("subscribe", "oslo", SUBSCRIBE)
        job.settle()
        publish(job, "old", 3)
        job.archive_settled()
        assert job.terminate() == 0
        remake(bootstrap, admin, prefix, "publish")
        publish(job, "new", 5)
        job.start(wait=False)
        message = job.ended()
        assert "publish: a topic was deleted and made again" in message
        assert message.endswith("or go on with what is left: lacuna apply")
        job.apply()
        job.start()
        job.archive_settled()
        assert job.terminate() == 0
    finally:
        job.kill()
    found = sorted((row["epoch"], row["publication"]) for row in job.rows("deliveries"))
    assert found == [*((1, f"old{k}") for k in range(3)), *((2, f"new{k}") for k in range(5))]


def publish(job: Job, name: str, count: int) -> None:
    with Sender(job.config) as sender:
        for k in range(count):
            sender.send("publish", "rome", {"id": f"{name}{k}", "at": AT})
