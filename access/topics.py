"""The topics of a system in Kafka: creating them, and comparing them with what Lacuna needs.

Only the job creates topics (`ensure_topics`). Everything else asks for them (`require_topics`), so that a mistyped
prefix is refused and creates nothing.

| topic                      | key       | partitions | kept               | why                                       |
| -------------------------- | --------- | ---------- | ------------------ | ----------------------------------------- |
| `subscribe`, `unsubscribe` | broker    | 1          | for ever           | a new checkpoint hears them all again     |
| `publish`                  | broker    | 1          | Kafka's default    | few keys                                  |
| `links`                    | `from>to` | 1          | until it was read  | letters of the state: the router trims it |
| `control`                  | see there | 1          | the last of a key  | one order of all commands                 |
| `deliveries`               | client    | 4          | Kafka's default    | many keys, many readers                   |
| `notices`                  | client    | 1          | a day              | who waits for one waits now               |
| `records`                  | region    | 1          | for ever           | the tables can be rebuilt from it         |

Keeping records for ever costs disk, and allows the tables and the state to be rebuilt from the topics. To limit the
cost, set `retention.ms` on the topic; an operation that needs deleted records is then refused with the reason.

All topics take the broker's time (`message.timestamp.type = LogAppendTime`). With the producer's time, a producer whose
clock is wrong changes the order of arrivals, and Kafka deletes records with old timestamps before they are read.

Only `lacuna run`, `up` and `demo` create topics. Existing topics are not changed; `differences` says in which respect
they are not as Lacuna would have made them. Several programs may create topics at the same time: the second finds them
created.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from access import DEADLINE
from access.connection import connect_admin
from access.errors import KafkaFailed, TopicMissing, failed
from access.offsets import topic_spans
from state.protocol.topics import Topics

PAUSE = 0.1
LARGE = 1 << 23
"""Bytes of the largest record of a topic that the router writes: with one long row, filter or header, a record may
exceed Kafka's default of 1 MiB."""
BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
DELETE = BROKER_TIME | {"cleanup.policy": "delete"}
COMPACT = BROKER_TIME | {"cleanup.policy": "compact"}
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
LONG = {"max.message.bytes": str(LARGE)}
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "subscribe": DELETE | FOR_EVER,
    "unsubscribe": DELETE | FOR_EVER,
    "publish": DELETE,
    "links": DELETE | FOR_EVER | LONG,
    "control": COMPACT,
    "deliveries": DELETE | LONG,
    "notices": DELETE | {"retention.ms": str(24 * 3600 * 1000)},
    "records": DELETE | FOR_EVER | LONG,
}
"""The settings of each topic, by its name without the prefix."""
MEANS: Mapping[str, str] = {
    "message.timestamp.type": "a producer with a wrong clock changes the order of arrivals, and what Kafka deletes",
    "cleanup.policy": "records may be removed before they are read",
    "retention.ms": "records that are older are removed, whether they were read or not",
    "retention.bytes": "records beyond this size are removed, whether they were read or not",
    "max.message.bytes": "a longer record, which Lacuna may write, stops the job",
    "min.insync.replicas": "a confirmed record is lost if the machines fail that have it",
}
"""The consequence of a setting other than Lacuna's."""


def ensure_topics(
    bootstrap: str,
    prefix: str,
    *,
    event_partitions: int = 1,
    link_partitions: int = 1,
    delivery_partitions: int = 4,
    record_partitions: int = 1,
    replication: int | None = None,
    deadline: float = DEADLINE,
) -> list[str]:
    """Create the missing topics and wait until all can be used. Return the names of the created ones.

    `replication` is the number of copies; None is Kafka's own default.
    """
    topics = Topics(prefix)
    partitions = dict.fromkeys(topics.events, event_partitions) | {
        topics.links: link_partitions,
        topics.control: 1,
        topics.notices: 1,
        topics.deliveries: delivery_partitions,
        topics.records: record_partitions,
    }
    wanted = {
        topics.of(name): {
            "num_partitions": partitions[topics.of(name)],
            "replication_factor": -1 if replication is None else replication,
            "configs": dict(settings_of(name, replication)),
        }
        for name in SETTINGS
    }
    ends = time.monotonic() + deadline
    with _admin(bootstrap, deadline) as admin:
        created = _create(admin, bootstrap, wanted, ends)
        admin.wait_for_topics(list(topics.all), timeout_ms=max(1.0, ends - time.monotonic()) * 1000)
    return created


