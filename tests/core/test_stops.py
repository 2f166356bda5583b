"""The table of stops in the documentation is made from the code: run this file to write it again."""

from __future__ import annotations

from pathlib import Path

from streaming.causes import KNOWN
from streaming.stops import ARCHIVE, ROUTER

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
BEGIN, END = "<!-- stops: begin -->\n", "<!-- stops: end -->\n"
NOTHING = "nothing"


def rows() -> list[tuple[str, str, str, str]]:
    """When, cause, remedy and cost of every stop."""
    stops = (("the router at its start", ROUTER), ("the archive", ARCHIVE))
    starts = [(when, *stop) for when, about in stops for stop in about.values()]
    runs = [
        ("the router while it runs", known.cause, known.remedy, NOTHING if known.passing else "see the remedy")
        for known in KNOWN
    ]
    return starts + runs


def table() -> str:
    head = ["| when | cause | remedy | lost or repeated |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows())]) + "\n"


def test_the_page_has_the_table_of_the_code() -> None:
    text = PAGE.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table()


def test_no_remedy_asks_for_an_empty_checkpoint() -> None:
    """A folder that is emptied by hand is refused at the next start: the announced life is not in it."""
    assert [row for row in rows() if "empty checkpoint" in row[2] or not row[2]] == []


LIVE = {
    "a disk is full": "test_a_full_disk_and_a_damaged_checkpoint_stop_the_job_with_the_remedy",
    "the lake or the checkpoint cannot be written": "test_a_disk_that_becomes_read_only",
    "records that were not read yet are gone from Kafka": "test_retention_that_overtakes_the_router",
    "a topic is gone, or has other partitions than before": "test_a_topic_that_is_deleted_while_it_runs",
    "Kafka does not allow this user what the job needs": "test_a_missing_right",
    "Kafka does not accept the user, the password or a certificate": "test_a_rotated_password_is_taken_up",
    "Kafka refuses a record because of its size": "test_a_record_that_is_too_large",
    "the checkpoint is damaged, or not the one that this job wrote": "test_a_damaged_state",
    "Kafka does not answer": "test_nothing_is_lost_while_kafka_is_away",
    "a worker died, perhaps for lack of memory": "test_a_worker_that_dies_again_and_again",
}
"""The tests on a real system that cause what stops a router while it runs. (Starts are named in them.)"""


def test_every_stop_is_caused_on_a_real_system() -> None:
    tests = PAGE.parents[1] / "tests"
    text = "".join(file.read_text() for room in ("spark", "system") for file in (tests / room).glob("test_*.py"))
    assert {known.cause for known in KNOWN} == set(LIVE)
    assert [name for name in LIVE.values() if f"def {name}" not in text] == []
    assert [stop for stop in (*ROUTER, *ARCHIVE) if f'.refused("{stop}")' not in text] == []


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(page[: page.index(BEGIN) + len(BEGIN)] + table() + page[page.index(END) :])
