"""Messages over the links of three brokers in a line: against ActiveMQ, with a selector for each subscription.

ActiveMQ's network has two settings. With conduit subscriptions a broker is told of its neighbour's topic alone, so
every publication goes everywhere; without, it is told of every selector, and sends a copy for each one that matches.
Both are run on the same subscriptions and publications, and the one with fewer publications on its links is compared,
duplicates included. What brokers are told of subscriptions, once for each, is counted beside them.

How much is to be gained depends on how much is asked for. Where it is little, a copy for each selector costs little;
where it is nearly everything, flooding does. So there are two sizes; the figure is of the larger, where both settings
of ActiveMQ cost about alike.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.peers.matching import make_boxes
from bench.peers.programs import PATIENCE, SkippedError, jvm
from bench.report import Report, Step
from lacuna.simulate import simulate
from state.config import parse
from state.space import Keys

BROKERS = ("a", "b", "c")
NAMES = ("x", "y", "z")
CONFIG = """
[space]
x = {kind = "int", low = 0, high = 1000000}
y = {kind = "int", low = 0, high = 1000000}
z = {kind = "int", low = 0, high = 1000000}
[overlay]
links = [["a", "b"], ["b", "c"]]
"""
SUBSCRIPTIONS, PUBLICATIONS = (1_000, 2_000), 2_000


class Scene(NamedTuple):
    """Subscriptions and publications, each with the number of its broker."""

    boxes: Keys
    subscribers: list[int]
    points: Keys
    publishers: list[int]

    def wanted(self) -> set[tuple[int, int]]:
        """Return all pairs (publication, subscription that it matches), by comparing all."""
        return {
            (k, int(s))
            for k, p in enumerate(self.points)
            for s in np.flatnonzero(((self.boxes[:, 0] <= p) & (p < self.boxes[:, 1])).all(axis=1))
        }


def compare_links(report: Report, step: Step, home: Path) -> None:
    """Count messages over links here and in ActiveMQ, for the same subscriptions and publications."""
    for count in SUBSCRIPTIONS:
        folder = home / f"line-{count}"
        folder.mkdir()
        step(f"routing {count:,} subscriptions in a line of three brokers")
        scene = _scene(count)
        details: dict[str, Any] = {"publications": PUBLICATIONS, "wanted": len(scene.wanted())}
        report.details[f"links_{count}_subscriptions"] = details
        ours = details["here"] = _ours(scene, folder)
        try:
            for setting in ("on", "off"):
                step(f"routing {count:,} selectors in ActiveMQ, conduit {setting}")
                details[f"activemq_conduit_{setting}"] = _activemq(scene, folder, conduit=setting == "on")
        except SkippedError as skipped:
            report.skip("ActiveMQ", str(skipped))
            return
        best = min(details[f"activemq_conduit_{setting}"]["publications_over_links"] for setting in ("on", "off"))
        details["ratio"] = round(ours["publications_over_links"] / best, 3)
    report.add("links_vs_activemq", details["ratio"], "at most 0.6")


def _scene(subscriptions: int) -> Scene:
    boxes, points = make_boxes(subscriptions, PUBLICATIONS)
    chance = np.random.default_rng(4)
    homes = [chance.integers(len(BROKERS), size=n).tolist() for n in (subscriptions, PUBLICATIONS)]
    return Scene(boxes, homes[0], points, homes[1])


def _ours(scene: Scene, home: Path) -> dict[str, Any]:
    lines: list[dict[str, Any]] = []
    for k, (broker, box) in enumerate(zip(scene.subscribers, scene.boxes.tolist(), strict=True)):
        where = {name: [lo, hi - 1] for name, lo, hi in zip(NAMES, *box, strict=True)}
        lines.append({"kind": "subscribe", "broker": BROKERS[broker], "client": "c", "id": str(k), "where": where})
    for k, (broker, point) in enumerate(zip(scene.publishers, scene.points.tolist(), strict=True)):
        at = dict(zip(NAMES, point, strict=True))
        lines.append({"kind": "publish", "broker": BROKERS[broker], "id": str(k), "at": at})
    done = simulate(parse(CONFIG), [json.dumps(line).encode() for line in lines], out=home / "simulated")
    rows = [json.loads(line) for line in (home / "simulated" / "deliveries.jsonl").read_text().splitlines()]
    found = [(int(row["publication"]), int(row["subscription"])) for row in rows]
    if sorted(found) != sorted(scene.wanted()):
        raise AssertionError(f"{len(found)} deliveries here, which are not what is wanted")
    told, carried = done["subscription_messages"], done["publication_messages"]
    return {
        "publications_over_links": carried,
        "subscriptions_over_links": told,
        "deliveries": len(found),
        "duplicates": len(found) - len(set(found)),
    }


def _activemq(scene: Scene, home: Path, *, conduit: bool) -> dict[str, Any]:
    folder = home / f"activemq-{conduit}"
    folder.mkdir()
    (folder / "selectors.txt").write_text("".join(map(_selector, scene.subscribers, scene.boxes)))
    rows = ((broker, *point) for broker, point in zip(scene.publishers, scene.points.tolist(), strict=True))
    (folder / "publications.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    command = [*jvm("Line"), str(folder), str(conduit).lower()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise SkippedError("it takes longer than two minutes") from error
    if done.returncode:
        raise SkippedError(f"it ended by itself: {done.stderr[-300:]}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    came = [line.split() for line in (folder / "pairs.txt").read_text().splitlines()]
    if {(int(p), int(s)) for p, s, _ in came} != scene.wanted():
        raise AssertionError(f"ActiveMQ delivered {len(came)} pairs, which are not what is wanted")
    return {**row, "duplicates": row["deliveries"] - len(came)}


def _selector(broker: int, box: Keys) -> str:
    ends = (f"{name} >= {lo} AND {name} < {hi}" for name, lo, hi in zip(NAMES, *box.tolist(), strict=True))
    return f"{broker} {' AND '.join(ends)}\n"
