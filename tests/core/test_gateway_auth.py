"""Who may do what at the gateway: tokens, rights, limits; and what its guard refuses."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from starlette.testclient import TestClient

from lacuna.cli.serve import serving
from lacuna.serve.app import build
from lacuna.serve.auth import COOKIE, Auth, read_tokens
from lacuna.serve.guard import POLICY
from lacuna.serve.problems import Problem
from lacuna.serve.server import server
from state.config import Config, Serve, parse
from state.errors import ConfigError, LacunaError
from tests.core import consoles

SPACE = '[space]\nx = { kind = "int", low = 0, high = 9 }\n[overlay]\nlinks = [["oslo", "paris"]]\n'
ALL = '["publish", "subscribe", "listen", "observe"]'


def entry(token: str, client: str, rights: str = ALL, more: str = "") -> str:
    digest = hashlib.sha256(token.encode()).hexdigest()
    return f'[[token]]\nsha256 = "{digest}"\nclient = "{client}"\nrights = {rights}\n{more}\n'


def config(serve: str = "") -> Config:
    return parse(f"{SPACE}[serve]\n{serve}\n")


def request(**headers: str) -> Request:
    raw = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw, "method": "GET", "path": "/"})


def refused(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(Problem) as caught:
        call()
    return caught.value.status, caught.value.rule


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.toml"
    more = 'brokers = ["oslo"]\nlimits = { requests_per_second = 2, publications_per_second = 5 }'
    file.write_text(entry("a" * 40, "ann") + entry("b" * 40, "bob", '["listen"]', more))
    return file


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_its_client_with_its_rights_and_brokers(tokens: Path) -> None:
    auth = Auth(Serve(tokens_file=str(tokens)))
    ann, bob = request(Authorization=f"Bearer {'a' * 40}"), request(Cookie=f"{COOKIE}={'b' * 40}")
    assert auth.client(ann, "publish", "paris")[1] == "ann"
    assert auth.client(bob, "listen", "oslo")[1] == "bob"
    assert refused(lambda: auth.require(bob, "listen", "paris")) == (403, "right")
    assert refused(lambda: auth.require(bob, "subscribe")) == (403, "right")
    assert refused(lambda: auth.caller(request())) == (401, "token")
    assert refused(lambda: auth.caller(request(Authorization="Bearer x"))) == (401, "token")
    assert refused(lambda: auth.caller(request(Lacuna_Client="ann"))) == (401, "token")


def test_tokens_are_read_again_when_the_file_changes(tokens: Path, caplog: pytest.LogCaptureFixture) -> None:
    auth = Auth(Serve(tokens_file=str(tokens)))
    ann = auth.holder("a" * 40)
    assert ann is not None and auth.stands(ann)
    tokens.write_text(entry("c" * 40, "cat"))
    assert auth.holder("a" * 40) is None and auth.holder("c" * 40) is not None
    assert not auth.stands(ann)
    tokens.write_text("[[token]]\n")
    os.utime(tokens, (1, 1))
    assert auth.holder("c" * 40) is not None and "stay as they were" in caplog.text
    tokens.unlink()
    assert auth.holder("c" * 40) is not None
    tokens.write_text(entry("a" * 40, "ann"))
    assert auth.holder("c" * 40) is None and auth.holder("a" * 40) == ann


def test_a_rate_is_held_and_recovers(tokens: Path) -> None:
    clock = Clock()
    auth = Auth(Serve(tokens_file=str(tokens)), clock)
    bob = auth.holder("b" * 40)
    assert bob is not None
    for _ in range(2):
        auth.spend(bob)
    assert refused(lambda: auth.spend(bob)) == (429, "limit")
    auth.spend(bob, 12)  # more than a second's worth at once puts the bucket in debt
    assert refused(lambda: auth.spend(bob, 1)) == (429, "limit")
    clock.now = 1.0
    auth.spend(bob)
    assert refused(lambda: auth.spend(bob, 1)) == (429, "limit")
    clock.now = 3.0
    auth.spend(bob, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "nothing but"),
        ('[[token]]\ntoken = "secret"', "a secret does not stand"),
        ('[[token]]\nsha256 = "12"', "64 hexadecimal"),
        (entry("a", "ann", '["fly"]'), "no such rights"),
        (entry("a", ""), "1 to 256"),
        (entry("a", "ann", ALL, "limits = { streams = 0 }"), "above 0"),
        (entry("a", "ann", ALL, 'brokers = "oslo"'), "lists brokers"),
        (entry("a", "ann", ALL, "right = 1"), "did you mean 'rights'"),
        (entry("a", "ann") * 2, "twice"),
        ("[[token", "cannot be read"),
    ],
)
def test_a_wrong_file_of_tokens_is_refused_and_shows_no_secret(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        read_tokens(str(tmp_path / "t"))
    assert "secret" not in str(caught.value).replace("a secret does", "")


@pytest.mark.parametrize(
    ("serve", "said"),
    [
        ('host = "0.0.0.0"', "name a tokens_file"),
        ('host = "0.0.0.0"\ntokens_file = "t"', "plain text"),
        ('host = "0.0.0.0"\ntokens_file = "t"\nproxied = true', "names by which"),
        ('cert_file = "c"', "belong together"),
        ('port = "80"', "it is a port"),
        ('hosts = "a"', "lists names"),
        ('job = "host:1"', "address of a job"),
        ("proxied = 1", "yes or no"),
        ("ports = 1", "did you mean 'port'"),
    ],
)
def test_a_gateway_that_would_be_open_is_refused(serve: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(serve)


def test_a_public_gateway_with_tokens_and_tls_is_accepted() -> None:
    text = 'host = "0.0.0.0"\ntokens_file = "t"\ncert_file = "c"\nkey_file = "k"\nhosts = ["A.org"]'
    assert config(text).serve.hosts == ("a.org",)


def test_a_certificate_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("no certificate")
    with pytest.raises(ConfigError, match="no certificate chain"):
        server(None, Serve(cert_file=str(tmp_path / "c"), key_file=str(tmp_path / "c")), lambda: None)


# The guard. No test here needs Kafka: what is refused does not come that far.


@pytest.fixture
def client() -> TestClient:
    return TestClient(build(config()), base_url="http://localhost:8080")


def test_foreign_hosts_and_origins_are_refused(client: TestClient) -> None:
    for host in ("evil.org", "evil@localhost", "localhost.evil.org", "127.0.0.1.nip.io"):
        answer = client.get("/", headers={"Host": host})
        assert (answer.status_code, answer.json()["rule"]) == (421, "host")
    assert client.get("/healthz", headers={"Host": "10.0.0.7:8080"}).text == "ok\n"
    for origin in ("http://evil.org", "null", "http://localhost", "http://localhost:8081"):
        answer = client.post("/v1/explain", headers={"Origin": origin, "Lacuna-Client": "ann"}, content="{")
        assert (answer.status_code, answer.json()["rule"]) == (403, "origin")
    assert client.post("/v1/explain", headers={"Sec-Fetch-Site": "cross-site"}, content="{").status_code == 403
    own = client.post("/v1/explain", headers={"Origin": "http://localhost:8080"}, content="{")
    assert (own.status_code, own.json()["rule"]) == (422, "json")


def test_every_answer_is_safe(client: TestClient) -> None:
    for path in ("/healthz", "/nothing", "/openapi.json"):
        headers = client.get(path).headers
        assert headers["content-security-policy"] == POLICY and "unsafe" not in POLICY
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in client.options("/v1/explain", headers={"Origin": "http://a"}).headers


def test_bodies_have_a_size_and_a_type(client: TestClient) -> None:
    who = {"Lacuna-Client": "ann"}
    path = "/v1/brokers/oslo/publications"
    assert client.post(path, headers=who, content=b"x" * (1 << 20)).status_code == 413
    assert client.post(path, headers=who, content=iter([b"x" * (1 << 18)] * 4)).status_code == 413
    assert client.post(path, headers=who | {"Content-Type": "text/html"}, content="x").status_code == 415
    assert client.put("/v1/brokers/oslo/subscriptions/s", content="{}").json()["rule"] == "token"
    for body, rule in ((b"[]", "json"), (b'{"a":1,"a":1}', "duplicate"), (b'"\xff"', "utf8"), (b'{"rev": 1}', "field")):
        answer = client.put("/v1/brokers/oslo/subscriptions/s", headers=who, content=body)
        assert (answer.status_code, answer.json()["rule"]) == (422, rule)


def test_signing_in_gives_a_cookie_that_no_script_reads(tokens: Path) -> None:
    client = TestClient(
        build(config(f'tokens_file = "{tokens}"')), base_url="https://localhost", follow_redirects=False
    )
    assert client.get("/").headers["location"] == "/login"
    origin = {"Origin": "https://localhost"}
    for token, status, said in (("wrong", 401, "not known"), ("", 401, "not known"), ("b" * 40, 403, "of bob lacks")):
        refused = client.post("/login", data={"token": token}, headers=origin)
        assert refused.status_code == status and said in refused.text and "set-cookie" not in refused.headers
    answer = client.post("/login", data={"token": "a" * 40}, headers=origin)
    cookie = answer.headers["set-cookie"].lower()
    assert answer.status_code == 303 and all(word in cookie for word in ("httponly", "secure", "samesite=strict"))
    assert client.get("/nothing").status_code == 404  # and not the way to /login
    assert client.post("/logout", headers={"Origin": "https://evil.org"}).status_code == 403
    client.post("/logout", headers=origin)
    assert client.get("/nothing").status_code == 303


def test_without_tokens_nobody_is_asked_to_sign_in(client: TestClient) -> None:
    assert client.get("/login", follow_redirects=False).headers["location"] == "/"
    assert client.post("/login", data={"token": "x"}).status_code == 401
    assert "Sign out" not in client.get("/nothing").text


def test_a_page_needs_the_right_to_observe(tokens: Path) -> None:
    client = TestClient(build(config(f'tokens_file = "{tokens}"')), base_url="https://localhost")
    answer = client.get("/nothing", headers={"Authorization": f"Bearer {'b' * 40}"})
    assert (answer.status_code, answer.json()["rule"]) == (403, "right")


def test_a_path_that_is_none_is_answered_by_the_api_not_by_a_page(tokens: Path) -> None:
    app = build(config(f'tokens_file = "{tokens}"'))
    client = TestClient(app, base_url="https://localhost", follow_redirects=False)
    wrong = client.get("/v1/brokers/oslo/publications")
    assert (wrong.status_code, wrong.headers["allow"], wrong.json()["rule"]) == (405, "POST", "path")
    assert client.post("/v1/nothing", content="{}").status_code == 404


def test_tries_are_answered_from_the_tables(tmp_path: Path) -> None:
    served = TestClient(build(consoles.write(consoles.TOUR, tmp_path)), base_url="http://localhost")
    at = {"price": 21.5, "volume": 150, "symbol": "IBM"}
    answer = served.post("/v1/explain", json={"at": at, "broker": "rome"}).json()
    assert answer["deliveries"] == 1 and answer["sentences"][0]["text"].startswith("It would reach 1 subscription: s3")
    tried = served.post("/v1/explain", json={"where": {"price": [12, 13]}, "broker": "oslo"}).json()
    assert [link["action"] for link in tried["links"]] == ["withhold"]
    refused = served.post("/v1/explain", json={"at": at | {"price": 5000}})
    assert (refused.status_code, refused.json()["rule"]) == (422, "domain")
    assert served.post("/v1/explain", json={}).json()["rule"] == "missing"
    assert "lacuna_gateway_tables_age_seconds" in served.get("/metrics").text


def test_tables_that_are_not_there_are_said(client: TestClient) -> None:
    answer = client.post("/v1/explain", json={"where": {}})
    assert (answer.status_code, answer.json()["rule"]) == (503, "lake")


def test_the_numbers_are_read_by_prometheus(client: TestClient) -> None:
    client.get("/v1/brokers/oslo/publications")
    client.put("/v1/brokers/oslo/subscriptions/s1", content="{}")
    found = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    assert {"lacuna_gateway_streams", "lacuna_gateway_pending_bytes", "lacuna_kafka_up"} <= found.keys()
    routes = {sample.labels["route"] for sample in found["lacuna_gateway_requests"].samples}
    assert "/v1/brokers/{broker}/subscriptions/{id:path}" in routes
    assert not any("oslo" in route for route in routes), "whoever makes up paths makes no labels"


def test_a_gateway_beside_the_job_serves_as_long_as_the_body_runs() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LacunaError, match=f"serve.port = {port}: .* choose another port"):
            serving(config(f"port = {port}")).__enter__()
    with serving(config(f"port = {port}")):
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).text == "ok\n"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False)


def test_the_gateway_needs_nothing_of_spark() -> None:
    code = "import sys, lacuna.cli.serve; print([m for m in ('pyspark', 'pandas', 'duckdb') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
