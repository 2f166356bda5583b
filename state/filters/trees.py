"""Boolean filters: trees of AND and OR over predicates, and the boxes that they are.

A predicate is an interval of keys on one attribute, so NOT is not needed inside a tree: the complement of an interval
is at most two others, and De Morgan carries NOT down to them.

    NOT (price BETWEEN 10 AND 20 AND symbol = 'IBM')

            OR                              price    [low, 10) or (20, high]
          ╱ │ ╲                             symbol   what lies before IBM, or after it
    price price symbol ...

Trees are kept tidy (`conjunction`, `disjunction` make no others): AND and OR alternate; an AND holds at most one
predicate an attribute, or one OR of predicates of it (two are their intersection), an OR no two that touch (they are
their union); none is empty or the whole domain. `EVERYTHING` is the AND of nothing, `NOTHING` the OR of nothing. A tidy
tree is monotone: taking a child away from an AND can only make it hold for more points, which is what pruning lives on
(see `pruning`).

Geometrically a tree is a union of boxes. `boxes_of` gives disjoint ones:

    terms       multiply out: every way to fulfil the tree is a box          (a AND (b OR c)  =  ab, ac)
    maximal     drop what another contains
    disjoint    the largest first (or the smallest, if that gives fewer), each less those before it
    joined      boxes that differ in one attribute, and abut there, become one

Multiplying out may explode, so there is a limit; beyond it the answer is None, and what travels between brokers is
generalised until it fits (`pruning.fitted`). How few boxes are the fewest is NP-hard; this order gives few. What stays
where it is may be as many boxes as it takes, and they may overlap (`all_boxes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from sys import maxsize

import numpy as np
from numpy.typing import NDArray

from state.errors import StateError
from state.geometry.boxes import Box, Boxes, contains, subtract_each, unstack
from state.kernels import kernel
from state.space import Corner, Keys, Space

MOST_BOXES = 64
"""A Boolean filter travels between brokers as at most this many boxes."""
MOST_TERMS = 512
"""Multiplying out is given up beyond this many terms."""
MOST_LOOKS = 1 << 19
"""Making terms disjoint is given up beyond this many looks at a box, and joining them ends there."""
FEW_TERMS = 16
"""So few terms are made disjoint in two orders, and the fewer boxes taken."""
MOST_DEPTH = 32
"""A tree may be nested this deep ..."""
MOST_PREDICATES = 512
"""... and hold this many predicates."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A predicate: the key of an attribute, given by its position, lies in `[lo, hi)`."""

    attribute: int
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class And:
    """Holds where all children do."""

    children: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Holds where a child does."""

    children: tuple[Filter, ...]


Filter = Leaf | And | Or
EVERYTHING = And(())
NOTHING = Or(())


# Tidy trees


def conjunction(parts: Iterable[Filter], space: Space) -> Filter:
    """All of these, tidy. O(predicates log predicates).

    >>> from state.space import Attribute
    >>> space = Space((Attribute("a", "int", 0, 9),))
    >>> conjunction([Leaf(0, 0, 5), Leaf(0, 3, 9)], space)
    Leaf(attribute=0, lo=3, hi=5)
    >>> conjunction([Leaf(0, 0, 3), Leaf(0, 3, 9)], space) == NOTHING
    True
    """
    places: dict[object, list[Filter]] = {}
    for part in _flat(parts, And):
        if part == NOTHING or (isinstance(part, Leaf) and part.lo >= part.hi):
            return NOTHING
        attribute = _only_attribute(part)
        if attribute is None:
            places[part] = [part]
        else:
            places.setdefault(attribute, []).append(part)
    common = [_common(group) for group in places.values()]
    return NOTHING if NOTHING in common else _single(And(tuple(part for part in common if not _whole(part, space))))


def _only_attribute(part: Filter) -> int | None:
    """The attribute of a predicate, or of an OR of predicates of one attribute."""
    if isinstance(part, Leaf):
        return part.attribute
    found = {child.attribute if isinstance(child, Leaf) else None for child in part.children}
    return found.pop() if isinstance(part, Or) and len(found) == 1 else None


def _common(sets: list[Filter]) -> Filter:
    """Where sets of intervals of one attribute, none of which touch in one set, all overlap. O(n log n)."""
    if len(sets) == 1:
        return sets[0]
    intervals = [leaf for one in sets for leaf in leaves(one)]
    ends = sorted([(leaf.lo, 1) for leaf in intervals] + [(leaf.hi, -1) for leaf in intervals])
    found: list[Filter] = []
    depth = begin = 0
    for end, step in ends:
        if depth == len(sets):
            found.append(Leaf(intervals[0].attribute, begin, end))
        depth, begin = depth + step, end
    return _single(Or(tuple(found)))


def disjunction(parts: Iterable[Filter], space: Space) -> Filter:
    """Any of these, tidy. O(children log children).

    >>> from state.space import Attribute
    >>> space = Space((Attribute("a", "int", 0, 9),))
    >>> disjunction([Leaf(0, 3, 5), Leaf(0, 0, 3)], space)
    Leaf(attribute=0, lo=0, hi=5)
    >>> disjunction([Leaf(0, 3, 10), Leaf(0, 0, 3)], space) == EVERYTHING
    True
    """
    places: dict[object, list[Filter]] = {}
    for part in _flat(parts, Or):
        if part == EVERYTHING or _whole(part, space):
            return EVERYTHING
        if isinstance(part, Leaf):
            if part.lo < part.hi:
                places.setdefault(part.attribute, []).append(part)
        else:
            places[part] = [part]
    merged = [one for group in places.values() for one in (_united(group) if len(group) > 1 else group)]
    return EVERYTHING if any(_whole(one, space) for one in merged) else _single(Or(tuple(merged)))


def _flat(parts: Iterable[Filter], kind: type[And] | type[Or]) -> Iterator[Filter]:
    for part in parts:
        if isinstance(part, kind):
            yield from part.children
        else:
            yield part


def _single(node: And | Or) -> Filter:
    return node.children[0] if len(node.children) == 1 else node


def _whole(part: Filter, space: Space) -> bool:
    """Is this a predicate that always holds?"""
    if not isinstance(part, Leaf):
        return False
    a = space.attributes[part.attribute]
    return part.lo <= a.low and part.hi > a.high


def _united(leaves: list[Filter]) -> list[Filter]:
    """Predicates of one attribute, those that touch or overlap made one."""
    united: list[Leaf] = []
    for leaf in sorted((leaf for leaf in leaves if isinstance(leaf, Leaf)), key=lambda leaf: (leaf.lo, leaf.hi)):
        if united and leaf.lo <= united[-1].hi:
            united[-1] = Leaf(leaf.attribute, united[-1].lo, max(leaf.hi, united[-1].hi))
        else:
            united.append(leaf)
    return list(united)


# Questions about a tree


def holds(tree: Filter, point: Corner) -> bool:
    """Does a tree hold at a point?"""
    if isinstance(tree, Leaf):
        return tree.lo <= point[tree.attribute] < tree.hi
    if isinstance(tree, And):
        return all(holds(child, point) for child in tree.children)
    return any(holds(child, point) for child in tree.children)


def leaves(tree: Filter) -> Iterator[Leaf]:
    """The predicates of a tree, from left to right."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Leaf):
            yield node
        else:
            waiting.extend(reversed(node.children))


