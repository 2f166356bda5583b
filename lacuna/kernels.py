"""Compile the kernels ahead of their first use: `python -m lacuna.kernels`, a step of `make setup`.

Kernels are compiled when they are first called and kept on disk (`state.kernels`). Compiling them all takes half a
minute, which would be added to somebody's first simulation or to the first batch of a router. Here a small workload
with filters is run once under every strategy instead, and what only large indexes and restored state need is asked for
by itself. Kernels that this does not reach are compiled on first use.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lacuna.cli.progress import steps
from lacuna.simulate import simulate
from producers.workloads import Workload
from state.config import parse
from state.filters.pruning import Pruning
from state.geometry.boxindex import BoxIndex, Sizes
from state.storage.ends import coded, decoded
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
"""Shares most kernels with the others. It is compiled first, and the others then compile only their own kernels."""
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


def compile_restoring() -> None:
    """Restore a box as stored state is: a simulation only stores."""
    tree, box, domain = np.array([0, 1, 2]), np.array([[[1], [2]]]), np.array([[0], [9]])
    one, length = np.array([1]), np.array([3])
    decoded(*coded(box, one, tree, length, domain), one, tree, length, domain)


def compile_tiles(dims: int) -> None:
    """Ask everything of an index as it is with very many boxes: a workload that is small never has one."""
    low = np.random.default_rng(1).integers(0, 1000, (4096, dims))
    index = BoxIndex(dims, sizes=Sizes(64, 64, 4096))
    for part in np.array_split(np.stack((low, low + 9), axis=1), 64):
        index.add(part)
    for ask in (index.meeting, index.inside, index.first_containing):
        ask(index.boxes[0])
    for stab in (index.stab_any, index.stab_all):
        stab(low[:8])
    index.remove(range(3072))


def main() -> None:
    """Compile for all strategies, on all cores."""
    with steps() as step, ProcessPoolExecutor(os.cpu_count()) as pool:
        step("compiling kernels, once")
        pool.submit(compile_for, FIRST).result()
        pool.submit(compile_restoring).result()
        pool.submit(compile_tiles, 2).result()
        list(pool.map(compile_for, OTHERS))


if __name__ == "__main__":
    main()
