"""The beginning of a run: everything is checked first, then the prefix is claimed, then a life is begun or goes on.

    topics made ─▶ watch ─▶ evidence ─▶ verdict ─▶ lake checked ─▶ claim ─▶ life announced, prologue sent ─▶ (queries)
                     └──────────────── refused: nothing was touched ───┘

**The first life** begins from the topics: subscriptions that wait there are fed to the whole overlay (`whole`) before
the first publication is routed. Unsubscribe events that are later than the first publication that is still there are
left to the router, so that a publication between the two is delivered.

A life that was announced, but whose prologue was not sent when the process died, is finished by the next start: records
that are sent again have the same numbers, and are dropped by their readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from kafka.errors import KafkaError

from access.connection import connect_producer
from access.errors import failed
from access.offsets import Span, first_times, topic_spans
from access.tails import records_between
from access.topics import differences, ensure_topics, partition_counts
from state.config import Config
from state.errors import LacunaError, StateError
from state.protocol.control import Offsets
from state.protocol.topics import Topics
from state.storage.codec import uncollected
from streaming.archive import prepare, refuse_lost_records
from streaming.evidence import WRITTEN, Continue, Facts, Refusal, gather, verdict
from streaming.holder import NO_ALIASES, Holder
from streaming.life import Folder, Sent, known, stored_of
from streaming.pipeline import INPUTS, Engine
from streaming.settings import Settings, Spread, settle
from streaming.whole import NOT_AGAIN, Whole

PATIENCE = 60.0
"""Seconds that Kafka may take for a record of the prologue."""
EARLIEST = -2
"""Spark's name for the first offset of a partition."""
Say = Callable[[str], None]


@dataclass
class Begun:
    """A run that may start: the settings of its life, and the claim to the prefix, which an archive alone lacks."""

    settings: Settings
    holder: Holder | None = None


def begin(config: Config, engine: Engine, say: Say, *, router: bool = True, archive: bool = True) -> Begun:
    """Check everything, claim the prefix, and begin the first life or continue the announced one."""
    kafka = config.kafka
    ensure_topics(kafka.bootstrap, kafka.prefix, kafka.wanted)
    for each in differences(kafka.bootstrap, kafka.prefix, kafka.wanted):
        say(each)
    if not router:
        return Begun(known(config))
    holder = Holder(config, say)
    try:
        return Begun(_held(holder, config, engine, say, archive), holder)
    except BaseException:
        holder.close()
        raise


def _held(holder: Holder, config: Config, engine: Engine, say: Say, archive: bool) -> Settings:
    facts = gather(config, holder.watch(), engine.partitions)
    found = verdict(facts)
    if isinstance(found, Refusal):
        raise found.error
    folder = Folder(config.lake.checkpoint)
    going_on = found if isinstance(found, Continue) else None
    settings = new_life(config, engine, facts) if going_on is None else folder.settings(config, going_on.epoch)
    _refuse_fewer_partitions(settings, partition_counts(config.kafka.bootstrap, config.kafka.prefix))
    if archive:
        prepare(settings)
        refuse_lost_records(settings)
    if going_on is not None:
        _continue(holder, settings, folder, going_on)
        return settings
    whole, starts = fed_from_topics(settings, facts, say, force=True)
    return announce_life(holder, replace(settings, starts=starts), whole, engine, facts, "the first life")


def _continue(holder: Holder, settings: Settings, folder: Folder, found: Continue) -> None:
    """Claim the prefix for a life that goes on, and finish what a killed process has left."""
    holder.claim()
    if found.announces:
        holder.announce(found.epoch, folder.read(found.epoch).why, {})
    for epoch in found.removes:
        folder.remove(epoch)
    send_prologue(settings.config, folder, found.epoch)


# A new life


def new_life(config: Config, engine: Engine, facts: Facts, moves: Mapping[str, str] = NO_ALIASES) -> Settings:
    """Return the settings of the life after all that are known. Raises `ConfigError` if it cannot be.

    `moves` are brokers, and those that their clients move to.
    """
    counts = partition_counts(config.kafka.bootstrap, config.kafka.prefix)
    spread = Spread(counts["links"], counts["records"], counts["deliveries"])
    settings = settle(config, facts.highest + 1, engine.partitions, engine.cores, spread)
    earlier = frozenset({life.epoch for life in facts.prefix.lives.announced} | set(facts.lives))
    return replace(settings, earlier=earlier, aliases=aliases(facts, config, moves))


def aliases(facts: Facts, config: Config, moves: Mapping[str, str]) -> dict[str, str]:
    """Return the brokers that are gone, and those that their clients have moved to, now or before.

    A name that is used again is no alias any more.
    """
    newest = facts.prefix.lives.newest
    before = {} if newest is None else newest.aliases
    found = {old: moves.get(new, new) for old, new in before.items()} | dict(moves)
    return {old: new for old, new in found.items() if old not in config.overlay.brokers}


def announce_life(
    holder: Holder, settings: Settings, whole: Whole | None, engine: Engine, facts: Facts, why: str
) -> Settings:
    """Claim the prefix unless it is held, write the folder of a life, announce it, and send its prologue.

    A life of a version that announced none is announced before, so that readers know its records.
    """
    config, folder = settings.config, Folder(settings.config.lake.checkpoint)
    seed, prologue = ({}, []) if whole is None else (whole.seed(), whole.sent)
    if holder.term is None:
        holder.claim()
    for epoch, held in facts.lives.items():
        if facts.announced is None and held.committed >= 0:
            holder.announce(epoch, held.stored.why, {})
    folder.write(stored_of(settings, engine.partitions, why, facts.ids, seeded=bool(seed)), seed, prologue)
    holder.announce(settings.epoch, why, ends_of(config), settings.aliases)
    send_prologue(config, folder, settings.epoch)
    return folder.settings(config, settings.epoch)