def pmin(tree: Filter) -> int:
    """The fewest predicates that must be fulfilled for a tree to hold.

    >>> pmin(And((Leaf(0, 1, 2), Or((Leaf(1, 1, 2), And((Leaf(1, 2, 3), Leaf(2, 1, 2))))))))
    2
    """
    if isinstance(tree, Leaf):
        return 1
    if isinstance(tree, And):
        return sum(map(pmin, tree.children))
    return min(map(pmin, tree.children), default=0)


def of_boxes(boxes: Boxes, space: Space) -> Filter:
    """Disjoint boxes as a tree: an AND of sets of intervals where they are its product, or the OR of their sides."""
    sides = [dict.fromkeys((box.lo[i], box.hi[i]) for box in boxes) for i in range(space.dims)]
    if prod(len(side) for side in sides) == len(boxes):
        sets = (disjunction((Leaf(i, *ends) for ends in side), space) for i, side in enumerate(sides))
        return conjunction(sets, space)
    return disjunction([sides_of(box, space) for box in boxes], space)


def sides_of(box: Box, space: Space) -> Filter:
    """A box as the AND of its sides."""
    return conjunction((Leaf(i, lo, hi) for i, (lo, hi) in enumerate(zip(box.lo, box.hi, strict=True))), space)


# Boxes


Ends = tuple[Corner, Corner]
"""A box as its two corners."""


class _TooMany(Exception):
    """More terms than the limit."""


def boxes_of(tree: Filter, space: Space, most: int = MOST_BOXES) -> Boxes | None:
    """The disjoint boxes whose union is exactly a tree, or None if they would be more than `most`.

    Always the same boxes for the same tree.
    """
    try:
        found = _maximal(np.array(list(terms_of(tree, space.domain)), np.int64).reshape(-1, 2, space.dims))
    except _TooMany:
        return None
    if len(found) > 1:
        order = np.argsort(-space.shares(found), kind="stable")
        orders = (order, order[::-1]) if len(found) <= FEW_TERMS else (order,)
        tried = [_disjoint(found[one], MOST_TERMS, MOST_LOOKS) for one in orders]
        apart = [_joined(boxes) for boxes, done in tried if done]
        if not apart:
            return None
        found = min(apart, key=len)
    return unstack(found) if len(found) <= most else None


