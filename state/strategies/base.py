"""The one interface behind which all strategies stand.

A strategy belongs to one outgoing link. It answers a single question: do the subscriptions that the neighbour was told
(the active ones) cover this one? `told` asks, keeps the lists, and tells the strategy when the active ones change. So a
strategy is small: its theory at the head of its module, `decide`, and whatever it keeps to decide faster.

Contract, which the tests hold every strategy to:

* `decide` changes nothing. A YES names coverers whose union contains all of the boxes: a proof. A NO gives the box that
  stood in the way: for exact strategies a witness, a box inside the subscription that no active one covers. Only a
  strategy that says `proves = False` may answer YES without a proof, and then gives a bound on the error.
* The same active subscriptions, added and removed in the same order (and the same calls of `observe`, `rebuild` and
  `rebuild_step` in between), give the same answers, also after `dump` and `restore`: decisions must not depend on
  whether the state was held in memory or stored in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.geometry.boxes import Box, Boxes
from state.geometry.cover import GAP, UNKNOWN
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.space import Keys, Space

BUDGET = 600_000
"""Candidates looked at for one event, all boxes of a subscription together (see `geometry.cover` for the unit).

Measured: 12 to 18 ns each in 2 to 4 attributes, 35 ns in 16, so 7 to 21 ms at the worst; twice that where 100,000 boxes
do not fit into the cache. 10,000 sorted bands need 20,000, a grid of 10,000 boxes 540,000.
"""

ASKING, ASKING_SHIFT = 1024, 7
"""Candidates that take as long to look at as to ask the index about one more box: so many, and one for each 128 boxes
in the index. They count as looked at, for each box but the first, so that 1,024 boxes take no longer than one."""

MOST_COVERERS = 16_384
"""Names in one certificate: each must be kept with the passive subscription, in half a microsecond and 100 bytes."""


class Verdict(msgspec.Struct, frozen=True):
    """The answer of a strategy about one subscription."""

    covered: bool
    reason: Reason
    coverers: tuple[Name, ...] = ()
    witness: Box | None = None
    nodes: int = 0
    """Candidates looked at: the work, in a unit that is the same on every machine."""
    bound: float = 0.0
    """A YES is wrong with at most this probability: 0 where it is proved."""


@dataclass(frozen=True, slots=True)
class Dump:
    """The state of a strategy beyond the active list, as arrays for the codec."""

    numbers: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    small: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))


class Strategy(ABC):
    """Decides for one outgoing link, on top of the list of active subscriptions that `told` keeps."""

    name: ClassVar[str]
    proves: ClassVar[bool] = True
    """Is every YES a proof? If not, publications may be lost, and users are told."""
    change_cost: ClassVar[int] = 0
    """Candidates that can be looked at while the strategy takes in one subscription; 0 where that costs little."""

    def __init__(self, space: Space, active: BoxList) -> None:
        self.space, self.active = space, active
        self.domain = Box(*space.domain)

    @abstractmethod
    def decide(self, boxes: Boxes) -> Verdict:
        """Do the active subscriptions cover all of these boxes?"""

    def decide_within(self, boxes: Boxes, budget: int) -> Verdict:
        """Decide as `decide` does, but with at most `budget` candidates looked at.

        For events that decide about many subscriptions: what `Verdict.nodes` leaves of the budget goes to the next one.
        A strategy whose decisions cost little has no budget and ignores it.
        """
        return self.decide(boxes)

    def added(self, name: Name, boxes: Boxes) -> None:  # noqa: B027 - many strategies keep nothing
        """The subscription `name` with these boxes is now active."""

    def removed(self, name: Name, boxes: Boxes) -> None:  # noqa: B027
        """The subscription `name` with these boxes is not active any more."""

    def observe(self, verdict: Verdict) -> None:  # noqa: B027
        """Take note of an answer that was acted on. A strategy that changes its ways changes them here."""

    @property
    def rebuilding(self) -> bool:
        """True if a rebuild is pending."""
        return False

    def rebuild_step(self) -> bool:
        """Do one part of a pending rebuild. Return True when it is complete."""
        return False

    def rebuild(self) -> bool:
        """Begin to recompute what is kept, in parts (`rebuild_step`). Return False if nothing is kept."""
        return False

    @property
    def recomputes(self) -> bool:
        """True if a rebuild also finds out again which subscriptions are active."""
        return False

    def take_over(self, fresh: Strategy) -> None:
        """Keep what another of the same kind keeps, which was told of the same active subscriptions."""
        raise InvariantError(f"strategy {self.name} recomputes nothing")

    @property
    def negative_rectangles(self) -> int | None:
        """The number of negative rectangles kept; None if the strategy keeps none."""
        return None

    @property
    def negative_share(self) -> float | None:
        """The natural volume of the negative rectangles as a share of the domain, if it is kept."""
        return None

    def dump(self) -> Dump:
        """Return what must be stored besides the active list."""
        return Dump()

    def restore(self, dump: Dump) -> None:  # noqa: B027
        """Take over what `dump` gave, on top of the same active list."""

    def check(self) -> None:  # noqa: B027
        """Raise `InvariantError` unless what is kept agrees with the active list."""


def keys_of(boxes: Boxes) -> list[Keys]:
    """Each box as a `(2, d)` array."""
    return [box.keys() for box in boxes]


def largest_first(space: Space, keys: Keys) -> Keys:
    """Boxes by natural volume, the largest first; in their order where equal."""
    return keys[np.argsort(-space.shares(keys), kind="stable")]


def certified(active: BoxList, boxes: Boxes, budget: int = BUDGET) -> Verdict:
    """Decide by exact cover, with one budget for all boxes: a YES with its certificate, or a NO with its witness.

    Beyond the budget, or if the certificate would name more than MOST_COVERERS, the answer is NO for the reason
    "budget": withholding a subscription needs a proof.
    """
    certificates: list[tuple[Name, ...]] = []
    work, asking = 0, ASKING + (active.box_count >> ASKING_SHIFT)
    for box in boxes:
        work += asking if certificates else 0
        answer, names, last, nodes = active.cover(box.keys(), budget - work)
        work += nodes
        if answer == UNKNOWN:
            return Verdict(False, Reason.BUDGET, nodes=budget)
        if answer == GAP:
            return Verdict(False, Reason.GAP, witness=Box.of(last), nodes=work)
        certificates.append(names)
    coverers = merged(certificates)
    if len(coverers) > MOST_COVERERS:
        return Verdict(False, Reason.BUDGET, nodes=work)
    return Verdict(True, said(coverers), coverers, nodes=work)


def said(coverers: tuple[Name, ...]) -> Reason:
    """Return the reason of a YES."""
    return Reason.COVERED_BY_ONE if len(coverers) == 1 else Reason.COVERED_BY_SEVERAL


def merged(parts: list[tuple[Name, ...]]) -> tuple[Name, ...]:
    """Certificates of single boxes as one certificate."""
    if not parts:
        raise InvariantError("a subscription without boxes was decided")
    return parts[0] if len(parts) == 1 else tuple(dict.fromkeys(name for part in parts for name in part))
