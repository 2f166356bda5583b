"""`lacuna fit`: cells with equally much in each, written into the configuration and nowhere else; and the migration."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lacuna.__main__ import main
from lacuna.analysis.fit import borders, fitted
from producers.workloads import Workload
from state.config import parse
from state.curves.cells import Fitted
from state.errors import LacunaError, StateError
from state.space import Attribute, float_key
from streaming.life import known
from tests.core.histories import config_text, events
from tests.core.oracle import Oracle
from tests.core.shell import Shell, forget
from tests.core.test_carry import changed, check_change
from tests.core.test_life import write_life

TOML = """\
# a configuration with remarks
[space]          # in order
price = { kind = "float", low = 0.0, high = 1000.0 }
"odd name" = { kind = "int", low = 0, high = 9 }
symbol = { kind = "category", values = ["AAPL", "IBM", "é"] }
seen = { kind = "timestamp", low = "2026-01-01T00:00:00Z", high = "2027-01-01T00:00:00Z" }

[overlay]
links = [
["oslo", "paris"],
["paris", "rome"],
]

[routing]
strategy = { name = "mics", dims = ["price", "symbol"] }   # kept
"""


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "lacuna.toml"
    path.write_text(TOML)
    return path


def event_file(config_file: Path, workload: str = "zipf") -> Path:
    path = config_file.with_name("events.jsonl")
    lines = Workload(workload, 50, 400).events(parse(config_file.read_text()))
    path.write_text("".join(json.dumps(event) + "\n" for event in lines) + "broken\n")
    return path


def fit(config_file: Path, *more: str) -> int:
    return main(["fit", str(event_file(config_file)), "--config", str(config_file), *more])


# Borders


@settings(max_examples=80)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=300), st.integers(1, 5))
def test_no_cell_holds_much_more_than_its_share_unless_one_value_does(values: list[int], bits: int) -> None:
    attribute, keys = Attribute("n", "int", 0, 50), np.array(sorted(values))
    found = borders(attribute, keys, bits)
    assert found == sorted(set(found))
    assert len(found) < 1 << bits
    assert all(0 < key <= 50 for key in found)
    side = Fitted(dataclasses.replace(attribute, borders=tuple(found)), bits)
    share = -(-len(keys) // (1 << bits))
    for cell in set(side.cells(keys).tolist()):
        inside = keys[side.cells(keys) == cell]
        assert len(inside) <= 2 * share + 1 or len(set(inside.tolist())) <= 2 or len(keys) < 1 << bits


def test_borders_of_floats_are_where_the_publications_are() -> None:
    attribute = Attribute("f", "float", float_key(0.0), float_key(1000.0))
    keys = np.sort([float_key(x) for x in np.random.default_rng(1).exponential(10, 5000).clip(0, 1000)])
    values = [attribute.value(key) for key in borders(attribute, keys, 3)]
    assert len(values) == 7
    expected = [-10 * np.log(1 - k / 8) for k in range(1, 8)]
    assert np.allclose(values, expected, rtol=0.15)


# The file


def test_the_rest_of_the_file_stays_byte_by_byte(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(config_file, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["publications"] == 400
    assert summary["subscriptions"] == 50
    assert summary["refused"] == 1
    text = config_file.read_text()
    assert text.startswith(TOML.rstrip())
    config = parse(text)
    price, odd, symbol, seen = config.space.attributes
    assert len(price.borders) > 100
    assert 0 < len(odd.borders) <= 9
    assert symbol.borders == (1, 2)
    assert len(seen.borders) > 100
    assert all(a.selectivity is not None and 0 < a.selectivity < 1 for a in config.space.attributes)


def test_fitting_again_replaces_what_was_learned(config_file: Path) -> None:
    assert fit(config_file, "--bits", "3") == 0
    first = config_file.read_text()
    assert fit(config_file, "--bits", "3") == 0
    assert config_file.read_text() == first
    moved = first.replace("[routing]", "[kafka]\nprefix = 'x'\n[routing]")
    again, _ = fitted(moved, {"price": {"borders": [5.0]}})
    assert again.count("[cells") == 1
    assert parse(again).kafka.prefix == "x"


def test_the_configuration_is_kept_as_it_was(config_file: Path) -> None:
    assert fit(config_file) == 0
    assert config_file.with_name(f"{config_file.name}.bak").read_text() == TOML


def test_fewer_publications_than_cells_are_learned_from_only_by_force(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(config_file, "--bits", "9") == 2
    assert "400 publications are too few to learn 512 cells" in capsys.readouterr().err
    assert config_file.read_text() == TOML
    assert not config_file.with_name(f"{config_file.name}.bak").exists()
    assert fit(config_file, "--bits", "9", "--force") == 0


def test_what_was_learned_can_go_to_another_file(config_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "new.toml"
    assert fit(config_file, "--out", str(other)) == 0
    assert config_file.read_text() == TOML
    assert parse(other.read_text()).space.attributes[0].borders


def test_a_file_that_cannot_be_changed_in_one_place_is_left_alone(config_file: Path) -> None:
    inline = "cells = { price = { borders = [1.0] } }\n" + TOML
    with pytest.raises(LacunaError, match=r"\[cells\].*Remedy"):
        fitted(inline, {"price": {"borders": [5.0]}})


def test_cells_in_the_middle_of_a_file_are_replaced_there_and_lists_are_not_taken_for_headers() -> None:
    text = "[cells.price]\nborders = [1.0]\n" + TOML
    new, _ = fitted(text, {"price": {"borders": [5.0]}})
    assert new.startswith(TOML.rstrip())
    assert new.count("borders") == 1


def test_without_publications_nothing_is_learned(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = config_file.with_name("empty.jsonl")
    empty.write_text("")
    assert main(["fit", str(empty), "--config", str(config_file)]) == 2
    assert "no publication to learn from" in capsys.readouterr().err
    assert config_file.read_text() == TOML


def test_fitted_cells_deliver_the_same_with_fewer_false_positives(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events_file = str(event_file(config_file, "clustered"))
    config = ["--config", str(config_file), "--json"]
    assert main(["fit", events_file, *config, "--bits", "3"]) == 0
    results = {}
    for cells in ("equal", "fitted"):
        table = f'{{name = "mics", bits = 3, cells = "{cells}", dims = ["price", "seen"]}}'
        assert main(["simulate", events_file, *config, "--strategy", table]) == 0
        results[cells] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert results["equal"]["deliveries"] == results["fitted"]["deliveries"] > 0
    assert 0 < results["fitted"]["false_positives"] < results["equal"]["false_positives"]


# A change of cells on a running system

LINKS = [("b0", "b1"), ("b1", "b2")]
OLD = config_text(LINKS, '{name = "mics", bits = 2, cells = "fitted", dims = ["x", "y"]}')
OLD += "[cells]\nx = {borders = [1, 2, 3]}\ny = {borders = [4]}\n"
NEW = OLD.replace("[1, 2, 3]", "[4, 6]")


def test_other_cells_are_refused_on_the_same_checkpoint(tmp_path: Path) -> None:
    configs = []
    for text in (OLD, NEW):
        config = parse(text)
        lake = dataclasses.replace(config.lake, checkpoint=str(tmp_path / "checkpoint"))
        configs.append(dataclasses.replace(config, lake=lake))
    write_life(configs[0])
    with pytest.raises(StateError, match=r"another configuration.*cells.x.borders was 1, 2, 3, and is 4, 6.*Remedy"):
        known(configs[1])


def test_state_in_other_cells_is_refused() -> None:
    shell = Shell(parse(OLD))
    shell.send({"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s", "where": {}})
    shell.settle()
    other = Shell(parse(NEW))
    other.stored = shell.stored
    with pytest.raises(StateError, match="another configuration"):
        other.region("b0")


@settings(max_examples=15)
@given(st.data())
def test_what_stands_goes_on_in_other_cells(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Stop, fit, apply: every subscription is decided again in the new cells."""
    forget()
    shell, oracle = Shell(parse(OLD), epoch=7), Oracle({"colour"})
    for event in data.draw(events(("b0", "b1", "b2"))):
        shell.send(event)
        oracle.take(event)
    shell.settle()
    after = changed(shell, parse(NEW), tmp_path_factory.mktemp("life"))
    assert isinstance(after, Shell)
    check_change(after, oracle)
