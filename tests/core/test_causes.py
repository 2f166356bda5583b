"""What a query died with becomes one message that names cause and remedy. The texts are those of real failures."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pyspark
import pytest

from streaming.causes import KNOWN, cause_in, is_passing

OURS = """[STREAM_FAILED] Query [id = 3f, runId = 4a] terminated with exception: Task 1 in stage 4.0 failed:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "streaming/advance.py", line 300, in step
state.errors.InvariantError: the channel from oslo jumps from message 3 to 9: messages are lost. Remedy: check the
retention of the links topic

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


def test_our_own_message_is_all_that_is_said() -> None:
    said = cause_in(OURS)
    assert said.startswith("the channel from oslo jumps from message 3 to 9")
    assert said.endswith("retention of the links topic")
    assert "Traceback" not in said and "PythonRunner" not in said


def test_our_own_message_without_a_remedy_gets_one() -> None:
    said = cause_in("state.errors.InvariantError: rule (S): active and passive disagree\n\tat somewhere")
    assert said.startswith("rule (S): active and passive disagree. Remedy: ")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "org.apache.spark.sql.execution.streaming.state.StateStoreFailedToGetChangelogWriter: "
            "[CANNOT_LOAD_STATE_STORE.FAILED_TO_GET_CHANGELOG_WRITER] Failed to get the changelog writer",
            "cannot be written",
        ),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.", "damaged"),
        ("[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query", "damaged"),
        ("Failed to read log file file:/j/offsets/3. [MALFORMED_LOG_FILE] Log file was malformed", "damaged"),
        ("java.io.IOException: No space left on device", "a disk is full"),
        ("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Could not read records", "gone from Kafka"),
        ("org.apache.kafka.common.errors.RecordTooLargeException: The message is 9000000 bytes", "its size"),
        ("org.apache.kafka.common.errors.TimeoutException: Topic not present", "does not answer"),
        ("Python worker exited unexpectedly (crashed)\nCaused by: java.io.EOFException", "a worker died"),
        ("EOFException occurred while reading the port number from pyspark.daemon's stdout.", "a worker died"),
    ],
)
def test_what_spark_kafka_and_the_disk_say_is_put_in_our_words(text: str, cause: str) -> None:
    said = cause_in(text + "\n\tat java.base/somewhere(Some.java:1)")
    assert cause in said and text[:40] in said and "Remedy: " in said
    assert "\n" not in said


def test_what_nobody_knows_is_shown_with_what_is_always_true() -> None:
    said = cause_in("\n  something new\n  at line 2")
    assert said.startswith("something new. Remedy: the job can be started again")


def test_each_known_cause_names_a_remedy() -> None:
    for known in KNOWN:
        assert (known.conditions or known.classes or known.words) and known.cause and known.remedy


def test_conditions_are_those_of_spark() -> None:
    """Every condition that is known here is one of Spark's own, so a later Spark that renames one is noticed."""
    jars = Path(pyspark.__file__).parent / "jars"
    with zipfile.ZipFile(next(jars.glob("spark-common-utils_*.jar"))) as jar:
        named = json.loads(jar.read("error/error-conditions.json"))
    conditions = {*named, *(f"{name}.{exact}" for name in named for exact in named[name].get("subClass", ()))}
    ours = {condition for known in KNOWN for condition in known.conditions}
    assert ours - conditions == {"KAFKA_DATA_LOSS"}  # in the jar of the connector


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.AssertionError: assertion failed",
        "the client asked for [A_THING] that data may have been lost in",
        "org.apache.spark.SparkException: a batch named CANNOT_LOAD_STATE_STORE or CHECKPOINT_3 failed",
        "java.lang.IllegalStateException: said by somebody: KAFKA_DATA_LOSS, TimeoutException, OutOfMemoryError",
    ],
)
def test_words_in_a_text_are_no_condition(text: str) -> None:
    assert cause_in(text).startswith(f"{text}. Remedy: the job can be started again")


@pytest.mark.parametrize(
    ("text", "passing"),
    [
        ("java.net.ConnectException: Connection refused", True),
        ("java.io.IOException: No space left on device", True),
        ("org.apache.kafka.common.errors.TimeoutException: Timeout expired", True),
        ("Generic S3 error: 503 Slow Down", True),
        ("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Could not read records", False),
        ("[MALFORMED_LOG_FILE] Log file was malformed", False),
        ("state.errors.InvariantError: the channel a of epoch 7 jumps from frame 1 to 3", False),
        ("state.errors.StateError: marks of the archive are missing", False),
        ("state.errors.LacunaError: lake.path = 'x': its disk must have room", True),
        ("access.errors.Unreachable: no Kafka answered", True),
    ],
)
def test_what_may_pass(text: str, passing: bool) -> None:
    assert is_passing(text) is passing
