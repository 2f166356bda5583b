"""`probabilistic`: group covering by conflict table, MCS and random points (see `conflict` and `rspc`).

**May lose publications.** A NO is certain and has its witness. A YES is certain only where one active subscription
contains the box; otherwise it is probably right, and its `bound` says how probably: it is wrong with probability at
most `bound`, which is at most `delta` unless the cap on guesses, `trials`, was reached first; `capped = "forward"` then
forwards it, and keeps `delta` always. A subscription of several boxes is wrong if any box is, so each box gets its part
of `delta` and the bounds add up.

    conflict table ──▶ a row without entries: YES    enough entries everywhere: NO
          │
         MCS ──▶ no row left: NO
          │
    rho, d guesses ──▶ a witness: NO    none: YES, probably; the rows left are the coverers

All of it has one budget for an event, WORK looks at a row, so that no subscription takes long whatever it is compared
with. MCS may end early: what is left covers as well. Where the guesses would end early, or the next box of the
subscription finds no looks left, the subscription is forwarded for the reason "budget".

When one of the coverers is cancelled or its time to live passes, the subscription is decided again, so that a wrong YES
lasts no longer than they do: where a loss matters, give subscriptions a `ttl`, as the paper suggests.

Chance. The guesses follow from the boxes and the parameters alone. So a replay decides alike; and so do all brokers
along a path that know the same: they make the same mistake or none, where the paper (Proposition 4) lets each of them
make its own.

`audit`: one in `SAMPLE` of the probable answers, picked by the same number, is decided again exactly. A wrong one is
counted and put right: forwarded, with the gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from state.geometry.boxes import Box, Boxes
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.space import Keys, Space
from state.strategies.base import MOST_COVERERS, Strategy, Verdict, certified, merged, said
from state.strategies.probabilistic.conflict import ConflictTable
from state.strategies.probabilistic.rspc import Shares, around, bound, guess_within, guesses, least_share, shares

DELTA = 1e-6
TRIALS = 10_000
SAMPLE = 8
WORK = 1 << 20
"""Looks at a row for one event, all boxes of a subscription together: 10 to 20 ms."""
PER_BOX = 1 << 13
"""Looks that take as long as the fixed part of a decision about one box: 100 us."""
PER_END = 16
"""Looks that take as long as to sort one row by one of its ends."""
ROUNDING = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class BoxAnswer:
    """About one box: the witness of a NO, or the coverers of a YES and how probably it is wrong."""

    witness: Box | None
    coverers: tuple[Name, ...] = ()
    bound: float = 0.0
    work: int = 0
    """Rows of the table and points guessed."""


class Probabilistic(Strategy):
    """Withholds what the active subscriptions together cover, probably."""

    name = "probabilistic"
    proves = False

    def __init__(
        self,
        space: Space,
        active: BoxList,
        delta: float = DELTA,
        trials: int = TRIALS,
        audit: bool = False,
        capped: Literal["withhold", "forward"] = "withhold",
    ) -> None:
        super().__init__(space, active)
        self.delta, self.trials, self.audit = delta, trials, audit
        self._most_wrong = delta * ROUNDING if capped == "forward" else 1.0
        self._salt = blake2b(repr((space.domain, delta, trials)).encode()).digest()

    def decide(self, boxes: Boxes) -> Verdict:
        answers: list[BoxAnswer] = []
        work, looks = 0, WORK
        for box in boxes:
            answer, looks = self._answer(box.keys(), self.delta / len(boxes), looks)
            if answer is None:
                return Verdict(False, Reason.BUDGET, nodes=work)
            work += answer.work
            if answer.witness is not None:
                return Verdict(False, Reason.GAP, witness=answer.witness, nodes=work)
            answers.append(answer)
        coverers = merged([answer.coverers for answer in answers])
        wrong = min(1.0, sum(answer.bound for answer in answers))
        if wrong > self._most_wrong or len(coverers) > MOST_COVERERS:
            return Verdict(False, Reason.BUDGET, nodes=work)
        if wrong == 0:
            return Verdict(True, said(coverers), coverers, nodes=work)
        verdict = Verdict(True, Reason.PROBABLY_COVERED, coverers, nodes=work, bound=wrong)
        return self._audited(boxes, verdict) if self.audit else verdict

    def _answer(self, q: Keys, delta: float, looks: int) -> tuple[BoxAnswer | None, int]:
        """Return the answer about one box, None if it takes more than `looks`, and the looks left."""
        if looks < PER_BOX:
            return None, 0
        slots = self.active.meeting(q)
        looks -= PER_BOX + len(slots)
        table = ConflictTable(q, self.active.table[slots])
        one = table.container()
        if one is not None:
            return BoxAnswer(None, (self.active.owner(int(slots[one])),), work=len(slots)), looks
        if table.open():
            return BoxAnswer(table.witness(table.few_first()), work=len(slots)), looks
        looks -= PER_END * table.defined.size
        return self._minimized(table, slots, delta, looks) if looks > 0 else (None, 0)

    def _minimized(
        self, table: ConflictTable, slots: NDArray[np.int64], delta: float, looks: int
    ) -> tuple[BoxAnswer | None, int]:
        """Go on where the table alone gives no answer."""
        q = table.q
        half = looks // 2
        rows, left, spared = table.minimized_within(half)
        looks = half + spared
        if left == 0:
            return BoxAnswer(table.witness(rows), work=len(slots)), looks
        others = table.boxes[rows[:left]]
        taken = shares(self.space, q, others)
        rho = least_share(q, others, taken, True)
        point = np.empty(q.shape[1])
        trials = int(min(guesses(delta, rho), self.trials))
        made, looks = guess_within(_largest_first(taken), self._seed(q), trials, looks, point)
        if made < 0:
            begin = around(point, q, others, taken)
            return BoxAnswer(table.witness(rows[left:], begin), work=len(slots) - made), looks
        if made < trials:
            return None, 0
        owners = dict.fromkeys(self.active.owner(slot) for slot in slots[rows[:left]].tolist())
        return BoxAnswer(None, tuple(owners), bound(rho, made), len(slots) + made), looks

    def _seed(self, q: Keys) -> int:
        """Where the guesses for a box begin."""
        digest = blake2b(q.astype("<i8").tobytes(), key=self._salt, digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)

    def _audited(self, boxes: Boxes, verdict: Verdict) -> Verdict:
        """A sample decided again exactly; where that takes more than the budget of `union`, not counted."""
        if sum(self._seed(box.keys()) for box in boxes) % SAMPLE:
            return verdict
        exact = certified(self.active, boxes)
        work = verdict.nodes + exact.nodes
        if exact.witness is not None:
            return Verdict(False, Reason.AUDITED_GAP, witness=exact.witness, nodes=work, bound=verdict.bound)
        if not exact.covered:
            return verdict
        return Verdict(True, Reason.PROBABLY_COVERED_AUDITED, verdict.coverers, nodes=work, bound=verdict.bound)


def _largest_first(taken: Shares) -> Shares:
    """Boxes that hold most points first: a point that is covered is soon found to be."""
    return taken[np.argsort(-(taken[:, 1] - taken[:, 0]).prod(axis=1), kind="stable")]
