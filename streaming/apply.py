"""A new life, with the configuration as it is or with another: the remedy of most refusals, and the way to change.

    from the state     the regions as of the last committed batch, joined, and the letters that were under way between
                       them, taken until nothing is under way; the new life begins at the offsets behind that batch
    from the topics    the requests in the topics, up to the last tick (`begin.fed_from_topics`)

    hold the prefix ─▶ finish a planned batch ─▶ read, join, drain ─▶ write the folder ─▶ announce = commit ─▶ prologue

If nothing but the regions and the number of partitions has changed, brokers are kept as they are. With any other change
what stands is fed to the new overlay (`state.routing.carry`), and what does not fit it is refused. A running system
does that before it pauses, and in the pause only what has changed since.

A stopped system is held for as long as that takes. On a running one the holder does it (`service`), when a command in
the control topic asks for it: its query stops between two batches, and the next one is that of the new life.

Killed before the announcement, nothing has happened: the unannounced folder is removed by the next start. Killed after
it, the next start sends the prologue again; what was sent already is dropped by its number.

A restored copy lacks requests that were in force: those up to the last tick are fed to the joined regions, and
publications begin there, too. Otherwise a publication could pass a region that has not heard of them yet.

Where a batch was planned and not committed, parts of its output may be in the topics. It is done first, exactly as it
was planned, so that nothing of it is written twice. Not after a restored copy: there the topics hold what later batches
wrote, and publications that came later are delivered again in the new epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from access.control import ControlLog
from access.offsets import Span
from access.tails import records_between
from state.config import Config, parse
from state.errors import LacunaError, StateError
from state.protocol.arrivals import RANKS, Arrival, Channel
from state.protocol.commands import Apply
from state.protocol.control import Offsets
from state.protocol.events import KINDS
from state.protocol.frame import Frame, Letter, letter_of, read
from state.routing.carry import Inherited
from state.routing.region import Region
from state.storage.codec import uncollected
from state.storage.sliced import Sliced
from state.storage.store import Pieces, Store, from_row
from streaming.begin import EARLIEST, Say, announce_life, fed_from_topics, new_life, send_prologue
from streaming.causes import cause_in, is_loss, said_of
from streaming.evidence import Facts, Held, Refusal, damage_of, gather
from streaming.holder import Holder
from streaming.lake import other_kinds
from streaming.life import Folder, Stored, difference, differences, seed_of
from streaming.pipeline import INPUTS, Engine, brief_session, router_query
from streaming.settings import Part, Settings
from streaming.shim import MAP
from streaming.stops import ROUTER, stopped
from streaming.whole import LEFT, Whole

BY_TOPICS = "Remedy: lacuna apply --from topics"
KEPT = ("partitions", "overlay.regions", "engine.state")
"""What may differ between the configurations of two lives of which the second keeps the brokers of the first."""
ATTEMPTS = 5
"""How often the state of a running system is read, until it is not removed meanwhile."""
MOST_REFUSED = 20
"""Refusals that are shown."""


@dataclass(frozen=True)
class Applied:
    """The result: the epoch of the new life, what is done for it, and what cannot be, in sentences."""

    epoch: int
    changes: list[str]
    refused: list[str] = field(default_factory=list)


def plan(config: Config, engine: Engine, command: Apply, say: Say) -> Applied:
    """Return what `apply` would do. Nothing is changed, and the system may run."""
    with ControlLog(config.kafka.bootstrap, config.kafka.prefix) as control:
        facts = gather(config, control.read(), engine.partitions)
    found = planned(config, command, facts, engine.partitions)
    if command.source == "topics" or not is_fed(facts, config, command):
        return found
    say("starting Spark, to see what stands")
    with brief_session(engine) as spark:
        what = Beginning(None, config, engine, facts, say, command).inherited(spark)
    return _with_subscriptions(found, what)


def planned(config: Config, command: Apply, facts: Facts, partitions: int | None = None) -> Applied:
    """Return what is to be done in a situation, as far as that is known without the state.

    `partitions` is the number of tasks that is wanted; None: as many as the life has. Raises `LacunaError` if
    it cannot be done.
    """
    epoch = facts.highest + 1
    if command.source == "topics":
        beat = facts.prefix.beat
        since = "the last tick" if beat is not None and beat.offsets else "the first that is there"
        return Applied(
            epoch, [f"life {epoch} begins from the topics", f"publications since {since} are delivered again"]
        )
    left, held = life_to_leave(facts)
    was = "it began" if held.committed < 0 else f"it was after batch {held.committed}"
    changes = [f"life {epoch} begins from life {left}, as {was}"]
    changes += differences(held.stored, config, partitions)
    lost = losses(facts, held)
    if facts.last_seen(left) > (held.committed if lost else held.planned):
        since = "since the last tick" if ticked_later(facts, left, held) else f"after batch {held.committed}"
        changes.append(f"publications {since} are delivered again")
    return Applied(epoch, changes + [f"lost: {each}" for each in lost])


def _with_subscriptions(found: Applied, what: Inherited) -> Applied:
    return replace(found, changes=[*found.changes, *_decided_again(what)], refused=what.refused)


def _decided_again(what: Inherited | None) -> list[str]:
    if what is None:
        return []
    moved = [f"{what.moved:,} subscriptions move to another broker"] if what.moved else []
    return [f"{len(what.requests):,} subscriptions are decided again", *moved]


def apply(config: Config, engine: Engine, say: Say, command: Apply) -> Applied:
    """Begin a new life of a stopped system. Raises `LacunaError`, and changes nothing, if that is refused."""
    holder = Holder(config, say)
    try:
        facts = gather(config, holder.watch(), engine.partitions)
        beginning = Beginning(holder, config, engine, facts, say, command)
        done = planned(config, command, facts, engine.partitions)
        if command.source == "topics":
            settings = beginning.from_topics()
        else:
            say("starting Spark")
            with brief_session(engine) as spark:
                settings = beginning.from_state(spark)
        holder.release(settings.epoch, -1, settings.starts)
        return done if beginning.carried is None else _with_subscriptions(done, beginning.carried)
    finally:
        holder.close()


@dataclass
class Beginning:
    """The making of one life after others. Without a holder, it is only looked what there would be to do."""

    holder: Holder | None
    config: Config
    engine: Engine
    facts: Facts
    say: Say
    command: Apply
    carried: Inherited | None = None
    """What stands, as it was fed to another configuration."""
    _ahead: Whole | None = None

    def from_topics(self) -> Settings:
        """Begin a life from the requests in the topics. Return its settings."""
        settings = new_life(self.config, self.engine, self.facts, self.command.moves)
        whole, starts = fed_from_topics(settings, self.facts, self.say, force=self.command.force)
        return self._announce(replace(settings, starts=starts), whole, "apply, from the topics")

    def from_state(self, spark: SparkSession) -> Settings:
        """Begin a life from the state of the newest one in the folder. Return its settings."""
        epoch, held = life_to_leave(self.facts)
        settings = new_life(self.config, self.engine, self.facts, self.command.moves)
        held = self._finished(spark, epoch, held)
        prepare = self._fed if is_fed(self.facts, self.config, self.command) else self._drained
        with uncollected():
            whole = prepare(spark, settings, epoch, held)
            starts = starts_of(self.facts, epoch, held)
            why = "; ".join([f"apply, from life {epoch}", *_decided_again(self.carried)])
            return self._announce(replace(settings, starts=starts), whole, why)

    def _fed(self, spark: SparkSession, settings: Settings, epoch: int, held: Held) -> Whole:
        """Drain what is left, and let what stands in it stand in the new overlay, to which most was fed before."""
        left = self._drained(spark, settings, epoch, held)
        whole, before = self._ahead or Whole(settings), self.carried or Inherited()
        self.carried = self._inherited(left)
        whole.become(left, before, self.carried)
        whole.record(decisions=False, known=before.standing)
        whole.sent += left.sent
        return whole

    def feed_ahead(self, spark: SparkSession) -> None:
        """Feed what stands to the new overlay. The system may run meanwhile."""
        with uncollected():
            left, settings = self._read_ahead(spark)
            self.carried = self._inherited(left)
            self.say(f"deciding {len(self.carried.requests):,} subscriptions again")
            self._ahead = Whole(settings)
            self._ahead.become(left, Inherited(), self.carried)
            self._ahead.record(decisions=False)

    def inherited(self, spark: SparkSession) -> Inherited:
        """Return what stands, as it would be carried over. Nothing changes, and the system may run meanwhile."""
        return self._carried_over(self._read_ahead(spark)[0])

    def _read_ahead(self, spark: SparkSession, attempts: int = ATTEMPTS) -> tuple[Whole, Settings]:
        """Drain the life as of its last committed batch, which may be removed at any moment."""
        try:
            epoch, held = life_to_leave(self.facts)
            settings = new_life(self.config, self.engine, self.facts, self.command.moves)
            return self._drained(spark, settings, epoch, held), settings
        except Exception:  # Spark and Kafka remove what belongs to this batch when later ones are committed
            if attempts == 1:
                raise
        self.facts = gather(self.config, self.facts.prefix, self.engine.partitions)
        return self._read_ahead(spark, attempts - 1)

    @property
    def _moves(self) -> dict[str, str]:
        return moves_left(self.facts, self.command)

    def _inherited(self, whole: Whole) -> Inherited:
        found = self._carried_over(whole)
        if found.refused:
            raise NotCarried(found.refused)
        return found

    def _carried_over(self, whole: Whole) -> Inherited:
        """Return what stands in a whole, as it would be carried over; refused is also what does not fit the tables."""
        found = whole.inherited(self.config, self._moves)
        found.refused += other_kinds(self.config.lake.path, self.config.space)
        return found

    def _announce(self, settings: Settings, whole: Whole | None, why: str) -> Settings:
        assert self.holder is not None
        return announce_life(self.holder, settings, whole, self.engine, self.facts, why)

    def _is_copy(self, epoch: int, held: Held) -> bool:
        return self.facts.last_seen(epoch) > held.planned

    def _left(self, epoch: int) -> Settings:
        """Return the settings of the life that is left, with its own configuration."""
        config = config_of(self.facts.lives[epoch].stored, self.config)
        return Folder(self.config.lake.checkpoint).settings(config, epoch, besides=KEPT)

    def _finished(self, spark: SparkSession, epoch: int, held: Held) -> Held:
        """Finish what a killed process has left, and return the life as it is then.

        That is the prologue of a life, and a batch that was planned and not committed. If Kafka has lost records of the
        batch, it cannot be done any more: the life is left as it was before.
        """
        assert self.holder is not None
        folder = Folder(self.config.lake.checkpoint)
        prologue, planned = folder.prologue(epoch), held.committed < held.planned and not self._is_copy(epoch, held)
        if (prologue or planned) and self.holder.term is None:
            self.holder.claim()
        if prologue:
            send_prologue(self.config, folder, epoch)
        if not planned:
            return held
        self.say(f"doing batch {held.planned}, which was planned")
        query = router_query(spark, self._left(epoch), self.engine, once=True)
        with suppress(StreamingQueryException):
            query.awaitTermination()
        failure = said_of(query)
        if failure is not None and not is_loss(failure):
            raise LacunaError(f"batch {held.planned} cannot be done again: {cause_in(failure)}")
        self.facts = gather(self.config, self.holder.prefix, self.engine.partitions)
        return self.facts.lives[epoch]

    def _drained(self, spark: SparkSession, settings: Settings, epoch: int, held: Held) -> Whole:
        """Join the regions of the life that is left, and let them take the letters under way.

        If the life keeps its brokers, what stands is recorded before. Otherwise the new overlay decides again about
        everything, and what the old one decided about these letters is recorded nowhere.
        """
        left = self._left(epoch)
        regions = regions_at(spark, left, held.committed)
        sent = {s.channel: s.number for region in regions for s in region.senders.values()}
        fed = is_fed(self.facts, self.config, self.command)
        if fed:
            whole = Whole(replace(settings, config=left.config), regions, LEFT)
        else:
            whole = Whole(settings, regions)
            whole.record(decisions=True)
        records = records_between(self.config.kafka.bootstrap, _unread_letters(left, self.facts, held))
        letters = letters_of(records, left, sent, whole.clock)
        whole.drain(letters, held.committed + 1, without=("decisions",) if fed else ())
        missing = [channel for channel, number in whole.received.items() if number < sent[channel]]
        if missing:
            raise StateError(
                f"letters between regions are gone from Kafka ({', '.join(missing)}), so the state of life {epoch} "
                f"cannot be used. {BY_TOPICS}"
            )
        ahead = records_between(self.config.kafka.bootstrap, requests_ahead(self.facts, epoch, held, left))
        whole.feed(ahead, without=("decisions",) if fed else ())
        return whole


def life_to_leave(facts: Facts) -> tuple[int, Held]:
    """Return the newest life in the folder whose state can be used; the announced one also before its first batch.

    Raises `StateError` if there is none, or if a newer one is damaged or lacks what the router wrote.
    """
    damage = damage_of(facts)
    if damage is not None:
        raise damage.error
    newest = facts.announced
    usable = [(e, held) for e, held in facts.lives.items() if held.committed >= 0 or _has_just_begun(facts, e)]
    if not usable or (newest in facts.lives and usable[-1][0] < (newest or 0)):
        raise Refusal("checkpoint lost", f"{facts.folder}: {_what_lacks(facts)}").error
    return usable[-1]


def _has_just_begun(facts: Facts, epoch: int) -> bool:
    """Return whether a life is announced, and no batch of it has been committed anywhere."""
    return epoch == facts.announced and facts.last_seen(epoch) <= facts.lives[epoch].planned


def _what_lacks(facts: Facts) -> str:
    if facts.announced is None:
        return "there is no life here"
    known = "" if facts.prefix.claim is None else f", and was last run with {facts.prefix.claim.checkpoint}"
    return f"the life {facts.announced} was announced, is not whole in this folder{known}"


def moves_left(facts: Facts, command: Apply) -> dict[str, str]:
    """Return the moves of a command that were not done already: a command that was killed may be given again."""
    newest = facts.prefix.lives.newest
    done = {} if newest is None else newest.aliases
    return {old: new for old, new in command.moves.items() if done.get(old) != new}


def is_fed(facts: Facts, config: Config, command: Apply) -> bool:
    """Return whether what stands must be decided again, because more than the regions changes."""
    _, held = life_to_leave(facts)
    return bool(moves_left(facts, command)) or difference(held.stored, config, besides=KEPT) is not None


def config_of(stored: Stored, config: Config) -> Config:
    """Return the configuration of a life; Kafka and the lake are where `config` says."""
    if difference(stored, config, besides=KEPT) is None:
        return config
    if not stored.toml:
        raise StateError(
            f"life {stored.epoch} was made by an earlier version, which did not keep its configuration. Remedy: run "
            "lacuna apply with the configuration as it was, then with the new one; or begin from the topics: "
            "lacuna apply --from topics"
        )
    return replace(parse(stored.toml), kafka=config.kafka, lake=config.lake)


class NotCarried(LacunaError):
    """What cannot be carried over, in sentences; nothing has changed."""

    def __init__(self, refused: list[str]) -> None:
        more = [f"... and {len(refused) - MOST_REFUSED:,} more"] if len(refused) > MOST_REFUSED else []
        self.refused = [*refused[:MOST_REFUSED], *more]
        super().__init__("\n".join(["refused, and nothing has changed:", *self.refused]))


def losses(facts: Facts, held: Held) -> list[str]:
    """Return the ranges of records that the router has not read and that Kafka does not have, in sentences."""
    found = []
    for (topic, number), span in sorted(facts.spans.items()):
        offset = held.reached.get(topic, {}).get(str(number), 0)
        if offset == EARLIEST:
            continue
        if topic in KINDS and _is_same(facts, held, topic) and span.first > offset:
            found.append(f"{topic}, partition {number}, offsets {offset} to {span.first - 1}")
        elif topic in KINDS and _is_same(facts, held, topic) and span.next < offset:
            found.append(f"{topic}, partition {number}, offsets {span.next} to {offset - 1}, which were read before")
    return found


def _is_same(facts: Facts, held: Held, topic: str) -> bool:
    """Return whether a topic is the one that the life has read, and was not made again since."""
    there = facts.ids.get(topic)
    return there is None or held.stored.topics.get(topic, there) == there


def starts_of(facts: Facts, epoch: int, held: Held) -> Offsets:
    """Return where the new life begins: behind what was read, as far as Kafka has it; links at their ends."""
    starts: Offsets = {topic: {} for topic in INPUTS}
    ticked = ticked_later(facts, epoch, held)
    for (topic, number), span in facts.spans.items():
        if topic == "links":
            starts[topic][str(number)] = span.next
        elif topic in starts:
            known = (read.get(topic, {}).get(str(number), 0) for read in (held.reached, ticked))
            read_to = max(known) if _is_same(facts, held, topic) else 0
            starts[topic][str(number)] = min(max(read_to, span.first), span.next)
    return starts


def ticked_later(facts: Facts, epoch: int, held: Held) -> Offsets:
    """Return what the last tick says was read of clients' events, if it is later than the life that is left."""
    beat = facts.prefix.beat
    if beat is None or (beat.epoch, beat.batch) <= (epoch, held.planned):
        return {}
    return {topic: ends for topic, ends in beat.offsets.items() if topic in KINDS}


