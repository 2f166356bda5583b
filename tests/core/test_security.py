"""`[kafka] security`: what is read, what each kind of client gets, and what is refused before either is used."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import pytest
from kafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
)
from kafka.net.sasl import get_sasl_mechanism

from access.connection import connect_admin, spark_options
from access.errors import NotAdmitted, NotAllowed, Unreachable, failed
from access.rights import ROLES, rights
from access.security import TokenFile, check, encryption, expiries, python_options, stamp
from lacuna.__main__ import main
from state.config import Kafka, parse
from state.errors import ConfigError
from state.protocol.security import Address, Security, read_security, security_of
from state.protocol.topics import Topics

PASSWORD = "correct horse 4711"
SCRAM = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "username": "ann", "password_file": "secret/pw"}
CONFIG = """
[space]
x = { kind = "int", low = 0, high = 9 }
[overlay]
brokers = ["hub"]
[kafka]
bootstrap = "127.0.0.1:1"
security = { protocol = "SASL_PLAINTEXT", mechanism = "PLAIN", username = "ann", password_file = "pw" }
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("secret").mkdir()
    Path("secret/pw").write_text(PASSWORD)
    return tmp_path


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def certificate(name: str = "x", days: int = 30) -> None:
    """A certificate that signs itself, in ca.pem and in a file of its name, and the same with its key in both.pem."""
    asked = ("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}")
    openssl(*asked, "-keyout", "key.pem", "-out", "asked.csr")
    openssl("x509", "-req", "-in", "asked.csr", "-signkey", "key.pem", "-days", str(days), "-out", "ca.pem")
    Path("both.pem").write_bytes(Path("key.pem").read_bytes() + Path("ca.pem").read_bytes())
    shutil.copy("ca.pem", f"{name}.crt")


# reading


def test_the_address_carries_the_security_wherever_it_goes() -> None:
    kafka = parse(CONFIG).kafka
    assert kafka.bootstrap == "127.0.0.1:1" and security_of(kafka.bootstrap) == kafka.security
    assert security_of(pickle.loads(pickle.dumps(kafka)).bootstrap) == kafka.security
    assert security_of(Address(kafka.bootstrap)) == kafka.security
    assert security_of(replace(kafka, security=Security()).bootstrap) == security_of("a:1") == Security()
    assert Kafka() == Kafka("localhost:9092")


