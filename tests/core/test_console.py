"""What people read is what was given: no id is taken for markup."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lacuna.client_commands import show_summary
from lacuna.service_commands import _print_frame, say

ODD = "[/bold] [red]x :x:"


def test_text_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show_summary({"id": ODD}, ODD, as_json=False)
    say(ODD)
    out, err = capsys.readouterr()
    assert out.count(ODD) == 2
    assert err == f"{ODD}\n"


def test_a_row_of_a_table_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    rows = SimpleNamespace(columns=[ODD], limit=lambda _: SimpleNamespace(collect=lambda: [(ODD,)]))
    _print_frame(rows, as_json=False)
    assert capsys.readouterr().out.count(ODD) == 2
