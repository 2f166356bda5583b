"""`lacuna bench mics`: what the paper reports (`bench.papers.mics`), ranges by descent, the state of a link.

* `descent_vs_enumeration_4d_16` (at least 10), `descent_vs_enumeration_4d_64` (at least 50): a box of so many cells a
  side in 4 attributes to its ranges, by descending the curve, over computing and sorting the keys of all its cells.
* `insert_growth_150k_vs_1k` (at most 1.5): time to insert a subscription's ranges into the counted table when it holds
  150,000 subscriptions over that when it holds 1,000; 3 attributes, uniform, size 2.
* `match_vs_searchsorted` (at least 0.5): publications matched per second in batches, cells and places on the curve
  included, over numpy's `searchsorted` alone, of places already known, on the same table; 150,000 subscriptions.
* `false_positive_share_zipf_3of7`, `false_positive_share_uniform_3of7`: of the publications that are forwarded by
  ranges on 3 of 7 attributes, the share that no subscription asked for; Table 2's third row, 100,000 subscriptions
  (published: 0.0315 and 0.3695).
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from bench.papers.mics import BITS, KINDS, box_of, boxes, name_of
from bench.report import Report, Step, median, ratio
from state.config import parse
from state.curves.hilbert import Cells, Curve, Ranges, keys_of_cells, turns
from state.kernels import kernel
from state.protocol.messages import LOCAL, Stamp, Subscribe
from state.routing.broker import Broker
from state.storage.codec import encode


def beyond(report: Report, step: Step, *, quick: bool) -> None:
    """Ranges by descent, and the state of a link."""
    step("ranges by descent and by enumeration")
    _descent(report, 3 if quick else 7)
    step("the state of one link")
    _state(report, 5_000 if quick else 50_000)


@kernel
def enumerate_ranges(box: Cells, bits: int, table: NDArray[np.int64]) -> Ranges:
    """The other way: the key of every cell, sorted, and neighbours joined."""
    dims = box.shape[1]
    count = 1
    for i in range(dims):
        count *= box[1, i] - box[0, i] + 1
    cells = np.empty((count, dims), np.int64)
    at = box[0].copy()
    for k in range(count):
        cells[k] = at
        i = 0
        while i < dims:
            at[i] += 1
            if at[i] <= box[1, i]:
                break
            at[i] = box[0, i]
            i += 1
    keys = keys_of_cells(cells, bits, table)
    keys.sort()
    out = np.empty((count, 2), np.int64)
    end = 0
    for key in keys:
        if end > 0 and out[end - 1, 1] == key - 1:
            out[end - 1, 1] = key
        else:
            out[end, 0], out[end, 1] = key, key
            end += 1
    return out[:end].copy()


def _descent(report: Report, repeats: int) -> None:
    curve, table = Curve(4, BITS), turns(4)
    for size, goal in ((16, "at least 10"), (64, "at least 50")):
        some = boxes("uniform", repeats, 4, size, seed=size)
        times = []
        for box in some if size == 16 else some[:3]:
            if not np.array_equal(curve.ranges(box), enumerate_ranges(box, BITS, table)):
                raise AssertionError("descent and enumeration disagree")
            slow, fast = partial(enumerate_ranges, box, BITS, table), partial(curve.ranges, box)
            times.append(ratio(slow, fast, 5 if size == 16 else 1))
        report.add(f"descent_vs_enumeration_4d_{size}", median(times), goal)


LINK = """
[space]
x = {kind = "int", low = 0, high = 25599}
y = {kind = "int", low = 0, high = 25599}
z = {kind = "int", low = 0, high = 25599}
[overlay]
links = [["a", "b"]]
[routing]
strategy = "mics"
"""


def _state(report: Report, count: int) -> None:
    """Both ends of a link after so many subscriptions of clients, sizes of 2 to 4 cells: bytes as stored."""
    config = parse(LINK)
    setups = config.setups()
    for kind in KINDS:
        some = boxes(kind, count, 3, 3) * 100 + np.random.default_rng(7).integers(0, 100, (count, 2, 3))
        told, heard = (Broker(name, setups[name]) for name in "ab")
        for k, box in enumerate(some):
            effect = told.apply(LOCAL, Subscribe(name_of(k), box_of(box), Stamp(None, k, 0, k)), k)
            for change in (c for _, decisions in effect.decided for d in decisions for c in d.messages()):
                heard.apply("a", change, k)
        report.details[f"state_{kind}"] = {
            "subscriptions": count,
            "told_bytes": sum(map(len, encode(told).values())),
            "heard_bytes": sum(map(len, encode(heard).values())),
            "ranges": len(heard.links["a"].heard),
        }
