"""The story of a subscription on a link: a sentence for each decision, so that a person reads it once.

    s784 of c73 covers it.
    s784 of c73 was cancelled; s782, s197 and s337 still cover it.
    s337 of c146 was cancelled. Nobody covers price above 518 and below 523, volume 48,900 to 49,499 and symbol ORCL.

A sentence says first what happened (`_event`), if that was not the subscription itself coming or going, and then what
was found. The table of sentences has an entry for each reason; where rows of an earlier version lack a column, the
sentence is shorter.
"""

from __future__ import annotations

import re

from lacuna.analysis.certificates import Coverers
from lacuna.analysis.decision_log import name_from, name_of
from lacuna.analysis.wording import listed, named, names_listed, words
from state.protocol.reasons import Reason
from state.space import Space
from state.storage.rows import Row, name_value

ENDS = {
    "unsubscribe": "was cancelled",
    "expire": "expired",
    "replace": "was replaced",
    "subscribe": "was subscribed",
    "carry": "was carried over",
}
"""Changes of another subscription, as they are told."""
PARTS = re.compile(r"(?P<id>.*) (?P<ended>was cancelled|was replaced): (?P<reason>.*)", re.S)
"""The reason of a promotion in an earlier version."""
UNCOVERED = {
    Reason.GAP: "Nobody {covers} {gap}.",
    Reason.POSSIBLE_GAP: "Perhaps nobody {covers} {gap}; this approximation cannot tell.",
    Reason.AUDITED_GAP: "It was probably covered, but an exact check found that nobody {covers} {gap}.",
    Reason.NO_SINGLE_COVER: "No single subscription {covers} {gap}.",
    Reason.NOT_FOUND: "The search ended, as configured, before it found one that {covers} it.",
    Reason.BUDGET: "The search for those that cover it was cut short by its budget.",
    Reason.FLOOD: "Under flood the neighbour is told of everything.",
    Reason.NEW_RANGES: "The neighbour knew none of its ranges.",
    Reason.PARTLY_COVERED: "The neighbour knew some of its ranges, but not all.",
    Reason.CARRIED: "It stood when this life of the system began.",
}
"""Why the neighbour is told, with the witness as `gap`."""
COVERED = {
    Reason.COVERED_BY_ONE: "{who} {covers} it.",
    Reason.COVERED_BY_SEVERAL: "{who} together {covers} it.",
    Reason.COVERED_BY_A_LATER_ONE: "{who}, which came later, {covers} it.",
    Reason.COVERED_AT_A_REBUILD: "A rebuild found that {who} {covers} it.",
    Reason.COVERED_ANEW: "{who} still {covers} it.",
    Reason.COVERED_BY_RANGES: "The neighbour knew all of its ranges.",
    Reason.PROBABLY_COVERED: "{who} probably {covers} it{bound}.",
    Reason.PROBABLY_COVERED_AUDITED: "{who} {covers} it, as an exact check confirmed.",
    Reason.CARRIED: "It stood when this life of the system began; {who} {covers} it.",
}
"""Why the neighbour is not told, with the coverers as `who`."""
ENDED = {
    Reason.UNSUBSCRIBED: "The client cancelled it.",
    Reason.EXPIRED: "Its time was over.",
    Reason.REPLACED: "The client replaced it.",
    Reason.COVERED_BY_A_LATER_ONE: "A later one covers it.",
    Reason.COVERED_AT_A_REBUILD: "A rebuild found that others cover it.",
}
"""Why it is not told any more."""


def sentence(space: Space, row: Row, *, past: bool = False) -> str:
    """Return a decision as a sentence or two; in the past tense if others were made since."""
    return " ".join(part for part in (_event(row), _finding(space, row, past)) if part)


def present_sentence(row: Row, now: Coverers) -> str:
    """Return who covers a withheld subscription now, where the record says no more than who did."""
    if now.names is None:
        return "They do not all stand any more; who covers it now was not recorded."
    covers = "covers" if len(now.names) == 1 else "cover"
    return f"They do not all stand any more; now {names_listed(map(name_value, now.names), row['home'])} {covers} it."


def _event(row: Row) -> str:
    """Return what happened to another subscription, if the decision was made because of that."""
    trigger, cause = row.get("trigger"), row.get("cause")
    parts = PARTS.fullmatch(row["reason"])
    if trigger is not None:
        ended = ENDS.get(str(row.get("change"))) if trigger == cause else "was taken back"
        return f"{named(trigger, row['home'])} {ended or 'ended'}."
    if _reason(row) is Reason.COVERED_ANEW and cause is not None and name_from(cause) != name_of(row):
        return f"{named(cause, row['home'])} {ENDS.get(str(row.get('change')), 'ended')}."
    return f"{parts['id']} {parts['ended']}." if parts else ""


def _reason(row: Row) -> Reason | None:
    """Return the reason of a decision, without the event before it; None for one that this version does not know."""
    text = str(row["reason"])
    parts = PARTS.fullmatch(text)
    found: Reason | None = Reason._value2member_map_.get(parts["reason"] if parts else text)  # type: ignore[assignment]
    return found


def _finding(space: Space, row: Row, past: bool) -> str:
    """Return what was found out about the subscription itself."""
    reason = _reason(row)
    if row["action"] in ("cancel", "drop"):
        return ENDED[reason] if reason in ENDED else _taken_back(row)
    known = UNCOVERED if row["action"] in ("forward", "promote") else COVERED
    if reason not in known:
        return f"{row['reason']}."
    single = known is UNCOVERED or len(row["coverers"]) == 1
    return known[reason].format(
        who=_coverers(row),
        gap=_gap(space, row, "it" if reason is Reason.NO_SINGLE_COVER else "any of it"),
        covers="covered" if past else "covers" if single else "cover",
        bound="" if row["bound"] is None else f" (wrong with a probability of at most {row['bound']:.2g})",
    )


def _gap(space: Space, row: Row, whole: str) -> str:
    """Return the witness in words, `whole` if it is all that the subscription asks for."""
    if row["witness"] is None:
        return "it"
    gap = words(space, row["witness"])
    return whole if row["shape"] and [words(space, where) for where in row["shape"]] == [gap] else gap


def _taken_back(row: Row) -> str:
    """Return why a neighbour does not ask for it any more although the client did not cancel it."""
    if _reason(row) is not Reason.TAKEN_BACK:
        return f"{row['reason']}."
    cause, by = row.get("cause"), f"{row['origin']} took it back"
    if cause is None:
        return f"{by}."
    what = ENDS.get(str(row.get("change")), "changed")
    if name_from(cause) == name_of(row):
        return f"It {what}, and {by}."
    return f"{by} when {named(cause, row['home'])} {what}."


def _coverers(row: Row) -> str:
    """Return the coverers by name. Rows of an early version have only their ids."""
    if row["coverers"] and not row.get("covered_by"):
        return listed(row["coverers"])
    return names_listed(row.get("covered_by") or (), row["home"]) or "others"
