"""Pictures of filters as SVG: bars for each attribute, and slices of the space with what covers a subscription.

Which slices are drawn, and in which two attributes, is decided where files are drawn (`analysis.drawing`).

    ┌────────────────┐   grey      what the neighbour had been told before, as one area
    │▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒│   frame     the subscription
    │▒▒┏━━━━━━━━━┓▒▒▒│   A, B      those that cover it, by letter, colour and dash
    │▒▒┃▒▒▒▒▒▒▒╱╱┃▒▒▒│   hatched   the gap, enlarged where it is less than 2 % of the panel
    └──┸─────────┸───┘

Everything is text in `Markup`, which escapes what is put into it; colours come from the stylesheet, by class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from lacuna.analysis.drawing import Picture
from lacuna.analysis.wording import number
from state.geometry.boxes import hull
from state.space import Attribute, Keys, Lengths, Space

WIDTH, HEIGHT = 480.0, 330.0
LEFT, BOTTOM, TOP = 78.0, 50.0, 22.0
MARGIN = 0.15
SMALL = 0.02
"""The share of a panel below which a gap is enlarged."""
MOST_PANELS, MOST_LETTERS = 6, 6
LETTERS = "ABCDEF"
DASHES = ("none", "9 5", "2 4", "12 4 2 4", "6 2", "1 2")
Rect = tuple[float, float, float, float]
"""Left, top, right and bottom, as shares of a panel."""


class Panel(NamedTuple):
    """One drawing, and the values at which it is cut."""

    at: str
    svg: Markup
    gap_share: float
    """The gap as a share of the subscription in this slice."""
    letters: list[int]
    """The coverers that are in it, by their place."""


# Bars


def bar(
    attribute: Attribute, intervals: Iterable[tuple[int, int]], point: int | None = None, fits: bool = True
) -> Markup:
    """Return intervals of keys `[lo, hi)` on the domain of an attribute, and where an event is."""
    whole = attribute.whole or 1.0
    line = Markup('<rect class="axis" x="0" y="6" width="200" height="2"/>')
    for lo, hi in intervals:
        x, wide = 200 * attribute.length(attribute.low, lo) / whole, 200 * attribute.length(lo, hi) / whole
        line += Markup('<rect class="asked" x="{}" y="4" width="{}" height="6"/>').format(
            _short(min(x, 198.5)), _short(max(wide, 1.5))
        )
    if point is not None:
        x = 200 * attribute.length(attribute.low, point) / whole
        points = f"{x - 5:.1f},14 {x + 5:.1f},14 {x:.1f},3"
        line += Markup('<polygon class="{}" points="{}"/>').format("inside" if fits else "outside", points)
    return Markup('<svg class="bar" viewBox="-6 0 212 14" aria-hidden="true">{}</svg>').format(line)


# Slices


def panels(space: Space, picture: Picture) -> list[Panel]:
    """Return the panels of a decision: through the gap first, then elsewhere."""
    return [_panel(space, _Slice(space, picture, at), at) for at in picture.points[:MOST_PANELS]]


class Window(NamedTuple):
    """A part of a slice, in shares of the domain: what a panel shows."""

    x0: float
    y0: float
    x1: float
    y1: float

    def rect(self, box: Lengths) -> Rect | None:
        """Return the part of a box inside the window; y grows downward. None if there is none."""
        (left, bottom), (right, top) = box.tolist()
        wide, high = self.x1 - self.x0, self.y1 - self.y0
        sides = [(left - self.x0) / wide, (self.y1 - top) / high, (right - self.x0) / wide, (self.y1 - bottom) / high]
        x0, y0, x1, y1 = (min(1.0, max(0.0, side)) for side in sides)
        return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def _window(boxes: Lengths, margin: float) -> Window:
    """Return the window around boxes with a margin; everything if there are none."""
    if not len(boxes):
        return Window(0, 0, 1, 1)
    low, high = boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)
    pad = np.maximum((high - low) * margin, 1e-6)
    (x0, y0), (x1, y1) = np.maximum(low - pad, 0), np.minimum(high + pad, 1)
    return Window(float(x0), float(y0), float(x1), float(y1))


class _Slice:
    """One slice: what is in it, as shares of the domain in the attributes that are drawn."""

    def __init__(self, space: Space, picture: Picture, at: Keys) -> None:
        self._space, self.axes = space, picture.axes
        self.keys = picture.subscription(at)
        self.subscription = self._shares(self.keys)
        self.told = self._shares(picture.told(at))
        self.coverers = [self._shares(picture.coverer(name, at)) for name in picture.coverers]
        self.gap = self._shares(picture.gap(at)) if not picture.coverers else self.told[:0]

    def _shares(self, keys: Keys) -> Lengths:
        """Return boxes in two dimensions, the second one being everything where only one is drawn."""
        domain = np.array(self._space.domain, np.int64)
        whole = np.tile(domain[None], (len(keys), 1, 1))
        whole[:, :, self.axes] = keys
        low, high = self._space.positions(domain[None])[0]
        found: Lengths = ((self._space.positions(whole) - low) / np.where(high > low, high - low, 1.0))[:, :, self.axes]
        if len(self.axes) == 1:
            found = np.concatenate([found, np.tile(np.array([[[0.0], [1.0]]]), (len(keys), 1, 1))], axis=2)
        return found


def _panel(space: Space, cut: _Slice, at: Keys) -> Panel:
    still = [i for i in range(space.dims) if i not in cut.axes]
    where = ", ".join(f"{space.attributes[i].name} {value_text(space.attributes[i], int(at[i]))}" for i in still)
    shown = cut.keys if len(cut.keys) else np.array(space.domain, np.int64)[None][:, :, cut.axes]
    window = _window(cut.subscription, MARGIN)
    wide, high = WIDTH - LEFT, HEIGHT - BOTTOM - TOP
    inner = _layers(cut, window, wide, high)
    gap = [rect for rect in map(window.rect, cut.gap) if rect]
    if gap and _bounds(gap)[0] < SMALL:
        inner += _enlarged(cut, _bounds(gap)[1], wide, high)
    ticks = _ticks(space, cut.axes, hull(shown), window, wide, high)
    drawn = Markup('<svg x="{}" y="{}" width="{}" height="{}">{}</svg>').format(LEFT, TOP, wide, high, inner)
    label = f"{' by '.join(space.attributes[i].name for i in cut.axes)}{f', at {where}' if where else ''}"
    svg = Markup('<svg class="slice" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>').format(
        _short(WIDTH), _short(HEIGHT), f"Drawing of {label}; the text below says the same", drawn, ticks
    )
    size = _area(cut.subscription)
    letters = [k for k, boxes in enumerate(cut.coverers[:MOST_LETTERS]) if len(boxes)]
    return Panel(where, svg, _area(cut.gap) / size if size else 0.0, letters)


def _area(boxes: Lengths) -> float:
    return float((boxes[:, 1] - boxes[:, 0]).prod(axis=1).sum()) if len(boxes) else 0.0


def _bounds(rects: Sequence[Rect]) -> tuple[float, Rect]:
    x0, y0 = min(r[0] for r in rects), min(r[1] for r in rects)
    x1, y1 = max(r[2] for r in rects), max(r[3] for r in rects)
    return (x1 - x0) * (y1 - y0), (x0, y0, x1, y1)


def _layers(cut: _Slice, window: Window, wide: float, high: float) -> Markup:
    """Return what is in a window, from the ground up."""
    size = wide, high
    drawn = _rect((0, 0, 1, 1), size, "ground")
    if not cut.coverers:
        for rect in dict.fromkeys(rect for rect in map(window.rect, cut.told) if rect):
            drawn += _rect(rect, size, "told")
    placed: list[tuple[float, float]] = []
    visible = [[rect for rect in map(window.rect, boxes) if rect] for boxes in cut.coverers[:MOST_LETTERS]]
    for k, rects in enumerate(visible):
        for rect in rects:
            drawn += _rect(rect, size, f"cover c{k}", f' stroke-dasharray="{DASHES[k]}"')
    for rect in (rect for rect in map(window.rect, cut.gap) if rect):
        drawn += _rect(rect, size, "gap", ' fill="url(#hatch)"')
    for rect in (rect for rect in map(window.rect, cut.subscription) if rect):
        drawn += _rect(rect, size, "frame")
    for k, rects in enumerate(visible):
        for x, y in _letter_place(rects, visible[:k] + visible[k + 1 :], placed):
            drawn += Markup('<text class="letter c{}" x="{}" y="{}">{}</text>').format(
                k, _short(x * wide), _short(y * high), LETTERS[k]
            )
    return drawn


def _letter_place(
    rects: Sequence[Rect], others: Sequence[Sequence[Rect]], placed: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return where a letter goes: inside its own boxes, and inside as few others as possible."""
    spots = [
        (min(max(x, 0.04), 0.96), min(max(y, 0.06), 0.94))
        for x0, y0, x1, y1 in rects
        for x in (x0 + 0.05, (x0 + x1) / 2, x1 - 0.05)
        for y in (y0 + 0.07, (y0 + y1) / 2, y1 - 0.07)
    ]
    if not spots:
        return []

    def crowd(spot: tuple[float, float]) -> float:
        x, y = spot
        inside = sum(any(a <= x <= c and b <= y <= d for a, b, c, d in rects) for rects in others)
        return inside + 9 * any(abs(x - u) < 0.07 and abs(y - v) < 0.1 for u, v in placed)

    best = min(spots, key=crowd)
    placed.append(best)
    return [best]


