"""What `metrics` counts is what `decisions` says, whatever the strategy."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from lacuna.__main__ import main
from state.told import Action

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
    assert [row["reason"] for row in rows("decisions") if row["action"] == "promote"] == ["audited was cancelled: gap"]
    assert sum(int(str(row["audited"])) + int(str(row["wrong"])) for row in rows("metrics")) == 0
