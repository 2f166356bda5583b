"""The outcome of a step of a region: everything that is to be sent and recorded, as values.

An *item* is a message in the order in which the region took it: the n-th of this step. A letter holds many. Whatever a
message causes, at whichever broker, is recorded with its item, so that rows can be put in the order of arrivals however
publications were grouped into runs.

Publications travel in runs (`region`), so their records are arrays of positions in a run:

    Run           the publications that travelled together, in order of arrival
    Published     those that clients published at one broker
    Routed        those that were considered for one link, and which of them went
    Delivered     pairs of a publication and a subscription that it matched, at one broker
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from state.geometry.boxes import Boxes
from state.protocol.events import Refused
from state.protocol.messages import Cause, Name, Publish
from state.protocol.notices import Notice
from state.routing.decision import Decision
from state.routing.link import Setup
from state.space import Keys

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Place = tuple[str, str]
"""A broker and one of its links."""


class Decided(msgspec.Struct, frozen=True):
    """A decision on a link, and how many subscriptions were active and passive there after it."""

    item: int
    setup: Setup
    decision: Decision
    active: int
    passive: int


@dataclass(frozen=True, slots=True)
class Changed:
    """An accepted change of a client's subscription: its cause, and what stands then; no boxes if it ended."""

    cause: Cause
    boxes: Boxes | None = None
    where: bytes | None = None
    expires: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Publications that travelled together, the item of each, and their points."""

    publications: list[Publish]
    items: Ints
    points: Keys


@dataclass(frozen=True, slots=True)
class Published:
    """The publications of a run that clients published at one broker, by position in the run."""

    run: Run
    broker: str
    index: Ints


@dataclass(frozen=True, slots=True)
class Reached:
    """The publications of a run that reached a broker, by position in the run: from where, over how many links."""

    index: Ints
    origins: list[str]
    hops: Ints

    def without(self, link: str) -> Reached:
        """Return the publications that did not come from `link`."""
        kept = [k for k, origin in enumerate(self.origins) if origin != link]
        return self if len(kept) == len(self.origins) else self.only(np.array(kept, np.int64))

    def only(self, chosen: Ints) -> Reached:
        """Return the publications at these positions."""
        return Reached(self.index[chosen], [self.origins[k] for k in chosen.tolist()], self.hops[chosen])


@dataclass(frozen=True, slots=True)
class Routed:
    """The publications of a run that were considered for a link, and which of them were forwarded."""

    run: Run
    setup: Setup
    reached: Reached
    forward: Mask


@dataclass(frozen=True, slots=True)
class Delivered:
    """Deliveries of a run at one broker: positions in the run, the subscriptions matched, the links crossed."""

    run: Run
    broker: str
    index: Ints
    names: list[Name]
    hops: Ints


@dataclass(frozen=True, slots=True)
class Measured:
    """Counters of a link since its last record, over so many batches, and its sizes now, at this moment."""

    item: int
    broker: str
    link: str
    strategy: str | None
    time: int
    counts: Counter[str]
    sizes: dict[str, Any]
    batches: int = 1


@dataclass
class Outcome:
    """Everything that a step did. `counts` are by broker and link, `letters` are frames with their channel.

    `batches` is how many the rows of `metrics` cover. `notices` are for clients (`state.protocol.notices`), `changes`
    counts the changes of what clients ask for.
    """

    items: int = 0
    changes: int = 0
    letters: list[tuple[str, bytes]] = field(default_factory=list)
    subscriptions: list[tuple[int, Changed]] = field(default_factory=list)
    publications: list[Published] = field(default_factory=list)
    decisions: list[Decided] = field(default_factory=list)
    routes: list[Routed] = field(default_factory=list)
    deliveries: list[Delivered] = field(default_factory=list)
    rejects: list[tuple[int, Refused]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    metrics: list[Measured] = field(default_factory=list)
    counts: dict[Place, Counter[str]] = field(default_factory=dict)
    batches: int = 0

    def deliveries_in_order(self) -> Iterator[tuple[Publish, Name, int, int]]:
        """Return all deliveries by item: the publication, the subscription, the links crossed, the item."""
        parts = self.deliveries
        if not parts:
            return
        items = np.concatenate([part.run.items[part.index] for part in parts])
        rows = [
            (part.run.publications[k], name, hop)
            for part in parts
            for k, name, hop in zip(part.index.tolist(), part.names, part.hops.tolist(), strict=True)
        ]
        for k in np.argsort(items, kind="stable").tolist():
            yield *rows[k], int(items[k])
