"""Dimension-based pruning (Bittner and Hinze): filters made smaller by making them more general.

A pruning takes a child away from an AND. What is left holds wherever the filter held before, so a broker that routes by
pruned filters loses nothing; it forwards more. The last predicate is never taken: that would remove the subscription.

    AND                     AND
   ╱ │ ╲        ──▶        ╱   ╲            network   how many more publications does it let through?
  a  b  OR                a    OR           memory    how many bytes does it save?
       ╱  ╲                   ╱  ╲          throughput   how many fewer predicates must be fulfilled before
      c    d                 c    d                      the tree has to be looked at?

Estimates, bottom up from the selectivity s of each predicate:

                    min                    avg                   max
    predicate       s                      s                     s
    AND             max(0, Σmin - (n-1))   Πavg                  least max
    OR              greatest min           1 - Π(1 - avg)        min(1, Σmax)

    degradation   the largest of the three differences against the original subscription      (network)
    saved         bytes against the tree before this pruning                                   (memory)
    lowered       pmin of the original less that of the pruned tree                            (throughput)

The best pruning degrades least, saves most, lowers least; ties fall to the next dimension:

    network (degradation, lowered, saved)    memory (saved, degradation, lowered)
    throughput (lowered, degradation, saved)

What is rated is the tree that is left, tidied (see `filters`). Most prunings leave a tree that is tidy as it stands,
and are rated without being done. Tidying merges, so that the sums are not those of what is left, where

    * of an AND below an OR one child is left, which then stands in the OR itself: it may touch a predicate there, and
      the OR, if it is now one of predicates of one attribute, another in the AND above;
    * what is left, there or farther up, equals what stands beside it; equal trees have equal sizes, which are known.

Such prunings are done to be rated.

By memory only a node below which nothing can be pruned is taken, or the largest subtree would always go first.
The sign of `lowered` needs care: the paper writes pmin(pruned) - pmin(original) and orders by it "ascending" while the
text asks for the greatest; the greatest, which is the least lowered, is what makes sense and is done.

Over all subscriptions of a table the paper keeps a priority queue: each subscription's next best pruning waits in it,
the best of all is done, and the next of that subscription takes its place. A subscription's prunings follow from it
alone (`steps`), and a queue of such series yields them in the order of the worst key so far. So the queue is the same
as sorting all steps by (worst key up to it, subscription, step), and the first N of that list are the N prunings done.
That is how `Pruned` (see `pruned`) keeps the table as subscriptions come and go, without a queue and without doing
anything again; the tests hold it against the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from itertools import accumulate
from math import inf, prod
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.filters.trees import (
    EVERYTHING,
    MOST_BOXES,
    MOST_TERMS,
    And,
    Filter,
    Leaf,
    Or,
    boxes_of,
    conjunction,
    disjunction,
    sides_of,
    terms_of,
)
from state.geometry.boxes import Boxes, unstack
from state.kernels import kernel
from state.space import Keys, Lengths, Space

Dimension = Literal["network", "memory", "throughput"]
DIMENSIONS: tuple[Dimension, ...] = ("network", "memory", "throughput")
LEAF_BYTES, NODE_BYTES = 24, 8
"""Bytes of a predicate and of an inner node, as `filters.pack_tree` writes them."""

BENDS: dict[Dimension, float] = {"network": 0.75, "memory": 0.05, "throughput": 0.5}
"""The share of all prunings beyond which the published traffic grows sharply (Fig. 1, section 4.2): the default."""

Selectivity = Callable[[Leaf], float]
Key = tuple[float, float, float]
"""The rating of a pruning: smaller is better."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """The pruning of a link: by which dimension, how many prunings at most, and the worst that is still done.

    `worst` is a bound on the dimension: a degradation by network, the least bytes saved by memory, how far `pmin` may
    be lowered by throughput. Without either stop, `BENDS` says what share of all prunings is done.
    """

    dimension: Dimension
    prunings: int | None = None
    worst: float | None = None

    def allows(self, step: Step) -> bool:
        """May this pruning be done, whatever others there are?"""
        if self.worst is None:
            return True
        return step.key[0] <= (-self.worst if self.dimension == "memory" else self.worst)

    def count(self, possible: int) -> int:
        """Return how many of the possible prunings are done."""
        if self.prunings is None:
            return possible if self.worst is not None else int(BENDS[self.dimension] * possible)
        return min(self.prunings, possible)


class Estimate(NamedTuple):
    """The estimated selectivity of a tree: the least, the average and the most it can be."""

    least: float
    average: float
    most: float

    def degradation(self, original: Estimate) -> float:
        """Return how much less selective it is than the original."""
        return max(mine - its for mine, its in zip(self, original, strict=True))


@dataclass(frozen=True, slots=True)
class Step:
    """One pruning: the tree after it, its key, and the worst key up to it."""

    tree: Filter
    key: Key
    worst: Key


Parts = tuple[float, float, float, float]
"""Sums over the children of a node so far: three for the estimate, one for `pmin`."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """The rule by which the estimates of children become that of an AND or an OR."""

    none: Parts
    of: Callable[[Rated], Parts]
    add: Callable[[Parts, Parts], Parts]
    done: Callable[[Parts], Rated]


class Rated(NamedTuple):
    """The estimates about a tree."""

    estimate: Estimate
    pmin: float


_AND = _Kind(
    (0.0, 1.0, 1.0, 0.0),
    lambda r: (r.estimate.least - 1.0, r.estimate.average, r.estimate.most, r.pmin),
    lambda a, b: (a[0] + b[0], a[1] * b[1], min(a[2], b[2]), a[3] + b[3]),
    lambda a: Rated(Estimate(max(0.0, 1.0 + a[0]), a[1], a[2]), a[3]),
)
_OR = _Kind(
    (0.0, 1.0, 0.0, inf),
    lambda r: (r.estimate.least, 1.0 - r.estimate.average, r.estimate.most, r.pmin),
    lambda a, b: (max(a[0], b[0]), a[1] * b[1], a[2] + b[2], min(a[3], b[3])),
    lambda a: Rated(Estimate(a[0], 1.0 - a[1], min(1.0, a[2])), a[3]),
)


def rated(tree: Filter, selectivity: Selectivity) -> Rated:
    """The estimated selectivity and `pmin` of a tree. O(predicates)."""
    if isinstance(tree, Leaf):
        s = selectivity(tree)
        return Rated(Estimate(s, s, s), 1.0)
    kind = _AND if isinstance(tree, And) else _OR
    return kind.done(reduce(kind.add, (kind.of(rated(child, selectivity)) for child in tree.children), kind.none))


def estimate(tree: Filter, selectivity: Selectivity) -> Estimate:
    """The estimated selectivity of a tree.

    >>> estimate(And((Leaf(0, 0, 1), Leaf(1, 0, 1))), lambda leaf: [0.5, 0.75][leaf.attribute])
    Estimate(least=0.25, average=0.375, most=0.5)
    """
    return rated(tree, selectivity).estimate


def size(tree: Filter) -> int:
    """The bytes that a tree takes."""
    if isinstance(tree, Leaf):
        return LEAF_BYTES
    return NODE_BYTES + sum(map(size, tree.children))


# Prunings


class Option(NamedTuple):
    """A pruning that could be done: the way to the child that goes, what is left then, and the bytes saved."""

    path: tuple[int, ...]
    rated: Rated
    saved: int
    merges: bool = False
    """May what is left be merged with what stands beside it? Then the rest is a guess until it is done."""


def options(tree: Filter, selectivity: Selectivity, space: Space, *, lowest: bool = False) -> list[Option]:
    """Every pruning of a tree, rated as what it leaves; `lowest`: only nodes below which nothing can be pruned.

    O(predicates times depth): at each node the other children are summed up once from the left and once from the right.
    Only prunings after which something may be merged are done to be rated.
    """
    found = _options(tree, selectivity, lowest, above=None)[2]
    return [_done(tree, option.path, selectivity, space) if option.merges else option for option in found]


def _done(tree: Filter, path: tuple[int, ...], selectivity: Selectivity, space: Space) -> Option:
    """A pruning, rated by doing it."""
    pruned = without(tree, path, space)
    return Option(path, rated(pruned, selectivity), size(tree) - size(pruned))


def _options(tree: Filter, selectivity: Selectivity, lowest: bool, above: Or | None) -> tuple[Rated, int, list[Option]]:
    """A tree below an OR or not: rated, its size, and its prunings."""
    if isinstance(tree, Leaf):
        return rated(tree, selectivity), LEAF_BYTES, []
    kind = _AND if isinstance(tree, And) else _OR
    here = tree if isinstance(tree, Or) else None
    below = [_options(child, selectivity, lowest, here) for child in tree.children]
    parts, sizes = [kind.of(whole) for whole, _, _ in below], [taken for _, taken, _ in below]
    left = list(accumulate(parts, kind.add, initial=kind.none))
    right = list(accumulate(reversed(parts), kind.add, initial=kind.none))[::-1]
    found = []
    for k, (_, _, inner) in enumerate(below):
        others = kind.add(left[k], right[k + 1])
        for option in inner:
            whole = kind.done(kind.add(others, kind.of(option.rated)))
            merges = option.merges or LEAF_BYTES < sizes[k] - option.saved in sizes  # a predicate: see `_dissolved`
            found.append(Option((k, *option.path), whole, option.saved, merges))
        if isinstance(tree, And) and not (lowest and inner):
            nodes, merges = _dissolved(tree, k, above)
            found.append(Option((k,), kind.done(others), sizes[k] + nodes * NODE_BYTES, merges))
    return kind.done(left[-1]), NODE_BYTES + sum(sizes), found


def _dissolved(tree: And, k: int, above: Or | None) -> tuple[int, bool]:
    """Return how many nodes go with a child (of two the AND, and an OR left in an OR), and if the rest may merge."""
    if len(tree.children) > 2:
        return 0, False
    left = tree.children[1 - k]
    if above is None:
        return 1, False
    there = {child.attribute for child in above.children if isinstance(child, Leaf)}
    coming = left.children if isinstance(left, Or) else (left,)
    merges = any(not isinstance(child, Leaf) or child.attribute in there for child in coming)
    return 1 + isinstance(left, Or), merges


def without(tree: Filter, path: tuple[int, ...], space: Space) -> Filter:
    """The tree after a pruning."""
    if isinstance(tree, Leaf):
        raise InvariantError("a predicate has no children to prune")
    k, *rest = path
    pruned = (without(tree.children[k], tuple(rest), space),) if rest else ()
    join = conjunction if isinstance(tree, And) else disjunction
    return join((*tree.children[:k], *pruned, *tree.children[k + 1 :]), space)


def steps(original: Filter, dimension: Dimension, selectivity: Selectivity, space: Space) -> Iterator[Step]:
    """The prunings of one subscription, the best first, until no more can be taken."""
    unpruned = rated(original, selectivity)
    tree, worst = original, None
    while True:
        best = _best(tree, unpruned, dimension, selectivity, space)
        if best is None:
            return
        key, tree = best
        worst = key if worst is None else max(worst, key)
        yield Step(tree, key, worst)


def _best(
    tree: Filter, unpruned: Rated, dimension: Dimension, selectivity: Selectivity, space: Space
) -> tuple[Key, Filter] | None:
    """The best pruning: its key, and the tree after it. One that would leave nothing to ask for is none."""
    found = options(tree, selectivity, space, lowest=dimension == "memory")
    for key, k in sorted((_key(dimension, unpruned, option), k) for k, option in enumerate(found)):
        pruned = without(tree, found[k].path, space)
        if pruned != EVERYTHING:
            return key, pruned
    return None


def _key(dimension: Dimension, unpruned: Rated, option: Option) -> Key:
    degradation = round(option.rated.estimate.degradation(unpruned.estimate), 12)  # what is equal but for rounding ties
    lowered, kept = unpruned.pmin - option.rated.pmin, float(-option.saved)
    if dimension == "network":
        return degradation, lowered, kept
    return (kept, degradation, lowered) if dimension == "memory" else (lowered, degradation, kept)


# Fitting


def fitted(tree: Filter, space: Space, most: int = MOST_BOXES) -> tuple[Filter, Boxes]:
    """A filter that holds wherever `tree` does and is at most `most` boxes, and those boxes.

    Publications are taken to be uniform. Pruned is where terms multiply: of an AND with several children that are each
    more than one box, the least selective of these goes. An OR of boxes has nothing to prune: there neighbours become
    the box around them both, as many as are too many, the cheapest first.
    """
    while True:
        count = terms(tree)
        boxes = boxes_of(tree, space, MOST_TERMS) if count <= MOST_TERMS else None
        if boxes is not None and len(boxes) <= most:
            return tree, boxes
        gone = max(count - most, count // 8) if boxes is None else len(boxes) - most
        tree = _lighter(tree, space, max(1, gone))


def terms(tree: Filter) -> int:
    """Return the number of boxes of a tree that is multiplied out."""
    if isinstance(tree, Leaf):
        return 1
    counts = [terms(child) for child in tree.children]
    return prod(counts) if isinstance(tree, And) else sum(counts)


def _lighter(tree: Filter, space: Space, gone: int) -> Filter:
    """The same filter, more general, with fewer terms; where it can be chosen how many, by `gone` at most."""
    if isinstance(tree, Leaf):
        raise InvariantError("a predicate is a box: nothing is lighter")
    counts = [terms(child) for child in tree.children]
    heavy = sorted((k for k, count in enumerate(counts) if count > 1), key=lambda k: -counts[k])
    if isinstance(tree, Or):
        return _lighter_alternatives(tree, space, gone, counts, heavy) if heavy else _coarser(tree, space, gone)
    if len(heavy) > 1:
        return _fewer_factors(tree, space, counts, heavy)
    k = heavy[0]
    return conjunction((*tree.children[:k], _lighter(tree.children[k], space, gone), *tree.children[k + 1 :]), space)


def _fewer_factors(tree: And, space: Space, counts: list[int], heavy: list[int]) -> Filter:
    """An AND without the least selective of its children that are several boxes, so many that few terms are left."""
    selectivity = partial(natural, space)
    left = prod(counts)
    gone = set[int]()
    for k in sorted(heavy, key=lambda k: (estimate(tree.children[k], selectivity).average, k), reverse=True)[:-1]:
        gone.add(k)
        left //= counts[k]
        if left <= MOST_TERMS:
            break
    return conjunction((child for k, child in enumerate(tree.children) if k not in gone), space)


def _lighter_alternatives(tree: Or, space: Space, gone: int, counts: list[int], heavy: list[int]) -> Filter:
    """An OR with the heaviest of its children made lighter, until half of `gone` are (see `_coarser` why half)."""
    children = list(tree.children)
    left = -(-gone // 2)
    for k in heavy:
        children[k] = _lighter(children[k], space, gone)
        left -= counts[k] - terms(children[k])
        if left <= 0:
            break
    return disjunction(children, space)


def natural(space: Space, leaf: Leaf) -> float:
    """The share of an attribute's domain that fulfils a predicate."""
    a = space.attributes[leaf.attribute]
    return a.length(leaf.lo, leaf.hi) / a.whole if a.whole > 0 else 1.0