def all_boxes(tree: Filter, space: Space) -> Boxes:
    """Boxes whose union is exactly a tree, however many; they overlap where disjoint ones would be far more.

    O(boxes) for an AND of sets of intervals, as objects of ranges are and stay when they are pruned.
    """
    found = _product(tree, space)
    if found is None:
        disjoint = boxes_of(tree, space, MOST_TERMS)
        if disjoint is not None:
            return disjoint
        found = terms_of(tree, space.domain, maxsize)
    return tuple(Box(*ends) for ends in found)


def _product(tree: Filter, space: Space) -> list[Ends] | None:
    """The boxes of an AND of sets of intervals, or of one; None if the tree is another."""
    sides = [[(lo, hi)] for lo, hi in zip(*space.domain, strict=True)]
    for part in tree.children if isinstance(tree, And) else (tree,):
        attribute = _only_attribute(part)
        if attribute is None:
            return None
        sides[attribute] = [(leaf.lo, leaf.hi) for leaf in leaves(part)]
    return [(tuple(lo for lo, _ in ends), tuple(hi for _, hi in ends)) for ends in product(*sides)]


def terms_of(tree: Filter, within: Ends, most: int = MOST_TERMS) -> list[Ends]:
    """The ways to fulfil a tree inside a box, each as a box; they may overlap."""
    if isinstance(tree, Leaf):
        lo, hi, i = *within, tree.attribute
        low, high = max(lo[i], tree.lo), min(hi[i], tree.hi)
        return [((*lo[:i], low, *lo[i + 1 :]), (*hi[:i], high, *hi[i + 1 :]))] if low < high else []
    if isinstance(tree, Or):
        return _checked([term for child in tree.children for term in terms_of(child, within, most)], most)
    found = [within]
    for child in sorted(tree.children, key=lambda child: not isinstance(child, Leaf)):
        found = _checked([term for box in found for term in terms_of(child, box, most)], most)
    return found


def _checked(terms: list[Ends], most: int) -> list[Ends]:
    """The terms, if they are not too many; those that another contains are dropped where that helps."""
    if len(terms) > MOST_BOXES and len(terms) <= 4 * MOST_TERMS:
        terms = [(tuple(lo), tuple(hi)) for lo, hi in _maximal(np.array(terms, np.int64)).tolist()]
    if len(terms) > most:
        raise _TooMany
    return terms


def _maximal(boxes: Keys) -> Keys:
    """The boxes that no other contains; of equal ones the first. O(n) memory."""
    return boxes[_is_maximal(boxes)] if len(boxes) > 1 else boxes


@kernel
def _is_maximal(boxes: Keys) -> NDArray[np.bool_]:
    """For each box, whether no other contains it; of equal ones the first is taken."""
    kept = np.ones(len(boxes), np.bool_)
    for k in range(len(boxes)):
        for j in range(len(boxes)):
            if kept[j] and j != k and contains(boxes[j], boxes[k]) and (j < k or not contains(boxes[k], boxes[j])):
                kept[k] = False
                break
    return kept


@kernel
def _disjoint(boxes: Keys, most: int, looks: int) -> tuple[Keys, bool]:
    """Each box less those before it, and whether that is at most `most` pieces, found in so many looks at a piece."""
    found, count = np.empty((most, *boxes.shape[1:]), np.int64), 0
    for k in range(len(boxes)):
        pieces, looks = subtract_each(boxes[k], boxes[:k], True, most - count, looks)
        if looks < 0:
            return found[:0], False
        found[count : count + len(pieces)] = pieces
        count += len(pieces)
    return found[:count], True


@kernel
def _join_pair(boxes: Keys, k: int, j: int, last: int) -> bool:
    """Join two boxes into the first, if they differ in one attribute and abut there; `last` takes the other's place."""
    differ, where = 0, 0
    for i in range(boxes.shape[2]):
        if boxes[k, 0, i] != boxes[j, 0, i] or boxes[k, 1, i] != boxes[j, 1, i]:
            differ += 1
            where = i
            if differ > 1:
                return False
    if boxes[k, 1, where] != boxes[j, 0, where] and boxes[j, 1, where] != boxes[k, 0, where]:
        return False
    boxes[k, 0, where] = min(boxes[k, 0, where], boxes[j, 0, where])
    boxes[k, 1, where] = max(boxes[k, 1, where], boxes[j, 1, where])
    boxes[j] = boxes[last]
    return True


