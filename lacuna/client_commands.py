"""The commands of those who use a running system: produce a workload, subscribe, unsubscribe, publish, listen.

And what its operator asks of it: rebuild, prune.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

from access.connection import DEADLINE
from access.topics import ensure_topics
from lacuna.config_file import read_config
from lacuna.console import console, description
from producers.client import Client, checked_broker, checked_name
from producers.control import ask_prune, ask_rebuild
from producers.deliveries import Deliveries, Delivery
from producers.produce import produce_to_kafka
from producers.sender import Sent
from producers.workloads import WORKLOADS, Workload
from state.config import Config
from state.errors import ConfigError
from state.filters.pruning import DIMENSIONS
from state.protocol.commands import WISHES, Wish
from state.protocol.events import KINDS, once
from state.strategies import COMMON

Parser = argparse.ArgumentParser
Subparsers = Any


# Options that several commands have


def _add_config(command: Parser) -> None:
    command.add_argument(
        "--config", default="lacuna.toml", metavar="F", help="the configuration (default: %(default)s)"
    )


def _add_deadline(command: Parser) -> None:
    command.add_argument(
        "--deadline",
        type=_positive,
        default=DEADLINE,
        metavar="S",
        help="seconds that Kafka may take to answer (default: %(default)g)",
    )


def _add_broker(command: Parser) -> None:
    command.add_argument(
        "--broker", metavar="B", help="the broker that the client is attached to; may be left out if there is only one"
    )


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number of at least 0")
    return number


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")
    return share


def show_summary(summary: dict[str, Any], title: str, *, as_json: bool) -> None:
    """A summary: one JSON object for machines, a table for people."""
    if as_json:
        print(json.dumps(summary))
        return
    table = Table(title=title, show_header=False)
    for key, value in summary.items():
        if not isinstance(value, dict):
            table.add_row(key.replace("_", " "), f"{value:,}" if isinstance(value, int | float) else str(value))
    console().print(table)


# lacuna produce


def add_produce(sub: Subparsers) -> None:
    command = sub.add_parser(
        "produce",
        help="generate a seeded workload of events, into Kafka or a file",
        description="Generate a workload for a configuration: subscriptions, cancellations and publications. Goes into "
        "the configured Kafka (missing topics are created) or, with --out, into an events file for simulate.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="workloads:\n" + "\n".join(f"  {name:<10} {about}" for name, (_, about) in WORKLOADS.items()),
    )
    command.add_argument("workload", choices=sorted(WORKLOADS), metavar="WORKLOAD", help=", ".join(sorted(WORKLOADS)))
    _add_config(command)
    command.add_argument("--out", metavar="F", help="an events file to write instead; - for standard output")
    command.add_argument("--rate", type=_positive, metavar="N", help="events per second (default: as fast as it goes)")
    command.add_argument("--seed", type=int, default=1, metavar="N", help="the same seed, the same events (default: 1)")
    command.add_argument("--subscriptions", type=_count, default=1000, metavar="N", help="default: %(default)s")
    command.add_argument("--publications", type=_count, default=5000, metavar="N", help="default: %(default)s")
    command.add_argument(
        "--cancelled",
        type=_share,
        default=None,
        metavar="SHARE",
        help="share of the subscriptions cancelled again, 0 to 1 (default: 0.2, for churn 0.9)",
    )
    _add_deadline(command)
    command.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    command.set_defaults(run=run_produce)


def run_produce(args: argparse.Namespace) -> int:
    config = read_config(args.config)
    workload = Workload(args.workload, args.subscriptions, args.publications, args.cancelled, args.seed)
    if args.out is not None and args.rate is not None:
        raise ConfigError("--rate", args.rate, "a file has no rate", "leave out --rate, or --out to send into Kafka")
    summary: dict[str, Any] = {"workload": args.workload, "seed": args.seed}
    if args.out is None:
        ensure_topics(config.kafka.bootstrap, config.kafka.prefix, deadline=args.deadline)
        with _progress(workload.total) as progress:
            summary |= produce_to_kafka(config, workload, args.rate, progress, deadline=args.deadline)
        summary |= {"bootstrap": config.kafka.bootstrap, "prefix": config.kafka.prefix}
    else:
        summary |= {**_produce_to_file(config, workload, args.out), "out": args.out}
    if args.out != "-":
        show_summary(summary, "workload", as_json=args.json)
    return 0


def _produce_to_file(config: Config, workload: Workload, out: str) -> dict[str, int]:
    counts: dict[str, int] = dict.fromkeys(KINDS, 0)
    with _lines(out) as write, _progress(workload.total) as progress:
        for number, event in enumerate(workload.events(config), 1):
            write(json.dumps(event) + "\n")
            counts[event["kind"]] += 1
            if number % 256 == 0:
                progress(number)
    return counts


@contextmanager
def _lines(path: str) -> Iterator[Callable[[str], int]]:
    """Where lines go: a file, or standard output for `-`."""
    if path == "-":
        yield sys.stdout.write
    else:
        with Path(path).open("w", encoding="utf-8") as file:
            yield file.write


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, for people only."""
    columns = (description(), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("producing", total=total)
        yield lambda done: bar.update(task, completed=done)


# lacuna subscribe, unsubscribe, publish


def add_subscribe(sub: Subparsers) -> None:
    command = sub.add_parser(
        "subscribe",
        help="ask for a part of the space",
        description="Subscribe a client, or replace what it asked for under the same id.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""example: lacuna subscribe --broker oslo --client ann --id s1 --where '{"price": [10, 20]}' --ttl 9""",
    )
    _add_name(command)
    command.add_argument(
        "--where",
        required=True,
        metavar="FILTER",
        help="a text such as \"price < 20 AND (symbol = 'IBM' OR volume > 500)\", or JSON: an object of ranges with "
        "both ends closed and null for an open end, lists of values for a category; {} asks for everything",
    )
    command.add_argument("--ttl", type=_positive, metavar="S", help="seconds until it ends by itself (default: never)")
    _add_sending(command)
    command.set_defaults(run=run_subscribe)


def add_unsubscribe(sub: Subparsers) -> None:
    command = sub.add_parser(
        "unsubscribe",
        help="ask for it no longer",
        description="Cancel a subscription.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: lacuna unsubscribe --broker oslo --client ann --id s1",
    )
    _add_name(command)
    _add_sending(command)
    command.set_defaults(run=run_unsubscribe)


def add_publish(sub: Subparsers) -> None:
    command = sub.add_parser(
        "publish",
        help="publish a point of the space",
        description="Publish an event.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""example: lacuna publish --broker rome --id p1 --at '{"price": 12.5, "volume": 150}' --payload hi""",
    )
    command.add_argument("--id", metavar="ID", help="its id (default: a new one)")
    command.add_argument("--at", required=True, metavar="POINT", help="a JSON object that names every attribute")
    command.add_argument("--payload", metavar="TEXT", help="anything: taken as JSON if it is JSON, otherwise as text")
    _add_sending(command)
    command.set_defaults(run=run_publish)


def _add_name(command: Parser) -> None:
    command.add_argument("--client", required=True, metavar="NAME", help="the client")
    command.add_argument("--id", required=True, metavar="ID", help="the client's name for the subscription")


def _add_sending(command: Parser) -> None:
    _add_broker(command)
    _add_config(command)
    _add_deadline(command)
    command.add_argument("--json", action="store_true", help="print the event and its place as one JSON object")


def run_subscribe(args: argparse.Namespace) -> int:
    where = read_filter(args.where)
    return _send(args, args.client, lambda client: client.subscribe(args.id, where, args.ttl))


def run_unsubscribe(args: argparse.Namespace) -> int:
    return _send(args, args.client, lambda client: client.unsubscribe(args.id))


def run_publish(args: argparse.Namespace) -> int:
    id = uuid.uuid4().hex if args.id is None else args.id
    at, payload = _object("--at", args.at), _payload(args.payload)
    return _send(args, "publisher", lambda client: client.publish(id, at, payload))


def _send(args: argparse.Namespace, name: str, send: Callable[[Client], Sent]) -> int:
    """Connect, send one event, wait until Kafka has it, say so."""
    config = read_config(args.config)
    broker = _broker(config, args.broker)
    ensure_topics(config.kafka.bootstrap, config.kafka.prefix, deadline=args.deadline)
    with Client(config, broker=broker, name=name, deadline=args.deadline) as client:
        sent = send(client)
        place = sent.place(args.deadline)
    event = json.loads(sent.value)
    if args.json:
        print(json.dumps({"kind": args.command, "broker": broker, "event": event, **place._asdict()}))
    else:
        print(f"{args.command} {event['id']} at {broker}: {place.topic}, partition {place.partition}, {place.offset}")
    return 0


def _broker(config: Config, given: str | None) -> str:
    """The broker that was named, or the only one."""
    brokers = config.overlay.brokers
    if given is not None:
        return checked_broker(config, given)
    if len(brokers) > 1:
        raise ConfigError("--broker", None, f"there are {len(brokers)} brokers", f"name one of {', '.join(brokers)}")
    return brokers[0]


WRITTEN = {
    "--at": "write it as '{\"price\": 12.5}'",
    "--where": "write it as '{\"price\": [10, 20]}', or as text such as 'price < 20 OR volume > 500'",
}
"""How to write what an option takes."""


def read_filter(text: str) -> dict[str, Any] | list[Any] | str:
    """A filter: a JSON object or list, or else text, for the check of events to judge."""
    if text.lstrip().startswith("["):
        return cast(list[Any], _json("--where", text))
    return _object("--where", text) if text.lstrip().startswith("{") else text


def _json(option: str, text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ConfigError(option, text, f"it is not JSON: {error}", WRITTEN[option]) from None


def _object(option: str, text: str) -> dict[str, Any]:
    value = _json(option, text)
    if not isinstance(value, dict):
        raise ConfigError(option, text, "it is not a JSON object", WRITTEN[option])
    return value


def _payload(text: str | None) -> Any:
    """JSON if it is JSON, otherwise the text itself."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


# lacuna listen


def add_listen(sub: Subparsers) -> None:
    command = sub.add_parser(
        "listen",
        help="show a client's deliveries as they come",
        description="Show a client's deliveries, each once, until stopped (Ctrl-C or SIGTERM: exit code 0).",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: lacuna listen --client ann --count 1 --timeout 60",
    )
    command.add_argument("--client", required=True, metavar="NAME", help="the client")
    command.add_argument("--from-beginning", action="store_true", help="also what was delivered before")
    command.add_argument(
        "--group", metavar="NAME", help="remember progress in Kafka under this name, and go on from it"
    )
    command.add_argument("--count", type=_count, metavar="N", help="end after so many deliveries")
    command.add_argument(
        "--timeout",
        type=_positive,
        metavar="S",
        help="end after so many seconds without a delivery; exit code 1 if there were fewer than --count",
    )
    _add_config(command)
    _add_deadline(command)
    command.add_argument("--json", action="store_true", help="print one JSON object a delivery")
    command.set_defaults(run=run_listen)


def run_listen(args: argparse.Namespace) -> int:
    config = read_config(args.config)
    options = {"from_beginning": args.from_beginning, "timeout": args.timeout, "group": args.group}
    ensure_topics(config.kafka.bootstrap, config.kafka.prefix, deadline=args.deadline)
    with (
        Deliveries(config.kafka, checked_name(args.client), deadline=args.deadline, **options) as deliveries,
        _until_stopped(deliveries) as stopped,
    ):
        print(f"listening for {args.client} at {config.kafka.bootstrap}", file=sys.stderr, flush=True)
        shown = _show_deliveries(deliveries, args.count, as_json=args.json)
        return 1 if not stopped and args.count is not None and shown < args.count else 0


def _show_deliveries(deliveries: Deliveries, most: int | None, *, as_json: bool) -> int:
    shown = 0
    while shown != most and (delivery := next(deliveries, None)) is not None:
        print(msgspec.json.encode(delivery).decode() if as_json else _line(delivery), flush=True)
        shown += 1
    return shown


def _line(delivery: Delivery) -> str:
    at = json.dumps(delivery.at, ensure_ascii=False)
    payload = "" if delivery.payload is None else json.dumps(delivery.payload, ensure_ascii=False)
    what = f"{delivery.publication} for {delivery.subscription} at {delivery.broker}"
    return "  ".join(part for part in (delivery.time, what, at, payload) if part)


@contextmanager
def _until_stopped(deliveries: Deliveries) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM end the listening, not the program in the middle of something; the signals that came."""
    came: list[int] = []

    def stop(number: int, _: object) -> None:
        came.append(number)
        deliveries.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# lacuna rebuild


def add_rebuild(sub: Subparsers) -> None:
    command = sub.add_parser(
        "rebuild",
        help="have a running router compute its approximate negative rectangles anew",
        description="Ask every link of a running router whose strategy is approximate to compute its negative "
        "rectangles anew from what is active. It is done in small parts, at ticks (run --tick); finished rebuilds are "
        "counted in metrics. Nothing is sent to neighbours.",
    )
    _add_config(command)
    _add_deadline(command)
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=run_rebuild)


def run_rebuild(args: argparse.Namespace) -> int:
    place = ask_rebuild(read_config(args.config), deadline=args.deadline)
    show_summary({"asked": True, **place._asdict()}, "rebuild", as_json=args.json)
    return 0


# lacuna prune


def add_prune(sub: Subparsers) -> None:
    command = sub.add_parser(
        "prune",
        help="have a running router prune otherwise, or not at all",
        description="Ask links of a running router to prune what they heard from now on, whatever is configured: by "
        "network, memory or throughput; off: not at all; configured: as the configuration says, again. It holds until "
        "the next such wish, also after a restart. metrics shows it link by link; deliveries do not change.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: lacuna prune network --prunings 10000 --link 'oslo>paris'",
    )
    command.add_argument("prune", choices=WISHES, metavar="HOW", help=", ".join(WISHES))
    command.add_argument(
        "--prunings", type=_count, metavar="N", help="how many at most (default: as docs/pruning.md says)"
    )
    command.add_argument("--worst", type=_amount, metavar="X", help="the worst that is still done (default: any)")
    command.add_argument(
        "--link",
        action="append",
        metavar="A>B",
        help="a link, by what A heard from B; may be given several times (default: all)",
    )
    _add_config(command)
    _add_deadline(command)
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=run_prune)


