"""The live router with real parts: Kafka, Spark, Delta, processes that are killed."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars
import pytest
from kafka import KafkaProducer

from access.offsets import topic_spans
from access.topics import ensure_topics
from lacuna.__main__ import main
from lacuna.analysis.lake import open_tables
from lacuna.analysis.trial import Trial, TriedEvent, TriedFilter
from producers.client import Client
from producers.errors import NotAccepted
from producers.sender import Sender
from producers.workloads import Workload
from state.config import parse
from state.protocol.events import Context, Reject, Source, read
from state.protocol.messages import LOCAL
from state.protocol.topics import Topic
from state.storage.tables import REGION
from state.strategies import PARAMETERS
from streaming.life import Folder
from tests.core.oracle import Oracle
from tests.core.shell import Shell
from tests.core.test_events import BAD
from tests.core.test_shell import facts
from tests.system.live import PROGRAM, Job, check_tables, disk_of, infra, read_topic, text_at, wait_until

pytestmark = pytest.mark.system

NEW = {
    "kind": "subscribe",
    "broker": "praha",
    "client": "tried",
    "id": "tried",
    "where": "price BETWEEN 100 AND 900 AND symbol = 'IBM'",
}
"""A subscription that is tried before it is made."""
STRATEGIES = {
    "paris>oslo": '"flood"',
    "oslo>paris": '"cover"',
    "paris>rome": '{name = "zcurve", epsilon = 0.2}',
    "rome>paris": '"union"',
    "paris>wien": '"negative"',
    "wien>paris": '{name = "negative-approx", k = 2, drift = 0}',
    "wien>praha": '{name = "probabilistic", delta = 1e-9}',
    "praha>wien": '"auto"',
    "praha>brno": '{name = "hybrid", inner = "negative"}',
    "brno>praha": '{name = "auto", prune = "network", prunings = 40}',
    "oslo>bergen": '{name = "cover", prune = "memory", prunings = 40}',
    "bergen>oslo": '{name = "negative-approx", k = 2, drift = 0, prune = "throughput", prunings = 40}',
}
"""All strategies on the links of one overlay, some pruned; but `mics`, which is for all links or for none."""
BOOLEAN = (
    "price > 500 OR symbol = 'IBM'",
    "NOT (volume BETWEEN 10 AND 90000) AND symbol <> 'MSFT'",
    "(price < 100 OR price > 900) AND symbol IN ('IBM', 'AAPL')",
)


@pytest.fixture(scope="module")
def kafka_home(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def bootstrap(kafka_home: str) -> Iterator[str]:
    yield infra("infra.kafka", "start", "--home", kafka_home, "--port", "0")["bootstrap"]
    infra("infra.kafka", "stop", "--home", kafka_home)


@pytest.fixture
def job(tmp_path: Path, bootstrap: str, request: pytest.FixtureRequest) -> Iterator[Job]:
    made = Job(tmp_path, bootstrap, f"t{abs(hash(request.node.name)) % 10**8}")
    ensure_topics(bootstrap, made.config.kafka.prefix, {"deliveries": Topic(partitions=1)})
    yield made
    made.kill()


def send(job: Job, events: list[dict[str, Any]]) -> None:
    with Sender(job.config) as sender:
        for event in events:
            fields = {key: value for key, value in event.items() if key not in ("kind", "broker", "rev")}
            sender.send(event["kind"], event["broker"], fields)


def split(events: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return [e for e in events if e["kind"] != "publish"], [e for e in events if e["kind"] == "publish"]


def expected(events: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    oracle = Oracle({"symbol"})
    return sorted(delivery for event in events for delivery in oracle.take(event))


def deliveries(job: Job) -> list[tuple[str, ...]]:
    """From the topic, without repeats, as a client reads them."""
    marks: dict[str, int] = {}
    found = []
    for record in read_topic(job.config.kafka.bootstrap, job.topic("deliveries")):
        d = json.loads(record.value)
        if d["seq"] > marks.get(d["channel"], 0):
            marks[d["channel"]] = d["seq"]
            found.append((d["broker"], d["client"], d["subscription"], d["publication"]))
    return sorted(found)


def check_everything(job: Job, events: list[dict[str, Any]]) -> Shell:
    """Deliveries as the oracle says, tables as the undisturbed replay of the same batches."""
    assert deliveries(job) == expected(events)
    table = [(r["broker"], r["client"], r["subscription"], r["publication"]) for r in job.rows("deliveries")]
    assert sorted(table) == expected(events)
    shell = job.replay()
    check_tables(job, shell)
    return shell


def check_states(job: Job, shell: Shell) -> None:
    """The state that Spark stored knows the same as that of the replay; only times taken differ, in a checksum."""
    stored = stored_states(job)
    assert stored.keys() == {part.key for part in shell.settings.parts}
    shell.check()
    for part in shell.settings.parts:
        replayed = facts(shell, part.name)
        shell.stored[part.name] = stored[part.key]
        assert facts(shell, part.name) == replayed, part.name


def stored_states(job: Job) -> dict[str, bytes]:
    """What the state store holds, read by a Spark of its own."""
    program = f"""
