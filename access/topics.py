"""The topics of a system in Kafka: creating them, and seeing whether they are there.

Only the job creates topics (`ensure_topics`). Everything else asks for them (`require_topics`), so that a mistyped
prefix is refused and creates nothing.

| topic                      | key       | partitions | kept               | why                                       |
| -------------------------- | --------- | ---------- | ------------------ | ----------------------------------------- |
| `subscribe`, `unsubscribe` | broker    | 1          | for ever           | a new checkpoint hears them all again     |
| `publish`                  | broker    | 1          | Kafka's default    | few keys                                  |
| `links`                    | `from>to` | 1          | Kafka's default    | a channel stays in order in its partition |
| `control`                  | see there | 1          | the last of a key  | one order of all commands                 |
| `deliveries`               | client    | 4          | Kafka's default    | many keys, many readers                   |
| `records`                  | region    | 1          | for ever           | the tables can be rebuilt from it         |

Keeping records for ever costs disk, and allows the tables and the state to be rebuilt from the topics. To limit the
cost, set `retention.ms` on the topic; an operation that needs deleted records is then refused with the reason.

Existing topics are not changed. Several programs may create topics at the same time: the second finds them created.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from kafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from access import DEADLINE
from access.connection import connect_admin
from access.errors import KafkaFailed, TopicMissing, Unreachable
from access.offsets import topic_spans
from state.protocol.topics import Topics

PAUSE = 0.1
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
COMPACT = {"cleanup.policy": "compact"}
LARGE = {"max.message.bytes": str(1 << 23)}
"""A record with one long row or one long filter may exceed Kafka's default of 1 MiB."""


def ensure_topics(
    bootstrap: str,
    prefix: str,
    *,
    event_partitions: int = 1,
    link_partitions: int = 1,
    delivery_partitions: int = 4,
    record_partitions: int = 1,
    replication: int = 1,
    deadline: float = DEADLINE,
) -> list[str]:
    """Create the missing topics and wait until all can be used. Return the names of the created ones."""
    topics = Topics(prefix)
    partitions = dict.fromkeys(topics.events, event_partitions) | {
        topics.links: link_partitions,
        topics.control: 1,
        topics.deliveries: delivery_partitions,
        topics.records: record_partitions,
    }
    configs = {topics.links: LARGE, topics.control: COMPACT, topics.records: LARGE | FOR_EVER}
    configs |= dict.fromkeys(topics.events[:2], FOR_EVER)
    wanted = {
        topic: {"num_partitions": count, "replication_factor": replication, "configs": configs.get(topic, {})}
        for topic, count in partitions.items()
    }
    ends = time.monotonic() + deadline
    admin = connect_admin(bootstrap, deadline)
    try:
        created = _create(admin, bootstrap, wanted, ends)
        admin.wait_for_topics(list(topics.all), timeout_ms=max(1.0, ends - time.monotonic()) * 1000)
        return created
    except KafkaError:
        raise Unreachable(bootstrap, deadline) from None
    finally:
        admin.close()


def require_topics(bootstrap: str, topics: Iterable[str], deadline: float = DEADLINE) -> None:
    """Check that these topics exist. Raises `TopicMissing` for the first that does not."""
    there = _all_topics(bootstrap, deadline)
    for topic in topics:
        if topic not in there:
            raise TopicMissing(bootstrap, topic, prefixes(there))


def topic_missing(bootstrap: str, topic: str, deadline: float = DEADLINE) -> TopicMissing:
    """Return the error for a topic that Kafka did not find. Raises `Unreachable` if Kafka does not answer at all."""
    return TopicMissing(bootstrap, topic, prefixes(_all_topics(bootstrap, deadline)))


def prefixes(topics: Iterable[str]) -> list[str]:
    """Return the prefixes under which these topics hold everything that clients use.

    >>> prefixes(["b.subscribe", "x.publish", "b.unsubscribe", "b.publish", "b.deliveries"])
    ['b']
    """
    there = set(topics)
    last = ".deliveries"
    found = (topic.removesuffix(last) for topic in there if topic.endswith(last))
    return sorted(prefix for prefix in found if there.issuperset(Topics(prefix).events))


def _all_topics(bootstrap: str, deadline: float) -> set[str]:
    with closing(connect_admin(bootstrap, deadline)) as admin:
        try:
            return set(admin.list_topics())
        except KafkaError:
            raise Unreachable(bootstrap, deadline) from None


def partition_counts(bootstrap: str, prefix: str, deadline: float = DEADLINE) -> dict[str, int]:
    """Return the number of partitions of each topic of a system, by the name without the prefix."""
    spans = topic_spans(bootstrap, Topics(prefix).all, deadline)
    return dict(Counter(topic.removeprefix(f"{prefix}.") for topic, _ in spans))


def _create(admin: Any, bootstrap: str, wanted: dict[str, dict[str, Any]], ends: float) -> list[str]:
    there = set(admin.list_topics())
    missing = {topic: settings for topic, settings in wanted.items() if topic not in there}
    created: list[str] = []
    while missing:
        timeout = max(1.0, ends - time.monotonic()) * 1000
        answer = admin.create_topics(missing, timeout_ms=round(timeout), raise_errors=False)
        for topic in answer["topics"]:
            if _settled(topic, bootstrap, may_wait=time.monotonic() < ends):
                del missing[topic["name"]]
                created += [topic["name"]] if topic["error_code"] == 0 else []
        if missing:
            time.sleep(PAUSE)
    return created


def _settled(topic: dict[str, Any], bootstrap: str, *, may_wait: bool) -> bool:
    """Return True if the topic exists now, False if creating it is worth a retry. Raises `KafkaFailed` otherwise."""
    error = for_code(topic["error_code"])
    if topic["error_code"] == 0 or error is TopicAlreadyExistsError:
        return True
    if error.retriable and may_wait:
        return False
    raise KafkaFailed(
        f"topic {topic['name']!r}: Kafka at {bootstrap} did not create it: {topic['error_message'] or error.__name__} "
        "Remedy: correct prefix in [kafka], the number of partitions or the replication, or create it by hand."
    )
