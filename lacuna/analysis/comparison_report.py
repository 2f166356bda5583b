"""A comparison of strategies as plots, and as an HTML file that needs nothing else."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from lacuna.analysis.comparison import MEASURES, Measure, Result, at_the_end, lost
from state.errors import LacunaError

FORMATS = (".png", ".svg")
COLUMNS = 2
STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #8886; text-align: right }
th:first-child, td:first-child { text-align: left }
figure { margin: 1.5rem 0; background: #fff } svg { width: 100%; height: auto }
"""


def draw(results: Sequence[Result], file: str) -> None:
    """Draw the plots into a .png or .svg file."""
    if Path(file).suffix.lower() not in FORMATS:
        raise LacunaError(f"--draw {file}: a drawing is a {' or '.join(FORMATS)} file. Remedy: name it so")
    Path(file).write_bytes(_drawn(results, Path(file).suffix.lower()[1:]))


def _drawn(results: Sequence[Result], form: str) -> bytes:
    """Draw a panel for each quantity, with a curve for each strategy."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise LacunaError(
            "matplotlib draws the plots, and is not installed. Remedy: pip install lacuna[draw]"
        ) from None
    rows = -(-len(MEASURES) // COLUMNS)
    figure = Figure(figsize=(10, 3.3 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    strategies = list(dict.fromkeys(result.strategy for result in results))
    for k, measure in enumerate(MEASURES, 1):
        axes = figure.add_subplot(rows, COLUMNS, k)
        for strategy in strategies:
            mine = [result for result in results if result.strategy == strategy]
            values = [getattr(result, measure.name) for result in mine]
            axes.plot([result.subscriptions for result in mine], values, "o-", label=strategy, markersize=3)
        axes.set(title=measure.title, xlabel="subscriptions")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8)
    out = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else None
    figure.savefig(out, format=form, dpi=120, metadata=metadata)
    return out.getvalue()


def write_html(results: Sequence[Result], file: str, about: str) -> None:
    """Write a page with the table, the plots and what the columns mean. `about` says what was compared."""
    picture = re.sub(r"^.*?(?=<svg)", "", _drawn(results, "svg").decode(), count=1, flags=re.S)
    missing = [f"{strategy} lost {count:,} deliveries." for strategy, count in lost(results).items()]
    said = " ".join(missing) or "All delivered the same."
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Lacuna: strategies compared</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>
<h1>Strategies compared</h1>
<p>{escape(about)} {escape(said)}</p>
{_table(at_the_end(results))}
<figure role="img" aria-label="Each quantity over the number of subscriptions">{picture}</figure>
<dl>{"".join(f"<dt>{escape(m.title)}</dt><dd>{escape(m.about)}</dd>" for m in MEASURES)}</dl>
<h2>At each number of subscriptions</h2>
{_table(results)}
</body></html>
"""
    Path(file).write_text(page, encoding="utf-8")


def _table(results: Sequence[Result]) -> str:
    titles = ("strategy", "subscriptions", *(measure.title for measure in MEASURES), "deliveries")
    rows = ("".join(f"<td>{escape(cell)}</td>" for cell in cells(result)) for result in results)
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"


def cells(result: Result) -> list[str]:
    """Return a row of the table: strategy, subscriptions, the quantities, deliveries."""
    values = (_text(result, measure) for measure in MEASURES)
    return [result.strategy, f"{result.subscriptions:,}", *values, f"{result.deliveries:,}"]


def _text(result: Result, measure: Measure) -> str:
    return f"{getattr(result, measure.name):,}"
