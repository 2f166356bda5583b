"""`[kafka] security` for the two kinds of Kafka clients, and what is checked before either is used.

    security ──▶ python_options   kafka-python: producers, consumers, admin
             └─▶ spark_options    Spark's sources and sinks: the Java client

Secrets are read from their file or variable each time a connection of Python's is opened, so a rotated one is taken up
with the next connection. Spark never gets a secret: its options hold a reference (`${dir:FOLDER:FILE}`) that the Java
client resolves itself, so nothing of it is in Spark's configuration, plans or logs. A running query keeps the secret
that it began with until it is started again.

Both clients fail in ways that do not name the cause, and the Java one only in the middle of a batch. So `check` looks
at every file first: each fault that was met is one message with its remedy.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from state.errors import ConfigError
from state.protocol.security import TOKENS, WHERE, Security

JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    TOKENS: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
TOKEN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
PROVIDERS = {
    "dir": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    "env": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.S)
UNQUOTABLE = ('"', "\\", "\n", "\r")
"""Java reads the password inside quotation marks."""


# For the two kinds of clients


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]
    """The token in a file, which is read for every login."""

    def __init__(self, path: str) -> None:
        self._path = path

    def token(self) -> str:
        """Return the token as it is now."""
        return _text_in("token_file", self._path)


def python_options(security: Security) -> dict[str, Any]:
    """Return the options of a kafka-python client. Raises `ConfigError` if a secret cannot be read."""
    if security == Security():
        return {}
    options: dict[str, Any] = {"security_protocol": security.protocol}
    if security.encrypts:
        options |= {"ssl_context": tls_context(security)}
    if security.logs_in:
        options["sasl_mechanism"] = security.mechanism
    if security.token_file is not None:
        options["sasl_oauth_token_provider"] = TokenFile(security.token_file)
    elif security.logs_in:
        options |= {"sasl_plain_username": security.username, "sasl_plain_password": password_of(security)}
    return options


def spark_options(security: Security) -> dict[str, str]:
    """Return the options of Spark's sources and sinks, without any secret."""
    if security == Security():
        return {}
    options = {"security.protocol": security.protocol}
    for kind, path in (("truststore", security.ca_file), ("keystore", security.cert_file)):
        if path is not None:
            options |= {f"ssl.{kind}.type": "PEM", f"ssl.{kind}.location": str(Path(path).resolve())}
    if security.logs_in:
        options |= {"sasl.mechanism": str(security.mechanism), **_login(security)}
    return {f"kafka.{key}": value for key, value in options.items()}


def _login(security: Security) -> dict[str, str]:
    module = JAAS[str(security.mechanism)]
    if security.token_file is not None:
        return {
            "sasl.jaas.config": f"{module} required;",
            "sasl.oauthbearer.token.endpoint.url": Path(security.token_file).resolve().as_uri(),
            "sasl.login.callback.handler.class": TOKEN_HANDLER,
        }
    name = str(security.username).replace("\\", "\\\\").replace('"', '\\"')
    if security.password_env is not None:
        provider, reference = "env", f"${{env:{security.password_env}}}"
    else:
        path = Path(str(security.password_file)).resolve()
        provider, reference = "dir", f"${{dir:{path.parent}:{path.name}}}"
    return {
        "sasl.jaas.config": f'{module} required username="{name}" password="{reference}";',
        "config.providers": provider,
        f"config.providers.{provider}.class": PROVIDERS[provider],
    }


