"""What the pages of subscriptions show: the list, one subscription with its way and its drawings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from pyarrow import compute as pc

from lacuna.analysis.certificates import Coverers, coverers_now
from lacuna.analysis.decision_log import Source, filter_of, name_of, shape_of, stands
from lacuna.analysis.drawing import Picture, narrowest
from lacuna.analysis.explain import Found, Step, find_subscription
from lacuna.analysis.story import present_sentence, sentence
from lacuna.analysis.trial import Refused
from lacuna.analysis.wording import listed, number, range_in_words
from lacuna.serve.overview import Overview
from lacuna.serve.picture import LETTERS, MOST_LETTERS, Panel, bar, panels
from lacuna.serve.trials import Trials
from lacuna.serve.way import MARKS, Passage, outward
from state.errors import LacunaError
from state.filters.where import Asked, asked
from state.geometry.boxes import Boxes, boxes_where, stack
from state.protocol.events import RULES
from state.protocol.messages import Name
from state.space import Attribute, Keys, Space, ValueRefused, float_key
from state.storage.rows import Row

MOST_ROWS = 50
MOST_DRAWN = 4
"""Links whose decision is drawn."""
ACTIONS = {"forward": "told", "promote": "told", "withhold": "withheld", "cancel": "cancelled", "drop": "dropped"}
TRIED = {"forward": "tell", "withhold": "withhold"}
MOST_NAMED = 8
MOST_WORDS = 300
"""Characters of a filter that are put into words; a longer one is cut off."""
ENDED = ("unsubscribe", "expire")


class Side(NamedTuple):
    """One attribute of a filter: its bar, or its values with whether each is asked for."""

    name: str
    bar: Markup | None
    values: list[tuple[str, bool]]
    text: str
    share: float


History = list[tuple[Row, tuple[str, str, str], str]]
"""Decisions: the row, its mark, the sentence."""
Intervals = list[tuple[int, int]]


class Drawing(NamedTuple):
    """The panels of one decision, with the words below them."""

    link: str
    state: str
    panels: list[Panel]
    letters: list[tuple[str, int, str]]


class SubscriptionPage:
    """Shows subscriptions."""

    def __init__(self, overview: Overview, trials: Trials) -> None:
        self._overview, self._trials, self._space = overview, trials, overview.config.space

    # the list

    def found(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return what the list shows."""
        wanted, broker = given.get("q", "").strip(), given.get("broker", "")
        table = self._overview.standing()
        total = table.num_rows
        if broker:
            table = table.filter(pc.field("broker") == broker)
        if wanted:
            id, of, rest = wanted.partition(" of ")
            client, _, home = rest.partition(" at ")
            if of:
                table = table.filter((pc.field("subscription") == id) & (pc.field("client") == client))
                table = table.filter(pc.field("broker") == home) if home else table
            else:
                both = [
                    pc.match_substring(pc.field(name), wanted, ignore_case=True) for name in ("subscription", "client")
                ]
                table = table.filter(both[0] | both[1])
        rows = [row | {"words": filter_words(self._space, row["filter"])} for row in table[:MOST_ROWS].to_pylist()]
        tried, wrong = self._tried(given)
        shown = {"rows": rows, "total": total, "fitting": table.num_rows, "q": wanted, "broker": broker}
        example = " AND ".join(f"{a.name} {range_words}" for a, range_words in _example(self._space))
        return shown | {"example": example, "where": given.get("where", ""), "tried": tried, "wrong": wrong}

    def _tried(self, given: Mapping[str, str]) -> tuple[dict[str, Any] | None, str]:
        """Return what a filter would do, if one is given; or what is wrong with it."""
        written = given.get("where", "").strip()
        if not written:
            return None, ""
        try:
            where = filter_of(written)
        except (ValueError, RecursionError) as error:
            return None, f"It begins like JSON, but is none: {error}"
        broker = given.get("broker") or self._overview.config.overlay.brokers[0]
        try:
            answer = self._trials.answer({"where": where, "broker": broker})
        except Refused as refused:
            return None, f"{refused.message} (rule {refused.rule}: {RULES.get(refused.rule, 'see docs/events.md')})"
        told = {row["link"]: row["text"] for row in answer["sentences"] if row["link"]}
        way = [
            Passage(row["broker"], row["link"], depth, TRIED[row["action"]], told[f"{row['broker']}>{row['link']}"])
            for row, depth in outward(broker, answer["links"], lambda row: row["action"] == "forward")
        ]
        redundant = [row for row in answer["links"] if row["redundant_count"]]
        boxes = tuple(box for where in answer["boxes"] for box in boxes_where(self._space, where))
        shown = {"words": filter_words(self._space, written), "way": way, "redundant": redundant}
        return answer | shown | {"sides": sides(self._space, boxes), "count": len(boxes)}, ""

    # one

    def shown(self, name: Name, given: Mapping[str, str]) -> dict[str, Any] | None:
        """Return what the page of a subscription shows; None if there is no such subscription."""
        source = Source(self._overview.config)
        self._overview.standing()  # tables that are not there are told as such
        try:
            found = find_subscription(source, name.id, name.client, name.broker)
        except LacunaError:
            return None
        last = next((row for row in reversed(found.changes) if row["filter"] is not None), None)
        got = None if last is None else asked_in(self._space, last["filter"])
        rows = self._rows_of(source, found)
        way = [self._passage(step, rows) for step in found.steps]
        boxes = got.boxes if got is not None and got.exact is None else ()
        publications, points = self._overview.recent()
        return {
            "name": name,
            "middle": middle_of(self._space, boxes),
            "last": last,
            "ended": found.changes[-1] if found.changes and found.changes[-1]["change"] in ENDED else None,
            "words": filter_words(self._space, last["filter"]) if last else "",
            "boxes": boxes,
            "sides": sides(self._space, boxes) if boxes else [],
            "matched": matching(boxes, points) if boxes else None,
            "recent": len(publications),
            "way": way,
            "histories": [(step, self._history(step)) for step in found.steps if len(step.rows) > 1],
            "beyond": self._beyond(found),
            "drawings": list(self._drawings(found, rows)),
        }

    def _rows_of(self, source: Source, found: Found) -> dict[tuple[str, str], list[Row]]:
        """Return all decisions of the links on the way; each broker's are read once."""
        rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for broker in dict.fromkeys(step.broker for step in found.steps):
            for row in source.decisions(broker=broker):
                rows[row["broker"], row["link"]].append(row)
        return rows

    def _passage(self, step: Step, rows: Mapping[tuple[str, str], list[Row]]) -> Passage:
        text = sentence(self._space, step.last)
        if step.state == "withheld":
            now = self._now(step, rows)
            text = f"{text} {present_sentence(step.last, now)}" if now.recomputed else text
        return Passage(step.broker, step.link, step.depth, step.state, text)

    def _history(self, step: Step) -> History:
        return [
            (row, MARKS[ACTIONS[row["action"]]], sentence(self._space, row, past=row is not step.last))
            for row in step.rows[-MOST_ROWS:]
        ]

    def _now(self, step: Step, rows: Mapping[tuple[str, str], list[Row]]) -> Coverers:
        there = rows[step.broker, step.link]
        place = max(k for k, row in enumerate(there) if name_of(row) == name_of(step.last))
        return coverers_now(self._space, there, place)

    def _beyond(self, found: Found) -> str:
        """Return the brokers that its way does not come near, as text."""
        near = {found.name.broker, *(broker for step in found.steps for broker in (step.broker, step.link))}
        far = [broker for broker in self._overview.config.overlay.brokers if broker not in near]
        return listed(far if len(far) <= MOST_NAMED else [*far[:MOST_NAMED], f"{len(far) - MOST_NAMED} more"])

    def _drawings(self, found: Found, rows: Mapping[tuple[str, str], list[Row]]) -> Iterator[Drawing]:
        for step in found.steps[:MOST_DRAWN]:
            there = rows[step.broker, step.link]
            places = [k for k, row in enumerate(there) if name_of(row) == found.name and stands(row)]
            if not places or not there[places[-1]]["shape"]:
                continue
            yield self._drawing(step, there, places[-1])

    def _drawing(self, step: Step, rows: list[Row], place: int) -> Drawing:
        row, there = rows[place], coverers_now(self._space, rows, place)
        boxes = shape_of(self._space, row) or ()
        names = (there.names or ()) if row["action"] == "withhold" else ()
        axes = narrowest(self._space, boxes)
        picture = Picture(self._space, axes, row, there.active, names, now=there.recomputed)
        drawn = panels(self._space, picture)
        letters = [(LETTERS[k], k, name.id) for k, name in enumerate(picture.coverers[:MOST_LETTERS])]
        return Drawing(f"{step.broker} → {step.link}", ACTIONS[row["action"]], drawn, letters)


