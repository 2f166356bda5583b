"""`[kafka] security` for the two kinds of Kafka clients, and what is checked before either is used.

    security ──▶ python_options   kafka-python: producers, consumers, admin
             └─▶ spark_options    Spark's sources and sinks: the Java client

Python's clients read passwords, tokens and certificates from their files each time they open a connection, so a rotated
one is taken up by itself. Spark never gets a secret: its options hold a reference (`${dir:FOLDER:FILE}`) that the Java
client resolves itself, so nothing of it is in Spark's configuration, plans or logs. A Java client keeps what it began
with, and Spark keeps clients for later queries with the same options. So the options hold a stamp of the files too: a
query that is started after a rotation gets new clients (`streaming.rotation`).

Both clients fail in ways that do not name the cause, and the Java one only in the middle of a batch. So `check` looks
at every file first: each fault that was met is one message with its remedy.
"""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kafka.net.sasl import get_sasl_mechanism, register_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from state.errors import ConfigError
from state.protocol.security import PASSWORDS, TOKENS, WHERE, Security

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
STAMP = "lacuna.secrets.stamp"
"""A key that Kafka's clients do not know, and ignore."""
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.S)
UNQUOTABLE = ('"', "\\", "\n", "\r")
"""Java reads the password inside quotation marks."""


# For the two kinds of clients


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]
    """The token in a file, which is read for every login."""

    def __init__(self, path: str) -> None:
        self._path = path

    def token(self) -> str:
        """Return the token as it is now. Java's clients ignore white space around it, and so does this."""
        return _text_in("token_file", self._path).strip()


class Password:
    """A password that is read for every login. While it cannot be read, it is what it was."""

    def __init__(self, security: Security) -> None:
        self._security, self._last = security, password_of(security)

    def now(self) -> str:
        """Return the password as it is now."""
        with suppress(ConfigError):
            self._last = password_of(self._security)
        return self._last


def _reading_again(mechanism: type[Any]) -> type[Any]:
    """Return a mechanism of kafka-python, made for each connection, that asks a `Password` for its text."""

    class Reading(mechanism):  # type: ignore[misc]
        def __init__(self, **config: Any) -> None:
            given = config.get("sasl_plain_password")
            super().__init__(**config | ({"sasl_plain_password": given.now()} if isinstance(given, Password) else {}))

    return Reading


for _name in PASSWORDS:
    register_sasl_mechanism(_name, _reading_again(get_sasl_mechanism(_name)), overwrite=True)


class Encryption(ssl.SSLContext):
    """How Python encrypts connections, with the certificates that are in the files when a connection is opened.

    Certificates of authorities are added, and none is taken away, until the process ends.
    """

    _security: Security
    _stamp: str

    def load(self, security: Security) -> None:
        """Load the certificates. Raises `ConfigError` if a file cannot be used for that."""
        self._security, self._stamp = security, stamp(security)
        if security.ca_file is None:
            self.load_default_certs()
        else:
            with _faults("ca_file", security.ca_file, "it holds no certificate in PEM"):
                self.load_verify_locations(security.ca_file)
        if security.cert_file is not None:
            rule = "key and certificate are not both in it, or do not fit together"
            with _faults("cert_file", security.cert_file, rule):
                self.load_cert_chain(security.cert_file)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Encrypt a new connection. Files that cannot be used now, as in the middle of a rotation, are left out."""
        if stamp(self._security) != self._stamp:
            with suppress(ConfigError):
                self.load(self._security)
        return super().wrap_socket(*args, **options)


def stamp(security: Security) -> str:
    """Return which versions of the files there are: another text after each rotation, without anything of a secret."""
    files = (security.password_file, security.token_file, security.cert_file, security.ca_file)
    return "-".join(_version(path) for path in files if path is not None)


def _version(path: str) -> str:
    try:
        found = Path(path).stat()
    except OSError:
        return "none"
    return f"{found.st_mtime_ns:x}.{found.st_ino:x}"


def python_options(security: Security) -> dict[str, Any]:
    """Return the options of a kafka-python client. Raises `ConfigError` if a secret cannot be read."""
    if security == Security():
        return {}
    options: dict[str, Any] = {"security_protocol": security.protocol}
    if security.encrypts:
        options |= {"ssl_context": encryption(security)}
    if security.logs_in:
        options["sasl_mechanism"] = security.mechanism
    if security.token_file is not None:
        options["sasl_oauth_token_provider"] = TokenFile(security.token_file)
    elif security.logs_in:
        options |= {"sasl_plain_username": security.username, "sasl_plain_password": Password(security)}
    return options


def spark_options(security: Security) -> dict[str, str]:
    """Return the options of Spark's sources and sinks, without any secret."""
    if security == Security():
        return {}
    options = {"security.protocol": security.protocol, STAMP: stamp(security)}
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
            "sasl.jaas.config": f'{module} required stamp="{stamp(security)}";',  # one login is kept for each text
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


def encryption(security: Security) -> Encryption:
    """Return how Python encrypts connections. Raises `ConfigError` if a file cannot be used for that."""
    made = Encryption(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.load(security)
    return made


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
        encryption(security)
        for file, moment in expiries(security).items():
            if moment <= datetime.now(UTC).timestamp():
                rule = f"a certificate in it has expired on {datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
                raise ConfigError(WHERE, file, rule, "put a certificate there that is valid, and start again")
    if security.token_file is not None:
        _check_token(TokenFile(security.token_file).token(), security.token_file)
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


def _check_token(token: str, path: str) -> None:
    """Refuse what Java's clients refuse, or Kafka without a word. The signature is for Kafka to check."""
    where = f"{WHERE}.token_file"
    if not token:
        raise ConfigError(where, path, "it is empty", "put the token there")
    try:
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        expires = float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        rule = "it holds no token of three parts (a JWT) that says when it expires"
        raise ConfigError(where, path, rule, "put the token there, and nothing else") from None
    if expires <= datetime.now(UTC).timestamp():
        rule = f"its token has expired on {datetime.fromtimestamp(expires, UTC):%Y-%m-%d %H:%M} UTC"
        raise ConfigError(where, path, rule, "put a token there that is valid, and start again")


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
