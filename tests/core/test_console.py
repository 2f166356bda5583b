"""What people read is what was given: no id is taken for markup."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from rich.text import Text

import lacuna
from lacuna.__main__ import main
from lacuna.cli.console import console, say, show_summary
from lacuna.cli.sql import _show_table

ODD = "[/bold] [red]x :x:"


def test_text_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show_summary({"id": ODD}, ODD, as_json=False)
    say(ODD)
    out, err = capsys.readouterr()
    assert out.count(ODD) == 2
    assert err == f"{ODD}\n"


def test_a_terminal_is_not_commanded_by_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Ids and refused values come from whoever may send an event."""
    hostile = "a\x1b]0;title\x07\x9b31m\rb"
    say(hostile)
    console().print(Text(hostile))
    _show_table(pa.table({"value": [hostile]}))
    assert main(["explain", hostile, "--config", hostile]) == 2
    out, err = capsys.readouterr()
    assert out.count(r"a\x1b]0;title") == err.count(r"a\x1b]0;title") == 2
    assert not set(out + err) & set("\x1b\x07\x9b\r")


def test_a_row_of_a_table_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    _show_table(pa.RecordBatchReader.from_batches(pa.schema({ODD: pa.string()}), pa.table({ODD: [ODD]}).to_batches()))
    assert capsys.readouterr().out.count(ODD) == 2


def test_all_is_shown_there() -> None:
    modules = Path(lacuna.__file__).parent.rglob("*.py")
    assert [path.name for path in modules if "import Console" in path.read_text()] == ["console.py"]