def ends_of(config: Config) -> Offsets:
    """Return the ends of the topics that the router writes."""
    topics, ends = Topics(config.kafka.prefix), Offsets()
    for (topic, number), span in topic_spans(config.kafka.bootstrap, map(topics.of, WRITTEN)).items():
        ends.setdefault(topic.removeprefix(f"{topics.prefix}."), {})[str(number)] = span.next
    return ends


def send_prologue(config: Config, folder: Folder, epoch: int) -> None:
    """Send what a life has to say before its router does, unless that was done."""
    prologue = folder.prologue(epoch)
    if prologue is None:
        return
    topics = Topics(config.kafka.prefix)
    with closing(connect_producer(config.kafka.bootstrap)) as producer:
        try:
            sent = [_send(producer, topics, record) for record in prologue]
            for each in sent:
                each.get(timeout=PATIENCE)
        except KafkaError as error:
            raise failed(config.kafka.bootstrap, PATIENCE, error) from None
    folder.note_sent(epoch)


def _send(producer: Any, topics: Topics, sent: Sent) -> Any:
    return producer.send(
        topics.of(sent.topic), sent.value, key=sent.key, partition=sent.partition, headers=list(sent.headers)
    )


# From the topics


def fed_from_topics(settings: Settings, facts: Facts, say: Say, *, force: bool) -> tuple[Whole | None, Offsets]:
    """Feed the requests in the topics to the whole overlay. Return it (None: there is nothing), and the starts.

    They are fed up to the offsets of the last tick, where publications begin too. Without a tick they are fed to their
    ends, and publications begin with the first that is there. What a ticking life has read is recorded already: of
    that, only what stands is. Refused, without `force`, if the beginning of a topic of requests is gone.
    """
    if not force:
        _refuse_lost_requests(facts)
    beat = facts.prefix.beat
    starts: Offsets = {topic: {} for topic in INPUTS}
    for (topic, number), span in facts.spans.items():
        if topic in starts:
            starts[topic][str(number)] = EARLIEST if topic in ("publish", "control") else span.next
    if beat is not None and beat.offsets:
        for topic in ("subscribe", "unsubscribe", "publish"):
            starts[topic] |= beat.offsets.get(topic, {})
    bootstrap, topics = settings.config.kafka.bootstrap, settings.topics
    wanted = {
        (topics.of(topic), int(number)): Span(facts.spans[topic, int(number)].first, end)
        for topic in ("subscribe", "unsubscribe")
        for number, end in starts[topic].items()
    }
    records = list(records_between(bootstrap, wanted))
    if beat is None:
        records = _before_publications(records, settings, facts, starts)
    if not records:
        return None, starts
    say(f"feeding {len(records):,} subscribe and unsubscribe events from the topics, before the first publication")
    recorded = beat is not None and bool(beat.offsets)
    with uncollected():
        whole = Whole(settings)
        whole.feed(records, without=NOT_AGAIN if recorded else ())
        if recorded:
            whole.record(decisions=False)
    if whole.refused:
        say(f"{whole.refused:,} of them break a rule of this configuration, and have no effect")
    return whole, starts


def _before_publications(records: list[Any], settings: Settings, facts: Facts, starts: Offsets) -> list[Any]:
    """Leave out the unsubscribe events that are later than the first publication, and start the router at them."""
    waiting = [number for (topic, number), span in facts.spans.items() if topic == "publish" and span.first < span.next]
    times = first_times(settings.config.kafka.bootstrap, settings.topics.publish, waiting) if waiting else {}
    if not times:
        return records
    first, ends = min(times.values()), settings.topics.unsubscribe
    later = [record for record in records if record.topic == ends and _moment(record) > first]
    for record in later:
        number = str(record.partition)
        starts["unsubscribe"][number] = min(starts["unsubscribe"][number], record.offset)
    return [r for r in records if r.topic != ends or r.offset < starts["unsubscribe"][str(r.partition)]]


def _moment(record: Any) -> datetime:
    return datetime.fromtimestamp(record.timestamp / 1000, UTC)


def _refuse_lost_requests(facts: Facts) -> None:
    lost = [
        f"{topic}, partition {number}, begins at {span.first}"
        for (topic, number), span in sorted(facts.spans.items())
        if topic in ("subscribe", "unsubscribe") and span.first > 0
    ]
    if lost:
        raise StateError(
            f"{'; '.join(lost)}: subscriptions before that are gone from the topics. Remedy: go on from the "
            "checkpoint, if there is one (lacuna apply), or restore the topics from a copy; --force goes on without"
        )


def _refuse_fewer_partitions(settings: Settings, there: Mapping[str, int]) -> None:
    """Refuse topics that lack a partition into which the router writes."""
    needed = {
        "links": max(settings.links.values(), default=0) + 1,
        "records": max(settings.records.values(), default=0) + 1,
        "deliveries": settings.deliveries,
    }
    for name, least in needed.items():
        if there[name] < least:
            raise LacunaError(
                f"{settings.folder}: the topic {settings.topics.of(name)} has {there[name]} partitions, and the life "
                f"was made for {least}. Remedy: add partitions to it until there are {least}"
            )
