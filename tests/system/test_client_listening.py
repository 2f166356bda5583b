"""The listener on a real Kafka: when it is caught up, gaps of retention, new partitions, bookmarks, `async for`."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from access.connection import connect_consumer
from access.connection import partition_of as partition_of_key
from access.topics import ensure_topics
from lacuna.__main__ import main
from producers import deliveries as module
from producers.client import Client
from producers.deliveries import Deliveries, Delivery, Gap, bookmark_id
from producers.errors import KafkaFailed, TopicMissing, Unreachable
from state.config import Config
from state.protocol.topics import Topics
from tests.system.clients import Broker, Router, log_of, seqs
from tests.system.gateway import announce

pytestmark = pytest.mark.system


@contextmanager
def admin_of(config: Config) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=config.kafka.bootstrap)
    try:
        yield admin
    finally:
        admin.close()


def topic_of(config: Config) -> str:
    return Topics(config.kafka.prefix).deliveries


def partition_of(config: Config, client: str) -> int:
    """The partition of a client's deliveries, which hold at least one."""
    return next(r.partition for r in log_of(config.kafka, topic_of(config)) if r.key == client.encode())


def remove_before(config: Config, client: str, offset: int) -> Gap:
    """Delete records as retention does. Return the gap for a reader that was at 0."""
    number = partition_of(config, client)
    with admin_of(config) as admin:
        admin.delete_records({TopicPartition(topic_of(config), number): offset})
    return Gap(topic_of(config), number, 0, offset)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def listener(config: Config, **options: object) -> Deliveries:
    return Deliveries(config.kafka, "ann", **options)  # type: ignore[arg-type]


# Caught up


def test_a_slow_kafka_is_waited_for(broker: Broker, config: Config, router: Router) -> None:
    router.deliver("ann", 1, 2, 3)
    with listener(config, from_beginning=True, timeout=0.3) as deliveries:
        thaw = threading.Timer(2, broker.thaw)
        with broker.frozen():
            thaw.start()
            assert seqs(deliveries) == [1, 2, 3], "an empty poll is not the end"
        thaw.join()


def test_a_kafka_that_does_not_answer_is_an_error(broker: Broker, config: Config, router: Router) -> None:
    router.deliver("ann", 1)
    with listener(config, from_beginning=True, timeout=0.3, deadline=1) as deliveries:
        with broker.frozen(), pytest.raises(Unreachable):
            next(deliveries)
        assert seqs(deliveries) == [1], "it can go on"


def test_a_slow_reader_is_none_of_kafkas_doing(config: Config, router: Router) -> None:
    router.deliver("ann", *range(1, 600))
    with listener(config, from_beginning=True, timeout=0.3, deadline=0.5) as deliveries:
        found = []
        for delivery in deliveries:
            found.append(delivery.seq)
            if delivery.seq in (1, 500):
                time.sleep(0.7)
    assert found == list(range(1, 600))


