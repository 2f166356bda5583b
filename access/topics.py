"""The topics of a system in Kafka: creating them, and comparing them with what Lacuna needs and the operator asks for.

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
cost, set `retention` in `[kafka.topics]`; an operation that needs deleted records is then refused with the reason.

All topics take the broker's time (`message.timestamp.type = LogAppendTime`). With the producer's time, a producer whose
clock is wrong changes the order of arrivals, and Kafka deletes records with old timestamps before they are read.

Only `lacuna run`, `up` and `demo` create topics. Existing topics are not changed; `differences` says in which respect
they are not as Lacuna would have made them. Several programs may create topics at the same time: the second finds them
created.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, TopicAlreadyExistsError, TopicAuthorizationFailedError, for_code

from access import DEADLINE
from access.connection import connect_admin
from access.errors import KafkaFailed, NotAllowed, TopicMissing, failed
from access.offsets import topic_spans
from access.rights import rights
from state.protocol.topics import Topic, Topics

PAUSE = 0.1
LARGE = 1 << 23
"""Bytes of the largest record of a topic that the router writes: with one long row, filter or header, a record may
exceed Kafka's default of 1 MiB."""
BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
DELETE = BROKER_TIME | {"cleanup.policy": "delete"}
COMPACT = BROKER_TIME | {"cleanup.policy": "compact", "segment.ms": str(3600 * 1000)}
"""Kafka compacts only what is no longer written to. With its default of a week, a week of ticks would stay."""
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
LONG = {"max.message.bytes": str(LARGE)}
PARTITIONS = {"deliveries": 4}
"""Partitions of topics that have more than one by default."""
DAY_MS = 24 * 3600 * 1000
NOTHING_ASKED: Mapping[str, Topic] = MappingProxyType({})
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "subscribe": DELETE | FOR_EVER,
    "unsubscribe": DELETE | FOR_EVER,
    "publish": DELETE,
    "links": DELETE | FOR_EVER | LONG,
    "control": COMPACT,
    "deliveries": DELETE | LONG,
    "notices": DELETE | {"retention.ms": str(DAY_MS)},
    "records": DELETE | FOR_EVER | LONG,
}
"""The settings of each topic, by its name without the prefix."""
MEANS: Mapping[str, str] = {
    "message.timestamp.type": "a producer with a wrong clock changes the order of arrivals, and what Kafka deletes",
    "cleanup.policy": "records may be removed before they are read",
    "retention.ms": "records that are older are removed, whether they were read or not",
    "retention.bytes": "records beyond this size are removed, whether they were read or not",
    "max.message.bytes": "a longer record, which Lacuna may write, stops the job",
    "segment.ms": "ticks of the router are removed only after that time, and take some megabytes a day until then",
    "min.insync.replicas": "a confirmed record is lost if the machines fail that have it",
}
"""The consequence of a setting other than Lacuna's."""


def ensure_topics(
    bootstrap: str, prefix: str, topics: Mapping[str, Topic] = NOTHING_ASKED, deadline: float = DEADLINE
) -> list[str]:
    """Create the missing topics and wait until all can be used. Return the names of the created ones.

    `topics` says what the operator asks for, by the name without the prefix (`Kafka.wanted`).
    """
    names = Topics(prefix)
    wanted = {names.of(name): _specified(name, topics.get(name, Topic())) for name in SETTINGS}
    ends = time.monotonic() + deadline
    with _admin(bootstrap, deadline) as admin:
        created = _create(admin, bootstrap, wanted, ends)
        admin.wait_for_topics(list(names.all), timeout_ms=max(1.0, ends - time.monotonic()) * 1000)
    return created


def _specified(name: str, topic: Topic) -> dict[str, Any]:
    """Return what Kafka is asked for to make a topic; -1 is its own default."""
    return {
        "num_partitions": topic.partitions or PARTITIONS.get(name, 1),
        "replication_factor": topic.replication or -1,
        "configs": dict(settings_of(name, topic)),
    }


