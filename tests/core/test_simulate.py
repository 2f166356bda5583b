"""`lacuna simulate` and `lacuna produce` as programs: files in, files out, exit codes, messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lacuna.__main__ import main
from lacuna.simulate import Simulation
from state.config import parse
from state.storage.tables import TABLES
from state.strategies import STRATEGIES, Spec
from tests.core.oracle import Oracle
from tests.core.overlay import Received, spread_out

CONFIG = """
[space]
price = {kind = "float", low = 0.0, high = 1000.0}
volume = {kind = "int", low = 0, high = 100000}
symbol = {kind = "category", values = ["AAPL", "IBM", "MSFT"]}
seen = {kind = "timestamp", low = "2026-01-01T00:00:00Z", high = "2027-01-01T00:00:00Z"}
[overlay]
links = [["oslo", "paris"], ["paris", "rome"], ["paris", "wien"]]
"""
AT = {"price": 12.5, "volume": 150, "symbol": "IBM", "seen": "2026-05-01T00:00:00Z"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lacuna.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, *events: dict[str, Any] | str) -> None:
    path.write_text("".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in events))


def subscribe(broker: str, id: str, client: str = "ann", **more: Any) -> dict[str, Any]:
    return {"kind": "subscribe", "broker": broker, "id": id, "client": client, "where": {}, **more}


def publish(broker: str, id: str, **more: Any) -> dict[str, Any]:
    return {"kind": "publish", "broker": broker, "id": id, "at": AT, **more}


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{table}.jsonl").read_text().splitlines()]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main([*args, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_first_tour(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        here / "events.jsonl",
        subscribe("oslo", "s1", where={"price": [10, 20]}),
        subscribe("oslo", "s2", "bob", where={"price": [11, 12], "symbol": ["IBM"]}),
        publish("wien", "p1"),
        {"kind": "unsubscribe", "broker": "oslo", "id": "s1", "client": "ann"},
        publish("rome", "p2", at=AT | {"price": 11.5}),
    )
    summary = run(capsys, "simulate", "events.jsonl", "--out", "out")
    assert summary["deliveries"] == 2
    assert summary["actions"] == {"forward": 3, "withhold": 3, "promote": 3, "cancel": 3, "drop": 0}
    assert summary["subscription_messages"] == 9, "paris withholds s2 until s1 is cancelled there too"
    assert [
        (r["client"], r["subscription"], r["publication"], r["batch"]) for r in rows(here / "out", "deliveries")
    ] == [
        ("ann", "s1", "p1", 3),
        ("bob", "s2", "p2", 5),
    ]


def test_columns_are_those_of_the_tables(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "produce", "churn", "--out", "events.jsonl", "--subscriptions", "50", "--publications", "50")
    with (here / "events.jsonl").open("a") as file:
        file.write("not json\n")
    run(capsys, "simulate", "events.jsonl", "--out", "out")
    for table, (_, columns, *_) in TABLES.items():
        found = rows(here / "out", table)
        assert found, table
        assert all(list(row) == [column.name for column in columns] for row in found), table


def test_rejects_name_the_rule_and_the_stream_goes_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        here / "events.jsonl",
        "{",
        subscribe("oslo", "s1"),
        subscribe("nowhere", "s2"),
        "",
        publish("oslo", "p1", at=AT | {"volume": 1.5}),
        publish("rome", "p2"),
    )
    summary = run(capsys, "simulate", "events.jsonl", "--out", "out")
    assert summary["rejects"] == 3 and summary["deliveries"] == 1
    assert [(r["rule"], r["offset"], r["batch"]) for r in rows(here / "out", "rejects")] == [
        ("json", 0, 1),
        ("broker", 2, 3),
        ("fraction", 4, 5),
    ]


def test_an_object_of_many_boxes_is_delivered_exactly(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sets that multiply to 8,000 boxes travel as a more general filter; the client's broker looks at all of it."""
    values = [f"v{k}" for k in range(40)]
    space = "".join(f'{name} = {{kind = "category", values = {json.dumps(values)}}}\n' for name in "abc")
    (here / "lacuna.toml").write_text(f'[space]\n{space}[overlay]\nlinks = [["oslo", "paris"], ["paris", "rome"]]\n')
    points = [[a, b, c] for a in values[:4] for b in values[:4] for c in values[-4:]]
    write(
        here / "events.jsonl",
        subscribe("oslo", "s1", where=dict.fromkeys("abc", values[::2])),
        *(publish("rome", " ".join(at), at=dict(zip("abc", at, strict=True))) for at in points),
    )
    summary = run(capsys, "simulate", "events.jsonl", "--out", "out")
    assert summary["rejects"] == 0
    got = [row["publication"] for row in rows(here / "out", "deliveries")]
    assert got == [" ".join(at) for at in points if all(value in values[::2] for value in at)]
    assert all(row["boxes"] <= 64 for row in rows(here / "out", "decisions"))


