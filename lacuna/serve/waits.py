"""Waiting for the router's word: `Prefer: wait`.

An event that carries an `ack` is answered in the topic `notices` when it has had its effect at every broker. Beside
`producers.answers`, where a thread waits, here the event loop does: one thread reads for all requests that wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

from kafka.errors import KafkaError

from access import DEADLINE
from access.errors import KafkaFailed, Unreachable
from producers.notices import connect_notices
from state.config import Kafka
from state.protocol.notices import Notice, read_notice

SLICE, PAUSE = 0.1, 1.0

log = logging.getLogger(__name__)


class Waits:
    """The answers that are waited for. For the thread of the event loop."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._asked: dict[str, asyncio.Future[Notice]] = {}
        self._listening, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    async def expect(self, ack: str) -> asyncio.Future[Notice]:
        """Listen for the answer to an event that is about to be sent. Raises `Unreachable` if nobody can listen."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(loop,), daemon=True, name="notices")
            self._thread.start()
        if not self._listening.is_set() and not await asyncio.to_thread(self._listening.wait, DEADLINE):
            raise Unreachable(self._kafka.bootstrap, DEADLINE)
        future: asyncio.Future[Notice] = loop.create_future()
        self._asked[ack] = future
        future.add_done_callback(lambda _: self._asked.pop(ack, None))
        return future

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(DEADLINE)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stopped.is_set():
            consumer: Any = None
            try:
                consumer = connect_notices(self._kafka)
                self._listening.set()
                while not self._stopped.is_set():
                    self._look(consumer, loop)
            except (KafkaError, KafkaFailed) as error:
                log.warning("notices cannot be read, which is tried again: %s", error)
                self._listening.clear()
                self._stopped.wait(PAUSE)
            finally:
                if consumer is not None:
                    consumer.close()

    def _look(self, consumer: Any, loop: asyncio.AbstractEventLoop) -> None:
        for records in consumer.poll(timeout_ms=round(SLICE * 1000)).values():
            for record in records:
                notice = read_notice(record.value or b"")
                if notice is not None and notice.ack in self._asked:
                    loop.call_soon_threadsafe(self._answer, notice)

    def _answer(self, notice: Notice) -> None:
        future = self._asked.get(notice.ack or "")
        if future is not None and not future.done():
            future.set_result(notice)
