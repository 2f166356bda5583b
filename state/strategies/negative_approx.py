"""`negative-approx`: a bounded number of new negative rectangles for each subscription (see `geometry.attributed`).

A subscription that meets no negative rectangle is covered for certain; its certificate is found as `negative` finds it.
One that meets a rectangle may be covered all the same, so the cheap question is asked too: does a single active one
contain it? (In four attributes and more the rectangles alone find less than that.) If not, it is forwarded with the
reason "possible gap".

`bound` sets how many rectangles the i-th active subscription may add:

    constant    k
    dynamic     k·i - m, with m rectangles there before it: what earlier ones did not use, later ones may

`variant = "printed"` is the paper to the letter. A single active one that contains the subscription is not asked for.
Fig. 8 looks at the count before it adds a split, and counts all pieces. No work is bounded. And a rebuild recomputes,
with the negative space, which subscriptions are active and which are passive, all at once with the next request.

`unsubscribe` says what happens to what was attributed to a cancelled one: `approximate` makes it negative (Fig. 9);
`exact` then attributes to others what they cover of it (the repair), and leaves less negative than is given back.

Decisions and changes look at most LOOKS times at a node of the tree. A decision that takes more asks only whether
single ones contain the subscription; a change that takes more leaves rectangles as they are.

A **rebuild** recomputes the negative space from the active ones, the largest first. Active and passive stay what
they are, so nothing is sent. It is due when the negative space has drifted (`drift`, a factor; 0: never by itself), or
asked for by command, and is never in the way: it is made beside the space in use, a bounded part at each `rest`, and
takes its place when it has caught up. Until then both are kept in step with what comes and goes. What still waits to
be taken up has no part in the new space, not by a repair either: if it is cancelled first, nothing of it may be there.
"""

from __future__ import annotations

from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError, StateError
from state.geometry.attributed import Attributed, Select
from state.geometry.boxes import Box, Boxes, hull, meets, stack
from state.geometry.cover import subtract_all
from state.geometry.cuts import MANY, NEGATIVE
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.space import Keys, Space
from state.strategies.base import BUDGET, Dump, Strategy, Verdict, certified, said

STEP = 64
"""Subscriptions that a rebuild takes up at one step, unless they take more than LOOKS."""
LOOKS = 1 << 17
"""Looks at a node of the tree, for a decision and for each change of an event: 2 to 5 ms, measured."""
PER_BOX, PER_NAME = 1 << 13, 1 << 6
"""Looks that take as long as the fixed part of the work for one box, and for one other that meets it."""
MOST = 2**62
"""More rectangles than there can be: keeps a bound within the whole numbers of a kernel."""