def _enlarged(cut: _Slice, at: Rect, wide: float, high: float) -> Markup:
    """Return a circle around a small gap, and an inset that shows it enlarged, away from it."""
    x, y = (at[0] + at[2]) / 2 * wide, (at[1] + at[3]) / 2 * high
    size = wide * 0.4, high * 0.4
    left = 10.0 if x > wide / 2 else wide - size[0] - 10
    top = 10.0 if y > high / 2 else high - size[1] - 10
    near = _window(cut.gap, 1.0)
    drawn = Markup('<line class="lead" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
        _short(x), _short(y), _short(left + size[0] / 2), _short(top + size[1] / 2)
    )
    drawn += Markup('<circle class="lead" cx="{}" cy="{}" r="12"/>').format(_short(x), _short(y))
    inner = _layers(cut, near, *size)
    drawn += Markup('<svg x="{}" y="{}" width="{}" height="{}">{}</svg>').format(
        _short(left), _short(top), _short(size[0]), _short(size[1]), inner
    )
    frame = Markup('<rect class="lead" x="{}" y="{}" width="{}" height="{}"/>').format(
        _short(left), _short(top), _short(size[0]), _short(size[1])
    )
    text = Markup('<text class="note" x="{}" y="{}">the gap, enlarged</text>').format(
        _short(left + size[0] / 2), _short(top + 17)
    )
    return drawn + frame + text


