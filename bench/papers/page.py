"""docs/papers.md and its plots, made from the kept results. `python -m bench.papers.page` writes them again.

So a sentence can be put better without measuring anything; a test compares what is committed with what this makes.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from rich.table import Table

from bench import claims
from bench.papers import PAPERS, ROOT
from bench.report import RESULTS

PAGE = ROOT / "docs" / "papers.md"
PLOTS = ROOT / "docs" / "papers"
HEAD = """# The five papers, claim by claim

Every table, figure, theorem and claim in words of the five papers, with what is published and what `lacuna bench
papers` measures here. Where a claim does not hold, the last column names the cause. Times are of another machine than
the papers', so where they are compared it is by order of magnitude and by shape.

Made from `bench/results/papers` by `python -m bench.papers.page`; do not edit. `lacuna bench papers --keep` measures
all of it again, and `--paper NAME` one paper; a test fails where a result is older than the code that it measures.

| paper | claims | hold | do not hold | cannot be compared | measured |
| --- | --- | --- | --- | --- | --- |
"""


def kept(name: str) -> dict[str, Any]:
    """The kept result of a paper."""
    found: dict[str, Any] = json.loads((RESULTS / "papers" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def files() -> dict[Path, str]:
    """The page and its plots, as they should be."""
    results = {name: kept(name) for name in PAPERS if (RESULTS / "papers" / f"{name}.json").exists()}
    parts = [HEAD + "".join(_summary(name, result) for name, result in results.items())]
    made: dict[Path, str] = {}
    for name, result in results.items():
        paper, details = claims.of(name), result["details"]
        plots = {PLOTS / f"{name}-{plot.name}.svg": plot for plot in paper.plots}
        made |= {path: plot.svg(details) for path, plot in plots.items()}
        parts.append(_section(name, paper, details, [path.name for path in plots]))
    return {PAGE: "\n".join(parts), **made}


def _summary(name: str, result: dict[str, Any]) -> str:
    rows = claims.rows(name, result["details"])
    held = Counter(row.holds for row in rows)
    counts = f"{len(rows)} | {held['yes']} | {held['no']} | {held['not comparable']}"
    return f"| [{name}](#{name}) | {counts} | {result['date'][:10]} |\n"


def _section(name: str, paper: claims.Paper, details: dict[str, Any], plots: list[str]) -> str:
    rows = [
        f"| {_cell(row.where)} | {_cell(row.published)} | {_cell(row.measured)} | {row.holds} | {_cell(row.why)} |"
        for row in claims.rows(name, details)
    ]
    return "\n".join(
        [
            f"## {name}",
            "",
            f"{paper.title}. {paper.workload}",
            "",
            "| where | published | measured | holds | why not |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
            *(f"![{name}: {plot.title}](papers/{file})" for file, plot in zip(plots, paper.plots, strict=True)),
            "",
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def table(name: str, rows: list[dict[str, str]]) -> Table:
    """The claims of a paper for a screen."""
    shown = Table("where", "published", "measured", "holds", "why not", title=name, show_lines=True)
    for row in rows:
        shown.add_row(row["where"], row["published"], row["measured"], row["holds"], row["why"])
    return shown


def write() -> None:
    """Write the page and its plots, and remove plots that are not among them."""
    PLOTS.mkdir(exist_ok=True)
    made = files()
    for path in set(PLOTS.glob("*.svg")) - made.keys():
        path.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
