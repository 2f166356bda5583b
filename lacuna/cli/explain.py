"""`lacuna explain`: why a subscription was or was not forwarded; with `--where`, what a filter is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from lacuna.analysis.decision_log import Source, name_of
from lacuna.analysis.drawing import draw
from lacuna.analysis.explain import (
    STATES,
    Present,
    Step,
    as_json,
    at_present,
    because,
    chosen_link,
    find_subscription,
    last_shape,
    outward_links,
)
from lacuna.analysis.explain_filter import explain_filter
from lacuna.analysis.wording import words
from lacuna.cli.config_file import read_config
from lacuna.cli.console import console
from lacuna.cli.options import Args, Parser, add_config, add_json, read_filter
from state.config import Config
from state.errors import LacunaError
from state.filters.pruning import Estimate
from state.protocol.messages import Name
from state.space import Space

MOST_SHOWN = 20
"""The most boxes and ranges of a filter that a person is shown."""


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Show, link by link from its own broker outward, whether a subscription was forwarded and why: who covers it, "
        "or a box that nobody covers. Reads the tables of the lake, or the files of a simulation."
    )
    command.add_argument("subscription", nargs="?", metavar="SUBSCRIPTION", help="the id that the client chose")
    command.add_argument(
        "--where", metavar="FILTER", help="show what a filter is: tree, boxes, ranges, estimated selectivity"
    )
    command.add_argument("--client", metavar="NAME", help="whose it is, where several clients chose the same id")
    command.add_argument("--broker", metavar="B", help="the broker that the client is attached to")
    add_config(command)
    command.add_argument("--from", dest="folder", metavar="DIR", help="read what `simulate --out` wrote, not the lake")
    command.add_argument("--draw", metavar="F", help="draw the situation on one link into a .png or .svg file")
    command.add_argument(
        "--attributes",
        nargs=2,
        metavar=("A", "B"),
        help="the attributes to draw (default: the first two, or the only one)",
    )
    command.add_argument("--link", metavar="B>M", help="the link to draw (default: the first that decided)")
    add_json(command)


def run(args: Args) -> int:
    """Explain a subscription or a filter."""
    config = read_config(args.config)
    if (args.where is None) == (args.subscription is None):
        raise LacunaError("explain: it explains one thing. Remedy: name a subscription, or give a filter with --where")
    refuse_idle(args)
    if args.where is not None:
        return _run_filter(config, args.where, as_json=args.json)
    source = Source(config, Path(args.folder) if args.folder else None)
    rows = source.decisions(subscription=args.subscription)
    name = find_subscription(rows, source, args.subscription, args.client, args.broker)
    steps = list(outward_links(config, [row for row in rows if name_of(row) == name]))
    present = at_present(source, name, steps)
    drawn = None
    if args.draw:
        link = chosen_link(steps, args.link)
        drawn = draw(source, name, link, args.draw, args.attributes)
    if args.json:
        print(json.dumps(as_json(name, steps, present, drawn)))
    else:
        _show(config.space, name, steps, present, drawn)
    return 0


def refuse_idle(args: Args) -> None:
    """Refuse options that would have no effect."""
    drawing = {"--draw": args.draw, "--link": args.link, "--attributes": args.attributes}
    naming = {"--client": args.client, "--broker": args.broker, "--from": args.folder}
    idle = [option for option, value in (drawing | naming).items() if value is not None] if args.where else []
    if idle:
        raise LacunaError(f"{idle[0]}: with --where it has no effect. Remedy: name a subscription, or leave it out")
    if args.draw is None and (args.link or args.attributes):
        option = "--link" if args.link else "--attributes"
        raise LacunaError(f"{option}: it says what to draw, and nothing is drawn. Remedy: add --draw FILE")


def _run_filter(config: Config, where: str, *, as_json: bool) -> int:
    about = explain_filter(config, read_filter(where))
    if as_json:
        print(json.dumps(about))
    else:
        _show_filter(config.space, about)
    return 0


def _show(space: Space, name: Name, steps: list[Step], present: Present, drawn: str | None) -> None:
    """Print the explanation for a person, as a tree of links."""
    shape = last_shape(steps)
    asks = "a filter that was not recorded" if shape is None else " or ".join(words(space, where) for where in shape)
    top = Tree(Text.assemble((name.id, "bold"), f" of {name.client} at {name.broker} asks for {asks}"))
    at = {-1: top}
    for step in steps:
        said = because(space, step.last, present.get(step.name))
        at[step.depth] = at[step.depth - 1].add(Text.assemble((step.name, "bold"), f" {step.state}: {said}"))
        for row in step.rows[:-1]:
            said = because(space, row)
            at[step.depth].add(Text(f"earlier, {row['time']}: {STATES[row['action']]}: {said}", "dim"))
    screen = console()
    screen.print(top)
    if drawn:
        screen.print(f"drawn: {drawn}")


def _show_filter(space: Space, about: dict[str, Any]) -> None:
    """Print everything about a filter for a person."""
    screen = console()
    for line in _tree_lines(about["tree"], ""):
        screen.print(line, highlight=False)
    table = Table(show_header=False)
    least, average, most = Estimate(**about["selectivity"])
    table.add_row("predicates", f"{about['predicates']}, at least {about['pmin']} of them must hold")
    table.add_row("selectivity", f"{average:.3g} (from {least:.3g} to {most:.3g}), publications being uniform")
    travels = "as it is" if about["exact"] else f"more general: {about['travels']}"
    table.add_row("travels", f"{travels}, {len(about['boxes'])} boxes, {about['volume']:.3g} of the space")
    for k, box in enumerate(about["boxes"][:MOST_SHOWN], 1):
        table.add_row(f"box {k}", words(space, box))
    ranges = about["ranges"]
    shown = ", ".join(f"{a}..{b}" for a, b in ranges["ranges"][:MOST_SHOWN])
    more = " ..." if ranges["count"] > MOST_SHOWN else ""
    table.add_row("ranges", f"{ranges['count']} on the curve {ranges['curve']}: {shown}{more}")
    screen.print(table)


def _tree_lines(node: dict[str, Any], before: str) -> Iterator[str]:
    """Yield a line for each node of a tree, with its selectivity."""
    kind = next(iter(node))
    what = node["predicate"] if kind == "predicate" else kind.upper() if node[kind] else "everything"
    yield f"{before}{what}   {node['selectivity']:.3g}"
    for child in node[kind] if kind != "predicate" else ():
        yield from _tree_lines(child, before + "    ")
