"""Plots of benchmarks, as PNG files in `bench/out/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

OUT = Path(__file__).parent / "out"

Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Curves by label: the x and the y values."""


def lines(name: str, title: str, x: str, y: str, series: Series, *, log_x: bool = False, log_y: bool = False) -> Path:
    """Draw curves into `bench/out/NAME.png`. Published ones are dashed: their label begins with `published`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for label, (xs, ys) in series.items():
        axes.plot(xs, ys, "--" if label.startswith("published") else "o-", label=label, markersize=3)
    axes.set(title=title, xlabel=x, ylabel=y)
    if log_x:
        axes.set_xscale("log", base=2)
    if log_y:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.png"
    figure.savefig(path, dpi=120)
    return path
