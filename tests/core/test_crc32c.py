"""kafka-python takes its checksums from the compiled package, which is a pinned dependency."""

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


def test_it_is_pinned_in_both_places() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (pin,) = (line for line in wanted if line.startswith("crc32c=="))
    assert re.search(rf"^{re.escape(pin)}$", (ROOT / "requirements.lock").read_text(), re.M)
