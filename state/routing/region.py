"""A region: brokers that work as one machine. Arrivals in, outcome out; the only place where routing is written.

A region is a connected part of the overlay: the unit of scheduling. `simulate` is one region that is the whole overlay;
the router is one Spark group per region. Inside, a message travels from broker to broker at once, until the inner
queues are empty: no letter, no number, no Kafka. At its border a region speaks by numbered channels (`channel`).

    arrivals ──▶ take ──▶ ┌───────────── region ─────────────┐ ──▶ outcome: deliveries, rows, counts
                          │  a ◀──inner──▶ b ◀──inner──▶ c   │ ──▶ letters to the next region
                          └──────────────────────────────────┘

Rules:

    Time      The clock is the latest arrival. Whatever is due anywhere in the region expires before each arrival, so
              results do not depend on how arrivals fall into batches. If thousands are due at once, each arrival ends a
              portion of them; those that wait for their turn get nothing any more.
    (P)       A publication from F goes to each neighbour M other than F for which heard[M] wants it, and to every local
              subscription that it matches exactly. Never back.
    Requests  A request passes the broker, then what the links decided passes the inner queues until they are empty. So
              inside a region a subscription is in force everywhere before the next arrival.
    Runs      Publications with no effective request between them travel together. The directions of a tree have no
              cycle: each is visited once, after those that lead to it, with the publications of all origins in order of
              arrival. What they teach (selectivities) therefore does not depend on how they were grouped.

    Echoes    An event with an `ack` is followed over the borders by an echo, and its client is told when all have
              answered (`echoes`). With one region, at once.

Every input of a broker is logged (`wire.Input`), those from neighbours inside the region included: a broker is restored
from its own snapshot and its own inputs.

For runs in which link messages are interleaved at random, `feed` takes an arrival without running the inner queues, and
`deliver` lets one message of one queue arrive.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import takewhile

import msgspec
import numpy as np
from msgspec.structs import replace

from state.errors import InvariantError
from state.protocol.arrivals import Arrival, refusal
from state.protocol.channel import Receiver, Sender, direction_name
from state.protocol.commands import Prune, Rebuild, Tick
from state.protocol.events import Refused, Reject
from state.protocol.frame import Letter, bodies_of_letters
from state.protocol.ledger import PORTION
from state.protocol.messages import (
    LOCAL,
    Answer,
    Change,
    Echo,
    Message,
    Publish,
    RangeChange,
    Request,
    Subscribe,
    Unsubscribe,
)
from state.protocol.notices import Notice, about, about_publication, about_refused
from state.protocol.wire import EXPIRE, REBUILD, WORK, Carried, Input, Packed, pack, unpack
from state.routing.broker import Broker, Effect, Weight
from state.routing.counters import Counters, Measure, count_decision
from state.routing.decision import Decision
from state.routing.echoes import Answered, Echoes
from state.routing.link import Link, Setup
from state.routing.outcome import (
    Decided,
    Delivered,
    Ints,
    Measured,
    Outcome,
    Published,
    Reached,
    Routed,
    Run,
)
from state.space import Space, timestamp_text

Direction = tuple[str, str]
"""Sender and receiver."""
NEVER = 1 << 63
WORK_PER_TICK = 8
"""Parts of pending work (20 to 50 ms each in four attributes) that a tick does."""


class _Queued:
    """A message on an inner channel, and the item that caused it."""

    __slots__ = ("item", "message", "packed")

    def __init__(self, item: int, message: Message, packed: Packed | None) -> None:
        self.item, self.message, self.packed = item, message, packed


class Region:
    """The brokers of one region. `setups` are those of its links, by broker and link.

    `epoch` is the life of the system that letters belong to. With `logs`, the brokers' inputs gather in `log`.
    `records` numbers the region's records for the archive; `delivered` is the number of its last delivery. Rows of
    `metrics` are `pace` microseconds apart. `directions` are all directions of its links, none before one that leads to
    its sender.
    """

    def __init__(
        self,
        name: str,
        setups: Mapping[str, Mapping[str, Setup]],
        epoch: int = 1,
        *,
        measure: Measure = "step",
        logs: bool = True,
    ) -> None:
        self.name, self.epoch = name, epoch
        self.counters = Counters(measure)
        self.brokers = {broker: Broker(broker, links) for broker, links in setups.items()}
        self.clock, self.pace = 0, 0
        self.log: list[Input] | None = [] if logs else None
        self.inner: dict[Direction, deque[_Queued]] = {}
        self.senders: dict[Direction, Sender] = {}
        self.receivers: dict[Direction, Receiver] = {}
        for broker, links in ((b.name, b.links) for b in self.brokers.values()):
            for link in links:
                if link in self.brokers:
                    self.inner[broker, link] = deque()
                else:
                    self.senders[broker, link] = Sender(direction_name(broker, link), epoch)
                    self.receivers[link, broker] = Receiver(direction_name(link, broker))
        self.waiting: dict[Direction, None] = {}  # inner channels that hold a message, the longest waiting first
        self.directions = self._directions_in_order()
        self._space = next(iter(self.brokers.values())).setup.space
        self._strategies = {
            (b.name, k): str(link.setup.spec) for b in self.brokers.values() for k, link in b.links.items()
        }
        self.records, self.delivered = Sender(name, epoch), 0
        self.echoes = Echoes(name)
        self._due = NEVER
        self._late: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._outcome = Outcome()
        self._outgoing: dict[Direction, list[Carried]] = {}
        self._run: list[tuple[int, str, str, Publish]] = []
        self._asked: Notice | None = None
        self._crossed: dict[Echo, list[Direction]] = {}

    # steps

    def take(self, arrivals: Iterable[Arrival], batch: int = 0) -> Outcome:
        """Take arrivals, in order, until nothing is under way inside the region. Return everything that this does."""
        arrival: Arrival | None = None
        try:
            for arrival in arrivals:
                self._arrive(arrival, batch)
                if not isinstance(arrival.message, Publish):  # publications wait for the end of their run
                    self._settle()
                    self._begin_echo()
                if self.counters.measure == "item":
                    self._measure()
            self._flush()
        except InvariantError as error:
            raise InvariantError(f"{_place_of(arrival)}: {error}") from error
        return self._end(batch)

    def drain(self, letters: Iterable[Arrival], batch: int) -> Outcome:
        """Take letters that were under way between regions that were joined; none overtakes another.

        Until all are taken, brokers say nothing of their own accord: it would overtake a letter that they sent before.
        So pending work, and ends that are due, wait.
        """
        self._due = NEVER
        for broker in self.brokers.values():
            broker.waits = True
        outcome = self.take(letters, batch)
        for broker in self.brokers.values():
            broker.waits = False
        self.resume()
        return outcome

    def feed(self, arrival: Arrival, item: int) -> Outcome:
        """Take one arrival as this item, and leave what it causes on the inner channels."""
        self._outcome.items = item
        self._arrive(arrival, 0, settles=False)
        for item, broker, origin, publication in self._run:
            self._route_one(item, broker, origin, publication)
        return self._end(0)

    def deliver(self, direction: Direction) -> Outcome:
        """Let the next message of an inner channel arrive, and leave what it causes on the inner channels."""
        self._late = self.clock if self._due <= self.clock else None
        self._receive(direction)
        return self._end(0)

    def _end(self, batch: int) -> Outcome:
        self._measure()
        for direction, messages in self._outgoing.items():
            sender = self.senders[direction]
            frames = (sender.frame("letter", body, batch) for body in bodies_of_letters(messages))
            self._outcome.letters += [(sender.channel, frame) for frame in frames]
        outcome = self._outcome
        self._begin()
        return outcome

    # arrivals

    def _arrive(self, arrival: Arrival, batch: int, *, settles: bool = True) -> None:
        self.clock = max(self.clock, arrival.time)
        if self._due <= self.clock:
            self._expire_due(settles)
        self._late = self.clock if self._due <= self.clock else None
        match arrival.message:
            case Publish() as publication:
                if publication.ack is not None and settles:
                    publication = replace(publication, echo=self.echoes.new())
                self._run.append((self._item(), arrival.broker, arrival.origin, publication))
            case Subscribe() | Unsubscribe() | RangeChange() as request:
                self._client_request(self._item(), arrival, request)
            case Letter() as letter:
                self._open(arrival, letter, batch)
            case Refused() as refused:
                self._outcome.rejects.append((self._item(), refused))
                if (notice := about_refused(refused)) is not None:
                    self._outcome.notices.append(notice)
            case Tick():
                self._tick(self._item())
            case Rebuild():
                self._rebuild(self._item())
            case Prune() as command:
                self._prune(self._item(), command)

    def _item(self) -> int:
        self._outcome.items += 1
        return self._outcome.items - 1

    def _open(self, arrival: Arrival, letter: Letter, batch: int) -> None:
        """Apply the messages of a letter, unless it is a repeat or foreign."""
        accepted = self.receivers[arrival.origin, arrival.broker].accept(letter, batch)
        if isinstance(accepted, Reject):
            self._outcome.rejects.append((self._item(), refusal(arrival, b"", accepted)))
            return
        if not accepted:
            return
        for packed in letter.messages:
            if isinstance(packed, Echo | Answer):
                self._hear(packed, (arrival.broker, arrival.origin))
                continue
            message, item = unpack(packed, self._space.dims), self._item()
            if isinstance(message, Publish):
                self._run.append((item, arrival.broker, arrival.origin, message))
            else:
                self._flush()
                self._request(item, arrival.broker, arrival.origin, message, arrival.time, packed)
                self._settle()

    def _client_request(self, item: int, arrival: Arrival, request: Request) -> None:
        broker = self.brokers[arrival.broker]
        if not isinstance(request, RangeChange):
            if broker.ledger.is_over(request.name, self.clock):
                self._flush()
                entry = Input(broker.name, EXPIRE, self.clock, pack(Unsubscribe(request.name)))
                self._input(item, broker, entry, broker.expire(self.clock, request.name))
            objection = broker.ledger.objection(request, arrival.time)
            if objection is not None:
                self._outcome.rejects.append((item, _refused(arrival, request, objection)))
                self._outcome.notices.append(about(request, "refused", objection))
                return
        weight = broker.weigh(request, arrival.time)
        if not isinstance(request, RangeChange):
            self._ask(request, weight)
        if weight is Weight.STALE:
            self._count_request(item, broker, arrival.origin, request)
            return
        self._outcome.changes += weight is Weight.CHANGE
        if weight is Weight.CHANGE or broker.working:
            self._flush()  # publications before it must not see what it asks for, or what is told in the course of work
        packed = arrival.packed if arrival.packed is not None or self.log is None else pack(request)
        self._request(item, arrival.broker, arrival.origin, request, arrival.time, packed)
        due = broker.ledger.next_due
        self._due = self._due if due is None else min(self._due, due)

    def _ask(self, request: Subscribe | Unsubscribe, weight: Weight) -> None:
        """Note what the client is to be told, before the request has its effect; in vain: at once."""
        if isinstance(request, Unsubscribe) and weight is Weight.NOTE:
            self._outcome.notices.append(about(request, "not-standing"))
        elif request.ack is not None:
            self._asked = about(request, "in-force" if isinstance(request, Subscribe) else "ended")

    def _tick(self, item: int) -> None:
        """Forget what need not be remembered, and do a fixed portion of pending work."""
        for broker in self.brokers.values():
            for _ in range(WORK_PER_TICK):
                if broker.ledger.is_due(self.clock):
                    self._flush()
                    self._input(item, broker, Input(broker.name, EXPIRE, self.clock), broker.expire(self.clock))
                elif broker.working:
                    self._flush()
                    self._input(item, broker, Input(broker.name, WORK, 0), broker.work())
        self.resume()

    @property
    def working(self) -> bool:
        """True if work is pending, which ticks bring to its end."""
        brokers = self.brokers.values()
        return self._due <= self.clock or any(b.working or b.ledger.is_due(self.clock) for b in brokers)

    def _rebuild(self, item: int) -> None:
        self._flush()
        for broker in self.brokers.values():
            if broker.rebuild():
                self._input(item, broker, Input(broker.name, REBUILD, 0), Effect())

    def _prune(self, item: int, command: Prune) -> None:
        """Change how links prune. It is not logged, because no later input depends on it."""
        self._flush()
        for broker in self.brokers.values():
            for name, link in broker.links.items():
                if command.concerns(link.setup.direction) and link.prune(command.override):
                    self.counters.of(item, broker.name, name)

    def _expire_due(self, settles: bool) -> None:
        """End and forget what is due anywhere in the region, or a portion; recorded with the item that comes next."""
        self._flush()
        expired = 0
        for broker in self.brokers.values():
            due = broker.ledger.next_due
            if due is not None and due <= self.clock and expired < PORTION:
                effect = broker.expire(self.clock)
                self._input(self._outcome.items, broker, Input(broker.name, EXPIRE, self.clock), effect)
                expired += len(effect.changed)
                if settles:
                    self._settle()
        self.resume()

    @property
    def space(self) -> Space:
        """The space of all its brokers."""
        return self._space

    def resume(self) -> None:
        """Look again for the next moment at which something is due, after brokers were restored."""
        due = (broker.ledger.next_due for broker in self.brokers.values())
        self._due = min((moment for moment in due if moment is not None), default=NEVER)

    # requests

    def _request(self, item: int, broker: str, origin: str, request: Request, time: int, packed: Packed | None) -> None:
        """Apply a request at a broker; what the links decide waits on the channels."""
        here = self.brokers[broker]
        self._count_request(item, here, origin, request)
        self._input(item, here, Input(broker, origin, time, packed), here.apply(origin, request, time))

    def _input(self, item: int, broker: Broker, entry: Input, effect: Effect) -> None:
        """Log an input of a broker, record its effect, and send what the links decided."""
        for changed in effect.changed:
            self._outcome.subscriptions.append((item, changed))
            self._outcome.changes += changed.cause.change is Change.EXPIRE
        if self.log is not None:
            self.log.append(entry)
        for link, decisions in effect.decided:
            if decisions:
                self._record(item, link, decisions)
        for link in effect.rebuilt:
            self.counters.of(item, broker.name, link.setup.link)["rebuilds"] += 1

    def _record(self, item: int, link: Link, decisions: list[Decision]) -> None:
        """Record what a link decided, and send it."""
        setup, told = link.setup, link.told
        counts = self.counters.of(item, setup.broker, setup.link)
        active, passive = len(told.active), len(told.passive)
        for decision in decisions:
            if decision.records:
                count_decision(counts, decision)
                self._outcome.decisions.append(Decided(item, setup, decision, active, passive))
            for message in decision.messages():
                counts["messages"] += 1
                self._send(item, (setup.broker, setup.link), message)

    def _send(self, item: int, direction: Direction, message: Message) -> None:
        inner = self.inner.get(direction)
        packed = pack(message) if inner is None or self.log is not None else None
        if inner is None:
            self._post(direction, packed)
        else:
            inner.append(_Queued(item, message, packed))
            self.waiting.setdefault(direction)

    def _post(self, direction: Direction, packed: Carried | None) -> None:
        if packed is not None:
            self._outgoing.setdefault(direction, []).append(packed)

    def _settle(self) -> None:
        """Let every inner channel be received until all are empty."""
        while self.waiting:
            self._receive(next(iter(self.waiting)))

    def _receive(self, direction: Direction) -> None:
        """Let the receiver of an inner channel take the next message from it."""
        sender, receiver = direction
        channel = self.inner[direction]
        queued = channel.popleft()
        del self.waiting[direction]
        if channel:
            self.waiting[direction] = None
        if isinstance(queued.message, Publish):
            self._route_one(queued.item, receiver, sender, queued.message)
        else:
            self._request(queued.item, receiver, sender, queued.message, self.clock, queued.packed)

    # echoes

    def _begin_echo(self) -> None:
        """Send an echo behind what the last arrival caused, if its client wants to be told."""
        if self._asked is not None:
            notice, self._asked = self._asked, None
            self._pass_on(self.echoes.new(), notice=notice)

    def _pass_on(self, echo: Echo, back: Direction | None = None, notice: Notice | None = None) -> None:
        """Send an echo over every border but the one that it came from, and wait for the answers."""
        others = [border for border in self.senders if border != back]
        for border in others:
            self._post(border, echo)
        self._end_echo(self.echoes.wait(echo, others, back=back, notice=notice))

    def _hear(self, message: Echo | Answer, border: Direction) -> None:
        if isinstance(message, Echo):
            self._pass_on(message, border)
        else:
            self._end_echo(self.echoes.hear(message, border))

    def _end_echo(self, answered: Answered | None) -> None:
        """Tell the neighbour or the client, if all answers are there."""
        if answered is None:
            return
        if answered.back is not None:
            self._post(answered.back, answered.answer)
        if answered.notice is not None:
            self._outcome.notices.append(answered.notice)

    def _echo_run(self, run: Run, waiting: list[tuple[int, str, str, Publish]]) -> None:
        """Wait for the answers about publications of a run that carry an echo, where they crossed a border."""
        asked = [
            (k, publication.echo) for k, publication in enumerate(run.publications) if publication.echo is not None
        ]
        if not asked:
            return
        parts = takewhile(lambda part: part.run is run, reversed(self._outcome.deliveries))
        made = np.bincount(
            np.concatenate([np.empty(0, np.int64), *(part.index for part in parts)]), minlength=len(waiting)
        )
        for k, echo in asked:
            _, broker, origin, publication = waiting[k]
            awaits = self._crossed.pop(echo, [])
            back = None if origin == LOCAL else (broker, origin)
            notice = about_publication(publication) if back is None else None
            self._end_echo(self.echoes.wait(echo, awaits, back=back, notice=notice, deliveries=int(made[k])))

    # publications

    def _flush(self) -> None:
        """Let the publications that wait travel through the region, all at once."""
        if not self._run:
            return
        waiting, self._run = self._run, []
        run = Run(
            [publication for *_, publication in waiting],
            np.array([item for item, *_ in waiting], np.int64),
            self._space.points([publication.point for *_, publication in waiting]),
        )
        reached = self._entered(run, waiting)
        for broker, link in self.directions:
            arrived = reached.get(broker)
            if arrived is not None:
                going = self._consider(run, broker, self.brokers[broker].links[link], arrived.without(link))
                self._forward(run, broker, link, going, reached)
        for name, here in self.brokers.items():
            if name in reached:
                self._hand_out(run, here, reached[name])
        self._echo_run(run, waiting)
        if self.counters.measure == "item":
            self._measure()

    def _entered(self, run: Run, waiting: list[tuple[int, str, str, Publish]]) -> dict[str, Reached]:
        """Return where the publications of a run entered the region, by broker."""
        places: dict[str, list[int]] = {}
        for k, (_, broker, _, _) in enumerate(waiting):
            places.setdefault(broker, []).append(k)
        reached = {}
        for broker, index in places.items():
            origins = [waiting[k][2] for k in index]
            hops = np.array([waiting[k][3].hop for k in index], np.int64)
            reached[broker] = Reached(np.array(index, np.int64), origins, hops)
            published = np.array([k for k, o in zip(index, origins, strict=True) if o == LOCAL], np.int64)
            if len(published):
                self._outcome.publications.append(Published(run, broker, published))
            for origin in {o for o in origins if o != LOCAL}:
                came = np.array([k for k, o in zip(index, origins, strict=True) if o == origin], np.int64)
                self._count_those_that_came(run, broker, origin, came)
        return reached

    def _consider(self, run: Run, broker: str, link: Link, arrived: Reached) -> Reached:
        """Rule (P) for one link: return the publications that go to the neighbour."""
        if not len(arrived.index):
            return arrived
        points = run.points[arrived.index]
        wanted = link.heard.wants(points)
        false = link.heard.falsely(points, wanted)
        self._outcome.routes.append(Routed(run, link.setup, arrived, wanted))
        self.counters.considered(run, arrived.index, broker, link.setup.link, wanted, false)
        return arrived.only(np.flatnonzero(wanted))

    def _forward(self, run: Run, broker: str, link: str, going: Reached, reached: dict[str, Reached]) -> None:
        """Take publications over a link: to the next broker, or into a letter."""
        if not len(going.index):
            return
        if link in self.brokers:
            came = Reached(going.index, [broker] * len(going.index), going.hops + 1)
            reached[link] = _joined(reached[link], came) if link in reached else came
            self._count_those_that_came(run, link, broker, going.index)
            return
        for k, hop in zip(going.index.tolist(), going.hops.tolist(), strict=True):
            publication = run.publications[k]
            if publication.echo is not None:
                self._crossed.setdefault(publication.echo, []).append((broker, link))
            self._post((broker, link), pack(replace(publication, hop=hop + 1, ack=None)))

    def _hand_out(self, run: Run, broker: Broker, arrived: Reached) -> None:
        """Rule (P) for the clients: deliver what matches exactly."""
        which, names = broker.clients.holders(run.points[arrived.index])
        if self._late is not None:  # some that are over have not had their turn to be ended
            kept = [k for k, name in enumerate(names) if not broker.ledger.is_over(name, self._late)]
            which, names = [which[k] for k in kept], [names[k] for k in kept]
        places = np.array(which, np.int64)
        self.counters.each("publications", run, arrived.index, broker.name, LOCAL)
        if names:
            index = arrived.index[places]
            self._outcome.deliveries.append(Delivered(run, broker.name, index, names, arrived.hops[places]))
            self.counters.each("delivered", run, index, broker.name, LOCAL)

    def _route_one(self, item: int, broker: str, origin: str, publication: Publish) -> None:
        """Rule (P) at one broker for one publication; where it goes on, it waits on the channel."""
        run = Run([publication], np.array([item], np.int64), self._space.points([publication.point]))
        arrived = self._entered(run, [(item, broker, origin, publication)])[broker]
        self._hand_out(run, self.brokers[broker], arrived)
        for name, link in self.brokers[broker].links.items():
            if len(self._consider(run, broker, link, arrived.without(name)).index):
                self._send(item, (broker, name), replace(publication, hop=publication.hop + 1))

    def _directions_in_order(self) -> list[Direction]:
        """Return every direction of the region's links, in the order of the tree that `directions` promises."""
        waits_for = {
            (name, link): {(other, name) for other in broker.links if other in self.brokers and other != link}
            for name, broker in self.brokers.items()
            for link in broker.links
        }
        order: list[Direction] = []
        ready = deque(direction for direction, before in waits_for.items() if not before)
        while ready:
            done = ready.popleft()
            order.append(done)
            receiver = done[1]
            for link in self.brokers[receiver].links if receiver in self.brokers else ():
                before = waits_for[receiver, link]
                if done in before:
                    before.remove(done)
                    if not before:
                        ready.append((receiver, link))
        return order

    # counters

    def _count_request(self, item: int, broker: Broker, origin: str, request: Request) -> None:
        self.counters.request(item, broker.name, origin, request)
        if self.counters.measure != "never":
            for link in broker.links:
                self.counters.of(item, broker.name, link)  # each may have decided, and is measured

    def _count_those_that_came(self, run: Run, broker: str, origin: str, index: Ints) -> None:
        """Count publications that a neighbour forwarded, and those of them that nothing here wanted."""
        self.counters.each("came", run, index, broker, origin)
        false = self.brokers[broker].links[origin].false_positives(run.points[index])
        if false is not None:
            self.counters.each("false_positives", run, index, broker, origin, false)

    def _measure(self) -> None:
        """Gather the counters of a step or an item, and record them where rows are due."""
        outcome, counters = self._outcome, self.counters
        gathered = counters.take()
        for item, broker, link, counts in gathered:
            outcome.counts.setdefault((broker, link), Counter()).update(counts)
            if counters.measure == "item":
                self._add_row(item, broker, link, counts, 1)
            elif counters.measure == "step":
                counters.wait(broker, link, counts)
        if counters.measure == "step":
            counters.batches += bool(gathered)
            self._add_rows_if_due()

    def _add_rows_if_due(self) -> None:
        """Record the counters that wait, unless that was done less than `pace` ago."""
        counters = self.counters
        if not counters.waiting or self.clock - counters.measured < self.pace:
            return
        for (broker, link), (counts, batches) in counters.waiting.items():
            self._add_row(0, broker, link, counts, batches)
        self._outcome.batches, counters.batches, counters.measured = counters.batches, 0, self.clock
        counters.waiting.clear()

    def _add_row(self, item: int, broker: str, link: str, counts: Counter[str], batches: int) -> None:
        strategy, sizes = self._strategies.get((broker, link)), self.brokers[broker].sizes(link)
        self._outcome.metrics.append(Measured(item, broker, link, strategy, self.clock, counts, sizes, batches))

    # other

    def redate(self, by: int) -> None:
        """Move all moments noted so far, because the clock did not know the time until now."""
        self.clock += by
        for broker in self.brokers.values():
            broker.ledger.redate(by)
        self.resume()

    def check(self) -> None:
        """Raise `InvariantError` unless every rule holds; rule (H) where no message is under way."""
        for broker in self.brokers.values():
            broker.check()
        for (sender, receiver), channel in self.inner.items():
            if not channel:
                told, heard = self.brokers[sender].links[receiver].told, self.brokers[receiver].links[sender].heard
                if told.asks() != heard.asked():
                    raise InvariantError(f"rule (H): {receiver} has not heard from {sender} what it was told")


def _joined(one: Reached, other: Reached) -> Reached:
    """Return the publications of both, in order of arrival."""
    both = Reached(
        np.concatenate((one.index, other.index)),
        one.origins + other.origins,
        np.concatenate((one.hops, other.hops)),
    )
    return both.only(np.argsort(both.index, kind="stable"))


def _refused(arrival: Arrival, request: Subscribe | Unsubscribe, objection: Reject) -> Refused:
    """Return a request that was refused because of what is known, as the row that says so needs it."""
    name, stamp = request.name, request.stamp
    said = {
        "id": name.id,
        "client": name.client,
        "rev": stamp and stamp.rev,
        "time": stamp and timestamp_text(stamp.time),
    }
    return refusal(arrival, msgspec.json.encode(said), objection)


def _place_of(arrival: Arrival | None) -> str:
    """Return the arrival at which a broken invariant was found, as text for people."""
    return "no arrival" if arrival is None else f"{arrival.broker} from {arrival.origin}, at {arrival.record}"
