"""`lacuna apply`: begin a new life of a stopped system."""

from __future__ import annotations

from lacuna.cli.config_file import read_config
from lacuna.cli.console import say, show_summary
from lacuna.cli.options import Args, Parser, add_json
from lacuna.cli.run import add_spark_options, engine_of
from streaming.apply import apply


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Begin a new life of a stopped system: after a restored copy, a lost checkpoint, a Kafka that lost records, or "
        "with other regions. Standing subscriptions are carried over, and the next run goes on where the old life "
        "ended. Killed and run again, it ends in the same state."
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
    command.add_argument("--force", action="store_true", help="from topics, although their beginning is gone")
    command.add_argument("--dry-run", action="store_true", help="only show what would be done")
    add_json(command)


def run(args: Args) -> int:
    """Begin the life, and show it."""
    config = read_config(args.config)
    done = apply(config, engine_of(args), say, args.source, force=args.force, dry_run=args.dry_run)
    for change in done.changes:
        say(change)
    title = "what would be done" if args.dry_run else "begun; start the job to go on: lacuna run"
    facts = {"epoch": done.epoch, "changes": done.changes, "refused": []}
    show_summary(facts if args.json else {"epoch": done.epoch}, title, as_json=args.json)
    return 0
