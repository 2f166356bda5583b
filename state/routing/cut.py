"""Cutting the overlay into regions: connected parts of a tree, of about equal size.

Between regions a message costs a batch, inside one nothing; but a region runs on one core. So there should be as many
regions as there are cores to use, and no more. Which brokers go together matters less than that every region is
connected: then a path crosses from one region to the next over exactly one link, and never comes back.

The tree is rooted at its first broker. The subtree whose size comes nearest to an equal share is cut off as a region,
then the next one from what is left around the root, until one share is left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

Tree = Mapping[str, Sequence[str]]
"""Brokers and their neighbours."""
Regions = tuple[tuple[str, ...], ...]


def cut(tree: Tree, count: int) -> Regions:
    """Cut a tree into `count` connected regions, or one for each broker if there are fewer. O(count * brokers).

    >>> cut({"a": ["b"], "b": ["a", "c"], "c": ["b", "d"], "d": ["c"]}, 2)
    (('a', 'b'), ('c', 'd'))
    """
    left, regions = list(tree), list[list[str]]()
    for shares in range(min(count, len(tree)), 1, -1):
        inside = _nearest_share(tree, left, shares)
        regions.append([broker for broker in left if broker in inside])
        left = [broker for broker in left if broker not in inside]
    place = {broker: k for k, broker in enumerate(tree)}
    return tuple(sorted(map(tuple, [left, *regions]), key=lambda region: place[region[0]]))


def _nearest_share(tree: Tree, brokers: list[str], shares: int) -> Collection[str]:
    """Return the subtree nearest to one of `shares` equal shares that leaves a broker for each of the others."""
    parents = _parents(tree, brokers[0], set(brokers))
    sizes = dict.fromkeys(parents, 1)
    for broker in reversed(parents):
        if (parent := parents[broker]) is not None:
            sizes[parent] += sizes[broker]
    most = len(brokers) - shares + 1
    below = (broker for broker in brokers[1:] if sizes[broker] <= most)
    top = min(below, key=lambda broker: abs(sizes[broker] * shares - len(brokers)))
    return _parents(tree, top, set(brokers) - {parents[top]})


def _parents(tree: Tree, root: str, among: Collection[str | None]) -> dict[str, str | None]:
    """Return the neighbour of each reachable broker on the way to the root, parents before their children."""
    parents: dict[str, str | None] = {root: None}
    waiting = [root]
    while waiting:
        broker = waiting.pop()
        for other in tree[broker]:
            if other in among and other not in parents:
                parents[other] = broker
                waiting.append(other)
    return parents


def is_connected(tree: Tree, brokers: Sequence[str]) -> bool:
    """Return whether brokers form one connected part of a tree."""
    return _parents(tree, brokers[0], set(brokers)).keys() == set(brokers)
