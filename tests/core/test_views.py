"""The views over the tables answer in DuckDB what a brute-force look at the events answers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lacuna.analysis.duck import Duck, Mistake, NotPlain
from lacuna.analysis.views import DUCKDB, views
from state.config import Config, parse
from state.errors import LacunaError
from state.protocol.messages import LOCAL
from tests.core.lakes import write_lake
from tests.core.shell import Shell

CONFIG = """
[space]
price = { kind = "float", low = 0.0, high = 1000.0 }
volume = { kind = "int", low = 0, high = 1000 }
"the symbol" = { kind = "category", values = ["IBM", "MSFT", "SAP"] }
seen = { kind = "timestamp", low = "2026-01-01T00:00:00Z", high = "2027-01-01T00:00:00Z" }
[overlay]
links = [["oslo", "paris"], ["paris", "rome"]]
"""
SYMBOL = "the symbol"
AT = {"price": 12.5, "volume": 150, SYMBOL: "IBM", "seen": "2026-05-01T00:00:00Z"}


def subscribe(broker: str, client: str, id: str, where: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "subscribe", "broker": broker, "client": client, "id": id, "where": where, **more}


def publish(broker: str, id: str, **at: Any) -> dict[str, Any]:
    return {"kind": "publish", "broker": broker, "id": id, "at": AT | at, "payload": "four"}


EVENTS = [
    subscribe("oslo", "ann", "s1", {"price": [10, 20]}),
    subscribe("oslo", "bob", "s1", {"price": [12, 15], SYMBOL: ["IBM", "SAP"]}),
    subscribe("oslo", "cat", "s2", "price > 900", ttl=3600),
    subscribe("rome", "dan", "s3", {"seen": ["2026-06-01T00:00:00Z", None]}),
    {"kind": "unsubscribe", "broker": "oslo", "client": "cat", "id": "s2"},
    subscribe("oslo", "ann", "s1", {"price": [10, 20]}),
    publish("rome", "p1"),
    publish("rome", "p1", **{SYMBOL: "MSFT"}),
    publish("paris", "p2", price=500.0),
    subscribe("oslo", "bob", "s1", {"volume": [0, 9]}),
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    shell = Shell(parse(CONFIG), regions=(("oslo", "paris"), ("rome",)))
    for event in EVENTS:
        shell.send(event)
        shell.settle()
    return write_lake(shell, tmp_path_factory.mktemp("views"))


@pytest.fixture(scope="module")
def duck(config: Config) -> Duck:
    return Duck(config)


def rows(duck: Duck, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in duck.query(statement).read_all().to_pylist()]


def test_every_view_is_there(duck: Duck, config: Config) -> None:
    for view in views(config, DUCKDB):
        assert rows(duck, f"SELECT * FROM {view}"), view


def test_links_know_who_is_behind_them(duck: Duck) -> None:
    assert rows(duck, "SELECT behind, strategy FROM links WHERE broker = 'oslo'") == [(["paris", "rome"], "auto")]
    assert len(rows(duck, "SELECT * FROM links")) == 4


def test_standing_is_what_each_client_has_now(duck: Duck) -> None:
    found = rows(duck, "SELECT client, subscription, change, filter FROM standing ORDER BY client")
    assert found == [
        ("ann", "s1", "renew", '{"price":[10,20]}'),
        ("bob", "s1", "replace", '{"volume":[0,9]}'),
        ("dan", "s3", "subscribe", '{"seen":["2026-06-01T00:00:00Z",null]}'),
    ]
    [(expires,)] = rows(
        duck, "SELECT expires - arrived FROM subscriptions WHERE client = 'cat' AND change = 'subscribe'"
    )
    assert expires == timedelta(hours=1)


def test_boxes_and_points_have_typed_fields(duck: Duck) -> None:
    [(price, volume, symbol)] = rows(
        duck, """SELECT point.price, point.volume, point."the symbol" FROM publications WHERE publication = 'p2'"""
    )
    assert (price, volume, symbol) == (500.0, 150, "IBM")
    [(boxes,)] = rows(duck, "SELECT boxes FROM subscriptions WHERE client = 'bob' AND change = 'subscribe'")
    sides = {"price": {"low": 12.0, "high": 15.0}, "volume": None, "seen": None}
    assert boxes == [sides | {SYMBOL: ["IBM"]}, sides | {SYMBOL: ["SAP"]}]


def test_why_not_names_the_attribute_that_excludes_it(duck: Duck) -> None:
    """Two publications have one id, and two clients use one id: keys and names tell them apart."""
    asked = "SELECT client, attribute, value, asked, matches FROM why_not WHERE publication_key = '0:{}' ORDER BY ALL"
    ends = "2026-06-01T00:00:00Z to 2027-01-01T00:00:00Z"
    dan = ("dan", "seen", "2026-05-01T00:00:00Z", ends, False)
    assert rows(duck, asked.format(0)) == [
        ("ann", None, None, None, True),
        ("bob", None, None, None, True),
        dan,
    ]
    assert rows(duck, asked.format(1)) == [
        ("ann", None, None, None, True),
        ("bob", SYMBOL, "MSFT", "IBM", False),
        ("bob", SYMBOL, "MSFT", "SAP", False),
        dan,
    ]
    delivered = "SELECT DISTINCT publication_key, broker, client, subscription FROM {} {} ORDER BY ALL"
    matched = rows(duck, delivered.format("why_not", "WHERE matches"))
    assert matched == rows(duck, delivered.format("deliveries", "")) and len(matched) == 3


def test_why_shows_who_covers_it_and_what_they_ask_for(duck: Duck) -> None:
    found = rows(
        duck,
        "SELECT filter, coverer_client, coverer_subscription, coverer_filter FROM why "
        "WHERE broker = 'oslo' AND client = 'bob' AND action = 'withhold'",
    )
    assert found == [('{"price":[12,15],"the symbol":["IBM","SAP"]}', "ann", "s1", '{"price":[10,20]}')]


def test_savings_are_against_flooding(duck: Duck) -> None:
    found = rows(duck, "SELECT broker, link, messages, flooded, saved FROM savings ORDER BY broker, link")
    changes = 5  # those of oslo's clients that are no renewals
    oslo = next(row for row in found if row[:2] == ("oslo", "paris"))
    assert oslo[3] == changes and oslo[4] == changes - oslo[2] == 1
    assert {row[:2]: row[3] for row in found} == {
        ("oslo", "paris"): changes,
        ("paris", "oslo"): 1,
        ("paris", "rome"): changes,
        ("rome", "paris"): 1,
    }


def test_latency_is_a_subtraction(duck: Duck) -> None:
    found = rows(duck, "SELECT what, sender, receiver, hop, times FROM latency ORDER BY what, sender, receiver")
    assert ("end to end", "rome", "oslo", 2, 3) in found
    assert ("one hop", "rome", "paris", 1, 2) in found and ("one hop", "paris", "oslo", 2, 2) in found
    assert rows(duck, "SELECT count(*) FROM latency WHERE p50 < 0 OR p99 > longest") == [(0,)]


def test_hot_links_carry_the_most(duck: Duck) -> None:
    found = rows(duck, "SELECT broker, link, forwarded, came FROM hot_links")
    assert found[0][2] == max(row[2] for row in found) == 2
    assert {row[:2]: row[2] for row in found} == {(a, b): n for b, a, _, n in found if b != LOCAL}


# Which statements are answered here


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT coverers[0] FROM decisions",
        "SELECT CAST(hop AS STRING) FROM routes",
        "SELECT size(coverers) FROM decisions",
        "SELECT explode(coverers) FROM decisions",
        "DESCRIBE decisions",
        "SELEC 1",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM decisions USING SAMPLE 5",
        "SELECT INTERVAL 1.5 HOUR",
        "SELECT to_hours(hop) FROM routes",
        "SELECT trunc(1.5)",
        "SELECT CAST(seq AS TIMESTAMP) FROM routes",
        "SELECT EXTRACT(DOW FROM arrived) FROM routes",
    ],
)
def test_a_statement_that_may_mean_something_else_in_spark_is_left_to_spark(duck: Duck, statement: str) -> None:
    with pytest.raises(NotPlain):
        duck.query(statement)


@pytest.mark.parametrize(
    ("statement", "about"),
    [
        ("SELECT * FROM decision", "decision"),
        ("SELECT brokr FROM decisions", "brokr"),
        ("SELECT * FROM decisions VERSION AS OF 99", "as of 99"),
    ],
)
def test_a_mistake_is_one_line(duck: Duck, statement: str, about: str) -> None:
    with pytest.raises(Mistake, match=about) as caught:
        duck.query(statement)
    assert "\n" not in str(caught.value) and "Remedy" in str(caught.value)


def test_a_table_can_be_read_as_it_was(duck: Duck) -> None:
    now = rows(duck, "SELECT count(*) FROM routes")
    assert rows(duck, "SELECT count(*) FROM routes VERSION AS OF 1") == now != [(0,)]
    assert rows(duck, "SELECT count(*) FROM routes FOR SYSTEM_VERSION AS OF 0 WHERE hop >= 0") == [(0,)]
    text = "SELECT count(*) FROM routes WHERE action <> 'routes VERSION AS OF 0' -- routes VERSION AS OF 0"
    assert rows(duck, text) == now


def test_a_lake_without_tables_is_refused(tmp_path: Path, config: Config) -> None:
    with pytest.raises(LacunaError, match=r"there is no table subscriptions below it\. Remedy: run the job first"):
        Duck(parse(CONFIG + f'[lake]\npath = "{tmp_path}"\n'))
