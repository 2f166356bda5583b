"""Transcripts: behaviour as text that people read. `pytest --rewrite` writes what happens; the diff is then the review.

A transcript is a series of blocks: commands, a line `----`, what happened. Commands:

    overlay a-b b-c                 the links; begins anew
    space x=0..9 y=0..9 c:u,v       attributes (default: x=0..9 y=0..9)
    strategy TABLE [LINK]           for all links, or for one direction such as a>b
    subscribe BROKER CLIENT ID [x=1..5 y=2..] [rev=N] [ttl=S]
    unsubscribe BROKER CLIENT ID [rev=N]
    publish BROKER ID x=1 y=2
    clock SECONDS                   time passes
    hold | settle                   leave link messages on their channels | deliver them all
    step a>b                        the receiver takes one message
    state BROKER LINK               what a group holds
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from state.config import Config, parse
from state.protocol.arrivals import Arrival, Channel
from state.protocol.commands import Tick
from state.protocol.events import Context, Reject, read_line
from state.protocol.messages import LOCAL, Publish
from state.protocol.wire import unpack_ranges
from state.routing.decision import Decision
from state.routing.link import Setup
from state.routing.outcome import Outcome
from state.routing.rangetold import RangeTold
from state.routing.region import Region

FILE, CONTROL = Channel(0, 0, "events"), Channel(4, 0, "control")
SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


class Stage:
    """Runs the commands of one transcript and writes down what happens."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._links: list[tuple[str, str]] = []
        self._space = "x=0..9 y=0..9"
        self._strategies: dict[str, str] = {}
        self._region: Region | None = None
        self._made: Config
        self._hold, self._now, self._offset = False, 0, 0

    # commands

    def run(self, command: str) -> list[str]:
        self.lines = []
        verb, *words = command.split()
        getattr(self, f"do_{verb}")(*words)
        return self.lines or ["ok"]

    def do_overlay(self, *pairs: str) -> None:
        self._links = [(a, b) for a, _, b in (pair.partition("-") for pair in pairs)]
        self._region = None

    def do_space(self, *attributes: str) -> None:
        self._space = " ".join(attributes)
        self._region = None

    def do_strategy(self, *words: str) -> None:
        link = words[-1] if ">" in words[-1] else ""
        self._strategies[link] = " ".join(words[:-1] if link else words)
        self._region = None

    def do_subscribe(self, broker: str, client: str, id: str, *words: str) -> None:
        event, where = self._options(words)
        self._feed({"kind": "subscribe", "broker": broker, "client": client, "id": id, "where": where, **event})

    def do_unsubscribe(self, broker: str, client: str, id: str, *words: str) -> None:
        self._feed({"kind": "unsubscribe", "broker": broker, "client": client, "id": id, **self._options(words)[0]})

    def do_publish(self, broker: str, id: str, *words: str) -> None:
        at = {name: (int(value) if value.isdigit() else value) for name, _, value in (w.partition("=") for w in words)}
        self._feed({"kind": "publish", "broker": broker, "id": id, "at": at})

    def do_clock(self, seconds: str) -> None:
        self._now += int(seconds) * 1_000_000
        self._note(self.region.feed(Arrival(CONTROL, 0, self._now, "", LOCAL, Tick()), 0))
        self._after()

    def do_hold(self) -> None:
        self._hold = True

    def do_settle(self) -> None:
        self._hold = False
        self._after()

    def do_step(self, direction: str) -> None:
        sender, _, receiver = direction.partition(">")
        message = self.region.inner[sender, receiver][0].message
        what = message.id if isinstance(message, Publish) else message.name.id
        self.lines.append(f"{receiver} takes {type(message).__name__.lower()} {what} from {sender}")
        self._note(self.region.deliver((sender, receiver)))
        self.region.check()

    def do_state(self, name: str, link: str) -> None:
        broker = self.region.brokers[name]
        if link == LOCAL:
            self._say("heard", (name.id for name in broker.clients))
            return
        here = broker.links[link]
        if isinstance(here.told, RangeTold):
            tables = {"heard": here.heard.ranges(), "told": here.told.told()}
            self.lines += [f"{what} {_ranges(ranges.tolist()) or 'nothing'}" for what, ranges in tables.items()]
            counted = (f"after {after}: {count}" for after, count in here.told.mine.rows().tolist())
            self.lines.append("clients " + (", ".join(counted) or "nothing"))
            return
        rows = (row for row in broker.subscriptions if row.origin == link)
        self._say("heard", (row.name.id for row in rows))
        self._say("active", (name.id for name in here.told.active))
        self._say("passive", (f"{n.id}({' '.join(c.id for c in p.coverers)})" for n, p in here.told.passive.items()))
        count = here.told.strategy.negative_rectangles
        if count is not None:
            self.lines.append(f"negative rectangles {count}")

    def _say(self, what: str, words: Iterable[str]) -> None:
        self.lines.append(f"{what} {' '.join(words) or 'nothing'}")

    # what happens

    def _note(self, outcome: Outcome) -> None:
        for decided in outcome.decisions:
            self._decided(decided.setup, decided.decision)
        for part in outcome.deliveries:
            for k, name in zip(part.index.tolist(), part.names, strict=True):
                publication = part.run.publications[k].id
                self.lines.append(f"{part.broker} deliver {publication} to {name.client} for {name.id}")
        for (broker, link), counts in outcome.counts.items():
            if counts["false_positives"]:
                self.lines.append(f"{link}>{broker} sent what nothing wanted")
        for routed in outcome.routes:
            for k, goes in zip(routed.reached.index.tolist(), routed.forward.tolist(), strict=True):
                action, publication = "forward" if goes else "stop", routed.run.publications[k].id
                self.lines.append(f"{routed.setup.broker}>{routed.setup.link} {action} {publication}")

    def _decided(self, setup: Setup, d: Decision) -> None:
        text = f"{setup.broker}>{setup.link} {d.action} {d.name.id}: {d.text}"
        if d.coverers:
            text += f" ({' '.join(name.id for name in d.coverers)})"
        if d.witness:
            where = setup.space.describe(d.witness.lo, d.witness.hi)
            text += " at " + " ".join(f"{name}={_brief(ends)}" for name, ends in where.items())
        if d.ranges:
            news = (("+", d.ranges.added), ("-", d.ranges.removed))
            text += "".join(f" {sign}{_ranges(unpack_ranges(packed).tolist())}" for sign, packed in news if packed)
        self.lines.append(text)

    # machinery

    @property
    def region(self) -> Region:
        if self._region is None:
            self._made = parse(self._config())
            self._region = Region("all", self._made.setups(), measure="never", logs=False)
        return self._region

    def _config(self) -> str:
        strategies = {"": '"auto"'} | self._strategies
        text = "[space]\n" + "\n".join(_attribute(word) for word in self._space.split())
        text += f"\n[overlay]\nlinks = {json.dumps(self._links)}\n[routing]\nstrategy = {strategies.pop('')}\n"
        return text + "".join(f'[routing.links."{k}"]\nstrategy = {v}\n' for k, v in strategies.items())

    def _options(self, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        event: dict[str, Any] = {}
        where: dict[str, Any] = {}
        for name, _, value in (word.partition("=") for word in words):
            if name in ("rev", "ttl"):
                event[name] = int(value)
            elif ".." in value:
                where[name] = [int(end) if end else None for end in value.split("..")]
            else:
                where[name] = value.split(",")
        return event, where

    def _feed(self, event: dict[str, Any]) -> None:
        region, config = self.region, self._made
        line = json.dumps(event).encode()
        _, _, message = read_line(Context(config.space, config.overlay.brokers), line, self._now, self._offset)
        self._offset += 1
        if isinstance(message, Reject):
            self.lines.append(f"reject {message.rule}: {message.message}")
            return
        arrival = Arrival(FILE, self._offset, self._now, event["broker"], LOCAL, message)
        self._note(region.feed(arrival, self._offset))
        self._after()

    def _after(self) -> None:
        while self.region.waiting and not self._hold:
            self._note(self.region.deliver(next(iter(self.region.waiting))))
        self.region.check()


def _attribute(word: str) -> str:
    if ":" in word:
        name, _, values = word.partition(":")
        return f'{name} = {{kind = "category", values = {json.dumps(values.split(","))}}}'
    name, _, ends = word.partition("=")
    low, high = ends.split("..")
    return f'{name} = {{kind = "int", low = {low}, high = {high}}}'


def _ranges(ranges: Sequence[Sequence[int]]) -> str:
    return "".join(f"[{first},{last}]" for first, last in ranges)


def _brief(ends: Sequence[object]) -> str:
    return f"{ends[0]}..{ends[1]}" if len(ends) == 2 and isinstance(ends[0], int) else ",".join(map(str, ends))


def perform(text: str) -> str:
    """The transcript with what happens now in the place of what was expected."""
    stage, out = Stage(), []
    for block in text.strip().split("\n\n"):
        commands = block.split("\n----\n")[0].split("\n")
        happened: list[str] = []
        for command in commands:
            if not command.startswith("#"):
                happened += stage.run(command)
        lines = [line for line in happened if line != "ok"] or (["ok"] if happened else [])
        out.append("\n".join([*commands, *(["----", *lines] if happened else [])]))
    return "\n\n".join(out) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    performed = perform(text)
    if request.config.getoption("--rewrite"):
        path.write_text(performed)
    assert performed == path.read_text()


def test_there_are_transcripts() -> None:
    assert len(SCENARIOS) >= 8
