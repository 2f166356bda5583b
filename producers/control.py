"""Commands of an operator to a running router: each is a record on the topic `control`, under a key of its own.

Every region takes the record at its place among the arrivals, so that a repeated batch sees it there too.
"""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

from access import DEADLINE
from access.connection import connect_producer
from producers.sender import Place, Sent
from state.config import Config
from state.protocol.commands import COMMAND, Apply, Prune, Rebuild, write_command
from state.protocol.topics import Topics


def ask_rebuild(config: Config, *, deadline: float = DEADLINE) -> Place:
    """Ask every link to recompute what its strategy keeps. Return the position of the command in Kafka."""
    return _ask(config, Rebuild(), deadline)


def ask_prune(config: Config, command: Prune, *, deadline: float = DEADLINE) -> Place:
    """Ask links to prune in another way from now on. Return the position of the command in Kafka."""
    return _ask(config, command, deadline)


def ask_apply(config: Config, command: Apply, *, deadline: float = DEADLINE) -> Place:
    """Ask the holder of the prefix to begin a new life. Return the position of the command in Kafka."""
    return _ask(config, command, deadline)


def _ask(config: Config, command: Rebuild | Prune | Apply, deadline: float) -> Place:
    bootstrap, topic = config.kafka.bootstrap, Topics(config.kafka.prefix).control
    sent = Sent(bootstrap, topic, f"{COMMAND}{uuid4()}", write_command(command))
    with closing(connect_producer(bootstrap, deadline)) as producer:
        sent.put(producer, deadline)
        return sent.place(deadline)
