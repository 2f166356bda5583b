"""Catching up: what came while a listener was away, read in slices by a few threads, for all in turn.

A slice is at most `MOST_BYTES` of one partition, sorted by client. Listeners that come back together, as after a
restart of the gateway, were at about the same place: slices begin at round offsets, and the last ones are kept, so
that they are read from Kafka once for all of them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.errors import KafkaError

from access import DEADLINE
from access.connection import connect_consumer
from access.errors import Unreachable, failed
from access.offsets import Span
from state.config import Kafka
from state.protocol.topics import Topics

READERS = 4
MOST_BYTES = 1 << 20
ROUND = 2_000
"""Slices begin at multiples of so many offsets, where they can."""
KEPT = 32


class Slice(NamedTuple):
    """The records of each client, the offset of the first one that could be read, and the offset after the last."""

    records: dict[bytes, list[Any]]
    begin: int
    next: int


class CatchUp:
    """The readers. For the thread of the event loop."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka, self._topic = kafka, Topics(kafka.prefix).deliveries
        self._pool = ThreadPoolExecutor(READERS, "catchup")
        self._local = threading.local()
        self._open: list[Any] = []
        self._kept: OrderedDict[tuple[int, int, int], asyncio.Future[Slice]] = OrderedDict()

    async def read(self, partition: int, offset: int, end: int) -> Slice:
        """Return what follows an offset, up to an end. Raises `KafkaFailed`."""
        begin = offset - offset % ROUND
        stop = min(end, begin + ROUND)
        found = await self._cached(partition, begin, stop)
        return found if found.next > offset else await self._cached(partition, offset, stop)

    async def _cached(self, partition: int, begin: int, end: int) -> Slice:
        key = (partition, begin, end)
        future = self._kept.get(key)
        if future is None or future.cancelled() or (future.done() and future.exception() is not None):
            loop = asyncio.get_running_loop()
            future = self._kept[key] = asyncio.ensure_future(
                loop.run_in_executor(self._pool, self._read, partition, begin, end)
            )
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return await asyncio.shield(future)

    async def span(self, partition: int) -> Span:
        """Return the first offset of a partition, and its end."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._span, partition)

    def close(self) -> None:
        """End the threads and their connections."""
        self._pool.shutdown(cancel_futures=True)
        for consumer in self._open:
            consumer.close()

    # In the threads

    def _consumer(self) -> Any:
        consumer = getattr(self._local, "consumer", None)
        if consumer is None:
            consumer = self._local.consumer = connect_consumer(self._kafka.bootstrap, reset="none", wait=0.01)
            self._open.append(consumer)
        return consumer

    def _read(self, partition: int, begin: int, end: int) -> Slice:
        part = TopicPartition(self._topic, partition)
        found: dict[bytes, list[Any]] = {}
        consumer, size, until = self._consumer(), 0, time.monotonic() + DEADLINE
        try:
            first = consumer.beginning_offsets([part], timeout_ms=round(DEADLINE * 1000))[part]
            begin = max(begin, first)
            consumer.assign([part])
            consumer.seek(part, begin)
            while (at := consumer.position(part, timeout_ms=round(DEADLINE * 1000))) < end and size < MOST_BYTES:
                if time.monotonic() > until:
                    raise Unreachable(self._kafka.bootstrap, DEADLINE)
                for records in consumer.poll(timeout_ms=200).values():
                    for record in records:
                        if record.offset < end and record.key is not None:
                            found.setdefault(record.key, []).append(record)
                            size += len(record.value or b"")
        except KafkaError as error:
            raise failed(self._kafka.bootstrap, DEADLINE, error) from None
        return Slice(found, begin, min(at, end))

    def _span(self, partition: int) -> Span:
        part, wait = TopicPartition(self._topic, partition), round(DEADLINE * 1000)
        consumer = self._consumer()
        try:
            first = consumer.beginning_offsets([part], timeout_ms=wait)[part]
            return Span(int(first), int(consumer.end_offsets([part], timeout_ms=wait)[part]))
        except KafkaError as error:
            raise failed(self._kafka.bootstrap, DEADLINE, error) from None