def requests_ahead(facts: Facts, epoch: int, held: Held, left: Settings) -> dict[tuple[str, int], Span]:
    """Return the requests between what the life that is left has read and the last tick."""
    starts = starts_of(facts, epoch, held)
    begins = starts_of(replace(facts, prefix=facts.prefix._replace(beat=None)), epoch, held)
    return {
        (left.topics.of(topic), int(number)): Span(begins[topic][number], end)
        for topic in ("subscribe", "unsubscribe")
        for number, end in starts[topic].items()
        if begins[topic][number] < end
    }


def regions_at(spark: SparkSession, left: Settings, batch: int) -> list[Region]:
    """Return the regions of a life as of a committed batch. Those that nothing has reached yet are as they began."""
    stored = _stored_at(spark, left, batch) if batch >= 0 else {}
    return [_region(left, part, stored.get(part.key)) for part in left.parts]


def _stored_at(spark: SparkSession, left: Settings, batch: int) -> Mapping[str, Pieces]:
    """Return the pieces of each region by its key, as of a committed batch. Raises `StateError` if Spark cannot."""
    spark.streams.active  # noqa: B018 - makes the coordinator of the state stores, which the reader needs
    reader = spark.read.format("statestore").option("batchId", batch)
    try:
        return (_in_map if left.state == "map" else _in_row)(reader, left)
    except (PySparkException, Py4JError) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), "unknown")
        raise stopped(
            ROUTER["checkpoint damaged"], f"{left.folder}, batch {batch}: its state cannot be read ({first})"
        ) from None


