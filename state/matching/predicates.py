"""Matching Boolean filters: find fulfilled predicates, count them per filter, look at few trees.

The counting algorithm that Bittner and Hinze build on, over a batch of points:

    point ──▶ per attribute a segment tree ──▶ fulfilled predicates ──▶ count per filter ──▶ count = needed? ──▶ tree

    segment tree over the ends of all intervals of one attribute; each predicate lies in O(log n) nodes, and the
    nodes on the way from a key's leaf to the root hold exactly the predicates that the key fulfils:

        ends      3     5     8                     ┌───────────┴───────────┐
        keys   ···│·····│·····│···               ┌──┴──┐  [5, ..)        ┌──┴──┐
                                                <3   [3,5)             [5,8)   ≥8

`pmin` is the fewest predicates that a tree needs; where fewer are fulfilled it cannot hold, and is not looked at.

Known to be better, and the default: not all predicates need to be counted. A predicate that most publications fulfil
costs much to count and says little. Give it weight 0, and `pmin` counts the rest. What is counted here is the cheapest
set of which at least one must be fulfilled (of an AND the most selective child, of an OR all children), so `pmin` is 1
and the cost of a point is the number of filters whose rarest predicate it fulfils. `counted="all"` is as published:
on 200,000 filters it takes about forty times longer (`lacuna bench pruning`).

A tree is looked at as a list of its predicates, each with two jumps, so that nothing is evaluated twice or in vain:

    a AND (b OR c)        0: a   true → 1       false → reject
                          1: b   true → accept  false → 2
                          2: c   true → accept  false → reject

Filters come and go one by one. New ones wait outside the trees, where each point is tried on them directly, until they
are a share of all; then everything is built again. Answers come in order of arrival and do not depend on any of this.

A filter is kept as its list of predicates alone, 48 bytes each; the tree is left to whoever gave it. A filter that
stands for a more special one, because it is smaller (`pruned`), may have the list of that one behind its own. Nothing
of it is counted, and it is looked at where the general one holds and the special one is asked about (`exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from state.errors import InvariantError
from state.filters.pruning import natural
from state.filters.trees import And, Filter, Leaf, leaves, pmin
from state.kernels import kernel, kernel_inline
from state.protocol.messages import Name
from state.space import Keys, Space

Ints = NDArray[np.int64]
Code = list[tuple[int, int, int, int, int, int]]
"""Predicates of a tree: attribute, lo, hi, where to go on if it holds, where if not, whether it is counted."""
Counted = Literal["few", "all"]

ACCEPT, REJECT = -1, -2
ATTRIBUTE, LO, HI, YES, NO, COUNTED = range(6)
FEWEST_WAITING = 64
SHARE_WAITING = 16
"""New filters wait until they are 1/16 of those in the trees: building costs then about 16 times its share an entry."""
STRIDE = 1 << 12
"""More than any count: the counts of one point begin so far above those of the last, and need no reset."""


# One tree


class _Part(NamedTuple):
    """A tree before it is written down; its children are in the order in which they are tried."""

    tree: Filter
    average: float
    size: int
    rare: float
    chosen: tuple[Leaf, ...]
    parts: tuple[_Part, ...] = ()


def _rated(tree: Filter, selectivity: Callable[[Leaf], float]) -> _Part:
    if isinstance(tree, Leaf):
        share = selectivity(tree)
        return _Part(tree, share, 1, share, (tree,))
    parts = [_rated(child, selectivity) for child in tree.children]
    count = sum(part.size for part in parts)
    if isinstance(tree, And):
        best = min(parts, key=lambda part: part.rare)
        parts.sort(key=lambda part: part.average)
        return _Part(tree, prod(part.average for part in parts), count, best.rare, best.chosen, tuple(parts))
    rare, chosen = sum(part.rare for part in parts), tuple(leaf for part in parts for leaf in part.chosen)
    parts.sort(key=lambda part: -part.average)
    return _Part(tree, 1 - prod(1 - part.average for part in parts), count, rare, chosen, tuple(parts))


def rarest(tree: Filter, selectivity: Callable[[Leaf], float]) -> float:
    """Return how often any predicate of the cheapest set is fulfilled of which one must be for the tree to hold."""
    return _rated(tree, selectivity).rare


def compiled(tree: Filter, selectivity: Callable[[Leaf], float], counted: Counted) -> tuple[Code, int]:
    """A tree as a list of predicates with jumps, and how many of the counted ones must be fulfilled."""
    code: Code = []
    part = _rated(tree, selectivity)
    _emit(part, ACCEPT, REJECT, 0, code, None if counted == "all" else set(part.chosen))
    return code, pmin(tree) if counted == "all" else 1


def _emit(part: _Part, yes: int, no: int, here: int, code: Code, chosen: set[Leaf] | None) -> None:
    """Append a tree that begins at position `here` and goes on at `yes` or `no`."""
    tree = part.tree
    if isinstance(tree, Leaf):
        code.append((tree.attribute, tree.lo, tree.hi, yes, no, chosen is None or tree in chosen))
        return
    for child in part.parts:
        after = here + child.size
        last = child is part.parts[-1]
        if isinstance(tree, And):
            _emit(child, yes if last else after, no, here, code, chosen)
        else:
            _emit(child, yes, no if last else after, here, code, chosen)
        here = after


@kernel_inline
def _evaluate(code: Ints, begin: int, point: Keys) -> bool:
    at = 0
    while at >= 0:
        row = code[begin + at]
        key = point[row[0]]
        at = row[3] if row[1] <= key < row[2] else row[4]
    return at == -1


# All trees


@kernel
def _place(ranks: Ints, size: int, starts: Ints, items: Ints, fill: bool) -> None:
    """Put intervals of ranks `[a, b)` into the nodes of a segment tree: count them, or fill them in."""
    for k in range(len(ranks)):
        left, right = ranks[k, 0] + size, ranks[k, 1] + size
        while left < right:
            if left & 1:
                if fill:
                    items[starts[left]] = k
                starts[left] += 1
                left += 1
            if right & 1:
                right -= 1
                if fill:
                    items[starts[right]] = k
                starts[right] += 1
            left >>= 1
            right >>= 1


class CountArrays(NamedTuple):
    """The arrays that kernels take.

    By slot: the trees, where the one to look at begins, which are alive, counts, and what these must reach. Then the
    segment trees (`_segments`) over the predicates that are counted, and the slots that have each of these.
    """

    code: Ints
    begins: Ints
    alive: NDArray[np.bool_]
    counts: Ints
    needed: Ints
    layout: Ints
    borders: Ints
    nodes: Ints
    items: Ints
    owners_from: Ints
    owners: Ints


@kernel
def _candidates(point: Keys, base: int, found: Ints, any_: bool, a: CountArrays) -> int:
    """Write the slots whose count reaches what they need into `found`; return how many.

    With `any_`, look at each tree at once, and return -1 as soon as one holds.
    """
    n = 0
    for i in range(len(point)):
        border, border_end, size, first = a.layout[i, 0], a.layout[i, 1], a.layout[i, 2], a.layout[i, 3]
        if border == border_end:
            continue
        node = size + np.searchsorted(a.borders[border:border_end], point[i], side="right")
        while node > 0:
            for q in range(a.nodes[first + node], a.nodes[first + node + 1]):
                predicate = a.items[q]
                for r in range(a.owners_from[predicate], a.owners_from[predicate + 1]):
                    slot = a.owners[r]
                    count = max(a.counts[slot], base) + 1
                    a.counts[slot] = count
                    if count != base + a.needed[slot]:
                        continue
                    if any_:
                        if a.alive[slot] and _evaluate(a.code, a.begins[slot], point):
                            return -1
                    else:
                        found[n] = slot
                        n += 1
            node >>= 1
    return n


@kernel
def _match(points: Keys, base: int, built: int, slots: int, a: CountArrays) -> tuple[Ints, Ints]:
    """All pairs (point, slot) whose tree holds, by point, then by slot."""
    who, what = np.empty(len(points) + 16, np.int64), np.empty(len(points) + 16, np.int64)
    found = np.empty(slots + 1, np.int64)
    total = 0
    for p in range(len(points)):
        base += STRIDE
        n = _candidates(points[p], base, found, False, a)
        found[:n].sort()
        for slot in range(built, slots):
            found[n] = slot
            n += 1
        if total + n > len(who):
            who = np.concatenate((who, np.empty(len(who) + n, np.int64)))
            what = np.concatenate((what, np.empty(len(what) + n, np.int64)))
        for k in range(n):
            slot = found[k]
            if a.alive[slot] and _evaluate(a.code, a.begins[slot], points[p]):
                who[total], what[total] = p, slot
                total += 1
    return who[:total].copy(), what[:total].copy()


@kernel
def _match_any(points: Keys, base: int, built: int, slots: int, a: CountArrays) -> NDArray[np.bool_]:
    """For each point, whether any tree holds."""
    hit, none = np.zeros(len(points), np.bool_), np.empty(0, np.int64)
    for p in range(len(points)):
        base += STRIDE
        hit[p] = _candidates(points[p], base, none, True, a) < 0
        slot = built
        while slot < slots and not hit[p]:
            hit[p] = a.alive[slot] and _evaluate(a.code, a.begins[slot], points[p])
            slot += 1
    return hit


class Predicates:
    """Named filters in order of arrival that answers which of them hold at a point.

    >>> from state.filters.trees import Or
    >>> from state.space import Attribute
    >>> space = Space((Attribute("a", "int", 0, 9), Attribute("b", "int", 0, 9)))
    >>> ann = Name("oslo", "ann", "s1")
    >>> index = Predicates(space, [(ann, Or((Leaf(0, 0, 3), Leaf(1, 5, 10))))])
    >>> index.holders(np.array([[1, 1], [5, 1], [5, 7]]))
    ([0, 2], [Name(broker='oslo', client='ann', id='s1'), Name(broker='oslo', client='ann', id='s1')])
    """

    def __init__(
        self,
        space: Space,
        entries: Iterable[tuple[Name, Filter]] = (),
        *,
        counted: Counted = "few",
        selectivity: Callable[[Leaf], float] | None = None,
    ) -> None:
        self._space, self._counted = space, counted
        self._counts, self._base = np.zeros(1, np.int64), 0
        self._index: tuple[Ints, ...] = ()
        self._selectivity = partial(natural, space) if selectivity is None else selectivity
        self._slots: dict[Name, int] = {}
        self._owners: list[Name] = []
        self._code, self._used = np.empty((64, 6), np.int64), 0
        self._begins, self._exact, self._needed = (np.empty(64, np.int64) for _ in range(3))
        self._alive = np.zeros(64, np.bool_)
        self._count = self.associations = 0
        for name, tree in entries:
            self._append(name, tree)
        self.build()

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, name: Name) -> bool:
        return name in self._slots

    def __iter__(self) -> Iterator[Name]:
        return iter(self._slots)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, names and their dictionary not counted."""
        return sum(array.nbytes for array in (*self._arrays(), self._exact))

    def add(self, name: Name, tree: Filter, exact: Filter | None = None) -> None:
        """Add a filter at the end, with the one that it stands for. O(predicates), and a share of building."""
        self._append(name, tree, exact)
        if self._count - self._built > max(FEWEST_WAITING, self._built // SHARE_WAITING):
            self.build()

    def remove(self, name: Name) -> None:
        """Forget a filter. O(1), and a share of packing."""
        slot = self._slots.pop(name)
        self._alive[slot] = False
        self.associations -= self._associations(slot)
        if self._count > 2 * len(self._slots) + FEWEST_WAITING:
            self._pack()

    def _associations(self, slot: int) -> int:
        """The number of predicates of the filter in a slot."""
        begin, exact = self._begins[slot], self._exact[slot]
        if exact > begin:
            return int(exact - begin)
        return int((self._begins[slot + 1] if slot + 1 < self._count else self._used) - begin)

    @property
    def _lengths(self) -> Ints:
        """The predicates of each slot, those of an exact filter included."""
        return np.diff(self._begins[: self._count], append=self._used)

    def _pack(self) -> None:
        """Give the living ones new slots in the same order, and forget the rest. O(predicates log predicates)."""
        alive, lengths = self._alive[: self._count], self._lengths
        self._code = self._code[: self._used][np.repeat(alive, lengths)]
        begins, exact, self._needed = (one[: self._count][alive] for one in (self._begins, self._exact, self._needed))
        self._begins = np.cumsum(lengths[alive]) - lengths[alive]
        self._exact = exact - begins + self._begins
        self._owners = list(self._slots)
        self._slots = {name: slot for slot, name in enumerate(self._owners)}
        self._count, self._used = len(self._owners), len(self._code)
        self._alive = np.ones(self._count, np.bool_)
        self.build()

    def holders(self, points: Keys) -> tuple[list[int], list[Name]]:
        """All pairs (point, entry that holds it), by point, then in order of arrival."""
        which, slots = self.matching(points)
        owners = self._owners
        return which.tolist(), [owners[slot] for slot in slots.tolist()]

    def holds_any(self, points: Keys, *, exact: bool = False) -> NDArray[np.bool_]:
        """For each point, whether any entry holds it; with `exact`, any of those that they stand for."""
        return _match_any(points, *self._counting(len(points), exact=exact))

    def matching(self, points: Keys) -> tuple[Ints, Ints]:
        """All pairs (point, slot of an entry that holds it), by point, then in order of arrival."""
        return _match(points, *self._counting(len(points)))

    def _counting(self, points: int, *, exact: bool = False) -> tuple[int, int, int, CountArrays]:
        """Return what the kernels take to count for so many points."""
        if self._base > 2**62:
            self._counts[:] = self._base = 0
        base, self._base = self._base, self._base + STRIDE * (points + 1)
        return base, self._built, self._count, self._arrays(exact=exact)

    def _arrays(self, *, exact: bool = False) -> CountArrays:
        begins = self._exact if exact else self._begins
        return CountArrays(self._code, begins, self._alive, self._counts, self._needed, *self._index)

    # storing

    def _append(self, name: Name, tree: Filter, exact: Filter | None = None) -> None:
        if name in self._slots:
            raise InvariantError(f"subscription {name} is added to an index that already holds it")
        code, needed = self._compiled(tree, exact)
        own = len(code) if exact is None else sum(1 for _ in leaves(tree))
        self._grow(len(code))
        self._code[self._used : self._used + len(code)] = code
        self._begins[self._count], self._needed[self._count] = self._used, needed
        self._exact[self._count] = self._used if exact is None else self._used + own
        self._alive[self._count] = True
        self._slots[name] = self._count
        self._owners.append(name)
        self._used += len(code)
        self._count += 1
        self.associations += own

    def _compiled(self, tree: Filter, exact: Filter | None) -> tuple[Code, int]:
        """A filter and what it stands for, as predicates, and how many of the counted ones must be fulfilled."""
        code, needed = compiled(tree, self._selectivity, self._counted)
        behind, _ = compiled(exact, self._selectivity, self._counted) if exact is not None else ([], 0)
        return code + [(attribute, lo, hi, yes, no, False) for attribute, lo, hi, yes, no, _ in behind], needed

    def _grow(self, more: int) -> None:
        if self._used + more > len(self._code):
            self._code = np.concatenate((self._code, np.empty((len(self._code) // 4 + more, 6), np.int64)))
        if self._count == len(self._begins):
            room = np.empty(len(self._begins) // 4 + 64, np.int64)
            by_slot = (self._begins, self._exact, self._needed)
            self._begins, self._exact, self._needed = (np.concatenate((one, room)) for one in by_slot)
            self._alive = np.concatenate((self._alive, np.zeros(len(room), np.bool_)))

    def build(self) -> None:
        """Build the segment trees over everything, so that nothing waits. O(predicates log predicates)."""
        self._built, self._base = self._count, 0
        self._counts = np.zeros(self._count + 1, np.int64)
        code = self._code[: self._used]
        owner = np.repeat(np.arange(self._count), self._lengths)
        counted = np.flatnonzero(code[:, COUNTED])
        attribute, lo, hi = (code[counted, column] for column in (ATTRIBUTE, LO, HI))
        order = np.lexsort((hi, lo, attribute))
        rows = np.stack((attribute, lo, hi), axis=1)[order]
        fresh = np.ones(len(rows), np.bool_)
        fresh[1:] = (rows[1:] != rows[:-1]).any(axis=1)
        begins = np.flatnonzero(fresh)
        owners = np.ascontiguousarray(owner[counted][order])
        self._index = (*_segments(rows[begins], self._space.dims), np.append(begins, len(rows)), owners)

    def check(self, trees: Mapping[Name, Filter], exact: Mapping[Name, Filter] | None = None) -> None:
        """Raise `InvariantError` unless the filters are these, and those that some stand for are in `exact`."""
        if self._slots.keys() != trees.keys() or sum(self._alive[: self._count]) != len(self._slots):
            raise InvariantError("the names, slots and trees of a predicate index disagree")
        if list(self._slots.values()) != np.flatnonzero(self._alive[: self._count]).tolist():
            raise InvariantError("the slots of a predicate index are not in order of arrival")
        lengths = self._lengths
        for name, slot in self._slots.items():
            code, needed = self._compiled(trees[name], (exact or {}).get(name))
            begin, own = self._begins[slot], sum(1 for _ in leaves(trees[name]))
            if self._code[begin : begin + lengths[slot]].tolist() != list(map(list, code)):
                raise InvariantError(f"the predicates of {name} are not those of its tree")
            if self._needed[slot] != needed or self._associations(slot) != own:
                raise InvariantError(f"the predicates of {name} are miscounted")
        if self.associations != sum(map(self._associations, self._slots.values())):
            raise InvariantError("the associations of a predicate index are miscounted")


def _segments(predicates: Ints, dims: int) -> tuple[Ints, Ints, Ints, Ints]:
    """A segment tree an attribute over predicates (attribute, lo, hi), in that order: layout, borders, nodes, items.

    `layout` says for each attribute where its borders begin and end, how wide its tree is and where its nodes begin;
    the items of node k lie in `items[nodes[k]:nodes[k + 1]]`.
    """
    layout = np.zeros((dims, 4), np.int64)
    borders, counts, items = [np.empty(0, np.int64)], [np.zeros(1, np.int64)], [np.empty(0, np.int64)]
    used = placed = first = 0
    for i in range(dims):
        begin, end = np.searchsorted(predicates[:, 0], [i, i + 1])
        ends = np.unique(predicates[begin:end, 1:])
        size = 1 << len(ends).bit_length()
        layout[i] = used, used + len(ends), size, first
        if begin == end:
            continue
        ranks = np.searchsorted(ends, predicates[begin:end, 1:]) + 1
        held = np.zeros(2 * size, np.int64)
        _place(ranks, size, held, held, False)
        starts = np.cumsum(held) - held
        inside = np.empty(int(held.sum()), np.int64)
        _place(ranks, size, starts, inside, True)
        borders.append(ends)
        items.append(inside + begin)
        counts.append(held)
        used, first, placed = used + len(ends), first + 2 * size, placed + len(inside)
    nodes = np.cumsum(np.concatenate(counts))
    return layout, np.concatenate(borders), nodes, np.concatenate(items)
