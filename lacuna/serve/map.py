"""The map of the overlay as a picture: boxes in columns, elbows between them, an arrow for each direction.

┌───────┐      ◀── 1,571 / 1,627 ──  ┌──────┐   width and number: publications carried / considered
│ paris ├──┬──                       │ oslo │   upper arrow: towards the root; lower arrow: away from it
└───────┘  │   ── 3,013 / 3,215 ──▶  └──────┘
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lacuna.serve.layout import Place, lay_out
from lacuna.serve.overview import Figures, Flow
from state.config import Config

COLUMN, BOX, HIGH = 262.0, 108.0, 44.0
LEAST_ROW, MOST_ROW, USUAL = 58.0, 118.0, 560.0
WIDEST = 9.0
MOST_NAME = 14
LARGE = 300
"""Brokers from which on the table comes before the map."""


class Arrow(NamedTuple):
    """One direction between two places: its flow, its outline, and whether one of its links is hot."""

    flow: Flow
    points: str
    hot: bool
    text_y: float


@dataclass(frozen=True)
class Box:
    """A place as it is drawn."""

    place: Place
    x: float
    y: float
    standing: int
    found: bool
    elbow: str = ""
    inward: Arrow | None = None
    """Away from the root, into this place."""
    outward: Arrow | None = None

    @property
    def short(self) -> str:
        name = self.place.broker
        more = f" + {len(self.place.folded)}" if self.place.folded else ""
        return (name if len(name) <= MOST_NAME else name[: MOST_NAME - 1] + "…") + more

    @property
    def middle(self) -> float:
        return self.x + BOX + (COLUMN - BOX) / 2 - COLUMN + 18


@dataclass(frozen=True)
class Drawn:
    """The whole map: boxes, parents first, by place for the nested list."""

    boxes: dict[int, Box]
    root: Place
    width: float
    height: float
    columns: int
    is_large: bool
    most: int
    folds: bool

    def of(self, place: Place) -> Box:
        return self.boxes[id(place)]


def draw_map(config: Config, figures: Figures, wanted: str = "") -> Drawn:
    """Return the map of an overlay with what flowed on it."""
    tree = config.overlay.neighbours
    loads = {direction: flow.carried for direction, flow in figures.flows.items()}
    found = lay_out(tree, loads, wanted or None)
    row = max(LEAST_ROW, min(MOST_ROW, USUAL / found.rows))
    sums = {id(place): _sums(place, figures) for place in found.places}
    most = max((flow.carried for pair in sums.values() for flow in pair), default=0)
    boxes: dict[int, Box] = {}
    for place in found.places:
        boxes[id(place)] = _box(place, boxes, sums[id(place)], figures, row, most, wanted)
    width = (found.columns - 1) * COLUMN + BOX + 4
    folds = any(place.folded for place in found.places)
    return Drawn(boxes, found.root, width, found.rows * row, found.columns, len(tree) > LARGE, most, folds)


def _sums(place: Place, figures: Figures) -> tuple[Flow, Flow]:
    """Return what flowed into a place from its parent, and out of it."""
    inward = [figures.flows[a, b] for a, b in place.links]
    outward = [figures.flows[b, a] for a, b in place.links]
    return _sum(inward), _sum(outward)


def _sum(flows: list[Flow]) -> Flow:
    return Flow(*(sum(values) for values in zip(*flows, strict=True))) if flows else Flow(0, 0, 0, 0)


def _box(
    place: Place, boxes: dict[int, Box], sums: tuple[Flow, Flow], figures: Figures, row: float, most: int, wanted: str
) -> Box:
    x, y = 2 + place.depth * COLUMN, (place.row + 0.5) * row
    standing = sum(figures.standing.get(broker, 0) for broker in place.brokers)
    if place.parent is None:
        return Box(place, x, y, standing, place.broker == wanted)
    before = boxes[id(place.parent)]
    turn = before.x + BOX + 22
    elbow = f"M{before.x + BOX:.1f} {before.y:.1f}H{turn:.1f}V{y:.1f}H{turn + 12:.1f}"
    hot_in = any(link in figures.hot for link in place.links)
    hot_out = any((b, a) in figures.hot for a, b in place.links)
    begin, end = turn + 14, x - 3
    inward = Arrow(sums[0], _arrow(begin, end, y + 6, sums[0].carried, most), hot_in, y + 23)
    outward = Arrow(sums[1], _arrow(end, begin, y - 6, sums[1].carried, most), hot_out, y - 14)
    return Box(place, x, y, standing, wanted in place.brokers, elbow, inward, outward)


def _arrow(begin: float, end: float, y: float, carried: int, most: int) -> str:
    """Return the outline of an arrow, as wide as what it carries."""
    half = (1.5 + WIDEST * carried / most) / 2 if most else 0.75
    way = 1 if end > begin else -1
    neck, head = end - way * 11, max(half + 1.5, 4.5)
    corners = [(begin, -half), (neck, -half), (neck, -head), (end, 0), (neck, head), (neck, half), (begin, half)]
    return " ".join(f"{x:.1f},{y + dy:.1f}" for x, dy in corners)