def _in_row(reader: Any, left: Settings) -> dict[str, Pieces]:
    """Return the pieces of each region by its key, where each is one row."""
    rows = reader.load(f"{left.folder}/router")
    found = rows.selectExpr("key.region AS name", "value.groupState.payload AS payload").collect()
    return {row["name"]: from_row(bytes(row["payload"]), left.by_key[row["name"]].name) for row in found}


def _in_map(reader: Any, left: Settings) -> dict[str, Pieces]:
    """Return the pieces of each region by its key, where they are the values of a map."""
    rows = reader.option("stateVarName", MAP).load(f"{left.folder}/router")
    found = rows.selectExpr("key.region AS name", "user_map_key.key AS piece", "user_map_value.value AS value")
    slices: dict[str, dict[str, bytes]] = {}
    for row in found.toLocalIterator():
        slices.setdefault(row["name"], {})[row["piece"]] = bytes(row["value"])
    return {name: Sliced(values) for name, values in slices.items()}


def _region(left: Settings, part: Part, stored: Pieces | None) -> Region:
    if stored is None:
        stored = from_row(seed_of(left.folder, part.name), part.name) if left.seeded else {}
    return Store.open(stored, part.name, left.config.setups(part.brokers), left.epoch).region


def _unread_letters(left: Settings, facts: Facts, held: Held) -> dict[tuple[str, int], Span]:
    return {
        (left.topics.links, number): Span(max(held.reached.get(topic, {}).get(str(number), 0), span.first), span.next)
        for (topic, number), span in facts.spans.items()
        if topic == "links"
    }


def letters_of(records: Iterable[Any], left: Settings, sent: Mapping[str, int], clock: int) -> Iterator[Arrival]:
    """Yield the letters of a life up to the last that each channel had sent; time stands still meanwhile."""
    for record in records:
        frame = read(record.value or b"")
        letter = letter_of(frame) if isinstance(frame, Frame) and frame.content.epoch == left.epoch else None
        channel = (record.key or b"").decode(errors="replace")
        if isinstance(letter, Letter) and channel in left.links and letter.number <= sent[channel]:
            origin, broker = channel.split(">")
            place = Channel(RANKS["links"], record.partition, channel, record.topic)
            yield Arrival(place, record.offset, clock, broker, origin, letter)
