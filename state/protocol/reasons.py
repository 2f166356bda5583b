"""Reasons of decisions: an enumeration that code compares, each with the text that people read.

A subscription that is decided again because of another one has a `Trigger` too: the text of a promotion is then, for
example, "s1 was cancelled: gap".
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from state.protocol.messages import Name


class Reason(StrEnum):
    """Why a subscription was forwarded, withheld, cancelled or dropped; the value is the text for people."""

    # forwarded: it was found uncovered, or could not be found covered
    FLOOD = "flood"
    GAP = "gap"
    POSSIBLE_GAP = "possible gap"
    NO_SINGLE_COVER = "no single cover"
    NOT_FOUND = "not found"
    BUDGET = "budget"
    AUDITED_GAP = "audited: gap"
    NEW_RANGES = "new ranges"
    PARTLY_COVERED = "partly covered"
    # withheld
    COVERED_BY_ONE = "covered by one"
    COVERED_BY_SEVERAL = "covered by several"
    COVERED_BY_RANGES = "covered by ranges"
    COVERED_BY_A_LATER_ONE = "covered by a later one"
    COVERED_AT_A_REBUILD = "covered at a rebuild"
    COVERED_ANEW = "covered anew"
    PROBABLY_COVERED = "probably covered"
    PROBABLY_COVERED_AUDITED = "probably covered, audited"
    # cancelled or dropped
    UNSUBSCRIBED = "unsubscribed"
    EXPIRED = "expired"
    REPLACED = "replaced"
    TAKEN_BACK = "taken back"
    # told or withheld since an earlier life
    CARRIED = "carried"

    @property
    def is_audited(self) -> bool:
        """True if a probable answer was decided again exactly."""
        return self in (Reason.AUDITED_GAP, Reason.PROBABLY_COVERED_AUDITED)

    @property
    def still_stands(self) -> bool:
        """True if a subscription cancelled for this reason still stands, in another shape or withheld."""
        return self in (Reason.REPLACED, Reason.COVERED_BY_A_LATER_ONE, Reason.COVERED_AT_A_REBUILD)


class Trigger(NamedTuple):
    """The subscription whose end or change made a decision necessary again."""

    name: Name
    replaced: bool

    def __str__(self) -> str:
        return f"{self.name.id} was {'replaced' if self.replaced else 'cancelled'}"
