"""A link of a broker to a neighbour M: both halves of what the two ask of each other.

    heard[M]   what M asked of this broker: which publications go to M         (`heard`)
    told[M]    what this broker asked of M: which requests it forwards there   (`told`, `rangetold`)

    (H)  once the channel B>M is empty, heard[B] at M equals the active half of told[M] at B

Both halves stand behind one interface each. Only `build` looks at the strategy: it decides whether the link speaks in
boxes or in ranges of a curve, and whether what was heard is pruned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.filters.pruning import Pruning
from state.protocol.channel import direction_name
from state.protocol.commands import Override
from state.protocol.ledger import DAY, Limits
from state.protocol.messages import LOCAL
from state.routing.heard import BoxHeard, Heard, RangeHeard
from state.routing.rangetold import RangeTold
from state.routing.told import Told
from state.space import Keys, Space
from state.strategies import Spec


@dataclass(frozen=True, slots=True)
class Setup:
    """The configuration of a link, or (`LOCAL`) of a broker's clients."""

    broker: str
    link: str
    space: Space
    spec: Spec = Spec("auto")
    remember: int = DAY
    limits: Limits = Limits()

    @property
    def direction(self) -> str:
        """The name of the direction in which this link tells."""
        return direction_name(self.broker, self.link)


class Link:
    """Both halves of a link. `override` is the pruning that an operator asked for, whatever is configured."""

    def __init__(self, setup: Setup, heard: Heard, told: Told | RangeTold, pruning: Pruning | None) -> None:
        self.setup, self.told = setup, told
        self._configured = pruning
        self.override: Override | None = None
        self.heard = heard.pruned(pruning)

    def prune(self, override: Override | None) -> bool:
        """Prune as asked, or as configured (None). Return whether that changes anything."""
        if override == self.override or not self.heard.can_be_pruned:
            return False
        self.override = override
        self.heard = self.heard.pruned(self._configured if override is None else override.pruning)
        return True

    def false_positives(self, points: Keys) -> NDArray[np.bool_] | None:
        """Return which publications from the neighbour nothing here wanted; None: that cannot happen."""
        return self.told.false_positives(points)

    def sizes(self) -> dict[str, Any]:
        """Return the columns of `metrics` that say how large both halves are."""
        told = self.told.sizes()
        heard = self.heard.sizes()
        ranges = None if told["ranges"] is None else told["ranges"] + heard["heard"]
        return told | heard | {"ranges": ranges}

    def check(self) -> None:
        """Raise `InvariantError` unless both halves are consistent."""
        self.heard.check()
        self.told.check()


def build(setup: Setup) -> Link:
    """Build the empty link that a configuration asks for."""
    if setup.link == LOCAL:
        raise InvariantError(f"{setup.broker} has no link to itself")
    if setup.spec.by_ranges:
        told = RangeTold(setup.space, setup.spec)
        return Link(setup, RangeHeard(told.grid), told, None)
    return Link(setup, BoxHeard(setup.space), Told(setup.space, setup.spec), setup.spec.pruning)
