"""The least rights that each role needs in Kafka: operations on topics, and on consumer groups.

Spark's sources read without a consumer group: their offsets are in the checkpoint. Only a listener with a bookmark
commits to a group, which is named after the bookmark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from state.protocol.topics import Topics

EVENTS = ("subscribe", "unsubscribe", "publish")
INTERNAL = ("links", "control", "deliveries", "notices", "records")
ALL = (*EVENTS, *INTERNAL)


class Right(NamedTuple):
    """An operation on a resource, in the words of Kafka's own tools."""

    resource: str
    name: str
    operation: str


ROLES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "router": {
        "Describe": ALL,
        "DescribeConfigs": ALL,
        "Create": ALL,
        "Read": (*EVENTS, "links", "control", "deliveries", "records"),
        "Write": INTERNAL,
        "Delete": ("links",),
    },
    "archive": {"Describe": ALL, "DescribeConfigs": ALL, "Read": ("control", "records")},
    "producer": {"Describe": (*EVENTS, "notices"), "Write": EVENTS, "Read": ("notices",)},
    "listener": {"Describe": ("deliveries", "notices", "control"), "Read": ("deliveries", "notices", "control")},
    "gateway": {
        "Describe": (*EVENTS, "deliveries", "notices", "control"),
        "Write": EVENTS,
        "Read": ("subscribe", "unsubscribe", "deliveries", "notices", "control"),
    },
}
"""The operations of each role, and the topics that each is for. A `lacuna run` without `--only` is a router; it may do
everything that an archive may."""


def rights(role: str, topics: Topics, groups: tuple[str, ...] = ()) -> Iterator[Right]:
    """Yield the rights of a role; `groups` are the bookmarks that it may use.

    >>> [right for right in rights("listener", Topics("x"), ("desk",)) if right.operation == "Read"][-1]
    Right(resource='group', name='desk', operation='Read')
    """
    for operation, names in ROLES[role].items():
        yield from (Right("topic", topics.of(name), operation) for name in names)
    yield from (Right("group", group, "Read") for group in groups)
