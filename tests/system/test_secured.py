"""The demo through a Kafka with TLS, SCRAM and ACLs, with the printed rights and nothing more; and every refusal.

One Kafka and one job for all tests, in the order of the file: Kafka away at the start, the demo, the endpoint against
the tables, rotated passwords, Kafka away for longer, then the search for passwords in everything that was written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import deltalake
import pytest
from kafka.admin import ACLOperation, ScramMechanism

from access.errors import NotAdmitted
from access.offsets import topic_spans
from access.security import check
from access.topics import lacking
from infra.ports import find_free
from lacuna.cli.demo import config_text, expected_deliveries
from producers.client import Client
from producers.sender import Sender
from producers.workloads import Event, Workload
from state.config import parse
from state.errors import ConfigError
from state.protocol.security import Address, Security
from tests.system.live import PATIENCE, PROGRAM, Job, read_topic, wait_until
from tests.system.secured import PLAIN_PASSWORD, SecuredKafka, make_token

PREFIX = "demo"
PASSWORDS = {name: f"pass word of {name} 7Qx" for name in ("router", "producer", "listener", "stranger")}
ROTATED = "another pass word 7Qx"
OF_SAM = "pass word of sam 7Qx"
WAITING = ("--wait", "200")
"""As long as a slow machine needs."""
AT = '{"price": 12.5, "volume": 150, "symbol": "IBM"}'
WHERE = '{"price": [10, 20]}'
FOUR_BOXES = "price BETWEEN 1 AND 2 OR price BETWEEN 3 AND 4 OR price BETWEEN 5 AND 6 OR price BETWEEN 7 AND 8"


class World:
    """A secured Kafka, and the configuration of each user: that of the demo, through a listener of this Kafka."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.kafka = SecuredKafka(home / "kafka")
        self.port, self.spark_ui = find_free(), find_free()
        for user, password in PASSWORDS.items():
            self.kafka.add_user(user, password)
            self.secret(user).write_text(password)
            self.config(user)
        for role in ("router", "producer", "listener"):
            printed = self.lacuna("acl", role, "--user", role, "--json", user=role)
            assert printed.returncode == 0, printed.stderr
            self.kafka.grant(printed.stdout)

    def secret(self, user: str) -> Path:
        return self.home / f"{user}.password"

    def security(self, mechanism: str, **files: str) -> Security:
        protocol = "SSL" if mechanism == "" else "SASL_SSL"
        return Security(protocol, mechanism or None, ca_file=f"{self.home}/kafka/ca.pem", **files)

    def config(self, user: str, listener: str = "CLIENT") -> Path:
        file = self.home / f"{user}-{listener}.toml"
        security = (
            f'{{ protocol = "SASL_SSL", mechanism = "SCRAM-SHA-512", username = "{user}", '
            f'password_file = "{self.secret(user)}", ca_file = "{self.home}/kafka/ca.pem" }}'
        )
        text = config_text(self.home / "job")
        text = text.replace('"127.0.0.1:9092"', f'"{self.kafka.at(listener)}"\nsecurity = {security}')
        text = text.replace(
            "[routing]", 'regions = [["paris", "oslo", "bergen", "rome"], ["wien", "praha"]]\n[routing]'
        )
        file.write_text(f"{text}[engine]\nmetrics_port = {self.port}\n[limits]\nboxes_per_subscription = 3\n")
        return file

    def lacuna(self, *words: str, user: str, listener: str = "CLIENT") -> subprocess.CompletedProcess[str]:
        command = [PROGRAM, *words, "--config", str(self.home / f"{user}-{listener}.toml")]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)

    def subscribe(self, *more: str, user: str = "producer", listener: str = "CLIENT", where: str = WHERE) -> Any:
        words = ("--broker", "oslo", "--client", "ann", "--id", "s1", "--where", where)
        return self.lacuna("subscribe", *words, *more, user=user, listener=listener)

    def status(self) -> dict[str, Any]:
        """What the job says of itself, with the exit code of `lacuna status`."""
        asked = self.lacuna("status", "--json", user="router")
        return {"code": asked.returncode} | (json.loads(asked.stdout) if asked.stdout.startswith("{") else {})

    @contextmanager
    def without_kafka(self) -> Iterator[None]:
        """Kafka is away, and the job knows it. Kafka is back afterwards, whatever has failed meanwhile."""
        self.kafka.stop(signal.SIGTERM)
        try:
            wait_until(lambda: not self.status().get("kafka", {"up": True})["up"], "the job misses Kafka")
            yield
        finally:
            self.kafka.start()

    def said(self, job: Job) -> list[str]:
        """What the job has logged, and lines of others, each as it is."""
        lines = job.log().splitlines()
        return [json.loads(line)["text"] if line.startswith("{") else line for line in lines]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("secured"))
    yield world
    world.kafka.stop()


