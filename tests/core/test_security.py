"""`[kafka] security`: what is read, what each kind of client gets, and what is refused before either is used."""

from __future__ import annotations

import pickle
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from kafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
)

from access.connection import connect_admin, spark_options
from access.errors import NotAdmitted, NotAllowed, Unreachable, failed
from access.rights import ROLES, rights
from access.security import TokenFile, check, expiries, password_of, python_options
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


def certificate(days: int = 30) -> None:
    """A certificate that signs itself, in ca.pem, and the same with its key in both.pem."""
    asked = ("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x")
    openssl(*asked, "-keyout", "key.pem", "-out", "asked.csr")
    openssl("x509", "-req", "-in", "asked.csr", "-signkey", "key.pem", "-days", str(days), "-out", "ca.pem")
    Path("both.pem").write_bytes(Path("key.pem").read_bytes() + Path("ca.pem").read_bytes())


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
        ({"protocol": "SASL_SSL", "mechanism": "GSSAPI"}, "mechanism", "SASL needs a mechanism"),
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


def test_a_password_in_the_configuration_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="does not stand in the configuration") as raised:
        read_security({"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "ann", "password": PASSWORD})
    assert PASSWORD not in str(raised.value)


# what clients get


def test_spark_gets_references_and_no_secret(home: Path) -> None:
    certificate()
    security = read_security(SCRAM | {"ca_file": "ca.pem", "cert_file": "both.pem"})
    options = spark_options(Kafka("a:1", security=security).bootstrap)
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
    assert python_options(security)["sasl_plain_password"] == PASSWORD
    jaas = spark_options(Address("a:1", security))["kafka.sasl.jaas.config"]
    assert jaas.endswith('password="${env:KAFKA_PW}";') and PASSWORD not in jaas
    monkeypatch.delenv("KAFKA_PW")
    with pytest.raises(ConfigError, match="no such variable"):
        check(security)


def test_secrets_are_read_again_for_each_connection() -> None:
    security, tokens = Security(**SCRAM), TokenFile("token")
    assert password_of(security) == PASSWORD
    Path("secret/pw").write_text("rotated")
    assert password_of(security) == "rotated"
    for token in ("one", "two"):
        Path("token").write_text(token)
        assert tokens.token() == token


def test_a_token_comes_from_its_file(home: Path) -> None:
    Path("token").write_text("ey")
    security = Security("SASL_SSL", "OAUTHBEARER", token_file="token")
    check(security)
    assert python_options(security)["sasl_oauth_token_provider"].token() == "ey"
    options = spark_options(Address("a:1", security))
    assert options["kafka.sasl.oauthbearer.token.endpoint.url"] == f"file://{home}/token"
    assert "username" not in options["kafka.sasl.jaas.config"]


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
    assert isinstance(failed("a:1", 3, closed), Unreachable)
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
