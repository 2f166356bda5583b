"""The long-running job: starts the queries, lets time tick, notices failures, stops cleanly.

Stopping. A router batch that is interrupted is repeated at the next start with the same result, so stopping is always
safe; it is done between batches all the same, so that nothing has to be repeated. The archive stops at
the beginning of its next batch (see `archive`).

Failing. A router that dies takes the job with it: the archive is stopped, and the message is that of the core where the
core raised it, with cause and remedy, not a Java stack. Only where Kafka was away for so long that Spark gave up is it
started again. An archive that dies is started again (`restarts`), unless that cannot help.

Three threads look after Kafka. One holds the prefix by ticks (`holder`). One trims the topic `links`: letters that
are part of the committed state are not needed any more, and Kafka keeps the others as long as it takes. One samples
how far the queries are behind (`watch`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from access.errors import KafkaFailed
from access.offsets import Partition, topic_spans, trim
from state.config import Config, parse
from state.errors import LacunaError
from state.protocol.commands import Apply
from state.protocol.control import Offsets
from streaming.apply import Beginning, NotCarried, is_fed
from streaming.archive import ArchiveQuery, archive_query, stopped_on_purpose
from streaming.begin import begin
from streaming.causes import AWAY, REFUSED, cause_in, is_loss, is_of, is_passing, said_of
from streaming.evidence import gather
from streaming.holder import BEAT, Holder, PrefixHeld
from streaming.lake import create_tables
from streaming.paths import absolute
from streaming.pipeline import INPUTS, Engine, router_query, session, stack_warning
from streaming.restarts import Death, JobFailed, Restarted, is_passing_error
from streaming.rotation import Rotation
from streaming.settings import Settings
from streaming.watch import EVERY, Watch, offsets_of

BETWEEN_LOOKS = 0.2
PATIENCE = 60.0
PAUSING = "the router pauses"
LONGEST_WITHOUT_ROUTER = 10.0
"""Seconds between two attempts to start a router that has lost Kafka, at most."""
STARTING, CHANGING = 300.0, 1800.0
"""Seconds for which the main loop may stand while Spark starts, and while a new life is made of a large state: whoever
looks at `/healthz` must not end the job meanwhile."""


Say = Callable[[str], None]

log = logging.getLogger(__name__)


def _silent(_text: str) -> None:
    """Tell nobody."""


@dataclass
class Service:
    """The two queries of one configuration."""

    settings: Settings
    engine: Engine
    holder: Holder | None = None
    archive: bool = True
    writer: str = "rust"
    tick_seconds: float = BEAT
    say: Callable[[str], None] = _silent
    trim_seconds: float = 600.0
    paused: float = 0.0
    """When the router was last stopped for a new life, by the monotonic clock."""
    _router: StreamingQuery | None = None
    _routing: Restarted[StreamingQuery] | None = None
    _archive: Restarted[ArchiveQuery] | None = None
    _threads: list[threading.Thread] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _spark: SparkSession | None = None
    _watch: Watch | None = None
    _superseded: str | None = None
    _asked_before: int = -1

    @classmethod
    def of(cls, config: Config, engine: Engine, *, router: bool = True, say: Say = _silent, **options: Any) -> Self:
        """Return the service of a configuration that may be started: everything is checked, and the prefix is held."""
        begun = begin(config, engine, say, router=router, archive=options.get("archive", True))
        return cls(begun.settings, engine, begun.holder, say=say, **options)

    def start(self) -> None:
        """Start the session and the queries."""
        self.watch.move(STARTING)
        if self.holder is not None:
            self._keep_doing("tick", self._tick)
        self._keep_doing("watch", self._sample)
        self.say("starting Spark")
        self._spark = session(self.engine)
        if self.engine.master is None and (warning := stack_warning(self._spark)) is not None:
            self.say(warning)
        if self.holder is not None:
            self.say("starting the router")
            self._routing = Restarted(
                "router",
                self._start_router,
                death_of=self._router_death,
                has_progress=lambda query: query.lastProgress is not None,
                say=self.say,
                longest=LONGEST_WITHOUT_ROUTER,
            )
        if self.archive:
            self.say("starting the archive")
            self._archive = Restarted(
                "archive",
                self._start_archive,
                death_of=death_of,
                has_progress=lambda query: query.marks is not None,
                say=self.say,
            )
        if self.holder is not None and self.trim_seconds > 0:
            self._keep_doing("trim", self._trim)

    def _start_router(self) -> StreamingQuery:
        assert self._spark is not None
        self._router = router_query(self._spark, self.settings, self.engine)
        return self._router

    def _router_death(self, query: StreamingQuery) -> Death:
        """Return why the router died. Kafka may come back, and so may its consent, if the router had it before."""
        text = said_of(query) or ""
        return Death(cause_of(query), is_of(text, AWAY) or (is_of(text, REFUSED) and self.watch.begun))

    def _start_archive(self) -> ArchiveQuery:
        assert self._spark is not None
        lake = self.settings.config.lake
        return archive_query(
            self._spark,
            self.settings,
            writer=self.writer,
            stop=self._stop,
            checkpoint=f"{absolute(lake.checkpoint)}/archive",
            trigger=f"{round(lake.every * 1000)} milliseconds",
            say=self.say,
        )

    def _keep_doing(self, name: str, action: Callable[[], None]) -> None:
        thread = threading.Thread(target=action, daemon=True, name=name)
        thread.start()
        self._threads.append(thread)

    def wait(self, until: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Run until `until` holds; raises `JobFailed` if a query dies before. `meanwhile` is done between two looks."""
        while not until():
            self.look()
            meanwhile()
            time.sleep(BETWEEN_LOOKS)

    def look(self) -> None:
        """Raise `JobFailed` if the router, or a thread beside it, has died; see to an archive that has."""
        self._report()
        if self._stop.is_set():
            return
        if self._superseded is not None:
            raise JobFailed(f"this router was succeeded by another, and stops: {self._superseded}")
        if self._routing is not None:
            self._routing.look()
        if self._rotation.due is not None:
            self._renew()
        asked = None if self.holder is None else self.holder.prefix.asked
        if asked is not None and asked.offset > self._asked_before:
            self._asked_before = asked.offset
            self._answer(asked.offset, self._apply(asked.command))
        for thread in self._threads:
            if not thread.is_alive() and self._superseded is None:
                raise JobFailed(f"the thread {thread.name!r} ended. Remedy: start again, and report the log")
        if self._archive is not None:
            self._archive.look()

    def take(self, watch: Watch) -> None:
        """Go on with a watch that was there before this service."""
        self._watch = watch
        watch.begin_life(self.settings)

    @property
    def watch(self) -> Watch:
        """The numbers of this job."""
        if self._watch is None:
            names = (("router", self.holder is not None), ("archive", self.archive))
            self._watch = Watch(self.settings, [name for name, runs in names if runs])
        return self._watch

    def _report(self) -> None:
        """Let the watch see how far the queries are, and say what it has found."""
        self.watch.move()
        for name, query in self._queries.items():
            self.watch.see(name, query.lastProgress, active=query.isActive, restarts=self._restarted[name].restarts)
        self.watch.troubles = self.degraded
        self.watch.refused_secrets = self._rotation.refused
        for news in self.watch.news():
            self.say(news)

    def _sample(self) -> None:
        while not self._stop.is_set():
            self.watch.sample()
            self._rotation.look()
            self._stop.wait(EVERY)
        self.watch.close()

    def _renew(self) -> None:
        """Start the queries again, between batches, with secrets that were rotated."""
        self.say("the secrets of Kafka have changed: the queries start again between batches")
        self._rotation.take_up()  # first: what changes from here on is another rotation
        self.watch.move(STARTING)
        if self._routing is not None:
            _between_batches(self._routing.query)
        for query in self._restarted.values():
            query.renew()

    def _apply(self, command: Apply) -> list[str]:
        """Begin a new life, as a command asks for. Go on with this one if that cannot be done, and return why.

        Raises `JobFailed` if the new life was announced and could not be begun: the next start finishes it.
        """
        assert self._routing is not None
        refused, before = list[str](), self.paused
        try:
            self._begin_life(command)
        except LacunaError as error:
            if self.paused > before:
                self._refuse_to_go_on_behind(error)
            self.say(f"no new life has begun, and life {self.settings.epoch} goes on: {error}")
            refused = error.refused if isinstance(error, NotCarried) else [str(error)]
        if self.paused > before:
            self._routing.renew()
        return refused

    def _answer(self, asked: int, refused: list[str]) -> None:
        """Say why a command is not done, if it is not. While Kafka is away nobody hears it."""
        assert self.holder is not None
        try:
            if refused:
                self.holder.decline(asked, refused)
        except KafkaFailed as error:
            log.warning("the command at offset %d in control was not answered: %s", asked, error)

    def _begin_life(self, command: Apply) -> None:
        """Begin a new life. A router that dies meanwhile stays as it is, for the next look to say why."""
        assert self.holder is not None and self._router is not None and self._spark is not None
        self.say(f"beginning a new life, from the {command.source}")
        self.watch.move(CHANGING)
        now = self.settings.config
        config = replace(parse(command.toml), kafka=now.kafka, lake=now.lake) if command.toml else now
        facts = gather(config, self.holder.prefix, self.engine.partitions)
        beginning = Beginning(self.holder, config, self.engine, facts, self.say, command)
        if command.source == "state" and is_fed(facts, config, command):
            beginning.feed_ahead(self._spark)
        self._widen_tables(config)
        _between_batches(self._router)
        if not self._router.isActive:
            return
        self.say(PAUSING)
        self.paused = time.monotonic()
        self._router.stop()
        beginning.facts = gather(config, self.holder.prefix, self.engine.partitions)
        topics = command.source == "topics"
        self.settings = beginning.from_topics() if topics else beginning.from_state(self._spark)
        self.watch.begin_life(self.settings)
        self.say(f"life {self.settings.epoch} begins after a pause of {time.monotonic() - self.paused:.1f} s")

    def _widen_tables(self, config: Config) -> None:
        """Let the tables have the columns of new attributes before there are rows with them."""
        if self._archive is not None:
            with self._archive.query.between_batches():
                create_tables(config.lake.path, config.space)

    def _refuse_to_go_on_behind(self, error: LacunaError) -> None:
        """Raise `JobFailed` if a newer life than this one is announced, or may be: readers would ignore this one."""
        assert self.holder is not None
        try:
            self.holder.beat(self.settings.epoch, -1, {}, ticks=False)
            newest = self.holder.prefix.lives.newest
        except LacunaError:  # control cannot be read
            newest = None
        if newest is None or newest.epoch != self.settings.epoch:
            raise JobFailed(
                f"a new life may be announced, and could not be begun: {error}. Remedy: when that is mended, start the "
                "job again: it goes on with the life that was announced last"
            ) from None

    @cached_property
    def _rotation(self) -> Rotation:
        return Rotation(self.settings.config.kafka)

    @property
    def degraded(self) -> dict[str, str]:
        """Why the job does only a part of its work, by query; nothing if it does all of it."""
        return {name: query.degraded for name, query in self._restarted.items() if query.degraded is not None}

    @property
    def _restarted(self) -> dict[str, Restarted[Any]]:
        found = {"router": self._routing, "archive": self._archive}
        return {name: query for name, query in found.items() if query is not None}

    @property
    def _queries(self) -> dict[str, StreamingQuery]:
        return {name: restarted.query for name, restarted in self._restarted.items()}

    def query(self, name: str) -> StreamingQuery:
        """One of the running queries."""
        return self._queries[name]

    def stop(self) -> None:
        """Stop both queries between batches, then Spark."""
        try:
            self.stop_queries()
        finally:
            if self._spark is not None:
                self._spark.stop()

    def stop_queries(self) -> None:
        """Stop both queries between batches; the session stays."""
        self._stop.set()
        try:
            if self._router is not None and self._router.isActive:
                _between_batches(self._router)
                self._router.stop()
            if self._archive is not None:
                self._stop_archive(self._archive)
        finally:
            if self.holder is not None:
                self._let_go(self.holder)

    def _let_go(self, holder: Holder) -> None:
        """End the ticks, and release the prefix."""
        for thread in self._threads:
            thread.join(PATIENCE)
        batch, offsets = self.reached()
        try:
            holder.release(self.settings.epoch, batch, offsets or self.settings.starts)
        except KafkaFailed as error:
            self.say(f"the prefix was not released, and the next start elsewhere waits for it: {error}")

    def _stop_archive(self, archive: Restarted[ArchiveQuery]) -> None:
        archive.query.stop()
        if stopped_on_purpose(archive.query):
            return
        death = death_of(archive.query)
        if not death.passing:
            raise JobFailed(f"the archive stopped: {death.cause}")
        self.say(f"the archive lags, and goes on after the next start: {death.cause}")

    def _tick(self) -> None:
        """Tick: time passes in regions that nothing else reaches, and the prefix stays held (`holder`).

        While Kafka is away nothing moves at all: the next tick does as well.
        """
        assert self.holder is not None
        ticks = self.tick_seconds > 0
        while not self._stop.wait(min(self.tick_seconds, BEAT) if ticks else BEAT):
            try:
                self.holder.beat(self.settings.epoch, *self.reached(), ticks=ticks)
            except PrefixHeld as error:
                self._superseded = str(error)
                return
            except KafkaFailed as error:
                log.warning("no tick was sent: %s", error)

    def reached(self) -> tuple[int, Offsets]:
        """Return the last batch that the router has committed, and the offsets at which another life could begin.

        Publications are given as of so many batches before as there are regions: later ones may be under way between
        regions.
        """
        recent = [] if self._router is None else self._router.recentProgress
        if not recent:
            return -1, {}
        prefix, hops = f"{self.settings.topics.prefix}.", len(self.settings.parts)
        offsets = offsets_of(recent[-1], "endOffset")
        before = offsets_of(recent[-hops - 1] if len(recent) > hops else recent[0], "startOffset")
        publish = self.settings.topics.publish
        offsets[publish] = before.get(publish) or self.settings.starts.get("publish", {})
        return int(recent[-1]["batchId"]), {topic.removeprefix(prefix): ends for topic, ends in offsets.items()}

    def _trim(self) -> None:
        """Let Kafka forget the letters that are part of a committed state."""
        while not self._stop.wait(self.trim_seconds):
            try:
                self.trim_links()
            except Exception as error:  # the topic only stays longer than it needs to
                log.warning("letters were not trimmed: %s", error)

    def trim_links(self) -> None:
        """Remove the letters that batches before the last one have read; the last batch may have to be repeated."""
        last = None if self._router is None else self._router.lastProgress
        if last is not None and (read := begins_of(last, self.settings.topics.links)):
            trim(self.settings.config.kafka.bootstrap, read)

    # progress

    def progress(self) -> dict[str, Any]:
        """Return for each query the number of its last batch, and how many records it read."""
        reports = {name: query.lastProgress for name, query in self._queries.items()}
        return {name: {"batch": p["batchId"], "rows": p["numInputRows"]} for name, p in reports.items() if p}

    def quiet(self) -> bool:
        """Return whether the router has applied everything in its topics, its own letters included."""
        topics = [self.settings.topics.of(name) for name in INPUTS]
        return self._caught_up("router", topics)

    def archived(self) -> bool:
        """Return whether the archive has written everything in the records topic."""
        return self._caught_up("archive", [self.settings.topics.records])

    def _caught_up(self, name: str, topics: list[str]) -> bool:
        """Return whether the last committed batch reaches the ends of the topics, which are read after it."""
        done = _end_offsets(self._queries[name])
        spans = topic_spans(self.settings.config.kafka.bootstrap, topics)
        reached = all(done.get(topic, {}).get(str(p), 0) >= span.next for (topic, p), span in spans.items())
        return reached and _end_offsets(self._queries[name]) == done


