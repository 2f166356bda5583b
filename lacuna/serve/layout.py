"""The overlay as a map: which broker is drawn where, and which ones are folded together.

    column 0     1      2          The root is the middle of the tree, so that the map is as narrow as it can be.
             ┌ oslo ─ bergen       Each leaf has a row of its own; a broker stands midway between its first and its
    paris ───┼ rome                last child. Columns are by depth.
             └ wien ─ praha + 23

A map that people can read has few rows and columns. Beyond that, places are folded, the coolest first: the two coolest
leaves of a broker become one place, which takes in the next ones, until nothing is left beside it and the broker itself
takes it in. So what is hot stays visible, wherever it is. A folded place shows sums, and names the hottest of its
brokers. A broker that is looked for becomes the root if it would be folded otherwise.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Tree = Mapping[str, Sequence[str]]
Direction = tuple[str, str]
Loads = Mapping[Direction, int]
"""What each direction of a link carried."""
ROWS, COLUMNS = 40, 5


@dataclass(eq=False)
class Place:
    """One box of the map: a broker, or several that are folded together."""

    broker: str
    depth: int
    parent: Place | None = None
    links: list[Direction] = field(default_factory=list)
    """The links that lead here, each from the parent's broker to one of this place."""
    heat: int = 0
    """What the busiest direction of the links in it and to it carried."""
    folded: list[str] = field(default_factory=list)
    children: list[Place] = field(default_factory=list)
    row: float = 0.0

    @property
    def brokers(self) -> list[str]:
        """All brokers that this place stands for."""
        return [self.broker, *self.folded]

    @property
    def label(self) -> str:
        """The name to show."""
        return f"{self.broker} + {len(self.folded)}" if self.folded else self.broker

    def swallow(self, below: Place) -> None:
        """Take in a place below this one."""
        self.folded += below.brokers
        self.heat = max(self.heat, below.heat)

    def merge(self, beside: Place) -> None:
        """Take in a place beside this one."""
        self.swallow(beside)
        self.links += beside.links

    def walk(self) -> list[Place]:
        """Return this place and all below it, parents first."""
        found = [self]
        for place in found:
            found += place.children
        return found


@dataclass(frozen=True)
class Map:
    """A root, with every place below it, and the number of rows and columns that they take."""

    root: Place
    rows: int
    columns: int

    @property
    def places(self) -> list[Place]:
        return self.root.walk()


def lay_out(tree: Tree, loads: Loads, wanted: str | None = None, rows: int = ROWS, columns: int = COLUMNS) -> Map:
    """Return the map of an overlay, in which the broker that is wanted is not folded. O(n log n) in the brokers."""
    root = _folded(tree, loads, middle(tree), rows, columns)
    if wanted in tree and all(place.broker != wanted or place.folded for place in root.walk()):
        root = _folded(tree, loads, str(wanted), rows, columns)
    _number(root)
    places = root.walk()
    return Map(root, sum(not place.children for place in places), 1 + max(place.depth for place in places))


def both(link: Direction) -> tuple[Direction, Direction]:
    """Return both directions of a link."""
    return link, (link[1], link[0])


def middle(tree: Tree) -> str:
    """Return the broker in the middle of a longest path; of two, the one with more neighbours.

    >>> middle({"a": ["b"], "b": ["a", "c"], "c": ["b", "d", "e"], "d": ["c"], "e": ["c"]})
    'c'
    """
    end = _far(tree, next(iter(tree)))[0]
    path = _far(tree, end)
    at = (len(path) - 1) // 2
    return max(path[at : len(path) - at], key=lambda broker: len(tree[broker]))


def _far(tree: Tree, start: str) -> list[str]:
    """Return a longest path to `start`, beginning at its far end."""
    before: dict[str, str | None] = {start: None}
    waiting = [start]
    for broker in waiting:
        for other in tree[broker]:
            if other not in before:
                before[other] = broker
                waiting.append(other)
    path: list[str] = []
    here: str | None = waiting[-1]
    while here is not None:
        path.append(here)
        here = before[here]
    return path


def _folded(tree: Tree, loads: Loads, root: str, rows: int, columns: int) -> Place:
    top = _grown(tree, loads, root)
    places = top.walk()
    for place in reversed(places):
        if place.depth >= columns - 1:
            for child in place.children:
                place.swallow(child)
            place.children = []
    _fold_coolest([place for place in places if place.depth < columns], rows)
    return top


def _grown(tree: Tree, loads: Loads, root: str) -> Place:
    """Return the whole tree as places."""
    top = Place(root, 0)
    waiting = [top]
    for place in waiting:
        came = place.parent.broker if place.parent else None
        for other in tree[place.broker]:
            if other != came:
                link = (place.broker, other)
                child = Place(other, place.depth + 1, place, [link], heat=max(loads.get(d, 0) for d in both(link)))
                place.children.append(child)
                waiting.append(child)
    return top


def _fold_coolest(places: list[Place], rows: int) -> None:
    """Fold leaves, the coolest first, until no more are left than there are rows."""
    leaves = {id(place): [c for c in place.children if not c.children] for place in places}
    for cool in leaves.values():
        cool.sort(key=lambda place: -place.heat)
    count = sum(not place.children for place in places)
    order = itertools.count()
    waiting: list[tuple[int, int, Place]] = []

    def folds(place: Place) -> bool:
        cool = leaves[id(place)]
        return len(cool) > 1 or (len(cool) == 1 and len(place.children) == 1)

    def await_turn(place: Place) -> None:
        cool = leaves[id(place)]
        if folds(place):
            heapq.heappush(waiting, (cool[-2:][0].heat, next(order), place))  # the hotter of two loses its own row

    for place in places:
        await_turn(place)
    while count > rows:
        parent = heapq.heappop(waiting)[2]
        if not folds(parent):  # it has waited twice
            continue
        cool = leaves[id(parent)]
        coolest = cool.pop()
        parent.children.remove(coolest)
        if cool:
            cool[-1].merge(coolest)  # the hotter one gives its name
            count -= 1
            await_turn(parent)
        else:
            parent.swallow(coolest)
            if parent.parent is not None:
                bisect.insort(leaves[id(parent.parent)], parent, key=lambda place: -place.heat)
                await_turn(parent.parent)


def _number(root: Place) -> None:
    """Give every place its row."""
    leaves = 0
    waiting: list[tuple[Place, bool]] = [(root, False)]
    while waiting:
        place, done = waiting.pop()
        if not place.children:
            place.row = leaves
            leaves += 1
        elif done:
            place.row = (place.children[0].row + place.children[-1].row) / 2
        else:
            waiting += [(place, True), *((child, False) for child in reversed(place.children))]
