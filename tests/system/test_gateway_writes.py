"""Writing over HTTP: what comes into Kafka, what is refused, whose it is, and the router's word."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from producers.client import Client
from state.config import Config
from tests.core.consoles import TOUR, write
from tests.system.clients import AT, Echo, events_of, log_of
from tests.system.gateway import Ear, Served, announce, token_entry
from tests.system.secured import openssl

pytestmark = pytest.mark.system
S1 = "/v1/brokers/oslo/subscriptions/s1"
PUBLICATIONS = "/v1/brokers/oslo/publications"
WHERE = {"where": {"price": [10, 20]}}


@pytest.fixture
def served(config: Config, text: str, tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "gateway", text) as served:
        yield served


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    headers = {"Lacuna-Client": "ann"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=60, trust_env=False) as http:
        yield http


@pytest.fixture
def echo(config: Config) -> Iterator[Echo]:
    """A router of one client."""
    ended, echo = threading.Event(), Echo(config.kafka, "ann")
    thread = threading.Thread(target=echo.run, args=(ended,))
    thread.start()
    yield echo
    ended.set()
    thread.join()


def test_it_is_ready_when_the_topics_are_there(served: Served, text: str, tmp_path: Path) -> None:
    assert httpx.get(f"{served.url}/readyz").text == "ready\n"
    assert "\nlacuna_kafka_up 1\n" in httpx.get(f"{served.url}/metrics").text
    with Served(tmp_path / "early", text.replace('prefix = "', 'prefix = "no')) as early:
        answer = httpx.get(f"{early.url}/readyz")
        assert answer.status_code == 503 and "start the router" in answer.text


def test_changes_arrive_with_client_and_revision(config: Config, http: httpx.Client) -> None:
    put = http.put(S1, json={**WHERE, "ttl": 60})
    assert put.status_code == 202 and put.headers["etag"] == f'"{put.json()["rev"]}"'
    late = http.put("/v1/brokers/oslo/subscriptions/a%2Fb c", json={"where": "price < 20"})
    assert late.json()["id"] == "a/b c"
    after = http.delete(S1, headers={"If-Match": put.headers["etag"]})
    assert after.json()["rev"] == put.json()["rev"] + 1
    (first, second), (gone,) = events_of(config, "subscribe"), events_of(config, "unsubscribe")
    assert first[0] == "oslo" and first[1]["client"] == "ann" and first[1]["where"] == WHERE["where"]
    assert first[1]["ttl"] == 60 and first[1]["rev"] < second[1]["rev"]
    assert (gone[1]["id"], gone[1]["rev"]) == ("s1", put.json()["rev"] + 1)
    listed = http.get("/v1/subscriptions").json()["subscriptions"]
    assert [(s["id"], s["where"]) for s in listed] == [("a/b c", "price < 20")]
    assert http.get("/v1/subscriptions", headers={"Lacuna-Client": "bob"}).json() == {"subscriptions": []}
    assert http.put(S1, json=WHERE, headers={"If-Match": "x"}).status_code == 400


def test_publications_come_one_by_one_many_at_once_and_as_cloudevents(config: Config, http: httpx.Client) -> None:
    assert http.post(PUBLICATIONS, json={"id": "p1", "at": AT, "payload": [1, "é"]}).status_code == 202
    lines = "\n".join(json.dumps({"id": f"n{k}", "at": AT}) for k in range(300))
    many = http.post(PUBLICATIONS, content=lines + "\n\n", headers={"Content-Type": "application/x-ndjson"})
    assert (many.status_code, many.json()["accepted"]) == (202, 300)
    event = {"specversion": "1.0", "id": "c1", "source": "/desk", "type": "trade", "data": {"at": AT, "payload": 7}}
    structured = {"Content-Type": "application/cloudevents+json"}
    assert http.post(PUBLICATIONS, json=event, headers=structured).status_code == 202
    binary = {"ce-specversion": "1.0", "ce-id": "c2", "ce-source": "/desk%20two", "ce-type": "trade", "ce-turn": "3"}
    assert http.post(PUBLICATIONS, json={"at": AT}, headers=binary).status_code == 202
    found = [event for _, event in events_of(config, "publish")]
    assert [e["id"] for e in found] == ["p1", *(f"n{k}" for k in range(300)), "c1", "c2"]
    assert found[0]["payload"] == [1, "é"] and found[-2]["payload"] == 7
    last = log_of(config.kafka, f"{config.kafka.prefix}.publish")[-1]
    assert dict(last.headers) == {
        "ce_specversion": b"1.0",
        "ce_source": b"/desk two",
        "ce_type": b"trade",
        "ce_turn": b"3",
    }


BAD: list[tuple[str, str, Any, str]] = [
    ("PUT", S1, {"where": {"price": [20, 10]}}, "inverted"),
    ("PUT", S1, {"where": {"prise": [1, 2]}}, "attribute"),
    ("PUT", S1, {"where": {}, "ttl": -1}, "ttl"),
    ("PUT", S1, {"where": {}, "client": "bob"}, "field"),
    ("PUT", S1, {}, "missing"),
    ("PUT", "/v1/brokers/nowhere/subscriptions/s1", WHERE, "broker"),
    ("PUT", f"/v1/brokers/oslo/subscriptions/{'x' * 300}", WHERE, "id"),
    ("DELETE", "/v1/brokers/nowhere/subscriptions/s1", None, "broker"),
    ("POST", PUBLICATIONS, {"id": "p", "at": {"price": 1}}, "attribute"),
    ("POST", PUBLICATIONS, {"id": "p", "at": AT | {"price": 5000}}, "domain"),
    ("POST", PUBLICATIONS, {"id": "p", "at": AT | {"volume": 1.5}}, "fraction"),
    ("POST", PUBLICATIONS, {"at": AT}, "missing"),
    ("POST", PUBLICATIONS, {"id": "p", "at": AT, "payload": "x" * 70_000}, "payload"),
]


def test_a_bad_one_is_refused_by_the_routers_rules_and_not_sent(config: Config, http: httpx.Client) -> None:
    for method, path, body, rule in BAD:
        answer = http.request(method, path, json=body)
        said = answer.json()
        assert (answer.status_code, said["rule"]) == (422, rule), said
        assert said["message"] and said["remedy"]
    lines = [json.dumps({"id": f"n{k}", "at": AT | {"price": 5000 if k == 2 else 1}}) for k in range(4)]
    bad = http.post(PUBLICATIONS, content="\n".join(lines), headers={"Content-Type": "application/x-ndjson"})
    assert (bad.status_code, bad.json()["rule"], bad.json()["line"]) == (422, "domain", 3)
    nan = http.post(PUBLICATIONS, content=b'{"id": "p", "at": {"price": NaN, "volume": 1, "symbol": "IBM"}}')
    assert (nan.status_code, nan.json()["rule"]) == (422, "finite")
    event = {"specversion": "0.3", "id": "c1", "source": "/", "type": "t", "data": {"at": AT}}
    assert http.post(PUBLICATIONS, json=event, headers={"Content-Type": "application/cloudevents+json"}).is_client_error
    assert not log_of(config.kafka, f"{config.kafka.prefix}.publish")
    assert not log_of(config.kafka, f"{config.kafka.prefix}.subscribe")


def test_prefer_wait_answers_when_the_router_has(config: Config, http: httpx.Client, echo: Echo) -> None:
    wait = {"Prefer": "wait=30"}
    put = http.put(S1, json=WHERE, headers=wait)
    assert (put.status_code, put.json()["state"], put.headers["preference-applied"]) == (200, "in-force", "wait")
    sent = http.post(PUBLICATIONS, json={"id": "p1", "at": AT}, headers=wait)
    assert (sent.status_code, sent.json()["deliveries"]) == (200, 1)


def test_the_routers_refusal_and_its_silence_are_told(config: Config, http: httpx.Client) -> None:
    assert http.put(S1, json=WHERE, headers={"Prefer": "wait=1"}).status_code == 202  # nobody routes here
    for state, rule, status in (("refused", "stale", 409), ("refused", "quota", 422), ("not-standing", None, 404)):
        answer = _answered(config, http, state, rule)
        assert answer.status_code == status
        assert answer.json()["rule"] == (rule or "standing")


def _answered(config: Config, http: httpx.Client, state: str, rule: str | None) -> httpx.Response:
    """The answer to a change about which the router says this."""
    found: list[httpx.Response] = []
    wait = {"Prefer": "wait=60"}
    before = len(log_of(config.kafka, f"{config.kafka.prefix}.unsubscribe"))
    asking = threading.Thread(target=lambda: found.append(http.delete(S1, headers=wait)))
    asking.start()
    while len(sent := log_of(config.kafka, f"{config.kafka.prefix}.unsubscribe")) == before:
        pass
    notice = {"state": state, "ack": json.loads(sent[-1].value)["ack"], "message": "m"} | (
        {"rule": rule} if rule else {}
    )
    echo = Echo(config.kafka, "ann")
    echo._producer.send(f"{config.kafka.prefix}.notices", json.dumps(notice).encode(), key=b"ann").get(30)
    echo._producer.close()
    asking.join()
    return found[0]


def test_nobody_reads_or_cancels_anothers(config: Config, text: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    rights = ("publish", "subscribe", "listen")
    more = "limits = { publications_per_second = 3 }"
    tokens.write_text(token_entry("a" * 40, "ann", *rights, more=more) + token_entry("b" * 40, "bob", *rights))
    announce(config.kafka)
    with (
        Served(tmp_path / "gateway", f'{text}\n[serve]\ntokens_file = "{tokens}"\n') as served,
        httpx.Client(base_url=served.url, timeout=60, trust_env=False) as http,
    ):
        ann, bob = ({"Authorization": f"Bearer {token * 40}"} for token in "ab")
        assert http.put(S1, json=WHERE, headers=ann | {"Lacuna-Client": "bob"}).status_code == 202
        assert http.delete(S1, headers=bob).status_code == 202  # his own of that name, which does not stand
        assert [s["id"] for s in http.get("/v1/subscriptions", headers=ann).json()["subscriptions"]] == ["s1"]
        assert http.get("/v1/subscriptions", headers=bob).json()["subscriptions"] == []
        assert http.get("/v1/subscriptions", headers={"Lacuna-Client": "ann"}).status_code == 401
        assert http.get("/v1/deliveries").status_code == 401
        with Ear(Authorization=bob["Authorization"]).open(served.url):
            pass
        many = {**ann, "Content-Type": "application/x-ndjson"}
        lines = "\n".join(json.dumps({"id": f"n{k}", "at": AT}) for k in range(9))
        assert http.post(PUBLICATIONS, content=lines, headers=many).status_code == 202
        refused = http.post(PUBLICATIONS, content=lines, headers=many)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        tokens.write_text(token_entry("b" * 40, "bob", *rights))
        assert http.get("/v1/subscriptions", headers=ann).status_code == 401
        audit = [json.loads(line)["text"] for line in served.log().splitlines() if "lacuna.audit" in line]
        assert audit[0].startswith("subscribe 's1' at 'oslo' by 'ann'") and not any("aaaa" in line for line in audit)


def test_what_never_ends_is_ended(served: Served) -> None:
    """A head that trickles, one without end, and a body that does not come."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as endless, pytest.raises(OSError):
        endless.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(200):
            endless.sendall(b"X-Header: " + b"x" * 60_000 + b"\r\n")
    with (
        socket.create_connection(("127.0.0.1", served.port), timeout=60) as head,
        socket.create_connection(("127.0.0.1", served.port), timeout=60) as body,
    ):
        head.sendall(b"GET / HTTP/1.1\r\nHost: local")
        body.sendall(b"PUT %s HTTP/1.1\r\nHost: localhost\r\n" % S1.encode())
        body.sendall(b"Lacuna-Client: ann\r\nContent-Length: 100\r\n\r\n{")
        assert b" 408 " in body.recv(4096).partition(b"\r\n")[0]
        assert head.recv(4096) == b""
    assert httpx.get(f"{served.url}/healthz").text == "ok\n"


