"""Claims of Shen and Tirthapura, "Approximate Covering Detection among Content-Based Subscriptions Using SFCs"."""

from __future__ import annotations

from itertools import pairwise
from math import log2
from typing import Any

from bench.claims import Claim, Details, Paper, Plot, listed, percent
from bench.papers.svg import Series
from state.strategies.zcurve import EPSILON

WORKLOADS = ("even", "narrow", "zipf")
STOPS = ("level", "share")


def found(d: Details, **wanted: Any) -> list[dict[str, Any]]:
    """The rows about covers found that agree with what is wanted."""
    rows: list[dict[str, Any]] = d["covers_found"]
    return [row for row in rows if wanted.items() <= row.items()]


def share(d: Details, workload: str, stop: str, attributes: int = 2, epsilon: float = EPSILON) -> float:
    (row,) = found(d, workload=workload, stop=stop, attributes=attributes, epsilon=epsilon)
    return float(row["share_found"])


def side(d: Details, axes: int, kind: str) -> list[int]:
    values: list[int] = d[f"cubes_by_side_{axes}_axes"][kind]
    return values


def flat(d: Details, axes: int) -> float:
    """How much the approximate count still grows over the last six doublings of the side."""
    values = side(d, axes, "epsilon_0.05")
    return float(values[-1] / values[-7])


def bound(axes: int, alpha: int, epsilon: float) -> float:
    """The bound of Theorem 3.1 without its constant."""
    return float(log2(axes / epsilon) * (2 ** (alpha + 1) * axes / epsilon) ** (axes - 1))


def over_bound(d: Details) -> float:
    """The most cubes measured, over the bound of Theorem 3.1."""
    by_alpha = d["cubes_by_aspect_ratio"]
    shares: list[float] = [
        count / bound(axes, alpha, EPSILON)
        for axes in (2, 4, 6)
        for alpha, count in zip(by_alpha["alpha"], by_alpha[f"{axes} axes"], strict=True)
    ]
    shares += [side(d, axes, "epsilon_0.05")[-1] / bound(axes, 0, EPSILON) for axes in (2, 4, 6)]
    return max(shares)


def power(values: list[int]) -> float:
    """By which power of the side a count grows at the end, where each side is twice the one before."""
    return log2(values[-1] / values[-2])