@pytest.mark.parametrize("how", ["committed", "aborted", "open"])
def test_marks_of_transactions_are_no_records(config: Config, router: Router, how: str) -> None:
    """The last offsets are a mark, or records that nobody may read: the reader ends all the same."""
    router.deliver("ann", 1)
    producer = KafkaProducer(bootstrap_servers=config.kafka.bootstrap, transactional_id=f"{config.kafka.prefix}-{how}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic_of(config), b"{}", key=b"bob", partition=partition_of(config, "ann")).get(timeout=30)
    if how == "committed":
        producer.commit_transaction()
    elif how == "aborted":
        producer.abort_transaction()
    try:
        with listener(config, from_beginning=True, timeout=0.3, deadline=5) as deliveries:
            assert seqs(deliveries) == [1]
    finally:
        if how == "open":
            producer.abort_transaction()
        producer.close()


# What retention removed


def test_a_gap_before_the_bookmark_goes_on_is_said(config: Config, router: Router) -> None:
    router.deliver("ann", 1, 2, 3, 4, 5)
    with listener(config, from_beginning=True, bookmark="desk", timeout=5) as deliveries:
        assert next(deliveries).seq == 1
    gap = remove_before(config, "ann", 3)
    gaps: list[Gap] = []
    with listener(config, bookmark="desk", timeout=1, on_gap=gaps.append) as deliveries:
        assert seqs(deliveries) == [4, 5]
    assert gaps == [gap._replace(start=1)]
    with listener(config, bookmark="desk", timeout=0.3, on_gap=gaps.append) as deliveries:
        assert seqs(deliveries) == []
    assert len(gaps) == 1, "it is said once"


def test_a_gap_under_a_running_listener_is_said(
    config: Config, router: Router, caplog: pytest.LogCaptureFixture
) -> None:
    router.deliver("ann", 1, 2, 3)
    with listener(config, from_beginning=True, timeout=5) as deliveries:
        gap = remove_before(config, "ann", 2)
        assert next(deliveries).seq == 3
    warned = [r.message for r in caplog.records if r.levelno == logging.WARNING and r.name == module.__name__]
    assert warned == [str(gap)]
    assert f"partition {gap.partition}: the records from 0 to 1 were deleted" in warned[0]


def test_a_gap_may_end_the_reader(config: Config, router: Router) -> None:
    class Lost(Exception):
        pass

    def refuse(gap: Gap) -> None:
        raise Lost(gap)

    router.deliver("ann", 1, 2, 3)
    with listener(config, from_beginning=True, timeout=1, on_gap=refuse) as deliveries:
        gap = remove_before(config, "ann", 2)
        with pytest.raises(Lost) as lost:
            next(deliveries)
        assert lost.value.args == (gap,)
        assert seqs(deliveries) == [3], "and the next call goes on behind it"


def test_what_was_deleted_before_a_first_reader_is_no_gap(config: Config, router: Router) -> None:
    router.deliver("ann", 1, 2, 3)
    remove_before(config, "ann", 2)
    gaps: list[Gap] = []
    with listener(config, from_beginning=True, bookmark="desk", timeout=0.5, on_gap=gaps.append) as deliveries:
        assert seqs(deliveries) == [3]
    assert gaps == []


def test_a_topic_that_was_made_again_is_said(config: Config, router: Router) -> None:
    router.deliver("ann", 1, 2, 3)
    number = partition_of(config, "ann")
    gaps: list[Gap] = []
    with listener(config, from_beginning=True, timeout=30, on_gap=gaps.append) as deliveries:
        assert [next(deliveries).seq for _ in range(3)] == [1, 2, 3]
        with admin_of(config) as admin:
            admin.delete_topics([topic_of(config)])
            until(lambda: topic_of(config) not in admin.list_topics())
        ensure_topics(config.kafka.bootstrap, config.kafka.prefix)
        later = Router(config.kafka)
        later.deliver("ann", 4)
        later.close()
        assert next(deliveries).seq == 4
    assert gaps == [Gap(topic_of(config), number, 3, 0)]
    assert "made again; reading goes on at 0" in str(gaps[0])


def test_a_bookmark_beyond_the_end_is_said(config: Config, router: Router) -> None:
    """Kafka lost records that were read."""
    router.deliver("ann", 1)
    number = partition_of(config, "ann")
    consumer = connect_consumer(config.kafka.bootstrap, group=bookmark_id(config.kafka.prefix, "desk", "ann"))
    consumer.commit({TopicPartition(topic_of(config), number): OffsetAndMetadata(9, "", -1)})
    consumer.close()
    gaps: list[Gap] = []
    with listener(config, bookmark="desk", timeout=1, on_gap=gaps.append) as deliveries:
        assert seqs(deliveries) == [1]
    assert gaps == [Gap(topic_of(config), number, 9, 0)]


def test_listen_prints_a_gap(config: Config, file: str, router: Router, capsys: pytest.CaptureFixture[str]) -> None:
    router.deliver("ann", 1, 2, 3)
    words = ["listen", "--client", "ann", "--config", file, "--bookmark", "desk", "--timeout", "5"]
    assert main([*words, "--from-beginning", "--count", "1"]) == 0
    gap = remove_before(config, "ann", 2)._replace(start=1)
    capsys.readouterr()
    assert main([*words, "--count", "1"]) == 0
    out, err = capsys.readouterr()
    assert "p3 for s1" in out
    assert err.splitlines()[1:] == [f"lacuna: {gap}"]


def test_a_listener_reads_only_the_partition_that_holds_its_deliveries(config: Config, router: Router) -> None:
    announce(config.kafka)
    home = partition_of_key(b"ann", 4)
    router.deliver("ann", 1, epoch=1)
    router.deliver("ann", 2, epoch=1, partition=(home + 1) % 4)  # no router writes it there
    router.deliver("ann", 3, epoch=1)
    with Deliveries(config.kafka, "ann", from_beginning=True, timeout=2) as deliveries:
        assert [part.partition for part in deliveries._consumer.assignment()] == [home]
        assert [delivery.seq for delivery in deliveries] == [1, 3]


def test_a_life_with_more_partitions_is_noticed_by_a_listener(config: Config, router: Router) -> None:
    announce(config.kafka)
    moved = next(f"c{k}" for k in range(99) if partition_of_key(b"c%d" % k, 4) != partition_of_key(b"c%d" % k, 7))
    with Deliveries(config.kafka, moved, timeout=30) as deliveries:
        router.deliver(moved, 1, epoch=1)
        assert next(deliveries).seq == 1
        add_partitions(config, 7)
        announce(config.kafka, 2)
        router.deliver(moved, 1, epoch=2, partition=partition_of_key(moved.encode(), 7))
        assert (found := next(deliveries)).epoch == 2 and found.seq == 1


# New partitions


def add_partitions(config: Config, count: int) -> None:
    with admin_of(config) as admin:
        admin.create_partitions({topic_of(config): count})
        until(lambda: len(admin.describe_topics([topic_of(config)])[0]["partitions"]) == count)


def deliver_to(config: Config, number: int, *numbers: int) -> None:
    """Deliver into a given partition, as a router does whose key has moved there."""
    router = Router(config.kafka)
    for seq in numbers:
        router.deliver("ann", seq, partition=number)
    router.close()


def test_a_running_listener_notices_new_partitions(config: Config, router: Router) -> None:
    router.deliver("ann", 1)
    with listener(config, from_beginning=True, bookmark="desk", timeout=4 * module.REFRESH) as deliveries:
        assert next(deliveries).seq == 1
        add_partitions(config, 6)
        deliver_to(config, 5, 2, 3)
        assert [next(deliveries).seq, next(deliveries).seq] == [2, 3]
        router.deliver("ann", 4)
        assert next(deliveries).seq == 4, "the old ones are still read"
    with listener(config, bookmark="desk", timeout=0.5) as deliveries:
        assert seqs(deliveries) == [], "the bookmark knows the new ones"


def test_a_listener_from_now_on_reads_new_partitions_whole(config: Config, router: Router) -> None:
    router.deliver("ann", 1)
    with listener(config, timeout=4 * module.REFRESH) as deliveries:
        add_partitions(config, 5)
        deliver_to(config, 4, 2)
        assert next(deliveries).seq == 2


def test_a_restarted_listener_begins_new_partitions_at_their_first_record(config: Config, router: Router) -> None:
    router.deliver("ann", 1)
    with listener(config, bookmark="desk", timeout=0.3) as deliveries:
        assert seqs(deliveries) == []
    add_partitions(config, 6)
    deliver_to(config, 5, 2, 3)
    router.deliver("ann", 4)
    with listener(config, bookmark="desk", timeout=1) as deliveries:
        assert sorted(seqs(deliveries)) == [2, 3, 4]


def test_a_topic_that_is_deleted_is_missed(config: Config) -> None:
    with listener(config) as deliveries:
        with admin_of(config) as admin:
            admin.delete_topics([topic_of(config)])
        with pytest.raises(KafkaFailed) as error:
            next(deliveries)
    assert isinstance(error.value, TopicMissing), error.value


# Bookmarks


def test_two_readers_of_one_bookmark_both_get_everything(config: Config, router: Router) -> None:
    """A bookmark is no consumer group: it does not share out, and the docs say so."""
    router.deliver("ann", 1, 2)
    with (
        listener(config, from_beginning=True, bookmark="desk", timeout=1) as one,
        listener(config, from_beginning=True, bookmark="desk", timeout=1) as other,
    ):
        assert seqs(one) == seqs(other) == [1, 2]


def test_headers_come_with_the_delivery(config: Config, router: Router) -> None:
    router.deliver("ann", 1, headers=[("traceparent", b"00-1")])
    router.deliver("ann", 2)
    with listener(config, from_beginning=True, timeout=1) as deliveries:
        assert [delivery.headers for delivery in deliveries] == [(("traceparent", b"00-1"),), ()]


# async for


async def gather(deliveries: Deliveries) -> list[int]:
    return [delivery.seq async for delivery in deliveries]


def test_deliveries_can_be_awaited(config: Config, router: Router) -> None:
    router.deliver("ann", *range(1, 1201))

    async def read() -> list[int]:
        async with listener(config, from_beginning=True, timeout=1) as deliveries:
            return await gather(deliveries)

    assert asyncio.run(read()) == list(range(1, 1201))


def test_the_event_loop_runs_while_a_reader_waits(config: Config, router: Router) -> None:
    async def read() -> tuple[int, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        async with Client(config, broker="oslo", name="ann") as ann:
            deliveries = ann.deliveries(timeout=30)
            asyncio.get_running_loop().call_later(
                1, lambda: threading.Thread(target=router.deliver, args=("ann", 1)).start()
            )
            delivery: Delivery = await anext(deliveries)
            ticking.cancel()
            return delivery.seq, ticks

    seq, ticks = asyncio.run(read())
    assert seq == 1
    assert ticks > 10


def test_a_wait_that_is_cancelled_loses_nothing(config: Config, router: Router) -> None:
    async def read() -> list[int]:
        async with listener(config, bookmark="desk", timeout=2) as deliveries:
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(deliveries), 0.05)
            waiting = asyncio.create_task(anext(deliveries))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(router.deliver, "ann", 1, 2, 3)
            waiting.cancel()
            await asyncio.wait([waiting])
            taken = [] if waiting.cancelled() else [waiting.result().seq]
            return taken + await gather(deliveries)

    assert asyncio.run(read()) == [1, 2, 3]


def test_a_plain_reader_goes_on_after_an_async_one(config: Config, router: Router) -> None:
    deliveries = listener(config, timeout=5)

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(deliveries), 0.05)

    asyncio.run(wait())
    router.deliver("ann", 1)
    assert next(deliveries).seq == 1
    deliveries.close()


def test_an_error_comes_through_an_async_reader_and_it_goes_on(broker: Broker, config: Config, router: Router) -> None:
    router.deliver("ann", 1)

    async def read() -> list[int]:
        async with listener(config, from_beginning=True, timeout=0.5, deadline=0.5) as deliveries:
            with broker.frozen(), pytest.raises(Unreachable):
                await anext(deliveries)
            return await gather(deliveries)

    assert asyncio.run(read()) == [1]


def test_an_async_reader_can_be_stopped(config: Config) -> None:
    async def read() -> list[int]:
        async with listener(config) as deliveries:
            asyncio.get_running_loop().call_later(0.2, deliveries.stop)
            return await gather(deliveries)

    assert asyncio.run(read()) == []


def test_a_failed_async_body_gets_its_delivery_again(config: Config, router: Router) -> None:
    router.deliver("ann", 1, 2, 3)

    async def read() -> None:
        async with listener(config, from_beginning=True, bookmark="desk", timeout=5) as deliveries:
            async for delivery in deliveries:
                if delivery.seq == 2:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(read())
    with listener(config, bookmark="desk", timeout=1) as deliveries:
        assert seqs(deliveries) == [2, 3]
