"""The five papers as data: every claim has its numbers and its reason, the page is made from them, nothing is old."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from bench import claims
from bench.claims import Claim
from bench.papers import PAPERS, ROOT, fingerprint, fingerprints, outdated, page
from bench.papers.svg import Axis, lines

CAUSES = ("workload", "slip in the paper", "better algorithm here", "ambiguous in the paper", "scenario is unknown")
CAUSES += (
    "subscriptions:",
    "another memory layout",
    "shows no number",
    "illustration",
    "counts no false decisions",
    "exponential in d",
    "as printed nothing",
)
every_paper = pytest.mark.parametrize("name", PAPERS)


@every_paper
def test_no_kept_result_is_older_than_the_code_that_it_measures(name: str) -> None:
    old = outdated(name, page.kept(name))
    assert not old, f"measured with other versions of {old}. Remedy: lacuna bench papers --paper {name} --keep"


@every_paper
def test_every_claim_that_does_not_hold_names_its_cause(name: str) -> None:
    rows = claims.rows(name, page.kept(name)["details"])
    assert len(rows) >= 25
    assert len({(row.where, row.published) for row in rows}) == len(rows)
    for row in rows:
        assert row.measured
        assert (row.holds == "yes") == (not row.why)
        assert row.holds == "yes" or any(cause in row.why for cause in CAUSES), (row.where, row.why)


def test_the_page_and_its_plots_are_made_from_the_kept_results() -> None:
    made = page.files()
    remedy = "Remedy: python -m bench.papers.page"
    for path, text in made.items():
        assert path.exists(), f"{path.name} is missing. {remedy}"
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is not what the results say. {remedy}"
    assert set(page.PLOTS.glob("*.svg")) == made.keys() - {page.PAGE}


def test_plots_are_small_and_well_formed() -> None:
    for path in page.PLOTS.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert len(text) < 12_000
        ElementTree.fromstring(text)


@every_paper
def test_the_measured_files_are_there_and_belong_to_the_pure_parts(name: str) -> None:
    for path in page.kept(name)["sources"]:
        assert (ROOT / path).is_file()
        assert re.match(r"(state|bench|producers|lacuna/analysis)/", path)


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
    (path, *_), kept = fingerprints(("bench/papers/zcurve_costs.py",)), page.kept("zcurve")
    assert outdated("zcurve", kept) == outdated("zcurve", json.loads(json.dumps(kept)))
    changed = {**kept, "sources": {**kept["sources"], path: "another"}}
    assert path in outdated("zcurve", changed)
    assert "gone.py" in outdated("zcurve", {**kept, "sources": {**kept["sources"], "gone.py": "x"}})


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
