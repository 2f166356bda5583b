"""Is a box covered, by one other box, or by many together? Against cube, rtree and z3."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import z3
from numpy.typing import NDArray

from bench.core import bulk_rtree
from bench.peers.matching import DIMS, make_boxes
from bench.peers.postgres import Cubes, Server
from bench.report import Report, Step, median, seconds
from bench.workloads import named, told_of, zipf_boxes
from state.geometry.boxes import Boxes
from state.geometry.cover import COVERED, UNKNOWN, cover
from state.geometry.dominance import Dominance
from state.protocol.messages import Name
from state.space import Keys
from state.strategies import Spec
from state.strategies.base import BUDGET

COUNT, ASKED = 100_000, 1_000
UNIONS, CANDIDATES = 100, 24
PATIENCE_MS = 10_000
TURNS = 5
EXACT = ("auto", "union", "negative")
EXACTLY = 2_000

Answers = NDArray[np.bool_]


def make_questions(count: int, widest: float, seed: int) -> Keys:
    """Boxes with sides of up to `widest` of a domain of a million keys, uniform."""
    chance = np.random.default_rng(seed)
    size = chance.random((count, DIMS)) * widest
    low = chance.random((count, DIMS)) * (1 - size)
    return np.stack((low * 1e6, (low + size) * 1e6 + 1), axis=1).astype(np.int64)


def compare_one_by_one(report: Report, step: Step, server: Server | None) -> None:
    """Ask whether one of 100,000 boxes contains a box, of all questions; the boxes are those that were matched."""
    step(f"covering by one of {COUNT:,} boxes")
    boxes, _ = make_boxes(COUNT, 0)
    questions = make_questions(ASKED, 0.2, seed=3)
    tree = Dominance(DIMS, np.arange(COUNT), boxes)
    ours = [tree.first(q)[0] for q in questions]
    answers = np.array([one is not None for one in ours])
    for one, q in zip(ours, questions, strict=True):
        if one is not None and ((boxes[one, 0] > q[0]).any() or (boxes[one, 1] < q[1]).any()):
            raise AssertionError("a box that was named does not contain the question")
    packed = Packed(boxes, questions)
    _same(answers, packed.answers(), "rtree")
    mine = [seconds(lambda: [tree.first(q) for q in questions]) for _ in range(TURNS)]
    row = {
        "boxes": COUNT,
        "questions": ASKED,
        "covered": round(float(answers.mean()), 3),
        "us": round(median(mine) / ASKED * 1e6, 2),
    }
    times = [seconds(packed.answers) for _ in range(TURNS)]
    row["rtree_us"] = round(median(times) / ASKED * 1e6, 2)
    report.add("cover_vs_rtree_100k", median(t / m for t, m in zip(times, mine, strict=True)))
    if server is not None:
        cubes = Cubes(server, boxes, questions, Cubes.COVERING)
        _same(answers, np.array([bool(one) for _, one in sorted((int(q), one) for q, one in cubes.rows())]), "cube")
        turns = [(seconds(lambda: [tree.first(q) for q in questions]), cubes.match()) for _ in range(TURNS)]
        row["cube_us"] = round(median(theirs for _, theirs in turns) / ASKED * 1e6, 2)
        report.add("cover_vs_cube_100k", median(theirs / m for m, theirs in turns))
    report.details["cover_one_by_one"] = row


class Packed:
    """The R-tree asks for the boxes that hold one corner of each question, all at once; coordinates decide the rest."""

    def __init__(self, boxes: Keys, questions: Keys) -> None:
        self._boxes, self._questions, self._index = boxes, questions, bulk_rtree(boxes)
        self._corners = questions[:, 0].astype(np.float64)

    def answers(self) -> Answers:
        found, counts = self._index.intersection_v(self._corners, self._corners)  # type: ignore[no-untyped-call]
        which, found = np.repeat(np.arange(len(counts)), counts.astype(np.int64)), found.astype(np.int64)
        holds = (self._boxes[found, 1] >= self._questions[which, 1]).all(axis=1)
        answers: Answers = np.bincount(which[holds], minlength=len(counts)) > 0
        return answers


def _same(ours: Answers, theirs: Answers, peer: str) -> None:
    if not np.array_equal(ours, theirs):
        raise AssertionError(f"{peer} disagrees about {int((ours != theirs).sum())} of {len(ours)} questions")


# By many together


def compare_exact(report: Report, step: Step) -> None:
    """Decide and keep subscriptions by both exact methods and by `auto`, which should cost what the better one does."""
    rows, worst = [], 0.0
    for workload, boxes in _workloads():
        step(f"exact methods in {boxes.shape[2]} attributes: {workload}")
        subscriptions = named(boxes)
        turns = [{name: _per_subscription(name, subscriptions) for name in EXACT} for _ in range(TURNS + 1)][1:]
        times = {name: median(turn[name][0] for turn in turns) for name in EXACT}
        worst = max(worst, median(turn["auto"][0] / min(turn[name][0] for name in EXACT[1:]) for turn in turns))
        rows.append(
            {
                "workload": workload,
                "attributes": boxes.shape[2],
                **{f"{name}_us": round(took * 1e6, 1) for name, took in times.items()},
                "rectangles_negative": turns[0]["negative"][1],
                "rectangles_auto": turns[0]["auto"][1],
            }
        )
    report.add("auto_vs_better_exact", worst, "about 1")
    report.details["exact_methods"] = rows


def _workloads() -> Iterator[tuple[str, Keys]]:
    for dims in (1, 2, 3):
        yield "Zipfian", zipf_boxes(EXACTLY, dims)
        yield "narrow", _on_thousand(make_questions(EXACTLY, 0.02, seed=5)[:, :, :dims])
        wide = np.random.default_rng(6).random(EXACTLY) < 0.1
        narrow, broad = make_questions(EXACTLY, 0.02, seed=5), make_questions(EXACTLY, 0.5, seed=6)
        yield "narrow, a tenth wide", _on_thousand(np.where(wide[:, None, None], broad, narrow)[:, :, :dims])


def _on_thousand(boxes: Keys) -> Keys:
    """Boxes on the domain of `told_of`, rounded outward."""
    low, high = boxes[:, 0] // 1000, (boxes[:, 1] - 1) // 1000 + 1
    return np.stack((low, high), axis=1)


def _per_subscription(strategy: str, subscriptions: list[tuple[Name, Boxes]]) -> tuple[float, int | None]:
    """Return the CPU seconds for a subscription, everything that is kept included, and the rectangles at the end."""
    told = told_of(subscriptions[0][1][0].keys().shape[1], Spec(strategy))
    began = time.process_time()
    for name, boxes in subscriptions:
        told.subscribe(name, boxes, "local")
    return (time.process_time() - began) / len(subscriptions), told.strategy.negative_rectangles


def compare_unions(report: Report, step: Step, count: int = UNIONS) -> None:
    """Ask whether boxes cover another together, where some do: z3 is judge and peer."""
    step(f"covering by {CANDIDATES} boxes together: z3")
    answers, times = [], []
    for k in range(count):
        q, boxes = make_union(k)
        slots = np.arange(len(boxes))
        answer, _, gap, _ = cover(q, boxes, slots.copy(), BUDGET)
        began: list[bool | None] = []
        took = seconds(lambda q=q, boxes=boxes, began=began: began.append(by_z3(q, boxes)))  # type: ignore[misc]
        if answer == UNKNOWN or (began[0] is not None and began[0] != (answer == COVERED)):
            raise AssertionError(f"z3 disagrees about union {k}")
        if answer != COVERED and ((boxes[:, 0] < gap[1]) & (boxes[:, 1] > gap[0])).all(axis=1).any():
            raise AssertionError(f"the witness of union {k} is covered")
        mine = median(
            seconds(lambda q=q, boxes=boxes, slots=slots: cover(q, boxes, slots.copy(), BUDGET))  # type: ignore[misc]
            for _ in range(TURNS)
        )
        answers.append((answer == COVERED, began[0] is None))
        times.append((mine, took))
    report.add("union_vs_z3", median(theirs / mine for mine, theirs in times))
    report.details["union_vs_z3"] = {
        "unions": count,
        "boxes_each": CANDIDATES,
        "covered": sum(covered for covered, _ in answers),
        "z3_gave_up": sum(gave_up for _, gave_up in answers),
        "us": round(median(mine for mine, _ in times) * 1e6, 1),
        "z3_us": round(median(theirs for _, theirs in times) * 1e6, 1),
    }


def make_union(seed: int) -> tuple[Keys, Keys]:
    """A box and others that meet it. For every other seed they are its parts, grown a little: they cover it."""
    chance = np.random.default_rng(seed)
    q = np.array([[0] * DIMS, [1000] * DIMS], np.int64)
    if seed % 2:
        low = (chance.random((CANDIDATES, DIMS)) * 700).astype(np.int64) - 200
        return q, np.stack((low, low + 300 + (chance.random((CANDIDATES, DIMS)) * 500).astype(np.int64)), axis=1)
    parts = [q]
    while len(parts) < CANDIDATES:
        part = parts.pop(int(chance.integers(len(parts))))
        side = int(np.argmax(part[1] - part[0]))
        cut = int(chance.integers(part[0, side] + 1, part[1, side]))
        low, high = part.copy(), part.copy()
        low[1, side] = high[0, side] = cut
        parts += [low, high]
    grown = np.stack(parts) + chance.integers(0, 20, (CANDIDATES, 2, DIMS)) * np.array([[-1], [1]])
    return q, grown.astype(np.int64)


def by_z3(q: Keys, boxes: Keys) -> bool | None:
    """Return whether no point of `q` is outside all boxes; None if z3 gives up."""
    sides: list[Any] = [z3.Int(f"x{i}") for i in range(q.shape[1])]
    solver = z3.Solver()
    solver.set("timeout", PATIENCE_MS)
    solver.add(_inside(sides, q))
    for box in boxes:
        solver.add(z3.Not(_inside(sides, box)))
    answer = solver.check()
    return None if answer == z3.unknown else bool(answer == z3.unsat)


def _inside(sides: list[Any], box: Keys) -> Any:
    low, high = box.tolist()
    return z3.And([z3.And(side >= lo, side < hi) for side, lo, hi in zip(sides, low, high, strict=True)])
