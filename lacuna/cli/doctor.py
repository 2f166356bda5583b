"""`lacuna doctor`: what is wrong with this machine, configuration, Kafka, lake; each finding with its remedy."""

from __future__ import annotations

import json

from rich.table import Table
from rich.text import Text

from lacuna.analysis.doctor import Finding, examine
from lacuna.cli.config_file import read_config
from lacuna.cli.console import console
from lacuna.cli.options import Args, Parser, add_config, add_json

SIGNS = {"good": ("✓", "green"), "warning": ("▲", "yellow"), "bad": ("✗", "bold red")}


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Examine Java, jars, ports, disks, secrets, Kafka, topics and clock. Nothing is changed. Exit code 0: "
        "nothing is wrong; 1: something is; 2: the configuration itself cannot be read."
    )
    add_config(command)
    add_json(command)


def run(args: Args) -> int:
    """Show the findings."""
    findings = list(examine(read_config(args.config)))
    if args.json:
        print(json.dumps({"findings": [finding._asdict() for finding in findings]}))
    else:
        _show(findings)
    return 1 if any(finding.level == "bad" for finding in findings) else 0


def _show(findings: list[Finding]) -> None:
    table = Table("", "what", "found", "remedy", box=None, header_style="dim")
    for finding in findings:
        table.add_row(Text(*SIGNS[finding.level]), finding.about, finding.text, finding.remedy)
    console().print(table)
