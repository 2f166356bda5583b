"""Bars over time as SVG: how the system has been, with the highest value and the moments at both ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from lacuna.serve.overview import Moment

WIDE, HIGH, BELOW = 480.0, 110.0, 22.0


class Chart(NamedTuple):
    """A series with its name and its highest value."""

    title: str
    most: str
    svg: Markup


def health_charts(history: Sequence[Moment]) -> list[Chart]:
    """Return the charts of the health page."""
    begin, end = (f"{history[k].at:%H:%M}" for k in (0, -1))

    def chart(title: str, unit: str, values: Sequence[float | None]) -> Chart:
        known = [value for value in values if value is not None]
        most = max(known, default=0.0)
        return Chart(
            title,
            f"at most {number_text(most)} {unit}" if known else "nothing recorded",
            _bars(values, most, begin, end),
        )

    return [
        chart("Delay of the router", "s", [m.delay for m in history]),
        chart("Time of a batch", "s", [m.batch for m in history]),
        chart("Deliveries", "a second", [m.delivered for m in history]),
        chart("State", "kB", [None if m.state_bytes is None else m.state_bytes / 1000 for m in history]),
    ]


def number_text(value: float) -> str:
    """Return a number in three digits.

    >>> number_text(0.1234), number_text(1234.5), number_text(0)
    ('0.123', '1,234', '0')
    """
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.3g}"


def _bars(values: Sequence[float | None], most: float, begin: str, end: str) -> Markup:
    """Return a bar for each part of the time; none where nothing is known."""
    step = WIDE / max(len(values), 1)
    drawn = Markup('<line class="grid" x1="0" y1="{0}" x2="{1}" y2="{0}"/>').format(HIGH, WIDE)
    for k, value in enumerate(values):
        if value:
            high = max(2.0, (HIGH - 6) * value / most)
            drawn += Markup('<rect class="part" x="{}" y="{}" width="{}" height="{}"/>').format(
                f"{k * step:.1f}", f"{HIGH - high:.1f}", f"{step * 0.8:.1f}", f"{high:.1f}"
            )
    ends = Markup('<text x="0" y="{0}">{1}</text><text x="{2}" y="{0}" text-anchor="end">{3} UTC</text>').format(
        HIGH + 17, begin, WIDE, end
    )
    return Markup('<svg viewBox="0 0 {} {}" aria-hidden="true">{}{}</svg>').format(WIDE, HIGH + BELOW, drawn, ends)
