"""What is found before anything is started, and what that means: `gather` reads, `verdict` judges, both change nothing.

C and P are the last committed and the last planned batch of the life in the folder; T is the highest batch of that life
that is known from outside: from the ends of the topics that the router writes, and from its last tick. Spark plans a
batch before anything of it is written, so T > P proves that the folder is an older copy.

    situation                  evidence                                       verdict
    fresh prefix               no life announced, none in the folder          begin the first life
    restart, crash             the announced life is in the folder, T <= P    continue
    of an earlier version      a life in the folder, none announced           continue, and announce it
    killed `apply`             an unannounced life without commits            removed, and the parent continues
    restored copy              T > P, or a newer life was announced           refused
    checkpoint lost            announced life not in the folder               refused
    checkpoint damaged         a file of the newest life cannot be read       refused
    other topics               the life was made for another prefix           refused
    Kafka rolled back          end < C's offset, or the life is unknown       refused
    topic made again           another topic id                               refused
    lost range                 begin > C's offset                             refused
    changed configuration      the life was made for another one              refused

A refusal names its cause and its remedy: see `stops`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from access.offsets import Span, topic_spans
from access.tails import last_records
from access.topics import topic_ids
from state.config import Config
from state.errors import StateError
from state.protocol.control import Offsets, Prefix
from state.protocol.frame import Frame, read
from state.protocol.topics import Topics
from streaming.life import FORMAT, Damaged, Folder, Stored, difference, refuse_other_topics
from streaming.stops import ROUTER, stopped

WRITTEN = ("links", "records", "deliveries")
"""The topics that the router writes."""
Spans = Mapping[tuple[str, int], Span]
"""Spans by topic, named without the prefix, and partition."""


class Mark(NamedTuple):
    """The life and the batch that a record of the router names."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class Held:
    """A life in the folder: its file, its last committed and planned batch, the offsets behind the committed one."""

    stored: Stored
    committed: int = -1
    planned: int = -1
    offsets: Offsets = field(default_factory=dict)

    @property
    def reached(self) -> Offsets:
        """The offsets behind the last committed batch, or those at which the life begins."""
        return self.stored.starts if self.committed < 0 else self.offsets


@dataclass(frozen=True)
class Facts:
    """Everything that a verdict depends on.

    `differs` says in what the configuration is not that of the newest life, `damaged` why a life cannot be read.
    """

    folder: str
    prefix: Prefix
    lives: Mapping[int, Held]
    spans: Spans
    ids: Mapping[str, str]
    marks: frozenset[Mark]
    differs: str | None = None
    damaged: Mapping[int, str] = field(default_factory=dict)

    @property
    def announced(self) -> int | None:
        """The epoch of the newest life that was announced."""
        newest = self.prefix.lives.newest
        return None if newest is None else newest.epoch

    @property
    def highest(self) -> int:
        """The highest epoch of an announced life, a folder or a record; 0 if there is none."""
        epochs = [*self.lives, *self.damaged, *(mark.epoch for mark in self.marks), self.announced or 0]
        return max(epochs, default=0)

    def last_seen(self, epoch: int) -> int:
        """Return the highest batch of a life that is known from outside its folder; -1 if there is none."""
        beat = self.prefix.beat
        ticked = beat.batch if beat is not None and beat.epoch == epoch else -1
        return max([ticked, *(mark.batch for mark in self.marks if mark.epoch == epoch)])


@dataclass(frozen=True)
class Begin:
    """There is no life yet: begin the first."""


@dataclass(frozen=True)
class Continue:
    """Go on with a life; announce it first if an earlier version made it; remove what a killed `apply` left."""

    epoch: int
    announces: bool = False
    removes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """A situation in which nothing is started: its name, what was found, and what to do."""

    situation: str
    found: str

    @property
    def error(self) -> StateError:
        """The error that says so."""
        return stopped(ROUTER[self.situation], self.found, "Nothing was started. ")


Verdict = Begin | Continue | Refusal


def verdict(facts: Facts) -> Verdict:
    """Return what to do."""
    committed = [epoch for epoch, held in facts.lives.items() if held.committed >= 0]
    epoch = facts.announced
    damage = damage_of(facts)
    if damage is not None:
        return damage
    if epoch is None:
        return _unannounced(facts, committed)
    unknown = [e for e in committed if e > epoch]
    if unknown:
        return Refusal("Kafka rolled back", f"{facts.folder}: the life {unknown[-1]} was never announced in control")
    if epoch not in facts.lives:
        situation = "restored copy" if committed else "checkpoint lost"
        return Refusal(situation, f"{facts.folder}: the life {epoch} was announced, and is not in this folder")
    return _of_life(facts, epoch) or Continue(epoch, removes=_leftovers(facts, epoch))


def damage_of(facts: Facts) -> Refusal | None:
    """Return the refusal of a folder whose newest life cannot be read; None if it can."""
    newest = max(facts.damaged, default=None)
    if newest is None or newest < max([*facts.lives, facts.announced or 0]):
        return None
    return Refusal("checkpoint damaged", facts.damaged[newest])


