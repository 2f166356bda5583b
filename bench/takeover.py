"""A region with very many subscriptions, prepared and taken over by the core alone: python -m bench.takeover.

It runs in a process of its own, so that the memory of a copy can be told from what everything else takes.

    python -m bench.takeover prepare COUNT FILE [alone]    make the state of a hub with COUNT subscriptions
    python -m bench.takeover open FILE [alone]             open it as a worker does that has never seen it
    python -m bench.takeover turns FILE                    let workers take turns, each with a copy of its own

The hub has four links, all in one region; `alone`, it has none. Each prints one JSON object.
"""

from __future__ import annotations

import ctypes
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from producers.workloads import Workload
from state.config import Config, parse
from state.geometry.boxes import boxes_where
from state.protocol.arrivals import RANKS, Arrival, Channel
from state.protocol.messages import LOCAL, Name, Stamp, Subscribe
from state.routing.region import Region
from state.storage.codec import encode, uncollected
from state.storage.store import Held, Setups, Store, from_row, prepared

SPACE = """
[space]
x = {kind = "int", low = 0, high = 1000}
y = {kind = "int", low = 0, high = 1000}
z = {kind = "int", low = 0, high = 1000}
"""
HUB = SPACE + '[overlay]\nlinks = [["hub", "a"], ["hub", "b"], ["hub", "c"], ["hub", "d"]]\nregions = 1\n'
ALONE = SPACE + '[overlay]\nbrokers = ["hub"]\n'
LINKS = 4
BEGAN = 1_767_225_600_000_000
"""The moment at which the first prepared subscription arrives, in microseconds."""
PORTION = 10_000
WARM = 500
"""Subscriptions of a small state that is opened first, which loads the kernels."""
WORKERS, ROUNDS, CHANGES = 4, 5, 100
"""Workers that take turns, the turns of each, and the subscriptions that come in a turn."""


def elsewhere(*arguments: str) -> dict[str, Any]:
    """Do one part of the work in a process of its own. Return what it found."""
    command = [sys.executable, "-m", "bench.takeover", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
    return dict(json.loads(done.stdout))


def _setups(text: str) -> Setups:
    config = parse(text)
    return config.setups(config.overlay.brokers)


def _arrivals(config: Config, count: int, tag: str = "s") -> Iterator[Arrival]:
    """Yield subscriptions at the hub."""
    channel = Channel(RANKS["subscribe"], 0, "prepared")
    for k, event in enumerate(Workload("zipf", count, 0, cancelled=0.0).events(config)):
        name, moment = Name("hub", str(event["client"]), f"{tag}{k}"), BEGAN + k
        boxes = boxes_where(config.space, event["where"])
        written = msgspec.json.encode(event["where"])
        asked = Subscribe(name, boxes, stamp=Stamp(moment, moment, RANKS["subscribe"], k), where=written)
        yield Arrival(channel, k, moment, "hub", LOCAL, asked)


def _prepare(text: str, count: int) -> bytes:
    """Return the state of the region with so many subscriptions, each of which the core has decided."""
    setups = _setups(text)
    region = Region("hub", setups, logs=False)
    with uncollected():
        arrivals = _arrivals(parse(text), count)
        while portion := list(islice(arrivals, PORTION)):
            region.take(portion)
    region.log = []
    return prepared(region, setups)


def _open(text: str, row: bytes) -> dict[str, Any]:
    """Open a state. Return the CPU that this and full collections take, and the memory of the copy."""
    setups = _setups(text)
    Store.open(from_row(_prepare(text, WARM), "hub"), "hub", setups, 1)
    pieces = from_row(row, "hub")
    before, began = _memory(), time.process_time()
    store = Store.open(pieces, "hub", setups, 1)
    taken = time.process_time() - began
    found = {"seconds": taken, "bytes": _memory() - before, "collection_seconds": _seconds(gc.collect)}
    gc.freeze()
    found["collection_seconds_frozen"] = _seconds(gc.collect)
    hub = store.region.brokers["hub"]
    found["snapshot_seconds"] = _seconds(lambda: encode(hub))
    return {key: round(value, 4) for key, value in found.items()}


def _seconds(work: Any) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _memory() -> int:
    """Return the bytes in memory of this process, after what is free was given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _turns(row: bytes) -> dict[str, Any]:
    """Let workers take turns at a region, as Spark's do. Return how they found it, and what a catch-up takes."""
    setups, pieces = _setups(HUB), from_row(row, "hub")
    held, seconds = [Held() for _ in range(WORKERS)], 0.0
    arriving = _arrivals(parse(HUB), WORKERS * ROUNDS * CHANGES, "t")
    for turn in range(WORKERS * ROUNDS):
        worker, began = held[turn % WORKERS], time.process_time()
        store = worker.open(pieces, "hub", setups, 1, turn)
        seconds += time.process_time() - began if store.opened == "catch-up" else 0.0
        store.region.take(islice(arriving, CHANGES), turn)
        store.save()
        worker.keep(store, turn)
    opened = {how: sum(worker.counts[how] for worker in held) for how in ("hit", "catch-up", "decode")}
    changes = opened["catch-up"] * (WORKERS - 1) * CHANGES
    return {"opened": opened, "catch_up_us_per_change": round(seconds / changes * 1e6, 2)}


def main(work: str, *arguments: str) -> None:
    """Do one part of the work, and print what was found."""
    text = ALONE if arguments[-1] == "alone" else HUB
    if work == "prepare":
        Path(arguments[1]).write_bytes(_prepare(text, int(arguments[0])))
        print("{}")
        return
    row = Path(arguments[0]).read_bytes()
    print(json.dumps(_open(text, row) if work == "open" else _turns(row)))


if __name__ == "__main__":
    main(*sys.argv[1:])
