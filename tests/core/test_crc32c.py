"""kafka-python takes its checksums from the compiled package, which is a dependency."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import crc32c
from kafka.record import _crc32c, util

ROOT = Path(__file__).parents[2]


def test_kafka_python_uses_it() -> None:
    assert util._crc32c is crc32c.crc32c
    assert util.calc_crc32c(memoryview(b"123456789")) == 0xE3069283, "the check value of CRC-32C"
    assert _crc32c.crc(b"123456789") == 0xE3069283


def test_a_producer_is_installed_with_it_and_the_lock_has_it() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert any(line.startswith("crc32c>=") for line in wanted)
    assert re.search(r"^crc32c==", (ROOT / "requirements.lock").read_text(), re.M)
