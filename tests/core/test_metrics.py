"""What `metrics` counts is what `decisions` says, whatever the strategy."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lacuna.__main__ import main
from lacuna.simulate import simulate
from state.config import Config, parse
from state.protocol.arrivals import Arrival
from state.protocol.events import Refused
from state.protocol.messages import LOCAL, Publish
from state.routing import decision as decision_module
from state.routing.decision import Action
from state.routing.outcome import Outcome
from state.routing.region import Direction, Region
from state.space import timestamp_text
from state.storage import rows as rows_module
from state.storage.tables import TABLES
from tests.core.histories import BOX_TABLES, config_text, configs, events
from tests.core.naive import few
from tests.core.overlay import Overlay

CONFIG = '[space]\n{sides}\n[overlay]\nlinks = [["a", "b"]]\n'
SIDES = "\n".join(f'{name} = {{kind = "int", low = 0, high = 9}}' for name in "wxyz")


def rows(table: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(f"out/{table}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "strategy",
    [
        '{name = "union", budget = 2}',
        '{name = "auto", budget = 2}',
        '{name = "zcurve", budget = 1}',
        '{name = "negative-approx", k = 1}',
    ],
)
def test_actions_and_exhausted_budgets_are_counted(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Strips side by side, a subscription across all of them, and then the first strip goes."""
    monkeypatch.chdir(tmp_path)
    Path("lacuna.toml").write_text(CONFIG.format(sides=SIDES))
    strips = [{"kind": "subscribe", "id": f"s{k}", "where": {"x": [2 * k, 2 * k + 1]}} for k in range(5)]
    across = [{"kind": "subscribe", "id": f"a{k}", "where": {"x": [k, 9 - k], "y": [k, k + 3]}} for k in range(3)]
    events = [*strips, *across, {"kind": "unsubscribe", "id": "s0"}]
    Path("e.jsonl").write_text("".join(json.dumps({**e, "broker": "a", "client": "ann"}) + "\n" for e in events))
    assert main(["simulate", "e.jsonl", "--out", "out", "--strategy", strategy]) == 0
    capsys.readouterr()
    decisions, metrics = rows("decisions"), rows("metrics")
    actions = Counter(row["action"] for row in decisions)
    for action in Action.__args__:  # type: ignore[attr-defined]
        assert sum(int(str(row[action])) for row in metrics) == actions[action]
    exhausted = sum(str(row["reason"]).endswith("budget") for row in decisions)
    assert sum(int(str(row["budget"])) for row in metrics) == exhausted
    assert exhausted > 0 or "budget" not in strategy
    share = [row["negative_share"] for row in metrics if row["link"] == "b"]
    assert (share[-1] is not None) == ("approx" in strategy)


def test_what_covering_saves_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One wide subscription, two inside it, and then the wide one goes: both are told."""
    monkeypatch.chdir(tmp_path)
    Path("lacuna.toml").write_text(CONFIG.format(sides=SIDES))
    wide = {"kind": "subscribe", "id": "wide", "where": {"x": [0, 5]}}
    inside = [{"kind": "subscribe", "id": f"s{k}", "where": {"x": [1, 3], "y": [0, k]}} for k in range(2)]
    events = [wide, *inside, {"kind": "unsubscribe", "id": "wide"}]
    Path("e.jsonl").write_text("".join(json.dumps({**e, "broker": "a", "client": "ann"}) + "\n" for e in events))
    assert main(["simulate", "e.jsonl", "--out", "out", "--strategy", "cover"]) == 0
    capsys.readouterr()
    told = [row for row in rows("metrics") if (row["broker"], row["link"]) == ("a", "b")]
    assert [row["withheld_associations"] for row in told] == [0, 2, 4, 2]
    assert [row["withheld_filter_bytes"] for row in told] == [0, 56, 112, 56]
    heard = [row for row in rows("metrics") if (row["broker"], row["link"]) == ("b", "a")]
    assert [row["associations"] for row in heard] == [1, 2]
    assert {row["associations"] for row in rows("metrics") if row["link"] == "local"} == {None}


def test_an_id_is_no_word_of_the_strategy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason of a promotion names what was cancelled, whatever that is called."""
    monkeypatch.chdir(tmp_path)
    Path("lacuna.toml").write_text(CONFIG.format(sides=SIDES))
    wide = {"kind": "subscribe", "id": "audited", "where": {"x": [0, 5]}}
    events = [wide, {"kind": "subscribe", "id": "s", "where": {"x": [1, 2]}}, {"kind": "unsubscribe", "id": "audited"}]
    Path("e.jsonl").write_text("".join(json.dumps({**e, "broker": "a", "client": "ann"}) + "\n" for e in events))
    assert main(["simulate", "e.jsonl", "--out", "out"]) == 0
    capsys.readouterr()
    assert [row["reason"] for row in rows("decisions") if row["action"] == "promote"] == ["gap"]
    assert sum(int(str(row["audited"])) + int(str(row["wrong"])) for row in rows("metrics")) == 0


# How large a link is


SIZES = ("heard", "active", "passive", "negative_rectangles", "ranges")
LINE = [("b0", "b1"), ("b1", "b2")]


