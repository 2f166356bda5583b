"""From one life to the next: what stands is kept where only the regions change, and fed again where anything else does.

    regions of the old life ──join──▶ one region of the whole overlay ──────────cut──▶ regions of the new life
                                                │ `inherited`                      ▲
                                                └─▶ requests ──fed to──▶ a new region of the whole overlay

**Kept.** A broker is the unit of storage, a region only of scheduling: brokers move as they are, with everything that
links were told and have heard. Numbers of channels begin again, in the epoch of the new life. Letters that were sent
and not yet received are taken by the joined region, each once, as its receivers say, and in an order in which none
overtakes another (`under_way`); it must be quiet before it is cut.

**Fed.** With another space, overlay or strategy, what links were told means nothing any more. Every subscription that
stands becomes a request again, in the order in which clients made them: as it is stored, or, in another space, as the
client wrote it, read again. Ledgers and what operators asked of links are taken over. What does not fit the new
configuration is refused, in sentences; nothing is dropped silently.

That takes as long as the clients' requests took. So a running system feeds what stands while it goes on, and in its
pause only what has changed since (`changes`); nor is anything else recorded then (`carried`).

**Carried.** The tables of each life are complete by themselves: a life records what it begins with (`carried`). Every
subscription that stands is a row `carry`. Every candidate of a link is a decision with the reason `carried`, unless the
life has decided again about all of them, and recorded that.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from state.errors import InvariantError
from state.filters.trees import Filter
from state.geometry.boxes import Boxes
from state.protocol.arrivals import Arrival
from state.protocol.channel import direction_name
from state.protocol.events import Reject, read_where
from state.protocol.ledger import Ended, Limits, Standing
from state.protocol.messages import LOCAL, Cause, Change, Name, Stamp, Subscribe, Unsubscribe
from state.routing.broker import Broker
from state.routing.link import Setup
from state.routing.outcome import Changed, Decided, Outcome
from state.routing.region import Region
from state.routing.subscriptions import Subscription
from state.space import Space

T = TypeVar("T")
Setups = Mapping[str, Mapping[str, Setup]]
"""The setups of a region's links, by broker and link."""
MOST_SAID = 200
"""Characters of a filter that a sentence quotes."""
PORTION = 20_000
"""Requests that are fed, or rows that are recorded, at a time."""
NOTHING: Mapping[Name, Standing] = MappingProxyType({})
NEVER_SAID = Standing(Stamp(None, 0, 0, 0), None)
"""Older than anything that a client has said."""


def join(name: str, regions: Iterable[Region], setups: Setups, epoch: int) -> Region:
    """Return one region of all brokers of these regions, which must not be used any more.

    Its receivers are those of the borders between them: letters that were under way can be taken.
    """
    whole = Region(name, setups, epoch, logs=False)
    for region in regions:
        whole.brokers |= region.brokers
        whole.receivers |= region.receivers
        whole.echoes.join(region.echoes)
        for (broker, link), (counts, batches) in region.counters.waiting.items():
            whole.counters.wait(broker, link, counts, batches)
        whole.clock = max(whole.clock, region.clock)
    whole.resume()
    return whole


def under_way(whole: Region, letters: Iterable[Arrival]) -> list[Arrival]:
    """Return letters between regions that were joined, in an order in which the whole can take them. O(n log n).

    What a letter causes travels inside the whole at once. It must not overtake a letter that its receiver has sent
    before, so the letters of a direction come after those of all directions that it leads to.
    """
    place = {direction_name(*direction): -k for k, direction in enumerate(whole.directions)}
    return sorted(letters, key=lambda letter: (place[letter.channel.name], letter.offset))


def cut(whole: Region, parts: Mapping[str, Setups], epoch: int) -> dict[str, Region]:
    """Return the brokers of a region of the whole overlay in these regions. The whole must not be used any more."""
    if whole.waiting:
        raise InvariantError("a region is cut while messages wait inside")
    made = {name: Region(name, setups, epoch) for name, setups in parts.items()}
    for region in made.values():
        region.brokers = {broker: whole.brokers[broker] for broker in region.brokers}
        region.clock = whole.clock
        region.resume()
    return made


# Fed


class Asked(NamedTuple):
    """What a client asked for. `shape` tells it from anything else; `request` makes it a request again."""

    name: Name
    shape: Hashable
    request: Callable[[], Subscribe]


