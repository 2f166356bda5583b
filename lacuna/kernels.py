"""Compile the kernels ahead of their first use: `python -m lacuna.kernels`, a step of `make setup`.

Kernels are compiled when they are first called and kept on disk (`state.kernels`). That first call is some one's first
simulation, or the first batch of a router: half a minute, in all, that nobody should have to wait for there. So a small
workload with filters is run once under every strategy. What this misses is compiled on first use, as ever.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from lacuna.simulate import simulate
from lacuna.steps import steps
from producers.workloads import Workload
from state.config import parse
from state.filters.pruning import Pruning
from state.strategies import PARAMETERS, Spec

CONFIG = """
[space]
price = {kind = "float", low = 0.0, high = 1000.0}
volume = {kind = "int", low = 0, high = 100000}
symbol = {kind = "category", values = ["AAPL", "IBM", "MSFT"]}
[overlay]
links = [["a", "b"], ["b", "c"]]
"""
FILTERS = (
    "symbol <> 'IBM' AND price < 10 OR volume > 500",
    f"volume IN ({', '.join(map(str, range(0, 200, 2)))})",  # beyond the limit of boxes: delivered by its tree
)
FIRST = Spec("auto")
"""Has most of what the others have too; so it goes first, and they compile only what is their own."""
OTHERS = (
    *(Spec(name) for name in PARAMETERS if name != FIRST.name),
    Spec("cover", (("index", "tree"),)),
    Spec("union", covering="active", pruning=Pruning("network")),
)


def compile_for(spec: Spec) -> None:
    """Run a small workload under a strategy, tables and stored state included."""
    config = parse(CONFIG).with_strategy(spec)
    lines = [json.dumps(event).encode() for event in Workload("churn", 200, 200, cancelled=0.3).events(config)]
    for k, where in enumerate(FILTERS):
        event = {"kind": "subscribe", "broker": "a", "client": "ann", "id": f"f{k}", "where": where}
        lines.insert(50, json.dumps(event).encode())
    with TemporaryDirectory() as out:
        simulate(config, lines, out=Path(out))


def main() -> None:
    """Compile for all strategies, on all cores."""
    with steps() as step, ProcessPoolExecutor(os.cpu_count()) as pool:
        step("compiling kernels, once")
        pool.submit(compile_for, FIRST).result()
        list(pool.map(compile_for, OTHERS))


if __name__ == "__main__":
    main()
