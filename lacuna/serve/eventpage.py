"""What the pages of events show: the last publications, and one with whom it reached and why not the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from lacuna.analysis.event import Beside
from lacuna.analysis.history import event_story
from lacuna.analysis.sentences import Story
from lacuna.analysis.trial import Refused
from lacuna.analysis.wording import number
from lacuna.serve.overview import Overview
from lacuna.serve.picture import bar, value_text
from lacuna.serve.subscriptionpage import Intervals, side_words
from lacuna.serve.trials import Trials
from lacuna.serve.way import Passage, outward
from state.errors import LacunaError
from state.protocol.events import RULES
from state.protocol.messages import Name
from state.space import Attribute, Corner, Space
from state.storage.rows import Row

MOST_ROWS = 50
MARKED = {"forward": "carry", "stop": "stop"}
BESIDE = ("reached", "not reached", "withheld")


class Verdict(NamedTuple):
    """One attribute of an event beside what a subscription asks for."""

    name: str
    bar: Markup | None
    event: str
    asked: str
    fits: bool
    beside: str
    """By how much it misses."""


class EventPage:
    """Shows publications."""

    def __init__(self, overview: Overview, trials: Trials) -> None:
        self._overview, self._trials, self._space = overview, trials, overview.config.space

    def found(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return what the list shows."""
        wanted = given.get("q", "").strip()
        recent, points = self._overview.recent()
        if wanted:
            rows = [{**row, "words": ""} for row in self._overview.named(wanted)]
        else:
            rows = [
                {
                    "publication": publication.id,
                    "publication_key": publication.key,
                    "broker": publication.broker,
                    "arrived": publication.arrived,
                    "words": point_words(self._space, tuple(points[k].tolist())),
                }
                for k, publication in enumerate(recent[:MOST_ROWS])
            ]
        values = {key[3:]: text.strip() for key, text in given.items() if key.startswith("at.")}
        tried, wrong = self._tried(given, values)
        shown = {"values": values, "tried": tried, "wrong": wrong, "broker": given.get("broker", "")}
        return {"rows": rows, "q": wanted, "beside": self._beside(given), **shown}

    # trying

    def _tried(self, given: Mapping[str, str], values: Mapping[str, str]) -> tuple[dict[str, Any] | None, str]:
        """Return what an event would do, if one is given; or what is wrong with it."""
        if "at" not in given and not values:
            return None, ""
        try:
            at = read_json("at", given["at"]) if "at" in given else read_values(self._space, values)
            request = {"at": at, "broker": given.get("broker") or self._overview.config.overlay.brokers[0]}
            name = self._beside(given)
            answer = self._trials.answer(request | ({"subscription": name} if name else {}))
        except Refused as refused:
            return None, f"{refused.message} (rule {refused.rule}: {RULES.get(refused.rule, 'see docs/events.md')})"
        point = self._space.point(answer["at"])
        told = {row["link"]: row["text"] for row in answer["sentences"] if row["state"] in MARKED}
        way = []
        for row, depth in outward(answer["broker"], answer["links"], lambda row: row["action"] == "forward"):
            broker, link, state = row["broker"], row["link"], MARKED[row["action"]]
            plain = f"{link} asked {broker} for it." if state == "carry" else f"{link} did not ask {broker} for it."
            way.append(Passage(broker, link, depth, state, told.get(f"{broker}>{link}", plain)))
        beside = answer["beside"]
        said = {
            "words": point_words(self._space, point),
            "way": way,
            "verdicts": [self._compared(c["attribute"], c["asked"], point) for c in beside["attributes"]]
            if beside
            else [],
            "beside": [s["text"] for s in answer["sentences"] if s["state"] in BESIDE] if beside else [],
        }
        return answer | said, ""

    def _beside(self, given: Mapping[str, str]) -> Row | None:
        """Return the subscription that an event is to be compared with."""
        if not given.get("id"):
            return None
        return {"home": given.get("home", ""), "client": given.get("client", ""), "subscription": given["id"]}

    # one

    def shown(self, key: str, given: Mapping[str, str]) -> dict[str, Any] | None:
        """Return what the page of a publication shows; None if there is no such one."""
        row, routes, deliveries = self._overview.way_of(key)
        if row is None:
            return None
        wanted = given.get("subscription", "").strip()
        choices = self._named(wanted) if wanted else []
        name = Name(*choices[0]) if len(choices) == 1 else None
        story, wrong = None, ""
        try:
            story = event_story(self._overview.tables, key, name)
        except LacunaError as error:
            wrong = str(error)
        point = self._overview.point_of(row)
        return {
            "row": row,
            "words": point_words(self._space, point),
            "way": self._way(row["broker"], routes, story),
            "deliveries": deliveries,
            "carried": sum(route["action"] == "forward" for route in routes),
            "stopped": sum(route["action"] == "stop" for route in routes),
            "wanted": wanted,
            "choices": choices,
            "name": name,
            "wrong": wrong,
            "beside": self._beside_sentences(story) if name else [],
            "verdicts": self._verdicts(story, point),
        }

    def _named(self, wanted: str) -> list[tuple[str, str, str]]:
        """Return the subscriptions that are meant by `s1`, `s1 of ann` or `s1 of ann at oslo`."""
        if whole := self._overview.named_subscriptions(wanted, None, None):
            return whole
        id, _, rest = wanted.partition(" of ")
        client, _, broker = rest.rpartition(" at ") if " at " in rest else (rest, "", "")
        return self._overview.named_subscriptions(id, client or None, broker or None)

    def _way(self, entry: str, routes: list[Row], story: Story | None) -> list[Passage]:
        """Return the links that an event was considered for, from where it was published outward."""
        told = {} if story is None else {s.link: s.text for s in story.sentences if s.state in ("forward", "stop")}
        found = []
        for route, depth in outward(entry, routes, lambda row: row["action"] == "forward"):
            broker, link = route["broker"], route["link"]
            carried = route["action"] == "forward"
            plain = f"{link} had asked {broker} for it." if carried else f"{link} had not asked {broker} for it."
            text = told.get(f"{broker}>{link}", plain)
            found.append(Passage(broker, link, depth, "carried" if carried else "stopped", text))
        return found

    def _beside_sentences(self, story: Story | None) -> list[str]:
        """Return what is said of the subscription itself, and of who never heard of it."""
        return [] if story is None else [s.text for s in story.sentences if s.state in BESIDE]

    def _verdicts(self, story: Story | None, point: Corner) -> list[Verdict]:
        beside: Beside | None = None if story is None else story.facts.beside
        return [] if beside is None else [self._compared(c.attribute, c.asked, point) for c in beside.attributes]

    def _compared(self, name: str, asked: list[Any] | None, point: Corner) -> Verdict:
        """Return an attribute of an event beside what is asked for; None if that is anything."""
        k = [a.name for a in self._space.attributes].index(name)
        attribute = self._space.attributes[k]
        whole = [(attribute.low, attribute.high + 1)]
        return _verdict(attribute, whole if asked is None else attribute.intervals(asked), point[k])


