"""`lacuna chain`: Proposition 4 of the paper on probabilistic subsumption, by formula and by simulation."""

from __future__ import annotations

import json
import math

import pytest

from lacuna.__main__ import main
from lacuna.analysis.chain import chain, formula, pinwheel, shared_formula
from state.geometry.boxes import stack
from tests.core import naive


def test_equation_2() -> None:
    assert formula(0.3, 0.1, 1) == 0.3
    assert formula(0.3, 0.1, 2) == pytest.approx(0.3 + 0.3 * 0.7 * 0.9)
    assert formula(0.3, 0.1, 3) == pytest.approx(0.3 + 0.3 * 0.7 * 0.9 + 0.3 * (0.7 * 0.9) ** 2)
    assert formula(0.3, 0.0, 5) == pytest.approx(1 - 0.7**5)
    assert formula(0.3, 1.0, 5) == shared_formula(0.3, 1.0, 5) == 0.3


@pytest.mark.parametrize("missed", [0.0, 0.2, 0.7, 1.0])
def test_the_same_guesses_everywhere_are_never_worse(missed: float) -> None:
    for brokers in range(1, 12):
        assert shared_formula(0.2, missed, brokers) >= formula(0.2, missed, brokers) - 1e-12


def test_the_pinwheel_leaves_its_hole_and_nothing_else() -> None:
    square, four = pinwheel(2, side=10)
    assert naive.cells(square.keys()) - naive.union(stack(four, 2)) == {(4, 4), (4, 5), (5, 4), (5, 5)}
    assert naive.disjoint(stack(four, 2))


def test_measured_is_what_the_formulas_say() -> None:
    runs = 500
    result = chain(brokers=5, rho=0.3, gap=0.04, trials=15, runs=runs, seed=3)
    assert result["missed"] == pytest.approx(0.96**15)
    for row in result["paths"]:
        for kind in ("", "_shared"):
            expected = row[f"formula{kind}"]
            allowed = 4 * math.sqrt(expected * (1 - expected) / runs)
            assert abs(row[f"measured{kind}"] - expected) <= allowed, (row, kind)
    assert result == chain(brokers=5, rho=0.3, gap=0.04, trials=15, runs=runs, seed=3)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chain", "--runs", "20", "--brokers", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["brokers"] for row in printed["paths"]] == [1, 2]
    assert main(["chain", "--runs", "20", "--brokers", "2"]) == 0
    assert "formula" in capsys.readouterr().out


@pytest.mark.parametrize(
    "option", ["--brokers=0", "--rho=0", "--rho=nan", "--gap=0", "--gap=1", "--trials=0", "--runs=0", "--seed=-1"]
)
def test_a_value_that_makes_no_sense_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chain", option]) == 2
    message = capsys.readouterr().err
    assert option.partition("=")[0] in message
    assert "Remedy" in message
