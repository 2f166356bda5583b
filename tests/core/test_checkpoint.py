"""A checkpoint knows for which configuration it was made; what does not fit is refused before anything starts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from state.config import Config, parse
from state.errors import LacunaError, StateError
from streaming.checkpoint import FILE, adopt, known
from tests.core.histories import config_text

LINKS = [("b0", "b1")]


def config_at(folder: Path, text: str | None = None) -> Config:
    config = parse(text or config_text(LINKS, '"auto"'))
    return dataclasses.replace(config, lake=dataclasses.replace(config.lake, checkpoint=str(folder / "checkpoint")))


def test_a_new_checkpoint_begins_an_epoch_and_keeps_it(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    first = adopt(config, 2)
    assert adopt(config, 2) == first == known(config)
    other = adopt(config_at(tmp_path / "other"), 2)
    assert other.epoch > first.epoch


def test_a_path_may_be_an_address(tmp_path: Path) -> None:
    plain = config_at(tmp_path)
    lake = dataclasses.replace(plain.lake, checkpoint=f"file://{tmp_path}/checkpoint")
    address = dataclasses.replace(plain, lake=lake)
    assert adopt(address, 2).epoch == adopt(plain, 2).epoch
    assert (tmp_path / "checkpoint" / FILE).is_file()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (config_text(LINKS, '"flood"'), "flood"),
        (config_text([("b0", "b2")], '"auto"'), "b0>b1"),
        (config_text(LINKS, '"auto"').replace("high = 7", "high = 8"), "[0,8]"),
        (config_text(LINKS, '"auto"') + "remember = 5\n", "remember=5000000"),
        (config_text(LINKS, '"auto"') + '[kafka]\nprefix = "other"\n', "prefix was 'lacuna' and is 'other'"),
    ],
)
def test_a_changed_configuration_is_refused(tmp_path: Path, text: str, says: str) -> None:
    adopt(config_at(tmp_path), 2)
    with pytest.raises(StateError, match="another configuration") as refused:
        adopt(config_at(tmp_path, text), 2)
    assert says in str(refused.value) and "Remedy" in str(refused.value)


def test_another_number_of_partitions_is_refused(tmp_path: Path) -> None:
    adopt(config_at(tmp_path), 2)
    with pytest.raises(StateError, match="partitions was 2 and is 4"):
        adopt(config_at(tmp_path), 4)


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    (Path(config.lake.checkpoint) / "offsets").mkdir(parents=True)
    with pytest.raises(StateError, match="not a checkpoint of Lacuna"):
        adopt(config, 2)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 1}', '{"format": 1, "epoch": "x", "identity": {}}'])
def test_a_damaged_identity_is_refused(tmp_path: Path, damage: str) -> None:
    config = config_at(tmp_path)
    adopt(config, 2)
    (Path(config.lake.checkpoint) / FILE).write_text(damage)
    with pytest.raises(StateError, match=r"damaged.*Remedy"):
        adopt(config, 2)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    adopt(config, 2)
    file = Path(config.lake.checkpoint) / FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 9}))
    with pytest.raises(StateError, match="format 9"):
        adopt(config, 2)


def test_a_folder_that_cannot_be_made_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("a file")
    with pytest.raises(LacunaError, match="it must be a folder that this user may write to"):
        adopt(config_at(tmp_path), 2)


def test_nothing_is_known_of_a_missing_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no such checkpoint"):
        known(config_at(tmp_path))