import json, base64, sys
from lacuna.local import spark_jars
from streaming.pipeline import Engine, session
spark = session(Engine(jars=spark_jars()))
spark.streams.active  # makes the coordinator of the state stores, without which the reader does not work
rows = spark.read.format("statestore").load({str(job.spark_folder("router"))!r})
rows = rows.selectExpr("key.region AS name", "value.groupState.payload AS payload").collect()
print(json.dumps({{row.name: base64.b64encode(bytes(row.payload)).decode() for row in rows}}))
spark.stop()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {name: base64.b64decode(payload) for name, payload in found.items()}


def boolean(job: Job) -> list[dict[str, Any]]:
    """Subscriptions with Boolean filters, at every broker."""
    return [
        {"kind": "subscribe", "broker": broker, "client": "bool", "id": f"{broker}{k}", "where": where}
        for k, where in enumerate(BOOLEAN)
        for broker in job.config.overlay.brokers
    ]


def test_live_equals_simulated_and_replayed(job: Job) -> None:
    """One history, with Boolean filters and pruned links: deliveries as simulated, tables and state as replayed.

    Pruning is switched off and on by command in the middle of it, and stays so across a restart.
    """
    job.route('{name = "auto", prune = "network", prunings = 100}')
    changes, publications = split(list(Workload("zipf", 200, 300).events(job.config)))
    changes += boolean(job)
    job.start("--maintain", "0.001")
    send(job, changes)
    job.archive_settled()
    trial = Trial(open_tables(job.config))
    trial.refresh()
    tried = trial.filter(NEW["where"], NEW["broker"]).facts
    send(job, [NEW])
    changes.append(NEW)
    send(job, publications[:100])
    job.archive_settled()
    check_tried_filter(job, tried)
    assert trial.refresh()
    events = {p["id"]: trial.event(p["at"], p["broker"]).facts for p in publications[100:]}
    await_pruned(job, set(links_of(job)))
    prune(job, "off")
    await_pruned(job, set())
    assert job.terminate() == 0
    job.start("--maintain", "0.001")
    send(job, publications[100:200])
    job.archive_settled()
    assert pruned_links(job) == set(), "a restart does not end what was asked for"
    prune(job, "memory", "--prunings", "7", "--link", "paris>oslo")
    await_pruned(job, {"paris>oslo"})
    assert prunings_of(job)["paris>oslo"] == 7
    prune(job, "configured")
    await_pruned(job, set(links_of(job)))
    send(job, publications[200:])
    job.archive_settled()
    wait_until(lambda: "OPTIMIZE" in operations(job), "the tables are maintained by schedule")
    check_second_router_refused(job)
    assert job.terminate() == 0
    shell = check_everything(job, changes + publications)
    check_states(job, shell)
    assert simulated(job, changes + publications) == expected(changes + publications)
    check_other_readers(job)
    check_tried_events(job, events)