def asked_in(space: Space, written: str) -> Asked | None:
    """Return what a filter in the tables asks for; None if it does not fit this space any more."""
    try:
        return asked(space, filter_of(written))
    except (ValueRefused, ValueError, RecursionError):
        return None


def filter_words(space: Space, written: str) -> str:
    """Return a filter as a person reads it: an object in words, a text as it was written."""
    if len(written) > MOST_WORDS:
        return written[:MOST_WORDS] + "…"
    got = asked_in(space, written)
    if got is None or written.lstrip()[:1] != "{" or got.exact is not None or not got.boxes:
        return written
    return in_words(space, got.boxes)


def in_words(space: Space, boxes: Boxes) -> str:
    """Return the sides of boxes that are a product of sides, as an object of ranges makes them."""
    parts = []
    for i, a in enumerate(space.attributes):
        intervals = sorted({(box.lo[i], box.hi[i]) for box in boxes})
        if intervals != [(a.low, a.high + 1)]:
            parts.append(f"{a.name} {side_words(a, intervals)}")
    return ", ".join(parts) or "everything"


def side_words(attribute: Attribute, intervals: Intervals) -> str:
    """Return the intervals of one attribute in words."""
    if intervals == [(attribute.low, attribute.high + 1)]:
        return "anything"
    if attribute.kind == "category":
        return listed([attribute.values[k] for lo, hi in intervals for k in range(lo, hi)], "or")
    return listed([range_in_words(attribute, attribute.range_of(lo, hi)) for lo, hi in intervals], "or")