def settings_of(name: str, topic: Topic) -> Mapping[str, str]:
    """Return the settings of a topic. Of several copies, all but one must confirm a record.

    >>> settings_of("publish", Topic(replication=3))["min.insync.replicas"]
    '2'
    >>> settings_of("records", Topic(retention=7))["retention.ms"]
    '604800000'
    """
    settings = dict(SETTINGS[name])
    if topic.replication is not None:
        settings["min.insync.replicas"] = str(max(1, topic.replication - 1))
    if topic.retention is not None:
        settings |= FOR_EVER if math.isinf(topic.retention) else {"retention.ms": str(round(topic.retention * DAY_MS))}
    return settings


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


def differences(
    bootstrap: str, prefix: str, topics: Mapping[str, Topic] = NOTHING_ASKED, deadline: float = DEADLINE
) -> list[str]:
    """Say in which respect topics are not as Lacuna would have made them, and what that means: a sentence each."""
    names = Topics(prefix)
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in names.all]
    with _admin(bootstrap, deadline) as admin:
        there = admin.describe_configs(resources, config_filter="all")["topic"]
        described = {topic["name"]: topic for topic in admin.describe_topics(list(names.all))}
    said = []
    for name in SETTINGS:
        topic, wanted = names.of(name), topics.get(name, Topic())
        values = {key: str(setting["value"]) for key, setting in there[topic].items()}
        found = (*_unlike(name, values, wanted), *_unlike_in_number(described[topic]["partitions"], wanted))
        said += [f"topic {topic}: {each}" for each in found]
    return said


def _unlike(name: str, values: Mapping[str, str], wanted: Topic) -> Iterator[str]:
    for key, value in settings_of(name, wanted).items():
        there = values.get(key)
        if there is None or there == value or (key in AT_LEAST and int(there) >= int(value)):
            continue
        yield f"{key} is {there}, not {value}: {MEANS[key]}"


AT_LEAST = ("max.message.bytes", "min.insync.replicas")
"""Settings of which more is as good."""


def _unlike_in_number(partitions: Sequence[Mapping[str, Any]], wanted: Topic) -> Iterator[str]:
    """Compare the numbers of partitions and copies with what was asked for."""
    there, copies = len(partitions), min((len(part["replica_nodes"]) for part in partitions), default=0)
    if wanted.partitions is not None and there != wanted.partitions:
        means = "fewer tasks read or write it at once" if there < wanted.partitions else "Kafka takes none away again"
        yield f"it has {there} partitions, not {wanted.partitions}: {means}"
    if wanted.replication is not None and copies < wanted.replication:
        yield f"it has {copies} copies, not {wanted.replication}: a record is lost if the machines fail that have it"


def lacking(bootstrap: str, prefix: str, role: str, deadline: float = DEADLINE) -> list[str]:
    """Return what this user may not do with topics that are there, although the role needs it: an operation each.

    Kafka itself says what a user may do with a topic. Without an authorizer that is everything.
    """
    names = Topics(prefix)
    with _admin(bootstrap, deadline) as admin:
        described = admin.describe_topics(list(names.all))
    allowed = {topic["name"]: {_plain(each) for each in topic["authorized_operations"] or ()} for topic in described}
    needed = (right for right in rights(role, names) if right.operation != "Create")
    return [f"{r.operation} {r.name}" for r in needed if _plain(r.operation) not in allowed.get(r.name, ())]


def _plain(operation: str) -> str:
    """Return an operation in a form that Kafka's tools and kafka-python share.

    >>> _plain("DescribeConfigs") == _plain("DESCRIBE_CONFIGS")
    True
    """
    return operation.replace("_", "").lower()


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
    if error is TopicAuthorizationFailedError:
        raise NotAllowed(bootstrap, error(topic["name"]))
    raise KafkaFailed(
        f"topic {topic['name']!r}: Kafka at {bootstrap} did not create it: {topic['error_message'] or error.__name__} "
        "Remedy: correct prefix, replication or topics in [kafka], or create it by hand."
    )
