"""`lacuna status`: is the job healthy, how far behind, how fast; once, or live.

The job itself knows, and is asked over HTTP (`lacuna.analysis.job`).
"""

from __future__ import annotations

import json
import time
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lacuna.analysis.job import address_of, status_at
from lacuna.cli.config_file import read_config
from lacuna.cli.console import console
from lacuna.cli.options import Args, Parser, add_config, add_json
from state.config import Config
from state.errors import ConfigError

HEALTHY, DEGRADED, DOWN = 0, 1, 2
BETWEEN_LOOKS = 1.0
COLOURS = {"healthy": "bold green", "starting": "bold yellow", "degraded": "bold yellow", "down": "bold red"}


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Show how the job is. Exit code 0: healthy; 1: it runs, but starts or is degraded; 2: it does not answer."
    )
    add_config(command)
    command.add_argument("--url", metavar="URL", help="where the job answers (default: as in [engine], here)")
    command.add_argument("--watch", action="store_true", help="show it live, until Ctrl-C")
    add_json(command)


def run(args: Args) -> int:
    """Show the status once, or until stopped."""
    config = read_config(args.config)
    url = args.url or address_of(config)
    if not url.startswith(("http://", "https://")):
        raise ConfigError("--url", url, "it is the address of a job", "write it as http://HOST:PORT")
    if args.watch:
        return _follow(config, url, as_json=args.json)
    status = status_at(config, url)
    _show(status, as_json=args.json)
    return code_of(status)


def code_of(status: dict[str, Any]) -> int:
    """Return the exit code of a status."""
    return {"healthy": HEALTHY, "down": DOWN}.get(status["state"], DEGRADED)


def _follow(config: Config, url: str, *, as_json: bool) -> int:
    """Show the status again and again. Return the exit code of the last one."""
    status = status_at(config, url)
    try:
        if as_json:
            while True:
                print(json.dumps(status), flush=True)
                time.sleep(BETWEEN_LOOKS)
                status = status_at(config, url)
        with Live(screen(status), console=console(), auto_refresh=False) as live:
            while True:
                time.sleep(BETWEEN_LOOKS)
                status = status_at(config, url)
                live.update(screen(status), refresh=True)
    except KeyboardInterrupt:
        return code_of(status)


def _show(status: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(status))
    else:
        console().print(screen(status))


def screen(status: dict[str, Any]) -> RenderableType:
    """Return a status as a person reads it."""
    state = status["state"]
    head = Text.assemble(f"lacuna {status['prefix']}  ", (state.upper(), COLOURS[state]))
    parts: list[RenderableType] = [head, *(Text(f"  {reason}", "yellow") for reason in status["reasons"])]
    if state == "down":
        return Group(*parts)
    head.append(f"  epoch {status['epoch']}  up {_long(status['uptime_seconds'])}")
    head.append(f"  Kafka {'up' if status['kafka']['up'] else 'DOWN'}")
    rates = status["per_second"]
    parts += [
        _queries(status["queries"]),
        Text(
            f"in {rates['in']:,.0f}/s  delivered {rates['delivered']:,.0f}/s  rejected {rates['rejected']:,.0f}/s  "
            f"standing {status['standing']:,}"
        ),
    ]
    if status["hottest"]:
        parts.append(Text(f"hottest {', '.join(status['hottest'])}"))
    return Group(*parts)


def _queries(queries: dict[str, dict[str, Any]]) -> Table:
    table = Table("query", "batch", "lag", "commit", "batch time", box=None, pad_edge=False, header_style="dim")
    for name, query in queries.items():
        age = query["commit_age_seconds"]
        table.add_row(
            name if query["active"] else f"{name} (stopped)",
            "-" if query["batch"] is None else f"{query['batch']:,}",
            f"{query['lag_records']:,} ({query['lag_seconds']:.0f} s)",
            "-" if age is None else f"{_long(age)} ago",
            f"{query['batch_seconds']:.2f} s",
        )
    return table


def _long(seconds: float) -> str:
    """Return a span of time as people say it.

    >>> _long(0.25), _long(75), _long(3 * 3600 + 5), _long(90_000)
    ('0.2 s', '1 min', '3 h', '1 d')
    """
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.1f} s"
