"""Claims of Ouksel et al., "Efficient Probabilistic Subsumption Checking"."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from bench.claims import Claim, Details, Paper, Plot, listed, percent
from bench.papers.svg import Series

ATTRIBUTES = (10, 15, 20)
DELTAS = (1e-3, 1e-6, 1e-10)
WORKLOAD = (
    "the workload is unknown (scale of the Pareto centres, mean and deviation of the sizes): fitted to the "
    "shares at m = 10 and 20, it gives more active ones in between"
)


def cells(d: Details, table: str, m: int) -> list[dict[str, Any]]:
    return [cell for cell in d[table] if cell["m"] == m]


def lowest(d: Details, table: str, column: str, m: int) -> float:
    return min(float(cell[column]) for cell in cells(d, table, m))


def mean(d: Details, table: str, column: str, m: int) -> float:
    values = [float(cell[column]) for cell in cells(d, table, m)]
    return sum(values) / len(values)


def at(d: Details, m: int, k: int) -> dict[str, Any]:
    """The cell of Fig. 5 and 6 for one m and k."""
    return next(cell for cell in cells(d, REDUNDANT, m) if cell["k"] == k)


def extreme(d: Details, delta: float, rule: str) -> list[dict[str, Any]]:
    rows = d["fig_9_and_10_extreme_non_cover"]["rows"]
    return [row for row in rows if (row["delta"], row["rule"]) == (delta, rule)]


def wrong(d: Details, delta: float, rule: str, above: float) -> int:
    return sum(row["wrong"] for row in extreme(d, delta, rule) if row["gap"] > above)


def compared(d: Details, m: int) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in d["fig_11_comparison"] if row["m"] == m)
    return row


def ratio(d: Details, m: int, n: int) -> float:
    growth = d["fig_11_and_12_growth"]
    return float(growth[str(m)]["ratio"][growth["n"].index(n)])


def easy(d: Details, column: str) -> float:
    return min(float(row[column]) for row in d["scenarios_1a_and_2a"])


def scaling(d: Details) -> float:
    """The time of scenario 1.a at the largest k over that at the smallest, over the same ratio of k; m = 10."""
    rows = cells(d, "scenarios_1a_and_2a", 10)
    return float(rows[-1]["us"] / rows[0]["us"] / (rows[-1]["k"] / rows[0]["k"]))


REDUNDANT, NON_COVER = "fig_5_and_6_redundant_covering", "fig_7_and_8_non_cover"


def active_share(m: int, published: str, group: float, pairwise_: float) -> Claim:
    return Claim(
        f"Fig. 11, m = {m}",
        published,
        lambda d: "group {}, pairwise {} of {:,}".format(
            percent(compared(d, m)["group"], 1),
            percent(compared(d, m)["pairwise"], 1),
            d["fig_11_and_12_growth"]["n"][-1],
        ),
        lambda d: compared(d, m)["group"] <= group and compared(d, m)["pairwise"] <= pairwise_,
        WORKLOAD,
    )


CLAIMS = (
    Claim(
        "Table 2, Table 4, Fig. 1",
        "s is covered by s1 and s2 together, by neither alone; one entry in each row",
        lambda d: "covered: {table_2_covered}, by one: {table_2_single}, entries {table_4_entries}".format(
            **d["examples"]
        ),
        lambda d: (
            d["examples"]["table_2_covered"]
            and not d["examples"]["table_2_single"]
            and d["examples"]["table_4_entries"] == [[0, 1, 0, 0], [1, 0, 0, 0]]
        ),
    ),
    Claim(
        "Table 5, Fig. 2",
        "not covered; the witness is x1 above 870",
        lambda d: "covered: {table_5_covered}, witness x1 in {table_5_witness_x1}".format(**d["examples"]),
        lambda d: not d["examples"]["table_5_covered"] and d["examples"]["table_5_witness_x1"][0] > 870,
    ),
    Claim(
        "Tables 6 and 7, Fig. 3",
        "the entries of s3 conflict with none; MCS leaves s1 and s2",
        lambda d: "entries {table_7_entries}, rows left {table_7_left}".format(**d["examples"]),
        lambda d: d["examples"]["table_7_left"] == [0, 1] and d["examples"]["table_7_entries"][2] == [0, 0, 1, 1],
    ),
    Claim(
        "Corollary 1",
        "a row without entries: covered by that subscription",
        lambda d: "{one_right:,} of {one:,} such are covered".format(**d["corollaries"]),
        lambda d: d["corollaries"]["one"] == d["corollaries"]["one_right"] > 0,
    ),
    Claim(
        "Corollary 2",
        "a row with all entries defined: s covers that subscription",
        lambda d: "{all_defined_inside:,} of {all_defined:,} such rows".format(**d["corollaries"]),
        lambda d: d["corollaries"]["all_defined"] == d["corollaries"]["all_defined_inside"] > 0,
    ),
    Claim(
        "Corollary 3",
        "enough entries in every row: certainly not covered",
        lambda d: "{open_right:,} of {open:,} such are not covered".format(**d["corollaries"]),
        lambda d: d["corollaries"]["open"] == d["corollaries"]["open_right"] > 0,
    ),
    Claim(
        "Proposition 3, Algorithm 2",
        "rows with a conflict-free entry, or with k entries, are redundant",
        lambda d: "{reduced_alike:,} of {reduced:,} answers are the same without them".format(**d["corollaries"]),
        lambda d: d["corollaries"]["reduced"] == d["corollaries"]["reduced_alike"] > 0,
    ),
    Claim(
        "Algorithm 2, line 8",
        "a row goes if fc >= 0",
        lambda d: (
            f"of Table 4 both rows would go, which means not covered; covered: {d['examples']['table_2_covered']}"
        ),
        lambda d: not d["examples"]["table_2_covered"],
        "slip in the paper: every count is at least 0; the text says 1, and so it is done here",
    ),
    Claim(
        "Section 4.3",
        "MCS leaves nothing: certainly not covered",
        lambda d: "{emptied_right:,} of {emptied:,} such are not covered".format(**d["corollaries"]),
        lambda d: d["corollaries"]["emptied"] == d["corollaries"]["emptied_right"] > 0,
    ),
    Claim(
        "Proposition 1, Equation 1",
        "wrong with probability at most delta, with d computed from rho as described",
        lambda d: (
            "pinwheel, delta = {delta}: wrong in {wrong_printed:.3f} (rho {rho_printed}); with gaps counted "
            "{wrong_ours:.3f} (rho {rho_ours})".format(**d["pinwheel"])
        ),
        lambda d: d["pinwheel"]["wrong_printed"] <= 1.5 * d["pinwheel"]["delta"],
        "slip in the paper: its rho measures from the ends of s only, and the gap between two others may be "
        "thinner, so it is no lower bound; here such gaps count, and delta is kept",
    ),
    Claim(
        "Section 4.1",
        "the definite NO ends the guessing early: far fewer than d",
        lambda d: "gap 1 %, delta = 1e-10: {:.0f} guesses on average".format(extreme(d, 1e-10, "ours")[1]["guesses"]),
        lambda d: extreme(d, 1e-10, "ours")[1]["guesses"] < 200,
    ),
    Claim(
        "Section 5, Proposition 4",
        "the probability of finding the publication along n brokers (Equation 2)",
        lambda d: (
            "n = 10: formula {formula}, each broker guessing for itself {measured}; as Lacuna does "
            "{measured_shared}".format(**d["proposition_4"]["paths"][-1])
        ),
        lambda d: abs(d["proposition_4"]["paths"][-1]["formula"] - d["proposition_4"]["paths"][-1]["measured"]) < 0.06,
        "workload too small: the measured mean of so few runs scatters",
    ),
    Claim(
        "Scenario 1.a",
        "pairwise covering is found by Corollary 1 alone",
        lambda d: f"found: {percent(easy(d, 'contained_found'))}",
        lambda d: easy(d, "contained_found") == 1,
    ),
    Claim(
        "Scenario 1.a",
        "at a cost of O(m k)",
        lambda d: "m = 10, k from {} to {}: time grows {:.2f} times as fast as k".format(
            cells(d, "scenarios_1a_and_2a", 10)[0]["k"], cells(d, "scenarios_1a_and_2a", 10)[-1]["k"], scaling(d)
        ),
        lambda d: scaling(d) <= 1.5,
    ),
    Claim(
        "Scenario 2.a",
        "no intersection: MCS takes out all, in its first pass",
        lambda d: "emptied: {}; with a conflict-free entry at the start: {}".format(
            percent(easy(d, "apart_emptied")), percent(easy(d, "removed_in_first_pass"))
        ),
        lambda d: easy(d, "apart_emptied") == 1 == easy(d, "removed_in_first_pass"),
    ),
    Claim(
        "Fig. 5",
        "MCS takes out 80 to 100 % of the redundant ones",
        lambda d: (
            "at least " + ", ".join(f"{percent(lowest(d, REDUNDANT, 'reduction', m), 1)} (m = {m})" for m in ATTRIBUTES)
        ),
        lambda d: min(lowest(d, REDUNDANT, "reduction", m) for m in ATTRIBUTES) >= 0.8,
    ),
    Claim(
        "Fig. 5",
        "more with more attributes",
        lambda d: "on average " + ", ".join(f"{mean(d, REDUNDANT, 'reduction', m):.4f}" for m in ATTRIBUTES),
        lambda d: all(
            mean(d, REDUNDANT, "reduction", a) <= mean(d, REDUNDANT, "reduction", b) + 1e-9
            for a, b in pairwise(ATTRIBUTES)
        ),
    ),
    Claim(
        "Fig. 6",
        "without MCS the number of guesses is extremely high",
        lambda d: f"k = 100, m = 10: 10^{at(d, 10, 100)['all_paper']}",
        lambda d: at(d, 10, 100)["all_paper"] > 8,
    ),
    Claim(
        "Fig. 6",
        "with MCS below 10^5 for k = 100, m = 10",
        lambda d: f"10^{at(d, 10, 100)['mcs_paper']} by the published rho, 10^{at(d, 10, 100)['mcs_ours']} by ours",
        lambda d: at(d, 10, 100)["mcs_paper"] < 5,
        "the scenario is unknown: it depends on how thin the slices are, of which nothing is said",
    ),
    Claim(
        "Fig. 6",
        "and significantly less for more attributes",
        lambda d: "k = 100, after MCS: " + ", ".join(f"10^{at(d, m, 100)['mcs_paper']} (m = {m})" for m in ATTRIBUTES),
        lambda d: at(d, 20, 100)["mcs_paper"] < at(d, 10, 100)["mcs_paper"] - 0.5,
        "the scenario is unknown: here MCS leaves hardly more than the slices that cover, at m = 10 already, and more "
        "attributes cannot leave fewer",
    ),
    Claim(
        "Fig. 7",
        "non-cover: reduced even better than redundant covering",
        lambda d: ", ".join(
            f"m = {m}: {mean(d, NON_COVER, 'reduction', m):.4f} against {mean(d, REDUNDANT, 'reduction', m):.4f}"
            for m in ATTRIBUTES
        ),
        lambda d: all(
            mean(d, NON_COVER, "reduction", m) >= mean(d, REDUNDANT, "reduction", m) - 1e-9 for m in ATTRIBUTES
        ),
        "the scenario is unknown: redundant covering, as it is made here, is reduced almost wholly, which "
        "nothing can exceed",
    ),
    Claim(
        "Fig. 8",
        "fewer than 0.5 guesses on average",
        lambda d: "at most {:.2f}".format(max(cell["guesses"] for cell in d[NON_COVER])),
        lambda d: max(cell["guesses"] for cell in d[NON_COVER]) < 0.5,
        "the scenario is unknown: how much MCS leaves depends on how far the others reach over s",
    ),
    Claim(
        "Section 6.2",
        "non-cover is always detected",
        lambda d: f"{d['non_cover_wrong_answers']} wrong answers",
        lambda d: d["non_cover_wrong_answers"] == 0,
    ),
    Claim(
        "Fig. 9",
        "the average number of guesses is similar for all delta",
        lambda d: (
            "gap 2 %: " + ", ".join(f"{extreme(d, delta, 'ours')[3]['guesses']:.0f} ({delta:g})" for delta in DELTAS)
        ),
        lambda d: all(
            max(extreme(d, delta, "ours")[g]["guesses"] for delta in DELTAS)
            < 1.15 * min(extreme(d, delta, "ours")[g]["guesses"] for delta in DELTAS)
            for g in range(2, 9)
        ),
        "the scenario is unknown: the means of so few runs scatter",
    ),
    Claim(
        "Fig. 10",
        "delta at most 1e-6, gap above 1 %: always right",
        lambda d: (
            f"wrong: {wrong(d, 1e-6, 'paper', 0.01)} by the published rho, {wrong(d, 1e-6, 'ours', 0.01)} by ours"
        ),
        lambda d: wrong(d, 1e-6, "paper", 0.01) == wrong(d, 1e-10, "paper", 0.01) == 0,
    ),
    Claim(
        "Fig. 10",
        "delta = 1e-3: few wrong with gaps of at least 2 %",
        lambda d: f"{wrong(d, 1e-3, 'paper', 0.0199)} of {7 * d['fig_9_and_10_extreme_non_cover']['runs']:,}",
        lambda d: wrong(d, 1e-3, "paper", 0.0199) < 0.005 * 7 * d["fig_9_and_10_extreme_non_cover"]["runs"],
    ),
    Claim(
        "Fig. 10",
        "wrong answers grow with delta and fall with the gap",
        lambda d: (
            "gap 0.5 %: "
            + listed([extreme(d, delta, "paper")[0]["wrong"] for delta in DELTAS])
            + "; 1 %: "
            + listed([extreme(d, delta, "paper")[1]["wrong"] for delta in DELTAS])
        ),
        lambda d: (
            all(a >= b for a, b in pairwise([extreme(d, delta, "paper")[0]["wrong"] for delta in DELTAS]))
            and extreme(d, 1e-3, "paper")[0]["wrong"] > extreme(d, 1e-3, "paper")[1]["wrong"]
        ),
    ),
    active_share(10, "group under 10 %, pairwise about 15 %", 0.105, 0.18),
    active_share(15, "group under 10 %, pairwise about 15 %", 0.105, 0.18),
    active_share(20, "group about 33 %, pairwise under 50 %", 0.38, 0.5),
    Claim(
        "Fig. 11",
        "groups reduce more than pairwise, for all m; more are active for larger m",
        lambda d: "group " + ", ".join(percent(compared(d, m)["group"], 1) for m in ATTRIBUTES),
        lambda d: (
            all(compared(d, m)["group"] < compared(d, m)["pairwise"] for m in ATTRIBUTES)
            and compared(d, 10)["group"] < compared(d, 15)["group"] < compared(d, 20)["group"]
        ),
    ),
    Claim(
        "Fig. 12",
        "at 1,000 subscriptions the ratio is between 70 and 80 %",
        lambda d: ", ".join(f"m = {m}: {percent(ratio(d, m, 1000))}" for m in ATTRIBUTES),
        lambda d: all(0.65 <= ratio(d, m, 1000) <= 0.85 for m in ATTRIBUTES),
        WORKLOAD + "; with ten attributes groups find more of them here, sooner",
    ),
    Claim(
        "Fig. 12",
        "it decreases with more subscriptions",
        lambda d: ", ".join(
            f"m = {m}: {percent(ratio(d, m, 1000))} to {percent(d['fig_11_and_12_growth'][str(m)]['ratio'][-1])}"
            for m in ATTRIBUTES
        ),
        lambda d: all(d["fig_11_and_12_growth"][str(m)]["ratio"][-1] < ratio(d, m, 1000) for m in ATTRIBUTES),
    ),
    Claim(
        "Fig. 12",
        "it is larger for larger m, almost the same for 15 and 20 (within 5 points)",
        lambda d: ", ".join(percent(d["fig_11_and_12_growth"][str(m)]["ratio"][-1], 1) for m in ATTRIBUTES),
        lambda d: (
            d["fig_11_and_12_growth"]["10"]["ratio"][-1] < d["fig_11_and_12_growth"]["15"]["ratio"][-1]
            and abs(d["fig_11_and_12_growth"]["15"]["ratio"][-1] - d["fig_11_and_12_growth"]["20"]["ratio"][-1]) <= 0.05
        ),
        WORKLOAD,
    ),
    Claim(
        "Section 6.4, abstract",
        "false decisions are rare in practice (delta = 1e-6)",
        lambda d: ", ".join(
            f"m = {m}: {compared(d, m)['wrong']} of {compared(d, m)['probable']} probable ones" for m in ATTRIBUTES
        ),
        lambda d: all(compared(d, m)["wrong"] <= 0.001 * max(1, compared(d, m)["probable"]) for m in ATTRIBUTES),
        "the paper counts no false decisions of this scenario: here rho is so small that d guesses cannot be "
        "made, the cap (10,000) is reached, and what is then withheld is partly wrong",
    ),
    Claim(
        "Table 1",
        "p1 matches s1, p2 does not",
        lambda d: "not measured",
        None,
        "an illustration with wildcards in names of services, which the paper's own model of ranges does not "
        "have either",
    ),
    Claim(
        "Section 4",
        "RSPC costs O(d m k), MCS O(m^2 k^3)",
        lambda d: (
            f"whole decisions, {d['fig_11_and_12_growth']['n'][-1]:,} subscriptions: "
            + ", ".join(f"{compared(d, m)['group_us']:,.0f} µs (m = {m})" for m in ATTRIBUTES)
        ),
        None,
        "better algorithm here: MCS keeps its rows sorted by their ends, so that its cost is not the paper's; "
        "bounds of this kind cannot be contradicted by a few times",
    ),
)


def by_k(table: str, columns: tuple[str, ...]) -> Any:
    def series(d: Details) -> Series:
        shown: dict[str, Any] = {}
        for m in ATTRIBUTES:
            for column in columns:
                mine = [cell for cell in cells(d, table, m) if math.isfinite(cell[column])]
                label = f"m = {m}" if len(columns) == 1 else f"m = {m}, {column.replace('_', ', ')}"
                shown[label] = ([cell["k"] for cell in mine], [cell[column] for cell in mine])
        return shown

    return series


def by_gap(column: str) -> Any:
    def series(d: Details) -> Series:
        return {
            f"delta = {delta:g}, {rule}": (
                [100 * row["gap"] for row in extreme(d, delta, rule)],
                [row[column] for row in extreme(d, delta, rule)],
            )
            for delta in DELTAS
            for rule in ("paper", "ours")
        }

    return series


def by_path(d: Details) -> Series:
    path, paths = d["proposition_4"], d["proposition_4"]["paths"]
    curves: dict[str, Any] = {
        f"Equation 2, (1 - rho_w)^d = {missed}": (path["brokers"], values)
        for missed, values in path["by_missed"].items()
    }
    n = [one["brokers"] for one in paths]
    curves[f"measured, {path['missed']:.2f}"] = (n, [one["measured"] for one in paths])
    curves["measured, all brokers alike"] = (n, [one["measured_shared"] for one in paths])
    return curves


def growth(kinds: tuple[str, ...]) -> Any:
    def series(d: Details) -> Series:
        found = d["fig_11_and_12_growth"]
        return {f"m = {m}, {kind}": (found["n"], found[str(m)][kind]) for m in ATTRIBUTES for kind in kinds}

    return series


PAPER = Paper(
    'Ouksel, Jurca, Podnar, Aberer, "Efficient Probabilistic Subsumption Checking for Content-Based Publish/Subscribe '
    'Systems"',
    "The paper says what its scenarios are like, not how they were made; `bench/papers/probabilistic.py` says how they "
    "are made here, 300 runs each (3,000 of the extreme one). *ours* counts gaps between subscriptions in rho, *paper* "
    "does not.",
    CLAIMS,
    (
        Plot(
            "fig-5",
            "Fig. 5: redundant ones taken out by MCS",
            "subscriptions k",
            "share",
            by_k(REDUNDANT, ("reduction",)),
        ),
        Plot(
            "fig-6",
            "Fig. 6: guesses needed, delta = 1e-10",
            "subscriptions k",
            "log10 d",
            by_k(REDUNDANT, ("all_paper", "mcs_paper")),
        ),
        Plot(
            "fig-7", "Fig. 7: taken out by MCS, non-cover", "subscriptions k", "share", by_k(NON_COVER, ("reduction",))
        ),
        Plot("fig-8", "Fig. 8: guesses made, non-cover", "subscriptions k", "guesses", by_k(NON_COVER, ("guesses",))),
        Plot("fig-9", "Fig. 9: guesses made, extreme non-cover", "gap, %", "guesses", by_gap("guesses")),
        Plot("fig-10", "Fig. 10: wrong answers", "gap, %", "wrong", by_gap("wrong")),
        Plot("fig-11", "Fig. 11: active subscriptions", "subscriptions", "active", growth(("group", "pairwise"))),
        Plot("fig-12", "Fig. 12: group over pairwise", "subscriptions", "ratio", growth(("ratio",))),
        Plot(
            "proposition-4",
            "Proposition 4: publication found, rho = 0.2",
            "brokers on the path",
            "probability",
            by_path,
        ),
    ),
)
