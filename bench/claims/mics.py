"""Claims of Jafarpour et al., "MICS: An Efficient Content Space Representation Model for Publish/Subscribe"."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from bench.claims import Claim, Details, Paper, Plot, grows, listed, percent
from bench.papers.svg import Series

KINDS = ("zipf", "uniform")
DIMS = (2, 3, 4)
SPARSE = (
    "sparse subscriptions: a box of two cells a side is 3.5 ranges in 3D and 7.5 in 4D, against 3 and 4 sides, and "
    "150,000 uniform ones in 256^3 or 256^4 cells hardly share any; the paper's own formula (1) says so"
)
COVERED = (
    "dense subscriptions: 150,000 uniform boxes of 8 cells a side fill 256^3 cells more than four times over, so their "
    "union is few long ranges; the paper says that the increase slows down, and here it turns"
)
TABLE_2 = (
    "the workload is unknown: the widths in the seven attributes are not given (taken literally nothing would match), "
    "and those that fit the traffic leave more false positives"
)


def times(d: Details, figure: str, kind: str, dims: int, who: str = "us") -> list[float]:
    values: list[float] = d[figure][f"{kind}_{dims}d"][who]
    return values


def stored(d: Details, figure: str, label: str) -> list[int]:
    values: list[int] = d[figure][label]
    return values


def counts(d: Details, table: str) -> list[int]:
    """The numbers of subscriptions for which both columns of a table were measured."""
    return sorted(int(name.split("_")[1]) for name in d[table] if name.startswith("zipf_") and "literal" not in name)


def false_positives(kind: str, trend: str, rises: bool) -> Claim:
    """Table 2: does the share of false positives fall, as published, or rise?"""

    def values(d: Details) -> list[float]:
        return [d["table_2"][f"{kind}_{n}"]["false_positives"] for n in counts(d, "table_2")]

    return Claim(
        f"Table 2, {kind}: trend",
        trend,
        lambda d: ", ".join(percent(value, 1) for value in values(d)),
        lambda d: (values(d)[-1] > values(d)[0]) == rises,
        "the workload is unknown; here more subscriptions share cells with the uniform publications that nobody asked "
        "for, and the published columns differ by little more than chance (209 publications at the first)",
    )


def table_2(kind: str, column: str, published: str, within: float) -> Claim:
    def pairs(d: Details) -> list[tuple[float, float]]:
        rows = [d["table_2"][f"{kind}_{n}"] for n in counts(d, "table_2")]
        return [(row[column], row[f"published_{column}"]) for row in rows]

    def shown(d: Details) -> str:
        found = [a for a, _ in pairs(d)]
        return ", ".join(percent(a, 1) for a in found) if column == "false_positives" else listed(found)

    return Claim(
        f"Table 2, {kind}: {column.replace('_', ' ')} (within a factor of {within:g})",
        published,
        shown,
        lambda d: all(1 / within <= a / b <= within for a, b in pairs(d)),
        TABLE_2,
    )


def table_3(kind: str, published: str) -> Claim:
    def pairs(d: Details) -> list[tuple[float, float]]:
        rows = [d["table_3"][f"{kind}_{n}"] for n in counts(d, "table_3")]
        return [(row["candidates"], row["published"]) for row in rows]

    return Claim(
        f"Table 3, {kind} (within a factor of 1.6, or of 3)",
        published,
        lambda d: listed([a for a, _ in pairs(d)]),
        lambda d: all(1 / 1.6 <= a / b <= 1.6 or abs(a - b) <= 2.5 for a, b in pairs(d)),
        "the workload is unknown (no exponent is given)",
    )


def table_1(d: Details, dims: int, column: str) -> list[float]:
    return [d["table_1"][f"{dims}d_{size}"][column] for size in (2, 4, 8, 16)]


def last(d: Details, figure: str, kind: str, dims: int, who: str = "us") -> float:
    return times(d, figure, kind, dims, who)[-1]


def growth(d: Details, figure: str, kind: str, dims: int) -> float:
    """The time of a look-up in the largest table over that in the smallest."""
    values = times(d, figure, kind, dims, "ours_us")
    return values[-1] / values[0]


def growth_stored(d: Details, kind: str) -> float:
    """The ranges stored at the last number of subscriptions over those at the first; size 4."""
    values = stored(d, "figure_12", f"{kind}_size_4")
    return values[-1] / values[0]


def literally(d: Details, kind: str) -> float:
    """The false positives of Table 2 with size 4 in all attributes."""
    return float(
        next(row for name, row in d["table_2"].items() if name.startswith(f"{kind}_literal"))["false_positives"]
    )


CLAIMS = (
    Claim(
        "Fig. 3, section 3.3",
        "the augmented subscription is [32,35], [45,46], [50,55]",
        lambda d: str(d["examples"]["ranges"]),
        lambda d: d["examples"]["ranges"] == [[32, 35], [45, 46], [50, 55]],
    ),
    Claim(
        "Section 3.4",
        "publications 52 and 50 match, 28 does not",
        lambda d: f"28, 52, 50: {d['examples']['matches_28_52_50']}",
        lambda d: d["examples"]["matches_28_52_50"] == [False, True, True],
    ),
    Claim(
        "Formula (1)",
        "surface / 2d ranges on average",
        lambda d: "; ".join(
            f"{label.replace('_', ', side ')}: {row['hilbert']:.1f} for {row['surface_over_2d']}"
            for label, row in d["formula_1"].items()
        ),
        lambda d: all(0.85 < row["hilbert"] / row["surface_over_2d"] < 1.15 for row in d["formula_1"].values()),
    ),
    Claim(
        "Section 3.3, after [17]",
        "the Hilbert curve has the fewest ranges in most circumstances",
        lambda d: (
            "no more than the Z curve in "
            + ", ".join(percent(row["hilbert_has_no_more"]) for row in d["formula_1"].values())
            + " of the boxes"
        ),
        lambda d: all(row["hilbert_has_no_more"] > 0.5 for row in d["formula_1"].values()),
    ),
    Claim(
        "Fig. 4, section 3.5",
        "partial covering: only the uncovered part of a range is left",
        lambda d: str(d["examples"]["partly_covered_leaves"]),
        lambda d: d["examples"]["partly_covered_leaves"] == [[61, 70]],
    ),
    Claim(
        "Fig. 5, section 3.6",
        "perfect merging joins adjacent ranges, imperfect merging bridges small gaps",
        lambda d: "{perfectly_merged}; gaps below 3: {bridged}".format(**d["examples"]),
        lambda d: d["examples"]["perfectly_merged"] == [[0, 9]] and d["examples"]["bridged"] == [[0, 20], [24, 30]],
    ),
    Claim(
        "Section 3.7",
        "subsumed if every range lies in the union of the others",
        lambda d: f"by two: {d['examples']['subsumed_by_two']}",
        lambda d: bool(d["examples"]["subsumed_by_two"]),
    ),
    Claim(
        "Section 4, Algorithm 1",
        "merged ranges replace those they were made of",
        lambda d: (
            f"after one of [0, 9] and [5, 14] is cancelled: {d['examples']['after_cancelling_one_of_two']} is left"
        ),
        lambda d: d["examples"]["after_cancelling_one_of_two"] != [[5, 14]],
        "slip in the paper: then nothing could be cancelled, because whose a range was is forgotten; here it "
        "is counted, range by range, how many ask for it",
    ),
    *(
        Claim(
            f"Table 1, {dims}D, sizes 2, 4, 8, 16",
            published,
            lambda d, dims=dims: listed([float(f"{ms:.2g}") for ms in table_1(d, dims, "measured_ms")]) + " ms",  # type: ignore[misc]
            lambda d, dims=dims: all(  # type: ignore[misc]
                a <= b for a, b in zip(table_1(d, dims, "measured_ms"), table_1(d, dims, "published_ms"), strict=True)
            ),
        )
        for dims, published in (
            (2, "0.1, 0.1, 0.3, 1.0 ms"),
            (3, "0.1, 0.3, 1.9, 12.8 ms"),
            (4, "0.1, 1.1, 10.2, 124.1 ms"),
        )
    ),
    Claim(
        "Section 6.1, on Table 1",
        "the computation is around 0.1 s in all cases",
        lambda d: "published at most 0.1241 s, at least 0.0001 s; here at most {:.1g} s".format(
            max(table_1(d, 4, "measured_ms")) / 1000
        ),
        None,
        "slip in the paper: its own table says from 0.0001 to 0.124 s",
    ),
    Claim(
        "Section 6.2",
        "merging reduces what rounding outward adds, considerably",
        lambda d: "{one_by_one:,} cells one by one, {of_the_union:,} of the union".format(**d["section_6_2"]),
        lambda d: d["section_6_2"]["of_the_union"] < 0.5 * d["section_6_2"]["one_by_one"],
    ),
    Claim(
        "Section 6.3, Fig. 6",
        "cells fitted to Zipfian publications: considerably fewer false positives",
        lambda d: "equal {}, fitted {}".format(*(percent(d["section_6_3"][k], 1) for k in ("equal", "fitted"))),
        lambda d: d["section_6_3"]["fitted"] < 0.75 * d["section_6_3"]["equal"],
        "workload unknown: where publications are frequent, false positives fall by half; where they are rare, fitted "
        "cells are wider than equal ones, and most false positives arise there",
    ),
    Claim(
        "Fig. 7",
        "subsumption forwards considerably fewer than covering, covering fewer than all; most of all in fewer "
        "dimensions",
        lambda d: (
            "at the end, covering and subsumption: "
            + "; ".join(
                f"{n}D {d['figure_7'][f'{n}d']['covering'][-1]:,}, {d['figure_7'][f'{n}d']['subsumption'][-1]:,}"
                for n in DIMS
            )
        ),
        lambda d: (
            all(
                d["figure_7"][f"{n}d"]["subsumption"][-1]
                < d["figure_7"][f"{n}d"]["covering"][-1]
                < d["figure_7"]["subscriptions"][-1]
                for n in DIMS
            )
            and all(
                d["figure_7"][f"{a}d"]["subsumption"][-1] / d["figure_7"][f"{a}d"]["covering"][-1]
                < d["figure_7"][f"{b}d"]["subsumption"][-1] / d["figure_7"][f"{b}d"]["covering"][-1]
                for a, b in pairwise(DIMS)
            )
        ),
    ),
    Claim(
        "Fig. 8",
        "insertion in the order of 0.1 ms, almost the same for any number of subscriptions",
        lambda d: "; ".join(
            f"{kind}, {n}D: {times(d, 'figure_8', kind, n)[0]:.0f} to {last(d, 'figure_8', kind, n):.0f} µs"
            for kind in KINDS
            for n in DIMS
        ),
        lambda d: all(
            last(d, "figure_8", kind, n) < 300 and last(d, "figure_8", kind, n) < 2 * times(d, "figure_8", kind, n)[0]
            for kind in KINDS
            for n in DIMS
        ),
    ),
    Claim(
        "Fig. 8",
        "insertion takes longer in more dimensions",
        lambda d: "; ".join(
            f"{kind} {listed([round(last(d, 'figure_8', kind, n), 1) for n in DIMS])} µs" for kind in KINDS
        ),
        lambda d: all(grows([last(d, "figure_8", kind, n) for n in DIMS]) for kind in KINDS),
        "better algorithm here: a table of ranges is blocks of sorted arrays, in which finding a place costs more than "
        "putting two or eight ranges there, so that times differ by little and cross",
    ),
    Claim(
        "Fig. 8",
        "uniform takes longer than Zipf",
        lambda d: "; ".join(
            f"{n}D {last(d, 'figure_8', 'uniform', n):.1f} against {last(d, 'figure_8', 'zipf', n):.1f} µs"
            for n in DIMS
        ),
        lambda d: all(last(d, "figure_8", "uniform", n) > last(d, "figure_8", "zipf", n) for n in DIMS),
        "better algorithm here: counts of ranges are lifted and lowered, not merged, so an insertion into a "
        "crowded place touches more entries than one into an empty one",
    ),
    Claim(
        "Fig. 9",
        "covering by look-up is much faster than the linear method, and does not fluctuate with the table",
        lambda d: "; ".join(
            f"{kind}, {n}D: {last(d, 'figure_9', kind, n, 'ours_us'):.1f} against "
            f"{last(d, 'figure_9', kind, n, 'linear_us'):.0f} µs"
            for kind in KINDS
            for n in DIMS
        ),
        lambda d: all(
            2 * last(d, "figure_9", kind, n, "ours_us") < last(d, "figure_9", kind, n, "linear_us")
            and last(d, "figure_9", kind, n, "ours_us") < 4 * times(d, "figure_9", kind, n, "ours_us")[0]
            for kind in KINDS
            for n in DIMS
        ),
    ),
    Claim(
        "Fig. 10",
        "matching by look-up is significantly faster than the linear method",
        lambda d: "; ".join(
            f"{kind}, {n}D: {last(d, 'figure_10', kind, n, 'ours_us'):.2f} against "
            f"{last(d, 'figure_10', kind, n, 'linear_us'):.0f} µs"
            for kind in KINDS
            for n in DIMS
        ),
        lambda d: all(
            10 * last(d, "figure_10", kind, n, "ours_us") < last(d, "figure_10", kind, n, "linear_us")
            for kind in KINDS
            for n in DIMS
        ),
    ),
    Claim(
        "Fig. 10",
        "the linear method's time grows with the subscriptions, that of the look-up not significantly (less "
        "than linear)",
        lambda d: (
            "; ".join(f"{kind}, {n}D: {growth(d, 'figure_10', kind, n):.1f}" for kind in KINDS for n in DIMS)
            + f" for {d['figure_10']['subscriptions'][-1] // d['figure_10']['subscriptions'][0]} times as many"
        ),
        lambda d: all(
            last(d, "figure_10", kind, n, "ours_us") < 5 * times(d, "figure_10", kind, n, "ours_us")[0]
            for kind in KINDS
            for n in DIMS
        ),
    ),
    Claim(
        "Fig. 10",
        "matching is faster with Zipfian subscriptions",
        lambda d: "; ".join(
            f"{n}D {last(d, 'figure_10', 'zipf', n, 'ours_us'):.2f} against "
            f"{last(d, 'figure_10', 'uniform', n, 'ours_us'):.2f} µs"
            for n in DIMS
        ),
        lambda d: all(
            last(d, "figure_10", "zipf", n, "ours_us") < last(d, "figure_10", "uniform", n, "ours_us") for n in DIMS
        ),
        "dense subscriptions: in 2D 150,000 uniform ones cover nearly everything, so their union is a handful "
        "of ranges, fewer than the Zipfian ones leave (Fig. 11)",
    ),
    Claim(
        "Fig. 11",
        "more ranges are stored in more dimensions",
        lambda d: "; ".join(
            f"{kind} {listed([stored(d, 'figure_11', f'{kind}_{n}d')[-1] for n in DIMS])}" for kind in KINDS
        ),
        lambda d: all(grows([stored(d, "figure_11", f"{kind}_{n}d")[-1] for n in DIMS]) for kind in KINDS),
    ),
    *(
        Claim(
            f"Fig. 11, {kind}",
            "fewer ranges after covering, subsumption and merging than sides of the subscriptions",
            lambda d, kind=kind: "; ".join(  # type: ignore[misc]
                f"{n}D {stored(d, 'figure_11', f'{kind}_{n}d')[-1]:,} of {stored(d, 'figure_11', f'sides_{n}d')[-1]:,}"
                for n in DIMS
            ),
            lambda d, kind=kind: all(  # type: ignore[misc]
                stored(d, "figure_11", f"{kind}_{n}d")[-1] < stored(d, "figure_11", f"sides_{n}d")[-1] for n in DIMS
            ),
            SPARSE,
        )
        for kind in KINDS
    ),
    Claim(
        "Fig. 11",
        "fewer than the ranges before covering, subsumption and merging",
        lambda d: "; ".join(
            f"{kind}, {n}D {stored(d, 'figure_11', f'{kind}_{n}d')[-1]:,} of "
            f"{stored(d, 'figure_11', f'before_{kind}_{n}d')[-1]:,}"
            for kind in KINDS
            for n in DIMS
        ),
        lambda d: all(
            stored(d, "figure_11", f"{kind}_{n}d")[-1] < stored(d, "figure_11", f"before_{kind}_{n}d")[-1]
            for kind in KINDS
            for n in DIMS
        ),
    ),
    Claim(
        "Fig. 11",
        "the reduction is more with Zipf than with uniform",
        lambda d: (
            "left of those before: "
            + "; ".join(
                f"{n}D "
                + ", ".join(
                    percent(stored(d, "figure_11", f"{k}_{n}d")[-1] / stored(d, "figure_11", f"before_{k}_{n}d")[-1], 1)
                    for k in KINDS
                )
                for n in DIMS
            )
        ),
        lambda d: all(
            stored(d, "figure_11", f"zipf_{n}d")[-1] / stored(d, "figure_11", f"before_zipf_{n}d")[-1]
            < stored(d, "figure_11", f"uniform_{n}d")[-1] / stored(d, "figure_11", f"before_uniform_{n}d")[-1]
            for n in DIMS
        ),
        "dense subscriptions: in 2D 150,000 uniform ones cover nearly all 65,536 cells, so that their union is "
        "a handful of ranges, while Zipfian ones leave the far cells open",
    ),
    *(
        Claim(
            f"Fig. 12, {kind}",
            "a larger size stores more ranges (2, 4, 8 cells)",
            lambda d, kind=kind: "at {:,}: {}; at {:,}: {}".format(  # type: ignore[misc]
                d["figure_12"]["subscriptions"][0],
                listed([stored(d, "figure_12", f"{kind}_size_{size}")[0] for size in (2, 4, 8)]),
                d["figure_12"]["subscriptions"][-1],
                listed([stored(d, "figure_12", f"{kind}_size_{size}")[-1] for size in (2, 4, 8)]),
            ),
            lambda d, kind=kind: all(  # type: ignore[misc]
                grows([stored(d, "figure_12", f"{kind}_size_{size}")[k] for size in (2, 4, 8)])
                for k in range(len(d["figure_12"]["subscriptions"]))
            ),
            COVERED,
        )
        for kind in KINDS
    ),
    Claim(
        "Fig. 12",
        "the increase slows down with more subscriptions, more so with Zipf",
        lambda d: (
            "size 4, last over first: "
            + ", ".join(f"{kind} {growth_stored(d, kind):.1f}" for kind in KINDS)
            + f" for {d['figure_12']['subscriptions'][-1] / d['figure_12']['subscriptions'][0]:.1f} times as many"
        ),
        lambda d: (
            stored(d, "figure_12", "zipf_size_4")[-1] / stored(d, "figure_12", "zipf_size_4")[0]
            < stored(d, "figure_12", "uniform_size_4")[-1] / stored(d, "figure_12", "uniform_size_4")[0]
            < d["figure_12"]["subscriptions"][-1] / d["figure_12"]["subscriptions"][0]
        ),
    ),
    table_2("zipf", "traffic", "5,217, 6,472, 7,040, 7,502", 1.1),
    table_2("zipf", "false_positives", "5.54, 3.71, 3.15, 2.57 %", 1.5),
    table_2("uniform", "traffic", "209, 583, 858, 1,325", 1.1),
    table_2("uniform", "false_positives", "42.11, 42.37, 36.95, 38.19 %", 1.5),
    false_positives("zipf", "the share falls with more subscriptions", False),
    false_positives("uniform", "the share falls with more subscriptions", False),
    Claim(
        "Table 2",
        "few false positives with Zipf, almost half of the traffic with uniform",
        lambda d: "{} against {}".format(
            *(percent(d["table_2"][f"{kind}_{counts(d, 'table_2')[-1]}"]["false_positives"]) for kind in KINDS)
        ),
        lambda d: (
            d["table_2"][f"zipf_{counts(d, 'table_2')[-1]}"]["false_positives"]
            < 0.5 * d["table_2"][f"uniform_{counts(d, 'table_2')[-1]}"]["false_positives"]
        ),
    ),
    Claim(
        "Table 2, taken literally",
        "size 4 in all seven attributes",
        lambda d: "false positives {} (Zipf), {} (uniform)".format(*(percent(literally(d, kind)) for kind in KINDS)),
        None,
        "slip in the paper: with the default size of 4 in seven attributes no publication would match, so another size "
        "must have been used",
    ),
    Claim(
        "Section 5",
        "projection: false positives from 3 % to more than 50 %, by the distribution",
        lambda d: "from {} to {}".format(
            *(
                percent(one(row["false_positives"] for name, row in d["table_2"].items() if "literal" not in name))
                for one in (min, max)
            )
        ),
        None,
        "the workload is unknown: the paper shows no case above 42 %, and its own Table 2 begins at 2.57 %",
    ),
    table_3("zipf", "64, 232, 414, 600"),
    table_3("uniform", "1, 1, 1, 1"),
    Claim(
        "Section 7.2, on Table 3",
        "indexing reduces the subscriptions to evaluate significantly, most with uniform",
        lambda d: "of {:,}: {:.0f} (Zipf), {:.1f} (uniform)".format(
            counts(d, "table_3")[-1],
            *(d["table_3"][f"{kind}_{counts(d, 'table_3')[-1]}"]["candidates"] for kind in KINDS),
        ),
        lambda d: (
            d["table_3"][f"uniform_{counts(d, 'table_3')[-1]}"]["candidates"]
            < d["table_3"][f"zipf_{counts(d, 'table_3')[-1]}"]["candidates"]
            < 0.01 * counts(d, "table_3")[-1]
        ),
    ),
)


def by_count(figure: str, who: str = "us") -> Any:
    def series(d: Details) -> Series:
        n = d[figure]["subscriptions"]
        return {f"{kind}, {dims}D": (n, times(d, figure, kind, dims, who)) for kind in KINDS for dims in DIMS}

    return series


def against_linear(figure: str) -> Any:
    def series(d: Details) -> Series:
        n = d[figure]["subscriptions"]
        return {
            f"{label}, {kind}, 3D": (n, times(d, figure, kind, 3, who))
            for who, label in (("ours_us", "look-up"), ("linear_us", "linear"))
            for kind in KINDS
        }

    return series


def figure_7(d: Details) -> Series:
    n = d["figure_7"]["subscriptions"]
    return {"none": (n, n)} | {
        f"{how}, {dims}D": (n, d["figure_7"][f"{dims}d"][how]) for how in ("covering", "subsumption") for dims in DIMS
    }


def ranges(figure: str, labels: tuple[str, ...]) -> Any:
    def series(d: Details) -> Series:
        return {label.replace("_", ", ", 1): (d[figure]["subscriptions"], stored(d, figure, label)) for label in labels}

    return series


PAPER = Paper(
    'Jafarpour, Mehrotra, Venkatasubramanian, Montanari, "MICS: An Efficient Content Space Representation Model for '
    'Publish/Subscribe Systems"',
    "Workload: 256 cells an attribute, low ends uniform or Zipf 1.0 over places in order, sizes as published; "
    "in Table 2 sizes 2 to 3 in three attributes and 88 % of the domain in four, fitted to its traffic. Up to "
    "150,000 subscriptions.",
    CLAIMS,
    (
        Plot("figure-7", "Fig. 7: subscriptions forwarded, Zipf, size 4", "subscriptions", "forwarded", figure_7),
        Plot("figure-8", "Fig. 8: insertion", "subscriptions", "µs", by_count("figure_8")),
        Plot("figure-9", "Fig. 9: covering, 3D", "subscriptions", "µs", against_linear("figure_9"), log_y=True),
        Plot("figure-10", "Fig. 10: matching, 3D", "subscriptions", "µs", against_linear("figure_10"), log_y=True),
        Plot(
            "figure-11",
            "Fig. 11: ranges stored, size 2",
            "subscriptions",
            "ranges",
            ranges("figure_11", tuple(f"{kind}_{n}d" for n in DIMS for kind in (*KINDS, "sides"))),
            log_y=True,
        ),
        Plot(
            "figure-12",
            "Fig. 12: ranges stored, 3D, by size",
            "subscriptions",
            "ranges",
            ranges("figure_12", tuple(f"{kind}_size_{size}" for size in (2, 4, 8) for kind in KINDS)),
            log_y=True,
        ),
    ),
)
