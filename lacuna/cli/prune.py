"""`lacuna prune`: ask links of a running router to prune in another way, or not at all."""

from __future__ import annotations

import msgspec

from lacuna.cli.config_file import read_config
from lacuna.cli.console import show_summary
from lacuna.cli.options import Args, Parser, add_config, add_deadline, add_json, amount, count
from producers.control import ask_prune
from state.config import Config
from state.errors import ConfigError
from state.filters.pruning import DIMENSIONS
from state.protocol.commands import CHOICES, Prune
from state.strategies import COMMON


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Ask links of a running router to prune what they heard from now on, whatever is configured: by network, "
        "memory or throughput; off: not at all; configured: as the configuration says, again. It holds until the next "
        "such command, also after a restart. metrics shows it link by link; deliveries do not change."
    )
    command.add_argument("prune", choices=CHOICES, metavar="HOW", help=", ".join(CHOICES))
    command.add_argument(
        "--prunings", type=count, metavar="N", help="how many at most (default: as docs/pruning.md says)"
    )
    command.add_argument("--worst", type=amount, metavar="X", help="the worst that is still done (default: any)")
    command.add_argument(
        "--link",
        action="append",
        metavar="A>B",
        help="a link, by what A heard from B; may be given several times (default: all)",
    )
    add_config(command)
    add_deadline(command)
    add_json(command)


def run(args: Args) -> int:
    """Send the command, and show where in Kafka it is."""
    config = read_config(args.config)
    links = _prunable(config, args.link)
    _check_stops(args.prune, args.prunings, args.worst)
    command = Prune(args.prune, args.prunings, args.worst, None if args.link is None else tuple(links))
    place = ask_prune(config, command, deadline=args.deadline)
    asked = {**msgspec.to_builtins(command), "links": links if args.json else ", ".join(links)}
    show_summary({"asked": True, **asked, **place._asdict()}, "prune", as_json=args.json)
    return 0


def _prunable(config: Config, named: list[str] | None) -> list[str]:
    """Return the links that were named, or all. Raises `ConfigError` if one is unknown or cannot be pruned."""
    known = {f"{a}>{b}": config.spec_of(a, b) for a, b in config.overlay.directions()}
    for link in named or ():
        if link not in known:
            raise ConfigError("--link", link, "the overlay has no such link", f"name some of {', '.join(known)}")
    if any(spec.by_ranges for spec in known.values()):
        rule = "links under mics speak in ranges, which are no filters that could be pruned"
        raise ConfigError("routing.strategy", "mics", rule, "leave it unpruned, or choose another strategy")
    return list(dict.fromkeys(known if named is None else named))


def _check_stops(prune: str, prunings: int | None, worst: float | None) -> None:
    """Refuse limits where nothing is pruned, and limits that are too large."""
    for option, stop in (("--prunings", prunings), ("--worst", worst)):
        if stop is not None and prune not in DIMENSIONS:
            remedy = f"leave it out, or ask for {' or '.join(DIMENSIONS)}"
            raise ConfigError(option, stop, f"with {prune} there is nothing to stop", remedy)
    if prunings is not None and not COMMON["prunings"].holds(prunings):
        raise ConfigError("--prunings", prunings, f"it must be {COMMON['prunings'].words}", "choose a smaller one")
