"""How Kafka is spoken to: encrypted or not, and as whom. Names of files and variables only, never a secret itself.

    protocol    PLAINTEXT | SSL | SASL_PLAINTEXT | SASL_SSL
    mechanism   PLAIN | SCRAM-SHA-256 | SCRAM-SHA-512   username, and password_file or password_env
                OAUTHBEARER                             token_file
    ca_file     the certificates that Kafka's own must be signed by; without it, those of the machine
    cert_file   mutual TLS: the client's key (PKCS#8) and certificate chain, in one PEM file

An `Address` is the text of `[kafka] bootstrap` that carries the security with it. Whatever opens a connection gets the
address, and so cannot forget how to speak to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from state.errors import ConfigError, nearest

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOKENS = "OAUTHBEARER"
MECHANISMS = (*PASSWORDS, TOKENS)
WHERE = "kafka.security"


@dataclass(frozen=True)
class Security:
    """A checked `[kafka] security`."""

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None

    @property
    def encrypts(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def logs_in(self) -> bool:
        """Whether connections name a user by SASL."""
        return self.protocol.startswith("SASL")


class Address(str):
    """The address of a Kafka, and how to speak to it.

    >>> Address("localhost:9092") == "localhost:9092", Address("a:1", Security("SSL")).security.encrypts
    (True, True)
    """

    security: Security

    def __new__(cls, text: str, security: Security | None = None) -> Self:
        """Make an address; an address that is made of another keeps its security."""
        made = super().__new__(cls, text)
        made.security = security or security_of(text)
        return made


def security_of(bootstrap: str) -> Security:
    """Return how to speak to an address; a plain text is spoken to in plain text."""
    return bootstrap.security if isinstance(bootstrap, Address) else Security()


def read_security(given: object) -> Security:
    """Read `[kafka] security`. Raises `ConfigError` if it breaks a rule."""
    if not isinstance(given, Mapping):
        raise ConfigError(WHERE, None, "this must be a table", 'write security = { protocol = "SSL", ca_file = "..." }')
    known = tuple(field.name for field in fields(Security))
    for key, value in given.items():
        if key == "password":
            rule = "a secret does not stand in the configuration"
            raise ConfigError(f"{WHERE}.password", None, rule, "put it into a file, and name that: password_file")
        if key not in known:
            raise ConfigError(f"{WHERE}.{key}", None, f"there is no such key{nearest(key.lower(), known)}", _use(known))
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{WHERE}.{key}", value, "this must be a non-empty string", "put it in quotes")
    if "protocol" not in given:
        raise ConfigError(f"{WHERE}.protocol", None, "it is missing", _use(PROTOCOLS))
    security = Security(**given)
    _check(security, given)
    return security


def _check(security: Security, given: Mapping[str, Any]) -> None:
    """Check that what is given fits together."""
    if security.protocol not in PROTOCOLS:
        rule = f"there is no such protocol{nearest(security.protocol.upper(), PROTOCOLS)}"
        raise ConfigError(f"{WHERE}.protocol", security.protocol, rule, _use(PROTOCOLS))
    if security.logs_in and security.mechanism is None:
        raise ConfigError(f"{WHERE}.mechanism", None, "SASL needs a mechanism", _use(MECHANISMS))
    if security.logs_in and security.mechanism not in MECHANISMS:
        rule = f"there is no such mechanism{nearest(str(security.mechanism).upper(), MECHANISMS)}"
        raise ConfigError(f"{WHERE}.mechanism", security.mechanism, rule, _use(MECHANISMS))
    for key in given:
        if key not in _fitting(security):
            rule = f"it has no meaning with {security.protocol} {security.mechanism or ''}".rstrip()
            raise ConfigError(
                f"{WHERE}.{key}", given[key], rule, "leave it out, or choose another protocol or mechanism"
            )
    if security.mechanism in PASSWORDS:
        if security.username is None:
            raise ConfigError(f"{WHERE}.username", None, f"{security.mechanism} needs it", "name the user")
        if (security.password_file is None) == (security.password_env is None):
            rule = f"{security.mechanism} needs one of password_file and password_env"
            raise ConfigError(f"{WHERE}.password_file", None, rule, "name the file that holds the password")
    if security.mechanism == TOKENS and security.token_file is None:
        raise ConfigError(f"{WHERE}.token_file", None, f"{TOKENS} needs it", "name the file that holds the token")


def _fitting(security: Security) -> set[str]:
    """Return the keys that have a meaning with this protocol and mechanism."""
    keys = {"protocol"}
    if security.encrypts:
        keys |= {"ca_file", "cert_file"}
    if security.logs_in:
        keys |= {"mechanism"}
        keys |= {"token_file"} if security.mechanism == TOKENS else {"username", "password_file", "password_env"}
    return keys


def _use(words: tuple[str, ...]) -> str:
    return f"use {', '.join(words)}"
