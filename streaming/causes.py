"""The cause of a query's death, in one message for a person: what happened, and what to do now.

A query ends with a Java exception whose text may hold many lines, ours among them. The message is the first of
these that is found:

    ours        the core or the shell raised it with its own message, cause and remedy: that one, and nothing else
    known       Spark, Kafka or the disk says something that is known here: its cause and remedy in our words
    unknown     the first line of what was said

None of these loses anything: a batch that was not committed is done again, with the same result.
"""

from __future__ import annotations

import re
from typing import NamedTuple

OURS = re.compile(
    r"(?:state|access|streaming|producers)\.\w+\.\w+: (.+?)(?=\n\S*\s*at |\n\tat |\n\n|\nDriver stack|$)", re.S
)


AGAIN = "Remedy: the job can be started again, nothing is lost; if it stops there again, report this message"


class Known(NamedTuple):
    """Something that Spark, Kafka or the disk says, and what that means here."""

    signs: tuple[str, ...]
    cause: str
    remedy: str


KNOWN = (
    Known(
        ("No space left on device", "Disk quota exceeded", "ENOSPC"),
        "a disk is full",
        "free some space on the disks of the lake, the checkpoint and Spark's local files, and start again: nothing is "
        "lost",
    ),
    Known(
        ("Read-only file system", "Permission denied", "AccessDeniedException"),
        "the lake or the checkpoint cannot be written",
        "let this user write there, and start again: nothing is lost",
    ),
    Known(
        ("KAFKA_DATA_LOSS", "data may have been lost"),
        "records that were not read yet are gone from Kafka",
        "raise the topics' retention; then start with an empty checkpoint (what is gone stays lost), or restore the "
        "topics",
    ),
    Known(
        ("UnknownTopicOrPartitionException", "TopicAuthorizationException", "PARTITIONS_OF_TOPICS_CHANGED"),
        "a topic is gone, or has other partitions than before",
        "restore the topics, or start with an empty checkpoint",
    ),
    Known(
        ("RecordTooLargeException", "MESSAGE_TOO_LARGE"),
        "Kafka refuses a record because of its size",
        "raise max.message.bytes of the topics links, deliveries and records to 8388608, and start again: nothing is "
        "lost",
    ),
    Known(
        (
            *("CANNOT_LOAD_STATE_STORE", "MISSING_STATE_DIRECTORY", "STATE_STORE_", "MALFORMED_LOG_FILE"),
            *("Failed to read log file", "FAILED_READ_FILE", "assertion failed", "CHECKPOINT_"),
        ),
        "the checkpoint is damaged, or not the one that this job wrote",
        "restore it from a copy, or start with an empty one: what clients asked for is then read again from the topics",
    ),
    Known(
        ("org.apache.kafka.common.errors.TimeoutException", "DisconnectException", "Failed to construct kafka"),
        "Kafka does not answer",
        "see that it runs and can be reached, and start again: nothing is lost",
    ),
    Known(
        ("OutOfMemoryError", "Python worker exited unexpectedly", "ExecutorLostFailure"),
        "a worker died, perhaps for lack of memory",
        "give it more (--memory, spark.executor.memory) or smaller batches (--max-records), and start again: nothing "
        "is lost",
    ),
)


def cause_in(text: str) -> str:
    """Cause and remedy in what a query died with.

    >>> cause_in("java.io.IOException: No space left on device")[:46]
    'a disk is full (java.io.IOException: No space '
    """
    ours = OURS.search(text)
    if ours:
        said = ours[1].strip()
        return said if "Remedy" in said else f"{said}. {AGAIN}"
    first = next((line.strip() for line in text.splitlines() if line.strip()), "unknown")[:300]
    for known in KNOWN:
        if any(sign in text for sign in known.signs):
            return f"{known.cause} ({first}). Remedy: {known.remedy}."
    return f"{first}. {AGAIN}"