CLAIMS = (
    Claim(
        "Section 1.1",
        "s1 covers s2 if and only if its point dominates that of s2",
        lambda d: (
            f"{sum(row['covered'] for row in d['covers_found']):,} covers by exact boxes, none found that is none"
        ),
        lambda d: all(row["share_found"] <= 1 for row in d["covers_found"]),
    ),
    Claim(
        "Lemma 2.1, Fact 2.1",
        "standard cubes nest or are disjoint; each is a single run",
        lambda d: "{:,} pairs of cubes, {} cross; {} cubes, {} of more than one run".format(
            *d["lemmas"]["pairs_of_cubes_crossing"], *d["lemmas"]["cubes_broken"]
        ),
        lambda d: d["lemmas"]["pairs_of_cubes_crossing"][1] == d["lemmas"]["cubes_broken"][1] == 0,
    ),
    Claim(
        "Fig. 1",
        "a rectangle of two runs on the Hilbert curve and three on the Z curve",
        lambda d: "{three_and_two:,} such among {rectangles:,} rectangles of a 16 x 16 grid".format(**d["figure_1"]),
        lambda d: d["figure_1"]["three_and_two"] > 0,
    ),
    Claim(
        "Section 1.1, after [12]",
        "Z and Hilbert curve perform within a constant factor",
        lambda d: "runs on average {mean_z} and {mean_hilbert}".format(**d["figure_1"]),
        lambda d: 0.5 < d["figure_1"]["mean_z"] / d["figure_1"]["mean_hilbert"] < 2,
    ),
    Claim(
        "Fig. 2, section 3.1",
        "256 x 256: 1 run; 257 x 257: 385; the largest holds over 99 %, so epsilon = 0.01 needs one",
        lambda d: "{runs_256}, {runs_257}, {largest_share_257}, {0}".format(
            d["section_3_1"]["cubes_257_at_0.01"], **d["section_3_1"]
        ),
        lambda d: (
            [d["section_3_1"][name] for name in ("runs_256", "runs_257", "cubes_257_at_0.01")] == [1, 385, 1]
            and d["section_3_1"]["largest_share_257"] > 0.99
        ),
    ),
    Claim(
        "Lemma 3.1",
        "at least as many cubes as runs",
        lambda d: "2 axes, side 2^14 - 1: {:,} cubes, {:,} runs".format(
            side(d, 2, "exhaustive")[12], side(d, 2, "exhaustive_runs")[12]
        ),
        lambda d: all(
            c >= r
            for axes in (2, 4, 6)
            for c, r in zip(side(d, axes, "exhaustive"), side(d, axes, "exhaustive_runs"), strict=False)
        ),
    ),
    Claim(
        "Lemma 3.2",
        "log2(2d / epsilon) leading bits keep 1 - epsilon of the volume",
        lambda d: f"kept beyond that, at least: {min(d['leading_bits'].values()):.4f}",
        lambda d: min(d["leading_bits"].values()) >= 0,
    ),
    Claim(
        "Lemma 3.3",
        "the greedy partition has the fewest cubes",
        lambda d: "{} regions: {} cubes, the fewest {}".format(*d["lemmas"]["regions"], *d["lemmas"]["greedy_fewest"]),
        lambda d: d["lemmas"]["greedy_fewest"][0] == d["lemmas"]["greedy_fewest"][1],
    ),
    Claim(
        "Lemma 3.4",
        "which levels have cubes, and where they lie",
        lambda d: "{} cubes by its counts, {} listed by section 5".format(*d["lemmas"]["levels_counted_listed"]),
        lambda d: d["lemmas"]["levels_differ"] == [0],
    ),
    Claim(
        "Lemma 3.5",
        "most cubes where all leading bits are ones and all longer sides are as long as the longest",
        lambda d: "all sides of up to 5 bits: {} cubes at most, {} where all are ones".format(
            *d["lemmas"]["hardest_ones"]
        ),
        lambda d: d["lemmas"]["hardest_ones"][0] == d["lemmas"]["hardest_ones"][1],
    ),
    Claim(
        "Lemma 3.6",
        "fewer than m (2^alpha (2^m - 1))^(d-1) cubes",
        lambda d: f"d = 4, m = 3: {side(d, 4, 'exhaustive')[1]:,} cubes, the bound says {3 * 7**3:,}",
        lambda d: side(d, 4, "exhaustive")[1] < 3 * 7**3,
        "slip in the paper: a factor of up to d is missing, because a shell of cubes has up to d faces; it does not "
        "change Theorem 3.1, whose d is constant",
    ),
    Claim(
        "Theorem 3.1",
        "O(log(d / epsilon) (2^(alpha+1) d / epsilon)^(d-1)) for an approximate search",
        lambda d: f"at most {over_bound(d):.2g} of that, 2, 4 and 6 dimensions, alpha up to 6",
        lambda d: over_bound(d) <= 1,
    ),
    Claim(
        "Section 1.2",
        "an approximate search does not depend on the side lengths",
        lambda d: "over six doublings of the side: " + listed([round(flat(d, axes), 3) for axes in (2, 4, 6)]),
        lambda d: all(flat(d, axes) < 1.05 for axes in (2, 4, 6)),
    ),
    Claim(
        "Theorem 4.1, section 1.2",
        "an exhaustive one grows as the (d-1)-th power of the shortest side",
        lambda d: (
            "powers for d = 2, 4, 6: " + listed([round(power(side(d, axes, "exhaustive")), 2) for axes in (2, 4, 6)])
        ),
        lambda d: all(abs(power(side(d, axes, "exhaustive")) - (axes - 1)) < 0.1 for axes in (2, 4, 6)),
    ),
    Claim(
        "Lemma 4.1",
        "no two cubes of R_0 lie in one run",
        lambda d: "{} cubes in {} runs".format(*d["lemmas"]["slab_cubes_runs"]),
        lambda d: d["lemmas"]["slab_cubes_runs"][0] == d["lemmas"]["slab_cubes_runs"][1],
    ),
    Claim(
        "Section 1.2",
        "the larger the region, the more an approximate search saves",
        lambda d: (
            "d = 4, sides 2^8, 2^14, 2^20: "
            + listed([round(side(d, 4, "exhaustive")[k] / side(d, 4, "epsilon_0.05")[k], 1) for k in (6, 12, 18)])
            + " times"
        ),
        lambda d: all(
            a < b
            for a, b in pairwise([side(d, 4, "exhaustive")[k] / side(d, 4, "epsilon_0.05")[k] for k in range(6, 19)])
        ),
    ),
    Claim(
        "Section 1.2",
        "2^alpha dominates: a large aspect ratio costs much",
        lambda d: "d = 4, alpha 0 to 6: " + listed(d["cubes_by_aspect_ratio"]["4 axes"]),
        lambda d: all(
            all(a < b for a, b in pairwise(d["cubes_by_aspect_ratio"][f"{axes} axes"])) for axes in (2, 4, 6)
        ),
    ),
    Claim(
        "Abstract",
        "much of the benefit at a fraction of the cost",
        lambda d: (
            "median cubes at epsilon = 0.05, random ranges of 10 bits, 1, 2, 3 attributes: "
            + listed([d["median_cubes_by_epsilon"][f"{n} attributes"][3] for n in (1, 2, 3)])
        ),
        lambda d: d["median_cubes_by_epsilon"]["2 attributes"][3] < 1000,
        "the bound is independent of the side, but exponential in d, which the abstract does not say: two "
        "attributes are four dimensions, and 95 % of the region is hundreds of thousands of cubes; so cubes "
        "without points are passed by here",
    ),
    Claim(
        "Problem 2, section 5",
        "the search stops when 1 - epsilon of the volume is searched",
        lambda d: (
            "to the end of the level 1 - epsilon = 0.95 becomes, in the median, "
            + listed([d["median_share_searched"][f"{n} attributes"] for n in (1, 2, 3)])
        ),
        lambda d: all(value < 0.955 for value in d["median_share_searched"].values()),
        'better algorithm here: the walk searches cubes of one size together; `stop = "share"` stops where the paper '
        "does",
    ),
    *(
        Claim(
            f"Section 1.1, {workload} subscriptions",
            "well distributed: most covers are found (at least 1 - epsilon)",
            lambda d, workload=workload: ", ".join(  # type: ignore[misc]
                f"{n} attributes {percent(share(d, workload, 'share', n), 1)}"
                f" ({percent(share(d, workload, 'level', n), 1)} to the end of the level)"
                for n in (1, 2, 3, 4)
            ),
            lambda d, workload=workload: all(share(d, workload, "share", n) >= 1 - EPSILON for n in (1, 2, 3, 4)),  # type: ignore[misc]
            "the workload is not the paper's: these subscriptions are not spread evenly, as it asks; their "
            "covers crowd at the corner of the region, which is searched last, or beyond the 1,000 steps",
        )
        for workload in WORKLOADS
    ),
    Claim(
        "Section 5",
        "keys are listed cube by cube and searched in the array",
        lambda d: "; ".join(
            "{attributes} attributes, epsilon {epsilon}: {median_cubes:,.0f} cubes, {listed_us:,} µs; by walking "
            "{median_steps:,.0f} steps, {walk_us:,} µs".format(**row)
            for row in d["listed_keys"]
        ),
        lambda d: all(row["agree"] >= 0.9 for row in d["listed_keys"]),
    ),
    Claim(
        "Section 4, Fig. 5",
        "square a, at (010, 011), has the key 13",
        lambda d: listed(d["lemmas"]["key_of_a"]),
        lambda d: d["lemmas"]["key_of_a"] == [13],
    ),
    Claim(
        "Section 1.3",
        "sublinear in the number of subscriptions",
        lambda d: (
            "exact covering by bit rows (`cover`), µs a question: "
            + listed([row["cover_us"] for row in found(d, workload="even", stop="share", epsilon=EPSILON)])
            + "; by the curve "
            + listed([row["zcurve_us"] for row in found(d, workload="even", stop="share", epsilon=EPSILON)])
        ),
        None,
        "better algorithm here: exact covering by bit rows or a k-d tree is as fast or faster at every size measured, "
        "so there is nothing that the approximation would have to make sublinear",
    ),
)


