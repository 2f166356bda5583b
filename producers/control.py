"""What an operator asks of a running router: a record on the links topic, which every group takes into its log.

So every replay of the log sees it at the same place.
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
    """Ask every link to compute anew what its strategy keeps; where in Kafka the wish is, once it is confirmed."""
    return _ask(config, REBUILD, b"", deadline)


def ask_prune(config: Config, wish: Wish, *, deadline: float = DEADLINE) -> Place:
    """Ask links to prune otherwise from now on; where in Kafka the wish is, once it is confirmed."""
    return _ask(config, PRUNE, write_wish(wish), deadline)


def _ask(config: Config, key: bytes, value: bytes, deadline: float) -> Place:
    bootstrap, topic = config.kafka.bootstrap, Topics(config.kafka.prefix).links
    with closing(connect_producer(bootstrap, deadline)) as producer:
        try:
            return Sent(bootstrap, topic, value, producer.send(topic, value, key=key)).place(deadline)
        except KafkaTimeoutError:
            raise TopicMissing(bootstrap, topic) from None
        except KafkaError as error:
            raise NotConfirmed(bootstrap, topic, error) from None