@dataclass
class Inherited:
    """What stands, as requests to another configuration, in order; its ledgers; what is refused, in sentences."""

    requests: list[Asked] = field(default_factory=list)
    standing: dict[Name, Standing] = field(default_factory=dict)
    ended: dict[Name, Ended] = field(default_factory=dict)
    moved: int = 0
    refused: list[str] = field(default_factory=list)


def inherited(old: Region, space: Space, brokers: Collection[str], moves: Mapping[str, str]) -> Inherited:
    """Return what stands in a region of the whole overlay, for these brokers and this space.

    `moves` gives the clients of a broker another one.
    """
    found = Inherited(refused=_refused_moves(old, brokers, moves))
    requests: list[tuple[Stamp, Asked]] = []
    another = None if space.is_same(old.space) else space
    for broker in old.brokers.values():
        home = moves.get(broker.name, broker.name)
        if home not in brokers:
            found.refused += _homeless(broker)
            continue
        found.moved += len(broker.ledger.standing) if home != broker.name else 0
        found.standing |= {_at(home, name): one for name, one in broker.ledger.standing.items()}
        found.ended |= {_at(home, name): end for name, end in broker.ledger.ended.items()}
        for row in broker.subscriptions:
            if row.origin == LOCAL:
                stamp = found.standing[_at(home, row.name)].stamp
                request = _request(row, home, stamp, another, old.clock)
                requests.append((stamp, request)) if isinstance(request, Asked) else found.refused.append(request)
    found.requests = [request for _, request in sorted(requests, key=lambda one: (one[0].time, one[1].name))]
    found.refused += _twice(found.requests)
    ended = sorted(found.ended.items(), key=lambda one: one[1].arrived)
    found.ended = {name: end for name, end in ended if name not in found.standing}  # a move may have brought it back
    return found


def _at(home: str, name: Name) -> Name:
    return name if name.broker == home else name._replace(broker=home)


def _request(row: Subscription, home: str, stamp: Stamp, space: Space | None, clock: int) -> Asked | str:
    """Return what a client asked for, read again if there is another space; or why that cannot be.

    Its cause is that it is carried over, at this moment.
    """
    name = _at(home, row.name)

    def again(boxes: Boxes, tree: Filter | None, exact: Filter | None) -> Subscribe:
        known, cause = stamp._replace(rev=None), Cause(name, Change.CARRY, stamp.time, clock)
        return Subscribe(name, boxes, known, None, tree, exact, row.where, cause)

    if space is None:
        return Asked(name, (row.shape, row.tree, row.exact), lambda: again(row.boxes, row.tree, row.exact))
    asked = Reject("where", "how it was written is not kept") if row.where is None else read_where(space, row.where)
    if isinstance(asked, Reject):
        what = (row.where or b"").decode()[:MOST_SAID]
        return (
            f"{row.name.id} of {row.name.client} at {row.name.broker} asks for {what}: {asked.message}. Remedy: keep "
            "what it asks for in the space, or cancel it first"
        )
    request = again(asked.boxes, asked.tree, asked.exact)
    return Asked(name, request.shape, lambda: request)


def _refused_moves(old: Region, brokers: Collection[str], moves: Mapping[str, str]) -> list[str]:
    wrong = [(a, b, "is not a broker of the overlay as it is", a) for a, b in moves.items() if a not in old.brokers]
    wrong += [(a, b, "is not a broker of the new overlay", b) for a, b in moves.items() if b not in brokers]
    stay = [
        f"--move {a}={b}: {a} stays a broker, so what still arrives for it goes there. Remedy: take {a} out of the "
        "overlay, or leave the move out"
        for a, b in moves.items()
        if a in brokers and a in old.brokers
    ]
    return [*(f"--move {a}={b}: {name} {rule}. Remedy: name one that is" for a, b, rule, name in wrong), *stay]


def _homeless(broker: Broker) -> list[str]:
    count, name = len(broker.ledger.standing), broker.name
    if count == 0:
        return []
    return [
        f"the broker {name} has {count:,} subscriptions, and is not in the new overlay. Remedy: say where its clients "
        f"go (--move {name}=OTHER), or cancel them first"
    ]


def _twice(requests: Iterable[Asked]) -> list[str]:
    counts = Counter(request.name for request in requests)
    return [
        f"{name.id} of {name.client} would stand twice at {name.broker}. Remedy: cancel one of them first"
        for name, count in counts.items()
        if count > 1
    ]


