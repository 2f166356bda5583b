"""`lacuna demo --home DIR` removes what a demo made, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from lacuna.__main__ import main
from lacuna.cli.demo import make_home
from state.errors import ConfigError


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"--home.*was not made by a demo.*Remedy"):
        make_home(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_file_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="was not made by a demo"):
        make_home(tmp_path / "file")


def test_of_an_earlier_demo_only_what_it_made_goes(tmp_path: Path) -> None:
    make_home(tmp_path / "demo")
    made, own = tmp_path / "demo" / "lake" / "decisions", tmp_path / "demo" / "notes.txt"
    made.mkdir(parents=True)
    (tmp_path / "demo" / "lacuna.toml").touch()
    own.write_text("mine")
    make_home(tmp_path / "demo")
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [".lacuna-demo", "notes.txt"]
    assert own.read_text() == "mine"


def test_a_strategy_that_does_not_exist_is_refused_before_anything_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--home", str(tmp_path / "demo"), "--strategy", "magic"]) == 2
    assert not (tmp_path / "demo").exists()
    assert "magic" in capsys.readouterr().err