def _leftovers(facts: Facts, epoch: int) -> tuple[int, ...]:
    """Return the lives in the folder that are not needed: never announced, or left for one that has begun to work."""
    announced = {life.epoch for life in facts.prefix.lives.announced}
    works = facts.lives[epoch].committed >= 0
    return tuple(e for e in (*facts.lives, *facts.damaged) if e != epoch and (e not in announced or works))


def _unannounced(facts: Facts, committed: list[int]) -> Verdict:
    """Judge a prefix in which no life was announced."""
    first = [epoch for epoch, held in facts.lives.items() if held.stored.format < FORMAT]
    if first:
        return _of_life(facts, first[-1]) or Continue(first[-1], announces=True)
    if committed:
        return Refusal("Kafka rolled back", f"{facts.folder}: the life {committed[-1]} was never announced in control")
    return Begin()


def _of_life(facts: Facts, epoch: int) -> Refusal | None:
    """Return why the life in the folder cannot go on; None if it can."""
    held, where = facts.lives[epoch], f"{facts.folder}, life {epoch}"
    if facts.differs is not None:
        return Refusal("changed configuration", f"{where}: {facts.differs}")
    if (last := facts.last_seen(epoch)) > held.planned:
        found = f"{where}: its last batch is {held.planned}, and batch {last} was seen in Kafka"
        return Refusal("restored copy" if held.committed >= 0 else "checkpoint lost", found)
    remade = [name for name, topic in held.stored.topics.items() if facts.ids.get(name, topic) != topic]
    if remade:
        return Refusal("topic made again", f"{where}: {', '.join(remade)}")
    for (topic, partition), span in sorted(facts.spans.items()):
        read_to = held.offsets.get(topic, {}).get(str(partition))
        holds = f"Kafka holds {span.first} to {span.next}"
        found = f"{where}: {topic}, partition {partition}: read up to {read_to}, and {holds}"
        if read_to is not None and span.next < read_to:
            return Refusal("Kafka rolled back", found)
        if read_to is not None and span.first > read_to:
            return Refusal("lost range", found)
    return None


# Reading


def gather(config: Config, prefix: Prefix, partitions: int) -> Facts:
    """Read everything that a verdict depends on. Nothing is changed.

    A running router goes on meanwhile: it plans a batch before it writes, and reads what Kafka has. So what it has
    written is read first, then the folder, then what Kafka has.
    """
    kafka, folder = config.kafka, Folder(config.lake.checkpoint)
    folder.refuse_strangers()
    marks = _marks(config)
    lives, damaged = _lives(folder, kafka.prefix)
    found = topic_spans(kafka.bootstrap, Topics(kafka.prefix).all)
    spans = {(topic.removeprefix(f"{kafka.prefix}."), number): span for (topic, number), span in found.items()}
    newest = prefix.lives.newest
    current = lives.get(newest.epoch) if newest is not None else next(iter(lives.values()), None)
    return Facts(
        folder=folder.root,
        prefix=prefix,
        lives=lives,
        spans=spans,
        ids=topic_ids(kafka.bootstrap, kafka.prefix),
        marks=marks,
        differs=None if current is None else difference(current.stored, config, partitions),
        damaged=damaged,
    )


def _lives(folder: Folder, prefix: str) -> tuple[dict[int, Held], dict[int, str]]:
    """Return the lives in a folder, and why others cannot be read. Raises `StateError` if they are of other topics."""
    lives, damaged = dict[int, Held](), dict[int, str]()
    for epoch in folder.epochs():
        try:
            lives[epoch] = _held(folder, epoch, prefix)
        except Damaged as error:
            damaged[epoch] = error.found
    for held in lives.values():
        refuse_other_topics(held.stored, folder.root, prefix)
    return lives, damaged


def _held(folder: Folder, epoch: int, prefix: str) -> Held:
    planned, committed = folder.batches(epoch, "offsets"), folder.batches(epoch, "commits")
    last = committed[-1] if committed else -1
    stored = folder.read(epoch)
    offsets = folder.offsets(epoch, last, stored.identity["prefix"]) if committed else {}
    return Held(stored, last, planned[-1] if planned else -1, offsets)


def _marks(config: Config) -> frozenset[Mark]:
    """Return the lives and batches that the last records of the router's topics name."""
    bootstrap, topics = config.kafka.bootstrap, Topics(config.kafka.prefix)
    written = topic_spans(bootstrap, map(topics.of, WRITTEN))
    last = last_records(bootstrap, written, lambda record: mark_of(record.value) is not None)
    return frozenset(mark for mark in (mark_of(record.value) for record in last) if mark is not None)


class _Delivery(msgspec.Struct):
    epoch: int
    batch: int


def mark_of(value: bytes | None) -> Mark | None:
    """Return the life and the batch that a record names; None if it is not the router's."""
    frame = read(value or b"")
    if isinstance(frame, Frame):
        return Mark(frame.content.epoch, frame.content.batch)
    try:
        delivery = msgspec.json.decode(value or b"", type=_Delivery)
    except msgspec.DecodeError:
        return None
    return Mark(delivery.epoch, delivery.batch)