def changes(region: Region, before: Inherited, now: Inherited) -> list[Subscribe | Unsubscribe]:
    """Return the requests by which a region, to which `before` was fed, becomes one to which `now` was.

    The ledgers of the region forget what they know, so that none of these requests is stale to them, and limits do not
    count, because what stands does so already; both until `settle_ledgers`.
    """
    had = {asked.name: asked.shape for asked in before.requests}
    new = [asked.request() for asked in now.requests if had.get(asked.name) != asked.shape]
    left = had.keys() - {asked.name for asked in now.requests}
    for broker in region.brokers.values():
        broker.ledger.limits = Limits()
        broker.ledger.restore({name: NEVER_SAID for name in left if name.broker == broker.name}, {})
    return [*(Unsubscribe(name, Stamp(None, 1, 0, 0), _ended(name, region.clock)) for name in sorted(left)), *new]


def _ended(name: Name, clock: int) -> Cause:
    return Cause(name, Change.UNSUBSCRIBE, clock, clock)


def settle_ledgers(region: Region, what: Inherited) -> None:
    """Let the brokers of a region know when clients said what, and what ends when. After the requests were fed."""
    standing, ended = _by_broker(what.standing), _by_broker(what.ended)
    for broker in region.brokers.values():
        broker.ledger.limits = broker.setup.limits
        broker.ledger.restore(standing.get(broker.name, {}), ended.get(broker.name, {}))
    region.resume()


def _by_broker(known: Mapping[Name, T]) -> dict[str, dict[Name, T]]:
    found: dict[str, dict[Name, T]] = {}
    for name, one in known.items():
        found.setdefault(name.broker, {})[name] = one
    return found


def prune_as(old: Region, new: Region) -> None:
    """Let the links of a region prune as operators asked those of another."""
    for broker in new.brokers.values():
        there = old.brokers.get(broker.name)
        for name, link in broker.links.items():
            if there is not None and name in there.links:
                link.prune(there.links[name].override)


# Carried


def carried(whole: Region, *, decisions: bool, known: Mapping[Name, Standing] = NOTHING) -> Iterator[Outcome]:
    """Yield what stands in a region of the whole overlay, and its decisions, as rows that are `carry` and `carried`.

    What was `known` has such rows already: only what is new or ended since is yielded.
    """
    causes: dict[Name, Cause] = {}
    for changed in _portions(_standing(whole, causes, known)):
        yield Outcome(subscriptions=[(0, each) for each in changed])
    if decisions:
        for decided in _portions(_decided(whole, causes)):
            yield Outcome(decisions=decided)


def _portions(rows: Iterator[T]) -> Iterator[list[T]]:
    while some := list(islice(rows, PORTION)):
        yield some


def _standing(whole: Region, causes: dict[Name, Cause], known: Mapping[Name, Standing]) -> Iterator[Changed]:
    for broker in whole.brokers.values():
        for name, standing in broker.ledger.standing.items():
            causes[name] = Cause(name, Change.CARRY, standing.stamp.time, whole.clock)
            if known.get(name) != standing:
                row = broker.subscriptions[name]
                yield Changed(causes[name], row.boxes, row.where, standing.expires)
    yield from (Changed(_ended(name, whole.clock)) for name in known if name not in causes)


def _decided(whole: Region, causes: Mapping[Name, Cause]) -> Iterator[Decided]:
    """Yield the decisions of all links; what ended at home may stand elsewhere, until the letter comes."""
    hops: dict[str, dict[str, int]] = {}
    for broker in whole.brokers.values():
        for link in broker.links.values():
            active, passive = len(link.told.active), len(link.told.passive)
            for decision in link.told.standing():
                home = decision.name.broker
                if home not in hops:
                    hops[home] = _distances(whole, home)
                cause = causes.get(decision.name) or Cause(decision.name, Change.CARRY, whole.clock, whole.clock)
                told = replace(decision, cause=cause, hop=hops[home][broker.name])
                yield Decided(0, link.setup, told, active, passive)


def _distances(whole: Region, home: str) -> dict[str, int]:
    """Return how many links each broker is away from one of them."""
    found, waiting = {home: 0}, deque([home])
    while waiting:
        here = waiting.popleft()
        for other in whole.brokers[here].links:
            if other not in found:
                found[other] = found[here] + 1
                waiting.append(other)
    return found