def test_tls(config: Config, text: str, tmp_path: Path) -> None:
    made = ("-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem")
    openssl(tmp_path, "req", "-x509", *made)
    serve = f'[serve]\ncert_file = "{tmp_path}/cert.pem"\nkey_file = "{tmp_path}/key.pem"\n'
    announce(config.kafka)
    with Served(tmp_path / "gateway", f"{text}\n{serve}") as served:
        assert served.url.startswith("https://")
        with Ear().open(served.url), Client(config, broker="oslo", name="ann"):
            pass
        answer = httpx.get(f"{served.url}/healthz", verify=False, trust_env=False)
        assert answer.headers["strict-transport-security"]


def test_the_api_is_as_it_is_described(config: Config, text: str, tmp_path: Path) -> None:
    """Schemathesis makes requests from /openapi.json, right and wrong ones, and judges the answers by it.

    Streams are left out, because they have no end.
    """
    write([event for event in TOUR if event["broker"] in config.overlay.brokers], tmp_path, text)
    with Served(tmp_path / "gateway", f'{text}\n[lake]\npath = "{tmp_path}/lake"\n') as served:
        program = Path(sys.executable).with_name("schemathesis")
        command = [program, "run", f"{served.url}/openapi.json", "--header", "Lacuna-Client: ann"]
        command += ["--exclude-path-regex", "deliveries", "--phases", "examples,fuzzing", "--workers", "1"]
        command += ["--checks", "not_a_server_error,status_code_conformance,content_type_conformance,"]
        command[-1] += "response_schema_conformance"
        command += ["--max-examples", "15", "--generation-deterministic", "--request-timeout", "60"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stdout[-4000:]
        tried = {"at": {"price": 15, "volume": 1, "symbol": "IBM"}}
        answer = httpx.post(f"{served.url}/v1/explain", json=tried, headers={"Lacuna-Client": "ann"})
        assert answer.json()["deliveries"] > 0, "there was something to be explained"