class Watched(Region):
    """Looks at a link whenever something happens there: the last look at it because of a line is what counts."""

    seen: dict[tuple[int, str, str], dict[str, Any]]

    def feed(self, arrival: Arrival, item: int) -> Outcome:
        return self._look(item, arrival.broker, arrival.origin, arrival.message, super().feed(arrival, item))

    def deliver(self, direction: Direction) -> Outcome:
        origin, broker = direction
        queued = self.inner[direction][0]
        return self._look(queued.item, broker, origin, queued.message, super().deliver(direction))

    def _look(self, item: int, broker: str, origin: str, message: object, outcome: Outcome) -> Outcome:
        here = {LOCAL if isinstance(message, Publish) else origin, *self.brokers[broker].links}
        places = {(broker, link) for link in here if not outcome.rejects}
        places |= {(decided.setup.broker, decided.setup.link) for decided in outcome.decisions}
        for place in places:
            sizes = self.brokers[place[0]].sizes(place[1])
            Watched.seen[item, *place] = {size: sizes.get(size) for size in SIZES}
        return outcome


def timed(history: list[dict[str, Any]]) -> list[bytes]:
    """A second between two events; every third subscription ends after five."""
    lines = []
    for k, event in enumerate(history):
        ttl = {"ttl": 5} if event["kind"] == "subscribe" and k % 3 == 0 else {}
        lines.append(json.dumps({**event, **ttl, "time": timestamp_text(k * 1_000_000)}).encode())
    return lines


