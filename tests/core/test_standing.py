"""What stands, as the topics say, is what the ledger of the router would hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from access.offsets import Span
from lacuna.__main__ import main
from lacuna.analysis import standing as module
from lacuna.analysis.standing import NO_ALIASES, Stands, judged
from state.config import parse
from state.protocol.control import Prefix

CONFIG = """
[space]
x = { kind = "int", low = 0, high = 9 }
[overlay]
links = [["oslo", "paris"]]
[limits]
subscriptions_per_client = 2
"""


class Topics:
    """Records of the two topics, in the order in which Kafka took them, a second apart."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def add(self, kind: str, id: str, client: str = "ann", broker: str = "oslo", **fields: Any) -> None:
        value = {"id": id, "client": client, **({"where": {"x": [1, 2]}} if kind == "subscribe" else {}), **fields}
        self.records.append(
            SimpleNamespace(
                topic=f"lacuna.{kind}",
                partition=0,
                offset=sum(record.topic.endswith(f".{kind}") for record in self.records),
                timestamp=1000 * len(self.records),
                key=broker.encode(),
                value=json.dumps(value).encode(),
            )
        )

    def standing(self, now: int = 10**9, aliases: Mapping[str, str] = NO_ALIASES) -> list[Stands]:
        return list(judged(parse(CONFIG), sorted(self.records, key=lambda one: one.topic), now, aliases))


def test_what_was_cancelled_replaced_refused_or_has_expired() -> None:
    topics = Topics()
    topics.add("subscribe", "s1")
    topics.add("subscribe", "s2", ttl=3)
    topics.add("subscribe", "s3")  # beyond the limit
    topics.add("subscribe", "s4", broker="nowhere")
    topics.add("subscribe", "s5", "bob", "paris", where="x < 5")
    topics.add("subscribe", "s1", where={"x": [3, 4]})
    topics.add("subscribe", "s6", "bob", "paris")
    topics.add("unsubscribe", "s6", "bob", "paris")
    topics.add("subscribe", "s7")  # s2 has expired: there is room
    assert topics.standing() == [
        Stands("oslo", "ann", "s1", "1970-01-01T00:00:05Z", None, '{"x":[3,4]}'),
        Stands("oslo", "ann", "s7", "1970-01-01T00:00:08Z", None, '{"x":[1,2]}'),
        Stands("paris", "bob", "s5", "1970-01-01T00:00:04Z", None, '"x < 5"'),
    ]


def test_what_expires_is_shown_until_then() -> None:
    topics = Topics()
    topics.add("subscribe", "s1", ttl=60)
    assert [each.expires for each in topics.standing(1_000_000)] == ["1970-01-01T00:01:00Z"]
    assert topics.standing(60_000_000) == []


def test_clients_of_a_broker_that_is_gone_are_where_they_were_moved() -> None:
    topics = Topics()
    topics.add("subscribe", "s1", broker="berne")
    topics.add("subscribe", "s2", broker="berne")
    topics.add("unsubscribe", "s1", broker="paris")
    topics.add("unsubscribe", "s2", broker="berne")
    topics.add("subscribe", "s3", broker="berne")
    assert [(each.broker, each.subscription) for each in topics.standing(aliases={"berne": "paris"})] == [
        ("paris", "s3")
    ]


def test_times_do_not_go_back_within_a_partition() -> None:
    """A clock that was set back: the later offset is the later arrival, for this page as for the router."""
    topics = Topics()
    topics.add("subscribe", "s1", time="1970-01-01T00:00:01Z", where={"x": [1, 1]})
    topics.add("subscribe", "s1", time="1970-01-01T00:00:02Z", where={"x": [2, 2]})
    topics.records[0].timestamp = 9000
    assert [(each.since, each.filter) for each in topics.standing()] == [("1970-01-01T00:00:09Z", '{"x":[2,2]}')]


def test_the_command_shows_those_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = Topics()
    topics.add("subscribe", "s1")
    topics.add("subscribe", "s2", "bob", "paris")
    monkeypatch.chdir(tmp_path)
    Path("lacuna.toml").write_text(CONFIG)
    monkeypatch.setattr(module, "require_topics", lambda *_: None)
    spans = {(f"lacuna.{kind}", 0): Span(0, 1) for kind in ("subscribe", "unsubscribe")}
    monkeypatch.setattr(module, "topic_spans", lambda *_: spans)
    monkeypatch.setattr(module, "records_between", lambda *_: topics.records)
    monkeypatch.setattr(module, "ControlLog", lambda *_: SimpleNamespace(read=Prefix, close=lambda: None))
    assert main(["subscriptions"]) == 0
    assert "2 subscriptions stand" in capsys.readouterr().out
    assert main(["subscriptions", "--client", "bob", "--broker", "paris", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["subscription"] == "s2" and json.loads(line)["filter"] == {"x": [1, 2]}
    assert main(["subscriptions", "--client", "bob", "--broker", "oslo", "--json"]) == 0
    assert capsys.readouterr().out == ""
