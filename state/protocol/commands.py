"""Wishes: what an operator asks of a running system about its pruning, and what a link keeps of it.

    {"prune": "network", "prunings": 100, "links": ["oslo>paris"]}      prune so from now on (also `worst`)
    {"prune": "off"}                                                    prune nothing
    {"prune": "configured"}                                             as the configuration says, again

A wish is the value of a record on the links topic under the key `prune`; without `links` it is for all of them. A link
that it is for keeps it as an `Override` of its configured pruning, in its stored state: until another wish, whatever is
restarted or configured in between. Nothing else has to change and nobody else has to be told, because the originals of
what was heard are always kept.

What is no wish is a reject, like any record that cannot be read: nothing happens but a row that says so.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from math import inf
from typing import Annotated, Literal, cast

import msgspec

from state.filters.pruning import DIMENSIONS, Dimension, Pruning
from state.protocol.events import Reject, once

OFF, CONFIGURED = "off", "configured"
MOST_SAID = 500
"""Characters of a reject's message: it quotes the record, which may be long."""
WISHES: tuple[str, ...] = (*DIMENSIONS, OFF, CONFIGURED)


class Override(msgspec.Struct, array_like=True, frozen=True):
    """How a link prunes whatever is configured; None: not at all."""

    pruning: Pruning | None


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How these links, or all, are to prune from now on.

    >>> Wish("memory", 5, links=("oslo>paris",)).override
    Override(pruning=Pruning(dimension='memory', prunings=5, worst=None))
    >>> Wish("off").override, Wish("configured").override
    (Override(pruning=None), None)
    """

    prune: Literal["network", "memory", "throughput", "off", "configured"]
    prunings: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    worst: Annotated[float, msgspec.Meta(ge=0)] | None = None
    links: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        if self.prune not in DIMENSIONS and (self.prunings is not None or self.worst is not None):
            raise ValueError(f"with {self.prune!r} there is nothing that prunings or worst could stop")
        if self.worst == inf:
            raise ValueError("worst is not a finite number")

    @property
    def override(self) -> Override | None:
        """What a link keeps of it; None: nothing, it prunes as configured."""
        if self.prune == CONFIGURED:
            return None
        if self.prune == OFF:
            return Override(None)
        return Override(Pruning(cast(Dimension, self.prune), self.prunings, self.worst))

    def concerns(self, link: str) -> bool:
        """Is it for this link?"""
        return self.links is None or link in self.links


write_wish = msgspec.json.Encoder().encode


def read_wish(value: bytes, links: Collection[str]) -> Wish | Reject:
    """The wish in a record, or why it is none; `links` are those that there are. It never raises."""
    try:
        wish = msgspec.convert(json.loads(value.decode(), object_pairs_hook=once), Wish)
    except UnicodeDecodeError as error:
        return _refused("utf8", f"byte {error.start} is not UTF-8")
    except (ValueError, RecursionError) as error:
        return _refused("type" if isinstance(error, msgspec.ValidationError) else "json", str(error))
    unknown = [link for link in wish.links or () if link not in links]
    return _refused("broker", f"{unknown[0]!r} is not a link of the overlay") if unknown else wish


def _refused(rule: str, why: str) -> Reject:
    return Reject(rule, f"a wish about pruning: {why}"[:MOST_SAID])
