"""`lacuna init`: write the files of the tour, to begin with."""

from __future__ import annotations

import json
from pathlib import Path

from lacuna.cli.options import Args, Parser, add_json, port
from state.errors import LacunaError

CONFIG = """\
# lacuna.toml
[space]
price  = { kind = "float", low = 0.0, high = 1000.0 }
volume = { kind = "int",   low = 0,   high = 100000 }
symbol = { kind = "category", values = ["AAPL", "IBM", "MSFT"] }

[overlay]
links = [["oslo", "paris"], ["paris", "rome"], ["paris", "wien"]]
"""
KAFKA = """
[kafka]
bootstrap = "localhost:{port}"
"""
EVENTS = """\
{"kind": "subscribe", "broker": "oslo", "id": "s1", "client": "ann", "where": {"price": [10, 20]}}
{"kind": "subscribe", "broker": "oslo", "id": "s2", "client": "bob", "where": {"price": [20, 30]}}
{"kind": "subscribe", "broker": "oslo", "id": "s3", "client": "cat", "where": {"price": [15, 25], "symbol": ["IBM"]}}
{"kind": "subscribe", "broker": "oslo", "id": "s4", "client": "dan", "where": "price BETWEEN 12 AND 18"}
{"kind": "publish", "broker": "rome", "id": "p1", "at": {"price": 21.5, "volume": 150, "symbol": "IBM"}}
{"kind": "unsubscribe", "broker": "oslo", "id": "s2", "client": "bob"}
{"kind": "publish", "broker": "wien", "id": "p2", "at": {"price": 21.5, "volume": 150, "symbol": "IBM"}}
"""


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Write lacuna.toml, a configuration, and events.jsonl, a few events. Nothing is overwritten."
    command.add_argument("folder", nargs="?", default=".", metavar="DIR", help="where (default: here)")
    command.add_argument("--port", type=port, metavar="N", help="the port of Kafka, if it is not 9092")
    add_json(command)


def run(args: Args) -> int:
    """Write the files, and say what to do next."""
    folder = Path(args.folder)
    config = CONFIG + ("" if args.port is None else KAFKA.format(port=args.port))
    files = {folder / "lacuna.toml": config, folder / "events.jsonl": EVENTS}
    for path in files:
        if path.exists():
            raise LacunaError(f"{path}: it is there already, and is not overwritten. Remedy: name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    if args.json:
        print(json.dumps({"written": [str(path) for path in files]}))
    else:
        here = "" if args.folder == "." else f"cd {args.folder}; "
        print(f"written: {', '.join(map(str, files))}\nnext: {here}lacuna simulate events.jsonl --out out")
    return 0
