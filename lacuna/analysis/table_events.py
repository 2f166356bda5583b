"""Rows of CSV and Parquet files as events, by a mapping that says which column is what.

A mapping is a TOML file with a section for each file, named as the file without its ending. Each row of `cities.csv`
becomes a subscription, each row of `earthquakes.parquet` a publication:

    [cities]
    kind = "subscribe"
    client = "name"                                             # a column; without it each row is a client of its own
    where.latitude  = { around = "latitude",  within = 2.0 }    # 2 to either side of the column's value
    where.longitude = { around = "longitude", within = 2.0 }
    where.magnitude = { from = 4.5 }                            # a column or a value; `to` likewise, `is` for one value
    every = 10                                                  # of every ten rows the first one

    [earthquakes]
    kind = "publish"
    at = { latitude = "latitude", longitude = "longitude", magnitude = "mag" }
    broker = "net"                                              # a column; without it rows are dealt to brokers in turn

An attribute that a subscription does not name is unconstrained. Ends beyond the domain are those of the domain. A row
that does not make an event, because a value is missing or no broker has that name, becomes a reject of the simulation.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from state.config import Config, read_toml
from state.errors import ConfigError, LacunaError
from state.space import Attribute, Space

Row = Mapping[str, Any]
ENDINGS = (".csv", ".parquet")
SECTION = {"kind", "client", "where", "at", "broker", "every", "most"}
RANGE = ({"around", "within"}, {"from"}, {"to"}, {"from", "to"}, {"is"})


def read_mapping(file: str) -> dict[str, Any]:
    """Read a mapping. Raises `LacunaError` if it is no TOML."""
    try:
        return read_toml(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LacunaError(f"{file}: it cannot be read as TOML: {error}. Remedy: correct it") from None


def events_of(config: Config, file: str, mapping: Mapping[str, Any]) -> Iterator[bytes]:
    """Return the rows of a file as lines of an events file. Raises `LacunaError` where the mapping does not fit."""
    name = Path(file).stem
    section = mapping.get(name)
    if not isinstance(section, dict) or section.get("kind") not in ("subscribe", "publish"):
        raise ConfigError(
            "--mapping",
            name,
            f'it has no section [{name}] with kind = "subscribe" or "publish"',
            "write one that says what the columns of that file are",
        )
    _check(section, name, config.space)
    every = int(section.get("every", 1))
    chosen = islice(_rows(file), 0, None, every)
    for number, row in enumerate(islice(chosen, section.get("most"))):
        yield json.dumps(_event(config, section, name, number, row)).encode()


def _check(section: Mapping[str, Any], name: str, space: Space) -> None:
    """Refuse keys that mean nothing: a mapping with a typing error would leave an attribute unconstrained."""
    known = {attribute.name for attribute in space.attributes}
    publishes = section["kind"] == "publish"
    columns = section.get("at" if publishes else "where", {})
    allowed = SECTION - {"where", "client"} if publishes else SECTION - {"at"}
    wrong = [*(section.keys() - allowed), *(columns.keys() - known)]
    wrong += [] if publishes else [a for a, ends in columns.items() if set(ends) not in RANGE]
    for key in ("every", "most"):
        wrong += [key] if key in section and (type(section[key]) is not int or section[key] < 1) else []
    if wrong:
        rule = f"[{name}] has a key, an attribute or a range that means nothing here"
        raise ConfigError("--mapping", wrong[0], rule, "see docs/compare.md for what a mapping may say")


def _rows(file: str) -> Iterator[Row]:
    if Path(file).suffix.lower() == ".csv":
        with Path(file).open(newline="", encoding="utf-8-sig") as lines:
            yield from csv.DictReader(lines)
        return
    try:
        from pyarrow import parquet
    except ImportError:
        raise LacunaError(f"{file}: pyarrow reads Parquet. Remedy: pip install lacuna[spark]") from None
    for batch in parquet.ParquetFile(file).iter_batches(batch_size=4096):
        yield from batch.to_pylist()


def _event(config: Config, section: Mapping[str, Any], name: str, number: int, row: Row) -> dict[str, Any]:
    attributes = {attribute.name: attribute for attribute in config.space.attributes}
    brokers = config.overlay.brokers
    broker = row.get(section["broker"]) if "broker" in section else brokers[number % len(brokers)]
    event = {"kind": section["kind"], "broker": broker, "id": f"{name}{number + 1}"}
    if section["kind"] == "publish":
        at = section.get("at", {})
        return event | {"at": {a: _value(attributes[a], row.get(column)) for a, column in at.items()}}
    client = row.get(section["client"]) if "client" in section else event["id"]
    where = {a: _asked(attributes[a], ends, row) for a, ends in section.get("where", {}).items()}
    return event | {"client": str(client), "where": where}


def _asked(attribute: Attribute, ends: Mapping[str, Any], row: Row) -> list[Any]:
    """Return a range, or the allowed values of a category."""
    if "is" in ends:
        value = _value(attribute, _cell(ends["is"], row))
        return [value] if attribute.kind == "category" else [value, value]
    if "around" in ends:
        middle = _value(attribute, row.get(ends["around"]))
        if not isinstance(middle, int | float):
            return [middle, middle]  # what is refused shows the value
        return [_bounded(attribute, middle - ends["within"]), _bounded(attribute, middle + ends["within"])]
    values = (_value(attribute, _cell(ends[end], row)) if end in ends else None for end in ("from", "to"))
    return [_bounded(attribute, value) for value in values]


def _cell(given: Any, row: Row) -> Any:
    """A text names a column, if there is one of that name; anything else is the value."""
    return row.get(given, given) if isinstance(given, str) else given


def _value(attribute: Attribute, given: Any) -> Any:
    """Return a value as an event has it. What cannot be one stays as it is, and is refused."""
    if isinstance(given, datetime):
        return (given if given.tzinfo else given.replace(tzinfo=UTC)).isoformat()
    if isinstance(given, date):
        return f"{given.isoformat()}T00:00:00Z"
    if not isinstance(given, str) or attribute.kind in ("category", "timestamp"):
        return given
    try:
        return int(given) if attribute.kind == "int" else float(given)
    except ValueError:
        return given


def _bounded(attribute: Attribute, value: Any) -> Any:
    """Return an end of a range inside the domain."""
    if not isinstance(value, int | float) or attribute.kind not in ("int", "float"):
        return value
    low, high = attribute.value(attribute.low), attribute.value(attribute.high)
    assert isinstance(low, int | float) and isinstance(high, int | float)
    return min(max(value, low), high)