def by_side(axes: int) -> Plot:
    def series(d: Details) -> Series:
        sides = [2**g - 1 for g in d[f"cubes_by_side_{axes}_axes"]["side_bits"]]
        runs = side(d, axes, "exhaustive_runs")
        return {
            "epsilon = 0.05": (sides, side(d, axes, "epsilon_0.05")),
            "exhaustive": (sides, side(d, axes, "exhaustive")),
            "exhaustive, runs": (sides[: len(runs)], runs),
        }

    title = f"Cubes by side, {axes} dimensions, aspect ratio 0"
    return Plot(f"side-{axes}", title, "side", "cubes or runs", series, log_x=True, log_y=True)


def by_aspect(d: Details) -> Series:
    by_alpha = d["cubes_by_aspect_ratio"]
    return {f"{axes} dimensions": (by_alpha["alpha"], by_alpha[f"{axes} axes"]) for axes in (2, 4, 6)}


def by_epsilon(d: Details) -> Series:
    counts = d["median_cubes_by_epsilon"]
    return {f"{n} attributes": (counts["epsilon"], counts[f"{n} attributes"]) for n in (1, 2, 3)}


def by_stop(d: Details) -> Series:
    return {
        f"{workload}, {stop}": (
            [row["epsilon"] for row in rows],
            [row["share_found"] for row in rows],
        )
        for workload in WORKLOADS
        for stop in STOPS
        for rows in [found(d, workload=workload, stop=stop, attributes=2)]
    }


PAPER = Paper(
    'Shen, Tirthapura, "Approximate Covering Detection among Content-Based Subscriptions Using Space Filling Curves"',
    "The paper has no experiments; it counts. Covers are looked for among 10,000 subscriptions, one after another, "
    "those not covered becoming active: *even* (both ends uniform, as the paper assumes), *narrow* (ranges up to a "
    "fifth of the domain), *zipf* (as in the negative-space paper); 10 bits, at most 1,000 steps.",
    CLAIMS,
    (
        by_side(2),
        by_side(4),
        Plot(
            "aspect",
            "Cubes by aspect ratio, epsilon = 0.05",
            "aspect ratio alpha",
            "cubes",
            by_aspect,
            log_y=True,
        ),
        Plot(
            "epsilon",
            "Median cubes by epsilon, random ranges, 10 bits",
            "epsilon",
            "cubes",
            by_epsilon,
            log_x=True,
            log_y=True,
        ),
        Plot("found", "Covers found, 2 attributes, by where it stops", "epsilon", "share found", by_stop, log_x=True),
    ),
)