class NegativeApprox(Strategy):
    """Withholds what meets none of a negative space that is never too small."""

    name = "negative-approx"
    change_cost = 1 << 14

    def __init__(
        self,
        space: Space,
        active: BoxList,
        k: int = 50,
        bound: Literal["constant", "dynamic"] = "constant",
        select: Select = "ratio",
        order: Literal["overlap", "fixed"] = "overlap",
        unsubscribe: Literal["approximate", "exact"] = "exact",
        drift: int = 2,
        variant: Literal["bounded", "printed"] = "bounded",
    ) -> None:
        super().__init__(space, active)
        self._printed = variant == "printed"
        self._looks = MANY if self._printed else LOOKS
        self._k, self._dynamic, self._select, self._drift = k, bound == "dynamic", select, drift
        self._by_overlap, self._repairs = order == "overlap", unsubscribe == "exact"
        self._numbers: dict[Name, int] = {}
        self._last = NEGATIVE
        self.negative = self._anew()
        self._next: Attributed | None = None
        self._todo: dict[Name, None] = {}

    def _anew(self) -> Attributed:
        return Attributed(self.space, by_overlap=self._by_overlap)

    @property
    def negative_rectangles(self) -> int:
        return self.negative.count

    @property
    def negative_share(self) -> float:
        return self.negative.share

    def decide(self, boxes: Boxes) -> Verdict:
        return self.decide_within(boxes, BUDGET)

    def decide_within(self, boxes: Boxes, budget: int) -> Verdict:
        looks = self._looks
        for box in boxes:
            gap, looks = self.negative.gap_within(box.keys(), looks)
            if looks < 0:
                return self._contained(boxes) or Verdict(False, Reason.BUDGET, nodes=LOOKS)
            if gap is not None:
                witness, nodes = Box.of(gap), 1 + self._looks - looks
                return self._contained(boxes) or Verdict(False, Reason.POSSIBLE_GAP, witness=witness, nodes=nodes)
        return certified(self.active, boxes, budget)

    def _contained(self, boxes: Boxes) -> Verdict | None:
        """A YES where each box lies in a single active subscription; not asked for as printed."""
        found: dict[Name, None] = {}
        if self._printed:
            return None
        for box in boxes:
            container = self.active.container(box.keys())
            if container is None:
                return None
            found[container] = None
        return Verdict(True, said(tuple(found)), tuple(found), nodes=len(boxes))

    def added(self, name: Name, boxes: Boxes) -> None:
        self._last += 1
        self._numbers[name] = self._last
        self._cover(self.negative, name, len(self.active))
        if self._next is not None:
            self._cover(self._next, name, len(self.active) - len(self._todo))

    def _cover(self, kept: Attributed, name: Name, order: int) -> int:
        """Let a subscription, the `order`-th, take its part of a negative space. Return the looks that were left."""
        limit = max(0, self._k * order - kept.count) if self._dynamic else self._k
        limit, looks = min(limit, MOST), self._looks
        for keys in self.active.keys(name):
            looks -= PER_BOX
            if looks < 0:
                break
            created, looks = kept.cover(self._numbers[name], keys, limit, self._select, looks, printed=self._printed)
            limit -= created
        return max(0, looks)

    def removed(self, name: Name, boxes: Boxes) -> None:
        number, keys = self._numbers.pop(name), stack(boxes, self.space.dims)
        self._uncover(self.negative, number, keys, {})
        if self._next is not None and name not in self._todo:
            self._uncover(self._next, number, keys, self._todo)
        self._todo.pop(name, None)

    def _uncover(self, kept: Attributed, number: int, boxes: Keys, waiting: dict[Name, None]) -> None:
        """Give back what was attributed to a cancelled one; those that wait for their turn in `kept` get none of it."""
        kept.give_back(number, hull(boxes))
        looks = LOOKS
        for keys in boxes if self._repairs else ():
            slots = self.active.meeting(keys)
            looks -= PER_BOX + PER_NAME * len(slots)
            if looks < 0:
                break
            looks = self._repair(kept, keys, slots, waiting, looks)

    def _repair(
        self, kept: Attributed, keys: Keys, slots: NDArray[np.int64], waiting: dict[Name, None], looks: int
    ) -> int:
        names = [self.active.owner(slot) for slot in slots.tolist()]
        there = [k for k, name in enumerate(names) if name not in waiting]
        numbers = np.array([self._numbers[names[k]] for k in there], np.int64)
        return kept.repair(keys, numbers, self.active.table[slots[there]], looks)

    # the rebuild

    @property
    def rebuilding(self) -> bool:
        return self._next is not None or (self._drift > 0 and self.negative.drifted(self._drift))

    @property
    def recomputes(self) -> bool:
        return self._printed

    def take_over(self, fresh: Strategy) -> None:
        if not isinstance(fresh, NegativeApprox):
            raise InvariantError(f"strategy {fresh.name} cannot take the place of {self.name}")
        self._numbers, self._last, self.negative = fresh._numbers, fresh._last, fresh.negative
        self._next, self._todo = None, {}
        self.negative.begin()

    def rebuild(self) -> bool:
        if self._next is None:
            self._next, self._todo = self._anew(), dict.fromkeys(self._largest_first())
        return True

    def _largest_first(self) -> list[Name]:
        names, counts = list(self.active), self.active.box_counts()
        if not names:
            return []
        volumes = np.add.reduceat(self.space.shares(self.active.all_keys()), np.cumsum(counts) - counts)
        return [names[k] for k in np.argsort(-volumes, kind="stable")]

    def rebuild_step(self) -> bool:
        if not self.rebuilding:
            return False
        self.rebuild()
        looks = LOOKS
        for name in list(islice(self._todo, STEP)):
            if looks < 0:
                break
            del self._todo[name]
            looks -= self._looks - self._cover(self._rebuilt, name, len(self.active) - len(self._todo))
        if self._todo:
            return False
        self.negative, self._next = self._rebuilt, None
        self.negative.begin()
        return True

    @property
    def _rebuilt(self) -> Attributed:
        if self._next is None:
            raise InvariantError("no rebuild is under way")
        return self._next

    # storing: owners are stored as places in the active list, so that equal states are equal bytes

    def dump(self) -> Dump:
        places = {self._numbers[name]: place for place, name in enumerate(self.active, 1)}
        todo = [places[self._numbers[name]] for name in self._todo]
        parts = [kept.dump(places) for kept in (self.negative, self._next) if kept is not None]
        sizes = [size for numbers, small in parts for size in (len(numbers), len(small))]
        head = np.array([len(todo), len(parts), *sizes, *todo], np.int64)
        return Dump(np.concatenate((head, *(numbers for numbers, _ in parts))), np.concatenate([s for _, s in parts]))

    def restore(self, dump: Dump) -> None:
        names = list(self.active)
        self._numbers, self._last = {name: place for place, name in enumerate(names, 1)}, len(names)
        waiting, count = dump.numbers[:2].tolist() if len(dump.numbers) > 1 else (0, 0)
        places = dump.numbers[2 + 2 * count :][:waiting]
        known = len(places) == waiting and ((places >= 1) & (places <= len(names))).all()
        if count not in (1, 2) or len(dump.numbers) < 2 + 2 * count or not known:
            raise StateError("the stored state of strategy negative-approx is damaged")
        self._todo = {names[place - 1]: None for place in places.tolist()}
        numbers, small = dump.numbers[2 + 2 * count + waiting :], dump.small
        kept = []
        for length, nodes in dump.numbers[2 : 2 + 2 * count].reshape(-1, 2).tolist():
            kept.append(self._anew())
            kept[-1].load(numbers[:length], small[:nodes], len(names))
            numbers, small = numbers[length:], small[nodes:]
        self.negative, self._next = kept[0], kept[1] if count == 2 else None

    def check(self) -> None:
        """Negative rectangles and all `CoveredBy` tile the domain; each `CoveredBy` lies inside its owner."""
        names = {number: name for name, number in self._numbers.items()}
        if set(self._numbers) != set(self.active):
            raise InvariantError("the numbered subscriptions are not the active ones")
        for kept in (self.negative, self._next):
            if kept is not None:
                kept.check()
                for owner, tile in zip(*kept.tiles(), strict=True):
                    if owner != NEGATIVE:
                        self._check_inside(names.get(int(owner)), tile)
        if self._next is not None and self._todo.keys() & {names.get(int(owner)) for owner in self._next.tiles()[0]}:
            raise InvariantError("a rebuild attributes space to one that it has not taken up")

    def _check_inside(self, owner: Name | None, tile: Keys) -> None:
        boxes = np.empty((0, 2, self.space.dims), np.int64) if owner is None else self.active.keys(owner)
        touching = np.array([k for k, box in enumerate(boxes) if meets(box, tile)], np.int64)
        if len(subtract_all(tile, boxes, touching, True)):
            raise InvariantError(f"{tile.tolist()} is attributed to {owner}, which does not cover it")
