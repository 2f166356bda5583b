"""What clients are owed, by brute force, and what they got: in the topic and in the table, life by life."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import closing
from typing import Any, NamedTuple

import deltalake
from deltalake.exceptions import DeltaError
from kafka import TopicPartition

from access.connection import connect_consumer
from access.control import ControlLog
from bench.faults.system import Failed, System
from producers.client import Client
from producers.sender import Sender
from state.errors import LacunaError

COLOURS = ("red", "green", "blue")
Name = tuple[str, str, str]
"""Broker, client, subscription."""
Where = dict[str, list[Any]]


class Delivery(NamedTuple):
    """A subscription and a publication that reached it."""

    broker: str
    client: str
    subscription: str
    publication: str


def matches(where: Where, at: dict[str, Any]) -> bool:
    """Compare plain values.

    >>> matches({"x": [1, 5], "colour": ["red"]}, {"x": 5, "y": 0.1, "colour": "red"})
    True
    """
    numbers = all(ends[0] <= at[name] <= ends[1] for name, ends in where.items() if name != "colour")
    return numbers and at["colour"] in where.get("colour", COLOURS)


def some_filter(chance: random.Random) -> Where:
    """Draw a filter."""
    where: Where = {}
    if chance.random() < 0.7:
        where["x"] = sorted(chance.choices(range(100), k=2))
    if chance.random() < 0.5:
        where["y"] = sorted((chance.random(), chance.random()))
    if not where or chance.random() < 0.3:
        where["colour"] = chance.sample(COLOURS, 2)
    return where


class History:
    """What was sent to a system and what is owed for it; what came of it."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.standing: dict[Name, Where] = {}
        self.owed: dict[Delivery, None] = {}
        self.unsure: set[str] = set()
        """Publications whose sending was not confirmed, or that Kafka lost afterwards: delivered or not."""
        self.again: set[str] = set()
        """Publications that may come again in another life."""
        self.published: list[str] = []

    def change(self, chance: random.Random, count: int) -> None:
        """Subscribe and unsubscribe, each in force everywhere before the next."""
        for _ in range(count):
            name = (
                chance.choice(self.system.config.overlay.brokers),
                chance.choice(["ann", "bob"]),
                f"s{chance.randrange(4)}",
            )
            with Client(self.system.config, broker=name[0], name=name[1], deadline=60) as client:
                if name in self.standing and chance.random() < 0.4:
                    client.unsubscribe(name[2], ack=True).wait(120)
                    del self.standing[name]
                else:
                    where = some_filter(chance)
                    client.subscribe(name[2], where, ack=True).wait(120)
                    self.standing[name] = where

    def publish(self, chance: random.Random, count: int, **fields: Any) -> list[str]:
        """Publish at any brokers. Return the ids. What Kafka did not confirm may be delivered, and need not be."""
        ids: list[str] = []
        try:
            with Sender(self.system.config, check=False, deadline=60) as sender:
                for _ in range(count):
                    id = f"p{len(self.published)}"
                    at = {"x": chance.randrange(100), "y": chance.random(), "colour": chance.choice(COLOURS)}
                    self.published.append(id)
                    ids.append(id)
                    broker = chance.choice(self.system.config.overlay.brokers)
                    sender.send("publish", broker, {"id": id, "at": at, **fields})
                    standing = self.standing.items()
                    self.owed |= {Delivery(*name, id): None for name, where in standing if matches(where, at)}
        except LacunaError:
            self.unsure |= set(ids)
        return ids


def delivered(system: System) -> dict[int, Counter[Delivery]]:
    """Return the deliveries by epoch, as a reader takes them: judged by the lives, without repeats by number."""
    with ControlLog(system.kafka.bootstrap, system.prefix) as control:
        records = read_all(system, "deliveries")
        lives = control.read().lives
    numbers: dict[tuple[int, str, int], int] = {}
    found: dict[int, Counter[Delivery]] = {}
    for record in records:
        try:
            d = json.loads(record.value)
            place, number = (d["epoch"], d["channel"], record.partition), int(d["seq"])
            delivery = Delivery(d["broker"], d["client"], d["subscription"], d["publication"])
        except (ValueError, KeyError, TypeError):
            continue  # not the router's
        if lives.judge(d["epoch"], "deliveries", record.partition, record.offset) != "valid":
            continue
        if number > numbers.get(place, 0):
            numbers[place] = number
            found.setdefault(d["epoch"], Counter())[delivery] += 1
    return found


def read_all(system: System, topic: str) -> list[Any]:
    """Return all records of a topic."""
    with closing(connect_consumer(system.kafka.bootstrap)) as consumer:
        name = system.topic(topic)
        parts = [TopicPartition(name, number) for number in sorted(consumer.partitions_for_topic(name) or ())]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends = consumer.end_offsets(parts)
        found: list[Any] = []
        while any(consumer.position(part) < ends[part] for part in parts):
            for records in consumer.poll(timeout_ms=200).values():
                found += records
    return found


def archived(system: System) -> dict[int, Counter[Delivery]]:
    """Return the rows of the table of deliveries by epoch."""
    try:
        table = deltalake.DeltaTable(f"{system.config.lake.path}/deliveries").to_pyarrow_table()
    except DeltaError as error:
        raise Failed(f"the table cannot be read: {error}") from None
    found: dict[int, Counter[Delivery]] = {}
    for r in table.to_pylist():
        delivery = Delivery(r["broker"], r["client"], r["subscription"], r["publication"])
        found.setdefault(r["epoch"], Counter())[delivery] += 1
    return found