@pytest.fixture(scope="module")
def job(world: World) -> Iterator[Job]:
    """The router and the archive, as the user `router`: started while Kafka is away, which comes back then."""
    job = Job(world.home / "job", world.kafka.at("CLIENT"), PREFIX)
    job.file = world.config("router")
    job.config = parse(job.file.read_text())
    events = world.home / "events"
    events.mkdir()
    logged = ("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir=file://{events}")
    world.kafka.stop(signal.SIGTERM)
    try:
        try:
            job.start("--wait", "--spark-ui", str(world.spark_ui), *logged, wait=False)
            wait_until(lambda: "Kafka is waited for: " in job.log(), "the job waits for Kafka")
            wait_until(lambda: bool(world.status().get("reasons")), "the job says why it does not run yet")
            status = world.status()
            assert (status["code"], status["state"], status["epoch"]) == (1, "degraded", 0)
            assert "does not answer since" in status["reasons"][0]
        finally:
            world.kafka.start()
        job._await_running()
        yield job
    finally:
        job.kill()


@pytest.fixture(scope="module")
def demo(world: World, job: Job) -> list[Event]:
    """The demo's workload, sent by the user `producer` and carried to its end; its events."""
    config = parse(world.config("producer").read_text())
    events = list(Workload("zipf", 400, 1500, 0.2, 1).events(config))
    for kinds in (("subscribe", "unsubscribe"), ("publish",)):
        with Sender(config) as sender:
            for event in (event for event in events if event["kind"] in kinds):
                sender.send(
                    event["kind"], event["broker"], {k: v for k, v in event.items() if k not in ("kind", "broker")}
                )
        job.settle()
    job.archive_settled()
    return events


