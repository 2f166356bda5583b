"""A system through a Kafka with TLS, SCRAM and ACLs, with the printed rights and nothing more; and every refusal."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from access.offsets import topic_spans
from infra.ports import find_free
from state.protocol.security import Address, Security
from tests.system.live import PATIENCE, PROGRAM, Job, read_topic, wait_until
from tests.system.secured import SecuredKafka

PREFIX = "guarded"
PASSWORDS = {name: f"pass word of {name} 7Qx" for name in ("router", "producer", "listener", "stranger")}


class World:
    """A secured Kafka, and the configuration of each user."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.kafka = SecuredKafka(home / "kafka")
        self.port = find_free()
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

    def config(self, user: str, listener: str = "CLIENT") -> Path:
        file = self.home / f"{user}-{listener}.toml"
        security = (
            f'{{ protocol = "SASL_SSL", mechanism = "SCRAM-SHA-512", username = "{user}", '
            f'password_file = "{self.secret(user)}", ca_file = "{self.home}/kafka/ca.pem" }}'
        )
        file.write_text(
            '[space]\nprice = { kind = "float", low = 0.0, high = 1000.0 }\n'
            '[overlay]\nlinks = [["paris", "oslo"], ["paris", "rome"]]\nregions = [["paris", "oslo"], ["rome"]]\n'
            f'[kafka]\nbootstrap = "{self.kafka.at(listener)}"\nprefix = "{PREFIX}"\nsecurity = {security}\n'
            f'[lake]\npath = "{self.home}/lake"\ncheckpoint = "{self.home}/checkpoint"\nmetrics_every = 0\n'
            f"[engine]\nmetrics_port = {self.port}\n[limits]\nsubscriptions_per_client = 1\n"
        )
        return file

    def lacuna(self, *words: str, user: str, listener: str = "CLIENT") -> subprocess.CompletedProcess[str]:
        command = [PROGRAM, *words, "--config", str(self.home / f"{user}-{listener}.toml")]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)

    def subscribe(self, *more: str, id: str = "s1", user: str = "producer", listener: str = "CLIENT") -> Any:
        words = ("--broker", "oslo", "--client", "ann", "--id", id, "--where", '{"price": [10, 20]}')
        return self.lacuna("subscribe", *words, *more, user=user, listener=listener)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("secured"))
    yield world
    world.kafka.stop()


@pytest.fixture(scope="module")
def job(world: World) -> Iterator[Job]:
    """The router and the archive, as the user `router`."""
    job = Job(world.home / "job", world.kafka.at("CLIENT"), PREFIX)
    job.file = world.config("router")
    job.start()
    yield job
    job.kill()


def get(world: World, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{world.port}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def value_of(world: World) -> Callable[..., float]:
    """The numbers of the job, as a real parser reads them."""
    parser = pytest.importorskip("prometheus_client.parser", reason="`make setup` installs it")
    families = parser.text_string_to_metric_families(get(world, "/metrics"))
    found = {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}
    return lambda name, **labels: found.get((f"lacuna_{name}", frozenset(labels.items())), 0.0)


def test_a_system_runs_with_the_printed_rights_and_nothing_more(world: World, job: Job) -> None:
    subscribed = world.subscribe("--wait")
    assert subscribed.returncode == 0, subscribed.stderr
    at = ("--broker", "rome", "--id", "p1", "--at", '{"price": 12.5}', "--payload", "hello")
    published = world.lacuna("publish", *at, "--wait", "--json", user="producer")
    assert published.returncode == 0, published.stderr
    assert json.loads(published.stdout)["notice"]["deliveries"] == 1
    refused = world.lacuna("publish", "--broker", "rome", "--id", "p2", "--at", '{"price": 5000}', user="producer")
    assert refused.returncode == 2, "the client refuses what the router would"
    heard = world.lacuna("listen", "--client", "ann", "--from-beginning", "--count", "1", "--json", user="listener")
    assert heard.returncode == 0, heard.stderr
    assert json.loads(heard.stdout)["payload"] == "hello"


def test_a_client_learns_what_became_of_its_events(world: World, job: Job) -> None:
    """Run after the first test: s1 of ann stands."""
    refused = world.subscribe("--wait", id="s2")
    assert refused.returncode == 2 and "1 subscriptions of ann stand here; 1 may" in refused.stderr
    words = ("--client", "ann", "--notices", "--from-beginning", "--count", "2", "--timeout", "60", "--json")
    heard = world.lacuna("listen", *words, user="listener")
    assert heard.returncode == 0, heard.stderr
    notices = [json.loads(line) for line in heard.stdout.splitlines()]
    assert [(n["id"], n["state"], n.get("rule")) for n in notices] == [
        ("s1", "in-force", None),
        ("s2", "refused", "quota"),
    ]


def test_the_endpoint_agrees_with_the_tables(world: World, job: Job) -> None:
    """Run after the first test: its events are in the tables."""
    wait_until(lambda: value_of(world)("deliveries_total") == len(rows(world, "deliveries")) == 1, "archived, counted")
    wait_until(lambda: value_of(world)("rejects_total", rule="quota") == len(rows(world, "rejects")) == 1, "the reject")
    value, routes = value_of(world), rows(world, "routes")
    for broker, link in {(row["broker"], row["link"]) for row in routes}:
        for action in ("forward", "stop"):
            counted = sum((r["broker"], r["link"], r["action"]) == (broker, link, action) for r in routes)
            assert value("link_publications_total", link=f"{broker}>{link}", action=action) == counted
    assert value("events_total", kind="publish") == 1 and value("events_total", kind="subscribe") == 2
    assert value("rejects_total", rule="quota") == len(rows(world, "rejects")) == 1
    assert value("subscriptions", region="paris") == 1
    assert value("kafka_up") == value("query_up", query="router") == value("query_up", query="archive") == 1
    assert value("certificate_expiry_timestamp_seconds", file=f"{world.home}/kafka/ca.pem") > 1.7e9
    status = world.lacuna("status", "--json", user="router")
    assert (status.returncode, json.loads(status.stdout)["state"]) == (0, "healthy"), status.stdout
    assert get(world, "/healthz") == "ok\n" and get(world, "/readyz") == "ready\n"


def rows(world: World, table: str) -> list[dict[str, Any]]:
    import deltalake

    return list(deltalake.DeltaTable(f"{world.home}/lake/{table}").to_pyarrow_table().to_pylist())


def test_no_password_is_found_in_any_output_log_table_or_topic(world: World, job: Job) -> None:
    assert job.process is not None
    secret = [password.encode() for password in PASSWORDS.values()]
    files = [path for path in world.home.rglob("*") if path.is_file() and path.suffix != ".password"]
    assert len(files) > 20
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
    seen = get(world, "/status") + get(world, "/metrics")
    assert not any(password.decode() in seen for password in secret)


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


def test_mutual_tls(world: World) -> None:
    home = world.home / "kafka"
    security = Security("SSL", ca_file=str(home / "ca.pem"), cert_file=str(home / "client.pem"))
    assert topic_spans(Address(world.kafka.at("MUTUAL"), security), ["none"]) == {}