def run_prune(args: argparse.Namespace) -> int:
    config = read_config(args.config)
    links = _prunable(config, args.link)
    _check_stops(args.prune, args.prunings, args.worst)
    wish = Wish(args.prune, args.prunings, args.worst, None if args.link is None else tuple(links))
    place = ask_prune(config, wish, deadline=args.deadline)
    asked = {**msgspec.to_builtins(wish), "links": links if args.json else ", ".join(links)}
    show_summary({"asked": True, **asked, **place._asdict()}, "prune", as_json=args.json)
    return 0


def _prunable(config: Config, named: list[str] | None) -> list[str]:
    """The links that were named, or all."""
    known = {f"{a}>{b}": config.spec_of(a, b) for a, b in config.overlay.directions()}
    for link in named or ():
        if link not in known:
            raise ConfigError("--link", link, "the overlay has no such link", f"name some of {', '.join(known)}")
    if any(spec.by_ranges for spec in known.values()):
        rule = "links under mics speak in ranges, which are no filters that could be pruned"
        raise ConfigError("routing.strategy", "mics", rule, "leave it unpruned, or choose another strategy")
    return list(dict.fromkeys(known if named is None else named))


def _check_stops(prune: str, prunings: int | None, worst: float | None) -> None:
    for option, stop in (("--prunings", prunings), ("--worst", worst)):
        if stop is not None and prune not in DIMENSIONS:
            remedy = f"leave it out, or ask for {' or '.join(DIMENSIONS)}"
            raise ConfigError(option, stop, f"with {prune} there is nothing to stop", remedy)
    if prunings is not None and not COMMON["prunings"].holds(prunings):
        raise ConfigError("--prunings", prunings, f"it must be {COMMON['prunings'].words}", "choose a smaller one")


COMMANDS: tuple[Callable[[Subparsers], None], ...] = (
    add_produce,
    add_subscribe,
    add_unsubscribe,
    add_publish,
    add_listen,
    add_rebuild,
    add_prune,
)
