"""Every situation in which a start is refused, or the archive stops for good: its cause, its remedy, what that costs.

The documentation has this table (`tests/core/test_stops.py`), and a test follows each remedy to the letter on a real
system (`tests/spark/test_remedies.py`). What Spark, Kafka or a disk says while the job runs is in `causes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from state.errors import StateError

APPLY, APPLY_TOPICS = "lacuna apply", "lacuna apply --from topics"
REBUILD, REBUILD_REST = "lacuna archive rebuild", "lacuna archive rebuild --force"


class Stop(NamedTuple):
    """A situation: its cause, its remedy, and what is lost or repeated by following it."""

    cause: str
    remedy: str
    costs: str


ROUTER: Mapping[str, Stop] = {
    "restored copy": Stop(
        "the checkpoint is an older copy; the router was further when it last wrote",
        f"restore the newest checkpoint, or go on from this copy: {APPLY}",
        "publications after the copy are delivered again, in a new epoch",
    ),
    "checkpoint lost": Stop(
        "the router's checkpoint is not here: it was lost, or is elsewhere (lake.checkpoint may be relative to the "
        "working directory)",
        f"start where it is, restore it, or begin again from the topics: {APPLY_TOPICS}",
        "publications since the last tick are delivered again, in a new epoch",
    ),
    "checkpoint damaged": Stop(
        "a file of the checkpoint is damaged, or of another version of Lacuna",
        f"restore the checkpoint, or run the Lacuna that wrote it; or begin again from the topics: {APPLY_TOPICS}",
        "publications since the last tick are delivered again, in a new epoch",
    ),
    "other topics": Stop(
        "the checkpoint belongs to other topics, and what it knows means nothing in these",
        "go back to that kafka.prefix; or choose another lake.checkpoint and lake.path, for a system of its own",
        "nothing",
    ),
    "Kafka rolled back": Stop(
        "Kafka holds less than the router has read: it was rolled back to an older copy, or is another Kafka",
        f"restore the newest copy of Kafka, or go on with what is left: {APPLY}",
        "what Kafka has lost",
    ),
    "topic made again": Stop(
        "a topic was deleted and made again, so the checkpoint's offsets mean nothing in it",
        f"restore the topic from a copy, or go on with what is left: {APPLY}",
        "what was in the old topic and was not read",
    ),
    "lost range": Stop(
        "records that were not read yet are gone from Kafka",
        f"restore the topic from a copy, or go on with what is left, and raise its retention: {APPLY}",
        "the range that is gone",
    ),
    "changed configuration": Stop(
        "the life was made for another configuration",
        f"go back to that configuration, or change the system to this one: {APPLY}",
        "nothing",
    ),
}
"""What keeps the router from starting."""

ARCHIVE: Mapping[str, Stop] = {
    "archive's checkpoint lost": Stop(
        "the tables hold rows, and the archive's checkpoint is new: it would add the whole topic to them once more",
        f"restore the checkpoint, choose another lake.path, or fill new tables from the topic: {REBUILD}",
        "what retention has removed from the topic; the old tables are set aside",
    ),
    "older tables": Stop(
        "a table lacks rows that were written: it is an older copy, or a part of its log was deleted",
        f"restore the newest tables, or fill new ones from the topic: {REBUILD}",
        "what retention has removed from the topic; the old tables are set aside",
    ),
    "archive's checkpoint mixed": Stop(
        "the archive's checkpoint and its marks do not belong together, or are damaged",
        f"restore both from one copy, or fill new tables from the topic: {REBUILD}",
        "what retention has removed from the topic; the old tables are set aside",
    ),
    "records lost": Stop(
        "rows are missing in the topic records",
        f"restore the topic from a copy, or fill new tables with what is left in it: {REBUILD_REST}",
        "what the topic has lost; the old tables are set aside",
    ),
}
"""What keeps the archive from starting, or stops it: another attempt would not help."""


def stopped(stop: Stop, found: str, done: str = "") -> StateError:
    """Return the error that says what was found, its cause, what was `done` and what to do."""
    return StateError(f"{found}: {stop.cause}. {done}Remedy: {stop.remedy}")
