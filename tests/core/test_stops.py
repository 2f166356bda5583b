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


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(page[: page.index(BEGIN) + len(BEGIN)] + table() + page[page.index(END) :])
