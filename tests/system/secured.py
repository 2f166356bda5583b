"""A real Kafka with TLS, all mechanisms and ACLs, its certificates, and tokens that it accepts.

INTERNAL   plain text; whoever comes in there may do everything: it makes users and rights
CLIENT     SASL_SSL with SCRAM-SHA-512 or -256; nobody may do anything that is not granted
NAMED      SASL_SSL with PLAIN, one user
TOKEN      SASL_SSL with OAUTHBEARER: tokens that the key in token.key has signed
MUTUAL     SSL; clients show a certificate
EXPIRED    SASL_SSL, with a certificate that has expired
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.errors import KafkaError

from infra import fetch, jars, kraft
from infra.java import find_java
from infra.ports import HOST, find_free
from tests.system.live import wait_until

PROTOCOLS = {
    "INTERNAL": "PLAINTEXT",
    "CONTROLLER": "PLAINTEXT",
    "CLIENT": "SASL_SSL",
    "NAMED": "SASL_SSL",
    "TOKEN": "SASL_SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SASL_SSL",
}
SETTINGS = """
inter.broker.listener.name=INTERNAL
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256
listener.name.named.sasl.enabled.mechanisms=PLAIN
listener.name.named.plain.sasl.jaas.config={plain}.PlainLoginModule required user_named="{password}";
listener.name.token.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.token.oauthbearer.sasl.jaas.config={oauth}.OAuthBearerLoginModule required;
listener.name.token.oauthbearer.sasl.server.callback.handler.class={oauth}.OAuthBearerValidatorCallbackHandler
listener.name.token.oauthbearer.sasl.oauthbearer.jwks.endpoint.url={keys}
ssl.keystore.type=PEM
ssl.truststore.type=PEM
ssl.keystore.location=server.pem
ssl.truststore.location=ca.pem
listener.name.mutual.ssl.client.auth=required
listener.name.expired.ssl.keystore.type=PEM
listener.name.expired.ssl.keystore.location=expired.pem
"""
PLAIN_PASSWORD = "pass word of named 7Qx"
LOGIN = "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;"


def openssl(home: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=home, check=True, capture_output=True)


def encoded(content: bytes) -> str:
    """Base64 as tokens have it."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def make_signing_key(home: Path) -> None:
    """Make token.key, and jwks.json, by which Kafka knows what it has signed."""
    openssl(home, "genrsa", "-out", "token.key", "2048")
    shown = subprocess.run(
        ["openssl", "rsa", "-in", "token.key", "-noout", "-modulus"], cwd=home, check=True, capture_output=True
    )
    modulus = bytes.fromhex(shown.stdout.decode().strip().partition("=")[2])
    key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "k1", "e": "AQAB", "n": encoded(modulus)}
    (home / "jwks.json").write_text(json.dumps({"keys": [key]}))


def make_token(home: Path, user: str, seconds: float = 3600) -> str:
    """A token for a user, signed, valid for so many seconds from now."""
    now = int(time.time())
    claims = {"sub": user, "scope": "kafka", "iat": now - 7200, "exp": now + round(seconds)}
    parts = [encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "k1", "typ": "JWT"}, claims)]
    signed = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", "token.key"],
        cwd=home,
        input=".".join(parts).encode(),
        capture_output=True,
        check=True,
    )
    return ".".join([*parts, encoded(signed.stdout)])