def _coarser(tree: Or, space: Space, gone: int) -> Filter:
    """An OR of boxes with `gone` fewer, if that is at most half: neighbours joined, whose box around both adds least.

    Half, because boxes that overlap are more boxes than terms, and joining some may do away with many.
    """
    boxes = np.array(sorted(box for child in tree.children for box in terms_of(child, space.domain)), np.int64)
    wholes = np.array([a.whole for a in space.attributes])
    kept = _join_neighbours(boxes, space.positions(boxes), wholes, min(gone, len(boxes) // 2))
    return disjunction((sides_of(box, space) for box in unstack(boxes[kept])), space)


@kernel
def _join_neighbours(boxes: Keys, ends: Lengths, wholes: Lengths, gone: int) -> NDArray[np.bool_]:
    """Put the box around both in the place of a box and the next, `gone` times; returns which boxes are left."""
    n = len(boxes)
    kept, added = np.ones(n, np.bool_), np.full(n, np.inf)
    before, behind = np.arange(-1, n - 1), np.arange(1, n + 1)
    for k in range(n - 1):
        added[k] = _added(ends[k], ends[k + 1], wholes)
    for _ in range(gone):
        k = int(np.argmin(added))
        other = behind[k]
        for i in range(len(wholes)):
            boxes[k, 0, i], ends[k, 0, i] = (
                min(boxes[k, 0, i], boxes[other, 0, i]),
                min(ends[k, 0, i], ends[other, 0, i]),
            )
            boxes[k, 1, i], ends[k, 1, i] = (
                max(boxes[k, 1, i], boxes[other, 1, i]),
                max(ends[k, 1, i], ends[other, 1, i]),
            )
        kept[other], added[other], behind[k] = False, np.inf, behind[other]
        added[k] = np.inf
        if behind[k] < n:
            before[behind[k]] = k
            added[k] = _added(ends[k], ends[behind[k]], wholes)
        if before[k] >= 0:
            added[before[k]] = _added(ends[before[k]], ends[k], wholes)
    return kept


@kernel
def _added(a: Lengths, b: Lengths, wholes: Lengths) -> float:
    """By how much the box around two is larger than the two, as a share of the domain."""
    one = other = both = 1.0
    for i in range(len(wholes)):
        if wholes[i] > 0:
            one *= (a[1, i] - a[0, i]) / wholes[i]
            other *= (b[1, i] - b[0, i]) / wholes[i]
            both *= (max(a[1, i], b[1, i]) - min(a[0, i], b[0, i])) / wholes[i]
    return both - one - other
