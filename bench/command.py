"""`lacuna bench`: run benchmarks, show their figures and keep them."""

from __future__ import annotations

import json

import bench
from bench import BENCHES, LONG, claims
from bench.papers import PAPERS, page
from bench.report import Report
from lacuna.cli.console import console
from lacuna.cli.options import Args, Parser, add_json, show_lines
from lacuna.cli.progress import steps
from state.errors import LacunaError


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Measure. Figures are ratios within one run."
    show_lines(command, "benchmarks:\n" + "\n".join(f"  {name:<14} {about}" for name, about in BENCHES.items()))
    default = f"default: all but {', '.join(LONG)}, which take long"
    command.add_argument("name", nargs="?", choices=sorted(BENCHES), metavar="NAME", help=default)
    command.add_argument("--paper", choices=PAPERS, metavar="PAPER", help="with papers: only this one")
    command.add_argument("--quick", action="store_true", help="a minute or two, the same shape")
    command.add_argument("--cycles", type=int, metavar="N", help="with faults: how many cycles (default: 100)")
    command.add_argument("--seed", type=int, metavar="S", help="with faults: the first cycle (default: 0)")
    add_json(command, "print one JSON object a benchmark, or a paper")
    command.add_argument("--keep", action="store_true", help="write the report into bench/results")


def run(args: Args) -> int:
    """Run one benchmark, or all that do not take long."""
    if args.paper and args.name != "papers":
        raise LacunaError("--paper goes with the benchmark papers. Remedy: lacuna bench papers --paper NAME")
    options = {name: value for name in ("cycles", "seed") if (value := getattr(args, name)) is not None}
    if options and args.name != "faults":
        raise LacunaError("--cycles and --seed go with the benchmark faults. Remedy: lacuna bench faults --cycles N")
    for name in [args.name] if args.name else sorted(BENCHES.keys() - {"papers", *LONG}):
        with steps() as step:
            reports = bench.run(name, step, quick=args.quick, paper=args.paper, **options)
        for report in reports if args.keep else ():
            report.keep()
        if args.keep and not args.quick and name in ("papers", *PAPERS):
            page.write()
        for report in reports if name == "papers" else reports[-1:]:
            _show(report, as_json=args.json)
    return 0


def _show(report: Report, *, as_json: bool) -> None:
    """Print a report; of a paper, what it claims and whether it holds."""
    paper = report.name.removeprefix("papers/")
    if paper == report.name:
        print(json.dumps(report.as_json())) if as_json else report.show()
        return
    found = claims.as_json(paper, json.loads(json.dumps(report.details)))
    if as_json:
        print(json.dumps({**report.as_json(), "claims": found}))
    else:
        console().print(page.table(paper, found))