def _ticks(space: Space, axes: list[int], around: Keys, window: Window, wide: float, high: float) -> Markup:
    """Return the ends of the subscription on both axes, and the names of the attributes."""
    drawn = Markup("")
    for n, i in enumerate(axes):
        attribute = space.attributes[i]
        used: list[float] = []
        for key in dict.fromkeys((int(around[0, n]), int(around[1, n]) - 1)):
            share = attribute.length(attribute.low, key) / (attribute.whole or 1.0)
            text = value_text(attribute, key)
            if n == 0:
                x = LEFT + wide * (share - window.x0) / (window.x1 - window.x0)
                if all(abs(x - other) > 80 for other in used):
                    drawn += _text(x, TOP + high + 18, text, "middle")
                    used.append(x)
            else:
                y = TOP + high * (window.y1 - share) / (window.y1 - window.y0)
                if all(abs(y - other) > 18 for other in used):
                    drawn += _text(LEFT - 7, y + 5, text, "end")
                    used.append(y)
        if n == 0:
            drawn += _text(WIDTH - 2, TOP + high + 40, attribute.name, "end")
        else:
            drawn += _text(LEFT - 7, TOP - 8, attribute.name, "end")
    return drawn


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text class="tick" x="{}" y="{}" text-anchor="{}">{}</text>').format(
        _short(x), _short(y), anchor, text
    )


def _rect(rect: Rect, size: tuple[float, float], css: str, more: str = "") -> Markup:
    (x0, y0, x1, y1), (wide, high) = rect, size
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"{}/>').format(
        css, *map(_short, (x0 * wide, y0 * high, max((x1 - x0) * wide, 1), max((y1 - y0) * high, 1))), Markup(more)
    )


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def value_text(attribute: Attribute, key: int) -> str:
    """Return a value for a person: whole numbers in groups of three."""
    value = attribute.value(key)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(float(f"{value:.6g}"))
    return str(value)
