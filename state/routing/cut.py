"""Cutting the overlay into regions: connected parts of a tree, of about equal size.

Between regions a message costs a batch, inside one nothing; but a region runs on one core. So there should be as many
regions as there are cores to use, and no more. Which brokers go together matters less than that every region is
connected: then a path crosses from one region to the next over exactly one link, and never comes back.

The tree is rooted at its first broker. From the leaves upward, a subtree that has gathered its share of the brokers is
cut off as a region of its own; what is left around the root is the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Tree = Mapping[str, Sequence[str]]
"""Brokers and their neighbours."""
Regions = tuple[tuple[str, ...], ...]


def cut(tree: Tree, count: int) -> Regions:
    """Cut a tree into at most `count` connected regions. O(brokers).

    >>> cut({"a": ["b"], "b": ["a", "c"], "c": ["b", "d"], "d": ["c"]}, 2)
    (('a', 'b'), ('c', 'd'))
    """
    parents = _parents(tree)
    gathered: dict[str, list[str]] = {broker: [broker] for broker in tree}
    left, regions = len(tree), list[list[str]]()
    for broker in reversed(parents):
        parts = count - len(regions)
        if parts > 1 and len(gathered[broker]) * parts >= left and parents[broker] is not None:
            regions.append(gathered[broker])
            left -= len(gathered[broker])
        elif (parent := parents[broker]) is not None:
            gathered[parent] += gathered[broker]
        else:
            regions.append(gathered[broker])
    place = {broker: k for k, broker in enumerate(tree)}
    return tuple(
        sorted((tuple(sorted(region, key=place.__getitem__)) for region in regions), key=lambda r: place[r[0]])
    )


def _parents(tree: Tree) -> dict[str, str | None]:
    """Return every broker's neighbour on the way to the root, parents before their children."""
    root = next(iter(tree))
    parents: dict[str, str | None] = {root: None}
    waiting = [root]
    while waiting:
        broker = waiting.pop()
        for other in tree[broker]:
            if other not in parents:
                parents[other] = broker
                waiting.append(other)
    return parents


def is_connected(tree: Tree, brokers: Sequence[str]) -> bool:
    """Return whether brokers form one connected part of a tree."""
    inside, reached, waiting = set(brokers), {brokers[0]}, [brokers[0]]
    while waiting:
        for other in tree[waiting.pop()]:
            if other in inside and other not in reached:
                reached.add(other)
                waiting.append(other)
    return reached == inside
