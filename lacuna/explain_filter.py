"""What a filter is: its tree, its boxes, what travels of it, how selective it is, where it lies on a curve.

Selectivities are those of publications that are uniform over the space: what every link begins with before it has seen
any (see `state.filters.selectivity`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from lacuna.console import console
from state.config import Config
from state.errors import LacunaError
from state.filters.pruning import Estimate, estimate, size
from state.filters.selectivity import Selectivities
from state.filters.trees import Filter, Leaf, leaves, of_boxes, pmin, to_text
from state.filters.where import Asked, asked
from state.geometry.boxes import stack, volume
from state.routing.rangetold import MOST, grid_of
from state.space import Space, ValueRefused
from state.strategies import BY_RANGES, Spec

MOST_SHOWN = 20
"""Boxes and ranges that a person is shown."""


def explain_filter(config: Config, where: object) -> dict[str, Any]:
    """Everything about a filter, as `--json` prints it; an error in it is one for the user."""
    space = config.space
    try:
        got = asked(space, where)
    except ValueRefused as refused:
        raise LacunaError(f"--where: {refused} (rule: {refused.rule})") from None
    tree = got.exact or got.tree or of_boxes(got.boxes, space)
    share = Selectivities(space)
    return {
        "filter": to_text(tree, space),
        "tree": _nested(tree, space, share),
        "predicates": sum(1 for _ in leaves(tree)),
        "pmin": pmin(tree),
        "bytes": size(tree),
        "selectivity": estimate(tree, share)._asdict(),
        "exact": got.exact is None,
        "travels": to_text(got.tree or of_boxes(got.boxes, space), space),
        "boxes": [space.describe(box.lo, box.hi) for box in got.boxes],
        "volume": volume(space, got.boxes),
        "ranges": _ranges(config, got),
    }


def _nested(tree: Filter, space: Space, share: Selectivities) -> dict[str, Any]:
    about = {"selectivity": estimate(tree, share).average}
    if isinstance(tree, Leaf):
        return {"predicate": to_text(tree, space), **about}
    kind = type(tree).__name__.lower()
    return {kind: [_nested(child, space, share) for child in tree.children], **about}


def _ranges(config: Config, got: Asked) -> dict[str, Any]:
    """The ranges that the boxes are on the Hilbert curve of strategy `mics`."""
    spec = config.spec if config.spec.by_ranges else Spec(BY_RANGES)
    grid = grid_of(config.space, spec)
    found, bridged = grid.ranges(
        stack(got.boxes, config.space.dims), int(dict(spec.parameters).get("max_ranges", MOST))
    )
    return {"curve": str(grid), "count": len(found), "bridged": bridged, "ranges": found.tolist()}


def show_filter(about: dict[str, Any]) -> None:
    """The same for a person."""
    screen = console()
    for line in _lines(about["tree"], ""):
        screen.print(line, highlight=False)
    table = Table(show_header=False)
    least, average, most = Estimate(**about["selectivity"])
    table.add_row("predicates", f"{about['predicates']}, at least {about['pmin']} of them must hold")
    table.add_row("selectivity", f"{average:.3g} (from {least:.3g} to {most:.3g}), publications being uniform")
    travels = "as it is" if about["exact"] else f"more general: {about['travels']}"
    table.add_row("travels", f"{travels}, {len(about['boxes'])} boxes, {about['volume']:.3g} of the space")
    for k, box in enumerate(about["boxes"][:MOST_SHOWN], 1):
        table.add_row(f"box {k}", ", ".join(f"{name}: {ends}" for name, ends in box.items()))
    ranges = about["ranges"]
    shown = ", ".join(f"{a}..{b}" for a, b in ranges["ranges"][:MOST_SHOWN])
    more = " ..." if ranges["count"] > MOST_SHOWN else ""
    table.add_row("ranges", f"{ranges['count']} on the curve {ranges['curve']}: {shown}{more}")
    screen.print(table)


def _lines(node: dict[str, Any], before: str) -> Iterator[str]:
    """A tree, a line a node, each with how selective it is."""
    kind = next(iter(node))
    what = node["predicate"] if kind == "predicate" else kind.upper() if node[kind] else "everything"
    yield f"{before}{what}   {node['selectivity']:.3g}"
    for child in node[kind] if kind != "predicate" else ():
        yield from _lines(child, before + "    ")
