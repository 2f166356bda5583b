"""Small line plots as SVG text: the same bytes for the same numbers, so that a test can compare them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Curves by label: the x and the y values. A label that begins with `published` is drawn dashed."""

WIDTH, HEIGHT = 460, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 24, 34
COLOURS = ("#1f6fb4", "#d1570f", "#2b8a3e", "#b02a4c", "#6a4fb0", "#8a6d1d", "#157f8c", "#555555")
TICKS = 5


@dataclass(frozen=True)
class Axis:
    """A scale from values to pixels."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> str:
        """The pixel of a value, to a tenth."""
        low, high, value = (self._scaled(v) for v in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return f"{self.begin + share * (self.end - self.begin):.1f}".removesuffix(".0")

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self) -> list[float]:
        """Round values from the low end to the high one, a handful."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**k for k in range(first, last + 1, max(1, (last - first + TICKS) // TICKS))]
        step = _round_up((self.high - self.low) / TICKS) if self.high > self.low else 1.0
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 2.5, 5, 10) if power * step >= value * (1 - 1e-9))


def lines(title: str, x: str, y: str, series: Series, *, log_x: bool = False, log_y: bool = False) -> str:
    """Draw curves. On a logarithmic axis only positive values are shown."""
    curves = {
        label: [(a, b) for a, b in zip(xs, ys, strict=True) if (a > 0 or not log_x) and (b > 0 or not log_y)]
        for label, (xs, ys) in series.items()
    }
    xs, ys = [a for points in curves.values() for a, _ in points], [b for points in curves.values() for _, b in points]
    across = Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, log_x)
    up = Axis(min(ys) if log_y else min(0, *ys), max(ys), HEIGHT - BOTTOM, TOP, log_y)
    parts = [*_frame(title, x, y), *_ticks(across, up)]
    for number, (label, points) in enumerate(curves.items()):
        parts += _curve(label, points, number, across, up)
    return "\n".join([*parts, "</svg>", ""])


def _frame(title: str, x: str, y: str) -> list[str]:
    middle = (LEFT + WIDTH - RIGHT) // 2
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="9" fill="#222">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{middle}" y="14" text-anchor="middle" font-size="11">{escape(title)}</text>',
        f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x)}</text>',
        f'<text transform="translate(10 {HEIGHT // 2}) rotate(-90)" text-anchor="middle">{escape(y)}</text>',
    ]


def _ticks(across: Axis, up: Axis) -> list[str]:
    parts = []
    for value in across.ticks():
        at = across.at(value)
        parts.append(f'<path d="M{at} {TOP}V{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 11}" text-anchor="middle">{number(value)}</text>')
    for value in up.ticks():
        at = up.at(value)
        parts.append(f'<path d="M{LEFT} {at}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{at}" dy="3" text-anchor="end">{number(value)}</text>')
    return parts


def _curve(label: str, points: list[tuple[float, float]], place: int, across: Axis, up: Axis) -> list[str]:
    colour = COLOURS[place % len(COLOURS)]
    dashed = ' stroke-dasharray="4 3"' if label.startswith("published") or place >= len(COLOURS) else ""
    spots = [(across.at(a), up.at(b)) for a, b in points]
    parts = [
        f'<polyline points="{" ".join(f"{a},{b}" for a, b in spots)}" fill="none" stroke="{colour}"{dashed}/>',
    ]
    if len(spots) <= 12:
        parts += [f'<circle cx="{a}" cy="{b}" r="1.8" fill="{colour}"/>' for a, b in spots]
    at = TOP + 10 + 11 * place
    parts.append(f'<path d="M{LEFT + 6} {at - 3}h14" stroke="{colour}"{dashed}/>')
    parts.append(f'<text x="{LEFT + 24}" y="{at}">{escape(label)}</text>')
    return parts


def number(value: float) -> str:
    """A number as people write it on an axis.

    >>> [number(v) for v in (0, 0.25, 1500, 2e6, 3e12, 0.0001)]
    ['0', '0.25', '1,500', '2M', '3e12', '1e-4']
    """
    if value and (abs(value) >= 1e9 or abs(value) < 1e-3):
        digits, _, power = f"{value:.0e}".partition("e")
        return f"{digits}e{int(power)}"
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value:,.6g}" if abs(value) < 1e5 else f"{value:,.0f}"
