"""A decision as a picture in two attributes: active subscriptions, the uncovered part, the subscription, the witness.

If the coverers of a withheld subscription are not all active any more, the picture shows the present: `certificates`.

With more than two attributes the picture is a slice, not a projection: the other attributes are fixed at the low corner
of the witness (or of the subscription, where there is no witness), and boxes that do not reach the slice are not drawn.
A projection would show boxes on top of each other that never meet.

The uncovered part is recomputed in the slice from what was active at that moment: the negative rectangles of the
picture. A strategy that keeps other rectangles, or none, decides the same where it is exact.

In a space of one attribute intervals are drawn as bars, one above the other.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from lacuna.analysis.certificates import Active, coverers_now
from lacuna.analysis.decision_log import Source, name_of, shape_of, stands, witness_of
from state.errors import LacunaError
from state.geometry.boxes import Boxes, stack
from state.geometry.negative import NegativeTree
from state.protocol.messages import Name
from state.space import Attribute, Keys, Space
from state.storage.rows import MOST_SHAPE, Row

FORMATS = (".png", ".svg")
MOST_LABELS = 20
DAY = 86_400_000_000
GREEN, GREY = "#3b7d4f", "#7d8a99"
Lane = tuple[float, float]
WHOLE: Lane = (0.0, 1.0)
"""The height of a bar in a picture of one attribute."""


def draw(source: Source, name: Name, link: str, file: str, attributes: list[str] | None) -> str:
    """Draw the last decision about a subscription on a link, with what was active there. Return the file."""
    space = source.config.space
    if Path(file).suffix.lower() not in FORMATS:
        raise LacunaError(f"--draw {file}: a drawing is a {' or '.join(FORMATS)} file. Remedy: name it so")
    chosen = _axes(space, attributes)
    broker, _, neighbour = link.partition(">")
    rows = source.decisions(broker=broker, link=neighbour)
    place = max((k for k, row in enumerate(rows) if name_of(row) == name and stands(row)), default=None)
    if place is None or not _is_recorded(rows[place]):
        remedy = f"draw another link; a filter of more than {MOST_SHAPE} boxes is recorded on none"
        raise LacunaError(f"{name.id}: its filter was not recorded on {link}. Remedy: {remedy}")
    there = coverers_now(space, rows, place)
    picture = Picture(space, chosen, rows[place], there.active, there.names or (), now=there.recomputed)
    picture.save(file, f"{name.id} of {name.client} at {name.broker}, {link}")
    return file


def _is_recorded(row: Row) -> bool:
    """Return True if there is anything to draw. Beyond the first link `mics` knows no boxes, but may have a witness."""
    return row["shape"] is not None and bool(row["shape"] or row["witness"])


def _axes(space: Space, names: list[str] | None) -> tuple[int, ...]:
    known = [attribute.name for attribute in space.attributes]
    if len(known) == 1 and names is None:
        return (0,)
    wanted = known[:2] if names is None else names
    if len(set(wanted)) < 2:
        raise LacunaError("--attributes: a drawing needs two different attributes. Remedy: name two of them")
    for name in wanted:
        if name not in known:
            raise LacunaError(f"--attributes {name}: no such attribute. Remedy: choose two of {', '.join(known)}")
    return known.index(wanted[0]), known.index(wanted[1])


class Picture:
    """One decision in one slice."""

    def __init__(
        self,
        space: Space,
        axes: tuple[int, ...],
        row: Row,
        active: Active,
        coverers: Collection[Name] = (),
        *,
        now: bool = False,
    ) -> None:
        self._space, self._axes, self._row, self._now = space, list(axes), row, now
        self._coverers = frozenset(coverers)
        subscription = shape_of(space, row) or ()
        witness = witness_of(space, row)
        self._at = np.array((*witness, *subscription)[0].lo, np.int64)
        self._still = [i for i in range(space.dims) if i not in axes]
        self._subscription, self._witness = self._cut(subscription), self._cut(witness)
        self._active = {name: self._cut(boxes) for name, boxes in active.items() if boxes is not None}
        self._unknown = sum(boxes is None for boxes in active.values())

    def _cut(self, boxes: Boxes) -> Keys:
        """Return the part of these boxes in the slice, in the attributes that are drawn."""
        keys, still = stack(boxes, self._space.dims), self._still
        reaches = (keys[:, 0, still] <= self._at[still]) & (self._at[still] < keys[:, 1, still])
        return keys[reaches.all(axis=1)][:, :, self._axes]

    def negative(self) -> Keys:
        """Return the uncovered part of the slice, as disjoint rectangles."""
        domain = np.array(self._space.domain, np.int64)[:, self._axes]
        space = NegativeTree(np.ascontiguousarray(domain), by_overlap=True)
        for boxes in self._active.values():
            space.cover_all(np.ascontiguousarray(boxes))
        return space.rectangles()

    def save(self, file: str, title: str) -> None:
        """Draw the picture into a file."""
        import matplotlib  # here: it takes a second to import

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(8, 7 if len(self._axes) == 2 else 4))
        self._fill(axes)
        for axis, i in zip((axes.xaxis, axes.yaxis), self._axes, strict=False):
            _scale(axes, axis, self._space.attributes[i])
        if len(self._axes) == 1:
            axes.set_ylim(-0.02, 1.02)
            axes.set_yticks([])
        axes.set_title(self._title(title), fontsize=9, parse_math=False)
        below = -0.09 if len(self._axes) == 2 else -0.16
        axes.legend(loc="upper left", bbox_to_anchor=(0, below), ncols=5, fontsize=8, frameon=False)
        dated = file.lower().endswith("svg")
        figure.savefig(file, dpi=130, bbox_inches="tight", metadata={"Date": None} if dated else None)
        pyplot.close(figure)

    def _fill(self, axes: Any) -> None:
        self._add(axes, self.negative(), "negative rectangles", facecolor="#f6d5d0", edgecolor="#d9a59c", linewidth=0.5)
        lanes = np.linspace(0, 1, len(self._active) + 1).tolist()
        for name, boxes, *lane in zip(self._active, self._active.values(), lanes, lanes[1:], strict=False):
            self._add_active(axes, name, boxes, (lane[0], lane[1]))
        self._add(axes, self._subscription, "the subscription", facecolor="none", edgecolor="#1f4e9c", linewidth=2.5)
        self._add(axes, self._witness, "witness", facecolor="#d43f2a", edgecolor="#8c1d0e", linewidth=1.0, alpha=0.7)

    def _add_active(self, axes: Any, name: Name, boxes: Keys, lane: Lane) -> None:
        covers = name in self._coverers
        colour, label = (GREEN, "active, covers it") if covers else (GREY, "active")
        self._add(axes, boxes, label, lane, facecolor=(*_rgb(colour), 0.15), edgecolor=colour, linewidth=1.2)
        if covers and len(self._coverers) <= MOST_LABELS:
            self._name(axes, boxes, name.id, lane)

    def _title(self, title: str) -> str:
        now = "; what is active is drawn as it is now" if self._now else ""
        return f"{title}\n{self._row['action']}: {self._row['reason']}{now}{self._slice()}"

    def _slice(self) -> str:
        parts = [
            f"{a.name} = {a.value(int(self._at[i]))}" for i, a in enumerate(self._space.attributes) if i in self._still
        ]
        unknown = f"; {self._unknown} active ones have no recorded filter" if self._unknown else ""
        return (f"\nslice at {', '.join(parts)}" if parts else "") + unknown

    def _sides(self, box: Keys, lane: Lane) -> tuple[Lane, Lane]:
        """Return the ends of a box in x and in y."""
        sides = [_ends(self._space.attributes[i], *box[:, n].tolist()) for n, i in enumerate(self._axes)]
        return sides[0], sides[1] if len(sides) == 2 else lane

    def _add(self, axes: Any, boxes: Keys, label: str, lane: Lane = WHOLE, **style: Any) -> None:
        from matplotlib.patches import Rectangle

        seen = axes.get_legend_handles_labels()[1]
        for k, box in enumerate(boxes):
            (x0, x1), (y0, y1) = self._sides(box, lane)
            style["label"] = label if k == 0 and label not in seen else None
            axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, **style))

    def _name(self, axes: Any, boxes: Keys, id: str, lane: Lane) -> None:
        for box in boxes[:1]:
            (x0, _), (_, y1) = self._sides(box, lane)
            place = {"xytext": (3, -10), "textcoords": "offset points"}
            axes.annotate(id, (x0, y1), **place, fontsize=8, color=GREEN, parse_math=False)


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return red, green, blue


def _ends(attribute: Attribute, lo: int, hi: int) -> tuple[float, float]:
    """Return the keys [lo, hi) as values of the axis; timestamps as days since 1970, as matplotlib counts them."""
    match attribute.kind:
        case "float":
            return float(attribute.value(lo)), float(attribute.value(hi - 1))
        case "timestamp":
            return lo / DAY, hi / DAY
        case _:
            return float(lo), float(hi)


def _scale(axes: Any, axis: Any, attribute: Attribute) -> None:
    low, high = _ends(attribute, attribute.low, attribute.high + 1)
    margin = (high - low or 1.0) * 0.02
    (axes.set_xlim if axis is axes.xaxis else axes.set_ylim)(low - margin, high + margin)
    axis.set_label_text(attribute.name, parse_math=False)
    if attribute.kind == "timestamp":
        axis.axis_date()
    if attribute.kind == "category":
        places = [k + 0.5 for k in range(len(attribute.values))]
        axis.set_ticks(places, labels=list(attribute.values), parse_math=False)