def check_tried_filter(job: Job, tried: TriedFilter) -> None:
    """The links decided about a new subscription as a try of its filter said before."""
    rows = [row for row in job.rows("decisions") if row["subscription"] == NEW["id"]]
    decided = {(r["broker"], r["link"]): (r["action"], r["reason"], r["coverers"]) for r in rows}
    said = {(d.broker, d.link): (d.action, d.reason, [name.id for name in d.coverers]) for d in tried.links}
    assert said == decided
    assert tried.links


def check_tried_events(job: Job, tried: dict[str, TriedEvent]) -> None:
    """Publications reached whom a try had said, over the links that it had said; pruned links carried some more."""
    reached, carried = Counter[str](), set()
    for row in job.rows("deliveries"):
        reached[row["publication"]] += 1
    for row in job.rows("routes"):
        if row["action"] == "forward":
            carried.add((row["publication"], row["broker"], row["link"]))
    for id, event in tried.items():
        assert event.deliveries == reached[id]
        assert {(id, c.broker, c.link) for c in event.links if c.action == "forward"} <= carried
    assert sum(event.deliveries for event in tried.values()) > 0


def links_of(job: Job) -> list[str]:
    return [f"{a}>{b}" for a, b in job.config.overlay.directions()]


def prune(job: Job, *words: str) -> None:
    """Ask for another pruning, as an operator does."""
    command = [PROGRAM, "prune", *words, "--config", str(job.file), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["asked"]


def prunings_of(job: Job) -> dict[str, int | None]:
    """The prunings done on each link, by its latest row of metrics."""
    rows = sorted(job.rows("metrics"), key=lambda row: row["batch"])
    return {f"{row['broker']}>{row['link']}": row["prunings"] for row in rows if row["link"] not in (LOCAL, REGION)}


def pruned_links(job: Job) -> set[str]:
    return {link for link, prunings in prunings_of(job).items() if prunings is not None}


def await_pruned(job: Job, links: set[str]) -> None:
    """Wait until the table of metrics says that these links prune, and no other."""
    wait_until(lambda: pruned_links(job) == links, f"{', '.join(sorted(links)) or 'no link'} prunes")


def operations(job: Job) -> set[str]:
    """What was done to a table, by its own log."""
    history = deltalake.DeltaTable(f"{job.config.lake.path}/routes").history()
    return {str(commit["operation"]) for commit in history}


def check_second_router_refused(job: Job) -> None:
    """While a job runs, nobody else may use its checkpoint."""
    command = [PROGRAM, "run", "--config", str(job.file), "--only", "router"]
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert second.returncode != 0
    assert "a router runs on this checkpoint already" in second.stderr and "Remedy" in second.stderr


def simulated(job: Job, events: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """What `lacuna simulate` delivers on the same events."""
    file, out = job.home / "events.jsonl", job.home / "out"
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    command = [PROGRAM, "simulate", "--config", str(job.file), str(file), "--out", str(out), "--json"]
    subprocess.run(command, capture_output=True, check=True)
    rows = [json.loads(line) for line in (out / "deliveries.jsonl").read_text().splitlines()]
    return sorted((r["broker"], r["client"], r["subscription"], r["publication"]) for r in rows)


def check_other_readers(job: Job) -> None:
    """Polars and DuckDB read the tables as they are."""
    rows = job.rows("decisions")
    path = f"{job.config.lake.path}/decisions"
    assert polars.read_delta(path).height == len(rows)
    decisions = deltalake.DeltaTable(path).to_pyarrow_dataset()  # noqa: F841 - named in the query
    counted = duckdb.sql("SELECT action, count(*) FROM decisions GROUP BY action").fetchall()
    assert dict(counted) == Counter(row["action"] for row in rows)


def test_every_strategy_killed_again_and_again(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    """kill -9 in the middle of batches, after the Kafka write, during the archive, during start: no trace remains.

    Each direction of each link has a strategy of its own. Some are asked to rebuild, and the tables explain it all.
    """
    mix(job)
    changes, publications = split(list(Workload("zipf", 300, 200).events(job.config)))
    job.start()
    send(job, changes[:50])
    wait_until(lambda: len(job.batches("router")) > 0, "the first batch is planned")
    job.kill()  # in the middle of the first batch
    job.start(wait=False)
    wait_until(lambda: bool(Folder(job.config.lake.checkpoint).epochs()), "it is starting")
    job.kill()  # during start
    leave_drafts(job)
    job.start()
    job.settle()
    for number in range(50, len(changes)):
        if writes_before_it_commits(job, changes[number]):
            break
    job.kill()  # between the router's Kafka write and its commit
    changes += boolean(job)
    send(job, changes[number + 1 :])
    job.start()
    job.settle()
    send(job, publications[:100])
    wait_until(lambda: len(job.batches("archive")) > len(job.committed("archive")), "the archive is writing")
    job.kill()
    job.start()
    ask_to_rebuild(job, capsys)
    send(job, publications[100:])
    job.archive_settled()
    check_explanations(job, capsys)
    assert job.terminate() == 0
    shell = check_everything(job, changes + publications)
    check_states(job, shell)
    check_strategies(job)


def mix(job: Job) -> None:
    """Give each direction of each link its own strategy, in an overlay with a link more in either region."""
    text = job.file.read_text()
    for old, new in (
        ('["wien", "praha"]]\nregions', '["wien", "praha"], ["praha", "brno"], ["oslo", "bergen"]]\nregions'),
        ('"rome"], ["wien", "praha"]]', '"rome", "bergen"], ["wien", "praha", "brno"]]'),
    ):
        assert old in text
        text = text.replace(old, new)
    job.file.write_text(
        text + "".join(f'[routing.links."{link}"]\nstrategy = {spec}\n' for link, spec in STRATEGIES.items())
    )
    job.config = parse(job.file.read_text())
    assert set(links_of(job)) == STRATEGIES.keys()
    assert {name_of(spec) for spec in STRATEGIES.values()} | {"mics"} == PARAMETERS.keys(), "every strategy is here"


def name_of(spec: str) -> str:
    """The strategy's name in a specification."""
    return spec.split('"')[1]


def ask_to_rebuild(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    """Links with approximate rectangles rebuild them by command, in parts; a tick lets them go on in an idle system."""
    assert said(capsys, "rebuild", "--config", str(job.file))["asked"]
    job.settle()
    producer = KafkaProducer(bootstrap_servers=job.config.kafka.bootstrap)
    producer.send(job.topic("control"), b"", key=b"tick").get(timeout=30)
    producer.close()
    job.archive_settled()
    rebuilt = {f"{row['broker']}>{row['link']}" for row in job.rows("metrics") if row["rebuilds"]}
    assert rebuilt == {link for link, spec in STRATEGIES.items() if name_of(spec) == "negative-approx"}


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) in (0, 1)
    return dict(json.loads(capsys.readouterr().out))


def check_explanations(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    """`explain` and `lint` tell of a withheld subscription what its row in the table says."""
    config = ("--config", str(job.file))
    rows = [row for row in job.rows("decisions") if row["client"] != "bool" and row["action"] == "withhold"]
    withheld = [row for row in rows if (row["broker"], row["link"]) == ("paris", "wien")][-1]
    whose = ("--client", withheld["client"], "--broker", withheld["home"])
    picture = str(job.home / "why.svg")
    drawn = ("--draw", picture, "--link", f"{withheld['broker']}>{withheld['link']}")
    told = said(capsys, "explain", withheld["subscription"], *whose, *config, *drawn)
    (step,) = [s for s in told["links"] if (s["broker"], s["link"]) == (withheld["broker"], withheld["link"])]
    assert any(row["coverers"] == withheld["coverers"] for row in step["history"])
    assert Path(picture).stat().st_size > 1000
    again = {"client": "zoe", "id": "again", "where": told["shape"][0], "broker": withheld["home"]}
    (job.home / "new.jsonl").write_text(json.dumps(again) + "\n")
    linted = said(capsys, "lint", str(job.home / "new.jsonl"), *config, "--against")
    standing = step["state"] in ("told", "withheld")
    assert not standing or linted["findings"][0]["finding"] in ("duplicate", "covered by one", "covered by several")


def check_strategies(job: Job) -> None:
    """Each link decided as configured, withheld something unless it floods, and pruned where it had to."""
    withheld = Counter(f"{row['broker']}>{row['link']}" for row in job.rows("decisions") if row["action"] == "withhold")
    assert withheld.keys() == {link for link, spec in STRATEGIES.items() if name_of(spec) != "flood"}
    rows = [row for row in job.rows("metrics") if row["link"] not in (LOCAL, REGION)]
    assert {(f"{row['broker']}>{row['link']}", row["strategy"].split()[0]) for row in rows} == {
        (link, name_of(spec)) for link, spec in STRATEGIES.items()
    }
    assert pruned_links(job) == {link for link, spec in STRATEGIES.items() if "prune" in spec}
    kept = {row["strategy"].split()[0] for row in rows if row["negative_rectangles"]}
    assert kept == {"negative", "negative-approx"}


def writes_before_it_commits(job: Job, event: dict[str, Any]) -> bool:
    """Send an event, and return whether its letters were seen in Kafka while their batch was not committed."""

    def letters() -> int:
        return sum(span.next for span in topic_spans(job.config.kafka.bootstrap, [job.topic("links")]).values())

    before = letters()
    send(job, [event])
    wait_until(lambda: letters() > before or job.quiet(), "the event has an effect")
    return letters() > before and job.batches("router")[-1] > job.committed("router")[-1]


def leave_drafts(job: Job) -> None:
    """What a kill may leave where the first batch was just being planned."""
    for query in ("router", "archive"):
        offsets = job.spark_folder(query) / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / ".0.killed.tmp").write_text("v1\n")


def test_ranges_while_kafka_stops_and_input_comes_twice(job: Job, kafka_home: str) -> None:
    """Strategy `mics`, coarse cells and bridged gaps: the job lives through it, and goes on when it is killed then.

    Events sent again with the same revision change nothing.
    """
    job.route('{name = "mics", bits = 5, gap = 4, max_ranges = 40}')
    changes, publications = split(list(Workload("clustered", 200, 300).events(job.config)))
    stamped = [{**event, "rev": number, "time": "2026-01-01T00:00:00Z"} for number, event in enumerate(changes)]
    job.start()
    put(job, stamped)
    job.settle()
    infra("infra.kafka", "stop", "--home", kafka_home)
    infra("infra.kafka", "start", "--home", kafka_home)
    put(job, list(reversed(stamped)))
    job.settle()
    job.kill()
    job.start()
    send(job, publications)
    job.archive_settled()
    assert job.terminate() == 0
    check_states(job, check_everything(job, changes + publications))
    assert sum(row["false_positives"] for row in job.rows("metrics")) > 0
    assert {row["action"] for row in job.rows("decisions")} == {"forward", "withhold", "cancel", "drop"}


def put(job: Job, events: list[dict[str, Any]]) -> None:
    """Events as they are, with nothing but a Kafka client."""
    producer = KafkaProducer(bootstrap_servers=job.config.kafka.bootstrap)
    for event in events:
        value = {key: item for key, item in event.items() if key not in ("kind", "broker")}
        producer.send(job.topic(event["kind"]), json.dumps(value).encode(), key=event["broker"].encode())
    producer.close()


def check_waiting(job: Job) -> None:
    """Over two regions: what is in force is delivered, what reaches nobody says so, what is stale is refused."""
    with Client(job.config, broker="praha", name="zoe") as zoe, Client(job.config, broker="oslo", name="ann") as ann:
        assert zoe.subscribe("w1", {"price": [700, 701], "symbol": ["IBM"]}).wait(120).state == "in-force"
        reached = ann.publish("w2", {"price": 700.5, "volume": 1, "symbol": "IBM"}, ack=True)
        missed = ann.publish("w3", {"price": 702.5, "volume": 1, "symbol": "IBM"}, ack=True)
        assert (reached.wait(120).deliveries, missed.wait(120).deliveries) == (1, 0)
        with pytest.raises(NotAccepted, match=r"the router refused it: rev 1 of .* is not later than"):
            zoe.subscribe("w1", {}, rev=1, ack=True).wait(120)
        assert zoe.unsubscribe("w1", ack=True).wait(120).state == "ended"
        assert zoe.unsubscribe("w9", ack=True).wait(120).state == "not-standing"


def test_bad_records_are_rejects_and_the_good_ones_pass(job: Job) -> None:
    """Every kind of bad record of the fast tests, through a real Kafka; each is one reject with the same rule."""
    job.start("--only", "router")
    check_waiting(job)
    send(job, [{"kind": "subscribe", "broker": "oslo", "client": "ann", "id": "s1", "where": {}}])
    job.settle()
    context = Context(job.config.space, job.config.overlay.brokers)
    records = [(kind, b"oslo", value) for _, _, kind, value in BAD if len(value) < 900_000]
    records += [("publish", b"nowhere", b"{}"), ("subscribe", None, b"{}")]
    wrong = [(k, key, v) for k, key, v in records if isinstance(refusal(context, k, key, v), Reject)]
    producer = KafkaProducer(bootstrap_servers=job.config.kafka.bootstrap)
    for kind, key, value in wrong:
        producer.send(job.topic(kind), value, key=key)
    producer.close()
    at = {"price": 1.0, "volume": 1, "symbol": "IBM"}
    send(job, [{"kind": "publish", "broker": "rome", "id": "p1", "at": at}])
    job.settle()
    assert job.terminate() == 0
    rejects = [row for row in job.replay().tables()["rejects"] if row["rule"] != "stale"]
    expected_rules = sorted(str(refusal(context, *record).rule) for record in wrong)
    assert len(wrong) >= 50
    assert sorted(row["rule"] for row in rejects) == expected_rules
    assert len({(row["topic"], row["offset"]) for row in rejects}) == len(wrong)
    assert deliveries(job) == [("oslo", "ann", "s1", "p1"), ("praha", "zoe", "w1", "w2")]


def refusal(context: Context, kind: str, key: bytes | None, value: bytes) -> Any:
    return read(context, kind, None if key is None else key.decode(), value, Source(0, 0, "", 0))


def test_a_full_disk_and_a_damaged_checkpoint_stop_the_job_with_the_remedy(bootstrap: str, tmp_path: Path) -> None:
    """After the disk has room again, and after the checkpoint is restored, everything is as if nothing had happened."""
    changes, publications = split(list(Workload("zipf", 60, 30).events(parse(text_at(bootstrap, "disk", tmp_path)))))
    with disk_of(tmp_path / "disk", "120m") as disk:
        job = Job(disk / "home", bootstrap, "disk")
        ensure_topics(bootstrap, "disk", {"deliveries": Topic(partitions=1)})
        try:
            job.start()
            send(job, changes)
            job.archive_settled()
            fill(disk / "ballast")
            send(job, publications)
            message = job.ended()
            assert "a disk is full" in message and "Remedy: free some space" in message
            (disk / "ballast").unlink()
            job.start()
            job.archive_settled()
            assert job.terminate() == 0
            check_everything(job, changes + publications)
            check_damage(job, tmp_path / "copy")
            check_everything(job, changes + publications)
        finally:
            job.kill()


def fill(file: Path) -> None:
    """Take all the room that there is."""
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while ballast.write(bytes(1 << 16)):
            pass


def check_damage(job: Job, copy: Path) -> None:
    """State that cannot be read stops the job; a restored checkpoint is as good as before."""
    router = job.spark_folder("router")
    shutil.copytree(router, copy)
    shutil.rmtree(router / "state" / "0")
    send(job, [{"kind": "unsubscribe", "broker": "oslo", "client": "nobody", "id": "nothing"}])
    job.start(wait=False)
    message = job.ended()
    assert "the checkpoint is damaged" in message and "Remedy: restore it from a copy" in message
    shutil.rmtree(router)
    shutil.copytree(copy, router)
    job.start()
    job.archive_settled()
    assert job.terminate() == 0