def settings_of(name: str, replication: int | None) -> Mapping[str, str]:
    """Return the settings of a topic. Of several copies, all but one must confirm a record.

    >>> settings_of("publish", 3)["min.insync.replicas"], settings_of("publish", 1)["min.insync.replicas"]
    ('2', '1')
    """
    if replication is None:
        return SETTINGS[name]
    return {**SETTINGS[name], "min.insync.replicas": str(max(1, replication - 1))}


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
    with _admin(bootstrap, deadline) as admin:
        return set(admin.list_topics())


def partition_counts(bootstrap: str, prefix: str, deadline: float = DEADLINE) -> dict[str, int]:
    """Return the number of partitions of each topic of a system, by the name without the prefix."""
    spans = topic_spans(bootstrap, Topics(prefix).all, deadline)
    return dict(Counter(topic.removeprefix(f"{prefix}.") for topic, _ in spans))


def topic_ids(bootstrap: str, prefix: str, deadline: float = DEADLINE) -> dict[str, str]:
    """Return the id that Kafka gave to each topic when it was made, by the name without the prefix.

    A Kafka that knows no ids (before 2.8) gives none.
    """
    with _admin(bootstrap, deadline) as admin:
        found = admin.describe_topics(list(Topics(prefix).all))
    ids = {str(topic["name"]).removeprefix(f"{prefix}."): str(topic.get("topic_id") or "") for topic in found}
    return {name: topic for name, topic in ids.items() if topic.strip("0-")}


def differences(bootstrap: str, prefix: str, replication: int | None = None, deadline: float = DEADLINE) -> list[str]:
    """Say in which respect topics are not as Lacuna would have made them, and what that means: a sentence each."""
    topics = Topics(prefix)
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics.all]
    with _admin(bootstrap, deadline) as admin:
        there = admin.describe_configs(resources, config_filter="all")["topic"]
        described = {topic["name"]: topic for topic in admin.describe_topics(list(topics.all))}
    said = []
    for name in SETTINGS:
        topic = topics.of(name)
        values = {key: str(setting["value"]) for key, setting in there[topic].items()}
        said += [f"topic {topic}: {each}" for each in _unlike(name, values, replication)]
        said += [f"topic {topic}: {each}" for each in _few_copies(described[topic], replication)]
    return said


def _unlike(name: str, values: Mapping[str, str], replication: int | None) -> Iterator[str]:
    for key, wanted in settings_of(name, replication).items():
        there = values.get(key)
        if there is None or there == wanted or (key in AT_LEAST and int(there) >= int(wanted)):
            continue
        yield f"{key} is {there}, not {wanted}: {MEANS[key]}"


AT_LEAST = ("max.message.bytes", "min.insync.replicas")
"""Settings of which more is as good."""


def _few_copies(topic: Mapping[str, Any], replication: int | None) -> Iterator[str]:
    copies = min((len(part["replica_nodes"]) for part in topic["partitions"]), default=0)
    if replication is not None and copies < replication:
        yield f"it has {copies} copies, not {replication}: a record is lost if the machines fail that have it"


@contextmanager
def _admin(bootstrap: str, deadline: float) -> Iterator[Any]:
    admin = connect_admin(bootstrap, deadline)
    try:
        yield admin
    except KafkaError as error:
        raise failed(bootstrap, deadline, error) from None
    finally:
        admin.close()


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
        "Remedy: correct prefix or replication in [kafka], or the number of partitions, or create it by hand."
    )
