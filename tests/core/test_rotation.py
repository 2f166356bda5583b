"""Rotated secrets: taken up when they work, refused with the reason when they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from state.config import Kafka
from state.protocol.security import Security
from streaming import rotation as module
from streaming.rotation import Rotation


@pytest.fixture
def rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rotation:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "DEADLINE", 0.2)
    Path("pw").write_text("old")
    return Rotation(Kafka("127.0.0.1:1", security=Security("SASL_PLAINTEXT", "PLAIN", "ann", "pw")))


def test_files_as_they_were_are_not_tried(rotation: Rotation) -> None:
    rotation.look()
    assert rotation.due is None and rotation.refused is None


def test_a_file_that_cannot_be_used_is_refused_until_it_can(rotation: Rotation) -> None:
    Path("pw").write_text("new\n")
    rotation.look()
    assert rotation.due is None and rotation.refused is not None and "ends with a line break" in rotation.refused
    Path("pw").unlink()
    rotation.look()
    assert rotation.refused is not None and "there is no such file" in rotation.refused


def test_while_kafka_is_away_nothing_is_known_of_new_secrets(rotation: Rotation) -> None:
    Path("pw").write_text("new")
    rotation.look()
    assert rotation.due is None and rotation.refused is None


def test_what_was_due_is_in_use_once_taken_up(rotation: Rotation) -> None:
    rotation.due = "as of now"
    rotation.take_up()
    assert rotation.due is None and rotation._used == "as of now"
    rotation.take_up()
    assert rotation._used == "as of now"
