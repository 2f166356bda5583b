"""`lacuna archive`: look after the Delta tables."""

from __future__ import annotations

from lacuna.cli.config_file import read_config
from lacuna.cli.console import say, show_summary
from lacuna.cli.options import Args, Parser, add_config, add_json
from streaming.life import known
from streaming.maintenance import maintain, rebuild


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "maintain: delete rows that are older than [lake] keep, compact the tables and remove old files, also beside a "
        "running job. "
        "rebuild: set the tables aside, so that the next run fills them again from the records topic."
    )
    command.add_argument("what", choices=("maintain", "rebuild"))
    add_config(command)
    command.add_argument("--retention-hours", type=int, default=168, metavar="N", help="default: %(default)s")
    add_json(command)


def run(args: Args) -> int:
    """Maintain or rebuild the tables, and show the result."""
    config = read_config(args.config)
    settings = known(config)
    if args.what == "rebuild":
        rebuilt = rebuild(settings, tell=lambda table, stage: say(f"{table}: {stage}"))
        title = "set aside; the next run fills the tables again"
        show_summary({"rebuilt": True, **rebuilt.rows}, title, as_json=args.json)
        return 0
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