@pytest.mark.parametrize("workload", ["uniform", "zipf", "clustered", "churn"])
def test_all_strategies_deliver_what_the_oracle_says(
    workload: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ("--subscriptions", "150", "--publications", "200")
    run(capsys, "produce", workload, "--out", "events.jsonl", *sizes)
    oracle = Oracle({"symbol"})
    expected = []
    for number, line in enumerate((here / "events.jsonl").read_text().splitlines(), 1):
        expected += [(number, *delivery) for delivery in oracle.take(json.loads(line))]
    for strategy in STRATEGIES:
        record = Received()
        with (here / "events.jsonl").open("rb") as lines:
            Simulation(parse(CONFIG).with_strategy(Spec(strategy)), record).quiet(lines)
        assert sorted(delivery[:-1] for delivery in record.deliveries) == sorted(expected), strategy
    run(capsys, "simulate", "events.jsonl", "--out", "out")
    columns = ("batch", "broker", "client", "subscription", "publication")
    assert sorted(tuple(row[c] for c in columns) for row in rows(here / "out", "deliveries")) == sorted(expected)
    batches = [row["batch"] for row in rows(here / "out", "routes")]
    assert batches == sorted(batches)


def test_same_input_same_bytes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "produce", "churn", "--out", "events.jsonl", "--subscriptions", "80", "--publications", "80")
    for out in ("one", "two"):
        run(capsys, "simulate", "events.jsonl", "--out", out)
        run(capsys, "simulate", "events.jsonl", "--out", f"{out}-seeded", "--seed", "5")
    run(capsys, "simulate", "events.jsonl", "--out", "other-seed", "--seed", "6")
    for table in TABLES:
        files = [
            here / folder / f"{table}.jsonl" for folder in ("one", "two", "one-seeded", "two-seeded", "other-seed")
        ]
        one, two, seeded, seeded_again, other = (file.read_bytes() for file in files)
        assert one == two
        assert seeded == seeded_again
        if table == "decisions":
            assert seeded != other, "another seed is another interleaving"


def test_strategy_as_a_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "events.jsonl", subscribe("oslo", "s1"))
    assert run(capsys, "simulate", "events.jsonl", "--strategy", '{name = "union", budget = 7}')["strategy"] == (
        "union budget=7"
    )


def test_time_to_live_follows_the_events_clock(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        here / "events.jsonl",
        subscribe("oslo", "s1", ttl=60, time="2026-01-01T00:00:00Z"),
        publish("rome", "p1", time="2026-01-01T00:00:59Z"),
        publish("rome", "p2", time="2026-01-01T00:01:00Z"),
        publish("rome", "p3"),
    )
    run(capsys, "simulate", "events.jsonl", "--out", "out")
    assert [row["publication"] for row in rows(here / "out", "deliveries")] == ["p1"]
    cancels = [row for row in rows(here / "out", "decisions") if row["action"] == "cancel"]
    assert len(cancels) > 1, "also on links farther away"
    assert {(row["reason"], row["batch"]) for row in cancels} == {("expired", 3)}


