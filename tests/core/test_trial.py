"""Tries of events and filters, compared with what the core does when they really come."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
import textwrap
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lacuna.__main__ import main
from lacuna.analysis.lake import open_tables
from lacuna.analysis.trial import PER_LINK, Refused, Trial
from lacuna.simulate import Simulation, Writer
from state.config import Config, parse
from state.protocol.arrivals import Arrival, Channel
from state.protocol.events import Context, Reject, Source, read
from state.protocol.messages import LOCAL, Name
from state.routing.outcome import Outcome
from state.routing.region import Region
from tests.core.histories import config_text, configs, events, points, wheres

LATER = 10**9


def simulated(config: Config, history: list[dict[str, Any]], folder: Path) -> Region:
    """Run a history, write its tables, and return the region in which it has run."""
    with ExitStack() as stack:
        simulation = Simulation(config, Writer(folder, config.space, stack))
        simulation.quiet(json.dumps(event).encode() for event in history)
    return simulation.region


def really(config: Config, region: Region, kind: str, broker: str, event: dict[str, Any]) -> Outcome:
    """Let an event come to the router."""
    source = Source(0, LATER, "k", LATER)
    message = read(Context(config.space, config.overlay.brokers), kind, broker, json.dumps(event).encode(), source)
    assert not isinstance(message, Reject)
    return region.take([Arrival(Channel(0, 0, "test"), LATER, LATER, broker, LOCAL, message)])


@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.data())
def test_a_try_says_what_the_router_then_does(data: st.DataObject) -> None:
    config = data.draw(configs())
    brokers = st.sampled_from(config.overlay.brokers)
    history = data.draw(events(config.overlay.brokers, most=50))
    with tempfile.TemporaryDirectory() as folder:
        region = simulated(config, history, Path(folder))
        trial = Trial(open_tables(config, Path(folder)))
        trial.refresh()
        before = everything(trial)
        for _ in range(3):
            assert_event(config, trial, region, data.draw(brokers), data.draw(points()))
        wheres_tried = [(data.draw(brokers), data.draw(wheres())) for _ in range(2)]
        tried = [trial.filter(where, broker).facts for broker, where in wheres_tried]
        assert [trial.filter(where, broker).facts for broker, where in wheres_tried] == tried
        assert everything(trial) == before, "nothing is changed by trying"
        broker, where = wheres_tried[0]
        assert_filter(config, tried[0], region, broker, where)


def everything(trial: Trial) -> list[object]:
    """All that the copy holds of links and clients."""
    found: list[object] = []
    for broker in trial.mirror.region.brokers.values():
        found += [list(broker.clients), sorted(broker.ledger.standing), list(broker.ledger.ended)]
        for link in broker.links.values():
            found += [link.told.asks(), link.heard.asked(), list(link.told.active), list(link.told.passive)]
    return found


def assert_event(config: Config, trial: Trial, region: Region, broker: str, at: dict[str, Any]) -> None:
    tried = trial.event(at, broker).facts
    done = really(config, region, "publish", broker, {"id": "p", "at": at})
    reached = [name for part in done.deliveries for name in part.names]
    assert tried.deliveries == len(reached)
    assert set(tried.reached) == set(reached)
    forwarded = {(part.setup.broker, part.setup.link): bool(part.forward[0]) for part in done.routes}
    for crossing in tried.links:
        link = crossing.broker, crossing.link
        if trial.vague(*link) is None:
            assert (crossing.action == "forward") == forwarded[link]
    if not any(trial.vague(*link) for link in config.overlay.directions()):
        assert {(c.broker, c.link) for c in tried.links} == forwarded.keys()


def assert_filter(config: Config, tried: Any, region: Region, broker: str, where: Any) -> None:
    name = Name(broker, "somebody", "new")
    done = really(config, region, "subscribe", broker, {"id": name.id, "client": name.client, "where": where})
    decided = {
        (each.setup.broker, each.setup.link): each.decision
        for each in done.decisions
        if each.decision.name == name and each.decision.action in ("forward", "withhold")
    }
    for link in tried.links:
        if link.vague is not None:
            return
        real = decided.pop((link.broker, link.link))
        assert (link.action, link.reason) == (real.action, str(real.reason))
        assert link.coverers == real.coverers
        described = None if real.witness is None else config.space.describe(real.witness.lo, real.witness.hi)
        assert link.witness == described
    assert not decided


# The command line

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explain.md").read_text()


@pytest.fixture
def tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The tour of the README, simulated."""
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert main(["simulate", "events.jsonl", "--out", "out"]) == 0
    capsys.readouterr()
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["explain", *args, "--from", "out", "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_the_page_shows_what_its_commands_print(
    tour: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = re.findall(r"^    lacuna (explain .* --from out)$", PAGE, re.M)
    assert len(commands) == 3
    monkeypatch.setenv("COLUMNS", "150")
    for command in commands:
        assert main(shlex.split(command)) == 0
    shown = capsys.readouterr().out
    block = re.search(r"^    an event .*?\n\n", PAGE, re.S | re.M)
    assert block is not None
    for line in textwrap.dedent(block[0]).strip().splitlines():
        assert line in shown


def test_a_publication_that_happened_is_told(tour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "--publication", "p1")
    assert (told["publication_key"], told["broker"], told["deliveries"]) == ("5", "rome", 2)
    assert told["sentences"][0]["text"] == "It reached 2 subscriptions: s2 of bob at oslo and s3 of cat at oslo."
    assert [(link["broker"], link["link"], link["action"], link["holding"]) for link in told["links"]] == [
        ("rome", "paris", "forward", 1),
        ("paris", "wien", "stop", 0),
        ("paris", "oslo", "forward", 1),
    ]
    beside = said(capsys, "--publication", "5", "--subscription", "s3")
    texts = [one["text"] for one in beside["sentences"]]
    assert "It reached s3 of cat at oslo: it matches in every attribute." in texts
    assert "paris never heard of s3: s1 of ann at oslo and s2 of bob at oslo cover it on oslo>paris." in texts
    later = said(capsys, "--publication", "p2", "--subscription", "oslo/cat/s3")
    assert later["beside"]["hidden"] == [], "it was promoted meanwhile"


def test_why_an_event_does_not_arrive(tour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = json.dumps({"price": 8, "volume": 1, "symbol": "MSFT"})
    told = said(capsys, "--at", at, "--broker", "wien", "--subscription", "s3")
    assert told["beside"]["matches"] is False and told["beside"]["stopped_at"] == "wien>paris"
    price, volume, symbol = told["beside"]["attributes"]
    assert (price["asked"], price["value"], price["distance"]) == ([15.0, 25.0], 8.0, 7.0)
    assert (volume["asked"], volume["matches"]) == (None, True)
    assert (symbol["asked"], symbol["value"], symbol["distance"]) == (["IBM"], "MSFT", None)
    assert told["sentences"][0]["text"] == (
        "It would not reach s3 of cat at oslo: price 8 is 7 below 15 to 25 and symbol MSFT is not IBM; volume matches."
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--at", "{}"], "at: the publication does not name price (rule: attribute)"),
        (["--at", "{}", "--broker", "roma"], "'roma' is not a broker of the overlay (did you mean 'rome'?)"),
        (["--at", "{}", "--where", "price > 1"], "it explains one thing"),
        (["s1", "--subscription", "s2"], "--subscription: with a subscription alone it has no effect"),
        (["--at", "{}", "--client", "ann"], "--client: it says whose subscription is meant"),
        (["--where", "price > 1"], "--from: what a filter is, no table says"),
        (["--where", "price > 1", "--client", "ann"], "--client: with --where it has no effect"),
        (["--publication", "p9"], "p9: no such publication is recorded in out"),
        (["--publication", "p2", "--subscription", "s2"], "s2 of bob at oslo did not stand then: it was cancelled"),
        (["--publication", "p2", "--subscription", "s9"], "s9: no such subscription is recorded in out"),
        (["--publication", "p2", "--broker", "oslo"], "--broker: with --publication it has no effect"),
    ],
)
def test_what_is_refused(tour: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str) -> None:
    assert main(["explain", *args, "--from", "out"]) != 0
    assert message in " ".join(capsys.readouterr().err.split())


# Requests

NOBODY = {"home": "b0", "client": "ann", "subscription": "s"}
REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({}, "missing"),
    ({"at": {"x": 1, "y": 1, "colour": "red"}, "where": {}}, "missing"),
    ({"at": []}, "type"),
    ({"at": {"x": 1}}, "attribute"),
    ({"at": {"x": 99, "y": 1, "colour": "red"}}, "domain"),
    ({"at": {"x": float("nan"), "y": 1, "colour": "red"}}, "finite"),
    ({"where": {"x": [5, 1]}}, "inverted"),
    ({"where": "x >"}, "syntax"),
    ({"where": {"x": [float("nan"), 1]}}, "finite"),
    ({"where": 7}, "filter"),
    ({"where": {"x": [1, 2]}, "broker": 7}, "broker"),
    ({"where": {"x": [1, 2]}, "brokers": "b0"}, "field"),
    ({"where": ["x = 1" * 100_000]}, "filter"),
    ({"at": {"x": 1, "y": 1, "colour": "red"}, "subscription": {"home": "b0"}}, "field"),
    (
        {"at": {"x": 1, "y": 1, "colour": "red"}, "subscription": {"home": "b0", "client": "a", "subscription": "s"}},
        "id",
    ),
]


