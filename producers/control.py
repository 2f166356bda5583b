"""Commands of an operator to a running router: each is a record on the links topic.

Every group takes the record into its log, so that every replay of the log sees the command at the same place.
"""

from __future__ import annotations

from contextlib import closing

from kafka.errors import KafkaError, KafkaTimeoutError

from access import DEADLINE
from access.connection import connect_producer
from access.errors import NotConfirmed, TopicMissing
from producers.sender import Place, Sent
from state.config import Config
from state.protocol.commands import Wish, write_wish
from state.protocol.topics import PRUNE, REBUILD, Topics


def ask_rebuild(config: Config, *, deadline: float = DEADLINE) -> Place:
    """Ask every link to recompute what its strategy keeps. Return the position of the command in Kafka."""
    return _ask(config, REBUILD, b"", deadline)


def ask_prune(config: Config, command: Wish, *, deadline: float = DEADLINE) -> Place:
    """Ask links to prune in another way from now on. Return the position of the command in Kafka."""
    return _ask(config, PRUNE, write_wish(command), deadline)


def _ask(config: Config, key: bytes, value: bytes, deadline: float) -> Place:
    bootstrap, topic = config.kafka.bootstrap, Topics(config.kafka.prefix).links
    with closing(connect_producer(bootstrap, deadline)) as producer:
        try:
            return Sent(bootstrap, topic, value, producer.send(topic, value, key=key)).place(deadline)
        except KafkaTimeoutError:
            raise TopicMissing(bootstrap, topic) from None
        except KafkaError as error:
            raise NotConfirmed(bootstrap, topic, error) from None
