"""`lacuna apply`: begin a new life of a system, stopped or running."""

from __future__ import annotations

import time
from dataclasses import replace

from access.control import ControlLog
from lacuna.cli.config_file import read_config
from lacuna.cli.console import say, show_summary
from lacuna.cli.options import Args, Parser, add_json, positive
from lacuna.cli.run import add_spark_options, engine_of
from producers.control import ask_apply
from state.config import Config
from state.errors import LacunaError
from state.protocol.commands import Apply
from streaming.apply import Applied, apply, plan, planned
from streaming.claims import Claimed
from streaming.evidence import Facts, gather
from streaming.holder import PrefixHeld
from streaming.pipeline import Engine

BETWEEN_LOOKS = 0.5


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Begin a new life of a system: with another configuration (brokers, links, strategies, attributes, domains, "
        "regions), or after a restored copy, a lost checkpoint, a Kafka that lost records. Standing subscriptions are "
        "carried over, and the router goes on where the old life ended. What cannot be kept is refused with its "
        "remedy. A running system is asked to do it; a stopped one goes on with the next run. Killed and run again, it "
        "ends in the same state."
    )
    add_spark_options(command)
    command.add_argument(
        "--from",
        dest="source",
        choices=("state", "topics"),
        default="state",
        help="state: from the checkpoint. topics: from the subscribe and unsubscribe events in Kafka, at the last tick "
        "(default: %(default)s)",
    )
    command.add_argument(
        "--move",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="the clients of the broker OLD, and what still arrives for it, go to NEW; may be given several times",
    )
    command.add_argument("--force", action="store_true", help="from topics, although their beginning is gone")
    command.add_argument("--dry-run", action="store_true", help="only show what would be done")
    command.add_argument(
        "--wait",
        type=positive,
        default=120.0,
        metavar="S",
        help="seconds that a running system may take (default: %(default)g)",
    )
    add_json(command)


def run(args: Args) -> int:
    """Begin the life, and show it."""
    config = read_config(args.config)
    engine = engine_of(config, args)
    command = Apply(args.source, args.force, config.text, moves_of(args.move))
    title = "begun"
    if args.dry_run:
        title, done = "what would be done", plan(config, engine, command, say)
    else:
        done = _applied(config, engine, command, args.wait)
    for change in done.changes:
        say(change)
    for refusal in done.refused:
        say(f"refused: {refusal}")
    facts = {"epoch": done.epoch, "changes": done.changes, "refused": done.refused}
    show_summary(facts if args.json else {"epoch": done.epoch}, title, as_json=args.json)
    return 1 if done.refused else 0


def _applied(config: Config, engine: Engine, command: Apply, patience: float) -> Applied:
    """Begin the life of a stopped system, or ask a running one."""
    try:
        return apply(config, engine, say, command)
    except (Claimed, PrefixHeld):
        return _asked(config, engine, command, patience)


def moves_of(given: list[str]) -> dict[str, str]:
    """Return where the clients of brokers go.

    >>> moves_of(["oslo=paris"])
    {'oslo': 'paris'}
    """
    for each in given:
        if not all(each.partition("=")):
            raise LacunaError(f"--move {each}: a move is OLD=NEW. Remedy: write it so, with the names of two brokers")
    return dict(each.split("=", 1) for each in given)


def _planned_here(config: Config, command: Apply, facts: Facts) -> Applied:
    """Return what is to be done, as far as that is known in this folder: the router's may be elsewhere."""
    if command.source == "state" and facts.announced not in facts.lives:
        return Applied(facts.highest + 1, [])
    return planned(config, command, facts)


def _asked(config: Config, engine: Engine, command: Apply, patience: float) -> Applied:
    """Ask the running router, and wait until it has announced a new life, or has said why it does not."""
    with ControlLog(config.kafka.bootstrap, config.kafka.prefix) as control:
        before = control.read()
        ahead = _planned_here(config, command, gather(config, before, engine.partitions))
        offset = ask_apply(config, command).offset
        until = time.monotonic() + patience
        while time.monotonic() < until:
            now = control.read()
            if now.declined is not None and now.declined.asked == offset:
                return replace(ahead, refused=now.declined.refused)
            if now.lives != before.lives and now.lives.newest is not None:
                found = now.lives.newest
                begun = f"the running router has begun life {found.epoch}"
                return Applied(found.epoch, [*ahead.changes[1:], *found.why.split("; ")[1:], begun])
            time.sleep(BETWEEN_LOOKS)
    raise LacunaError(
        f"the running router has not begun a new life within {patience:g} s. Remedy: read what it says; or stop it, "
        "and run this command again"
    )
