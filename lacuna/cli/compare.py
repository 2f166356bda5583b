"""`lacuna compare`: strategies beside each other on one's own events, as a table, as plots, as a page to share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.table import Table

from lacuna.analysis.comparison import MEASURES, Result, at_the_end, compare, lost
from lacuna.analysis.comparison_report import cells, draw, write_html
from lacuna.analysis.table_events import ENDINGS, events_of, read_mapping
from lacuna.cli.config_file import parse_strategy, read_config
from lacuna.cli.console import console
from lacuna.cli.options import Args, Parser, add_config, add_json
from lacuna.cli.progress import steps
from state.config import Config
from state.errors import LacunaError
from state.strategies import PARAMETERS


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Run the same events under several strategies, with more and more of the subscriptions, and show what each "
        "sends, keeps and takes."
    )
    command.add_argument(
        "files", nargs="+", metavar="FILE", help="events: JSON lines; or .csv and .parquet files with --mapping"
    )
    command.add_argument(
        "--strategies",
        default="flood,cover,auto",
        metavar="A,B,C",
        help=f"names or TOML tables, separated by commas (default: %(default)s); names: {', '.join(PARAMETERS)}",
    )
    command.add_argument("--mapping", metavar="F", help="a TOML file: which column is what (docs/compare.md)")
    command.add_argument("--draw", metavar="F", help="draw the plots into a .png or .svg file")
    command.add_argument("--html", metavar="F", help="write table and plots into a page that needs nothing else")
    add_config(command)
    add_json(command)


def run(args: Args) -> int:
    """Compare, show the table, and write what was asked for."""
    config = read_config(args.config)
    specs = [parse_strategy(text) for text in split(args.strategies)]
    with steps() as step:
        results = compare(config, specs, _lines(config, args.files, args.mapping), step)
    if args.draw:
        draw(results, args.draw)
    if args.html:
        names = ", ".join(Path(file).name for file in args.files)
        brokers = len(config.overlay.brokers)
        write_html(results, args.html, f"{names}, on {brokers} brokers, {config.space.dims} attributes.")
    if args.json:
        print(json.dumps({"results": [result.as_json() for result in results], "lost": lost(results)}))
    else:
        _show(results)
    return 0


def split(text: str) -> list[str]:
    """Split strategies at the commas that are in no table.

    >>> split('flood, {name = "union", budget = 5},auto')
    ['flood', '{name = "union", budget = 5}', 'auto']
    """
    return [part.strip() for part in re.findall(r"(?:\{[^}]*\}|[^,])+", text)]


def _lines(config: Config, files: list[str], mapping: str | None) -> Iterator[bytes]:
    """Return the events of all files, in their order: subscriptions should come before what they are to receive."""
    columns = read_mapping(mapping) if mapping else None
    for file in files:
        if not Path(file).is_file():
            raise LacunaError(f"{file}: there is no such file. Remedy: name a file of events")
        if Path(file).suffix.lower() not in ENDINGS:
            with Path(file).open("rb") as lines:
                yield from lines
        elif columns is None:
            raise LacunaError(
                f"{file}: its columns say nothing by themselves. Remedy: say what they are with --mapping"
            )
        else:
            yield from events_of(config, file, columns)


def _show(results: list[Result]) -> None:
    whole = at_the_end(results)
    table = Table(
        title=f"{whole[0].subscriptions:,} subscriptions", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    table.add_column("strategy")
    for title in (*(measure.title for measure in MEASURES), "deliveries"):
        table.add_column(title, justify="right")
    for result in whole:
        strategy, _, *values = cells(result)
        table.add_row(strategy, *values)
    screen = console()
    screen.print(table)
    if whole[0].rejects:
        screen.print(f"{whole[0].rejects:,} events were refused; `lacuna simulate --out` says by which rule")
    for strategy, count in lost(results).items():
        screen.print(f"{strategy} LOST {count:,} deliveries")
