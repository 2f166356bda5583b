"""The command line: one module per command, all of the same form.

    declare(parser)     describe the command and add its options
    run(args)           run it, and return the exit code

`COMMANDS` names the module of each command. Only the module of the command that was asked for is imported: Spark alone
takes a second or two. Beside the commands are what several of them share: `options`, `sending`, `config_file`, and for
the output `console` and `progress`.

A command reads its options, calls what does the work (`lacuna.analysis`, `lacuna.simulate`, `producers`, `streaming`)
and shows the result: a table for a person, one JSON object with `--json` for a program.

`bench` stands above everything, so nothing may import it. Its command is part of it, and is named here like the others.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command: the module that declares and runs it, and the line that `lacuna --help` shows."""

    module: str
    about: str


COMMANDS = {
    "demo": Command(
        "lacuna.cli.demo",
        "everything on this machine: a local Kafka, the job, a workload, a report; ends by itself",
    ),
    "up": Command("lacuna.cli.up", "a local Kafka and the job, until stopped"),
    "run": Command("lacuna.cli.run", "the long-running job, against the configured Kafka"),
    "apply": Command(
        "lacuna.cli.apply", "begin a new life of a system, stopped or running: the remedy of most refusals"
    ),
    "sql": Command("lacuna.cli.sql", "Spark SQL over the Delta tables"),
    "archive": Command("lacuna.cli.archive", "look after the Delta tables: maintain, rebuild"),
    "simulate": Command("lacuna.cli.simulate", "run a file of events through the overlay, without Kafka and Spark"),
    "explain": Command("lacuna.cli.explain", "why a subscription was or was not forwarded, link by link"),
    "lint": Command(
        "lacuna.cli.lint",
        "which subscriptions of a file are empty, duplicate or covered by others, before they are sent",
    ),
    "chain": Command(
        "lacuna.cli.chain", "how likely strategy probabilistic finds a publication along a path of brokers"
    ),
    "fit": Command("lacuna.cli.fit", "learn cells from publications, and write them into the configuration"),
    "bench": Command("bench.command", "measure, and compare with the papers and with peers"),
    "produce": Command("lacuna.cli.produce", "generate a seeded workload of events, into Kafka or a file"),
    "subscribe": Command("lacuna.cli.subscribe", "ask for a part of the space"),
    "unsubscribe": Command("lacuna.cli.unsubscribe", "ask for it no longer"),
    "publish": Command("lacuna.cli.publish", "publish a point of the space"),
    "listen": Command("lacuna.cli.listen", "show a client's deliveries as they come"),
    "rebuild": Command("lacuna.cli.rebuild", "have a running router recompute its approximate negative rectangles"),
    "prune": Command("lacuna.cli.prune", "have a running router prune in another way, or not at all"),
}