@pytest.mark.parametrize(
    ("given", "key", "rule"),
    [
        ("SSL", "security", "must be a table"),
        ({}, "protocol", "is missing"),
        ({"protocol": "TLS"}, "protocol", "no such protocol"),
        ({"protocol": "SSL", "ca": "x"}, "ca", "no such key"),
        ({"protocol": "SSL", "ca_file": 5}, "ca_file", "non-empty string"),
        ({"protocol": "SASL_SSL"}, "mechanism", "SASL needs a mechanism"),
        ({"protocol": "sasl_ssl"}, "protocol", r"did you mean 'SASL_SSL'\?"),
        ({"protocol": "SASL_SSL", "mechanism": "GSSAPI"}, "mechanism", "no such mechanism"),
        ({"protocol": "SASL_SSL", "mechanism": "scram_sha_512"}, "mechanism", r"did you mean 'SCRAM-SHA-512'\?"),
        ({"protocol": "SSL", "username": "ann"}, "username", "no meaning with SSL"),
        ({"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "ca_file": "x"}, "ca_file", "no meaning"),
        ({"protocol": "SASL_SSL", "mechanism": "PLAIN"}, "username", "PLAIN needs it"),
        ({"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "a"}, "password_file", "one of"),
        (SCRAM | {"password_env": "X"}, "password_file", "one of"),
        (SCRAM | {"token_file": "X"}, "token_file", "no meaning"),
        ({"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}, "token_file", "OAUTHBEARER needs it"),
    ],
)
def test_what_does_not_fit_together_is_refused(given: object, key: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.(security\.)?{key}.*{rule}.*Remedy: "):
        read_security(given)


@pytest.mark.parametrize("key", [field.name for field in fields(Security)])
def test_each_key_is_recognised_when_it_is_mistyped(key: str) -> None:
    for mistyped in {key[:-1], key[1:], key.replace("_", "-"), key.upper()} - {key}:
        with pytest.raises(
            ConfigError, match=rf"kafka\.security\.{mistyped}: .*did you mean '\w+'\?.* Remedy: use "
        ) as raised:
            read_security({"protocol": "SASL_SSL", mistyped: PASSWORD})
        assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize(
    "line", ["password", "sasl_password", "pasword", "security", "security.pasword", "security.password"]
)
def test_a_secret_in_the_wrong_place_is_refused_and_not_repeated(line: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\..* Remedy: ") as raised:
        parse(f"{CONFIG.rpartition('security')[0]}{line} = '{PASSWORD}'\n")
    assert PASSWORD not in str(raised.value)


def test_a_password_in_the_configuration_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="does not stand in the configuration") as raised:
        read_security({"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "ann", "password": PASSWORD})
    assert PASSWORD not in str(raised.value)


# what clients get


def test_spark_gets_references_and_no_secret(home: Path) -> None:
    certificate()
    security = read_security(SCRAM | {"ca_file": "ca.pem", "cert_file": "both.pem"})
    options = spark_options(Kafka("a:1", security=security).bootstrap)
    assert options.pop("kafka.lacuna.secrets.stamp") == stamp(security)
    assert options == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(home / "ca.pem"),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": str(home / "both.pem"),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="ann" password="${{dir:{home}/secret:pw}}";',
        "kafka.config.providers": "dir",
        "kafka.config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    }
    assert PASSWORD not in str(options) + str(security)
    assert spark_options("a:1") == {"kafka.bootstrap.servers": "a:1"}


def test_a_password_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PW", PASSWORD)
    security = Security("SASL_PLAINTEXT", "PLAIN", "ann", password_env="KAFKA_PW")
    check(security)
    assert python_options(security)["sasl_plain_password"].now() == PASSWORD
    jaas = spark_options(Address("a:1", security))["kafka.sasl.jaas.config"]
    assert jaas.endswith('password="${env:KAFKA_PW}";') and PASSWORD not in jaas
    monkeypatch.delenv("KAFKA_PW")
    with pytest.raises(ConfigError, match="no such variable"):
        check(security)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_is_read_again_for_each_connection(mechanism: str) -> None:
    """kafka-python makes a mechanism of its registered class for each connection, also within one client."""
    options = python_options(Security(**SCRAM | {"mechanism": mechanism}))

    def used() -> str:
        made = get_sasl_mechanism(mechanism)(host="h", **options)
        return str(getattr(made, "password", None) or made._scram_client.password.decode())

    assert used() == PASSWORD
    Path("secret/pw").write_text("rotated")
    assert used() == "rotated"
    Path("secret/pw").unlink()
    assert used() == "rotated", "what was known goes on while the file is replaced"
    assert get_sasl_mechanism("PLAIN")(host="h", sasl_plain_username="a", sasl_plain_password="b").password == "b"


def test_a_token_is_read_again_for_each_connection() -> None:
    tokens = TokenFile("token")
    for token in ("one", "two\n"):
        Path("token").write_text(token)
        assert tokens.token() == token.strip(), "a line break is no part of a token"


def test_certificates_are_read_again_for_each_connection() -> None:
    """A client shows the certificate that is in its file now, and keeps the one it has while the file is broken."""
    certificate("server")
    shutil.copy("both.pem", "server.pem")
    certificate("one")
    made = encryption(Security("SSL", ca_file="ca.pem", cert_file="both.pem"))
    assert shown_by(made, "one") == "one"
    certificate("two")
    assert shown_by(made, "two") == "two"
    Path("both.pem").write_text("half a certif")
    assert shown_by(made, "two") == "two"


def shown_by(client: ssl.SSLContext, trusted: str) -> str:
    """The name in the certificate that a client shows to a server that trusts the one of this name."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain("server.pem")
    server.load_verify_locations(f"{trusted}.crt")
    server.verify_mode = ssl.CERT_REQUIRED
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        seen = pool.submit(lambda: server.wrap_socket(theirs, server_side=True).getpeercert())
        with client.wrap_socket(ours):
            name = dict(pair[0] for pair in seen.result()["subject"])
    return str(name["commonName"])


def test_the_stamp_changes_with_each_file_and_tells_nothing() -> None:
    certificate()
    Path("token").write_text("ey")
    security = Security("SASL_SSL", "OAUTHBEARER", token_file="token", ca_file="ca.pem", cert_file="both.pem")
    seen = {stamp(security)}
    for name in ("token", "ca.pem", "both.pem"):
        Path("new").write_bytes(Path(name).read_bytes())
        Path("new").replace(name)
        seen.add(stamp(security))
    Path("token").unlink()
    assert len(seen | {stamp(security)}) == 5
    assert stamp(Security()) == "" and PASSWORD not in stamp(Security(**SCRAM))


def test_a_token_comes_from_its_file(home: Path) -> None:
    Path("token").write_text(f"{token(60)}\n")
    security = Security("SASL_SSL", "OAUTHBEARER", token_file="token")
    check(security)
    assert python_options(security)["sasl_oauth_token_provider"].token() == token(60)
    options = spark_options(Address("a:1", security))
    assert f'required stamp="{stamp(security)}";' in options["kafka.sasl.jaas.config"]
    assert options["kafka.sasl.oauthbearer.token.endpoint.url"] == f"file://{home}/token"
    assert "username" not in options["kafka.sasl.jaas.config"]


def token(seconds: float) -> str:
    """A token without a signature that is valid for so long after the year 2100."""
    claims = json.dumps({"sub": "ann", "exp": 4102444800 + seconds}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.x"


# what is refused before


@pytest.mark.parametrize(
    ("content", "rule"),
    [(PASSWORD + "\n", "ends with a line break"), ("", "is empty"), ('a"b', "quotation mark"), ("a\\b", "backslash")],
)
def test_a_password_that_java_cannot_take_is_refused_and_not_repeated(content: str, rule: str) -> None:
    Path("secret/pw").write_text(content)
    with pytest.raises(ConfigError, match=rf"password_file = 'secret/pw': .*{rule}.* Remedy") as raised:
        check(Security("SASL_PLAINTEXT", *list(SCRAM.values())[1:]))
    assert not content or content.strip() not in str(raised.value)


def test_files_that_are_missing_or_hold_something_else_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"ca_file = 'none': there is no such file\. Remedy"):
        check(Security("SSL", ca_file="none"))
    with pytest.raises(ConfigError, match=r"password_file = 'none': there is no such file"):
        check(Security("SASL_PLAINTEXT", "PLAIN", "ann", "none"))
    with pytest.raises(ConfigError, match="it holds no certificate in PEM"):
        check(Security("SSL", ca_file="secret/pw"))
    certificate()
    with pytest.raises(ConfigError, match="no unencrypted private key"):
        check(Security("SSL", cert_file="ca.pem"))
    check(Security("SSL", ca_file="ca.pem", cert_file="both.pem"))
    for content, rule in (
        (" \n", "it is empty"),
        (PASSWORD, "no token of three parts"),
        (token(-9e9), "has expired on"),
    ):
        Path("token").write_text(content)
        with pytest.raises(ConfigError, match=rf"token_file = 'token': .*{rule}.* Remedy") as raised:
            check(Security("SASL_PLAINTEXT", "OAUTHBEARER", token_file="token"))
        assert not content.strip() or content not in str(raised.value)
    with pytest.raises(ConfigError, match=r"password_file = 'secret': .*Is a directory"):
        check(Security("SASL_PLAINTEXT", "PLAIN", "ann", "secret"))


def test_a_key_in_an_old_form_is_refused_with_the_command_that_converts_it() -> None:
    certificate()
    openssl("pkey", "-in", "key.pem", "-traditional", "-out", "old.pem")
    Path("old.pem").write_bytes(Path("old.pem").read_bytes() + Path("ca.pem").read_bytes())
    with pytest.raises(ConfigError, match=r"old form .* Remedy: convert it: openssl pkcs8 -topk8"):
        check(Security("SSL", cert_file="old.pem"))


def test_the_expiry_of_certificates_is_known_and_an_expired_one_is_refused() -> None:
    certificate()
    shown = subprocess.run(
        ["openssl", "x509", "-in", "ca.pem", "-noout", "-enddate", "-dateopt", "iso_8601"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (moment,) = expiries(Security("SSL", ca_file="ca.pem")).values()
    stamp = subprocess.run(
        ["date", "-u", "-d", shown.strip().partition("=")[2], "+%s"], capture_output=True, text=True, check=True
    ).stdout
    assert moment == float(stamp)
    certificate(days=-1)
    with pytest.raises(ConfigError, match=r"'ca\.pem': a certificate in it has expired on .* Remedy"):
        check(Security("SSL", ca_file="ca.pem"))


def test_each_failure_has_its_own_message() -> None:
    wrong = failed("a:1", 3, SaslAuthenticationFailedError("SaslAuthenticationFailedError: no"))
    assert isinstance(wrong, NotAdmitted) and "the password or the mechanism" in str(wrong)
    assert isinstance(failed("a:1", 3, TopicAuthorizationFailedError("x.publish")), NotAllowed)
    assert isinstance(failed("a:1", 3, KafkaTimeoutError()), Unreachable)
    closed = KafkaConnectionError("socket disconnected")
    plain = failed("a:1", 3, closed)
    assert isinstance(plain, Unreachable) and "or give it security" in str(plain)
    assert "security" not in str(failed("a:1", 3, KafkaTimeoutError()))
    assert isinstance(failed(Address("a:1", Security(**SCRAM)), 3, closed, KafkaTimeoutError()), NotAdmitted)


def test_a_command_checks_the_files_before_it_connects(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        connect_admin(parse(CONFIG).kafka.bootstrap)
    Path("lacuna.toml").write_text(CONFIG)
    assert main(["publish", "--broker", "hub", "--id", "p", "--at", '{"x": 1}']) == 2
    assert "password_file = 'pw': there is no such file. Remedy" in capsys.readouterr().err


# rights


def test_every_role_has_commands_for_its_topics_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lacuna.toml").write_text(CONFIG.replace("[kafka]", '[kafka]\nprefix = "p"'))
    for role in ROLES:
        assert main(["acl", role, "--user", "x y"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert all(line.startswith("kafka-acls.sh --bootstrap-server 127.0.0.1:1 ") for line in lines)
        assert all("--add --allow-principal 'User:x y' --operation" in line for line in lines)
        named = {word for line in lines for word in line.split() if word.startswith("p.")}
        assert named == {right.name for right in rights(role, Topics("p"))}
    writers = {role for role in ROLES for right in rights(role, Topics("p")) if right[1:] == ("p.records", "Write")}
    assert writers == {"router"}
