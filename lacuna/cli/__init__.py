"""The command line: one module per command, all of the same form.

    declare(parser)     describe the command and add its options
    run(args)           run it, and return the exit code

`GROUPS` names the module of each command. Only the module of the command that was asked for is imported: Spark alone
takes a second or two. Beside the commands are what several of them share: `options`, `sending`, `config_file`, and for
the output `console` and `progress`.

A command reads its options, calls what does the work (`lacuna.analysis`, `lacuna.simulate`, `producers`, `streaming`)
and shows the result: a table for a person, one JSON object with `--json` for a program.

`bench` stands above everything, so nothing may import it. Its command is part of it, and is named here like the others.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command: the module that declares and runs it, the line that `lacuna --help` shows, and examples of its use."""

    module: str
    about: str
    examples: tuple[str, ...]


POINT = """--at '{"price": 12.5, "volume": 150, "symbol": "IBM"}'"""

GROUPS = {
    "use it": {
        "subscribe": Command(
            "lacuna.cli.subscribe",
            "ask for a part of the space",
            (
                """lacuna subscribe --broker oslo --client ann --id s1 --where '{"price": [10, 20]}' --wait""",
                """lacuna subscribe --broker oslo --client ann --id s2 --where "price < 20" --ttl 3600""",
            ),
        ),
        "unsubscribe": Command(
            "lacuna.cli.unsubscribe",
            "ask for it no longer",
            ("lacuna unsubscribe --broker oslo --client ann --id s1 --wait",),
        ),
        "publish": Command(
            "lacuna.cli.publish",
            "publish a point of the space",
            (f"lacuna publish --broker rome --id p1 {POINT} --payload hello --wait",),
        ),
        "listen": Command(
            "lacuna.cli.listen",
            "show a client's deliveries as they come",
            (
                "lacuna listen --client ann --from-beginning --count 1 --timeout 60",
                "lacuna listen --client ann --bookmark desk --json",
            ),
        ),
        "produce": Command(
            "lacuna.cli.produce",
            "generate a seeded workload of events, into Kafka or a file",
            (
                "lacuna produce zipf --subscriptions 10000 --publications 20000 --out zipf.jsonl",
                "lacuna produce uniform --rate 500",
                "lacuna produce zipf --zipf 1 --attributes 2 --widest 0.1 --cancelled 0.5 --out papers.jsonl",
            ),
        ),
    },
    "run it": {
        "init": Command(
            "lacuna.cli.init",
            "write a configuration and a file of events to begin with",
            ("lacuna init", "lacuna init trial --port 9192"),
        ),
        "demo": Command(
            "lacuna.cli.demo",
            "everything on this machine: a local Kafka, the job, a workload, a report; ends by itself",
            ("lacuna demo", "lacuna demo --serve", "lacuna demo --home /tmp/demo --subscriptions 200 --strategy flood"),
        ),
        "up": Command(
            "lacuna.cli.up",
            "a local Kafka and the job, until stopped",
            ("lacuna up --config lacuna.toml", "lacuna up --port 9192 --serve"),
        ),
        "run": Command(
            "lacuna.cli.run",
            "the long-running job, against the configured Kafka",
            ("lacuna run --config lacuna.toml", "lacuna run --only archive --maintain 0"),
        ),
        "serve": Command(
            "lacuna.cli.serve",
            "the gateway: HTTP and server-sent events for programs, the console for browsers",
            ("lacuna serve --config lacuna.toml", "lacuna serve --port 8080 --json"),
        ),
        "status": Command(
            "lacuna.cli.status",
            "is the job healthy, how far behind, how fast; once, or live",
            ("lacuna status", "lacuna status --watch", "lacuna status --json --url http://host:9464"),
        ),
        "apply": Command(
            "lacuna.cli.apply",
            "begin a new life of a system, stopped or running: the remedy of most refusals",
            ("lacuna apply --dry-run", "lacuna apply --from topics"),
        ),
        "doctor": Command(
            "lacuna.cli.doctor",
            "what is wrong with this machine, configuration, Kafka, lake; each finding with its remedy",
            ("lacuna doctor --config lacuna.toml", "lacuna doctor --json"),
        ),
        "acl": Command(
            "lacuna.cli.acl",
            "print the least rights of a role in Kafka, as commands to run",
            ("lacuna acl router --user lacuna", "lacuna acl listener --user desk --bookmark desk"),
        ),
        "archive": Command(
            "lacuna.cli.archive",
            "look after the Delta tables: maintain, rebuild",
            ("lacuna archive maintain --retention-hours 24", "lacuna archive rebuild"),
        ),
        "rebuild": Command(
            "lacuna.cli.rebuild",
            "have a running router recompute its approximate negative rectangles",
            ("lacuna rebuild --config lacuna.toml",),
        ),
        "prune": Command(
            "lacuna.cli.prune",
            "have a running router prune in another way, or not at all",
            ("lacuna prune network --prunings 10000 --link 'oslo>paris'", "lacuna prune off"),
        ),
        "completion": Command(
            "lacuna.cli.completion",
            "print a script by which a shell completes commands and options",
            ("source <(lacuna completion bash)", "lacuna completion fish > ~/.config/fish/completions/lacuna.fish"),
        ),
    },
    "understand it": {
        "explain": Command(
            "lacuna.cli.explain",
            "why a subscription was or was not forwarded, link by link",
            (
                "lacuna explain s3",
                "lacuna explain s3 --from out --draw s3.png --attributes price volume",
                """lacuna explain --at '{"price": 21.5, "volume": 150, "symbol": "IBM"}' --broker rome""",
                "lacuna explain --publication 0:17 --subscription oslo/ann/s1",
                """lacuna explain --where "price BETWEEN 12 AND 18" --broker oslo""",
                """lacuna explain --where "price < 20 AND (symbol = 'IBM' OR volume > 500)\"""",
            ),
        ),
        "subscriptions": Command(
            "lacuna.cli.subscriptions",
            "what stands, of all clients or of one",
            ("lacuna subscriptions --broker oslo", "lacuna subscriptions --client ann --json"),
        ),
        "lint": Command(
            "lacuna.cli.lint",
            "which subscriptions of a file are empty, duplicate or covered by others, before they are sent",
            ("lacuna lint events.jsonl", "lacuna lint events.jsonl --against out"),
        ),
        "sql": Command(
            "lacuna.cli.sql",
            "SQL over the Delta tables and their views, which it cannot change",
            ('lacuna sql "SELECT link, action, count(*) FROM decisions GROUP BY ALL"',),
        ),
    },
    "study it": {
        "simulate": Command(
            "lacuna.cli.simulate",
            "run a file of events through the overlay, without Kafka and Spark",
            (
                "lacuna simulate events.jsonl --out out",
                "lacuna simulate zipf.jsonl --strategy '{name = \"negative-approx\", k = 50}' --json",
            ),
        ),
        "compare": Command(
            "lacuna.cli.compare",
            "strategies beside each other on your own events: a table, plots, a page to share",
            (
                "lacuna compare --strategies flood,cover,auto events.jsonl",
                "lacuna compare --strategies auto,mics --mapping quakes.toml --html report.html cities.csv quakes.csv",
            ),
        ),
        "fit": Command(
            "lacuna.cli.fit",
            "learn cells from publications, and write them into the configuration",
            ("lacuna fit events.jsonl --out fitted.toml", "lacuna fit --bits 6"),
        ),
        "chain": Command(
            "lacuna.cli.chain",
            "how likely strategy probabilistic finds a publication along a path of brokers",
            ("lacuna chain --brokers 10 --rho 0.2",),
        ),
        "bench": Command(
            "bench.command",
            "measure, and compare with the papers and with peers",
            ("lacuna bench core --quick", "lacuna bench papers --paper zcurve", "lacuna bench router --json"),
        ),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
