"""Bars and slices as SVG."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from lacuna.analysis.drawing import Picture, narrowest
from lacuna.serve.picture import LETTERS, bar, panels
from state.config import parse
from state.geometry.boxes import boxes_where
from state.protocol.messages import Name

SPACE = parse(
    """
[space]
"<b>&" = { kind = "float", low = 0.0, high = 100.0 }
size = { kind = "int", low = 0, high = 100 }
kind = { kind = "category", values = ["<i>", "y"] }
seen = { kind = "timestamp", low = "2026-01-01T00:00:00Z", high = "2027-01-01T00:00:00Z" }
[overlay]
links = [["a", "b"]]
"""
).space
ONE = parse('[space]\nx = { kind = "int", low = 0, high = 9 }\n[overlay]\nlinks = [["a", "b"]]').space
KINDS = parse('[space]\nk = { kind = "category", values = ["x", "y"] }\n[overlay]\nlinks = [["a", "b"]]').space


def picture(space, shape, told, coverers=(), witness=None) -> Picture:  # type: ignore[no-untyped-def]
    row = {"shape": [shape], "witness": witness, "action": "forward"}
    active = {Name("a", "c", id): boxes_where(space, where) for id, where in told.items()}
    axes = narrowest(space, boxes_where(space, shape))
    return Picture(space, axes, row, active, [Name("a", "c", id) for id in coverers])


def classes(svg: str) -> list[str]:
    return [e.get("class", "") for e in ElementTree.fromstring(svg).iter()]


def test_a_bar_has_each_interval_and_the_event() -> None:
    drawn = classes(bar(SPACE.attributes[1], [(0, 10), (50, 60)], 70, False))
    assert drawn.count("asked") == 2 and "outside" in drawn
    widths = re.findall(r'class="asked" x="([\d.]+)" y="4" width="([\d.]+)"', bar(SPACE.attributes[1], [(0, 101)]))
    assert widths == [("0", "200")]
    assert 'width="1.5"' in bar(SPACE.attributes[0], [(5, 6)])  # a point is still seen


def test_the_gap_is_hatched_and_a_small_one_enlarged() -> None:
    shape = {"<b>&": [10, 20], "size": [10, 20]}
    whole = panels(SPACE, picture(SPACE, shape, {}, witness=shape))[0]
    assert whole.gap_share == 1.0 and "gap" in classes(whole.svg) and "lead" not in classes(whole.svg)
    told = {"s1": {"<b>&": [0, 19.99]}, "s2": {"size": [0, 19]}}
    small = panels(SPACE, picture(SPACE, shape, told, witness={"<b>&": [19.995, 20], "size": [20, 20]}))[0]
    assert 0 < small.gap_share < 0.01 and "lead" in classes(small.svg)


def test_coverers_have_letters_and_leave_no_gap() -> None:
    told = {"s1": {"<b>&": [0, 15]}, "s2": {"<b>&": [14, 30]}, "s3": {"size": [90, 95]}}
    [panel] = panels(SPACE, picture(SPACE, {"<b>&": [10, 20], "kind": ["y"]}, told, ["s1", "s2"]))
    assert [LETTERS[k] for k in panel.letters] == ["A", "B"]
    assert panel.gap_share == 0
    letters = [e.text for e in ElementTree.fromstring(panel.svg).iter() if "letter" in e.get("class", "")]
    assert letters == ["A", "B"]


def test_a_category_has_a_panel_for_each_value() -> None:
    drawn = panels(SPACE, picture(SPACE, {"<b>&": [10, 20], "size": [1, 2]}, {}, witness={"kind": ["y"]}))
    assert [panel.at.split(", ")[0] for panel in drawn] == ["kind y", "kind <i>"]
    assert "<i>" not in "".join(panel.svg for panel in drawn) and "&lt;b&gt;&amp;" in drawn[0].svg


def test_one_attribute_and_none_that_is_numeric() -> None:
    for space, shape in ((ONE, {"x": [3, 4]}), (KINDS, {"k": ["x"]})):
        [panel] = panels(space, picture(space, shape, {}, witness=shape))
        assert "frame" in classes(panel.svg)
