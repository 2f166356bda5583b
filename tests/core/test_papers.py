"""The five papers as data: a claim that does not hold has its reason; what was measured has a fingerprint; plots."""

from __future__ import annotations

import importlib
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from bench import claims
from bench.claims import Claim
from bench.papers import PAPERS, ROOT, fingerprint, fingerprints, outdated
from bench.papers.svg import Axis, lines

every_paper = pytest.mark.parametrize("name", PAPERS)


def test_a_claim_that_does_not_hold_needs_a_reason() -> None:
    claim = Claim("Table 9", "3", lambda d: str(d["x"]), lambda d: d["x"] == 3)
    assert claims.row("p", claim, {"x": 3}).holds == "yes"
    assert claims.row("p", claim, {"x": 4}).why == claims.UNEXPLAINED
    told = claims.row("p", replace(claim, why="slip in the paper"), {"x": 4})
    assert (told.holds, told.measured, told.why) == ("no", "4", "slip in the paper")
    assert claims.row("p", replace(claim, holds=None, why="no number"), {"x": 4}).holds == "not comparable"


def test_a_fingerprint_sees_programs_not_words() -> None:
    program = 'class A:\n    """One."""\n\n    x = 1  # why\n\n    def f(self):\n        return f"{self.x}"\n'
    assert fingerprint(program) == fingerprint(program.replace("One.", "Two.").replace("# why", ""))
    assert fingerprint(program) != fingerprint(program.replace("x = 1", "x = 2"))
    assert fingerprint("def f():\n    pass\n") != fingerprint("def g():\n    pass\n")


def test_what_is_outdated_is_named() -> None:
    module = importlib.import_module("bench.papers.zcurve")
    kept = {"sources": fingerprints(module.SOURCES)}
    assert outdated("zcurve", kept) == []
    (path, *_) = kept["sources"]
    assert outdated("zcurve", {"sources": {**kept["sources"], path: "another"}}) == [path]
    assert outdated("zcurve", {"sources": {**kept["sources"], "gone.py": "x"}}) == ["gone.py"]


@every_paper
def test_the_measured_files_are_there_and_belong_to_the_pure_parts(name: str) -> None:
    for path in importlib.import_module(f"bench.papers.{name.replace('-', '_')}").SOURCES:
        assert (ROOT / path).is_file()
        assert re.match(r"(state|bench|producers|lacuna/analysis)/", path)


def test_an_axis_puts_values_in_their_places() -> None:
    axis = Axis(0, 10, 100, 200)
    assert [axis.at(value) for value in (0, 2.5, 10)] == ["100", "125", "200"]
    assert axis.ticks() == [0, 2, 4, 6, 8, 10]
    assert Axis(1, 10_000, 0, 100, log=True).at(100) == "50"
    assert Axis(1, 10_000, 0, 100, log=True).ticks() == [1, 10, 100, 1000, 10_000]


def test_a_plot_leaves_out_what_a_logarithmic_axis_cannot_show() -> None:
    drawn = lines("t & u", "x", "y", {"a": ([1, 2, 4], [0, 10, 100]), "published, b": ([1, 4], [10, 10])}, log_y=True)
    root = ElementTree.fromstring(drawn)
    curves = [e.get("points", "").split() for e in root.iter() if e.tag.endswith("polyline")]
    assert [len(points) for points in curves] == [2, 2]
    assert "stroke-dasharray" in drawn
    assert "t &amp; u" in drawn
