"""`lacuna bench pruning`: what the paper reports (`bench.papers.pruning`), and matching against looking at every tree.

Figures, at 75 % of all network-based prunings, where the published curve bends:

* `associations_at_bend` (at most 0.5), `traffic_at_bend` (at most 1.4), `filtering_time_at_bend` (at most 0.6): panels
  (f), (e) and (d) over the unpruned; published are 0.33, 1.37 and 0.47.
* `network_least_traffic`, `memory_fewest_associations_early`, `throughput_least_time_early`: in what share of the
  places looked at (early: up to 35 %) that dimension is the best of the three, as the paper says.
* `match_vs_all_trees` (at least 10): events a second through 200,000 subscriptions, over looking at every tree.
"""

from __future__ import annotations

from bench.all_trees import AllTrees
from bench.papers.pruning import index_of, make_scene
from bench.report import Report, Step, ratio, seconds
from state.filters.trees import boxes_of
from state.geometry.boxes import Box, stack
from state.geometry.boxindex import BoxIndex

MATCHED = 200_000


def beyond(report: Report, step: Step, *, quick: bool) -> None:
    """Matching against looking at every tree."""
    matched = MATCHED // 10 if quick else MATCHED
    step(f"matching {matched} subscriptions against looking at every tree")
    _match(report, matched, 3 if quick else 5)


def _match(report: Report, subscriptions: int, repeats: int) -> None:
    scene = make_scene(subscriptions, 400, seed=2)
    few, points = index_of(scene, scene.trees, "few"), scene.points
    found = few.matching(points)
    all_trees = AllTrees(scene.trees, scene.learned)
    if any((a != b).any() for a, b in zip(found, all_trees.matching(points), strict=True)):
        raise AssertionError("counting and looking at every tree disagree about the matches")
    gain = ratio(lambda: all_trees.matching(points), lambda: few.matching(points), repeats)
    report.add("match_vs_all_trees", gain, "at least 10")
    published = index_of(scene, scene.trees, "all")
    published.matching(points[:8])
    boxes: list[Box] = []
    owners = min(10_000, subscriptions)
    for tree in scene.trees[:owners]:
        boxes += boxes_of(tree, scene.space) or ()
    rows, some = (
        BoxIndex(scene.space.dims, stack(boxes, scene.space.dims)),
        index_of(scene, scene.trees[:owners], "few"),
    )
    rows.stab_all(points[:8]), some.matching(points[:8])
    report.details["matching"] = {
        "subscriptions": subscriptions,
        "matches_per_event": len(found[0]) / len(points),
        "events_per_s": round(len(points) / seconds(lambda: few.matching(points))),
        "counting_all_over_few": round(
            ratio(lambda: published.matching(points), lambda: few.matching(points), repeats), 2
        ),
        f"bit_rows_over_few_at_{owners}": round(
            ratio(lambda: rows.stab_all(points), lambda: some.matching(points), repeats), 2
        ),
        "boxes_per_subscription": round(len(boxes) / owners, 2),
    }