SEED: list[list[str]] = [[], ["--seed", "3"]]
UNSUBSCRIBE = {"kind": "unsubscribe", "broker": "oslo", "id": "s1", "client": "ann"}


@pytest.mark.parametrize("seed", SEED)
def test_the_first_time_in_a_file_is_no_leap_of_the_clock(
    seed: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unsubscribe overtakes its subscribe; neither says when. Others do, and something ends in between."""
    write(
        here / "events.jsonl",
        UNSUBSCRIBE | {"rev": 2},
        subscribe("oslo", "t", "bob", where={"volume": [0, 0]}, time="2026-01-01T00:00:00Z", ttl=1),
        publish("oslo", "p1", time="2026-01-01T00:00:02Z"),
        subscribe("oslo", "s1", rev=1),
        publish("oslo", "p2"),
    )
    assert run(capsys, "simulate", "events.jsonl", *seed)["deliveries"] == 0


@pytest.mark.parametrize("first", ["1960-01-01T00:00:", "1970-01-01T00:00:", "2026-01-01T00:00:"])
def test_what_comes_before_the_first_time_happens_then(
    first: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A time to live that begins before any time is known; 1970 is a time like any other."""
    write(
        here / "events.jsonl",
        subscribe("oslo", "s1", ttl=10),
        publish("oslo", "p0"),
        publish("oslo", "p1", time=f"{first}00Z"),
        publish("oslo", "p2", time=f"{first}09Z"),
        publish("oslo", "p3", time=f"{first}10Z"),
    )
    run(capsys, "simulate", "events.jsonl", "--out", "out")
    assert [row["publication"] for row in rows(here / "out", "deliveries")] == ["p0", "p1", "p2"]
    assert [row["time"] for row in rows(here / "out", "deliveries")][:2] == ["1970-01-01T00:00:00Z", f"{first}00Z"]


def test_a_time_is_read_however_its_name_is_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timed = json.dumps(publish("oslo", "p1", time="2026-01-01T00:00:00Z")).replace('"time"', r'"\u0074ime"')
    write(here / "events.jsonl", subscribe("oslo", "s1", ttl=10), timed + "\n", publish("oslo", "p2"))
    assert run(capsys, "simulate", "events.jsonl")["deliveries"] == 2


def test_an_event_that_only_mentions_a_time_has_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The clock begins with the first `time`: what came before has not ended by then."""
    write(
        here / "events.jsonl",
        subscribe("oslo", "s1", ttl=10),
        publish("oslo", "p1", payload={"time": "2025-01-01T00:00:00Z", "path": "a\\b"}),
        publish("oslo", "p2", time="2026-01-01T00:00:00Z"),
    )
    assert run(capsys, "simulate", "events.jsonl")["deliveries"] == 2


def test_work_that_waits_at_the_end_of_a_file_is_finished(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many lean on one that ends with the last line; in each step only one of them is decided again."""
    spread_out(monkeypatch)
    inside = [subscribe("oslo", f"s{k}", where={"volume": [10 * k, 10 * k + 5]}) for k in range(9)]
    write(here / "events.jsonl", subscribe("oslo", "wide"), *inside, UNSUBSCRIBE | {"id": "wide"})
    for seed in SEED:
        summary = run(capsys, "simulate", "events.jsonl", *seed)
        assert [summary[action] for action in ("withhold", "promote", "cancel")] == [27, 27, 3]


def test_a_cancellation_is_forgotten_when_its_time_has_passed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "lacuna.toml").write_text(CONFIG + "[routing]\nremember = 60\n")
    for seconds, deliveries in ((59, 0), (60, 1)):
        write(
            here / "events.jsonl",
            UNSUBSCRIBE | {"rev": 2},
            publish("oslo", "p0", time="2026-01-01T00:00:00Z"),
            publish("oslo", "p1", time=f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z"),
            subscribe("oslo", "s1", rev=1),
            publish("oslo", "p2"),
        )
        assert run(capsys, "simulate", "events.jsonl")["deliveries"] == deliveries


def test_what_is_cancelled_leaves_no_state_when_its_time_has_passed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "lacuna.toml").write_text(CONFIG + "[routing]\nremember = 60\n")
    begin, later = (publish("oslo", f"p{k}", time=f"2026-01-01T00:0{k}:00Z") for k in range(2))
    pairs = (pair for k in range(500) for pair in (subscribe("oslo", f"s{k}"), UNSUBSCRIBE | {"id": f"s{k}"}))
    write(here / "events.jsonl", begin)
    empty = run(capsys, "simulate", "events.jsonl")["state_bytes"]
    write(here / "events.jsonl", begin, *pairs)
    assert run(capsys, "simulate", "events.jsonl")["state_bytes"] > empty + 500
    for seed in SEED:
        write(here / "events.jsonl", begin, *pairs, later)
        assert run(capsys, "simulate", "events.jsonl", *seed)["state_bytes"] == empty


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["simulate", "missing.jsonl"], "missing.jsonl"),
        (["simulate", "events.jsonl", "--out", "lacuna.toml"], "--out = 'lacuna.toml': this is a file"),
        (["simulate", "events.jsonl", "--config", "missing.toml"], "missing.toml: there is no such file. Remedy"),
        (["simulate", "events.jsonl", "--strategy", "magic"], "'magic': no such strategy. Remedy: choose one of flood"),
        (["simulate", "events.jsonl", "--strategy", "{name = "], "is not a TOML table"),
        (["simulate", "events.jsonl", "--strategy", '{name = "union", budget = 0}'], "at least 1"),
        (["simulate", "events.jsonl", "--strategy", f'{{name = "union", budget = 1{"0" * 5000}}}'], "4,000 digits"),
        (["simulate", "events.jsonl", "--strategy", f'{{name = "union", budget = {"[" * 3000}'], "nested too deeply"),
        (["simulate", "events.jsonl", "--strategy", "{k = 3}"], "{'k': 3}: this table does not name a strategy"),
        (["simulate", "events.jsonl", "--config", "cycle.toml"], "closes a cycle. Remedy"),
        (["produce", "zipf", "--out", "no/such/folder/f"], "No such file"),
        (["produce", "zipf", "--out", "f", "--seed", "-1"], "seed = -1: a seed is not negative. Remedy"),
    ],
)
def test_one_clear_message_and_an_exit_code(
    args: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "events.jsonl", subscribe("oslo", "s1"))
    (here / "cycle.toml").write_text(CONFIG.replace('["paris", "wien"]', '["rome", "oslo"]'))
    assert main(args) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and error.count("\n") == 1


