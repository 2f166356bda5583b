"""Which boxes, or Boolean filters, hold a point? Against the peers that answer it, all pairs, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bench.core import bulk_rtree
from bench.papers.pruning import make_scene
from bench.peers.postgres import Cubes, Server
from bench.peers.programs import PATIENCE, Pairs, Program, SkippedError, jvm, pairs_of, rust
from bench.report import Report, Step, median, seconds
from state.filters.trees import And, Filter, Leaf
from state.geometry.boxindex import BoxIndex
from state.matching.predicates import Predicates
from state.protocol.messages import Name
from state.space import Keys, Space

DIMS = 3
NARROWEST, WIDEST = 0.05, 0.15
POINTS = {1_000: 20_000, 10_000: 10_000, 100_000: 2_000, 1_000_000: 200}
"""How many points are matched at each number of boxes."""
FILTERS, EVENTS = 10_000, 400


class Matcher(Protocol):
    """A peer that holds its boxes and the points to match."""

    built: float

    def match(self) -> float:
        """Match all points and return the seconds that it took."""

    def pairs(self) -> Pairs:
        """Match all points and return the pairs."""

    def close(self) -> None:
        """End what was started for it."""


Open = Callable[[Keys, Keys, Path], Matcher]


class Ours:
    """The index over boxes."""

    def __init__(self, boxes: Keys, points: Keys) -> None:
        self._index, self._points = BoxIndex(DIMS, boxes), points
        self._index.stab_all(points[:8])

    def match(self) -> float:
        return seconds(lambda: self._index.stab_all(self._points))

    def pairs(self) -> Pairs:
        ends, slots = self._index.stab_all(self._points)
        return pairs_of(np.repeat(np.arange(len(self._points)), np.diff(ends)), slots)


class Rtree:
    """libspatialindex by its bulk query, packed with all boxes at once: its best case."""

    def __init__(self, boxes: Keys, points: Keys) -> None:
        self._points = points.astype(np.float64)
        self.built = seconds(lambda: self._pack(boxes))

    def _pack(self, boxes: Keys) -> None:
        self._index = bulk_rtree(boxes)

    def _found(self) -> Any:
        return self._index.intersection_v(self._points, self._points)  # type: ignore[no-untyped-call]

    def match(self) -> float:
        return seconds(self._found)

    def pairs(self) -> Pairs:
        boxes, counts = self._found()
        return pairs_of(np.repeat(np.arange(len(self._points)), counts.astype(np.int64)), boxes)

    def close(self) -> None:
        pass


def make_boxes(count: int, points: int) -> tuple[Keys, Keys]:
    """Boxes with sides of 5 to 15 % of a domain of a million keys, and points, both uniform."""
    chance = np.random.default_rng(1)
    size = NARROWEST + chance.random((count, DIMS)) * (WIDEST - NARROWEST)
    low = chance.random((count, DIMS)) * (1 - size)
    boxes = np.stack((low * 1e6, (low + size) * 1e6), axis=1).astype(np.int64)
    return boxes, (chance.random((points, DIMS)) * 1e6).astype(np.int64)


def compare_boxes(report: Report, step: Step, home: Path, server: Server | None, sizes: list[int]) -> None:
    """Match boxes with every peer, at each size that it can answer within a minute."""
    peers: dict[str, Open] = {
        "rtree": lambda boxes, points, _: Rtree(boxes, points),
        "rstar": lambda boxes, points, folder: _program([rust(), "rstar"], boxes, points, folder),
        "event-ruler": lambda boxes, points, folder: _program(jvm("Ruler"), boxes, points, folder),
    }
    if server is not None:
        peers["cube"] = lambda boxes, points, _: Cubes(server, boxes, points)
    for name, opened in peers.items():
        rows = list(_at_each_size(report, step, name, opened, home, sizes))
        report.details[f"match_vs_{name}"] = rows
        for row in rows:
            if row["boxes"] == 100_000:
                goal = "aim: 4" if name == "rstar" else ""
                report.add(f"match_vs_{name}_100k", row["ratio"], goal)


def _at_each_size(
    report: Report, step: Step, name: str, opened: Open, home: Path, sizes: list[int]
) -> Iterator[dict[str, Any]]:
    """Compare at growing sizes until the peer cannot be had, or would take longer than a minute."""
    for count in sizes:
        step(f"matching {count:,} boxes: {name}")
        boxes, points = make_boxes(count, POINTS[count])
        folder = home / f"{name}-{count}"
        folder.mkdir()
        try:
            row, took = _compare(Ours(boxes, points), len(points), lambda: opened(boxes, points, folder))  # noqa: B023
        except SkippedError as skipped:
            report.skip(f"{name}, {count:,} boxes", str(skipped))
            return
        yield {"boxes": count, "points": len(points), **row}
        if took * 10 > PATIENCE and count < sizes[-1]:
            report.skip(f"{name}, more boxes", f"{count:,} took {took:.0f} s, and ten times as many too long")
            return


def _compare(ours: Any, points: int, opened: Callable[[], Matcher]) -> tuple[dict[str, Any], float]:
    """Check that both find the same pairs, then time them in turns. Returns what was found, and the peer's time."""
    with _closing(opened()) as peer:
        found, theirs = ours.pairs(), peer.pairs()
        if not np.array_equal(found, theirs):
            raise AssertionError(f"the matches differ: {len(found)} pairs here, {len(theirs)} there")
        first = peer.match()
        repeats = 7 if first < 1 else 3
        turns = [(ours.match(), peer.match()) for _ in range(repeats)]
        return {
            "matches_per_point": round(len(found) / points, 3),
            "us": round(median(mine for mine, _ in turns) / points * 1e6, 3),
            "peer_us": round(median(other for _, other in turns) / points * 1e6, 3),
            "peer_build_s": round(peer.built, 2),
            "ratio": round(median(other / mine for mine, other in turns), 2),
        }, peer.built + first