def middle_of(space: Space, boxes: Boxes) -> dict[str, str]:
    """Return an event in the middle of the first box, to begin with."""
    if not boxes:
        return {}
    box = boxes[0]
    return {a.name: number(a.value(middle_key(a, box.lo[i], box.hi[i]))) for i, a in enumerate(space.attributes)}


def middle_key(attribute: Attribute, lo: int, hi: int) -> int:
    """Return the key in the middle of an interval of values, rounded as people would."""
    if attribute.kind != "float":
        return lo + (hi - lo - 1) // 2
    low, high = float(attribute.value(lo)), float(attribute.value(hi - 1))
    key = float_key(float(f"{low / 2 + high / 2:.6g}"))
    return min(max(key, lo), hi - 1)


def _example(space: Space) -> Iterator[tuple[Attribute, str]]:
    """Yield the first attributes with a range that is a filter."""
    for a in space.attributes[:2]:
        low, high = a.value(a.low), a.value(middle_key(a, a.low, a.high + 1))
        quoted = "'" if a.kind == "timestamp" else ""
        if a.kind == "category":
            yield a, f"IN ('{a.values[0]}')"
        else:
            yield a, f"BETWEEN {quoted}{low}{quoted} AND {quoted}{high}{quoted}"


def sides(space: Space, boxes: Boxes) -> list[Side]:
    """Return each attribute of the boxes, to be drawn as a bar or a list of values."""
    found = []
    for i, a in enumerate(space.attributes):
        intervals = sorted({(box.lo[i], box.hi[i]) for box in boxes})
        values = []
        if a.kind == "category":
            values = [(value, any(lo <= k < hi for lo, hi in intervals)) for k, value in enumerate(a.values)]
        drawn = None if values else bar(a, intervals)
        share = sum(wanted for _, wanted in values) / len(values) if values else _union(a, intervals)
        found.append(Side(a.name, drawn, values, side_words(a, intervals), share))
    return found


def _union(attribute: Attribute, intervals: Intervals) -> float:
    total, end = 0.0, attribute.low
    for lo, hi in intervals:
        if hi > end:
            total += attribute.length(max(lo, end), hi)
            end = hi
    return total / attribute.whole if attribute.whole else 1.0


def matching(boxes: Boxes, points: Keys) -> int:
    """Return how many points are in the boxes, which are disjoint."""
    keys = stack(boxes, points.shape[1])
    return int(sum(np.count_nonzero(((box[0] <= points) & (points < box[1])).all(axis=1)) for box in keys))
