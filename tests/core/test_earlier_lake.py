"""A lake that an earlier version made: it is brought up, filled as far as it can be, and everything reads it.

`earlier/` was made by the code of commit 5a12b04, with its twin of the router and its writer: two links, subscriptions
in several forms, one replaced, cancelled, expired; the tables, and the frames of what came after, which its archive had
not taken.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from lacuna.__main__ import main
from lacuna.analysis.duck import Duck
from state.config import Config, parse
from state.storage.tables import TABLES
from streaming.earlier import bring_up, fill
from streaming.lake import RustWriter, Stamp, Stream, create_tables, schema_of, table_path, unframe
from streaming.schemas import schemas_of

EARLIER = Path(__file__).parent / "earlier"
STANDING = {
    ("a", "ann", "other"),
    ("a", "bob", "inner"),
    ("b", "ann", "wide"),
    ("b", "dan", "late"),
    ("c", "cat", "text"),
}
LATER = {("c", "eve", "after")}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The configuration of a copy of that lake, which is the current folder."""
    shutil.copytree(EARLIER, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return parse(Path("lacuna.toml").read_text())


def published(offset: int, broker: str, id: str, millis: int, **more: Any) -> Any:
    """A record of the topic of publications."""
    at = {"x": 3, "price": 4.5, "colour": "red", "seen": "2026-05-01T00:00:00Z"}
    value = json.dumps({"id": id, "at": at, "payload": "four", **more}).encode()
    place = {"topic": "lacuna.publish", "partition": 2, "offset": offset, "timestamp": millis}
    return SimpleNamespace(key=broker.encode(), value=value, **place)


TOPIC = (
    published(17, "b", "p1", 1_008),
    published(18, "c", "p1", 1_008),
    SimpleNamespace(topic="lacuna.publish", partition=2, offset=19, timestamp=1_008, key=None, value=None),
    published(20, "b", "p2", 1_020, time="1970-01-01T00:00:01.009Z"),
    published(21, "b", "p2", 1_021, time="1970-01-01T00:00:01.009Z"),
    published(22, "c", "p1", 2_000),
)
"""Two publications that were routed, among others that were not: unread ones, refused ones, repeated ones."""


def rows_in(table: str) -> list[dict[str, Any]]:
    return list(DeltaTable(table_path("lake", table)).to_pyarrow_table().to_pylist())


def brought_up(config: Config, topic: Iterable[Any] = TOPIC) -> list[str]:
    said: list[str] = []
    create_tables("lake", config.space)
    bring_up("lake", config, said.append, lambda _: topic)
    return said


def asked(config: Config, query: str) -> list[dict[str, Any]]:
    return list(Duck(config).query(query).read_all().to_pylist())


def test_nothing_is_lost_and_every_column_is_there(config: Config) -> None:
    before = {table: rows_in(table) for table in TABLES if Path("lake", table).exists()}
    assert sorted(before) == ["decisions", "deliveries", "metrics", "rejects", "routes"]
    brought_up(config)
    for table, rows in before.items():
        schema = schemas_of(config.space)[table]
        now = DeltaTable(table_path("lake", table))
        assert set(schema_of(now).names) == set(schema.names)
        assert sorted(map(repr, now.to_pyarrow_table(columns=list(rows[0])).to_pylist())) == sorted(map(repr, rows))
        assert now.protocol()[:2] == (1, 2)
        comments = {field.name: field.metadata["comment"] for field in now.schema().fields}
        assert comments == {column.name: column.about for column in TABLES[table].columns}


def test_the_table_of_subscriptions_is_filled_once_and_that_is_said(config: Config) -> None:
    said, _ = brought_up(config)
    assert "subscriptions was filled with 10 changes" in said
    rows = sorted(rows_in("subscriptions"), key=lambda row: (row["batch"], row["seq"], row["broker"]))
    assert [(row["subscription"], row["change"]) for row in rows] == [
        ("wide", "subscribe"),
        ("other", "subscribe"),
        ("inner", "subscribe"),
        ("wide", "subscribe"),
        ("text", "subscribe"),
        ("short", "subscribe"),
        ("other", "replace"),
        ("wide", "unsubscribe"),
        ("late", "subscribe"),
        ("short", "expire"),
    ]
    assert {row["epoch"] for row in rows} == {7}
    assert {row["written"] for row in rows} == {row["arrived"] for row in rows} == {None}
    assert [row["filter"] for row in rows if row["change"] == "unsubscribe"] == [None]
    (inner,) = (row for row in rows if row["subscription"] == "inner")
    assert json.loads(inner["filter"]) == {"x": [5, 8], "colour": ["red"]}
    assert inner["boxes"][0]["colour"] == ["red"] and inner["boxes"][0]["x"] == {"low": 5, "high": 8}
    versions = {table: DeltaTable(table_path("lake", table)).version() for table in TABLES}
    assert brought_up(config) == [] and len(rows_in("subscriptions")) == len(rows)
    assert {table: DeltaTable(table_path("lake", table)).version() for table in TABLES} == versions


def test_the_table_of_publications_is_filled_once_with_what_the_topic_holds(config: Config) -> None:
    _, said = brought_up(config)
    assert "filled with 2 that the topic still holds, since 1970-01-01 00:00:01 UTC" in said
    first, second = sorted(rows_in("publications"), key=lambda row: row["publication_key"])
    assert (first["publication_key"], first["broker"], first["publication"]) == ("2:18", "c", "p1")
    assert (second["publication_key"], second["broker"], second["publication"]) == ("2:20", "b", "p2")
    assert (first["epoch"], first["batch"], first["seq"], first["written"]) == (7, 7, None, None)
    assert first["point"] | {"seen": None} == {"x": 3, "price": 4.5, "colour": "red", "seen": None}
    assert first["payload_bytes"] == 6
    assert (second["time"].timestamp(), second["arrived"].timestamp()) == (1.009, 1.02)
    (why,) = asked(config, "SELECT attribute FROM why_not WHERE publication_key = '2:20' AND subscription = 'inner'")
    assert why == {"attribute": "x"}
    assert brought_up(config) == [] and len(rows_in("publications")) == 2


def test_a_topic_that_holds_nothing_of_that_time_is_asked_once(config: Config) -> None:
    _, said = brought_up(config, ())
    assert "publications was filled with none, because the topic holds none of that time any more" in said
    assert brought_up(config) == [] and rows_in("publications") == []


def test_a_fill_that_was_killed_is_repeated(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies before its commit; what is archived meanwhile is no reason not to fill."""

    def die(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RustWriter, "append", die)
        with pytest.raises(KeyboardInterrupt):
            brought_up(config)
    assert rows_in("subscriptions") == []
    assert len(brought_up(config)) == 2 and len(rows_in("subscriptions")) > 0


def test_the_frames_of_that_version_are_still_archived(config: Config) -> None:
    brought_up(config)
    writer = RustWriter("lake")
    streams: dict[str, list[Stream]] = {}
    for record in json.loads(Path("records.json").read_text()):
        head, rows = unframe(0, 0, base64.b64decode(record), written=5)
        assert head.fault is None
        streams.setdefault(head.table, []).append(Stream(rows, 5))
    counts = {table: len(rows_in(table)) for table in streams}
    for table, parts in streams.items():
        writer.append(table, parts.copy, Stamp("test", 1))
    assert all(len(rows_in(table)) > counts[table] for table in streams)
    after = [row for row in rows_in("decisions") if row["subscription"] == "after"]
    assert {row["written"].timestamp() for row in after} == {5e-6}


def test_a_lake_of_this_version_is_not_filled(tmp_path: Path, config: Config) -> None:
    lake = str(tmp_path / "new")
    create_tables(lake, config.space)
    said: list[str] = []
    for once in (bring_up, fill):
        once(lake, config, said.append, lambda _: TOPIC)
    assert said == [] and DeltaTable(table_path(lake, "subscriptions")).version() == 0


def test_the_views_and_explain_read_it(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    brought_up(config)
    rows = asked(config, "SELECT broker, client, subscription FROM standing")
    assert {tuple(row.values()) for row in rows} == STANDING
    (why,) = asked(config, "SELECT filter FROM why WHERE subscription = 'late' AND broker = 'b' AND link = 'a'")
    assert json.loads(why["filter"]) == {"x": [9, 9]}
    assert asked(config, "SELECT count(*) AS n FROM routes WHERE publication_key IS NULL") == [{"n": 4}]
    for view in ("links", "savings", "latency", "hot_links", "why_not"):
        asked(config, f"SELECT * FROM {view}")
    assert main(["explain", "inner"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "inner of bob at a asks for x 5 to 8 and colour red" in text
    assert "wide of ann and other of ann together covered it." in text
    assert "other was replaced. Nobody" in text


def test_before_it_is_brought_up_explain_reads_it_and_sql_says_what_to_do(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "inner"]) == 0
    assert "inner of bob at a asks for x 5 to 8 and colour red" in " ".join(capsys.readouterr().out.split())
    assert main(["sql", "SELECT 1"]) == 2
    assert "there is no table subscriptions below it. Remedy" in capsys.readouterr().err
