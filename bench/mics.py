"""`lacuna bench mics`: the MICS paper's tables and figures, published beside measured, and the linear method.

* `descent_vs_enumeration_4d_16` (at least 10), `descent_vs_enumeration_4d_64` (at least 50): a box of so many cells a
  side in 4 attributes to its ranges, by descending the curve, over computing and sorting the keys of all its cells.
* `insert_growth_150k_vs_1k` (at most 1.5): time to insert a subscription's ranges into the counted table when it holds
  150,000 subscriptions over that when it holds 1,000; 3 attributes, uniform, size 2.
* `match_vs_searchsorted` (at least 0.5): publications matched per second in batches, cells and places on the curve
  included, over numpy's `searchsorted` alone, of places already known, on the same table; 150,000 subscriptions.
* `false_positive_share_zipf_3of7`, `false_positive_share_uniform_3of7`: of the publications that are forwarded by
  ranges on 3 of 7 attributes, the share that no subscription asked for; Table 2's third row, 100,000 subscriptions
  (published: 0.0315 and 0.3695).

Workload, as far as the paper says: 256 cells an attribute; low ends uniform or Zipfian; sizes 2 (Fig. 8 to 11), 4 (Fig.
7, Table 3). Not said, and so fitted: the exponent (1.0 over places in order: Table 3 then gives 494 for 414 published,
Table 2 a traffic of 5257 for 5217), and how wide subscriptions are in Table 2. Seven attributes of size 4 cannot be
meant: no publication would match (20,000 x (4/256)^7 = 5e-9). Its traffic fits a size of 2 to 3 in the three chosen
attributes, its uniform false positives fit 88 % of the domain, around the place drawn, in each of the other four. So it
is measured here; the literal reading is given beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.plot import lines
from bench.report import Report, Step, median, ratio, seconds
from state.config import parse
from state.curves.cells import Grid
from state.curves.hilbert import Cells, Curve, Ranges, keys_of_cells, merge, turns
from state.curves.rangeindex import RangeIndex
from state.curves.ranges import RangeTable
from state.geometry.boxes import Box, Boxes
from state.geometry.boxindex import BoxIndex
from state.kernels import kernel
from state.protocol.messages import LOCAL, Name, Stamp, Subscribe
from state.routing.broker import Broker
from state.routing.heard import RangeHeard
from state.routing.told import Told
from state.space import Attribute, Space
from state.storage.codec import encode
from state.strategies import Spec

BITS, SIDE = 8, 256
ZIPF = 1.0
WIDE = 225
"""Cells of the four attributes that Table 2 does not index: 88 % of the domain."""
TABLE_1 = {2: (0.1, 0.1, 0.3, 1.0), 3: (0.1, 0.3, 1.9, 12.8), 4: (0.1, 1.1, 10.2, 124.1)}
TABLE_2 = {20_000: (5217, 0.0554, 209, 0.4211), 60_000: (6472, 0.0371, 583, 0.4237)}
TABLE_2 |= {100_000: (7040, 0.0315, 858, 0.3695), 150_000: (7502, 0.0257, 1325, 0.3819)}
TABLE_3 = {20_000: (64, 1), 60_000: (232, 1), 100_000: (414, 1), 150_000: (600, 1)}
KINDS = ("zipf", "uniform")
Curves = dict[str, tuple[Sequence[float], Sequence[float]]]


def run(step: Step, *, quick: bool) -> Report:
    """All figures; `quick` takes fewer subscriptions and leaves out the largest enumeration's repeats."""
    report = Report("mics", quick=quick)
    most = 20_000 if quick else 150_000
    step("boxes to ranges")
    _table_1(report, 20 if quick else 60)
    _descent(report, 3 if quick else 7)
    step("inserting into a growing table")
    _insertion(report, most)
    step("covering against the linear method")
    _covering(report, [most // 15, most // 3, most], 200)
    step("matching against the linear method and against searchsorted")
    _matching(report, [most // 15, most // 3, most], 3 if quick else 9)
    step("traffic with and without covering and subsumption")
    _traffic(report, 2_000 if quick else 10_000)
    step("ranges stored")
    _stored(report, most)
    step("projection on 3 of 7 attributes")
    _projection(report, [20_000] if quick else list(TABLE_2))
    step("subscription indexing on 3 of 7 attributes")
    _indexing(report, [20_000] if quick else list(TABLE_3))
    step("the state of one link")
    _state(report, 5_000 if quick else 50_000)
    return report


# Workload


def lows(kind: str, count: int, dims: int, seed: int = 1) -> Cells:
    """Low ends, or publications, in cells."""
    chance = np.random.default_rng([seed, dims])
    if kind == "uniform":
        return chance.integers(0, SIDE, (count, dims))
    weights = 1 / np.arange(1, SIDE + 1) ** ZIPF
    return chance.choice(SIDE, (count, dims), p=weights / weights.sum())


def boxes(kind: str, count: int, dims: int, size: int, seed: int = 1) -> Cells:
    """Subscriptions of `size` cells in each attribute, both corners inside, none beyond the domain."""
    low = np.minimum(lows(kind, count, dims, seed), SIDE - size)
    return np.stack((low, low + size - 1), axis=1)


def split(ranges: Ranges, ends: NDArray[np.int64]) -> list[Ranges]:
    """The ranges of a batch, box by box."""
    return np.split(ranges, ends[:-1])


def filled(parts: Sequence[Ranges]) -> RangeTable:
    table = RangeTable()
    _add_all(table, parts)
    return table


def each(work: Callable[[Any], object], items: Sequence[Any]) -> float:
    """Seconds for each item: the median, so that what else the machine does counts little."""
    took = np.empty(len(items))
    for k, item in enumerate(items):
        began = time.perf_counter()
        work(item)
        took[k] = time.perf_counter() - began
    return float(np.median(took))


# Table 1


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


def _table_1(report: Report, repeats: int) -> None:
    rows: dict[str, Any] = {}
    for dims, published in TABLE_1.items():
        curve = Curve(dims, BITS)
        for size, millis in zip((2, 4, 8, 16), published, strict=True):
            some = boxes("uniform", repeats, dims, size)
            took = each(curve.ranges, list(some))
            _, ends = curve.ranges_of(some)
            rows[f"{dims}d_{size}"] = {
                "published_ms": millis,
                "measured_ms": round(took * 1e3, 4),
                "ranges": round(float(ends[-1]) / repeats, 1),
            }
    report.details["table_1"] = rows


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


# Figures 8 to 10: time


def _insertion(report: Report, most: int) -> None:
    """Fig. 8: time at a few sizes of the table, all combinations; the ranges are known, as the paper has it."""
    marks = [most * k // 150 for k in (1, 10, 50, 100, 150)]
    rows: dict[str, Any] = {}
    series: Curves = {}
    for dims in (2, 3, 4):
        for kind in KINDS:
            parts = split(*Curve(dims, BITS).ranges_of(boxes(kind, most + 2000, dims, 2)))
            growth, times = _insertion_times(parts, marks)
            rows[f"{kind}_{dims}d"] = {"us": [round(t * 1e6, 2) for t in times], "growth": round(growth, 3)}
            series[f"{kind}, {dims}D"] = (marks, [t * 1e3 for t in times])
            if (kind, dims) == ("uniform", 3):
                report.add("insert_growth_150k_vs_1k", growth, "at most 1.5")
    report.details["figure_8"] = {"subscriptions": marks, "published_ms": "about 0.1, flat", **rows}
    lines("mics-figure-8", "Insertion with covering, subsumption, merging", "subscriptions", "ms", series)


def _insertion_times(parts: Sequence[Ranges], marks: Sequence[int]) -> tuple[float, list[float]]:
    """Seconds an insertion at each mark, the mean of two thousand new ones, and the last over the first; in turns."""
    rows, done, table = [], 0, RangeTable()
    for mark in marks:
        for part in parts[done:mark]:
            table.add(part)
        rows.append(table.rows())
        done = mark
    extra = parts[marks[-1] :]
    rounds = [[seconds(partial(_add_all, RangeTable(held), extra)) / len(extra) for held in rows] for _ in range(7)]
    return median(one[-1] / one[0] for one in rounds), [median(one[k] for one in rounds) for k in range(len(marks))]


def _add_all(table: RangeTable, parts: Sequence[Ranges]) -> None:
    for part in parts:
        table.add(part)


@kernel
def contained_in_any(others: Cells, box: Cells) -> bool:
    """The linear method of covering: compare with one after another."""
    for k in range(len(others)):
        inside = True
        for i in range(box.shape[1]):
            if box[0, i] < others[k, 0, i] or box[1, i] > others[k, 1, i]:
                inside = False
                break
        if inside:
            return True
    return False


@kernel
def held_by_any(points: Cells, others: Cells) -> NDArray[np.bool_]:
    """The linear method of matching: compare with one after another until one matches."""
    out = np.zeros(len(points), np.bool_)
    for p in range(len(points)):
        for k in range(len(others)):
            inside = True
            for i in range(points.shape[1]):
                if points[p, i] < others[k, 0, i] or points[p, i] > others[k, 1, i]:
                    inside = False
                    break
            if inside:
                out[p] = True
                break
    return out


def _covering(report: Report, counts: Sequence[int], asked: int) -> None:
    """Fig. 9: is a new subscription covered? By one look-up (and then also by several), and by the linear method."""
    rows: dict[str, Any] = {}
    series: Curves = {}
    for dims in (2, 3, 4):
        curve = Curve(dims, BITS)
        for kind in KINDS:
            every = boxes(kind, counts[-1], dims, 2)
            questions = boxes(kind, asked, dims, 2, seed=2)
            parts = split(*curve.ranges_of(every))
            known = split(*curve.ranges_of(questions))
            ours, linear = [], []
            for count in counts:
                table, others = filled(parts[:count]), np.ascontiguousarray(every[:count])
                ours.append(each(table.uncovered, known))
                linear.append(each(partial(contained_in_any, others), list(questions)))
            rows[f"{kind}_{dims}d"] = {
                "ours_us": [round(t * 1e6, 2) for t in ours],
                "linear_us": [round(t * 1e6, 2) for t in linear],
            }
            series |= {f"{kind}, {dims}D": (counts, [t * 1e3 for t in ours])}
            series |= {f"linear, {kind}, {dims}D": (counts, [t * 1e3 for t in linear])}
    report.details["figure_9"] = {"subscriptions": list(counts), **rows}
    lines("mics-figure-9", "Covering", "subscriptions", "ms", series, log_y=True)


def grid_of(dims: int) -> Grid:
    """A grid whose cells are the values."""
    space = Space(tuple(Attribute(f"x{i}", "int", 0, SIDE - 1) for i in range(dims)))
    return Grid(space, BITS, dims=[f"x{i}" for i in range(dims)])


def _matching(report: Report, counts: Sequence[int], repeats: int) -> None:
    """Fig. 10: does anybody ask for a publication? By one look-up, and by the linear method. Publications uniform."""
    rows: dict[str, Any] = {}
    series: Curves = {}
    few, points = lows("uniform", 200, 4, seed=3), lows("uniform", 50_000, 4, seed=4)
    for dims in (2, 3, 4):
        grid = grid_of(dims)
        some, many = np.ascontiguousarray(few[:, :dims]), np.ascontiguousarray(points[:, :dims])
        for kind in KINDS:
            every = boxes(kind, counts[-1], dims, 2)
            parts = split(*grid.curve.ranges_of(every))
            ours, linear = [], []
            for count in counts:
                heard, others = RangeHeard(grid), np.ascontiguousarray(every[:count])
                heard.table = filled(parts[:count])
                if not np.array_equal(heard.wants(some), held_by_any(some, others)):
                    raise AssertionError("look-up and linear method disagree")
                ours.append(median(seconds(partial(heard.wants, many)) for _ in range(3)) / len(many))
                linear.append(median(seconds(partial(held_by_any, some, others)) for _ in range(3)) / len(some))
            rows[f"{kind}_{dims}d"] = {
                "ours_us": [round(t * 1e6, 3) for t in ours],
                "linear_us": [round(t * 1e6, 3) for t in linear],
            }
            series |= {f"{kind}, {dims}D": (counts, [t * 1e3 for t in ours])}
            series |= {f"linear, {kind}, {dims}D": (counts, [t * 1e3 for t in linear])}
            if (kind, dims) == ("uniform", 3):
                flat = np.ascontiguousarray(heard.table.rows()[:, 0])
                places = grid.keys(many)
                alone = partial(np.searchsorted, flat, places)
                share = ratio(alone, partial(heard.wants, many), repeats)
                report.add("match_vs_searchsorted", share, "at least 0.5")
    report.details["figure_10"] = {"subscriptions": list(counts), **rows}
    lines("mics-figure-10", "Matching", "subscriptions", "ms", series, log_y=True)


# Figures 7, 11, 12: traffic and storage


def _traffic(report: Report, count: int) -> None:
    """Fig. 7: subscriptions forwarded to a neighbour; size 4, Zipf."""
    marks = [count * k // 5 for k in range(1, 6)]
    rows: dict[str, Any] = {}
    series: Curves = {"none": (marks, marks)}
    for dims in (2, 3, 4):
        some = boxes("zipf", count, dims, 4)
        subscriptions = [(_name(k), _boxes(box)) for k, box in enumerate(some)]
        space = grid_of(dims).space
        told = {"covering": Told(space, Spec("cover")), "subsumption": Told(space, Spec("union"))}
        forwards = {
            how: np.array([t.subscribe(n, b, LOCAL)[0].action == "forward" for n, b in subscriptions])
            for how, t in told.items()
        }
        table = RangeTable()
        forwards["ranges"] = np.array([len(table.add(p)) > 0 for p in split(*Curve(dims, BITS).ranges_of(some))])
        if not np.array_equal(forwards["ranges"], forwards["subsumption"]):
            raise AssertionError("on whole cells, ranges and exact subsumption decide alike")
        counted = {how: [int(told[:mark].sum()) for mark in marks] for how, told in forwards.items() if how != "ranges"}
        rows[f"{dims}d"] = counted
        series |= {f"{how}, {dims}D": (marks, values) for how, values in counted.items()}
    report.details["figure_7"] = {"subscriptions": marks, **rows}
    lines("mics-figure-7", "Subscriptions forwarded, Zipf, size 4", "subscriptions", "forwarded", series)


def _name(k: int) -> Name:
    return Name("hub", "bench", str(k))


def _boxes(box: Cells) -> Boxes:
    return (Box(tuple(box[0].tolist()), tuple((box[1] + 1).tolist())),)


def _stored(report: Report, most: int) -> None:
    """Fig. 11 and 12: ranges of the union against the sides of the boxes, which is what lists of boxes would store."""
    marks = [most * k // 150 for k in (20, 60, 100, 150)]
    for figure, variants in (("11", [(d, 2) for d in (2, 3, 4)]), ("12", [(3, s) for s in (2, 4, 8)])):
        rows: dict[str, Any] = {}
        series: Curves = {}
        for dims, size in variants:
            for kind in KINDS:
                label = f"{kind}_{dims}d" if figure == "11" else f"{kind}_size_{size}"
                rows[label] = _union_sizes(boxes(kind, most, dims, size), marks)
                series[label.replace("_", ", ", 1)] = (marks, rows[label])
            if figure == "11":
                rows[f"sides_{dims}d"] = [dims * mark for mark in marks]
                series[f"sides of the boxes, {dims}D"] = (marks, rows[f"sides_{dims}d"])
        report.details[f"figure_{figure}"] = {"subscriptions": marks, **rows}
        lines(f"mics-figure-{figure}", "Ranges stored", "subscriptions", "ranges", series, log_y=True)


def _union_sizes(some: Cells, marks: Sequence[int]) -> list[int]:
    """Count the ranges in the union of the first subscriptions, at each mark."""
    table, sizes, done = RangeTable(), [], 0
    for mark in marks:
        for part in split(*Curve(some.shape[2], BITS).ranges_of(some[done:mark])):
            table.add(part)
        done = mark
        sizes.append(len(table.union()))
    return sizes


# Tables 2 and 3: more attributes


def wide_boxes(kind: str, count: int) -> Cells:
    """Seven attributes, as Table 2 must have had them: narrow in three, wide around the place drawn in four."""
    at = lows(kind, count, 7)
    size = np.full((count, 7), WIDE)
    size[:, :3] = np.random.default_rng(5).integers(2, 4, (count, 3))
    at[:, 3:] -= WIDE // 2
    low = np.clip(at, 0, SIDE - size)
    return np.stack((low, low + size - 1), axis=1)


def _projection(report: Report, counts: Sequence[int]) -> None:
    """Table 2, with the widths that fit it; and read literally, with size 4 everywhere."""
    grid = grid_of(3)
    rows: dict[str, Any] = {}
    for k, kind in enumerate(KINDS):
        points = lows(kind, 10_000, 7, seed=6)
        for count in counts:
            traffic, share = _false_positives(grid, wide_boxes(kind, count), points)
            published = TABLE_2[count][2 * k : 2 * k + 2]
            rows[f"{kind}_{count}"] = {
                "traffic": traffic,
                "published_traffic": published[0],
                "false_positives": round(share, 4),
                "published_false_positives": published[1],
            }
            if count == (100_000 if 100_000 in counts else counts[-1]):
                report.add(f"false_positive_share_{kind}_3of7", share, f"published {published[1]}")
        literal = _false_positives(grid, boxes(kind, counts[0], 7, 4), points)
        rows[f"{kind}_literal_{counts[0]}"] = {"traffic": literal[0], "false_positives": round(literal[1], 4)}
    report.details["table_2"] = rows
    report.notes.append("table 2: sizes 2 to 3 in three attributes, 88 % of the domain in four, fitted; see the head.")


def _false_positives(grid: Grid, some: Cells, points: Cells) -> tuple[int, float]:
    """Publications that go by ranges on the first three attributes, and the share of them that nobody asked for."""
    table = RangeTable()
    table.add(merge(grid.curve.ranges_of(np.ascontiguousarray(some[:, :, :3]))[0]))
    going = points[table.holds(grid.keys(np.ascontiguousarray(points[:, :3])))]
    exact = some + np.array([[0], [1]])  # half-open
    wanted = BoxIndex(some.shape[2], exact).stab_any(going)
    return len(going), 1 - float(wanted.mean()) if len(going) else 0.0


def _indexing(report: Report, counts: Sequence[int]) -> None:
    """Table 3: how many subscriptions a new one is compared with; 7 attributes of size 4, the first 3 indexed."""
    curve, rows = Curve(3, BITS), dict[str, Any]()
    for k, kind in enumerate(KINDS):
        parts = split(*curve.ranges_of(boxes(kind, counts[-1], 3, 4)))
        questions = split(*curve.ranges_of(boxes(kind, 3000, 3, 4, seed=2)))
        index, done = RangeIndex(), 0
        for count in counts:
            for owner in range(done, count):
                index.add(parts[owner], owner)
            done = count
            found = [len(index.meeting(question)) for question in questions]
            rows[f"{kind}_{count}"] = {
                "candidates": round(float(np.mean(found)), 1),
                "published": TABLE_3[count][k],
                "us": round(each(index.meeting, questions) * 1e6, 1),
            }
    report.details["table_3"] = rows


# State

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
            effect = told.apply(LOCAL, Subscribe(_name(k), _boxes(box), Stamp(None, k, 0, k)), k)
            for change in (c for _, decisions in effect.decided for d in decisions for c in d.messages()):
                heard.apply("a", change, k)
        report.details[f"state_{kind}"] = {
            "subscriptions": count,
            "told_bytes": sum(map(len, encode(told).values())),
            "heard_bytes": sum(map(len, encode(heard).values())),
            "ranges": len(heard.links["a"].heard),
        }
