"""Explanation of a filter: its tree, its boxes, the form in which it travels, its selectivity, its ranges on a curve.

Selectivities assume publications that are uniform over the space, as every link does before it has seen any (see
`state.filters.selectivity`).
"""

from __future__ import annotations

from typing import Any

from state.config import Config
from state.errors import LacunaError
from state.filters.pruning import estimate, size
from state.filters.selectivity import Selectivities
from state.filters.trees import Filter, Leaf, leaves, of_boxes, pmin, to_text
from state.filters.where import Asked, asked
from state.geometry.boxes import stack, volume
from state.routing.rangetold import MOST, grid_of
from state.space import Space, ValueRefused
from state.strategies import BY_RANGES, Spec


def explain_filter(config: Config, where: object) -> dict[str, Any]:
    """Return everything about a filter, as `--json` prints it. Raises `LacunaError` if the filter is refused."""
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
    """Return the ranges that the boxes become on the Hilbert curve of strategy `mics`."""
    spec = config.spec if config.spec.by_ranges else Spec(BY_RANGES)
    grid = grid_of(config.space, spec)
    found, bridged = grid.ranges(
        stack(got.boxes, config.space.dims), int(dict(spec.parameters).get("max_ranges", MOST))
    )
    return {"curve": str(grid), "count": len(found), "bridged": bridged, "ranges": found.tolist()}
