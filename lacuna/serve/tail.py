"""The tail of the topic `deliveries`: one thread and one consumer for all listeners that are up to date.

    wanted partitions ──▶ ┌──────┐ ──batch──▶ event loop: `hub` hands it to the listeners
    (set by the hub)      │ Tail │
    Kafka: deliveries ───▶│      │   A batch: records, how far each partition is read with them, and what to judge by.
    Kafka: control ──────▶└──────┘   The next batch is handed over when the loop is done with the last one.

Only partitions with listeners are read, each from its end at the moment when the first listener came. Records are
neither decoded nor looked at here: what the event loop does with one is a look into a dictionary.

If Kafka fails, the tail connects again and goes on where it was. If it cannot go on there, because the records were
deleted meanwhile, it goes to the end and says that it `jumped`: the listeners of that partition then catch up by
themselves, and find out what is lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.errors import KafkaError, LogTruncationError, OffsetOutOfRangeError

from access import DEADLINE
from access.connection import connect_consumer
from access.errors import KafkaFailed
from producers.judging import Judge, Judgement
from state.config import Kafka
from state.protocol.topics import Topics

WAIT = 0.1
"""Seconds that a fetch stays open at Kafka, and so the longest time until a new partition is read."""
LOOK = 1.0
"""Seconds after which control is read, even if nothing came: a new life may use other partitions."""
MOST_RECORDS = 5_000
PAUSE = 1.0

log = logging.getLogger(__name__)


class Batch(NamedTuple):
    """Records, the next offset of each partition that is read, the partitions that jumped, what to judge by."""

    records: list[Any]
    at: dict[int, int]
    jumped: frozenset[int]
    judgement: Judgement


class Tail:
    """The thread. `hand_over(batch, done)` is called in it, and must see that `done` is called at the end."""

    def __init__(self, kafka: Kafka, hand_over: Callable[[Batch, Callable[[], None]], None]) -> None:
        self._kafka, self._hand_over = kafka, hand_over
        self._topic = Topics(kafka.prefix).deliveries
        self._judge = Judge(kafka)
        self._judgement = Judgement()
        self._looked = 0.0
        self._consumer: Any = None
        self._wanted: frozenset[int] | None = None
        self._at: dict[int, int] = {}
        self._jumped: set[int] = set()
        self._stopped, self._asked = False, False
        self._changed, self._done = threading.Event(), threading.Event()
        self._done.set()
        self._thread = threading.Thread(target=self._run, daemon=True, name="tail")

    def start(self) -> None:
        """Begin to read, as soon as something is wanted."""
        self._thread.start()

    def want(self, partitions: frozenset[int] | None) -> None:
        """Read these partitions from now on; None: not even control. A batch follows, even if nothing comes."""
        if partitions != self._wanted:
            self._wanted = partitions
            self._asked = True
            self._changed.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._changed.set()
        self._done.set()
        self._thread.join(DEADLINE)

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._once()
            except (KafkaError, KafkaFailed) as error:
                log.warning("deliveries cannot be read, which is tried again: %s", error)
                self._close()
                self._changed.wait(PAUSE)
            except Exception:
                log.exception("the tail failed, and goes on")
                self._close()
                self._changed.wait(PAUSE)
        self._close()

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._judge.close()

    def _once(self) -> None:
        """Read what there is, and hand it over."""
        wanted = self._wanted
        if wanted is None:
            self._rest()
            return
        asked, self._asked = self._asked, False
        asked |= self._assign(wanted)
        records = self._poll() if wanted else []
        before = self._judgement
        if records or asked or time.monotonic() > self._looked + LOOK:
            self._judgement, self._looked = self._judge.look(self._at), time.monotonic()
        for number in wanted:
            self._at[number] = self._consumer.position(self._part(number), timeout_ms=round(DEADLINE * 1000))
        if records or asked or self._jumped or self._judgement != before:
            self._give(Batch(records, dict(self._at), frozenset(self._jumped), self._judgement))
            self._jumped.clear()
        if not wanted:
            self._changed.wait(WAIT)
            self._changed.clear()

    def _rest(self) -> None:
        """Wait until somebody listens, and then begin at the ends."""
        self._close()
        self._at.clear()
        self._changed.wait()
        self._changed.clear()

    def _give(self, batch: Batch) -> None:
        """Hand a batch over when the last one is done with."""
        self._done.wait()
        if not self._stopped:
            self._done.clear()
            self._hand_over(batch, self._done.set)

    def _assign(self, wanted: frozenset[int]) -> bool:
        """Read these partitions: from where the tail was, or else from their ends. Return whether that is a change."""
        if self._consumer is None:
            self._consumer = connect_consumer(self._kafka.bootstrap, reset="none", refresh=5.0, wait=WAIT)
        parts = {self._part(number) for number in wanted}
        if parts == self._consumer.assignment():
            return False
        ends = self._ends(wanted - self._at.keys())
        for number in self._at.keys() - wanted:
            del self._at[number]
        self._consumer.assign(list(parts))
        self._at |= ends
        for number in wanted:
            self._consumer.seek(self._part(number), self._at[number])
        return True

    def _ends(self, numbers: frozenset[int]) -> dict[int, int]:
        parts = [self._part(number) for number in numbers]
        ends = self._consumer.end_offsets(parts, timeout_ms=round(DEADLINE * 1000)) if parts else {}
        return {part.partition: int(end) for part, end in ends.items()}

    def _poll(self) -> list[Any]:
        """Return records in order of their partitions: what comes within `WAIT`, and what is there with it."""
        found: list[Any] = []
        wait = round(WAIT * 1000)
        try:
            while len(found) < MOST_RECORDS and (polled := self._consumer.poll(timeout_ms=wait)):
                for records in polled.values():
                    found += records
                wait = 0
        except OffsetOutOfRangeError as error:
            self._jump({part.partition for part in error.args[0]})
        except LogTruncationError as error:
            self._jump({part.partition for part in error.divergent_offsets})
        return found

    def _jump(self, numbers: set[int]) -> None:
        for number, end in self._ends(frozenset(numbers)).items():
            self._consumer.seek(self._part(number), end)
            self._jumped.add(number)

    def _part(self, number: int) -> TopicPartition:
        return TopicPartition(self._topic, number)