def point_words(space: Space, point: Corner) -> str:
    """Return the values of an event as text."""
    return ", ".join(f"{a.name} {value_text(a, key)}" for a, key in zip(space.attributes, point, strict=True))


def _verdict(attribute: Attribute, intervals: Intervals, key: int) -> Verdict:
    fits = any(lo <= key < hi for lo, hi in intervals)
    drawn = None if attribute.kind == "category" else bar(attribute, intervals, key, fits)
    beside = "" if fits else _beside(attribute, intervals[0], key)
    return Verdict(attribute.name, drawn, value_text(attribute, key), side_words(attribute, intervals), fits, beside)


def read_json(what: str, text: str) -> object:
    """Return what a text says as JSON. Raises `Refused`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(what, "json", f"{what} is not JSON: {error}") from None


def read_values(space: Space, values: Mapping[str, str]) -> dict[str, object]:
    """Return the values of a form. What is no number is left as it is, to be refused by the rule that it breaks."""
    found: dict[str, object] = {}
    for a in space.attributes:
        text = values.get(a.name, "")
        if text:
            found[a.name] = text if a.kind in ("category", "timestamp") else _number(text.replace(",", ""))
    return found


def _number(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) else text


def _beside(attribute: Attribute, interval: tuple[int, int], key: int) -> str:
    """Return by how much a value misses an interval: `1 too high`."""
    lo, hi = interval
    end, how = (hi - 1, "too high") if key >= hi else (lo, "too low")
    if attribute.kind == "category":
        return "not one of those asked for"
    if attribute.kind == "timestamp":
        return "too late" if key >= hi else "too early"
    gap = abs(float(attribute.value(key)) - float(attribute.value(end)))
    return f"{number(float(f'{gap:.4g}'))} {how}"
