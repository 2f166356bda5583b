"""What an earlier version left in the topics is read by this one (`tests/data/make_earlier.py`)."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from state.config import parse
from streaming.lake import RustWriter, Stamp, Stream, create_tables, unframe
from tests.system.live import text_at

KEPT = Path(__file__).parents[1] / "data" / "earlier.tar.gz"


def kept(name: str) -> Any:
    with tarfile.open(KEPT) as packed:
        file = packed.extractfile(name)
        assert file is not None
        return json.load(file)


def test_its_rows_are_archived_in_the_life_that_wrote_them(tmp_path: Path) -> None:
    """Its rows had no epoch; the frames around them have."""
    topics, epoch = kept("topics.json"), kept("checkpoint/lacuna.json")["epoch"]
    lake = str(tmp_path / "lake")
    create_tables(lake, parse(text_at("nowhere:1", "earlier", tmp_path)).space)
    streams: dict[str, list[Stream]] = {}
    for offset, record in enumerate(topics["records"]):
        head, rows = unframe(record["partition"], offset, bytes.fromhex(record["value"]))
        assert head.fault is None
        streams.setdefault(head.table, []).append(Stream(rows, 5))
    for table, parts in streams.items():
        RustWriter(lake).append(table, parts.copy, Stamp("test", 0))
    rows = DeltaTable(f"{lake}/deliveries").to_pyarrow_table().to_pylist()
    delivered = [json.loads(bytes.fromhex(record["value"])) for record in topics["deliveries"]]
    assert {row["epoch"] for row in rows} == {epoch}
    names = ("broker", "client", "subscription", "publication", "epoch")
    assert sorted([row[n] for n in names] for row in rows) == sorted([d[n] for n in names] for d in delivered)
