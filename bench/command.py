"""`lacuna bench`: run benchmarks, show their figures and keep them."""

from __future__ import annotations

import json

import bench
from bench import BENCHES
from lacuna.cli.options import Args, Parser, add_json, show_lines
from lacuna.cli.progress import steps


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Measure. Figures are ratios within one run."
    show_lines(command, "benchmarks:\n" + "\n".join(f"  {name:<14} {about}" for name, about in BENCHES.items()))
    command.add_argument("name", nargs="?", choices=sorted(BENCHES), metavar="NAME", help="default: all of them")
    command.add_argument("--quick", action="store_true", help="a minute or two, the same shape")
    add_json(command, "print one JSON object a benchmark")
    command.add_argument("--keep", action="store_true", help="write the report into bench/results")


def run(args: Args) -> int:
    """Run one benchmark, or all."""
    for name in [args.name] if args.name else sorted(BENCHES):
        with steps() as step:
            report = bench.run(name, step, quick=args.quick)
        if args.keep:
            report.keep()
        if args.json:
            print(json.dumps(report.as_json()))
        else:
            report.show()
    return 0