def tls_context(security: Security) -> ssl.SSLContext:
    """Return how Python encrypts connections. Raises `ConfigError` if a file cannot be used for that."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if security.ca_file is not None:
        with _faults("ca_file", security.ca_file, "it holds no certificate in PEM"):
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=security.ca_file)
    if security.cert_file is not None:
        with _faults("cert_file", security.cert_file, "key and certificate are not both in it, or do not fit together"):
            context.load_cert_chain(security.cert_file)
    return context


def password_of(security: Security) -> str:
    """Return the password as it is now."""
    if security.password_env is not None:
        found = os.environ.get(security.password_env)
        if found is None:
            rule = "there is no such variable in the environment"
            raise ConfigError(f"{WHERE}.password_env", security.password_env, rule, "set it for this process")
        return found
    return _text_in("password_file", str(security.password_file))


# Checks


def check(security: Security) -> None:
    """Refuse what no connection could be made with. Raises `ConfigError` with the file, the rule and the remedy."""
    if security.encrypts:
        if security.cert_file is not None:
            _check_key(security.cert_file)
        tls_context(security)
        for file, moment in expiries(security).items():
            if moment <= datetime.now(UTC).timestamp():
                rule = f"a certificate in it has expired on {datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
                raise ConfigError(WHERE, file, rule, "put a certificate there that is valid, and start again")
    if security.token_file is not None:
        _text_in("token_file", security.token_file)
    elif security.logs_in:
        _check_password(password_of(security), security)


def _check_password(password: str, security: Security) -> None:
    key = "password_file" if security.password_env is None else "password_env"
    place = security.password_file or security.password_env
    if password.endswith(("\n", "\r")):
        rule = "it ends with a line break, which would be a part of the password"
        raise ConfigError(f"{WHERE}.{key}", place, rule, "write it without, as `printf %s` does")
    if not password:
        raise ConfigError(f"{WHERE}.{key}", place, "it is empty", "put the password there")
    if any(sign in password for sign in UNQUOTABLE):
        rule = "the password contains a quotation mark, a backslash or a line break, which Java's clients cannot take"
        raise ConfigError(f"{WHERE}.{key}", place, rule, "choose another password")


def _check_key(path: str) -> None:
    content = _bytes_in("cert_file", path)
    if b"-----BEGIN RSA PRIVATE KEY-----" in content or b"-----BEGIN EC PRIVATE KEY-----" in content:
        rule = "its key is in the old form (PKCS#1 or SEC1), which Java's clients do not read"
        raise ConfigError(
            f"{WHERE}.cert_file", path, rule, "convert it: openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW"
        )
    if b"-----BEGIN PRIVATE KEY-----" not in content:
        rule = "it holds no unencrypted private key in PKCS#8"
        raise ConfigError(f"{WHERE}.cert_file", path, rule, "put key and certificate chain into this one file, as PEM")


def expiries(security: Security) -> dict[str, float]:
    """Return until when each file of certificates is valid: the first moment at which one of them expires."""
    files = {"ca_file": security.ca_file, "cert_file": security.cert_file}
    found = {path: _expiry(key, path) for key, path in files.items() if path is not None}
    return {path: moment for path, moment in found.items() if moment is not None}


def _expiry(key: str, path: str) -> float | None:
    ends = [_end_of(certificate) for certificate in CERTIFICATE.findall(_bytes_in(key, path))]
    return min((end for end in ends if end is not None), default=None)


def _end_of(pem: bytes) -> float | None:
    """Return when a certificate expires: the second of the two times of its validity, read from its DER form."""
    der = ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))
    times = re.findall(rb"\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z", der)
    if len(times) < 2:
        return None
    short, long = times[1]
    text = long.decode() if long else f"{'20' if short < b'50' else '19'}{short.decode()}"
    return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()


def _text_in(key: str, path: str) -> str:
    return _bytes_in(key, path).decode("utf-8", errors="replace")


def _bytes_in(key: str, path: str) -> bytes:
    with _faults(key, path, "it cannot be read"):
        return Path(path).read_bytes()


@contextmanager
def _faults(key: str, path: str, rule: str) -> Iterator[None]:
    """Turn a file that cannot be used into one message."""
    where = f"{WHERE}.{key}"
    try:
        yield
    except FileNotFoundError:
        raise ConfigError(where, path, "there is no such file", "name the one that holds it") from None
    except PermissionError:
        raise ConfigError(where, path, "this user may not read it", "change its owner or its mode") from None
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(where, path, f"{rule} ({reason})", "put the right file there") from None