def metrics_of(config: Config, lines: list[bytes], seed: int | None) -> list[dict[str, Any]]:
    with TemporaryDirectory() as out:
        simulate(config, lines, out=Path(out), seed=seed)
        return [json.loads(line) for line in (Path(out) / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("strategy", ["union", "negative", "mics", "hybrid"])
@few
@given(events(("b0", "b1", "b2")).map(timed), st.integers(0, 99))
def test_a_row_shows_the_link_as_the_line_left_it(strategy: str, lines: list[bytes], seed: int) -> None:
    config, Watched.seen = parse(config_text(LINE, f'"{strategy}"')), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lacuna.simulate.Region", Watched)
        rows = metrics_of(config, lines, seed)
    assert {(r["batch"], r["broker"], r["link"]): {size: r[size] for size in SIZES} for r in rows} == Watched.seen
    assert len(rows) == len(Watched.seen), "one row for each"


@few
@given(st.data())
def test_rows_do_not_depend_on_how_lines_are_cut_into_steps(data: st.DataObject) -> None:
    config = data.draw(configs())
    lines = timed(data.draw(events(config.overlay.brokers)))
    tables = []
    for chunk in (1, 3, 8192):
        with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as out:
            patch.setattr("lacuna.simulate.CHUNK", chunk)
            simulate(config, lines, out=Path(out))
            files = sorted(Path(out).iterdir())
            tables.append({file.name: file.read_text().splitlines() for file in files})
            tables[-1]["metrics.jsonl"].sort()
    assert tables[0] == tables[1] == tables[2]


@given(events(("b0", "b1", "b2")).map(timed))
@few
def test_without_another_line_in_between_a_seed_changes_no_row(lines: list[bytes]) -> None:
    config = parse(config_text([], '"auto"'))
    alone = [line for line in lines if b'"b0"' in line]
    assert sorted(map(str, metrics_of(config, alone, 1))) == sorted(map(str, metrics_of(config, alone, None)))


# What is sent


@few
@given(st.data())
def test_messages_are_counted_as_they_are_sent(data: st.DataObject) -> None:
    """Also where one decision is several messages, because its ranges are more than one can hold."""
    config = data.draw(configs())
    lines = timed(data.draw(events(config.overlay.brokers)))
    received: list[Direction] = []

    class Counting(Region):
        def deliver(self, direction: Direction) -> Outcome:
            if not isinstance(self.inner[direction][0].message, Publish):
                received.append(direction)
            return super().deliver(direction)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision_module, "MOST_BYTES", 32)
        patch.setattr("lacuna.simulate.Region", Counting)
        summary = simulate(config, lines, seed=1)
    assert summary["subscription_messages"] == len(received)


@few
@given(st.data(), st.one_of(st.none(), st.integers(0, 9)))
def test_counters_are_the_numbers_of_rows(data: st.DataObject, seed: int | None) -> None:
    """Link by link: publications that went and did not go, deliveries, actions, and the sizes after the last."""
    config = data.draw(configs())
    lines = timed(data.draw(events(config.overlay.brokers)))
    with TemporaryDirectory() as out:
        summary = simulate(config, lines, out=Path(out), seed=seed)
        tables = {
            table: [json.loads(line) for line in (Path(out) / f"{table}.jsonl").read_text().splitlines()]
            for table in TABLES
        }
    counted: Counter[tuple[str, str, str]] = Counter()
    for row in tables["routes"]:
        counted[row["broker"], row["link"], {"forward": "forwarded", "stop": "stopped"}[row["action"]]] += 1
        counted[row["broker"], row["link"], "publications"] += 1
    for row in tables["decisions"]:
        counted[row["broker"], row["link"], row["action"]] += 1
    for row in tables["deliveries"]:
        counted[row["broker"], LOCAL, "delivered"] += 1
    for row in tables["routes"]:
        counted[row["link"], row["broker"], "came"] += row["action"] == "forward"
    kinds = {kind for _, _, kind in counted} | {"forwarded", "stopped", "delivered"}
    found: Counter[tuple[str, str, str]] = Counter()
    for row in tables["metrics"]:
        for kind in kinds:
            if kind != "publications" or row["link"] != LOCAL:
                found[row["broker"], row["link"], kind] += row[kind]
    assert +found == +counted
    assert summary["publication_messages"] == sum(n for (*_, kind), n in counted.items() if kind == "forwarded")
    assert summary["deliveries"] == len(tables["deliveries"])
    assert summary["subscription_messages"] == sum(row["messages"] for row in tables["metrics"])
    check_keys(lines, tables)
    assert summary["events"] + summary["rejects"] == len(lines)
    assert (0 < summary["state_bytes_max"] < summary["state_bytes"]) == (summary["brokers"] > 1)
    last = {(row["broker"], row["link"]): row for row in tables["decisions"]}
    if seed is None:
        sizes = {(row["broker"], row["link"]): row for row in tables["metrics"]}
        for link, row in last.items():
            assert (row["active"], row["passive"]) == (sizes[link]["active"], sizes[link]["passive"])
    assert sorted(row["seq"] for row in tables["decisions"]) == [row["seq"] for row in tables["decisions"]]
    places = sorted(row["seq"] for table, found in tables.items() if table != "metrics" for row in found)
    assert places == list(range(len(places))), "every row has a place of its own"


def check_keys(lines: list[bytes], tables: dict[str, list[dict[str, Any]]]) -> None:
    """Publications and changes are recorded once each, and rows are joined with them by their keys."""
    sent = Counter(json.loads(line)["kind"] for line in lines)
    refused = Counter(row["topic"].rpartition(".")[2] for row in tables["rejects"])
    entries = {row["publication_key"]: row["broker"] for row in tables["publications"]}
    assert len(entries) == len(tables["publications"]) == sent["publish"] - refused["publish"]
    for row in (*tables["routes"], *tables["deliveries"]):
        assert entries[row["publication_key"]] == row["entry"] and (row["hop"] == 0) == (row["entry"] == row["broker"])
    changes = Counter(row["change"] for row in tables["subscriptions"])
    started, ended = changes["subscribe"], changes["unsubscribe"] + changes["expire"]
    assert started - ended == len(standing(tables["subscriptions"]))
    assert all(row["seq"] is not None for rows in tables.values() for row in rows)


def standing(rows: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    last = {(row["broker"], row["client"], row["subscription"]): row for row in rows}
    return {name: row for name, row in last.items() if row["change"] not in ("unsubscribe", "expire")}


@few
@given(st.data(), st.one_of(st.none(), st.integers(0, 9)))
def test_the_last_row_about_a_withheld_subscription_names_those_who_cover_it_now(
    data: st.DataObject, seed: int | None
) -> None:
    config = data.draw(configs(BOX_TABLES))
    lines = timed(data.draw(events(config.overlay.brokers)))
    regions: list[Region] = []

    class Kept(Region):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            regions.append(self)

    with TemporaryDirectory() as out, pytest.MonkeyPatch.context() as patch:
        patch.setattr("lacuna.simulate.Region", Kept)
        simulate(config, lines, out=Path(out), seed=seed)
        rows = [json.loads(line) for line in (Path(out) / "decisions.jsonl").read_text().splitlines()]
    last = {(r["broker"], r["link"], r["home"], r["client"], r["subscription"]): r for r in rows}
    for broker in regions[0].brokers.values():
        for link in broker.links.values():
            for name, entry in link.told.passive.items():
                row = last[broker.name, link.setup.link, *name]
                assert row["action"] == "withhold"
                assert row["covered_by"] == [rows_module.name_value(one) for one in entry.coverers]


# Rows by themselves


def test_a_shape_is_written_out_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = Overlay(parse(config_text([("b0", "b1")], '"union"')))
    where = [{"x": [0, 0]}, {"x": [2, 2]}, {"x": [4, 4]}]
    event = {"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s", "where": where}
    [decided] = overlay.take(event).decisions
    for most in (3, 2):
        monkeypatch.setattr(rows_module, "MOST_SHAPE", most)
        row = rows_module.decision_row(rows_module.Filters(decided.setup.space), decided)
        assert row["boxes"] == 3 and row["shape"] == (where if most == 3 else None)


def test_a_refused_value_is_cut_and_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MOST_VALUE", 4)
    row = rows_module.reject_row(Refused("t", 3, 5, b"\xffabcdef", "json", "not JSON", "b", 7))
    expected = {"topic": "t", "partition": 3, "offset": 5, "value": "\ufffdabc", "rule": "json", "message": "not JSON"}
    assert row == expected | {"key": "b", "client": None, "id": None, "time": 7, "arrived": 7}
