"""`lacuna explain`: why a subscription was or was not forwarded, an event arrives or not, and what a filter is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from lacuna.analysis.decision_log import Source
from lacuna.analysis.drawing import draw
from lacuna.analysis.explain import Found, at_present, chosen_link, find_name, find_subscription
from lacuna.analysis.explain_filter import explain_filter
from lacuna.analysis.history import event_story, subscription_story
from lacuna.analysis.lake import Tables, open_tables
from lacuna.analysis.sentences import Sentence, Story
from lacuna.analysis.trial import Trial
from lacuna.analysis.wording import words
from lacuna.cli.config_file import read_config
from lacuna.cli.console import console
from lacuna.cli.options import Args, Parser, add_config, add_json, read_filter, read_object
from state.config import Config
from state.errors import LacunaError
from state.filters.pruning import Estimate
from state.protocol.messages import Name
from state.space import Space

MOST_SHOWN = 20
"""The most boxes and ranges of a filter that a person is shown."""
MOST_DECISIONS = 8
"""The most decisions of one link that a person is shown."""
STATES_IN_WORDS = {
    "told": "told: {} knows it",
    "withheld": "withheld: {} need not know it",
    "cancelled": "cancelled: {} was told to forget it",
    "dropped": "dropped: {} had not been told",
}
"""The state of a subscription on a link, with the neighbour."""


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Tell why. Of a subscription: link by link from its own broker outward, whether it was forwarded, who covers "
        "it or what nobody covers. Of an event, tried or published: whom it reaches, which way, where it stops, and "
        "why a subscription is not reached. Of a filter: what it is, and with --broker what each link would decide. "
        "Reads the tables of the lake, or the files of a simulation; trying changes nothing."
    )
    command.add_argument("subscription", nargs="?", metavar="SUBSCRIPTION", help="the id that the client chose")
    command.add_argument("--at", metavar="JSON", help="try an event at this point")
    command.add_argument("--publication", metavar="KEY", help="a publication, by its publication_key or its id")
    command.add_argument(
        "--where", metavar="FILTER", help="show what a filter is: tree, boxes, ranges, estimated selectivity"
    )
    command.add_argument(
        "--subscription",
        dest="beside",
        metavar="S",
        help="with --at or --publication: why this one is reached or not; its id, or BROKER/CLIENT/ID",
    )
    command.add_argument("--client", metavar="NAME", help="whose it is, where several clients chose the same id")
    command.add_argument(
        "--broker",
        metavar="B",
        help="the broker that the client is attached to; with --at where the event is published (default: the first)",
    )
    add_config(command)
    command.add_argument("--from", dest="folder", metavar="DIR", help="read what `simulate --out` wrote, not the lake")
    command.add_argument("--draw", metavar="F", help="draw the situation on one link into a .png or .svg file")
    command.add_argument(
        "--attributes",
        nargs=2,
        metavar=("A", "B"),
        help="the attributes to draw (default: the two in which it is the narrowest)",
    )
    command.add_argument("--link", metavar="B>M", help="the link to draw (default: the first that decided)")
    add_json(command)


def run(args: Args) -> int:
    """Explain a subscription, an event or a filter."""
    config = read_config(args.config)
    given = [option for option, value in _subjects(args).items() if value is not None]
    if len(given) != 1:
        remedy = "name a subscription, or give one of --at, --publication and --where"
        raise LacunaError(f"explain: it explains one thing. Remedy: {remedy}")
    refuse_idle(args, given[0])
    tables = open_tables(config, Path(args.folder) if args.folder else None)
    if given[0] == "--where":
        return _run_filter(tables, args)
    if given[0] == "--at":
        return _run_event(tables, args)
    if given[0] == "--publication":
        return _tell(event_story(tables, args.publication, _beside(tables, args)), as_json=args.json)
    return _run_subscription(config, args)


def _subjects(args: Args) -> dict[str, str | None]:
    return {
        "SUBSCRIPTION": args.subscription,
        "--at": args.at,
        "--publication": args.publication,
        "--where": args.where,
    }


USED = {
    "SUBSCRIPTION": ("--client", "--broker", "--from", "--draw", "--link", "--attributes"),
    "--at": ("--subscription", "--client", "--broker", "--from"),
    "--publication": ("--subscription", "--client", "--from"),
    "--where": ("--broker", "--from"),
}
"""The options that have an effect, by what is explained."""


def refuse_idle(args: Args, subject: str) -> None:
    """Refuse options that would have no effect."""
    options = {
        "--subscription": args.beside,
        "--client": args.client,
        "--broker": args.broker,
        "--from": args.folder,
        "--draw": args.draw,
        "--link": args.link,
        "--attributes": args.attributes,
    }
    for option, value in options.items():
        if value is not None and option not in USED[subject]:
            what = "with a subscription alone" if subject == "SUBSCRIPTION" else f"with {subject}"
            raise LacunaError(f"{option}: {what} it has no effect. Remedy: name a subscription, or leave it out")
    if args.draw is None and (args.link or args.attributes):
        option = "--link" if args.link else "--attributes"
        raise LacunaError(f"{option}: it says what to draw, and nothing is drawn. Remedy: add --draw FILE")
    if subject == "--where" and args.folder and not args.broker:
        raise LacunaError("--from: what a filter is, no table says. Remedy: add --broker, to try it there")
    if subject != "SUBSCRIPTION" and args.client and not args.beside:
        raise LacunaError("--client: it says whose subscription is meant. Remedy: add --subscription S")


def _run_subscription(config: Config, args: Args) -> int:
    source = Source(config, Path(args.folder) if args.folder else None)
    found = find_subscription(source, args.subscription, args.client, args.broker)
    story = subscription_story(config, found, at_present(source, found.name, found.steps))
    drawn = None
    if args.draw:
        link = chosen_link(found.steps, args.link)
        drawn = draw(source, found.name, link, args.draw, args.attributes)
    if args.json:
        print(json.dumps(story.as_json() | {"drawing": drawn}))
    else:
        _show(found, story, drawn)
    return 0


def _run_event(tables: Tables, args: Args) -> int:
    at = read_object("--at", args.at)
    trial = Trial(tables)
    trial.refresh()
    broker = trial.broker(args.broker)
    return _tell(trial.event(at, broker, _beside(tables, args)), as_json=args.json)


def _beside(tables: Tables, args: Args) -> Name | None:
    """Return the subscription that an event is compared with. Raises `LacunaError` if it is not one."""
    return None if args.beside is None else find_name(tables, args.beside, args.client)


def _tell(story: Story, *, as_json: bool) -> int:
    """Print a story: what is true of the whole first, then a line for each link."""
    if as_json:
        print(json.dumps(story.as_json()))
        return 0
    lines = Table.grid(padding=(0, 2))
    for one in (one for one in story.sentences if one.link):
        lines.add_row(Text(one.link, "bold"), Text(one.text))
    screen = console()
    screen.print(Text(story.about, "bold"))
    for one in (one for one in story.sentences if not one.link):
        screen.print(Text(one.text))
    if lines.row_count:
        screen.print(lines)
    return 0


def _run_filter(tables: Tables, args: Args) -> int:
    where = read_filter(args.where)
    about, story = explain_filter(tables.config, where), None
    if args.broker is not None:
        trial = Trial(tables)
        trial.refresh()
        story = trial.filter(where, trial.broker(args.broker))
    if args.json:
        print(json.dumps(about | ({} if story is None else {"tried": story.as_json()})))
        return 0
    _show_filter(tables.config.space, about)
    return 0 if story is None else _tell(story, as_json=False)


def _show(found: Found, story: Story, drawn: str | None) -> None:
    """Print the story of a subscription as a tree of links, with the sentences of each."""
    name = found.name
    first = story.sentences[0].text.removeprefix(name.id).removesuffix(".")
    top = Tree(Group(Text.assemble((name.id, "bold"), first)))
    at = {-1: top}
    for step in found.steps:
        head = Text.assemble((step.name, "bold"), f"  {STATES_IN_WORDS[step.state].format(step.link)}")
        told = [one for one in story.sentences if one.link == step.name]
        at[step.depth] = at[step.depth - 1].add(Group(head, _lines(told)))
    if not found.steps:
        top.add(Text(story.sentences[-1].text.removesuffix(".")))
    screen = console()
    screen.print(top)
    if drawn:
        screen.print(f"drawn: {drawn}")


def _lines(told: list[Sentence]) -> Table:
    """Return the sentences about one link, a line each, the latest last."""
    lines = Table.grid(padding=(0, 2))
    left_out = max(0, len(told) - MOST_DECISIONS)
    if left_out:
        lines.add_row("", Text(f"{left_out} earlier decisions: --json has all", "dim"))
    for one in told[left_out:-1]:
        lines.add_row(Text(one.time, "dim"), Text(one.text, "dim"))
    lines.add_row(Text(told[-1].time), Text(told[-1].text))
    return lines


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
