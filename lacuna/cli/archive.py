"""`lacuna archive`: look after the Delta tables."""

from __future__ import annotations

from dataclasses import asdict

from lacuna.cli.config_file import read_config
from lacuna.cli.console import say, show_summary
from lacuna.cli.options import Args, Parser, add_config, add_json, show_lines, subcommands
from lacuna.local import keep_private, spark_jars
from streaming.life import known
from streaming.maintenance import maintain
from streaming.pipeline import Engine, brief_session
from streaming.rebuild import fill_with, rebuild


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Look after the Delta tables."
    tasks = subcommands(command)
    upkeep = tasks.add_parser("maintain", help="delete old rows, compact the tables, remove old files")
    upkeep.description = (
        "Delete rows that are older than [lake] keep, compact the tables and remove old files, also beside a running "
        "job."
    )
    show_lines(upkeep, "example: lacuna archive maintain --retention-hours 24")
    upkeep.add_argument(
        "--retention-hours",
        type=int,
        default=168,
        metavar="N",
        help="reach of time travel (default: %(default)s)",
    )
    upkeep.set_defaults(task=_maintain)
    again = tasks.add_parser("rebuild", help="fill the tables again from the records topic")
    again.description = (
        "Read the whole records topic into new tables, then put them in the place of the old ones, which are set aside "
        "in a folder beside them. The archive must be stopped. Killed at any moment, run it again."
    )
    show_lines(again, "example: lacuna archive rebuild --config lacuna.toml")
    again.add_argument("--force", action="store_true", help="go on although the topic has lost what is in the tables")
    again.set_defaults(task=_rebuild)
    for task in (upkeep, again):
        add_config(task)
        add_json(task)


def run(args: Args) -> int:
    """Maintain or rebuild the tables, and show the result."""
    keep_private()
    return int(args.task(args))


def _rebuild(args: Args) -> int:
    settings = known(read_config(args.config))
    say("starting Spark")
    with brief_session(Engine(jars=spark_jars(), partitions=1)) as spark:
        rebuilt = rebuild(settings, fill_with(spark, settings.config.lake.writer or "rust"), force=args.force, tell=say)
    if args.json:
        show_summary(asdict(rebuilt), "", as_json=True)
    else:
        rows = {table: f"{count:,} rows, before {rebuilt.before[table]:,}" for table, count in rebuilt.after.items()}
        show_summary({**rows, "the old tables are in": rebuilt.aside}, "rebuilt", as_json=False)
    return 0


def _maintain(args: Args) -> int:
    settings = known(read_config(args.config))
    done = maintain(settings, args.retention_hours, tell=lambda table, stage: say(f"{table}: {stage}"))
    summary = {
        f"{table}_{what}": value
        for table, upkeep in done.items()
        for what, value in (
            ("expired", upkeep.expired),
            ("files_before", upkeep.before.files),
            ("files_after", upkeep.after.files),
        )
    }
    show_summary(summary, "maintained", as_json=args.json)
    return 0