def get(world: World, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{world.port}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def value_of(world: World) -> Callable[..., float]:
    """The numbers of the job, as a real parser reads them."""
    parser = pytest.importorskip("prometheus_client.parser", reason="`make setup` installs it")
    families = parser.text_string_to_metric_families(get(world, "/metrics"))
    found = {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}
    return lambda name, **labels: found.get((f"lacuna_{name}", frozenset(labels.items())), 0.0)


def rows(world: World, table: str) -> list[dict[str, Any]]:
    return list(deltalake.DeltaTable(f"{world.home}/job/lake/{table}").to_pyarrow_table().to_pylist())


def test_people_use_it_with_the_printed_rights_and_nothing_more(world: World, job: Job) -> None:
    subscribed = world.subscribe(*WAITING)
    assert subscribed.returncode == 0, subscribed.stderr
    at = ("--broker", "rome", "--id", "p1", "--at", AT, "--payload", "hello")
    published = world.lacuna("publish", *at, *WAITING, "--json", user="producer")
    assert published.returncode == 0, published.stderr
    assert json.loads(published.stdout)["notice"]["deliveries"] == 1
    bad = AT.replace("12.5", "5000")
    refused = world.lacuna("publish", "--broker", "rome", "--id", "p2", "--at", bad, user="producer")
    assert refused.returncode == 2, "the client refuses what the router would"
    heard = world.lacuna("listen", "--client", "ann", "--from-beginning", "--count", "1", "--json", user="listener")
    assert heard.returncode == 0, heard.stderr
    assert json.loads(heard.stdout)["payload"] == "hello"


def test_a_client_learns_what_became_of_its_events(world: World, job: Job) -> None:
    """Run after the first test: s1 of ann stands."""
    refused = world.subscribe(*WAITING, where=FOUR_BOXES)
    assert refused.returncode == 2 and "the filter is 4 boxes; a subscription may have 3" in refused.stderr, (
        refused.stderr
    )
    words = ("--client", "ann", "--notices", "--from-beginning", "--count", "2", "--timeout", "60", "--json")
    heard = world.lacuna("listen", *words, user="listener")
    assert heard.returncode == 0, heard.stderr
    notices = [json.loads(line) for line in heard.stdout.splitlines()]
    assert [(n["id"], n["state"], n.get("rule")) for n in notices] == [
        ("s1", "in-force", None),
        ("s1", "refused", "quota"),
    ]


def test_the_demo_runs_with_the_printed_rights_and_nothing_more(world: World, job: Job, demo: list[Event]) -> None:
    columns = ("broker", "client", "subscription", "publication")
    found = [tuple(row[c] for c in columns) for row in rows(world, "deliveries") if row["client"] != "ann"]
    expected = expected_deliveries(job.config, demo)
    assert len(expected) > 1000 and len(found) == len(set(found)) and set(found) == expected
    client = found[0][1]
    mine = sorted(delivery[2:] for delivery in expected if delivery[1] == client)
    words = ("--client", client, "--from-beginning", "--count", str(len(mine)), "--json")
    heard = world.lacuna("listen", *words, user="listener")
    assert heard.returncode == 0, heard.stderr
    said = [json.loads(line) for line in heard.stdout.splitlines()]
    assert sorted((each["subscription"], each["publication"]) for each in said) == mine


def test_the_endpoint_agrees_with_the_tables(world: World, job: Job, demo: list[Event]) -> None:
    """Every event of this life is in the tables; every counter is the number of its rows."""
    deliveries, rejects, routes = (rows(world, table) for table in ("deliveries", "rejects", "routes"))
    wait_until(lambda: value_of(world)("deliveries_total") == len(deliveries), "all deliveries are counted")
    wait_until(lambda: value_of(world)("rejects_total", rule="quota") == len(rejects) == 1, "the reject is counted")
    value = value_of(world)
    carried = Counter((f"{row['broker']}>{row['link']}", row["action"]) for row in routes)
    decided = Counter((f"{row['broker']}>{row['link']}", row["action"]) for row in rows(world, "decisions"))
    assert len(carried) > 10 and len(decided) > 10
    for name, counts in (("link_publications_total", carried), ("link_decisions_total", decided)):
        assert {key: value(name, link=key[0], action=key[1]) for key in counts} == counts
    sent = Counter(event["kind"] for event in demo) + Counter(subscribe=2, publish=1)
    assert {kind: value("events_total", kind=kind) for kind in sent} == sent
    standing = sent["subscribe"] - 1 - sent["unsubscribe"]
    assert sum(value("subscriptions", region=part) for part in ("paris", "wien")) == standing
    assert value("kafka_up") == value("query_up", query="router") == value("query_up", query="archive") == 1
    assert value("certificate_expiry_timestamp_seconds", file=f"{world.home}/kafka/ca.pem") > 1.7e9
    assert (world.status()["code"], world.status()["state"]) == (0, "healthy")
    assert get(world, "/healthz") == "ok\n" and get(world, "/readyz") == "ready\n"


def test_every_mechanism_in_python_and_in_spark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the one of the job. Each user may do everything with a topic of its own, and Spark does.

    The password for SCRAM-SHA-256 is in the environment.
    """
    files = {name: world.home / f"{name}.password" for name in ("named", "tim")}
    files["named"].write_text(PLAIN_PASSWORD)
    files["tim"].write_text(make_token(world.kafka.home, "tim") + "\n")
    ways = {
        "named": ("NAMED", world.security("PLAIN", username="named", password_file=str(files["named"]))),
        "tim": ("TOKEN", world.security("OAUTHBEARER", token_file=str(files["tim"]))),
        "CN=client": ("MUTUAL", world.security("", cert_file=str(world.kafka.home / "client.pem"))),
        "sam": ("CLIENT", world.security("SCRAM-SHA-256", username="sam", password_env="PASSWORD_OF_SAM")),
    }
    world.kafka.add_user("sam", OF_SAM, ScramMechanism.SCRAM_SHA_256)
    monkeypatch.setenv("PASSWORD_OF_SAM", OF_SAM)
    for user, (listener, security) in ways.items():
        topic = f"own.{listener}"
        world.kafka.allow_all(user, topic)
        assert topic_spans(Address(world.kafka.at(listener), security), [topic]) == {(topic, 0): (0, 0)}
    through = subprocess.run(
        [sys.executable, "-c", THROUGH_SPARK],
        input=json.dumps([[name, world.kafka.at(name), vars(security)] for name, security in ways.values()]),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert through.returncode == 0, through.stderr[-3000:]
    assert json.loads(through.stdout.splitlines()[-1]) == {name: ["hello"] for name, _ in ways.values()}
    said = through.stdout + through.stderr
    assert PLAIN_PASSWORD not in said and OF_SAM not in said and files["tim"].read_text().strip() not in said


THROUGH_SPARK = """
import json, sys
from access.connection import spark_options
from lacuna.local import spark_jars
from state.protocol.security import Address, Security
from streaming.pipeline import Engine, session
spark = session(Engine(master="local[1]", jars=spark_jars(), partitions=1, memory="512m"))
found = {}
for name, address, security in json.load(sys.stdin):
    options = spark_options(Address(address, Security(**security)))
    topic = f"own.{name}"
    spark.sql("SELECT 'hello' AS value").write.format("kafka").options(**options).option("topic", topic).save()
    read = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
    found[name] = [bytes(row.value).decode() for row in read.collect()]
print(json.dumps(found))
"""


def test_a_rotated_password_is_taken_up_without_a_restart(world: World, job: Job) -> None:
    """The file first, then Kafka: the job goes on with the old one, says so, and takes up the new one when it works."""
    world.secret("router").write_text(ROTATED)
    refused = "the new secrets of Kafka are not taken up"
    wait_until(lambda: any(refused in reason for reason in world.status().get("reasons", ())), "it says so")
    assert "Kafka does not accept the user" in " ".join(world.status()["reasons"])
    assert world.subscribe(*WAITING).returncode == 0, "the queries go on"
    world.kafka.add_user("router", ROTATED)
    wait_until(lambda: "the secrets of Kafka have changed" in job.log(), "the job takes them up")
    wait_until(lambda: world.status()["code"] == 0, "the job is healthy again")
    assert world.subscribe(*WAITING).returncode == 0


def test_nothing_is_lost_while_kafka_is_away(world: World, job: Job, demo: list[Event]) -> None:
    """Twice: in the middle of whatever the job does; and between two batches, until Spark gives the router up.

    Kafka comes back with no connection open: everything, Spark too, logs in with the password of the test before.
    """
    assert job.process is not None
    config, began = parse(world.config("producer").read_text()), len(world.said(job))
    with Client(config, broker="rome", name="ann") as client:
        first = client.publish("before", json.loads(AT), ack=True).wait(PATIENCE)
        assert first.deliveries >= 1
        for number in range(100):
            client.publish(f"under way {number}", json.loads(AT))
    with world.without_kafka():
        assert (world.status()["code"], world.status()["state"]) == (1, "degraded")
        assert "does not answer since" in " ".join(world.status()["reasons"])
        assert value_of(world)("kafka_up") == 0
    wait_until(lambda: world.status()["code"] == 0, "the job is healthy again")
    job.settle()  # without ticks nothing begins a batch now; one under way would wait for as long as Kafka is away
    with world.without_kafka():
        wait_until(lambda: "degraded: the router is tried again" in job.log(), "Spark gives up")
    with Client(config, broker="rome", name="ann") as client:
        assert client.publish("after", json.loads(AT), ack=True).wait(PATIENCE).deliveries == first.deliveries
    wait_until(lambda: world.status()["code"] == 0, "the job is healthy again")
    job.archive_settled()
    sent = ["before", "after", *(f"under way {number}" for number in range(100))]
    found = Counter(row["publication"] for row in rows(world, "deliveries"))
    assert {name: found[name] for name in sent} == dict.fromkeys(sent, first.deliveries)
    said = world.said(job)[began:]
    assert sum("degraded: Kafka at" in line for line in said) == 2 and "all is well again" in said
    assert "the router works again" in said and value_of(world)("query_restarts_total", query="router") >= 1
    assert job.process.poll() is None


def test_no_password_is_found_in_any_output_log_table_or_topic(world: World, job: Job, demo: list[Event]) -> None:
    assert job.process is not None
    token = (world.home / "tim.password").read_text().strip() if (world.home / "tim.password").exists() else ROTATED
    secret = [password.encode() for password in (*PASSWORDS.values(), ROTATED, OF_SAM, token)]
    settings = world.kafka.home / "server.properties"  # Kafka's own: it holds the password of its listener NAMED
    files = [
        path for path in world.home.rglob("*") if path.is_file() and path.suffix != ".password" and path != settings
    ]
    assert len(files) > 20 and any("events" in path.parts for path in files), "Spark's log of plans and settings too"
    for path in files:
        content = path.read_bytes()
        assert not any(password in content for password in secret), path
    for process in children(job.process.pid):
        for kind in ("cmdline", "environ"):
            with suppress(OSError):  # it may have ended
                assert not any(password in Path(f"/proc/{process}/{kind}").read_bytes() for password in secret)
    for topic in ("control", "records", "notices", "deliveries", "links"):
        for record in read_topic(world.kafka.at("INTERNAL"), f"{PREFIX}.{topic}"):
            assert not any(password in record.value for password in secret)
    pages = [f"http://127.0.0.1:{world.port}{path}" for path in ("/status", "/metrics", "/healthz", "/readyz")]
    pages += [f"http://127.0.0.1:{world.spark_ui}/{path}/" for path in ("environment", "SQL", "StreamingQuery", "jobs")]
    for page in pages:
        with urllib.request.urlopen(page, timeout=60) as answer:
            content = answer.read()
        assert len(content) > 2 and not any(password in content for password in secret), page


def children(pid: int) -> list[int]:
    """The processes of a job: Java and the Python workers too."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += [int(entry.name)] if os.getpgid(int(entry.name)) == pid else []
            except ProcessLookupError:
                continue
    return found


def test_the_doctor_finds_nothing_wrong(world: World, job: Job) -> None:
    examined = world.lacuna("doctor", "--json", user="router")
    findings = {finding["about"]: finding for finding in json.loads(examined.stdout)["findings"]}
    assert examined.returncode == 0, findings
    assert findings["Kafka"]["level"] == "good" and findings["certificate"]["level"] == "warning", "it ends in 2 days"
    assert findings["rights"]["text"] == "this user may do what the router needs"
    producer = parse(world.config("producer").read_text()).kafka.bootstrap
    assert lacking(producer, PREFIX, "producer") == []
    assert "Write demo.links" in lacking(producer, PREFIX, "router")


# refusals, one message each


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stdout
    assert not any(password in done.stderr for password in PASSWORDS.values())
    return done.stderr.strip().splitlines()[-1]


def test_a_wrong_password(world: World) -> None:
    world.secret("producer").write_text("something else")
    try:
        said = last_line(world.subscribe())
    finally:
        world.secret("producer").write_text(PASSWORDS["producer"])
    assert "Kafka does not accept the user, the password or the mechanism. Remedy: correct security in [kafka]" in said


def test_an_expired_certificate(world: World) -> None:
    world.config("producer", "EXPIRED")
    said = last_line(world.subscribe("--deadline", "3", listener="EXPIRED"))
    assert "no encrypted connection is accepted: certificate has expired. Remedy: correct security in [kafka]" in said


def test_a_missing_right(world: World, job: Job) -> None:
    said = last_line(world.subscribe(user="stranger"))
    assert "stranger" not in said and "Remedy: " in said and "lacuna acl" in said, said
    said = last_line(world.lacuna("run", user="stranger"))
    assert "Kafka does not allow this user to do that" in said and "lacuna acl" in said, said


def test_a_certificate_that_is_asked_for_and_not_shown(world: World) -> None:
    with pytest.raises(NotAdmitted, match=r"no encrypted connection is accepted: .* Remedy: correct security"):
        topic_spans(Address(world.kafka.at("MUTUAL"), world.security("")), ["none"], 3)


def test_a_token_that_has_expired(world: World) -> None:
    (world.home / "late.password").write_text(make_token(world.kafka.home, "tim", -60))
    with pytest.raises(ConfigError, match=r"its token has expired on .* Remedy: put a token there that is valid"):
        check(world.security("OAUTHBEARER", token_file=str(world.home / "late.password")))


def test_a_right_that_is_taken_away_while_the_job_runs(world: World, job: Job, demo: list[Event]) -> None:
    """The job ends with cause and remedy, which is followed: nothing is lost, and nothing comes twice."""
    assert world.subscribe(*WAITING).returncode == 0
    config = parse(world.config("producer").read_text())
    with Client(config, broker="rome", name="ann") as client:
        with world.kafka.denied("router", f"{PREFIX}.deliveries", ACLOperation.WRITE):
            client.publish("denied", json.loads(AT))
            job.ended()
        said = world.said(job)[-1]
        assert "Kafka does not allow this user what the job needs" in said
        assert "Remedy: grant it what `lacuna acl` prints, and start again: nothing is lost" in said
        job.start(wait=False)
        granted = client.publish("granted", json.loads(AT), ack=True).wait(PATIENCE)
    job.archive_settled()
    found = Counter(row["publication"] for row in rows(world, "deliveries"))
    assert found["denied"] == found["granted"] == granted.deliveries >= 1
