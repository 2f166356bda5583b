"""Fitting: learn cells from publications, and write them into a configuration.

Cells of equal size are mostly wasted on places where nothing is published. Here the borders of each attribute are
chosen such that about as many publications lie between any two (section 6.3 of the MICS paper); a value published so
often that it fills a cell gets a cell of its own. Subscriptions show how selective each attribute is: the share of
publications that a subscription asks for in this attribute alone, averaged over all. `dims = "selective:N"` uses it.

The section `[cells]` of the configuration is replaced, and every other byte stays. That is checked before anything is
written.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from state.config import Config, parse
from state.curves.cells import BITS
from state.errors import LacunaError
from state.protocol.events import Reject
from state.protocol.messages import Message, Publish, Subscribe
from state.space import Attribute, Keys, Space

HEADER = re.compile(r"\s*\[\[?\s*([A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')\s*[.\]].*")
"""A line that begins a TOML table; the group is the first part of its name."""
ON_A_LINE = 8
MOST_BITS = 12
"""The limit: a file that people read should not hold more than 4,095 borders an attribute."""


@dataclass
class Sample:
    """Keys of publications, and the intervals of subscriptions in each attribute."""

    space: Space
    points: list[tuple[int, ...]] = field(default_factory=list)
    boxes: list[Keys] = field(default_factory=list)

    def take(self, messages: Iterable[Message | Reject]) -> int:
        """Learn from the publications and subscriptions among these messages. Return how many were refused."""
        refused = 0
        for message in messages:
            refused += isinstance(message, Reject)
            if isinstance(message, Publish):
                self.points.append(message.point)
            elif isinstance(message, Subscribe):
                self.boxes.append(np.array([(b.lo, b.hi) for b in message.boxes]))
        return refused

    def cells(self, bits: int) -> dict[str, dict[str, Any]]:
        """Return what was learned by attribute, in the form of the section `[cells]`."""
        if not self.points:
            raise LacunaError("there is no publication to learn from. Remedy: name a file or a Kafka that has some")
        columns = np.sort(self.space.points(self.points), axis=0)
        return {a.name: self._learned(a, i, columns[:, i], bits) for i, a in enumerate(self.space.attributes)}

    def _learned(self, attribute: Attribute, i: int, keys: Keys, bits: int) -> dict[str, Any]:
        learned: dict[str, Any] = {"borders": [attribute.value(key) for key in borders(attribute, keys, bits)]}
        if self.boxes:
            shares = [_share(boxes[:, :, i], keys) for boxes in self.boxes]
            learned["selectivity"] = round(float(np.mean(shares)), 6)
        return learned


def refuse_thin(sample: Sample, bits: int) -> None:
    """Refuse a sample with fewer publications than an attribute has cells: most borders would be chance."""
    cells, found = 1 << bits, len(sample.points)
    if 0 < found < cells:
        raise LacunaError(
            f"{found} publications are too few to learn {cells} cells an attribute from. Remedy: learn from at least "
            f"{cells}, or fewer --bits, or take what there is with --force"
        )


def borders(attribute: Attribute, keys: Keys, bits: int) -> list[int]:
    """Return at most `2^bits - 1` borders with about as many of the sorted keys between any two.

    >>> borders(Attribute("n", "int", 0, 99), np.array([1, 2, 3, 4, 5, 6, 7, 8]), 2)
    [3, 5, 7]
    >>> borders(Attribute("n", "int", 0, 99), np.array([5] * 9 + [7, 9, 11]), 2)
    [5, 6, 7]
    """
    cells = 1 << min(bits, max(1, len(keys).bit_length()))
    at = keys[np.arange(1, cells) * len(keys) // cells]
    chosen, often = np.unique(at, return_counts=True)
    own = chosen[often > 1] + 1  # fills a cell by itself: it ends where the next value begins
    found = np.unique(np.concatenate((chosen, own)))
    return [int(key) for key in found if attribute.low < key <= attribute.high][: (1 << bits) - 1]


def _share(sides: Keys, keys: Keys) -> float:
    """Return the share of sorted keys in the union of half-open intervals `(n, 2)`."""
    inside = np.zeros(len(keys) + 1, np.int64)
    np.add.at(inside, np.searchsorted(keys, sides[:, 0]), 1)
    np.add.at(inside, np.searchsorted(keys, sides[:, 1]), -1)
    return float((np.cumsum(inside)[:-1] > 0).mean())


# Writing


def with_cells(text: str, cells: dict[str, dict[str, Any]]) -> str:
    """Return the text of a configuration with its section `[cells]` replaced and everything else unchanged."""
    kept: list[str] = []
    remarks: list[str] | None = None  # while a section is left out: what may belong to the next one
    for line in text.splitlines(keepends=True):
        header = HEADER.fullmatch(line.rstrip("\r\n"))
        if header is not None and _is_header(line):
            kept += remarks or []
            remarks = [] if header[1].strip("\"'") == "cells" else None
        elif remarks is not None:
            remarks = [*remarks, line] if line.lstrip().startswith("#") or not line.strip() else []
        if remarks is None:
            kept.append(line)
    return "".join(kept).rstrip() + "\n\n" + "\n".join(_sections(cells))


def _is_header(line: str) -> bool:
    """Return True for the header of a table, False for a line of a list that looks like one."""
    try:
        tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _sections(cells: dict[str, dict[str, Any]]) -> Iterable[str]:
    for name, learned in cells.items():
        yield f"[cells.{_text(name)}]  # learned by lacuna fit"
        yield "borders = [" + _rows([_text(value) for value in learned["borders"]]) + "]"
        if "selectivity" in learned:
            yield f"selectivity = {learned['selectivity']!r}"
        yield ""


def _rows(values: Sequence[str]) -> str:
    rows = [", ".join(values[k : k + ON_A_LINE]) for k in range(0, len(values), ON_A_LINE)]
    return "".join(f"\n    {row}," for row in rows) + "\n" if len(rows) > 1 else "".join(rows)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def fitted(text: str, cells: dict[str, dict[str, Any]]) -> tuple[str, Config]:
    """Return the new text, parsed too. Raises `LacunaError` if anything but `[cells]` would change."""
    new = with_cells(text, cells)
    before = tomllib.loads(text) | {"cells": cells}
    try:
        after = tomllib.loads(new)
    except tomllib.TOMLDecodeError:
        after = {}
    if before != after:
        raise LacunaError(
            "the section [cells] cannot be replaced without touching the rest of the configuration. "
            "Remedy: move [cells] to the end of the file, with nothing of it elsewhere"
        )
    return new, parse(new)


def configured_bits(text: str) -> int:
    """Return the bits of the configured strategy, or the default."""
    routing = tomllib.loads(text).get("routing", {})
    strategy = routing.get("strategy") if isinstance(routing, dict) else None
    bits = strategy.get("bits") if isinstance(strategy, dict) else None
    return min(bits, MOST_BITS) if isinstance(bits, int) and bits > 0 else BITS


def write(path: Path, text: str) -> None:
    """Replace a file atomically."""
    draft = path.with_name(f".{path.name}.fit")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