@kernel
def _join(boxes: Keys, count: int, looks: int) -> int:
    """Join pairs that differ in one attribute and abut there, in place, until there is none; returns how many stay.

    The first pair is always joined first. No box before `k` can be joined with any other but `joined`, so after a join
    only that one is tried with those before it. Ends early after so many looks at pairs: the rest is disjoint as well.
    """
    k = 0
    while k < count and looks > 0:
        joined, partner = k, k + 1
        while partner < count and looks > 0:
            looks -= 1
            if not _join_pair(boxes, joined, partner, count - 1):
                partner += 1
                continue
            count, k, before = count - 1, min(k, partner), 0
            while before < joined:
                looks -= 1
                if _join_pair(boxes, before, joined, count - 1):
                    count, k, joined, before = count - 1, min(k, joined), before, 0
                else:
                    before += 1
            partner = joined + 1
        if joined == k:
            k += 1
    return count


def _joined(boxes: Keys) -> Keys:
    boxes = boxes.copy()
    return boxes[: _join(boxes, len(boxes), MOST_LOOKS)]


# Bytes


def pack_tree(tree: Filter) -> bytes:
    """A tree as int64 in prefix order: a predicate is attribute, lo, hi; an AND of k is -2k - 1, an OR -2k - 2."""
    return np.array(list(_numbers(tree)), "<i8").tobytes()


def _numbers(tree: Filter) -> Iterator[int]:
    if isinstance(tree, Leaf):
        yield from (tree.attribute, tree.lo, tree.hi)
        return
    yield -2 * len(tree.children) - (1 if isinstance(tree, And) else 2)
    for child in tree.children:
        yield from _numbers(child)


def unpack_tree(packed: bytes, dims: int) -> Filter:
    """The tree that was packed; `StateError` if it is none."""
    try:
        numbers = np.frombuffer(packed, "<i8").tolist()
        numbers.reverse()
        tree = _read(numbers, dims, MOST_DEPTH + 1)
        if numbers:
            raise ValueError("it goes on after its end")
    except (IndexError, ValueError) as error:
        raise StateError(f"a stored filter is damaged: {error}. Remedy: restore the checkpoint from a copy") from None
    return tree


def _read(numbers: list[int], dims: int, deeper: int) -> Filter:
    """The tree at the end of a list of numbers in reverse, which it takes from it."""
    head = numbers.pop()
    if head >= 0:
        leaf = Leaf(head, numbers.pop(), numbers.pop())
        if head >= dims or leaf.lo >= leaf.hi:
            raise ValueError("there is no such predicate")
        return leaf
    if deeper == 0:
        raise ValueError("it is nested too deeply")
    kind, count = (And, (-1 - head) // 2) if head % 2 else (Or, (-2 - head) // 2)
    children = [_read(numbers, dims, deeper - 1) for _ in range(min(count, len(numbers)))]
    if len(children) < count:
        raise ValueError("it ends too early")
    return kind(tuple(children))


# Text


def to_text(tree: Filter, space: Space) -> str:
    """A tree as a person would write it; the language of `where` reads it back as the same tree."""
    if isinstance(tree, Leaf):
        return _predicate(tree, space)
    if not tree.children:
        return "everything" if isinstance(tree, And) else "nothing"
    parts = [to_text(child, space) for child in tree.children]
    if isinstance(tree, Or):
        return " OR ".join(parts)
    return " AND ".join(
        f"({part})" if isinstance(child, Or) else part for child, part in zip(tree.children, parts, strict=True)
    )


def _predicate(leaf: Leaf, space: Space) -> str:
    a = space.attributes[leaf.attribute]
    name = quoted_name(a.name)
    ends = [literal(a.value(key)) for key in (leaf.lo, leaf.hi - 1)]
    if a.kind == "category":
        values = [literal(a.value(key)) for key in range(leaf.lo, leaf.hi)]
        return f"{name} = {values[0]}" if len(values) == 1 else f"{name} IN ({', '.join(values)})"
    if leaf.hi - leaf.lo == 1:
        return f"{name} = {ends[0]}"
    if leaf.lo <= a.low:
        return f"{name} <= {ends[1]}"
    return f"{name} >= {ends[0]}" if leaf.hi > a.high else f"{name} BETWEEN {ends[0]} AND {ends[1]}"


def literal(value: float | str) -> str:
    """A value as the language of `where` writes it."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


PLAIN_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
KEYWORDS = frozenset(("and", "or", "not", "in", "between", "timestamp"))


def quoted_name(name: str) -> str:
    """An attribute's name as the language of `where` writes it: in double quotes where it would be misread."""
    plain = set(name) <= PLAIN_NAME and not name[0].isdigit() and name.lower() not in KEYWORDS
    return name if plain else '"' + name.replace('"', '""') + '"'
