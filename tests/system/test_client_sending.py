"""What is sent is confirmed or raised: futures, callbacks, batches, and every way in which a send can fail.

All on a real Kafka, which is frozen, stopped, or made to refuse.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import secrets
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.record import MemoryRecords

from access.topics import ensure_topics
from producers.client import Client
from producers.errors import EventRefused, NotConfirmed, NotSent, TopicMissing, Unreachable
from producers.sender import Place, Sender, Sent
from state.config import Config, Kafka, parse
from state.protocol.notices import Notice
from state.protocol.topics import Topics
from tests.system.clients import AT, Broker, events_of, log_of

pytestmark = pytest.mark.system


def ids(config: Config) -> list[str]:
    return [event["id"] for _, event in events_of(config, "publish")]


@pytest.fixture
def small(text: str) -> Config:
    """A system whose topic `publish` takes only small records."""
    config = parse(text)
    ensure_topics(config.kafka.bootstrap, config.kafka.prefix)
    admin = KafkaAdminClient(bootstrap_servers=config.kafka.bootstrap)
    admin.delete_topics([Topics(config.kafka.prefix).publish])
    settings = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "5000"}}
    for _ in range(100):
        answer = admin.create_topics({Topics(config.kafka.prefix).publish: settings}, raise_errors=False)
        if answer["topics"][0]["error_code"] == 0:
            break
    admin.wait_for_topics([Topics(config.kafka.prefix).publish])
    admin.close()
    return config


# Futures, callbacks, batches


def test_requests_of_one_subscription_arrive_in_the_order_in_which_they_were_sent(config: Config) -> None:
    """On two topics, between which Kafka keeps no order; the router goes by the time at which Kafka took them."""
    with Client(config, broker="oslo", name="ann") as ann:
        for k in range(200):
            ann.subscribe(f"s{k}", {})
            if k % 3 == 0:
                ann.unsubscribe(f"s{k}")
                ann.subscribe(f"s{k}", {"price": [1, 2]})
    topics = Topics(config.kafka.prefix)
    logs = [log_of(config.kafka, topic) for topic in (topics.subscribe, topics.unsubscribe)]
    both = [(record.timestamp, json.loads(record.value)) for log in logs for record in log]
    arrived = sorted(both, key=lambda one: one[0])
    revisions: dict[str, list[int]] = {}
    for _, event in arrived:
        revisions.setdefault(event["id"], []).append(event["rev"])
    assert len(arrived) == 200 + 2 * 67 and all(found == sorted(found) for found in revisions.values())


def test_answers_that_nobody_waits_for_do_not_gather(config: Config) -> None:
    """The answer is written here as a router writes it."""
    with Client(config, broker="oslo", name="ann") as ann:
        for k in range(50):
            ann.publish(f"p{k}", AT, ack=True)
        sent = ann.publish("last", AT, ack=True)
        ann.flush()
        gc.collect()
        ack = json.loads(sent.value)["ack"]
        assert ann._answers._asked.keys() == {ack}
        notice = Notice("routed", "publish", "oslo", id="last", ack=ack, deliveries=3)
        producer = KafkaProducer(bootstrap_servers=config.kafka.bootstrap)
        producer.send(Topics(config.kafka.prefix).notices, msgspec.json.encode(notice), key=notice.key).get(60)
        producer.close()
        assert sent.wait(60).deliveries == 3
        assert not ann._answers._asked


def test_what_was_sent_can_be_waited_for(config: Config) -> None:
    with Client(config, broker="oslo", name="ann") as ann:
        sent = [ann.publish(f"p{k}", AT) for k in range(3)]
        topic = Topics(config.kafka.prefix).publish
        assert [each.place() for each in sent] == [Place(topic, 0, k) for k in range(3)]
        assert all(each.done and not each.failed for each in sent)
        assert (sent[0].topic, sent[0].key, sent[0].name) == (topic, "oslo", "publish 'p0'")


def test_callbacks_are_called_once_each(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    came: list[Sent] = []
    with Client(config, broker="oslo", name="ann") as ann:
        sent = [ann.publish(f"p{k}", AT) for k in range(20)]
        for each in sent:
            each.add_done_callback(came.append)
        sent[0].add_done_callback(lambda _: 1 / 0)
    assert came == sent
    sent[5].add_done_callback(came.append)
    assert came[20:] == [sent[5]], "at once, because it is done"
    assert [r.message for r in caplog.records if r.levelno == logging.ERROR] == ["the callback of publish 'p0' failed"]


def test_what_was_sent_can_be_awaited(config: Config) -> None:
    async def publish() -> list[Place]:
        async with Client(config, broker="oslo", name="ann") as ann:
            return list(await asyncio.gather(*(_placed(ann.publish(f"p{k}", AT)) for k in range(50))))

    assert [place.offset for place in asyncio.run(publish())] == list(range(50))


async def _placed(sent: Sent) -> Place:
    return await sent


def test_events_travel_in_batches(broker: Broker, config: Config) -> None:
    topic = Topics(config.kafka.prefix).publish
    with Client(config, broker="oslo", name="ann") as ann:
        for k in range(2000):
            ann.publish(f"p{k}", AT)
    (segment,) = Path(broker.home, "data", f"{topic}-0").glob("*.log")
    records, batches = MemoryRecords(segment.read_bytes()), 0
    while (batch := records.next_batch()) is not None:
        batches += len(list(batch)) > 0
    assert len(log_of(config.kafka, topic)) == 2000
    assert batches <= 200


def test_headers_travel_with_a_publication(config: Config) -> None:
    headers = (("traceparent", b"00-1"), ("traceparent", b"\xff"))
    with Client(config, broker="oslo", name="ann") as ann:
        ann.publish("p1", AT, headers=headers)
    (record,) = log_of(config.kafka, Topics(config.kafka.prefix).publish)
    assert tuple(record.headers) == headers


# A broker that does not answer


def test_a_broker_that_does_not_answer_in_time(broker: Broker, config: Config) -> None:
    with Client(config, broker="oslo", name="ann", deadline=0.5) as ann:
        ann.publish("p1", AT).place()
        with broker.frozen():
            late = ann.publish("p2", AT)
            with pytest.raises(NotConfirmed) as error:
                late.place(0.3)
            said = str(error.value)
            assert said.startswith(f"topic '{late.topic}', key 'oslo': Kafka at {broker.bootstrap} did not confirm")
            assert "publish 'p2'" in said and "Remedy: see that Kafka runs, connect again, and send again" in said
            assert not late.done, "it may still come"
            with pytest.raises(NotConfirmed, match="publish 'p2'"):
                ann.flush(0.3)
            with pytest.raises(NotConfirmed, match="publish 'p2'"):
                ann.flush()
        assert late.place(30).offset == 1, "a late answer is an answer"
        ann.flush()
    assert ids(config) == ["p1", "p2"]


def test_everything_unconfirmed_is_raised_on_close(broker: Broker, config: Config) -> None:
    ann = Client(config, broker="oslo", name="ann", deadline=0.5)
    ann.publish("p0", AT).place()
    with broker.frozen():
        for k in (1, 2, 3):
            ann.publish(f"p{k}", AT)
        with pytest.raises(NotConfirmed, match=r"did not confirm publish 'p1' and 2 more") as error:
            ann.close()
    assert [sent.name for sent in error.value.events] == ["publish 'p1'", "publish 'p2'", "publish 'p3'"]
    with Client(config, broker="oslo", name="ann") as ann:
        again = [ann.publish(f"again-{k}", AT) for k, _ in enumerate(error.value.events)]
        assert all(sent.place(30) for sent in again)
    assert ids(config)[-3:] == ["again-0", "again-1", "again-2"]


def test_an_error_in_the_body_is_not_hidden(broker: Broker, config: Config) -> None:
    ann = Client(config, broker="oslo", name="ann", deadline=0.5)
    ann.publish("p0", AT).place()
    with broker.frozen(), pytest.raises(ZeroDivisionError) as error, ann:
        ann.publish("p1", AT)
        raise ZeroDivisionError
    assert any("did not confirm publish 'p1'" in note for note in error.value.__notes__)


@pytest.mark.parametrize("window", [1, 10])
def test_a_full_buffer_refuses_what_does_not_fit(broker: Broker, config: Config, window: int) -> None:
    with Sender(config, deadline=0.5, window=window) as sender:
        sender.send("publish", "oslo", {"id": "p", "at": AT}).place()
        with broker.frozen():
            for k in range(window):
                sender.send("publish", "oslo", {"id": f"p{k}", "at": AT})
            with pytest.raises(NotSent) as error:
                sender.send("publish", "oslo", {"id": "more", "at": AT})
            topic = Topics(config.kafka.prefix).publish
            assert str(error.value).startswith(f"topic '{topic}', key 'oslo': publish 'more' was not sent: {window} ")
            assert str(error.value).endswith("Remedy: see that Kafka runs, then send it again.")
        sender.flush(30)
        sender.send("publish", "oslo", {"id": "more", "at": AT})
    assert ids(config) == ["p", *(f"p{k}" for k in range(window)), "more"], "each once: what was refused was not sent"


def test_a_window_that_moves_is_no_obstacle(config: Config) -> None:
    with Sender(config, window=8) as sender:
        for k in range(100):
            sender.send("publish", "oslo", {"id": f"p{k}", "at": AT})
            assert len(sender._unconfirmed) <= 8
    assert ids(config) == [f"p{k}" for k in range(100)]


def test_kafka_that_goes_away_is_noticed(tmp_path: Path, text: str) -> None:
    own = Broker.start(tmp_path / "short-lived")
    config = parse(text)
    config = replace(config, kafka=Kafka(own.bootstrap, config.kafka.prefix))
    try:
        ensure_topics(own.bootstrap, config.kafka.prefix)
        others = set(threading.enumerate())
        ann = Client(config, broker="oslo", name="ann", deadline=1)
        bob = Client(config, broker="oslo", name="bob", deadline=1)
        ann.publish("p1", AT).place()
    finally:
        own.stop()
    lost = ann.publish("p2", AT)
    with pytest.raises(NotConfirmed, match=r"key 'oslo': .*publish 'p2' .*Remedy: see that Kafka runs"):
        lost.place(0.5)
    with pytest.raises(NotConfirmed, match="publish 'p2'"):
        ann.close()
    with pytest.raises(Unreachable):  # it has never asked for the topic, and cannot now
        bob.publish("p3", AT)
    bob.close()
    assert not {thread for thread in threading.enumerate() if "kafka" in thread.name} - others, "it has ended"
    before = threading.active_count()
    with pytest.raises(Unreachable, match=rf"'{own.bootstrap}': no Kafka answered there within 0.5 s"):
        ensure_topics(own.bootstrap, config.kafka.prefix, deadline=0.5)
    with pytest.raises(Unreachable):
        Client(config, broker="oslo", name="ann", deadline=0.5)
    assert threading.active_count() <= before, "a failed connection leaves no thread behind"


# Kafka refuses


def test_a_record_that_is_too_large_is_raised_by_flush(small: Config) -> None:
    topic = Topics(small.kafka.prefix).publish
    with Client(small, broker="oslo", name="ann") as ann:
        ann.publish("p1", AT)
        ann.flush()
        ann.publish("p2", AT, payload=secrets.token_hex(10_000))
        with pytest.raises(NotConfirmed, match=rf"topic '{topic}', key 'oslo': .*publish 'p2'.*Remedy: send less, or"):
            ann.flush()
        ann.flush()  # it is known
        with pytest.raises(NotConfirmed):
            ann.publish("p3", AT).place()
    assert ids(small) == ["p1"]


def test_a_record_that_is_too_large_is_raised_by_the_next_send(small: Config) -> None:
    with Sender(small, deadline=10) as sender:
        large = sender.send("publish", "oslo", {"id": "large", "at": AT, "payload": secrets.token_hex(10_000)})
        done = threading.Event()
        large.add_done_callback(lambda _: done.set())
        assert done.wait(30)
        assert large.failed
        with pytest.raises(NotConfirmed, match="publish 'large'") as error:
            sender.send("publish", "oslo", {"id": "next", "at": AT})
        assert error.value.events == (large,)
    assert ids(small) == []


def test_a_failure_that_place_raised_is_not_raised_again(small: Config) -> None:
    with Client(small, broker="oslo", name="ann") as ann:
        with pytest.raises(NotConfirmed, match=r"publish 'p1'.*max\.message\.bytes of the topic"):
            ann.publish("p1", AT, payload=secrets.token_hex(10_000)).place()
        ann.flush()

    async def publish() -> None:
        async with Client(small, broker="oslo", name="ann") as ann:
            with pytest.raises(NotConfirmed, match="publish 'p2'"):
                await ann.publish("p2", AT, payload=secrets.token_hex(10_000))

    asyncio.run(publish())
    assert ids(small) == []


def test_a_record_larger_than_a_request_is_refused_at_once(config: Config) -> None:
    """The check refuses it by rule; without the check, Kafka's client does."""
    payload: Any = "x" * 3_000_000
    with Client(config, broker="oslo", name="ann") as ann, pytest.raises(EventRefused):
        ann.publish("p1", AT, payload=payload)
    with Sender(config, check=False) as sender:
        with pytest.raises(NotConfirmed, match=r"key 'oslo': .*publish 'p1' .*Remedy: send less"):
            sender.send("publish", "oslo", {"id": "p1", "at": AT, "payload": payload})
        sender.send("publish", "oslo", {"id": "p2", "at": AT})
    assert ids(config) == ["p2"]


def test_a_missing_topic_is_named(config: Config, text: str) -> None:
    prefix = config.kafka.prefix
    mistyped = parse(text.replace('prefix = "t', 'prefix = "mistyped-t'))
    with Client(mistyped, broker="oslo", name="ann", deadline=1) as ann:
        with pytest.raises(
            TopicMissing, match=rf"topic 'mistyped-{prefix}\.publish': .*Remedy: start the router"
        ) as no:
            ann.publish("p1", AT)
        assert prefix in no.value.prefixes
        with pytest.raises(TopicMissing, match=r"\.deliveries"):
            ann.deliveries()
