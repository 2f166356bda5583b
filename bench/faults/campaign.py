"""One cycle of the campaign: a load, a fault, remedies to the letter, and the comparison with brute force."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kafka.errors import KafkaError

from bench.faults.catalogue import Fault
from bench.faults.owed import Delivery, History, archived, delivered
from bench.faults.system import Failed, System, wait_until
from state.errors import LacunaError

MOST_STOPS = 5
"""Remedies followed one after another before the system counts as not mended."""
SETTLING = 150.0
"""Seconds until everything that is owed must be there."""


@dataclass
class Result:
    """What came of a cycle; what is wrong in `lost`, `repeated`, `false`, `unclear` and `failed`."""

    seed: int
    fault: str
    hit: str = ""
    stops: list[str] = field(default_factory=list)
    lost: int = 0
    repeated: int = 0
    false: int = 0
    unclear: int = 0
    failed: str = ""
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Tell whether everything is as it must be."""
        return not (self.lost or self.repeated or self.false or self.unclear or self.failed)


class Cycle:
    """A fault on a system that runs."""

    def __init__(self, system: System, history: History, seed: int, fault: Fault) -> None:
        self.system, self.history, self.fault = system, history, fault
        self.chance = random.Random(seed)
        self.result = Result(seed, fault.name)
        self.mine: list[str] = []
        """What this cycle published."""
        self.lost: list[str] = []
        """What Kafka forgot."""

    def play(self) -> Result:
        """Play it. What goes wrong is in the result."""
        began = time.monotonic()
        try:
            self._prepare()
            prepared = len(self.mine)
            self.result.hit = self.fault.do(self)
            self.recover()
            self.history.unsure |= set(self.lost)
            if self.fault.again:
                self.history.again |= set(self.mine[prepared:])
            self.publish(self.chance.randint(3, 8))
            self._compare()
        except (Failed, LacunaError, KafkaError, OSError, subprocess.SubprocessError) as error:
            said = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            self.result.unclear += said.startswith("unclear stop")
            self.result.failed = said[:1000]
            with suppress(Exception):
                self._count()
        self.result.seconds = round(time.monotonic() - began, 1)
        return self.result

    def _prepare(self) -> None:
        """Let the job run with requests in force, and with publications that were carried to the end."""
        if not self.system.runs:
            self.start()
        self.history.change(self.chance, 2)
        self.publish(self.chance.randint(3, 6))
        self.await_done()
        if self.fault.again:
            self.system.await_tick()

    # what faults use

    def publish(self, count: int, **fields: Any) -> list[str]:
        """Publish so many events."""
        ids = self.history.publish(self.chance, count, **fields)
        self.mine += ids
        return ids

    def owed_to(self, client: str, ids: list[str]) -> list[Delivery]:
        """Return what a client is owed for these publications."""
        return [one for one in self.history.owed if one.client == client and one.publication in ids]

    def start(self) -> None:
        """Start the job, which must come to its first batch."""
        if not self.system.start():
            raise Failed(f"the job ended at its start: {self.system.last_words()[:500]}")

    def await_batch(self) -> str:
        """Publish until a batch is planned and not committed."""
        for _ in range(60):
            self.publish(1)
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                if self.system.in_a_batch():
                    return f"after batch {self.system.batches()}, in the next"
        raise Failed("no batch was seen before its commit")

    def await_done(self) -> None:
        """Wait until all that is owed is delivered, and is in the table."""
        wait_until(self._is_done, "all that is owed is delivered, and in the table", SETTLING)

    def note_stop(self, said: str, done: str) -> None:
        """Note a stop and what was done."""
        self.result.stops.append(f"{said[:400]} => {done}")

    # afterwards

    def recover(self) -> None:
        """Let the job run again; where it stopped by itself, do what it said, to the letter."""
        process = self.system.process
        while not (self.system.runs and self.system.begun()):
            if process is not None and (process.poll() or 0) > 0:
                self._mend()
            self.system.start(wait=False)
            self.system.begun()
            process = self.system.process

    def _mend(self) -> None:
        """Do what the job said when it ended."""
        if len(self.result.stops) >= MOST_STOPS:
            raise Failed(f"unclear stop: {MOST_STOPS} remedies were followed, and the job does not run")
        said = self.system.ended()
        self.note_stop(said, self.system.follow(said))

    def _compare(self) -> None:
        """Wait until all that is owed is there, and compare. A job that stops meanwhile is mended."""
        until = time.monotonic() + SETTLING
        while time.monotonic() < until and not self._is_done():
            if not self.system.runs:
                self.recover()
                until = time.monotonic() + SETTLING
            time.sleep(0.3)
        self._count()

    def _owed(self) -> Counter[Delivery]:
        return Counter({one: 1 for one in self.history.owed if one.publication not in self.history.unsure})

    def _is_done(self) -> bool:
        try:
            topic = delivered(self.system)
            made = sum(topic.values(), Counter[Delivery]())
            return not self._owed() - made and archived(self.system) == topic
        except (Failed, LacunaError, KafkaError):
            return False

    def _count(self) -> None:
        """Compare with brute force: each once, but for what may come again; a row for each delivery, life by life."""
        topic, rows = delivered(self.system), archived(self.system)
        made, owed = sum(topic.values(), Counter[Delivery]()), self._owed()
        may = set(self.history.owed)
        missing = [one for one in owed if not made[one]]
        false = [one for one in made if one not in may]
        twice = [one for one, count in made.items() if count > 1 and one.publication not in self.history.again]
        within = [one for life in topic.values() for one, count in life.items() if count > 1]
        more = [one for epoch in rows for one in rows[epoch] - topic.get(epoch, Counter())]
        fewer = [one for epoch in topic for one in topic[epoch] - rows.get(epoch, Counter())]
        self.result.lost = len(missing) + len(fewer)
        self.result.false = len(false)
        self.result.repeated = len(set(twice) | set(within)) + len(more)
        wrong = {"missing": missing, "false": false, "twice": twice, "more rows": more, "fewer rows": fewer}
        self.result.failed += "; ".join(f"{name}: {found[:3]}" for name, found in wrong.items() if found)[:1000]