def test_what_an_earlier_run_wrote_stays_if_there_are_no_events(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "events.jsonl", subscribe("oslo", "s1"))
    run(capsys, "simulate", "events.jsonl", "--out", "out")
    for missing in ("nowhere.jsonl", "out"):
        assert main(["simulate", missing, "--out", "out"]) == 2
        assert rows(here / "out", "decisions")


def test_a_byte_order_mark_before_the_configuration_is_no_part_of_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "lacuna.toml").write_text(CONFIG, encoding="utf-8-sig")
    write(here / "events.jsonl", subscribe("oslo", "s1"))
    assert run(capsys, "simulate", "events.jsonl")["events"] == 1


def test_installed_program(here: Path) -> None:
    """The console script, in a process of its own, reading standard input."""
    program = Path(sys.executable).parent / "lacuna"
    events = json.dumps(subscribe("oslo", "s1")) + "\n" + json.dumps(publish("rome", "p1")) + "\n"
    done = subprocess.run(
        [program, "simulate", "-", "--json"], input=events, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["deliveries"] == 1
    helped = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    assert "simulate" in helped.stdout and "produce" in helped.stdout


def test_the_import_names_are_ours() -> None:
    """Another distribution imports as `streaming` too; the sealed environment must not have it."""
    import access
    import bench
    import producers
    import state
    import streaming

    root = Path(__file__).parents[2]
    assert {Path(str(m.__file__)).parents[1] for m in (access, bench, producers, state, streaming)} == {root}


# What a person is told


@pytest.mark.parametrize("workload", ["churn", "zipf"])
def test_what_flooding_would_have_cost_is_what_flooding_costs(
    workload: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (workload, "--subscriptions", "60", "--publications", "20", "--out", "w.jsonl")
    run(capsys, "produce", *words)
    ends = [subscribe("oslo", f"t{k}", ttl=5, time="2026-05-01T00:00:00Z") for k in range(3)]
    late = publish("rome", "p", time="2026-05-02T00:00:00Z")
    again = subscribe("oslo", "t0", ttl=9, time="2026-05-01T00:00:01Z")  # a renewal: nothing is sent
    with Path("w.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in (*ends, again, late))
    flood = run(capsys, "simulate", "w.jsonl", "--strategy", "flood")
    union = run(capsys, "simulate", "w.jsonl", "--strategy", "union")
    assert flood["flooded_messages"] == flood["subscription_messages"] == union["flooded_messages"]
    assert union["subscription_messages"] < union["flooded_messages"]


def test_the_screen_shows_savings_rejects_by_rule_and_cancellations_in_vain(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        here / "events.jsonl",
        subscribe("oslo", "s1"),
        subscribe("oslo", "s2", "bob"),
        subscribe("oslo", "s3", where={"price": [5, 1]}),
        subscribe("oslo", "s4", where={"prise": [1, 5]}),
        subscribe("oslo", "s5", where={"prise": [1, 5]}),
        {"kind": "unsubscribe", "broker": "oslo", "id": "s9", "client": "ann"},
    )
    assert main(["simulate", "events.jsonl", "--out", "out"]) == 0
    shown = capsys.readouterr().out
    assert "3 instead of 6 by flooding (50% saved)" in shown
    assert "3 (2 attribute, 1 inverted)" in shown
    assert any(line.split()[1:4] == ["cancelled", "in", "vain"] and "1" in line for line in shown.splitlines())
    assert "did you mean 'price'?" in rows(here / "out", "rejects")[-1]["message"]


@pytest.mark.parametrize("content", ["just\nsome\ntext\n", "a,b,c\n1,2,3\n", "[1, 2]\n", "\x00\x01\n"])
def test_a_file_without_events_is_refused_before_anything_is_replaced(
    content: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "events.jsonl", subscribe("oslo", "s1"))
    run(capsys, "simulate", "events.jsonl", "--out", "out")
    before = rows(here / "out", "decisions")
    (here / "other.txt").write_text(content)
    assert main(["simulate", "other.txt", "--out", "out"]) == 2
    assert "other.txt: this is no events file: line 1 is" in capsys.readouterr().err
    assert rows(here / "out", "decisions") == before


def test_what_goes_beyond_the_limits_is_a_reject_and_others_get_theirs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = "[limits]\nsubscriptions_per_client = 1\nboxes_per_subscription = 2\n"
    (here / "lacuna.toml").write_text(CONFIG + limited)
    write(
        here / "events.jsonl",
        subscribe("oslo", "s1"),
        subscribe("oslo", "s2"),
        subscribe("rome", "s3", where="price < 1 OR price BETWEEN 2 AND 3 OR price > 4"),
        subscribe("oslo", "s4", "bob"),
        subscribe("rome", "s5"),
        publish("wien", "p1"),
    )
    assert run(capsys, "simulate", "events.jsonl", "--out", "out")["rejects"] == 2
    assert [(r["rule"], r["batch"]) for r in rows(here / "out", "rejects")] == [("quota", 2), ("quota", 3)]
    assert {r["subscription"] for r in rows(here / "out", "deliveries")} == {"s1", "s4", "s5"}