def make_certificates(home: Path) -> None:
    """Make ca.pem, and signed by it, each with its key: server.pem, expired.pem, client.pem."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(home, "req", "-x509", *curve, "-subj", "/CN=test ca", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem")
    (home / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
    for name, days in (("server", "2"), ("expired", "-1"), ("client", "2")):
        openssl(home, "req", "-new", *curve, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
        openssl(home, "x509", "-req", "-in", f"{name}.csr", *signed, "-days", days, "-out", f"{name}.crt")
        parts = (f"{name}.key", f"{name}.crt", "ca.pem")
        (home / f"{name}.pem").write_bytes(b"".join((home / part).read_bytes() for part in parts))


class SecuredKafka:
    """A running Kafka, below a folder of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()
        make_certificates(home)
        make_signing_key(home)
        self.ports = {name: find_free() for name in PROTOCOLS}
        fetch.ensure("kafka")
        self._java, self._library = find_java().path, jars.pinned("kafka").folder
        (home / kraft.SETTINGS).write_text(self._settings())
        self._format()
        self.start()

    def start(self) -> None:
        keys = (self.home / "jwks.json").as_uri()
        mark = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
        command = kraft.broker_command(self._java, self._library, mark)
        with (self.home / "kafka.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.home, stdout=log, stderr=log, start_new_session=True)
        wait_until(self._answers, "the secured Kafka answers", 120)

    def at(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def _settings(self) -> str:
        ports = kraft.Ports(self.ports["INTERNAL"], self.ports["CONTROLLER"])
        kraft.write_settings(self.home, ports)
        plain = (self.home / kraft.SETTINGS).read_text()
        replaced = (
            "listeners=",
            "advertised.listeners=",
            "inter.broker.listener.name=",
            "listener.security.protocol.map=",
        )
        kept = [line for line in plain.splitlines() if not line.startswith(replaced)]
        listeners = ",".join(f"{name}://{self.at(name)}" for name in PROTOCOLS)
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items())
        kept += [f"listeners={listeners}", f"advertised.listeners={listeners}"]
        keys = (self.home / "jwks.json").as_uri()
        modules = {name: f"org.apache.kafka.common.security.{name}" for name in ("plain", "oauthbearer")}
        settings = SETTINGS.format(
            plain=modules["plain"], oauth=modules["oauthbearer"], password=PLAIN_PASSWORD, keys=keys
        )
        kept += [f"listener.security.protocol.map={protocols}", settings]
        for name in ("client", "expired"):
            kept += [f"listener.name.{name}.{mechanism}.{LOGIN}" for mechanism in ("scram-sha-512", "scram-sha-256")]
        return "\n".join(kept)

    def _format(self) -> None:
        tool = [self._java, *kraft.TOOL_JVM, "-cp", f"{self._library}/*", "kafka.tools.StorageTool"]
        command = [*tool, "format", "--standalone", "-t", kraft._new_cluster_id(), "-c", kraft.SETTINGS]
        subprocess.run(command, cwd=self.home, check=True, capture_output=True)

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.home / "kafka.log").read_text()[-3000:]
        try:
            with closing(self.admin()) as admin:
                return bool(admin.describe_cluster()["brokers"])
        except (KafkaError, OSError):
            return False

    def admin(self) -> Any:
        return KafkaAdminClient(bootstrap_servers=self.at("INTERNAL"), bootstrap_timeout_ms=5000)

    def add_user(self, name: str, password: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512) -> None:
        """Make a user who may do nothing."""
        made = UserScramCredentialUpsertion(name, mechanism, password)
        with closing(self.admin()) as admin:
            assert admin.alter_user_scram_credentials([made]) == {name: None}

    def grant(self, printed: str) -> None:
        """Grant what `lacuna acl --json` printed, and nothing else."""
        asked = json.loads(printed)
        acls = [
            ACL(
                asked["principal"],
                "*",
                ACLOperation[_constant(right["operation"])],
                ACLPermissionType.ALLOW,
                ResourcePattern(ResourceType[right["resource"].upper()], right["name"]),
            )
            for right in asked["rights"]
        ]
        with closing(self.admin()) as admin:
            assert not admin.create_acls(acls)["failed"]

    @contextmanager
    def denied(self, user: str, topic: str, operation: ACLOperation) -> Iterator[None]:
        """A right is taken away from a user for a while."""
        acl = ACL(f"User:{user}", "*", operation, ACLPermissionType.DENY, ResourcePattern(ResourceType.TOPIC, topic))
        with closing(self.admin()) as admin:
            assert not admin.create_acls([acl])["failed"]
            try:
                yield
            finally:
                admin.delete_acls([acl])

    def allow_all(self, user: str, topic: str) -> None:
        """Make a topic with which a user may do everything."""
        rights = [(topic, operation) for operation in ("Read", "Write", "Describe")]
        asked = [{"resource": "topic", "name": name, "operation": operation} for name, operation in rights]
        with closing(self.admin()) as admin:
            admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
        self.grant(json.dumps({"principal": f"User:{user}", "rights": asked}))

    def stop(self, number: int = signal.SIGKILL) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
        self.process.wait()


def _constant(operation: str) -> str:
    """`DescribeConfigs` as the library calls it."""
    return "".join(f"_{sign}" if sign.isupper() and k else sign for k, sign in enumerate(operation)).upper()