def _end_offsets(query: StreamingQuery) -> dict[str, dict[str, int]]:
    """Return the offsets behind the last batch, by topic and partition, of all sources."""
    last = query.lastProgress
    return offsets_of(last, "endOffset") if last else {}


def begins_of(progress: Any, topic: str) -> dict[Partition, int]:
    """Return the offset at which a batch begins in each partition of a topic, as far as it is above 0."""
    found = offsets_of(progress, "startOffset").get(topic, {})
    return {(topic, int(partition)): offset for partition, offset in found.items() if offset > 0}


def _between_batches(query: StreamingQuery) -> None:
    """Wait for the end of the batch that is under way, if one is."""
    last = query.lastProgress
    before = last["batchId"] if last else -1

    def ended() -> bool:
        now = query.lastProgress
        return not query.isActive or not query.status["isTriggerActive"] or (now["batchId"] if now else -1) != before

    _await(ended, PATIENCE)


def _await(condition: Callable[[], bool], patience: float) -> None:
    deadline = time.monotonic() + patience
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def cause_of(query: StreamingQuery) -> str:
    """Return why a query died, in one message."""
    text = said_of(query)
    return "it was stopped from outside" if text is None else cause_in(text)


def death_of(query: ArchiveQuery) -> Death:
    """Return why the archive died. What its own function raised is known as it is, anything else by what Spark says.

    Of records that are gone the next attempt knows more (`archive.refuse_lost_records`).
    """
    failure, text = query.failure, said_of(query)
    if failure is None:
        return Death(cause_of(query), text is None or is_passing(text) or is_loss(text))
    if isinstance(failure, LacunaError):
        return Death(cause_of(query), is_passing_error(failure))
    return Death(cause_in(f"{type(failure).__name__}: {failure}"), passing=True)
