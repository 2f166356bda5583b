"""Connections to Kafka: opened within a deadline, or refused with one message.

kafka-python retries on its own until a deadline and then raises, each of its classes in its own way; it also reports
through `logging`, which without configuration goes to standard error, line after line. Here the raising becomes one
error with value, rule and remedy, and the reports go only where logging is configured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient
from kafka.partitioner.default import DefaultPartitioner, murmur2

from access import DEADLINE, security
from access.errors import failed
from state.errors import ConfigError
from state.protocol.events import MOST_BYTES
from state.protocol.security import security_of

LINGER_MS = 20
BATCH_BYTES = 1 << 17
COMPRESSION = "zstd"
"""Small batches are what costs: with the defaults (0 ms, 16 KiB) 10,300 sends per second, with these 16,600. Both
were measured without the package crc32c, when compressing first also saved on checksums in plain Python.
"""

logging.getLogger("kafka").addHandler(logging.NullHandler())


def hash_of(key: bytes) -> int:
    """Return the hash by which Kafka's clients choose the partition of a key."""
    return int(murmur2(key) & 0x7FFFFFFF)


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a topic in which Kafka's clients put a key."""
    return hash_of(key) % partitions


class KeyPartitioner(DefaultPartitioner):  # type: ignore[misc]
    """Kafka's own choice of a partition for a key, remembered: keys are brokers, few, and hashing is slow in Python."""

    def __init__(self) -> None:
        self._hashes: dict[bytes, int] = {}

    def partition(self, topic: str, key: Any, serialized_key: bytes, value: Any, serialized: Any, cluster: Any) -> int:
        partitions = sorted(cluster.partitions_for_topic(topic))
        found = self._hashes.get(serialized_key)
        if found is None:
            found = self._hashes[serialized_key] = hash_of(serialized_key)
        return int(partitions[found % len(partitions)])


def spark_options(bootstrap: str) -> dict[str, str]:
    """Return the options by which Spark's sources and sinks find Kafka, without any secret."""
    return {"kafka.bootstrap.servers": str(bootstrap), **security.spark_options(security_of(bootstrap))}


def connect_producer(bootstrap: str, deadline: float = DEADLINE) -> Any:
    """Return a `KafkaProducer` that loses nothing and repeats nothing."""
    return _connected(
        KafkaProducer,
        bootstrap,
        deadline,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        compression_type=COMPRESSION,
        metrics_enabled=False,
        max_request_size=2 * MOST_BYTES,
        max_block_ms=round(deadline * 1000),
        allow_auto_create_topics=False,
        partitioner=KeyPartitioner(),
    )


def connect_consumer(
    bootstrap: str,
    deadline: float = DEADLINE,
    group: str | None = None,
    *,
    committed: bool = True,
    reset: str = "earliest",
    refresh: float = 300.0,
    wait: float = 0.5,
) -> Any:
    """Return a `KafkaConsumer` that commits only when told to, and by default sees only committed records.

    `reset` is what it does where its position is deleted ("none": raise), `refresh` the seconds after which it asks
    again which partitions there are. Kafka keeps a fetch that finds nothing open for `wait` seconds, and meanwhile
    answers nothing else on that connection.
    """
    return _connected(
        KafkaConsumer,
        bootstrap,
        deadline,
        group_id=group,
        isolation_level="read_committed" if committed else "read_uncommitted",
        enable_auto_commit=False,
        auto_offset_reset=reset,
        fetch_max_wait_ms=round(wait * 1000),
        metadata_max_age_ms=round(refresh * 1000),
        allow_auto_create_topics=False,
    )


def connect_admin(bootstrap: str, deadline: float = DEADLINE) -> Any:
    """Return a `KafkaAdminClient`."""
    return _connected(KafkaAdminClient, bootstrap, deadline)


def _connected(kind: Callable[..., Any], bootstrap: str, deadline: float, **options: Any) -> Any:
    """Create a client of this kind. If that fails, end the thread that it has started, which would never end."""
    opened: list[Any] = []
    failures: list[BaseException] = []

    def client(**settings: Any) -> Any:
        opened.append(_noting(KafkaNetClient(**settings), failures))
        return opened[-1]

    security.check(security_of(bootstrap))
    options |= security.python_options(security_of(bootstrap))
    try:
        return kind(
            bootstrap_servers=bootstrap, bootstrap_timeout_ms=round(deadline * 1000), kafka_client=client, **options
        )
    except ValueError as error:
        rule = f"it is not a list of HOST:PORT ({error})"
        raise ConfigError("kafka.bootstrap", bootstrap, rule, 'write it as "localhost:9092"') from None
    except KafkaError as error:
        for each in opened:
            each.close()
        raise failed(bootstrap, deadline, *failures, error) from None


def _noting(client: Any, failures: list[BaseException]) -> Any:
    """Let a client note why its connections fail: it only logs that, and goes on trying until its deadline."""
    connect = client._manager.get_connection

    def get_connection(*args: Any, **options: Any) -> Any:
        connection = connect(*args, **options)
        if not connection.init_future.is_done:
            connection.init_future.add_errback(failures.append)
        return connection

    client._manager.get_connection = get_connection
    return client
