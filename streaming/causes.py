"""The cause of a query's death, in one message for a person: what happened, and what to do now.

A query ends with a Java exception and a chain of causes. The message is the first of these that is found:

    ours        the core or the shell raised it with its own message, cause and remedy: that one, and nothing else
    known       an error condition of Spark's, or the class of a Java exception, that is known here: its cause and
                remedy in our words
    unknown     the first line of what was said

Spark names an error condition in brackets, `[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE]`, and keeps these names from
version to version. Words in the text of a message mean nothing: they may come from anywhere. The exceptions are what
the operating system says of a disk, and what Spark says of Python's daemon, because they come in words only.

None of these loses anything: a batch that was not committed is done again, with the same result.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pyspark.sql.streaming.query import StreamingQuery

# Not behind a dot: Spark's classes of the state store are in a package that ends in `streaming.state`.
OURS = re.compile(
    r"(?<![\w.])(?:state|access|streaming|producers)\.\w+\.\w+: "
    r"(.+?)(?=\n\S*\s*at |\n\tat |\n\n|\nDriver stack|\nCaused by: |$)",
    re.S,
)
LASTING = re.compile(r"state\.errors\.(?:StateError|InvariantError|ConfigError): ")
"""Errors of ours that stay when a query is started again."""
CONDITION = re.compile(r"\[([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)((?:\.[A-Z0-9_]+)*)\]")
CLASS = re.compile(r"\b(?:[a-z][\w$]*\.)+([A-Z][\w$]*(?:Exception|Error|Failure))\b")

MOST_CAUSES = 10
AGAIN = "Remedy: the job can be started again, nothing is lost; if it stops there again, report this message"


class Known(NamedTuple):
    """Something that Spark, Kafka or the disk says, and what that means here.

    `conditions` are Spark's error conditions, with or without the more exact one behind the dot, `classes` Java
    exceptions, `words` the operating system's. What is `passing` may be over at the next attempt.
    """

    cause: str
    remedy: str
    conditions: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    passing: bool = False


AWAY = Known(
    "Kafka does not answer",
    "see that it runs and can be reached: a running job goes on by itself, and nothing is lost",
    classes=("TimeoutException", "DisconnectException", "BrokerNotAvailableException", "NetworkException"),
    passing=True,
)
REFUSED = Known(
    "Kafka does not accept the user, the password or a certificate",
    "correct security in [kafka], or the files that it names; a job that ran already goes on by itself, another one "
    "is to be started again: nothing is lost",
    classes=("SaslAuthenticationException", "SslAuthenticationException"),
    passing=True,
)

KNOWN = (
    Known(
        "a disk is full",
        "free some space on the disks of the lake, the checkpoint and Spark's local files, and start again: nothing is "
        "lost",
        words=("No space left on device", "Disk quota exceeded", "os error 28"),
        passing=True,
    ),
    Known(
        "the lake or the checkpoint cannot be written",
        "let this user write there, and start again: nothing is lost",
        conditions=("CANNOT_LOAD_STATE_STORE.FAILED_TO_GET_CHANGELOG_WRITER",),
        classes=("AccessDeniedException", "AccessControlException"),
        words=("Read-only file system", "Permission denied"),
        passing=True,
    ),
    Known(
        "records that were not read yet are gone from Kafka",
        "restore the topics; or raise their retention, and go on with what is left: lacuna apply",
        conditions=("KAFKA_DATA_LOSS",),
        classes=("OffsetOutOfRangeException",),
    ),
    Known(
        "a topic is gone, or has other partitions than before",
        "restore the topics, or go on with what is left: lacuna apply",
        classes=("UnknownTopicOrPartitionException",),
    ),
    Known(
        "Kafka does not allow this user what the job needs",
        "grant it what `lacuna acl` prints, and start again: nothing is lost",
        classes=("TopicAuthorizationException", "GroupAuthorizationException", "ClusterAuthorizationException"),
        passing=True,
    ),
    REFUSED,
    Known(
        "Kafka refuses a record because of its size",
        "raise max.message.bytes of the topics links, deliveries and records to 8388608, and start again: nothing is "
        "lost",
        classes=("RecordTooLargeException",),
    ),
    Known(
        "the checkpoint is damaged, or not the one that this job wrote",
        "restore it from a copy, or begin a new life, for which what clients asked for is read again from the topics: "
        "lacuna apply --from topics",
        conditions=(
            "CANNOT_LOAD_STATE_STORE",
            "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",
            "CONCURRENT_STREAM_LOG_UPDATE",
            "INVALID_LOG_VERSION",
            "MALFORMED_LOG_FILE",
            "STATE_STORE_BASE_CHECKPOINT_ID_MISMATCH",
            "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
            "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE",
            "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
            "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED",
            "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE",
            "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
            "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
            "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
            "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
        ),
    ),
    AWAY,
    Known(
        "a worker died, perhaps for lack of memory",
        "give it more (--memory, spark.executor.memory), and start again: nothing is lost. The batch that was planned "
        "is done again as it was planned; --max-records makes the next ones smaller",
        classes=("OutOfMemoryError", "ExecutorLostFailure", "ExecutorDeadException", "EOFException"),
        words=("EOFException occurred while reading the port number from pyspark.daemon",),
        passing=True,
    ),
)


def said_of(query: StreamingQuery) -> str | None:
    """Return the text of the exception of a query, and the classes, conditions and texts of its causes."""
    failure = query.exception()
    return None if failure is None else "\n".join([str(failure), *_causes(query)])


def _causes(query: StreamingQuery) -> list[str]:
    found: list[str] = []
    cause = query._jsq.exception().get().getCause()
    while cause is not None and len(found) < MOST_CAUSES:
        found.append(f"Caused by: {cause.toString()}")
        cause = cause.getCause()
    return found


def cause_in(text: str) -> str:
    """Return cause and remedy in what a query died with.

    >>> cause_in("java.io.IOException: No space left on device")[:46]
    'a disk is full (java.io.IOException: No space '
    """
    ours = OURS.search(text)
    if ours:
        said = ours[1].strip()
        return said if "Remedy" in said else f"{said}. {AGAIN}"
    first = next((line.strip() for line in text.splitlines() if line.strip()), "unknown")[:300]
    known = _known(text)
    return f"{first}. {AGAIN}" if known is None else f"{known.cause} ({first}). Remedy: {known.remedy}."


def is_passing(text: str) -> bool:
    """Return whether what a query died with may be over at the next attempt.

    >>> is_passing("java.net.ConnectException: refused"), is_passing("[KAFKA_DATA_LOSS.START] lost")
    (True, False)
    """
    if LASTING.search(text):
        return False
    known = None if OURS.search(text) else _known(text)
    return known is None or known.passing


def is_of(text: str, *causes: Known) -> bool:
    """Return whether a query died of one of these causes.

    >>> is_of("org.apache.kafka.common.errors.TimeoutException: listNodes", AWAY, REFUSED), is_of("Killed", AWAY)
    (True, False)
    """
    return not OURS.search(text) and _known(text) in causes


def is_loss(text: str) -> bool:
    """Return whether a query died because records that it had not read are gone.

    >>> is_loss("[KAFKA_DATA_LOSS.START] lost"), is_loss("java.net.ConnectException: refused")
    (True, False)
    """
    known = _known(text)
    return known is not None and "KAFKA_DATA_LOSS" in known.conditions


def _known(text: str) -> Known | None:
    conditions = {given for name, exact in CONDITION.findall(text) for given in (name, name + exact)}
    classes = set(CLASS.findall(text))
    for known in KNOWN:
        named = conditions.intersection(known.conditions) or classes.intersection(known.classes)
        if named or any(words in text for words in known.words):
            return known
    return None