@contextmanager
def _closing(peer: Matcher) -> Iterator[Matcher]:
    try:
        yield peer
    finally:
        peer.close()


def _program(command: list[str], boxes: Keys, points: Keys, folder: Path) -> Program:
    boxes.tofile(folder / "boxes.bin")
    points.tofile(folder / "points.bin")
    return Program([*command, str(folder)], folder)


# Boolean filters


class OursBoolean:
    """The index over predicates."""

    def __init__(self, space: Space, trees: list[Filter], points: Keys) -> None:
        self._index = Predicates(space, ((Name("", "", str(k)), tree) for k, tree in enumerate(trees)))
        self._points = points
        self._index.matching(points[:8])

    def match(self) -> float:
        return seconds(lambda: self._index.matching(self._points))

    def pairs(self) -> Pairs:
        return pairs_of(*self._index.matching(self._points))


def compare_filters(report: Report, step: Step, home: Path) -> None:
    """Match Boolean filters of book auctions with a-tree."""
    step(f"matching {FILTERS:,} Boolean filters: a-tree")
    scene = make_scene(FILTERS, EVENTS)
    folder = home / "a-tree"
    folder.mkdir()
    (folder / "attributes.txt").write_text("".join(f"a{i}\n" for i in range(scene.space.dims)))
    (folder / "filters.txt").write_text("".join(expression(tree, scene.space) + "\n" for tree in scene.trees))
    (folder / "events.txt").write_text("".join(" ".join(map(str, p)) + "\n" for p in scene.points.tolist()))
    ours = OursBoolean(scene.space, scene.trees, scene.points)
    try:
        row, _ = _compare(ours, EVENTS, lambda: Program([rust(), "a-tree", str(folder)], folder))
    except SkippedError as skipped:
        report.skip("a-tree", str(skipped))
        return
    report.add("match_boolean_vs_a_tree_10k", row["ratio"])
    report.details["match_boolean_vs_a-tree"] = {"filters": FILTERS, "events": EVENTS, **row}


def expression(tree: Filter, space: Space) -> str:
    """Write a filter in the language of a-tree, on keys.

    >>> from state.space import Attribute
    >>> space = Space((Attribute("a", "int", 0, 9), Attribute("b", "category", 0, 2, ("x", "y", "z"))))
    >>> expression(And((Leaf(0, 3, 10), Leaf(1, 0, 2))), space)
    '(a0 >= 3 and a1 in [0, 1])'
    """
    if isinstance(tree, Leaf):
        return _predicate(tree, space)
    joint = " and " if isinstance(tree, And) else " or "
    return "(" + joint.join(expression(child, space) for child in tree.children) + ")"


def _predicate(leaf: Leaf, space: Space) -> str:
    attribute, name = space.attributes[leaf.attribute], f"a{leaf.attribute}"
    if leaf.hi == leaf.lo + 1:
        return f"{name} = {leaf.lo}"
    if attribute.kind == "category":
        return f"{name} in [{', '.join(map(str, range(leaf.lo, leaf.hi)))}]"
    ends = [f"{name} >= {leaf.lo}"] * (leaf.lo > attribute.low) + [f"{name} < {leaf.hi}"] * (leaf.hi <= attribute.high)
    return ends[0] if len(ends) == 1 else f"({' and '.join(ends)})"