@pytest.mark.parametrize(("request_", "rule"), REQUESTS)
def test_a_bad_request_is_refused_by_its_rule(tmp_path: Path, request_: dict[str, Any], rule: str) -> None:
    config = parse(config_text([("b0", "b1")], '"auto"'))
    simulated(config, [], tmp_path)
    trial = Trial(open_tables(config, tmp_path))
    trial.refresh()
    with pytest.raises(Refused) as refused:
        trial.answer(request_)
    assert refused.value.rule == rule


def test_a_filter_is_not_asked_of_more_links_than_its_work_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse(config_text([("b0", "b1"), ("b1", "b2"), ("b2", "b3")], '"auto"'))
    simulated(config, [], tmp_path)
    trial = Trial(open_tables(config, tmp_path))
    trial.refresh()
    assert [link.broker for link in trial.filter({}, "b0").facts.links] == ["b0", "b1", "b2"]
    monkeypatch.setattr("lacuna.analysis.trial.MOST_WORK", PER_LINK + 100)
    story = trial.filter({}, "b0")
    assert [link.broker for link in story.facts.links] == ["b0", "b1"] and not story.facts.complete
    assert story.sentences[-1].text.startswith("What farther links would decide was not looked at")


def test_an_answer_is_plain_json(tmp_path: Path) -> None:
    config = parse(config_text([("b0", "b1")], '"auto"'))
    one = {"kind": "subscribe", "broker": "b1", "client": "ann", "id": "s", "where": {"x": [1, 3]}}
    simulated(config, [one], tmp_path)
    trial = Trial(open_tables(config, tmp_path))
    trial.refresh()
    name = {"home": "b1", "client": "ann", "subscription": "s"}
    answer = trial.answer({"at": {"x": 2, "y": 0, "colour": "red"}, "broker": "b0", "subscription": name})
    assert answer["reached"] == [name] and answer["beside"]["name"] == name
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    tried = trial.answer({"where": {"x": [0, 7]}, "broker": "b1"})
    assert [(link["action"], link["redundant"]) for link in tried["links"]] == [("forward", [name])]
    assert json.loads(json.dumps(tried, allow_nan=False)) == tried
