"""The client library and its commands against a real Kafka: what is sent is there, what is delivered comes once.

One broker for the whole file, a prefix of its own for every test. The router is played by the test, which writes into
the deliveries topic what a router would, repeats included. Every wait is for a condition.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from access.control import ControlLog
from access.offsets import topic_spans
from access.topics import ensure_topics, partition_counts, prefixes
from lacuna.__main__ import main
from producers.client import Client
from producers.errors import EventRefused
from producers.produce import produce_to_kafka
from producers.sender import WINDOW
from producers.workloads import Workload
from state.config import Config, parse
from state.protocol.commands import COMMAND, Prune, Rebuild, read_command
from state.protocol.control import Claim, Life
from state.protocol.topics import Topic, Topics, read_topics
from tests.system.clients import AT, ROOT, Router, events_of, log_of, seqs

pytestmark = pytest.mark.system

# Topics


def test_topics_are_created_once(bootstrap: str) -> None:
    prefix = f"t{uuid.uuid4().hex[:12]}"
    created: list[list[str]] = []
    several = [threading.Thread(target=lambda: created.append(ensure_topics(bootstrap, prefix))) for _ in range(4)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    assert len(created) == 4, "one of them failed"
    assert sorted(topic for each in created for topic in each) == sorted(Topics(prefix).all)
    assert ensure_topics(bootstrap, prefix, {"deliveries": Topic(partitions=9)}) == []
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    described = admin.describe_topics(list(Topics(prefix).all))
    admin.close()
    counts = {topic["name"]: len(topic["partitions"]) for topic in described}
    assert counts.pop(Topics(prefix).deliveries) == 4
    assert set(counts.values()) == {1}


def test_numbers_of_partitions_are_chosen(bootstrap: str) -> None:
    prefix = f"t{uuid.uuid4().hex[:12]}"
    wanted = read_topics(
        {
            "subscribe": {"partitions": 2},
            "publish": {"partitions": 3, "retention": 7},
            "links": {"partitions": 3},
            "deliveries": {"partitions": 5},
            "records": {"partitions": 6},
        }
    )
    ensure_topics(bootstrap, prefix, wanted)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    described = admin.describe_topics(list(Topics(prefix).all))
    admin.close()
    counts = {topic["name"].split(".")[1]: len(topic["partitions"]) for topic in described}
    assert counts == {
        "subscribe": 2,
        "unsubscribe": 1,
        "publish": 3,
        "links": 3,
        "control": 1,
        "deliveries": 5,
        "notices": 1,
        "records": 6,
    }
    assert partition_counts(bootstrap, prefix) == counts


def test_what_kafka_refuses_to_create_is_one_message(bootstrap: str) -> None:
    with pytest.raises(Exception, match=r"topic 't9\.publish': Kafka at .* did not create it: .*Remedy: ") as error:
        ensure_topics(bootstrap, "t9", {"publish": Topic(replication=3)})
    assert "\n" not in str(error.value)


# Sending


def test_round_trip_of_every_kind(config: Config) -> None:
    with Client(config, broker="oslo", name="ann") as ann, Client(config, broker="rome", name="bob") as bob:
        sent = [
            ann.subscribe("s1", {"price": [10, 20], "symbol": ["IBM"]}, ttl=60),
            bob.subscribe("s1", {}),
            ann.unsubscribe("s1"),
            bob.publish("p1", AT, payload={"any": ["thing", None]}),
            bob.publish("p2", AT),
        ]
        ann.flush()
        bob.flush()
        places = [each.place() for each in sent]
    topics = Topics(config.kafka.prefix)
    written = [
        (r.topic, r.partition, r.offset, r.value) for topic in topics.events for r in log_of(config.kafka, topic)
    ]
    assert sorted(written) == sorted((*place, each.value) for place, each in zip(places, sent, strict=True))
    subscribes, unsubscribes = events_of(config, "subscribe"), events_of(config, "unsubscribe")
    assert {(broker, event["client"], event["id"]) for broker, event in subscribes} == {
        ("oslo", "ann", "s1"),
        ("rome", "bob", "s1"),
    }
    asked = next(event for broker, event in subscribes if broker == "oslo")
    assert unsubscribes[0][1]["rev"] > asked["rev"], "topics cannot overtake each other"
    assert [event.get("payload") for _, event in events_of(config, "publish")] == [{"any": ["thing", None]}, None]
    assert all("time" in event for _, event in subscribes + unsubscribes)


def test_what_is_refused_is_not_sent(config: Config) -> None:
    with Client(config, broker="oslo", name="ann") as ann:
        with pytest.raises(EventRefused, match="the low end of a range is not above its high end"):
            ann.subscribe("s1", {"price": [20, 10]})
        ann.subscribe("s2", {})
    assert [event["id"] for _, event in events_of(config, "subscribe")] == ["s2"]


def test_threads_share_a_client(config: Config) -> None:
    with Client(config, broker="oslo", name="ann") as ann:

        def change() -> None:
            for _ in range(50):
                ann.subscribe("s1", {})

        threads = [threading.Thread(target=change) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    revisions = [event["rev"] for _, event in events_of(config, "subscribe")]
    assert len(revisions) == 200
    assert revisions == sorted(set(revisions)), "in the log in the order of their revisions"


# Deliveries


def test_deliveries_come_once(config: Config, router: Router) -> None:
    router.deliver("ann", 1, 4, 5)
    router.deliver("bob", 2, 3)
    router.deliver("ann", 4, 5, 9)  # a crash, and again
    router.deliver("ann", 1, 2, channel="rome>local")
    router.deliver("ann", 1, epoch=8)
    router.deliver("ann", 9, 9)
    with Client(config, broker="oslo", name="ann") as ann:
        found = list(ann.deliveries(from_beginning=True, timeout=1))
    assert [(d.epoch, d.channel, d.seq) for d in found] == [
        *((7, "oslo>local", seq) for seq in (1, 4, 5, 9)),
        *((7, "rome>local", seq) for seq in (1, 2)),
        (8, "oslo>local", 1),
    ]
    first = found[0]
    assert (first.client, first.subscription, first.publication, first.broker) == ("ann", "s1", "p1", "oslo")
    assert (first.at, first.payload, first.time) == (AT, {"n": 1}, "2026-05-01T00:00:00Z")


def test_what_is_not_the_routers_is_passed_over_and_the_rest_is_heard(config: Config, router: Router) -> None:
    """An impossible number, an epoch that was never announced, and a router that was succeeded."""
    kafka = config.kafka
    with ControlLog(kafka.bootstrap, kafka.prefix) as control, Client(config, broker="oslo", name="ann") as ann:
        term = control.append("claim/a", Claim(None, "a", "c"))
        control.append("life/7", Life(term, 7, "first"))
        router.deliver("ann", 1, 2**40, 2)
        router.deliver("ann", 3, epoch=9)
        spans = topic_spans(kafka.bootstrap, [Topics(kafka.prefix).deliveries])
        ends = {"deliveries": {str(number): span.next for (_, number), span in spans.items()}}
        control.append("life/8", Life(term, 8, "apply", ends))
        router.deliver("ann", 4)
        router.deliver("ann", 1, epoch=8)
        found = list(ann.deliveries(from_beginning=True, timeout=1, bookmark="desk"))
        router.deliver("ann", 1, 2, epoch=8)
        again = list(ann.deliveries(timeout=1, bookmark="desk"))
    assert [(d.epoch, d.seq) for d in found] == [(7, 1), (7, 2), (8, 1)]
    assert [(d.epoch, d.seq) for d in again] == [(8, 2)]


def test_from_now_on(config: Config, router: Router) -> None:
    router.deliver("ann", 1, 2)
    with Client(config, broker="oslo", name="ann") as ann:
        deliveries = ann.deliveries(timeout=30)
        router.deliver("ann", 3)
        assert next(deliveries).seq == 3
        router.deliver("ann", 4)
        assert next(deliveries).seq == 4


def test_other_clients_do_not_keep_a_reader_waiting(config: Config, router: Router) -> None:
    ended = threading.Event()

    def chatter() -> None:
        seq = 0
        while not ended.is_set():
            seq += 1
            router.deliver("bob", seq)

    thread = threading.Thread(target=chatter)
    with Client(config, broker="oslo", name="ann") as ann:
        thread.start()
        try:
            assert list(ann.deliveries(timeout=1)) == []
        finally:
            ended.set()
            thread.join()


def test_what_is_no_delivery_is_passed_over(config: Config, router: Router, caplog: pytest.LogCaptureFixture) -> None:
    router.deliver("ann", 1)
    for value in (b"not json", b"{}", b"\xff"):
        router.write("ann", value)
    router.deliver("ann", 2)
    with Client(config, broker="oslo", name="ann") as ann:
        assert seqs(ann.deliveries(from_beginning=True, timeout=1)) == [1, 2]
    assert sum("not a delivery" in record.message for record in caplog.records) == 3


def test_a_bookmark_goes_on_where_it_was(config: Config, router: Router) -> None:
    router.deliver("ann", 1, 2, 3)

    def take(count: int, *, client: str = "ann") -> list[int]:
        with Client(config, broker="oslo", name=client) as reader:
            deliveries = reader.deliveries(from_beginning=True, bookmark="desk", timeout=1)
            return [delivery.seq for _, delivery in zip(range(count), deliveries, strict=False)]

    assert take(2) == [1, 2]
    router.deliver("ann", 2, 3, 4)  # the router crashed while nobody listened
    router.deliver("bob", 1)
    assert take(9) == [3, 4]
    assert take(9) == []
    assert take(9, client="bob") == [1], "a bookmark of the same name is another client's own"


def test_a_bookmark_remembers_where_it_began(config: Config, router: Router) -> None:
    router.deliver("ann", 1)
    with Client(config, broker="oslo", name="ann") as ann:
        assert seqs(ann.deliveries(bookmark="desk", timeout=0.3)) == []
    router.deliver("ann", 2)
    with Client(config, broker="oslo", name="ann") as ann:
        assert seqs(ann.deliveries(bookmark="desk", timeout=1)) == [2]


def test_a_reader_that_fails_gets_its_delivery_again(config: Config, router: Router) -> None:
    router.deliver("ann", 1, 2, 3)
    with (
        pytest.raises(ZeroDivisionError),
        Client(config, broker="oslo", name="ann") as ann,
        ann.deliveries(from_beginning=True, bookmark="desk", timeout=5) as deliveries,
    ):
        for delivery in deliveries:
            if delivery.seq == 2:
                raise ZeroDivisionError
    with Client(config, broker="oslo", name="ann") as ann:
        assert seqs(ann.deliveries(bookmark="desk", timeout=1)) == [2, 3]


def test_a_reader_can_be_stopped(config: Config) -> None:
    with Client(config, broker="oslo", name="ann") as ann:
        deliveries = ann.deliveries()
        stopper = threading.Timer(0.2, deliveries.stop)
        stopper.start()
        assert list(deliveries) == []
        stopper.join()


# A workload


@pytest.mark.parametrize("name", ["zipf", "churn"])
def test_a_workload_arrives_whole(config: Config, name: str) -> None:
    workload = Workload(name, 300, 700)
    told: list[int] = []
    summary = produce_to_kafka(config, workload, progress=told.append)
    expected: dict[str, list[tuple[str, str]]] = {"subscribe": [], "unsubscribe": [], "publish": []}
    for event in workload.events(config):
        expected[event["kind"]].append((event["broker"], event["id"]))
    revisions: dict[str, list[int]] = {}
    for kind in expected:
        found = events_of(config, kind)  # type: ignore[arg-type]
        assert [(broker, event["id"]) for broker, event in found] == expected[kind]
        assert summary[kind] == len(found)
        revisions[kind] = [event["rev"] for _, event in found if kind != "publish"]
    everything = revisions["subscribe"] + revisions["unsubscribe"]
    assert len(set(everything)) == len(everything)
    assert told[-1] == workload.total
    assert told == sorted(told)


def test_a_rate_is_kept(config: Config) -> None:
    workload = Workload("uniform", 10, 190, cancelled=0.0)
    summary = produce_to_kafka(config, workload, rate=100)
    assert 1.9 < summary["seconds"] < 20, "200 events at 100 per second"
    times = sorted(event["time"] for _, event in events_of(config, "publish"))
    assert times[0] < times[-1]


def test_more_than_the_window_is_sent(config: Config) -> None:
    workload = Workload("uniform", 0, WINDOW + 2000)
    assert produce_to_kafka(config, workload)["publish"] == WINDOW + 2000
    assert len(log_of(config.kafka, Topics(config.kafka.prefix).publish)) == WINDOW + 2000


def test_the_largest_event_that_the_rules_allow_gets_through(config: Config) -> None:
    with Client(config, broker="oslo", name="ann") as ann:
        ann.subscribe("s1", {"symbol": ["IBM"] * 49_000})
        ann.publish("p1", AT, payload="x" * 65_000)
    assert len(events_of(config, "subscribe")[0][1]["where"]["symbol"]) == 49_000


# The commands


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_one_liners(config: Config, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    ann = ("--config", file, "--broker", "oslo", "--client", "ann", "--id", "s1")
    first = run(capsys, "subscribe", *ann, "--where", '{"price": [10, null]}', "--ttl", "60")
    then = run(capsys, "unsubscribe", *ann)
    point = ("--config", file, "--broker", "rome", "--at", json.dumps(AT))
    named = run(capsys, "publish", *point, "--id", "p1", "--payload", '{"a": 1}')
    unnamed = run(capsys, "publish", *point, "--payload", "hello")
    assert (first["kind"], first["broker"], first["offset"]) == ("subscribe", "oslo", 0)
    assert first["event"]["where"] == {"price": [10, None]}
    assert then["event"]["rev"] > first["event"]["rev"]
    assert events_of(config, "subscribe") == [("oslo", first["event"])]
    assert events_of(config, "unsubscribe") == [("oslo", then["event"])]
    assert events_of(config, "publish") == [("rome", named["event"]), ("rome", unnamed["event"])]
    assert [event["event"]["payload"] for event in (named, unnamed)] == [{"a": 1}, "hello"]
    assert unnamed["event"]["id"]
    assert main(["publish", *point, "--id", "p9"]) == 0
    assert capsys.readouterr().out.startswith("publish p9 at rome: ")


def test_a_rebuild_is_asked_for_on_the_links(
    config: Config, file: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = run(capsys, "rebuild", "--config", file)
    (record,) = log_of(config.kafka, asked["topic"])
    assert (asked["asked"], asked["topic"]) == (True, Topics(config.kafka.prefix).control)
    assert record.key.startswith(COMMAND.encode()) and read_command(record.value, ()) == Rebuild()
    assert (record.partition, record.offset) == (asked["partition"], asked["offset"])
    Path(file).write_text(text.replace('prefix = "t', 'prefix = "nobody-t'))
    assert main(["rebuild", "--config", file, "--deadline", "2"]) == 2
    assert "Remedy" in capsys.readouterr().err


def test_another_pruning_is_asked_for_on_control(config: Config, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    links = ("oslo>paris", "paris>rome")
    named = [word for link in (*links, links[0]) for word in ("--link", link)]
    some = run(capsys, "prune", "network", "--prunings", "7", "--worst", "0.5", *named, "--config", file)
    every = run(capsys, "prune", "off", "--config", file)
    run(capsys, "prune", "configured", "--link", links[1], "--config", file)
    records = log_of(config.kafka, some["topic"])
    directions = [f"{a}>{b}" for a, b in config.overlay.directions()]
    commands = [Prune("network", 7, 0.5, links), Prune("off"), Prune("configured", links=links[1:])]
    assert len({record.key for record in records}) == 3
    assert all(record.key.startswith(COMMAND.encode()) for record in records)
    assert [read_command(record.value, directions) for record in records] == commands
    assert (some["prune"], some["prunings"], some["worst"], some["links"]) == ("network", 7, 0.5, list(links))
    assert (every["prune"], every["links"], every["offset"]) == ("off", directions, some["offset"] + 1)
    assert "prunings" not in every


def topics_in(bootstrap: str) -> set[str]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        return set(admin.list_topics())
    finally:
        admin.close()


@pytest.mark.parametrize(
    ("words", "topic"),
    [
        (("subscribe", "--broker", "oslo", "--client", "ann", "--id", "s1", "--where", "{}"), "subscribe"),
        (("unsubscribe", "--broker", "oslo", "--client", "ann", "--id", "s1"), "subscribe"),
        (("publish", "--broker", "oslo", "--at", json.dumps(AT)), "subscribe"),
        (("listen", "--client", "ann"), "deliveries"),
        (("produce", "uniform"), "subscribe"),
        (("prune", "off"), "control"),
        (("fit",), "publish"),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else given,
)
def test_a_mistyped_prefix_creates_nothing(
    config: Config, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], topic: str
) -> None:
    kafka, file = config.kafka, tmp_path / "mistyped.toml"
    file.write_text(text.replace('prefix = "t', 'prefix = "mistyped-t'))
    before = topics_in(kafka.bootstrap)
    assert main([*words, "--config", str(file), *(() if words == ("fit",) else ("--deadline", "2"))]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"lacuna: topic 'mistyped-{kafka.prefix}.{topic}': Kafka at {kafka.bootstrap} does not know")
    assert f"The prefixes there: {', '.join(prefixes(before))}. Remedy: start the router" in err
    assert kafka.prefix in prefixes(before)
    assert topics_in(kafka.bootstrap) == before


def test_a_refused_one_liner(config: Config, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--config", file, "--broker", "oslo", "--client", "ann", "--id", "s1")
    assert main(["subscribe", *words, "--where", '{"price": [20, 10]}']) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lacuna: subscribe 's1': ")
    assert err.endswith("Remedy: exchange the two ends. Nothing was sent.\n")
    assert err.count("\n") == 1


def test_produce_as_a_command(config: Config, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--subscriptions", "20", "--publications", "30", "--seed", "3")
    summary = run(capsys, "produce", "clustered", "--config", file, *sizes)
    assert (summary["workload"], summary["seed"], summary["subscribe"], summary["publish"]) == ("clustered", 3, 20, 30)
    assert summary["events_per_s"] > 0
    assert summary["prefix"] == config.kafka.prefix
    points = [event["at"] for _, event in events_of(config, "publish")]
    expected = Workload("clustered", 20, 30, seed=3).events(config)
    assert points == [event["at"] for event in expected if event["kind"] == "publish"]


def test_listen_shows_what_comes(config: Config, file: str, router: Router, capsys: pytest.CaptureFixture[str]) -> None:
    router.deliver("ann", 1, 2, 2, 3)
    words = ["listen", "--client", "ann", "--config", file, "--from-beginning", "--timeout", "20", "--count"]
    assert main([*words, "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [1, 2]
    assert err.startswith("listening for ann at ")
    assert main([*words, "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == f'2026-05-01T00:00:00Z  p3 for s1 at oslo  {json.dumps(AT)}  {{"n": 3}}'


def test_a_router_that_does_not_answer_is_no_hang(
    config: Config, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ann = ("--config", file, "--broker", "oslo", "--client", "ann", "--id", "s1")
    assert main(["subscribe", *ann, "--where", "{}", "--wait", "0.2"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("subscribe s1 at oslo: ")
    assert "it is in Kafka, but the router has not said within 0.2 s what became of it. Remedy" in err


def test_listen_says_what_it_waits_for_and_after_a_while_why_nothing_comes(
    config: Config, file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lacuna.cli.listen.QUIET", 0.1)
    assert main(["listen", "--client", "ann", "--config", file, "--count", "1", "--timeout", "1"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(": 1 delivery from now on, until none comes for 1 s")
    assert second.startswith(
        "no delivery for ann in 0.1 s. One comes when somebody publishes what ann has subscribed to"
    )


def test_listen_says_when_too_few_came(
    config: Config, file: str, router: Router, capsys: pytest.CaptureFixture[str]
) -> None:
    router.deliver("ann", 1)
    words = ["listen", "--client", "ann", "--config", file, "--from-beginning", "--timeout", "0.5"]
    assert main([*words, "--count", "2"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(words) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_listen_ends_when_told_to(config: Config, file: str, router: Router, number: int) -> None:
    command = [sys.executable, "-m", "lacuna", "listen", "--client", "ann", "--config", file, "--json"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline().startswith("listening for ann at ")
        router.deliver("ann", 1)
        assert json.loads(process.stdout.readline())["seq"] == 1
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")
    finally:
        process.kill()


# Learning from what the topics hold


def test_fit_learns_from_the_topics(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = parse(text)
    ensure_topics(config.kafka.bootstrap, config.kafka.prefix)
    produce_to_kafka(config, Workload("zipf", 20, 300))
    path = tmp_path / "lacuna.toml"
    path.write_text(text)
    assert main(["fit", "--config", str(path), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["publications"], summary["subscriptions"], summary["refused"]) == (300, 20, 0)
    assert all(a.borders and a.selectivity for a in parse(path.read_text()).space.attributes)
