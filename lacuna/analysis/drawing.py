"""A decision as a picture: the subscription, who covers it, and the gap that nobody covers.

Two attributes are drawn, those in which the subscription is the narrowest. The picture is zoomed to the subscription.
If there are more attributes, each panel is a slice, not a projection: a projection would show boxes on top of each
other that never meet. The other attributes are fixed at one point a panel (`_points`):

    1   the witness, or the subscription's low corner
    2   the same with each other value of a category that the subscription asks for
    3   wherever a coverer reaches that is in none of the panels so far

so every coverer is in a panel, unless there would be too many panels; that is said. A small gap is enlarged in a panel
of its own.

The gap is recomputed in each slice from what was active at that moment. A strategy that keeps other rectangles, or
none, decides the same where it is exact. If the coverers of a withheld subscription are not all active any more, the
picture shows the present: `certificates`. In a space of one attribute boxes are bars, and each coverer has its line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lacuna.analysis.certificates import Active, coverers_now
from lacuna.analysis.decision_log import Source, name_of, shape_of, stands, witness_of
from lacuna.analysis.story import sentence
from lacuna.analysis.wording import named, number
from state.errors import LacunaError
from state.geometry.boxes import Boxes, stack
from state.geometry.negative import NegativeTree
from state.protocol.messages import Name
from state.space import Attribute, Keys, Space
from state.storage.rows import MOST_SHAPE, Row, name_value

FORMATS = (".png", ".svg")
MOST_PANELS = 12
DAY = 86_400_000_000
MARGIN = 0.15
"""What is shown around the subscription, as a share of its size."""
SMALL = 0.1
"""A gap whose side is a smaller share of the panel is enlarged."""
LETTERS = 0.06
"""The least distance of two letters, as a share of the panel."""
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c6bb1", "#a6761d")
DASHES = ("-", "--", "-.", ":")
TOLD, RED, INK = "#d5d9de", "#c8102e", "#1a1a1a"
Lane = tuple[float, float]
Point = NDArray[np.int64]


def draw(source: Source, name: Name, link: str, file: str, attributes: list[str] | None) -> str:
    """Draw the last decision about a subscription on a link, with what was active there. Return the file."""
    space = source.config.space
    if Path(file).suffix.lower() not in FORMATS:
        raise LacunaError(f"--draw {file}: a drawing is a {' or '.join(FORMATS)} file. Remedy: name it so")
    named_axes = _named_axes(space, attributes)
    broker, _, neighbour = link.partition(">")
    rows = source.decisions(broker=broker, link=neighbour)
    place = max((k for k, row in enumerate(rows) if name_of(row) == name and stands(row)), default=None)
    if place is None or not _is_recorded(rows[place]):
        remedy = f"draw another link; a filter of more than {MOST_SHAPE} boxes is recorded on none"
        raise LacunaError(f"{name.id}: its filter was not recorded on {link}. Remedy: {remedy}")
    there = coverers_now(space, rows, place)
    axes = named_axes or narrowest(space, shape_of(space, rows[place]) or witness_of(space, rows[place]))
    picture = Picture(space, axes, rows[place], there.active, there.names or (), now=there.recomputed)
    picture.save(file, f"{name.id} of {name.client} at {name.broker}, {link}")
    return file


def _is_recorded(row: Row) -> bool:
    """Return True if there is anything to draw. Beyond the first link `mics` knows no boxes, but may have a witness."""
    return row["shape"] is not None and bool(row["shape"] or row["witness"])


def _named_axes(space: Space, names: list[str] | None) -> tuple[int, ...] | None:
    known = [attribute.name for attribute in space.attributes]
    if names is None:
        return None
    if len(set(names)) < 2:
        raise LacunaError("--attributes: a drawing needs two different attributes. Remedy: name two of them")
    for name in names:
        if name not in known:
            raise LacunaError(f"--attributes {name}: no such attribute. Remedy: choose two of {', '.join(known)}")
    return known.index(names[0]), known.index(names[1])


def narrowest(space: Space, boxes: Boxes) -> tuple[int, ...]:
    """Return the two attributes in which boxes are the narrowest, categories last, in the order of the space."""
    keys = stack(boxes, space.dims)
    low, high = keys[:, 0].min(axis=0).tolist(), keys[:, 1].max(axis=0).tolist()

    def width(i: int) -> tuple[bool, float]:
        a = space.attributes[i]
        return a.kind == "category", a.length(low[i], high[i]) / a.whole if a.whole else 1.0

    return tuple(sorted(sorted(range(space.dims), key=width)[:2]))


class View(NamedTuple):
    """A part of the plane of the axes: the low and the high end in each of them."""

    sides: tuple[Lane, ...]

    def around(self, share: float, limits: Sequence[Lane]) -> View:
        """Return the view with a margin of a share of each side, within limits."""
        made = []
        for (low, high), (least, most) in zip(self.sides, limits, strict=True):
            room = (high - low or (most - least) * 0.02 or 1.0) * share
            made.append((max(low - room, least), min(high + room, most)))
        return View(tuple(made))


class Picture:
    """One decision, in one slice or several."""

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
        self._space, self.axes, self._row, self._now = space, list(axes), row, now
        self._still = [i for i in range(space.dims) if i not in axes]
        self._witness = stack(witness_of(space, row), space.dims)
        shape = stack(shape_of(space, row) or (), space.dims)
        self._subscription = shape if len(shape) else self._witness
        self._active = {name: stack(boxes, space.dims) for name, boxes in active.items() if boxes is not None}
        self._unknown = sum(boxes is None for boxes in active.values())
        self.coverers = [name for name in coverers if name in self._active]
        self.points = self._points()

    # Slices

    def _points(self) -> list[Point]:
        """Return a point a panel; only its attributes that are not drawn count."""
        low = (self._witness if len(self._witness) else self._subscription)[0, 0]
        found = [low, *self._other_values(low)]
        for name in self.coverers:
            if not any(len(self.coverer(name, at)) for at in found):
                found += self._where_it_reaches(name)
        return found[:MOST_PANELS]

    def _other_values(self, low: Point) -> Iterator[Point]:
        """Yield the point with each other value that the subscription has of the first category that is not drawn."""
        categories = [i for i in self._still if self._space.attributes[i].kind == "category"]
        for i in categories[:1]:
            for value in range(len(self._space.attributes[i].values)):
                at = low.copy()
                at[i] = value
                if value != low[i] and len(self.subscription(at)):
                    yield at

    def _where_it_reaches(self, name: Name) -> list[Point]:
        """Return a point at which a coverer meets the subscription."""
        for box in self._active[name]:
            lo, hi = np.maximum(self._subscription[:, 0], box[0]), np.minimum(self._subscription[:, 1], box[1])
            meets = (lo < hi).all(axis=1)
            if meets.any():
                return [lo[meets][0]]
        return []

    def _cut(self, keys: Keys, at: Point) -> Keys:
        """Return the part of boxes in a slice, in the attributes that are drawn."""
        still = self._still
        reaches = (keys[:, 0, still] <= at[still]) & (at[still] < keys[:, 1, still])
        return keys[reaches.all(axis=1)][:, :, self.axes]

    def subscription(self, at: Point) -> Keys:
        """Return the subscription in a slice."""
        return self._cut(self._subscription, at)

    def told(self, at: Point) -> Keys:
        """Return what the neighbour had been told, in a slice."""
        none = np.empty((0, 2, len(self.axes)), np.int64)
        return np.concatenate([none, *(self._cut(boxes, at) for boxes in self._active.values())])

    def coverer(self, name: Name, at: Point) -> Keys:
        """Return a coverer in a slice, if it meets the subscription there."""
        boxes, asked = self._cut(self._active[name], at), self.subscription(at)
        return boxes[[bool(len(_common(box[None], asked))) for box in boxes]]

    def uncovered(self, at: Point) -> Keys:
        """Return the part of a slice that nobody covers, as disjoint rectangles."""
        domain = np.array(self._space.domain, np.int64)[:, self.axes]
        space = NegativeTree(np.ascontiguousarray(domain), by_overlap=True)
        for boxes in self._active.values():
            space.cover_all(np.ascontiguousarray(self._cut(boxes, at)))
        return space.rectangles()

    def gap(self, at: Point) -> Keys:
        """Return the part of the subscription in a slice that nobody covers."""
        return _common(self.uncovered(at), self.subscription(at))

    def hidden(self) -> list[Name]:
        """Return the coverers that are in no panel."""
        return [name for name in self.coverers if not any(len(self.coverer(name, at)) for at in self.points)]

    # Drawing

    def save(self, file: str, title: str) -> None:
        """Draw the picture into a file."""
        import matplotlib  # here: it takes a second to import

        matplotlib.use("Agg")
        from matplotlib import pyplot

        panels = [(at, view) for at in self.points for view in self._views(at)]
        columns = min(3, len(panels))
        rows = -(-len(panels) // columns)
        size = (5.2 * columns if len(panels) > 1 else 7.0, 4.6 * rows if len(self.axes) == 2 else 3.0)
        figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        for axes, (at, view) in zip(grid.flat, panels, strict=False):
            self._panel(axes, at, view)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        figure.suptitle(self._title(title, 30 + 55 * columns), fontsize=9, parse_math=False, x=0.01, ha="left")
        figure.legend(handles=self._legend(), loc="outside lower left", ncols=columns + 1, fontsize=8, frameon=False)
        metadata = {"Date": None} if file.lower().endswith("svg") else None
        figure.savefig(file, dpi=130, metadata=metadata)
        pyplot.close(figure)

    def _title(self, title: str, width: int = 100) -> str:
        said = sentence(self._space, self._row, past=self._now)
        parts = [said, "What is active is drawn as it is now." if self._now else ""]
        if self._unknown:
            parts.append(f"{self._unknown} active ones have no recorded filter.")
        if hidden := self.hidden():
            parts.append(f"{len(hidden)} of those that cover it reach other slices.")
        return "\n".join([title, *textwrap.wrap(" ".join(part for part in parts if part), width)])

    def _views(self, at: Point) -> list[View]:
        """Return the views of a slice: the subscription with a margin, and a gap enlarged that would be hard to see."""
        whole = self._around(self.subscription(at) if len(self.subscription(at)) else self.gap(at), at)
        gap = self.gap(at)
        if not len(gap):
            return [whole]
        inner = self._around(gap, at, 1.0)
        small = any(
            (b - a) * (1 - 2 / 3) < SMALL * (d - c) for (a, b), (c, d) in zip(inner.sides, whole.sides, strict=True)
        )
        return [whole, inner] if small else [whole]

    def _around(self, keys: Keys, at: Point, share: float = MARGIN) -> View:
        limits = [_ends(self._space.attributes[i], *self._range(i)) for i in self.axes]
        if not len(keys):
            return View(tuple(limits))
        return View(self._sides(np.stack([keys[:, 0].min(axis=0), keys[:, 1].max(axis=0)]))).around(share, limits)

    def _panel(self, axes: Any, at: Point, view: View) -> None:
        self._fill(axes, at, view)
        sides = view.sides if len(view.sides) == 2 else (*view.sides, (0.0, self._lanes))
        for axis, set_limits, (low, high), i in zip(
            (axes.xaxis, axes.yaxis), (axes.set_xlim, axes.set_ylim), sides, [*self.axes, None], strict=False
        ):
            margin = (high - low or 1.0) * 0.02
            set_limits(low - margin, high + margin)
            if i is None:
                axis.set_ticks([])
            else:
                _label(axis, self._space.attributes[i])
        axes.tick_params(labelsize=8)
        axes.set_title(self._where(at, view), fontsize=8, parse_math=False)

    def _range(self, i: int) -> tuple[int, int]:
        return self._space.attributes[i].low, self._space.attributes[i].high + 1

    @property
    def _lanes(self) -> float:
        """The number of lines of bars: what is told, each coverer, the subscription."""
        return len(self.coverers) + 2.0

    def _where(self, at: Point, view: View) -> str:
        parts = [f"{a.name} = {number(a.value(int(at[i])))}" for i, a in self._others()]
        enlarged = "the gap enlarged" if view not in self._views(at)[:1] else ""
        return ", ".join(part for part in (*parts, enlarged) if part)

    def _others(self) -> Iterator[tuple[int, Attribute]]:
        return ((i, self._space.attributes[i]) for i in self._still)

    def _fill(self, axes: Any, at: Point, view: View) -> None:
        bars = len(self.axes) == 1
        whole: Lane = (0.0, self._lanes)
        told = (0.0, 1.0) if bars else whole
        for boxes in self._active.values():
            self._add(axes, self._cut(boxes, at), told, facecolor=TOLD, edgecolor="none")
        taken: list[tuple[float, ...]] = []
        for k, name in enumerate(self.coverers):
            boxes, lane = self.coverer(name, at), (k + 1.0, k + 2.0) if bars else whole
            self._add(axes, boxes, lane, facecolor=(*_rgb(_colour(k)), 0.18), edgecolor=_colour(k), **_line(k))
            self._letter(axes, k, _common(boxes, self.subscription(at)), lane, view, taken)
        top = (self._lanes - 1, self._lanes) if bars else whole
        self._add(axes, self.gap(at), top, facecolor="none", edgecolor=RED, hatch="////", linewidth=0.8)
        self._add(axes, self._cut(self._witness, at), top, facecolor="none", edgecolor=RED, linewidth=2.0)
        self._add(axes, self.subscription(at), top, facecolor="none", edgecolor=INK, linewidth=2.2)

    def _letter(self, axes: Any, k: int, boxes: Keys, lane: Lane, view: View, taken: list[tuple[float, ...]]) -> None:
        """Write the letter of a coverer into its largest part, away from the letters that are there."""
        from matplotlib.patheffects import withStroke

        if not len(boxes):
            return
        parts = [self._sides(box) for box in boxes]
        sides = max(parts, key=lambda part: float(np.prod([high - low for low, high in part])))
        spans = [high - low or 1.0 for low, high in view.sides]
        middle = [(max(a, c) + min(b, d)) / 2 for (a, b), (c, d) in zip(sides, view.sides, strict=True)]
        if any(not low <= value <= high for value, (low, high) in zip(middle, view.sides, strict=True)):
            return
        while (
            any(all(abs(x - y) < LETTERS * s for x, y, s in zip(middle, t, spans, strict=True)) for t in taken)
            and middle[0] + LETTERS * spans[0] < view.sides[0][1]
        ):
            middle[0] += LETTERS * spans[0]
        taken.append(tuple(middle))
        at = (middle[0], middle[1] if len(middle) == 2 else sum(lane) / 2)
        written = axes.annotate(_mark(k), at, color=_colour(k), weight="bold", fontsize=9, ha="center", va="center")
        written.set_path_effects([withStroke(linewidth=3, foreground="white")])

    def _legend(self) -> list[Any]:
        from matplotlib.patches import Patch

        asked = Patch(facecolor="none", edgecolor=INK, linewidth=2.2, label="the subscription")
        gap = Patch(facecolor="none", edgecolor=RED, hatch="////", label="the gap: nobody covers it")
        witness = Patch(facecolor="none", edgecolor=RED, linewidth=2.0, label="the part of it that was found (witness)")
        told = Patch(facecolor=TOLD, edgecolor="none", label="what the neighbour is told already")
        found = [asked, told]
        if any(len(self.gap(at)) for at in self.points):
            found += [gap]
        if len(self._witness):
            found += [witness]
        home = self._row["home"]
        for k, name in enumerate(self.coverers):
            label = f"{_mark(k)}  {named(name_value(name), home)}".replace("$", r"\$")
            face = (*_rgb(_colour(k)), 0.18)
            found.append(Patch(facecolor=face, edgecolor=_colour(k), label=label, **_line(k)))
        return found

    def _sides(self, box: Keys) -> tuple[Lane, ...]:
        """Return the ends of a box in each axis."""
        return tuple(_ends(self._space.attributes[i], *box[:, n].tolist()) for n, i in enumerate(self.axes))

    def _add(self, axes: Any, boxes: Keys, lane: Lane, **style: Any) -> None:
        from matplotlib.patches import Rectangle

        for box in boxes:
            (x0, x1), (y0, y1) = (*self._sides(box), lane)[:2]
            axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, **style))


def _common(these: Keys, those: Keys) -> Keys:
    """Return what each of these boxes has in common with each of those."""
    lo = np.maximum(these[:, None, 0], those[None, :, 0]).reshape(-1, these.shape[2])
    hi = np.minimum(these[:, None, 1], those[None, :, 1]).reshape(-1, these.shape[2])
    meets = (lo < hi).all(axis=1)
    return np.stack([lo[meets], hi[meets]], axis=1)


def _mark(k: int) -> str:
    return ascii_uppercase[k] if k < len(ascii_uppercase) else str(k + 1)


def _colour(k: int) -> str:
    return COLOURS[k % len(COLOURS)]


def _line(k: int) -> dict[str, Any]:
    return {"linestyle": DASHES[k // len(COLOURS) % len(DASHES)], "linewidth": 1.4}


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


def _label(axis: Any, attribute: Attribute) -> None:
    axis.set_label_text(attribute.name, parse_math=False)
    if attribute.kind == "timestamp":
        axis.axis_date()
    if attribute.kind == "int":
        axis.set_major_formatter("{x:,.0f}")
    if attribute.kind == "category":
        places = [k + 0.5 for k in range(len(attribute.values))]
        axis.set_ticks(places, labels=list(attribute.values), parse_math=False)
